"""The same longest paths as `probcalc.kernels.levelscan` in plain Numba loops.

Kept to check the scan bit by bit, and as the floor its speed is measured against.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from probcalc.kernels.philox import MULTIPLIER, ROUNDS, WEYL

__all__ = ["makespans"]

IntArray = npt.NDArray[np.int64]
TickArray = npt.NDArray[np.int32]
WordArray = npt.NDArray[np.uint32]
SlopeArray = npt.NDArray[np.float32]

BLOCK = 256


@nb.njit(cache=True)
def _words(first: int, counter: int, key: int, words: WordArray) -> None:
    for b in range(BLOCK):
        x = np.uint32(first + b)
        y = np.uint32(counter)
        k = np.uint32(key)
        for _ in range(ROUNDS):
            product = np.uint64(MULTIPLIER) * np.uint64(x)
            x = np.uint32(product >> np.uint64(32)) ^ k ^ y
            y = np.uint32(product)
            k = np.uint32(k + np.uint32(WEYL))
        words[b] = x


@nb.njit(cache=True)
def _node(
    words: WordArray,
    shift: int,
    limits: WordArray,
    ticks: TickArray,
    slopes: SlopeArray,
    a: TickArray,
    b: TickArray,
    finish: TickArray,
) -> None:
    if slopes.size == 0:
        for i in range(BLOCK):
            cell = np.int64(words[i] >> np.uint32(shift))
            row = 2 * cell + np.int64(words[i] >= limits[cell])
            finish[i] = max(a[i], b[i]) + ticks[row]
        return
    for i in range(BLOCK):
        cell = np.int64(words[i] >> np.uint32(shift))
        limit = limits[cell]
        above = words[i] >= limit
        row = 2 * cell + np.int64(above)
        begin = limit if above else np.uint32(cell << shift)
        over = np.float32(np.int32(words[i] - begin))
        finish[i] = max(a[i], b[i]) + ticks[row] + np.int32(over * slopes[row])


@nb.njit(cache=True)
def makespans(
    vertex: IntArray,
    reads: TickArray,
    writes: TickArray,
    kind: TickArray,
    draw: WordArray,
    shift: WordArray,
    cell: TickArray,
    limits: WordArray,
    values: TickArray,
    slopes: SlopeArray,
    slots: int,
    last: int,
    key: int,
    first: int,
    out: TickArray,
) -> None:
    """Makespans in ticks of samples first, first + 1, ..., without factors.

    Parameters
    ----------
    vertex, reads, writes : ndarray, shape (steps, lanes), (steps, lanes, 2), ...
        As in `probcalc.kernels.lanes.Lanes`.
    kind, draw : ndarray, shape (steps, lanes)
    shift, cell : ndarray, shape (kinds,)
        `Program.shift` and `Program.first`.
    limits, values, slopes : ndarray
        As in `probcalc.kernels.levelscan.Program`; no slopes where all are zero.
    out : ndarray of int32, shape (samples,)
        Filled in.
    """
    steps, lanes = vertex.shape
    held = np.zeros((slots + 2, BLOCK), dtype=np.int32)
    words = np.empty(BLOCK, dtype=np.uint32)
    done = 0
    while done < out.size:
        held[:, :] = 0
        for t in range(steps):
            for w in range(lanes):
                if vertex[t, w] < 0:
                    continue
                k = kind[t, w]
                _words(first + done, int(draw[t, w]), key, words)
                _node(
                    words,
                    int(shift[k]),
                    limits[cell[k] :],
                    values[2 * cell[k] :],
                    slopes[2 * cell[k] :],
                    held[reads[t, w, 0]],
                    held[reads[t, w, 1]],
                    held[writes[t, w]],
                )
        count = min(BLOCK, out.size - done)
        out[done : done + count] = held[last, :count]
        done += BLOCK
