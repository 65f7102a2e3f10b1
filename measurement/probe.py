"""What a board's instruments are worth: which answer, move, and how often (step 1)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from probcalc.errors import InputError
from probcalc.measurement.faults import InstrumentError
from probcalc.measurement.meter import Device, Meter, Scope, Source, Trace
from probcalc.measurement.polling import (
    Series,
    Stream,
    answering,
    polled,
    preferred,
    run,
)
from probcalc.measurement.sensors import averaging_of, known_averaging, known_window
from probcalc.measurement.updates import LEAST_CHANGES, period_of, updates_of

__all__ = ["Probe", "SourceProbe", "probe"]


@dataclass(frozen=True, slots=True)
class SourceProbe:
    """One source of energy or power in one scope.

    Attributes
    ----------
    source : Source
    scope : Scope
    answers, moves : bool
        Whether it gave readings, and whether they changed (a counter: rose).
    reason : str or None
        Why it is not to be used; None where it is.
    period : float or None
        Update period in s; None where unknown, as `period_note` says.
    changes, readings, failures : int
        That were seen.
    rate, largest_gap : float or None
        Achieved readings a second, longest time in s between two.
    call_cost : float or None
        Median time in s that a reading takes.
    averaging : float or None
        Time in s that a reading is a mean of, so that it lags; None where unknown.
    averaging_from : {"measured", "published", "unknown"}
    reading_window : float or None
        Part of each period in s that is read at all; published for the kind of
        board, never measured here. None where unknown.
    """

    source: Source
    scope: Scope
    answers: bool
    moves: bool = False
    reason: str | None = None
    period: float | None = None
    period_note: str | None = None
    changes: int = 0
    readings: int = 0
    failures: int = 0
    rate: float | None = None
    largest_gap: float | None = None
    call_cost: float | None = None
    averaging: float | None = None
    averaging_from: str = "unknown"
    reading_window: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """What the instruments of a board are worth; kept with every signature.

    Attributes
    ----------
    device : Device
        With driver, VBIOS, clocks, limits, persistence, MIG and ECC mode in its facts.
    loaded : bool
        Whether a load was run meanwhile; power that stands still without one may be
        well.
    duration, interval : float
        Of polling, and between polls as asked, in s.
    sources : tuple of SourceProbe
    temperature, throttled, processes : str
        "answers", or why not.
    """

    device: Device
    loaded: bool
    duration: float
    interval: float
    sources: tuple[SourceProbe, ...]
    temperature: str
    throttled: str
    processes: str

    @property
    def usable(self) -> tuple[SourceProbe, ...]:
        """Sources that answer and move, by preference: the counter first."""
        good = [s for s in self.sources if s.answers and s.moves]
        first = preferred((s.source, s.scope) for s in good)
        return tuple(sorted(good, key=lambda s: (s.source, s.scope) not in first))

    def source(self, source: Source, scope: Scope = "board") -> SourceProbe | None:
        """Return what is known of one source, or None where the board has it not."""
        for found in self.sources:
            if (found.source, found.scope) == (source, scope):
                return found
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return numbers, texts, lists and dictionaries only, ready for JSON."""
        device = {
            name: getattr(self.device, name)
            for name in ("uuid", "pci_bus_id", "name", "index", "driver", "power_limit")
        }
        return {
            "device": device | {"facts": dict(self.device.facts)},
            "loaded": self.loaded,
            "duration": self.duration,
            "interval": self.interval,
            "sources": [asdict(source) for source in self.sources],
            "temperature": self.temperature,
            "throttled": self.throttled,
            "processes": self.processes,
        }

    def __str__(self) -> str:
        """Return a table for people, with units."""
        device = self.device
        limit = "unknown" if device.power_limit is None else f"{device.power_limit:g} W"
        load = "under load" if self.loaded else "no load given"
        lines = [
            f"{device.name}  {device.uuid}  {device.pci_bus_id}",
            f"driver {device.driver}, power limit {limit}",
            f"{load}, polled for {self.duration:.3g} s",
        ]
        facts = [f"{name} {value}" for name, value in device.facts.items()]
        lines += [", ".join(facts)] if facts else []
        lines += [_line(source) for source in self.sources]
        for name in ("temperature", "throttled", "processes"):
            lines.append(f"{name:15s} {getattr(self, name)}")
        return "\n".join(lines)


def probe(
    meter: Meter,
    load: Callable[[], object] | None = None,
    *,
    duration: float = 8.0,
    interval: float = 0.005,
) -> Probe:
    """Find out what the instruments of a board are worth.

    Parameters
    ----------
    meter : Meter
    load : callable, optional
        Run once meanwhile in a thread of its own. Without one the board is taken as
        it is, and what does not move may only be idle.
    duration : float
        Least time of polling in s, longer where the load takes longer; 30 changes of
        a source that is updated every 0.1 s take 3 s.
    interval : float
        Between polls in s; at most half the shortest update period.

    Returns
    -------
    Probe

    Raises
    ------
    NoSourceError
        Where no source answers.
    InputError
        Times that are not > 0; a load with a meter on a virtual clock.
    """
    for name, value in (("duration", duration), ("interval", interval)):
        if not (math.isfinite(value) and value > 0.0):
            raise InputError(f"probe: {name} is {value!r} s, expected a number > 0")
    if load is not None and getattr(meter, "virtual", False):
        raise InputError("probe: a virtual clock cannot time a load; leave load out")
    streams, silent = answering(meter)
    start = meter.now()
    traces = _polled(meter, streams, load, duration, interval)
    found = [_judged(meter.device, trace, traces) for trace in traces.values()]
    found += [SourceProbe(*s, answers=False, reason=why) for s, why in silent.items()]
    return Probe(
        device=meter.device,
        loaded=load is not None,
        duration=meter.now() - start,
        interval=interval,
        sources=tuple(found),
        temperature=_answer(meter.temperature),
        throttled=_answer(meter.throttled),
        processes=_answer(meter.processes),
    )


def _period(trace: Trace) -> tuple[float | None, str | None]:
    """Return the update period in s, or why it is unknown."""
    period = period_of(trace)
    if period is not None:
        return period, None
    changes = len(updates_of(trace))
    if changes <= LEAST_CHANGES:
        return None, f"unknown: {changes} changes, more than {LEAST_CHANGES} needed"
    gap = float(np.median(np.diff(trace.time)))
    return None, f"unknown: polls {gap:.3g} s apart show themselves"


def _polled(
    meter: Meter,
    streams: tuple[Stream, ...],
    load: Callable[[], object] | None,
    duration: float,
    interval: float,
) -> dict[Stream, Trace]:
    """Poll all streams while the load runs, at least for the duration."""
    series = {stream: Series() for stream in streams}
    failed: list[BaseException] = []
    thread = None
    if load is not None:
        thread = threading.Thread(target=_run, args=(load, failed), daemon=True)
        thread.start()
    end = meter.now() + duration

    def poll() -> None:
        for source, scope in streams:
            found = polled(lambda s=source, c=scope: meter.read(s, c), now)
            series[source, scope].add(found)

    def wait(time: float) -> bool:
        meter.sleep(max(time, 0.0))
        busy = thread is not None and thread.is_alive()
        return bool(failed) or (now() >= end and not busy)

    now = meter.now
    run(poll, now, wait, interval)
    if thread is not None:
        thread.join()
    if failed:
        raise failed[0]
    device = meter.device
    return {stream: s.trace(stream, interval, device) for stream, s in series.items()}


def _run(load: Callable[[], object], failed: list[BaseException]) -> None:
    try:
        load()
    except BaseException as error:
        failed.append(error)


def _judged(device: Device, trace: Trace, traces: dict[Stream, Trace]) -> SourceProbe:
    """Return what a trace tells of its source."""
    changes = len(updates_of(trace))
    moves = changes > 0
    if trace.source == "counter":
        moves = len(trace) > 1 and bool(trace.value[-1] > trace.value[0])
    period, note = _period(trace)
    averaging, origin = None, "unknown"
    if trace.source != "counter":
        averaging, origin = _averaging(device, trace, traces)
    rate, gap = trace.rate, trace.largest_gap
    return SourceProbe(
        source=trace.source,
        scope=trace.scope,
        answers=bool(len(trace)),
        moves=moves,
        reason=None if moves else "source does not move",
        period=period,
        period_note=note,
        changes=changes,
        readings=len(trace),
        failures=len(trace.missing),
        rate=rate if math.isfinite(rate) else None,
        largest_gap=gap if math.isfinite(gap) else None,
        call_cost=float(np.median(trace.after - trace.before)) if len(trace) else None,
        averaging=averaging,
        averaging_from=origin,
        reading_window=known_window(device, trace.source, period),
    )


def _averaging(
    device: Device, trace: Trace, traces: dict[Stream, Trace]
) -> tuple[float | None, str]:
    """Return the averaging time of a source in s, and where it is known from."""
    instant = traces.get(("power_instant", trace.scope))
    if instant is not None and trace.source in ("power_average", "power_usage"):
        measured = averaging_of(trace, instant)
        if measured is not None:
            return measured, "measured"
    published = known_averaging(device, trace.source)
    return published, "unknown" if published is None else "published"


def _answer(ask: Callable[[], object]) -> str:
    try:
        ask()
    except InstrumentError as error:
        return str(error)
    return "answers"


def _line(source: SourceProbe) -> str:
    name = f"{source.source} ({source.scope})"
    if source.reason is not None:
        return f"{name:24s} {source.reason}"
    period = source.period_note if source.period is None else f"{source.period:.4g} s"
    parts = [f"update period {period}"]
    if source.rate is not None:
        parts.append(f"{source.rate:.4g} readings a second")
    if source.averaging is not None:
        parts.append(f"mean over {source.averaging:g} s ({source.averaging_from})")
    if source.reading_window is not None:
        parts.append(f"reads {source.reading_window:.3g} s of each (published)")
    return f"{name:24s} " + ", ".join(parts)
