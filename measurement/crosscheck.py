"""Two methods over one window, and one instrument against a better one (step 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.faults import ConflictError
from probcalc.measurement.windows import WindowEnergy
from probcalc.shared import Shared

__all__ = ["LEAST_DURATION", "CrossCheck", "Gain", "cross_check", "instrument_gain"]

FloatArray = npt.NDArray[np.float64]

LEAST_DURATION = 10.0  # s, below which agreement shows nothing


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What two methods say of the same window.

    Attributes
    ----------
    status : {"agree", "conflict", "undecided"}
        Only ``agree`` lets a verdict be given.
    first, second : WindowEnergy
    ratio : float
        Energy of the second over the first; NaN where one has none.
    tolerance : float
        Largest relative difference that is agreement.
    reason : str
        One line with the two energies in J.
    """

    status: Literal["agree", "conflict", "undecided"]
    first: WindowEnergy
    second: WindowEnergy
    ratio: float
    tolerance: float
    reason: str

    @property
    def verdict_allowed(self) -> bool:
        """Whether a verdict may rest on this measurement."""
        return self.status == "agree"

    def require(self) -> None:
        """Raise unless the methods agree.

        Raises
        ------
        ConflictError
            With the two energies and what to do.
        """
        if not self.verdict_allowed:
            raise ConflictError(f"{self.reason}; no verdict is given")


def cross_check(
    first: WindowEnergy, second: WindowEnergy, *, tolerance: float = 0.05
) -> CrossCheck:
    """Compare two methods over the same window, which agree, conflict or say nothing.

    They conflict where they differ by more than the tolerance, however short the
    window, and agree where they do not over at least 10 s (protocol step 2). A
    shorter window within the tolerance, or one that is not valid, is undecided.

    Parameters
    ----------
    first, second : WindowEnergy
        Such as of the counter and of polled power.
    tolerance : float
        Largest relative difference, of the larger energy.

    Raises
    ------
    InputError
        Windows of other times or other scopes: a module's energy is not a board's.

    Examples
    --------
    >>> def found(joules, method):
    ...     return WindowEnergy(
    ...         joules, joules - 1.0, joules + 1.0, "estimate", method, True, (),
    ...         0.0, 5.0045, 50, 0.1, 100.0, 0.01, "board", "counter", joules,
    ...     )
    >>> cross_check(found(187.443, "ticks"), found(326.883, "polled")).status
    'conflict'
    """
    if not tolerance >= 0.0:
        raise InputError(f"cross-check: tolerance is {tolerance!r}, expected >= 0")
    _comparable(first, second)
    ratio = math.nan
    if first.energy is None or second.energy is None:
        blank = first if first.energy is None else second
        why = blank.reasons[0] if blank.reasons else "no energy"
        return CrossCheck(
            "undecided",
            first,
            second,
            ratio,
            tolerance,
            f"cross-check: {blank.method} of {blank.source} is not valid: {why}",
        )
    difference = abs(second.energy - first.energy)
    largest = max(abs(first.energy), abs(second.energy))
    if first.energy != 0.0:
        ratio = second.energy / first.energy
    said = (
        f"{first.method} of {first.source} {first.energy:.6g} J, {second.method} of "
        f"{second.source} {second.energy:.6g} J over {first.duration:.6g} s"
    )
    if difference > tolerance * largest:
        status, reason = "conflict", f"instrument conflict: {said}"
        if _overlap(first, second):
            reason += " (their intervals meet: a longer window may settle it)"
    elif first.duration < LEAST_DURATION * (1.0 - 1e-9):
        status = "undecided"
        reason = f"cross-check: {said}, expected at least {LEAST_DURATION:g} s"
    else:
        status, reason = "agree", f"cross-check: {said}"
    return CrossCheck(status, first, second, ratio, tolerance, reason)


def _comparable(first: WindowEnergy, second: WindowEnergy) -> None:
    if first.scope != second.scope:
        raise InputError(
            f"cross-check: scopes {first.scope!r} and {second.scope!r}, expected one; "
            "energies of different scopes are never compared"
        )
    slack = 1e-9 * max(abs(first.end), 1.0)
    if abs(first.start - second.start) > slack or abs(first.end - second.end) > slack:
        raise InputError(
            f"cross-check: windows {first.start:.6f} to {first.end:.6f} s and "
            f"{second.start:.6f} to {second.end:.6f} s, expected the same"
        )


def _overlap(first: WindowEnergy, second: WindowEnergy) -> bool:
    """Whether the two intervals meet; an energy without one stands for itself."""
    (a, b), (c, d) = _interval(first), _interval(second)
    return max(a, c) <= min(b, d)


def _interval(window: WindowEnergy) -> tuple[float, float]:
    energy = math.nan if window.energy is None else window.energy
    lower = energy if window.lower is None else window.lower
    upper = energy if window.upper is None else window.upper
    return lower, upper


@dataclass(frozen=True, slots=True)
class Gain:
    """Ratio of an instrument to a better one: one factor of all that it measures.

    Attributes
    ----------
    ratio : float
        Instrument over reference, of the energies summed over all windows.
    relative_error : float
        Standard error of `ratio`, relative; from the windows and the reference. More
        windows of the same board lessen the first part only.
    windows : int
    """

    ratio: float
    relative_error: float
    windows: int

    def shared(self, name: str) -> Shared:
        """Return the factor that puts energies right, for every element measured.

        Its name is common to them, so that its error does not average out.
        """
        law = _positive(1.0 / self.ratio, self.relative_error / self.ratio)
        return Shared(name, law, acts_on="energy")


def instrument_gain(
    measured: Sequence[WindowEnergy],
    reference: npt.ArrayLike,
    *,
    reference_error: float,
) -> Gain:
    """Return the gain of an instrument from windows that a better one saw as well.

    Parameters
    ----------
    measured : sequence of WindowEnergy
        At least two valid ones that do not overlap; others are refused, not skipped.
    reference : array_like, shape (windows,)
        Energy of the same windows in J by the better instrument.
    reference_error : float
        Relative standard error of that instrument's own gain.

    Raises
    ------
    InputError
        Fewer than two windows, an invalid one, lengths that differ, energies <= 0.
    """
    true = np.asarray(reference, dtype=float)
    if true.shape != (len(measured),) or len(measured) < 2:
        raise InputError(
            f"gain: {len(measured)} windows and reference of shape {true.shape}, "
            "expected at least two of each"
        )
    energies = []
    for i, window in enumerate(measured):
        if window.energy is None:
            raise InputError(f"gain: window {i} is not valid: {window.reasons[0]}")
        energies.append(window.energy)
    found = np.array(energies)
    if not (np.all(true > 0.0) and np.all(np.isfinite(true)) and np.all(found > 0.0)):
        raise InputError("gain: energies must be finite and above 0 J")
    if not (math.isfinite(reference_error) and reference_error >= 0.0):
        raise InputError(f"gain: reference_error is {reference_error!r}, expected >= 0")
    ratio = float(found.sum() / true.sum())
    off = found - ratio * true
    n = off.size
    scatter = math.sqrt(n / (n - 1) * float(off @ off)) / float(found.sum())
    return Gain(ratio, math.hypot(scatter, reference_error), n)


def _positive(mean: float, sd: float) -> object:
    """Return a law around a mean, of a factor that cannot be negative."""
    if sd == 0.0:
        return mean
    from scipy import stats

    return stats.truncnorm(-mean / sd, math.inf, loc=mean, scale=sd)
