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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from probcalc.discretise import Demand
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
from probcalc.exact_lattice import quantum_of
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
    aim = AIM if rtol is None else rtol
    if not (isinstance(aim, int | float) and math.isfinite(aim) and aim > 0.0):
        raise InputError(f"quantile: rtol must be positive, got {rtol!r}")
    bracket = _bracket(node, level, above, aim, memory)
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
            f"quantile at sf={above:.6g}: no finite bracket within {memory} bytes "
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
            return _mapped(inner, lambda x: root.factor * x)
        case Sum() if root.constant != 0.0:
            core = Sum(root.parts)
            inner_node = core.parts[0][0] if _bare(core) else core
            # The tolerance is relative to the whole, constant included.
            size = _size(inner_node, sf)
            whole = rtol
            if size is not None and size > 0.0:
                whole = rtol * max(abs(root.constant + size) / size, 1e-9)
            inner = _independent(inner_node, p, sf, min(whole, 0.5), memory)
            return _mapped(inner, lambda x: root.constant + x)
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


def _mapped(inner: Bracket, image: Any) -> Bracket:
    low, high = image(inner.lower), image(inner.upper)
    if inner.limited_by != "exact":
        low, high = np.nextafter(low, -math.inf), np.nextafter(high, math.inf)
    return Bracket(
        float(low), float(high), float(image(inner.value)), inner.limited_by
    )


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
    low, high = crossing(whole.at, p, sf, value, span)
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
    low, high = crossing(points.at, p, sf, start, span)
    name = "closed form" if points.name == "closed form" else points.name
    return Bracket(low, high, 0.5 * (low + high), f"rounding of the {name}")


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


def _exact_bracket(
    root: Node, quantum: float, p: float, sf: float, memory: int
) -> Bracket | None:
    """All parts on one lattice: the answer is a point, but for rounding at its edge."""
    level = min(p, sf)
    demand = Demand(
        quantum, "first", math.inf, level * OUTSIDE, _points(memory), level
    )
    try:
        pair = evaluate(root, demand)
    except ToleranceError:
        return None
    survival = LatticeSurvival(pair, non_negative(root), copies_of(root))
    low, high = survival.crossing(sf)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    # Ends were widened by rounding; the points themselves are multiples of the quantum.
    low, high = (round(end / quantum) * quantum for end in (low, high))
    if low == high:
        return Bracket(low, high, low, "exact lattice")
    return Bracket(low, high, high, "rounding at an atom's edge of an exact lattice")


def _orders(root: Node, p: float) -> str:
    leaves = _leaves(root)
    from probcalc.discretise import atoms_of

    if any(isinstance(n, Min) for n in postorder(root)) or p < 1e-6:
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
    for _ in range(16):
        margin = (64.0 + 32.0 * math.sqrt(copies)) * step
        cap = known_high + margin if capped else math.inf
        demand = Demand(step, order, cap, tail, points, level)  # type: ignore[arg-type]
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
        known_low, known_high = max(known_low, found_low), min(known_high, found_high)
        if known_low > known_high:  # rounding of two valid brackets that touch
            known_low, known_high = found_low, found_high
        bracket = Bracket(
            known_low, known_high, 0.5 * (known_low + known_high), limited
        )
        previous = best
        best = (bracket, survival)
        if bracket.relative <= rtol:
            break
        size = max(abs(known_low), abs(known_high))
        wanted = rtol * size / (
            1.1 * math.sqrt(copies) if order == "convex" else 1.05 * copies
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
    from probcalc.inversion import spectral_estimate

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
    if t < bottom:
        return 1.0, 1.0, 1.0
    if t >= top:
        return 0.0, 0.0, 0.0
    points = pointwise(root)
    if points is not None:
        s_low, s_high, _, _ = points.at(t)
        return s_low, s_high, 0.5 * (s_low + s_high)
    if isinstance(root, Leaf | Shared):
        found = root.law.probability_above(t)  # type: ignore[attr-defined]
        return found.lower, found.upper, found.value
    if isinstance(root, Scale):
        return _sf_bounds(root.part, t / root.factor, rtol, memory)
    quantum = quantum_of(root)
    low, high = 0.0, 1.0
    # From the level that the pilot finds, refine until the bounds are close.
    level = 1e-3
    step_tolerance = 1e-2
    for _ in range(12):
        try:
            survival = (
                _exact_survival(root, quantum, level, memory)
                if quantum is not None
                else None
            ) or refined_at(root, t, level, step_tolerance, memory)
        except ToleranceError:
            break
        a, b = (float(x[0]) for x in survival.bounds(np.array([t]), 1.12))
        low, high = max(low, a), min(high, b)
        middle = 0.5 * (low + high)
        smaller = min(middle, 1.0 - low)
        if high - low <= rtol * smaller or high < 1e-300:
            break
        wanted_level = max(min(middle, 1.0 - middle, level) * 1e-2, 1e-300)
        if quantum is not None and wanted_level >= level * 0.5:
            break
        level = min(level, wanted_level)
        if quantum is None:
            step_tolerance *= 0.2
            if step_tolerance < 1e-8:
                break
    return low, high, 0.5 * (low + high)


def _exact_survival(
    root: Node, quantum: float, level: float, memory: int
) -> LatticeSurvival | None:
    demand = Demand(
        quantum, "first", math.inf, level * OUTSIDE, _points(memory), level
    )
    try:
        pair = evaluate(root, demand)
    except ToleranceError:
        return None
    return LatticeSurvival(pair, non_negative(root), copies_of(root))


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
        scale_ = high - low
    order = _orders(root, 0.5)
    step = tolerance * scale_ / (math.sqrt(copies) if order == "convex" else copies)
    margin = (64.0 + 32.0 * math.sqrt(copies)) * step
    demand = Demand(
        step,
        order,  # type: ignore[arg-type]
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
    out = np.empty(values.size)
    for i, t in enumerate(values.ravel()):
        if math.isnan(t):
            out[i] = math.nan
        elif points is not None:
            s_low, s_high, c_low, c_high = points.at(float(t))
            out[i] = 0.5 * (s_low + s_high) if above else 0.5 * (c_low + c_high)
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
    level = 1e-9
    for _ in range(3):
        try:
            scale_ = max(abs(end) for end in reach(root, 0.05))
            survival = refined_at(root, scale_, level, tolerance, MEMORY)
        except ToleranceError:
            break
        low, high = survival.means()
        missing = max(1.0 - survival.totals[0], 0.0)
        low = low + missing * low_end if math.isfinite(low_end) else -math.inf
        if not survival.exact_caps and not math.isfinite(low):
            low = survival.means()[0] - missing * abs(reach(root, 1e-12)[0])
        best = Bounds(0.5 * (low + high), low, high, "certified")
        if high - low <= 1e-6 * max(abs(low), abs(high)):
            break
        tolerance *= 0.1
    if best is None:
        raise ToleranceError("mean: no lattice fits in memory")
    return best


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
    scale_ = max(abs(end) for end in reach(root, 0.05))
    survival = refined_at(root, scale_, 1e-9, 1e-4, MEMORY)
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
    )  # type: ignore[arg-type]
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
