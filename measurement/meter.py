"""What an instrument gives: readings with their time, failures, and the `Meter`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.readonly import ReadOnly

__all__ = [
    "SOURCES",
    "Device",
    "Meter",
    "Missing",
    "Reading",
    "Scope",
    "Source",
    "Trace",
]

FloatArray = npt.NDArray[np.float64]

# What a reading covers. A module's counter includes its CPU and memory; readings of
# different scopes are never put together.
Scope = Literal["board", "gpu", "module", "memory", "external"]
# Where it comes from: the energy counter (J), three kinds of power (W), the driver's
# ring buffer of power samples (W).
Source = Literal[
    "counter", "power_instant", "power_average", "power_usage", "power_samples"
]
SOURCES: tuple[Source, ...] = (
    "counter",
    "power_instant",
    "power_average",
    "power_usage",
    "power_samples",
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One value, and the host's clock before and after it was asked for.

    Attributes
    ----------
    before, after : float
        Host time in s (monotonic) around the call.
    value : float
        In J for a counter, W for power, degree Celsius for a temperature, s for
        time spent throttled.
    source : str
    scope : Scope
    """

    before: float
    value: float
    after: float
    source: str
    scope: Scope = "board"

    @property
    def time(self) -> float:
        """The middle of the call, in s."""
        return 0.5 * (self.before + self.after)


@dataclass(frozen=True, slots=True)
class Missing:
    """A reading that failed: when, and why. It is never a zero."""

    before: float
    after: float
    reason: str


@dataclass(frozen=True, slots=True)
class Device:
    """A board as its driver names it; kept with every signature.

    Attributes
    ----------
    uuid, pci_bus_id, name : str
    index : int
        In the driver's own order (PCI order over all boards).
    driver : str
    power_limit : float or None
        Enforced limit in W.
    facts : mapping
        All else that the driver tells: vbios, architecture, compute capability, MIG,
        ECC and persistence mode, clocks in MHz. Absent where it does not answer.
    """

    uuid: str
    pci_bus_id: str
    name: str
    index: int
    driver: str
    power_limit: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the facts."""
        object.__setattr__(self, "facts", ReadOnly(dict(self.facts)))


class Meter(Protocol):
    """Reads one device. `NvmlMeter` and `ReplayMeter` are meters.

    Every method raises an `InstrumentError` that says why where it cannot answer.
    """

    @property
    def device(self) -> Device:
        """The board that is read."""
        ...

    def now(self) -> float:
        """Return the host's clock in s, that all readings are stamped with."""
        ...

    def sleep(self, duration: float) -> None:
        """Let `duration` s of that clock pass."""
        ...

    def read(self, source: Source, scope: Scope = "board") -> Reading:
        """Return energy in J since the driver loaded, or power in W."""
        ...

    def temperature(self) -> Reading:
        """Return the chip's temperature in degree Celsius."""
        ...

    def throttled(self) -> Reading:
        """Return the cumulative time in s that clocks were held down for heat/power."""
        ...

    def processes(self) -> tuple[int, ...]:
        """Return the ids of the compute processes on the board."""
        ...

    def close(self) -> None:
        """Let the driver go."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Readings of one source over time, in order, with the reads that failed.

    Attributes
    ----------
    before, value, after : FloatArray, shape (readings,)
        Host clock in s around each call, and its value (J or W).
    source : Source
    scope : Scope
    missing : tuple of Missing
    interval : float or None
        Asked time between polls in s; what was achieved is `rate`.
    device : Device or None
    """

    before: FloatArray
    value: FloatArray
    after: FloatArray
    source: Source
    scope: Scope = "board"
    missing: tuple[Missing, ...] = ()
    interval: float | None = None
    device: Device | None = None

    def __post_init__(self) -> None:
        """Check lengths, order and values; make the arrays read-only."""
        where = f"trace of {self.source}"
        if self.source not in SOURCES:
            raise InputError(
                f"trace: source is {self.source!r}, expected one of "
                + ", ".join(SOURCES)
            )
        arrays = {
            name: np.array(getattr(self, name), dtype=float)
            for name in ("before", "value", "after")
        }
        sizes = {a.shape for a in arrays.values()}
        if len(sizes) != 1 or len(next(iter(sizes))) != 1:
            raise InputError(
                f"{where}: before, value and after have shapes "
                f"{[a.shape for a in arrays.values()]}, expected one length"
            )
        for name, array in arrays.items():
            bad = np.flatnonzero(~np.isfinite(array))
            if bad.size:
                raise InputError(
                    f"{where}: {name}[{bad[0]}] is {array[bad[0]]}, expected a finite "
                    "number; a reading that failed belongs in missing"
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if np.any(arrays["after"] < arrays["before"]):
            i = int(np.flatnonzero(arrays["after"] < arrays["before"])[0])
            raise InputError(f"{where}: reading {i} ends before it starts")
        if np.any(np.diff(arrays["before"]) < 0.0):
            i = int(np.flatnonzero(np.diff(arrays["before"]) < 0.0)[0]) + 1
            raise InputError(
                f"{where}: reading {i} is stamped {arrays['before'][i]:.6f} s, before "
                "the one it follows"
            )

    def __len__(self) -> int:
        """Return the number of readings."""
        return self.value.size

    @property
    def time(self) -> FloatArray:
        """The middle of each call, in s."""
        return 0.5 * (self.before + self.after)

    @property
    def rate(self) -> float:
        """Readings a second that were achieved; NaN for fewer than two."""
        if len(self) < 2:
            return float("nan")
        return (len(self) - 1) / float(self.time[-1] - self.time[0])

    @property
    def largest_gap(self) -> float:
        """The longest time in s between two good readings; NaN for fewer than two."""
        return float(np.diff(self.time).max()) if len(self) > 1 else float("nan")
