"""Continuous time-cost trade-off of a graph, by its dual: flow of a price of time.

Every vertex of the graph takes a time on a convex, falling, piecewise linear cost. The
cheapest times within a deadline are a linear programme. Its dual is a flow from start
to end, of joules per second: what a second of the makespan is worth, dealt out among
the paths that take that long. A vertex under flow f takes the time at which its own
cost falls by f a second. Raising the flow from 0 along longest paths (the primal-dual
method of minimum-cost flow, that is Fulkerson's and Kelley's project crashing) walks
through the optima of all deadlines, from the slowest to the fastest.

Times are whole ticks and flows whole units, so ties are ties and flow is conserved
exactly.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["OPEN", "advance", "longest_from"]

IntArray = npt.NDArray[np.int64]

#: Capacity of what has none.
OPEN = np.int64(1) << 62


@nb.njit(cache=True)
def longest_from(
    order: IntArray, heads: IntArray, tails: IntArray, lengths: IntArray, n: int
) -> IntArray:
    """Longest distance of every vertex, over arcs sorted so that sources are final."""
    at = np.zeros(n, dtype=np.int64)
    for a in order:
        at[heads[a]] = max(at[heads[a]], at[tails[a]] + lengths[a])
    return at


@nb.njit(cache=True)
def _residual(
    code: int,
    tails: IntArray,
    heads: IntArray,
    first: IntArray,
    lengths: IntArray,
    upto: IntArray,
    segment: IntArray,
    flow: IntArray,
    price: IntArray,
) -> tuple[int, int, int]:
    """Where a residual arc leads, how far it is from being tight, what it can carry.

    Code 2a is arc a forwards, 2a + 1 backwards. An arc is a chain of segments
    ``first[a] .. first[a + 1]``, each with a length and carrying flow up to a total.
    """
    a = code >> 1
    span = price[heads[a]] - price[tails[a]]
    s = segment[a]
    if code & 1 == 0:
        return heads[a], span - lengths[s], upto[s] - flow[a]
    if flow[a] == 0:
        return tails[a], OPEN, 0
    low = upto[s - 1] if s > first[a] else 0
    if flow[a] == low:
        s -= 1
        low = upto[s - 1] if s > first[a] else 0
    return tails[a], lengths[s] - span, flow[a] - low


@nb.njit(cache=True)
def _push(
    code: int,
    amount: int,
    first: IntArray,
    upto: IntArray,
    segment: IntArray,
    flow: IntArray,
) -> None:
    a = code >> 1
    if code & 1 == 0:
        flow[a] += amount
        while flow[a] >= upto[segment[a]]:
            segment[a] += 1
    else:
        flow[a] -= amount
        while segment[a] > first[a] and flow[a] < upto[segment[a] - 1]:
            segment[a] -= 1


@nb.njit(cache=True)
def _augment(
    starts: IntArray,
    codes: IntArray,
    tails: IntArray,
    heads: IntArray,
    first: IntArray,
    lengths: IntArray,
    upto: IntArray,
    segment: IntArray,
    flow: IntArray,
    price: IntArray,
    source: int,
    sink: int,
    most: int,
) -> tuple[int, bool]:
    """Send as much as tight arcs carry (Dinic); and whether that has no end."""
    n = price.size
    sent = 0
    level = np.empty(n, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    pointer = np.empty(n, dtype=np.int64)
    path = np.empty(n + 1, dtype=np.int64)
    while sent < most:
        level[:] = -1
        level[source] = 0
        queue[0] = source
        head, tail = 0, 1
        while head < tail and level[sink] < 0:
            v = queue[head]
            head += 1
            for k in range(starts[v], starts[v + 1]):
                w, far, room = _residual(
                    codes[k], tails, heads, first, lengths, upto, segment, flow, price
                )
                if far == 0 and room > 0 and level[w] < 0:
                    level[w] = level[v] + 1
                    queue[tail] = w
                    tail += 1
        if level[sink] < 0:
            return sent, False
        pointer[:] = starts[:-1]
        depth = 0
        v = source
        while True:
            if v == sink:
                amount = OPEN
                for i in range(depth):
                    room = _residual(
                        path[i], tails, heads, first, lengths, upto, segment, flow,
                        price,
                    )[2]  # fmt: skip
                    amount = min(amount, room)
                if amount >= OPEN // 4:
                    return sent, True
                amount = min(amount, most - sent)
                for i in range(depth):
                    _push(path[i], amount, first, upto, segment, flow)
                sent += amount
                depth = 0
                v = source
                if sent >= most:
                    return sent, False
                continue
            moved = False
            while pointer[v] < starts[v + 1]:
                code = codes[pointer[v]]
                w, far, room = _residual(
                    code, tails, heads, first, lengths, upto, segment, flow, price
                )
                if far == 0 and room > 0 and level[w] == level[v] + 1:
                    path[depth] = code
                    depth += 1
                    v = w
                    moved = True
                    break
                pointer[v] += 1
            if moved:
                continue
            if depth == 0:
                break
            depth -= 1
            code = path[depth]
            v = tails[code >> 1] if code & 1 == 0 else heads[code >> 1]
            pointer[v] += 1
    return sent, False


@nb.njit(cache=True)
def _distances(
    starts: IntArray,
    codes: IntArray,
    tails: IntArray,
    heads: IntArray,
    first: IntArray,
    lengths: IntArray,
    upto: IntArray,
    segment: IntArray,
    flow: IntArray,
    price: IntArray,
    source: int,
    sink: int,
) -> IntArray:
    """How far every vertex is from being reached by tight arcs (Dijkstra).

    Never farther than the sink, beyond which nothing is looked for.
    """
    n = price.size
    far = np.full(n, OPEN, dtype=np.int64)
    far[source] = 0
    keys = np.empty(codes.size + 1, dtype=np.int64)
    names = np.empty(codes.size + 1, dtype=np.int64)
    keys[0], names[0] = 0, source
    size = 1
    while size > 0:
        key, v = keys[0], names[0]
        size -= 1
        i = 0
        last, name = keys[size], names[size]
        while True:
            c = 2 * i + 1
            if c >= size:
                break
            if c + 1 < size and keys[c + 1] < keys[c]:
                c += 1
            if keys[c] >= last:
                break
            keys[i], names[i] = keys[c], names[c]
            i = c
        keys[i], names[i] = last, name
        if key > far[v]:
            continue
        if v == sink:
            break
        for k in range(starts[v], starts[v + 1]):
            w, more, room = _residual(
                codes[k], tails, heads, first, lengths, upto, segment, flow, price
            )
            if room > 0 and key + more < far[w] and key + more < far[sink]:
                far[w] = key + more
                i = size
                size += 1
                while i > 0 and keys[(i - 1) >> 1] > far[w]:
                    up = (i - 1) >> 1
                    keys[i], names[i] = keys[up], names[up]
                    i = up
                keys[i], names[i] = far[w], w
    return np.minimum(far, far[sink])


@nb.njit(cache=True)
def advance(
    starts: IntArray,
    codes: IntArray,
    tails: IntArray,
    heads: IntArray,
    first: IntArray,
    lengths: IntArray,
    upto: IntArray,
    segment: IntArray,
    flow: IntArray,
    price: IntArray,
    source: int,
    sink: int,
    sent: int,
    most: int,
    target: int,
) -> tuple[int, bool, int]:
    """Raise the flow until the longest path is a target, or the flow has some size.

    Parameters
    ----------
    starts, codes : ndarray of int64
        Residual arcs out of each vertex, as `_residual` numbers them.
    tails, heads, first : ndarray of int64
        Ends of the arcs, and where their segments begin.
    lengths, upto : ndarray of int64
        Of the segments: falling lengths, rising totals that end in `OPEN`.
    segment, flow, price : ndarray of int64
        The state, changed in place: segment and flow of every arc, and the earliest
        time of every vertex under it.
    sent, most : int
        Flow so far and the flow to stop at.
    target : int
        Length to stop at.

    Returns
    -------
    sent : int
    fastest : bool
        Whether no flow makes the longest path any shorter.
    phases : int
    """
    phases = 0
    while sent < most and price[sink] >= target:
        more, endless = _augment(
            starts, codes, tails, heads, first, lengths, upto, segment, flow, price,
            source, sink, most - sent,
        )  # fmt: skip
        sent += more
        if endless:
            return sent, True, phases
        if sent >= most or price[sink] == target:
            break
        phases += 1
        far = _distances(
            starts, codes, tails, heads, first, lengths, upto, segment, flow, price,
            source, sink,
        )  # fmt: skip
        # Prices fall by the distance, no farther than to the target: any part of the
        # step is an optimum as well, for the flow does not change along it.
        step = min(far[sink], price[sink] - target)
        for v in range(price.size):
            price[v] -= min(far[v], step)
        if step == 0:
            break
    return sent, False, phases
