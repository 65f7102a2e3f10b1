"""Random factors of a plan's nodes: draw groups, and shared factors of time."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Distribution
from probcalc.drawtable import DrawTable, draw_table
from probcalc.errors import InputError
from probcalc.plan import Plan
from probcalc.setting import Weight
from probcalc.setting import factors as shared_factors

__all__ = [
    "Books",
    "Factors",
    "Source",
    "books_of",
    "factors_of",
    "rows_of",
    "scaled",
]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Streams of factors lie above those of nodes; told apart by name, so that a factor
#: draws the same in every plan that names it.
FIRST_STREAM = 1 << 32


class Source(NamedTuple):
    """A factor with its table; group g of sample i is a function of (seed, i, g)."""

    name: str
    table: DrawTable

    @classmethod
    def of(cls, name: str, law: Distribution) -> Source:
        """Return the table of a law."""
        return cls(name, draw_table(law, f"factor {name!r}"))

    @property
    def most(self) -> float:
        """Largest size of a value."""
        return float(np.abs([self.table.ends.max(), self.table.values.min()]).max())

    def drawn(self, seed: int, samples: IntArray, groups: IntArray) -> FloatArray:
        """Values, shape (groups, samples)."""
        from probcalc.kernels.alias import alias_table, bits_for, drawn
        from probcalc.kernels.philox import key_of, philox

        key = key_of(seed, FIRST_STREAM + zlib.crc32(self.name.encode()))
        words, _ = philox(samples[None, :], groups[:, None], key)
        values, mass, widths, _ = self.table
        atoms, place = drawn(words, *alias_table(mass, bits_for(mass.size)))
        return values[atoms] + widths[atoms] * (place - 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Which factors multiply which nodes.

    Attributes
    ----------
    sources : tuple of Source
    time, energy : ndarray of int64, shape (nodes,)
        Row of each node; row 0 is one.
    rows : tuple of tuple of (int, int)
        Of each row, the sources and groups whose product it is.
    most : ndarray, shape (rows,)
        Largest value of each row.
    """

    sources: tuple[Source, ...]
    time: IntArray
    energy: IntArray
    rows: tuple[tuple[tuple[int, int], ...], ...]
    most: FloatArray

    @property
    def scaled(self) -> bool:
        """Whether there are any."""
        return len(self.rows) > 1

    @property
    def scales_time(self) -> bool:
        """Whether one multiplies times."""
        return bool(self.time.any())


def factors_of(plan: Plan) -> Factors:
    """Gather the factors of a plan's nodes.

    Raises
    ------
    InputError
        A shared factor that shifts times.
    """
    sources: list[Source] = []
    acting: list[tuple[IntArray, str]] = []
    for factor in plan.draws.factors:
        sources.append(Source.of(factor.name, factor.law))
        acting.append((factor.ids, factor.acts_on))
    # Paces that not all elements name multiply the times of those that do.
    paces: dict[str, list[int]] = {}
    for i, e in enumerate(plan.elements):
        for shift in shared_factors(e, "time", "shift"):
            raise InputError(
                f"element {e.name!r}: shared factor {shift.name!r} adds to time, which "
                "cannot be simulated; expected a scale"
            )
        for pace in shared_factors(e, "time"):
            if pace.name not in plan.account.paces:
                paces.setdefault(pace.name, []).append(i)
    for name, elements in paces.items():
        sources.append(Source.of(name, plan.account.shared[name].law))
        named = np.isin(plan.element_of, elements)
        acting.append((np.where(named, 0, -1), "time"))
    known: dict[tuple[tuple[int, int], ...], int] = {(): 0}
    time, energy = (_rows(plan, acting, known, on) for on in ("time", "energy"))
    rows = tuple(known)
    most = np.array([math.prod(sources[s].most for s, _ in row) for row in rows])
    return Factors(tuple(sources), time, energy, rows, most)


def _rows(
    plan: Plan,
    acting: list[tuple[IntArray, str]],
    known: dict[tuple[tuple[int, int], ...], int],
    on: str,
) -> IntArray:
    active = [(s, ids) for s, (ids, what) in enumerate(acting) if what in (on, "both")]
    if not active:
        return np.zeros(len(plan), dtype=np.int64)
    columns = np.stack([ids for _, ids in active], axis=1)
    distinct, inverse = np.unique(columns, axis=0, return_inverse=True)
    numbers = np.array(
        [
            known.setdefault(
                tuple(
                    (s, int(group))
                    for (s, _), group in zip(active, line, strict=True)
                    if group >= 0
                ),
                len(known),
            )
            for line in distinct
        ]
    )
    return numbers[inverse.ravel()].astype(np.int64)


def rows_of(factors: Factors, seed: int, samples: IntArray) -> FloatArray:
    """Draw every row of factors, shape (rows, samples)."""
    found = np.ones((len(factors.rows), samples.size))
    for s, source in enumerate(factors.sources):
        uses = [(r, g) for r, row in enumerate(factors.rows) for t, g in row if t == s]
        groups = np.unique([g for _, g in uses])
        draws = source.drawn(seed, samples, groups)
        for r, g in uses:
            found[r] *= draws[int(np.searchsorted(groups, g))]
    return found


class Books(NamedTuple):
    """What static power and shared factors make of the sums of a sample.

    Attributes
    ----------
    base : Weight
        Baseline power of all devices, W.
    paces : tuple of str
        Scales of time that every element names.
    shared : tuple of Source
        Shared factors that energies stand under.
    shifts : mapping of str to int
        How many executions add each shift of energy.
    """

    base: Weight
    paces: tuple[str, ...]
    shared: tuple[Source, ...]
    shifts: dict[str, int]

    def draws(self, seed: int, samples: IntArray) -> dict[str, FloatArray]:
        """Draw the shared factors, one value per sample each."""
        one = np.zeros(1, dtype=np.int64)
        return {s.name: s.drawn(seed, samples, one)[0] for s in self.shared}


def books_of(plan: Plan) -> Books:
    """Return the books of a plan."""
    account = plan.account
    runs = np.bincount(plan.element_of, minlength=len(plan.elements)).tolist()
    shifts: dict[str, int] = {}
    for e, count in zip(plan.elements, runs, strict=True):
        for shift in shared_factors(e, "energy", "shift"):
            shifts[shift.name] = shifts.get(shift.name, 0) + count
    shared = tuple(Source.of(name, f.law) for name, f in sorted(account.shared.items()))
    return Books(account.base, account.paces, shared, shifts)


def scaled(
    key: Iterable[str], draws: Mapping[str, FloatArray], size: int
) -> FloatArray:
    """Return the product of shared factors, for every sample."""
    found = np.ones(size)
    for name in key:
        found = found * draws[name]
    return found
