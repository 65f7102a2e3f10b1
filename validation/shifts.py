"""Quantile functions of two contexts compared everywhere at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.validation.blocks import Blocked
from probcalc.validation.quantiles import simultaneous_band

__all__ = ["QuantileShift", "quantile_shift"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class QuantileShift:
    """Q_b(p) - Q_a(p) with a band that holds at all levels together.

    Attributes
    ----------
    p, value, lower, upper : FloatArray, shape (levels,)
        Infinite where the runs do not bound a side.
    level : float
    """

    p: FloatArray
    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    level: float

    @property
    def largest(self) -> float:
        """Largest shift at the levels asked for, its upper bound; may be infinite."""
        return float(np.maximum(np.abs(self.lower), np.abs(self.upper)).max())


def quantile_shift(
    a: Blocked,
    b: Blocked,
    *,
    levels: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> QuantileShift:
    """Shift function of Doksum (1974), from simultaneous bands of both laws.

    Parameters
    ----------
    levels : array_like, optional
        In (0, 1); 0.05 to 0.95 in steps of 0.05 without.
    """
    p = np.linspace(0.05, 0.95, 19) if levels is None else np.asarray(levels, float)
    if p.ndim != 1 or not p.size or not ((p > 0.0) & (p < 1.0)).all():
        raise InputError(f"levels are {levels!r:.60}, expected numbers in (0, 1)")
    each = 1.0 - 0.5 * (1.0 - level)
    bands = [simultaneous_band(x, level=each) for x in (a, b)]
    ends = [np.array([band.quantile(float(x)) for x in p]) for band in bands]
    at = [
        band.values[np.ceil(p * band.values.size - 1e-9).astype(int) - 1]
        for band in bands
    ]
    with np.errstate(invalid="ignore"):
        lower, upper = ends[1][:, 0] - ends[0][:, 1], ends[1][:, 1] - ends[0][:, 0]
    return QuantileShift(
        p, at[1] - at[0], _open(lower, -math.inf), _open(upper, math.inf), level
    )


def _open(x: FloatArray, side: float) -> FloatArray:
    return np.where(np.isnan(x), side, x)
