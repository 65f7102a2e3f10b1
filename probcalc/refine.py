"""Lattice evaluations made for an answer: exact ones, and pairs refined in steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from probcalc.discretise import SUBDIVISIONS, Demand, Order
from probcalc.errors import ToleranceError
from probcalc.evaluate import evaluate, non_negative
from probcalc.exact_lattice import Quantum
from probcalc.extent import (
    blur,
    copies_of,
    leaves_of,
    points_allowed,
    reach,
    total_copies,
)
from probcalc.families import family_of
from probcalc.moments_of import moments_of
from probcalc.nodes import Min, Node, postorder
from probcalc.solve import LatticeSurvival

__all__ = [
    "EXACT_POINTS",
    "OUTSIDE",
    "PILOT",
    "Bracket",
    "exact_survival",
    "order_for",
    "refined",
    "refined_at",
]

#: Points of the first, coarse, lattice.
PILOT = 2048
#: Share of the level that all leaves together may leave out.
OUTSIDE = 1e-6
#: Points beyond which an exact lattice is dearer than an approximate one is wide.
EXACT_POINTS = 1 << 21


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


def order_for(root: Node, p: float) -> Order:
    """Which order brackets an expression best at a level."""
    from probcalc.discretise import atoms_of

    leaves = leaves_of(root)

    if any(isinstance(n, Min) for n in postorder(root)) or p < 1e-6:
        return "first"
    if non_negative(root) and any(
        math.isinf(float(leaf.law.variance())) for leaf in leaves
    ):
        return "first"
    finite = [
        hasattr(leaf.law, "lattice_bounds") or atoms_of(leaf.law, 1e-12) is not None
        for leaf in leaves
    ]
    if all(finite):
        return "first"
    # A law known by its distribution function alone takes many values of it for each
    # cell of a convex bound; for few summands more cells of first order are cheaper.
    unknown = any(
        not known and family_of(leaf.law) is None
        for leaf, known in zip(leaves, finite, strict=True)
    )
    if unknown and math.sqrt(copies_of(root)) < 2.0 * SUBDIVISIONS:
        return "first"
    return "convex"


def _widths(order: Order, copies: float) -> float:
    """About how many steps wide a bracket of that many summands is."""
    return 1.4 * math.sqrt(copies) if order == "convex" else 1.05 * copies


def refined(
    root: Node,
    p: float,
    sf: float,
    rtol: float,
    memory: int,
    guess: float | None = None,
) -> tuple[Bracket, LatticeSurvival]:
    """Lattice pairs from coarse to fine until the bracket is narrow enough.

    A guess of the quantile sizes the first lattice; nothing else rests on it.

    Raises
    ------
    ToleranceError
        Where even a coarse lattice gives no finite bracket.
    """
    level = min(p, sf)
    order = order_for(root, p)
    capped = non_negative(root)
    copies = copies_of(root)
    tail = level * OUTSIDE / total_copies(root)
    points = points_allowed(memory)
    low, high = reach(root, level)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ToleranceError(
            f"quantile at sf={sf:.6g}: no finite range could be found from the parts"
        )
    known_low, known_high = low, high
    step = max((high - max(low, 0.0) if capped else high - low), abs(high)) / PILOT
    if step <= 0.0:
        step = max(abs(high), 1.0) / PILOT
    if guess is not None and guess != 0.0 and low < guess < high:
        step = min(step, rtol * abs(guess) / _widths(order, copies))
    best: tuple[Bracket, LatticeSurvival] | None = None
    limited = "lattice step"
    stalls = 0
    refused = False
    pad = blur(root)
    for _ in range(16):
        margin = (64.0 + 32.0 * math.sqrt(copies)) * step
        top = known_high
        if guess is not None and best is None:
            top = min(top, guess + 1e-3 * abs(guess))
        cap = top + margin if capped else math.inf
        demand = Demand(step, order, cap, tail, points, level)
        try:
            pair = evaluate(root, demand)
        except ToleranceError:
            limited = f"memory limit of {memory} bytes"
            if best is None:
                step *= 8.0
                guess = None
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
        previous_width = math.inf if best is None else best[0].upper - best[0].lower
        best = (bracket, survival)
        if bracket.relative <= rtol:
            break
        size = max(abs(known_low), abs(known_high))
        wanted = rtol * size / _widths(order, copies)
        width = found_high - found_low
        if math.isfinite(width) and width < 0.05 * size:
            # Close: the width goes with the step from here on.
            wanted = min(wanted, 0.8 * step * rtol * size / width)
        if refused:
            break
        if previous is not None and previous[1].pair.step > 1.2 * step:
            # A finer lattice that does not help: twice is enough.
            stalls += previous_width < 1.1 * (known_high - known_low)
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


def exact_survival(
    root: Node,
    quantum: Quantum,
    level: float,
    memory: int,
    *,
    tail_only: bool = False,
) -> LatticeSurvival | None:
    """Survival function on the lattice of all values; None where it does not fit.

    With `tail_only` the bulk may be less accurate than the tail at `level`.
    """
    demand = Demand(
        quantum.step,
        "first",
        math.inf,
        level * OUTSIDE,
        min(points_allowed(memory), EXACT_POINTS),
        level,
        tail_only,
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
    order = order_for(root, 0.5)
    step = tolerance * scale_ / (math.sqrt(copies) if order == "convex" else copies)
    margin = (64.0 + 32.0 * math.sqrt(copies)) * step
    demand = Demand(
        step,
        order,
        t + margin if capped else math.inf,
        level * OUTSIDE / total_copies(root),
        points_allowed(memory),
        level,
        # Far out the tail alone matters; in the bulk the tilt would lose it.
        tail_only=level < 1e-4,
    )
    return LatticeSurvival(evaluate(root, demand), capped, copies)
