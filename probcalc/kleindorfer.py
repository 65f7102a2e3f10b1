"""Makespans with every maximum taken as if its operands were independent.

Kleindorfer (1971): finishes of nodes that share predecessors are positively
associated, so that independent maxima are stochastically larger: an upper bound of
every quantile.

What a lattice cuts off is counted once for every node, not once for every path. With
caps c_i the process G_i = min(max G_p + T_i, c_i) is increasing in the independent
times, so independent maxima bound it; and it is the plan itself unless some node of
the plan passes its cap, which has at most the probability cut off at that node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.composed import MEMORY
from probcalc.discretise import Demand, Pair, leaf_pair
from probcalc.distribution import (
    Bounds,
    Constant,
    Probability,
    Quantile,
    law_key,
    levels,
)
from probcalc.errors import InputError, ToleranceError
from probcalc.evaluate import convolved, extreme, shifted
from probcalc.exact_lattice import quantum_of
from probcalc.extent import points_allowed
from probcalc.lattice import Lattice, LatticeBounds
from probcalc.nodes import Leaf, Sum
from probcalc.plan import Plan
from probcalc.refine import EXACT_POINTS
from probcalc.solve import LatticeSurvival

__all__ = ["IndependentMaxima"]

FloatArray = npt.NDArray[np.float64]

#: Share of a level that all cuts together may take.
CUT = 1e-4
#: Width asked of the law itself: the bound is percents above the plan.
RTOL = 2e-3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IndependentMaxima:
    """Law of a plan's makespan if all maxima were of independent operands.

    Parameters
    ----------
    plan : Plan
        Its draws must be independent.
    """

    plan: Plan

    def __repr__(self) -> str:
        """Return the plan's name."""
        return f"<IndependentMaxima of plan {self.plan.name!r}>"

    def _demand(self, step: float, level: float, memory: int) -> Demand:
        tail = level * CUT / len(self.plan)
        points = min(points_allowed(memory), EXACT_POINTS)
        order = "first" if self._quantum is not None else "convex"
        return Demand(step, order, math.inf, tail, points, level, tail_only=False)

    @property
    def _quantum(self) -> float | None:
        laws = [(Leaf(e.time), 1) for e in self.plan.elements]
        waits = [*self.plan.lags.tolist(), *self.plan.releases.tolist()]
        laws += [(Leaf(Constant(x)), 1) for x in sorted(set(waits)) if x > 0.0]
        found = quantum_of(Sum(tuple(laws)))
        return None if found is None else found.step

    def survival(
        self, step: float, level: float, memory: int = MEMORY
    ) -> LatticeSurvival:
        """Survival bounds on a lattice, good for levels down to `level`.

        Raises
        ------
        ToleranceError
            More points than `memory` holds.
        """
        plan = self.plan
        demand = self._demand(step, level, memory)
        leaves: dict[Any, Pair] = {}
        before: list[list[tuple[int, float]]] = [[] for _ in range(len(plan))]
        for source, target, lag in zip(
            plan.sources.tolist(),
            plan.targets.tolist(),
            plan.lags.tolist(),
            strict=True,
        ):
            before[target].append((source, lag))
        users = np.bincount(plan.sources, minlength=len(plan))
        left = users.copy()
        finish: dict[int, Pair] = {}
        starts: dict[tuple[tuple[tuple[int, float], ...], float], Pair] = {}
        cut, nothing = 0.0, _constant(0.0, demand)
        total: Pair | None = None
        for i in plan.order.tolist():
            key = (tuple(sorted(before[i])), float(plan.releases[i]))
            if key not in starts:
                starts[key] = self._start(key, finish, nothing, demand)
            element = plan.elements[int(plan.element_of[i])]
            law = law_key(element.time)
            if law not in leaves:
                leaves[law] = leaf_pair(element.time, demand)
            done = convolved([(starts[key], 1), (leaves[law], 1)], demand)
            cut += done.tail + done.cut
            finish[i] = _bare(done)
            if users[i] == 0:
                total = (
                    finish[i] if total is None else _larger(total, finish[i], demand)
                )
                del finish[i]
            for j, _ in key[0]:
                left[j] -= 1
                if left[j] == 0:
                    finish.pop(j, None)
            if not any(left[j] for j, _ in key[0]):
                starts.pop(key, None)
        assert total is not None
        depth = float(plan.level.max()) + 1.0
        pair = replace(total, tail=min(cut, 1.0))
        return LatticeSurvival(pair, False, depth)

    def _start(
        self,
        key: tuple[tuple[tuple[int, float], ...], float],
        finish: dict[int, Pair],
        nothing: Pair,
        demand: Demand,
    ) -> Pair:
        ends = [shifted(finish[j], lag) if lag else finish[j] for j, lag in key[0]]
        if key[1] or not ends:
            ends.append(shifted(nothing, key[1]) if key[1] else nothing)
        start = ends[0]
        for other in ends[1:]:
            start = _larger(start, other, demand)
        return start

    def _bracket(self, level: float, sf: float, memory: int) -> tuple[float, float]:
        quantum = self._quantum
        size = self._size()
        if size == 0.0:
            return 0.0, 0.0
        small = min(level, sf)
        step = quantum or size / 512.0
        depth = float(self.plan.level.max()) + 1.0
        if quantum is None:
            step = min(step, RTOL * size / (1.4 * math.sqrt(depth)))
        for _ in range(8):
            try:
                low, high = self.survival(step, small, memory).crossing(sf)
            except ToleranceError:
                step *= 4.0
                continue
            if math.isfinite(high) and high - low <= 2.0 * RTOL * abs(high):
                break
            if quantum is not None:
                break
            step *= 0.4
        else:
            raise ToleranceError(
                f"quantile at sf={sf:.6g} of plan {self.plan.name!r}: no lattice fits "
                f"in {memory} bytes"
            )
        return low, high

    def _size(self) -> float:
        """Longest path at mean times."""
        from probcalc.kernels import graph

        plan = self.plan
        means = np.array([float(e.time.mean()) for e in plan.elements])
        return graph.longest(
            len(plan),
            plan.sources,
            plan.targets,
            plan.lags,
            means[plan.element_of],
            plan.releases,
        )

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> Quantile:
        """Certified bracket of a quantile of this law; `rtol` is not promised."""
        del rtol
        level, above = levels(p, sf)
        low, high = self._bracket(level, above, memory)
        return Quantile(
            level, 0.5 * (low + high), low, high, "certified", "lattice step", above
        )

    def quantiles(
        self,
        p: Iterable[float] | None = None,
        *,
        sf: Iterable[float] | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> tuple[Quantile, ...]:
        """Brackets at several levels."""
        if (p is None) == (sf is None):
            raise InputError("quantiles: give exactly one of p and sf")
        if p is not None:
            return tuple(self.quantile(x, rtol=rtol, memory=memory) for x in p)
        return tuple(self.quantile(sf=x, rtol=rtol, memory=memory) for x in sf or ())

    def _table(self, level: float = 1e-6) -> LatticeSurvival:
        depth = float(self.plan.level.max()) + 1.0
        step = self._quantum or RTOL * self._size() / (1.4 * math.sqrt(depth))
        return self.survival(step or 1.0, level)

    def probability_above(
        self, limit: float, *, rtol: float = 1e-3, memory: int = MEMORY
    ) -> Probability:
        """P(X > limit) with certified bounds; `rtol` is not promised."""
        del rtol, memory
        low, high = self._table().bounds(np.array([float(limit)]))
        middle = 0.5 * float(low[0] + high[0])
        return Probability(middle, float(low[0]), float(high[0]), "certified")

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
        asked = np.asarray(p, dtype=float)
        found = [self.quantile(float(x)).value for x in asked.ravel()]
        return np.array(found).reshape(asked.shape)[()]

    def iccdf(self, q: npt.ArrayLike) -> Any:
        """Middle of the bracket of each quantile."""
        asked = np.asarray(q, dtype=float)
        found = [self.quantile(sf=float(x)).value for x in asked.ravel()]
        return np.array(found).reshape(asked.shape)[()]

    def reach(self, tail: float) -> tuple[float, float]:
        """Values outside which the makespan lies with at most `tail` on each side."""
        low, _ = self._bracket(tail, 1.0 - tail, MEMORY)
        _, high = self._bracket(1.0 - tail, tail, MEMORY)
        return low, high

    def support(self) -> tuple[float, float]:
        """Smallest and largest value of the plan's own makespan or above."""
        from probcalc.kernels import graph

        plan = self.plan
        found = []
        for end in (0, 1):
            times = np.array([float(e.time.support()[end]) for e in plan.elements])
            duration = times[plan.element_of]
            if not np.isfinite(duration).all():
                found.append(math.inf)
                continue
            found.append(
                graph.longest(
                    len(plan),
                    plan.sources,
                    plan.targets,
                    plan.lags,
                    duration,
                    plan.releases,
                )
            )
        return found[0], found[1]

    def mean_bounds(self) -> Bounds:
        """Bounds of the mean, but for what lies beyond the lattice: an estimate."""
        low, high = self._table(1e-9).means()
        high = low if not math.isfinite(high) else high
        return Bounds(0.5 * (low + high), low, high, "estimate")

    def mean(self) -> float:
        """Mean; its error: `mean_bounds`."""
        return self.mean_bounds().value

    def variance(self) -> float:
        """Variance on the lattice: an estimate."""
        measure = self._table(1e-9).pair.upper
        weight = measure.mass / measure.mass.sum()
        k = np.arange(weight.size)
        centre = float(weight @ k)
        step = self._table(1e-9).pair.step
        return float(weight @ (k - centre) ** 2) * step * step

    def sample(self, shape: Any = (), *, rng: np.random.Generator | None = None) -> Any:
        """Draw from the upper lattice of the law."""
        if rng is None:
            raise InputError("sample: give rng, a numpy Generator")
        pair = self._table(1e-9).pair
        weight = pair.upper.mass / pair.upper.mass.sum()
        return (pair.upper.first + rng.choice(weight.size, shape, p=weight)) * pair.step

    def lattice_bounds(self, step: float, *, low: float, high: float) -> LatticeBounds:
        """Lattices below and above the law; what `sum_of` takes of it."""
        del low, high
        demand = self._demand(step, 1e-9, MEMORY)
        pair = self.survival(step, 1e-9).pair
        if demand.order == "convex":
            raise ToleranceError(
                f"plan {self.plan.name!r}: random dynamic energy beside times without "
                "a common quantum is not bounded; expected method 'monte-carlo'"
            )
        lower, upper = (
            Lattice(m.first, step, m.mass / max(float(m.mass.sum()), 1.0))
            for m in (pair.lower, pair.upper)
        )
        return LatticeBounds(lower, replace(upper, lost_above=pair.tail))


def _constant(value: float, demand: Demand) -> Pair:
    return leaf_pair(Constant(value), demand)


def _bare(pair: Pair) -> Pair:
    """Return a pair whose cuts are counted elsewhere."""
    return replace(pair, tail=0.0, excess=0.0, cut=0.0, exact_below=math.inf)


def _larger(one: Pair, other: Pair, demand: Demand) -> Pair:
    pair = extreme([(one, 1), (other, 1)], demand, largest=True)
    if pair.lower is pair.upper or (
        one.lower is one.upper and other.lower is other.upper
    ):
        return replace(pair, lower=pair.upper)
    return pair
