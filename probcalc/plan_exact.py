"""Exact laws of plans: the operators of section 3.3, and joint laws where they end.

The reduction of a series-parallel plan becomes a term, whose laws `probcalc.exact`
works out: sums, maxima, and the joint law of time and energy where they depend on each
other. A plan holds all its devices to the end, as a term does, so that
E = B T + sum of x holds for both. A narrow plan that is not series-parallel is worked
out by `probcalc.eliminate`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from probcalc.composed import MEMORY, Composed, repeat, scale, sum_of
from probcalc.discretise import UNIT
from probcalc.distribution import Constant
from probcalc.element import Element, idle
from probcalc.eliminate import eliminated, sequence
from probcalc.enclosed import Enclosed
from probcalc.errors import CompositionError, InputError, ToleranceError
from probcalc.exact import dynamic_energy_law, energy_law, time_law
from probcalc.lattice import Lattice
from probcalc.makespan import Makespan
from probcalc.plan import Plan
from probcalc.planlattice import quantum_of_plan
from probcalc.precedence import check_serial
from probcalc.readonly import ReadOnly
from probcalc.seriesparallel import LAG, NODE, SERIES, Reduction, reduced
from probcalc.setting import Setting
from probcalc.term import Parallel, Sequential, Term, executions, postorder

__all__ = ["check_monotone", "dynamic_of", "exact_laws", "setting_of", "term_of"]

Laws = tuple[Any, Any, Any, Any]

#: Level down to which the law of a narrow plan on a lattice is kept.
LEVEL = 1e-12


def exact_laws(plan: Plan) -> Laws:
    """Laws of time, energy, static and dynamic energy; nodes are independent.

    Raises
    ------
    CompositionError
        A plan that is neither series-parallel nor narrow, or whose nodes can overlap
        on a device and draw another power than its baseline; a narrow one whose energy
        is not a makespan plus a sum independent of it.
    InputError
        Draw groups: nodes that are not independent.
    ToleranceError
        A narrow plan whose joint law takes too many points.
    """
    if not plan.draws.fresh:
        raise InputError(
            f"plan {plan.name!r}: {plan.draws.sentence}; exact laws are for "
            "independent nodes, expected method 'monte-carlo'"
        )
    reduction = reduced(plan)
    if not reduction.whole:
        return _narrow_laws(reduction)
    setting = setting_of(reduction)
    return (
        time_law(setting),
        energy_law(setting),
        energy_law(setting, dynamic=False),
        dynamic_energy_law(setting),
    )


def _narrow_laws(reduction: Reduction) -> Laws:
    plan = reduction.plan
    steps = sequence(reduction)
    if steps is None:
        raise CompositionError(
            f"plan {plan.name!r} is neither series-parallel ({len(reduction.arcs)} "
            "arcs are left) nor narrow; expected method 'monte-carlo' or 'bounds'"
        )
    check_monotone(plan, "exact laws of plans that are not series-parallel")
    dynamic = dynamic_of(plan)
    power = math.fsum(plan.baselines.values())
    law = eliminated(reduction, steps)
    time = _on_lattice(law)
    if time is not None:
        ends = [scale(end, power) for end in (time.lower, time.upper)]
        static = Enclosed(ends[0], ends[1], time.names, alike=True)
        total = [sum_of(end, dynamic) for end in ends]
        energy = Enclosed(total[0], total[1], time.names, alike=True)
        return time, energy, static, dynamic
    if power == 0.0:
        return law, dynamic, sum_of(0.0), dynamic
    return law, law.spent(power, dynamic), law.spent(power), dynamic


def _on_lattice(law: Makespan) -> Enclosed | None:
    """Law of whole numbers of a quantum, between two lattices; None of others."""
    quantum = quantum_of_plan(law.plan)
    if quantum is None:
        return None
    try:
        pair = law.evaluate(quantum.step, "first", LEVEL, MEMORY)
    except ToleranceError:
        return None  # a quantum too fine for all values: brackets as without one
    if pair.tail > 0.0:
        return None  # infinite ranges have no largest value to count for what is cut
    slack = pair.rounding + 32.0 * UNIT
    # What may be missing below counts at the least makespan there is.
    least = min(math.floor(law.support()[0] / pair.step), pair.lower.first)
    lower = np.zeros(pair.lower.last - least + 1)
    lower[pair.lower.first - least :] = pair.lower.mass * (1.0 - slack)
    lower[0] += max(1.0 - math.fsum(lower), 0.0)
    upper = pair.upper.mass * (1.0 + slack)
    # Mass beyond one goes from the smallest values, where it changes no bound.
    beyond = math.fsum(upper) - 1.0
    taken = np.minimum(np.cumsum(upper), max(beyond, 0.0))
    upper = np.maximum(upper - np.diff(taken, prepend=0.0), 0.0)
    return Enclosed(
        sum_of(Lattice(least, pair.step, lower)),
        sum_of(Lattice(pair.upper.first, pair.step, upper)),
        "rounding",
        alike=True,
    )


def dynamic_of(plan: Plan) -> Composed:
    """Sum of the dynamic energies of all nodes, each an independent draw."""
    counts = np.bincount(plan.element_of, minlength=len(plan.elements)).tolist()
    laws = [
        repeat(e.dynamic_energy, count)
        for e, count in zip(plan.elements, counts, strict=True)
        if not (isinstance(e.dynamic_energy, Constant) and e.dynamic_energy.value == 0)
    ]
    return sum_of(*laws) if laws else sum_of(0.0)


def check_monotone(plan: Plan, what: str) -> None:
    """Refuse a plan whose energy is not B T plus a sum that is independent of T.

    Raises
    ------
    InputError
        Draw groups or shared factors: nodes that are not independent.
    CompositionError
        Static power other than the baseline, or times and energies measured together.
    """
    if not plan.draws.fresh:
        raise InputError(
            f"plan {plan.name!r}: {plan.draws.sentence}; {what} are for independent "
            "nodes, expected method 'monte-carlo'"
        )
    if plan.account.shared:
        raise InputError(
            f"plan {plan.name!r}: shared factor {next(iter(plan.account.shared))!r}; "
            f"{what} are for independent nodes, expected method 'monte-carlo'"
        )
    for e in plan.elements:
        beyond = plan.account.beyond(e)
        if beyond or e.coupled:
            why = (
                f"draws {sum(beyond.values()):g} W beyond its devices' baselines"
                if beyond
                else "has time and energy that were measured together"
            )
            raise CompositionError(
                f"element {e.name!r} {why}: energy is not a makespan plus a sum "
                f"independent of it, which {what} need; expected method 'monte-carlo'"
            )


def setting_of(reduction: Reduction) -> Setting:
    """Setting of the term that a whole reduction is, with the plan's account."""
    plan = reduction.plan
    for e in plan.elements:
        check_serial(plan, e)
    term = term_of(reduction)
    order = tuple(postorder(term))
    return Setting(
        term=term,
        order=order,
        elements=tuple(node for node in order if isinstance(node, Element)),
        counts=executions(term),
        account=plan.account,
        grain=1,
    )


def term_of(reduction: Reduction) -> Term:
    """Term with the law of a whole reduction; device rules are the plan's, not its."""
    ((_, _, root),) = reduction.arcs
    plan = reduction.plan
    if root < 0:  # nothing takes time
        return _wait(plan, 0.0)
    waits: dict[float, Term] = {}
    built: list[Term] = []
    # A part is flattened into the one above it where both are of one kind, for all
    # but the topmost of a chain: gathered from the end, when all users are known.
    users = _same_kind_users(reduction)
    pieces: list[list[Term]] = []
    for i, part in enumerate(reduction.parts):
        term: Any = None
        mine: list[Term] = []
        if part.kind == NODE:
            term = plan.elements[int(plan.element_of[part.node])]
        elif part.kind == LAG:
            if part.seconds not in waits:
                waits[part.seconds] = _wait(plan, part.seconds)
            term = waits[part.seconds]
        else:
            for child in (part.left, part.right):
                if users[child]:
                    longer, shorter = mine, pieces[child]
                    if len(shorter) > len(longer):
                        # A series keeps no order that matters: sums and maxima commute.
                        longer, shorter = shorter, longer
                    longer.extend(shorter)
                    mine = longer
                    pieces[child] = []
                else:
                    mine.append(built[child])
            if not users[i]:
                term = _composite(part.kind == SERIES, mine, plan)
                mine = []
        built.append(term)
        pieces.append(mine)
    return built[root]


def _same_kind_users(reduction: Reduction) -> list[bool]:
    """Whether each part is used by one of its own kind, series or parallel."""
    found = [False] * len(reduction.parts)
    for part in reduction.parts:
        if part.kind in (NODE, LAG):
            continue
        for child in (part.left, part.right):
            found[child] = reduction.parts[child].kind == part.kind
    return found


def _composite(series: bool, parts: list[Term], plan: Plan) -> Term:
    term = object.__new__(Sequential if series else Parallel)
    object.__setattr__(term, "parts", tuple(parts))
    object.__setattr__(term, "devices", plan.devices)
    object.__setattr__(term, "points", ())
    return term


def _wait(plan: Plan, seconds: float) -> Term:
    """An element of constant duration on no device: it draws nothing of its own."""
    wait = copy.copy(
        idle(
            seconds,
            device=plan.devices[0],
            static_power=0.0,
            name=f"wait {seconds:g} s",
        )
    )
    object.__setattr__(wait, "powers", ReadOnly({}))
    return wait
