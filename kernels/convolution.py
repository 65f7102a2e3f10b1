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

__all__ = [
    "TiltedSum",
    "convolve",
    "fft_length",
    "log_mgf",
    "power",
    "tilted_sum",
    "tilted_window",
]

FloatArray = npt.NDArray[np.float64]

UNIT = 2.0**-53
# Rounding of one level of a transform: sqrt(5) u for the product with the twiddle
# factor, u for the addition, the error of the factor itself; rounded up.
PER_LEVEL = 5.0 * UNIT
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
    shift = max(0.0, theta * (points - 1))
    total = 0.0
    first = 0.0
    second = 0.0
    growth = math.exp(theta)
    k = 0
    while k < points:
        # A fresh exponential every 64 points keeps the recurrence's error below 1e-14.
        weight = math.exp(theta * k - shift)
        stop = min(k + 64, points)
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
) -> tuple[int, int]:
    """Points outside which the tilted sum has mass at most exp(log_outside) a side.

    Chernoff: P_theta(S > b) <= exp(K(theta + u) - K(theta) - u b) for every u > 0,
    and likewise below; the best of a few u is taken.
    """
    last = sum(c * (m.size - 1) for m, c in zip(masses, counts, strict=True))
    base, mean, variance = total_log_mgf(masses, counts, theta)
    spread = math.sqrt(variance)
    if spread == 0.0:
        middle = int(round(mean))
        return max(middle - 1, 0), min(middle + 1, last)
    low, high = 0.0, float(last)
    for u in (0.15, 0.3, 0.6, 1.0, 1.6, 2.5, 3.5, 5.0, 7.0, 10.0):
        rate = u / spread
        above = total_log_mgf(masses, counts, theta + rate)[0] - base
        high = min(high, (above - log_outside) / rate)
        below = total_log_mgf(masses, counts, theta - rate)[0] - base
        low = max(low, -(below - log_outside) / rate)
    return max(int(math.floor(low)), 0), min(int(math.ceil(high)), last)


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


def _integer_power(z: npt.NDArray[np.complex128], n: int) -> npt.NDArray[np.complex128]:
    # Binary powers: n - 1 products in the worst chain, each sqrt(5) u; a complex power
    # through logarithms would lose n times the error of the angle.
    result: npt.NDArray[np.complex128] | None = None
    while True:
        if n & 1:
            result = z if result is None else result * z
        n >>= 1
        if n == 0:
            assert result is not None
            return result
        z = z * z


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
    spectrum: npt.NDArray[np.complex128] | None = None
    # With a = |f| + gamma, product = prod a_j^n_j, and excluded = the largest product
    # that leaves one factor out: |prod (f + delta) - prod f| <= gamma n excluded when
    # every |delta| <= gamma. The recursion keeps the maximum exactly.
    product: FloatArray | float = 1.0
    excluded: FloatArray | float = 0.0
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
        a = np.abs(f) + gamma
        others = a ** (count - 1) if count > 1 else np.ones_like(a)
        own = others * a
        excluded = np.maximum(excluded * own, product * others)
        product = product * own
        f = _integer_power(f, count)
        spectrum = f if spectrum is None else spectrum * f
        total += count
    assert spectrum is not None
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
