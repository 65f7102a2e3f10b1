"""One line of integration: a tilt, its Bromwich terms, and the tail near a point.

`probcalc.inversion` makes lines with certified bounds, `probcalc.spectral` lines whose
terms come from quadrature. The identity is in `probcalc.kernels.inversion`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAST_TILT", "UNIT", "Line", "newton"]

#: Smallest tilt, in units of 1/sd: keeps the pole of 1/(t + iw) away from the line.
LEAST_TILT = 0.6
UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A tilt with its terms: evaluates tail and density near the point planned for."""

    t: float
    log_mgf: float
    relative: float
    delta: float
    above: tuple[float, ...]
    below: tuple[float, ...]
    cut: tuple[float, ...]
    terms: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

    @staticmethod
    def _copy(bound: tuple[float, ...], y: float) -> float:
        log = bound[0] - bound[1] * y
        return math.exp(log) if log < 700.0 else math.inf

    def copies(self, y: float) -> float:
        """Bound of what the copies of the period add to the tail at `y`."""
        return self._copy(self.above, y) + self._copy(self.below, y)

    def at(self, y: float) -> tuple[float, float, float, float, float]:
        """Tail, its lower and upper bound, density and its error without copies.

        The tail is P(S > y) for a positive tilt and P(S <= y) for a negative one.
        """
        from probcalc.kernels.bromwich import evaluate

        tail, density, tail_off, density_off = evaluate(
            *self.terms, self.t, self.delta, y
        )
        exponent = self.log_mgf - self.t * y
        if not exponent < 700.0:
            return math.nan, 0.0, 1.0, math.nan, math.inf
        factor = math.exp(exponent)
        # T = factor * series - [copies ahead] - [r/(1-r) - copies behind]
        gap = abs(self.t) * 2.0 * math.pi / self.delta
        behind = math.exp(-gap) / -math.expm1(-gap)
        value = factor * tail - behind
        # rounding of the factor's exponent, of r, and of the series; terms left out
        relative = self.relative + UNIT * (4.0 * abs(self.t * y) + 4.0)
        off = factor * (tail_off + math.exp(self.cut[0]) + 1.01 * relative * abs(tail))
        off += UNIT * ((4.0 + 4.0 * gap) * behind + 4.0 * abs(value))
        ahead, back = self._copy(self.above, y), self._copy(self.below, y)
        low = max(value - off - ahead, 0.0)
        high = min(value + off + back, 1.0)
        edge = factor * (density_off + 1.01 * relative * abs(density))
        edge += factor * math.exp(self.cut[1]) if self.cut[1] < 700.0 else math.inf
        return value, low, high, factor * density, edge


def newton(line: Line, y: float, goal: float, sign: float) -> tuple[float, float]:
    """Point where the tail of `line` is `goal`, and the step that should bracket it.

    Newton's method on log T, nearly linear in y: log T' = -sign f / T.
    """
    low = high = goal
    density = math.inf
    for _ in range(40):
        tail, low, high, density, _ = line.at(y)
        if not (tail > 0.0 and density > 0.0):
            break
        move = sign * tail / density * math.log(tail / goal)
        y += move
        if (
            abs(move) <= 4.0 * UNIT * abs(y)
            or abs(move) < 1e-3 * (high - low) / density
        ):
            break
    slack = 1.1 * (high - low) / density if density > 0.0 else 0.0
    return y, max(slack, 4.0 * UNIT * abs(y))
