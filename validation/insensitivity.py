"""May context be ignored? History and interference, at quantiles (section 4.1).

An element measured in a null context and in another one is insensitive where

    P |dT| + |dd| + |ds| T <= margin

with P its static power in the other context and d. the change from one to the other.
The claim has three parts, all of which must hold: location (means), quantiles, and
exceedances, since a rare slow mode leaves means and most quantiles where they are.
The unit is the block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.validation.blocks import Blocked, welch, welch_error
from probcalc.validation.quantiles import effective_runs, exceedance, quantile_bounds
from probcalc.validation.verdict import (
    UNDECIDED,
    Claim,
    Part,
    Verdict,
    decided,
    intersection,
)

__all__ = [
    "Shift",
    "history_insensitive",
    "interference_insensitive",
    "mutually_insensitive",
    "p_value",
    "paper_margin",
    "plain_rule",
    "shift_bounds",
    "split_budget",
]

FloatArray = npt.NDArray[np.float64]
#: Quantile levels that are compared; name others to test further out.
LEVELS = (0.5, 0.9)
#: More runs beyond everything seen in the null context than this are not ignored.
TAIL = 0.005
#: Share of processes that may differ from all others; eleven processes can show it.
PROCESSES = 0.25


@dataclass(frozen=True, slots=True)
class Shift:
    """How far one element's signature may move from one context to another.

    Attributes
    ----------
    time : float
        Largest shift of a quantile of T, s.
    dynamic_energy : float
        Of d, J.
    static_power : float
        Of s, W.
    """

    time: float
    dynamic_energy: float
    static_power: float = 0.0


def history_insensitive(
    null: Element,
    other: Element,
    *,
    margin: float | str,
    level: float = 0.95,
    levels: Sequence[float] = LEVELS,
    tail: float | None = TAIL,
    processes: float = PROCESSES,
    resolution: float = 0.0,
) -> Verdict:
    """Whether what ran before may be ignored (section 4.1.1).

    Parameters
    ----------
    null, other : Element
        The element as measured from the null context, and from the other one.
    margin : float or str
        Declared before the data: J, or ``"2 %"`` of the mean energy of `null`.
        `paper_margin` and `split_budget` give others.
    level : float
        Confidence of a verdict, either way.
    levels : sequence of float
        Quantiles that are compared.
    tail : float or None
        Share of runs in the other context that may lie more than the margin beyond
        all runs in the null context, processes being alike in this; None leaves both
        parts about exceedances out, and the claim says so.
    processes : float
        Share of processes, in the other context, that may have such runs: whole
        processes that are slow are bounded by their number alone.
    resolution : float
        Of the instrument in J; needed where runs do not vary at all.

    Raises
    ------
    InputError
        Elements without measured runs, or on different devices.
    """
    return _insensitive(
        "history",
        null,
        other,
        margin,
        level,
        levels,
        tail,
        processes,
        resolution,
    )


def interference_insensitive(
    alone: Element,
    beside: Element,
    *,
    margin: float | str,
    level: float = 0.95,
    levels: Sequence[float] = LEVELS,
    tail: float | None = TAIL,
    processes: float = PROCESSES,
    resolution: float = 0.0,
) -> Verdict:
    """Whether what runs beside it may be ignored (section 4.1.2); as the other."""
    return _insensitive(
        "interference",
        alone,
        beside,
        margin,
        level,
        levels,
        tail,
        processes,
        resolution,
    )


def mutually_insensitive(verdicts: Sequence[Verdict]) -> Verdict:
    """Whether all of several verdicts hold: both elements, both kinds (section 4.1.3).

    Raises
    ------
    InputError
        No verdicts, or of several levels.
    """
    if not verdicts:
        raise InputError("mutually insensitive: no verdicts, expected at least one")
    levels = {v.claim.level for v in verdicts}
    if len(levels) > 1:
        raise InputError(f"mutually insensitive: levels {sorted(levels)}, expected one")
    parts = [
        Part(
            v.claim.text[:60],
            max((p.value for p in v.parts if p.unit == "J"), default=math.nan),
            max((p.lower for p in v.parts if p.unit == "J"), default=math.nan),
            max((p.upper for p in v.parts if p.unit == "J"), default=math.nan),
            v.claim.margin,
            "J",
            v.outcome,
            further=v.further,
        )
        for v in verdicts
    ]
    claim = Claim(
        "mutually context-insensitive",
        max(v.claim.margin for v in verdicts),
        "J",
        levels.pop(),
    )
    return intersection(claim, parts, [("verdicts", len(parts))])


def _insensitive(
    kind: Literal["history", "interference"],
    null: Element,
    other: Element,
    margin: float | str,
    level: float,
    levels: Sequence[float],
    tail: float | None,
    processes: float,
    resolution: float,
) -> Verdict:
    a, b = _measured(null), _measured(other)
    if set(null.devices) != set(other.devices):
        raise InputError(
            f"elements {null.name!r} on {null.devices} and {other.name!r} on "
            f"{other.devices}: expected the same devices"
        )
    if null.grain != other.grain:
        raise InputError(
            f"element {null.name!r}: means of {null.grain} runs and of {other.grain}, "
            "expected one grain"
        )
    for name, value in (("tail", tail), ("processes", processes)):
        if value is not None and not 0.0 <= value < 1.0:
            raise InputError(f"{name} is {value!r}, expected a share from 0 to 1")
    if not (math.isfinite(resolution) and resolution >= 0.0):
        raise InputError(f"resolution is {resolution!r} J, expected a number >= 0")
    text = f"{kind}-insensitive: {null.name}"
    if tail is None:
        text += " (means and quantiles; exceedances not tested)"
    claim = Claim(text, _margin(margin, null), "J", level, (kind, null.name))
    units = [("blocks alone", a.time.blocks), ("blocks in context", b.time.blocks)]
    count = 1 + len(levels) + 2 * (tail is not None)
    weights = _Weights.of(null, other)
    parts = [_location(a, b, weights, claim, count, resolution)]
    parts += [_at_quantile(a, b, weights, claim, count, p) for p in levels]
    if tail is not None:
        parts.append(_tail(a, b, claim, count, tail))
        parts.append(_whole_processes(a, b, claim, count, processes))
    return intersection(
        claim,
        parts,
        units,
        [
            "blocks are independent",
            "static power is known exactly (axiom M1)",
            "processes are alike in how often their runs exceed",
        ],
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    time: Blocked
    dynamic: Blocked
    energy: Blocked


def _measured(e: Element) -> _Measured:
    if e.runs is None:
        raise InputError(
            f"element {e.name!r}: no measured runs; expected Element.from_runs"
        )
    where = f"element {e.name!r}"
    time = Blocked.of(e.runs.time, e.runs.blocks, name=f"{where}, time")
    return _Measured(
        time,
        time.with_values(e.runs.dynamic_energy, f"{where}, dynamic energy"),
        time.with_values(e.runs.energy, f"{where}, energy"),
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """What a second of T counts in J, and what a change of static power adds."""

    time: float
    static: float

    @classmethod
    def of(cls, null: Element, other: Element) -> _Weights:
        power = math.fsum(other.powers.values())
        change = abs(power - math.fsum(null.powers.values()))
        # s |dT| + |ds| |dT| + |ds| T (section 4.1.1), s and T in the other context.
        return cls(power + change, change)


def _location(
    a: _Measured,
    b: _Measured,
    weights: _Weights,
    claim: Claim,
    count: int,
    resolution: float,
) -> Part:
    """The left side is the largest of four linear contrasts, each by Welch's t.

    All four below the margin is one test at the level (intersection-union); one of
    four above it shares the error of refuting with the others and the other parts.
    """
    refuting = 1.0 - (1.0 - claim.level) / (4 * count)
    found = []
    still = True
    for u, v in itertools.product((1.0, -1.0), repeat=2):
        before = a.time.with_values(
            u * weights.time * a.time.values + v * a.dynamic.values
        )
        after = b.time.with_values(
            (u * weights.time + weights.static) * b.time.values + v * b.dynamic.values
        )
        value, _, upper = welch(before, after, claim.level)
        _, lower, _ = welch(before, after, refuting)
        # Block means of runs that are all alike differ by rounding alone.
        spread = max(np.ptp(before.means), np.ptp(after.means))
        still &= bool(spread <= 1e-12 * np.abs(after.means).max())
        found.append((value, lower, upper))
    value, lower, upper = (max(column) for column in zip(*found, strict=True))
    blocks = min(a.time.blocks, b.time.blocks)
    if still and blocks > 1:
        if resolution <= 0.0:
            return Part(
                "location",
                value,
                -math.inf,
                math.inf,
                claim.margin,
                "J",
                UNDECIDED,
                "runs do not vary: state the resolution of the instrument",
            )
        lower, upper = lower - 2.0 * resolution, upper + 2.0 * resolution
    reason = "" if blocks > 1 else "one process only: runs are not the unit"
    return decided("location", value, lower, upper, claim, blocks=blocks, reason=reason)


def shift_bounds(
    a: Blocked, b: Blocked, p: float, level: float
) -> tuple[float, float, float]:
    """|Q_b(p) - Q_a(p)| with bounds from one-sided bounds at `level` of each quantile.

    Returns
    -------
    value, lower, upper : float
        The bounds hold together with four times the error of one.
    """
    (va, la, ua), (vb, lb, ub) = (quantile_bounds(x, p, level=level) for x in (a, b))
    lower = max(0.0, lb - ua, la - ub)
    return abs(vb - va), lower, max(ub - la, ua - lb)


def _at_quantile(
    a: _Measured, b: _Measured, weights: _Weights, claim: Claim, count: int, p: float
) -> Part:
    # To hold: of each of the four signs, two bounds of T and two of d must be right.
    # To refute: both shifts, with four bounds each.
    holding = 1.0 - (1.0 - claim.level) / 4
    refuting = 1.0 - (1.0 - claim.level) / (8 * count)
    total = [0.0, 0.0, 0.0]
    for weight, before, after in (
        (weights.time, a.time, b.time),
        (1.0, a.dynamic, b.dynamic),
    ):
        value, _, upper = shift_bounds(before, after, p, holding)
        _, lower, _ = shift_bounds(before, after, p, refuting)
        for i, x in enumerate((value, lower, upper)):
            total[i] += weight * x if weight else 0.0
    static = weights.static * float(b.time.means.mean())
    value, lower, upper = (x + static for x in total)
    blocks = min(a.time.blocks, b.time.blocks)
    reason = "" if math.isfinite(upper) else "too few runs to bound this quantile"
    return decided(
        f"quantile {p:g}", value, lower, upper, claim, blocks=blocks, reason=reason
    )


def _tail(a: _Measured, b: _Measured, claim: Claim, count: int, tail: float) -> Part:
    """How many runs lie more than the margin beyond everything seen before."""
    limit = float(a.energy.values.max()) + claim.margin
    share, _, upper = exceedance(b.energy, limit, level=claim.level, alike=True)
    lower = _more_beyond(a.energy, b.energy, limit, (1.0 - claim.level) / count)
    blocks = b.time.blocks if len(b.time) > b.time.blocks else len(b.time)
    return decided(
        "exceedance",
        share,
        lower,
        upper,
        claim,
        margin=tail,
        unit="of runs",
        blocks=blocks,
        reason=f"beyond {limit:.6g} J",
    )


def _whole_processes(
    a: _Measured, b: _Measured, claim: Claim, count: int, most: float
) -> Part:
    """How many processes have runs beyond everything seen before."""
    limit = float(a.energy.values.max()) + claim.margin
    largest = np.full(b.energy.blocks, -math.inf)
    np.maximum.at(largest, b.energy.block, b.energy.values)
    share, _, upper = exceedance(Blocked.of(largest), limit, level=claim.level)
    lowest = np.full(a.energy.blocks, -math.inf)
    np.maximum.at(lowest, a.energy.block, a.energy.values)
    miss = (1.0 - claim.level) / count
    lower = _more_beyond(Blocked.of(lowest), Blocked.of(largest), limit, miss)
    return decided(
        "processes beyond",
        share,
        lower,
        upper,
        claim,
        margin=most,
        unit="of processes",
        blocks=b.energy.blocks,
    )


def _more_beyond(a: Blocked, b: Blocked, limit: float, miss: float) -> float:
    """Lower bound of P(b > limit) - P(a > limit), limit at or above all runs of a.

    P(a > max of n runs) is 1 - V^(1/n), V uniform: k of m runs of b are then as many as
    a binomial law of that probability and the bound would give with probability `miss`.
    """
    from scipy import special

    beyond = b.values > limit
    m = effective_runs(b, beyond, 1.0 - miss)
    k = float(beyond.mean()) * m
    if k <= 0.0:
        return 0.0
    n = effective_runs(a, a.values > np.quantile(a.values, 0.9), 1.0 - miss)
    nodes, weights = np.polynomial.legendre.leggauss(64)
    unseen = -np.expm1(np.log(0.5 * (nodes + 1.0)) / n)

    def chance(bound: float) -> float:
        share = np.minimum(unseen + bound, 1.0)
        return 0.5 * float(weights @ special.betainc(k, m - k + 1.0, share))

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if chance(middle) < miss else (low, middle)
    return low


def _margin(margin: float | str, null: Element) -> float:
    if not isinstance(margin, str):
        return margin  # the claim checks it
    number, percent, rest = margin.partition("%")
    try:
        share = float(number) / 100.0
    except ValueError:
        share = math.nan
    if not percent or rest.strip() or not (math.isfinite(share) and share >= 0.0):
        raise InputError(
            f"margin is {margin!r}, expected joules, or a text such as '2 %'"
        )
    assert null.runs is not None
    return share * float(null.runs.energy.mean())


def p_value(null: Element, other: Element, *, margin: float | str) -> float:
    """Evidence against insensitivity: small where an effect beyond the margin shows.

    The smaller of two corrected p-values: of the four contrasts of means (Welch, with
    Bonferroni), and of the runs beyond everything seen in the null context.
    """
    from scipy import special

    a, b = _measured(null), _measured(other)
    weights = _Weights.of(null, other)
    limit = _margin(margin, null)
    means = 1.0
    for u, v in itertools.product((1.0, -1.0), repeat=2):
        before = (u * weights.time * a.time.means) + v * a.dynamic.means
        after = (u * weights.time + weights.static) * b.time.means + v * b.dynamic.means
        value, error, freedom = welch_error(before, after)
        if 0.0 < error < math.inf:  # no spread, no evidence: state a resolution
            means = min(means, float(special.stdtr(freedom, (limit - value) / error)))
    most = float(a.energy.values.max()) + limit
    beyond = b.energy.values > most
    n, m = a.energy.blocks, b.energy.blocks
    k = np.unique(b.energy.block[beyond]).size
    # Of n + m exchangeable processes the k that reach furthest all fall on one side.
    tail = math.exp(
        special.gammaln(m + 1)
        - special.gammaln(m - k + 1)
        + special.gammaln(n + m - k + 1)
        - special.gammaln(n + m + 1)
    )
    return min(1.0, 2.0 * min(4.0 * means, tail))


def paper_margin(element: Element, c: float = 1.96) -> float:
    """c_alpha sigma_E, the paper's tolerance, at the grain of the element's runs, in J.

    It rewards a noisy instrument: the noisier the runs, the more is ignored. A declared
    margin does not.
    """
    runs = _measured(element).energy.values
    if runs.size < 2:
        raise InputError(f"element {element.name!r}: one run has no spread")
    return c * float(runs.std(ddof=1))


def split_budget(budget: float, multiplicities: dict[str, int]) -> dict[str, float]:
    """Split an error budget in J into equal margins, sum m_i tau_i = budget.

    Parameters
    ----------
    multiplicities : mapping of str to int
        As `probcalc.validation.reduction.multiplicities` counts them.
    """
    total = sum(multiplicities.values())
    if not budget > 0.0 or total < 1:
        raise InputError(
            f"error budget {budget!r} J over {total} substitutions, expected both > 0"
        )
    return {name: budget / total for name, m in multiplicities.items() if m}


@dataclass(frozen=True, slots=True)
class PlainRule:
    """The paper's rule on sample means: a label, with no error rate of its own."""

    left: float
    right: float
    insensitive: bool


def plain_rule(null: Element, other: Element, c: float = 1.96) -> PlainRule:
    """S |dT| + |dd| <= c sigma_E on sample means, as the paper states it.

    Notes
    -----
    With few runs it says "insensitive" of shifts twice its tolerance a quarter of the
    time. Use `history_insensitive` for a verdict.
    """
    a, b = _measured(null), _measured(other)
    weights = _Weights.of(null, other)
    left = (
        weights.time * abs(float(b.time.values.mean() - a.time.values.mean()))
        + abs(float(b.dynamic.values.mean() - a.dynamic.values.mean()))
        + weights.static * float(b.time.values.mean())
    )
    right = paper_margin(null, c)
    return PlainRule(left, right, left <= right)
