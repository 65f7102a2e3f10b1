"""Summaries of simulated whole numbers that merge in any order.

Counts, exact sums, and a histogram on one fixed lattice: 17 significant bits of each
number, exact below 2^17. Merging is addition, so that chunks may come from any worker
in any order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BITS", "Summary"]

IntArray = npt.NDArray[np.int64]

#: Significant bits kept: bins are at most 2^-16 of their values wide.
BITS = 17
_LIMB = 16


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Numbers seen so far.

    Attributes
    ----------
    count : int
    total, squares : int
        Exact sums of the numbers and of their squares.
    bins : ndarray of int64
        Numbers of the bins seen, increasing with the values in them.
    counts : ndarray of int64
        How many numbers fell in each.
    least, most : int
        Smallest and largest number.
    """

    count: int
    total: int
    squares: int
    bins: IntArray
    counts: IntArray
    least: int
    most: int

    @classmethod
    def of(cls, numbers: IntArray) -> Summary:
        """Summarise numbers, whole and of less than 48 bits; at least one.

        Raises
        ------
        ValueError
            A number of more bits.
        """
        if int(np.abs(numbers).max()) >> (3 * _LIMB):
            raise ValueError("a number to summarise has more than 48 bits")
        total, squares = _sums(numbers)
        bins, counts = np.unique(_bin_of(numbers), return_counts=True)
        return cls(
            numbers.size,
            total,
            squares,
            bins,
            counts.astype(np.int64),
            int(numbers.min()),
            int(numbers.max()),
        )

    def merged(self, other: Summary) -> Summary:
        """Summary of both; in whatever order, the same."""
        bins, place = np.unique(
            np.concatenate([self.bins, other.bins]), return_inverse=True
        )
        counts = np.zeros(bins.size, dtype=np.int64)
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        return Summary(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            bins,
            counts,
            min(self.least, other.least),
            max(self.most, other.most),
        )

    @property
    def mean(self) -> float:
        """Mean of the numbers."""
        return self.total / self.count

    @property
    def variance(self) -> float:
        """Unbiased variance of the numbers; 0 for one number."""
        if self.count < 2:
            return 0.0
        centred = self.count * self.squares - self.total * self.total
        return centred / (self.count * (self.count - 1))

    def ends(self, bins: IntArray) -> tuple[IntArray, IntArray]:
        """Smallest and largest number of each bin, and of what was seen."""
        low, high = _ends(bins)
        return np.maximum(low, self.least), np.minimum(high, self.most)

    def ranked(self, rank: int) -> tuple[int, int]:
        """Bounds of the number of a rank, 1 for the smallest."""
        at = int(np.searchsorted(np.cumsum(self.counts), rank))
        low, high = self.ends(self.bins[at : at + 1])
        return int(low[0]), int(high[0])

    @property
    def digest(self) -> str:
        """Fingerprint: equal for equal numbers, however they were cut into chunks."""
        found = hashlib.sha256(
            repr((self.count, self.total, self.squares, self.least, self.most)).encode()
        )
        found.update(self.bins.tobytes())
        found.update(self.counts.tobytes())
        return found.hexdigest()


def _sums(numbers: IntArray) -> tuple[int, int]:
    # Limbs of 16 bits: sums of a million products stay below 2^52.
    size = np.abs(numbers)
    limbs = [(size >> (_LIMB * k)) & ((1 << _LIMB) - 1) for k in range(3)]
    squares = sum(
        int(limbs[i] @ limbs[j]) << (_LIMB * (i + j))
        for i in range(3)
        for j in range(3)
    )
    high = numbers >> 24
    low = numbers - (high << 24)
    return (int(high.sum()) << 24) + int(low.sum()), squares


def _bin_of(numbers: IntArray) -> IntArray:
    size = np.abs(numbers)
    shift = np.zeros(numbers.shape, dtype=np.int64)
    big = size >= 1 << BITS
    # frexp gives the number of bits exactly: numbers have less than 53.
    shift[big] = np.frexp(size[big].astype(float))[1] - BITS
    number = (shift << BITS) + (size >> shift)
    return np.where(numbers < 0, -number - 1, number)


def _ends(bins: IntArray) -> tuple[IntArray, IntArray]:
    positive = np.where(bins < 0, -bins - 1, bins)
    # The kept digits have 17 bits: the shift is what lies above them.
    shift = positive >> BITS
    mantissa = positive - (shift << BITS)
    low = mantissa << shift
    high = ((mantissa + 1) << shift) - 1
    return np.where(bins < 0, -high, low), np.where(bins < 0, -low, high)
