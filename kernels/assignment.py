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
    largest: bool,
    pick: IntArray,
    duration: FloatArray,
    head: FloatArray,
    tail: FloatArray,
) -> float:
    """Slow vertices down where there is slack, the best first; what that saves.

    The vertex that is held stays as it is.
    """
    saved = 0.0
    while True:
        _heads(before, source, lag, release, duration, head)
        _tails(before, source, lag, duration, tail)
        best = 0.0
        chosen = point = -1
        for v in range(duration.size):
            p = pick[v]
            if v == held:
                continue
            most = deadline - head[v] - tail[v]
            for q in range(p + 1, first[v + 1]):
                if time[q] > most:
                    break
                # A second of the vertex is worth its share of the price of time: what
                # is saved by that, or what is saved at all.
                score = cost[p] - cost[q]
                if not largest:
                    score /= worth[v] * (time[q] - time[p]) + 1e-9 * score
                if score > best:
                    best, chosen, point = score, v, q
        if chosen < 0:
            return saved
        p = pick[chosen]
        duration[chosen] = time[point]
        if _heads(before, source, lag, release, duration, head) > deadline:
            duration[chosen] = time[p]  # a sum rounded the other way
            return saved
        saved += cost[p] - cost[point]
        pick[chosen] = point


@nb.njit(cache=True)
def _repair(
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
    most: float,
    pick: IntArray,
    duration: FloatArray,
    head: FloatArray,
    tail: FloatArray,
) -> float:
    """Speed vertices up until the deadline is kept; what that costs.

    Infinite where that is more than some most, or cannot be done.
    """
    paid = 0.0
    while _heads(before, source, lag, release, duration, head) > deadline:
        if paid >= most:
            return np.inf
        _tails(before, source, lag, duration, tail)
        best = np.inf
        chosen = point = -1
        for v in range(duration.size):
            p = pick[v]
            over = head[v] + duration[v] + tail[v] - deadline
            if over <= 0.0 or v == held:
                continue
            for q in range(p - 1, first[v] - 1, -1):
                # A vertex under more flow has more of the longest paths through it.
                span = min(time[p] - time[q], over)
                score = (cost[q] - cost[p]) / (span * (worth[v] + 1e-3))
                if score < best:
                    best, chosen, point = score, v, q
                if time[p] - time[q] > over:
                    break
        if chosen < 0:
            return np.inf
        paid += cost[point] - cost[pick[chosen]]
        pick[chosen] = point
        duration[chosen] = time[point]
    return paid


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
    largest: bool,
    start: IntArray,
) -> tuple[IntArray, bool]:
    """Points of vertices that keep a deadline, near those of a start.

    Vertices are sped up until the deadline is kept, then slowed down in the slack.

    Parameters
    ----------
    before, source, lag, release : ndarray
        As `ends` has them.
    first : ndarray of int64, shape (vertices + 1,)
        Where the points of each vertex begin.
    time, cost : ndarray, shape (points,)
    worth : ndarray, shape (vertices,)
        Cost that a unit of time of the vertex is worth.
    largest : bool
        Whether the largest saving goes first, or the one that uses least slack.
    start : ndarray of int64, shape (vertices,)

    Returns
    -------
    pick : ndarray of int64, shape (vertices,)
    kept : bool
        Whether they keep the deadline.
    """
    n = start.size
    pick = start.copy()
    duration = time[pick]
    head, tail = np.empty(n), np.empty(n)
    paid = _repair(
        before, source, lag, release, first, time, cost, worth, deadline, -1, np.inf,
        pick, duration, head, tail,
    )  # fmt: skip
    if paid == np.inf:
        return pick, False
    _fill(
        before, source, lag, release, first, time, cost, worth, deadline, -1, largest,
        pick, duration, head, tail,
    )  # fmt: skip
    return pick, True


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
    trials: int,
) -> IntArray:
    """Local search from points that keep the deadline.

    A vertex is moved by up to three points; where it became faster, others take the
    slack, and where it became slower, others make up for it. Moves that cost least
    beyond what the time they take or leave is worth are tried first.

    Parameters
    ----------
    rounds, trials : int
        Most passes, and moves tried in each; it stops after a pass without a gain.
    """
    n = start.size
    pick = start.copy()
    duration = time[pick]
    head, tail = np.empty(n), np.empty(n)
    trial, span = pick.copy(), duration.copy()
    loss = np.empty(6 * n)
    for _ in range(rounds):
        better = False
        loss[:] = np.inf
        for v in range(n):
            p = pick[v]
            for k in range(6):
                q = p + (k - 3 if k < 3 else k - 2)
                if first[v] <= q < first[v + 1]:
                    loss[6 * v + k] = cost[q] - cost[p] + worth[v] * (time[q] - time[p])
        order = np.argsort(loss)
        for i in order[: min(trials, order.size)]:
            if loss[i] == np.inf:
                break
            v, k = i // 6, i % 6
            q = pick[v] + (k - 3 if k < 3 else k - 2)
            if q < first[v] or q >= first[v + 1]:
                continue
            for largest in (False, True):
                trial[:] = pick
                span[:] = duration
                trial[v] = q
                span[v] = time[q]
                paid = cost[q] - cost[pick[v]]
                if q > pick[v]:
                    paid += _repair(
                        before, source, lag, release, first, time, cost, worth,
                        deadline, v, -paid, trial, span, head, tail,
                    )  # fmt: skip
                if paid == np.inf:
                    break
                saved = _fill(
                    before, source, lag, release, first, time, cost, worth, deadline,
                    v, largest, trial, span, head, tail,
                )  # fmt: skip
                if saved - paid > 1e-12 * (abs(paid) + saved):
                    pick[:] = trial
                    duration[:] = span
                    better = True
                    break
        if not better:
            break
    return pick
