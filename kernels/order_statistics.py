"""Maxima and minima of independent laws on one lattice.

Masses start at the same point and have the same length; missing mass counts as lying
below all points (so a lower bound may lose mass and stays one).
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from probcalc.kernels.summation import add

__all__ = ["maximum_mass", "maximum_power", "minimum_mass"]

FloatArray = npt.NDArray[np.float64]


@nb.njit(cache=True)
def _maximum(p: FloatArray, q: FloatArray) -> FloatArray:
    # P(max = k) = p_k Q(k) + P(k-1) q_k: all terms positive. Differencing the product
    # of distribution functions would cancel in the tail. Q(k) = 1 - (mass above k).
    out = np.empty(p.size)
    above_p = rest_p = 0.0
    above_q = rest_q = 0.0
    for k in range(p.size - 1, -1, -1):
        at_most_q = max(1.0 - (above_q + rest_q), 0.0)
        above_p, rest_p = add(above_p, rest_p, p[k])
        below_p = max(1.0 - (above_p + rest_p), 0.0)
        out[k] = p[k] * at_most_q + below_p * q[k]
        above_q, rest_q = add(above_q, rest_q, q[k])
    return out


def maximum_mass(p: FloatArray, q: FloatArray) -> FloatArray:
    """Mass of the larger of two independent values."""
    return _maximum(p, q)


def maximum_power(p: FloatArray, n: int) -> FloatArray:
    """Mass of the largest of n independent copies, by binary powers."""
    result: FloatArray | None = None
    while True:
        if n & 1:
            result = p if result is None else _maximum(result, p)
        n >>= 1
        if n == 0:
            assert result is not None
            return result
        p = _maximum(p, p)


@nb.njit(cache=True)
def minimum_mass(p: FloatArray, q: FloatArray) -> FloatArray:
    """Mass of the smaller of two independent values: p_k P(Y >= k) + P(X > k) q_k."""
    out = np.empty(p.size)
    above_p = rest_p = 0.0
    above_q = rest_q = 0.0
    for k in range(p.size - 1, -1, -1):
        above = min(above_p + rest_p, 1.0)
        above_q, rest_q = add(above_q, rest_q, q[k])
        out[k] = p[k] * min(above_q + rest_q, 1.0) + above * q[k]
        above_p, rest_p = add(above_p, rest_p, p[k])
    return out
