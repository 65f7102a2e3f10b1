"""Polls of all boards in a process of their own, on the clock that all share.

What is read goes to a file as it comes, so that it can be looked at meanwhile and
neither side waits for the other. The process ends with its parent.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from probcalc.errors import InputError
from probcalc.measurement.faults import InstrumentError
from probcalc.measurement.meter import Meter, Missing, Trace
from probcalc.measurement.polling import Stream, answering, polled, preferred, run
from probcalc.measurement.records import Log, Records, Watch

__all__ = ["Sampler", "Watch"]

_STARTS_WITHIN = 60.0  # s; a driver without persistence mode takes long to load
_STOPS_WITHIN = 30.0  # s
_CODE = (
    "import sys; sys.path[:] = {path!r}; "
    "from probcalc.measurement.sampler import _serve; _serve()"
)


@dataclass(frozen=True, slots=True)
class _Task:
    meters: tuple[Meter, ...]
    interval: float
    sources: tuple[Stream, ...] | None
    watch: float


class Sampler:
    """Polls meters in another process from entering to leaving.

    Parameters
    ----------
    meters : sequence of Meter
        One a board; a board that comes twice (by its MIG instances) is read once. They
        are opened again in the other process. Meters on a virtual clock are polled
        here instead, for as long as their clock has moved.
    interval : float
        Asked time between polls in s; `Trace.rate` tells what was achieved.
    sources : sequence of (source, scope), optional
        The counter and the best kind of power of each scope, unless given.
    watch : float
        Time in s between readings of temperature, throttle time and processes.

    Raises
    ------
    InstrumentError
        On entering: a meter that does not open, a board of which no source answers
        (`NoSourceError`). On leaving, and when asked for traces: the process ended
        early, and with it the windows measured meanwhile.

    Examples
    --------
    >>> import numpy as np
    >>> from probcalc.measurement.recording import Recording
    >>> from probcalc.measurement.replay import ReplayBoard, ReplayMeter
    >>> steady = Recording(np.array([0.0, 9.0]), np.array([200.0, 200.0]))
    >>> meter = ReplayMeter(ReplayBoard(steady))
    >>> with Sampler([meter], interval=0.02) as sampler:
    ...     meter.sleep(2.0)
    >>> counter, power = sampler.traces()[meter.device.uuid]
    >>> counter.source, power.source, len(counter)
    ('counter', 'power_instant', 101)
    """

    def __init__(
        self,
        meters: Sequence[Meter],
        *,
        interval: float = 0.01,
        sources: Sequence[Stream] | None = None,
        watch: float = 1.0,
    ) -> None:
        for name, value in (("interval", interval), ("watch", watch)):
            if not (math.isfinite(value) and value > 0.0):
                raise InputError(
                    f"sampler: {name} is {value!r} s, expected a number > 0"
                )
        boards = {m.device.uuid: m for m in meters}
        if not boards:
            raise InputError("sampler: no meters, expected at least one")
        clocks = {_virtual_clock(m) for m in boards.values()}
        if len(clocks) > 1:
            raise InputError("sampler: the meters are on different clocks")
        wanted = None if sources is None else tuple(sources)
        self._task = _Task(tuple(boards.values()), interval, wanted, watch)
        self._virtual = clocks != {None}
        self._work: _Here | _Away | None = None

    def __enter__(self) -> Sampler:
        """Start; returns when every stream has been read for the first time."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; an early end of the process is raised unless something else was."""
        try:
            self.stop()
        except InstrumentError:
            if kind is None:
                raise

    def start(self) -> None:
        """Start polling."""
        if self._work is not None:
            raise InputError("sampler: was started before; make a new one")
        self._work = (_Here if self._virtual else _Away)(self._task)

    def stop(self) -> Mapping[str, tuple[Trace, ...]]:
        """Stop after one last reading, and return the traces."""
        self._started().stop()
        return self.traces()

    def check(self) -> None:
        """Raise where the polls have ended early."""
        self._started().check()

    def traces(self) -> Mapping[str, tuple[Trace, ...]]:
        """Return what has been read of each board by UUID, one trace a stream."""
        records, task = self._started().records(), self._task
        return {
            m.device.uuid: records.traces(m.device, task.interval) for m in task.meters
        }

    def watched(self) -> Mapping[str, Watch]:
        """Return temperatures, throttle times and processes of each board by UUID."""
        records = self._started().records()
        return {m.device.uuid: records.watch(m.device.uuid) for m in self._task.meters}

    def _started(self) -> _Here | _Away:
        if self._work is None:
            raise InputError("sampler: not started")
        return self._work


class _Here:
    """Polls of meters on a virtual clock, made up for when they are asked for."""

    def __init__(self, task: _Task) -> None:
        self._now = task.meters[0].now
        # All in one, so that the copies share a copy of the clock as it stands.
        self._start = pickle.dumps(task)
        self._end: float | None = None
        self.records()

    def check(self) -> None:
        """Nothing that could end early."""

    def stop(self) -> None:
        self._end = self._now() if self._end is None else self._end

    def records(self) -> Records:
        task: _Task = pickle.loads(self._start)
        end = self._now() if self._end is None else self._end
        records, meter = Records(), task.meters[0]

        def wait(time: float) -> bool:
            meter.sleep(max(time, 0.0))
            return meter.now() >= end

        run(_Polls(task, records), meter.now, wait, task.interval)
        return records


class _Away:
    """The other process, and the file that it fills."""

    def __init__(self, task: _Task) -> None:
        self._records: Records | None = None
        self._failure: str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="probcalc-sampler-")
        self._path = Path(self._folder.name)
        with (self._path / "errors").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE.format(path=sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Ctrl-C is for the parent, which then closes this one's input.
                start_new_session=True,
            )
        try:
            self._send(pickle.dumps((task, self._path / "readings")))
            refused = self._answer()
        except BaseException:
            self._close()
            raise
        if refused is not None:
            self._close()
            raise refused

    def check(self) -> None:
        if self._failure is None and self._records is None:
            status = self._process.poll()
            if status is not None:
                self._failure = f"its process ended early with status {status}"
                self._failure += self._said()
        if self._failure is not None:
            raise InstrumentError(
                f"sampler: {self._failure}; the windows measured meanwhile are lost"
            )

    def records(self) -> Records:
        self.check()
        if self._records is not None:
            return self._records
        return Records.read(self._path / "readings")

    def stop(self) -> None:
        if self._records is not None:
            return
        try:
            self.check()
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                status = self._process.wait(_STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                self._failure = f"a reading took longer than {_STOPS_WITHIN:g} s"
            else:
                if status:
                    self._failure = f"its process failed with status {status}"
                    self._failure += self._said()
                else:
                    self._records = Records.read(self._path / "readings")
            self.check()
        finally:
            self._close()

    def _send(self, task: bytes) -> None:
        assert self._process.stdin is not None
        # Where it has ended already, the answer tells.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(struct.pack("<Q", len(task)) + task)
            self._process.stdin.flush()

    def _answer(self) -> BaseException | None:
        """Return None once all streams have been read, or why they are not."""
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], _STARTS_WITHIN)[0]:
            return InstrumentError(
                f"sampler: no first reading within {_STARTS_WITHIN:g} s"
            )
        said = out.read()
        if said:
            return pickle.loads(said)
        status = self._process.wait(_STOPS_WITHIN)
        return InstrumentError(
            f"sampler: its process did not start, status {status}{self._said()}"
        )

    def _said(self) -> str:
        """Return the last line that the process wrote before it ended."""
        text = (self._path / "errors").read_text(errors="replace").strip()
        return f" ({text.splitlines()[-1]})" if text else ""

    def _close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._folder.cleanup()


class _Polls:
    """One poll of every stream of every board, and now and then of the rest."""

    def __init__(self, task: _Task, log: Records | Log) -> None:
        self._log = log
        self._watch = task.watch
        self._watched = -math.inf
        self._boards = [
            (m, m.device.uuid, task.sources or preferred(answering(m)[0]))
            for m in task.meters
        ]

    def __call__(self) -> None:
        for meter, uuid, streams in self._boards:
            for source, scope in streams:
                found = polled(
                    lambda m=meter, s=source, c=scope: m.read(s, c), meter.now
                )
                self._log.add((uuid, source, scope), found)
        now = self._boards[0][0].now()
        if now - self._watched >= self._watch:
            self._watched = now
            for meter, uuid, _ in self._boards:
                self._look(meter, uuid)
        self._log.flush()

    def _look(self, meter: Meter, uuid: str) -> None:
        for name, read in (
            ("temperature", meter.temperature),
            ("throttled", meter.throttled),
        ):
            self._log.add((uuid, name, "board"), polled(read, meter.now))
        now = meter.now()
        try:
            self._log.saw(uuid, meter.processes())
        except InstrumentError as error:
            missing = Missing(now, meter.now(), str(error))
            self._log.add((uuid, "processes", "board"), missing)


def _virtual_clock(meter: Meter) -> int | None:
    """Return which virtual clock a meter is on, or None for the host's."""
    virtual = bool(getattr(meter, "virtual", False))
    clock: Any = getattr(meter, "clock", None)
    return id(clock) if virtual else None


def _serve() -> None:
    """Poll as the parent says, until it closes our input or ends."""
    # What a driver prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    (size,) = struct.unpack("<Q", sys.stdin.buffer.read(8))
    asked = sys.stdin.buffer.read(size)
    try:
        task, path = pickle.loads(asked)
        polls = _Polls(task, Log(path))
        polls()
    except Exception as error:
        answers.write(pickle.dumps(error))
        answers.close()
        return
    answers.write(pickle.dumps(None))
    answers.close()

    def wait(time: float) -> bool:
        return bool(select.select([0], [], [], max(time, 0.0))[0])

    run(polls, task.meters[0].now, wait, task.interval)
    for meter in task.meters:
        meter.close()
