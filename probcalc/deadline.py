"""Plans that trade time for energy: the least energy within a deadline.

Which point every node should run at is a discrete time-cost trade-off, NP-hard in
general (section 6): small plans are tried in full, larger ones are rounded from a
relaxation whose bound comes with every point. Energies and times are means: for laws
see `probcalc.frontier_risk`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.frontier_exact import MOST_CHOICES, choices, unbeaten
from probcalc.frontier_grouped import Groups, descended, fastest_of, relaxed
from probcalc.frontier_plans import PlanFrontier, PlanPoint, kept
from probcalc.frontier_problem import Problem
from probcalc.frontier_relaxed import Relaxation, Snapshot, bound_of
from probcalc.frontier_rounded import TRIALS, blended, rounded, trials_of
from probcalc.operating import OperatingSet
from probcalc.plan import Plan
from probcalc.runs import whole

__all__ = ["cheapest", "plan_frontier"]

IntArray = npt.NDArray[np.int64]
#: Deadlines from slow to fast, optima of the relaxation, points by rank.
Found = list[tuple[float, Snapshot, IntArray]]

#: How far beyond the energy-minimal makespan of the relaxation plans are looked for.
_BEYOND = (0.0, 1e-3, 3e-3, 1e-2)


def plan_frontier(
    plan: Plan,
    sets: Mapping[str, OperatingSet],
    *,
    groups: str | Sequence[str] | None = None,
    deadlines: Sequence[float] | None = None,
    points: int = 30,
    trials: int | None = None,
    exact: int = MOST_CHOICES,
) -> PlanFrontier:
    """Trade time for energy in a plan; times and energies are means.

    Parameters
    ----------
    plan : Plan
    sets : mapping of str to OperatingSet
        By name of an element of the plan; nodes of other elements stay as they are.
    groups : str or sequence of str, optional
        Labels, or ``"device"``: nodes that agree in them run at one device point.
    deadlines : sequence of float, optional
        In s. Without, `points` of them between the fastest and the energy-minimal
        makespan, evenly spaced.
    points : int
    trials : int, optional
        Moves tried in each pass of the local search; fewer in larger plans without.
    exact : int
        Number of choices up to which all are tried; then the frontier is complete,
        whatever the deadlines.

    Returns
    -------
    PlanFrontier
        Points that no other one beats, up to the energy-minimal makespan.

    Raises
    ------
    InputError
        A deadline below the fastest makespan, which the error states; as
        `probcalc.frontier_problem.Problem.of`.
    CompositionError
        As `probcalc.frontier_problem.Problem.of`.
    """
    problem = Problem.of(plan, sets, groups=groups)
    count = whole(points, "plan_frontier: points")
    if choices(problem) <= exact:
        found = tuple(_exact(problem, pick) for pick in unbeaten(problem))
        if deadlines is None:
            return PlanFrontier(problem, found)
        limits = _limits(deadlines, found[0].time, plan.name)
        whole_frontier = PlanFrontier(problem, found)
        return PlanFrontier(
            problem, kept([whole_frontier.cheapest(limit) for limit in limits])
        )
    effort = trials_of(problem, trials)
    solve = _grouped if problem.grouped else _free
    return PlanFrontier(problem, kept(solve(problem, deadlines, count, effort)))


def cheapest(
    plan: Plan,
    sets: Mapping[str, OperatingSet],
    deadline: float = math.inf,
    *,
    groups: str | Sequence[str] | None = None,
    trials: int = 5 * TRIALS,
    exact: int = MOST_CHOICES,
) -> tuple[Problem, PlanPoint]:
    """Return the choice of least mean energy within a deadline in s.

    Parameters as `plan_frontier`; `probcalc.frontier_problem.Problem.applied` of the
    problem turns the choice into a plan.

    Raises
    ------
    InputError, CompositionError
        As `plan_frontier`.
    """
    found = plan_frontier(
        plan, sets, groups=groups, deadlines=[deadline], trials=trials, exact=exact
    )
    return found.problem, found.points[0]


def _limits(deadlines: Sequence[float], fastest: float, name: str) -> list[float]:
    limits = [float(limit) for limit in deadlines]
    if not limits:
        raise InputError("deadlines: none given, expected at least one")
    for limit in limits:
        if not limit >= fastest:
            raise InputError(
                f"plan {name!r}: deadline is {limit!r} s, expected at least the "
                f"fastest makespan {fastest!r} s"
            )
    return sorted(limits, reverse=True)


def _even(least: float, fastest: float, count: int) -> list[float]:
    """Deadlines from slow to fast that include both ends."""
    if count == 1:
        return [least]
    return [*np.linspace(least, fastest, count)[:-1].tolist(), fastest]


def _exact(problem: Problem, pick: IntArray) -> PlanPoint:
    time, energy = problem.evaluate(pick)
    return PlanPoint(time, energy, energy, True, problem.choice(pick))


def _free(
    problem: Problem, deadlines: Sequence[float] | None, count: int, trials: int
) -> list[PlanPoint]:
    """Points for deadlines, every node free to choose."""
    fastest = problem.makespan(problem.fastest())
    if deadlines is not None:
        deadlines = _limits(deadlines, fastest, problem.plan.name)
    walk = Relaxation.of(problem)
    # The relaxation of least energy may be a little faster than any plan is.
    least = max(walk.makespan, fastest)
    limits = _even(least, fastest, count) if deadlines is None else deadlines
    found: Found = []
    for limit in limits:
        if limit >= least:
            snapshot = walk.least
            pick = _least(problem, snapshot, least, limit, trials)
        else:
            snapshot = walk.at(limit)
            pick = rounded(problem, snapshot, limit, trials=trials)
        found.append((limit, snapshot, pick))
    return _bounded(problem, _blends(problem, found, trials), fastest)


def _blends(problem: Problem, found: Found, trials: int) -> Found:
    """Plans between corners of the hull of all plans, where these are better."""
    from probcalc.kernels.pareto import hull, reduced

    values = [problem.evaluate(pick) for _, _, pick in found]
    time, energy = (np.array(column) for column in zip(*values, strict=True))
    kept_ = reduced(time, energy)
    corners = kept_[hull(time[kept_], energy[kept_])]
    better: Found = []
    for i, (limit, snapshot, pick) in enumerate(found):
        # Corners stand by rising time: the last one within the deadline, the next one.
        k = int(np.searchsorted(time[corners], limit, side="right"))
        if 0 < k < corners.size:
            fast, slow = found[corners[k - 1]][2], found[corners[k]][2]
            mix = blended(problem, snapshot, limit, fast, slow, trials=trials)
            if problem.evaluate(mix)[1] < energy[i]:
                pick = mix
        better.append((limit, snapshot, pick))
    return better


def _least(
    problem: Problem, snapshot: Snapshot, least: float, limit: float, trials: int
) -> IntArray:
    """Points of least energy, with hardly a deadline.

    Slack beyond the energy-minimal makespan of the relaxation costs static energy, but
    a little of it can make up for what points of their own leave unused.
    """
    ends = [least * (1.0 + share) for share in _BEYOND]
    picks = [
        rounded(problem, snapshot, end, trials=trials)
        for end in dict.fromkeys(min(end, limit) for end in ends)
    ]
    return min(picks, key=lambda pick: problem.evaluate(pick)[1])


def _bounded(problem: Problem, found: Found, fastest: float) -> list[PlanPoint]:
    """Points with their bounds; a faster one that costs less takes a slower's place."""
    points: list[PlanPoint] = []
    best: tuple[float, IntArray] | None = None
    for limit, snapshot, pick in reversed(found):
        energy = problem.evaluate(pick)[1]
        if best is None or energy < best[0]:
            best = energy, pick
        pick = best[1]
        time, energy = problem.evaluate(pick)
        bound = bound_of(problem, snapshot, limit, fastest)
        points.append(PlanPoint(time, energy, bound, False, problem.choice(pick)))
    return points


def _grouped(
    problem: Problem, deadlines: Sequence[float] | None, count: int, trials: int
) -> list[PlanPoint]:
    """Points for deadlines, groups of nodes at one device point."""
    groups = Groups.of(problem)
    quick = fastest_of(groups)
    fastest = problem.makespan(groups.picks(quick))
    if deadlines is None:
        free = descended(groups, quick, math.inf)
        least = problem.makespan(groups.picks(free))
        deadlines = _even(least, fastest, count)
    else:
        deadlines = _limits(deadlines, fastest, problem.plan.name)
    points: list[PlanPoint] = []
    best = quick
    for limit in reversed(deadlines):
        bound, shares = relaxed(groups, limit)
        starts = [best, quick]
        mixed = np.array(
            [
                np.argmax(shares[a:b])
                for a, b in zip(groups.offset[:-1], groups.offset[1:], strict=True)
            ]
        )
        if problem.makespan(groups.picks(mixed)) <= limit:
            starts.append(mixed)
        ends = [descended(groups, start, limit) for start in starts]
        best = min(ends, key=lambda o: problem.evaluate(groups.picks(o))[1])
        pick = groups.picks(best)
        time, energy = problem.evaluate(pick)
        points.append(PlanPoint(time, energy, bound, False, problem.choice(pick)))
    return points
