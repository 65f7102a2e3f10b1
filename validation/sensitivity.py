"""Which element could explain a gap: shares of variance, and what moves the mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.composed import scale
from probcalc.distribution import Constant, Empirical
from probcalc.element import Element
from probcalc.montecarlo import simulate
from probcalc.plan import Plan
from probcalc.runs import Runs
from probcalc.term import Term

__all__ = ["Influence", "sensitivity"]

FloatArray = npt.NDArray[np.float64]
#: Relative change of an element by which its influence on the mean is measured.
NUDGE = 0.05


@dataclass(frozen=True, slots=True)
class Influence:
    """What one element does to a composed quantity.

    Attributes
    ----------
    element : str
    executions : int
    variance_share : float
        By how much the variance falls, of all of it, when the element is always as on
        average. Shares need not add up to one where maxima are taken.
    slope : float
        Change of the mean in J (s) when the element takes 1 % more time and energy.
    factor : float
        By what factor the element would have to be larger to explain `gap` alone;
        NaN where no gap was given or it has no influence.
    """

    element: str
    executions: int
    variance_share: float
    slope: float
    factor: float


def sensitivity(
    composed: Term | Plan,
    *,
    gap: float | None = None,
    of: Literal["energy", "time"] = "energy",
    samples: int = 4096,
    seed: int = 0,
) -> tuple[Influence, ...]:
    """Rank the elements of a composition by what they do to its law.

    Monte Carlo with common random numbers; elements of one name on several devices
    count as one.

    Parameters
    ----------
    gap : float, optional
        Measured less predicted, J or s.
    samples, seed : int
        Of each simulation; there are two for every element.
    """
    plan = composed if isinstance(composed, Plan) else Plan.from_term(composed)

    def law(changed: Plan) -> Any:
        return getattr(simulate(changed, samples=samples, seed=seed), of)

    base = law(plan)
    mean, variance = base.mean(), base.variance()
    counts = np.bincount(plan.element_of, minlength=len(plan.elements))
    found = []
    for name in dict.fromkeys(e.name for e in plan.elements):
        still = law(_changed(plan, name, _averaged)).variance()
        moved = law(_changed(plan, name, _nudged)).mean() - mean
        slope = moved / (100.0 * NUDGE)
        found.append(
            Influence(
                name,
                int(counts[[e.name == name for e in plan.elements]].sum()),
                1.0 - still / variance if variance > 0.0 else math.nan,
                slope,
                1.0 + gap / (100.0 * slope)
                if gap is not None and slope > 0.0
                else math.nan,
            )
        )
    size = abs(gap) if gap else 1.0
    return tuple(sorted(found, key=lambda i: (-i.slope / size, i.element)))


def _changed(plan: Plan, name: str, change: Any) -> Plan:
    elements = tuple(change(e) if e.name == name else e for e in plan.elements)
    # Rows that are drawn together are drawn by number: an averaged element keeps them.
    return replace(plan, elements=elements)


def _averaged(e: Element) -> Element:
    if e.runs is not None:
        return _with_runs(e, lambda values: np.full(values.size, float(values.mean())))
    return e.with_laws(
        Constant(float(e.time.mean())), Constant(float(e.dynamic_energy.mean()))
    )


def _nudged(e: Element) -> Element:
    more = 1.0 + NUDGE
    if e.runs is not None:
        return _with_runs(e, lambda values: values * more)
    return e.with_laws(scale(e.time, more), scale(e.dynamic_energy, more))


def _with_runs(e: Element, change: Callable[[FloatArray], FloatArray]) -> Element:
    runs = e.runs
    assert runs is not None
    t, d, x = map(change, (runs.time, runs.dynamic_energy, runs.energy))
    return e.with_laws(Empirical(t), Empirical(d), Runs(t, x, d, runs.blocks))
