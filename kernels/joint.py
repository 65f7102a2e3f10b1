"""Masses of two coordinates on a grid: the first adds or takes maxima, the second adds.

Rows stand for the first coordinate, columns for the second. Columns are kept in the
Fourier domain (real transform along each row, cyclic): adding the second coordinates
is a pointwise product there, whatever the first ones do. The norm that bounds rounding
throughout is ``max over frequencies of sum over rows |spectrum|``. Both compositions
are submultiplicative in it, frequency by frequency, so errors of operands of mass one
simply add, and so do mass that is missing and mass that is put where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
import scipy.fft

from probcalc.kernels.convolution import fft_length, log_mgf

__all__ = [
    "DOWN",
    "MAX",
    "SPLIT",
    "SUM",
    "UP",
    "Profile",
    "bracket",
    "compose",
    "fold",
    "parallel",
    "profile",
    "row_spectra",
    "scatter",
    "shear",
    "transform_error",
    "unfold",
    "window",
]

FloatArray = npt.NDArray[np.float64]
Spectrum = npt.NDArray[np.complex128]

UNIT = 2.0**-53
DOWN, SPLIT, UP = -1, 0, 1
LEAF, SUM, MAX = "leaf", "sum", "max"
# Rows between two restarts of the running sums of `parallel`.
BLOCK = 32


def transform_error(length: int) -> float:
    """Relative error of a transform of 2^a 3^b 5^c points, l1 to any bin and in l2.

    Every input reaches every output through one product of unit factors, log2(length)
    levels of at most 8 u: 4 u for the twiddle and its product, the rest for the sums
    (a radix-5 butterfly spends 10 u on 2.3 levels). The same per level holds in l2
    (Higham, Accuracy and Stability, Theorem 24.2: 6.7 u).
    """
    return 8.0 * UNIT * (math.log2(max(length, 2)) + 2.0)


@nb.njit(cache=True)
def scatter(
    rows: FloatArray,
    columns: FloatArray,
    mass: FloatArray,
    height: int,
    width: int,
    rounding: int,
) -> FloatArray:
    """Bring atoms onto the grid; positions in steps from the first row and column.

    ``rounding``: `DOWN` and `UP` take both coordinates to a neighbour; `SPLIT` shares
    the mass among the four neighbours, keeping both means.
    """
    out = np.zeros((height, width))
    for k in range(mass.size):
        i = int(math.floor(rows[k]))
        j = int(math.floor(columns[k]))
        f = rows[k] - i
        g = columns[k] - j
        if rounding == DOWN:
            out[i, j] += mass[k]
        elif rounding == UP:
            out[i + (f > 0.0), j + (g > 0.0)] += mass[k]
        else:
            right = g * mass[k]
            left = mass[k] - right
            out[i, j] += (1.0 - f) * left
            if g > 0.0:
                out[i, j + 1] += (1.0 - f) * right
            if f > 0.0:
                out[i + 1, j] += f * left
                if g > 0.0:
                    out[i + 1, j + 1] += f * right
    return out


@nb.njit(cache=True)
def shear(
    rows: FloatArray,
    columns: FloatArray,
    shift: FloatArray,
    width: int,
    rounding: int,
) -> FloatArray:
    """Outer product of two masses, row i moved by ``shift[i]`` >= 0 columns.

    A shift that is no integer is rounded (down, up) or shared between two columns.
    """
    out = np.zeros((rows.size, width))
    for i in range(rows.size):
        whole = int(math.floor(shift[i]))
        part = shift[i] - whole
        if rounding == DOWN:
            part = 0.0
        elif rounding == UP and part > 0.0:
            part = 1.0
        for j in range(columns.size):
            x = rows[i] * columns[j]
            out[i, j + whole] += (1.0 - part) * x
            if part > 0.0:
                out[i, j + whole + 1] += part * x
    return out


def row_spectra(mass: FloatArray, first: int, columns: int) -> Spectrum:
    """Real transform along rows; column k of `mass` is ``first + k`` modulo `columns`.

    Parameters
    ----------
    mass : ndarray, shape (rows, any width)
    first : int
        Number of its first column.
    columns : int
        Period.

    Returns
    -------
    ndarray, shape (rows, columns // 2 + 1)
    """
    height, width = mass.shape
    cyclic = np.zeros((height, columns))
    start = first % columns
    done = 0
    while done < width:
        part = min(columns - start, width - done)
        cyclic[:, start : start + part] += mass[:, done : done + part]
        done += part
        start = 0
    return scipy.fft.rfft(cyclic, axis=1, overwrite_x=True, workers=1)


@nb.njit(cache=True)
def _parallel(a: Any, lead_a: int, b: Any, lead_b: int, out: Any) -> None:
    # Running sums in two levels: the error is BLOCK + rows / BLOCK roundings, not rows.
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


def window(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    errors: Sequence[float],
    log_tail: float,
) -> tuple[int, int]:
    """Points outside which an independent sum has mass at most exp(log_tail) a side.

    Chernoff: P(S > b) <= exp(K(t) - t b) for every t > 0, likewise below. A mass known
    only to `errors` (sum of the absolute errors of its bins) has a moment generating
    function of at most the computed one plus error times the largest exponential.
    """
    last = sum(c * (m.size - 1) for m, c in zip(masses, counts, strict=True))
    variance = sum(
        c * log_mgf(m, 0.0)[2] for m, c in zip(masses, counts, strict=True)
    )
    low, high = 0.0, float(last)
    if variance == 0.0:
        return 0, last
    for u in (0.1, 0.25, 0.5, 1.0, 1.7, 2.5, 3.5, 4.5, 6.0, 8.0, 11.0):
        rate = u / math.sqrt(variance)
        for sign in (1.0, -1.0):
            value = 0.0
            for mass, count, error in zip(masses, counts, errors, strict=True):
                log = log_mgf(mass, sign * rate)[0]
                if error > 0.0:
                    worst = max(0.0, sign) * rate * (mass.size - 1)
                    log = float(np.logaddexp(log, math.log(error) + worst))
                value += count * log
            if sign > 0.0:
                high = min(high, (value - log_tail) / rate)
            else:
                low = max(low, (log_tail - value) / rate)
    return min(max(math.floor(low), 0), last), max(min(math.ceil(high), last), 0)


class Profile(NamedTuple):
    """Rows of one node, and what is wrong with the mass on them at most.

    Attributes
    ----------
    first : int
        Number of the first row kept.
    mass : ndarray, shape (rows,)
        Mass of each row.
    lead, length : int
        First row and number of rows of the cyclic transform of a sum.
    error : float
        Rounding, in the norm of this module.
    missing, extra : float
        Mass that is absent, and mass put into wrong rows.
    """

    first: int
    mass: FloatArray
    lead: int
    length: int
    error: float
    missing: float
    extra: float


def _sum_profile(parts: list[tuple[Profile, int]], log_tail: float) -> Profile:
    masses = [p.mass for p, _ in parts]
    counts = [n for _, n in parts]
    origin = sum(n * p.first for p, n in parts)
    low, high = window(masses, counts, [p.error for p, _ in parts], log_tail)
    whole = sum(n * (m.size - 1) for m, n in zip(masses, counts, strict=True)) + 1
    outside = 0.0
    if fft_length(high - low + 1) >= whole:
        low, high = 0, whole - 1
    else:
        outside = 2.0 * math.exp(log_tail)
    length = fft_length(high - low + 1)
    product: Any = 1.0
    for mass, count in parts_of(masses, counts):
        spectrum = scipy.fft.rfft(_cyclic(mass[:, None], length)[:, 0])
        product = product * _repeated(spectrum, count, np.multiply)
    mass = scipy.fft.irfft(product, length)
    mass = np.maximum(np.roll(mass, -(low % length))[: high - low + 1], 0.0)
    # Transform of each operand: gamma |p|_2 in l2 (frequency by frequency at most the
    # norm of the row masses), times its count since all other factors are at most 1;
    # the products 4 u each and the inverse gamma, of a result that is in l2 at most
    # any operand; sqrt(rows) from l2 to l1.
    norms = [float(np.sqrt(m @ m)) + p.error for m, (p, _) in zip(masses, parts, strict=True)]
    gamma = transform_error(length)
    local = sum(n * gamma * a for a, n in zip(norms, counts, strict=True))
    local += (gamma + 4.0 * UNIT * sum(counts)) * min(norms)
    return Profile(
        origin + low,
        mass,
        origin + low,
        length,
        math.sqrt(length) * local + sum(n * p.error for p, n in parts),
        sum(n * p.missing for p, n in parts) + outside,
        sum(n * p.extra for p, n in parts) + outside,
    )


def parts_of(masses: list[FloatArray], counts: list[int]) -> Any:
    """Pair masses with their counts."""
    return zip(masses, counts, strict=True)


def _max_profile(parts: list[tuple[Profile, int]]) -> Profile:
    def both(a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return parallel(*a, *b)

    state: tuple[Any, int] | None = None
    for p, n in parts:
        own = _repeated((p.mass[:, None], p.first), n, both)
        state = own if state is None else both(state, own)
    assert state is not None
    mass = state[0][:, 0]
    # Two running sums of BLOCK + rows / BLOCK terms, products 3 u, one addition.
    local = (2.0 * (BLOCK + mass.size / BLOCK + 2.0) + 8.0) * UNIT
    steps = sum(n for _, n in parts) - 1
    return Profile(
        state[1],
        mass,
        state[1],
        0,
        steps * local + sum(n * p.error for p, n in parts),
        sum(n * p.missing for p, n in parts),
        sum(n * p.extra for p, n in parts),
    )


def _trimmed(p: Profile, tail: float) -> Profile:
    """Leave out rows at both ends that hold at most `tail` each."""
    start = int(np.searchsorted(np.cumsum(p.mass), tail, side="right"))
    stop = int(np.searchsorted(np.cumsum(p.mass[::-1]), tail, side="right"))
    stop = p.mass.size - stop
    if stop <= start:
        start, stop = 0, p.mass.size
    cut = float(p.mass[:start].sum() + p.mass[stop:].sum())
    if start > 0 or stop < p.mass.size:
        cut += p.error
    return p._replace(
        first=p.first + start, mass=p.mass[start:stop], missing=p.missing + cut
    )


Nodes = Sequence[tuple[str, Sequence[tuple[int, int]]]]


def profile(
    nodes: Nodes,
    leaves: dict[int, Profile],
    log_tails: Sequence[float],
) -> list[Profile]:
    """Row masses and windows of every node of a composition, without columns.

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
        node = _sum_profile(parts, log_tails[number]) if kind == SUM else (
            _max_profile(parts)
        )
        out.append(_trimmed(node, math.exp(log_tails[number])))
    return out


def _cyclic(a: Any, length: int) -> Any:
    """Rows modulo `length`, padded with zeros."""
    if a.shape[0] <= length:
        out = np.zeros((length, a.shape[1]), a.dtype)
        out[: a.shape[0]] = a
        return out
    out = np.zeros((-(-a.shape[0] // length) * length, a.shape[1]), a.dtype)
    out[: a.shape[0]] = a
    return out.reshape(-1, length, a.shape[1]).sum(axis=0)


def compose(
    nodes: Nodes, profiles: Sequence[Profile], leaf: Callable[[int], Spectrum]
) -> Spectrum:
    """Spectrum of the last node, on the rows of its profile.

    Parameters
    ----------
    nodes, profiles
        As for and from `profile`.
    leaf : callable
        Spectrum of a leaf by number, shape (rows, frequencies); may be overwritten.
    """
    uses = [0] * len(nodes)
    for _, operands in nodes:
        for i, _ in operands:
            uses[i] += 1
    held: dict[int, Spectrum] = {}
    result: Any = None
    for number, (kind, operands) in enumerate(nodes):
        if kind == LEAF:
            result = leaf(number)
        else:
            parts = [(held[i], profiles[i].first, n) for i, n in operands]
            for i, _ in operands:
                uses[i] -= 1
                if uses[i] == 0:
                    del held[i]
            own = profiles[number]
            result = _sum(parts, own) if kind == SUM else _max(parts, own)
        held[number] = result
    return result


def _sum(parts: list[tuple[Spectrum, int, int]], own: Profile) -> Spectrum:
    origin = 0
    product: Any = None
    for spectrum, first, count in parts:
        origin += count * first
        if spectrum.shape[0] == 1:
            f = spectrum
        else:
            f = scipy.fft.fft(
                _cyclic(spectrum, own.length), axis=0, overwrite_x=True, workers=1
            )
        f = _repeated(f, count, np.multiply)
        if product is None:
            product = f if count > 1 or f is not spectrum else f.copy()
        elif product.shape[0] < f.shape[0]:
            product = f * product
        else:
            product *= f
    if product.shape[0] > 1:
        product = scipy.fft.ifft(product, axis=0, overwrite_x=True, workers=1)
    elif own.length > 1:
        product = _cyclic(product, own.length)
    rows = (np.arange(own.mass.size) + own.first - origin) % own.length
    return product[rows]


def _max(parts: list[tuple[Spectrum, int, int]], own: Profile) -> Spectrum:
    def both(a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return parallel(*a, *b)

    state: Any = None
    for spectrum, first, count in parts:
        one = _repeated((spectrum, first), count, both)
        state = one if state is None else both(state, one)
    skip = own.first - state[1]
    return state[0][skip : skip + own.mass.size]


def unfold(
    spectrum: Spectrum, columns: int, first: int
) -> tuple[FloatArray, float]:
    """Masses by rows and columns ``first + k``, and a bound of the rounding of tails.

    Returns
    -------
    mass : ndarray, shape (rows, columns)
        Not negative.
    error : float
        At most this is added, by this step, to the error of the mass of any set made
        of one end of every row.
    """
    mass = scipy.fft.irfft(spectrum, columns, axis=1, workers=1)
    # An end of a row has at most `columns` bins: their errors sum to sqrt(columns)
    # times their l2 norm, gamma times that of the row.
    norms = np.sqrt(np.einsum("ij,ij->i", mass, mass))
    error = math.sqrt(columns) * transform_error(columns) * float(norms.sum())
    negative = np.minimum(mass, 0.0)
    error -= float(negative.sum())
    mass -= negative
    return np.roll(mass, -(first % columns), axis=1), error


def tail_error(error: float, columns: int) -> float:
    """Error of the mass of ends of rows from an error in the norm of this module.

    The transform of the indicator of an end of a row is at most 1 / |sin(pi f / M)| <=
    M / (2 f) for frequencies f <= M / 2, and M at f = 0; so the mean over the M
    frequencies is at most 1 + sum over f <= M/2 of 1 / f <= 2 + log(M / 2) + 1/M.
    """
    return error * (2.5 + math.log(max(columns / 2.0, 1.0)))


@nb.njit(cache=True)
def fold(
    mass: FloatArray,
    row_step: float,
    column_step: float,
    start: float,
    length: int,
    rounding: int,
) -> FloatArray:
    """Mass of ``start + row_step i + column_step k`` on points 0 ... length - 1.

    Between two points the mass is shared with the mean kept, or moved to one of them.
    """
    out = np.zeros(length)
    for i in range(mass.shape[0]):
        for k in range(mass.shape[1]):
            x = mass[i, k]
            if x != 0.0:
                at = start + row_step * i + column_step * k
                j = int(math.floor(at))
                f = at - j
                if rounding == DOWN:
                    f = 0.0
                elif rounding == UP and f > 0.0:
                    f = 1.0
                out[j] += (1.0 - f) * x
                if f > 0.0:
                    out[j + 1] += f * x
    return out


@nb.njit(cache=True)
def _bracket(
    low: FloatArray,
    high: FloatArray,
    pad: int,
    upper_shift: Any,
    upper_factor: FloatArray,
    lower_shift: Any,
    layers: FloatArray,
    stride: int,
) -> tuple[FloatArray, FloatArray]:
    points = low.size + 2 * pad
    upper = np.ones(points)
    lower = np.zeros(points)
    last = low.size - 1
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
                value = low[j] if j >= 0 else low[0]
                if j < 0:
                    value = max(value, 0.0)
                for i in range(1, layers.shape[1]):
                    at = k - i * stride
                    u = upper[at] if at >= 0 else 1.0
                    value -= (layers[c, i - 1] - layers[c, i]) * u
                value -= layers[c, layers.shape[1] - 1]
                best = max(best, value / (1.0 - layers[c, 0]))
        lower[k] = best
    return lower, upper


def bracket(
    low: FloatArray,
    high: FloatArray,
    variance: float,
    log_moment: Callable[[FloatArray], FloatArray],
) -> tuple[FloatArray, FloatArray, int]:
    """Bounds of P(E > t) from those of P(E' > t), E' being E with rounding noise.

    Given every leaf, E is the largest of several sums, and the noise of every leaf is
    independent, of mean zero and bounded.

    Parameters
    ----------
    low, high : ndarray, shape (points,)
        Bounds of P(E' > point); below the first point the first value holds for `low`.
    variance : float
        Largest over the sums of the sum of squared ranges of the noise, in steps^2.
    log_moment : callable
        Bound of log E exp(s (E' - E)) given the leaves, for s > 0 (1 / step).

    Returns
    -------
    lower, upper : ndarray, shape (points + 2 * pad,)
        Bounds of P(E > point), ``pad`` points more on either side.
    pad : int
    """
    if variance <= 0.0:
        return low, high, 0
    levels = np.array([0.6, 0.4, 0.2, 0.06, 1e-2, 1e-4, 1e-7, 1e-11])
    spread = math.sqrt(variance)
    # Given the leaves let Z be the noise of the sum that is the largest without noise.
    # Then E' >= E + Z, and by Hoeffding P(Z < -c) <= exp(-2 c^2 / variance) = delta:
    #   P(E' > t - c) >= P(E > t, Z >= -c) >= (1 - delta) P(E > t).
    upper_shift = np.ceil(spread * np.sqrt(-0.5 * np.log(levels))).astype(np.int64)
    # Markov: P(E' > E + c) <= g(c) = min over s of exp(log_moment(s) - s c), so
    #   P(E' > t + c) <= P(E > t) + E[g(t + c - E); E <= t].
    # With points t = e_0 > e_1 > ... at distance `stride`, g_j = g(c + j stride) and
    # S_j = P(E > e_j), the expectation is at most
    #   sum_{j < J} g_j (S_{j+1} - S_j) + g_J (1 - S_J)
    #     <= -g_0 S_0 + sum_{j=1..J} (g_{j-1} - g_j) S_j + g_J,
    # where S_j <= the upper bound; the first term goes to the left-hand side:
    #   P(E > t) (1 - g_0) >= P(E' > t + c) - sum (g_{j-1} - g_j) upper(e_j) - g_J.
    rates = np.geomspace(0.05, 80.0, 48) / spread
    logs = log_moment(rates)
    lower_shift = np.ceil(
        [np.min((logs - math.log(d)) / rates) for d in levels]
    ).astype(np.int64)
    lower_shift = np.maximum(lower_shift, 0)
    stride = max(1, int(spread / 4.0))
    distance = lower_shift[:, None] + stride * np.arange(33)
    layers = np.exp(np.minimum.reduce(
        [log - rate * distance for log, rate in zip(logs, rates, strict=True)]
    ))
    pad = int(max(upper_shift.max(), lower_shift.max()))
    # shifts for which g(0 steps away) is not below one say nothing
    useful = layers[:, 0] < 0.9
    lower, upper = _bracket(
        low, high, pad, upper_shift, 1.0 / (1.0 - levels),
        lower_shift[useful], layers[useful], stride,
    )  # fmt: skip
    return lower, upper, pad
