"""Window logs and stage profiles of Zeus (ml-energy/zeus).

A window log has one row for each window: when it began (monotonic clock), its name, how
long it took, and the energy in J of each device by the difference of its counter. A
stage profile has the mean time and energy of a pipeline stage's instruction at a clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.readers.cells import (
    Cell,
    Row,
    Skipped,
    Table,
    read_table,
)
from probcalc.readonly import ReadOnly

__all__ = [
    "StagePoint",
    "StageProfile",
    "ZeusWindow",
    "ZeusWindows",
    "read_stage_profile",
    "read_windows",
]

FloatArray = npt.NDArray[np.float64]

_ENERGY = re.compile(r"([a-z]+[0-9]+)_energy")
MHZ = 1e6


@dataclass(frozen=True, slots=True)
class ZeusWindow:
    """One window.

    Attributes
    ----------
    line : int
        Of the file.
    name : str
    start : float
        In s of a monotonic clock.
    duration : float
        In s.
    energy : mapping of str to float or None
        In J by device, such as "gpu0"; None where missing.
    """

    line: int
    name: str
    start: float
    duration: float
    energy: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class ZeusWindows:
    """A window log.

    Attributes
    ----------
    devices : tuple of str
    windows : tuple of ZeusWindow
    skipped : tuple of Skipped
    """

    devices: tuple[str, ...]
    windows: tuple[ZeusWindow, ...]
    skipped: tuple[Skipped, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of windows, in the order of their first ones."""
        return tuple(dict.fromkeys(w.name for w in self.windows))

    def runs(
        self, name: str, devices: Sequence[str] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return durations in s and energies in J of the windows of one name.

        Parameters
        ----------
        devices : sequence of str, optional
            Whose energies are summed; all by default. The sum is NaN where one of
            them is missing.

        Raises
        ------
        InputError
            No such window or device.
        """
        chosen = self.devices if devices is None else tuple(devices)
        for device in chosen:
            if device not in self.devices:
                raise InputError(
                    f"no device {device!r}, expected one of {', '.join(self.devices)}"
                )
        held = [w for w in self.windows if w.name == name]
        if not held:
            raise InputError(f"no window {name!r} among {len(self.windows)}")
        missing = math.nan
        sums = [
            math.fsum(missing if (e := w.energy[d]) is None else e for d in chosen)
            for w in held
        ]
        return np.array([w.duration for w in held]), np.array(sums)


def read_windows(path: str | Path) -> ZeusWindows:
    """Read a window log: start_time, window_name, elapsed_time, gpu0_energy and so on.

    An energy that is missing, negative (the counter was reset) or 0 J (it did not move:
    the window is shorter than its update period) is None and listed in `skipped`.

    Raises
    ------
    ReaderError
        No such columns, a value that is no number; names file, line and column.
    """
    table = read_table(path)
    table.need("start_time", "window_name", "elapsed_time")
    found = {c: m[1] for c in table.columns if (m := _ENERGY.fullmatch(c))}
    if not found:
        table.need("gpu0_energy")
    table.unread(["start_time", "window_name", "elapsed_time", *found])
    windows = [w for row in table.rows if (w := _window(row, found, table))]
    return ZeusWindows(tuple(found.values()), tuple(windows), tuple(table.skipped))


def _window(row: Row, found: Mapping[str, str], table: Table) -> ZeusWindow | None:
    start = row["start_time"].number("a time in s")
    duration = row["elapsed_time"].number("a duration in s")
    if duration <= 0.0:
        table.skipped.append(row["elapsed_time"].skipped("duration not above 0 s"))
        return None
    energy = {
        device: counted(row[column], table.skipped) for column, device in found.items()
    }
    name = row["window_name"].text
    return ZeusWindow(row.line, name, start, duration, ReadOnly(energy))


def counted(cell: Cell, skipped: list[Skipped], scale: float = 1.0) -> float | None:
    """Return the energy in J that a counter rose by, or None and the reason why not."""
    if cell.missing:
        skipped.append(cell.skipped("no value"))
        return None
    value = cell.number("an energy")
    if value > 0.0:
        return value * scale
    why = "the counter was reset" if value < 0.0 else "the counter did not move"
    skipped.append(cell.skipped(f"{why}: missing, not an energy"))
    return None


@dataclass(frozen=True, slots=True)
class StagePoint:
    """Mean time and energy of an instruction of a pipeline stage at a clock.

    Attributes
    ----------
    stage : int
    instruction : str
        "forward" or "backward".
    frequency : float
        SM clock in Hz.
    time, energy : float
        In s and J.
    """

    stage: int
    instruction: str
    frequency: float
    time: float
    energy: float


@dataclass(frozen=True, slots=True)
class StageProfile:
    """A stage profile: means, one for each stage, instruction and clock."""

    points: tuple[StagePoint, ...]
    skipped: tuple[Skipped, ...]


def read_stage_profile(path: str | Path) -> StageProfile:
    """Read a stage profile: stage, instruction, frequency (MHz), time (s), energy (J).

    Raises
    ------
    ReaderError
        No such columns, a value that is no number or not above 0, a point that is
        there twice; names file, line and column.
    """
    table = read_table(path)
    names = ("stage", "instruction", "frequency", "time", "energy")
    table.need(*names)
    table.unread(names)
    points: dict[tuple[int, str, float], StagePoint] = {}
    for row in table.rows:
        lost = [c for c in (row["time"], row["energy"]) if c.missing]
        table.skipped.extend(c.skipped("no value: point left out") for c in lost)
        if lost:
            continue
        point = StagePoint(
            row["stage"].whole("the number of a stage"),
            row["instruction"].text,
            _above_zero(row["frequency"], "a clock in MHz") * MHZ,
            _above_zero(row["time"], "a time in s"),
            _above_zero(row["energy"], "an energy in J"),
        )
        key = (point.stage, point.instruction, point.frequency)
        if key in points:
            raise row["frequency"].error("each stage, instruction and clock once")
        points[key] = point
    return StageProfile(tuple(points.values()), tuple(table.skipped))


def _above_zero(cell: Cell, what: str) -> float:
    value = cell.number(f"{what} above 0")
    if value <= 0.0:
        raise cell.error(f"{what} above 0")
    return value
