"""Phases of a run by time stamps: gap-free, and adding up to the total (step 10)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.meter import Trace
from probcalc.measurement.rules import continuity
from probcalc.measurement.updates import period_of, updates_of
from probcalc.readonly import reduced

__all__ = ["PHASES", "Phases", "split_phases"]

FloatArray = npt.NDArray[np.float64]

# Of one run, in order; each ends where the next begins.
PHASES = ("preparation", "warm-up", "busy", "drain", "closure")


@dataclass(frozen=True, slots=True, eq=False)
class Phases:
    """Energy of each phase of a run.

    Attributes
    ----------
    names : tuple of str
    edges : FloatArray, shape (phases + 1,)
        In s; a phase ends where the next begins.
    energy : FloatArray, shape (phases,)
        In J, adding up to `total`; NaN throughout where the trace is broken.
    error : FloatArray, shape (phases,)
        Largest error in J of a phase's energy while power within an update period is
        steady: of where the updates at its ends fell.
    resolved : tuple of bool
        Whether a phase is longer than the update period; the energy of one that is
        not is its share of the update it lies in.
    reasons : tuple of str
        What breaks the trace; empty where nothing does.
    """

    names: tuple[str, ...]
    edges: FloatArray
    energy: FloatArray
    error: FloatArray
    resolved: tuple[bool, ...]
    reasons: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    @property
    def valid(self) -> bool:
        """Whether the trace is whole."""
        return not self.reasons

    @property
    def durations(self) -> FloatArray:
        """Time of each phase in s."""
        return np.diff(self.edges)

    @property
    def total(self) -> float:
        """Energy of all phases in J; NaN where the trace is broken."""
        return math.fsum(self.energy)


def split_phases(
    trace: Trace, marks: Mapping[str, float], end: float, *, period: float | None = None
) -> Phases:
    """Split a run's energy by the times at which its phases begin.

    The counter, or power integrated, is read at each mark by a straight line between
    updates, once for the phase that ends and the one that begins.

    Parameters
    ----------
    trace : Trace
    marks : mapping of str to float
        Start of each phase in s, in order, such as those of `PHASES`.
    end : float
        End of the last one in s.
    period : float, optional
        Update period in s; measured on the trace where not given.

    Raises
    ------
    InputError
        No phase, or marks out of order.
    """
    names = tuple(marks)
    if not names:
        raise InputError("phases: none given")
    edges = np.array([*marks.values(), end], dtype=float)
    if not np.all(np.isfinite(edges)):
        raise InputError("phases: marks must be finite times in s")
    for (name, a), b in zip(marks.items(), edges[1:], strict=True):
        if not b >= a:
            raise InputError(f"phases: {name!r} starts at {a:.6f} s, ends at {b:.6f} s")
    period = period_of(trace) if period is None else period
    # Errors of one end of a phase in s: half of the stretch that the update fell in.
    method = "ticks" if trace.source == "counter" else "polled"
    _, _, broken = continuity(trace, float(edges[0]), float(edges[-1]), method, period)
    times, energy, unsure = _cumulative(trace)
    if times.size < 2 or times[0] > edges[0] or times[-1] < edges[-1]:
        broken = (*broken, "updates do not bracket the run: read longer on both sides")
    if broken:
        found = error = np.full(len(names), math.nan)
    else:
        at = np.interp(edges, times, energy)
        found = np.diff(at)
        slope = np.abs(np.gradient(energy, times)) if times.size > 1 else energy
        off = np.interp(edges, times, unsure) * np.interp(edges, times, slope)
        error = off[:-1] + off[1:]
    for array in (edges, found, error):
        array.setflags(write=False)
    least = 0.0 if period is None else period
    resolved = tuple(bool(b - a >= least) for a, b in itertools.pairwise(edges))
    return Phases(names, edges, found, error, resolved, tuple(broken))


def _cumulative(trace: Trace) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return times, energy drawn by then, and how unsure each time is in s."""
    if trace.source == "counter":
        updates = updates_of(trace)
        unsure = 0.5 * (updates.latest - updates.earliest)
        return updates.time, np.asarray(updates.value), unsure
    moved = np.concatenate([[True], np.diff(trace.time) > 0.0])[: len(trace)]
    t, power = trace.time[moved], trace.value[moved]
    unsure = 0.5 * (trace.after - trace.before)[moved]
    drawn = np.diff(t) * 0.5 * (power[1:] + power[:-1])
    energy = np.concatenate([[0.0], np.cumsum(drawn)]) if t.size else np.zeros(0)
    return t, energy, unsure
