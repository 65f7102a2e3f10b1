"""What a part-time sensor does not see: it reads a stretch of each update period.

A counter integrates the same readings, so that neither source sees a load that
swings in step with the updates, however long the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from probcalc.measurement.estimators import Estimate, PowerRange
from probcalc.measurement.meter import Trace
from probcalc.measurement.updates import updates_of

__all__ = ["LEAST_SHARE", "SHORT", "Unread", "unread"]

FloatArray = npt.NDArray[np.float64]

# Share of each period that the least of the known sensors reads (A100, H100).
LEAST_SHARE = 0.25
# A run shorter than this many periods is averaged by the reading itself (step 5).
SHORT = 0.1
# Readings that differ by less, relative to their mean, do not swing.
STEADY = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Unread:
    """What is known of a sensor and of the load it looks at.

    Attributes
    ----------
    trace : Trace
    period, reading_window : float or None
        In s.
    dephased : bool
        Whether random gaps were put between runs.
    repetitions : int or None
    powers : PowerRange
    tolerance : float
        Largest half-width relative to the energy.
    """

    trace: Trace
    period: float | None
    reading_window: float | None
    dephased: bool
    repetitions: int | None
    powers: PowerRange
    tolerance: float

    @property
    def share(self) -> float | None:
        """Part of the time that is read; None where it is not known."""
        if self.reading_window is None or self.period is None:
            return None
        # A period found on polls is known to a percent or two.
        share = self.reading_window / self.period
        return 1.0 if share > 0.97 else share

    def short(self, duration: float) -> bool:
        """Whether runs are so short that a reading averages over them."""
        if self.repetitions is None or self.period is None:
            return False
        return duration / self.repetitions <= SHORT * self.period


def unread(
    found: Estimate, start: float, end: float, sensor: Unread, notes: list[str]
) -> Estimate:
    """Widen an interval by what the sensor did not read; refuse one too wide.

    With a share c of the time read, the rest may have drawn anything from the least
    to the largest power. With random gaps between runs the readings are a sample,
    and their scatter says how far off its mean is.
    """
    share = sensor.share
    if found.energy is None or sensor.short(end - start) or share == 1.0:
        return found
    if sensor.dephased:
        seen = _readings(sensor.trace, start, end, sensor.period)
        return _sampled(found, seen, share or LEAST_SHARE, end - start)
    if share is not None:
        return _worst(found, share, end - start, sensor)
    trace = sensor.trace
    if not _swings(_readings(trace, -math.inf, math.inf, None)):
        return found
    notes.append(
        "reading window unknown: on a part-time sensor (A100, H100: 25 of 100 ms) a "
        "load that swings between updates goes unseen, and the interval allows for "
        "it; state reading_window"
    )
    # Not refused for what is only possible; the interval says it all the same.
    wide = _worst(found, LEAST_SHARE, end - start, sensor)
    return replace(wide, reasons=found.reasons)


def _sampled(
    found: Estimate, seen: FloatArray, share: float, duration: float
) -> Estimate:
    """Take the readings as a random sample of the power drawn."""
    if found.energy is None or found.lower is None or found.upper is None:
        return found
    if seen.size < 2:
        return replace(found, reasons=(*found.reasons, "too few updates to sample"))
    # The means of the time read (share c) and of the rest are independent, with
    # variances v/n and v/n c/(1 - c); the whole is off by (1 - c) times their
    # difference, of variance (1 - c) v/n in all.
    scatter = float(np.std(seen, ddof=1)) / math.sqrt(seen.size)
    factor = float(special.stdtrit(seen.size - 1, 0.975))
    half = factor * math.sqrt(1.0 - share) * duration * scatter
    return replace(
        found, lower=found.lower - half, upper=found.upper + half, kind="estimate"
    )


def _worst(found: Estimate, share: float, duration: float, sensor: Unread) -> Estimate:
    """Let the time not read draw the least or the largest power."""
    if found.energy is None or found.lower is None or found.upper is None:
        return found
    hidden = (1.0 - share) * duration
    mean = found.energy / duration
    low, high = sensor.powers.low, sensor.powers.high
    below = hidden * max(mean - low, 0.0)
    above = hidden * max(high - mean, 0.0)
    reasons = found.reasons
    if max(below, above) > sensor.tolerance * abs(found.energy):
        reason = (
            f"part-time sensor: {100.0 * share:.0f} % of the time is read, and power "
            f"from {low:.4g} to {high:.4g} W may fall in the rest; put random gaps "
            "between runs (dephased), or shorter runs with their number"
        )
        reasons = (*reasons, reason)
    return replace(
        found, lower=found.lower - below, upper=found.upper + above, reasons=reasons
    )


def _readings(
    trace: Trace, start: float, end: float, period: float | None
) -> FloatArray:
    """Return the mean power in W that each update between two times read."""
    if trace.source == "counter":
        return updates_of(trace).within(start, end).rates()
    inside = (trace.time >= start) & (trace.time <= end)
    if period is None or not inside.any():
        return trace.value[inside]
    # One a period: a value that came again is a reading as good as a new one.
    at = np.arange(start, end, period)
    latest = np.searchsorted(trace.time, at, side="right") - 1
    return trace.value[np.maximum(latest, 0)]


def _swings(values: FloatArray) -> bool:
    """Whether readings differ by more than noise."""
    if values.size < 3:
        return False
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    return bool(high - low > STEADY * abs(middle))
