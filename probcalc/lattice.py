"""Laws on a regular grid: integer offset, step, mass, accounted lost mass.

The working form of composition. Grid points are integers times the step, so that no
floating-point grid drifts; mass that does not fit is accounted, never dropped; the
rounding direction is stated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from probcalc.distribution import FloatArray, generator
from probcalc.errors import InputError
from probcalc.readonly import reduced

__all__ = ["Lattice", "LatticeBounds", "Rounding"]

Rounding = Literal["exact", "down", "up", "nearest", "mean"]

# How far the masses of a given lattice may sum from one before it is refused.
MASS_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """Law on the points ``(offset + k) * step``, k = 0 ... len(mass) - 1.

    Parameters
    ----------
    offset : int
        Index of the first point.
    step : float
        Distance of neighbours, in the unit of the quantity; positive.
    mass : array_like, shape (points,)
        Probability of each point.
    lost_below, lost_above : float
        Probability of values below the first and above the last point; it counts as
        mass at minus and plus infinity.
    rounding : {"exact", "down", "up", "nearest", "mean"}
        How the values came onto the grid: not at all, each to its left or right
        neighbour (first-order bounds), to the nearest, or split between neighbours
        with the mean kept (an upper bound in the increasing convex order).

    Raises
    ------
    InputError
        Step not positive, masses negative or not finite, all zero, or (with the lost
        mass) not summing to one within 1e-9.

    Examples
    --------
    >>> die = Lattice(1, 1.0, [1 / 6] * 6)
    >>> die.icdf(0.5)
    3.0
    """

    offset: int
    step: float
    mass: FloatArray
    lost_below: float = 0.0
    lost_above: float = 0.0
    rounding: Rounding = "exact"
    below: FloatArray = field(init=False, repr=False)
    above: FloatArray = field(init=False, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            offset: int,
            step: float,
            mass: npt.ArrayLike,
            lost_below: float = 0.0,
            lost_above: float = 0.0,
            rounding: Rounding = "exact",
        ) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.step) and self.step > 0.0):
            raise InputError(
                f"lattice law: step must be positive and finite, got {self.step!r}"
            )
        if not np.isfinite(self.offset) or int(self.offset) != self.offset:
            raise InputError(
                f"lattice law: offset must be an integer, got {self.offset!r}"
            )
        if self.rounding not in get_args(Rounding):
            raise InputError(
                f"lattice law: rounding must be one of {get_args(Rounding)}, "
                f"got {self.rounding!r}"
            )
        mass = np.array(self.mass, dtype=np.float64)
        if mass.ndim != 1 or mass.size == 0:
            raise InputError(
                f"lattice law: mass must be a non-empty vector, got shape {mass.shape}"
            )
        wrong = ~np.isfinite(mass) | (mass < 0.0)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise InputError(
                f"lattice law: mass {index} is {mass[index]!r}, "
                "expected a finite number >= 0"
            )
        lost = self.lost_below, self.lost_above
        if not all(np.isfinite(lost)) or min(lost) < 0.0:
            raise InputError(f"lattice law: lost masses must be >= 0, got {lost}")
        total = float(mass.sum()) + sum(lost)
        if total == 0.0:
            raise InputError("lattice law: all mass is zero, expected a total of one")
        if abs(total - 1.0) > MASS_TOLERANCE:
            raise InputError(
                f"lattice law: masses sum to {total!r}, expected one "
                "(give lost_below or lost_above what lies outside)"
            )
        below = self.lost_below + np.cumsum(mass)
        above = self.lost_above + np.append(np.cumsum(mass[:0:-1])[::-1], 0.0)
        for name, array in (("mass", mass), ("below", below), ("above", above)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "offset", int(self.offset))

    def __repr__(self) -> str:
        return (
            f"<Lattice: {self.mass.size} points from {self.offset * self.step:.6g} "
            f"by {self.step:.6g}, {self.rounding}, "
            f"lost {self.lost_below:.3g} below and {self.lost_above:.3g} above>"
        )

    @property
    def points(self) -> FloatArray:
        """Values of the grid points."""
        return (self.offset + np.arange(self.mass.size, dtype=np.float64)) * self.step

    def support(self) -> tuple[float, float]:
        """Return the smallest and the largest possible value."""
        held = np.flatnonzero(self.mass)
        if held.size == 0:
            return (-np.inf, np.inf)
        low = (self.offset + int(held[0])) * self.step
        high = (self.offset + int(held[-1])) * self.step
        return (
            -np.inf if self.lost_below > 0.0 else low,
            np.inf if self.lost_above > 0.0 else high,
        )

    def _index(self, x: npt.ArrayLike) -> npt.NDArray[np.intp]:
        # Points are products offset*step rounded once; compare with them as they are.
        return np.searchsorted(self.points, np.asarray(x, dtype=float), side="right")

    def cdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X <= x)."""
        return np.append(self.lost_below, self.below)[self._index(x)][()]

    def ccdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X > x)."""
        whole = self.above[0] + self.mass[0]
        return np.append(whole, self.above)[self._index(x)][()]

    def icdf(self, p: npt.ArrayLike, /) -> Any:
        """Return the smallest point with P(X <= x) >= p; infinite in lost mass."""
        level = np.asarray(p, dtype=float)
        index = np.searchsorted(self.below, level, side="left")
        values = np.append(self.points, np.inf)[index]
        if self.lost_below > 0.0:
            values = np.where(level <= self.lost_below, -np.inf, values)
        if self.lost_above == 0.0:
            # Rounding of the running sum must not turn the last point into infinity.
            values = np.where(values == np.inf, self.points[-1], values)
        values = np.asarray(values)
        return values.item() if values.ndim == 0 else values

    def iccdf(self, p: npt.ArrayLike, /) -> Any:
        """Return the smallest point with P(X > x) <= p; infinite in lost mass."""
        level = np.asarray(p, dtype=float)
        index = np.searchsorted(-self.above, -level, side="left")
        values = np.append(self.points, np.inf)[index]
        if self.lost_below > 0.0:
            values = np.where(level >= 1.0 - self.lost_below, -np.inf, values)
        values = np.asarray(values)
        return values.item() if values.ndim == 0 else values

    def mean(self) -> float:
        """E X; infinite or undefined (NaN) where mass was lost."""
        if self.lost_above > 0.0 or self.lost_below > 0.0:
            both = self.lost_above > 0.0 and self.lost_below > 0.0
            return (
                float("nan") if both else (np.inf if self.lost_above > 0.0 else -np.inf)
            )
        k = np.arange(self.mass.size)
        return self.step * (self.offset + float(self.mass @ k) / float(self.mass.sum()))

    def variance(self) -> float:
        """Var X; infinite where mass was lost."""
        if self.lost_above > 0.0 or self.lost_below > 0.0:
            return np.inf
        total = float(self.mass.sum())
        k = np.arange(self.mass.size)
        deviation = k - float(self.mass @ k) / total
        return self.step**2 * float(self.mass @ (deviation * deviation)) / total

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Draw independent points; lost mass is drawn as an infinity."""
        u = generator(rng).random(shape)
        return np.asarray(self.icdf(np.where(u == 0.0, 5e-324, u)))[()]


@dataclass(frozen=True, slots=True, eq=False)
class LatticeBounds:
    """Two lattices of one step between which a law lies, in first order.

    ``lower <= X <= upper``: P(lower > t) <= P(X > t) <= P(upper > t) for every t.
    """

    lower: Lattice
    upper: Lattice
