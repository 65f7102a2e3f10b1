"""Random words as a function of a counter: Philox2x32-10, in NumPy and in Numba.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
A word depends on (key, counter) alone, so that any sample can be drawn anew on any
device, in any order. The form for JAX is in `probcalc.kernels.levelscan`.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["MULTIPLIER", "ROUNDS", "WEYL", "key_of", "philox", "philox_one"]

WordArray = npt.NDArray[np.uint32]

MULTIPLIER = 0xD256D193
WEYL = 0x9E3779B9
ROUNDS = 10
_MASK = (1 << 64) - 1


def key_of(seed: int, stream: int) -> int:
    """Return the 32-bit key of one stream of a 64-bit seed (SplitMix64's mixer)."""
    z = (seed + (stream + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 32


@nb.njit(cache=True)
def philox_one(c0: int, c1: int, key: int) -> tuple[int, int]:
    """Two words of one counter; all arguments and results are below 2^32."""
    x = np.uint64(c0)
    y = np.uint64(c1)
    k = np.uint64(key)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for _ in range(ROUNDS):
        product = np.uint64(MULTIPLIER) * x
        x = (product >> half) ^ k ^ y
        y = product & low
        k = (k + np.uint64(WEYL)) & low
    return np.int64(x), np.int64(y)


def philox(
    c0: npt.ArrayLike, c1: npt.ArrayLike, key: int
) -> tuple[WordArray, WordArray]:
    """Two words for every pair of counters.

    Parameters
    ----------
    c0, c1 : array_like of uint32
        Counters, broadcast against each other.
    key : int
        Below 2^32.

    Returns
    -------
    first, second : ndarray of uint32
    """
    x, y = np.broadcast_arrays(
        np.asarray(c0, dtype=np.uint64), np.asarray(c1, dtype=np.uint64)
    )
    for i in range(ROUNDS):
        product = np.uint64(MULTIPLIER) * x
        k = np.uint64((key + i * WEYL) & 0xFFFFFFFF)
        x = (product >> np.uint64(32)) ^ k ^ y
        y = product & np.uint64(0xFFFFFFFF)
    return x.astype(np.uint32), y.astype(np.uint32)
