"""Distribution functions at many points at once, of what is not a sum.

`probcalc.pointwise` brackets one point; these are the plain values of extremes,
mixtures, scaled and shifted laws, as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from probcalc.nodes import Leaf, Max, Min, Mix, Node, Scale, Shared, Sum, postorder

__all__ = ["functions_at"]

FloatArray = npt.NDArray[np.float64]
#: P(X > t) and P(X <= t), each computed without taking the other from one.
Tails = tuple[FloatArray, FloatArray]


def functions_at(root: Node, t: FloatArray) -> Tails | None:
    """P(X > t) and P(X <= t) at every t; None where a proper sum is in the way.

    Parameters
    ----------
    root : Node
        Its parts are independent.
    t : ndarray, shape (points,)
    """
    # The points at which a part is asked follow from scales and shifts above it.
    asked: dict[int, FloatArray] = {id(root): t}
    order = list(postorder(root))
    for node in reversed(order):
        mine = asked[id(node)]
        match node:
            case Leaf() | Shared():
                if hasattr(node.law, "lattice_bounds"):
                    return None
                continue
            case Scale():
                parts, inner = [node.part], mine / node.factor
            case Sum() if len(node.parts) == 1 and node.parts[0][1] == 1:
                parts, inner = [node.parts[0][0]], mine - node.constant
            case Max() | Min():
                parts, inner = [part for part, _ in node.parts], mine
            case Mix():
                parts, inner = list(node.parts), mine
            case _:
                return None
        for part in parts:
            known = asked.setdefault(id(part), inner)
            if known is not inner and not np.array_equal(known, inner):
                return None  # one part asked at two sets of points
    found: dict[int, Tails] = {}
    for node in order:
        found[id(node)] = _tails(node, asked[id(node)], found)
    return found[id(root)]


def _tails(node: Node, t: FloatArray, found: dict[int, Tails]) -> Tails:
    match node:
        case Leaf() | Shared():
            return (
                np.asarray(node.law.ccdf(t), dtype=float),
                np.asarray(node.law.cdf(t), dtype=float),
            )
        case Max():
            return _largest([(*found[id(part)], n) for part, n in node.parts])
        case Min():
            pairs = [(found[id(part)], n) for part, n in node.parts]
            flipped = [(below, above, n) for (above, below), n in pairs]
            above, below = _largest(flipped)
            return below, above
        case Mix():
            pairs = [found[id(part)] for part in node.parts]
            weights = np.asarray(node.weights)
            return (
                weights @ np.array([above for above, _ in pairs]),
                weights @ np.array([below for _, below in pairs]),
            )
        case Scale():
            return found[id(node.part)]
        case Sum():
            return found[id(node.parts[0][0])]
        case _:
            raise AssertionError(type(node).__name__)


def _largest(parts: Sequence[tuple[FloatArray, FloatArray, int]]) -> Tails:
    # log P(max <= t) = sum n log F, each F from the smaller of F and 1 - F.
    total = np.zeros_like(parts[0][0])
    with np.errstate(divide="ignore"):
        for above, below, n in parts:
            log = np.where(
                above < 0.5, np.log1p(-np.minimum(above, 0.5)), np.log(below)
            )
            total += n * log
    return -np.expm1(total), np.exp(total)
