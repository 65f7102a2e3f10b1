"""Certified bounds of a plan's laws where its exact law is out of reach (section 6).

Upper: completion times of a plan are positively associated, so that taking the
operands of every maximum as independent gives a stochastically larger makespan
(Kleindorfer 1971). Lower: a plan with arcs taken away until it is series-parallel ends
no later. Both hold for every quantile. Energy is bounded with the makespan where it is
B T plus a sum that is independent of all times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.composed import Composed, repeat, scale, sum_of
from probcalc.distribution import Bounds, Constant, Probability, Quantile
from probcalc.errors import CompositionError, InputError
from probcalc.exact import time_law
from probcalc.kleindorfer import IndependentMaxima
from probcalc.plan import Plan
from probcalc.plan_exact import setting_of
from probcalc.seriesparallel import reduced

__all__ = ["Enclosed", "bound_laws", "lower_time"]

#: Width asked of each of the two laws: far less than they are apart.
RTOL = 2e-3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Enclosed:
    """A law known by a smaller and a larger one: every quantile lies between theirs.

    Parameters
    ----------
    lower, upper : law
        Stochastically smaller and larger, or equal.
    names : str
        What the two are, for `limited_by`.
    """

    lower: Any
    upper: Any
    names: str

    def __repr__(self) -> str:
        """Means of the two laws."""
        return f"<Enclosed: means {self.lower.mean():.6g} to {self.upper.mean():.6g}>"

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int | None = None,
    ) -> Quantile:
        """Bracket between the two laws' quantiles; `rtol` is not promised.

        The value is the middle, the kind ``certified``.
        """
        options: dict[str, Any] = {"rtol": None if rtol is None else RTOL}
        if memory is not None:
            options["memory"] = memory
        low = self.lower.quantile(p, sf=sf, **options)
        high = self.upper.quantile(p, sf=sf, **options)
        return replace(
            low,
            value=0.5 * (low.lower + high.upper),
            upper=high.upper,
            kind="certified",
            limited_by=self.names,
        )

    def quantiles(
        self,
        p: Iterable[float] | None = None,
        *,
        sf: Iterable[float] | None = None,
        rtol: float | None = None,
        memory: int | None = None,
    ) -> tuple[Quantile, ...]:
        """Brackets at several levels."""
        if (p is None) == (sf is None):
            raise InputError("quantiles: give exactly one of p and sf")
        if p is not None:
            return tuple(self.quantile(x, rtol=rtol, memory=memory) for x in p)
        return tuple(self.quantile(sf=x, rtol=rtol, memory=memory) for x in sf or ())

    def probability_above(
        self, limit: float, *, rtol: float = 1e-3, **options: Any
    ) -> Probability:
        """Bounds of P(X > limit)."""
        low = self.lower.probability_above(limit, rtol=rtol, **options)
        high = self.upper.probability_above(limit, rtol=rtol, **options)
        middle = 0.5 * (low.lower + high.upper)
        return Probability(middle, low.lower, high.upper, "certified")

    def mean_bounds(self) -> Bounds:
        """Bounds of the mean."""
        low, high = self.lower.mean_bounds(), self.upper.mean_bounds()
        middle = 0.5 * (low.lower + high.upper)
        return Bounds(middle, low.lower, high.upper, low.kind)

    def mean(self) -> float:
        """Middle of the bounds of the mean."""
        return self.mean_bounds().value

    def variance(self) -> float:
        """Not bounded by the two laws.

        Raises
        ------
        InputError
            Always: a law between two others can vary more than both.
        """
        raise InputError("variance: bounds of quantiles do not bound it")

    def expected_shortfall(
        self, p: float | None = None, *, sf: float | None = None
    ) -> Bounds:
        """Bounds of the mean of the worst `sf` share."""
        low = self.lower.expected_shortfall(p, sf=sf)
        high = self.upper.expected_shortfall(p, sf=sf)
        middle = 0.5 * (low.lower + high.upper)
        return Bounds(middle, low.lower, high.upper, "certified")

    def support(self) -> tuple[float, float]:
        """Smallest value of the one, largest of the other."""
        return self.lower.support()[0], self.upper.support()[1]

    def ccdf(self, x: npt.ArrayLike) -> Any:
        """Middle of the bounds of P(X > x)."""
        return 0.5 * (self.lower.ccdf(x) + self.upper.ccdf(x))

    def cdf(self, x: npt.ArrayLike) -> Any:
        """Middle of the bounds of P(X <= x)."""
        return 0.5 * (self.lower.cdf(x) + self.upper.cdf(x))

    def icdf(self, p: npt.ArrayLike) -> Any:
        """Middle of the brackets."""
        levels = np.asarray(p, dtype=float)
        found = [self.quantile(float(x)).value for x in levels.ravel()]
        return np.array(found).reshape(levels.shape)[()]

    def iccdf(self, q: npt.ArrayLike) -> Any:
        """Middle of the brackets."""
        levels = np.asarray(q, dtype=float)
        found = [self.quantile(sf=float(x)).value for x in levels.ravel()]
        return np.array(found).reshape(levels.shape)[()]


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
    _check(plan)
    low, high = lower_time(plan), IndependentMaxima(plan)
    power = math.fsum(plan.baselines.values())
    dynamic = _dynamic(plan)
    static = [scale(law, power) for law in (low, high)]
    energy = [sum_of(law, dynamic) for law in static]
    return (
        Enclosed(low, high, NAMES),
        Enclosed(energy[0], energy[1], NAMES),
        Enclosed(static[0], static[1], NAMES),
        dynamic,
    )


def lower_time(plan: Plan) -> Composed:
    """Makespan of a series-parallel part of the plan."""
    return time_law(setting_of(reduced(plan, to_one=True)))


def _dynamic(plan: Plan) -> Composed:
    counts = np.bincount(plan.element_of, minlength=len(plan.elements)).tolist()
    laws = [
        repeat(e.dynamic_energy, count)
        for e, count in zip(plan.elements, counts, strict=True)
        if not (isinstance(e.dynamic_energy, Constant) and e.dynamic_energy.value == 0)
    ]
    return sum_of(*laws) if laws else sum_of(0.0)


def _check(plan: Plan) -> None:
    if not plan.draws.fresh:
        raise InputError(
            f"plan {plan.name!r}: {plan.draws.sentence}; bounds are for independent "
            "nodes, expected method 'monte-carlo'"
        )
    if plan.account.shared:
        raise InputError(
            f"plan {plan.name!r}: shared factor {next(iter(plan.account.shared))!r}; "
            "bounds are for independent nodes, expected method 'monte-carlo'"
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
                "independent of it, and is not bounded with it; expected method "
                "'monte-carlo'"
            )
