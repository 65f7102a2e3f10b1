"""Laws known from simulated samples: every number with its confidence interval.

Quantile intervals are between order statistics: with n independent samples the number
below the p-quantile is binomial(n, p), whatever the law, so that two ranks enclose the
quantile with at least the stated confidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Bounds, Probability, Quantile, levels
from probcalc.errors import InputError, ToleranceError
from probcalc.levelwise import quantiles
from probcalc.summary import Summary

__all__ = ["Sampled", "binomial_interval"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sampled:
    """A law known from independent samples.

    Parameters
    ----------
    summary : Summary
        Whole numbers of `unit`.
    unit : float
        s or J of one.
    level : float
        Confidence of the intervals, each on its own.
    sure : bool
        Whether nothing is random, so that one sample tells the law.
    """

    summary: Summary
    unit: float
    level: float = 0.95
    sure: bool = False
    _below: npt.NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_below", np.cumsum(self.summary.counts))

    def __repr__(self) -> str:
        """Number of samples, mean and spread."""
        return (
            f"<Sampled: {self.samples} samples, mean {self.mean():.6g}, "
            f"sd {math.sqrt(self.variance()):.3g}>"
        )

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.summary.count

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int | None = None,
    ) -> Quantile:
        """Quantile with its distribution-free confidence interval.

        `memory` is not used. Kind ``confidence``; the level is part of `limited_by`.

        Raises
        ------
        ToleranceError
            Too few samples for an interval at the level (how many it takes is said),
            or an interval wider than `rtol` of the value.
        """
        del memory
        level, above = levels(p, sf)
        n = self.samples
        low_rank, high_rank = _ranks(n, level, above, self.level)
        best = min(max(math.ceil(n * level), 1), n)
        value = sum(self.summary.ranked(best)) / 2.0 * self.unit
        low = (
            self.summary.ranked(low_rank)[0] * self.unit if low_rank >= 1 else -math.inf
        )
        high = (
            self.summary.ranked(high_rank)[1] * self.unit
            if high_rank <= n
            else math.inf
        )
        if self.sure:
            low = high = value
        found = Quantile(level, value, low, high, "confidence", self._limit, above)
        if math.isinf(low) or math.isinf(high):
            needed = _needed(level, above, self.level)
            raise ToleranceError(
                f"quantile at sf={above:.6g}: {n:,} samples give no {self.level:.0%} "
                f"interval, at least {needed:,} needed",
                found,
            )
        if rtol is not None and high - low > rtol * abs(value):
            share = (high - low) / (rtol * abs(value)) if value else math.inf
            raise ToleranceError(
                f"quantile at sf={above:.6g}: interval of relative width "
                f"{(high - low) / abs(value):.3g} from {n:,} samples, asked "
                f"{rtol:.3g}; about {n * share * share:.3g} samples needed",
                found,
            )
        return found

    def quantiles(
        self,
        p: Iterable[float] | None = None,
        *,
        sf: Iterable[float] | None = None,
        rtol: float | None = None,
        memory: int | None = None,
    ) -> tuple[Quantile, ...]:
        """Quantiles at several levels, each with its own interval."""
        return quantiles(self, p, sf, rtol=rtol, memory=memory)

    @property
    def _limit(self) -> str:
        return f"{self.samples:,} samples, {self.level:.0%} confidence"

    def probability_above(
        self, limit: float, *, rtol: float | None = None, memory: int | None = None
    ) -> Probability:
        """P(X > limit) with its exact binomial interval (Clopper and Pearson)."""
        del rtol, memory
        sure, possible = self._counts(np.array([float(limit)]))
        n, few, many = self.samples, int(sure[0]), int(possible[0])
        low, high = binomial_interval(few, many, n, self.level)
        return Probability(0.5 * (few + many) / n, low, high, "confidence")

    def _counts(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Samples above t for sure, and at most; bins of several numbers differ."""
        low, high = self.summary.ends(self.summary.bins)
        n = self.samples
        below = np.concatenate([[0], self._below])
        sure = n - below[np.searchsorted(low * self.unit, t, side="right")]
        possible = n - below[np.searchsorted(high * self.unit, t, side="right")]
        return sure, possible

    def ccdf(self, x: npt.ArrayLike) -> Any:
        """P(X > x), the share of samples above."""
        values = np.asarray(x, dtype=float)
        sure, possible = self._counts(values.ravel())
        found = 0.5 * (sure + possible) / self.samples
        found = np.where(np.isnan(values.ravel()), np.nan, found)
        return found.reshape(values.shape)[()]

    def cdf(self, x: npt.ArrayLike) -> Any:
        """P(X <= x), the share of samples at or below."""
        return 1.0 - self.ccdf(x)

    def icdf(self, p: npt.ArrayLike) -> Any:
        """Smallest sample with at least a share p at or below it."""
        levels_ = np.asarray(p, dtype=float)
        ranks = np.ceil(levels_.ravel() * self.samples).clip(1, self.samples)
        at = np.searchsorted(self._below, ranks)
        low, high = self.summary.ends(self.summary.bins[at])
        return (0.5 * (low + high) * self.unit).reshape(levels_.shape)[()]

    def iccdf(self, q: npt.ArrayLike) -> Any:
        """Smallest sample with at most a share q above it."""
        return self.icdf(1.0 - np.asarray(q, dtype=float))

    isf = iccdf
    ppf = icdf

    def mean(self) -> float:
        """Mean of the samples."""
        return self.summary.mean * self.unit

    def mean_bounds(self) -> Bounds:
        """Mean with its confidence interval from the normal limit of means."""
        value = self.mean()
        error = _normal(self.level) * self.standard_error
        return Bounds(value, value - error, value + error, "confidence")

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
        return math.sqrt(self.variance() / self.samples)

    def variance(self) -> float:
        """Variance of the samples, unbiased."""
        return self.summary.variance * self.unit * self.unit

    def standard_deviation(self) -> float:
        """Root of the variance."""
        return math.sqrt(self.variance())

    def support(self) -> tuple[float, float]:
        """Smallest and largest sample: the law itself may reach further."""
        return self.summary.least * self.unit, self.summary.most * self.unit

    def expected_shortfall(
        self, p: float | None = None, *, sf: float | None = None
    ) -> Bounds:
        """Mean of the worst `sf` share, with the interval of a mean of so many samples.

        Raises
        ------
        ToleranceError
            Fewer than 30 samples in the tail.
        """
        level, above = levels(p, sf)
        size = self.samples * above
        if size < 30.0:
            raise ToleranceError(
                f"expected shortfall at sf={above:.6g}: {size:.3g} samples in the "
                f"tail, expected at least 30, from {math.ceil(30.0 / above):,} samples"
            )
        low, high = self.summary.ends(self.summary.bins[::-1])
        middle = 0.5 * (low + high) * self.unit
        taken = np.minimum(np.cumsum(self.summary.counts[::-1]), size)
        weight = np.diff(taken, prepend=0.0) / size
        value = float(weight @ middle)
        spread = float(weight @ (middle - value) ** 2)
        # Asymptotic variance: that within the tail, and that of where the tail begins.
        edge = float(self.icdf(level))
        total = (spread + (1.0 - above) * (value - edge) ** 2) / size
        error = _normal(self.level) * math.sqrt(total)
        return Bounds(value, value - error, value + error, "confidence")

    def sample(
        self, shape: Any = None, *, rng: np.random.Generator | None = None
    ) -> Any:
        """Draw from the samples again, with replacement."""
        if rng is None:
            raise InputError("sample: give rng, a numpy Generator")
        return self.icdf(rng.random(() if shape is None else shape))


def binomial_interval(few: int, many: int, n: int, level: float) -> tuple[float, float]:
    """Exact interval of a probability, of which `few` to `many` of n draws came true.

    Clopper and Pearson; it covers with at least the confidence `level`.
    """
    from scipy import special

    half = 0.5 * (1.0 - level)
    low = float(special.betaincinv(few, n - few + 1, half)) if few else 0.0
    if many == n:
        return low, 1.0
    return low, float(special.betaincinv(many + 1, n - many, 1.0 - half))


def _normal(level: float) -> float:
    from scipy import special

    return float(special.ndtri(0.5 + 0.5 * level))


def _ranks(n: int, p: float, sf: float, level: float) -> tuple[int, int]:
    """Ranks that enclose the p-quantile with at least the confidence level.

    P(X_(l) <= q) = P(B >= l) and P(q <= X_(u)) >= P(B <= u - 1), B binomial(n, p): the
    largest l and the smallest u with a miss of at most half of 1 - level each. Counted
    from the side on which the probability is small, where it is exact.
    """
    from scipy import stats

    miss = 0.5 * (1.0 - level)
    if sf <= p:
        above = stats.binom(n, sf)  # samples above the quantile
        high = n - int(above.ppf(miss))
        if above.cdf(n - high) > miss:
            high += 1
        low = n - int(above.isf(miss))
        return low, high
    below = stats.binom(n, p)
    low = int(below.ppf(miss))
    if below.cdf(low - 1) > miss:
        low -= 1
    return low, int(below.isf(miss)) + 1


def _needed(p: float, sf: float, level: float) -> int:
    """Samples from which on both ranks exist: the extremes miss with (1 - sf)^n."""
    rare = min(p, sf)
    return math.ceil(math.log(0.5 * (1.0 - level)) / math.log1p(-rare))
