"""A positive random factor times an independent quantity, by conditioning.

    P(v R > t) = integral of P(R > t / g) over the law of v.

The factor is cut into cells [a, b); R being non-negative, v R lies between a R and b R
on a cell, so survival bounds of R at t / a and t / b bound the product's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from probcalc.discretise import Demand, Measure, Pair, atoms_of
from probcalc.distribution import Distribution, FloatArray
from probcalc.errors import ToleranceError
from probcalc.evaluate import evaluate, non_negative
from probcalc.nodes import Product
from probcalc.solve import LatticeSurvival

__all__ = ["Cells", "ProductSurvival", "factor_cells", "product_pair"]

#: Probability of a factor's range that is left out on each side, over the level.
OUTSIDE = 1e-7
UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells of a factor's law: ends, masses, and the mass above the last end."""

    left: FloatArray
    right: FloatArray
    mass: FloatArray
    above: float
    below: float


def factor_cells(law: Distribution, level: float, ratio: float, most: int) -> Cells:
    """Cut a positive law into cells whose ends differ by at most `ratio` relative.

    Atoms are cells of no width.

    Raises
    ------
    ToleranceError
        More than `most` cells.
    """
    atoms = atoms_of(law, level * OUTSIDE)
    if atoms is not None:
        values, mass = atoms
        return Cells(values, values, mass, max(1.0 - float(mass.sum()), 0.0), 0.0)
    low, high = (float(end) for end in law.support())
    start = max(low, float(law.icdf(level * OUTSIDE)))
    end = min(high, float(law.iccdf(level * OUTSIDE)))
    # Close to zero relative cells would never end; one cell reaches down to `low`.
    start = max(start, end * 1e-6)
    number = math.ceil(math.log(end / start) / math.log1p(ratio)) + 1
    if number > most:
        raise ToleranceError(f"factor needs {number} cells, {most} allowed")
    edges = np.geomspace(start, end, number + 1)
    edges = np.concatenate([[min(low, start)] if low < start else [], edges])
    above = np.asarray(law.ccdf(edges), dtype=float)
    at_most = np.asarray(law.cdf(edges), dtype=float)
    mass = np.where(above[:-1] > 0.5, np.diff(at_most), -np.diff(above))
    return Cells(
        edges[:-1],
        edges[1:],
        np.maximum(mass, 0.0),
        float(above[-1]),
        float(at_most[0]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ProductSurvival:
    """Survival bounds of factor times part at any t > 0."""

    cells: Cells
    part: LatticeSurvival

    def bounds(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of P(v R > t), elementwise, t > 0."""
        low, high = np.empty(t.size), np.empty(t.size)
        fuzz = 8.0 * UNIT
        slack = (4.0 * self.cells.mass.size + 1e3) * UNIT
        with np.errstate(divide="ignore"):
            for i, at in enumerate(t):
                smaller = at / self.cells.left * (1.0 + fuzz)
                larger = at / self.cells.right * (1.0 - fuzz)
                low[i] = self._lower(smaller) @ self.cells.mass
                high[i] = self.part.bounds(larger, 2.0)[1] @ self.cells.mass
        return low * (1.0 - slack), np.minimum(
            high * (1.0 + slack) + self.cells.above, 1.0
        )

    def _lower(self, at: FloatArray) -> FloatArray:
        finite = np.isfinite(at)
        values = np.zeros(at.size)
        values[finite] = self.part.bounds(at[finite], 2.0)[0]
        return values

    def crossing(self, sf: float, low: float, high: float) -> tuple[float, float]:
        """Bracket of the quantile, by bisection between two values that enclose it."""
        surely, past = low, high
        a, b = low, high
        while b - a > 1e-7 * abs(b):
            middle = 0.5 * (a + b)
            if self.bounds(np.array([middle]))[0][0] > sf:
                a = surely = middle
            else:
                b = middle
        a, b = surely, high
        while b - a > 1e-7 * abs(b):
            middle = 0.5 * (a + b)
            if self.bounds(np.array([middle]))[1][0] <= sf:
                b = past = middle
            else:
                a = middle
        return surely, past


def product_pair(node: Product, demand: Demand) -> Pair:
    """First-order lattice pair of a product inside a larger expression.

    The survival bounds at the lattice points are those of the value rounded up, at
    the next points those of the value rounded down.

    Raises
    ------
    ToleranceError
        The part can be negative, or too many points or cells.
    """
    if not non_negative(node.part):
        raise ToleranceError("product with a part that can be negative")
    law = node.factor.law
    level = demand.level
    start = max(float(law.icdf(0.5)), 1e-300)
    cells = factor_cells(law, level, _ratio(node, demand, start), demand.points)
    inner_demand = Demand(
        demand.step / max(start, float(cells.right.max())),
        demand.order,
        math.inf,
        demand.tail,
        demand.points,
        level,
    )
    survival = LatticeSurvival(evaluate(node.part, inner_demand), True, 1.0)
    top = survival.pair.upper.last * survival.pair.step * float(cells.right.max())
    top = min(top, demand.cap)
    points = math.ceil(top / demand.step) + 2
    if points > demand.points or points * cells.mass.size > 40 * demand.points:
        raise ToleranceError(
            f"product of {points} points by {cells.mass.size} cells, "
            f"{demand.points} points allowed"
        )
    low, high = ProductSurvival(cells, survival).bounds(
        np.maximum(np.arange(points) * demand.step, 1e-300)
    )
    # P(V > 0) from the limit t -> 0+; rounding up keeps P(U > k) = P(V > k step), down
    # has P(L > k) = P(V >= (k + 1) step) >= P(V > (k + 1) step).
    high = np.maximum.accumulate(high[::-1])[::-1]
    low = np.maximum.accumulate(low[::-1])[::-1]
    up = -np.diff(np.append(max(1.0, high[0]), np.append(high[:-1], 0.0)))
    down = -np.diff(np.append(1.0, np.append(low[1:], 0.0)))
    tail = float(high[-1])
    return Pair(
        demand.step,
        Measure(0, np.maximum(down, 0.0)),
        Measure(0, np.maximum(up, 0.0)),
        0.0 if top >= demand.cap else tail,
        math.inf,
        tail if top >= demand.cap else 0.0,
        (points - 1) * demand.step if top >= demand.cap else math.inf,
        survival.slack + 1e3 * UNIT,
        "first",
    )


def _ratio(node: Product, demand: Demand, typical: float) -> float:
    """Relative cell width that costs about one step of the lattice."""
    from probcalc.moments_of import mean_of

    size = mean_of(node.part)
    if size is None or not math.isfinite(size) or size <= 0.0:
        return 1e-3
    return min(max(demand.step / (size * typical), 1e-7), 0.1)
