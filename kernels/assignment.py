"""One point per vertex of a graph, changed vertex by vertex within a deadline.

Points of a vertex stand one after the other, by rising time and falling cost. Vertices
are numbered such that arcs go from lower to higher numbers.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["ends", "filled", "improved", "makespans"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@nb.njit(cache=True)
def _heads(
    before: IntArray,
    source: IntArray,
    lag: FloatArray,
    release: FloatArray,
    duration: FloatArray,
    head: FloatArray,
) -> float:
    """Earliest start of every vertex, in place; the last finish."""
    last = 0.0
    for v in range(duration.size):
        start = release[v]
        for k in range(before[v], before[v + 1]):
            u = source[k]
            start = max(start, head[u] + duration[u] + lag[k])
        head[v] = start
        last = max(last, start + duration[v])
    return last


@nb.njit(cache=True)
def _tails(
    before: IntArray,
    source: IntArray,
    lag: FloatArray,
    duration: FloatArray,
    tail: FloatArray,
) -> None:
    """Longest path from the finish of every vertex to the end, in place."""
    tail[:] = 0.0
    for v in range(duration.size - 1, -1, -1):
        rest = tail[v] + duration[v]
        for k in range(before[v], before[v + 1]):
            u = source[k]
            tail[u] = max(tail[u], rest + lag[k])


@nb.njit(cache=True)
def ends(
    before: IntArray,
    source: IntArray,
    lag: FloatArray,
    release: FloatArray,
    duration: FloatArray,
) -> tuple[float, FloatArray]:
    """Longest path, and the earliest start of every vertex.

    Parameters
    ----------
    before, source, lag : ndarray
        Arcs into vertex v are ``before[v] .. before[v + 1]``.
    release, duration : ndarray, shape (vertices,)
    """
    head = np.empty(duration.size)
    return _heads(before, source, lag, release, duration, head), head


@nb.njit(cache=True)
def makespans(
    before: IntArray,
    source: IntArray,
    lag: FloatArray,
    release: FloatArray,
    durations: FloatArray,
) -> FloatArray:
    """Longest path for every row of durations, shape (rows, vertices)."""
    found = np.empty(durations.shape[0])
    head = np.empty(durations.shape[1])
    for r in range(durations.shape[0]):
        found[r] = _heads(before, source, lag, release, durations[r], head)
    return found


@nb.njit(cache=True)
def _fill(
    before: IntArray,
    source: IntArray,
    lag: FloatArray,
    release: FloatArray,
    first: IntArray,
    time: FloatArray,
    cost: FloatArray,
    worth: FloatArray,
    deadline: float,
    held: int,
    pick: IntArray,
    duration: FloatArray,
    head: FloatArray,
    tail: FloatArray,
    changed: IntArray,
) -> tuple[float, int]:
    """Slow vertices down where there is slack, the best first; what that saves."""
    saved = 0.0
    count = 0
    while count < changed.size:
        _heads(before, source, lag, release, duration, head)
        _tails(before, source, lag, duration, tail)
        best = 0.0
        chosen = -1
        point = -1
        for v in range(duration.size):
            p = pick[v]
            if p + 1 == first[v + 1] or v == held:
                continue
            most = deadline - head[v] - tail[v]
            if time[p + 1] > most:
                continue
            q = p + 1
            while q + 1 < first[v + 1] and time[q + 1] <= most:
                q += 1
            # A second of the vertex is worth its share of the price of time: what is
            # saved beyond that counts, or else what is saved at all, by the second.
            while q > p:
                gain = cost[p] - cost[q]
                span = time[q] - time[p]
                score = gain / (worth[v] * span + 1e-9 * gain)
                if score > best:
                    best, chosen, point = score, v, q
                q -= 1
        if chosen < 0:
            break
        p = pick[chosen]
        duration[chosen] = time[point]
        if _heads(before, source, lag, release, duration, head) > deadline:
            # A sum rounded the other way: one point less.
            point -= 1
            duration[chosen] = time[point]
            if point == p or (
                _heads(before, source, lag, release, duration, head) > deadline
            ):
                duration[chosen] = time[p]
                break
        saved += cost[p] - cost[point]
        pick[chosen] = point
        changed[count] = chosen
        count += 1
    return saved, count


@nb.njit(cache=True)
def filled(
    before: IntArray,
    source: IntArray,
    lag: FloatArray,
    release: FloatArray,
    first: IntArray,
    time: FloatArray,
    cost: FloatArray,
    worth: FloatArray,
    deadline: float,
    start: IntArray,
) -> IntArray:
    """Points of vertices, slowed down from a start while the deadline is kept.

    Parameters
    ----------
    first : ndarray of int64, shape (vertices + 1,)
        Where the points of each vertex begin.
    time, cost : ndarray, shape (points,)
    worth : ndarray, shape (vertices,)
        Cost that a unit of time of the vertex is worth.
    start : ndarray of int64, shape (vertices,)
        Points to begin with, fast enough for the deadline.
    """
    n = start.size
    pick = start.copy()
    _fill(
        before, source, lag, release, first, time, cost, worth, deadline, -1, pick,
        time[pick], np.empty(n), np.empty(n), np.empty(64 * n, dtype=np.int64),
    )  # fmt: skip
    return pick


@nb.njit(cache=True)
def improved(
    before: IntArray,
    source: IntArray,
    lag: FloatArray,
    release: FloatArray,
    first: IntArray,
    time: FloatArray,
    cost: FloatArray,
    worth: FloatArray,
    deadline: float,
    start: IntArray,
    rounds: int,
) -> IntArray:
    """Local search: one vertex faster, others slower in the slack that leaves.

    Parameters
    ----------
    rounds : int
        Most passes over all vertices; it stops after one without a gain.
    """
    n = start.size
    pick = start.copy()
    duration = time[pick]
    head, tail = np.empty(n), np.empty(n)
    changed = np.empty(64 * n, dtype=np.int64)
    trial = pick.copy()
    span = np.empty(n)
    for _ in range(rounds):
        better = False
        for v in range(n):
            for step in (1, 2):
                if pick[v] - step < first[v]:
                    break
                q = pick[v] - step
                trial[:] = pick
                span[:] = duration
                trial[v] = q
                span[v] = time[q]
                saved, count = _fill(
                    before, source, lag, release, first, time, cost, worth, deadline,
                    v, trial, span, head, tail, changed,
                )  # fmt: skip
                if saved > (cost[q] - cost[pick[v]]) * (1.0 + 1e-12):
                    pick[:] = trial
                    duration[:] = span
                    better = True
        if not better:
            break
    return pick
