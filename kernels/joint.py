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

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
import scipy.fft

from probcalc.kernels.convolution import fft_length, log_mgf
from probcalc.kernels.joint_spectra import UNIT, cyclic, line_spectrum, transform_error

__all__ = ["LEAF", "MAX", "SUM", "Profile", "compose", "parallel", "profile", "window"]

FloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[Any]
Spectrum = npt.NDArray[Any]
Function = Callable[[FloatArray], FloatArray]

LEAF, SUM, MAX = "leaf", "sum", "max"
# Rows between two restarts of the running sums of `parallel`.
BLOCK = 32


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
        a = scipy.fft.fft(cyclic(a, own.length), axis=0, overwrite_x=True, workers=1)
    f = _repeated(a, count, np.multiply)
    first = count * part.first
    if state is None:
        return f, first
    return state[0] * f, state[1] + first


def _sum_end(state: Any, own: Profile) -> Spectrum:
    product, origin = state
    if product.shape[0] == 1:  # one row each: only the second coordinate varies
        product = cyclic(product, own.length)
    else:
        product = scipy.fft.ifft(product, axis=0, overwrite_x=True, workers=1)
    return product[(np.arange(own.mass.size) + own.first - origin) % own.length]
