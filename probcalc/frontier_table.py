"""Points of elements and compositions that may be of use to what they are part of."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from probcalc.errors import CompositionError
from probcalc.operating import OperatingSet
from probcalc.readonly import ReadOnly

__all__ = ["MIXED", "Ended", "Frontier", "Mixed", "Rows", "made"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Mixed:
    """Device point of a composition that does not run at one."""

    def __repr__(self) -> str:
        return "MIXED"


MIXED: Final = Mixed()


@dataclass(frozen=True, slots=True)
class Ended:
    """Device point at which a sequence that changed it ends."""

    point: Hashable


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frontier:
    """Points of an element or a composition that may be of use to what it is part of.

    Attributes
    ----------
    name : str
    baselines : mapping of str to float
        By device, what it draws in W while held and idle.
    time, cost : ndarray, shape (points,)
        T in s and x = E - b T in J.
    held : ndarray, shape (points,)
        Power in W of its devices at the one device point that it runs at; NaN where
        that changes.
    points : tuple
        That device point, None where none is stated, else `MIXED` or, after
        `switched`, at which it ends.
    parts : tuple of Frontier
        Operands; empty for an element.
    picks : ndarray of int64, shape (points, parts)
        Point of each operand; of an element the point of its operating set.
    source : OperatingSet or None
        Of an element.
    """

    name: str
    baselines: Mapping[str, float]
    time: FloatArray
    cost: FloatArray
    held: FloatArray
    points: tuple[Hashable, ...]
    parts: tuple[Frontier, ...]
    picks: IntArray
    source: OperatingSet | None

    def __len__(self) -> int:
        """Return the number of points that are kept."""
        return self.time.size

    def __repr__(self) -> str:
        """Name and sizes."""
        return (
            f"<Frontier of {self.name!r}: {self.frontier().size} points, {len(self)} "
            "kept>"
        )

    @property
    def base(self) -> float:
        """Power in W of all its devices while held and idle."""
        return math.fsum(self.baselines.values())

    @property
    def energy(self) -> FloatArray:
        """E in J of every point, alone on its devices."""
        return self.base * self.time + self.cost

    def frontier(self) -> IntArray:
        """Points that no other one beats in (T, E), by rising time.

        The last one is the energy-minimal makespan: beyond it, holding the devices
        costs more than slower points save.
        """
        from probcalc.kernels.pareto import reduced

        return reduced(self.time, self.energy)

    def useful(self) -> IntArray:
        """Points that no other one beats in (T, x), by rising time."""
        from probcalc.kernels.pareto import reduced

        return reduced(self.time, self.cost)

    def uniform(self) -> Frontier:
        """Return the same composition, all of it at one device point throughout.

        Raises
        ------
        CompositionError
            No device point at which all of it can run.
        """
        rows = [
            i
            for i, point in enumerate(self.points)
            if point is not MIXED and not isinstance(point, Ended)
        ]
        if not rows:
            raise CompositionError(
                f"frontier of {self.name!r}: no device point at which all of it can run"
            )
        kept = Rows(self.time, self.cost, self.held, self.points, self.picks)
        found = kept.at(np.array(rows, dtype=np.int64))
        return made(self.name, self.baselines, found, self.parts, self.source)

    def assignment(self, point: int) -> tuple[tuple[str, str], ...]:
        """Return the name of every element, in order, and its setting in words."""
        if self.source is not None:
            k = int(self.picks[point, 0])
            return ((self.source.name, self.source.settings[k]),)
        pairs = zip(self.parts, self.picks[point].tolist(), strict=True)
        return tuple(leaf for part, k in pairs for leaf in part.assignment(k))

    def classes(self) -> Iterator[tuple[Hashable, IntArray]]:
        """Device points with the rows that run at them throughout."""
        known: dict[Hashable, list[int]] = {}
        for i, point in enumerate(self.points):
            if point is not MIXED and not isinstance(point, Ended):
                known.setdefault(point, []).append(i)
        for point, rows in known.items():
            yield point, np.array(rows, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Points on the way into a `Frontier`; fields as it has them."""

    time: FloatArray
    cost: FloatArray
    held: FloatArray
    points: tuple[Hashable, ...]
    picks: IntArray

    def at(self, rows: IntArray) -> Rows:
        """Some of them, in an order."""
        points = tuple(self.points[i] for i in rows.tolist())
        return Rows(
            self.time[rows], self.cost[rows], self.held[rows], points, self.picks[rows]
        )


def made(
    name: str,
    baselines: Mapping[str, float],
    rows: Rows,
    parts: tuple[Frontier, ...],
    source: OperatingSet | None,
) -> Frontier:
    """Drop the points that are of no use to anything outside."""
    from probcalc.kernels.pareto import reduced

    base = math.fsum(baselines.values())
    known: dict[Hashable, list[int]] = {}
    for i, point in enumerate(rows.points):
        known.setdefault(point, []).append(i)
    kept: list[IntArray] = []
    for members in known.values():
        mine = np.array(members, dtype=np.int64)
        time, cost = rows.time[mine], rows.cost[mine]
        good = reduced(time, cost)
        held = rows.held[mine]
        if np.isfinite(held).all() and (held != base).any():
            # Beside something longer at this device point, its static power is drawn
            # to the end whatever this takes, and E less that is what counts.
            own = reduced(time, cost - (held - base) * time)
            good = np.union1d(good, own)
        kept.append(mine[good])
    found = rows.at(np.concatenate(kept))
    order = np.lexsort((np.arange(found.time.size), found.cost, found.time))
    found = found.at(order)
    for array in (found.time, found.cost, found.held, found.picks):
        array.flags.writeable = False
    return Frontier(
        name, ReadOnly(dict(baselines)), found.time, found.cost, found.held,
        found.points, parts, found.picks, source,
    )  # fmt: skip
