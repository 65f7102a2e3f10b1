"""Who runs beside whom: mean excess of a total over one during windows of time."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["changes", "excess", "largest"]

#: Samples worked out together: one cache line of times.
TILE = 16


@nb.njit(cache=True)
def _ordered(
    key: npt.NDArray[np.int32],
    end: int,
    first: npt.NDArray[np.int32],
    order: npt.NDArray[np.int64],
) -> None:
    """Order keys from 0 to `end`, each with its number in the lower 32 bits.

    By about as many buckets as keys, then by insertion.
    """
    n = key.size
    shift = 0
    while end >> shift >= n:
        shift += 1
    first[:] = 0
    for e in range(n):
        first[(key[e] >> shift) + 1] += 1
    for b in range(n):
        first[b + 1] += first[b]
    for e in range(n):
        b = key[e] >> shift
        order[first[b]] = (np.int64(key[e]) << 32) | e
        first[b] += 1
    for k in range(1, n):
        x = order[k]
        at = k
        while at > 0 and order[at - 1] > x:
            order[at] = order[at - 1]
            at -= 1
        order[at] = x


@nb.njit(cache=True)
def excess(
    start: npt.NDArray[np.int32],
    finish: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int64],
    demand: npt.NDArray[np.float64],
    end: npt.NDArray[np.int32],
    slope: float,
    out: npt.NDArray[np.float32],
) -> None:
    """Add `slope` times the mean excess over one of the total demand in each window.

    Parameters
    ----------
    start, finish : ndarray of int32, shape (vertices, samples)
    rows : ndarray of int64, shape (users,)
        The vertices that demand anything.
    demand : ndarray, shape (users,)
    end : ndarray of int32, shape (samples,)
        No window ends later.
    out : ndarray of float32, shape (vertices, samples)
        Added to in place; nothing for windows of no length.
    """
    users, samples = rows.size, start.shape[1]
    key = np.empty((TILE, 2 * users), dtype=np.int32)
    first = np.empty(2 * users + 1, dtype=np.int32)
    order = np.empty(2 * users, dtype=np.int64)
    area = np.empty(2 * users)
    step = np.concatenate((demand, -demand))
    for begin in range(0, samples, TILE):
        width = min(TILE, samples - begin)
        for i in range(users):
            for s in range(width):
                key[s, i] = start[rows[i], begin + s]
                key[s, users + i] = finish[rows[i], begin + s]
        for s in range(width):
            _ordered(key[s], end[begin + s], first, order)
            total = summed = 0.0
            last = np.int64(0)
            for both in order:
                e, now = both & 0xFFFFFFFF, both >> 32
                # Sums of many leave rounding where they should meet the capacity.
                over = total - 1.0 if total > 1.0 + 1e-9 else 0.0
                summed += over * (now - last)
                last = now
                area[e] = summed
                total += step[e]
            for i in range(users):
                long = key[s, users + i] - key[s, i]
                if long > 0:
                    mean = (area[users + i] - area[i]) / long
                    out[rows[i], begin + s] += slope * mean


@nb.njit(cache=True)
def largest(
    after: npt.NDArray[np.float32],
    before: npt.NDArray[np.float32],
    ticks: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int64],
    count: int,
) -> float:
    """Largest size of (after - before) times ticks among some rows.

    `before` may have no rows, for nothing at all.
    """
    most = 0.0
    for v in rows:
        for s in range(count):
            moved = after[v, s] - (before[v, s] if before.shape[0] else 0.0)
            most = max(most, abs(moved) * ticks[v, s])
    return most


@nb.njit(cache=True)
def changes(
    ticks: npt.NDArray[np.int32],
    met: npt.NDArray[np.float32],
    slow: npt.NDArray[np.float32],
    slope: npt.NDArray[np.float32],
    threshold: npt.NDArray[np.float32],
    count: int,
) -> npt.NDArray[np.float64]:
    """Largest growth of durations by state and by overlap, largest and smallest state.

    Parameters
    ----------
    ticks, met : ndarray, shape (vertices, samples)
    slow : ndarray, shape (vertices, samples), or of no rows where nothing overlaps
    slope, threshold : ndarray, shape (vertices,)
    count : int
        Samples that count.

    Returns
    -------
    ndarray, shape (4, vertices)
    """
    found = np.zeros((4, ticks.shape[0]))
    for v in range(ticks.shape[0]):
        before, beside = np.float32(0.0), np.float32(0.0)
        high = low = met[v, 0]
        k, limit = slope[v], threshold[v]
        for s in range(count):
            x, t = met[v, s], np.float32(ticks[v, s])
            high, low = max(high, x), min(low, x)
            grown = t * k * max(x - limit, np.float32(0.0))
            before = max(before, grown)
            if slow.shape[0]:
                beside = max(beside, (t + grown) * slow[v, s])
        found[0, v], found[1, v] = before, beside
        found[2, v], found[3, v] = high, low
    return found
