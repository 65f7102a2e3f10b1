"""When a window counts: the rules of protocol steps 3 and 4, each with its reason."""

from __future__ import annotations

import math

import numpy as np

from probcalc.measurement.meter import Trace
from probcalc.measurement.updates import updates_of

__all__ = ["LEAST_SAMPLES", "continuity", "long_enough", "plausible", "still"]

# Shortest windows in update periods, and energy in idle powers and limits.
LEAST_PERIODS = {"naive": 50.0, "ticks": 10.0, "regression": 10.0}
LOWEST, HIGHEST = 0.2, 1.5
# Samples per update, less what the jitter of a poll at exactly P/2 takes off.
#: s; updates come every 10 to 100 ms on the boards that were measured.
UNKNOWN = 1.0
#: Half-width relative to the energy above which a window is not used.
WIDEST = 0.5
LEAST_SAMPLES = 2.0 * 0.98
# A gap within a trace, in periods: a power update is missed, or the counter was away.
GAP = {"counter": 3.0, "power": 1.5}


def still(trace: Trace, start: float, end: float, period: float | None) -> bool:
    """Tell whether a counter stood still for longer than its updates can explain."""
    if trace.source != "counter" or len(trace) < 2:
        return False
    near = (trace.time >= start) & (trace.time <= end)
    if np.count_nonzero(near) < 2 or np.ptp(trace.value[near]) > 0.0:
        return False
    seen = float(np.ptp(trace.time[near]))
    return not len(updates_of(trace)) if period is None else seen > 2.0 * period


def continuity(
    trace: Trace, start: float, end: float, method: str, period: float | None
) -> tuple[float, float, tuple[str, ...]]:
    """Return rate and largest gap in the window, and what breaks it."""
    time = trace.time
    first = max(int(np.searchsorted(time, start, side="right")) - 1, 0)
    near = slice(first, int(np.searchsorted(time, end, side="left")) + 1)
    t, value = time[near], trace.value[near]
    gaps = np.diff(t)
    if not gaps.size:
        return math.nan, math.nan, (*_failed(trace, start, end),)
    reasons = []
    falls = np.flatnonzero(np.diff(value) < 0.0) if trace.source == "counter" else []
    if len(falls):
        i = int(falls[0])
        reasons.append(
            f"counter decreased from {value[i]:.10g} J to {value[i + 1]:.10g} J: reset"
        )
    widest = int(np.argmax(gaps))
    gap = float(gaps[widest])
    if period is None:
        allowed = 5.0 * float(np.median(gaps))
    else:
        allowed = GAP["power" if method == "polled" else "counter"] * period
    failed = _failed(trace, float(t[widest]), float(t[widest + 1]))
    # Between the two readings of a plain difference nothing needs to be seen, unless
    # the driver was asked and did not answer.
    if gap > allowed and (method != "naive" or failed):
        why = f"; {failed[0]}" if failed else ""
        reasons.append(f"gap of {gap:.4g} s, expected at most {allowed:.4g} s{why}")
    span = float(t[-1] - t[0])
    return (gaps.size / span if span > 0.0 else math.nan), gap, tuple(reasons)


def _failed(trace: Trace, start: float, end: float) -> tuple[str, ...]:
    """Return the first failed read between two times, in words."""
    for miss in trace.missing:
        if miss.before < end and miss.after > start:
            return (f"read failed at {miss.before:.6g} s: {miss.reason}",)
    return ()


def long_enough(
    method: str,
    duration: float,
    period: float | None,
    least: float | None,
    rate: float,
    notes: list[str],
) -> tuple[str, ...]:
    """Check length and sampling against the update period (steps 3 and 4)."""
    if period is None:
        if method == "polled":
            notes.append("update period unknown: samples per update not checked")
            if duration < UNKNOWN * (1.0 - 1e-9):
                short = f"window of {duration:.4g} s and update period unknown"
                return (f"{short}, expected {UNKNOWN:g} s: ten of the longest seen",)
        return ()
    reasons = []
    if duration < period:
        reasons.append("window shorter than update period")
    needed = LEAST_PERIODS.get(method, 0.0) if least is None else least
    # A window of exactly ten periods is one, whatever its rounding.
    if duration < needed * period * (1.0 - 1e-9):
        reasons.append(
            f"window of {duration:.4g} s is {duration / period:.3g} update periods, "
            f"expected {needed:g} for {method}"
        )
    if method == "polled" and not rate * period >= LEAST_SAMPLES:
        reasons.append(
            f"{rate * period:.3g} samples an update at {rate:.4g} a second, expected 2"
        )
    return tuple(reasons)


def telling(
    energy: float | None, lower: float | None, upper: float | None
) -> tuple[str, ...]:
    """Check that the interval is narrower than the energy itself."""
    if energy is None or lower is None or upper is None:
        return ()
    half = 0.5 * (upper - lower)
    if not math.isfinite(half) or half <= WIDEST * abs(energy):
        return ()
    return (f"interval of ± {half:.4g} J around {energy:.4g} J tells too little",)


def plausible(
    energy: float | None, duration: float, idle: float | None, limit: float | None
) -> tuple[str, ...]:
    """Check the energy against idle power and power limit (step 3)."""
    if energy is None:
        return ()
    low = -math.inf if idle is None else LOWEST * idle * duration
    high = math.inf if limit is None else HIGHEST * limit * duration
    if low <= energy <= high:
        return ()
    return (f"energy {energy:.6g} J is outside [{low:.6g}, {high:.6g}] J",)
