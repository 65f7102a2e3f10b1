"""Draws from joint expressions; every copy of a part afresh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.joint_terms import Joint, JointLeaf, JointMaximum, JointRuns, JointSum

__all__ = ["drawn"]

FloatArray = npt.NDArray[Any]


class _Frame:
    """One node being drawn: its parts in turn, and their time and x so far."""

    __slots__ = ("copies", "largest", "t", "x")

    def __init__(self, node: JointSum | JointMaximum, shape: tuple[int, ...]) -> None:
        self.largest = isinstance(node, JointMaximum)
        self.copies = iter([(part, n) for part, n in node.parts])
        self.t = np.full(shape, -np.inf) if self.largest else np.zeros(shape)
        self.x = np.zeros(shape)

    def take(self, t: Any, x: Any) -> None:
        self.t = np.maximum(self.t, t) if self.largest else self.t + t
        self.x = self.x + x


def drawn(
    root: Joint, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw T and x; every copy of a part afresh."""
    outer = _Frame(JointSum(((root, 1),)), shape)
    stack: list[tuple[_Frame, Iterator[Joint]]] = []
    current, todo = outer, _copied(outer)
    while True:
        part = next(todo, None)
        if part is None:
            if not stack:
                return current.t, current.x
            done = current
            current, todo = stack.pop()
            current.take(done.t, done.x)
        elif isinstance(part, JointSum | JointMaximum):
            stack.append((current, todo))
            current = _Frame(part, shape)
            todo = _copied(current)
        else:
            current.take(*_drawn_leaf(part, shape, rng))


def _copied(frame: _Frame) -> Iterator[Joint]:
    for part, n in frame.copies:
        for _ in range(n):
            yield part


def _drawn_leaf(
    leaf: JointLeaf, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[Any, Any]:
    if isinstance(leaf, JointRuns):
        chosen = rng.choice(leaf.time.size, size=shape, p=leaf.weights)
        return leaf.time[chosen], leaf.x[chosen]
    t = leaf.time_law.sample(shape, rng=rng)
    return t, leaf.slope * t + leaf.x_law.sample(shape, rng=rng)
