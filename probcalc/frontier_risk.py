"""Plans chosen for a quantile of time: least energy for a deadline kept at a level.

The mean-optimal plan for a deadline plans with mean times. Its makespan is the longest
of many random paths and is longer than that on average already; the deadline is missed
more often than not. Here plans are judged by simulation, all by the same random numbers
(`probcalc.montecarlo`: what a node draws depends on the seed and on the node), so that
differences between plans are not differences of luck. What is reported comes from a
second seed, which chose nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.deadline import plan_frontier
from probcalc.distribution import Bounds, Probability, Quantile
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.frontier_plans import PlanFrontier, PlanPoint
from probcalc.frontier_problem import Problem
from probcalc.montecarlo import Simulation, simulate
from probcalc.operating import OperatingSet
from probcalc.plan import Plan
from probcalc.runs import whole

__all__ = ["Judged", "Measure", "RiskPlan", "risk_plan"]

Measure = Literal["mean", "quantile", "shortfall"]

#: Standard deviations added to every time before plans are drawn up.
MARGINS = (0.0, 0.5)
#: Samples that plans are compared by.
SAMPLES = 16_384
#: Plans drawn up between two neighbours of a frontier.
_FINER = 7


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A plan and what a simulation that did not choose it finds.

    Attributes
    ----------
    plan : Plan
    choice : ndarray of int64, shape (nodes,)
        Point of its operating set for every node.
    mean_time, mean_energy : float
        In s and J, of mean times and energies.
    time : Quantile
        The asked quantile of time in s, with its confidence interval.
    late : Probability
        P(T > deadline), with its confidence interval.
    energy : Quantile or Bounds
        The asked measure of energy in J, with its confidence interval.
    """

    plan: Plan
    choice: npt.NDArray[np.int64]
    mean_time: float
    mean_energy: float
    time: Quantile
    late: Probability
    energy: Quantile | Bounds


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RiskPlan:
    """A plan that keeps a deadline at a level, beside the mean-optimal one.

    Attributes
    ----------
    deadline : float
        In s.
    p : float
        Level at which time is to keep it.
    measure : str
        What of energy is made least: ``mean``, ``quantile`` or ``shortfall``.
    chosen : Judged
    mean_optimal : Judged or None
        The plan of least mean energy whose mean times keep the deadline; None where
        none does.
    samples, seed : int
        Of the simulation that the figures come from.
    """

    deadline: float
    p: float
    measure: Measure
    chosen: Judged
    mean_optimal: Judged | None
    samples: int
    seed: int

    @property
    def missed_by(self) -> float:
        """Seconds by which the mean-optimal plan misses the deadline at level p.

        Negative where it keeps it; NaN where there is no such plan.
        """
        if self.mean_optimal is None:
            return math.nan
        return self.mean_optimal.time.value - self.deadline

    def __repr__(self) -> str:
        """Both plans with their quantiles and chances to be late."""
        text = f"<RiskPlan, deadline {self.deadline:.6g} s: {self._shown(self.chosen)}"
        if self.mean_optimal is not None:
            text += f"; mean-optimal: {self._shown(self.mean_optimal)}"
        return text + ">"

    def _shown(self, judged: Judged) -> str:
        t, late = judged.time, judged.late
        return (
            f"{self.p:g} quantile {t.value:.6g} s [{t.lower:.6g}, {t.upper:.6g}], late "
            f"with {late.value:.3g} [{late.lower:.3g}, {late.upper:.3g}], energy "
            f"{self.measure} {judged.energy.value:.6g} J"
        )


def risk_plan(
    plan: Plan,
    sets: Mapping[str, OperatingSet],
    deadline: float,
    *,
    p: float = 0.95,
    measure: Measure = "quantile",
    energy_p: float | None = None,
    groups: str | Sequence[str] | None = None,
    margins: Sequence[float] = MARGINS,
    points: int = 32,
    samples: int = SAMPLES,
    seed: int = 0,
) -> RiskPlan:
    """Make a measure of energy least while a quantile of time keeps a deadline.

    Nodes draw independently but for the draw groups of the plan, which are kept.

    Parameters
    ----------
    plan, sets, groups
        As `probcalc.deadline.plan_frontier`.
    deadline : float
        In s.
    p : float
        Level of the quantile of time; the upper end of its confidence interval is what
        has to keep the deadline.
    measure : {"mean", "quantile", "shortfall"}
        Of energy.
    energy_p : float, optional
        Level of the quantile or shortfall of energy; `p` without.
    margins : sequence of float
        Standard deviations that are added to every time before plans are drawn up; for
        each of them a frontier is searched.
    points : int
        Plans drawn up for each margin.
    samples, seed : int
        Of the simulations that choose; the figures come from twice as many samples of
        the next seed.

    Raises
    ------
    InputError
        A level outside (0, 1), an unknown measure, no margins; a deadline that even the
        fastest plan does not keep, with its quantile; as
        `probcalc.deadline.plan_frontier`.
    """
    limit = _checked(deadline, p, measure, margins)
    level = p if energy_p is None else energy_p
    if not 0.0 < level < 1.0:
        raise InputError(f"risk_plan: energy_p is {level!r}, expected in (0, 1)")
    whole(samples, "risk_plan: samples")
    problem = Problem.of(plan, sets, groups=groups)

    def simulated(point: PlanPoint) -> Simulation:
        made = problem.applied(point.choice)
        return simulate(made, samples=samples, seed=seed)

    best: tuple[float, PlanPoint] | None = None
    quickest = math.inf
    for margin in margins:
        slowed = _slowed(sets, margin)
        drawn = plan_frontier(plan, slowed, groups=groups, points=points)
        found, quick = _slowest_kept(drawn, simulated, limit, p)
        quickest = min(quickest, quick)
        if found is None:
            continue
        ends = _around(drawn, found[0])
        if ends:  # once more between the last one that keeps it and the next
            finer = plan_frontier(plan, slowed, groups=groups, deadlines=ends)
            again, _ = _slowest_kept(finer, simulated, limit, p)
            found = again or found
        point, simulation = found
        value = _measured(simulation, measure, level).value
        if best is None or value < best[0]:
            best = value, point
    if best is None:
        raise InputError(
            f"plan {plan.name!r}: deadline is {limit!r} s, expected at least the {p:g} "
            f"quantile of the fastest plan, {quickest:.6g} s"
        )

    def judged(point: PlanPoint) -> Judged:
        made = problem.applied(point.choice)
        s = simulate(made, samples=2 * samples, seed=seed + 1)
        return Judged(
            made, point.choice, *problem.valued(point.choice), s.time.quantile(p),
            s.time.probability_above(limit), _measured(s, measure, level),
        )  # fmt: skip

    return RiskPlan(
        limit, p, measure, judged(best[1]),
        _mean_optimal(plan, sets, limit, groups, judged), 2 * samples, seed + 1,
    )  # fmt: skip


def _checked(
    deadline: float, p: float, measure: str, margins: Sequence[float]
) -> float:
    limit = float(deadline)
    if not (math.isfinite(limit) and limit >= 0.0):
        raise InputError(f"risk_plan: deadline is {deadline!r}, expected seconds >= 0")
    if not 0.0 < p < 1.0:
        raise InputError(f"risk_plan: p is {p!r}, expected in (0, 1)")
    if measure not in ("mean", "quantile", "shortfall"):
        raise InputError(
            f"risk_plan: measure is {measure!r}, expected 'mean', 'quantile' or "
            "'shortfall'"
        )
    if not margins or not all(math.isfinite(m) and m >= 0.0 for m in margins):
        raise InputError(
            f"risk_plan: margins are {list(margins)!r}, expected numbers >= 0"
        )
    return limit


def _slowed(sets: Mapping[str, OperatingSet], margin: float) -> dict[str, OperatingSet]:
    """Sets of constants, every time longer by so many standard deviations."""
    return {
        name: OperatingSet.of_elements(
            held.name,
            [
                Element(
                    e.name,
                    time=float(e.time.mean())
                    + margin * math.sqrt(max(float(e.time.variance()), 0.0)),
                    dynamic_energy=float(e.dynamic_energy.mean()),
                    static_power=dict(e.powers),
                    devices=e.devices,
                    implementation=e.implementation,
                    operating_point=e.operating_point,
                    metadata=e.metadata,
                )
                for e in held.elements
            ],
        )
        for name, held in sets.items()
    }


def _around(drawn: PlanFrontier, point: PlanPoint) -> list[float]:
    """Deadlines in s between a point of a frontier and the next slower one."""
    k = drawn.points.index(point)
    if k + 1 == len(drawn):
        return []
    after = drawn.points[k + 1].time
    return np.linspace(point.time, after, _FINER + 1, endpoint=False).tolist()


def _slowest_kept(
    drawn: PlanFrontier,
    simulated: Callable[[PlanPoint], Simulation],
    limit: float,
    p: float,
) -> tuple[tuple[PlanPoint, Simulation] | None, float]:
    """The slowest point of a frontier that keeps the limit, by bisection.

    And the quantile of its fastest point. Along a frontier energies fall; quantiles of
    time rise but for the odd pair, between which bisection may pick either.
    """
    first = simulated(drawn.points[0])
    quick = first.time.quantile(p).upper
    if quick > limit:
        return None, quick
    low, high = 0, len(drawn)
    found = drawn.points[0], first
    while high - low > 1:
        middle = (low + high) // 2
        one = simulated(drawn.points[middle])
        if one.time.quantile(p).upper <= limit:
            low, found = middle, (drawn.points[middle], one)
        else:
            high = middle
    return found, quick


def _measured(simulation: Simulation, measure: Measure, p: float) -> Any:
    if measure == "mean":
        return simulation.energy.mean_bounds()
    if measure == "quantile":
        return simulation.energy.quantile(p)
    return simulation.energy.expected_shortfall(p)


def _mean_optimal(
    plan: Plan,
    sets: Mapping[str, OperatingSet],
    limit: float,
    groups: str | Sequence[str] | None,
    judged: Callable[[PlanPoint], Judged],
) -> Judged | None:
    try:
        found = plan_frontier(plan, sets, groups=groups, deadlines=[limit])
    except InputError:  # even at mean times no plan is as fast
        return None
    return judged(found.points[0])
