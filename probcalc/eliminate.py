"""Exact makespans of narrow plans: the joint law of the finishes that still matter.

Events of the reduced plan are taken in an order in which few are live at once, an
event being live from its first arc in to its last arc out. The joint mass of the live
ones is moved along arc by arc; what is left in the end is the law of the last. Arcs
carry series-parallel parts of the plan, which are worked out beforehand.

With whole-number durations on a grid one joint mass is exact but for thin ends, whose
probability is accounted. Other durations are put on lattices below and above
themselves (in the increasing convex order: the makespan is an increasing convex
function of independent durations), one joint mass for each.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from probcalc.discretise import UNIT, Measure, Order, Pair, leaf_pair
from probcalc.distribution import Constant, law_key
from probcalc.livebox import WIDTH, Known, LiveBox, Step, thinned
from probcalc.makespan import Makespan
from probcalc.planlattice import demand_of, excess_of, with_top
from probcalc.seriesparallel import LAG, NODE, SERIES, Reduction

__all__ = ["eliminated", "sequence"]

#: Share of the asked level that is cut off, far less than a bracket's width.
CUT = 1e-9
#: The same for leaves in a convex bound, as `CUT` is of a mass.
OUTSIDE = 1e-6
#: Relative width of brackets where durations have no quantum.
RTOL = 5e-3


def sequence(reduction: Reduction) -> tuple[Step, ...] | None:
    """Order of arcs with few live events, found greedily; None beyond `WIDTH`."""
    out: dict[int, list[tuple[int, int]]] = {}
    waiting: dict[int, int] = {}
    for a, b, part in reduction.arcs:
        out.setdefault(a, []).append((b, part))
        waiting[b] = waiting.get(b, 0) + 1
    early = _early(reduction)
    live = {reduction.first}
    steps: list[Step] = []
    while len(steps) < len(reduction.arcs):
        choices = [
            (
                (b not in live) - (len(out[a]) == 1),
                early[b],
                a,
                b,
                part,
            )
            for a in live
            if waiting.get(a, 0) == 0
            for b, part in out.get(a, ())
        ]
        _, _, a, b, part = min(choices)
        out[a].remove((b, part))
        steps.append(Step(a, b, part, not out[a], b not in live))
        live.add(b)
        if not out[a]:
            live.discard(a)
        waiting[b] -= 1
        if len(live) > WIDTH:
            return None
    return tuple(steps)


def _early(reduction: Reduction) -> dict[int, float]:
    """Mean times of the events, maxima of means."""
    plan = reduction.plan
    means: list[float] = []
    own = [float(e.time.mean()) for e in plan.elements]
    for part in reduction.parts:
        if part.kind == NODE:
            means.append(own[int(plan.element_of[part.node])])
        elif part.kind == LAG:
            means.append(part.seconds)
        else:
            both = means[part.left], means[part.right]
            means.append(sum(both) if part.kind == SERIES else max(both))
    out: dict[int, list[tuple[int, float]]] = {}
    waiting: dict[int, int] = {}
    for a, b, part in reduction.arcs:
        out.setdefault(a, []).append((b, means[part] if part >= 0 else 0.0))
        waiting[b] = waiting.get(b, 0) + 1
    early = {reduction.first: 0.0}
    order = [reduction.first]
    for a in order:
        for b, mean in out.get(a, ()):
            early[b] = max(early.get(b, 0.0), early[a] + mean)
            waiting[b] -= 1
            if waiting[b] == 0:
                order.append(b)
    return early


def eliminated(reduction: Reduction, steps: tuple[Step, ...]) -> Makespan:
    """Exact law of the makespan of a plan of independent nodes."""
    return Makespan(
        reduction.plan,
        partial(_evaluated, reduction, steps),
        "joint law of the live finishes",
        RTOL,
    )


def _evaluated(
    reduction: Reduction,
    steps: tuple[Step, ...],
    step: float,
    order: Order,
    level: float,
    memory: int,
) -> Pair:
    plan = reduction.plan
    demand = demand_of(plan, step, order, level, memory, OUTSIDE)
    pairs = {
        law_key(law): leaf_pair(law, demand)
        for law in (*(e.time for e in plan.elements), *map(Constant, _lags(reduction)))
    }
    leaves = [pairs[law_key(e.time)] for e in plan.elements]
    one = all(pair.lower is pair.upper for pair in pairs.values())
    cut = level * CUT
    upper = _run(reduction, steps, pairs, "upper", cut, memory)
    lower = upper if one else _run(reduction, steps, pairs, "lower", cut, memory)
    tail, excess = excess_of(plan, leaves)
    pair = Pair(
        step,
        lower.measure,
        upper.measure,
        tail,
        excess,
        0.0,
        math.inf,
        max(lower.rounding, upper.rounding),
        order,
    )
    tops = np.array([float(leaf.upper.last) for leaf in leaves])
    return with_top(pair, plan, tops, upper.lost)


def _lags(reduction: Reduction) -> list[float]:
    return sorted({p.seconds for p in reduction.parts if p.kind == LAG})


def _run(
    reduction: Reduction,
    steps: tuple[Step, ...],
    pairs: dict[Any, Pair],
    side: str,
    cut: float,
    memory: int,
) -> Known:
    """Mass of the makespan, all parts bounded on one side."""
    share = cut / (4.0 * (WIDTH * len(steps) + len(reduction.parts)))
    parts = _parts(reduction, pairs, side, share)
    nothing = Known(Measure(0, np.ones(1)), 0.0, 0.0)
    box = LiveBox(reduction.first, share, memory)
    for step in steps:
        box.follow(step, parts[step.part] if step.part >= 0 else nothing)
    assert box.live == [reduction.last]
    return Known(Measure(box.offsets[0], box.mass), box.lost, box.rounding)


def _parts(
    reduction: Reduction, pairs: dict[Any, Pair], side: str, share: float
) -> list[Known]:
    """Masses of the parts; equal ones are worked out once."""
    from probcalc.kernels.elimination import convolved
    from probcalc.kernels.order_statistics import maximum_mass

    plan = reduction.plan
    known: dict[Any, tuple[int, Known]] = {}
    found: list[Known] = []
    names: list[int] = []
    for part in reduction.parts:
        if part.kind == NODE:
            key: Any = law_key(plan.elements[int(plan.element_of[part.node])].time)
        elif part.kind == LAG:
            key = law_key(Constant(part.seconds))
        else:
            key = (part.kind, *sorted((names[part.left], names[part.right])))
        if key not in known:
            if part.kind in (NODE, LAG):
                pair = pairs[key]
                measure = pair.upper if side == "upper" else pair.lower
                mine = Known(measure, 0.0, pair.rounding)
            else:
                a, b = found[part.left], found[part.right]
                one, two = a.measure, b.measure
                if part.kind == SERIES:
                    longer, shorter = one.mass, two.mass
                    if longer.size < shorter.size:
                        longer, shorter = shorter, longer
                    whole = convolved(longer[None, :], shorter)[0]
                    measure = Measure(one.first + two.first, whole)
                    error = (shorter.size + 2) * UNIT
                else:
                    first = min(one.first, two.first)
                    rows = np.zeros((2, max(one.last, two.last) - first + 1))
                    for row, m in zip(rows, (one, two), strict=True):
                        row[m.first - first : m.last - first + 1] = m.mass
                    measure = Measure(first, maximum_mass(rows[0], rows[1]))
                    error = 16.0 * UNIT
                mass, low, lost = thinned(measure.mass, share)
                mine = Known(
                    Measure(measure.first + low, mass),
                    a.lost + b.lost + lost,
                    a.rounding + b.rounding + error,
                )
            known[key] = (len(known), mine)
        names.append(known[key][0])
        found.append(known[key][1])
    return found
