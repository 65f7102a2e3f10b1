"""Masses of two coordinates: the first adds or takes maxima, the second adds.

The first coordinate lies on a grid of rows. The second is kept in the Fourier domain:
each row has the Fourier coefficients of its mass on a circle. Adding the second
coordinates is a pointwise product there, whatever the first ones do, and needs no
rounding of them at all; only the low frequencies are kept, and the result is read after
smearing with a kernel that has no others.

The norm that bounds rounding is ``max over frequencies of sum over rows |spectrum|``.
Both compositions are submultiplicative in it, frequency by frequency, so that for
operands of mass one errors simply add, and so do missing and misplaced mass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
import scipy.fft

from probcalc.kernels.convolution import fft_length, log_mgf

__all__ = [
    "DYADIC",
    "LEAF",
    "LONG_PHASE_ERROR",
    "MAX",
    "SUM",
    "Profile",
    "Smear",
    "bracket",
    "circle_spectra",
    "compose",
    "fold",
    "line_spectrum",
    "noise_tail",
    "ordered_spectrum",
    "parallel",
    "profile",
    "smear",
    "tail_error",
    "transform_error",
    "unfold",
    "window",
]

FloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[Any]
Spectrum = npt.NDArray[Any]
Function = Callable[[FloatArray], FloatArray]

UNIT = 2.0**-53
LEAF, SUM, MAX = "leaf", "sum", "max"
#: Positions on the circle are integers over this modulus: multiples of up to 2^20 of
#: them are exact, so that phases are exact to one rounding.
DYADIC = 2**42
# Phases are multiplied up over this many frequencies, then computed afresh.
RUN = 8
# Rounding of `circle_spectra`: RUN products of sqrt(5) u with a factor good to 8 u.
PHASE_ERROR = 12.0 * RUN * UNIT
# The same for `ordered_spectrum`, where phases would cost more than the rest.
LONG_RUN = 32
LONG_PHASE_ERROR = 12.0 * LONG_RUN * UNIT
# Rows between two restarts of the running sums of `parallel`.
BLOCK = 32


def transform_error(length: int) -> float:
    """Relative error of a transform of 2^a 3^b 5^c points: l1 to any bin, and in l2.

    Every input reaches every output through one product of unit factors, log2(length)
    levels of at most 8 u: 4 u for the twiddle and its product, the rest for the sums
    (a radix-5 butterfly spends 10 u on 2.3 levels). In l2 it is 6.7 u per level
    (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 24.2).
    """
    return 8.0 * UNIT * (math.log2(max(length, 2)) + 2.0)


# ------------------------------------------------------------------------- leaves
@nb.njit(cache=True)
def circle_spectra(
    row: IntArray,
    part: FloatArray,
    mass: FloatArray,
    position: IntArray,
    modulus: int,
    height: int,
    frequencies: int,
) -> Spectrum:
    """Fourier coefficients, row by row, of atoms on a circle.

    Parameters
    ----------
    row, part : ndarray, shape (atoms,)
        An atom gives ``1 - part`` of its mass to its row and the rest to the next.
    mass : ndarray, shape (atoms,)
    position : ndarray of int64, shape (atoms,)
        Place on the circle of `modulus` points; position * frequencies < 2^63.
    height, frequencies : int

    Returns
    -------
    ndarray, shape (height, frequencies)
        ``sum of mass exp(-2 pi i f position / modulus)``.
    """
    out = np.zeros((height, frequencies), np.complex128)
    for k in range(mass.size):
        place = position[k] % modulus
        angle = -2.0 * math.pi * (place / modulus)
        turn = complex(math.cos(angle), math.sin(angle))
        left = (1.0 - part[k]) * mass[k]
        right = part[k] * mass[k]
        i = row[k]
        f = 0
        while f < frequencies:
            angle = -2.0 * math.pi * (((place * f) % modulus) / modulus)
            z = complex(math.cos(angle), math.sin(angle))
            for g in range(f, min(f + RUN, frequencies)):
                out[i, g] += left * z
                if right > 0.0:
                    out[i + 1, g] += right * z
                z *= turn
            f += RUN
    return out


@nb.njit(cache=True)
def ordered_spectrum(
    operand: IntArray,
    mass: FloatArray,
    own: IntArray,
    other: IntArray,
    modulus: int,
    operands: int,
    frequencies: int,
) -> Spectrum:
    """Fourier coefficients of one weighted sum of both coordinates of a maximum.

    Of independent lists of atoms the largest first coordinate is found by going through
    all atoms in its order, without any grid: atom e, last of all, comes with atoms of
    the other lists that came before. The error is that of the running sums: (atoms +
    4 operands) u, and `LONG_PHASE_ERROR`, for each operand and the whole.

    Parameters
    ----------
    operand, mass : ndarray, shape (atoms,)
        Lists that the atoms belong to; ascending in the first coordinate.
    own, other : ndarray of int64, shape (atoms,)
        Place of an atom on the circle when it is the largest and when it is not.
    modulus, operands, frequencies : int

    Returns
    -------
    ndarray, shape (1, frequencies)
    """
    out = np.zeros((1, frequencies), np.complex128)
    turns = np.empty((mass.size, 2), np.complex128)
    places = np.empty((mass.size, 2), np.int64)
    for e in range(mass.size):
        places[e, 0], places[e, 1] = own[e] % modulus, other[e] % modulus
        for side in range(2):
            angle = -2.0 * math.pi * (places[e, side] / modulus)
            turns[e, side] = complex(math.cos(angle), math.sin(angle))
    sums = np.empty((operands, LONG_RUN), np.complex128)
    for f in range(0, frequencies, LONG_RUN):
        width = min(LONG_RUN, frequencies - f)
        sums[:] = 0.0
        for e in range(mass.size):
            angle = -2.0 * math.pi * (((places[e, 0] * f) % modulus) / modulus)
            y = mass[e] * complex(math.cos(angle), math.sin(angle))
            angle = -2.0 * math.pi * (((places[e, 1] * f) % modulus) / modulus)
            z = mass[e] * complex(math.cos(angle), math.sin(angle))
            turn_y, turn_z = turns[e, 0], turns[e, 1]
            mine = operand[e]
            for g in range(width):
                product = y
                for m in range(operands):
                    if m != mine:
                        product *= sums[m, g]
                out[0, f + g] += product
                sums[mine, g] += z
                y *= turn_y
                z *= turn_z
    return out


def line_spectrum(mass: FloatArray, period: int, frequencies: int) -> Spectrum:
    """First Fourier coefficients of a mass on a circle of `period` points."""
    wrapped = _cyclic(mass[:, None], period)[:, 0]
    spectrum: Any = scipy.fft.rfft(wrapped, workers=1)
    return spectrum[:frequencies]


def _cyclic(a: Any, length: int) -> Any:
    """Rows modulo `length`, padded with zeros."""
    out = np.zeros((-(-a.shape[0] // length) * length, a.shape[1]), a.dtype)
    out[: a.shape[0]] = a
    return out.reshape(-1, length, a.shape[1]).sum(axis=0)


# ------------------------------------------------------------------- compositions
@nb.njit(cache=True)
def _parallel(a: Any, lead_a: int, b: Any, lead_b: int, out: Any) -> None:
    # Running sums in two levels: BLOCK + rows / BLOCK roundings, not rows.
    width = out.shape[1]
    base_a = np.zeros(width, out.dtype)
    base_b = np.zeros(width, out.dtype)
    near_a = np.zeros(width, out.dtype)
    near_b = np.zeros(width, out.dtype)
    for i in range(min(lead_a, a.shape[0])):
        for j in range(width):
            base_a[j] += a[i, j]
    for i in range(min(lead_b, b.shape[0])):
        for j in range(width):
            base_b[j] += b[i, j]
    for i in range(out.shape[0]):
        if i % BLOCK == 0:
            for j in range(width):
                base_a[j] += near_a[j]
                base_b[j] += near_b[j]
                near_a[j] = 0.0
                near_b[j] = 0.0
        in_a = i + lead_a < a.shape[0]
        in_b = i + lead_b < b.shape[0]
        # {max = i} = {a = i, b <= i} + {a < i, b = i}: positive terms only, where
        # differencing the product of the running sums would cancel.
        if in_a and in_b:
            for j in range(width):
                x = a[i + lead_a, j]
                y = b[i + lead_b, j]
                near_b[j] += y
                out[i, j] = x * (base_b[j] + near_b[j]) + y * (base_a[j] + near_a[j])
                near_a[j] += x
        elif in_a:
            for j in range(width):
                x = a[i + lead_a, j]
                out[i, j] = x * (base_b[j] + near_b[j])
                near_a[j] += x
        elif in_b:
            for j in range(width):
                y = b[i + lead_b, j]
                out[i, j] = y * (base_a[j] + near_a[j])
                near_b[j] += y
        else:
            for j in range(width):
                out[i, j] = 0.0


def parallel(a: Any, first_a: int, b: Any, first_b: int) -> tuple[Any, int]:
    """Largest of the first coordinates, sum of the second ones, independent operands.

    Parameters
    ----------
    a, b : ndarray, shape (rows, frequencies)
        Spectra, or masses (one column) where there is no second coordinate.
    first_a, first_b : int
        Numbers of their first rows.

    Returns
    -------
    spectrum, first row
    """
    first = max(first_a, first_b)
    last = max(first_a + a.shape[0], first_b + b.shape[0])
    out = np.empty((last - first, a.shape[1]), a.dtype)
    _parallel(a, first - first_a, b, first - first_b, out)
    return out, first


def _repeated(one: Any, count: int, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine `count` copies by binary powers."""
    result = None
    while True:
        if count & 1:
            result = one if result is None else combine(result, one)
        count >>= 1
        if count == 0:
            return result
        one = combine(one, one)


def _both(a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
    return parallel(*a, *b)


def window(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    errors: Sequence[float],
    log_tail: float,
) -> tuple[int, int]:
    """Points outside which an independent sum has mass at most exp(log_tail) a side.

    Chernoff: P(S > b) <= exp(K(t) - t b) for every t > 0, likewise below. A mass known
    only to `errors` (sum of the absolute errors of its points) has a moment generating
    function of at most the computed one plus error times the largest exponential.
    """
    sizes = np.array([m.size for m in masses])
    low, high = _window(
        np.concatenate(masses),
        np.append(0, np.cumsum(sizes)),
        np.array(counts, dtype=np.float64),
        np.array(errors, dtype=np.float64),
        log_tail,
    )
    last = sum(n * (m.size - 1) for m, n in zip(masses, counts, strict=True))
    return (
        max(math.floor(low), 0),
        min(math.ceil(high), last) if high < 2.0**62 else last,
    )


@nb.njit(cache=True)
def _window(
    flat: FloatArray,
    start: IntArray,
    counts: FloatArray,
    errors: FloatArray,
    log_tail: float,
) -> tuple[float, float]:
    variance = 0.0
    for i in range(counts.size):
        variance += counts[i] * log_mgf(flat[start[i] : start[i + 1]], 0.0)[2]
    low, high = 0.0, np.inf
    if variance == 0.0:
        return low, high
    for u in (0.1, 0.25, 0.5, 1.0, 1.7, 2.5, 3.5, 4.5, 6.0, 8.0, 11.0):
        rate = u / math.sqrt(variance)
        above = 0.0
        below = 0.0
        for i in range(counts.size):
            mass = flat[start[i] : start[i + 1]]
            right = log_mgf(mass, rate)[0]
            left = log_mgf(mass, -rate)[0]
            if errors[i] > 0.0:
                log = math.log(errors[i])
                right = _log_sum(right, log + rate * (mass.size - 1))
                left = _log_sum(left, log)
            above += counts[i] * right
            below += counts[i] * left
        high = min(high, (above - log_tail) / rate)
        low = max(low, (log_tail - below) / rate)
    return low, high


@nb.njit(cache=True)
def _log_sum(a: float, b: float) -> float:
    top = max(a, b)
    return top + math.log1p(math.exp(min(a, b) - top))


class Profile(NamedTuple):
    """Rows of one node, and what is wrong with the mass on them at most.

    Attributes
    ----------
    first : int
        Number of the first row kept.
    mass : ndarray, shape (rows,)
        Mass of each row.
    length : int
        Rows of the cyclic transform of a sum.
    error : float
        Rounding, in the norm of this module.
    missing, extra : float
        Mass that is absent, and mass in rows where it does not belong.
    """

    first: int
    mass: FloatArray
    length: int
    error: float
    missing: float
    extra: float


Nodes = Sequence[tuple[str, Sequence[tuple[int, int]]]]


def _joined(
    parts: list[tuple[Profile, int]],
    first: int,
    mass: FloatArray,
    length: int,
    local: float,
    outside: float,
) -> Profile:
    """Profile of a composition: what is wrong with the operands, and what is new."""
    return Profile(
        first,
        mass,
        length,
        local + sum(n * p.error for p, n in parts),
        outside + sum(n * p.missing for p, n in parts),
        outside + sum(n * p.extra for p, n in parts),
    )


def _sum_profile(parts: list[tuple[Profile, int]], log_tail: float) -> Profile:
    masses = [p.mass for p, _ in parts]
    counts = [n for _, n in parts]
    low, high = window(masses, counts, [p.error for p, _ in parts], log_tail)
    whole = sum(n * (p.mass.size - 1) for p, n in parts) + 1
    length = fft_length(high - low + 1)
    outside = 2.0 * math.exp(log_tail)
    if length >= whole:
        low, high, outside = 0, whole - 1, 0.0
    product: Any = 1.0
    for p, n in parts:
        spectrum = line_spectrum(p.mass, length, length)
        product = product * _repeated(spectrum, n, np.multiply)
    whole_mass: Any = scipy.fft.irfft(product, length, workers=1)
    mass = np.roll(whole_mass, -(low % length))
    mass = np.maximum(mass[: high - low + 1], 0.0)
    # Transform of each operand: gamma |p|_2 in l2 (at most the norm of its row masses,
    # at any frequency), times its count, all other factors being at most 1; the
    # products 4 u each and the inverse gamma, of a result that is in l2 at most any
    # operand; sqrt(length) from l2 to l1.
    gamma = transform_error(length)
    norms = [math.sqrt(float(p.mass @ p.mass)) + p.error for p, _ in parts]
    local = sum(n * gamma * a for a, n in zip(norms, counts, strict=True))
    local += (gamma + 4.0 * UNIT * sum(counts)) * min(norms)
    first = sum(n * p.first for p, n in parts) + low
    return _joined(parts, first, mass, length, math.sqrt(length) * local, outside)


def _max_profile(parts: list[tuple[Profile, int]]) -> Profile:
    states = [_repeated((p.mass[:, None], p.first), n, _both) for p, n in parts]
    state = states[0]
    for other in states[1:]:
        state = _both(state, other)
    mass = state[0][:, 0]
    # Two running sums of BLOCK + rows / BLOCK terms, products 3 u, one addition.
    local = (2.0 * (BLOCK + mass.size / BLOCK + 2.0) + 8.0) * UNIT
    steps = sum(n for _, n in parts) - 1
    return _joined(parts, state[1], mass, 0, steps * local, 0.0)


def _trimmed(p: Profile, tail: float) -> Profile:
    """Leave out rows at both ends that hold at most `tail` each."""
    start = int(np.searchsorted(np.cumsum(p.mass), tail, side="right"))
    stop = int(np.searchsorted(np.cumsum(p.mass[::-1]), tail, side="right"))
    stop = p.mass.size - stop
    if (start == 0 and stop == p.mass.size) or stop <= start:
        return p
    cut = float(p.mass[:start].sum() + p.mass[stop:].sum()) + p.error
    return p._replace(
        first=p.first + start, mass=p.mass[start:stop], missing=p.missing + cut
    )


def profile(
    nodes: Nodes, leaves: dict[int, Profile], log_tails: Sequence[float]
) -> list[Profile]:
    """Row masses and windows of every node, the second coordinate left aside.

    Parameters
    ----------
    nodes : sequence of (kind, operands)
        Operands before what they are part of; each is (number of node, count).
    leaves : dict
        Profiles of the leaves by number.
    log_tails : sequence of float
        Log of the mass that each node may leave out on either side.
    """
    out: list[Profile] = []
    for number, (kind, operands) in enumerate(nodes):
        if kind == LEAF:
            out.append(leaves[number])
            continue
        parts = [(out[i], n) for i, n in operands]
        log_tail = log_tails[number]
        new = _sum_profile(parts, log_tail) if kind == SUM else _max_profile(parts)
        out.append(_trimmed(new, math.exp(log_tail)))
    return out


def compose(
    nodes: Nodes, profiles: Sequence[Profile], leaf: Callable[[int], Spectrum]
) -> Spectrum:
    """Spectrum of the last node, on the rows of its profile.

    Works on a stack of its own; a node that is used once is combined with what its
    parent has so far and dropped.

    Parameters
    ----------
    nodes, profiles
        As for and from `profile`.
    leaf : callable
        Spectrum of a leaf by number, shape (rows, frequencies); must be its own.
    """
    uses = [0] * len(nodes)
    for _, operands in nodes:
        for i, _ in operands:
            uses[i] += 1
    held: dict[int, Spectrum] = {}
    stack: list[list[Any]] = [[len(nodes) - 1, 0, None]]
    while True:
        number, done, state = stack[-1]
        kind, operands = nodes[number]
        if kind != LEAF and done < len(operands):
            i, count = operands[done]
            if nodes[i][0] != LEAF and i not in held:
                stack.append([i, 0, None])
                continue
            operand = leaf(i) if nodes[i][0] == LEAF else held[i]
            uses[i] -= 1
            if uses[i] == 0:
                held.pop(i, None)
            own = profiles[number]
            add = _sum_step if kind == SUM else _max_step
            stack[-1][1:] = done + 1, add(state, operand, profiles[i], count, own)
            continue
        stack.pop()
        if kind == LEAF:
            result = leaf(number)
        elif kind == SUM:
            result = _sum_end(state, profiles[number])
        else:
            skip = profiles[number].first - state[1]
            result = state[0][skip : skip + profiles[number].mass.size]
        if not stack:
            return result
        held[number] = result


def _max_step(state: Any, a: Spectrum, part: Profile, count: int, _: Profile) -> Any:
    one = _repeated((a, part.first), count, _both)
    return one if state is None else _both(state, one)


def _sum_step(state: Any, a: Any, part: Profile, count: int, own: Profile) -> Any:
    if a.shape[0] > 1:
        a = scipy.fft.fft(_cyclic(a, own.length), axis=0, overwrite_x=True, workers=1)
    f = _repeated(a, count, np.multiply)
    first = count * part.first
    if state is None:
        return f, first
    return state[0] * f, state[1] + first


def _sum_end(state: Any, own: Profile) -> Spectrum:
    product, origin = state
    if product.shape[0] == 1:  # one row each: only the second coordinate varies
        product = _cyclic(product, own.length)
    else:
        product = scipy.fft.ifft(product, axis=0, overwrite_x=True, workers=1)
    return product[(np.arange(own.mass.size) + own.first - origin) % own.length]


# ------------------------------------------------------------------------ reading
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
