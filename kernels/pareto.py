"""Points that nothing beats in two coordinates, and their sums and maxima.

A set is *reduced* when its times rise and its costs fall, both strictly. Of points with
equal time and cost the first one stays, so that the answer does not depend on how a
set was merged.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["hull", "maxima", "reduced", "sums"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def reduced(time: FloatArray, cost: FloatArray) -> IntArray:
    """Indices of the points that no other one beats, by rising time.

    A point beats another when it is no worse in both coordinates and better in one.

    Parameters
    ----------
    time, cost : ndarray, shape (points,)
    """
    order = np.lexsort((np.arange(time.size), cost, time))
    return order[_falling(cost[order])]


@nb.njit(cache=True)
def _falling(cost: FloatArray) -> IntArray:
    """Where a sequence goes below all that came before."""
    kept = np.empty(cost.size, dtype=np.int64)
    count = 0
    best = np.inf
    for i in range(cost.size):
        if cost[i] < best:
            best = cost[i]
            kept[count] = i
            count += 1
    return kept[:count].copy()


@nb.njit(cache=True)
def hull(time: FloatArray, cost: FloatArray) -> IntArray:
    """Indices of the corners of the lower convex hull of a reduced set.

    Points on the line between two corners are left out.
    """
    kept = np.empty(time.size, dtype=np.int64)
    count = 0
    for i in range(time.size):
        while count > 1:
            a, b = kept[count - 2], kept[count - 1]
            # b lies on or above the line from a to i
            left = (cost[b] - cost[a]) * (time[i] - time[a])
            if left < (cost[i] - cost[a]) * (time[b] - time[a]):
                break
            count -= 1
        kept[count] = i
        count += 1
    return kept[:count].copy()


@nb.njit(cache=True)
def maxima(
    time_a: FloatArray, cost_a: FloatArray, time_b: FloatArray, cost_b: FloatArray
) -> tuple[IntArray, IntArray]:
    """Reduced set of (max of times, sum of costs) over all pairs of two reduced sets.

    Within a time t the cheapest pair is the slowest of each set that takes no longer,
    so one walk along both suffices: O(points of a + points of b).

    Returns
    -------
    picks_a, picks_b : ndarray of int64
        The two points of each pair that is kept, by rising time.
    """
    most = time_a.size + time_b.size
    picks_a = np.empty(most, dtype=np.int64)
    picks_b = np.empty(most, dtype=np.int64)
    count = 0
    if time_a.size == 0 or time_b.size == 0:
        return picks_a[:0], picks_b[:0]
    i = j = -1
    limit = max(time_a[0], time_b[0])
    while True:
        while i + 1 < time_a.size and time_a[i + 1] <= limit:
            i += 1
        while j + 1 < time_b.size and time_b[j + 1] <= limit:
            j += 1
        # Sums can tie in floating point although one term fell: then the pair that
        # came first is as cheap and faster.
        total = cost_a[i] + cost_b[j]
        if (
            count == 0
            or total < cost_a[picks_a[count - 1]] + cost_b[picks_b[count - 1]]
        ):
            picks_a[count] = i
            picks_b[count] = j
            count += 1
        ahead = np.inf
        if i + 1 < time_a.size:
            ahead = time_a[i + 1]
        if j + 1 < time_b.size:
            ahead = min(ahead, time_b[j + 1])
        if ahead == np.inf:
            break
        limit = ahead
    return picks_a[:count].copy(), picks_b[:count].copy()


@nb.njit(cache=True)
def sums(
    time_a: FloatArray, cost_a: FloatArray, time_b: FloatArray, cost_b: FloatArray
) -> tuple[IntArray, IntArray]:
    """Reduced set of (sum of times, sum of costs) over all pairs of two reduced sets.

    The sums with one point of a are sorted already; these rows are merged by a heap of
    one entry a row, and what is beaten is dropped as it comes out. So memory is
    O(points of a + points kept), not of the product; time is O(product log a).

    Returns
    -------
    picks_a, picks_b : ndarray of int64
        The two points of each pair that is kept, by rising time.
    """
    m, n = time_a.size, time_b.size
    picks_a = np.empty(16, dtype=np.int64)
    picks_b = np.empty(16, dtype=np.int64)
    count = 0
    if m == 0 or n == 0:
        return picks_a[:0].copy(), picks_b[:0].copy()
    # Rising times of a make the first column sorted: that is a heap.
    row = np.arange(m)
    at = np.zeros(m, dtype=np.int64)
    size = m
    best = np.inf
    while size > 0:
        a = row[0]
        b = at[a]
        cost = cost_a[a] + cost_b[b]
        if cost < best:
            time = time_a[a] + time_b[b]
            if count > 0 and (
                time_a[picks_a[count - 1]] + time_b[picks_b[count - 1]] == time
            ):
                # Within one row times can tie in floating point, dear before cheap.
                count -= 1
            if count == picks_a.size:
                picks_a = np.concatenate((picks_a, np.empty_like(picks_a)))
                picks_b = np.concatenate((picks_b, np.empty_like(picks_b)))
            picks_a[count] = a
            picks_b[count] = b
            count += 1
            best = cost
        # What costs as much as the best so far or more, and comes later, is beaten.
        b += 1
        while b < n and cost_a[a] + cost_b[b] >= best:
            b += 1
        if b < n:
            at[a] = b
        else:
            size -= 1
            row[0] = row[size]
        _sink(row, size, at, time_a, cost_a, time_b, cost_b)
    return picks_a[:count].copy(), picks_b[:count].copy()


@nb.njit(cache=True)
def _before(
    x: int,
    y: int,
    at: IntArray,
    time_a: FloatArray,
    cost_a: FloatArray,
    time_b: FloatArray,
    cost_b: FloatArray,
) -> bool:
    """Whether the next sum of row x comes before that of row y."""
    tx, ty = time_a[x] + time_b[at[x]], time_a[y] + time_b[at[y]]
    if tx != ty:
        return tx < ty
    cx, cy = cost_a[x] + cost_b[at[x]], cost_a[y] + cost_b[at[y]]
    if cx != cy:
        return cx < cy
    return x < y


@nb.njit(cache=True)
def _sink(
    row: IntArray,
    size: int,
    at: IntArray,
    time_a: FloatArray,
    cost_a: FloatArray,
    time_b: FloatArray,
    cost_b: FloatArray,
) -> None:
    """Bring a heap in order whose root has changed."""
    i = 0
    while True:
        least = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < size and _before(
                row[child], row[least], at, time_a, cost_a, time_b, cost_b
            ):
                least = child
        if least == i:
            return
        row[i], row[least] = row[least], row[i]
        i = least
