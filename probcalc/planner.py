"""How an answer is worked out: the rungs, their order, and when to stop.

For a quantile the planner tries, cheapest and narrowest first,

1. a constant; a closed form; the inversion of a transform (`probcalc.pointwise`);
2. the list of outcomes, where they are few (`probcalc.atoms`); the exact lattice,
   where all parts are multiples of one quantum;
3. a pair of lattices, increasing-convex or first-order (`probcalc.evaluate`), refined
   until the bracket is as narrow as asked or the memory is used up.

Shared draws are factored out first (`probcalc.variables`), and conditioned on where
that is not possible. What set the width of the bracket is part of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from probcalc.atoms import MERGE, Atoms, atoms_law
from probcalc.discretise import UNIT
from probcalc.distribution import Constant, Quantile, levels
from probcalc.errors import InputError, ToleranceError
from probcalc.evaluate import non_negative
from probcalc.exact_lattice import Quantum, quantum_of
from probcalc.extent import (
    blur,
    equal_cases,
    points_allowed,
    reach,
    support,
    total_copies,
)
from probcalc.levelwise import levels_of
from probcalc.moments_of import moments_of
from probcalc.nodes import Leaf, Node, Product, Scale, Shared, Sum
from probcalc.pointwise import Pointwise, closed, crossing, pointwise
from probcalc.refine import OUTSIDE, Bracket, exact_survival, refined
from probcalc.solve import LatticeSurvival
from probcalc.variables import factored, without_products

if TYPE_CHECKING:
    from probcalc.inversion import Inversion

__all__ = ["AIM", "EXACT", "prepared", "quantile", "quantiles"]

#: Aim where no tolerance is asked.
AIM = 1e-4
EXACT = "exact lattice"
LISTED = "listed outcomes"


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
    points_allowed(memory)
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
    asked = levels_of(p, sf)
    aim = _aim(rtol)
    root, left = prepared(node)
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
    quantum = None if atoms_law(root) is not None else quantum_of(root)
    if quantum is None:
        return {}
    smallest = min(min(level) for level in asked)
    survival = exact_survival(root, quantum, smallest, memory, tail_only=True)
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


def prepared(node: Node) -> tuple[Node, list[str]]:
    """Factor shared draws out and close sums; names of draws that stay shared."""
    root, left = factored(node)
    return (root if left else closed(without_products(root))), left


def _bracket(node: Node, p: float, sf: float, rtol: float, memory: int) -> Bracket:
    root, left = prepared(node)
    if left:
        from probcalc.conditioning import conditioned_bracket

        return conditioned_bracket(root, left, p, sf, rtol, memory, _bracket)
    return _independent(root, p, sf, rtol, memory)


def _independent(root: Node, p: float, sf: float, rtol: float, memory: int) -> Bracket:
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
    listed = atoms_law(root)
    if listed is not None:
        return _listed_bracket(root, listed, p, sf)
    points = pointwise(root)
    if points is not None:
        found = _pointwise_bracket(root, points, p, sf)
        if math.isfinite(found.lower) and math.isfinite(found.upper):
            return _within(found, root)
    if isinstance(root, Product):
        return _product_bracket(root, p, sf, rtol, memory)
    quantum = quantum_of(root)
    if quantum is not None:
        exact = _exact_bracket(root, quantum, p, sf, memory)
        if exact is not None:
            return exact
    return _within(_lattice_bracket(root, p, sf, rtol, memory), root)


def _within(bracket: Bracket, root: Node) -> Bracket:
    """A bracket cut to the support: an atom at its end is the end exactly."""
    bottom, top = support(root)
    if bracket.lower >= bottom and bracket.upper <= top:
        return bracket
    low, high = max(bracket.lower, bottom), min(bracket.upper, top)
    value = min(max(bracket.value, low), high) + 0.0
    return Bracket(low + 0.0, high + 0.0, value, bracket.limited_by)


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
    """A bracket scaled or shifted, widened by what is rounded.

    Factors and constants of long mantissa may have been rounded when they were put
    together: two units in the last place of the largest term.
    """

    def rounded(x: float, y: float) -> float:
        if not math.isfinite(x):
            return 0.0
        exact = Fraction(factor) * Fraction(x) + Fraction(constant) == Fraction(y)
        if exact and _short(factor) and _short(constant):
            return 0.0
        return 2.0 * math.ulp(max(abs(factor * x), abs(constant), abs(y)))

    low, high = image(inner.lower), image(inner.upper)
    return Bracket(
        low - rounded(inner.lower, low),
        high + rounded(inner.upper, high),
        image(inner.value),
        inner.limited_by,
    )


def _short(x: float) -> bool:
    """Whether a number has at most 26 bits: sums and products of a few are exact."""
    return (math.frexp(x)[0] * 2.0**26).is_integer()


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


def _pointwise_bracket(root: Node, points: Pointwise, p: float, sf: float) -> Bracket:
    inversion = _inversion(root)
    if inversion is not None:
        value, low, high = (
            inversion.quantile_bounds(sf=sf)
            if sf <= 0.5
            else inversion.quantile_bounds(p=p)
        )
        # Open where the density all but vanishes at the level: bisection closes it.
        if math.isfinite(low) and math.isfinite(high):
            return Bracket(low, high, value, "rounding of the transform inversion")
    low, high = reach(root, min(p, sf))
    start = 0.5 * (low + high)
    span = max(0.25 * (high - low), 1e-9 * abs(start), 5e-324)
    low, high = _widened(*crossing(points.at, p, sf, start, span))
    name = "closed form" if points.name == "closed form" else points.name
    return Bracket(low, high, 0.5 * (low + high), f"rounding of the {name}")


def _inversion(root: Node) -> Inversion | None:
    from probcalc.inversion import inversion_of

    if not isinstance(root, Sum):
        return None
    terms = [(part.law, n) for part, n in root.parts if isinstance(part, Leaf)]
    if len(terms) < len(root.parts):
        return None
    return inversion_of(terms, root.constant)


def _widened(low: float, high: float) -> tuple[float, float]:
    """Arguments of closed forms are standardised: two roundings, four units a side."""
    return low - 4.0 * UNIT * 2.0 * abs(low), high + 4.0 * UNIT * 2.0 * abs(high)


def _listed_bracket(root: Node, listed: Atoms, p: float, sf: float) -> Bracket:
    """The smallest outcome with P(X <= x) >= p, from the list of outcomes."""
    values, mass = listed
    above = np.append(np.cumsum(mass[:0:-1])[::-1], 0.0)
    slack = (8.0 + total_copies(root) + values.size) * UNIT
    low = int(np.argmax(above * (1.0 - slack) <= sf))
    high = int(np.argmax(above * (1.0 + slack) <= sf))
    cases = equal_cases(root)
    if low != high and cases is not None:
        # Runs of equal weight: probabilities are ratios of whole numbers, compared with
        # the level as a measured law's own are.
        counts = np.rint(mass * cases)
        if float(np.abs(mass * cases - counts).max()) < 1e-3:
            more = np.append(np.cumsum(counts[:0:-1])[::-1], 0.0)
            enough = (cases - more) / cases >= p if sf > 1e-3 else more / cases <= sf
            low = high = int(np.argmax(enough))
    quantum = quantum_of(root)
    exact = quantum is not None and quantum.exact
    pad = 0.0 if exact else 2.0 * MERGE * blur(root)
    name = LISTED if low == high else "rounding at an atom's edge of a listed law"
    value = float(values[low])
    return Bracket(value - pad, float(values[high]) + pad, value, name)


def _exact_bracket(
    root: Node, quantum: Quantum, p: float, sf: float, memory: int
) -> Bracket | None:
    """All parts on one lattice: the answer is a point, but for rounding at its edge."""
    survival = exact_survival(root, quantum, min(p, sf), memory, tail_only=True)
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


def _lattice_bracket(
    root: Node, p: float, sf: float, rtol: float, memory: int
) -> Bracket:
    value = _estimate(root, p, sf)
    bracket, _ = refined(root, p, sf, rtol, memory, guess=value)
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
    points = points_allowed(memory)
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
