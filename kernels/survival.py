"""Survival functions and stop-loss transforms of lattice masses, and what they bound.

For a mass on points first, first + 1, ... the survival function at point k is the mass
above k, and the stop-loss transform pi(k) = E (X - k)+ is the sum of the survival
function from k on, in steps.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np
import numpy.typing as npt

from probcalc.kernels.summation import add

__all__ = ["convex_bounds", "convex_quantile", "stop_loss", "suffix_sums", "tail_mean"]

FloatArray = npt.NDArray[np.float64]


@nb.njit(cache=True)
def suffix_sums(mass: FloatArray) -> FloatArray:
    """Mass strictly above each point, to 2^-52 relative however many points.

    Compensated; all terms are non-negative, so that the error is relative to the sum.
    """
    out = np.empty(mass.size)
    total = 0.0
    rest = 0.0
    for k in range(mass.size - 1, -1, -1):
        out[k] = total + rest
        total, rest = add(total, rest, mass[k])
    return out


@nb.njit(cache=True)
def stop_loss(survival: FloatArray) -> FloatArray:
    """pi(k) = sum of the survival function over points k, k + 1, ..., in steps.

    Compensated, as `suffix_sums`.
    """
    out = np.empty(survival.size)
    total = 0.0
    rest = 0.0
    for k in range(survival.size - 1, -1, -1):
        total, rest = add(total, rest, survival[k])
        out[k] = total + rest
    return out


@nb.njit(cache=True)
def _at(pi: FloatArray, first: int, total: float, t: float) -> float:
    """Stop-loss at a real t: linear between points, slope -total below the first."""
    y = t - first
    if y <= 0.0:
        return pi[0] - y * total
    j = math.floor(y)
    if j >= pi.size - 1:
        # Between the last point (where pi is the survival there) and the next.
        rest = pi[pi.size - 1] * (1.0 - (y - (pi.size - 1)))
        return max(rest, 0.0)
    return pi[j] + (pi[j + 1] - pi[j]) * (y - j)


@nb.njit(cache=True)
def _bounds_at(
    low: FloatArray,
    low_first: int,
    low_total: float,
    high: FloatArray,
    high_first: int,
    high_total: float,
    t: float,
    width: float,
    ratio: float,
    slack: float,
    excess: float,
) -> tuple[float, float]:
    # With pi_l <= pi <= pi_u and pi convex with slope -sf:
    #   sf(t) <= (pi(t-d) - pi(t)) / d <= (pi_u(t-d) - pi_l(t)) / d,
    #   sf(t) >= (pi(t) - pi(t+d)) / d >= (pi_l(t) - pi_u(t+d)) / d   for every d > 0.
    # slack: relative rounding error of the transforms, taken off and put on.
    at_low = _at(low, low_first, low_total, t) * (1.0 - slack)
    lower = 0.0
    upper = 1.0
    d = width / 8.0
    stop = width * 64.0
    while d < stop:
        above = _at(high, high_first, high_total, t - d) * (1.0 + slack) + excess
        upper = min(upper, (above - at_low) / d)
        below = _at(high, high_first, high_total, t + d) * (1.0 + slack) + excess
        lower = max(lower, (at_low - below) / d)
        d *= ratio
    return lower, upper


@nb.njit(cache=True)
def convex_bounds(
    low: FloatArray,
    low_first: int,
    low_total: float,
    high: FloatArray,
    high_first: int,
    high_total: float,
    t: FloatArray,
    width: float,
    ratio: float,
    slack: float,
    excess: float,
) -> tuple[FloatArray, FloatArray]:
    """Bounds of P(X > t) from stop-loss transforms below and above that of X.

    Parameters
    ----------
    low, high : ndarray
        Stop-loss transforms in steps, from `low_first` and `high_first` on.
    low_total, high_total : float
        Whole masses: minus the slopes below the first point.
    t : ndarray
        Where, in steps.
    width : float
        First guess of the best secant length, in steps.
    ratio : float
        Growth of the secant lengths tried.
    slack, excess : float
        Relative rounding error, and what E (X - t)+ may exceed `high` by, in steps.
    """
    lower = np.empty(t.size)
    upper = np.empty(t.size)
    for i in range(t.size):
        lower[i], upper[i] = _bounds_at(
            low, low_first, low_total, high, high_first, high_total,
            t[i], width, ratio, slack, excess,
        )  # fmt: skip
    return lower, upper


@nb.njit(cache=True)
def convex_quantile(
    low: FloatArray,
    low_first: int,
    low_total: float,
    high: FloatArray,
    high_first: int,
    high_total: float,
    sf: float,
    beyond: float,
    width: float,
    slack: float,
    excess: float,
) -> tuple[float, float]:
    """Bracket, in steps, of the t where P(X > t) crosses `sf`.

    `beyond` is added to the upper bound of the survival function (mass that the
    transforms leave out). An open side is returned as an infinity.
    """
    first = min(low_first, high_first) - 64.0 * width - 2.0
    last = max(low_first + low.size, high_first + high.size) + 64.0 * width + 2.0
    # The crossing of the upper transform's own survival function is a close start.
    a, b = 0, high.size - 1
    while b - a > 1:
        middle = (a + b) // 2
        if high[middle] - high[middle + 1] > sf:
            a = middle
        else:
            b = middle
    start = float(high_first + b)
    ratio = 1.12
    # Smallest t whose upper bound is at most sf. The bound falls with t.
    step = width
    t = start
    while t <= last:
        if _bounds_at(
            low, low_first, low_total, high, high_first, high_total,
            t, width, ratio, slack, excess,
        )[1] + beyond <= sf:  # fmt: skip
            break
        t += step
        step *= 2.0
    upper = np.inf
    if t <= last:
        fails, holds = t - step, t
        if t == start:
            fails = start - 256.0 * width
        for _ in range(48):
            middle = 0.5 * (fails + holds)
            if _bounds_at(
                low, low_first, low_total, high, high_first, high_total,
                middle, width, ratio, slack, excess,
            )[1] + beyond <= sf:  # fmt: skip
                holds = middle
            else:
                fails = middle
        upper = holds
    step = width
    t = start
    while t >= first:
        if _bounds_at(
            low, low_first, low_total, high, high_first, high_total,
            t, width, ratio, slack, excess,
        )[0] > sf:  # fmt: skip
            break
        t -= step
        step *= 2.0
    lower = -np.inf
    if t >= first:
        holds, fails = t, t + step
        if t == start:
            fails = start + 256.0 * width
        for _ in range(48):
            middle = 0.5 * (fails + holds)
            if _bounds_at(
                low, low_first, low_total, high, high_first, high_total,
                middle, width, ratio, slack, excess,
            )[0] > sf:  # fmt: skip
                holds = middle
            else:
                fails = middle
        lower = holds
    return lower, upper


@nb.njit(cache=True)
def tail_mean(pi: FloatArray, first: int, excess: float, sf: float) -> float:
    """Expected shortfall min_t t + pi(t) / sf over points, in steps.

    The minimum over all t of a piecewise linear pi is at a point (Rockafellar and
    Uryasev 2000).
    """
    best = np.inf
    for k in range(pi.size):
        best = min(best, first + k + (pi[k] + excess) / sf)
    return min(best, first + pi.size + excess / sf)
