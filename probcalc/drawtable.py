"""Laws as finitely many atoms, to be drawn by alias tables.

Finite laws stay as they are. A law with a density is cut into cells of equal
probability, ever thinner towards its tails down to 2^-34, and drawn uniformly within
each about its mean: the mean of the law is kept, and what its variance loses is
reported.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.discretise import atoms_of
from probcalc.distribution import Constant, Distribution, Empirical, law_key
from probcalc.errors import InputError
from probcalc.families import Family, family_of

__all__ = ["DrawTable", "LawTables", "draw_table"]

FloatArray = npt.NDArray[np.float64]
_Cells = tuple[FloatArray, FloatArray, FloatArray]

#: Most atoms of one table (`probcalc.kernels.alias.MAX_BITS`).
MOST = 1 << 16
#: Cells of equal probability; cells for each halving of a tail; halvings.
BULK = 1024
PER_HALVING = 48
HALVINGS = 30


class DrawTable(NamedTuple):
    """Atoms of a law.

    Attributes
    ----------
    values, mass, widths : ndarray, shape (atoms,)
        Each value is the middle of an interval of that width, 0 for a single value.
    lost : float
        Share of the variance that the intervals lack, 0 for a finite law.
    """

    values: FloatArray
    mass: FloatArray
    widths: FloatArray
    lost: float = 0.0

    @property
    def ends(self) -> FloatArray:
        """Largest value of each atom."""
        return self.values + 0.5 * self.widths


def finite(values: FloatArray, mass: FloatArray) -> DrawTable:
    """Return the table of finitely many values."""
    return DrawTable(values, mass, np.zeros(values.size))


class LawTables:
    """Tables of laws, each law once; the first is that of zero."""

    def __init__(self) -> None:
        self.tables: list[DrawTable] = []
        self._known: dict[Any, int] = {}
        self._alias: dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
        self.constant(0.0)

    def add(self, law: Distribution, where: str) -> int:
        """Return the number of a law's table; `where` is named in errors."""
        key = law_key(law)
        if isinstance(law, Empirical):
            key = (key, id(law.samples))  # in measured order
        if key not in self._known:
            self._known[key] = len(self.tables)
            self.tables.append(draw_table(law, where))
        return self._known[key]

    def constant(self, value: float) -> int:
        """Return the number of the table of a constant."""
        return self.add(Constant(value), "constant")

    def alias(self, number: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Limits and atoms of a table (`probcalc.kernels.alias.alias_table`)."""
        from probcalc.kernels.alias import alias_table, bits_for

        if number not in self._alias:
            mass = self.tables[number].mass
            self._alias[number] = alias_table(mass, bits_for(mass.size))
        return self._alias[number]


def draw_table(law: Distribution, where: str) -> DrawTable:
    """Turn a law into atoms.

    Parameters
    ----------
    law : Distribution
    where : str
        Named in errors.

    Raises
    ------
    InputError
        More atoms than a table holds; a law of infinite mean.
    """
    match law:
        case Constant():
            return finite(np.array([law.value]), np.ones(1))
        case Empirical() if law.weights is None:
            size = law.samples.size
            # In measured order: run k is atom k of every law measured with it.
            found = finite(law.samples, np.full(size, 1.0 / size))
        case _:
            atoms = atoms_of(law, 2.0**-34)
            if atoms is None:
                return _cells(law, where)
            found = finite(*atoms)
    if found.values.size > MOST:
        raise InputError(
            f"{where}: {found.values.size:,} atoms, at most {MOST:,} can be drawn"
        )
    return found


def _cells(law: Distribution, where: str) -> DrawTable:
    family = family_of(law)
    if family is not None:
        values, mass, widths = _by_moments(law, family, where)
    elif hasattr(law, "node"):  # composed: quantiles are dear, tables of cdf are not
        values, mass, widths = _on_grid(law)
    else:
        values, mass, widths = _by_quantiles(law)
    variance = float(law.variance())
    lost = 0.0
    if math.isfinite(variance) and variance > 0.0:
        mean = float(values @ mass)
        kept = float(mass @ ((values - mean) ** 2 + widths**2 / 12.0))
        lost = max(1.0 - kept / variance, 0.0)
    return DrawTable(values, mass, widths, lost)


def _levels() -> tuple[FloatArray, FloatArray]:
    """Probabilities of the edges: below up to one half, above from one half on."""
    # Thinner towards the tails from where a halving has as many cells as the bulk.
    tail = 2.0 ** -(4.0 + np.arange(HALVINGS * PER_HALVING) / PER_HALVING)
    bulk = np.arange(1, BULK // 2 + 1) / BULK
    below = np.unique(np.concatenate([tail, bulk]))
    return below, below[:-1][::-1]


def _edges(law: Distribution) -> tuple[FloatArray, FloatArray]:
    """Inner edges of the cells, and the masses of all cells."""
    below, above = _levels()
    low = np.asarray(law.icdf(below), dtype=float)
    high = np.asarray(law.iccdf(above), dtype=float)
    mass = np.concatenate(
        [
            [below[0]],
            np.diff(below),
            [below[-1] - above[0]],
            -np.diff(above),
            above[-1:],
        ]
    )
    # The cell between one half below and the first level above it.
    return np.maximum.accumulate(np.concatenate([low, high])), mass


def _widths(values: FloatArray, ends: FloatArray) -> FloatArray:
    """Widest intervals about values that stay within the ends of their cells."""
    return 2.0 * np.maximum(np.minimum(values - ends[:-1], ends[1:] - values), 0.0)


def _by_moments(law: Distribution, family: Family, where: str) -> _Cells:
    if not math.isfinite(family.mean):
        raise InputError(
            f"{where}: a law of infinite mean cannot be drawn from a table"
        )
    edges, mass = _edges(law)
    half = int(np.searchsorted(edges, float(law.icdf(0.5))))
    below = np.diff(family.partial_below(edges[: half + 1]), prepend=0.0)
    above = -np.diff(family.partial_above(edges[half:]), append=0.0)
    values = np.concatenate([below, above]) / mass
    ends = np.concatenate([[family.lower], edges, [family.upper]])
    values = np.clip(values, ends[:-1], ends[1:])
    return values, mass, _widths(values, ends)


def _by_quantiles(law: Distribution) -> _Cells:
    """Medians of the cells, for a law known by its functions alone."""
    below, above = _levels()
    low = np.concatenate([[0.5 * below[0]], 0.5 * (below[1:] + below[:-1])])
    high = np.concatenate(
        [[0.5 * (0.5 + above[0])], 0.5 * (above[1:] + above[:-1]), [0.5 * above[-1]]]
    )
    values = np.concatenate([law.icdf(low), law.iccdf(high)])
    edges, mass = _edges(law)
    least, most = (float(end) for end in law.support())
    return values, mass, _widths(values, np.concatenate([[least], edges, [most]]))


def _on_grid(law: Distribution) -> _Cells:
    low, high = float(law.icdf(1e-9)), float(law.iccdf(1e-9))
    if not low < high:
        return np.array([low]), np.ones(1), np.zeros(1)
    edges = np.linspace(low, high, 2049)
    at_most = np.maximum.accumulate(np.asarray(law.cdf(edges[1:-1]), dtype=float))
    mass = np.diff(np.concatenate([[0.0], at_most, [1.0]]))
    return 0.5 * (edges[:-1] + edges[1:]), mass, np.diff(edges)
