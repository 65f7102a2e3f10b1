"""Energy of one window from a trace: estimators, their intervals, and validity.

A window that breaks a rule of the protocol is kept, with its reasons and without an
energy: it is never clipped and never zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement import estimators, rules
from probcalc.measurement.estimators import Estimate, Kind, PowerRange, Progress
from probcalc.measurement.meter import Scope, Source, Trace
from probcalc.measurement.unread import Unread, unread
from probcalc.measurement.updates import LEAST_CHANGES, period_of, updates_of

__all__ = ["METHODS", "Method", "WindowEnergy", "window_energy"]

FloatArray = npt.NDArray[np.float64]
Method = Literal["naive", "ticks", "regression", "polled"]
METHODS: tuple[Method, ...] = ("naive", "ticks", "regression", "polled")

AVERAGING = 1.0  # s, the mean that power readings are of on most boards


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """Energy of one window, or the reasons why there is none.

    Attributes
    ----------
    energy : float or None
        In J; None unless valid.
    lower, upper : float or None
        Interval of it in J, of `kind`; kept for an invalid window where there is one.
        The gain of the instrument is not in it: it is a shared error.
    kind : {"bound", "estimate", "confidence", "none"}
        ``bound``: certain while power stays in the stated range. ``estimate``: the
        same with a range read off the trace, or with steady power assumed.
        ``confidence``: 95 % or the level asked for, from scatter.
    method : Method
    valid : bool
    reasons : tuple of str
        Why it is not valid; empty where it is.
    start, end : float
        Host clock in s.
    updates : int
        Updates of the source that the energy rests on.
    period : float or None
        Update period in s, stated or measured; None where unknown.
    rate : float
        Readings a second that were achieved in the window; NaN for fewer than two.
    largest_gap : float
        Longest time in s between readings in it, ends included; NaN as above.
    scope : Scope
    source : Source
    estimate : float or None
        In J, what the estimator says although a rule is broken; not to be used.
    repetitions : int or None
        Runs in the window: the grain of `per_repetition`.
    notes : tuple of str
        What is not known or assumed; the window is valid all the same.
    """

    energy: float | None
    lower: float | None
    upper: float | None
    kind: Kind
    method: Method
    valid: bool
    reasons: tuple[str, ...]
    start: float
    end: float
    updates: int
    period: float | None
    rate: float
    largest_gap: float
    scope: Scope
    source: Source
    estimate: float | None = None
    repetitions: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def duration(self) -> float:
        """Length of the window in s."""
        return self.end - self.start

    @property
    def power(self) -> float | None:
        """Mean power in W; None unless valid."""
        return None if self.energy is None else self.energy / self.duration

    @property
    def per_repetition(self) -> float | None:
        """Mean energy of the window's runs in J: its grain is `repetitions`."""
        if self.energy is None or self.repetitions is None:
            return None
        return self.energy / self.repetitions


def window_energy(
    trace: Trace,
    start: float,
    end: float,
    *,
    method: Method | Literal["auto"] = "auto",
    repetitions: int | None = None,
    completions: npt.ArrayLike | None = None,
    period: float | None = None,
    idle_power: float | None = None,
    power_limit: float | None = None,
    reading_window: float | None = None,
    averaging: float | None = None,
    lag: float = 0.0,
    dephased: bool = False,
    least_periods: float | None = None,
    tolerance: float = 0.05,
    level: float = 0.95,
) -> WindowEnergy:
    """Return the energy drawn between two times, with an interval and its validity.

    Parameters
    ----------
    trace : Trace
        Of a counter (J) or of power (W), of one device and scope.
    start, end : float
        Host clock in s, as in the trace.
    method : {"auto", "naive", "ticks", "regression", "polled"}
        ``auto``: for a counter, regression where completions are given, else ticks
        where the polls show single updates, else naive; for power, polled.
    repetitions : int, optional
        Runs in the window.
    completions : array_like, shape (repetitions,), optional
        When each run ended, in s, in order. Without them ticks takes the runs as
        evenly spread, and regression is refused.
    period : float, optional
        Update period in s; measured on the trace (>= 30 changes) where not given.
    idle_power, power_limit : float, optional
        In W. Least and largest power for the interval, and energy outside
        [0.2 idle, 1.5 limit] x duration is invalid. The limit is the device's where
        the trace names one.
    reading_window : float, optional
        Time in s that each update reads: less than the period on a part-time sensor
        (25 of 100 ms on an A100), where the rest of the time goes unseen.
    averaging : float, optional
        Time in s that power readings are means of; 1 s for ``power_average``, 0 for
        ``power_instant``. ``power_usage`` is either: unknown, 1 s is allowed for.
    lag : float
        Delay of power readings in s to be taken off; about half of period plus
        reading window for readings that are repeated until the next.
    dephased : bool
        Whether random idle gaps were put between repetitions (protocol step 5).
    least_periods : float, optional
        Shortest window in update periods; 50 for naive, 10 for ticks and regression.
    tolerance : float
        Largest half-width from averaging or unread time, relative to the energy.
    level : float
        Of a confidence interval.

    Returns
    -------
    WindowEnergy

    Raises
    ------
    InputError
        A window that ends before it starts, a method that does not fit the source,
        completions out of order or not as many as repetitions, negative numbers.

    Notes
    -----
    Sources: the protocol of measuring elements, steps 3 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> t = np.arange(0.0, 10.05, 0.05)
    >>> trace = Trace(t, np.full(t.size, 200.0), t, "power_instant")
    >>> window_energy(trace, 0.0, 10.0, period=0.1).energy
    2000.0
    """
    start, end = _window(start, end)
    for name, value in (
        ("period", period),
        ("idle_power", idle_power),
        ("power_limit", power_limit),
        ("reading_window", reading_window),
        ("averaging", averaging),
        ("least_periods", least_periods),
        ("tolerance", tolerance),
    ):
        _not_negative(name, value)
    if not (isinstance(lag, int | float) and math.isfinite(lag)):
        raise InputError(f"window: lag is {lag!r}, expected a number of seconds")
    if not 0.0 < level < 1.0:
        raise InputError(f"window: level is {level!r}, expected a number in (0, 1)")
    progress, runs = _progress(start, end, repetitions, completions)
    if not len(trace):
        return _unanswered(trace, start, end, method, period, runs)
    period = period_of(trace) if period is None else period
    chosen = _method(trace, start, end, method, completions is not None, period)
    if power_limit is None and trace.device is not None:
        power_limit = trace.device.power_limit
    powers = _range(trace, idle_power, power_limit)
    notes: list[str] = []
    if chosen == "polled":
        averaging = _averaging(trace.source, averaging, notes)
        found = estimators.polled(
            trace, start, end, period, powers, averaging=averaging, lag=lag
        )
        found = _lagging(found, averaging, tolerance)
    elif period is None:
        found = _unknown_period(trace)
    elif chosen == "naive":
        found = estimators.naive(trace, start, end, period, powers)
    elif chosen == "ticks":
        found = estimators.ticks(trace, start, end, progress)
    else:
        found = estimators.regression(trace, start, end, progress, level)
    if found.reasons and rules.still(trace, start, end, period):
        found = replace(found, reasons=("source does not move",))
    sensor = Unread(trace, period, reading_window, dephased, runs, powers, tolerance)
    found = unread(found, start, end, sensor, notes)
    if found.upper is not None and not math.isfinite(found.upper):
        notes.append("no interval: the largest power is unknown; state power_limit")
        found = replace(found, lower=None, upper=None, kind="none")
    rate, gap, broken = rules.continuity(trace, start, end, chosen, period)
    reasons = (
        *found.reasons,
        *broken,
        *rules.long_enough(chosen, end - start, period, least_periods, rate, notes),
        *rules.plausible(found.energy, end - start, idle_power, power_limit),
        *(
            rules.telling(found.energy, found.lower, found.upper)
            if found.kind == "confidence"
            else ()
        ),
    )
    reasons = tuple(dict.fromkeys(reasons))
    return WindowEnergy(
        energy=None if reasons else found.energy,
        lower=found.lower,
        upper=found.upper,
        kind=found.kind,
        method=chosen,
        valid=not reasons,
        reasons=reasons,
        start=start,
        end=end,
        updates=found.updates,
        period=period,
        rate=rate,
        largest_gap=gap,
        scope=trace.scope,
        source=trace.source,
        estimate=found.energy,
        repetitions=runs,
        notes=tuple(notes),
    )


def _unanswered(
    trace: Trace,
    start: float,
    end: float,
    method: str,
    period: float | None,
    runs: int | None,
) -> WindowEnergy:
    """Return the window of a source that gave no reading at all."""
    why = f": {trace.missing[0].reason}" if trace.missing else ""
    usual: Method = "naive" if trace.source == "counter" else "polled"
    return WindowEnergy(
        energy=None,
        lower=None,
        upper=None,
        kind="none",
        method=usual if method == "auto" else method,  # type: ignore[arg-type]
        valid=False,
        reasons=(f"no reading of {trace.source}{why}",),
        start=start,
        end=end,
        updates=0,
        period=period,
        rate=math.nan,
        largest_gap=math.nan,
        scope=trace.scope,
        source=trace.source,
        repetitions=runs,
    )


def _window(start: float, end: float) -> tuple[float, float]:
    start, end = float(start), float(end)
    if not (math.isfinite(start) and math.isfinite(end) and end > start):
        raise InputError(
            f"window: starts at {start:g} s and ends at {end:g} s, expected an end "
            "after the start"
        )
    return start, end


def _not_negative(name: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value >= 0.0):
        raise InputError(f"window: {name} is {value!r}, expected a number >= 0")
    if name == "period" and value == 0.0:
        raise InputError("window: period is 0 s, expected a number > 0")


def _progress(
    start: float, end: float, repetitions: int | None, completions: npt.ArrayLike | None
) -> tuple[Progress, int | None]:
    """Return the work done over time, and the number of runs where it is known."""
    if repetitions is not None and (
        isinstance(repetitions, bool) or int(repetitions) != repetitions
    ):
        raise InputError(f"window: repetitions is {repetitions!r}, expected a number")
    if repetitions is not None and repetitions < 1:
        raise InputError(f"window: {repetitions} repetitions, expected at least 1")
    if completions is None:
        work = float(repetitions) if repetitions is not None else end - start
        ends = np.array([start, end]), np.array([0.0, work])
        return Progress(*ends), None if repetitions is None else int(repetitions)
    times = np.asarray(completions, dtype=float)
    if times.ndim != 1 or not times.size or not np.all(np.isfinite(times)):
        raise InputError("window: completions are not a list of finite times in s")
    if repetitions is not None and times.size != repetitions:
        raise InputError(
            f"window: {times.size} completions for {repetitions} repetitions"
        )
    late = float(times[-1])
    if times[0] < start or late > end or np.any(np.diff(times) < 0.0):
        raise InputError(
            f"window: completions run from {times[0]:.6f} to {late:.6f} s, expected "
            f"ascending times within the window, {start:.6f} to {end:.6f} s"
        )
    done = np.arange(times.size + 1, dtype=float)
    return Progress(np.concatenate([[start], times]), done), int(times.size)


def _method(
    trace: Trace,
    start: float,
    end: float,
    method: str,
    completions: bool,
    period: float | None,
) -> Method:
    """Return the estimator to use, which must fit the source."""
    if method not in ("auto", *METHODS):
        raise InputError(
            f"window: method is {method!r}, expected auto, " + ", ".join(METHODS)
        )
    counter = trace.source == "counter"
    if method == "auto":
        if not counter:
            return "polled"
        inside = np.count_nonzero((trace.time >= start) & (trace.time <= end))
        if period is None or inside < rules.LEAST_SAMPLES * (end - start) / period:
            return "naive"
        return "regression" if completions else "ticks"
    if counter == (method == "polled"):
        raise InputError(
            f"window: method {method!r} does not fit a trace of {trace.source}; "
            "polled is for power, the others are for the counter"
        )
    if method == "regression" and not completions:
        raise InputError(
            "window: regression needs completions, the time when each run ended"
        )
    return method  # type: ignore[return-value]


def _range(trace: Trace, idle: float | None, limit: float | None) -> PowerRange:
    """Return the range of power, stated or read off the trace."""
    if trace.source == "counter":
        # A rate between two updates that may each be off by a poll is off itself.
        found = updates_of(trace).rates()
        seen = (0.0, 1.5 * float(found.max()) if found.size else math.inf)
    else:
        found = trace.value
        seen = (float(found.min()), float(found.max())) if found.size else (0.0, 0.0)
    low = seen[0] if idle is None else idle
    high = seen[1] if limit is None else limit
    return PowerRange(low, high, idle is not None and limit is not None)


def _averaging(source: Source, stated: float | None, notes: list[str]) -> float:
    """Return the time in s that readings may be means of, with a note."""
    if stated is None:
        if source == "power_usage":
            notes.append(
                "power_usage is a mean over 1 s on Ampere (but GA100) and newer and "
                "instantaneous before: 1 s allowed for; state averaging"
            )
        stated = 0.0 if source in ("power_instant", "power_samples") else AVERAGING
    if stated > 0.0 and source != "power_usage":
        notes.append(
            f"averaging lag: readings are means over {stated:g} s; use the instant "
            f"field, or leave out the first {1.5 * stated:g} s of a load"
        )
    return stated


def _lagging(found: Estimate, averaging: float, tolerance: float) -> Estimate:
    """Refuse an energy that averaging may have moved by more than the tolerance."""
    if found.energy is None or found.lag <= tolerance * abs(found.energy):
        return found
    reason = (
        f"averaging lag: power changes within {averaging:g} s of an end of the "
        f"window, worth up to {found.lag:.4g} J of {found.energy:.4g} J; use the "
        f"instant field, or leave out {1.5 * averaging:g} s there"
    )
    return replace(found, reasons=(*found.reasons, reason))


def _unknown_period(trace: Trace) -> Estimate:
    changes = len(updates_of(trace))
    reason = (
        f"update period unknown: {changes} changes in the trace, {LEAST_CHANGES} "
        "needed; state period"
    )
    return Estimate(None, None, None, "none", 0, (reason,))
