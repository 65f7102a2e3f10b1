"""Plans on lattices: quanta, steps, and what is cut off the bounds of a makespan."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from probcalc.discretise import Demand, Measure, Order, Pair
from probcalc.distribution import Constant
from probcalc.errors import ToleranceError
from probcalc.exact_lattice import Quantum, quantum_of
from probcalc.extent import points_allowed
from probcalc.lattice import Lattice
from probcalc.nodes import Leaf, Sum
from probcalc.plan import Plan
from probcalc.refine import EXACT_POINTS

__all__ = [
    "coarser",
    "demand_of",
    "depth_of",
    "excess_of",
    "longest",
    "means_of",
    "quantum_of_plan",
    "spaced",
    "whole_lattice",
    "with_top",
]

FloatArray = npt.NDArray[np.float64]


def coarser(measure: Measure, ratio: float, *, down: bool) -> Measure:
    """Measure on points `1 / ratio` times as far apart, each rounded one way."""
    if ratio == 1.0:
        return measure
    position = (measure.first + np.arange(measure.mass.size)) * ratio
    if (position[-1] - position[0]) > EXACT_POINTS:
        raise ToleranceError(
            f"lattice of {position[-1] - position[0]:.3g} points needed, "
            f"{EXACT_POINTS} allowed"
        )
    # Rounding of the product must not move a point past its neighbour.
    slack = 1e-12 * np.maximum(np.abs(position), 1.0)
    index = np.floor(position - slack) if down else np.ceil(position + slack)
    first = int(index[0])
    mass = np.bincount((index - first).astype(np.int64), weights=measure.mass)
    return Measure(first, mass.astype(np.float64))


def whole_lattice(
    measure: Measure, step: float, *, missing_below: bool, lost: float
) -> Lattice:
    """Lattice of a measure; what it lacks of one lies below, what it has beyond goes.

    Mass beyond one is taken from the lowest points of an upper measure, where its
    absence changes no bound.
    """
    mass = measure.mass.copy()
    lack = 1.0 - lost - math.fsum(mass)
    if lack < 0.0:
        taken = np.minimum(np.cumsum(mass), -lack)
        mass = np.maximum(mass - np.diff(taken, prepend=0.0), 0.0)
        lack = 0.0
    if missing_below:
        return Lattice(measure.first, step, mass, lost_below=lack)
    mass[0] += lack
    return Lattice(measure.first, step, mass, lost_above=lost)


def demand_of(
    plan: Plan, step: float, order: Order, level: float, memory: int, share: float
) -> Demand:
    """Return what is asked of the laws of a plan's elements.

    Parameters
    ----------
    share : float
        Of the level, what all nodes together may leave out.
    """
    points = min(points_allowed(memory), EXACT_POINTS)
    tail = level * share / len(plan)
    return Demand(step, order, math.inf, tail, points, level, tail_only=False)


def with_top(pair: Pair, plan: Plan, tops: FloatArray, cut: float) -> Pair:
    """Put what was cut off a bound at the largest value there is.

    Beyond its cap the makespan counts in a stop-loss transform, and in the mean, with
    its size, not with its probability alone.

    Parameters
    ----------
    tops : ndarray, shape (elements,)
        Last points of the upper lattices of the elements' times.
    """
    from probcalc.kernels import graph

    steps = np.ceil(plan.lags / pair.step), np.ceil(plan.releases / pair.step)
    top = math.ceil(
        graph.longest(
            len(plan),
            plan.sources,
            plan.targets,
            steps[0],
            tops[plan.element_of].astype(np.float64),
            steps[1],
        )
    )
    top = max(top, pair.upper.last)
    if top - pair.upper.first > 4 * EXACT_POINTS:
        raise ToleranceError(
            f"lattice of {top - pair.upper.first:.3g} points needed, "
            f"{4 * EXACT_POINTS} allowed"
        )
    mass = np.zeros(top - pair.upper.first + 1)
    mass[: pair.upper.mass.size] = pair.upper.mass
    mass[-1] += cut
    return replace(pair, upper=Measure(pair.upper.first, mass))


def quantum_of_plan(plan: Plan) -> Quantum | None:
    """Quantum of which all durations, lags and releases are multiples, or None."""
    laws = [(Leaf(e.time), 1) for e in plan.elements]
    waits = np.unique(np.concatenate([plan.lags, plan.releases]))
    laws += [(Leaf(Constant(float(x))), 1) for x in waits[waits > 0.0]]
    return quantum_of(Sum(tuple(laws)))


def depth_of(plan: Plan) -> float:
    """Most nodes on one path."""
    return float(plan.level.max()) + 1.0


def longest(plan: Plan, times: FloatArray) -> float:
    """Longest path in s when each element takes a fixed time in s."""
    from probcalc.kernels import graph

    return graph.longest(
        len(plan),
        plan.sources,
        plan.targets,
        plan.lags,
        np.asarray(times, dtype=np.float64)[plan.element_of],
        plan.releases,
    )


def means_of(plan: Plan) -> FloatArray:
    """Return the mean times of the elements in s."""
    return np.array([float(e.time.mean()) for e in plan.elements])


def excess_of(plan: Plan, leaves: list[Pair]) -> tuple[float, float]:
    """Bounds of the probability and of the mean by which leaves exceed their lattices.

    The makespan grows by at most the sum of what all durations grow by.

    Parameters
    ----------
    leaves : list of Pair
        Of the elements' times.
    """
    counts = np.bincount(plan.element_of, minlength=len(leaves)).tolist()
    tail = math.fsum(n * (p.tail + p.cut) for n, p in zip(counts, leaves, strict=True))
    excess = math.fsum(n * p.excess for n, p in zip(counts, leaves, strict=True))
    return min(tail, 1.0), excess


def spaced(pair: Pair, factor: int, step: float) -> Pair:
    """Return a pair on a grid `factor` times finer, of another unit."""

    def apart(measure: Measure) -> Measure:
        mass = np.zeros(factor * (measure.mass.size - 1) + 1)
        mass[::factor] = measure.mass
        return Measure(factor * measure.first, mass)

    lower = apart(pair.lower)
    upper = lower if pair.upper is pair.lower else apart(pair.upper)
    excess = pair.excess * factor * step / pair.step
    return replace(pair, step=step, lower=lower, upper=upper, excess=excess)
