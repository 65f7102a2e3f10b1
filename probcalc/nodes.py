"""Expressions of laws: what `probcalc.composed` builds and the evaluators read.

Operands of a node are independent fresh draws, even the same object twice; only a
`Shared` leaf is one draw wherever it appears in one expression.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from probcalc.distribution import Constant, Distribution, law_key

__all__ = [
    "Leaf",
    "Max",
    "Min",
    "Mix",
    "Node",
    "Product",
    "Scale",
    "Shared",
    "Sum",
    "children",
    "postorder",
]


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A fresh draw of a law."""

    law: Distribution

    @property
    def key(self) -> Hashable:
        """Equal for leaves of equal law."""
        return law_key(self.law)


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """One draw of a law, the same wherever the name appears in an expression."""

    name: str
    law: Distribution


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """Sum of independent parts, each with how many fresh copies, and a constant."""

    parts: tuple[tuple[Node, int], ...]
    constant: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Max:
    """Largest of independent parts, each with how many fresh copies."""

    parts: tuple[tuple[Node, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Min:
    """Smallest of independent parts, each with how many fresh copies."""

    parts: tuple[tuple[Node, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """One of the parts, chosen at random with the weights."""

    weights: tuple[float, ...]
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """A part times a positive number."""

    part: Node
    factor: float


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A positive random factor (a leaf or a shared leaf) times a part."""

    factor: Leaf | Shared
    part: Node


Node = Leaf | Shared | Sum | Max | Min | Mix | Scale | Product


def children(node: Node) -> tuple[tuple[Node, int], ...]:
    """Return the parts of a node with their numbers of copies."""
    match node:
        case Leaf() | Shared():
            return ()
        case Sum() | Max() | Min():
            return node.parts
        case Mix():
            return tuple((part, 1) for part in node.parts)
        case Scale():
            return ((node.part, 1),)
        case Product():
            return ((node.factor, 1), (node.part, 1))


def postorder(root: Node) -> Iterator[Node]:
    """Every distinct node object once, parts before what they are part of.

    Works on a stack of its own, so that depth is bounded by memory alone.
    """
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        stack.extend((part, False) for part, _ in children(node))


def constant_of(node: Node) -> float | None:
    """Return the value of a node that is a constant, else None."""
    if isinstance(node, Leaf) and isinstance(node.law, Constant):
        return node.law.value
    if isinstance(node, Sum) and not node.parts:
        return node.constant
    return None
