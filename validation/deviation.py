"""Does a composed prediction hold? Deviation from direct measurement (section 5.2.2).

The prediction's own error, from the few runs its elements are known by, is part of the
comparison: elements are resampled in whole blocks. Two tests that are not the same are
kept apart: whether a *mean or quantile* agrees, and whether *single runs* fall where
they are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.estimation import fewest_blocks, resampled
from probcalc.plan import Plan
from probcalc.prediction import predict
from probcalc.setting import resolve
from probcalc.term import Term
from probcalc.validation.blocks import Blocked
from probcalc.validation.quantiles import (
    effective_runs,
    exceedance,
    quantile_bounds,
)
from probcalc.validation.verdict import (
    REFUTED,
    UNDECIDED,
    Claim,
    Part,
    Verdict,
    decided,
    intersection,
)

__all__ = [
    "Predicted",
    "deviation",
    "law_deviation",
    "plain_deviation",
    "predicted",
    "single_runs",
]

FloatArray = npt.NDArray[np.float64]
Quantity = Literal["energy", "time"]
UNIT = {"energy": "J", "time": "s"}
#: Blocks of every element from which on a bootstrap of them calibrates a whole law.
LEAST_UNITS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """A predicted law with what is not known of it.

    Attributes
    ----------
    draws : FloatArray, shape (samples,)
        Draws of the law from all measured runs.
    again : tuple of FloatArray
        Draws of the law from resampled runs, one array for each resample.
    of : {"energy", "time"}
    name : str
    units : int
        Fewest blocks that an element was measured in; 0 where all laws are known.
    grain : int
        1 for single executions, k for means of k.
    """

    draws: FloatArray
    again: tuple[FloatArray, ...]
    of: Quantity
    name: str
    units: int = 0
    grain: int = 1

    @property
    def inflation(self) -> float:
        """What a bootstrap of so few blocks is to be multiplied by, as a variance."""
        return self.units / (self.units - 1.0) if self.units > 1 else 1.0

    def spread(self, statistic: Callable[[FloatArray], float]) -> FloatArray:
        """Return a statistic of every resample."""
        return np.array([statistic(draws) for draws in self.again])


def predicted(
    composed: Term | Plan,
    *,
    of: Quantity = "energy",
    samples: int = 4096,
    resamples: int = 200,
    seed: int = 0,
) -> Predicted:
    """Draw from a composed law, and from what it could have been given other runs.

    Parameters
    ----------
    samples : int
        Draws of each law.
    resamples : int
        Block bootstraps of all measured elements; 0 takes the laws as known.
    """
    for what, value, least in (("samples", samples, 1), ("resamples", resamples, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{what} is {value!r}, expected a number >= {least}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed is {seed!r}, expected a whole number >= 0")
    rng = np.random.default_rng(seed)
    draws = _drawn(composed, of, samples, rng)
    again = tuple(
        _drawn(resampled(composed, rng), of, samples, rng) for _ in range(resamples)
    )
    name = composed.name if isinstance(composed, Plan) else composed.label
    units = fewest_blocks(composed) if resamples else 0
    grain = 1 if isinstance(composed, Plan) else resolve(composed).grain
    return Predicted(draws, again, of, name, units, grain)


def _drawn(
    composed: Term | Plan, of: Quantity, samples: int, rng: np.random.Generator
) -> FloatArray:
    if isinstance(composed, Plan):
        seed = int(rng.integers(1 << 62))
        law: Any = getattr(
            predict(composed, "monte-carlo", samples=samples, seed=seed), of
        )
        # Every simulated value as often as it came: no second draw of draws.
        low, high = law.summary.ends(law.summary.bins)
        return np.repeat(0.5 * (low + high) * law.unit, law.summary.counts)
    law = getattr(predict(composed), of)
    return np.asarray(law.sample(samples, rng=rng), dtype=float)


def deviation(
    prediction: Predicted,
    measured: Blocked,
    *,
    margin: float,
    levels: Sequence[float] = (0.5, 0.9),
    level: float = 0.95,
) -> Verdict:
    """Whether mean and quantiles of a prediction are within a margin of the measured.

    Blocks of the measurement are independent of each other and of the elements' runs.

    Parameters
    ----------
    margin : float
        Declared before the data, J or s. With 0 the claim can be refuted and never
        held: no data show that two numbers are equal.
    levels : sequence of float
        Quantiles that are compared beside the mean.

    Raises
    ------
    InputError
        A negative margin; a prediction without resamples and without known laws is
        taken as exact.
    """
    unit = UNIT[prediction.of]
    claim = Claim(
        f"{prediction.of} of {prediction.name} is as predicted", margin, unit, level
    )
    count = 1 + len(levels)
    parts = [_mean_part(prediction, measured, claim, count)]
    parts += [_quantile_part(prediction, measured, claim, count, p) for p in levels]
    return intersection(
        claim,
        parts,
        [("blocks measured", measured.blocks), ("resamples", len(prediction.again))],
        ["blocks are independent", "elements were measured in other processes"],
    )


def _mean_part(
    prediction: Predicted, measured: Blocked, claim: Claim, count: int
) -> Part:
    from scipy import special

    means = measured.means
    value = float(means.mean() - prediction.draws.mean())
    again = prediction.spread(lambda draws: float(draws.mean()))
    own = float(again.var(ddof=1)) if again.size > 1 else 0.0
    own *= prediction.inflation
    if means.size < 2 or prediction.units == 1:
        whose = "the whole" if means.size < 2 else "an element"
        return decided(
            "mean",
            abs(value),
            0.0,
            math.inf,
            claim,
            reason=f"{whose} was measured in one process only: runs are not the unit",
        )
    theirs = float(means.var(ddof=1)) / means.size
    error = math.sqrt(own + theirs)
    # Welch and Satterthwaite, the prediction with the fewest blocks of its elements.
    parts = theirs**2 / (means.size - 1)
    if prediction.units > 1:
        parts += own**2 / (prediction.units - 1)
    freedom = (own + theirs) ** 2 / parts if parts > 0.0 else math.inf
    holding = float(special.stdtrit(freedom, claim.level)) * error if error else 0.0
    miss = 0.5 * (1.0 - claim.level) / count
    refuting = float(special.stdtrit(freedom, 1.0 - miss)) * error if error else 0.0
    return decided(
        "mean",
        abs(value),
        max(abs(value) - refuting, 0.0),
        abs(value) + holding,
        claim,
        blocks=measured.blocks,
        reason=f"measured less predicted {value:+.4g} {claim.unit}",
    )


def _quantile_part(
    prediction: Predicted, measured: Blocked, claim: Claim, count: int, p: float
) -> Part:
    # Two bounds on each side must be right for it to hold; four for it to be refuted.
    found = []
    for level in (1 - (1 - claim.level) / 2, 1 - (1 - claim.level) / (4 * count)):
        value, low, high = quantile_bounds(measured, p, level=level)
        ours, below, above = _own_bounds(prediction, p, level)
        found.append((value - ours, low - above, high - below))
    (value, low, high), (_, first, last) = found
    return decided(
        f"quantile {p:g}",
        abs(value),
        max(first, -last, 0.0),
        max(high, -low),
        claim,
        blocks=measured.blocks,
        reason=f"measured less predicted {value:+.4g} {claim.unit}",
    )


def _own_bounds(
    prediction: Predicted, p: float, level: float
) -> tuple[float, float, float]:
    """Quantile of the predicted law with bounds: its draws', widened by its runs'."""
    value, low, high = quantile_bounds(Blocked.of(prediction.draws), p, level=level)
    if prediction.units == 1:
        return value, -math.inf, math.inf
    if prediction.again:
        spread = prediction.spread(lambda draws: float(np.quantile(draws, p)))
        # Basic bootstrap around the value; the larger of both errors on each side.
        from scipy import special

        factor = float(special.ndtri(level))
        if prediction.units > 1:
            factor = float(special.stdtrit(prediction.units - 1, level))
        half = factor * float(spread.std(ddof=1)) * math.sqrt(prediction.inflation)
        low, high = min(low, value - half), max(high, value + half)
    return value, low, high


def single_runs(
    prediction: Predicted,
    measured: Blocked,
    *,
    inner: float = 0.90,
    slack: float = 0.05,
    level: float = 0.95,
) -> Verdict:
    """Whether single runs fall inside the predicted interval as often as it says.

    Parameters
    ----------
    inner : float
        Share of runs that the equal-tailed interval should hold.
    slack : float
        How many more runs than 1 - inner may miss it (declared margin).
    """
    if not (0.0 < inner < 1.0 and 0.0 <= slack < 1.0):
        raise InputError(
            f"single runs: inner is {inner!r} and slack {slack!r}, expected shares"
        )
    tail = 0.5 * (1.0 - inner)
    low, high = np.quantile(prediction.draws, [tail, 1.0 - tail])
    outside = (measured.values < low) | (measured.values > high)
    counted = measured.with_values(outside.astype(float))
    claim = Claim(
        f"{inner:.0%} of runs of {prediction.name} are inside their interval",
        1.0 - inner + slack,
        "of runs outside",
        level,
    )
    share, lower, upper = exceedance(counted, 0.5, level=level)
    part = decided(
        "outside",
        share,
        lower,
        upper,
        claim,
        blocks=measured.blocks,
        reason=f"[{low:.6g}, {high:.6g}] {UNIT[prediction.of]}",
    )
    return intersection(
        claim,
        [part],
        [("blocks measured", measured.blocks)],
        ["blocks are independent"],
    )


def law_deviation(
    prediction: Predicted,
    measured: Blocked,
    *,
    level: float = 0.95,
    repeats: int = 999,
    seed: int = 0,
) -> Verdict:
    """Whether the measured runs could come from the predicted law as a whole.

    The probability integral transform, calibrated by a nested bootstrap: its statistic
    (Cramer and von Mises) under laws from resampled elements, with as many draws as the
    measured runs are worth. The claim is refuted or undecided, never held.
    """
    rng = np.random.default_rng(seed)
    beyond = measured.values > np.quantile(measured.values, 0.5)
    # Half of the level for runs in blocks: what they are worth is estimated too.
    size = max(round(effective_runs(measured, beyond, 0.5 + 0.5 * level)), 2)
    base = np.sort(prediction.draws)
    observed = _distance(base, np.sort(measured.values))
    laws = [np.sort(draws) for draws in prediction.again] or [base]
    null = np.empty(repeats)
    for i in range(repeats):
        # A truth near the one that was estimated, and runs of it.
        null[i] = _distance(base, np.sort(rng.choice(laws[i % len(laws)], size)))
    p = (1.0 + float(np.count_nonzero(null >= observed))) / (repeats + 1.0)
    claim = Claim(
        f"runs of {prediction.name} come from the predicted law", 0.0, "", level
    )
    reason = f"p = {p:.3g}, {size} effective runs"
    outcome = REFUTED if p <= 1.0 - level else UNDECIDED
    if 0 < prediction.units < LEAST_UNITS:
        # A bootstrap of fewer blocks knows too little of how processes differ.
        outcome = UNDECIDED
        reason = f"elements known from {prediction.units} blocks, {LEAST_UNITS} needed"
    part = Part(
        "probability transform",
        observed,
        observed,
        math.inf,
        float(np.quantile(null, level)),
        "",
        outcome,
        reason,
    )
    return Verdict(
        claim,
        outcome,
        (part,),
        (("blocks measured", measured.blocks),),
        ("never held: no data show that two laws are equal",),
    )


def _distance(law: FloatArray, runs: FloatArray) -> float:
    """Cramer and von Mises' distance of runs from a law known by draws, over n.

    Ties take the middle of their probability, so that atoms are no deviation.
    """
    below = np.searchsorted(law, runs, side="left")
    at = np.searchsorted(law, runs, side="right")
    u = 0.5 * (below + at) / law.size
    n = runs.size
    ranks = (2.0 * np.arange(1, n + 1) - 1.0) / (2.0 * n)
    first = np.searchsorted(runs, runs, side="left")
    last = np.searchsorted(runs, runs, side="right")
    tied = last - first > 1
    ranks = np.where(tied, (first + last) / (2.0 * n), ranks)
    return float(1.0 / (12.0 * n * n) + np.mean((u - ranks) ** 2))


@dataclass(frozen=True, slots=True)
class PlainDeviation:
    """The paper's rule, |E_pred - E_meas| > c sqrt(var_pred + var_meas): a label."""

    difference: float
    allowed: float
    flagged: bool


def plain_deviation(
    prediction: Predicted, measured: Blocked, c: float = 1.96
) -> PlainDeviation:
    """Apply the paper's rule to means, with the sd of single runs on both sides.

    Notes
    -----
    Single-run spreads on means of many runs miss most biases; `deviation` does not.
    """
    difference = float(measured.values.mean() - prediction.draws.mean())
    if len(measured) < 2:
        raise InputError(f"{measured.name}: one run has no spread, expected several")
    total = float(measured.values.var(ddof=1) + prediction.draws.var(ddof=1))
    allowed = c * math.sqrt(total)
    return PlainDeviation(difference, allowed, abs(difference) > allowed)
