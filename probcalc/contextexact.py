"""Exact laws where contexts follow from traces alone, whatever times are drawn.

Then every execution has one context, its laws are those of the null context moved by a
known amount, and the plan of these elements composes without context.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from probcalc.composed import scale, shift
from probcalc.context import Context
from probcalc.contextplan import Pass, in_context
from probcalc.contextsetup import Setup
from probcalc.distribution import Constant
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.mechanisms.registry import Effect
from probcalc.plan import Plan

__all__ = ["realised"]


def realised(setup: Setup) -> tuple[Plan, Pass] | None:
    """Return the plan of elements in their contexts; None where that is not to hand.

    Raises
    ------
    InputError
        As `probcalc.contextplan.in_context`; a context that makes a time or an energy
        negative.
    """
    plan = setup.plan
    means = np.array(
        [[float(e.time.mean()), float(e.dynamic_energy.mean())] for e in plan.elements]
    )[plan.element_of]
    # Two samples that differ: what depends on them is not known beforehand.
    time, energy = (np.stack([x, 2.0 * x + 1.0], axis=1) for x in means.T)
    found, _ = in_context(setup, time, energy)
    if found.leaks:
        return None
    made: dict[Any, int] = {}
    elements: list[Element] = []
    element_of = np.empty(len(plan), dtype=np.int64)
    for v, i in enumerate(plan.element_of.tolist()):
        effect = _one(found.effects[v])
        if effect is None:
            return None
        state = {name: float(x[0]) for name, x in found.entry[v].items()}
        key = (i, effect, tuple(state.items()) if setup.signatures[i] else ())
        if key not in made:
            element = _element(setup, i, effect, state)
            if element is None:
                return None
            made[key] = len(elements)
            elements.append(element)
        element_of[v] = made[key]
    return plan.with_elements(elements, element_of), found


def _one(effect: Effect) -> Effect | None:
    """Return the effect as numbers, or None where it differs from draw to draw."""
    values = [np.atleast_1d(np.asarray(x, dtype=float)) for x in effect]
    if any(np.ptp(x) != 0.0 for x in values):
        return None
    return Effect(*(float(x[0]) for x in values))


def _element(
    setup: Setup, i: int, effect: Effect, state: dict[str, float]
) -> Element | None:
    null = setup.plan.elements[i]
    signature = setup.signatures[i]
    base = null
    if signature is not None:
        here = {name: state[name] for name in signature.variables}
        found = signature.at(Context(here))
        if found is None:
            return None
        base = found.on(*null.devices)
    if effect == Effect():
        return base
    a, b, c, y = effect
    if base.runs is not None:
        if signature is not None:
            return None
        return Element.from_runs(
            base.name,
            time=base.runs.time * (1.0 + a) + b,
            energy=base.runs.dynamic_energy * (1.0 + c)
            + y
            + base.static_power * (base.runs.time * (1.0 + a) + b),
            static_power=base.powers,
            device=base.devices,
            blocks=base.runs.blocks,
            grain=base.grain,
        )
    laws = [
        _moved(law, factor, offset, f"element {base.name!r}, {what}", unit)
        for law, factor, offset, what, unit in (
            (base.time, 1.0 + a, b, "time", "s"),
            (base.dynamic_energy, 1.0 + c, y, "dynamic energy", "J"),
        )
    ]
    return base.with_laws(*laws)


def _moved(law: Any, factor: float, offset: float, where: str, unit: str) -> Any:
    least = float(law.support()[0]) * factor + offset
    if least < 0.0:
        raise InputError(
            f"{where}: context makes it as low as {least:.6g} {unit}, expected >= 0; "
            "the effects of its mechanisms are larger than what they act on"
        )
    if isinstance(law, Constant):
        return Constant(law.value * factor + offset)
    if factor != 1.0:
        law = scale(law, factor)
    return shift(law, offset) if offset else law
