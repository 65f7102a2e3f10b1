"""Lattice evaluation of an expression: a lower and an upper mass for every node.

Sum, maximum, mixture and positive scaling keep both the increasing convex order and
the first order of independent operands; the minimum keeps the first order only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from probcalc.discretise import UNIT, Demand, Measure, Order, Pair, leaf_pair
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

__all__ = ["convolved", "evaluate", "extreme", "non_negative", "shifted"]

#: Share of the asked level that trimming one node's tails may cost.
TRIM = 1e-7
#: Share of it that a transform's window may leave outside. Far less than `TRIM`: what
#: wraps counts against every bin, and so many times over in a stop-loss transform.
OUTSIDE = 1e-17
#: Points of the coarse copy that places tilt and window.
COARSE = 4096
#: Whole supports up to this many points are convolved without a window.
WHOLE = 1 << 14
#: Points of the shorter mass of a direct convolution: the root of its products.
SHORT = 512
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
    done: Done = {}
    # A node is worked out once for each demand (parts of a Scale are asked at another
    # step). An explicit stack: depth is bounded by memory alone.
    stack: list[tuple[Node, Demand, bool]] = [(root, demand, False)]
    while stack:
        node, asked, ready = stack.pop()
        key = (id(node), asked.key)
        if key in done:
            continue
        if ready or isinstance(node, Leaf | Shared):
            done[key] = _node_pair(node, asked, done)
            continue
        stack.append((node, asked, True))
        inner = _inner(node, asked)
        stack.extend((part, inner, False) for part in _asked_parts(node))
    return done[(id(root), demand.key)]


Done = dict[tuple[int, tuple[float, bool]], Pair]


def _inner(node: Node, demand: Demand) -> Demand:
    """The demand on the parts of a node."""
    match node:
        case Scale():
            return demand.scaled(node.factor)
        case Sum():
            return replace(demand, tail_only=False)
        case _:
            return demand


def _asked_parts(node: Node) -> list[Node]:
    if isinstance(node, Product):
        return []
    carrier = _carrier(node) if isinstance(node, Sum) else None
    return [pair[0] for pair in children(node) if pair is not carrier]


def _carrier(node: Sum) -> tuple[Node, int] | None:
    """The leaf that takes a sum's constant upon itself, to be rounded with it once."""
    able = [
        pair
        for pair in node.parts
        if isinstance(pair[0], Leaf | Shared)
        and not hasattr(pair[0].law, "lattice_bounds")
    ]
    if not able or (node.constant == 0.0 and len(node.parts) == 1):
        return None
    # The widest: its rounding is of second order, whatever it carries.
    return max(able, key=lambda pair: float(pair[0].law.variance()))  # type: ignore[union-attr]


def _node_pair(node: Node, demand: Demand, done: Done) -> Pair:
    asked = _inner(node, demand).key

    def of(part: Node) -> Pair:
        return done[(id(part), asked)]

    match node:
        case Leaf() | Shared():
            return leaf_pair(node.law, demand)
        case Scale():
            inner = of(node.part)
            return replace(
                inner,
                step=demand.step,
                excess=inner.excess * node.factor,
                exact_below=inner.exact_below * node.factor,
                rounding=inner.rounding + 4.0 * UNIT,
            )
        case Sum():
            return _sum_pair(node, demand, of)
        case Max() | Min():
            pairs = [(of(part), n) for part, n in node.parts]
            return extreme(pairs, demand, largest=isinstance(node, Max))
        case Mix():
            return _mix_pair([of(part) for part in node.parts], node.weights, demand)
        case Product():
            from probcalc.products import product_pair

            return product_pair(node, demand)


def _order(pairs: Sequence[Pair], demand: Demand) -> Order:
    return (
        "first"
        if demand.order == "first" or all(p.order == "first" for p in pairs)
        else "convex"
    )


def _sum_pair(node: Sum, demand: Demand, of: Callable[[Node], Pair]) -> Pair:
    carrier = _carrier(node)
    constant = node.constant
    pairs: list[tuple[Pair, int]] = []
    for pair in node.parts:
        part, count = pair
        if pair is carrier:
            continue
        centre = _centre(part, demand) if carrier is not None else None
        if centre is None:
            pairs.append((of(part), count))
        else:
            assert isinstance(part, Leaf | Shared)
            constant += count * centre
            pairs.append((leaf_pair(part.law, demand, -centre), count))
    if carrier is not None:
        part, count = carrier
        assert isinstance(part, Leaf | Shared)
        pairs.append((leaf_pair(part.law, demand, constant / count), count))
        return convolved(pairs, demand)
    total = convolved(pairs, demand)
    return total if constant == 0.0 else shifted(total, constant)


def _centre(part: Node, demand: Demand) -> float | None:
    """Mean of a leaf that is narrow beside the step, to be put on a lattice point.

    Rounding such a law down would lose up to a step of the sum; about its mean both
    bounds keep it. The carrier takes the mean over.
    """
    if demand.order != "convex" or not isinstance(part, Leaf | Shared):
        return None
    if hasattr(part.law, "lattice_bounds"):
        return None
    mean, variance = float(part.law.mean()), float(part.law.variance())
    if not (math.isfinite(mean) and variance < 16.0 * demand.step**2):
        return None
    return mean


def shifted(pair: Pair, constant: float) -> Pair:
    """Pair of a quantity moved by a constant, rounded outwards."""
    down, up = math.floor(constant / pair.step), math.ceil(constant / pair.step)
    return replace(
        pair,
        lower=Measure(pair.lower.first + down, pair.lower.mass),
        upper=Measure(pair.upper.first + up, pair.upper.mass),
        exact_below=pair.exact_below + min(constant, 0.0),
    )


def convolved(pairs: Sequence[tuple[Pair, int]], demand: Demand) -> Pair:
    """Pair of the sum of independent quantities, each with its number of copies."""
    lower_parts = [(p.lower, n) for p, n in pairs]
    upper_parts = [(p.upper, n) for p, n in pairs]
    if all(p.lower is p.upper for p, _ in pairs):
        # Exact masses: one convolution, bounded on both sides.
        lower, upper = _summed(upper_parts, demand, ("lower", "upper"))
    else:
        (lower,) = _summed(lower_parts, demand, ("lower",))
        (upper,) = _summed(upper_parts, demand, ("upper",))
    counts = sum(n for _, n in pairs)
    points = max(lower.measure.mass.size, upper.measure.mass.size)
    return Pair(
        demand.step,
        lower.measure,
        upper.measure,
        sum(n * p.tail for p, n in pairs) + upper.tail,
        sum(n * p.excess for p, n in pairs) + upper.excess * demand.step,
        sum(n * p.cut for p, n in pairs) + upper.cut,
        min([p.exact_below for p, _ in pairs] + [demand.cap] * (upper.cut > 0.0)),
        sum(n * p.rounding for p, n in pairs) + _sum_rounding(counts, points),
        _order([p for p, _ in pairs], demand),
    )


def _sum_rounding(counts: int, points: int) -> float:
    """Relative rounding of the masses of a sum.

    Those of a direct convolution are off by as many units as the shorter mass has
    points, at most `SHORT`, once more for each doubling; a transform's are differences
    of a survival function that carries its rounding already.
    """
    doublings = 2.0 * math.log2(counts) + 2.0
    return (8.0 * counts + doublings * min(points, SHORT)) * UNIT


Side = Literal["lower", "upper"]


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """A bound of a sum, and what an upper one leaves out: mass and mean, in steps.

    `cut` is mass at or above the demand's cap, which changes no event below it.
    """

    measure: Measure
    tail: float = 0.0
    excess: float = 0.0
    cut: float = 0.0


def _summed(
    parts: Sequence[tuple[Measure, int]], demand: Demand, sides: Sequence[Side]
) -> list[Total]:
    """Sum of measures, trimmed, as a bound on each of the sides asked."""
    from probcalc.kernels import convolution as kernel

    first = sum(n * m.first for m, n in parts)
    # Single points only move the sum (and scale it where mass is missing).
    spread = [(m, n) for m, n in parts if m.mass.size > 1]
    factor = 1.0
    for m, n in parts:
        if m.mass.size == 1:
            factor *= float(m.mass[0]) ** n
    if not spread:
        only = Total(Measure(first, np.array([factor])))
        return [only for _ in sides]
    masses = [m.mass for m, _ in spread]
    counts = [n for _, n in spread]
    if _direct_work(masses, counts) <= kernel.DIRECT:
        mass = kernel.power(masses[0], counts[0])
        for m, n in zip(masses[1:], counts[1:], strict=True):
            mass = kernel.convolve(mass, kernel.power(m, n))
        whole = Measure(first, mass if factor == 1.0 else factor * mass)
        return [trimmed(Total(whole), demand, side) for side in sides]
    span = sum(n * (m.size - 1) for m, n in zip(masses, counts, strict=True))
    last = demand.cap / demand.step - first + 1.0
    if demand.order == "first" and last < 0.5 * span:
        from probcalc.capped import capped_sum

        return [
            capped_sum(masses, counts, first, max(int(last), 1), factor, side)
            for side in sides
        ]
    totals: list[Total] = []
    for side, found in zip(
        sides, _by_transform(masses, counts, span, demand, sides), strict=True
    ):
        offset, survival, mass_total, tail, excess = found
        mass = factor * np.maximum(-np.diff(np.append(mass_total, survival)), 0.0)
        total = Total(Measure(first + offset, mass), tail, excess)
        totals.append(trimmed(total, demand, side))
    return totals


def _direct_work(masses: Sequence[FloatArray], counts: Sequence[int]) -> float:
    size, work = 1.0, 0.0
    for m, n in zip(masses, counts, strict=True):
        whole = n * (m.size - 1.0) + 1.0
        if n > 1:
            work += whole * whole
        work += size * whole
        size += whole - 1.0
    return work


#: First point, sf, whole mass, lost tail, its mean excess in steps.
Found = tuple[int, FloatArray, float, float, float]


def _by_transform(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    span: int,
    demand: Demand,
    sides: Sequence[Side],
) -> list[Found]:
    """Survival bounds of a sum on a window, on each side asked."""
    from probcalc.kernels import convolution as kernel

    plan = _plan(masses, counts, span, demand)
    low = plan.low
    bins = _checked_bins(low, plan.high, demand)
    whole = low == 0 and bins > span
    found: dict[Side, Found] = {}
    # A tilt loses the bulk, no tilt loses the tail: where both matter, both are taken
    # and the better bound is kept at each point.
    for theta in {plan.theta, 0.0} if not demand.tail_only else {plan.theta}:
        outside = tail = excess = 0.0
        if not whole:
            outside, tail, excess = _outside(
                masses, counts, theta, low, low + bins, plan.down, plan.up, span
            )
        result = kernel.tilted_sum(masses, counts, theta, low, bins)
        for side in sides:
            survival, total = kernel.tilted_survival(
                result.mass, result.first, theta, result.log_scale, result.error,
                result.error_norm, outside, side == "upper",
            )  # fmt: skip
            if side == "upper":
                if not whole:
                    # What lies above the window has wrapped to its bottom. It is capped
                    # at the last point; mass below belongs to the first point.
                    survival[:-1] += tail
                total = max(total, 1.0) + tail
                mine = (low, survival, total, tail, excess)
            else:
                mine = (low, survival, max(total, float(survival[0])), 0.0, 0.0)
            found[side] = _better(mine, found.get(side), side)
    return [found[side] for side in sides]


def _better(mine: Found, other: Found | None, side: Side) -> Found:
    """The tighter of two bounds of one side, point by point."""
    if other is None:
        return mine
    if side == "lower":
        return mine[0], np.maximum(mine[1], other[1]), max(mine[2], other[2]), 0.0, 0.0
    return (
        mine[0],
        np.minimum(mine[1], other[1]),
        min(mine[2], other[2]),
        min(mine[3], other[3]),
        min(mine[4], other[4]),
    )


def _checked_bins(low: int, high: int, demand: Demand) -> int:
    from probcalc.kernels.convolution import fft_length

    if high - low + 1 > demand.points:
        raise ToleranceError(
            f"lattice of {high - low + 1} points needed, {demand.points} allowed"
        )
    return fft_length(high - low + 1)


class Placement(NamedTuple):
    """Tilt per step, window, and rates for Chernoff's bound of what lies outside."""

    theta: float
    low: int
    high: int
    down: float
    up: float


def _plan(
    masses: Sequence[FloatArray], counts: Sequence[int], span: int, demand: Demand
) -> Placement:
    """Tilt and window from a coarse copy of the sum; nothing here is relied upon."""
    from probcalc.kernels import convolution as kernel

    level = demand.level
    summands = sum(counts)
    # The coarse step stays well below the spread of the sum.
    _, _, variance = kernel.total_log_mgf(masses, counts, 0.0)
    factor = max(1, min(span // COARSE, int(math.sqrt(variance) / 24.0)))
    coarse = [kernel.coarsened(m, factor) for m in masses]
    log_out = math.log(OUTSIDE) + (0.0 if level < TILT_BELOW else math.log(level))
    slack = 2.0 + math.sqrt(summands)

    def placed(theta: float) -> Placement:
        if span < WHOLE:
            return Placement(theta / factor, 0, span, 1.0, 1.0)
        low, high, down, up = kernel.tilted_window(coarse, counts, theta, log_out)
        # As far up as the plain tail is wanted; as far down, where the bulk is.
        plain_low, plain_high, _, _ = kernel.tilted_window(
            coarse, counts, 0.0, math.log(level) + math.log(TRIM)
        )
        high = max(high, plain_high)
        if not demand.tail_only:
            low = min(low, plain_low)
        return Placement(
            theta / factor,
            max(int(factor * (low - slack)), 0),
            min(int(factor * (high + slack)) + 1, span),
            down / factor,
            up / factor,
        )

    if level >= TILT_BELOW:
        return placed(0.0)
    low, high, _, _ = kernel.tilted_window(coarse, counts, 0.0, log_out)
    end = min(high, span / factor + summands)
    start = max(int(low), 0)
    plain = kernel.tilted_sum(
        coarse, counts, 0.0, start, kernel.fft_length(int(end) - start + 2)
    )
    best, x = _tilt(plain, coarse, counts, level)
    # A smaller tilt needs a smaller window. Wanted is the smallest window for which
    # rounding stays well below the bracket: the norm of a bin's error is about
    # n gamma / sqrt(spread), and it adds up over the points in reach of the tilt.
    options = [placed(share * best) for share in (0.3, 0.42, 0.58, 0.78, 1.0)]

    def rounding(option: Placement) -> float:
        theta = option.theta * factor
        value, _, tilted = kernel.total_log_mgf(coarse, counts, theta)
        norm = 1e-14 * summands / math.sqrt(1.0 + 3.5 * factor * math.sqrt(tilted))
        reach = min(1.0 / max(option.theta, 1e-300), option.high - option.low + 1.0)
        size = math.exp(min(value - theta * x, 300.0)) / level
        return norm * size * reach**1.5 / math.sqrt(summands)

    # The bracket is about sqrt(n) steps wide, and the survival function falls by about
    # the best tilt for every step: rounding stays well below that as well.
    fall = 0.2 * best / factor * math.sqrt(summands)
    good = [option for option in options if rounding(option) < min(3e-5, fall)]
    if good:
        return min(good, key=lambda option: option.high - option.low)
    return min(options, key=rounding)


def _outside(
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    theta: float,
    low: int,
    end: int,
    down: float,
    up: float,
    span: int,
) -> tuple[float, float, float]:
    """Chernoff bounds on the fine lattice.

    Returns
    -------
    outside, tail, excess : float
        Tilted mass outside [low, end); plain mass at or above `end`; its mean excess
        over `end`, in steps.
    """
    from probcalc.kernels import convolution as kernel

    base = kernel.total_log_mgf(masses, counts, theta)[0]
    up = max(up, 1e-300)
    log_above = log_below = -math.inf
    tail = excess = 0.0
    if end <= span:
        rate = theta + up
        value = kernel.total_log_mgf(masses, counts, rate)[0]
        log_above = value - base - up * end
        tail = math.exp(min(value - rate * end, 0.0))
        # E (S - e)+ = integral of P(S > t) over t > e <= bound / rate.
        excess = math.exp(min(value - rate * end, 600.0)) / rate
    if low > 0:
        value = kernel.total_log_mgf(masses, counts, theta - down)[0]
        log_below = value - base + down * (low - 1)
    return math.exp(min(float(np.logaddexp(log_above, log_below)), 0.0)), tail, excess


def _tilt(
    plain: TiltedSum,
    masses: Sequence[FloatArray],
    counts: Sequence[int],
    level: float,
) -> tuple[float, float]:
    """Tilt per step that keeps the rounding at the tail of `level` smallest; its place.

    Rounding at x is E exp(K(theta) - theta x), least where K'(theta) = x: the saddle
    point of x itself. (One computed for the level from a normal approximation would
    overshoot for sub-exponential laws.) x is read off the plain transform where that
    still sees the level, else taken from Chernoff's bound.
    """
    from probcalc.kernels import convolution as kernel
    from probcalc.kernels.survival import suffix_sums

    seen = np.where(plain.mass > 32.0 * plain.error, plain.mass, 0.0)
    survival = suffix_sums(seen)
    at = int(np.searchsorted(-survival, -level))
    visible = at < survival.size and survival[max(at - 1, 0)] > 0.0
    x = float(plain.first + at)

    def short(theta: float) -> bool:
        value, mean, _ = kernel.total_log_mgf(masses, counts, theta)
        return mean < x if visible else value - theta * mean > math.log(level)

    _, _, variance = kernel.total_log_mgf(masses, counts, 0.0)
    low, high = 0.0, 0.25 / math.sqrt(variance) if variance > 0.0 else 0.0
    while short(high) and high < 8.0:
        low, high = high, 2.0 * high
    for _ in range(10):
        middle = 0.5 * (low + high)
        if short(middle):
            low = middle
        else:
            high = middle
    return low, x


def trimmed(total: Total, demand: Demand, side: Side) -> Total:
    """Cut thin tails: an upper measure is capped and says so, a lower one lowered."""
    from probcalc.kernels.convolution import thin_ends

    mass = total.measure.mass
    cut_bottom, cut_top, below, above = thin_ends(mass, demand.level * TRIM)
    end = mass.size - cut_top
    if cut_bottom >= end - 1 or cut_top + cut_bottom < 64:
        return total
    kept = mass[cut_bottom:end].copy()
    measure = Measure(total.measure.first + cut_bottom, kept)
    if cut_top:
        kept[-1] += above
    if side == "lower":
        return Total(measure)
    if cut_bottom:
        kept[0] += below
    if not cut_top:
        return Total(measure, total.tail, total.excess)
    excess = float(mass[end:] @ np.arange(1, cut_top + 1))
    return Total(measure, total.tail + above, total.excess + excess)


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


def extreme(
    pairs: Sequence[tuple[Pair, int]], demand: Demand, *, largest: bool
) -> Pair:
    """Pair of the largest or smallest of independent quantities, with their copies."""
    from probcalc.kernels import order_statistics as kernel

    combine = kernel.maximum_mass if largest else kernel.minimum_mass

    def combined(measures: Sequence[Measure], counts: Sequence[int]) -> Measure:
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
    lower = combined([p.lower for p, _ in pairs], counts)
    upper = combined([p.upper for p, _ in pairs], counts)
    return Pair(
        demand.step,
        lower,
        upper,
        sum(n * p.tail for p, n in pairs),
        sum(n * p.excess for p, n in pairs),
        sum(n * p.cut for p, n in pairs),
        min(p.exact_below for p, _ in pairs),
        _extreme_rounding(pairs, largest) + 16.0 * sum(counts) * UNIT,
        _order([p for p, _ in pairs], demand),
    )


def _extreme_rounding(pairs: Sequence[tuple[Pair, int]], largest: bool) -> float:
    """Relative rounding of the survival function of an extreme.

    For the largest, S = S_a + S_b - S_a S_b has dS = (1 - S_b) dS_a + (1 - S_a) dS_b,
    at most the larger relative error of the two; for the smallest, a product, they add.
    """
    if largest:
        return max(p.rounding for p, _ in pairs)
    return sum(n * p.rounding for p, n in pairs)


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


def _mix_pair(pairs: Sequence[Pair], weights: Sequence[float], demand: Demand) -> Pair:
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
        _order(pairs, demand),
    )
