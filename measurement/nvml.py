"""NVIDIA boards through NVML: the one module that imports pynvml.

Milliwatts, millijoules and nanoseconds end here; everything above is in W, J and s.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from probcalc.measurement.boards import (
    AVERAGE,
    ENERGY,
    INSTANT,
    SCOPES,
    described,
    field_value,
    instances,
)
from probcalc.measurement.checks import check_power, check_scope
from probcalc.measurement.clock import Clock, HostClock, host_offsets, offset_among
from probcalc.measurement.drivererrors import driver_error
from probcalc.measurement.faults import (
    DeviceLostError,
    DriverMissingError,
    InstrumentError,
    NoDeviceError,
    NotReadyError,
    NotSupportedError,
    OutOfRangeError,
)
from probcalc.measurement.meter import (
    Device,
    Missing,
    Reading,
    Scope,
    Source,
    Trace,
)

__all__ = ["NvmlMeter", "devices", "driver_error", "mig_instances"]

# Fields with the time in ns that clocks were held down: software power cap, software
# and hardware thermal slowdown, power brake.
_THROTTLE: tuple[int, ...] = (74, 269, 270, 271)
_PCI = re.compile(r"(?:[0-9a-f]{8}|[0-9a-f]{4}):[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.I)


def devices() -> tuple[Device, ...]:
    """Return all boards in the driver's order, whatever CUDA_VISIBLE_DEVICES says.

    A board that cannot be asked for its name is left out with a warning.

    Raises
    ------
    DriverMissingError
        Without a driver.
    InstrumentError
        Where there are boards and not one of them answers.
    """
    found, failed = [], []
    with _driver():
        for where, handle in _handles(failed):
            try:
                found.append(described(_ask, handle, where))
            except InstrumentError as error:
                failed.append(error)
    if failed and not found:
        raise failed[0]
    for error in failed:
        warnings.warn(f"left out: {error}", stacklevel=2)
    return tuple(found)


def mig_instances() -> dict[str, str]:
    """Return the UUID of each MIG instance, with that of its parent board.

    A board that cannot be asked is left out with a warning.
    """
    found: dict[str, str] = {}
    failed: list[InstrumentError] = []
    with _driver():
        for where, handle in _handles(failed):
            try:
                found |= instances(_ask, handle, where)
            except InstrumentError as error:
                failed.append(error)
    for error in failed:
        warnings.warn(f"left out: {error}", stacklevel=2)
    return found


class NvmlMeter:
    """Reads one board through NVML.

    A MIG instance stands for its parent board, whose counter it repeats. The handle
    of a board that was lost is taken again by UUID at the next reading; the reading
    that failed is never repeated in silence.

    Parameters
    ----------
    name : str or Device
        UUID of a board or MIG instance, PCI id, or index as nvidia-smi counts. What
        CUDA_VISIBLE_DEVICES means goes through `probcalc.measurement.visible`.
    clock : Clock, optional
        That readings are stamped with; the host's monotonic clock.

    Raises
    ------
    DriverMissingError, NoDeviceError, NoSourceError
    """

    __slots__ = ("_clock", "_device", "_handle", "_late", "_open", "_throttle")

    def __init__(self, name: str | Device, clock: Clock | None = None) -> None:
        self._clock: Clock = HostClock() if clock is None else clock
        self._late = math.inf
        self._throttle: tuple[int, ...] | None = None
        asked = name.uuid if isinstance(name, Device) else name
        _ask("NVML", "nvmlInit")
        self._open = True
        try:
            self._handle: Any = _handle(asked)
            self._device = described(_ask, self._handle, f"device {asked!r}")
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the same board again in another process."""
        return NvmlMeter, (self.device.uuid, self._clock)

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
        """Return energy in J since the driver loaded, or power in W.

        Raises
        ------
        NotSupportedError
            A source or scope that the board does not answer. A module with a CPU has
            the scopes "gpu", "module" and "memory", all other boards have "board".
        OutOfRangeError
            Power outside [0, 1.5 x limit].
        InstrumentError
            What else the driver says.
        """
        check_scope(self._device, source, scope)
        if source == "power_samples":
            return self._newest_sample(scope)
        before = self.now()
        if source == "counter":
            value = self._energy_mj() * 1e-3
        elif source == "power_usage":
            value = self._call("nvmlDeviceGetPowerUsage") * 1e-3
        else:
            field = INSTANT if source == "power_instant" else AVERAGE
            value = self._field(field, SCOPES[scope]) * 1e-3
        after = self.now()
        if source != "counter":
            check_power(self._device, value, source, scope)
        return Reading(before, value, after, source, scope)

    def samples(self, since: float = -math.inf, scope: Scope = "board") -> Trace:
        """Return the driver's buffer of power samples in W, stamped with our clock.

        The driver's stamps count from another origin. They are moved by the offset of
        the host's boot or wall clock where they lie on one of these; else by the
        shortest time seen from a sample's stamp to its arrival, which is too late by
        the time that the driver keeps the newest sample back.

        Parameters
        ----------
        since : float
            Only samples after this time in s.
        scope : {"board", "gpu", "module"}
        """
        check_scope(self._device, "power_samples", scope)
        kind = 7 if scope == "module" else 0
        try:
            _, samples = self._call("nvmlDeviceGetSamples", kind, 0)
        except NoDeviceError:  # what the driver says of an empty buffer
            samples = []
        return self._anchored(samples, since, scope)

    def temperature(self) -> Reading:
        """Return the chip's temperature in degree Celsius."""
        before = self.now()
        try:
            value = self._call("nvmlDeviceGetTemperature", 0)
        except NotSupportedError:
            value = self._call("nvmlDeviceGetTemperatureV", 0)
        return Reading(before, float(value), self.now(), "temperature")

    def throttled(self) -> Reading:
        """Return the cumulative time in s that clocks were held down for heat/power.

        The sum over reasons: a time with two reasons counts twice.
        """
        before = self.now()
        values = self._fields([(field, 0) for field in _THROTTLE])
        after = self.now()
        answers = dict(zip(_THROTTLE, values, strict=True))
        if self._throttle is None:
            known = (f for f, v in answers.items() if not isinstance(v, Exception))
            self._throttle = tuple(known) or None
        total_ns = 0.0
        # Always the same reasons: a sum over fewer of them would be no counter.
        for value in (answers[f] for f in self._throttle or _THROTTLE):
            if isinstance(value, InstrumentError):
                raise value
            total_ns += value
        return Reading(before, total_ns * 1e-9, after, "throttled")

    def processes(self) -> tuple[int, ...]:
        """Return the ids of the compute processes on the board."""
        found = self._call("nvmlDeviceGetComputeRunningProcesses")
        return tuple(sorted(int(p.pid) for p in found))

    def close(self) -> None:
        """Let the driver go; a second time does nothing."""
        if self._open:
            self._open = False
            _ask("NVML", "nvmlShutdown")

    def _call(self, function: str, *arguments: Any) -> Any:
        if self._handle is None:
            self._handle = _acquired(self._device.uuid)
        try:
            return _ask(self._device.uuid, function, self._handle, *arguments)
        except DeviceLostError:
            self._handle = None
            raise

    def _fields(self, fields: list[tuple[int, int]]) -> list[float | InstrumentError]:
        answers = self._call("nvmlDeviceGetFieldValues", fields)
        values = [field_value(v, self._device.uuid) for v in answers]
        if any(isinstance(v, DeviceLostError) for v in values):
            self._handle = None
        return values

    def _field(self, field: int, scope: int) -> float:
        value = self._fields([(field, scope)])[0]
        if isinstance(value, InstrumentError):
            raise value
        return value

    def _energy_mj(self) -> float:
        try:
            return self._call("nvmlDeviceGetTotalEnergyConsumption")
        except NotSupportedError:
            return self._field(ENERGY, 0)

    def _newest_sample(self, scope: Scope) -> Reading:
        trace = self.samples(scope=scope)
        if trace.missing and not (
            len(trace) and trace.before[-1] > trace.missing[-1].before
        ):
            raise OutOfRangeError(trace.missing[-1].reason)
        if not len(trace):
            raise NotReadyError(f"{self._device.uuid}: the sample buffer is empty")
        at = float(trace.before[-1])
        return Reading(at, float(trace.value[-1]), at, "power_samples", scope)

    def _anchored(self, samples: list[Any], since: float, scope: Scope) -> Trace:
        stamps = [int(s.timeStamp) * 1e-6 for s in samples]
        offset = self._offset(max(stamps), self.now()) if stamps else 0.0
        powers = [s.sampleValue.uiVal * 1e-3 for s in samples]
        at, value, missing = [], [], []
        for stamp, power in sorted(zip(stamps, powers, strict=True)):
            if stamp + offset <= since:
                continue
            try:
                check_power(self._device, power, "power_samples", scope)
            except OutOfRangeError as error:
                missing.append(Missing(stamp + offset, stamp + offset, str(error)))
            else:
                at.append(stamp + offset)
                value.append(power)
        return Trace(
            *(np.array(x, dtype=float) for x in (at, value, at)),
            source="power_samples",
            scope=scope,
            missing=tuple(missing),
            device=self._device,
        )

    def _offset(self, newest: float, now: float) -> float:
        """Return what to add to a stamp in s to get our clock."""
        known = host_offsets() if isinstance(self._clock, HostClock) else ()
        offset = offset_among(known, newest, now)
        # No sample is newer than the call that brought it.
        self._late = min(self._late, now - newest)
        return self._late if offset is None else offset


def _ask(where: str, function: str, *arguments: Any) -> Any:
    """Call pynvml; its errors become ours."""
    try:
        import pynvml
    except ImportError as error:
        raise DriverMissingError(
            f"{where}: the Python package nvidia-ml-py is not installed"
        ) from error
    if not hasattr(pynvml, function):
        raise NotSupportedError(
            f"{where}: {function} is not in this nvidia-ml-py; install a newer one"
        )
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        code: int = getattr(error, "value", 999)
        raise driver_error(code, f"{where}: {function}") from error


@contextmanager
def _driver() -> Iterator[None]:
    _ask("NVML", "nvmlInit")
    try:
        yield
    finally:
        _ask("NVML", "nvmlShutdown")


def _handles(failed: list[InstrumentError]) -> Iterator[tuple[str, Any]]:
    """Yield the handle of each board; those that have none go to `failed`."""
    for i in range(_ask("NVML", "nvmlDeviceGetCount")):
        try:
            handle = _ask(f"board {i}", "nvmlDeviceGetHandleByIndex", i)
        except InstrumentError as error:
            failed.append(error)
        else:
            yield f"board {i}", handle


def _handle(name: str) -> Any:
    """Return the handle of a board; a MIG instance gives its parent's."""
    where = f"device {name!r}"
    if name.startswith("MIG-GPU-"):  # as named by drivers before R470
        name = name.removeprefix("MIG-").split("/", maxsplit=1)[0]
    if name.isdecimal():
        count = _ask(where, "nvmlDeviceGetCount")
        if int(name) >= count:
            raise NoDeviceError(f"{where}: there are {count} boards, counted from 0")
        return _ask(where, "nvmlDeviceGetHandleByIndex", int(name))
    if _PCI.fullmatch(name):
        return _ask(where, "nvmlDeviceGetHandleByPciBusId", name)
    if not name.startswith(("GPU-", "MIG-")):
        raise NoDeviceError(
            f"{where}: expected a UUID (GPU-..., MIG-...), a PCI id or an index; see "
            "nvidia-smi -L"
        )
    found = _ask(where, "nvmlDeviceGetHandleByUUID", name)
    if name.startswith("MIG-"):
        return _ask(where, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", found)
    return found


def _acquired(uuid: str) -> Any:
    """Return a new handle of a board that was lost."""
    try:
        return _handle(uuid)
    except NoDeviceError as error:
        raise DeviceLostError(f"{uuid}: still lost: {error}") from error
