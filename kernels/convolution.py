"""Sums on a lattice: convolution, directly and by transforms, with rounding bounds.

Masses are non-negative vectors; point k stands for k steps. The transform works on
exponentially tilted masses, p_k exp(theta k) / M, so that a far tail keeps its
relative accuracy, and every bin carries a bound of its rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
import scipy.fft

from probcalc.kernels.summation import add

__all__ = [
    "TiltedSum",
    "coarsened",
    "convolve",
    "convolve_spiked",
    "fft_length",
    "log_mgf",
    "power",
    "thin_ends",
    "tilted_sum",
    "tilted_survival",
    "tilted_window",
    "total_log_mgf",
]

FloatArray = npt.NDArray[np.float64]

UNIT = 2.0**-53
# Rounding of one level of a transform: sqrt(5) u for the product with the twiddle
# factor, u for the addition, the error of the factor itself; rounded up.
PER_LEVEL = 5.0 * UNIT
# Powers below this are not computed but bounded by it.
DEAD = 1e-30
# Below this many products a direct convolution is quicker than a transform, and its
# error is a few units in the last place of every bin.
DIRECT = 1 << 18


def fft_length(points: int) -> int:
    """Smallest length 2^a 3^b 5^c of at least `points` for a real transform."""
    return int(scipy.fft.next_fast_len(max(points, 4), real=True))


@nb.njit(cache=True)
def _convolve_direct(p: FloatArray, q: FloatArray) -> FloatArray:
    out = np.zeros(p.size + q.size - 1)
    for i in range(p.size):
        x = p[i]
        if x != 0.0:
            for j in range(q.size):
                out[i + j] += x * q[j]
    return out


def convolve(p: FloatArray, q: FloatArray) -> FloatArray:
    """Direct convolution of two masses: every bin to about min(len) * 2^-53 relative.

    Parameters
    ----------
    p, q : ndarray, shape (m,), (n,)

    Returns
    -------
    ndarray, shape (m + n - 1,)
    """
    if p.size > q.size:
        p, q = q, p
    return _convolve_direct(p, q)


def power(p: FloatArray, n: int) -> FloatArray:
    """n-fold direct convolution of a mass with itself, by binary powers.

    All terms are positive, so every bin keeps its relative accuracy.
    """
    result: FloatArray | None = None
    while True:
        if n & 1:
            result = p if result is None else convolve(result, p)
        n >>= 1
        if n == 0:
            assert result is not None
            return result
        p = convolve(p, p)


@nb.njit(cache=True)
def log_mgf(mass: FloatArray, theta: float) -> tuple[float, float, float]:
    """Log of sum p_k exp(theta k), and its first two derivatives in theta.

    Parameters
    ----------
    mass : ndarray, shape (points,)
        Non-negative, not all zero.
    theta : float
        Tilt per step.
    """
    points = mass.size
    while points > 1 and mass[points - 1] == 0.0:
        points -= 1
    start = 0
    while start < points - 1 and mass[start] == 0.0:
        start += 1
    shift = max(theta * start, theta * (points - 1))
    total = 0.0
    first = 0.0
    second = 0.0
    growth = math.exp(theta)
    k = start
    while k < points:
        # A fresh exponential every 64 points keeps the recurrence's error below 1e-14;
        # for a steep tilt at every point, lest a block start at zero and stay there.
        weight = math.exp(theta * k - shift)
        stop = min(k + (64 if abs(theta) < 1.0 else 1), points)
        while k < stop:
            x = mass[k] * weight
            total += x
            first += x * k
            second += x * k * k
            weight *= growth
            k += 1
    mean = first / total
    return shift + math.log(total), mean, max(second / total - mean * mean, 0.0)


def total_log_mgf(
    masses: Sequence[FloatArray], counts: Sequence[int], theta: float
) -> tuple[float, float, float]:
    """`log_mgf` of the sum of independent laws, ``counts[i]`` of ``masses[i]``."""
    value = mean = variance = 0.0
    for mass, count in zip(masses, counts, strict=True):
        v, m, s = log_mgf(mass, theta)
        value += count * v
        mean += count * m
        variance += count * s
    return value, mean, variance


def tilted_window(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    theta: float,
    log_outside: float,
) -> tuple[float, float, float, float]:
    """Points outside which the tilted sum has mass at most exp(log_outside) a side.

    Chernoff: P_theta(S > b) <= exp(K(theta + u) - K(theta) - u b) for every u > 0,
    and likewise below; the best of a few u is taken.

    Returns
    -------
    low, high : float
        Window, in points.
    down, up : float
        The rates u that gave its ends.
    """
    base, mean, variance = total_log_mgf(masses, counts, theta)
    spread = math.sqrt(variance)
    if spread == 0.0:
        return mean, mean, 1.0, 1.0
    low, high = -math.inf, math.inf
    down = up = 1.0
    for u in (0.3, 0.6, 1.0, 1.6, 2.5, 3.5, 5.0, 7.0, 10.0):
        rate = u / spread
        end = (
            total_log_mgf(masses, counts, theta + rate)[0] - base - log_outside
        ) / rate
        if end < high:
            high, up = end, rate
        below = total_log_mgf(masses, counts, theta - rate)[0] - base
        start = -(below - log_outside) / rate
        if start > low:
            low, down = start, rate
    return low, high, down, up


def coarsened(mass: FloatArray, factor: int) -> FloatArray:
    """Mass gathered on every `factor`-th point, the mean kept."""
    if factor == 1:
        return mass
    blocks = -(-mass.size // factor)
    table = np.zeros(blocks * factor)
    table[: mass.size] = mass
    table = table.reshape(blocks, factor)
    whole = table.sum(axis=1)
    moved = table @ (np.arange(factor) / factor)
    out = np.zeros(blocks + 1)
    out[:-1] += whole - moved
    out[1:] += moved
    return out


def convolve_spiked(p: FloatArray, q: FloatArray) -> tuple[FloatArray, float]:
    """Convolution by transforms of masses that may be nearly a single point.

    With p = a at one point + p', q = b at one point + q', only p' * q' goes through
    transforms: (a + p') * (b + q') = a b + a q' + b p' + p' * q'. Rounding is relative
    to the small rests, so that a thin tail beside a heavy point keeps its digits.

    Returns
    -------
    mass : ndarray, shape (len(p) + len(q) - 1,)
    error : float
        Bound of the Euclidean norm of the rounding error (and so of every bin's).
    """
    at_p, at_q = int(np.argmax(p)), int(np.argmax(q))
    a, b = float(p[at_p]), float(q[at_q])
    rest_p, rest_q = p.copy(), q.copy()
    rest_p[at_p] = rest_q[at_q] = 0.0
    points = p.size + q.size - 1
    bins = fft_length(points)
    out = scipy.fft.irfft(
        scipy.fft.rfft(rest_p, bins) * scipy.fft.rfft(rest_q, bins), bins
    )[:points]
    # |delta P| <= gamma sqrt(N) |p'|_2 in norm, |Q| <= |q'|_1 pointwise, and the other
    # way round; the inverse and the products add as much again.
    gamma = (math.log2(bins) + 2.0) * PER_LEVEL
    sizes = [
        float(np.linalg.norm(x)) * float(y.sum())
        for x, y in ((rest_p, rest_q), (rest_q, rest_p))
    ]
    error = 2.0 * gamma * (sizes[0] + sizes[1])
    out[at_p : at_p + q.size] += a * rest_q
    out[at_q : at_q + p.size] += b * rest_p
    out[at_p + at_q] += a * b
    return out, error


class TiltedSum(NamedTuple):
    """Tilted mass of a sum on a window of the lattice, with its error bounds.

    Attributes
    ----------
    first : int
        Lattice index of the first bin.
    mass : ndarray, shape (bins,)
        Tilted mass; sums to one but for what wrapped or was rounded.
    error, error_norm : float
        Bounds of the rounding error: of every bin, and of its Euclidean norm over all
        bins. The norm bounds sums over many bins better (Cauchy and Schwarz).
    log_scale : float
        P(S = first + k) = mass[k] exp(log_scale - theta (first + k)).
    theta : float
        Tilt per step.
    """

    first: int
    mass: FloatArray
    error: float
    error_norm: float
    log_scale: float
    theta: float


def _multiply(
    spectrum: npt.NDArray[np.complex128],
    product: FloatArray,
    excluded: FloatArray,
    f: npt.NDArray[np.complex128],
    count: int,
    gamma: float,
) -> None:
    """Multiply the spectrum by f^count, and keep the sizes for the error bound.

    With a = |f| + gamma, product = prod a_j^n_j, and excluded = the largest product
    that leaves one factor out: |prod (f + delta) - prod f| <= gamma n excluded when
    every |delta| <= gamma. The recursion keeps the maximum exactly. Binary powers: a
    complex power through logarithms would lose n times the error of the angle.
    """
    a = np.abs(f)
    a += gamma
    if count > 1:
        # High powers die out: beyond the last a with a^(count-1) > DEAD nothing is
        # computed, and DEAD bounds what is left out.
        alive = np.flatnonzero(a > DEAD ** (1.0 / (count - 1)))
        end = int(alive[-1]) + 1 if alive.size else 0
        spectrum[end:] = 0.0
        np.maximum(excluded[end:], product[end:], out=excluded[end:])
        excluded[end:] *= DEAD
        product[end:] *= DEAD
        spectrum, product, excluded = spectrum[:end], product[:end], excluded[:end]
        f, a = f[:end], a[:end]
    n, m = count, count - 1
    others: FloatArray | None = None  # a^(count - 1)
    square = a
    while True:
        if n & 1:
            spectrum *= f
        if m & 1:
            others = square if others is None else others * square
        n >>= 1
        m >>= 1
        if n == 0:
            break
        f = f * f
        if m:
            square = square * square
    if others is None:  # count is one
        np.maximum(excluded * a, product, out=excluded)
        product *= a
        return
    own = others * a
    np.maximum(excluded * own, product * others, out=excluded)
    product *= own


@nb.njit(cache=True)
def tilted_survival(
    mass: FloatArray,
    first: int,
    theta: float,
    log_scale: float,
    error: float,
    error_norm: float,
    outside: float,
    upper: bool,
) -> tuple[FloatArray, float]:
    """Bounds of P(S > k) from a tilted mass: rounding added to or taken off each.

    A sum of bins times weights is off by at most the largest bin error times the sum of
    the weights, and at most the error's norm times the norm of the weights.

    Parameters
    ----------
    mass, first, theta, log_scale, error, error_norm
        As in `TiltedSum`.
    outside : float
        Bound of the tilted mass that wrapped into the window (lower bounds).
    upper : bool
        Which side.

    Returns
    -------
    survival : ndarray
        Non-increasing, between 0 and 1.
    total : float
        Bound of the mass at or above the first point.
    """
    bins = mass.size
    out = np.empty(bins)
    # Sums are compensated; the recurrence of weights is off by up to 64 units, and its
    # exponents by their own size.
    exponent = abs(log_scale) + abs(theta) * (abs(first) + bins)
    relative = 4.0 * UNIT * (32.0 + exponent)
    plain = rest = weights = squares = 0.0
    best = size = 0.0
    growth = math.exp(theta)
    weight = 0.0
    # A steep tilt takes an exponential at every bin: a recurrence would stay at zero.
    fresh = 64 if abs(theta) < 1.0 else 1
    since = fresh
    for k in range(bins - 1, -1, -1):
        bound = min(error * weights, error_norm * math.sqrt(squares))
        sure = plain + rest
        bound += relative * size
        if since == fresh:
            # Where the weight would overflow nothing is known: capped.
            weight = math.exp(min(log_scale - theta * (first + k), 300.0))
            since = 0
        else:
            weight = min(weight * growth, 1e130)
        since += 1
        if upper:
            out[k] = max(sure + bound, 0.0)
        else:
            # The wrapped mass may sit in any bin: taken off with the largest weight it
            # can have above k. Survival falls, so a later bound holds earlier too.
            best = max(best, sure - bound - outside * weight)
            out[k] = best
        plain, rest = add(plain, rest, mass[k] * weight)
        size += abs(mass[k] * weight)
        weights += weight
        squares += weight * weight
    bound = min(error * weights, error_norm * math.sqrt(squares))
    sure = plain + rest
    bound += relative * size
    if not upper:
        return out, max(best, sure - bound - outside * weight)
    lowest = min(1.0, sure + bound)
    total = lowest
    for k in range(bins):
        lowest = min(lowest, out[k])
        out[k] = lowest
    return out, total


@nb.njit(cache=True)
def thin_ends(mass: FloatArray, allowed: float) -> tuple[int, int, float, float]:
    """Points at either end whose mass together is at most `allowed`.

    Returns
    -------
    bottom, top : int
        How many points.
    below, above : float
        Their masses.
    """
    below = above = 0.0
    bottom = top = 0
    while bottom < mass.size and below + mass[bottom] <= allowed:
        below += mass[bottom]
        bottom += 1
    while top < mass.size and above + mass[mass.size - 1 - top] <= allowed:
        above += mass[mass.size - 1 - top]
        top += 1
    return bottom, top, below, above


def tilt(mass: FloatArray, theta: float) -> tuple[FloatArray, float]:
    """Return p_k exp(theta k) / M and log M."""
    if theta == 0.0:
        total = float(mass.sum())
        return mass / total, math.log(total)
    k = np.arange(mass.size)
    shift = theta * (mass.size - 1) if theta > 0.0 else 0.0
    weighted = mass * np.exp(theta * k - shift)
    total = float(weighted.sum())
    return weighted / total, math.log(total) + shift


def tilted_sum(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    theta: float,
    first: int,
    bins: int,
) -> TiltedSum:
    """Mass of an independent sum on a window, tilted, by one product of transforms.

    Parameters
    ----------
    masses : sequence of ndarray
        Laws of the distinct summands.
    counts : sequence of int
        How often each occurs.
    theta : float
        Tilt per step.
    first, bins : int
        Window; what lies outside wraps around into it (the caller bounds it with
        `tilted_window`), so that it only ever adds to bins.
    """
    log_scale = 0.0
    half = bins // 2 + 1
    spectrum = np.ones(half, dtype=np.complex128)
    product, excluded = np.ones(half), np.zeros(half)
    gamma = (math.log2(bins) + 2.0) * PER_LEVEL
    total = 0
    for mass, count in zip(masses, counts, strict=True):
        weighted, log_total = tilt(mass, theta)
        log_scale += count * log_total
        if weighted.size > bins:
            folded = np.zeros(-(-weighted.size // bins) * bins)
            folded[: weighted.size] = weighted
            weighted = folded.reshape(-1, bins).sum(axis=0)
        f = scipy.fft.rfft(weighted, bins)
        _multiply(spectrum, product, excluded, f, count, gamma)
        total += count
    size = np.abs(spectrum)
    # Each error of the spectrum reaches a bin with weight 1/bins; the inverse adds its
    # own gamma times the mean size, the products 3 u each.
    spectral = total * gamma * excluded + 3.0 * total * UNIT * size
    error = _mean(spectral, bins) + gamma * _mean(size, bins)
    # By Parseval's identity the norm over bins is the root mean square over the
    # spectrum; the inverse's own error is gamma times the norm of what it returns.
    norm = math.sqrt(_mean(spectral * spectral, bins)) + gamma * math.sqrt(
        _mean(size * size, bins)
    )
    mass = scipy.fft.irfft(spectrum, bins)
    return TiltedSum(
        first, np.roll(mass, -(first % bins)), error, norm, log_scale, theta
    )


def _mean(half: FloatArray, bins: int) -> float:
    """Mean over the whole spectrum of a quantity given on its non-negative half."""
    doubled = 2.0 * float(half.sum()) - float(half[0])
    if bins % 2 == 0:
        doubled -= float(half[-1])
    return doubled / bins
