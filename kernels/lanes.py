"""Laying a directed acyclic graph out in steps of lanes, with few values kept alive.

A step takes up to `lanes` vertices none of which waits for another one of the step.
Each vertex reads at most two slots and writes one; a slot is free again once the last
reader of its value has run. Vertices with more predecessors get joins: vertices of no
duration that take a maximum on the way.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt

from probcalc.kernels.graph import levels

__all__ = ["Joined", "Lanes", "joined", "laid_out"]

IntArray = npt.NDArray[np.int64]

#: Predecessors that a lane reads.
READS = 2
#: What a step costs beside its lanes, in lanes.
STEP_COST = 6
#: Most lanes of a step: more would not stay in a core's cache.
MOST_LANES = 256


class Joined(NamedTuple):
    """A graph in which no vertex has more than two predecessors.

    Attributes
    ----------
    vertices : int
        The vertices given come first, then the joins.
    sources, targets : ndarray, shape (edges,)
    """

    vertices: int
    sources: IntArray
    targets: IntArray


class Lanes(NamedTuple):
    """A schedule of vertices in steps.

    Attributes
    ----------
    vertex : ndarray of int64, shape (steps, lanes)
        -1 where a lane is idle.
    reads : ndarray of int32, shape (steps, lanes, 2)
        Slots; `slots` stands for a row that is always zero.
    writes : ndarray of int32, shape (steps, lanes)
        Slot; ``slots + 1`` of an idle lane is never read.
    slots : int
    last : int
        Slot of the vertex that all others lead to, at the end.
    """

    vertex: IntArray
    reads: npt.NDArray[np.int32]
    writes: npt.NDArray[np.int32]
    slots: int
    last: int


def joined(n: int, sources: IntArray, targets: IntArray) -> Joined:
    """Give every vertex at most two predecessors, and the graph one last vertex.

    Vertices with the same predecessors share their joins.
    """
    follows = np.zeros(n, dtype=np.int64)
    np.add.at(follows, sources, 1)
    order = np.lexsort((sources, targets))
    sources, targets = sources[order], targets[order]
    counts = np.bincount(targets, minlength=n)
    if int(counts.max(initial=0)) <= READS and int((follows == 0).sum()) == 1:
        return Joined(n, sources, targets)
    few = counts[targets] <= READS
    out_sources, out_targets = [sources[few]], [targets[few]]
    starts = np.concatenate([[0], np.cumsum(counts)])
    groups: dict[bytes, list[int]] = {}
    for v in np.flatnonzero(counts > READS):
        key = sources[starts[v] : starts[v + 1]].tobytes()
        groups.setdefault(key, []).append(int(v))
    total = n
    new_sources: list[int] = []
    new_targets: list[int] = []

    def halved(ends: list[int]) -> list[int]:
        nonlocal total
        while len(ends) > READS:
            pairs = ends[: len(ends) // 2 * 2]
            level = list(range(total, total + len(pairs) // 2))
            new_sources.extend(pairs)
            new_targets.extend(np.repeat(level, 2).tolist())
            total += len(level)
            ends = level + ends[len(pairs) :]
        return ends

    for key, members in groups.items():
        ends = halved(np.frombuffer(key, dtype=np.int64).tolist())
        for v in members:
            new_sources.extend(ends)
            new_targets.extend([v] * len(ends))
    ends = np.flatnonzero(follows == 0).tolist()
    if len(ends) > 1:
        ends = halved(ends)
        new_sources.extend(ends)
        new_targets.extend([total] * len(ends))
        total += 1
    out_sources.append(np.array(new_sources, dtype=np.int64))
    out_targets.append(np.array(new_targets, dtype=np.int64))
    return Joined(total, np.concatenate(out_sources), np.concatenate(out_targets))


def laid_out(graph: Joined) -> Lanes:
    """Lay a joined graph out, with the number of lanes that wastes least, up to 256."""
    n, sources, targets = graph
    level = levels(n, sources, targets)
    width = np.bincount(level)
    sizes = sorted({int(w) for w in np.quantile(width, [0.5, 0.8, 0.95, 1.0])})
    sizes = sorted({*sizes, *(1 << k for k in range(max(sizes).bit_length() + 1))})
    sizes = [w for w in sizes if w <= MOST_LANES]
    cost = [int((-(-width // w)).sum()) * (w + STEP_COST) for w in sizes]
    lanes = sizes[int(np.argmin(cost))]
    # By level, then as numbered; each level starts a new step.
    order = np.lexsort((np.arange(n), level))
    rank = np.arange(n) - np.concatenate([[0], np.cumsum(width)])[level[order]]
    before = np.concatenate([[0], np.cumsum(-(-width // lanes))])
    step = np.empty(n, dtype=np.int64)
    lane = np.empty(n, dtype=np.int64)
    step[order] = before[level[order]] + rank // lanes
    lane[order] = rank % lanes
    vertex = np.full((int(before[-1]), lanes), -1, dtype=np.int64)
    vertex[step, lane] = np.arange(n)
    reader = np.full(n, -1, dtype=np.int64)
    np.maximum.at(reader, sources, step[targets])
    slot, slots = _slots(vertex, reader)
    reads = np.full((*vertex.shape, READS), slots, dtype=np.int32)
    place = np.argsort(targets, kind="stable")
    by_target = targets[place]
    nth = np.arange(by_target.size) - np.searchsorted(by_target, by_target)
    reads[step[by_target], lane[by_target], nth] = slot[sources[place]]
    writes = np.where(vertex >= 0, slot[np.maximum(vertex, 0)], slots + 1)
    end = int(np.argmax(reader < 0))
    return Lanes(vertex, reads, writes.astype(np.int32), slots, int(slot[end]))


@nb.njit(cache=True)
def _slots(vertex: IntArray, reader: IntArray) -> tuple[IntArray, int]:
    """Slot of each vertex: free again after the step of its last reader."""
    steps, lanes = vertex.shape
    n = reader.size
    slot = np.zeros(n, dtype=np.int64)
    free = np.empty(n, dtype=np.int64)
    frees = 0
    used = 0
    # Vertices by the step of their last reader, as linked lists.
    head = np.full(steps, -1, dtype=np.int64)
    link = np.full(n, -1, dtype=np.int64)
    for v in range(n):
        if reader[v] >= 0:
            link[v] = head[reader[v]]
            head[reader[v]] = v
    for t in range(steps):
        for w in range(lanes):
            v = vertex[t, w]
            if v < 0:
                continue
            if frees > 0:
                frees -= 1
                slot[v] = free[frees]
            else:
                slot[v] = used
                used += 1
        v = head[t]
        while v >= 0:
            free[frees] = slot[v]
            frees += 1
            v = link[v]
    return slot, used
