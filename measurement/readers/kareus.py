"""Sweeps of Kareus (ml-energy/kareus): attention overlapped with communication.

A row is one setting: the window of kernels that communication overlaps (-1 for one
after the other), the SMs and threads that it gets, and for each repeat the time in s
and the energy in J of all ranks together and of each one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from probcalc.measurement.readers.cells import (
    Row,
    Skipped,
    Table,
    read_table,
)
from probcalc.measurement.readers.zeus import counted
from probcalc.readonly import ReadOnly

__all__ = ["Setting", "Sweep", "read_sweep"]

FloatArray = npt.NDArray[np.float64]

_SETTING = ("overlap_start", "overlap_end", "comm_sm_number", "comm_block_size")
_TIME = re.compile(r"([0-9]{1,4}):time \(s\)")
_TOTAL = "{}:total energy (J)"
#: Largest relative difference of a total and its parts that is rounding.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Repeats of one setting.

    Attributes
    ----------
    line : int
        Of the file.
    options : mapping of str to int
        overlap_start, overlap_end, comm_sm_number, comm_block_size.
    time, energy : FloatArray, shape (repeats,)
        In s and J, all ranks together; NaN where missing.
    rank_energy : FloatArray, shape (repeats, ranks)
        In J; NaN where missing.
    """

    line: int
    options: Mapping[str, int]
    time: FloatArray
    energy: FloatArray
    rank_energy: FloatArray

    @property
    def sequential(self) -> bool:
        """Whether communication comes after computation."""
        return self.options["overlap_start"] < 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep over settings."""

    settings: tuple[Setting, ...]
    skipped: tuple[Skipped, ...]


def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep.

    Raises
    ------
    ReaderError
        No such columns, a value that is no number, a total that is not the sum of its
        ranks; names file, line and column.
    """
    table = read_table(path)
    table.need(*_SETTING)
    repeats = sorted({int(m[1]) for c in table.columns if (m := _TIME.fullmatch(c))})
    if not repeats:
        table.need("0:time (s)")
    ranks = _ranks(table, repeats[0])
    parts = [[f"{i}:rank{r} energy (J)" for r in ranks] for i in repeats]
    names = [f"{i}:time (s)" for i in repeats] + [_TOTAL.format(i) for i in repeats]
    table.need(*names, *(name for row in parts for name in row))
    table.unread([*_SETTING, *names, *(name for row in parts for name in row)])
    settings = [_setting(row, repeats, parts, table) for row in table.rows]
    return Sweep(tuple(settings), tuple(table.skipped))


def _ranks(table: Table, repeat: int) -> list[int]:
    named = re.compile(rf"{repeat}:rank([0-9]{{1,4}}) energy \(J\)")
    found = sorted(int(m[1]) for c in table.columns if (m := named.fullmatch(c)))
    if not found:
        table.need(f"{repeat}:rank0 energy (J)")
    return found


def _setting(
    row: Row, repeats: list[int], parts: list[list[str]], table: Table
) -> Setting:
    options = {name: row[name].whole() for name in _SETTING}
    time, energy = np.full(len(repeats), np.nan), np.full(len(repeats), np.nan)
    by_rank = np.full((len(repeats), len(parts[0])), np.nan)
    for i, repeat in enumerate(repeats):
        time[i] = _time(row, f"{repeat}:time (s)", table)
        for j, name in enumerate(parts[i]):
            by_rank[i, j] = _or_nan(counted(row[name], table.skipped))
        total = row[_TOTAL.format(repeat)]
        energy[i] = _or_nan(counted(total, table.skipped))
        summed = float(by_rank[i].sum())
        if abs(summed - energy[i]) > ROUNDING * abs(summed):
            raise total.error(f"the sum of its ranks, {summed:.9g} J")
    for array in (time, energy, by_rank):
        array.setflags(write=False)
    return Setting(row.line, ReadOnly(options), time, energy, by_rank)


def _time(row: Row, name: str, table: Table) -> float:
    cell = row[name]
    if cell.missing:
        table.skipped.append(cell.skipped("no value"))
        return np.nan
    value = cell.number("a time in s")
    if value <= 0.0:
        raise cell.error("a time in s above 0")
    return value


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
