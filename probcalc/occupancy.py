"""How long each device of a plan is busy and idle, and what idling costs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.criticality import replays
from probcalc.distribution import Bounds
from probcalc.montecarlo import Simulation
from probcalc.plan import Plan

__all__ = ["Occupancy", "occupancy"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Samples that are drawn again where means are not known: at most, at least, and the
#: nodes of all of them together.
REPLAYS = 256
FEWEST = 16
NODES = 1 << 25


class Occupancy(NamedTuple):
    """Mean occupation of one device in one execution of a plan.

    Attributes
    ----------
    device : str
    busy, idle : Bounds
        Mean time in s with a node running, and without.
    share : Bounds
        Mean idle time over mean makespan.
    idle_energy : Bounds
        Mean energy in J that the device draws while idle, at its baseline.
    """

    device: str
    busy: Bounds
    idle: Bounds
    share: Bounds
    idle_energy: Bounds


def occupancy(simulation: Simulation) -> tuple[Occupancy, ...]:
    """Occupation of every device; nodes are independent but for draw groups.

    Mean busy times of devices whose nodes run one after the other, without factors,
    are exact sums of means. Of others the first samples, up to 256, are drawn again,
    and their busy intervals united. All intervals are of the simulation's confidence.
    """
    plan = simulation.plan
    makespan = simulation.time.mean_bounds()
    whole = makespan.value or 1.0
    nodes = [_nodes_on(plan, device) for device in plan.devices]
    known = [_known(plan, d, n) for d, n in zip(plan.devices, nodes, strict=True)]
    open_ = [i for i, total in enumerate(known) if total is None]
    drawn = _drawn(simulation, [nodes[i] for i in open_]) if open_ else None
    found = []
    for i, device in enumerate(plan.devices):
        total = known[i]
        if total is not None:
            busy = Bounds(total, total, total, "certified")
            idle = _not_negative(makespan, total)
        else:
            assert drawn is not None
            spans, each = drawn
            times = each[open_.index(i)]
            busy = _mean(times, simulation.time.level)
            # Makespan and busy time of one sample go together: so do their errors.
            idle = _mean(spans - times, simulation.time.level)
        watts = plan.baselines[device]
        found.append(
            Occupancy(
                device, busy, idle, _times(idle, 1.0 / whole), _times(idle, watts)
            )
        )
    return tuple(found)


def _nodes_on(plan: Plan, device: str) -> IntArray:
    mine = [i for i, e in enumerate(plan.elements) if device in e.devices]
    return np.flatnonzero(np.isin(plan.element_of, mine))


def _known(plan: Plan, device: str, nodes: IntArray) -> float | None:
    """Mean busy time where it is a sum of means, else None."""
    if plan.draws.factors or plan.account.shared or not plan.serial(device):
        return None
    counts = np.bincount(plan.element_of[nodes], minlength=len(plan.elements))
    return sum(
        float(counts[i]) * float(plan.elements[i].time.mean())
        for i in np.flatnonzero(counts).tolist()
    )


def _drawn(
    simulation: Simulation, nodes: list[IntArray]
) -> tuple[FloatArray, FloatArray]:
    """Makespans of samples, and busy times of devices in them, in s."""
    plan = simulation.plan
    count = min(max(NODES // len(plan), FEWEST), REPLAYS, simulation.samples)
    spans = np.empty(count)
    busy = np.empty((len(nodes), count))
    for k, one in enumerate(replays(plan, samples=count, seed=simulation.seed)):
        spans[k] = one.makespan
        for d, mine in enumerate(nodes):
            busy[d, k] = _united(one.starts[mine], one.finishes[mine])
    return spans, busy


def _united(starts: FloatArray, finishes: FloatArray) -> float:
    """Length of the union of intervals."""
    order = np.argsort(starts)
    starts, ends = starts[order], np.maximum.accumulate(finishes[order])
    begins = np.maximum(starts[1:], ends[:-1])
    return float(ends[0] - starts[0] + np.maximum(ends[1:] - begins, 0.0).sum())


def _mean(values: FloatArray, level: float) -> Bounds:
    """Mean of samples, not negative, with its interval from the normal limit."""
    from scipy import special

    mean = float(values.mean())
    if values.size < 2:
        return Bounds(mean, 0.0, math.inf, "confidence")
    quantile = float(special.stdtrit(values.size - 1, 0.5 + 0.5 * level))
    error = quantile * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Bounds(mean, max(mean - error, 0.0), mean + error, "confidence")


def _not_negative(makespan: Bounds, busy: float) -> Bounds:
    value, low, high = (
        max(x - busy, 0.0) for x in (makespan.value, makespan.lower, makespan.upper)
    )
    return Bounds(value, low, high, "confidence")


def _times(bounds: Bounds, factor: float) -> Bounds:
    return Bounds(
        factor * bounds.value, factor * bounds.lower, factor * bounds.upper, bounds.kind
    )
