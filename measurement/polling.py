"""Polls of meters on one clock, put together as traces; failures are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from probcalc.measurement.checks import scopes_of
from probcalc.measurement.faults import InstrumentError, NoSourceError
from probcalc.measurement.meter import (
    SOURCES,
    Device,
    Meter,
    Missing,
    Reading,
    Scope,
    Source,
    Trace,
)

__all__ = ["Series", "Stream", "answering", "polled", "preferred", "run"]

# Power by preference; samples are read as a buffer.
_POWER: tuple[Source, ...] = ("power_instant", "power_usage", "power_average")

Stream = tuple[Source, Scope]


@dataclass(slots=True)
class Series:
    """Readings of one stream while they come in.

    Attributes
    ----------
    before, value, after : list of float
    missing : list of Missing
    """

    before: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def add(self, found: Reading | Missing) -> None:
        """Add what a poll found."""
        if isinstance(found, Missing):
            self.missing.append(found)
            return
        if found.source == "power_samples" and found.before <= self._last:
            return  # the newest sample is still the one before
        self.before.append(found.before)
        self.value.append(found.value)
        self.after.append(found.after)

    @property
    def _last(self) -> float:
        return self.before[-1] if self.before else -math.inf

    def trace(self, stream: Stream, interval: float | None, device: Device) -> Trace:
        """Return what has come in so far."""
        source, scope = stream
        return Trace(
            np.array(self.before, dtype=float),
            np.array(self.value, dtype=float),
            np.array(self.after, dtype=float),
            source,
            scope,
            tuple(self.missing),
            interval,
            device,
        )


def polled(read: Callable[[], Reading], now: Callable[[], float]) -> Reading | Missing:
    """Return one reading, or why there is none: whatever a driver or a meter does."""
    before = now()
    try:
        reading = read()
    except Exception as error:
        return Missing(before, now(), _reason(error))
    if not math.isfinite(reading.value):
        return Missing(before, reading.after, f"reading is {reading.value}")
    return reading


def answering(meter: Meter) -> tuple[tuple[Stream, ...], dict[Stream, str]]:
    """Return the streams of a board that answer, and why the others do not.

    Raises
    ------
    NoSourceError
        Where none answers.
    """
    good: list[Stream] = []
    bad: dict[Stream, str] = {}
    for source in SOURCES:
        for scope in scopes_of(meter.device, source):
            try:
                meter.read(source, scope)
            except InstrumentError as error:
                bad[source, scope] = str(error)
            else:
                good.append((source, scope))
    if not good:
        device = meter.device
        why = bad.get(("power_usage", "board")) or next(iter(bad.values()))
        raise NoSourceError(
            f"{device.name} ({device.uuid}): no energy source; of {len(bad)} none "
            f"answers, {why}"
        )
    return tuple(good), bad


def preferred(streams: Iterable[Stream]) -> tuple[Stream, ...]:
    """Return the counter and the best kind of power of each scope."""
    streams = tuple(streams)
    chosen = [s for s in streams if s[0] == "counter"]
    for scope in dict.fromkeys(scope for _, scope in streams):
        powers = [s for s in streams if s[1] == scope and s[0] in _POWER]
        chosen += sorted(powers, key=lambda s: _POWER.index(s[0]))[:1]
    return tuple(chosen) or streams[:1]


def run(
    poll: Callable[[], None],
    now: Callable[[], float],
    wait: Callable[[float], bool],
    interval: float,
) -> None:
    """Poll at whole intervals after the start until told to stop, and once after.

    A poll that takes longer than the interval is followed by the next whole one, not
    by a burst of late ones.

    Parameters
    ----------
    poll : callable
    now : callable
        Clock in s.
    wait : callable
        Waits for at most so many s; whether to stop.
    interval : float
        In s.
    """
    start, k = now(), 0
    while True:
        poll()
        k = max(k + 1, math.ceil((now() - start) / interval))
        if wait(start + k * interval - now()):
            break
    # What ends a window is bracketed by a reading after it.
    poll()


def _reason(error: Exception) -> str:
    if isinstance(error, InstrumentError):
        return str(error)
    return f"{type(error).__name__}: {error}"
