"""Joint masses of a few times on one grid: moved on, branched off, and met.

The first axis holds a time, every further axis the distance of another time from it.
Distances stay within a few durations however long a plan is, so that the box that
holds nearly all mass grows with the plan along the first axis alone. Every operation
adds and multiplies masses that are not negative: nothing cancels.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["branched", "convolved", "met", "rebased", "thin_ends"]

FloatArray = npt.NDArray[np.float64]

#: Axes that `rebased` takes.
AXES = 4


@nb.njit(cache=True)
def convolved(mass: FloatArray, duration: FloatArray) -> FloatArray:
    """Mass of x + T along the last axis; T independent of all else.

    Parameters
    ----------
    mass : ndarray, shape (rows, n)
    duration : ndarray, shape (m,)

    Returns
    -------
    ndarray, shape (rows, n + m - 1)
    """
    rows, n = mass.shape
    out = np.zeros((rows, n + duration.size - 1))
    for r in range(rows):
        for k in range(duration.size):
            weight = duration[k]
            if weight > 0.0:
                for j in range(n):
                    out[r, j + k] += weight * mass[r, j]
    return out


@nb.njit(cache=True)
def branched(mass: FloatArray, duration: FloatArray) -> FloatArray:
    """Joint mass of x and x + T; T independent of all else.

    Parameters
    ----------
    mass : ndarray, shape (rows, n)
    duration : ndarray, shape (m,)

    Returns
    -------
    ndarray, shape (rows, n, n + m - 1)
    """
    rows, n = mass.shape
    out = np.zeros((rows, n, n + duration.size - 1))
    for r in range(rows):
        for j in range(n):
            for k in range(duration.size):
                out[r, j, j + k] = mass[r, j] * duration[k]
    return out


@nb.njit(cache=True)
def met(
    mass: FloatArray, duration: FloatArray, shift: int, keep: bool
) -> tuple[FloatArray, int]:
    """Joint mass of x and max(z, x + T), or of the maximum alone; T independent.

    Parameters
    ----------
    mass : ndarray, shape (rows, n, points)
        Of x and z.
    duration : ndarray, shape (m,)
    shift : int
        Index of z at which x + T is, for the first x and the first T.
    keep : bool
        Whether x stays.

    Returns
    -------
    ndarray, shape (rows, n or 1, points)
    int
        Index of z at which the first point is.
    """
    rows, n, points = mass.shape
    m = duration.size
    low = max(0, shift)
    high = max(points - 1, n + m - 2 + shift)
    out = np.zeros((rows, n if keep else 1, high - low + 1))
    for r in range(rows):
        for i in range(n):
            start = i + shift
            # P(max = y) = P(z = y) P(x + T <= y) + P(z < y) P(x + T = y).
            below = 0.0
            for y in range(min(low, points)):
                below += mass[r, i, y]
            at_most = 0.0
            for k in range(min(max(low - start, 0), m)):
                at_most += duration[k]
            into = i if keep else 0
            for y in range(low, max(points - 1, start + m - 1) + 1):
                here = mass[r, i, y] if y < points else 0.0
                k = y - start
                step = duration[k] if 0 <= k < m else 0.0
                at_most += step
                out[r, into, y - low] += here * at_most + below * step
                below += here
    return out, low


@nb.njit(cache=True)
def _rebased(
    mass: FloatArray, moves: npt.NDArray[np.int64], shape: tuple[int, int, int, int]
) -> FloatArray:
    out = np.zeros(shape)
    first, one, two, last = mass.shape
    for a in range(first):
        for b in range(one):
            for c in range(two):
                for d in range(last):
                    back = last - 1 - d
                    out[
                        a + d, b + moves[0] * back, c + moves[1] * back, back
                    ] = mass[a, b, c, d]  # fmt: skip
    return out


def rebased(mass: FloatArray) -> FloatArray:
    """Take distances from the last axis' time instead of the first's.

    With n points on the last axis, whose distance d starts at index 0: the first axis
    becomes the last's time (index a + d), the last minus the distance (n - 1 - d), and
    every other one moves by n - 1 - d.

    Parameters
    ----------
    mass : ndarray of 2 to 4 axes
    """
    others = mass.shape[1:-1]
    missing = AXES - mass.ndim
    n = mass.shape[-1]
    moves = np.array([1] * len(others) + [0] * missing, dtype=np.int64)
    wide = [s + n - 1 for s in others]
    one, two = (wide + [1] * missing)[:2]
    box = mass.reshape((mass.shape[0], *others, *[1] * missing, n))
    shape = (mass.shape[0] + n - 1, one, two, n)
    out = _rebased(np.ascontiguousarray(box), moves, shape)
    return out.reshape((shape[0], *wide, n))


def thin_ends(marginal: FloatArray, share: float) -> tuple[int, int]:
    """Points to take off both ends, each end with at most `share` of mass."""
    low = int(np.searchsorted(np.cumsum(marginal), share, side="right"))
    high = int(np.searchsorted(np.cumsum(marginal[::-1]), share, side="right"))
    if low + high >= marginal.size:
        return 0, 0
    return low, high
