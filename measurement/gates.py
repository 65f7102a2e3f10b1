"""What must hold before and after a window: warm, at temperature, not throttled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.faults import InstrumentError
from probcalc.measurement.meter import Meter, Reading

__all__ = [
    "ThermalGate",
    "Throttling",
    "WarmUp",
    "dephasing_gaps",
    "is_warm",
    "needs_dephasing",
    "thermal_gate",
    "throttle_reading",
    "throttling",
    "warm_up",
]

FloatArray = npt.NDArray[np.float64]

LAST = 0.1  # part of the runs that must agree (protocol step 6)
LEAST_RUNS = 20  # so that a tenth of them is at least two


@dataclass(frozen=True, slots=True, eq=False)
class WarmUp:
    """How a warm-up went.

    Attributes
    ----------
    warm : bool
    durations : FloatArray, shape (runs,)
        In s, as they were run.
    reason : str
        Why it is not warm; empty where it is.
    """

    warm: bool
    durations: FloatArray
    reason: str = ""


def is_warm(
    durations: npt.ArrayLike, *, rise_time: float = 0.0, tolerance: float = 0.02
) -> str:
    """Return why a warm-up is not over, or an empty string.

    It is over when the last tenth of the runs agrees with the tenth before it and
    the sensor's rise time has passed (protocol step 6).

    Parameters
    ----------
    durations : array_like, shape (runs,)
        In s.
    rise_time : float
        Of the sensor, in s: 1.5 s for a mean over 1 s.
    tolerance : float
        Largest relative difference of the two medians.
    """
    times = np.asarray(durations, dtype=float)
    if times.size and not np.all(np.isfinite(times) & (times >= 0.0)):
        raise InputError("warm-up: durations must be finite times in s, >= 0")
    if times.size < LEAST_RUNS:
        return f"{times.size} runs, expected at least {LEAST_RUNS}"
    spent = float(times.sum())
    if spent < rise_time:
        return (
            f"{spent:.4g} s of load, less than the sensor's rise time {rise_time:g} s"
        )
    tenth = max(int(LAST * times.size), 2)
    last = float(np.median(times[-tenth:]))
    before = float(np.median(times[-2 * tenth : -tenth]))
    if abs(last - before) > tolerance * before:
        return (
            f"the last {tenth} runs take {last:.4g} s, the {tenth} before {before:.4g} "
            f"s, expected within {100 * tolerance:g} %"
        )
    return ""


def warm_up(
    run: Callable[[], object],
    now: Callable[[], float],
    *,
    rise_time: float = 0.0,
    tolerance: float = 0.02,
    time_limit: float = 60.0,
) -> WarmUp:
    """Run until warm, or until the time limit in s; the durations are kept.

    `run` returns when its work is done; `now` is the host's clock in s.
    """
    times: list[float] = []
    started = last = now()
    reason = "not run"
    # Asked at growing lengths: each look costs as much as the list is long.
    look = LEAST_RUNS
    while True:
        run()
        ended = now()
        times.append(ended - last)
        last = ended
        over = ended - started >= time_limit
        if len(times) >= look or over:
            reason = is_warm(times, rise_time=rise_time, tolerance=tolerance)
            look = max(len(times) + 1, int(1.1 * len(times)))
        if not reason or over:
            break
    durations = np.array(times)
    durations.setflags(write=False)
    if reason:
        reason = f"not warm after {last - started:.4g} s: {reason}"
    return WarmUp(not reason, durations, reason)


@dataclass(frozen=True, slots=True)
class ThermalGate:
    """Whether a window could start at its reference temperature.

    Attributes
    ----------
    passed : bool
    reference : float
        In degree Celsius.
    temperature : float or None
        Last one read; None where none was.
    waited : float
        In s.
    reason : str
        Why it did not pass; empty where it did.
    """

    passed: bool
    reference: float
    temperature: float | None
    waited: float
    reason: str = ""


def thermal_gate(
    meter: Meter,
    reference: float,
    *,
    tolerance: float = 1.0,
    hold: float = 5.0,
    time_limit: float = 300.0,
    interval: float = 0.25,
) -> ThermalGate:
    """Wait until the temperature has stayed near a reference, and clocks were free.

    Parameters
    ----------
    meter : Meter
    reference : float
        In degree Celsius.
    tolerance : float
        In K, either way (protocol step 7).
    hold : float
        Time in s that it must stay there without throttling.
    time_limit : float
        Time in s after which the gate fails.
    interval : float
        Time in s between looks.
    """
    begun = meter.now()
    since: float | None = None
    held = throttle_reading(meter)
    value, reason = None, "no temperature was read"
    while True:
        now = meter.now()
        try:
            value = meter.temperature().value
        except InstrumentError as error:
            since, reason = None, f"temperature not read: {error}"
        else:
            spent = throttle_reading(meter)
            clear = not throttling(held, spent).throttled
            held = spent
            if abs(value - reference) > tolerance or not clear:
                since = None
                reason = "throttled" if not clear else f"at {value:g} degree Celsius"
            elif since is None:
                since, reason = now, "not long enough at the reference"
            if since is not None and now - since >= hold:
                return ThermalGate(True, reference, value, now - begun)
        if now - begun >= time_limit:
            break
        meter.sleep(interval)
    return ThermalGate(
        False,
        reference,
        value,
        now - begun,
        f"thermal gate: {reason} after {now - begun:.4g} s, expected {reference:g} "
        f"+- {tolerance:g} degree Celsius for {hold:g} s",
    )


@dataclass(frozen=True, slots=True)
class Throttling:
    """Whether clocks were held down between two readings.

    Attributes
    ----------
    time : float or None
        Time in s that they were; None where it is not known.
    throttled : bool
        Whether they were; an unknown time is not taken as throttled.
    reason : str
        What was seen, or why nothing was.
    """

    time: float | None
    throttled: bool
    reason: str


def throttle_reading(meter: Meter) -> Reading | None:
    """Return the cumulative throttle time, or None where the board has none."""
    try:
        return meter.throttled()
    except InstrumentError:
        return None


def throttling(before: Reading | None, after: Reading | None) -> Throttling:
    """Return the time throttled between two cumulative readings (protocol step 7).

    A reading that is missing says nothing: it is not zero.
    """
    if before is None or after is None:
        return Throttling(None, False, "throttle time is not known")
    spent = after.value - before.value
    if spent < 0.0:
        return Throttling(
            None,
            False,
            f"throttle time fell from {before.value:g} to {after.value:g} s: reset",
        )
    if spent > 0.0:
        return Throttling(spent, True, f"clocks were held down for {spent:.4g} s")
    return Throttling(0.0, False, "")


def needs_dephasing(
    duration: float, period: float, reading_window: float | None
) -> bool:
    """Whether runs of a duration in s need random gaps between them (step 5).

    They do on a sensor that reads part of each period, or where that is not known,
    when they are longer than a tenth of the update period.
    """
    if not (duration > 0.0 and period > 0.0):
        raise InputError(
            f"dephasing: duration {duration!r} s and period {period!r} s, expected > 0"
        )
    full = reading_window is not None and reading_window >= 0.97 * period
    return not full and duration > 0.1 * period


def dephasing_gaps(
    runs: int, period: float, *, seed: int | np.random.Generator
) -> FloatArray:
    """Return random idle gaps in s, uniform on (0, period), one before each run.

    Their energy and time are idle power's: take them off the window's energy.
    """
    if runs < 1:
        raise InputError(f"dephasing: {runs} runs, expected at least 1")
    if not (math.isfinite(period) and period > 0.0):
        raise InputError(f"dephasing: period is {period!r} s, expected > 0")
    return np.random.default_rng(seed).uniform(0.0, period, runs)
