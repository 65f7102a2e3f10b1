"""Law of a plan's makespan, asked through lattices that are made for each question.

How a lattice is made is another module's: with all maxima independent (an upper
bound), or by the joint law of all finishes that still matter (exact).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.composed import MEMORY, Composed
from probcalc.discretise import Order, Pair
from probcalc.distribution import Bounds, Probability, Quantile, levels
from probcalc.errors import InputError, ToleranceError
from probcalc.evaluate import convolved, evaluate
from probcalc.extent import copies_of, total_copies
from probcalc.lattice import LatticeBounds
from probcalc.levelwise import each, quantiles
from probcalc.plan import Plan
from probcalc.planlattice import (
    coarser,
    demand_of,
    depth_of,
    longest,
    means_of,
    quantum_of_plan,
    spaced,
    whole_lattice,
)
from probcalc.refine import OUTSIDE
from probcalc.solve import LatticeSurvival

__all__ = ["Makespan"]

#: Step, order, level and bytes to a pair of lattice masses.
Evaluate = Callable[[float, Order, float, int], Pair]

#: Level down to which a lattice is made that serves any question.
ANY_LEVEL = 1e-9
#: How often a step is made smaller for a narrower bracket, or larger to fit.
TRIES = 14


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Makespan:
    """Law of the makespan of a plan of independent nodes, or of energy going with it.

    Parameters
    ----------
    plan : Plan
    evaluate : callable
        From step, order, level and bytes to a `Pair` of the makespan.
    what : str
        What the law is, for messages and `repr`.
    aim : float
        Relative width of brackets where the values have no quantum.
    power : float
        Factor of the makespan, positive.
    extra : Composed, optional
        Added to it, independent of it.
    """

    plan: Plan
    evaluate: Evaluate
    what: str
    aim: float
    power: float = 1.0
    extra: Composed | None = None
    # What was worked out before, by what `evaluate` was called with; the laws of energy
    # made of this one share it.
    known: dict[tuple[float, Order, float, int], Pair | ToleranceError] = field(
        repr=False, default_factory=dict
    )

    def __repr__(self) -> str:
        """Plan and way of evaluation."""
        return f"<Makespan of plan {self.plan.name!r}: {self.what}>"

    def spent(self, power: float, dynamic: Composed | None = None) -> Makespan:
        """Law of energy, a power times the makespan plus independent dynamic energy."""
        return replace(self, power=power, extra=dynamic)

    def survival(
        self,
        step: float,
        order: Order,
        level: float,
        memory: int = MEMORY,
        finer: int = 1,
    ) -> LatticeSurvival:
        """Survival bounds on a lattice, good for levels down to `level`.

        Parameters
        ----------
        step : float
            Of the makespan, in s.
        finer : int
            How many times as fine the lattice of energy is.

        Raises
        ------
        ToleranceError
            More points than `memory` holds.
        """
        own = step * self.power / finer
        pair = spaced(self._pair(step, order, level, memory), finer, own)
        if self.extra is not None:
            node = self.extra.node
            demand = demand_of(self.plan, own, "convex", level, memory, OUTSIDE)
            tail = level * OUTSIDE / total_copies(node)
            more = evaluate(node, replace(demand, tail=tail))
            pair = convolved([(pair, 1), (more, 1)], demand)
        quantum = quantum_of_plan(self.plan)
        exact = quantum is not None and quantum.step == step and quantum.exact
        plain = self.power == 1.0 and self.extra is None
        return LatticeSurvival(
            pair, False, depth_of(self.plan), exact_points=exact and plain
        )

    def _pair(self, step: float, order: Order, level: float, memory: int) -> Pair:
        """Work out or find again; levels are taken down to a power of 1,000."""
        level = 1e-3 ** math.ceil(math.log(level) / math.log(1e-3) - 1e-9)
        key = (step, order, level, memory)
        if key not in self.known:
            try:
                self.known[key] = self.evaluate(step, order, level, memory)
            except ToleranceError as error:
                self.known[key] = error
        found = self.known[key]
        if isinstance(found, ToleranceError):
            raise found
        return found

    def _steps(
        self, level: float, memory: int, aim: float
    ) -> Iterator[LatticeSurvival]:
        """Finer and finer lattices, until none fits; the last is the exact one.

        Raises
        ------
        ToleranceError
            Not even a coarse one fits.
        """
        finer = 1
        if self.extra is not None:
            # Sums of many small energies are to add little to the width.
            ratio = copies_of(self.extra.node) / depth_of(self.plan)
            finer = math.ceil(16.0 * math.sqrt(max(ratio, 0.25)))
        quantum = quantum_of_plan(self.plan)
        step, order = self._start(aim) if quantum is None else (quantum.step, "first")
        found = False
        refused: ToleranceError | None = None
        for _ in range(TRIES):
            try:
                table = self.survival(step, order, level, memory, finer)
            except ToleranceError as error:
                if found:
                    return
                # A quantum too fine for all values is no use: brackets instead.
                refused, step, order = error, 2.0 * step, "convex"
                continue
            found = True
            yield table
            if refused is not None or (order == "first" and self.extra is None):
                return
            if order == "first":
                finer *= 4
            else:
                step *= 0.4
        if not found:
            raise ToleranceError(f"plan {self.plan.name!r}, {self.what}: {refused}")

    def _start(self, aim: float) -> tuple[float, Order]:
        size = longest(self.plan, means_of(self.plan)) or 1.0
        return aim * size / (1.4 * math.sqrt(depth_of(self.plan))), "convex"

    def _table(self, level: float = ANY_LEVEL) -> LatticeSurvival:
        return next(self._steps(level, MEMORY, self.aim))

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> Quantile:
        """Certified bracket of a quantile.

        Raises
        ------
        ToleranceError
            `rtol` was given and not reached, or no lattice fits in `memory`.
        """
        level, above = levels(p, sf)
        aim = rtol or self.aim
        low, high = -math.inf, math.inf
        for table in self._steps(min(level, above), memory, aim):
            found = table.crossing(above)
            low, high = max(low, found[0]), min(high, found[1])
            if high - low <= aim * abs(high):
                break
        bracket = Quantile(
            level, 0.5 * (low + high), low, high, "certified", "lattice step", above
        )
        wide = high - low > (rtol or math.inf) * abs(high)
        exact = quantum_of_plan(self.plan) is not None and self.extra is None
        if not math.isfinite(high) or (wide and not exact):
            raise ToleranceError(
                f"quantile at sf={above:.6g} of plan {self.plan.name!r}: "
                f"[{low:.6g}, {high:.6g}] reached within {memory} bytes, relative "
                f"width {aim:.3g} asked",
                bracket,
            )
        return bracket

    def quantiles(
        self,
        p: Iterable[float] | None = None,
        *,
        sf: Iterable[float] | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> tuple[Quantile, ...]:
        """Brackets at several levels."""
        return quantiles(self, p, sf, rtol=rtol, memory=memory)

    def probability_above(
        self, limit: float, *, rtol: float = 1e-3, memory: int = MEMORY
    ) -> Probability:
        """P(X > limit) with certified bounds; `rtol` is an aim."""
        low, high = 0.0, 1.0
        for table in self._steps(ANY_LEVEL, memory, self.aim):
            found = table.bounds(np.array([float(limit)]))
            low, high = max(low, float(found[0][0])), min(high, float(found[1][0]))
            if high - low <= rtol * high:
                break
        return Probability(0.5 * (low + high), low, high, "certified")

    def expected_shortfall(
        self, p: float | None = None, *, sf: float | None = None
    ) -> Bounds:
        """Bounds of the mean of the worst `sf` share.

        ``min over t of t + E(X - t)+ / sf`` (Rockafellar and Uryasev).
        """
        _, above = levels(p, sf)
        return _bounds(self._table(min(ANY_LEVEL, 1e-3 * above)).shortfall(above))

    def mean_bounds(self) -> Bounds:
        """Bounds of the mean."""
        return _bounds(self._table().means())

    def mean(self) -> float:
        """Mean; its error: `mean_bounds`."""
        return self.mean_bounds().value

    def variance(self) -> float:
        """Variance, the mean of those of both lattices: an estimate."""
        pair = self._table().pair
        found = []
        for measure in (pair.lower, pair.upper):
            weight = measure.mass / measure.mass.sum()
            k = np.arange(weight.size)
            found.append(float(weight @ (k - float(weight @ k)) ** 2))
        return 0.5 * sum(found) * pair.step * pair.step

    def ccdf(self, x: npt.ArrayLike) -> Any:
        """Middle of the bounds of P(X > x)."""
        values = np.asarray(x, dtype=float)
        low, high = self._table().bounds(values.ravel())
        return (0.5 * (low + high)).reshape(values.shape)[()]

    def cdf(self, x: npt.ArrayLike) -> Any:
        """Middle of the bounds of P(X <= x)."""
        return 1.0 - self.ccdf(x)

    def icdf(self, p: npt.ArrayLike) -> Any:
        """Middle of the bracket of each quantile."""
        return each(p, lambda level: self.quantile(level).value)

    def iccdf(self, q: npt.ArrayLike) -> Any:
        """Middle of the bracket of each quantile."""
        return each(q, lambda level: self.quantile(sf=level).value)

    def support(self) -> tuple[float, float]:
        """Smallest and largest value the plan allows."""
        found = []
        for end in (0, 1):
            times = np.array([float(e.time.support()[end]) for e in self.plan.elements])
            finite = bool(np.isfinite(times).all())
            value = longest(self.plan, times) if finite else math.inf
            extra = 0.0 if self.extra is None else self.extra.support()[end]
            found.append(self.power * value + extra)
        return found[0], found[1]

    def sample(self, shape: Any = (), *, rng: np.random.Generator | None = None) -> Any:
        """Draw from the upper lattice of the law."""
        if rng is None:
            raise InputError("sample: give rng, a numpy Generator")
        pair = self._table().pair
        weight = pair.upper.mass / pair.upper.mass.sum()
        return (pair.upper.first + rng.choice(weight.size, shape, p=weight)) * pair.step

    def lattice_bounds(self, step: float, *, low: float, high: float) -> LatticeBounds:
        """Lattices below and above the law in first order; what `sum_of` takes of it.

        Raises
        ------
        ToleranceError
            None fits into `MEMORY`, or energy: compose makespan and energy instead.
        """
        del low, high
        if self.extra is not None:
            raise ToleranceError(
                f"plan {self.plan.name!r}: energy is not composed further; expected "
                "the makespan, or method 'monte-carlo'"
            )
        # Every node's duration is rounded: together by less than `step`.
        quantum = quantum_of_plan(self.plan)
        fine = step / self.power / depth_of(self.plan)
        pair = self.survival(quantum.step if quantum else fine, "first", ANY_LEVEL).pair
        lower = coarser(pair.lower, pair.step / step, down=True)
        upper = coarser(pair.upper, pair.step / step, down=False)
        return LatticeBounds(
            whole_lattice(lower, step, missing_below=True, lost=0.0),
            whole_lattice(upper, step, missing_below=False, lost=pair.tail),
        )


def _bounds(ends: tuple[float, float]) -> Bounds:
    """Both ends, an estimate where the law's tail leaves the upper one open."""
    low, high = ends
    if math.isfinite(high):
        return Bounds(0.5 * (low + high), low, high, "certified")
    return Bounds(low, low, math.inf, "certified")
