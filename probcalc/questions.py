"""What else is asked of a law than a quantile: probabilities, means, shortfalls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from probcalc.atoms import MERGE, Atoms, atoms_law
from probcalc.composed import MEMORY
from probcalc.discretise import UNIT, Demand
from probcalc.distribution import Bounds, Constant, Probability, levels
from probcalc.elementwise import functions_at
from probcalc.errors import InputError, ToleranceError
from probcalc.evaluate import evaluate
from probcalc.exact_lattice import Quantum, quantum_of
from probcalc.extent import (
    blur,
    copies_of,
    leaves_of,
    mass_at_bottom,
    points_allowed,
    reach,
    support,
    total_copies,
)
from probcalc.moments_of import moments_of
from probcalc.nodes import (
    Leaf,
    Min,
    Mix,
    Node,
    Product,
    Scale,
    Shared,
    Sum,
    postorder,
)
from probcalc.planner import AIM, prepared, quantile
from probcalc.pointwise import Pointwise, pointwise
from probcalc.refine import exact_survival, order_for, refined, refined_at
from probcalc.solve import LatticeSurvival

if TYPE_CHECKING:
    from probcalc.lattice import Lattice

__all__ = [
    "cdf",
    "expected_shortfall",
    "lattice",
    "mean_bounds",
    "pdf",
    "probability_above",
    "variance",
]

#: Points up to which each is worked out on its own.
FEW = 4


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
    root, left = prepared(node)
    if left:
        from probcalc.conditioning import conditioned_sf

        return conditioned_sf(root, left, t, rtol, memory, _sf_bounds)
    bottom, top = support(root)
    atom = mass_at_bottom(root) if t == bottom else None
    if atom is not None:
        above = 1.0 - atom
        return max(above - 1e-12, 0.0), min(above + 1e-12, 1.0), above
    quantum = quantum_of(root)
    listed = atoms_law(root)
    if listed is not None:
        return _listed_sf(root, listed, quantum, t)
    if quantum is not None and quantum.exact:
        survival = exact_survival(root, quantum, 1e-9, memory)
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


def _listed_sf(
    root: Node, listed: Atoms, quantum: Quantum | None, t: float
) -> tuple[float, float, float]:
    """P(X > t) from the list of outcomes; outcomes within rounding of t count as t."""
    values, mass = listed
    exact = quantum is not None and quantum.exact
    pad = 0.0 if exact else 2.0 * MERGE * blur(root)
    slack = (8.0 + total_copies(root) + values.size) * UNIT
    sure = float(mass[values > t + pad].sum())
    possible = float(mass[values > t - pad].sum())
    low = max(sure * (1.0 - slack), 0.0)
    high = min(possible * (1.0 + slack), 1.0)
    return low, high, min(max(sure, low), high)


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
    fitted: float | None = None
    narrowest = math.inf
    refused = 0
    for _ in range(12):
        try:
            survival = None
            if quantum is not None:
                survival = exact_survival(root, quantum, level, memory)
            exact = survival is not None
            survival = survival or refined_at(root, t, level, tolerance, memory)
        except ToleranceError:
            # Too fine for the memory: between what fitted and what did not.
            refused += 1
            if fitted is None or refused > 3:
                break
            tolerance = math.sqrt(tolerance * fitted)
            continue
        fitted = tolerance
        a, b = (float(x[0]) for x in survival.bounds(np.array([t]), 1.12))
        stalled = b - a > 0.8 * narrowest
        narrowest = min(narrowest, b - a)
        low, high = max(low, a), min(high, b)
        if survival.pair.order == "first":
            value = survival.value(t)
        middle = 0.5 * (low + high)
        if high - low <= rtol * min(middle, 1.0 - low) or high < 1e-300:
            break
        wanted = max(min(middle, 1.0 - middle) * 1e-2, 1e-300)
        if wanted < level * 0.5:
            # The lattice was made for a fatter tail: again for this one.
            level = wanted
            narrowest = math.inf
            continue
        if exact or refused or stalled or tolerance < 1e-7:
            break  # a finer lattice rounds more than it resolves
        # The width goes with the step.
        share = rtol * min(middle, 1.0 - low) / (high - low)
        tolerance *= min(max(0.6 * share, 0.02), 0.5)
    if value is None or not low <= value <= high:
        value = 0.5 * (low + high)
    return low, high, value


def cdf(node: Node, x: npt.ArrayLike, *, above: bool) -> Any:
    """P(X <= x) or P(X > x), elementwise: midpoints of certified bounds."""
    values = np.asarray(x, dtype=float)
    root, left = prepared(node)
    points = None if left else pointwise(root)
    bottom, top = support(root)
    out = np.empty(values.size)
    table = None
    if values.size > FEW and points is None and not left:
        table = _table(root, values, bottom, top)
    if values.size > FEW and points is not None:
        tails = functions_at(root, values.ravel())
        if tails is not None:
            return tails[0 if above else 1].reshape(values.shape)
    for i, t in enumerate(values.ravel()):
        if math.isnan(t):
            out[i] = math.nan
        elif t >= top or t < bottom:
            out[i] = float((t < bottom) == above)
        elif points is not None:
            out[i] = _middle(points, float(t))[0 if above else 1]
        elif table is not None and not math.isnan(table[i]):
            out[i] = table[i] if above else 1.0 - table[i]
        else:
            s = _sf_bounds(node, float(t), 3e-4, MEMORY)[2]
            out[i] = s if above else 1.0 - s
    return out.reshape(values.shape)[()]


def _table(
    root: Node, values: npt.NDArray[np.float64], bottom: float, top: float
) -> npt.NDArray[np.float64] | None:
    """P(X > t) at many points from one lattice; NaN where its bounds are too wide."""
    inside = values.ravel()
    inside = np.where((inside >= bottom) & (inside < top), inside, np.nan)
    if np.isnan(inside).all():
        return None
    out = np.full(inside.size, np.nan)
    # The bulk first, then what is left in the upper tail.
    for level in (1e-4, 1e-10):
        left = np.flatnonzero(~np.isnan(inside) & np.isnan(out))
        if left.size == 0:
            break
        try:
            survival = refined_at(root, float(inside[left].max()), level, 5e-4, MEMORY)
        except ToleranceError:
            break
        low, high = survival.bounds(inside[left], 1.12)
        good = high - low <= 2e-2 * np.minimum(high, 1.0 - low) + 1e-9
        out[left[good]] = 0.5 * (low + high)[good]
    return out


def pdf(node: Node, x: npt.ArrayLike) -> Any:
    """See `probcalc.composed.Composed.pdf`."""
    root, left = prepared(node)
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


def mean_bounds(node: Node) -> Bounds:
    """See `probcalc.composed.Composed.mean_bounds`."""
    root, left = prepared(node)
    if left:
        from probcalc.conditioning import conditioned_mean

        return conditioned_mean(root, left, mean_bounds)
    return _mean_of(root)


def _mean_of(root: Node) -> Bounds:
    """Mean of independent parts: linear through sums and scales."""
    known = moments_of(root)
    if known is not None:
        size = 1e-13 * abs(known[0]) if math.isfinite(known[0]) else 0.0
        return Bounds(known[0], known[0] - size, known[0] + size, "certified")
    match root:
        case Sum():
            parts = [(_mean_of(part), n) for part, n in root.parts]
            return _combined(parts, root.constant)
        case Scale():
            return _combined([(_mean_of(root.part), root.factor)], 0.0)
        case Mix():
            means = [_mean_of(part) for part in root.parts]
            return _combined(list(zip(means, root.weights, strict=True)), 0.0)
        case Product():
            factor = float(root.factor.law.mean())
            return _combined([(_mean_of(root.part), factor)], 0.0)
        case _:
            return _extreme_mean(root)


def _combined(parts: Sequence[tuple[Bounds, float]], constant: float) -> Bounds:
    values = [math.fsum([constant, *(n * b.value for b, n in parts)])]
    values.append(math.fsum([constant, *(n * b.lower for b, n in parts)]))
    values.append(math.fsum([constant, *(n * b.upper for b, n in parts)]))
    size = 1e-13 * max(abs(v) if math.isfinite(v) else 0.0 for v in values)
    certified = all(b.kind == "certified" for b, _ in parts)
    return Bounds(
        values[0],
        values[1] - size,
        values[2] + size,
        "certified" if certified else "estimate",
    )


def _extreme_mean(root: Node) -> Bounds:
    """Mean of a maximum or minimum: from outcomes, a lattice, or by quadrature."""
    listed = atoms_law(root)
    if listed is not None:
        mean = float(listed[0] @ listed[1]) / float(listed[1].sum())
        size = 1e-12 * float(np.abs(listed[0]).max())
        return Bounds(mean, mean - size, mean + size, "certified")
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
    order = order_for(root, 0.5)
    low, high = reach(root, 0.05)
    scale_ = max(high - low, 1e-6 * max(abs(low), abs(high))) or 1.0
    step = tolerance * scale_ / (math.sqrt(copies) if order == "convex" else copies)
    demand = Demand(
        step, order, math.inf, 1e-15 / total_copies(root), points_allowed(memory), 1e-9,
        tail_only=False,
    )  # fmt: skip
    return LatticeSurvival(evaluate(root, demand), False, copies)


def _integrated_mean(root: Node) -> Bounds:
    """Mean of a heavy-tailed maximum by quadrature of its quantile function."""
    points = pointwise(root)
    low, _ = support(root)
    if points is None or not math.isfinite(low):
        raise ToleranceError(
            "mean: the tails are too heavy for a lattice, and no closed form is known"
        )
    from scipy import integrate

    # E X = low + integral of P(X > t), over decades of t - low.
    _, end = reach(root, 1e-15)
    typical = max(reach(root, 0.5)[1] - low, 1e-300)
    edges = np.geomspace(1e-9 * typical, max(end - low, typical), 128)
    total = float(edges[0]) * points.at(low)[1]
    for a, b in itertools.pairwise(edges):
        total += float(
            integrate.quad(lambda x: _middle(points, low + x)[0], a, b, limit=50)[0]
        )
    return Bounds(low + total, -math.inf, math.inf, "estimate")


def variance(node: Node) -> float:
    """Var X; exact from the parts where it follows, else from a fine lattice."""
    root, left = prepared(node)
    if left:
        from probcalc.conditioning import conditioned_variance

        return conditioned_variance(root, left, mean_bounds, variance)
    return _variance_of(root)


def _variance_of(root: Node) -> float:
    known = moments_of(root)
    if known is not None:
        return known[1]
    match root:
        case Sum():
            return math.fsum(n * _variance_of(part) for part, n in root.parts)
        case Scale():
            return root.factor**2 * _variance_of(root.part)
        case _:
            pass
    listed = atoms_law(root)
    if listed is not None:
        weight = listed[1] / listed[1].sum()
        return float(weight @ (listed[0] - float(weight @ listed[0])) ** 2)
    if any(math.isinf(float(leaf.law.variance())) for leaf in leaves_of(root)) and (
        not any(isinstance(n, Min) for n in postorder(root))
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
    root, left = prepared(node)
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
    listed = atoms_law(root)
    if listed is not None:
        return _listed_shortfall(listed, above)
    quantum = quantum_of(root)
    small = min(level, above)
    if quantum is not None:
        survival = exact_survival(root, quantum, small, memory)
        if survival is not None:
            low, high = survival.shortfall(above)
            return Bounds(0.5 * (low + high), low, high, "certified")
    mean = moments_of(root)
    if mean is not None and mean[0] == math.inf:
        found = quantile(node, p=p, sf=sf, rtol=None, memory=memory)
        return Bounds(math.inf, found.lower, math.inf, "open")
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


def _listed_shortfall(listed: Atoms, sf: float) -> Bounds:
    """Mean of the worst share of listed outcomes, the last one counted in part."""
    values, mass = listed[0][::-1], listed[1][::-1]
    taken = np.minimum(np.cumsum(mass), sf)
    value = float(values @ np.diff(taken, prepend=0.0)) / sf
    size = 1e-12 * max(abs(float(values[0])), abs(float(values[-1])))
    return Bounds(value, value - size, value + size, "certified")


def _shortfall_survival(
    root: Node, p: float, sf: float, rtol: float, memory: int
) -> LatticeSurvival:
    """A pair without caps, so that the mean beyond the quantile is bounded too."""
    bracket, pilot = refined(root, p, sf, max(rtol, 1e-3), memory)
    size = max(abs(bracket.lower), abs(bracket.upper))
    copies = copies_of(root)
    order = order_for(root, p)
    step = rtol * size / (math.sqrt(copies) if order == "convex" else copies)
    level = min(p, sf)
    # Tails a billion times thinner than the level: their mean excess is below the aim.
    tail = level * 1e-10 / total_copies(root)
    demand = Demand(
        min(step, pilot.pair.step),
        order,
        math.inf,
        tail,
        points_allowed(memory),
        level * 1e-3,
    )
    return LatticeSurvival(evaluate(root, demand), False, copies)


def lattice(node: Node, step: float | None, *, memory: int) -> Lattice:
    """See `probcalc.composed.Composed.lattice`."""
    from probcalc.lattice import Lattice

    root, left = prepared(node)
    if left:
        raise ToleranceError(
            f"lattice: variables {', '.join(left)} cannot be factored out"
        )
    quantum = quantum_of(root)
    if step is None:
        if quantum is None:
            raise InputError("lattice: give a step, the parts have no common quantum")
        step = quantum.step
    elif not (math.isfinite(step) and step > 0.0):
        raise InputError(f"lattice: step must be positive, got {step!r}")
    demand = Demand(step, "first", math.inf, 1e-15, points_allowed(memory), 1e-6)
    pair = evaluate(root, demand)
    upper = pair.upper
    exact = quantum is not None and (quantum.step / step).is_integer()
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
