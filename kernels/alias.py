"""Alias tables: one word to one atom of a finite law (Walker 1977, Vose 1991).

A table has 2^bits cells. The top bits of a word pick a cell; the word keeps the cell's
own atom if its remaining bits lie below the cell's threshold, else takes the alias.
Everything is in integers: each atom gets its probability to 2^-32.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["MAX_BITS", "alias_table", "drawn", "mass_of_table"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
WordArray = npt.NDArray[np.uint32]

#: Most bits of a cell number: 65,536 atoms, 16 bits left for thresholds.
MAX_BITS = 16


def alias_table(mass: FloatArray, bits: int) -> tuple[WordArray, npt.NDArray[np.int32]]:
    """Build the table of a law.

    Parameters
    ----------
    mass : ndarray, shape (atoms,)
        Non-negative, not all zero; at most 2^bits atoms.
    bits : int

    Returns
    -------
    thresholds : ndarray of uint32, shape (2^bits,)
        Left-aligned: compared with the word shifted left by `bits`.
    aliases : ndarray of int32, shape (2^bits,)
        The cell itself where it holds one atom alone.
    """
    cells = 1 << bits
    if not 0 < mass.size <= cells or bits > MAX_BITS:
        raise ValueError(f"{mass.size} atoms in 2^{bits} cells")
    whole = 1 << 32
    share = mass / mass.sum()
    units = np.zeros(cells, dtype=np.int64)
    units[: mass.size] = np.floor(share * whole + 0.5).astype(np.int64)
    # What rounding leaves over goes to the largest atom, relatively least.
    units[int(np.argmax(units))] += whole - int(units.sum())
    thresholds, aliases = _fill(units, whole // cells)
    own = aliases == np.arange(cells)
    words = np.where(own, 0, thresholds << bits)
    return words.astype(np.uint32), aliases.astype(np.int32)


@nb.njit(cache=True)
def _fill(units: IntArray, capacity: int) -> tuple[IntArray, IntArray]:
    cells = units.size
    left = units.copy()
    thresholds = np.full(cells, capacity, dtype=np.int64)
    aliases = np.arange(cells)
    small = np.empty(cells, dtype=np.int64)
    large = np.empty(cells, dtype=np.int64)
    smalls = larges = 0
    for i in range(cells):
        if left[i] < capacity:
            small[smalls] = i
            smalls += 1
        elif left[i] > capacity:
            large[larges] = i
            larges += 1
    while smalls > 0 and larges > 0:
        smalls -= 1
        i = small[smalls]
        j = large[larges - 1]
        thresholds[i] = left[i]
        aliases[i] = j
        left[j] -= capacity - left[i]
        if left[j] < capacity:
            larges -= 1
            small[smalls] = j
            smalls += 1
        elif left[j] == capacity:
            larges -= 1
    return thresholds, aliases


def drawn(
    words: WordArray, thresholds: WordArray, aliases: npt.NDArray[np.int32], bits: int
) -> npt.NDArray[np.int64]:
    """Atom of each word."""
    cell = (words >> np.uint32(32 - bits)).astype(np.int64) if bits else 0 * words
    cell = np.asarray(cell, dtype=np.int64)
    rest = words << np.uint32(bits)
    return np.where(rest < thresholds[cell], cell, aliases[cell].astype(np.int64))


def mass_of_table(
    thresholds: WordArray, aliases: npt.NDArray[np.int32], bits: int
) -> FloatArray:
    """Mass that a table gives to each atom, exactly."""
    cells = 1 << bits
    capacity = (1 << 32) // cells
    own = aliases == np.arange(cells)
    kept = np.where(own, capacity, thresholds.astype(np.int64) >> bits)
    units = kept.copy()
    np.add.at(units, aliases, capacity - kept)
    return units / float(1 << 32)
