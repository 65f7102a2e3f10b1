"""Refinement and coarsening: the parts composed, and the whole measured as one.

Splitting an element into parts, or measuring a composition as one element, changes its
energy by no more than the reduction bound (section 5.2.2).
"""

from __future__ import annotations

from probcalc.errors import InputError
from probcalc.term import Term
from probcalc.validation.blocks import Blocked
from probcalc.validation.deviation import deviation, predicted
from probcalc.validation.reduction import Reduction
from probcalc.validation.verdict import Verdict

__all__ = ["refinement"]


def refinement(
    parts: Term,
    whole: Blocked,
    bound: Reduction | float,
    *,
    level: float = 0.95,
    levels: tuple[float, ...] = (0.5, 0.9),
    seed: int = 0,
) -> Verdict:
    """Whether parts, composed, and the whole agree within the reduction bound.

    Errors of both measurements are allowed for, as in
    `probcalc.validation.deviation.deviation`.

    Parameters
    ----------
    parts : Term
        Of measured elements.
    whole : Blocked
        Energies of the whole, measured as one element, J.
    bound : Reduction or float
        As `probcalc.validation.reduction.reduction_bound` gives it, or J.

    Raises
    ------
    InputError
        A bound that is negative or not finite.
    """
    margin = bound.energy if isinstance(bound, Reduction) else float(bound)
    if not 0.0 <= margin < float("inf"):
        raise InputError(f"refinement: bound is {margin!r} J, expected a number >= 0")
    return deviation(
        predicted(parts, seed=seed), whole, margin=margin, levels=levels, level=level
    )
