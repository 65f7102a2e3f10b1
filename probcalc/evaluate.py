"""Lattice evaluation of an expression: a lower and an upper mass for every node.

Sum, maximum, mixture and positive scaling keep both the increasing convex order and
the first order of independent operands; the minimum keeps the first order only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from probcalc.discretise import UNIT, Demand, Measure, Pair, leaf_pair
from probcalc.distribution import FloatArray
from probcalc.errors import ToleranceError
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
)

if TYPE_CHECKING:
    from probcalc.kernels.convolution import TiltedSum

__all__ = ["evaluate", "non_negative"]

#: Share of the asked level that trimming one node's tails may cost.
TRIM = 1e-9
#: Share of it that a transform's window may leave outside. Far less than `TRIM`: what
#: wraps counts against every bin, and so many times over in a stop-loss transform.
OUTSIDE = 1e-17
#: Whole supports up to this many points are convolved without a window.
WHOLE = 1 << 14
#: From this level on a tilted transform is taken beside the plain one: the plain one's
#: rounding, alike in every bin, adds up twice in a stop-loss transform.
TILT_BELOW = 1e-2


def non_negative(root: Node) -> bool:
    """Whether every leaf is non-negative, so that caps above a value are exact."""
    from probcalc.nodes import postorder

    for node in postorder(root):
        if isinstance(node, Leaf | Shared) and float(node.law.support()[0]) < 0.0:
            return False
        if isinstance(node, Sum) and node.constant < 0.0:
            return False
    return True


def evaluate(root: Node, demand: Demand) -> Pair:
    """Bracket an expression, whose leaves are independent, on a lattice.

    Raises
    ------
    ToleranceError
        A mass with more points than ``demand.points``.
    """
    done: dict[tuple[int, float], Pair] = {}
    # A node is worked out once for each step it is asked at (parts of a Scale are
    # asked at another step). An explicit stack: depth is bounded by memory alone.
    stack: list[tuple[Node, Demand, bool]] = [(root, demand, False)]
    while stack:
        node, asked, ready = stack.pop()
        key = (id(node), asked.step)
        if key in done:
            continue
        if ready or isinstance(node, Leaf | Shared):
            done[key] = _node_pair(node, asked, done)
            continue
        inner = asked.scaled(node.factor) if isinstance(node, Scale) else asked
        stack.append((node, asked, True))
        for part, _ in _asked_parts(node):
            stack.append((part, inner, False))
    return done[(id(root), demand.step)]


def _asked_parts(node: Node) -> tuple[tuple[Node, int], ...]:
    if isinstance(node, Product):
        return ()
    if isinstance(node, Sum) and (carrier := _carrier(node)) is not None:
        return tuple(pair for pair in node.parts if pair is not carrier)
    return children(node)


def _carrier(node: Sum) -> tuple[Node, int] | None:
    """The leaf that takes a sum's constant upon itself, to be rounded with it once."""
    if node.constant == 0.0:
        return None
    for pair in node.parts:
        part = pair[0]
        if isinstance(part, Leaf | Shared) and not hasattr(part.law, "lattice_bounds"):
            return pair
    return None


def _node_pair(
    node: Node, demand: Demand, done: dict[tuple[int, float], Pair]
) -> Pair:
    def of(part: Node, step: float) -> Pair:
        return done[(id(part), step)]

    match node:
        case Leaf() | Shared():
            return leaf_pair(node.law, demand)
        case Scale():
            inner = of(node.part, demand.scaled(node.factor).step)
            return Pair(
                demand.step,
                inner.lower,
                inner.upper,
                inner.tail,
                inner.excess * node.factor,
                inner.cut,
                inner.exact_below * node.factor,
                inner.rounding + 4.0 * UNIT,
                inner.order,
            )
        case Sum():
            return _sum_pair(node, demand, done)
        case Max() | Min():
            pairs = [(of(part, demand.step), n) for part, n in node.parts]
            return _extreme_pair(pairs, demand, largest=isinstance(node, Max))
        case Mix():
            return _mix_pair(
                [of(part, demand.step) for part in node.parts], node.weights, demand
            )
        case Product():
            from probcalc.products import product_pair

            return product_pair(node, demand)


def _order(pairs: Sequence[Pair], demand: Demand) -> str:
    return (
        "first"
        if demand.order == "first" or all(p.order == "first" for p in pairs)
        else "convex"
    )


def _sum_pair(node: Sum, demand: Demand, done: dict[tuple[int, float], Pair]) -> Pair:
    carrier = _carrier(node)
    pairs: list[tuple[Pair, int]] = []
    for pair in node.parts:
        part, count = pair
        if pair is carrier:
            assert isinstance(part, Leaf | Shared)
            own = leaf_pair(part.law, demand, node.constant / count)
            pairs.append((own, count))
        else:
            pairs.append((done[(id(part), demand.step)], count))
    total = convolved(pairs, demand)
    if node.constant != 0.0 and carrier is None:
        total = _shifted(total, node.constant)
    return total


def _shifted(pair: Pair, constant: float) -> Pair:
    down, up = math.floor(constant / pair.step), math.ceil(constant / pair.step)
    return Pair(
        pair.step,
        Measure(pair.lower.first + down, pair.lower.mass),
        Measure(pair.upper.first + up, pair.upper.mass),
        pair.tail,
        pair.excess,
        pair.cut,
        pair.exact_below + min(constant, 0.0),
        pair.rounding,
        pair.order,
    )


def convolved(pairs: Sequence[tuple[Pair, int]], demand: Demand) -> Pair:
    """Pair of the sum of independent quantities, each with its number of copies."""
    lower = sum_of_measures([(p.lower, n) for p, n in pairs], demand, upper=False)
    upper = sum_of_measures([(p.upper, n) for p, n in pairs], demand, upper=True)
    counts = sum(n for _, n in pairs)
    tail = sum(n * p.tail for p, n in pairs) + upper[1]
    excess = sum(n * p.excess for p, n in pairs) + upper[2] * demand.step
    points = max(lower[0].mass.size, upper[0].mass.size)
    return Pair(
        demand.step,
        lower[0],
        upper[0],
        tail,
        excess,
        sum(n * p.cut for p, n in pairs),
        min(p.exact_below for p, _ in pairs),
        sum(n * p.rounding for p, n in pairs) + (8.0 * counts + points) * UNIT,
        _order([p for p, _ in pairs], demand),  # type: ignore[arg-type]
    )


def sum_of_measures(
    parts: Sequence[tuple[Measure, int]], demand: Demand, *, upper: bool
) -> tuple[Measure, float, float]:
    """Sum of measures, trimmed; what an upper one left out: mass and mean, in steps."""
    from probcalc.kernels import convolution as kernel

    first = sum(n * m.first for m, n in parts)
    # Single points only move the sum.
    spread = [(m, n) for m, n in parts if m.mass.size > 1]
    factor = 1.0
    for m, n in parts:
        if m.mass.size == 1:
            factor *= float(m.mass[0]) ** n
    if not spread:
        return Measure(first, np.array([factor])), 0.0, 0.0
    masses = [m.mass for m, _ in spread]
    counts = [n for _, n in spread]
    span = sum(n * (m.size - 1) for m, n in zip(masses, counts, strict=True))
    work = _direct_work(masses, counts)
    if work <= kernel.DIRECT:
        mass = kernel.power(masses[0], counts[0])
        for m, n in zip(masses[1:], counts[1:], strict=True):
            mass = kernel.convolve(mass, kernel.power(m, n))
        return trimmed(Measure(first, factor * mass), demand, upper=upper)
    offset, survival, total, tail, excess = _by_transform(
        masses, counts, span, demand, upper=upper
    )
    mass = factor * np.maximum(-np.diff(np.append(total, survival)), 0.0)
    measure, more_tail, more_excess = trimmed(
        Measure(first + offset, mass), demand, upper=upper
    )
    return measure, tail + more_tail, excess + more_excess


def _direct_work(masses: Sequence[FloatArray], counts: Sequence[int]) -> float:
    size, work = 1.0, 0.0
    for m, n in zip(masses, counts, strict=True):
        whole = n * (m.size - 1.0) + 1.0
        if n > 1:
            work += whole * whole
        work += size * whole
        size += whole - 1.0
    return work


def _by_transform(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    span: int,
    demand: Demand,
    *,
    upper: bool,
) -> tuple[int, FloatArray, float, float, float]:
    """Survival bounds of a sum on a window: first point, sf, whole mass, lost tail."""
    from probcalc.kernels import convolution as kernel

    log_out = math.log(demand.level) + math.log(OUTSIDE)
    low, high = 0, span
    if span >= WHOLE:
        low, high = kernel.tilted_window(masses, counts, 0.0, log_out)
    bins = _checked_bins(low, high, demand)
    plain = kernel.tilted_sum(masses, counts, 0.0, low, bins)
    results = [plain]
    if demand.level < TILT_BELOW:
        theta = _tilt(plain, span, demand.level)
        if span >= WHOLE:
            # The tilted window is asked to be as empty outside as the plain one.
            below, above = kernel.tilted_window(masses, counts, theta, log_out)
            if above > high or low > 0:
                high = max(high, above)
                low = min(low, below)
                bins = _checked_bins(low, high, demand)
                results = [kernel.tilted_sum(masses, counts, 0.0, low, bins)]
        if theta > 0.0:
            results.append(kernel.tilted_sum(masses, counts, theta, low, bins))
    whole = low == 0 and bins > span
    survival: FloatArray | None = None
    total = 1.0
    for result in results:
        outside = 0.0
        if not whole:
            outside = math.exp(
                min(_log_outside(masses, counts, result.theta, low, low + bins), 0.0)
            )
        own, own_total = _bounds(result, outside, upper=upper)
        if survival is None:
            survival, total = own, own_total
        elif upper:
            survival, total = np.minimum(survival, own), min(total, own_total)
        else:
            survival, total = np.maximum(survival, own), max(total, own_total)
    assert survival is not None
    tail, excess = 0.0, 0.0
    if upper and not whole:
        # What lies above the window has wrapped to its bottom. It is capped at the
        # last point; mass below the window belongs to the first point.
        tail, excess = _above(masses, counts, low + bins)
        survival[:-1] += tail
        total = max(total + tail, 1.0)
    return low, survival, max(total, float(survival[0])), tail, excess


def _bounds(
    result: TiltedSum, outside: float, *, upper: bool
) -> tuple[FloatArray, float]:
    """Survival bounds from a tilted mass: rounding added or taken off each value.

    A sum of bins times weights is off by at most the largest bin error times the sum of
    the weights, and at most the error's norm times the norm of the weights.
    """
    from probcalc.kernels.survival import suffix_sums

    k = result.first + np.arange(result.mass.size)
    # Where the weight would overflow, the plain transform is the better of the two.
    weight = np.exp(np.minimum(result.log_scale - result.theta * k, 300.0))
    bins = result.mass * weight
    # Rounding of the tilt, its inverse and the exponents: relative.
    relative = 4.0 * UNIT * (4.0 + abs(result.theta) * result.mass.size)
    survival = suffix_sums(bins)
    error = np.minimum(
        result.error * suffix_sums(weight),
        result.error_norm * np.sqrt(suffix_sums(weight * weight)),
    )
    error += relative * np.abs(survival)
    if upper:
        survival = np.minimum.accumulate(np.maximum(survival + error, 0.0))
        first_bin = max(float(bins[0]), 0.0) + result.error * float(weight[0])
        return survival, float(survival[0]) + first_bin
    # Wrapped mass, at most `outside`, may sit in any bin: taken off every survival
    # value with the largest weight it can have there.
    survival = survival - error - outside * weight
    survival = np.maximum.accumulate(np.maximum(survival, 0.0)[::-1])[::-1]
    first_bin = float(bins[0]) - (result.error + outside) * float(weight[0])
    return survival, float(survival[0]) + max(first_bin, 0.0)


def _log_outside(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    theta: float,
    low: int,
    end: int,
) -> float:
    """Log of a bound of the tilted mass outside [low, end), by Chernoff's inequality."""
    from probcalc.kernels import convolution as kernel

    base, _, variance = kernel.total_log_mgf(masses, counts, theta)
    spread = math.sqrt(variance) if variance > 0.0 else 1.0
    above = below = math.inf
    for u in (0.15, 0.6, 1.6, 3.5, 6.0, 10.0):
        rate = u / spread
        up = kernel.total_log_mgf(masses, counts, theta + rate)[0]
        above = min(above, up - base - rate * end)
        if low > 0:
            down = kernel.total_log_mgf(masses, counts, theta - rate)[0]
            below = min(below, down - base + rate * (low - 1))
    if low == 0:
        below = -math.inf
    return float(np.logaddexp(above, below))


def _above(
    masses: Sequence[FloatArray], counts: Sequence[int], end: int
) -> tuple[float, float]:
    """Bounds of P(S >= end) and of E (S - end)+ in steps, by Chernoff's inequality."""
    from probcalc.kernels import convolution as kernel

    _, _, variance = kernel.total_log_mgf(masses, counts, 0.0)
    spread = math.sqrt(variance) if variance > 0.0 else 1.0
    best, excess = math.inf, math.inf
    for u in (0.15, 0.3, 0.6, 1.0, 1.6, 2.5, 3.5, 5.0, 7.0, 10.0):
        rate = u / spread
        log_bound = kernel.total_log_mgf(masses, counts, rate)[0] - rate * end
        bound = math.exp(min(log_bound, 0.0))
        best = min(best, bound)
        # E (S - e)+ = integral of P(S > t) over t > e <= bound / rate.
        excess = min(excess, math.exp(min(log_bound, 600.0)) / rate)
    return best, excess


def _checked_bins(low: int, high: int, demand: Demand) -> int:
    from probcalc.kernels.convolution import fft_length

    if high - low + 1 > demand.points:
        raise ToleranceError(
            f"lattice of {high - low + 1} points needed, {demand.points} allowed"
        )
    return fft_length(high - low + 1)


def _tilt(plain: TiltedSum, span: int, level: float) -> float:
    """Tilt per step that lifts the tail at `level` highest over the rounding.

    The rounding of a bin at k is E exp(K - theta k): relative to the mass at x it is
    the largest tilted mass over the tilted mass at x. From the plain transform, where
    its masses are well above their own rounding; beyond, they are taken to be as large
    as that, up to the end of the support. (A saddle point would overshoot for
    sub-exponential laws.)
    """
    from probcalc.kernels.survival import suffix_sums

    seen = plain.mass > 32.0 * plain.error
    survival = suffix_sums(np.where(seen, plain.mass, 0.0))
    at = min(int(np.searchsorted(-survival, -level)), plain.mass.size - 1)
    while at > 0 and not seen[at]:
        at -= 1
    held = np.flatnonzero(seen)
    if held.size < 8 or at <= 0:
        return 0.0
    thin = held[:: max(held.size // 4096, 1)].astype(float)
    logs = np.log(plain.mass[thin.astype(np.intp)])
    log_at = math.log(plain.mass[at])
    floor = math.log(32.0 * plain.error)
    last_seen = float(held[-1])
    mean = float(plain.mass @ np.arange(plain.mass.size))
    reach = max(at - mean, 1.0)
    best, best_gap = 0.0, float(logs.max()) - log_at
    for theta in np.geomspace(0.5, 60.0, 28) / reach:
        # Past what is seen the mass falls, for all we know, no faster than to zero at
        # the end; a geometric fall at the seen rate is not assumed.
        beyond = floor + theta * min(span - plain.first, 2.0 * last_seen)
        gap = max(float((logs + theta * thin).max()), beyond) - (log_at + theta * at)
        if gap < best_gap:
            best, best_gap = float(theta), gap
    return best


def trimmed(
    measure: Measure, demand: Demand, *, upper: bool
) -> tuple[Measure, float, float]:
    """Cut thin tails: an upper measure is capped and says so, a lower one lowered.

    Returns
    -------
    measure : Measure
    tail, excess : float
        Mass above the last point and its mean excess over it, in steps (upper only).
    """
    mass = measure.mass
    allowed = demand.level * TRIM
    above = np.cumsum(mass[::-1])
    below = np.cumsum(mass)
    cut_top = int(np.searchsorted(above, allowed, side="right"))
    cut_bottom = int(np.searchsorted(below, allowed, side="right"))
    end = mass.size - cut_top
    if cut_bottom >= end - 1 or cut_top + cut_bottom < 64:
        return measure, 0.0, 0.0
    kept = mass[cut_bottom:end].copy()
    tail = excess = 0.0
    if upper:
        if cut_bottom:
            kept[0] += below[cut_bottom - 1]
        if cut_top:
            tail = float(above[cut_top - 1])
            kept[-1] += tail
            excess = float(mass[end:] @ np.arange(1, cut_top + 1))
    elif cut_top:
        kept[-1] += above[cut_top - 1]
    return Measure(measure.first + cut_bottom, kept), tail, excess


def _aligned(measures: Sequence[Measure], demand: Demand) -> tuple[int, FloatArray]:
    first = min(m.first for m in measures)
    last = max(m.last for m in measures)
    if last - first + 1 > demand.points:
        raise ToleranceError(
            f"lattice of {last - first + 1} points needed, {demand.points} allowed"
        )
    table = np.zeros((len(measures), last - first + 1))
    for row, m in zip(table, measures, strict=True):
        row[m.first - first : m.last - first + 1] = m.mass
    return first, table


def _extreme_pair(
    pairs: Sequence[tuple[Pair, int]], demand: Demand, *, largest: bool
) -> Pair:
    from probcalc.kernels import order_statistics as kernel

    combine = kernel.maximum_mass if largest else kernel.minimum_mass

    def extreme(measures: Sequence[Measure], counts: Sequence[int]) -> Measure:
        # What lies below the highest first point cannot be the maximum's value; what
        # lies above the lowest last point cannot be the minimum's. Pairwise, so that
        # two rows are held at a time.
        total: Measure | None = None
        for measure, count in zip(measures, counts, strict=True):
            mass = _extreme_power(measure.mass, count, combine)
            own = Measure(measure.first, mass)
            if total is None:
                total = own
                continue
            first, table = _aligned([total, own], demand)
            total = Measure(first, combine(table[0], table[1]))
        assert total is not None
        return _without_zeros(total)

    counts = [n for _, n in pairs]
    lower = extreme([p.lower for p, _ in pairs], counts)
    upper = extreme([p.upper for p, _ in pairs], counts)
    points = max(lower.mass.size, upper.mass.size)
    return Pair(
        demand.step,
        lower,
        upper,
        sum(n * p.tail for p, n in pairs),
        sum(n * p.excess for p, n in pairs),
        sum(n * p.cut for p, n in pairs),
        min(p.exact_below for p, _ in pairs),
        sum(n * p.rounding for p, n in pairs) + 4.0 * len(pairs) * points * UNIT,
        _order([p for p, _ in pairs], demand),  # type: ignore[arg-type]
    )


def _extreme_power(mass: FloatArray, count: int, combine):  # type: ignore[no-untyped-def]
    result: FloatArray | None = None
    while True:
        if count & 1:
            result = mass if result is None else combine(result, mass)
        count >>= 1
        if count == 0:
            assert result is not None
            return result
        mass = combine(mass, mass)


def _without_zeros(measure: Measure) -> Measure:
    held = np.flatnonzero(measure.mass)
    if held.size == 0:
        return Measure(measure.first, measure.mass[:1])
    low, high = int(held[0]), int(held[-1])
    return Measure(measure.first + low, measure.mass[low : high + 1])


def _mix_pair(
    pairs: Sequence[Pair], weights: Sequence[float], demand: Demand
) -> Pair:
    def mixed(measures: Sequence[Measure]) -> Measure:
        first, table = _aligned(measures, demand)
        return Measure(first, np.asarray(weights) @ table)

    return Pair(
        demand.step,
        mixed([p.lower for p in pairs]),
        mixed([p.upper for p in pairs]),
        sum(w * p.tail for w, p in zip(weights, pairs, strict=True)),
        sum(w * p.excess for w, p in zip(weights, pairs, strict=True)),
        sum(w * p.cut for w, p in zip(weights, pairs, strict=True)),
        min(p.exact_below for p in pairs),
        max(p.rounding for p in pairs) + 2.0 * len(pairs) * UNIT,
        _order(pairs, demand),  # type: ignore[arg-type]
    )
