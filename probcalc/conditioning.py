"""Shared draws that cannot be factored out, by conditioning on them.

Given the shared values all leaves are independent, so the law is a mixture over them.
For a law with few atoms the mixture is exact. Else the law is cut into cells: every
expression rises with each of its leaves, so mixtures over the cells' left and right
ends lie below and above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from probcalc.discretise import atoms_of
from probcalc.distribution import Bounds, Distribution, FloatArray
from probcalc.errors import ToleranceError
from probcalc.nodes import Mix, Node
from probcalc.variables import substituted, variables

__all__ = [
    "conditioned_bracket",
    "conditioned_mean",
    "conditioned_sf",
    "conditioned_variance",
]

#: Conditional expressions worked out for one answer.
CELLS = 48
#: Atoms up to which the mixture is exact.
EXACT_ATOMS = 256
#: Probability of the shared law left out above, over the level.
OUTSIDE = 1e-6


def _ends(
    law: Distribution, level: float
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Left ends, right ends, masses of cells; mass above the last right end."""
    atoms = atoms_of(law, level * OUTSIDE)
    if atoms is not None and atoms[0].size <= EXACT_ATOMS:
        values, mass = atoms
        return values, values, mass, max(1.0 - float(mass.sum()), 0.0)
    low, high = (float(end) for end in law.support())
    # Cells of equal probability in the bulk, finer and finer towards the upper tail.
    bulk = np.linspace(0.0, 1.0, CELLS // 2 + 1)[1:-1]
    tails = np.geomspace(1.0 / CELLS, level * OUTSIDE, CELLS // 2)
    edges = np.unique(
        np.concatenate([np.asarray(law.icdf(bulk)), np.asarray(law.iccdf(tails))])
    )
    start = low if math.isfinite(low) else float(law.icdf(level * OUTSIDE))
    stop = high if math.isfinite(high) else float(edges[-1])
    edges = np.unique(np.concatenate([[start], edges, [stop]]))
    mass = np.maximum(-np.diff(np.asarray(law.ccdf(edges), dtype=float)), 0.0)
    below = max(1.0 - float(law.ccdf(edges[0])), 0.0)
    mass[0] += below
    return edges[:-1], edges[1:], mass, float(law.ccdf(edges[-1]))


def _mixtures(root: Node, name: str, level: float) -> tuple[Node, Node, float]:
    """Mixtures below and above `root`, and the mass that lies above both."""
    law = variables(root)[name].law
    left, right, mass, above = _ends(law, level)
    held = np.flatnonzero(mass > 0.0)
    total = float(mass.sum())
    weights = tuple(float(mass[i] / total) for i in held)
    below_node = Mix(
        weights, tuple(substituted(root, {name: float(left[i])}) for i in held)
    )
    if np.array_equal(left, right):
        return below_node, below_node, above
    above_node = Mix(
        weights, tuple(substituted(root, {name: float(right[i])}) for i in held)
    )
    return below_node, above_node, above


def conditioned_bracket(
    root: Node,
    names: list[str],
    p: float,
    sf: float,
    rtol: float,
    memory: int,
    solve: Callable[..., Any],
) -> Any:
    """Bracket of a quantile by conditioning on the first of the names.

    `solve` brackets the conditional mixtures (and conditions on further names).
    """
    level = min(p, sf)
    below, above, lost = _mixtures(root, names[0], level)
    if below is above and lost <= 1e-15:
        return solve(below, p, sf, rtol, memory)
    low = solve(below, p, sf, rtol, memory)
    # Mass above the cells may lie anywhere: it is taken off the level.
    reduced = sf - lost
    if reduced <= 0.0:
        raise ToleranceError(f"conditioning on {names[0]!r}: level below its lost mass")
    high = solve(above, 1.0 - reduced, reduced, rtol, memory)
    return type(low)(
        low.lower,
        high.upper,
        0.5 * (low.value + high.value),
        f"cells of the shared draw {names[0]!r}",
    )


def conditioned_sf(
    root: Node,
    names: list[str],
    t: float,
    rtol: float,
    memory: int,
    solve: Callable[..., tuple[float, float, float]],
) -> tuple[float, float, float]:
    """Bounds of P(X > t) and a value between, by conditioning."""
    below, above, lost = _mixtures(root, names[0], 1e-9)
    low = solve(below, t, rtol, memory)
    high = low if below is above else solve(above, t, rtol, memory)
    return low[0], min(high[1] + lost, 1.0), 0.5 * (low[2] + high[2])


def conditioned_mean(
    root: Node, names: list[str], solve: Callable[[Node], Bounds]
) -> Bounds:
    """Bounds of the mean by conditioning; open above if the shared law is unbounded."""
    below, above, lost = _mixtures(root, names[0], 1e-9)
    low = solve(below)
    high = low if below is above else solve(above)
    upper = high.upper if lost <= 1e-15 else math.inf
    return Bounds(
        0.5 * (low.value + high.value),
        low.lower,
        upper,
        "certified" if math.isfinite(upper) else "open",
    )


def conditioned_variance(
    root: Node,
    names: list[str],
    mean: Callable[[Node], Bounds],
    variance: Callable[[Node], float],
) -> float:
    """Variance by the law of total variance over the cells' middles."""
    law = variables(root)[names[0]].law
    left, right, mass, _ = _ends(law, 1e-9)
    total = float(mass.sum())
    means, within = [], 0.0
    for a, b, m in zip(left, right, mass, strict=True):
        node = substituted(root, {names[0]: float(0.5 * (a + b))})
        means.append(mean(node).value)
        within += m / total * variance(node)
    centre = float(mass @ np.array(means)) / total
    return within + float(mass @ (np.array(means) - centre) ** 2) / total
