"""When a source brought a new value, as far as the polls can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.measurement.meter import Trace
from probcalc.readonly import reduced

__all__ = ["LEAST_CHANGES", "Updates", "period_of", "updates_of"]

FloatArray = npt.NDArray[np.float64]

# Protocol step 1: an update period rests on at least this many changes.
LEAST_CHANGES = 30


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """The new values of a source: each came in a stretch between two readings.

    Attributes
    ----------
    earliest, latest : FloatArray, shape (updates,)
        Host time in s between which the new value arrived: after the reading that
        was still old was asked for, before the new one was answered.
    value : FloatArray, shape (updates,)
        In J for a counter, W for power.
    """

    earliest: FloatArray
    latest: FloatArray
    value: FloatArray

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    def __len__(self) -> int:
        """Return the number of updates."""
        return self.value.size

    @property
    def time(self) -> FloatArray:
        """Best guess of each update's time in s: the middle of its stretch."""
        return 0.5 * (self.earliest + self.latest)

    def within(self, start: float, end: float) -> Updates:
        """Return the updates that certainly came between two times in s."""
        kept = (self.earliest >= start) & (self.latest <= end)
        return _updates(self.earliest[kept], self.latest[kept], self.value[kept])

    def rates(self) -> FloatArray:
        """Return the mean power in W between the updates of a counter (J)."""
        return np.diff(self.value) / np.diff(self.time)


def updates_of(trace: Trace) -> Updates:
    """Return where the readings of a trace changed.

    An update that brings the same value again cannot be seen: a counter under load
    always moves, power may stand still.
    """
    new = np.flatnonzero(np.diff(trace.value) != 0.0) + 1
    return _updates(trace.before[new - 1], trace.after[new], trace.value[new])


def period_of(trace: Trace) -> float | None:
    """Return the update period of a source in s, or None for too few changes.

    A poll sees an interval up to a poll too long or short, which cancels in a sum:
    the period is the time over many intervals by the periods that they hold, so that
    neither repeated values nor the spacing of the polls bias it.

    Returns
    -------
    float or None
        None below 30 changes (protocol step 1), or where the polls are further apart
        than half of it and so would show themselves instead.
    """
    times = updates_of(trace).time
    if times.size < LEAST_CHANGES + 1:
        return None
    intervals = np.diff(times)
    middle = float(np.median(intervals))
    single = (intervals > 0.5 * middle) & (intervals < 1.75 * middle)
    period = float(intervals[single].mean())
    # A value that was read while it was written makes two short intervals of one: the
    # shorter holds no period, and the sum is right again.
    held = np.rint(intervals / period).sum()
    found = float((times[-1] - times[0]) / held)
    # Samples carry their own stamps, one each: they are never polled twice.
    sparse = float(np.median(np.diff(trace.time))) > 0.5 * found * (1.0 + 1e-9)
    return None if sparse and trace.source != "power_samples" else found


def _updates(earliest: FloatArray, latest: FloatArray, value: FloatArray) -> Updates:
    for array in (earliest, latest, value):
        array.setflags(write=False)
    return Updates(earliest, latest, value)
