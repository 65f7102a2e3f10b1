"""Alias tables: one word to one atom of a finite law (Walker 1977, Vose 1991).

A table has 2^bits cells. The top bits of a word pick a cell; the word takes the cell's
first atom if it lies below the cell's limit, else its second. Everything is in
integers: each atom gets its probability to 2^-32.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["MAX_BITS", "alias_table", "bits_for", "drawn", "lengths", "mass_of_table"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
WordArray = npt.NDArray[np.uint32]
AtomArray = npt.NDArray[np.int32]

#: Most bits of a cell number: 65,536 atoms, 16 bits left for limits.
MAX_BITS = 16
_WORDS = 1 << 32


def bits_for(atoms: int) -> int:
    """Bits of a table for so many atoms, at least 1."""
    return max(atoms - 1, 1).bit_length()


def alias_table(mass: FloatArray, bits: int) -> tuple[WordArray, AtomArray]:
    """Build the table of a law.

    Parameters
    ----------
    mass : ndarray, shape (atoms,)
        Non-negative, not all zero; at most 2^bits atoms.
    bits : int

    Returns
    -------
    limits : ndarray of uint32, shape (2^bits,)
        Whole words, the number of the cell in their top bits.
    atoms : ndarray of int32, shape (2^bits, 2)
        For words below the limit, and for the others.
    """
    cells = 1 << bits
    if not 0 < mass.size <= cells or bits > MAX_BITS:
        raise ValueError(f"{mass.size} atoms in 2^{bits} cells")
    share = mass / mass.sum()
    units = np.zeros(cells, dtype=np.int64)
    units[: mass.size] = np.floor(share * _WORDS + 0.5).astype(np.int64)
    # What rounding leaves over goes to the largest atom, relatively least.
    units[int(np.argmax(units))] += _WORDS - int(units.sum())
    kept, aliases = _fill(units, _WORDS // cells)
    own = np.arange(cells)
    # A cell of one atom keeps it on both sides of its limit.
    limits = own * (_WORDS // cells) + np.where(aliases == own, 0, kept)
    return limits.astype(np.uint32), np.stack([own, aliases], 1).astype(np.int32)


@nb.njit(cache=True)
def _fill(units: IntArray, capacity: int) -> tuple[IntArray, IntArray]:
    cells = units.size
    left = units.copy()
    kept = np.full(cells, capacity, dtype=np.int64)
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
        kept[i] = left[i]
        aliases[i] = j
        left[j] -= capacity - left[i]
        if left[j] < capacity:
            larges -= 1
            small[smalls] = j
            smalls += 1
        elif left[j] == capacity:
            larges -= 1
    return kept, aliases


def lengths(limits: WordArray) -> IntArray:
    """Words below the limit of each cell, and the others, shape (2^bits, 2)."""
    capacity = _WORDS // limits.size
    below = limits.astype(np.int64) - np.arange(limits.size) * capacity
    return np.stack([below, capacity - below], axis=1)


def drawn(
    words: WordArray, limits: WordArray, atoms: AtomArray
) -> tuple[IntArray, FloatArray]:
    """Atom of each word, and where it lies among the words of its atom and cell.

    The place is uniform on [0, 1) and independent of the atom: what the choice of the
    atom leaves over of a word.
    """
    shift = 32 - (limits.size.bit_length() - 1)
    number = words.astype(np.int64)
    cell = number >> shift
    side = (words >= limits[cell]).astype(np.int64)
    begin = np.where(side, limits[cell].astype(np.int64), cell << shift)
    place = (number - begin) / lengths(limits)[cell, side]
    return atoms[cell, side].astype(np.int64), place


def mass_of_table(limits: WordArray, atoms: AtomArray) -> FloatArray:
    """Mass that a table gives to each atom, exactly."""
    units = np.zeros(limits.size, dtype=np.int64)
    np.add.at(units, atoms, lengths(limits))
    return units / float(_WORDS)
