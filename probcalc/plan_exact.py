"""Exact laws of series-parallel plans: the operators of section 3.3, and nothing else.

The reduction of a plan becomes a term, whose laws `probcalc.exact` works out: sums,
maxima, and the joint law of time and energy where they depend on each other. A plan
holds all its devices to the end, as a term does, so that E = B T + sum of x holds for
both.
"""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any

from probcalc.composed import Composed
from probcalc.element import Element, idle
from probcalc.errors import CompositionError, InputError
from probcalc.exact import dynamic_energy_law, energy_law, time_law
from probcalc.plan import Plan
from probcalc.seriesparallel import LAG, NODE, SERIES, Reduction, reduced
from probcalc.setting import Setting
from probcalc.term import Parallel, Sequential, Term, executions, postorder

__all__ = ["exact_laws", "setting_of", "term_of"]

Laws = tuple[Composed, Composed, Composed, Composed]


def exact_laws(plan: Plan) -> Laws:
    """Laws of time, energy, static and dynamic energy of a series-parallel plan.

    Raises
    ------
    CompositionError
        A plan that is not series-parallel, or whose nodes can overlap on a device
        and draw another power than its baseline.
    InputError
        Draw groups: nodes that are not independent.
    """
    if not plan.draws.fresh:
        raise InputError(
            f"plan {plan.name!r}: {plan.draws.sentence}; exact laws are for "
            "independent nodes, expected method 'monte-carlo'"
        )
    reduction = reduced(plan)
    if not reduction.whole:
        raise CompositionError(
            f"plan {plan.name!r} is not series-parallel: {len(reduction.arcs)} arcs "
            "are left; expected method 'monte-carlo' or 'bounds'"
        )
    setting = setting_of(reduction)
    return (
        time_law(setting),
        energy_law(setting),
        energy_law(setting, dynamic=False),
        dynamic_energy_law(setting),
    )


def setting_of(reduction: Reduction) -> Setting:
    """Setting of the term that a whole reduction is, with the plan's account."""
    plan = reduction.plan
    for e in plan.elements:
        if plan.account.beyond(e):
            for device in e.devices:
                if not plan.serial(device):
                    raise CompositionError(
                        f"device {device!r}: element {e.name!r} draws another power "
                        "than its baseline, and nodes there can overlap; state their "
                        "order, or one static power"
                    )
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
    object.__setattr__(wait, "powers", MappingProxyType({}))
    return wait
