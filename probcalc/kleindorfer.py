"""Makespans with every maximum taken as if its operands were independent.

Kleindorfer (1971): finishes of nodes that share predecessors are positively
associated, so that independent maxima are stochastically larger: an upper bound of
every quantile.

What a lattice cuts off is counted once for every node, not once for every path. With
caps c_i the process G_i = min(max G_p + T_i, c_i) is increasing in the independent
times, so independent maxima bound it; and it is the plan itself unless some node of
the plan passes its cap, which has at most the probability cut off at that node. The
bound is of the plan: with caps it lies below the law of the independent maxima, whose
far tails drive it up along a long plan.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from probcalc.discretise import Demand, Order, Pair, leaf_pair
from probcalc.distribution import Constant, law_key
from probcalc.evaluate import convolved, extreme, shifted
from probcalc.makespan import Makespan
from probcalc.plan import Plan
from probcalc.planlattice import demand_of, excess_of, with_top
from probcalc.seriesparallel import Start, starts_of

__all__ = ["independent_maxima"]

#: Share of a level that all cuts together may take.
CUT = 1e-4
#: Width asked of the law itself: the bound is percents above the plan.
RTOL = 2e-3
#: By how much deeper a convex bound looks: what is cut counts times its distance.
DEEPER = 1e-6


def independent_maxima(plan: Plan) -> Makespan:
    """Law above a plan's makespan; the plan's draws must be independent."""
    return Makespan(plan, partial(_evaluated, plan), "independent maxima", RTOL)


def _evaluated(
    plan: Plan, step: float, order: Order, level: float, memory: int
) -> Pair:
    demand = demand_of(plan, step, order, level, memory, CUT)
    if order == "convex":
        demand = replace(demand, level=level * DEEPER)
    nothing = leaf_pair(Constant(0.0), demand)
    leaves: dict[Any, Pair] = {}
    tops = np.zeros(len(plan.elements))
    cut = 0.0
    users = np.bincount(plan.sources, minlength=len(plan))
    left = users.copy()
    finish: dict[int, Pair] = {}
    starts: dict[Start, Pair] = {}
    keys = starts_of(plan)
    total: Pair | None = None
    for i in plan.order.tolist():
        key = keys[i]
        if key not in starts:
            starts[key] = _start(key, finish, nothing, demand)
        e = int(plan.element_of[i])
        law = law_key(plan.elements[e].time)
        if law not in leaves:
            leaves[law] = leaf_pair(plan.elements[e].time, demand)
        leaf = leaves[law]
        tops[e] = leaf.upper.last
        done = convolved([(starts[key], 1), (_bare(leaf), 1)], demand)
        cut += done.tail + done.cut
        finish[i] = _bare(done)
        if users[i] == 0:
            total = finish[i] if total is None else _larger(total, finish[i], demand)
            del finish[i]
        for j, _ in key[0]:
            left[j] -= 1
            if left[j] == 0:
                finish.pop(j, None)
        if not any(left[j] for j, _ in key[0]):
            starts.pop(key, None)
    assert total is not None
    tail, excess = excess_of(plan, [leaves[law_key(e.time)] for e in plan.elements])
    return with_top(replace(total, tail=tail, excess=excess), plan, tops, cut)


def _start(key: Start, finish: dict[int, Pair], nothing: Pair, demand: Demand) -> Pair:
    ends = [shifted(finish[j], lag) if lag else finish[j] for j, lag in key[0]]
    if key[1] or not ends:
        ends.append(shifted(nothing, key[1]) if key[1] else nothing)
    start = ends[0]
    for other in ends[1:]:
        start = _larger(start, other, demand)
    return start


def _bare(pair: Pair) -> Pair:
    """Return a pair whose cuts are counted elsewhere."""
    return replace(pair, tail=0.0, excess=0.0, cut=0.0, exact_below=math.inf)


def _larger(one: Pair, other: Pair, demand: Demand) -> Pair:
    pair = extreme([(one, 1), (other, 1)], demand, largest=True)
    if pair.lower is pair.upper or (
        one.lower is one.upper and other.lower is other.upper
    ):
        return replace(pair, lower=pair.upper)
    return pair
