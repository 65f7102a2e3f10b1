"""Traces of pyJoules' CSV handler: timestamp;tag;duration;package_0;...;nvidia_gpu_0.

All energies are documented as uJ. Those of ``nvidia_gpu`` are what NVML returned, which
is mJ (its issues 23 and 32): the file does not tell, and a factor of 1000 is at stake.
Power over the duration tells mostly; then the reader asks, and does not guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from probcalc.errors import InputError
from probcalc.measurement.readers.cells import (
    Cell,
    ReaderError,
    Row,
    Skipped,
    Table,
    read_table,
)
from probcalc.measurement.readers.zeus import counted
from probcalc.readonly import ReadOnly

__all__ = ["PyJoules", "Sample", "read_trace"]

Unit = Literal["uJ", "mJ", "J"]
_JOULES: dict[str, float] = {"uJ": 1e-6, "mJ": 1e-3, "J": 1.0}
_GPU = re.compile(r"nvidia_gpu_[0-9]+")
# Stamps in s since 1970, from 1973 to 2286; old versions wrote ns.
_EPOCH = (1e8, 1e10)


@dataclass(frozen=True, slots=True)
class Sample:
    """One row.

    Attributes
    ----------
    line : int
        Of the file.
    tag : str
    start, duration : float
        In s; `start` since 1970.
    energy : mapping of str to float or None
        In J by domain, such as "package_0"; None where missing.
    """

    line: int
    tag: str
    start: float
    duration: float
    energy: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class PyJoules:
    """A trace.

    Attributes
    ----------
    domains : tuple of str
    samples : tuple of Sample
    gpu_unit : {"uJ", "mJ", "J"} or None
        That energies of GPUs were read in; None where there are none.
    skipped : tuple of Skipped
    """

    domains: tuple[str, ...]
    samples: tuple[Sample, ...]
    gpu_unit: Unit | None
    skipped: tuple[Skipped, ...]


def read_trace(
    path: str | Path,
    *,
    gpu_unit: Unit | None = None,
    gpu_power: tuple[float, float] = (3.0, 1500.0),
) -> PyJoules:
    """Read a trace.

    Parameters
    ----------
    gpu_unit : {"uJ", "mJ", "J"}, optional
        Of the columns ``nvidia_gpu_N``. Without it they are read as documented, in uJ,
        if that gives a power within `gpu_power` in every row, and refused if not.
    gpu_power : tuple of float
        What a board can draw in W, lowest and highest.

    Raises
    ------
    ReaderError
        The unit of a GPU's energies is in question; a stamp in neither s nor ns; no
        such columns, a value that is no number. Names file, line and column.
    """
    if gpu_unit is not None and gpu_unit not in get_args(Unit):
        raise InputError(
            f"gpu_unit is {gpu_unit!r}, expected one of {', '.join(get_args(Unit))}"
        )
    low, high = gpu_power
    if not 0.0 < low < high:
        raise InputError(f"gpu_power is {gpu_power!r}, expected 0 < lowest < highest")
    if gpu_unit is None and high >= 1e3 * low:
        raise InputError(
            f"gpu_power is {gpu_power!r}, expected below a factor of 1000, which uJ "
            "and mJ differ by"
        )
    table = read_table(path, delimiter=";")
    table.need("timestamp", "tag", "duration")
    domains = [c for c in table.columns if c not in ("timestamp", "tag", "duration")]
    boards = [c for c in domains if _GPU.fullmatch(c)]
    timed = [t for row in table.rows if (t := _times(row, table)) is not None]
    if gpu_unit is None and boards:
        for row, _, duration in timed:
            for name in boards:
                _plausible(row[name], duration, low, high)
    unit = (gpu_unit or "uJ") if boards else None
    samples = tuple(
        _sample(row, start, duration, domains, unit, table)
        for row, start, duration in timed
    )
    return PyJoules(tuple(domains), samples, unit, tuple(table.skipped))


def _times(row: Row, table: Table) -> tuple[Row, float, float] | None:
    """Return start and duration in s, which old versions wrote in ns."""
    stamp = row["timestamp"].number("a time stamp")
    scale = next((s for s in (1.0, 1e-9) if _EPOCH[0] <= stamp * s < _EPOCH[1]), None)
    if scale is None:
        raise row["timestamp"].error("a time since 1970 in s or ns")
    duration = row["duration"].number("a duration") * scale
    if duration <= 0.0:
        table.skipped.append(row["duration"].skipped("duration not above 0 s"))
        return None
    return row, stamp * scale, duration


def _plausible(cell: Cell, duration: float, low: float, high: float) -> None:
    """Refuse an energy in uJ that no board can have drawn, and ask for its unit."""
    if cell.missing or (value := cell.number("an energy")) <= 0.0:
        return
    watts = {unit: value * scale / duration for unit, scale in _JOULES.items()}
    if low <= watts["uJ"] <= high:
        return
    fits = [unit for unit in _JOULES if low <= watts[unit] <= high]
    said = ", ".join(f"{watts[unit]:.3g} W if in {unit}" for unit in ("uJ", "mJ"))
    hint = f"; {fits[0]} is likely" if len(fits) == 1 else ""
    raise ReaderError(
        cell.file,
        f"{cell.text} over {duration:.4g} s is {said}, expected {low:g} to {high:g} W"
        f"{hint}: in which unit was it written? State gpu_unit= 'uJ', 'mJ' or 'J'",
        line=cell.line,
        column=cell.column,
    )


def _sample(
    row: Row,
    start: float,
    duration: float,
    domains: list[str],
    unit: Unit | None,
    table: Table,
) -> Sample:
    energy = {
        name: counted(
            row[name],
            table.skipped,
            _JOULES[unit] if unit and _GPU.fullmatch(name) else 1e-6,
        )
        for name in domains
    }
    return Sample(row.line, row["tag"].text, start, duration, ReadOnly(energy))
