"""Meters that do what no meter should, and recordings for those that do."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from probcalc.measurement import faults
from probcalc.measurement.clock import HostClock
from probcalc.measurement.meter import Device, Reading
from probcalc.measurement.recording import Recording


def recorded(time: list[float], power: list[float]) -> Recording:
    """Power in W at times in s."""
    return Recording(np.array(time), np.array(power))


class Dying:
    """A meter whose process is gone at the third reading."""

    def __init__(self) -> None:
        self.reads = 0

    def __reduce__(self) -> Any:
        return Dying, ()

    device = Device("GPU-dying", "", "", 0, "")

    def now(self) -> float:
        return HostClock().now()

    def read(self, source: Any, scope: Any = "board") -> Reading:
        self.reads += 1
        if self.reads == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return Reading(self.now(), float(self.reads), self.now(), source, scope)

    def temperature(self) -> Reading:
        raise ZeroDivisionError("a fault of ours")

    throttled = temperature

    def processes(self) -> tuple[int, ...]:
        return (1,)

    def close(self) -> None:
        """Nothing to let go."""


class Raising(Dying):
    """A meter of which every other reading raises, and not as instruments do."""

    device = Device("GPU-raising", "", "", 0, "")

    def __reduce__(self) -> Any:
        return Raising, ()

    def read(self, source: Any, scope: Any = "board") -> Reading:
        self.reads += 1
        if self.reads % 2:
            return Reading(self.now(), 1.0, self.now(), source, scope)
        if self.reads % 4:
            return Reading(self.now(), float("nan"), self.now(), source, scope)
        raise ZeroDivisionError("a fault of ours")


class Unopened(Dying):
    """A meter that another process cannot open."""

    device = Device("GPU-unopened", "", "", 0, "")

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise faults.DriverMissingError("the other process finds no driver")
