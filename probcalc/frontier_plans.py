"""Frontiers of plans: points with their bounds, questions, and forms for others."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.frontier_problem import Problem
from probcalc.operating import described, setting

__all__ = ["PlanFrontier", "PlanPoint"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlanPoint:
    """One choice of points for all nodes of a plan.

    Attributes
    ----------
    time : float
        Makespan in s, of mean times.
    energy : float
        In J, of mean times and energies.
    bound : float
        Energy in J that no choice that is as fast goes below; kind ``certified``.
    exact : bool
        Whether all choices were tried: then no other one is as good.
    choice : ndarray of int64, shape (nodes,)
        Point of its operating set for every node of the plan.
    """

    time: float
    energy: float
    bound: float
    exact: bool
    choice: IntArray

    @property
    def gap(self) -> float:
        """Share of its energy that a better choice could save at most."""
        if self.exact or self.energy <= self.bound:
            return 0.0
        return (self.energy - self.bound) / self.energy

    @property
    def power(self) -> float:
        """Average power in W."""
        return self.energy / self.time if self.time > 0.0 else math.inf

    def __repr__(self) -> str:
        """Time, energy and gap."""
        return (
            f"<PlanPoint: {self.time:.6g} s, {self.energy:.6g} J, at most "
            f"{100.0 * self.gap:.3g} % above the least>"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlanFrontier:
    """Choices for a plan, from the fastest to the one of least energy.

    Attributes
    ----------
    problem : Problem
    points : tuple of PlanPoint
        By rising time; energy falls, so the last one is the energy-minimal makespan
        beyond which time buys nothing.
    """

    problem: Problem
    points: tuple[PlanPoint, ...]

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.points)

    def __repr__(self) -> str:
        """Plan and ends."""
        a, b = self.points[0], self.points[-1]
        return (
            f"<PlanFrontier of {self.problem.plan.name!r}: {len(self)} points, "
            f"{a.time:.6g} s at {a.energy:.6g} J to {b.time:.6g} s at {b.energy:.6g} J>"
        )

    @property
    def gap(self) -> float:
        """Mean gap of its points."""
        return math.fsum(p.gap for p in self.points) / len(self)

    def cheapest(self, deadline: float) -> PlanPoint:
        """Return the point of least energy within a deadline in s.

        Raises
        ------
        InputError
            No point is as fast; the error states the fastest.
        """
        found = [p for p in self.points if p.time <= deadline]
        if not found:
            raise InputError(
                f"deadline is {deadline:g} s, expected at least the fastest makespan "
                f"{self.points[0].time!r} s"
            )
        return found[-1]

    def fastest(
        self, *, energy: float | None = None, power: float | None = None
    ) -> PlanPoint:
        """Return the fastest point within a cap of energy in J or power in W.

        Raises
        ------
        InputError
            Both or neither given; no point keeps the cap.
        """
        if (energy is None) == (power is None):
            raise InputError("fastest: give one of energy and power")
        value = (lambda p: p.energy) if power is None else (lambda p: p.power)
        cap, unit = (energy, "J") if power is None else (power, "W")
        for point in self.points:
            if cap is not None and value(point) <= cap:
                return point
        least = min(map(value, self.points))
        raise InputError(
            f"fastest: cap is {cap:g} {unit}, expected at least {least:.6g} {unit}, "
            "the least of the frontier"
        )

    def knee(self) -> PlanPoint:
        """Return the point farthest below the line between both ends.

        Time and energy are measured in their ranges along the frontier.
        """
        a, b = self.points[0], self.points[-1]
        wide, high = b.time - a.time, a.energy - b.energy
        if wide == 0.0 or high == 0.0:
            return b
        return max(
            self.points,
            key=lambda p: (a.energy - p.energy) / high - (p.time - a.time) / wide,
        )

    def marginal(self) -> tuple[float, ...]:
        """Joules saved by each further second, in W, from each point to the next."""
        pairs = zip(self.points, self.points[1:], strict=False)
        return tuple((a.energy - b.energy) / (b.time - a.time) for a, b in pairs)

    def rows(self) -> list[dict[str, Any]]:
        """Return one line for each point and its assignment, for JSON."""
        plan = self.problem.plan
        return [
            {
                "time": p.time,
                "time_unit": "s",
                "energy": p.energy,
                "energy_unit": "J",
                "bound": p.bound,
                "bound_kind": "certified",
                "gap": p.gap,
                "exact": p.exact,
                "assignment": dict(zip(plan.names, self.settings(p), strict=True)),
            }
            for p in self.points
        ]

    def to_csv(self) -> str:
        """Return one line for each point, with one column for each node."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = self.problem.plan.names
        writer.writerow(["time_s", "energy_j", "bound_j", "gap", "exact", *names])
        for p in self.points:
            head = [repr(p.time), repr(p.energy), repr(p.bound), repr(p.gap)]
            writer.writerow([*head, str(p.exact).lower(), *self.settings(p)])
        return out.getvalue()

    def settings(self, point: PlanPoint) -> tuple[str, ...]:
        """Return what every node runs at, in words, in the order of the plan."""
        plan, problem = self.problem.plan, self.problem
        memo: dict[tuple[int, int], str] = {}
        found = []
        for e, k in zip(plan.element_of.tolist(), point.choice.tolist(), strict=True):
            if (e, k) not in memo:
                memo[e, k] = described(problem.element(e, k))
            found.append(memo[e, k])
        return tuple(found)

    def schedule(self, point: PlanPoint) -> list[list[tuple[str, Any]]]:
        """Return the frequency schedule: for each device its steps in their order.

        The form that pipeline runtimes with per-instruction clocks take (Perseus,
        Zeus): one list a device, a pair of instruction and device point for each
        node. The instruction is the node's label ``kind`` where it has one, else the
        name of its element.

        Raises
        ------
        InputError
            Nodes of a device that are in no order.
        """
        plan = self.problem.plan
        kinds = plan.labels.get("kind")
        lanes: list[list[tuple[str, Any]]] = []
        for device in plan.devices:
            if not plan.serial(device):
                raise InputError(
                    f"schedule: nodes on device {device!r} can overlap, expected an "
                    "order"
                )
            lane = []
            for v in plan.order.tolist():
                e = int(plan.element_of[v])
                if device not in plan.elements[e].devices:
                    continue
                what = plan.elements[e].name if kinds is None else kinds[v]
                one = self.problem.element(e, int(point.choice[v]))
                lane.append((str(what), setting(one)[1]))
            lanes.append(lane)
        return lanes


def kept(points: Sequence[PlanPoint]) -> tuple[PlanPoint, ...]:
    """Points that no other one beats, by rising time."""
    from probcalc.kernels.pareto import reduced

    time = np.array([p.time for p in points])
    energy = np.array([p.energy for p in points])
    return tuple(points[i] for i in reduced(time, energy).tolist())
