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

BLOCK = 256


@nb.njit(cache=True)
def makespans(
    vertex: IntArray,
    reads: TickArray,
    writes: TickArray,
    law: TickArray,
    draw: WordArray,
    thresholds: WordArray,
    aliases: TickArray,
    ticks: TickArray,
    bits: int,
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
    law, draw : ndarray, shape (steps, lanes)
        Alias table and counter of each lane.
    thresholds, aliases, ticks : ndarray, shape (laws * 2^bits,)
    out : ndarray of int32, shape (samples,)
        Filled in.
    """
    steps, lanes = vertex.shape
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    down = np.uint32(32 - bits)
    up = np.uint32(bits)
    values = np.zeros((slots + 2, BLOCK), dtype=np.int32)
    word = np.empty(BLOCK, dtype=np.uint32)
    done = 0
    while done < out.size:
        values[:, :] = 0
        for t in range(steps):
            for w in range(lanes):
                if vertex[t, w] < 0:
                    continue
                counter = np.uint64(draw[t, w])
                for b in range(BLOCK):
                    x = np.uint64(first + done + b)
                    y = counter
                    k = np.uint64(key)
                    for _ in range(ROUNDS):
                        product = np.uint64(MULTIPLIER) * x
                        x = (product >> half) ^ k ^ y
                        y = product & low
                        k = (k + np.uint64(WEYL)) & low
                    word[b] = np.uint32(x)
                base = np.int64(law[t, w]) << bits
                a = values[reads[t, w, 0]]
                c = values[reads[t, w, 1]]
                into = values[writes[t, w]]
                for b in range(BLOCK):
                    cell = np.int64(word[b] >> down)
                    if not np.uint32(word[b] << up) < thresholds[base + cell]:
                        cell = np.int64(aliases[base + cell])
                    into[b] = max(a[b], c[b]) + ticks[base + cell]
        count = min(BLOCK, out.size - done)
        for b in range(count):
            out[done + b] = values[last, b]
        done += BLOCK
