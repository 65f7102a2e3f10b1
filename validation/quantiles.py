"""Intervals of quantiles that hold for every law, and how many runs they take.

All rest on P(at most k of n runs lie below the p-quantile) being binomial. Runs that
came in blocks count as fewer: n is divided by the design effect, and the level is
corrected for the few blocks that it was estimated from (Korn and Graubard 1998).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Quantile, levels
from probcalc.errors import InputError
from probcalc.validation.blocks import Blocked, design_effect

__all__ = [
    "Band",
    "effective_runs",
    "exceedance",
    "needed_runs",
    "quantile_bounds",
    "quantile_interval",
    "simultaneous_band",
    "tolerance_bound",
]

FloatArray = npt.NDArray[np.float64]


def effective_runs(
    data: Blocked, indicator: npt.NDArray[np.bool_], level: float
) -> float:
    """Independent runs that know a share as well as these do.

    n over the design effect, times (z / t)^2 for the blocks it rests on.
    """
    from scipy import special

    n, b = len(data), data.blocks
    if b == n:
        return float(n)
    if b < 2:
        return 1.0  # one process: nothing is known of how processes differ
    t = float(special.stdtrit(b - 1, level))
    z = float(special.ndtri(level))
    return max(n / design_effect(data, indicator) * (z / t) ** 2, 1.0)


def _checked(level: float, where: str) -> None:
    if not 0.0 < level < 1.0:
        raise InputError(f"{where}: level is {level!r}, expected a number in (0, 1)")


def quantile_bounds(
    data: Blocked, p: float | None = None, *, sf: float | None = None, level: float
) -> tuple[float, float, float]:
    """Quantile with one-sided bounds at `level` each; a side that is open is infinite.

    Independent runs without ties: interpolated between order statistics (Nyblom 1992,
    Hettmansperger and Sheather 1986), which covers within a percent of the level. With
    ties, or in blocks: order statistics alone, which cover at least as often.

    Returns
    -------
    value, lower, upper : float
    """
    p, sf = levels(p, sf)
    _checked(level, "quantile bounds")
    ordered = np.sort(data.values)
    n = ordered.size
    value = float(ordered[min(max(math.ceil(n * p - 1e-9), 1), n) - 1])
    size = effective_runs(data, data.values <= value, level)
    plain = data.blocks == n and np.unique(ordered).size == n
    if plain:
        upper = -_lower(-ordered[::-1], sf, level)
        return value, _lower(ordered, p, level), upper
    lower = _rank(p, size, level)
    upper = _rank(sf, size, level)
    low = (
        -math.inf if lower is None else float(ordered[math.floor(lower * n + 1e-9) - 1])
    )
    high = (
        math.inf if upper is None else float(ordered[n - math.floor(upper * n + 1e-9)])
    )
    return value, min(low, value), max(high, value)


def _lower(ordered: FloatArray, p: float, level: float) -> float:
    """Lower bound between two order statistics of n independent runs without ties."""
    from scipy import special

    n = ordered.size

    def covers(r: int) -> float:
        # P(X_(r) <= q) = P(at least r of n lie at or below q).
        return float(special.betainc(r, n - r + 1, p))

    if covers(1) < level:
        return -math.inf
    low, high = 1, n
    while low < high:  # the largest rank that covers
        middle = (low + high + 1) // 2
        if covers(middle) >= level:
            low = middle
        else:
            high = middle - 1
    r = low
    if r == n:
        return float(ordered[n - 1])
    a, b = covers(r) - level, level - covers(r + 1)
    if a <= 0.0:
        return float(ordered[r - 1])
    share = 1.0 / (1.0 + r * (1.0 - p) * b / ((n - r) * p * a))
    return float((1.0 - share) * ordered[r - 1] + share * ordered[r])


def _rank(p: float, size: float, level: float) -> float | None:
    """Share of the runs at which the lower bound of the p-quantile lies; None if open.

    The largest k / size with P(at least k of size below) >= level, k real.
    """
    from scipy import special

    if special.betainc(1.0, size, p) < level:
        return None
    low, high = 1.0, size
    for _ in range(60):
        middle = 0.5 * (low + high)
        if special.betainc(middle, size - middle + 1.0, p) >= level:
            low = middle
        else:
            high = middle
    return low / size


def quantile_interval(
    data: Blocked,
    p: float | None = None,
    *,
    sf: float | None = None,
    level: float = 0.95,
) -> Quantile:
    """Two-sided confidence interval of a quantile, equal-tailed.

    Kind ``confidence``, or ``open`` where the runs do not bound a side: it is never
    extrapolated.

    Examples
    --------
    >>> runs = Blocked.of(range(1, 101))
    >>> q = quantile_interval(runs, 0.5)
    >>> 40 <= q.lower < 50 < q.upper <= 61
    True
    >>> quantile_interval(runs, 0.99).kind
    'open'
    """
    level_p, above = levels(p, sf)
    _checked(level, "quantile interval")
    side = 0.5 + 0.5 * level
    value, low, high = quantile_bounds(data, p, sf=sf, level=side)
    kind = "confidence" if math.isfinite(low) and math.isfinite(high) else "open"
    limit = f"{len(data)} runs in {data.blocks} blocks, {level:.0%} confidence"
    return Quantile(level_p, value, low, high, kind, limit, above)


def needed_runs(
    p: float | None = None,
    *,
    sf: float | None = None,
    level: float = 0.95,
    sides: Literal[1, 2] = 1,
) -> int:
    """Independent runs from which on a quantile has a finite bound.

    One side: the smallest n with 1 - p^n >= level. Two sides: that both extremes are
    bounds at (1 + level) / 2 each.

    Examples
    --------
    >>> [needed_runs(p) for p in (0.9, 0.95, 0.99, 0.999)]
    [29, 59, 299, 2995]
    >>> [needed_runs(p, sides=2) for p in (0.9, 0.95, 0.99, 0.999)]
    [36, 72, 368, 3688]
    """
    p, sf = levels(p, sf)
    _checked(level, "needed runs")
    rare = min(p, sf) if sides == 2 else sf
    miss = 1.0 - level if sides == 1 else 0.5 * (1.0 - level)
    return max(math.ceil(math.log(miss) / math.log1p(-rare) - 1e-9), 1)


def tolerance_bound(data: Blocked, share: float, *, level: float = 0.95) -> float:
    """Value that at least `share` of all runs stay below, at the confidence level.

    The upper bound of the quantile; infinite where the runs are too few
    (`needed_runs`).
    """
    return quantile_bounds(data, share, level=level)[2]


def exceedance(
    data: Blocked, limit: float, *, level: float = 0.95, alike: bool = False
) -> tuple[float, float, float]:
    """P(X > limit) with one-sided bounds at `level` each.

    Clopper and Pearson with effective runs (Korn and Graubard). Where all runs lie on
    one side nothing says how processes differ in it: blocks are what is counted, unless
    processes are taken to be `alike` in how often they exceed.
    """
    from scipy import special

    _checked(level, "exceedance")

    beyond = data.values > limit
    share = float(beyond.mean())
    size = effective_runs(data, beyond, level)
    if share in (0.0, 1.0) and data.blocks < len(data):
        size = min(size, _cautious(data, level) if alike else data.blocks)
    k = share * size
    low = float(special.betaincinv(k, size - k + 1.0, 1.0 - level)) if k > 0 else 0.0
    high = float(special.betaincinv(k + 1.0, size - k, level)) if k < size else 1.0
    return share, low, high


def _cautious(data: Blocked, level: float) -> float:
    """Effective runs by the design effect of the data's own upper tenth."""
    high = data.values > np.quantile(data.values, 0.9)
    return effective_runs(data, high, level)


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """A law between two empirical ones, at all points at once.

    Attributes
    ----------
    values : FloatArray
        Ordered runs.
    half : float
        Half width in probability.
    level : float
    """

    values: FloatArray
    half: float
    level: float

    def quantile(self, p: float) -> tuple[float, float]:
        """Bounds of the p-quantile, infinite where the band reaches 0 or 1."""
        levels(p, None)
        n = self.values.size
        low, high = p - self.half, p + self.half
        first = -math.inf if low <= 0.0 else self.values[math.ceil(low * n - 1e-9) - 1]
        last = (
            math.inf if high >= 1.0 else self.values[min(math.floor(high * n), n - 1)]
        )
        return float(first), float(last)


def simultaneous_band(data: Blocked, *, level: float = 0.95) -> Band:
    """Band around the law of the runs that holds everywhere at once.

    Dvoretzky, Kiefer and Wolfowitz with Massart's constant; in blocks with effective
    runs by the largest design effect over nine deciles.

    Raises
    ------
    InputError
        One block of several runs.
    """
    _checked(level, "simultaneous band")
    n = len(data)
    size = float(n)
    if data.blocks < n:
        if data.blocks < 2:
            raise InputError(f"{data.name}: one block of {n} runs, expected at least 2")
        cuts = np.quantile(data.values, np.linspace(0.1, 0.9, 9))
        size = min(effective_runs(data, data.values <= c, level) for c in cuts)
    half = math.sqrt(math.log(2.0 / (1.0 - level)) / (2.0 * size))
    return Band(np.sort(data.values), half, level)
