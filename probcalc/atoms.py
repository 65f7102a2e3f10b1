"""Expressions with few outcomes, listed outright: the exact law as atoms.

A sum of three laws of thirty runs has at most 27,000 outcomes; 28 runs of a law with
three atoms have 435. Listing them needs no grid. Values that differ by rounding alone
are taken together.
"""

from __future__ import annotations

import math

import numpy as np

from probcalc.discretise import UNIT, atoms_of
from probcalc.distribution import FloatArray
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
    postorder,
)

__all__ = ["MOST", "Atoms", "atoms_law"]

#: Outcomes up to which a law is listed.
MOST = 1 << 17
#: Outcomes of one combination before equal ones are merged.
MOST_PAIRS = 1 << 19
#: Values closer than this many units in the last place of the largest are merged.
MERGE = 16.0

Atoms = tuple[FloatArray, FloatArray]


def atoms_law(root: Node) -> Atoms | None:
    """Values (ascending) and masses of an expression with few outcomes, else None.

    Leaves are independent. Masses are accurate to about 1e-15 times the number of
    combinations relative; values to the merging distance.
    """
    known: dict[int, Atoms] = {}
    for node in postorder(root):
        listed = _listed(node, known)
        if listed is None:
            return None
        known[id(node)] = listed
    return known[id(root)]


def _listed(node: Node, known: dict[int, Atoms]) -> Atoms | None:
    match node:
        case Leaf() | Shared():
            if hasattr(node.law, "lattice_bounds"):
                return None
            atoms = atoms_of(node.law, 1e-18)
            if atoms is None or atoms[0].size > MOST:
                return None
            # A law with an infinite range is not all listed.
            whole = abs(float(atoms[1].sum()) - 1.0) <= 1e-12
            return atoms if whole else None
        case Scale():
            values, mass = known[id(node.part)]
            return node.factor * values, mass
        case Sum():
            total: Atoms | None = None
            for part, count in node.parts:
                own = _power(known[id(part)], count)
                if own is None:
                    return None
                total = own if total is None else _sum(total, own)
                if total is None:
                    return None
            assert total is not None
            return total[0] + node.constant, total[1]
        case Max() | Min():
            return _extreme(
                [(known[id(part)], n) for part, n in node.parts], isinstance(node, Max)
            )
        case Mix():
            pairs = [known[id(part)] for part in node.parts]
            values = np.concatenate([v for v, _ in pairs])
            mass = np.concatenate(
                [w * m for w, (_, m) in zip(node.weights, pairs, strict=True)]
            )
            return _merged(values, mass)
        case Product():
            (a, p), (b, q) = known[id(node.factor)], known[id(node.part)]
            if a.size * b.size > MOST_PAIRS:
                return None
            return _merged(np.outer(a, b).ravel(), np.outer(p, q).ravel())


def _power(atoms: Atoms, count: int) -> Atoms | None:
    result: Atoms | None = None
    while True:
        if count & 1:
            result = atoms if result is None else _sum(result, atoms)
            if result is None:
                return None
        count >>= 1
        if count == 0:
            return result
        squared = _sum(atoms, atoms)
        if squared is None:
            return None
        atoms = squared


def _sum(one: Atoms, other: Atoms) -> Atoms | None:
    (a, p), (b, q) = one, other
    if a.size * b.size > MOST_PAIRS:
        return None
    return _merged(np.add.outer(a, b).ravel(), np.multiply.outer(p, q).ravel())


def _extreme(parts: list[tuple[Atoms, int]], largest: bool) -> Atoms | None:
    # On the union of all values: P(max <= v) is the product of distribution functions;
    # the mass p_i(v) of each part times what the others have at or below v, the parts
    # before it strictly below, has positive terms only.
    from probcalc.kernels.order_statistics import maximum_mass, minimum_mass

    combine = maximum_mass if largest else minimum_mass
    points = np.unique(np.concatenate([values for (values, _), _ in parts]))
    if points.size > MOST:
        return None
    total: FloatArray | None = None
    for (values, mass), count in parts:
        own = np.zeros(points.size)
        own[np.searchsorted(points, values)] = mass
        n = count
        power: FloatArray | None = None
        while True:
            if n & 1:
                power = own if power is None else combine(power, own)
            n >>= 1
            if n == 0:
                break
            own = combine(own, own)
        assert power is not None
        total = power if total is None else combine(total, power)
    assert total is not None
    held = total > 0.0
    return points[held], total[held]


def _merged(values: FloatArray, mass: FloatArray) -> Atoms | None:
    order = np.argsort(values, kind="stable")
    values, mass = values[order], mass[order]
    near = MERGE * UNIT * max(abs(float(values[0])), abs(float(values[-1])))
    start = np.flatnonzero(np.diff(values, prepend=-math.inf) > near)
    if start.size > MOST:
        return None
    return values[start], np.add.reduceat(mass, start)
