"""Means and variances of expressions, where they follow from those of the leaves."""

from __future__ import annotations

import math

from probcalc.nodes import Leaf, Mix, Node, Product, Scale, Shared, Sum, postorder

__all__ = ["mean_of", "moments_of"]


def moments_of(root: Node) -> tuple[float, float] | None:
    """Mean and variance, or None where a maximum or minimum stands in the way.

    Exact up to rounding: sums add, a scale multiplies, a mixture has the law of total
    variance, a product E[v]E[R] and E[v^2]E[R^2] - (E[v]E[R])^2.
    """
    known: dict[int, tuple[float, float] | None] = {}
    for node in postorder(root):
        known[id(node)] = _moments(node, known)
    return known[id(root)]


def mean_of(root: Node) -> float | None:
    """Mean, or None where it does not follow from the leaves."""
    found = moments_of(root)
    return None if found is None else found[0]


def _moments(
    node: Node, known: dict[int, tuple[float, float] | None]
) -> tuple[float, float] | None:
    match node:
        case Leaf() | Shared():
            return float(node.law.mean()), float(node.law.variance())
        case Sum():
            parts = [(known[id(part)], n) for part, n in node.parts]
            found = [(m, n) for m, n in parts if m is not None]
            if len(found) < len(parts):
                return None
            return (
                math.fsum([node.constant, *(n * m[0] for m, n in found)]),
                math.fsum(n * m[1] for m, n in found),
            )
        case Scale():
            inner = known[id(node.part)]
            if inner is None:
                return None
            return node.factor * inner[0], node.factor**2 * inner[1]
        case Mix():
            found = [known[id(part)] for part in node.parts]
            moments = [m for m in found if m is not None]
            if len(moments) < len(found):
                return None
            weighted = list(zip(node.weights, moments, strict=True))
            mean = math.fsum(w * m for w, (m, _) in weighted)
            variance = math.fsum(w * (v + (m - mean) ** 2) for w, (m, v) in weighted)
            return mean, variance
        case Product():
            factor, part = known[id(node.factor)], known[id(node.part)]
            if factor is None or part is None:
                return None
            mean = factor[0] * part[0]
            second = (factor[1] + factor[0] ** 2) * (part[1] + part[0] ** 2)
            return mean, second - mean * mean
        case _:
            return None
