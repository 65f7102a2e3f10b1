"""A plan as the arrays that `probcalc.kernels.levelscan` runs over.

Nodes become vertices; lags and releases become vertices of constant duration. Times
are whole ticks: the common quantum of all laws where there is one, else a power of two
so fine that the longest possible makespan has 30 bits. Energies are whole quanta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Constant, Distribution, Empirical, law_key
from probcalc.drawtable import DrawTable, draw_table
from probcalc.element import Element
from probcalc.errors import CompositionError, InputError
from probcalc.exact_lattice import quantum
from probcalc.factors import Books, Factors, books_of, factors_of
from probcalc.plan import Plan
from probcalc.setting import key_of

__all__ = ["Lowered", "Waits", "lowered", "waits_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Key = tuple[str, ...]

#: The longest makespan stays below this many ticks, a sum below that many quanta.
MOST_TICKS = 1 << 30
MOST_QUANTA = 1 << 46


class Kind(NamedTuple):
    """What a lane needs to know of its node: tables, and what atoms are worth."""

    time: int
    own: int
    element: int


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A plan ready to be simulated; all arrays, so that a process can be sent it.

    Attributes
    ----------
    tick, quantum : float
        Seconds and joules of one.
    arrays : dict of str to ndarray
        Fields of `probcalc.kernels.levelscan.Program`, not yet in chunks.
    slots, bits, last, lanes : int
    charge_keys, energy_keys : tuple of tuple of str
        Shared factors under which each sum stands.
    drawn : bool
        Whether some energies have draws of their own.
    factors : Factors
    books : Books
    vertex : ndarray of int64, shape (steps, lanes)
        Vertex of each lane; nodes come first, -1 is idle.
    sources, targets : ndarray of int64
        Edges of the vertices.
    vertices, nodes : int
    lost : float
        Largest share of a law's variance that its atoms lack.
    shift : float
        Bound of what rounding to ticks moves the mean makespan by, in s.
    """

    tick: float
    quantum: float
    arrays: dict[str, npt.NDArray[Any]]
    slots: int
    bits: int
    last: int
    charge_keys: tuple[Key, ...]
    energy_keys: tuple[Key, ...]
    drawn: bool
    factors: Factors
    books: Books
    vertex: IntArray
    sources: IntArray
    targets: IntArray
    vertices: int
    nodes: int
    lost: float
    shift: float


class _Laws:
    """Tables of laws, each once."""

    def __init__(self) -> None:
        self.tables = [DrawTable(np.zeros(1), np.ones(1))]
        self._known: dict[Any, int] = {}

    def add(self, law: Distribution, where: str) -> int:
        key = law_key(law)
        if isinstance(law, Empirical):
            key = (key, id(law.samples))  # in measured order
        if key not in self._known:
            self._known[key] = len(self.tables)
            self.tables.append(draw_table(law, where))
        return self._known[key]


def lowered(plan: Plan, *, energy: bool = True) -> Lowered:
    """Turn a plan into arrays.

    Parameters
    ----------
    plan : Plan
    energy : bool
        Whether energies are wanted too.

    Raises
    ------
    InputError
        A law that cannot be drawn from a table; times so far apart that no tick fits;
        shared factors that shift times.
    CompositionError
        Nodes that can overlap on a device and draw another power than its baseline.
    """
    from probcalc.kernels.lanes import joined, laid_out

    laws = _Laws()
    kinds: list[Kind] = [Kind(0, 0, -1)]
    for i, e in enumerate(plan.elements):
        time = laws.add(e.time, f"element {e.name!r}, time")
        own = 0
        if energy and e.runs is None and not isinstance(e.dynamic_energy, Constant):
            own = laws.add(e.dynamic_energy, f"element {e.name!r}, dynamic energy")
        kinds.append(Kind(time, own, i))
    factors = factors_of(plan)
    tick = _tick(plan, laws.tables, kinds, factors)
    shift = _shift(plan, laws.tables, kinds, tick)
    extra = waits_of(plan)
    graph = joined(extra.vertices, extra.sources, extra.targets)
    lanes = laid_out(graph)
    waits = [Kind(len(laws.tables) + k, 0, -1) for k in range(len(extra.durations))]
    tables = laws.tables + [
        DrawTable(np.array([d]), np.ones(1)) for d in extra.durations
    ]
    kinds += waits
    kind_of = np.zeros(graph.vertices, dtype=np.int64)
    kind_of[: len(plan)] = plan.element_of + 1
    kind_of[len(plan) : extra.vertices] = len(plan.elements) + 1 + extra.kind
    draw_of = np.zeros(graph.vertices, dtype=np.int64)
    draw_of[: len(plan)] = plan.draws.rows
    bits = max(max(t.values.size for t in tables) - 1, 1).bit_length()
    sums = _Sums(plan, kinds, tables, bits, factors) if energy else None
    if sums is None:
        # Lanes of one law are one kind.
        kind_of = np.array([k.time for k in kinds])[kind_of]
        kinds = [Kind(i, 0, -1) for i in range(len(tables))]
    arrays = _tables(tables, kinds, bits, tick)
    vertex = lanes.vertex
    at = np.maximum(vertex, 0)
    idle = vertex < 0
    node = np.where(vertex < len(plan), at, 0)
    placed = (vertex >= 0) & (vertex < len(plan))
    arrays |= {
        "reads": lanes.reads,
        "writes": lanes.writes,
        "kind": np.where(idle, 0, kind_of[at]).astype(np.int32),
        "draw": np.where(idle, 0, draw_of[at]).astype(np.uint32),
        "scale": np.where(placed, factors.time[node], 0).astype(np.int32),
        "scale_energy": np.where(placed, factors.energy[node], 0).astype(np.int32),
    }
    size = len(kinds) << bits
    none = np.zeros((0, size), dtype=np.int64)
    arrays |= {
        "charge": none if sums is None else sums.charge,
        "energy": none if sums is None else sums.energy,
        "energy_own": none if sums is None else sums.own,
    }
    return Lowered(
        tick=tick,
        quantum=1.0 if sums is None else sums.quantum,
        arrays=arrays,
        slots=lanes.slots,
        bits=bits,
        last=lanes.last,
        charge_keys=() if sums is None else sums.charge_keys,
        energy_keys=() if sums is None else sums.energy_keys,
        drawn=any(k.own for k in kinds),
        factors=factors,
        books=books_of(plan),
        vertex=vertex,
        sources=graph.sources,
        targets=graph.targets,
        vertices=graph.vertices,
        nodes=len(plan),
        lost=max(t.lost for t in tables),
        shift=shift,
    )


def _tick(
    plan: Plan, tables: Sequence[DrawTable], kinds: Sequence[Kind], factors: Factors
) -> float:
    """Seconds of one tick."""
    from probcalc.kernels import graph

    highest = np.array([float(tables[k.time].values.max()) for k in kinds[1:]])
    duration = highest[plan.element_of] * factors.most_time[factors.time]
    longest = graph.longest(
        len(plan), plan.sources, plan.targets, plan.lags, duration, plan.releases
    )
    if longest == 0.0:
        return 1.0
    times = np.concatenate(
        [tables[k.time].values for k in kinds] + [plan.lags, plan.releases]
    )
    numbers = np.unique(times[times > 0.0])
    if not factors.scales_time and numbers.size <= 1_000_000:
        found = quantum(numbers)
        if found is not None and longest / found.step < MOST_TICKS:
            return found.step
    return 2.0 ** math.ceil(math.log2(longest / MOST_TICKS))


def _shift(
    plan: Plan, tables: Sequence[DrawTable], kinds: Sequence[Kind], tick: float
) -> float:
    """Bound of what rounding to ticks moves the mean of a makespan by, in s.

    Raises
    ------
    InputError
        More than a ten-thousandth of it.
    """
    from probcalc.kernels import graph

    means, moved = [], []
    for kind in kinds[1:]:
        values, mass, _ = tables[kind.time]
        means.append(float(mass @ values))
        moved.append(abs(float(mass @ (np.rint(values / tick) * tick - values))))
    edges = (len(plan), plan.sources, plan.targets)
    nothing = np.zeros(len(plan))
    waits = np.abs(np.rint(plan.lags / tick) * tick - plan.lags)
    shift = graph.longest(*edges, waits, np.array(moved)[plan.element_of], nothing)
    size = graph.longest(
        *edges, plan.lags, np.array(means)[plan.element_of], plan.releases
    )
    if shift > 1e-4 * size:
        raise InputError(
            f"plan {plan.name!r}: ticks of {tick:.3g} s, the finest of 32 bits for its "
            f"longest times, move its makespan of about {size:.3g} s by up to "
            f"{shift:.3g} s; cut the heavy tails (scipy.stats.truncate)"
        )
    return shift


class Waits(NamedTuple):
    """Lags and releases as vertices: durations of their kinds, and all edges."""

    durations: list[float]
    kind: IntArray
    vertices: int
    sources: IntArray
    targets: IntArray


def waits_of(plan: Plan) -> Waits:
    """Turn lags and releases into vertices, one for each that differs."""
    n = len(plan)
    late = plan.lags > 0.0
    # One wait for each (source, lag), one for each release time.
    pairs = np.stack([plan.sources[late].astype(float), plan.lags[late]], axis=1)
    lags, lag_of = np.unique(pairs, axis=0, return_inverse=True)
    held = np.flatnonzero(plan.releases > 0.0)
    releases, release_of = np.unique(plan.releases[held], return_inverse=True)
    durations, kind = np.unique(
        np.concatenate([lags[:, 1], releases]), return_inverse=True
    )
    first = n + len(lags)
    lag_vertex = n + np.arange(len(lags))
    sources = [plan.sources[~late], lags[:, 0].astype(np.int64)]
    targets = [plan.targets[~late], lag_vertex]
    sources += [n + lag_of.ravel(), first + release_of.ravel()]
    targets += [plan.targets[late], held]
    return Waits(
        durations.tolist(),
        kind.ravel().astype(np.int64),
        first + len(releases),
        np.concatenate(sources).astype(np.int64),
        np.concatenate(targets).astype(np.int64),
    )


def _tables(
    tables: Sequence[DrawTable], kinds: Sequence[Kind], bits: int, tick: float
) -> dict[str, npt.NDArray[Any]]:
    from probcalc.kernels.alias import alias_table

    cells = 1 << bits
    pairs = [alias_table(table.mass, bits) for table in tables]
    ticks = np.zeros((len(kinds), cells), dtype=np.int32)
    for i, kind in enumerate(kinds):
        values = tables[kind.time].values
        ticks[i, : values.size] = np.rint(values / tick)
    return {
        "law": np.array([k.time for k in kinds], dtype=np.int32),
        "own": np.array([k.own for k in kinds], dtype=np.int32),
        "thresholds": np.concatenate([t for t, _ in pairs]),
        "aliases": np.concatenate([a for _, a in pairs]),
        "ticks": ticks.ravel(),
    }


class _Sums:
    """What atoms add to the sums of a sample, in quanta."""

    def __init__(
        self,
        plan: Plan,
        kinds: Sequence[Kind],
        tables: Sequence[DrawTable],
        bits: int,
        factors: Factors,
    ) -> None:
        account = plan.account
        beyond = [account.beyond(e) for e in plan.elements]
        for e, weight in zip(plan.elements, beyond, strict=True):
            if weight:
                _check_order(plan, e)
        self.charge_keys = tuple(sorted({key for w in beyond for key in w}))
        self.energy_keys = tuple(sorted({key_of(e, "energy") for e in plan.elements}))
        shape = (len(kinds), 1 << bits)
        charge = np.zeros((len(self.charge_keys), *shape))
        energy = np.zeros((len(self.energy_keys), *shape))
        own = np.zeros((len(self.energy_keys), *shape))
        for i, kind in enumerate(kinds):
            if kind.element < 0:
                continue
            e = plan.elements[kind.element]
            times = tables[kind.time].values
            for c, key in enumerate(self.charge_keys):
                charge[c, i, : times.size] = beyond[kind.element].get(key, 0.0) * times
            at = self.energy_keys.index(key_of(e, "energy"))
            energy[at, i, : times.size] = _paired(e)
            if kind.own:
                values = tables[kind.own].values
                own[at, i, : values.size] = values
        runs = np.bincount(plan.element_of, minlength=len(plan.elements))
        counts = np.array([runs[k.element] if k.element >= 0 else 0 for k in kinds])
        most = sum(
            float((np.abs(table).max(axis=2) @ counts).max())
            for table in (charge, energy, own)
            if len(table)
        )
        most *= max(float(factors.most_energy.max()), float(factors.most_time.max()))
        self.quantum = (
            2.0 ** math.ceil(math.log2(most / MOST_QUANTA)) if most > 0.0 else 1.0
        )
        flat = (-1, shape[0] * shape[1])
        self.charge, self.energy, self.own = (
            np.rint(table / self.quantum).astype(np.int64).reshape(flat)
            for table in (charge, energy, own)
        )


def _paired(e: Element) -> FloatArray | float:
    """Dynamic energy of each atom of time, where it has no draw of its own."""
    if e.runs is not None:
        return e.runs.dynamic_energy
    law = e.dynamic_energy
    return law.value if isinstance(law, Constant) else 0.0


def _check_order(plan: Plan, element: Element) -> None:
    for device in element.devices:
        if not plan.serial(device):
            raise CompositionError(
                f"device {device!r}: element {element.name!r} draws "
                f"{element.powers[device]:g} W, not the baseline "
                f"{plan.baselines[device]:g} W, and nodes there can overlap; state "
                "their order, or one static power"
            )
