"""Joint expressions that are laws of one dimension, or can be spelled out further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from probcalc.composed import Composed, maximum, repeat, scale, shift, sum_of
from probcalc.distribution import Constant, Empirical
from probcalc.joint_terms import (
    Joint,
    JointAffine,
    JointIndependent,
    JointLeaf,
    JointMaximum,
    JointRuns,
    JointSum,
    flattened,
    folded,
    in_order,
    joint_sum,
)
from probcalc.nodes import Leaf, Max, Node, Sum, postorder

__all__ = ["reduced", "spelled_out"]


def _line_law(leaf: JointLeaf, weight: float) -> Any:
    """E of a single leaf as a law of one dimension; None where there is none."""
    if isinstance(leaf, JointRuns):
        return Empirical(weight * leaf.time + leaf.x, weights=leaf.weights)
    if weight + leaf.slope < 0.0:
        listed = leaf.known[0].values
        if listed is None:
            return None
        part = Empirical((weight + leaf.slope) * listed[0], weights=listed[1])
        return sum_of(part, leaf.x_law)
    return sum_of(scale(leaf.time_law, weight + leaf.slope), leaf.x_law)


def _apart(leaf: JointLeaf) -> tuple[Any, Any] | None:
    """Laws of T and of x where the two are independent, else None."""
    if isinstance(leaf, JointRuns):
        t, x = leaf.time, leaf.x
        if np.ptp(t) == 0.0:
            return Constant(float(t[0])), Empirical(x, weights=leaf.weights)
        if np.ptp(x) == 0.0:
            return Empirical(t, weights=leaf.weights), Constant(float(x[0]))
        return None
    if leaf.slope == 0.0:
        return leaf.time_law, leaf.x_law
    if isinstance(leaf.time_law, Constant):
        return leaf.time_law, shift(leaf.x_law, leaf.slope * leaf.time_law.value)
    return None


def _added(parts: list[tuple[Any, int]]) -> Composed:
    return sum_of(*(repeat(law, n) for law, n in parts))


def reduced(root: Joint, weight: float) -> Composed | None:
    """The law in one dimension, where no joint law is needed."""
    order = list(in_order(root))
    leaves = [v for v in order if not isinstance(v, JointSum | JointMaximum)]
    if weight == 0.0 or not any(isinstance(node, JointMaximum) for node in order):
        # Every draw enters by its weight * T + x alone.
        laws = {id(leaf): _line_law(leaf, weight) for leaf in leaves}
        if any(law is None for law in laws.values()):
            return None
        return sum_of(
            folded(root, lambda v: laws[id(v)], lambda _, parts: _added(parts))
        )
    apart = {id(leaf): _apart(leaf) for leaf in leaves}
    if any(pair is None for pair in apart.values()):
        return None

    # T and x independent in every leaf stay independent (calculus, section 2).
    def time(node: JointSum | JointMaximum, parts: list[tuple[Any, int]]) -> Composed:
        if isinstance(node, JointSum):
            return _added(parts)
        return maximum(*(law for law, n in parts for _ in range(n)))

    def one(coordinate: int) -> Callable[[JointLeaf], Any]:
        return lambda leaf: (apart[id(leaf)] or (0.0, 0.0))[coordinate]

    energy = folded(root, one(1), lambda _, parts: _added(parts))
    return sum_of(scale(folded(root, one(0), time), weight), energy)


def spelled_out(root: Joint) -> Joint:
    """Leaves whose T is composed of other laws, as expressions of those.

    With x = 0 beside every T, and x' as a part of its own that takes no time. A line
    through T is spelled out over sums only: the slope times a maximum is no leaf's.
    """

    def leaf(node: JointLeaf) -> Joint:
        if isinstance(node, JointRuns) or not isinstance(node.time_law, Composed):
            return node
        time = _joint_time(node.time_law.node, node.slope)
        if time is None:
            return node
        rest = JointIndependent(Constant(0.0), node.x_law)
        return joint_sum(time, rest)

    def combine(node: JointSum | JointMaximum, parts: list[tuple[Joint, int]]) -> Joint:
        same = all(
            new is old for (new, _), (old, _) in zip(parts, node.parts, strict=True)
        )
        return node if same else flattened(type(node), parts, "joint law")

    return folded(root, leaf, combine)


def _joint_time(root: Node, slope: float) -> Joint | None:
    """A law of time as a joint expression; None where it has other parts than + max."""
    known: dict[int, Joint] = {}
    for node in postorder(root):
        if isinstance(node, Leaf):
            known[id(node)] = JointAffine(node.law, slope, Constant(0.0))
        elif isinstance(node, Sum):
            parts = [(known[id(part)], n) for part, n in node.parts]
            if node.constant != 0.0:
                extra = JointAffine(Constant(node.constant), slope, Constant(0.0))
                parts.append((extra, 1))
            known[id(node)] = flattened(JointSum, parts, "joint law")
        elif isinstance(node, Max) and slope == 0.0:
            parts = [(known[id(part)], n) for part, n in node.parts]
            known[id(node)] = flattened(JointMaximum, parts, "joint law")
        else:
            return None
    return known[id(root)]
