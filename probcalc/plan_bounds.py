"""Certified bounds of a plan's laws where its exact law is out of reach (section 6).

Upper: completion times of a plan are positively associated, so that taking the
operands of every maximum as independent gives a stochastically larger makespan
(Kleindorfer 1971). Lower: a plan with arcs taken away until it is series-parallel ends
no later. Both hold for every quantile. Energy is bounded with the makespan where it is
B T plus a sum that is independent of all times.
"""

from __future__ import annotations

import math
from typing import Any

from probcalc.composed import Composed, scale, sum_of
from probcalc.enclosed import Enclosed
from probcalc.exact import time_law
from probcalc.kleindorfer import independent_maxima
from probcalc.plan import Plan
from probcalc.plan_exact import check_monotone, dynamic_of, setting_of
from probcalc.seriesparallel import reduced

__all__ = ["NAMES", "bound_laws", "lower_time"]

NAMES = "independent maxima above, a series-parallel part below"


def bound_laws(plan: Plan) -> tuple[Any, Any, Any, Any]:
    """Bounds of time, energy, static and dynamic energy; nodes are independent.

    Raises
    ------
    InputError
        Draw groups or shared factors: nodes that are not independent.
    CompositionError
        Energy that is not monotone in independent quantities: static power other than
        the baseline, or times and energies measured together.
    """
    check_monotone(plan, "bounds")
    low, high = lower_time(plan), independent_maxima(plan)
    power = math.fsum(plan.baselines.values())
    dynamic = dynamic_of(plan)
    time = Enclosed(low, high, NAMES)
    if power == 0.0:
        return time, dynamic, sum_of(0.0), dynamic
    static = Enclosed(scale(low, power), high.spent(power), NAMES)
    lower = sum_of(scale(low, power), dynamic)
    energy = Enclosed(lower, high.spent(power, dynamic), NAMES)
    return time, energy, static, dynamic


def lower_time(plan: Plan) -> Composed:
    """Makespan of a series-parallel part of the plan."""
    return time_law(setting_of(reduced(plan, to_one=True)))
