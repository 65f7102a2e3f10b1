"""Directed graphs as arrays of edges: topological order, levels, paths, cycles."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = [
    "adjacency",
    "critical_counts",
    "cycle",
    "levels",
    "longest",
    "merged",
    "reaches",
]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@nb.njit(cache=True)
def adjacency(
    n: int, sources: IntArray, targets: IntArray
) -> tuple[IntArray, IntArray]:
    """Targets of every vertex: those of v are ``indices[starts[v]:starts[v + 1]]``.

    Parameters
    ----------
    n : int
        Number of vertices.
    sources, targets : ndarray of int64, shape (edges,)

    Returns
    -------
    starts : ndarray, shape (n + 1,)
    indices : ndarray, shape (edges,)
        In the order of the edges within each vertex.
    """
    starts = np.zeros(n + 1, dtype=np.int64)
    for e in range(sources.size):
        starts[sources[e] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    filled = starts[:-1].copy()
    indices = np.empty(targets.size, dtype=np.int64)
    for e in range(sources.size):
        v = sources[e]
        indices[filled[v]] = targets[e]
        filled[v] += 1
    return starts, indices


@nb.njit(cache=True)
def levels(n: int, sources: IntArray, targets: IntArray) -> IntArray:
    """Longest number of edges that lead to each vertex; -1 on and behind a cycle.

    Kahn's algorithm, O(vertices + edges).
    """
    starts, indices = adjacency(n, sources, targets)
    waiting = np.zeros(n, dtype=np.int64)
    for e in range(targets.size):
        waiting[targets[e]] += 1
    level = np.full(n, -1, dtype=np.int64)
    reached = np.zeros(n, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    head = tail = 0
    for v in range(n):
        if waiting[v] == 0:
            queue[tail] = v
            tail += 1
    while head < tail:
        v = queue[head]
        head += 1
        level[v] = reached[v]
        for k in range(starts[v], starts[v + 1]):
            w = indices[k]
            reached[w] = max(reached[w], level[v] + 1)
            waiting[w] -= 1
            if waiting[w] == 0:
                queue[tail] = w
                tail += 1
    return level


@nb.njit(cache=True)
def cycle(n: int, sources: IntArray, targets: IntArray) -> IntArray:
    """Vertices of one cycle, each followed by one of its targets; empty if none."""
    level = levels(n, sources, targets)
    # From a vertex that was never released, backwards along vertices of that kind: the
    # walk must come to itself, for each of them waits for another one.
    before = np.full(n, -1, dtype=np.int64)
    for e in range(sources.size):
        if level[sources[e]] < 0 and level[targets[e]] < 0:
            before[targets[e]] = sources[e]
    start = -1
    for v in range(n):
        if level[v] < 0 and before[v] >= 0:
            start = v
            break
    if start < 0:
        return np.empty(0, dtype=np.int64)
    seen = np.full(n, -1, dtype=np.int64)
    walk = np.empty(n + 1, dtype=np.int64)
    count = 0
    v = start
    while seen[v] < 0:
        seen[v] = count
        walk[count] = v
        count += 1
        v = before[v]
    return walk[seen[v] : count][::-1].copy()


@nb.njit(cache=True)
def reaches(
    starts: IntArray, indices: IntArray, level: IntArray, a: int, b: int
) -> bool:
    """Whether a path leads from a to b; vertices at or above b's level are not entered.

    Parameters
    ----------
    starts, indices : ndarray
        As `adjacency` gives them.
    level : ndarray, shape (n,)
        As `levels` gives it.
    """
    if a == b:
        return True
    seen = set()
    seen.add(a)
    stack = [a]
    while len(stack) > 0:
        v = stack.pop()
        for k in range(starts[v], starts[v + 1]):
            w = indices[k]
            if w == b:
                return True
            if level[w] < level[b] and w not in seen:
                seen.add(w)
                stack.append(w)
    return False


def merged(
    n: int, sources: IntArray, targets: IntArray, lags: FloatArray, kinds: IntArray
) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    """Edges without parallels: of several between two vertices the largest lag stays.

    The first kind stated for the pair stays with it. Edges come out by target, then by
    source.
    """
    key = targets * n + sources
    order = np.lexsort((np.arange(key.size), -lags, key))
    first = np.ones(key.size, dtype=bool)
    first[1:] = key[order][1:] != key[order][:-1]
    kept = order[first]
    stated = np.lexsort((np.arange(key.size), key))[first]
    return sources[kept], targets[kept], lags[kept], kinds[stated]


@nb.njit(cache=True)
def _longest(
    level: IntArray,
    sources: IntArray,
    targets: IntArray,
    lags: FloatArray,
    durations: FloatArray,
    releases: FloatArray,
) -> float:
    start = releases.copy()
    # Edges by the level of their target: all that lead to a source come before it.
    for e in np.argsort(level[targets], kind="mergesort"):
        v, w = sources[e], targets[e]
        start[w] = max(start[w], start[v] + durations[v] + lags[e])
    return (start + durations).max()


def longest(
    n: int,
    sources: IntArray,
    targets: IntArray,
    lags: FloatArray,
    durations: FloatArray,
    releases: FloatArray,
) -> float:
    """Longest path of an acyclic graph with durations of vertices and lags of edges."""
    level = levels(n, sources, targets)
    return float(_longest(level, sources, targets, lags, durations, releases))


@nb.njit(cache=True)
def critical_counts(
    order: IntArray,
    sources: IntArray,
    targets: IntArray,
    start: npt.NDArray[np.int32],
    finish: npt.NDArray[np.int32],
) -> IntArray:
    """How many samples have each vertex on a longest path; all ties count.

    A vertex is critical when it finishes last of all, or when a critical vertex that
    waits for it starts the moment it finishes.

    Parameters
    ----------
    order : ndarray of int64, shape (edges,)
        Edges such that all edges out of a vertex come before those into it.
    sources, targets : ndarray of int64, shape (edges,)
    start, finish : ndarray of int32, shape (vertices, samples)
    """
    n, samples = finish.shape
    critical = np.zeros((n, samples), dtype=np.bool_)
    for i in range(samples):
        last = finish[:, i].max()
        for v in range(n):
            critical[v, i] = finish[v, i] == last
    for e in order:
        v, w = sources[e], targets[e]
        for i in range(samples):
            if critical[w, i] and start[w, i] == finish[v, i]:
                critical[v, i] = True
    return critical.sum(axis=1)
