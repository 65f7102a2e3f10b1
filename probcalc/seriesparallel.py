"""Series-parallel reduction of plans (Valdes, Tarjan and Lawler; Dodin's arcs).

A plan becomes a graph whose arcs are its nodes and whose vertices are events. Nodes
with the same predecessors start at one event, which is exact and makes a two-stage
pipeline of any length series-parallel. Arcs in series and in parallel are put together
until none are left; what is left is one arc, or a core that is not series-parallel.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from probcalc.plan import Plan

__all__ = [
    "LAG",
    "NODE",
    "PARALLEL",
    "SERIES",
    "Part",
    "Reduction",
    "Start",
    "reduced",
    "starts_of",
]

NODE, LAG, SERIES, PARALLEL = range(4)

#: What a node's start depends on: predecessors with their lags, and its release.
Start = tuple[tuple[tuple[int, float], ...], float]


class Part(NamedTuple):
    """A part of a reduction.

    Attributes
    ----------
    kind : int
        NODE, LAG, SERIES or PARALLEL.
    node : int
        Of a NODE, its number in the plan.
    seconds : float
        Of a LAG.
    left, right : int
        Of SERIES and PARALLEL, the two parts (numbers in `Reduction.parts`).
    """

    kind: int
    node: int = -1
    seconds: float = 0.0
    left: int = -1
    right: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """What a plan reduces to.

    Attributes
    ----------
    plan : Plan
    parts : list of Part
        Every part stands after those it is made of.
    arcs : list of (int, int, int)
        What is left: from event, to event, part; one arc if series-parallel. A part
        of -1 takes no time.
    first, last : int
        Events of the start and of the end.
    """

    plan: Plan
    parts: list[Part]
    arcs: list[tuple[int, int, int]]
    first: int
    last: int

    @property
    def whole(self) -> bool:
        """Whether the plan is series-parallel."""
        return len(self.arcs) == 1


class _Graph:
    """Events and arcs; parallel arcs are put together as they meet."""

    def __init__(self) -> None:
        self.out: list[dict[int, int]] = []
        self.into: list[dict[int, int]] = []
        self.parts: list[Part] = []
        self.means: list[float] = []
        self.news: list[tuple[int, int]] = []
        self.size = 0

    def event(self) -> int:
        self.out.append({})
        self.into.append({})
        return len(self.out) - 1

    def part(self, part: Part, mean: float) -> int:
        self.parts.append(part)
        self.means.append(mean)
        return len(self.parts) - 1

    def mean(self, part: int) -> float:
        return 0.0 if part < 0 else self.means[part]

    def series(self, one: int, two: int) -> int:
        if one < 0 or two < 0:
            return max(one, two)
        mean = self.means[one] + self.means[two]
        return self.part(Part(SERIES, left=one, right=two), mean)

    def link(self, a: int, b: int, part: int) -> None:
        known = self.out[a].get(b)
        if known is not None:
            # Durations are never negative: beside another arc, one of no time is idle.
            if known >= 0 and part >= 0:
                mean = max(self.means[known], self.means[part])
                part = self.part(Part(PARALLEL, left=known, right=part), mean)
            else:
                part = max(known, part)
        else:
            self.size += 1
        self.out[a][b] = part
        self.into[b][a] = part
        self.news.append((a, b))

    def cut(self, a: int, b: int) -> int:
        del self.into[b][a]
        self.size -= 1
        return self.out[a].pop(b)

    def reduce(self, todo: list[int], ends: tuple[int, int]) -> None:
        """Take out events with one arc in and one out; begin with those given."""
        while todo:
            v = todo.pop()
            if v in ends:
                continue
            if not self.out[v] or not self.into[v]:
                # An event that leads nowhere, or that nothing leads to, after a cut.
                for a in list(self.into[v]):
                    self.cut(a, v)
                    todo.append(a)
                for b in list(self.out[v]):
                    self.cut(v, b)
                    todo.append(b)
            elif len(self.out[v]) == 1 and len(self.into[v]) == 1:
                (a,), (b,) = self.into[v], self.out[v]
                one, two = self.cut(a, v), self.cut(v, b)
                self.link(a, b, self.series(one, two))
                todo.extend((a, b))

    def arcs(self) -> list[tuple[int, int, int]]:
        return [
            (a, b, part)
            for a in range(len(self.out))
            for b, part in self.out[a].items()
        ]


def reduced(plan: Plan, *, to_one: bool = False) -> Reduction:
    """Reduce a plan; with `to_one` arcs are cut until it is series-parallel.

    Cutting an arc takes a path away, so that what is left ends no later than the plan:
    a lower bound of every quantile of its makespan. The arcs with the most slack at
    mean times are cut first.

    Cost: near linear in nodes and edges; without recursion.
    """
    graph = _Graph()
    first, last = graph.event(), graph.event()
    starts, ends = _events(graph, plan, first)
    means = [float(e.time.mean()) for e in plan.elements]
    followed = np.zeros(len(plan), dtype=bool)
    followed[plan.sources] = True
    for i, element in enumerate(plan.element_of.tolist()):
        part = graph.part(Part(NODE, node=i), means[element])
        graph.link(starts[i], ends[i], part)
        if not followed[i]:
            graph.link(ends[i], last, -1)
    both = (first, last)
    graph.reduce(list(range(len(graph.out))), both)
    if to_one:
        _cut(graph, both)
    return Reduction(plan, graph.parts, graph.arcs(), first, last)


def starts_of(plan: Plan) -> list[Start]:
    """Return what the start of each node depends on."""
    before: list[list[tuple[int, float]]] = [[] for _ in range(len(plan))]
    for source, target, lag in zip(
        plan.sources.tolist(), plan.targets.tolist(), plan.lags.tolist(), strict=True
    ):
        before[target].append((source, lag))
    return [
        (tuple(sorted(nodes)), release)
        for nodes, release in zip(before, plan.releases.tolist(), strict=True)
    ]


def _events(graph: _Graph, plan: Plan, first: int) -> tuple[list[int], list[int]]:
    """Event at which each node starts, and at which it ends, linked by edges."""
    ends = [graph.event() for _ in range(len(plan))]
    known: dict[Start, int] = {((), 0.0): first}
    starts: list[int] = []
    for key in starts_of(plan):
        if key not in known:
            known[key] = graph.event()
            for source, lag in key[0]:
                graph.link(ends[source], known[key], _lag(graph, lag))
            if key[1] > 0.0 or not key[0]:
                graph.link(first, known[key], _lag(graph, key[1]))
        starts.append(known[key])
    return starts, ends


def _lag(graph: _Graph, seconds: float) -> int:
    return graph.part(Part(LAG, seconds=seconds), seconds) if seconds > 0.0 else -1


def _cut(graph: _Graph, ends: tuple[int, int]) -> None:
    early, late = _potentials(graph, ends)

    def slack(a: int, b: int) -> float:
        return late[b] - early[a] - graph.mean(graph.out[a][b])

    heap: list[tuple[float, int, int]] = []
    # Arcs that are the only one out of an event, or into one, wait until another
    # comes. There is always one to cut that is not: were there none, then behind an
    # event with two arcs out every event would have one arc in, and so, as nothing is
    # in series, two out; no two paths would meet again, and only one could end.
    only_out: dict[int, list[int]] = {}
    only_into: dict[int, list[int]] = {}
    graph.news = [(a, b) for a, b, _ in graph.arcs()]
    while graph.size > 1:
        for a, b in graph.news:
            pushed = [(a, b)]
            pushed += [(a, other) for other in only_out.pop(a, ())]
            pushed += [(other, b) for other in only_into.pop(b, ())]
            for one, two in pushed:
                if two in graph.out[one]:
                    heapq.heappush(heap, (-slack(one, two), one, two))
        graph.news = []
        value, a, b = heapq.heappop(heap)
        if b not in graph.out[a] or value != -slack(a, b):
            continue  # merged since, or stated anew
        if len(graph.out[a]) == 1:
            only_out.setdefault(a, []).append(b)
        elif len(graph.into[b]) == 1:
            only_into.setdefault(b, []).append(a)
        else:
            graph.cut(a, b)
            graph.reduce([a, b], ends)


def _potentials(
    graph: _Graph, ends: tuple[int, int]
) -> tuple[dict[int, float], dict[int, float]]:
    """Earliest and latest mean times of the events that are left."""
    waiting = {v: len(into) for v, into in enumerate(graph.into)}
    order = [ends[0]]
    early: dict[int, float] = {ends[0]: 0.0}
    for v in order:
        for b, part in graph.out[v].items():
            early[b] = max(early.get(b, 0.0), early[v] + graph.mean(part))
            waiting[b] -= 1
            if waiting[b] == 0:
                order.append(b)
    late = {ends[1]: early[ends[1]]}
    for v in reversed(order):
        for b, part in graph.out[v].items():
            at = late[b] - graph.mean(part)
            late[v] = min(late.get(v, at), at)
    return early, late
