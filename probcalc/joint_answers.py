"""Quantiles, shortfall, lattices and support of E, from what is known of its law."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import ToleranceError
from probcalc.joint_leaf import MAX_CELLS
from probcalc.joint_result import Result
from probcalc.joint_terms import (
    Joint,
    JointLeaf,
    JointMaximum,
    JointRuns,
    JointSum,
    folded,
)
from probcalc.lattice import Lattice, LatticeBounds

__all__ = ["bracketed", "lattice_pair", "shortfall", "support_of"]

FloatArray = npt.NDArray[Any]


def bracketed(
    result: Result, level: float, by_sf: bool, ends: tuple[float, float]
) -> tuple[float, float, float]:
    """Estimate and bounds of a quantile; `ends` are known whatever the result says.

    The quantile is the smallest t with P(E > t) <= sf, that is P(E <= t) >= p. Levels
    compare as given: 1 - 0.8 is not quite 1 / 5.
    """
    points = result.points
    if by_sf:
        enough = int(np.searchsorted(-result.upper, -level))
        over = int(np.searchsorted(-result.lower, -level)) - 1
        at = int(np.searchsorted(-result.above, -level))
    else:
        enough = int(np.searchsorted(result.below_lower, level))
        over = int(np.searchsorted(result.below_upper, level)) - 1
        at = int(np.searchsorted(result.below, level))
    if result.atoms:
        over += 1  # E is above point `over`, so at the next one at least
    low, high = ends
    upper = points[enough] + result.slack if enough < points.size else high
    lower = points[over] - result.slack if 0 <= over < points.size else low
    lower, upper = max(float(lower), low), min(float(upper), high)
    value = float(points[min(at, points.size - 1)])
    return min(max(value, lower), upper), lower, upper


def shortfall(result: Result, sf: float, least: float) -> tuple[float, float, float]:
    """Estimate and bounds of the mean of the worst `sf` share; E >= `least` surely."""
    t = result.points
    widths = np.diff(t)

    def stop_loss(survival: FloatArray) -> FloatArray:
        return np.append(np.cumsum((survival[:-1] * widths)[::-1])[::-1], 0.0)

    # E (E - t)+ <= E (E' - t)+: noise of mean zero only raises a convex function.
    above = float(np.min(t + (stop_loss(result.above) + result.stop_slack) / sf))
    above += result.slack
    # The law with survival `lower` is below E in first order; so is its shortfall,
    # t_0 + integral of min(lower, sf) / sf where lower(t_0) >= sf. Between points
    # that are no atoms only the value at the next one is sure.
    lower = result.lower if result.atoms else np.append(result.lower[1:], 0.0)
    start = max(int(np.searchsorted(-lower, -sf, side="right")) - 1, 0)
    below = least
    if lower[start] >= sf or result.atoms:
        clipped = np.minimum(lower[start:-1], sf) @ widths[start:]
        below = float(t[start] + clipped / sf - result.slack)
    value = float(np.min(t + stop_loss(result.above) / sf))
    return min(max(value, below), above), below, above


def lattice_pair(
    result: Result, step: float, low: float, ends: tuple[float, float]
) -> LatticeBounds:
    """Laws on multiples of a step, below and above E in first order.

    Mass below `low` is moved there in the upper law and lost in the lower one; `ends`
    are bounds of E.
    """
    least, most = ends
    reach = result.points[[0, -1]] + [-2.0 * result.slack, 2.0 * result.slack]
    start = float(reach[0]) if low <= least else max(low, float(reach[0]))
    first = math.floor(start / step)
    last = max(math.ceil(float(reach[1]) / step), first + 1)
    if last - first > MAX_CELLS:
        raise ToleranceError(
            f"joint law: {last - first} lattice points, more than {MAX_CELLS}"
        )
    at = step * np.arange(first, last + 1)
    lower, upper = result.lower_at(at), result.upper_at(at)
    # A law on the points with survival function s has s(t) = s(point before t). So
    # P(E > point) bounds from above what lies between two points, and the lower law
    # has at each point the survival of the next.
    begin = 1.0 if least - result.slack >= at[0] else float(lower[0])
    beyond = 0.0 if most <= at[-1] else float(upper[-1])
    upper[-1] = beyond
    down = np.append(lower[1:], 0.0)

    def masses(before: float, survival: FloatArray) -> FloatArray:
        return np.maximum(-np.diff(survival, prepend=before), 0.0)

    return LatticeBounds(
        Lattice(first, step, masses(begin, down), 1.0 - begin, 0.0, "down"),
        Lattice(first, step, masses(1.0, upper), 0.0, beyond, "up"),
    )


def support_of(root: Joint, weight: float) -> tuple[float, float]:
    """Bounds of the possible values of E."""
    early = math.inf

    def leaf(node: JointLeaf) -> tuple[float, ...]:
        """Least and largest T and x, and least x of what does not fall with T."""
        nonlocal early
        if isinstance(node, JointRuns):
            t, x = node.time, node.x
            early = min(early, float(t.min()))
            low = float(x.min())
            return float(t.min()), float(t.max()), low, float(x.max()), low, 0.0
        t, x = node.time_law.support(), node.x_law.support()
        first, last = float(t[0]), float(t[1])
        early = min(early, first)
        lines = [node.slope * v if node.slope else 0.0 for v in (first, last)]
        rest = float(x[0]) + (lines[0] if node.slope > 0.0 else 0.0)
        top = max(lines) + float(x[1])
        return first, last, min(lines) + float(x[0]), top, rest, max(-node.slope, 0.0)

    def combine(
        node: JointSum | JointMaximum, parts: list[tuple[Any, int]]
    ) -> tuple[float, ...]:
        added = [sum(n * part[i] for part, n in parts) for i in range(6)]
        if isinstance(node, JointMaximum):
            added[:2] = [max(part[i] for part, _ in parts) for i in (0, 1)]
        return tuple(added)

    first, last, low, high, rest, fall = folded(root, leaf, combine)
    if weight == 0.0:
        return low, high
    low, high = low + weight * first, high + weight * last
    if 0.0 < fall <= weight and early >= 0.0:
        # Times are not negative, so each is at most the whole: sum of slope T over the
        # falling lines is at least -fall times the whole T.
        low = max(low, (weight - fall) * first + rest)
    return low, high
