"""Verdicts: a claim fixed before the data, held, refuted or undecided, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any

from probcalc.errors import InputError
from probcalc.plain import finite

__all__ = [
    "HELD",
    "REFUTED",
    "UNDECIDED",
    "Claim",
    "Outcome",
    "Part",
    "Verdict",
    "as_table",
    "decided",
    "intersection",
]


class Outcome(Enum):
    """What the data say of a claim. It has no truth value: compare it by name."""

    HELD = "held"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    def __bool__(self) -> bool:
        """Refuse: undecided is neither true nor false."""
        raise TypeError(
            f"outcome {self.value!r} has no truth value; compare it with Outcome.HELD, "
            "Outcome.REFUTED or Outcome.UNDECIDED"
        )


HELD, REFUTED, UNDECIDED = Outcome.HELD, Outcome.REFUTED, Outcome.UNDECIDED


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed, before the data are seen: a quantity is at most a margin.

    Parameters
    ----------
    text : str
    margin : float
        Not negative; in `unit`.
    unit : str
    level : float
        Confidence: a wrong "held" and a wrong "refuted" happen at most with
        probability 1 - level each.
    subject : tuple of str
        What it is about, such as the kind of context and the element's name.
    """

    text: str
    margin: float
    unit: str
    level: float = 0.95
    subject: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check margin and level."""
        if isinstance(self.margin, bool | str) or not isinstance(self.margin, Real):
            raise InputError(
                f"claim {self.text!r}: margin is {self.margin!r}, expected a number of "
                f"{self.unit}"
            )
        if not (math.isfinite(self.margin) and self.margin >= 0.0):
            raise InputError(
                f"claim {self.text!r}: margin is {self.margin!r} {self.unit}, expected "
                "a number >= 0, declared before the data"
            )
        if not 0.5 < self.level < 1.0:
            raise InputError(
                f"claim {self.text!r}: level is {self.level!r}, expected 0.5 to 1"
            )


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a verdict: a statistic with its bounds against the margin.

    Attributes
    ----------
    name : str
    value, lower, upper : float
        Estimate and confidence bounds, infinite where a side is open.
    margin : float
    unit : str
    outcome : Outcome
    reason : str
        What the bounds rest on, or why there are none.
    further : int or None
        Blocks per context that would probably decide it; None where it is decided or
        no number of blocks would.
    """

    name: str
    value: float
    lower: float
    upper: float
    margin: float
    unit: str
    outcome: Outcome
    reason: str = ""
    further: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, its parts, and what follows.

    Attributes
    ----------
    claim : Claim
    outcome : Outcome
    parts : tuple of Part
    units : mapping-like tuple of (str, int)
        Independent units (blocks) by context, which n counts.
    assumptions : tuple of str
    """

    claim: Claim
    outcome: Outcome
    parts: tuple[Part, ...]
    units: tuple[tuple[str, int], ...]
    assumptions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Refuse, as of its outcome."""
        return bool(self.outcome)

    @property
    def further(self) -> int | None:
        """Further blocks per context that would probably decide it, if any would."""
        if self.outcome is not UNDECIDED:
            return None
        open_parts = [p.further for p in self.parts if p.outcome is UNDECIDED]
        if not open_parts or None in open_parts:
            return None
        return max(n for n in open_parts if n is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON; infinite bounds become null."""
        return {
            "claim": self.claim.text,
            "margin": {"value": self.claim.margin, "unit": self.claim.unit},
            "level": self.claim.level,
            "outcome": self.outcome.value,
            "further_blocks": self.further,
            "units": dict(self.units),
            "assumptions": list(self.assumptions),
            "parts": [
                {
                    "name": p.name,
                    "unit": p.unit,
                    "value": finite(p.value),
                    "lower": finite(p.lower),
                    "upper": finite(p.upper),
                    "margin": finite(p.margin),
                    "outcome": p.outcome.value,
                    "reason": p.reason,
                    "further_blocks": p.further,
                }
                for p in self.parts
            ],
        }

    def __str__(self) -> str:
        """Lay it out for people."""
        return as_table([self])

    def _repr_html_(self) -> str:
        """Show claim and parts in a notebook."""
        from probcalc.notebook import table

        title = (
            f"{self.outcome.value}: {self.claim.text}, margin {self.claim.margin:.4g} "
            f"{self.claim.unit} at {self.claim.level:.0%}"
        )
        rows: list[list[object]] = [
            [p.name, p.outcome.value, *map(_shown, (p.value, p.lower, p.upper)), p.unit]
            for p in self.parts
        ]
        head = ["part", "outcome", "value", "lower", "upper", "unit"]
        return table(title, head, rows)


def decided(
    name: str,
    value: float,
    lower: float,
    upper: float,
    claim: Claim,
    *,
    margin: float | None = None,
    unit: str | None = None,
    blocks: int = 0,
    reason: str = "",
) -> Part:
    """Compare bounds with the margin: all below is held, all above is refuted.

    Parameters
    ----------
    lower, upper : float
        One-sided confidence bounds at the claim's level each.
    margin, unit : optional
        Of this part, where they are not the claim's.
    blocks : int
        Units the bounds rest on, to say how many more would decide.
    """
    limit = claim.margin if margin is None else margin
    if upper <= limit:
        outcome, more = HELD, None
    elif lower > limit:
        outcome, more = REFUTED, None
    else:
        outcome, more = UNDECIDED, _further(value, lower, upper, limit, blocks)
    unit = claim.unit if unit is None else unit
    return Part(name, value, lower, upper, limit, unit, outcome, reason, more)


def _further(
    value: float, lower: float, upper: float, limit: float, blocks: int
) -> int | None:
    """Blocks to add until the half-width, which falls with their root, is short."""
    half = upper - value if value <= limit else value - lower
    room = abs(limit - value)
    if blocks < 2 or not math.isfinite(half) or room <= 0.0:
        return None
    total = blocks * (half / room) ** 2
    if total > 1e6:
        return None
    return max(math.ceil(total) - blocks, 1)


def intersection(
    claim: Claim,
    parts: Iterable[Part],
    units: Iterable[tuple[str, int]],
    assumptions: Iterable[str] = (),
) -> Verdict:
    """All parts must hold for the claim to hold; one refuted part refutes it.

    Holding needs no correction for their number (intersection-union test); whoever
    makes the parts divides the error of refuting among them.
    """
    parts = tuple(parts)
    if not parts:
        raise InputError(f"claim {claim.text!r}: no parts")
    outcomes = [p.outcome for p in parts]
    if REFUTED in outcomes:
        outcome = REFUTED
    elif all(o is HELD for o in outcomes):
        outcome = HELD
    else:
        outcome = UNDECIDED
    return Verdict(claim, outcome, parts, tuple(units), tuple(assumptions))


def as_table(verdicts: Iterable[Verdict]) -> str:
    """Lay verdicts out for people, one line for each claim and one for each part."""
    lines: list[str] = []
    for v in verdicts:
        counted = ", ".join(f"{n} {name}" for name, n in v.units)
        more = f"; about {v.further} more blocks each" if v.further else ""
        lines.append(
            f"{v.outcome.value.upper():<10}{v.claim.text}, margin "
            f"{v.claim.margin:.4g} {v.claim.unit}".rstrip()
            + f" at {v.claim.level:.0%} "
            f"({counted}{more})"
        )
        for p in v.parts:
            lines.append(
                f"  {p.outcome.value:<10}{p.name:<26} {_shown(p.value)} "
                f"[{_shown(p.lower)}, {_shown(p.upper)}] {p.unit} against "
                f"{p.margin:.4g}{'; ' + p.reason if p.reason else ''}"
            )
    return "\n".join(lines)


def _shown(x: float) -> str:
    return f"{x:.4g}" if math.isfinite(x) else "open"
