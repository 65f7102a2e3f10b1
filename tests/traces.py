"""Traces of a known load, as an instrument would have shown it.

The truth of every window is the load's own integral, so every estimator has a known
error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.measurement.meter import Source, Trace

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """True power in W, constant between edges in s; the outer values go on for ever."""

    edges: FloatArray
    power: FloatArray

    def energy(self, t: Any) -> Any:
        """Integral of power from the first edge to t, in J."""
        known = np.concatenate(
            [[0.0], np.cumsum(self.power[1:-1] * np.diff(self.edges))]
        )
        inside = np.interp(t, self.edges, known)
        before = np.minimum(np.asarray(t) - self.edges[0], 0.0) * self.power[0]
        after = np.maximum(np.asarray(t) - self.edges[-1], 0.0) * self.power[-1]
        return inside + before + after

    def mean(self, t: FloatArray, width: float) -> FloatArray:
        """Mean power in W over the `width` s before t."""
        return (self.energy(t) - self.energy(t - width)) / width


def steps(*stretches: tuple[float, float], start: float = 0.0) -> Load:
    """Power in W for a time in s each, one after the other, from `start` on."""
    power = np.array([w for w, _ in stretches])
    edges = start + np.concatenate([[0.0], np.cumsum([t for _, t in stretches])])
    return Load(edges, np.concatenate([[power[0]], power, [power[-1]]]))


@dataclass(frozen=True)
class Work:
    """Runs one after the other between idle times, and when each was done."""

    load: Load
    start: float
    completions: FloatArray
    energy: FloatArray  # J of each run, gaps left out

    @property
    def end(self) -> float:
        return float(self.completions[-1])


def work(
    durations: FloatArray,
    profile: list[tuple[float, float]],
    *,
    idle: float,
    start: float = 0.0,
    gaps: FloatArray | None = None,
) -> Work:
    """Runs with a profile of (power in W, share of the run), after gaps in s."""
    gaps = np.zeros(durations.size) if gaps is None else gaps
    watts = np.array([w for w, _ in profile])
    shares = np.array([s for _, s in profile])
    lengths = np.column_stack([gaps, durations[:, None] * shares]).ravel()
    power = np.tile(np.concatenate([[idle], watts]), durations.size)
    edges = start + np.concatenate([[0.0], np.cumsum(lengths)])
    load = Load(edges, np.concatenate([[idle], power, [idle]]))
    done = start + np.cumsum(gaps + durations)
    return Work(load, start, done, durations * float(watts @ shares))


def _polls(start: float, end: float, every: float, rng: Any) -> FloatArray:
    t = np.arange(start, end, every)
    if rng is not None:
        t = t + rng.uniform(0.0, 0.2 * every, t.size)
    return t


def _latest(t: FloatArray, period: float, phase: float) -> FloatArray:
    """Time of the last update at or before t."""
    return phase + np.floor((t - phase) / period + 1e-9) * period


def counter_trace(
    load: Load,
    start: float,
    end: float,
    *,
    period: float = 0.1,
    phase: float = 0.0,
    poll: float = 2e-3,
    cost: float = 0.0,
    reading_window: float | None = None,
    rng: Any = None,
) -> Trace:
    """Counter in whole mJ that is brought up to date every period.

    With a reading window shorter than the period it adds, for each period, the mean
    power of the window times the period.
    """
    t = _polls(start, end, poll, rng)
    at = _latest(t + 0.5 * cost, period, phase)
    if reading_window is None:
        value = load.energy(at)
    else:
        first = float(at[0])
        count = np.rint((at - first) / period).astype(int)
        updates = first + period * np.arange(count[-1] + 1)
        read = load.mean(updates, reading_window) * period
        value = np.cumsum(read)[count]
    value = 1000.0 + np.floor((value - value[0]) * 1e3) * 1e-3
    return Trace(t, value, t + cost, "counter", interval=poll)


def power_trace(
    load: Load,
    start: float,
    end: float,
    *,
    period: float = 0.1,
    phase: float = 0.0,
    poll: float = 1e-2,
    width: float | None = None,
    source: Source = "power_instant",
    rng: Any = None,
) -> Trace:
    """Power read over the `width` s before each update and repeated until the next.

    `width` is the period unless given: less on a part-time sensor, 1 s for a mean.
    """
    t = _polls(start, end, poll, rng)
    at = _latest(t, period, phase)
    value = load.mean(at, period if width is None else width)
    # A driver gives whole milliwatts.
    return Trace(t, np.rint(value * 1e3) * 1e-3, t, source, interval=poll)
