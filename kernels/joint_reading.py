"""Reading masses off few frequencies, and taking the noise out of the result."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
import scipy.fft

from probcalc.kernels.joint_spectra import UNIT, transform_error

__all__ = [
    "REACH",
    "Smear",
    "bracket",
    "fold",
    "noise_tail",
    "smear",
    "tail_error",
    "unfold",
]

FloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[Any]
Spectrum = npt.NDArray[Any]
Function = Callable[[FloatArray], FloatArray]


class Smear(NamedTuple):
    """A kernel of few frequencies: noise added once to the second coordinate.

    Attributes
    ----------
    transform : ndarray, shape (frequencies,)
        Its Fourier coefficients; zero from ``bins / 2`` on.
    outside : float
        Its mass further than `REACH` bins from zero, both sides together.
    variance : float
        In bins^2.
    log_moment : callable
        log E exp(s * noise), s per bin, of the part within `REACH`.
    tail : callable
        P(noise > y), y in bins, of either sign; an upper bound.
    """

    transform: FloatArray
    outside: float
    variance: float
    log_moment: Function
    tail: Function


#: Half width, in bins, of what is kept of the kernel of `smear`.
REACH = 48
# Order of the kernel: even, so that it is not negative.
ORDER = 16


def smear(bins: int) -> Smear:
    """Kernel on a circle of `bins` bins with Fourier coefficients below bins / 2 only.

    A Dirichlet kernel to an even power (Jackson): D(y)^ORDER, D(y) = sin(pi L y / N) /
    sin(pi y / N), is not negative, and its coefficients are the ORDER-fold convolution
    of a box of L ones.
    """
    size = 1 + (bins - 2) // ORDER
    box: list[int] = [1]
    for _ in range(ORDER):
        # Integers, so that no rounding accumulates: convolution with a box of ones is
        # a difference of running sums.
        sums = [0, *itertools.accumulate(box + [0] * (size - 1))]
        box = [sums[k + 1] - sums[max(k + 1 - size, 0)] for k in range(len(sums) - 1)]
    middle = (len(box) - 1) // 2
    transform = np.zeros(bins // 2 + 1)
    transform[: middle + 1] = [value / box[middle] for value in box[middle:]]
    # density(y) = D^ORDER / (N box[middle]), with D <= min(L, 1 / sin(pi y / N)).
    peak = size**ORDER / box[middle] / bins
    fine = 8
    y = np.arange(1, REACH * fine + 1) / fine
    ratio = np.sin(np.pi * size * y / bins) / (size * np.sin(np.pi * y / bins))
    density = peak * np.abs(ratio) ** ORDER
    # Decreasing bound beyond REACH, up to half the circle, by its largest values.
    far = np.arange(REACH, bins / 2.0)
    worst = (1.0 / (size * np.sin(np.pi * np.minimum(far, bins / 2) / bins))) ** ORDER
    outside = 2.0 * peak * float(worst.sum())
    variance = 2.0 * float(density @ y**2) / fine

    # Integrals by the trapezoid rule of an analytic function with 8 points a bin (error
    # below 1e-10); one part in a million is added.
    def log_moment(s: FloatArray) -> FloatArray:
        # 1 + integral of (cosh(s y) - 1)
        grown = np.cosh(np.minimum(np.multiply.outer(s, y), 700.0)) - 1.0
        return np.log1p((2.0 + 2e-6) / fine * (grown @ density))

    cells = 0.5 / fine * (density + np.append(peak, density[:-1]))
    beyond = np.append(np.cumsum(cells[::-1])[::-1], 0.0) + 0.5 * outside

    def tail(x: FloatArray) -> FloatArray:
        # the value at the grid point before bounds the decreasing tail from above
        at = np.floor(np.abs(x) * fine).astype(np.int64)
        up = np.where(x >= 0.0, at, np.minimum(at + 1, beyond.size - 1))
        value = beyond[np.minimum(up, beyond.size - 1)]
        value = np.where(x >= 0.0, value * (1.0 + 1e-6), 1.0 - value * (1.0 - 1e-6))
        return np.where(x >= REACH, outside, np.minimum(value, 1.0))

    return Smear(transform, outside, variance, log_moment, tail)


def unfold(
    spectrum: Spectrum, bins: int, kernel: FloatArray | None
) -> tuple[FloatArray, float]:
    """Masses on a circle of bins from the spectra of rows.

    Parameters
    ----------
    spectrum : ndarray, shape (rows, bins // 2 + 1)
    kernel : ndarray or None
        Transform of `smear`; each position is then also split between the two bins
        around it, with the mean kept. None: all positions are bins.

    Returns
    -------
    mass : ndarray, shape (rows, bins)
        Not negative.
    error : float
        What this step adds at most to the error of the mass of any set that is made of
        one arc of every row.
    """
    if kernel is not None:
        # mass of bin k = integral of density(y) hat(y - k): the hat's transform.
        hat = np.sinc(np.arange(kernel.size) / bins) ** 2
        spectrum = spectrum * (kernel * hat)
    mass: Any = scipy.fft.irfft(spectrum, bins, axis=1, workers=1)
    # An arc has at most `bins` bins: their errors sum to sqrt(bins) times their l2
    # norm, which is gamma (and the kernel's 40 u) times that of the row.
    norms = np.sqrt(np.einsum("ij,ij->i", mass, mass))
    gamma = transform_error(bins) + 40.0 * UNIT
    error = math.sqrt(bins) * gamma * float(norms.sum())
    negative = np.minimum(mass, 0.0)
    return mass - negative, error - float(negative.sum())


def tail_error(error: float, bins: int) -> float:
    """Error of the mass of one arc of every row from one in the norm of this module.

    The transform of the indicator of an arc is at most 1 / |sin(pi f / N)| <= N / (2 f)
    for frequencies f <= N / 2, and N at f = 0; so its mean over the N frequencies is at
    most 1 + sum over f <= N / 2 of 1 / f <= 2.5 + log(N / 2).
    """
    return error * (2.5 + math.log(max(bins / 2.0, 1.0)))


@nb.njit(cache=True)
def fold(
    mass: FloatArray,
    row_step: float,
    column_step: float,
    turn: int,
    length: int,
) -> FloatArray:
    """Mass of ``row_step * i + column_step * k`` on points 0 ... length - 1.

    Column ``k`` is ``mass[:, (k + turn) % columns]``. Between two points the mass is
    shared with the mean kept.
    """
    out = np.zeros(length)
    columns = mass.shape[1]
    for i in range(mass.shape[0]):
        for k in range(columns):
            x = mass[i, (k + turn) % columns]
            if x != 0.0:
                at = row_step * i + column_step * k
                j = math.floor(at)
                f = at - j
                out[j] += (1.0 - f) * x
                if f > 0.0:
                    out[j + 1] += f * x
    return out


@nb.njit(cache=True)
def _bracket(
    low: FloatArray,
    high: FloatArray,
    pad: int,
    upper_shift: IntArray,
    upper_factor: FloatArray,
    lower_shift: IntArray,
    layers: FloatArray,
    stride: int,
) -> tuple[FloatArray, FloatArray]:
    points = low.size + 2 * pad
    last = low.size - 1
    upper = np.ones(points)
    lower = np.zeros(points)
    best = 1.0
    for k in range(points):
        for c in range(upper_shift.size):
            j = k - pad - upper_shift[c]
            if j >= 0:
                best = min(best, high[min(j, last)] * upper_factor[c])
        upper[k] = best
    best = 0.0
    for k in range(points - 1, -1, -1):
        for c in range(lower_shift.size):
            j = k - pad + lower_shift[c]
            if j <= last:
                value = low[max(j, 0)]
                if value <= best * (1.0 - layers[c, 0]):
                    continue
                for i in range(1, layers.shape[1]):
                    at = k - i * stride
                    u = upper[at] if at >= 0 else 1.0
                    value -= (layers[c, i - 1] - layers[c, i]) * u
                value -= layers[c, layers.shape[1] - 1]
                best = max(best, value / (1.0 - layers[c, 0]))
        lower[k] = best
    return lower, upper


def noise_tail(
    rates: FloatArray, logs: FloatArray, smeared: Function | None, width: float
) -> Function:
    """P(Z + Y > c), bounded, for c >= 0, with Z and Y independent.

    Parameters
    ----------
    rates, logs : ndarray
        Bounds of log E exp(s Z) at the rates s.
    smeared : callable or None
        Bound of P(Y > y) for y of either sign; None for no Y.
    width : float
        Scale of Y.
    """

    def alone(c: FloatArray) -> FloatArray:
        # Markov: P(Z > c) <= min over s of exp(log E exp(s Z) - s c).
        best = np.zeros(c.shape)
        for rate, log in zip(rates, logs, strict=True):
            np.minimum(best, log - rate * c, out=best)
        return np.exp(best)

    if smeared is None:
        return alone
    y = width * np.linspace(-3.0, 14.0, 171)
    beyond = np.minimum(smeared(y), 1.0)

    def both(c: FloatArray) -> FloatArray:
        # E h(Y) of the increasing function h(y) = P(Z > c - y):
        # at most h(y_0) + sum over j of (h(y_j+1) - h(y_j)) P(Y > y_j), and P(Y > y_J).
        # h from a table: at the entry before, since the tail of Z falls.
        z = np.maximum(c[..., None] - y, 0.0)
        fine = max(0.05 * width, 1e-5 * float(z.max()))
        table = alone(fine * np.arange(int(z.max() / fine) + 1.0))
        h = table[(z / fine).astype(np.int64)]
        steps = np.diff(h, axis=-1) @ beyond[:-1]
        return np.minimum(h[..., 0] + steps + beyond[-1], 1.0)

    return both


def bracket(
    low: FloatArray,
    high: FloatArray,
    spread: float,
    down: Function,
    up: Function,
    smeared: Function | None,
    width: float,
) -> tuple[FloatArray, FloatArray, int]:
    """Bounds of P(E > t) from those of P(E' > t), E' being E with noise.

    Given every leaf, E is the largest of several sums, and their noise is independent
    of everything else.

    Parameters
    ----------
    low, high : ndarray, shape (points,)
        Bounds of P(E' > point); before the first point the first of `low` holds.
    spread : float
        Largest squared range of the bounded noise of one sum, its root, in points.
    down : callable
        Bound of log E exp(-s Z), s > 0, with Z the bounded noise of the sum that is the
        largest without noise, given the leaves.
    up : callable
        Bound of log E exp(s * largest bounded noise) given the leaves.
    smeared : callable or None
        Bound of P(Y > y) of symmetric noise that all sums have in common.
    width : float
        Scale of that noise in points.

    Returns
    -------
    lower, upper : ndarray, shape (points + 2 * pad,)
        Bounds of P(E > point), ``pad`` points more on either side.
    pad : int
    """
    scale = math.hypot(spread, width)
    if scale <= 0.0:
        return low, high, 0
    rates = np.geomspace(0.03, 60.0, 64) / (spread if spread > 0.0 else scale)
    # Distances at which the tails of the noise are worked out; a tail at a distance
    # between two of them is at most that at the nearer one.
    stride = max(1, int(scale / 12.0))
    distance = stride * np.arange(400.0)
    fall = noise_tail(rates, down(rates), smeared, width)(distance)
    rise = noise_tail(rates, up(rates), smeared, width)(distance)
    levels = np.array([0.7, 0.5, 0.3, 0.12, 0.03, 1e-3, 1e-6, 1e-11])
    # P(noise < -c) <= delta on the sum that is the largest without noise, so
    #   P(E' > t - c) >= P(E > t, noise >= -c) >= (1 - delta) P(E > t).
    at = np.searchsorted(-fall, -levels)
    at = at[at < distance.size]
    # P(E' > E + c) <= g(c), so
    #   P(E' > t + c) <= P(E > t) + E[g(t + c - E); E <= t].
    # With points t = e_0 > e_1 > ... at distance `stride`, g_j = g(c + j stride) and
    # S_j = P(E > e_j), the expectation is at most
    #   sum_{j < J} g_j (S_{j+1} - S_j) + g_J (1 - S_J)
    #     <= -g_0 S_0 + sum_{j=1..J} (g_{j-1} - g_j) S_j + g_J,
    # where S_j <= the upper bound; the first term goes to the left-hand side:
    #   P(E > t) (1 - g_0) >= P(E' > t + c) - sum (g_{j-1} - g_j) upper(e_j) - g_J.
    begin = np.searchsorted(-rise, -levels)
    begin = begin[begin < distance.size - 1]
    reach = np.minimum(begin[:, None] + 4 * np.arange(33), distance.size - 1)
    pad = int(stride * max(at.max(initial=0), begin.max(initial=0)))
    lower, upper = _bracket(
        low,
        high,
        pad,
        stride * at,
        1.0 / (1.0 - fall[at]),
        stride * begin,
        rise[reach],
        4 * stride,
    )
    return lower, upper, pad
