"""Plans whose nodes choose among points: the discrete time-cost trade-off as arrays.

With the baseline power b of every device, the energy of a plan is
``E = B M + sum of x``: B is the power of all devices held, M the makespan and
``x = (s - b) T + d`` what the chosen point of a node adds to that (section 3.3.4). So
a choice matters through T on the paths of the plan and through x in a sum.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from probcalc.draws import labels_of
from probcalc.element import Element
from probcalc.frontier_points import Points, check_overlap, check_sets, units_of
from probcalc.operating import OperatingSet
from probcalc.plan import Plan
from probcalc.readonly import ReadOnly

__all__ = ["Graph", "Problem"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Graph(NamedTuple):
    """Precedence in the order of `Problem.order`, as `probcalc.kernels.assignment`.

    Arcs into node v (by rank) are ``before[v] .. before[v + 1]``.
    """

    before: IntArray
    source: IntArray
    lag: FloatArray
    release: FloatArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Problem:
    """A plan, the points of its nodes and the groups that choose as one.

    Made by `of`. Nodes are held in topological order, by rank.

    Attributes
    ----------
    plan : Plan
    sets : mapping of str to OperatingSet
        By name of the element whose nodes choose from it.
    order : ndarray of int64, shape (nodes,)
        Node of the plan at each rank.
    first : ndarray of int64, shape (nodes + 1,)
        Points of the node at rank v are ``first[v] .. first[v + 1]``: without groups
        those that are not beaten in (T, x), by rising time; with groups one for each
        key of the group, in the same order for all its nodes.
    time, cost : ndarray, shape (points,)
        T in s and x in J.
    point : ndarray of int64, shape (points,)
        Which point of its operating set it is; 0 for nodes that have no choice.
    graph : Graph
    base : float
        B in W.
    unit : ndarray of int64, shape (nodes,)
        Group of the node at each rank; its own number without groups.
    keys : tuple of tuple, or None
        What each group chooses among; None without groups.
    by : tuple of str
        Labels that make the groups.
    """

    plan: Plan
    sets: Mapping[str, OperatingSet]
    order: IntArray
    first: IntArray
    time: FloatArray
    cost: FloatArray
    point: IntArray
    graph: Graph
    base: float
    unit: IntArray
    keys: tuple[tuple[Hashable, ...], ...] | None
    by: tuple[str, ...]

    @classmethod
    def of(
        cls,
        plan: Plan,
        sets: Mapping[str, OperatingSet],
        *,
        groups: str | Sequence[str] | None = None,
    ) -> Self:
        """Lay out what a plan can choose.

        Parameters
        ----------
        plan : Plan
            Elements named in `sets` say where nodes run, not at which point.
        sets : mapping of str to OperatingSet
            By name of an element of the plan; other elements have no choice.
        groups : str or sequence of str, optional
            Label or labels of the nodes, or ``"device"``: nodes that agree in them run
            at one device point (section 3.2). Nodes without the label choose alone.

        Raises
        ------
        InputError
            Sets of elements that the plan does not have, or on another number of
            devices; unknown labels; a group without a common point.
        CompositionError
            Nodes that can overlap on a device and are not held to one device point, or
            draw another static power than its baseline there; shared factors.
        """
        check_sets(plan, sets)
        order = plan.order
        rank = np.empty(len(plan), dtype=np.int64)
        rank[order] = np.arange(len(plan))
        by = () if groups is None else labels_of(groups, "groups")
        unit, grouped = units_of(plan, by)
        points = Points(plan, sets)
        check_overlap(plan, points, unit if grouped else None)
        if not grouped:
            found = [points.unbeaten(int(plan.element_of[v])) for v in order]
            keys = None
        else:
            picks, keys = points.by_key(unit)
            found = [picks[v] for v in order.tolist()]
        sizes = np.array([part[0].size for part in found])
        columns = [np.concatenate(c) for c in zip(*found, strict=True)]
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(
            plan=plan,
            sets=ReadOnly(dict(sets)),
            order=_held(order),
            first=_held(first),
            time=_held(columns[0]),
            cost=_held(columns[1]),
            point=_held(columns[2]),
            graph=_graph(plan, rank),
            base=math.fsum(plan.baselines.values()),
            unit=_held(unit[order]),
            keys=keys,
            by=by,
        )

    def __repr__(self) -> str:
        """Plan and sizes."""
        return (
            f"<Problem {self.plan.name!r}: {self.order.size} nodes, "
            f"{self.time.size} points, {self.base:g} W held>"
        )

    @property
    def grouped(self) -> bool:
        """Whether nodes choose in groups."""
        return self.keys is not None

    def makespan(self, pick: IntArray) -> float:
        """Longest path in s of points by rank, as indices into `time`."""
        from probcalc.kernels.assignment import ends

        return float(ends(*self.graph, self.time[pick])[0])

    def evaluate(self, pick: IntArray) -> tuple[float, float]:
        """Time in s and energy in J of points by rank, as indices into `time`."""
        makespan = self.makespan(pick)
        return makespan, math.fsum([self.base * makespan, *self.cost[pick].tolist()])

    def valued(self, choice: npt.ArrayLike) -> tuple[float, float]:
        """Time in s and energy in J of a point of its set for every node of the plan.

        The same arithmetic as `evaluate`, for points that are beaten as well.
        """
        from probcalc.kernels.assignment import ends

        points = Points(self.plan, self.sets)
        picked = np.asarray(choice)[self.order].tolist()
        kinds = self.plan.element_of[self.order].tolist()
        pairs = list(zip(kinds, picked, strict=True))
        time = np.array([points.all[e][0][k] for e, k in pairs])
        cost = [float(points.all[e][1][k]) for e, k in pairs]
        makespan = float(ends(*self.graph, time)[0])
        return makespan, math.fsum([self.base * makespan, *cost])

    def choice(self, pick: IntArray) -> IntArray:
        """Point of its operating set for every node of the plan."""
        found = np.empty(self.order.size, dtype=np.int64)
        found[self.order] = self.point[pick]
        return _held(found)

    def fastest(self) -> IntArray:
        """Points by rank with the shortest makespan that single changes find.

        Without groups every node at its fastest, which is the shortest of all.
        """
        return self.first[:-1].copy()

    def applied(self, choice: npt.ArrayLike, name: str | None = None) -> Plan:
        """Return the plan with the chosen elements in it, draw groups included.

        Parameters
        ----------
        choice : array_like of int, shape (nodes,)
            Point of its operating set for every node.
        """
        plan = self.plan
        known: dict[tuple[int, int], int] = {}
        elements: list[Element] = []
        element_of = np.empty(len(plan), dtype=np.int64)
        pairs = zip(plan.element_of.tolist(), np.asarray(choice).tolist(), strict=True)
        for v, (e, k) in enumerate(pairs):
            if (e, k) not in known:
                known[e, k] = len(elements)
                elements.append(self.element(e, k))
            element_of[v] = known[e, k]
        made = plan.with_elements(elements, element_of, name=name)
        if plan.draws.fresh:
            return made
        return made.drawn(plan.draws.rows_by or None, plan.draws.factors)

    def element(self, number: int, point: int) -> Element:
        """Return a point of an element of the plan, on its devices."""
        placed = self.plan.elements[number]
        if placed.name not in self.sets:
            return placed
        return self.sets[placed.name].elements[point].on(*placed.devices)


def _graph(plan: Plan, rank: IntArray) -> Graph:
    source, target = rank[plan.sources], rank[plan.targets]
    order = np.lexsort((source, target))
    before = np.searchsorted(target[order], np.arange(len(plan) + 1))
    return Graph(
        _held(before.astype(np.int64)),
        _held(source[order]),
        _held(plan.lags[order]),
        _held(plan.releases[plan.order]),
    )


def _held(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    held = np.ascontiguousarray(array).copy()
    held.flags.writeable = False
    return held
