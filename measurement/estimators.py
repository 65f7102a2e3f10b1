"""The four ways from readings to the energy of a window; rules are in `windows`.

Each gives an estimate with an interval. The gain of the instrument is in none of
them: it is the same for every window and does not average out (`crosscheck`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from probcalc.measurement.meter import Trace
from probcalc.measurement.updates import updates_of

__all__ = [
    "Estimate",
    "Kind",
    "PowerRange",
    "Progress",
    "distinct",
    "naive",
    "polled",
    "regression",
    "ticks",
]

FloatArray = npt.NDArray[np.float64]
# bound: holds for certain where power stayed within the stated range. estimate: a
# range taken from the readings themselves. confidence: from the scatter of residuals.
Kind = Literal["bound", "estimate", "confidence", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an estimator says of a window, before any rule of validity.

    Attributes
    ----------
    energy, lower, upper : float or None
        In J; None where there is nothing to tell it from.
    kind : Kind
        Of the interval from `lower` to `upper`.
    updates : int
        Of the source that it rests on.
    reasons : tuple of str
        Why there is no energy, or none to be used.
    lag : float
        Part of the half-width in J that averaging within the sensor may cause.
    """

    energy: float | None
    lower: float | None
    upper: float | None
    kind: Kind
    updates: int
    reasons: tuple[str, ...] = ()
    lag: float = 0.0


@dataclass(frozen=True, slots=True)
class PowerRange:
    """Least and largest power in W that the device can draw in and near a window.

    Attributes
    ----------
    low, high : float
    stated : bool
        Whether both were stated; else at least one was read off the trace.
    """

    low: float
    high: float
    stated: bool

    @property
    def kind(self) -> Kind:
        """Kind of an interval that rests on this range."""
        return "bound" if self.stated else "estimate"


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How much of a window's work is done by a time: repetitions, or time itself.

    Attributes
    ----------
    times : FloatArray, shape (n + 1,)
        Start of the window and the completions in s; two ends where only their
        number is known, taken as evenly spread.
    done : FloatArray, shape (n + 1,)
        Work done by then, from 0.
    """

    times: FloatArray
    done: FloatArray

    def __call__(self, t: FloatArray) -> FloatArray:
        """Return the work done by times in s, a part of a repetition included."""
        return np.interp(t, self.times, self.done)

    @property
    def total(self) -> float:
        """Work done in the whole window."""
        return float(self.done[-1])


def naive(
    trace: Trace, start: float, end: float, period: float, powers: PowerRange
) -> Estimate:
    """Counter at the end less counter at the start, the readings nearest to each.

    A reading is as old as an update period, so that the energy of up to one period
    at either end is missing or too much; bias -(P/2)(active - idle) for a window of
    load between idle times.
    """
    first, last = (int(np.argmin(np.abs(trace.time - t))) for t in (start, end))
    if first == last:
        return _nothing("window shorter than the time between two readings")
    if trace.value[last] == trace.value[first]:
        return _nothing(_stuck(end - start, period))
    energy = float(trace.value[last] - trace.value[first])
    # The counter's state at a reading is that of a time in (before - P, after].
    early, late = _slack(trace, first, start, period)
    early_end, late_end = _slack(trace, last, end, period)
    return Estimate(
        energy,
        energy - powers.high * (early + late_end),
        energy + powers.high * (late + early_end),
        powers.kind,
        int(np.count_nonzero(np.diff(trace.value[first : last + 1]))),
    )


def _slack(trace: Trace, i: int, t: float, period: float) -> tuple[float, float]:
    """Return by how much the state read may be older and newer than a time, in s."""
    older = max(t - (float(trace.before[i]) - period), 0.0)
    newer = max(float(trace.after[i]) - t, 0.0)
    return older, newer


def ticks(trace: Trace, start: float, end: float, progress: Progress) -> Estimate:
    """Energy between the first and last update inside, scaled to the whole window.

    Scaled by the work done between those updates, so that power is taken as steady
    over the two ends, of up to a period each, that lie outside them.
    """
    inside = updates_of(trace).within(start, end)
    if len(inside) < 2:
        return _few(len(inside), 2)
    energy = float(inside.value[-1] - inside.value[0])
    work = progress(inside.time)
    done = float(work[-1] - work[0])
    if not done > 0.0:
        return _nothing("no repetition completed between two updates", len(inside))
    factor = progress.total / done
    # Each of the two updates came anywhere between two polls.
    off = progress(inside.latest) - progress(inside.earliest)
    unsure = 0.5 * float(off[0] + off[-1]) / done
    # The ends are told from the ones inside: their spread over that many periods.
    outside = (progress.total - done) / (done / (len(inside) - 1))
    steps = np.diff(inside.value) / np.maximum(np.diff(work), 1e-300)
    spread = float(np.std(steps, ddof=1)) if steps.size > 1 else abs(float(steps[0]))
    ends = spread * (done / (len(inside) - 1)) * math.sqrt(max(outside, 0.0))
    half = energy * factor * unsure + 1.96 * ends
    total = energy * factor
    return Estimate(total, total - half, total + half, "estimate", len(inside))


def regression(
    trace: Trace, start: float, end: float, progress: Progress, level: float
) -> Estimate:
    """Slope of the counter at its updates over the work done, times all the work.

    The interval takes the larger of two standard errors: that of independent errors
    of each point (detection of updates) and that of independent increments (runs
    that differ), since which one rules depends on the polls.
    """
    inside = updates_of(trace).within(start, end)
    if len(inside) < 4:
        return _few(len(inside), 4)
    x = progress(inside.time)
    y = inside.value - inside.value[0]
    centred = x - x.mean()
    square = float(centred @ centred)
    if not (square > 0.0 and np.all(np.diff(x) >= 0.0) and x[-1] > x[0]):
        return _nothing("no repetition completed between two updates", len(inside))
    slope = float(centred @ y) / square
    left = y - y.mean() - slope * centred
    points = math.sqrt(float(left @ left) / (len(inside) - 2) / square)
    # A random walk with increments of variance v per unit of work has a slope, from
    # its end points or by least squares, of variance <= 1.2 v / (x_n - x_1).
    widths = np.diff(x)
    moved = widths > 0.0
    off = (np.diff(y)[moved] - slope * widths[moved]) / np.sqrt(widths[moved])
    walk = math.sqrt(1.2 * float(off @ off) / max(off.size - 1, 1) / (x[-1] - x[0]))
    factor = float(special.stdtrit(len(inside) - 2, 0.5 + 0.5 * level))
    total = slope * progress.total
    half = factor * max(points, walk) * progress.total
    return Estimate(total, total - half, total + half, "confidence", len(inside))


def polled(
    trace: Trace,
    start: float,
    end: float,
    period: float | None,
    powers: PowerRange,
    *,
    averaging: float,
    lag: float,
) -> Estimate:
    """Trapezoid over power readings, interpolated linearly at the exact ends.

    Of the repeated readings of one value the first and the last are kept, so that a
    constant stretch keeps its length and a step stays where it was seen. Readings
    are taken as `lag` s late.
    """
    a, b = start + lag, end + lag
    t, w = distinct(trace.time, trace.value)
    if t.size < 2 or t[0] > a or t[-1] < b:
        return _nothing(_unbracketed(t, a, b))
    at = np.concatenate([[a], t[(t > a) & (t < b)], [b]])
    power = np.interp(at, t, w)
    energy = float(np.trapezoid(power, at))
    changes = int(np.count_nonzero(np.diff(trace.value[_between(trace.time, a, b)])))
    seen = np.interp([a, b], t, w)
    # What was drawn before an end shows in the readings after it.
    averaged = averaging * _spread(_near(trace, (a, b), 0.0, averaging))
    if period is None:
        return Estimate(energy, None, None, "none", changes + 1, lag=averaged)
    spacing = float(np.diff(trace.time[_between(trace.time, a, b)]).max())
    # A reading is the mean of up to a period, is up to a period old, and is joined to
    # the next by a straight line: power shows late, 1.5 periods and a poll at most.
    # The window then holds what was drawn that much earlier, and is off by the delay
    # times what power differs by near its two ends.
    late = 1.5 * period + spacing
    near = _spread(_near(trace, (a, b), period, late + period))
    if trace.time[-1] < b + late + period and powers.stated:
        near = max(near, powers.high - powers.low)  # what was drawn is yet to show
    half = averaged + late * near
    half += period * sum(_within_update(float(power), powers) for power in seen)
    return Estimate(
        energy, energy - half, energy + half, powers.kind, changes + 1, lag=averaged
    )


def _near(
    trace: Trace, edges: tuple[float, float], before: float, after: float
) -> FloatArray:
    """Return the readings from some time before to some after either end, in s."""
    parts = [trace.value[_between(trace.time, e - before, e + after)] for e in edges]
    return np.concatenate(parts)


def _within_update(mean: float, powers: PowerRange) -> float:
    """Return the most by which part of an update can differ from its share, in W.

    An update of mean m that draws the largest power h first, then the least l, is
    over (m - l)/(h - l) of itself above its mean by (m - l)(h - m)/(h - l).
    """
    width = powers.high - powers.low
    if width <= 0.0:
        return 0.0
    return max((mean - powers.low) * (powers.high - mean) / width, 0.0)


def distinct(t: FloatArray, value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first and last reading of each stretch of equal values."""
    if t.size < 3:
        return t, value
    changed = np.diff(value) != 0.0
    kept = np.concatenate([[True], changed]) | np.concatenate([changed, [True]])
    return t[kept], value[kept]


def _between(t: FloatArray, a: float, b: float) -> slice:
    """Return the readings from the last one at or before a to the first after b."""
    first = max(int(np.searchsorted(t, a, side="right")) - 1, 0)
    return slice(first, int(np.searchsorted(t, b, side="left")) + 1)


def _spread(values: FloatArray) -> float:
    return float(np.ptp(values)) if values.size else 0.0


def _unbracketed(t: FloatArray, a: float, b: float) -> str:
    if not t.size:
        return "no reading: samples must bracket both ends"
    side = "start" if t[0] > a else "end"
    off = t[0] - a if t[0] > a else b - t[-1]
    return f"samples do not bracket the {side} of the window: {off:.6g} s short"


def _stuck(duration: float, period: float) -> str:
    """Say why a counter reads the same at both ends."""
    if duration <= 2.0 * period:
        return "window shorter than update period"
    return "source does not move"


def _few(updates: int, needed: int) -> Estimate:
    """Say that there are too few updates, and what none at all means."""
    if not updates:
        return _nothing("window shorter than update period")
    return _nothing(f"{updates} counter updates, expected {needed}", updates)


def _nothing(reason: str, updates: int = 0) -> Estimate:
    return Estimate(None, None, None, "none", updates, (reason,))
