"""How far an expression reaches, how many draws it takes, how values are rounded."""

from __future__ import annotations

import math

from probcalc.discretise import UNIT
from probcalc.distribution import Constant, Empirical
from probcalc.errors import InputError, ToleranceError
from probcalc.moments_of import moments_of
from probcalc.nodes import (
    Leaf,
    Max,
    Min,
    Mix,
    Node,
    Product,
    Scale,
    Shared,
    Sum,
    children,
    postorder,
)

__all__ = [
    "BYTES_PER_POINT",
    "blur",
    "copies_of",
    "equal_cases",
    "leaves_of",
    "mass_at_bottom",
    "points_allowed",
    "reach",
    "support",
    "total_copies",
]

#: Bytes that a lattice evaluation takes for each point of its longest mass.
BYTES_PER_POINT = 160


def reach(root: Node, tail: float) -> tuple[float, float]:
    """Values outside which the quantity lies with probability at most `tail` a side.

    By union bounds from the leaves, and Cantelli's inequality where moments are known:
    P(X >= m + d) <= v / (v + d^2).
    """
    shares: dict[int, float] = {id(root): tail}
    order = list(postorder(root))
    for node in reversed(order):
        parts = children(node)
        copies = sum(n for _, n in parts)
        own = shares[id(node)] / max(copies, 1)
        for part, _ in parts:
            shares[id(part)] = min(shares.get(id(part), 1.0), own)
    ends: dict[int, tuple[float, float]] = {}
    for node in order:
        low, high = _reach_of(node, shares[id(node)], ends)
        known = None if isinstance(node, Leaf | Shared) else moments_of(node)
        if known is not None and all(map(math.isfinite, known)):
            spread = math.sqrt(max(known[1], 0.0) / shares[id(node)])
            low = max(low, known[0] - spread)
            high = min(high, known[0] + spread)
        ends[id(node)] = (low, high)
    return ends[id(root)]


def _reach_of(
    node: Node, tail: float, ends: dict[int, tuple[float, float]]
) -> tuple[float, float]:
    match node:
        case Leaf() | Shared():
            bounds = getattr(node.law, "reach", None)
            if bounds is not None:
                return bounds(tail)
            return float(node.law.icdf(tail)), float(node.law.iccdf(tail))
        case Sum():
            parts = [(ends[id(part)], n) for part, n in node.parts]
            return (
                node.constant + sum(n * low for (low, _), n in parts),
                node.constant + sum(n * high for (_, high), n in parts),
            )
        case Max():
            pairs = [ends[id(part)] for part, _ in node.parts]
            return max(low for low, _ in pairs), max(high for _, high in pairs)
        case Min():
            pairs = [ends[id(part)] for part, _ in node.parts]
            return min(low for low, _ in pairs), min(high for _, high in pairs)
        case Mix():
            pairs = [ends[id(part)] for part in node.parts]
            return min(low for low, _ in pairs), max(high for _, high in pairs)
        case Scale():
            low, high = ends[id(node.part)]
            return node.factor * low, node.factor * high
        case Product():
            (a, b), (low, high) = ends[id(node.factor)], ends[id(node.part)]
            corners = [a * low, a * high, b * low, b * high]
            return min(corners), max(corners)


def copies_of(root: Node) -> float:
    """Number of leaves along the heaviest path: summands behind a value."""
    counts: dict[int, float] = {}
    for node in postorder(root):
        parts = [counts[id(part)] * n for part, n in children(node)]
        if not parts:
            counts[id(node)] = 1.0
        elif isinstance(node, Sum):
            counts[id(node)] = sum(parts)
        else:
            counts[id(node)] = max(counts[id(part)] for part, _ in children(node))
    return counts[id(root)]


def leaves_of(root: Node) -> list[Leaf | Shared]:
    """Every distinct leaf of an expression."""
    return [n for n in postorder(root) if isinstance(n, Leaf | Shared)]


def total_copies(root: Node) -> float:
    """Number of leaves that an evaluation draws upon, copies counted."""
    counts: dict[int, float] = {}
    for node in postorder(root):
        parts = [counts[id(part)] * n for part, n in children(node)]
        counts[id(node)] = sum(parts) if parts else 1.0
    return counts[id(root)]


def points_allowed(memory: int) -> int:
    """Lattice points that fit into a number of bytes.

    Raises
    ------
    ToleranceError
        Less than the smallest useful lattice takes.
    """
    if isinstance(memory, bool) or not isinstance(memory, int) or memory <= 0:
        raise InputError(
            f"memory must be a positive whole number of bytes, got {memory!r}"
        )
    if memory < BYTES_PER_POINT * 256:
        raise ToleranceError(
            f"memory limit of {memory} bytes, at least {BYTES_PER_POINT * 256} needed"
        )
    return int(memory // BYTES_PER_POINT)


def blur(root: Node) -> float:
    """Rounding of the leaves' own values, summed over copies.

    Values such as 0.1 stand for the double nearest to them, and shifting or scaling
    rounds once more: 4 units in the last place of each.
    """
    total = 0.0
    sizes: dict[int, float] = {}
    for node in postorder(root):
        match node:
            case Leaf() | Shared():
                low, high = (abs(float(x)) for x in node.law.support())
                size = max(low, high)
                if math.isinf(size):
                    size = max(
                        abs(float(node.law.iccdf(1e-6))),
                        abs(float(node.law.icdf(1e-6))),
                    )
                sizes[id(node)] = size
            case Sum():
                sizes[id(node)] = abs(node.constant) + sum(
                    n * sizes[id(part)] for part, n in node.parts
                )
            case Scale():
                sizes[id(node)] = node.factor * sizes[id(node.part)]
            case Product():
                sizes[id(node)] = sizes[id(node.factor)] * sizes[id(node.part)]
            case _:
                sizes[id(node)] = max(sizes[id(part)] for part, _ in children(node))
    total = sizes[id(root)]
    return 4.0 * UNIT * total if math.isfinite(total) else 0.0


def support(node: Node) -> tuple[float, float]:
    """Smallest and largest possible value (for shared draws: an enclosing range)."""
    ends: dict[int, tuple[float, float]] = {}
    for part in postorder(node):
        if isinstance(part, Leaf | Shared):
            low, high = part.law.support()
            ends[id(part)] = (float(low), float(high))
        elif isinstance(part, Product):
            (a, b), (low, high) = ends[id(part.factor)], ends[id(part.part)]
            corners = [u * v if u and v else 0.0 for u in (a, b) for v in (low, high)]
            ends[id(part)] = (min(corners), max(corners))
        else:
            ends[id(part)] = _reach_of(part, 0.0, ends)
    return ends[id(node)]


def mass_at_bottom(root: Node) -> float | None:
    """P(X = smallest value), which no lattice bound would resolve; None if not simple.

    Simple are sums, scales, and maxima of parts with one smallest value.
    """
    mass: dict[int, float] = {}
    for node in postorder(root):
        match node:
            case Leaf() | Shared():
                mass[id(node)] = float(node.law.cdf(float(node.law.support()[0])))
            case Sum():
                mass[id(node)] = math.prod(mass[id(p)] ** n for p, n in node.parts)
            case Max() if len({support(part)[0] for part, _ in node.parts}) == 1:
                mass[id(node)] = math.prod(mass[id(p)] ** n for p, n in node.parts)
            case Mix():
                ends = [support(part)[0] for part in node.parts]
                mass[id(node)] = sum(
                    w * mass[id(part)]
                    for w, part, end in zip(node.weights, node.parts, ends, strict=True)
                    if end == min(ends)
                )
            case Scale():
                mass[id(node)] = mass[id(node.part)]
            case _:
                return None
    return mass[id(root)]


def equal_cases(root: Node) -> float | None:
    """Number of equally likely cases behind an expression of measured runs.

    None where a law has weights of its own, or where cases are too many to count in a
    double.
    """
    cases: dict[int, float] = {}
    for node in postorder(root):
        match node:
            case Leaf() | Shared():
                law = node.law
                if isinstance(law, Empirical) and law.weights is None:
                    cases[id(node)] = float(law.samples.size)
                elif isinstance(law, Constant):
                    cases[id(node)] = 1.0
                else:
                    return None
            case Mix():
                return None
            case _:
                parts = children(node)
                if sum(n * math.log2(cases[id(p)]) for p, n in parts) > 50.0:
                    return None
                cases[id(node)] = math.prod(cases[id(p)] ** n for p, n in parts)
    return cases[id(root)]
