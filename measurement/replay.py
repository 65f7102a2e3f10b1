"""A board made from a recording: for tests and dry runs without a GPU.

What a sensor makes of the true power is the same as in the library that drives the
real pynvml in the tests: at each update the instant reading is the mean over the
reading window before it, the average one over the averaging time; a full counter
holds the integral up to the update, a part-time one takes each period's reading
window for the whole period.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from probcalc.errors import InputError
from probcalc.measurement.checks import check_power, check_scope
from probcalc.measurement.clock import Clock, HostClock, VirtualClock
from probcalc.measurement.drivererrors import driver_error
from probcalc.measurement.faults import DeviceLostError, NotSupportedError
from probcalc.measurement.meter import Device, Reading, Scope, Source
from probcalc.measurement.recording import Recording
from probcalc.readonly import ReadOnly

__all__ = ["Fault", "ReplayBoard", "ReplayMeter"]

FaultKind = Literal["error", "freeze", "set", "scale", "reset", "lost"]
_KINDS = ("error", "freeze", "set", "scale", "reset", "lost")
_GPU_IS_LOST = 15


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong for a time.

    Attributes
    ----------
    kind : {"error", "freeze", "set", "scale", "reset", "lost"}
        ``error``: the call fails with NVML error `value`. ``freeze``: it answers as
        at the start. ``set``: it answers `value` (J or W). ``scale``: power times
        `value`. ``reset``: the counter starts again from `value` J. ``lost``: the
        board is gone, and the handles taken before its return stay useless.
    start, end : float
        Replay time in s.
    call : str
        A source, "temperature", "throttled", "processes" or "*" for all.
    value : float
    """

    kind: FaultKind
    start: float
    end: float = math.inf
    call: str = "*"
    value: float = 0.0

    def __post_init__(self) -> None:
        """Check the kind and the span."""
        if self.kind not in _KINDS:
            raise InputError(
                f"fault: kind is {self.kind!r}, expected one of " + ", ".join(_KINDS)
            )
        if not self.start < self.end:
            raise InputError(
                f"fault: from {self.start:g} to {self.end:g} s, expected an end after "
                "the start"
            )


@dataclass(frozen=True, slots=True, eq=False)
class ReplayBoard:
    """A recording and the sensor that it is seen through.

    Attributes
    ----------
    recording : Recording
    uuid, name, pci_bus_id, driver : str
    period, phase : float
        Of updates, in s.
    reading_window : float
        In s, before each update.
    averaging : float
        In s; with 0 ``power_average`` is not supported.
    usage : {"average", "instant"}
        What ``power_usage`` is.
    counter : {"full", "part", "none"}
    counter_start : float
        Reading in J at replay time 0.
    power_limit : float
        In W.
    cpu_power : float or None
        In W, constant: the board is a module with a CPU, that the counter covers.
    throttled : tuple of (start, end)
        Replay times in s with clocks held down; None where it is not supported.
    processes : tuple of int
    facts : mapping
    faults : tuple of Fault
    """

    recording: Recording
    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    name: str = "Replayed board"
    pci_bus_id: str = "00000000:07:00.0"
    driver: str = "replay"
    period: float = 0.1
    phase: float = 0.0
    reading_window: float = 0.1
    averaging: float = 1.0
    usage: Literal["average", "instant"] = "average"
    counter: Literal["full", "part", "none"] = "full"
    counter_start: float = 0.0
    power_limit: float = 300.0
    cpu_power: float | None = None
    throttled: tuple[tuple[float, float], ...] | None = ()
    processes: tuple[int, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        """Check the sensor and freeze the facts."""
        for name, least in (("period", 1e-6), ("reading_window", 0.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise InputError(
                    f"replay: {name} is {value!r} s, expected a number >= {least:g}"
                )
        if self.counter not in ("full", "part", "none"):
            raise InputError(
                f"replay: counter is {self.counter!r}, expected full, part or none"
            )
        if self.usage not in ("average", "instant"):
            raise InputError(
                f"replay: usage is {self.usage!r}, expected average or instant"
            )
        object.__setattr__(self, "facts", ReadOnly(dict(self.facts)))

    @property
    def device(self) -> Device:
        """The board as a driver would describe it."""
        module: dict[str, Any] = {"module": self.cpu_power is not None}
        if self.cpu_power is not None:
            module["module_power_limit"] = self.power_limit + 2.0 * self.cpu_power
            module["usage_scope"] = "gpu"
        return Device(
            uuid=self.uuid,
            pci_bus_id=self.pci_bus_id,
            name=self.name,
            index=0,
            driver=self.driver,
            power_limit=self.power_limit,
            facts={**self.facts, **module, "replayed": True},
        )

    def update(self, t: float) -> float:
        """Return the time in s of the last update at or before t."""
        return self._updates(t) * self.period + self.phase

    def energy(self, t: float) -> float:
        """Return what the counter shows at replay time t, in J."""
        frozen = self.fault("freeze", "counter", t)
        if frozen:
            t = frozen.start
        start, joules = self.counter_start, self._counted(t)
        reset = self.fault("reset", "counter", t)
        if reset:
            start, joules = reset.value, joules - self._counted(reset.start)
        put = self.fault("set", "counter", t)
        # Whole millijoules, as a driver counts.
        return put.value if put else (round(start * 1e3) + round(joules * 1e3)) * 1e-3

    def power(self, source: str, scope: Scope, t: float) -> float:
        """Return power in W as the last update before replay time t gave it."""
        frozen = self.fault("freeze", source, t)
        if frozen:
            t = frozen.start
        averaged = source == "power_average" or (
            source == "power_usage" and self.usage == "average"
        )
        width = self.averaging if averaged else self.reading_window
        value = float(self.recording.mean(self.update(t), width))
        if scope == "module":
            value += self.cpu_power or 0.0
        scaled = self.fault("scale", source, t)
        value *= scaled.value if scaled else 1.0
        put = self.fault("set", source, t)
        return put.value if put else round(value * 1e3) * 1e-3

    def throttled_until(self, t: float) -> float:
        """Return the time in s that clocks were held down by replay time t."""
        return sum(max(min(t, end) - start, 0.0) for start, end in self.throttled or ())

    def fault(self, kind: FaultKind, call: str, t: float) -> Fault | None:
        """Return the fault of a kind that acts on a call at replay time t."""
        for fault in self.faults:
            acts = fault.kind == kind and fault.call in ("*", call)
            if acts and fault.start <= t < fault.end:
                return fault
        return None

    def _updates(self, t: float) -> int:
        # In whole nanoseconds, so that an update at t itself counts whatever the
        # rounding.
        return (round(t * 1e9) - round(self.phase * 1e9)) // round(self.period * 1e9)

    def _counted(self, t: float) -> float:
        first, last = self._updates(0.0), self._updates(t)
        seen = float(_counts(self)(last) - _counts(self)(first))
        return seen + (self.cpu_power or 0.0) * (last - first) * self.period


@lru_cache(maxsize=64)
def _counts(board: ReplayBoard) -> Any:
    """Return the counter in J as a function of the number of the update."""
    recording, period, phase = board.recording, board.period, board.phase
    if board.counter != "part":
        return lambda k: recording.energy(k * period + phase)
    first = board._updates(0.0)
    # Power is constant two periods after the end of the recording.
    last = max(board._updates(float(recording.time[-1])) + 2, first) + math.ceil(
        board.reading_window / period
    )
    at = np.arange(first + 1, last + 1) * period + phase
    sums = np.cumsum(recording.mean(at, board.reading_window) * period)
    joules = np.concatenate([[0.0], sums])
    rest = float(recording.power[-1]) * period

    def counted(k: int) -> float:
        return float(joules[min(k, last) - first]) + rest * max(k - last, 0)

    return counted


class ReplayMeter:
    """Reads a replayed board.

    Parameters
    ----------
    board : ReplayBoard
    clock : Clock, optional
        Virtual unless given: `sleep` moves it on. Meters that are to run together
        share one.
    origin : float, optional
        Time of that clock in s that is replay time 0; now, unless given.
    call_cost : float
        Time in s that every reading takes.

    Examples
    --------
    >>> steady = Recording(np.array([0.0, 20.0]), np.array([200.0, 200.0]))
    >>> meter = ReplayMeter(ReplayBoard(steady))
    >>> meter.sleep(10.0)
    >>> meter.read("counter").value
    2000.0
    """

    __slots__ = (
        "_clock",
        "_device",
        "_lost",
        "_origin",
        "_taken",
        "board",
        "call_cost",
    )

    def __init__(
        self,
        board: ReplayBoard,
        clock: Clock | None = None,
        origin: float | None = None,
        call_cost: float = 0.0,
    ) -> None:
        self.board = board
        self._device = board.device
        self.call_cost = call_cost
        self._clock: Clock = VirtualClock() if clock is None else clock
        self._origin = self._clock.now() if origin is None else origin
        self._taken = self._replay_time()  # when the handle was taken
        self._lost = False

    @classmethod
    def from_csv(
        cls, path: str | Path, *, real_time: bool = False, **sensor: Any
    ) -> ReplayMeter:
        """Open a recording; keywords are those of `ReplayBoard`."""
        clock = HostClock() if real_time else VirtualClock()
        return cls(ReplayBoard(Recording.from_csv(path), **sensor), clock)

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the same board at the same time again, in another process too."""
        return ReplayMeter, (self.board, self._clock, self._origin, self.call_cost)

    @property
    def virtual(self) -> bool:
        """Whether time passes only in `sleep`, in this process alone."""
        return isinstance(self._clock, VirtualClock)

    @property
    def clock(self) -> Clock:
        """That readings are stamped with."""
        return self._clock

    @property
    def device(self) -> Device:
        """The board that is read."""
        return self._device

    def now(self) -> float:
        """Return the clock in s."""
        return self._clock.now()

    def sleep(self, duration: float) -> None:
        """Let `duration` s pass."""
        self._clock.sleep(duration)

    def read(self, source: Source, scope: Scope = "board") -> Reading:
        """Return energy in J, or power in W; raises as `NvmlMeter.read`."""
        check_scope(self._device, source, scope)
        before, t = self._asked(source)
        board = self.board
        if (
            source == "power_samples"
            or scope == "memory"
            or (source == "counter" and board.counter == "none")
            or (source == "power_average" and board.averaging <= 0.0)
        ):
            raise driver_error(3, f"{board.uuid}: {source}, scope {scope}")
        if source == "counter":
            value = board.energy(t)
        else:
            value = board.power(source, scope, t)
            check_power(self._device, value, source, scope)
        return Reading(before, value, self.now(), source, scope)

    def temperature(self) -> Reading:
        """Return the chip's temperature in degree Celsius, in whole degrees."""
        before, t = self._asked("temperature")
        value = self.board.recording.temperature_at(self.board.update(t))
        return Reading(before, float(round(value)), self.now(), "temperature")

    def throttled(self) -> Reading:
        """Return the cumulative time in s that clocks were held down."""
        before, t = self._asked("throttled")
        if self.board.throttled is None:
            raise NotSupportedError(f"{self.board.uuid}: throttle times not supported")
        value = self.board.throttled_until(t)
        return Reading(before, value, self.now(), "throttled")

    def processes(self) -> tuple[int, ...]:
        """Return the ids of the compute processes on the board."""
        self._asked("processes")
        return self.board.processes

    def close(self) -> None:
        """Nothing to let go."""

    def _replay_time(self) -> float:
        return self._clock.now() - self._origin

    def _asked(self, call: str) -> tuple[float, float]:
        """Return the clock and the replay time of a call, or fail as one is to."""
        before = self.now()
        if self.call_cost:
            self.sleep(self.call_cost)
        t = self._replay_time()
        where = f"{self.board.uuid}: {call}"
        if self._lost and self.board.fault("lost", "*", t) is None:
            self._lost, self._taken = False, t
        for fault in self.board.faults:
            stale = (
                fault.kind == "lost" and fault.start <= t and self._taken < fault.end
            )
            if stale:
                self._lost = True
                raise driver_error(_GPU_IS_LOST, where)
        failed = self.board.fault("error", call, t)
        if failed:
            error = driver_error(int(failed.value), where)
            self._lost = isinstance(error, DeviceLostError)
            raise error
        return before, t
