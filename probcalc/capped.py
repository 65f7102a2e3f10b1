"""Sums of non-negative laws with everything above a cap gathered there.

For heavy tails: the sum of n capped laws reaches n caps, but what lies above one cap
need not be told apart. Summands are combined two at a time and cut at the cap after
each step, in the first order (a cap is concave, the convex order would not survive).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probcalc.discretise import Measure
from probcalc.distribution import FloatArray
from probcalc.evaluate import Side, Total

__all__ = ["capped_sum"]


def capped_sum(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    first: int,
    last: int,
    factor: float,
    side: Side,
) -> Total:
    """Bound of a sum on points 0 ... last (from `first`), the rest gathered on `last`.

    Parameters
    ----------
    masses, counts
        Summands, each from its own first point.
    first, last : int
        First point of the sum; the point, counted from it, at which it is cut.
    factor : float
        Mass of summands that are single points.
    side : {"lower", "upper"}
    """
    total: FloatArray | None = None
    for mass, count in zip(masses, counts, strict=True):
        own = _power(_cut(mass, last), count, last, side)
        total = own if total is None else _convolved(total, own, last, side)
    assert total is not None
    cut = float(total[last]) if total.size > last else 0.0
    return Total(Measure(first, factor * total), cut=cut if side == "upper" else 0.0)


def _cut(mass: FloatArray, last: int) -> FloatArray:
    if mass.size <= last + 1:
        return mass
    out = mass[: last + 1].copy()
    out[last] += float(mass[last + 1 :].sum())
    return out


def _power(mass: FloatArray, count: int, last: int, side: Side) -> FloatArray:
    result: FloatArray | None = None
    while True:
        if count & 1:
            result = mass if result is None else _convolved(result, mass, last, side)
        count >>= 1
        if count == 0:
            assert result is not None
            return result
        mass = _convolved(mass, mass, last, side)


def _convolved(p: FloatArray, q: FloatArray, last: int, side: Side) -> FloatArray:
    from probcalc.kernels import convolution as kernel

    if p.size * q.size <= kernel.DIRECT:
        return _cut(kernel.convolve(p, q), last)
    mass, error = kernel.convolve_spiked(p, q)
    mass = _cut(mass, last)
    survival, total = kernel.tilted_survival(
        mass, 0, 0.0, 0.0, error, error, 0.0, side == "upper"
    )
    return np.maximum(-np.diff(np.append(total, survival)), 0.0)
