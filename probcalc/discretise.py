"""From a law to a pair of lattice masses between which it lies.

`leaf_pair` gives a lower and an upper mass on the points ``k * step``. In the
``convex`` order the pair brackets stop-loss transforms, lower <=icx X <=icx upper; in
the ``first`` order it brackets survival functions, lower <= X <= upper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from probcalc.distribution import (
    Constant,
    Distribution,
    Empirical,
    FloatArray,
    Frozen,
)
from probcalc.errors import ToleranceError
from probcalc.families import Family, family_of
from probcalc.lattice import Lattice

__all__ = ["Demand", "Measure", "Order", "Pair", "atoms_of", "leaf_pair"]

Order = Literal["convex", "first"]

#: Relative accuracy that we take SciPy's special functions to have.
FUNCTION_ACCURACY = 1e-12
#: Subdivisions of a half cell for laws known by their distribution function only.
SUBDIVISIONS = 8
#: Points at which such a law is asked at once.
PIECE = 1 << 16
UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """Mass on lattice points ``first + k``; missing mass lies below all of them."""

    first: int
    mass: FloatArray

    @property
    def last(self) -> int:
        """Index of the last point."""
        return self.first + self.mass.size - 1


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Lower and upper mass of one quantity, with what they leave out.

    Parameters
    ----------
    step : float
        Distance of points in the unit of the quantity.
    lower, upper : Measure
    tail : float
        Bound of the probability that the quantity exceeds its bounded version.
    excess : float
        Bound of the mean by which it does (infinite where unknown).
    cut, exact_below : float
        The same probability for caps asked by the caller: in a non-negative expression
        they change no event {X > t} for t < exact_below.
    rounding : float
        Relative rounding error of survival functions.
    order : "convex" or "first"
    """

    step: float
    lower: Measure
    upper: Measure
    tail: float
    excess: float
    cut: float
    exact_below: float
    rounding: float
    order: Order


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a lattice evaluation.

    Parameters
    ----------
    step : float
        Distance of points.
    order : "convex" or "first"
    cap : float
        Values above need not be told apart (non-negative expressions only).
    tail : float
        Probability that a leaf may leave out on each side.
    points : int
        Largest number of points of any mass.
    level : float
        Smaller of sf and 1 - sf that is asked.
    tail_only : bool
        Whether only the part's own tail at the level matters (false inside a sum, where
        its bulk meets the others' tails).
    """

    step: float
    order: Order
    cap: float
    tail: float
    points: int
    level: float
    tail_only: bool = True

    def scaled(self, factor: float) -> Demand:
        """The demand on a part that is multiplied by `factor` afterwards."""
        return replace(self, step=self.step / factor, cap=self.cap / factor)

    @property
    def key(self) -> tuple[float, bool]:
        """What tells two demands of one evaluation apart."""
        return self.step, self.tail_only


def atoms_of(law: Distribution, tail: float) -> tuple[FloatArray, FloatArray] | None:
    """Values and masses of a law that has only atoms, else None.

    Mass of an infinite range beyond `tail` on a side is left out of the masses.
    """
    match law:
        case Constant():
            return np.array([law.value]), np.array([1.0])
        case Empirical():
            return law.atoms, law.mass
        case Lattice():
            held = np.flatnonzero(law.mass)
            return law.points[held], law.mass[held]
        case Frozen() if law.discrete:
            return _integer_atoms(law.frozen, tail)
        case _:
            low, high = (float(end) for end in law.support())
            return (np.array([low]), np.array([1.0])) if low == high else None


def _integer_atoms(frozen: Any, tail: float) -> tuple[FloatArray, FloatArray]:
    if hasattr(frozen.dist, "xk"):  # made of listed values, on integers or not
        held = frozen.dist.pk > 0.0
        values = frozen.dist.xk[held] + frozen.kwds.get("loc", 0.0)
        return np.asarray(values, dtype=float), np.asarray(frozen.dist.pk[held])
    low, high = frozen.support()
    # SciPy's `isf` of a discrete law goes through 1 - tail; its `sf` does not.
    if math.isinf(high):
        high = _first_below(frozen.sf, frozen.median(), tail, 1.0)
    if math.isinf(low):
        low = _first_below(frozen.cdf, frozen.median(), tail, -1.0)
    if high - low > 5e7:
        raise ToleranceError(
            f"{frozen.dist.name} law: {high - low:.3g} points, more than can be held"
        )
    values = np.arange(low, high + 1.0)
    mass = frozen.pmf(values)
    held = mass > 0.0
    return values[held], mass[held]


def _first_below(
    tail_of: Callable[[float], Any], start: float, tail: float, side: float
) -> float:
    """A whole number, stepped out from `start` to a side, past which at most `tail`."""
    distance = 1.0
    while float(tail_of(start + side * distance)) > tail and distance < 1e8:
        distance *= 2.0
    return float(start + side * distance)


def leaf_pair(law: Distribution, demand: Demand, shift: float = 0.0) -> Pair:
    """Lower and upper lattice mass of a law, moved by `shift`.

    Raises
    ------
    ToleranceError
        More points needed than ``demand.points``.
    """
    provider = getattr(law, "lattice_bounds", None)
    if provider is not None:
        return _provided(provider, demand, shift)
    atoms = atoms_of(law, demand.tail * 1e-3)
    if atoms is not None:
        return _atoms_pair(law, *atoms, demand, shift)
    return _continuous_pair(law, demand, shift)


def _provided(provider: Any, demand: Demand, shift: float) -> Pair:
    # A law with bounds of its own (a joint law weighted to energy): first order. A
    # shift is rounded outwards by at most a step.
    bounds = provider(demand.step, low=-math.inf, high=demand.cap)
    down = math.floor(shift / demand.step)
    up = math.ceil(shift / demand.step)
    lower = Measure(bounds.lower.offset + down, bounds.lower.mass)
    upper_mass = bounds.upper.mass.copy()
    upper_mass[0] += bounds.upper.lost_below
    upper = Measure(bounds.upper.offset + up, upper_mass)
    top = upper.last * demand.step
    if bounds.upper.lost_above > 0.0 and top >= demand.cap:
        upper_mass[-1] += bounds.upper.lost_above  # capped, not left out
    if bounds.lower.lost_above > 0.0:
        lower_mass = bounds.lower.mass.copy()
        lower_mass[-1] += bounds.lower.lost_above
        lower = Measure(lower.first, lower_mass)
    lost = bounds.upper.lost_above
    excess = math.inf if lost > 0.0 else 0.0
    # What the provider leaves out above the cap it was asked for is such a cut.
    capped = lost > 0.0 and top >= demand.cap
    return Pair(
        demand.step, lower, upper, 0.0 if capped else lost, excess,
        lost if capped else 0.0, demand.cap if capped else math.inf,
        FUNCTION_ACCURACY, "first",
    )  # fmt: skip


def _atoms_pair(
    law: Distribution,
    values: FloatArray,
    mass: FloatArray,
    demand: Demand,
    shift: float,
) -> Pair:
    from probcalc.kernels import quantise

    lost_above, lost_below = _lost(law, values, mass)
    step = demand.step
    # Values above the cap are moved down to it; events below the cap do not change.
    capped = np.minimum(values + shift, demand.cap)
    over = np.maximum(values + shift - demand.cap, 0.0)
    excess = float(over @ mass)
    cut = float(mass[over > 0.0].sum())
    # Decimal fractions such as 0.3 / 0.1 come out a rounding error off their point.
    # Positions within that error of a point are put on it, at most 4 units in the
    # last place away; the `rounding` of the answer's bracket covers it.
    position = capped / step
    nearest = np.rint(position)
    close = np.abs(position - nearest) <= 4.0 * UNIT * np.maximum(np.abs(nearest), 1.0)
    position = np.where(close, nearest, position)
    first = math.floor(position.min())
    cells = math.floor(position.max()) - first + 1
    _check_points(cells + 1, demand)
    if close.all():
        # Every atom is a point: one exact mass.
        index = (nearest - first).astype(np.intp)
        exact = np.bincount(index, weights=mass, minlength=cells).astype(np.float64)
        down = up = exact
    else:
        halves, moments = quantise.atoms_to_halves(position, mass, first, cells)
        # Atoms on points stay there under every rounding.
        if demand.order == "convex":
            up = quantise.spread(halves, moments)
            down = _heavier(
                _rounded(position, mass, first, cells, np.floor),
                quantise.concentrate(halves, moments),
            )
        else:
            down = _rounded(position, mass, first, cells, np.floor)
            up = _rounded(position, mass, first, cells, np.ceil)
    lower = upper = Measure(first, down)
    if not (down is up and lost_above == lost_below == 0.0):
        upper_mass, lower_mass = up.copy(), down.copy()
        upper_mass[0] += lost_below
        lower_mass[-1] += lost_above
        lower, upper = Measure(first, lower_mass), Measure(first, upper_mass)
    infinite = math.inf if lost_above > 0.0 else 0.0
    return Pair(
        step,
        lower,
        upper,
        lost_above,
        excess + infinite,
        cut,
        demand.cap if cut > 0.0 else math.inf,
        8.0 * UNIT,
        demand.order,
    )


def _rounded(
    position: FloatArray, mass: FloatArray, first: int, cells: int, rule: Any
) -> FloatArray:
    index = (rule(position) - first).astype(np.intp)
    return np.bincount(index, weights=mass, minlength=cells + 1).astype(np.float64)


def _heavier(one: FloatArray, other: FloatArray) -> FloatArray:
    """The lower bound that has lost less of the mean."""
    k = np.arange(one.size)
    return one if one @ k >= other @ k else other


def _lost(
    law: Distribution, values: FloatArray, mass: FloatArray
) -> tuple[float, float]:
    """Mass of an atomic law above and below its listed atoms."""
    match law:
        case Lattice():
            return law.lost_above, law.lost_below
        case Frozen():
            above = float(law.ccdf(values[-1]))
            below = float(law.cdf(values[0] - 1.0))
            return max(above, 0.0), max(below, 0.0)
        case _:
            return 0.0, 0.0


def _check_points(points: float, demand: Demand) -> None:
    if not points <= demand.points:
        raise ToleranceError(
            f"lattice of {points:.3g} points needed, {demand.points} allowed"
        )


def _continuous_pair(law: Distribution, demand: Demand, shift: float) -> Pair:
    from probcalc.kernels import quantise

    family = family_of(law)
    low, high = (float(end) for end in law.support())
    step = demand.step
    start = low if math.isfinite(low) else float(law.icdf(demand.tail))
    end = high if math.isfinite(high) else float(law.iccdf(demand.tail))
    if math.isfinite(high):
        end = min(end, max(float(law.iccdf(demand.tail)), start))
    reached = end
    end = min(end + shift, max(demand.cap, start + shift + step)) - shift
    first = math.floor((start + shift) / step)
    cells = max(math.ceil((end + shift) / step) - first, 1)
    _check_points(cells + 1, demand)
    half_steps = np.arange(2 * cells + 1, dtype=np.float64)
    edges = (first + 0.5 * half_steps) * step - shift
    if family is not None:
        mass, low_moment, high_moment = _family_halves(family, edges, step)
    else:
        # Only a convex bound needs the moments of the cells.
        parts = 1 if demand.order == "first" else SUBDIVISIONS
        _check_points(2 * parts * cells, demand)
        mass, low_moment, high_moment = _monotone_halves(law, edges, cells, parts)
    top = float(edges[-1])
    tail = 0.0 if top >= high else float(law.ccdf(top)) * (1.0 + FUNCTION_ACCURACY)
    # Includes an atom at the lower end of a law that is not known to have none.
    below = float(law.cdf(edges[0]))
    excess = 0.0 if tail == 0.0 else _excess(law, family, top, tail)
    # What lies above the last edge is capped there: a value of its own.
    if demand.order == "convex":
        up = quantise.spread(mass, high_moment)
        down = quantise.concentrate(mass, low_moment)
    else:
        up = quantise.round_up(mass)
        down = quantise.round_down(mass)
    up[-1] += tail
    down[-1] += tail
    up[0] += below
    if edges[0] >= low:
        down[0] += below
    capped = end < reached
    return Pair(
        step,
        Measure(first, down),
        Measure(first, up),
        0.0 if capped else tail,
        excess,
        tail if capped else 0.0,
        top + shift if capped else math.inf,
        FUNCTION_ACCURACY,
        demand.order,
    )


def _family_halves(
    family: Family, edges: FloatArray, step: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Masses and bounds of the excess moments of half cells, from closed forms.

    Below the median from the distribution function and E[X; X <= x], above it from
    their complements, so that each tail keeps its relative accuracy.
    """
    middle = int(np.searchsorted(edges, _median(family)))
    middle = min(max(middle, 0), edges.size - 1)
    left, right = edges[: middle + 1], edges[middle:]
    at_most, above = family.cdf(left), family.sf(right)
    mass = np.concatenate([np.diff(at_most), -np.diff(above)])
    moment = np.concatenate(
        [np.diff(family.partial_below(left)), _falling(family, right)]
    )
    mass = np.maximum(mass, 0.0)
    # Cancellation in `moment - edge * mass`: a few units of the last place of the
    # terms, which are at most |edge| times the tail's probability on that side. (What
    # systematic error the special functions have, neighbouring values share.)
    share = np.concatenate([at_most[1:], above[:-1]])
    error = 16.0 * UNIT * np.maximum(np.abs(edges[:-1]), np.abs(edges[1:])) * share
    excess = moment - edges[:-1] * mass
    half = 0.5 * mass
    low = np.clip((excess - error) / step, 0.0, half)
    high = np.clip((excess + error) / step, 0.0, half)
    return mass, low, high


def _falling(family: Family, right: FloatArray) -> FloatArray:
    above = family.partial_above(right)
    if np.isinf(above[0]):
        return np.diff(family.partial_below(right))
    return -np.diff(above)


def _median(family: Family) -> float:
    low, high = family.lower, family.upper
    mean = family.mean
    if math.isfinite(mean):
        return mean
    return low if math.isfinite(low) else high


def _monotone_halves(
    law: Distribution, edges: FloatArray, cells: int, parts: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The same for any law, from its survival function alone.

    The excess moment of a piece is the integral of the survival function over it, less
    its right end's value; the survival function falls, so left and right Riemann sums
    bound it, the closer the more `parts` each half cell is cut into.
    """
    fine = np.interp(
        np.arange(2 * cells * parts + 1) / parts, np.arange(edges.size), edges
    )
    # In pieces: SciPy's distributions take dozens of arrays of this size.
    pieces = np.array_split(fine, fine.size // PIECE + 1)
    survival = np.concatenate([np.asarray(law.ccdf(p), dtype=float) for p in pieces])
    survival = np.minimum.accumulate(survival)
    table = survival[:-1].reshape(2 * cells, parts)
    ends = survival[parts::parts]
    mass = np.maximum(table[:, 0] - ends, 0.0)
    width = 0.5 / parts
    high = width * (table - ends[:, None]).sum(axis=1)
    low = high - width * mass
    half = 0.5 * mass
    return mass, np.clip(low, 0.0, half), np.clip(high, 0.0, half)


def _excess(law: Distribution, family: Family | None, top: float, tail: float) -> float:
    """Upper bound of E (X - top)+; infinite where it is not known."""
    if family is not None:
        partial = float(family.partial_above(np.array([top]))[0])
        if not math.isfinite(partial):
            return math.inf
        return max(partial - top * tail, 0.0) + 1e-12 * abs(partial)
    mean = float(law.mean())
    if not math.isfinite(mean):
        return math.inf
    # E (X - top)+ <= sqrt(E X^2 P(X > top)) by Cauchy-Schwarz.
    square = float(law.variance()) + mean * mean
    return math.sqrt(square * tail) if math.isfinite(square) else math.inf
