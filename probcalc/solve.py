"""Answers from a lattice pair: quantile brackets, survival bounds, shortfalls."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from probcalc.discretise import UNIT, Pair
from probcalc.distribution import FloatArray

__all__ = ["LatticeSurvival"]


@dataclass(frozen=True, slots=True, eq=False)
class LatticeSurvival:
    """Certified survival bounds that a lattice pair gives.

    Parameters
    ----------
    pair : Pair
    exact_caps : bool
        Whether caps above a value change no event below it (non-negative parts).
    copies : float
        Number of summands behind the pair: guides the secant length only.
    exact_points : bool
        Whether the lattice points are the values themselves, not rounded ones.
    """

    pair: Pair
    exact_caps: bool
    copies: float
    exact_points: bool = False
    lower: FloatArray = field(init=False, repr=False)
    upper: FloatArray = field(init=False, repr=False)
    lower_loss: FloatArray = field(init=False, repr=False)
    upper_loss: FloatArray = field(init=False, repr=False)
    totals: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from probcalc.kernels.survival import stop_loss, suffix_sums

        pair = self.pair
        lower, upper = suffix_sums(pair.lower.mass), suffix_sums(pair.upper.mass)
        convex = pair.order == "convex"
        empty = np.zeros(0)
        for name, value in (
            ("lower", lower),
            ("upper", upper),
            ("lower_loss", stop_loss(lower) if convex else empty),
            ("upper_loss", stop_loss(upper) if convex else empty),
            (
                "totals",
                (
                    float(lower[0] + pair.lower.mass[0]),
                    float(upper[0] + pair.upper.mass[0]),
                ),
            ),
        ):
            object.__setattr__(self, name, value)

    @property
    def slack(self) -> float:
        """Relative rounding error of survival values and stop-loss transforms."""
        # Sums over points are compensated: a few units in the last place.
        return self.pair.rounding + 32.0 * UNIT

    @property
    def _width(self) -> float:
        # The best secant is about half the square root of the number of summands.
        return max(0.5 * math.sqrt(self.copies), 0.5)

    def crossing(self, sf: float) -> tuple[float, float]:
        """Bracket of the smallest x with P(X > x) <= sf; infinite where open."""
        pair = self.pair
        cross = (
            self._convex_crossing if pair.order == "convex" else self._first_crossing
        )
        low, high = cross(sf, pair.tail)
        if not (self.exact_caps and high < pair.exact_below) and pair.cut > 0.0:
            low, high = cross(sf, pair.tail + pair.cut)
        if self.exact_points:
            return low, high
        # Points are integers times the step: one rounding each.
        low = low - 4.0 * UNIT * abs(low) if math.isfinite(low) else low
        high = high + 4.0 * UNIT * abs(high) if math.isfinite(high) else high
        return low, high

    def _first_crossing(self, sf: float, tail: float) -> tuple[float, float]:
        pair = self.pair
        # P(L > k) > sf: the quantile is above k, at k + 1 at the least, since L <= X
        # and L has no values between.
        sure = self.lower * (1.0 - self.slack) > sf
        if sure.any():
            low = (pair.lower.first + int(np.flatnonzero(sure)[-1]) + 1) * pair.step
        elif self.totals[0] * (1.0 - self.slack) > sf:
            low = pair.lower.first * pair.step
        else:
            low = -math.inf
        enough = self.upper * (1.0 + self.slack) + tail <= sf
        high = math.inf
        if enough.any():
            high = (pair.upper.first + int(np.argmax(enough))) * pair.step
        return low, high

    def _convex_crossing(self, sf: float, tail: float) -> tuple[float, float]:
        from probcalc.kernels.survival import convex_quantile

        pair = self.pair
        low, high = convex_quantile(
            self.lower_loss,
            pair.lower.first,
            self.totals[0],
            self.upper_loss,
            pair.upper.first,
            self.totals[1],
            sf,
            tail,
            self._width,
            self.slack,
            0.0,
        )
        return low * pair.step, high * pair.step

    def bounds(
        self, t: FloatArray, ratio: float = 1.12
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of P(X > t), elementwise."""
        pair = self.pair
        beyond = np.full(t.shape, pair.tail + pair.cut)
        if self.exact_caps:
            beyond[t < pair.exact_below] = pair.tail
        position = t / pair.step
        if pair.order == "convex":
            from probcalc.kernels.survival import convex_bounds

            low, high = convex_bounds(
                self.lower_loss,
                pair.lower.first,
                self.totals[0],
                self.upper_loss,
                pair.upper.first,
                self.totals[1],
                np.ascontiguousarray(position, dtype=float),
                self._width,
                ratio,
                self.slack,
                0.0,
            )
            return np.maximum(low, 0.0), np.minimum(high + beyond, 1.0)
        # A point within rounding of t counts on the side that widens the bound; on a
        # grid whose points are doubles there is no such doubt.
        fuzz = 0.0 if self.exact_points else 4.0 * UNIT * np.abs(position)
        low = _at(self.lower, self.totals[0], pair.lower.first, position + fuzz)
        high = _at(self.upper, self.totals[1], pair.upper.first, position - fuzz)
        return (
            np.maximum(low * (1.0 - self.slack), 0.0),
            np.minimum(high * (1.0 + self.slack) + beyond, 1.0),
        )

    def value(self, t: float) -> float:
        """P(X > t) of a first-order pair, a point within rounding of t taken for t."""
        position = np.array([t / self.pair.step])
        nearest = np.rint(position)
        close = np.abs(position - nearest) <= 8.0 * UNIT * np.abs(nearest)
        position = np.where(close, nearest, position)
        low = _at(self.lower, self.totals[0], self.pair.lower.first, position)
        high = _at(self.upper, self.totals[1], self.pair.upper.first, position)
        return 0.5 * float(low[0] + min(high[0], 1.0))

    def shortfall(self, sf: float) -> tuple[float, float]:
        """Bracket of the mean of the worst `sf` share."""
        from probcalc.kernels.survival import stop_loss, tail_mean

        pair = self.pair
        low_loss = self.lower_loss if self.lower_loss.size else stop_loss(self.lower)
        high_loss = self.upper_loss if self.upper_loss.size else stop_loss(self.upper)
        low = tail_mean(low_loss * (1.0 - self.slack), pair.lower.first, 0.0, sf)
        excess = pair.excess / pair.step
        high = tail_mean(high_loss * (1.0 + self.slack), pair.upper.first, excess, sf)
        return low * pair.step, high * pair.step

    def means(self) -> tuple[float, float]:
        """Bounds of E X, for a quantity whose lower mass loses nothing below."""
        pair = self.pair
        ends: list[float] = []
        for measure, sign in ((pair.lower, -1.0), (pair.upper, 1.0)):
            k = np.arange(measure.mass.size)
            relative = float(measure.mass @ k)
            mean = (measure.first + relative) * pair.step
            size = (abs(measure.first) + relative) * pair.step
            ends.append(mean + sign * size * self.slack)
        return ends[0], ends[1] + pair.excess


def _at(
    survival: FloatArray, total: float, first: int, position: FloatArray
) -> FloatArray:
    index = np.floor(position - first)
    inside = np.clip(index, 0, survival.size - 1).astype(np.intp)
    values = survival[inside]
    values = np.where(index < 0, total, values)
    return np.where(index >= survival.size, 0.0, values)
