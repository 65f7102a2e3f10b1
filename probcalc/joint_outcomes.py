"""Joint outcomes listed one by one, where they are few."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.joint_terms import (
    Joint,
    JointLeaf,
    JointMaximum,
    JointRuns,
    JointSum,
    flattened,
    folded,
    in_order,
)

__all__ = [
    "Atoms",
    "collapsed",
    "listing",
    "outcomes_of",
    "quantum_of_values",
    "size_of",
    "sizes_of",
]

FloatArray = npt.NDArray[Any]
UNIT = 2.0**-53


class Atoms(NamedTuple):
    """Joint outcomes; `mass` None where all are equally likely."""

    t: FloatArray
    x: FloatArray
    mass: FloatArray | None

    @property
    def masses(self) -> FloatArray:
        """Probability of each outcome."""
        if self.mass is None:
            return np.full(self.t.size, 1.0 / self.t.size)
        return self.mass


def _both(
    first: tuple[FloatArray, FloatArray | None],
    second: tuple[FloatArray, FloatArray | None],
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """All pairs of two lists of outcomes, and their masses."""
    (a, p), (b, q) = first, second
    left, right = np.repeat(a, b.size), np.tile(b, a.size)
    if p is None and q is None:
        return left, right, None
    p = np.full(a.size, 1.0 / a.size) if p is None else p
    q = np.full(b.size, 1.0 / b.size) if q is None else q
    return left, right, np.outer(p, q).ravel()


def size_of(leaf: JointLeaf) -> float:
    """Number of outcomes of a leaf; infinite where it is no list of outcomes."""
    if isinstance(leaf, JointRuns):
        return leaf.time.size
    time, x = (law.values for law in leaf.known)
    return math.inf if time is None or x is None else time[0].size * x[0].size


def outcomes_of(leaf: JointLeaf) -> Atoms:
    """List the outcomes of a leaf that has finitely many."""
    if isinstance(leaf, JointRuns):
        return Atoms(leaf.time, leaf.x, leaf.weights)
    time, x = (law.values for law in leaf.known)
    assert time is not None
    assert x is not None
    t, rest, mass = _both(time, x)
    return Atoms(t, leaf.slope * t + rest, mass)


def _power_size(parts: list[tuple[float, int]]) -> float:
    """Product of sizes to their counts, infinite where it is very large."""
    log = sum(n * math.log(size) for size, n in parts)
    return math.inf if log > 60.0 else math.prod(size**n for size, n in parts)


def sizes_of(root: Joint) -> dict[int, float]:
    """Number of outcomes of every node, by id."""
    out: dict[int, float] = {}
    for node in in_order(root):
        if isinstance(node, JointSum | JointMaximum):
            out[id(node)] = _power_size([(out[id(p)], n) for p, n in node.parts])
        else:
            out[id(node)] = size_of(node)
    return out


def listing(root: Joint) -> Atoms:
    """All outcomes of an expression of finite lists (check `sizes_of` first)."""
    return folded(root, outcomes_of, _combined)


def _combined(node: JointSum | JointMaximum, parts: list[tuple[Atoms, int]]) -> Atoms:
    result: Atoms | None = None
    for atoms, count in parts:
        times = count
        if atoms.t.size == 1:
            t = atoms.t if isinstance(node, JointMaximum) else count * atoms.t
            atoms, times = Atoms(t, count * atoms.x, None), 1
        for _ in range(times):
            result = atoms if result is None else _pairwise(node, result, atoms)
    assert result is not None
    return result


def _pairwise(node: JointSum | JointMaximum, a: Atoms, b: Atoms) -> Atoms:
    i, j, mass = _both(
        (np.arange(a.t.size, dtype=float), a.mass),
        (np.arange(b.t.size, dtype=float), b.mass),
    )
    i, j = i.astype(np.intp), j.astype(np.intp)
    both = np.maximum if isinstance(node, JointMaximum) else np.add
    return Atoms(both(a.t[i], b.t[j]), a.x[i] + b.x[j], mass)


def collapsed(root: Joint, limit: int) -> Joint:
    """Replace parts of few outcomes by one leaf that lists them."""
    sizes = sizes_of(root)
    known: dict[int, JointRuns] = {}

    def runs(part: Joint) -> JointRuns:
        # Of one object one leaf is made, so that equal leaves are worked out once.
        if isinstance(part, JointRuns):
            return part
        if id(part) not in known:
            known[id(part)] = JointRuns(*listing(part))
        return known[id(part)]

    def combine(
        node: JointSum | JointMaximum, parts: list[tuple[Any, int]]
    ) -> tuple[Joint, float]:
        size = sizes[id(node)]
        if size <= limit:
            return node, size
        kept: list[tuple[Joint, int]] = []
        small: list[tuple[Joint, int]] = []
        product = 1.0
        for (part, inner), count in sorted(parts, key=lambda p: p[0][1]):
            grown = _power_size([(product, 1), (inner, count)])
            if grown <= limit:
                small.append((part, count))
                product = grown
            else:
                kept.append((runs(part) if inner <= limit else part, count))
        if len(small) == 1:
            kept.append((runs(small[0][0]), small[0][1]))
        elif small:
            kept.append((runs(type(node)(tuple(small))), 1))
        return flattened(type(node), kept, "joint law"), math.inf

    return folded(root, lambda leaf: (leaf, sizes[id(leaf)]), combine)[0]


def quantum_of_values(values: FloatArray) -> float:
    """Largest step of which all values are multiples to 8 ulp; zero if there is none.

    Decimal steps (timers count in those) are tried first, then binary ones.
    """
    top = float(np.abs(values).max(initial=0.0))
    if top == 0.0:
        return 1.0
    for base in (10.0, 2.0):
        for digits in range(16 if base == 10.0 else 50):
            scaled = values * base**digits
            whole = np.round(scaled)
            if top * base**digits > 2.0**50:
                break
            if np.all(np.abs(scaled - whole) <= 8.0 * UNIT * np.abs(whole)):
                return float(np.gcd.reduce(whole.astype(np.int64))) / base**digits
    return 0.0
