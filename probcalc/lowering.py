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

from probcalc.amounts import Amounts, Kind, Worth, amounts_of, kinds_of
from probcalc.drawtable import DrawTable, LawTables
from probcalc.errors import InputError
from probcalc.exact_lattice import quantum
from probcalc.factors import Books, Factors, books_of, factors_of
from probcalc.plan import Plan

__all__ = ["Lowered", "Waits", "lowered", "waits_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: The longest makespan stays below this many ticks.
MOST_TICKS = 1 << 30
#: What rounding to ticks may move a mean makespan by, relatively: as the sum of mean
#: errors along the longest path, and if all errors had one sign.
MOST_SHIFT = 1e-4
MOST_ROUNDING = 5e-3


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A plan ready to be simulated; all arrays, so that a process can be sent it.

    Attributes
    ----------
    tick : float
        Seconds of one.
    arrays : dict of str to ndarray
        Fields of `probcalc.kernels.levelscan.Program`, not yet in chunks.
    slots, last : int
    amounts : Amounts
        What the sums of a sample stand for.
    factors : Factors
    books : Books
    vertex : ndarray of int64, shape (steps, lanes)
        Vertex of each lane; nodes come first, -1 is idle.
    sources, targets : ndarray of int64
        Edges of the vertices.
    vertices, nodes : int
    longest : float
        Longest possible makespan in s.
    lost : float
        Largest share of a law's variance that its atoms lack.
    shift : float
        Bound of what rounding to ticks moves the mean makespan by, in s.
    """

    tick: float
    arrays: dict[str, npt.NDArray[Any]]
    slots: int
    last: int
    amounts: Amounts
    factors: Factors
    books: Books
    vertex: IntArray
    sources: IntArray
    targets: IntArray
    vertices: int
    nodes: int
    longest: float
    lost: float
    shift: float


def lowered(plan: Plan, *, energy: bool = True) -> Lowered:
    """Turn a plan into arrays.

    Parameters
    ----------
    plan : Plan
    energy : bool
        Whether energies are wanted too; the times drawn are the same without.

    Raises
    ------
    InputError
        A law that cannot be drawn from a table; times so far apart that no tick fits;
        shared factors that shift times.
    CompositionError
        Nodes that can overlap on a device and draw another power than its baseline.
    """
    from probcalc.kernels.lanes import joined, laid_out

    laws = LawTables()
    factors = factors_of(plan)
    kinds, kind_of = kinds_of(plan, laws, factors, energy=energy)
    tables = [laws.tables[k.time] for k in kinds]
    longest, tick = _tick(plan, tables, kind_of, factors)
    ticks, shift = _ticks(plan, tables, kind_of, tick)
    extra = waits_of(plan)
    graph = joined(extra.vertices, extra.sources, extra.targets)
    lanes = laid_out(graph)
    kind = np.zeros(graph.vertices, dtype=np.int64)
    kind[: len(plan)] = kind_of
    kind[len(plan) : extra.vertices] = len(kinds) + extra.kind
    for duration in extra.durations:
        kinds.append(Kind(laws.constant(duration)))
        ticks.append(Worth(np.rint(np.array([duration]) / tick), np.zeros(1)))
    draw = np.zeros(graph.vertices, dtype=np.int64)
    draw[: len(plan)] = plan.draws.rows
    idle = lanes.vertex < 0
    at = np.maximum(lanes.vertex, 0)
    node = np.where(lanes.vertex < len(plan), at, 0)
    placed = ~idle & (lanes.vertex < len(plan))
    amounts, filled = amounts_of(plan, laws, kinds, kind_of, factors, ticks, tick)
    arrays = filled | {
        "reads": lanes.reads,
        "writes": lanes.writes,
        "kind": np.where(idle, 0, kind[at]).astype(np.int32),
        "draw": np.where(idle, 0, draw[at]).astype(np.uint32),
        "scale": np.where(placed, factors.time[node], 0).astype(np.int32),
        "scale_energy": np.where(placed, factors.energy[node], 0).astype(np.int32),
    }
    return Lowered(
        tick=tick,
        arrays=arrays,
        slots=lanes.slots,
        last=lanes.last,
        amounts=amounts,
        factors=factors,
        books=books_of(plan),
        vertex=lanes.vertex,
        sources=graph.sources,
        targets=graph.targets,
        vertices=graph.vertices,
        nodes=len(plan),
        longest=longest,
        lost=max(t.lost for t in laws.tables),
        shift=shift,
    )


def _tick(
    plan: Plan, tables: Sequence[DrawTable], kind_of: IntArray, factors: Factors
) -> tuple[float, float]:
    """Longest possible makespan in s, and seconds of one tick."""
    from probcalc.kernels import graph

    highest = np.array([float(table.ends.max()) for table in tables])
    duration = highest[kind_of] * factors.most[factors.time]
    longest = graph.longest(
        len(plan), plan.sources, plan.targets, plan.lags, duration, plan.releases
    )
    if longest == 0.0:
        return 0.0, 1.0
    times = np.concatenate([t.values for t in tables] + [plan.lags, plan.releases])
    numbers = np.unique(times[times > 0.0])
    spread = any(table.widths.any() for table in tables)
    if not spread and not factors.scales_time and numbers.size <= 1_000_000:
        found = quantum(numbers)
        if found is not None and longest / found.step < MOST_TICKS:
            return longest, found.step
    return longest, 2.0 ** math.ceil(math.log2(longest / MOST_TICKS))


def _ticks(
    plan: Plan, tables: Sequence[DrawTable], kind_of: IntArray, tick: float
) -> tuple[list[Worth], float]:
    """Ticks of the atoms of each kind, and what their rounding moves, in s.

    Raises
    ------
    InputError
        More of the makespan than is allowed.
    """
    from probcalc.kernels import graph

    ticks, means, biases, errors = [], [], [], []
    for values, mass, widths, _ in tables:
        exact = Worth.of(values, widths, tick)
        whole = rounded(exact.least, mass)
        ticks.append(Worth(whole, exact.widths))
        error = (whole - exact.least) * tick
        means.append(float(mass @ values))
        biases.append(abs(float(mass @ error)))
        errors.append(float(mass @ np.abs(error)))
    edges = (len(plan), plan.sources, plan.targets)
    nothing = np.zeros(len(plan))
    waits = np.abs(np.rint(plan.lags / tick) * tick - plan.lags)
    size, bias, shift = (
        graph.longest(*edges, lags, np.array(each)[kind_of], releases)
        for lags, each, releases in (
            (plan.lags, means, plan.releases),
            (waits, biases, nothing),
            (waits, errors, nothing),
        )
    )
    if bias > MOST_SHIFT * size or shift > MOST_ROUNDING * size:
        raise InputError(
            f"plan {plan.name!r}: ticks of {tick:.3g} s, the finest of 32 bits for its "
            f"longest times, move its makespan of about {size:.3g} s by up to "
            f"{shift:.3g} s; cut the heavy tails (scipy.stats.truncate)"
        )
    return ticks, shift


def rounded(values: FloatArray, mass: FloatArray) -> FloatArray:
    """Whole numbers next to values, of the same mean as nearly as can be.

    Some are rounded to the other side, those nearest to the middle first, until what
    the mean is off by is less than any further one would change.
    """
    whole = np.rint(values)
    error = whole - values
    off = float(mass @ error)
    # Turning atom i over to the other side moves the mean by -sign(error) mass.
    turned = np.flatnonzero((np.sign(error) == math.copysign(1.0, off)) & (mass > 0.0))
    turned = turned[np.argsort(-np.abs(error[turned]), kind="stable")]
    moved = np.cumsum(mass[turned])
    count = int(np.searchsorted(moved, abs(off), side="right"))
    if count < turned.size:
        before = moved[count - 1] if count else 0.0
        count += moved[count] - abs(off) < abs(off) - before
    chosen = turned[:count]
    whole[chosen] -= math.copysign(1.0, off)
    return np.maximum(whole, 0.0)


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
