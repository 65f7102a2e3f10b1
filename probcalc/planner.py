"""How an answer is worked out: the rungs, their order, and when to stop.

For a quantile the planner tries, cheapest and narrowest first,

1. a constant; a closed form; the inversion of a transform (`probcalc.pointwise`);
2. the exact lattice, where all parts are multiples of one quantum;
3. a pair of lattices, increasing-convex or first-order (`probcalc.evaluate`), refined
   until the bracket is as narrow as asked or the memory is used up.

Shared draws are factored out first (`probcalc.variables`), and conditioned on where
that is not possible. What set the width of the bracket is part of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from probcalc.discretise import UNIT, Demand, Order
from probcalc.distribution import (
    Bounds,
    Constant,
    Probability,
    Quantile,
    generator,
    levels,
)
from probcalc.errors import InputError, ToleranceError
from probcalc.evaluate import evaluate, non_negative
from probcalc.exact_lattice import Quantum, quantum_of
from probcalc.moments_of import moments_of
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
    postorder,
)
from probcalc.pointwise import Pointwise, closed, crossing, pointwise
from probcalc.solve import LatticeSurvival
from probcalc.variables import factored

if TYPE_CHECKING:
    from probcalc.lattice import Lattice

__all__ = [
    "cdf",
    "expected_shortfall",
    "lattice",
    "mean_bounds",
    "pdf",
    "probability_above",
    "quantile",
    "quantiles",
    "sample",
    "support",
    "variance",
]

#: Aim where no tolerance is asked.
AIM = 1e-4
#: Bytes that a lattice evaluation takes for each point of its longest mass.
BYTES_PER_POINT = 160
#: Points of the first, coarse, lattice.
PILOT = 2048
#: Share of the level that all leaves together may leave out.
OUTSIDE = 1e-6


@dataclass(frozen=True, slots=True)
class Bracket:
    """What a rung found: certified ends, an estimate between them, what limited it."""

    lower: float
    upper: float
    value: float
    limited_by: str

    @property
    def relative(self) -> float:
        """Width over size."""
        width = self.upper - self.lower
        if width == 0.0:
            return 0.0
        size = max(abs(self.lower), abs(self.upper))
        return width / size if math.isfinite(width) else math.inf


def quantile(
    node: Node,
    *,
    p: float | None,
    sf: float | None,
    rtol: float | None,
    memory: int,
) -> Quantile:
    """See `probcalc.composed.Composed.quantile`."""
    level, above = levels(p, sf)
    aim = _aim(rtol)
    return _answer(_bracket(node, level, above, aim, memory), level, above, rtol)


def quantiles(
    node: Node,
    *,
    p: Iterable[float] | None,
    sf: Iterable[float] | None,
    rtol: float | None,
    memory: int,
) -> tuple[Quantile, ...]:
    """See `probcalc.composed.Composed.quantiles`."""
    if (p is None) == (sf is None):
        raise InputError("quantiles: give exactly one of p and sf")
    asked = [levels(x, None) for x in p] if p is not None else [
        levels(None, x) for x in sf or ()
    ]
    aim = _aim(rtol)
    root, left = _prepared(node)
    shared: dict[int, Bracket] = {}
    if asked and not left:
        shared = _shared_exact(root, asked, memory)
    return tuple(
        _answer(
            shared.get(i) or _bracket(root, level, above, aim, memory),
            level,
            above,
            rtol,
        )
        for i, (level, above) in enumerate(asked)
    )


def _shared_exact(
    root: Node, asked: list[tuple[float, float]], memory: int
) -> dict[int, Bracket]:
    """Answers that one exact lattice gives to several levels, where it does."""
    if pointwise(root) is not None or isinstance(root, Product):
        return {}
    quantum = quantum_of(root)
    if quantum is None:
        return {}
    smallest = min(min(level) for level in asked)
    survival = _exact_survival(root, quantum, smallest, memory)
    if survival is None:
        return {}
    found: dict[int, Bracket] = {}
    for i, (_, above) in enumerate(asked):
        bracket = _exact_crossing(root, survival, quantum, above)
        if bracket is not None and bracket.limited_by == EXACT:
            found[i] = bracket
    return found


def _aim(rtol: float | None) -> float:
    aim = AIM if rtol is None else rtol
    if (
        isinstance(aim, bool)
        or not isinstance(aim, int | float)
        or not (math.isfinite(aim) and aim > 0.0)
    ):
        raise InputError(f"quantile: rtol must be a positive number, got {rtol!r}")
    return float(aim)


def _answer(
    bracket: Bracket, level: float, above: float, rtol: float | None
) -> Quantile:
    """The quantile, or the refusal of a tolerance that was not reached."""
    found = Quantile(
        level,
        bracket.value,
        bracket.lower,
        bracket.upper,
        "certified",
        bracket.limited_by,
        above,
    )
    if math.isinf(bracket.lower) or math.isinf(bracket.upper):
        if bracket.lower == bracket.upper:  # an infinite quantile, surely
            return found
        raise ToleranceError(
            f"quantile at sf={above:.6g}: no finite bracket "
            f"(limited by {bracket.limited_by})",
            found,
        )
    if rtol is not None and bracket.relative > rtol:
        raise ToleranceError(
            f"quantile at sf={above:.6g}: bracket of relative width "
            f"{bracket.relative:.3g}, asked {rtol:.3g} "
            f"(limited by {bracket.limited_by})",
            found,
        )
    return found


def _prepared(node: Node) -> tuple[Node, list[str]]:
    root, left = factored(node)
    return (root if left else closed(root)), left


def _bracket(
    node: Node, p: float, sf: float, rtol: float, memory: int
) -> Bracket:
    root, left = _prepared(node)
    if left:
        from probcalc.conditioning import conditioned_bracket

        return conditioned_bracket(root, left, p, sf, rtol, memory, _bracket)
    return _independent(root, p, sf, rtol, memory)


def _independent(
    root: Node, p: float, sf: float, rtol: float, memory: int
) -> Bracket:
    """Bracket of an expression whose leaves are independent."""
    # Scale and shift are taken off and put back on, each rounded once.
    match root:
        case Leaf() | Shared() if isinstance(root.law, Constant):
            value = root.law.value
            return Bracket(value, value, value, "exact")
        case Scale():
            inner = _independent(root.part, p, sf, rtol, memory)
            factor = root.factor
            return _mapped(inner, factor, 0.0, lambda x: factor * x)
        case Sum() if root.constant != 0.0:
            core = Sum(root.parts)
            inner_node = core.parts[0][0] if _bare(core) else core
            # The tolerance is relative to the whole, constant included.
            size = _size(inner_node, sf)
            whole = rtol
            if size is not None and size > 0.0:
                whole = rtol * max(abs(root.constant + size) / size, 1e-9)
            inner = _independent(inner_node, p, sf, min(whole, 0.5), memory)
            constant = root.constant
            return _mapped(inner, 1.0, constant, lambda x: constant + x)
        case _:
            pass
    direct = _single(root, p, sf)
    if direct is not None:
        return direct
    points = pointwise(root)
    if points is not None:
        return _pointwise_bracket(root, points, p, sf)
    if isinstance(root, Product):
        return _product_bracket(root, p, sf, rtol, memory)
    quantum = quantum_of(root)
    if quantum is not None:
        exact = _exact_bracket(root, quantum, p, sf, memory)
        if exact is not None:
            return exact
    return _lattice_bracket(root, p, sf, rtol, memory)


def _bare(node: Sum) -> bool:
    return len(node.parts) == 1 and node.parts[0][1] == 1


def _size(node: Node, sf: float) -> float | None:
    """Rough size of a quantile, to scale a tolerance by."""
    found = moments_of(node)
    if found is None or not all(map(math.isfinite, found)):
        return None
    mean, variance_ = found
    return abs(mean) + 0.5 * math.sqrt(max(variance_, 0.0))


def _mapped(
    inner: Bracket, factor: float, constant: float, image: Callable[[float], float]
) -> Bracket:
    """A bracket scaled or shifted: an end that is rounded moves one place outwards."""

    def exact(x: float, y: float) -> bool:
        return Fraction(factor) * Fraction(x) + Fraction(constant) == Fraction(y)

    low, high = image(inner.lower), image(inner.upper)
    if math.isfinite(low) and not exact(inner.lower, low):
        low = float(np.nextafter(low, -math.inf))
    if math.isfinite(high) and not exact(inner.upper, high):
        high = float(np.nextafter(high, math.inf))
    return Bracket(low, high, image(inner.value), inner.limited_by)


def _single(root: Node, p: float, sf: float) -> Bracket | None:
    """A law on its own: its quantile function, checked by its survival function."""
    if not isinstance(root, Leaf | Shared):
        return None
    law = root.law
    if hasattr(law, "quantile"):
        found = law.quantile(sf=sf) if sf <= 0.5 else law.quantile(p)  # type: ignore[attr-defined]
        return Bracket(found.lower, found.upper, found.value, found.limited_by)
    value = float(law.iccdf(sf) if sf <= 0.5 else law.icdf(p))
    from probcalc.discretise import atoms_of

    if atoms_of(law, min(p, sf) * OUTSIDE) is not None:
        return Bracket(value, value, value, "exact")
    whole = pointwise(root)
    assert whole is not None
    span = max(abs(value) * 1e-14, 5e-324)
    low, high = _widened(*crossing(whole.at, p, sf, value, span))
    return Bracket(low, high, min(max(value, low), high), "rounding of a closed form")


def _pointwise_bracket(
    root: Node, points: Pointwise, p: float, sf: float
) -> Bracket:
    if isinstance(root, Sum):
        from probcalc.inversion import inversion_of

        terms = [(part.law, n) for part, n in root.parts if isinstance(part, Leaf)]
        inversion = inversion_of(terms, root.constant)
        assert inversion is not None
        found = (
            inversion.quantile_bounds(sf=sf)
            if sf <= 0.5
            else inversion.quantile_bounds(p=p)
        )
        value, low, high = found
        return Bracket(low, high, value, "rounding of the transform inversion")
    low, high = reach(root, min(p, sf))
    start = 0.5 * (low + high)
    span = max(0.25 * (high - low), 1e-9 * abs(start), 5e-324)
    low, high = _widened(*crossing(points.at, p, sf, start, span))
    name = "closed form" if points.name == "closed form" else points.name
    return Bracket(low, high, 0.5 * (low + high), f"rounding of the {name}")


def _widened(low: float, high: float) -> tuple[float, float]:
    """Arguments of closed forms are standardised: two roundings, four units a side."""
    return low - 4.0 * UNIT * 2.0 * abs(low), high + 4.0 * UNIT * 2.0 * abs(high)


def reach(root: Node, tail: float) -> tuple[float, float]:
    """Values outside which the quantity lies with probability at most `tail` a side.

    By union bounds from the leaves, and Cantelli's inequality where moments are known:
    P(X >= m + d) <= v / (v + d^2).
    """
    shares: dict[int, float] = {id(root): tail}
    order = list(postorder(root))
    for node in reversed(order):
        parts = children(node)
        copies = sum(n for _, n in parts)
        own = shares[id(node)] / max(copies, 1)
        for part, _ in parts:
            shares[id(part)] = min(shares.get(id(part), 1.0), own)
    ends: dict[int, tuple[float, float]] = {}
    for node in order:
        low, high = _reach_of(node, shares[id(node)], ends)
        known = None if isinstance(node, Leaf | Shared) else moments_of(node)
        if known is not None and all(map(math.isfinite, known)):
            spread = math.sqrt(max(known[1], 0.0) / shares[id(node)])
            low = max(low, known[0] - spread)
            high = min(high, known[0] + spread)
        ends[id(node)] = (low, high)
    return ends[id(root)]


def _reach_of(
    node: Node, tail: float, ends: dict[int, tuple[float, float]]
) -> tuple[float, float]:
    match node:
        case Leaf() | Shared():
            bounds = getattr(node.law, "reach", None)
            if bounds is not None:
                return bounds(tail)
            return float(node.law.icdf(tail)), float(node.law.iccdf(tail))
        case Sum():
            parts = [(ends[id(part)], n) for part, n in node.parts]
            return (
                node.constant + sum(n * low for (low, _), n in parts),
                node.constant + sum(n * high for (_, high), n in parts),
            )
        case Max():
            pairs = [ends[id(part)] for part, _ in node.parts]
            return max(low for low, _ in pairs), max(high for _, high in pairs)
        case Min():
            pairs = [ends[id(part)] for part, _ in node.parts]
            return min(low for low, _ in pairs), min(high for _, high in pairs)
        case Mix():
            pairs = [ends[id(part)] for part in node.parts]
            return min(low for low, _ in pairs), max(high for _, high in pairs)
        case Scale():
            low, high = ends[id(node.part)]
            return node.factor * low, node.factor * high
        case Product():
            (a, b), (low, high) = ends[id(node.factor)], ends[id(node.part)]
            corners = [a * low, a * high, b * low, b * high]
            return min(corners), max(corners)


def copies_of(root: Node) -> float:
    """Number of leaves along the heaviest path: summands behind a value."""
    counts: dict[int, float] = {}
    for node in postorder(root):
        parts = [counts[id(part)] * n for part, n in children(node)]
        if not parts:
            counts[id(node)] = 1.0
        elif isinstance(node, Sum):
            counts[id(node)] = sum(parts)
        else:
            counts[id(node)] = max(
                counts[id(part)] for part, _ in children(node)
            )
    return counts[id(root)]


def _leaves(root: Node) -> list[Leaf | Shared]:
    return [n for n in postorder(root) if isinstance(n, Leaf | Shared)]


def total_copies(root: Node) -> float:
    """Number of leaves that an evaluation draws upon, copies counted."""
    counts: dict[int, float] = {}
    for node in postorder(root):
        parts = [counts[id(part)] * n for part, n in children(node)]
        counts[id(node)] = sum(parts) if parts else 1.0
    return counts[id(root)]


def _points(memory: int) -> int:
    if memory < BYTES_PER_POINT * 256:
        raise ToleranceError(
            f"memory limit of {memory} bytes, at least {BYTES_PER_POINT * 256} needed"
        )
    return int(memory // BYTES_PER_POINT)


EXACT = "exact lattice"
#: Points beyond which an exact lattice is dearer than an approximate one is wide.
EXACT_POINTS = 1 << 21


def _exact_bracket(
    root: Node, quantum: Quantum, p: float, sf: float, memory: int
) -> Bracket | None:
    """All parts on one lattice: the answer is a point, but for rounding at its edge."""
    survival = _exact_survival(root, quantum, min(p, sf), memory)
    if survival is None:
        return None
    return _exact_crossing(root, survival, quantum, sf)


def _exact_crossing(
    root: Node, survival: LatticeSurvival, quantum: Quantum, sf: float
) -> Bracket | None:
    low, high = survival.crossing(sf)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    # Ends may be widened by rounding; the points are multiples of the quantum.
    step = quantum.step
    low, high = (round(end / step) * step for end in (low, high))
    # Within rounding of the level: a tie most likely, and then the lower point is it.
    value = low
    name = EXACT if low == high else "rounding at an atom's edge of an exact lattice"
    if not quantum.exact:
        pad = blur(root)
        low, high = low - pad, high + pad
    return Bracket(low, high, value, name)


def blur(root: Node) -> float:
    """Rounding of the leaves' own values, summed over copies.

    Values such as 0.1 stand for the double nearest to them, and shifting or scaling
    rounds once more: 4 units in the last place of each.
    """
    total = 0.0
    sizes: dict[int, float] = {}
    for node in postorder(root):
        match node:
            case Leaf() | Shared():
                low, high = (abs(float(x)) for x in node.law.support())
                size = max(low, high)
                if math.isinf(size):
                    size = max(abs(float(node.law.iccdf(1e-6))), abs(
                        float(node.law.icdf(1e-6))
                    ))
                sizes[id(node)] = size
            case Sum():
                sizes[id(node)] = abs(node.constant) + sum(
                    n * sizes[id(part)] for part, n in node.parts
                )
            case Scale():
                sizes[id(node)] = node.factor * sizes[id(node.part)]
            case Product():
                sizes[id(node)] = sizes[id(node.factor)] * sizes[id(node.part)]
            case _:
                sizes[id(node)] = max(sizes[id(part)] for part, _ in children(node))
    total = sizes[id(root)]
    return 4.0 * UNIT * total if math.isfinite(total) else 0.0


def _orders(root: Node, p: float) -> Order:
    from probcalc.discretise import atoms_of

    leaves = _leaves(root)

    if any(isinstance(n, Min) for n in postorder(root)) or p < 1e-6:
        return "first"
    if non_negative(root) and any(
        math.isinf(float(leaf.law.variance())) for leaf in leaves
    ):
        return "first"
    if all(
        hasattr(leaf.law, "lattice_bounds") or atoms_of(leaf.law, 1e-12) is not None
        for leaf in leaves
    ):
        return "first"
    return "convex"


def refined(
    root: Node,
    p: float,
    sf: float,
    rtol: float,
    memory: int,
) -> tuple[Bracket, LatticeSurvival]:
    """Lattice pairs from coarse to fine until the bracket is narrow enough.

    Raises
    ------
    ToleranceError
        Where even a coarse lattice gives no finite bracket.
    """
    level = min(p, sf)
    order = _orders(root, p)
    capped = non_negative(root)
    copies = copies_of(root)
    tail = level * OUTSIDE / total_copies(root)
    points = _points(memory)
    low, high = reach(root, level)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ToleranceError(
            f"quantile at sf={sf:.6g}: no finite range could be found from the parts"
        )
    known_low, known_high = low, high
    step = max((high - max(low, 0.0) if capped else high - low), abs(high)) / PILOT
    if step <= 0.0:
        step = max(abs(high), 1.0) / PILOT
    best: tuple[Bracket, LatticeSurvival] | None = None
    limited = "lattice step"
    stalls = 0
    refused = False
    pad = blur(root)
    for _ in range(16):
        margin = (64.0 + 32.0 * math.sqrt(copies)) * step
        cap = known_high + margin if capped else math.inf
        demand = Demand(step, order, cap, tail, points, level)
        try:
            pair = evaluate(root, demand)
        except ToleranceError:
            limited = f"memory limit of {memory} bytes"
            if best is None:
                step *= 8.0
                continue
            # Points go with one over the step: the finest that should fit.
            fitted = best[1].pair
            finest = fitted.step * fitted.upper.mass.size / (0.7 * points)
            if refused or not step < finest < 0.9 * fitted.step:
                break
            refused = True
            step = finest
            continue
        survival = LatticeSurvival(pair, capped, copies)
        found_low, found_high = survival.crossing(sf)
        found_low, found_high = found_low - pad, found_high + pad
        known_low, known_high = max(known_low, found_low), min(known_high, found_high)
        if known_low > known_high:
            raise AssertionError(
                f"two certified brackets do not meet: {known_low!r} > {known_high!r}"
            )
        bracket = Bracket(
            known_low, known_high, 0.5 * (known_low + known_high), limited
        )
        previous = best
        best = (bracket, survival)
        if bracket.relative <= rtol:
            break
        size = max(abs(known_low), abs(known_high))
        wanted = rtol * size / (
            1.3 * math.sqrt(copies) if order == "convex" else 1.05 * copies
        )
        width = found_high - found_low
        if math.isfinite(width) and width < 0.05 * size:
            # Close: the width goes with the step from here on.
            wanted = min(wanted, 0.8 * step * rtol * size / width)
        if refused:
            break
        if previous is not None and previous[1].pair.step > 1.2 * step:
            # A finer lattice that does not help: twice is enough.
            stalls += previous[0].relative < 1.1 * bracket.relative
            if stalls == 2:
                limited = "a gap of the law at this level, or rounding"
                break
        step = max(wanted, step / 64.0) if math.isfinite(size) else step * 8.0
    if best is None:
        raise ToleranceError(
            f"quantile at sf={sf:.6g}: no lattice fits in {memory} bytes"
        )
    bracket = best[0]
    if bracket.relative > rtol:
        bracket = Bracket(bracket.lower, bracket.upper, bracket.value, limited)
    return bracket, best[1]


def _lattice_bracket(
    root: Node, p: float, sf: float, rtol: float, memory: int
) -> Bracket:
    bracket, _ = refined(root, p, sf, rtol, memory)
    value = _estimate(root, p, sf)
    if value is not None and bracket.lower <= value <= bracket.upper:
        return Bracket(bracket.lower, bracket.upper, value, bracket.limited_by)
    return bracket


def _estimate(root: Node, p: float, sf: float) -> float | None:
    """A point estimate by the transform, for sums of smooth laws."""
    if not isinstance(root, Sum) or sf > 0.9:
        return None
    if not all(isinstance(part, Leaf) for part, _ in root.parts):
        return None
    from probcalc.spectral import spectral_estimate

    terms = [(part.law, n) for part, n in root.parts if isinstance(part, Leaf)]
    found = spectral_estimate(terms, root.constant, [sf])
    return None if found is None else float(found[0])


def _product_bracket(
    root: Product, p: float, sf: float, rtol: float, memory: int
) -> Bracket:
    from probcalc.products import ProductSurvival, factor_cells

    if not non_negative(root.part):
        raise ToleranceError(
            "product of a random factor with a quantity that can be negative"
        )
    level = min(p, sf)
    points = _points(memory)
    # The part is needed at every level down to the asked one.
    _, survival = refined(
        root.part, 1.0 - level * 1e-3, level * 1e-3, 0.25 * rtol, memory
    )
    ratio = 0.25 * rtol
    while True:
        try:
            cells = factor_cells(root.factor.law, level, ratio, points)
            break
        except ToleranceError:
            ratio *= 4.0
            if ratio > 1.0:
                raise
    low, high = reach(root, level)
    product = ProductSurvival(cells, survival)
    low, high = product.crossing(sf, max(low, 0.0), high)
    limited = "lattice step and cells of the random factor"
    return Bracket(low, high, 0.5 * (low + high), limited)


# ------------------------------------------------------------------ other questions


def probability_above(
    node: Node, limit: float, *, rtol: float, memory: int
) -> Probability:
    """See `probcalc.composed.Composed.probability_above`."""
    if isinstance(limit, bool) or not isinstance(limit, int | float | np.floating):
        raise InputError(f"probability_above: limit must be a number, got {limit!r}")
    if math.isnan(limit):
        raise InputError("probability_above: limit is NaN, expected a number")
    low, high, value = _sf_bounds(node, float(limit), rtol, memory)
    return Probability(value, low, high, "certified")


def _sf_bounds(
    node: Node, t: float, rtol: float, memory: int
) -> tuple[float, float, float]:
    """Certified bounds of P(X > t) and a value between."""
    root, left = _prepared(node)
    if left:
        from probcalc.conditioning import conditioned_sf

        return conditioned_sf(root, left, t, rtol, memory, _sf_bounds)
    bottom, top = support(root)
    quantum = quantum_of(root)
    if quantum is not None and quantum.exact:
        survival = _exact_survival(root, quantum, 1e-9, memory)
        if survival is not None:
            low, high = (float(x[0]) for x in survival.bounds(np.array([t])))
            if t >= top:
                low = high = 0.0
            return low, high, min(max(survival.value(t), low), high)
    pad = blur(root)
    if t < bottom - pad:
        return 1.0, 1.0, 1.0
    if t > top + pad:
        return 0.0, 0.0, 0.0
    points = pointwise(root)
    if points is not None:
        s_low, _, _, _ = points.at(t + pad)
        _, s_high, _, _ = points.at(t - pad)
        return s_low, s_high, _middle(points, t)[0]
    if isinstance(root, Leaf | Shared):
        found = root.law.probability_above(t)  # type: ignore[attr-defined]
        return found.lower, found.upper, found.value
    return _refined_sf(root, quantum, t, rtol, memory)


def _middle(points: Pointwise, t: float) -> tuple[float, float]:
    """P(X > t) and P(X <= t): midpoints, and exactly one where that is all but sure."""
    s_low, s_high, c_low, c_high = points.at(t)
    above, below = 0.5 * (s_low + s_high), 0.5 * (c_low + c_high)
    return (1.0 if s_high == 1.0 and c_high == 0.0 else above), (
        1.0 if c_high == 1.0 and s_high == 0.0 else below
    )


def _refined_sf(
    root: Node, quantum: Quantum | None, t: float, rtol: float, memory: int
) -> tuple[float, float, float]:
    """Bounds of P(X > t) and a value between, from finer and finer lattices."""
    low, high = 0.0, 1.0
    value: float | None = None
    level = 1e-3
    tolerance = 1e-2
    for _ in range(12):
        try:
            survival = None
            if quantum is not None:
                survival = _exact_survival(root, quantum, level, memory)
            exact = survival is not None
            survival = survival or refined_at(root, t, level, tolerance, memory)
        except ToleranceError:
            break
        a, b = (float(x[0]) for x in survival.bounds(np.array([t]), 1.12))
        low, high = max(low, a), min(high, b)
        if survival.pair.order == "first":
            value = survival.value(t)
        middle = 0.5 * (low + high)
        if high - low <= rtol * min(middle, 1.0 - low) or high < 1e-300:
            break
        wanted = max(min(middle, 1.0 - middle, level) * 1e-2, 1e-300)
        if exact and wanted >= level * 0.5:
            break
        level = min(level, wanted)
        if not exact:
            tolerance *= 0.2
            if tolerance < 1e-8:
                break
    if value is None or not low <= value <= high:
        value = 0.5 * (low + high)
    return low, high, value


def _exact_survival(
    root: Node, quantum: Quantum, level: float, memory: int
) -> LatticeSurvival | None:
    demand = Demand(
        quantum.step,
        "first",
        math.inf,
        level * OUTSIDE,
        min(_points(memory), EXACT_POINTS),
        level,
    )
    try:
        pair = evaluate(root, demand)
    except ToleranceError:
        return None
    return LatticeSurvival(
        pair, non_negative(root), copies_of(root), exact_points=quantum.exact
    )


def refined_at(
    root: Node, t: float, level: float, tolerance: float, memory: int
) -> LatticeSurvival:
    """Lattice pair with a step that is a share of the scale at t.

    Raises
    ------
    ToleranceError
        No such lattice fits.
    """
    copies = copies_of(root)
    capped = non_negative(root)
    known = moments_of(root)
    scale_ = abs(t)
    if known is not None and 0.0 < known[1] < math.inf:
        scale_ = min(scale_, math.sqrt(known[1])) if t != 0.0 else math.sqrt(known[1])
    if scale_ == 0.0:
        low, high = reach(root, level)
        scale_ = (high - low) or 1.0
    order = _orders(root, 0.5)
    step = tolerance * scale_ / (math.sqrt(copies) if order == "convex" else copies)
    margin = (64.0 + 32.0 * math.sqrt(copies)) * step
    demand = Demand(
        step,
        order,
        t + margin if capped else math.inf,
        level * OUTSIDE / total_copies(root),
        _points(memory),
        level,
    )
    return LatticeSurvival(evaluate(root, demand), capped, copies)


def cdf(node: Node, x: npt.ArrayLike, *, above: bool) -> Any:
    """P(X <= x) or P(X > x), elementwise: midpoints of certified bounds."""
    from probcalc.composed import MEMORY

    values = np.asarray(x, dtype=float)
    root, left = _prepared(node)
    points = None if left else pointwise(root)
    bottom, top = support(root)
    out = np.empty(values.size)
    for i, t in enumerate(values.ravel()):
        if math.isnan(t):
            out[i] = math.nan
        elif t >= top or t < bottom:
            out[i] = float((t < bottom) == above)
        elif points is not None:
            out[i] = _middle(points, float(t))[0 if above else 1]
        else:
            s = _sf_bounds(node, float(t), 1e-4, MEMORY)[2]
            out[i] = s if above else 1.0 - s
    return out.reshape(values.shape)[()]


def pdf(node: Node, x: npt.ArrayLike) -> Any:
    """See `probcalc.composed.Composed.pdf`."""
    root, left = _prepared(node)
    values = np.asarray(x, dtype=float)
    if not left:
        if isinstance(root, Leaf) and hasattr(root.law, "pdf"):
            return root.law.pdf(values)  # type: ignore[attr-defined]
        if isinstance(root, Sum) and all(isinstance(p, Leaf) for p, _ in root.parts):
            from probcalc.inversion import inversion_of

            terms = [(part.law, n) for part, n in root.parts if isinstance(part, Leaf)]
            inversion = inversion_of(terms, root.constant)
            if inversion is not None:
                out = [float(inversion.pdf(float(t))) for t in values.ravel()]
                return np.array(out).reshape(values.shape)[()]
    raise InputError(
        "pdf: only for sums of laws whose transform is known in closed form; "
        "ask for quantiles or ccdf"
    )


def support(node: Node) -> tuple[float, float]:
    """Smallest and largest possible value (for shared draws: an enclosing range)."""
    ends: dict[int, tuple[float, float]] = {}
    for part in postorder(node):
        if isinstance(part, Leaf | Shared):
            low, high = part.law.support()
            ends[id(part)] = (float(low), float(high))
        elif isinstance(part, Product):
            (a, b), (low, high) = ends[id(part.factor)], ends[id(part.part)]
            corners = [u * v if u and v else 0.0 for u in (a, b) for v in (low, high)]
            ends[id(part)] = (min(corners), max(corners))
        else:
            ends[id(part)] = _reach_of(part, 0.0, ends)
    return ends[id(node)]


def mean_bounds(node: Node) -> Bounds:
    """See `probcalc.composed.Composed.mean_bounds`."""
    from probcalc.composed import MEMORY

    root, left = _prepared(node)
    if left:
        from probcalc.conditioning import conditioned_mean

        return conditioned_mean(root, left, mean_bounds)
    known = moments_of(root)
    if known is not None:
        size = 1e-13 * abs(known[0])
        return Bounds(known[0], known[0] - size, known[0] + size, "certified")
    low_end, _ = support(root)
    best: Bounds | None = None
    tolerance = 1e-3
    for _ in range(3):
        try:
            survival = _whole(root, tolerance, MEMORY)
        except ToleranceError:
            break
        low, high = survival.means()
        missing = max(1.0 - survival.totals[0], 0.0)
        # Mass that a lower bound lost lies at the lower end, or beyond where a law
        # without one was cut.
        low += missing * (low_end if math.isfinite(low_end) else reach(root, 1e-15)[0])
        best = Bounds(0.5 * (low + high), low, high, "certified")
        if high - low <= 1e-6 * max(abs(low), abs(high)):
            break
        tolerance *= 0.1
    if best is None or not math.isfinite(best.upper):
        return _integrated_mean(root)
    return best


def _whole(root: Node, tolerance: float, memory: int) -> LatticeSurvival:
    """A lattice pair without caps, for means: its step a share of the spread.

    Raises
    ------
    ToleranceError
        No such lattice fits.
    """
    copies = copies_of(root)
    order = _orders(root, 0.5)
    low, high = reach(root, 0.05)
    scale_ = max(high - low, 1e-6 * max(abs(low), abs(high))) or 1.0
    step = tolerance * scale_ / (math.sqrt(copies) if order == "convex" else copies)
    demand = Demand(
        step, order, math.inf, 1e-15 / total_copies(root), _points(memory), 1e-9,
        tail_only=False,
    )  # fmt: skip
    return LatticeSurvival(evaluate(root, demand), False, copies)


def _integrated_mean(root: Node) -> Bounds:
    """Mean of a heavy-tailed maximum by quadrature of its quantile function."""
    points = pointwise(root)
    low, _ = support(root)
    if points is None or not math.isfinite(low):
        raise ToleranceError("mean: no lattice fits in memory")
    from scipy import integrate

    # E X = low + integral of P(X > t), over decades of t - low.
    _, end = reach(root, 1e-15)
    typical = max(reach(root, 0.5)[1] - low, 1e-300)
    edges = np.geomspace(1e-9 * typical, max(end - low, typical), 128)
    total = float(edges[0]) * points.at(low)[1]
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        total += float(
            integrate.quad(lambda x: _middle(points, low + x)[0], a, b, limit=50)[0]
        )
    return Bounds(low + total, -math.inf, math.inf, "estimate")


def variance(node: Node) -> float:
    """Var X; exact from the parts where it follows, else from a fine lattice."""
    from probcalc.composed import MEMORY

    root, left = _prepared(node)
    if left:
        from probcalc.conditioning import conditioned_variance

        return conditioned_variance(root, left, mean_bounds, variance)
    known = moments_of(root)
    if known is not None:
        return known[1]
    if any(math.isinf(float(leaf.law.variance())) for leaf in _leaves(root)) and not any(
        isinstance(n, Min) for n in postorder(root)
    ):
        return math.inf
    survival = _whole(root, 1e-4, MEMORY)
    # The spread of the upper mass is too large by about what the lower is too small.
    values = []
    for measure in (survival.pair.lower, survival.pair.upper):
        k = np.arange(measure.mass.size)
        weight = measure.mass / measure.mass.sum()
        centre = float(weight @ k)
        values.append(float(weight @ (k - centre) ** 2) * survival.pair.step**2)
    return 0.5 * (values[0] + values[1])


def expected_shortfall(
    node: Node, *, p: float | None, sf: float | None, memory: int
) -> Bounds:
    """See `probcalc.composed.Composed.expected_shortfall`."""
    level, above = levels(p, sf)
    root, left = _prepared(node)
    if left:
        raise ToleranceError(
            "expected shortfall: variables "
            f"{', '.join(left)} stand more than once and cannot be factored out"
        )
    match root:
        case Leaf() | Shared() if isinstance(root.law, Constant):
            value = root.law.value
            return Bounds(value, value, value, "certified")
        case Scale():
            inner = expected_shortfall(root.part, p=p, sf=sf, memory=memory)
            return Bounds(
                root.factor * inner.value,
                root.factor * inner.lower,
                root.factor * inner.upper,
                inner.kind,
            )
        case _:
            pass
    quantum = quantum_of(root)
    small = min(level, above)
    if quantum is not None:
        survival = _exact_survival(root, quantum, small, memory)
        if survival is not None:
            low, high = survival.shortfall(above)
            return Bounds(0.5 * (low + high), low, high, "certified")
    tolerance = AIM
    best: Bounds | None = None
    for _ in range(4):
        try:
            survival = _shortfall_survival(root, level, above, tolerance, memory)
        except ToleranceError:
            break
        low, high = survival.shortfall(above)
        if best is None or high - low < best.upper - best.lower:
            best = Bounds(
                0.5 * (low + high) if math.isfinite(high) else math.inf,
                low,
                high,
                "certified" if math.isfinite(high) else "open",
            )
        if not high - low > 1e-6 * abs(high):
            break
        tolerance *= 0.3
    if best is None:
        raise ToleranceError(
            f"expected shortfall at sf={above:.6g}: no lattice fits in {memory} bytes"
        )
    return best


def _shortfall_survival(
    root: Node, p: float, sf: float, rtol: float, memory: int
) -> LatticeSurvival:
    """A pair without caps, so that the mean beyond the quantile is bounded too."""
    bracket, pilot = refined(root, p, sf, max(rtol, 1e-3), memory)
    size = max(abs(bracket.lower), abs(bracket.upper))
    copies = copies_of(root)
    order = _orders(root, p)
    step = rtol * size / (math.sqrt(copies) if order == "convex" else copies)
    level = min(p, sf)
    # Tails a billion times thinner than the level: their mean excess is below the aim.
    tail = level * 1e-10 / total_copies(root)
    demand = Demand(
        min(step, pilot.pair.step), order, math.inf, tail, _points(memory), level * 1e-3
    )
    return LatticeSurvival(evaluate(root, demand), False, copies)


def lattice(node: Node, step: float | None, *, memory: int) -> Lattice:
    """See `probcalc.composed.Composed.lattice`."""
    from probcalc.lattice import Lattice

    root, left = _prepared(node)
    if left:
        raise ToleranceError(
            f"lattice: variables {', '.join(left)} cannot be factored out"
        )
    quantum = quantum_of(root)
    if step is None:
        if quantum is None:
            raise InputError("lattice: give a step, the parts have no common quantum")
        step = quantum
    elif not (math.isfinite(step) and step > 0.0):
        raise InputError(f"lattice: step must be positive, got {step!r}")
    demand = Demand(step, "first", math.inf, 1e-15, _points(memory), 1e-6)
    pair = evaluate(root, demand)
    upper = pair.upper
    exact = quantum is not None and abs(quantum / step - round(quantum / step)) < 1e-12
    total = float(upper.mass.sum())
    mass = upper.mass / total
    return Lattice(
        upper.first,
        step,
        mass * (1.0 - min(pair.tail, 1.0)),
        0.0,
        min(pair.tail, 1.0),
        "exact" if exact else "up",
    )


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
