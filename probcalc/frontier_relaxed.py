"""Lower bounds: the continuous relaxation of a plan that chooses node by node.

The relaxation lets a node take any mixture of its points. Its dual is a flow of what a
second of the makespan is worth, in W, from the start of the plan to its end; it is
walked once from the slowest to the fastest makespan (`probcalc.kernels.timecost`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.frontier_problem import Problem

__all__ = ["Relaxation", "Snapshot", "bound_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Ticks of the longest path, and units of all flow there can be.
_TICKS = 2.0**50
_UNITS = 2.0**58
#: Relative error of the few roundings behind each term of a bound.
_ROUNDING = 2.0**-50


class Snapshot(NamedTuple):
    """An optimum of the relaxation.

    Attributes
    ----------
    deadline : float
        In s.
    worth : ndarray, shape (nodes,)
        What a second of each node is worth in W (its flow), by rank.
    arcs : ndarray, shape (arcs,)
        Flow along the arcs of `Problem.graph`, in W.
    starts : ndarray, shape (nodes,)
        Flow that enters at each node from the start of the plan, in W.
    total : float
        Flow of all paths in W: minus the slope of E - B M over M.
    time, begin, end : ndarray, shape (nodes,)
        Times the nodes take, earliest starts and finishes, in s.
    """

    deadline: float
    worth: FloatArray
    arcs: FloatArray
    starts: FloatArray
    total: float
    time: FloatArray
    begin: FloatArray
    end: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Network:
    """Arrays of `probcalc.kernels.timecost.advance`."""

    arrays: tuple[IntArray, ...]
    source: int
    sink: int
    entries: IntArray
    tick: float
    unit: float
    initial: IntArray


@dataclass(slots=True, eq=False)
class Relaxation:
    """A walk along the optima of all deadlines, from slow to fast.

    Attributes
    ----------
    problem : Problem
    least : Snapshot
        The optimum without a deadline: the energy-minimal makespan.
    """

    problem: Problem
    least: Snapshot
    _network: _Network
    _state: list[Any]

    @classmethod
    def of(cls, problem: Problem) -> Relaxation:
        """Set out and walk to the energy-minimal makespan."""
        network = _network(problem)
        first = network.arrays[4]
        segment = first[:-1].copy()
        flow = np.zeros(segment.size, dtype=np.int64)
        state = [segment, flow, network.initial.copy(), 0]
        made = cls(problem, None, network, state)  # type: ignore[arg-type]
        made._advance(round(problem.base / network.unit), 0)
        made.least = made._snapshot(made.makespan)
        return made

    @property
    def makespan(self) -> float:
        """Where the walk stands, in s."""
        return float(self._state[2][self._network.sink]) * self._network.tick

    def at(self, deadline: float) -> Snapshot:
        """Walk on to a deadline in s, no later than the last one, and look."""
        if deadline >= self.makespan:
            # Without a step since, the optimum is the same; its bound holds as well.
            return self._snapshot(deadline)
        self._advance(2**60, math.floor(deadline / self._network.tick))
        return self._snapshot(deadline)

    def _advance(self, most: int, target: int) -> None:
        from probcalc.kernels import timecost

        advance: Any = timecost.advance
        network = self._network
        arrays: Any = self._state[:-1]
        sent = self._state[-1]
        sent, _, _ = advance(
            *network.arrays, *arrays, network.source, network.sink, sent, most, target
        )
        self._state[3] = sent

    def _snapshot(self, deadline: float) -> Snapshot:
        network, graph = self._network, self.problem.graph
        n, m = self.problem.order.size, graph.source.size
        _, flow, price, sent = self._state
        worth = flow[:n] * network.unit
        arcs = flow[n : n + m] * network.unit
        starts = np.zeros(n)
        into = network.entries
        starts[into] = flow[n + m : n + m + into.size] * network.unit
        begin, end = price[0 : 2 * n : 2], price[1 : 2 * n : 2]
        tick = network.tick
        return Snapshot(
            deadline, worth, arcs, starts, sent * network.unit, (end - begin) * tick,
            begin * tick, end * tick,
        )  # fmt: skip


def bound_of(
    problem: Problem, snapshot: Snapshot, deadline: float, fastest: float
) -> float:
    """Energy in J that no plan within a deadline goes below.

    Parameters
    ----------
    problem : Problem
    snapshot : Snapshot
        Of any deadline; its own one gives the highest bound.
    deadline, fastest : float
        In s; no plan takes less than the latter.
    """
    # Weak duality. Split the flow into paths: each path takes no longer than M, so
    #   B M + sum x >= B M + sum x + sum over paths of flow (time of path - M)
    #              = sum over nodes of (x + f T) + sum over arcs of f lag + (B - F) M,
    # whatever the points; and the least of that over points, and over M between the
    # fastest makespan and the deadline, is a bound whether or not the flow is optimal.
    weighed = (
        problem.cost + np.repeat(snapshot.worth, np.diff(problem.first)) * problem.time
    )
    nodes = np.minimum.reduceat(weighed, problem.first[:-1])
    rest = problem.base - snapshot.total
    # No choice takes longer than all nodes at their slowest point.
    deadline = min(deadline, problem.makespan(problem.first[1:] - 1))
    waits = float(snapshot.arcs @ problem.graph.lag)
    waits += float(snapshot.starts @ problem.graph.release)
    terms = [*nodes.tolist(), waits, min(rest * deadline, rest * fastest)]
    # Lower by more than sums and products can have rounded up.
    size = float(np.abs(weighed).max(initial=0.0)) * nodes.size
    size += abs(waits) + abs(terms[-1])
    return math.fsum(terms) - _ROUNDING * size


def _network(problem: Problem) -> _Network:
    from probcalc.kernels.graph import levels
    from probcalc.kernels.timecost import OPEN, longest_from

    graph, n = problem.graph, problem.order.size
    target = np.repeat(np.arange(n), np.diff(graph.before))
    last = np.ones(n, dtype=bool)
    last[graph.source] = False
    entries = np.flatnonzero((np.diff(graph.before) == 0) | (graph.release > 0.0))
    exits = np.flatnonzero(last)
    source, sink = 2 * n, 2 * n + 1
    tails = np.concatenate(
        [2 * np.arange(n), 2 * graph.source + 1, np.full(entries.size, source),
         2 * exits + 1]
    )  # fmt: skip
    heads = np.concatenate(
        [2 * np.arange(n) + 1, 2 * target, 2 * entries, np.full(exits.size, sink)]
    )
    sizes, times, slopes = _segments(problem)
    waits = np.concatenate([graph.lag, graph.release[entries], np.zeros(exits.size)])
    lengths = np.concatenate([times, waits])
    steep = np.concatenate([slopes, np.full(waits.size, np.inf)])
    first = np.concatenate(
        [[0], np.cumsum(np.concatenate([sizes, np.ones(waits.size, dtype=np.int64)]))]
    ).astype(np.int64)
    horizon = float(times[first[:n]].sum() + waits.sum())
    tick = 2.0 ** math.ceil(math.log2(horizon / _TICKS)) if horizon > 0.0 else 1.0
    finite = np.isfinite(steep)
    most = problem.base + float(n) * float(steep[finite].max(initial=0.0))
    unit = 2.0 ** math.ceil(math.log2(most / _UNITS)) if most > 0.0 else 1.0
    upto = np.full(steep.size, OPEN, dtype=np.int64)
    upto[finite] = np.rint(steep[finite] / unit).astype(np.int64)
    ticks = np.rint(lengths / tick).astype(np.int64)
    vertex = np.concatenate([tails, heads])
    code = np.concatenate([2 * np.arange(tails.size), 2 * np.arange(tails.size) + 1])
    order = np.argsort(vertex, kind="stable")
    starts = np.searchsorted(vertex[order], np.arange(2 * n + 3)).astype(np.int64)
    level = levels(2 * n + 2, tails, heads)
    arcs = np.argsort(level[heads], kind="stable")
    initial = longest_from(arcs, heads, tails, ticks[first[:-1]], 2 * n + 2)
    return _Network(
        (starts, code[order], tails, heads, first, ticks, upto), source, sink, entries,
        tick, unit, initial,
    )  # fmt: skip


def _segments(problem: Problem) -> tuple[IntArray, FloatArray, FloatArray]:
    """Corners of the hull of every node, slow first, and the slopes between them.

    A flow up to the slope in W leaves a node at the corner; beyond it, it takes the
    next faster one.
    """
    from probcalc.kernels.pareto import hull

    memo: dict[tuple[bytes, bytes], tuple[FloatArray, FloatArray]] = {}
    sizes, times, slopes = [], [], []
    for a, b in zip(
        problem.first[:-1].tolist(), problem.first[1:].tolist(), strict=True
    ):
        time, cost = problem.time[a:b], problem.cost[a:b]
        key = (time.tobytes(), cost.tobytes())
        if key not in memo:
            corners = hull(time, cost)[::-1]
            t, x = time[corners], cost[corners]
            slope = np.append((x[1:] - x[:-1]) / (t[:-1] - t[1:]), np.inf)
            memo[key] = t, slope
        t, slope = memo[key]
        sizes.append(t.size)
        times.append(t)
        slopes.append(slope)
    return (
        np.array(sizes, dtype=np.int64),
        np.concatenate(times),
        np.concatenate(slopes),
    )
