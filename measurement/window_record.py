"""What is kept of one window of energy, whether it is valid or not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from probcalc.errors import InputError
from probcalc.measurement.documents import frozen, plain
from probcalc.units import shown

__all__ = ["NUMBERS", "TEXTS", "Window"]

#: Fields that are numbers, with their units.
NUMBERS = {
    "start": "s",
    "end": "s",
    "energy": "J",
    "lower": "J",
    "upper": "J",
    "estimate": "J",
}
TEXTS = ("kind", "method", "source", "scope")


@dataclass(frozen=True, slots=True)
class Window:
    """One window of energy of a signature.

    Attributes
    ----------
    block : int
        Number of its block, from 0.
    run : int or None
        Its column in the arrays; None for a window that is no run, such as idle.
    valid : bool
    reasons : tuple of str
        Why it is not valid; empty where it is.
    start, end : float or None
        Host clock in s.
    energy, lower, upper : float or None
        Of the whole window in J, with its interval; None where missing.
    estimate : float or None
        In J, what an estimator says of an invalid window; not to be used.
    repetitions : int or None
        Executions in the window.
    kind, method, source, scope : str
        Of the interval and the reading; empty where unknown.
    notes : tuple of str
    details : mapping
        All else: gaps, temperatures, throttling.
    """

    block: int
    run: int | None
    valid: bool
    reasons: tuple[str, ...] = ()
    start: float | None = None
    end: float | None = None
    energy: float | None = None
    lower: float | None = None
    upper: float | None = None
    estimate: float | None = None
    repetitions: int | None = None
    kind: str = ""
    method: str = ""
    source: str = ""
    scope: str = ""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what it says of itself."""
        where = f"window of block {self.block}"
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None:
                try:
                    number = float(value)
                except (TypeError, ValueError):
                    number = math.nan
                if not math.isfinite(number):
                    raise InputError(
                        f"{where}, {name} is {value!r}, expected a finite number; "
                        "missing is None"
                    )
                object.__setattr__(self, name, number)
        for name in ("reasons", "notes"):
            object.__setattr__(self, name, tuple(map(str, getattr(self, name))))
        for name in TEXTS:
            if not (
                isinstance(text := getattr(self, name), str) and text.isprintable()
            ):
                raise InputError(
                    f"{where}, {name} is {shown(text)}, expected a text of one line"
                )
        object.__setattr__(self, "details", frozen(self.details, f"{where}, details"))
        if self.valid and (self.energy is None or self.reasons):
            raise InputError(f"{where} is valid, expected an energy and no reasons")
        if not self.valid and (self.energy is not None or not self.reasons):
            raise InputError(f"{where} is invalid, expected reasons and no energy")

    @classmethod
    def of(
        cls, found: Any, block: int, run: int | None = None, **details: Any
    ) -> Window:
        """Take over a `WindowEnergy`, or a mapping with the same fields.

        What a window record has no field of its own for is kept in `details`; numbers
        that are not finite there become None.
        """
        held = asdict(found) if is_dataclass(found) else dict(found)  # type: ignore[arg-type]
        names = (*NUMBERS, *TEXTS, "valid", "reasons", "repetitions", "notes")
        own = {name: held.pop(name) for name in names if name in held}
        rest = {name: _finite(value) for name, value in held.items()}
        return cls(block, run, **own, details=rest | details)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def _finite(value: Any) -> Any:
    missing = isinstance(value, float) and not math.isfinite(value)
    return None if missing else value
