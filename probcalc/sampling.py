"""Draws from an expression: shared leaves once for each sample, others afresh."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.distribution import generator
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

__all__ = ["sample"]


def sample(node: Node, shape: Any, rng: Any) -> Any:
    """See `probcalc.composed.Composed.sample`."""
    size = (shape,) if isinstance(shape, int) else tuple(shape)
    source = generator(rng)
    number = int(np.prod(size, dtype=int))
    shared = {
        part.name: np.asarray(part.law.sample(number, rng=source), dtype=float)
        for part in postorder(node)
        if isinstance(part, Shared)
    }
    return _draw(node, number, source, shared).reshape(size)[()]


def _draw(
    node: Node, number: int, rng: np.random.Generator, shared: dict[str, Any]
) -> npt.NDArray[np.float64]:
    match node:
        case Leaf():
            return np.asarray(node.law.sample(number, rng=rng), dtype=float)
        case Shared():
            return shared[node.name]
        case Scale():
            return node.factor * _draw(node.part, number, rng, shared)
        case Product():
            return _draw(node.factor, number, rng, shared) * _draw(
                node.part, number, rng, shared
            )
        case Mix():
            chosen = rng.choice(len(node.parts), size=number, p=node.weights)
            out = np.empty(number)
            for i, part in enumerate(node.parts):
                out = np.where(chosen == i, _draw(part, number, rng, shared), out)
            return out
        case Sum():
            total = np.full(number, node.constant)
            for part, n in node.parts:
                if isinstance(part, Shared):
                    total += n * shared[part.name]
                    continue
                for _ in range(n):
                    total += _draw(part, number, rng, shared)
            return total
        case Max() | Min():
            best = np.maximum if isinstance(node, Max) else np.minimum
            result: npt.NDArray[np.float64] | None = None
            for part, n in node.parts:
                for _ in range(n):
                    drawn = _draw(part, number, rng, shared)
                    result = drawn if result is None else best(result, drawn)
            assert result is not None
            return result
