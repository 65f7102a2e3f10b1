"""Quantiles beyond the data: a generalised Pareto tail, labelled extrapolated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from probcalc.distribution import levels
from probcalc.errors import InputError, ToleranceError
from probcalc.validation.blocks import Blocked

__all__ = ["Tail", "fit_tail"]

#: Pareto-k above which the tail is doubtful, and above which nothing is said.
WARN, REFUSE = 0.5, 0.7
LEAST = 30


@dataclass(frozen=True, slots=True)
class Tail:
    """A generalised Pareto law of the excess over a threshold.

    Attributes
    ----------
    threshold, share : float
        Value, and the share of runs above it.
    shape, scale : float
        Of the excess; the shape is Pareto-k.
    runs : int
        All runs, of which a share was used.
    warning : str
        Empty where the shape is at most 0.5.
    """

    threshold: float
    share: float
    shape: float
    scale: float
    runs: int
    warning: str

    kind = "extrapolated"

    def quantile(self, p: float | None = None, *, sf: float | None = None) -> float:
        """Return a quantile above the threshold: extrapolated, without a bracket.

        Raises
        ------
        InputError
            A level below the threshold, where the runs themselves answer.
        """
        _, above = levels(p, sf)
        if above > self.share:
            raise InputError(
                f"tail: sf={above:.6g} is not beyond the threshold, sf={self.share:.6g}"
            )
        ratio = above / self.share
        if abs(self.shape) < 1e-9:
            return self.threshold - self.scale * math.log(ratio)
        return (
            self.threshold
            + self.scale * math.expm1(-self.shape * math.log(ratio)) / self.shape
        )


def fit_tail(data: Blocked, *, share: float = 0.1) -> Tail:
    """Fit a generalised Pareto law to the largest runs, by maximum likelihood.

    Parameters
    ----------
    share : float
        Of runs that are the tail.

    Raises
    ------
    InputError
        Fewer than 30 runs in the tail.
    ToleranceError
        Pareto-k above 0.7: nothing can be said beyond the data.
    """
    from scipy import stats

    if not 0.0 < share < 0.5:
        raise InputError(f"tail: share is {share!r}, expected 0 to 0.5")
    ordered = np.sort(data.values)
    count = math.floor(ordered.size * share)
    if count < LEAST:
        raise InputError(
            f"{data.name}: {count} runs in the tail, expected at least {LEAST}, from "
            f"{math.ceil(LEAST / share)} runs"
        )
    threshold = float(ordered[-count - 1])
    excess = ordered[-count:] - threshold
    if not excess[0] < excess[-1]:
        raise InputError(f"{data.name}: the runs in the tail are all alike")
    shape, _, scale = stats.genpareto.fit(excess[excess > 0.0], floc=0.0)
    shape, scale = float(shape), float(scale)
    if shape > REFUSE:
        raise ToleranceError(
            f"{data.name}: Pareto-k is {shape:.2f}, above {REFUSE}: no statement "
            f"beyond the {ordered.size} runs"
        )
    warning = (
        f"Pareto-k is {shape:.2f}, above {WARN}: the tail is doubtful"
        if shape > WARN
        else ""
    )
    return Tail(threshold, count / ordered.size, shape, scale, ordered.size, warning)
