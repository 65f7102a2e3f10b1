"""How points of two operands combine under each operator (section 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.errors import CompositionError
from probcalc.frontier_table import MIXED, Ended, Frontier, Rows

__all__ = ["across", "after", "beside", "joined", "switching"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Picks = tuple[IntArray, IntArray]


def joined(a: Frontier, b: Frontier) -> dict[str, float]:
    """Baselines of both operands; refuses two for one device."""
    for device in set(a.baselines) & set(b.baselines):
        if a.baselines[device] != b.baselines[device]:
            raise CompositionError(
                f"device {device!r}: baseline is {a.baselines[device]:g} W for "
                f"{a.name!r} and {b.baselines[device]:g} W for {b.name!r}"
            )
    return {**a.baselines, **b.baselines}


def after(a: Frontier, b: Frontier) -> Rows:
    """Sums of both, at each device point that both can hold, and freely."""
    from probcalc.kernels.pareto import sums

    same = set(a.baselines) == set(b.baselines)
    blocks: list[tuple[Hashable, Picks]] = []
    mine, theirs = dict(a.classes()), dict(b.classes())
    if same:
        for point in mine:
            if point in theirs:
                for cost in (_beyond_base, _beyond_held):
                    blocks.append((point, _paired(sums, cost, a, b, mine[point],
                                                  theirs[point])))  # fmt: skip
    if not (same and set(mine) == set(theirs) == {None}) or MIXED in a.points:
        free = _paired(sums, _beyond_base, a, b, a.useful(), b.useful())
        blocks.append((MIXED, free))
    return _gathered(a, b, blocks, np.add)


def across(a: Frontier, b: Frontier) -> Rows:
    """Side by side on different devices, each free to choose."""
    from probcalc.kernels.pareto import maxima

    common = set(a.baselines) & set(b.baselines)
    if common:
        raise CompositionError(
            f"{a.name!r} & {b.name!r}: both hold device {sorted(common)[0]!r}, "
            "expected different devices"
        )
    free = _paired(maxima, _beyond_base, a, b, a.useful(), b.useful())
    return _gathered(a, b, [(MIXED, free)], np.maximum)


def beside(a: Frontier, b: Frontier) -> Rows:
    """Side by side on the same devices, at each device point that both have."""
    from probcalc.kernels.pareto import maxima

    if set(a.baselines) != set(b.baselines):
        raise CompositionError(
            f"{a.name!r} | {b.name!r}: on devices {sorted(a.baselines)} and "
            f"{sorted(b.baselines)}, expected the same"
        )
    mine, theirs = dict(a.classes()), dict(b.classes())
    blocks: list[tuple[Hashable, Picks]] = []
    for point in dict.fromkeys([*mine, *theirs]):
        # What states no device point runs at any.
        rows = [found.get(point, found.get(None)) for found in (mine, theirs)]
        if rows[0] is None or rows[1] is None:
            continue
        _one_power(a, b, point, rows[0], rows[1])
        blocks.append((point, _paired(maxima, _beyond_held, a, b, rows[0], rows[1])))
    if not blocks:
        raise CompositionError(
            f"{a.name!r} | {b.name!r}: no device point at which both can run"
        )
    found = _gathered(a, b, blocks, np.maximum)
    # Static power of the device point is drawn once, to the end of the longer one.
    i, j = found.picks.T
    own = (a.held[i] - a.base) * a.time[i] + (b.held[j] - b.base) * b.time[j]
    cost = found.cost - own + (found.held - a.base) * found.time
    return Rows(found.time, cost, found.held, found.points, found.picks)


def switching(
    a: Frontier,
    b: Frontier,
    *,
    transition: Callable[[Hashable, Hashable], Element | None],
) -> Rows:
    """One after the other, with what changing the device point takes in between."""
    from probcalc.kernels.pareto import sums

    # The last device point of a is that of its last part.
    ends = dict(_ends(a))
    starts = dict(b.classes())
    if not ends or not starts or MIXED in b.points:
        raise CompositionError(
            f"{a.name!r} >> {b.name!r}: expected parts that hold one device point each"
        )
    base = math.fsum(joined(a, b).values())
    times, costs, picks, points, held = [], [], [], [], []
    for before, mine in ends.items():
        for after, theirs in starts.items():
            step, more = 0.0, 0.0
            between = transition(before, after) if before != after else None
            if between is not None:
                if not set(between.devices) <= set(a.baselines) | set(b.baselines):
                    raise CompositionError(
                        f"transition {between.name!r} is on {list(between.devices)}, "
                        f"expected devices of {a.name!r}"
                    )
                step = float(between.time.mean())
                own = float(between.dynamic_energy.mean())
                idle = sum(joined(a, b)[d] for d in between.devices)
                more = (between.static_power - idle) * step + own
            i, j = _paired(sums, _beyond_base, a, b, mine, theirs)
            times.append(a.time[i] + step + b.time[j])
            costs.append(a.cost[i] + more + b.cost[j])
            picks.append(np.stack([i, j], axis=1))
            one = before == after and not _mixed(a)
            points += [after if one else Ended(after)] * i.size
            held.append(np.full(i.size, base if one else np.nan))
    return Rows(
        np.concatenate(times), np.concatenate(costs), np.concatenate(held),
        tuple(points), np.concatenate(picks),
    )  # fmt: skip


def _mixed(a: Frontier) -> bool:
    return any(isinstance(point, Ended) for point in a.points)


def _ends(a: Frontier) -> Iterator[tuple[Hashable, IntArray]]:
    known: dict[Hashable, list[int]] = {}
    for i, point in enumerate(a.points):
        if point is not MIXED:
            end = point.point if isinstance(point, Ended) else point
            known.setdefault(end, []).append(i)
    for end, rows in known.items():
        yield end, np.array(rows, dtype=np.int64)


def _beyond_base(a: Frontier, rows: IntArray) -> FloatArray:
    return a.cost[rows]


def _beyond_held(a: Frontier, rows: IntArray) -> FloatArray:
    return a.cost[rows] - (a.held[rows] - a.base) * a.time[rows]


def _paired(
    kernel: Callable[..., Picks],
    cost: Callable[[Frontier, IntArray], FloatArray],
    a: Frontier,
    b: Frontier,
    mine: IntArray,
    theirs: IntArray,
) -> Picks:
    """Pairs of rows that no other pair beats, by one of the two costs."""
    from probcalc.kernels.pareto import reduced

    mine = mine[reduced(a.time[mine], cost(a, mine))]
    theirs = theirs[reduced(b.time[theirs], cost(b, theirs))]
    i, j = kernel(a.time[mine], cost(a, mine), b.time[theirs], cost(b, theirs))
    return mine[i], theirs[j]


def _one_power(
    a: Frontier, b: Frontier, point: Hashable, mine: IntArray, theirs: IntArray
) -> None:
    powers = np.unique(np.concatenate([a.held[mine], b.held[theirs]]))
    if powers.size > 1:
        raise CompositionError(
            f"{a.name!r} | {b.name!r}: static power at device point {point!r} is "
            f"{powers[0]:g} and {powers[-1]:g} W, expected one"
        )


def _gathered(
    a: Frontier, b: Frontier, blocks: list[tuple[Hashable, Picks]], join: Any
) -> Rows:
    i = np.concatenate([picks[0] for _, picks in blocks])
    j = np.concatenate([picks[1] for _, picks in blocks])
    points = tuple(point for point, picks in blocks for _ in range(picks[0].size))
    held = np.where([p is MIXED for p in points], np.nan, a.held[i])
    return Rows(
        join(a.time[i], b.time[j]), a.cost[i] + b.cost[j], held, points,
        np.stack([i, j], axis=1),
    )  # fmt: skip
