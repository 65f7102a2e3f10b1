"""Means and covariances along a graph by Clark's maximum, with the whole live frontier.

Clark (1961): the maximum of two normals has known mean, variance and covariance with
any third. Every maximum is then taken for normal again, which is the approximation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["Spread", "frontier_moments"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SlotArray = npt.NDArray[np.int32]


class Spread(NamedTuple):
    """Mean and variance of a makespan, and its covariance with a sum along the way."""

    mean: float
    variance: float
    covariance: float


@nb.njit(cache=True)
def _frontier(
    vertex: IntArray,
    reads: SlotArray,
    writes: SlotArray,
    slots: int,
    last: int,
    mean: FloatArray,
    variance: FloatArray,
    cross: FloatArray,
) -> tuple[float, float, float]:
    steps, lanes = vertex.shape
    m = np.zeros(slots + 2)
    # Covariances of all live finishes; the last row is that with the sum.
    c = np.zeros((slots + 3, slots + 2))
    total = slots + 2
    row = np.zeros(slots + 3)
    for t in range(steps):
        for w in range(lanes):
            v = vertex[t, w]
            if v < 0:
                continue
            a, b, s = reads[t, w, 0], reads[t, w, 1], writes[t, w]
            if b == slots:
                weight, level, spread = 1.0, m[a], c[a, a]
            elif a == slots:
                weight, level, spread = 0.0, m[b], c[b, b]
            else:
                gap = m[a] - m[b]
                square = c[a, a] + c[b, b] - 2.0 * c[a, b]
                if square <= 1e-14 * (c[a, a] + c[b, b]) or square <= 0.0:
                    weight = 1.0 if gap >= 0.0 else 0.0
                    level = max(m[a], m[b])
                    spread = c[a, a] if gap >= 0.0 else c[b, b]
                else:
                    root = math.sqrt(square)
                    z = gap / root
                    weight = 0.5 * math.erfc(-z / math.sqrt(2.0))
                    other = 0.5 * math.erfc(z / math.sqrt(2.0))
                    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
                    # Moments about m[b], where nothing large cancels.
                    first = gap * weight + root * density
                    second = (
                        c[a, a] * weight
                        + c[b, b] * other
                        + gap * gap * weight
                        + gap * root * density
                    )
                    level = m[b] + first
                    spread = max(second - first * first, 0.0)
            for k in range(slots + 2):
                row[k] = weight * c[a, k] + (1.0 - weight) * c[b, k]
            joint = weight * c[total, a] + (1.0 - weight) * c[total, b]
            m[s] = level + mean[v]
            for k in range(slots + 2):
                c[s, k] = row[k]
                c[k, s] = row[k]
            c[s, s] = spread + variance[v]
            c[total, s] = joint + cross[v]
    return m[last], c[last, last], c[total, last]


def frontier_moments(
    vertex: IntArray,
    reads: SlotArray,
    writes: SlotArray,
    slots: int,
    last: int,
    mean: FloatArray,
    variance: FloatArray,
    cross: FloatArray,
) -> Spread:
    """Moments of the longest path of a graph laid out by `probcalc.kernels.lanes`.

    Parameters
    ----------
    vertex, reads, writes, slots, last
        As in `Lanes`.
    mean, variance : ndarray, shape (vertices,)
        Of independent durations.
    cross : ndarray, shape (vertices,)
        Covariance of each duration with its own summand of a sum over all vertices.
    """
    return Spread(*_frontier(vertex, reads, writes, slots, last, mean, variance, cross))
