"""Which nodes of a plan wait for which: what can overlap on one device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.errors import CompositionError

if TYPE_CHECKING:
    from probcalc.plan import Plan

__all__ = ["Precedence", "check_points", "check_serial"]

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Precedence:
    """Edges of a plan, to search for paths.

    Attributes
    ----------
    level : ndarray of int64, shape (nodes,)
        Longest number of edges from a node without predecessors.
    starts, indices : ndarray of int64
        Successors of node i are ``indices[starts[i]:starts[i + 1]]``.
    direct : ndarray of int64, shape (edges,)
        ``source * nodes + target`` of every edge, sorted.
    """

    level: IntArray
    starts: IntArray
    indices: IntArray
    direct: IntArray

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Gather the edges of a plan."""
        from probcalc.kernels import graph

        starts, indices = graph.adjacency(len(plan), plan.sources, plan.targets)
        direct = np.sort(plan.sources * len(plan) + plan.targets)
        return cls(plan.level, starts, indices, direct)

    def reaches(self, a: int, b: int) -> bool:
        """Whether there is a path from a to b."""
        from probcalc.kernels import graph

        return bool(graph.reaches(self.starts, self.indices, self.level, a, b))

    def sorted(self, nodes: IntArray) -> IntArray:
        """Nodes in a topological order."""
        return nodes[np.lexsort((nodes, self.level[nodes]))]

    def chain(self, nodes: IntArray) -> bool:
        """Whether of any two of the nodes one waits for the other."""
        ordered = self.sorted(nodes)
        a, b = ordered[:-1], ordered[1:]
        # Most pairs have an edge of their own; the others are searched for.
        far = np.flatnonzero(~np.isin(a * self.level.size + b, self.direct))
        return all(self.reaches(int(a[i]), int(b[i])) for i in far)

    def differing(
        self, nodes: IntArray, values: Mapping[int, Hashable]
    ) -> tuple[int, int] | None:
        """Two of the nodes with different values and no path between them, or None."""
        # Of each value the nodes that no later one of it waits for: whoever waits for
        # all of these waits for all nodes of the value that came before.
        last: dict[Hashable, list[int]] = {}
        for b in self.sorted(nodes).tolist():
            for value, ends in last.items():
                if value == values[b]:
                    continue
                for a in ends:
                    if not self.reaches(a, b):
                        return a, b
            ends = last.get(values[b], [])
            last[values[b]] = [a for a in ends if not self.reaches(a, b)] + [b]
        return None


def check_points(plan: Plan) -> None:
    """Refuse nodes at two operating points that can overlap on one device.

    Raises
    ------
    CompositionError
        Names the device, both nodes and their operating points.
    """
    for device in plan.devices:
        points = {
            i: point.value
            for i, e in enumerate(plan.elements)
            for point in e.points
            if point.device == device
        }
        if len(set(points.values())) < 2:
            continue
        mine = np.flatnonzero(np.isin(plan.element_of, list(points)))
        ways = Precedence.of(plan)
        if ways.chain(mine):
            continue
        values = {i: points[int(plan.element_of[i])] for i in mine.tolist()}
        pair = ways.differing(mine, values)
        if pair is not None:
            a, b = pair
            raise CompositionError(
                f"device {device!r}: nodes {plan.names[a]!r} and {plan.names[b]!r} can "
                f"overlap at two operating points, {values[a]!r:.40} and "
                f"{values[b]!r:.40}; state their order"
            )


def check_serial(plan: Plan, element: Element) -> None:
    """Refuse nodes that can overlap where an element draws more than the baseline.

    Raises
    ------
    CompositionError
        Names the device, the element and both powers.
    """
    if not plan.account.beyond(element):
        return
    for device in element.devices:
        if not plan.serial(device):
            raise CompositionError(
                f"device {device!r}: element {element.name!r} draws "
                f"{element.powers[device]:g} W, not the baseline "
                f"{plan.baselines[device]:g} W, and nodes there can overlap; state "
                "their order, or one static power"
            )
