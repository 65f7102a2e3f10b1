"""Logs of ``nvidia-smi --query-gpu=... --format=csv``: power over time, by board.

Stamps are local time without an offset, which must be stated: read as UTC they would be
hours off the events of a program. What is not read as power is kept as text.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from probcalc.errors import InputError, UnitError
from probcalc.measurement.meter import Device, Missing, Scope, Source, Trace
from probcalc.measurement.readers.cells import (
    Cell,
    ReaderError,
    Row,
    Skipped,
    Table,
    read_table,
)
from probcalc.readonly import ReadOnly
from probcalc.units import shown, unit_factor

__all__ = ["SmiBoard", "SmiLog", "read_log"]

_POWER: dict[str, tuple[Source, Scope]] = {
    "power.draw": ("power_usage", "board"),
    "power.draw.average": ("power_average", "board"),
    "power.draw.instant": ("power_instant", "board"),
    "module.power.draw.average": ("power_average", "module"),
    "module.power.draw.instant": ("power_instant", "module"),
}
# Columns that tell boards apart, the surest first.
_NAMES = (
    "uuid",
    "gpu_uuid",
    "pci.bus_id",
    "gpu_bus_id",
    "index",
    "serial",
    "gpu_serial",
)
_HEADER = re.compile(r"([^\[\]]*?)\s*(?:\[([^\[\]]*)\])?")
_VALUE = re.compile(r"([^\s]+)(?:\s+(\S+))?")
_STAMPS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S")
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")


@dataclass(frozen=True, slots=True)
class SmiBoard:
    """One board of a log.

    Attributes
    ----------
    name : str
        What tells it apart; "only" where no column does.
    traces : tuple of Trace
        One for each column of power; values in W, times in s since 1970 (UTC).
    other : mapping of str to tuple of str
        The other columns as they stand, by their headers, with a value for each row
        of the board.
    """

    name: str
    traces: tuple[Trace, ...]
    other: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SmiLog:
    """A log.

    Attributes
    ----------
    boards : tuple of SmiBoard
        In the order of their first rows.
    skipped : tuple of Skipped
        Rows left out. A value that is missing is in its trace, not here.
    notes : tuple of str
        What is assumed.
    """

    boards: tuple[SmiBoard, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


class _Column(NamedTuple):
    """A column by its bare name, and the unit that its header states."""

    at: str
    unit: str | None


def read_log(
    path: str | Path,
    *,
    utc_offset: str | datetime.tzinfo,
    columns: Sequence[str] | None = None,
) -> SmiLog:
    """Read a log with the columns timestamp and at least one of power.

    Values may carry their unit, or the header, or neither (``nounits``: W). "N/A",
    "[Not Supported]" and the like are `Missing` in the trace, never zero.

    Parameters
    ----------
    utc_offset : str or tzinfo
        Of the stamps: "+01:00", "UTC", or a time zone such as ``ZoneInfo``.
    columns : sequence of str, optional
        Names as in the query, for a log written with ``noheader``.

    Raises
    ------
    ReaderError
        No such columns, a stamp or a value that is none; a stamp that the time zone
        has twice or not at all. Names file, line and column.

    Examples
    --------
    ``nvidia-smi --query-gpu=timestamp,uuid,power.draw.instant --format=csv -lms 20``
    """
    zone = _zone(utc_offset)
    table = read_table(path, columns=columns)
    held = _columns(table)
    if "timestamp" not in held:
        raise ReaderError(
            table.file,
            f"no column 'timestamp', found {', '.join(table.columns)[:200]}; for a log "
            "without a header state columns=",
            line=1,
        )
    powers = [name for name in _POWER if name in held]
    if not powers:
        raise ReaderError(
            table.file,
            f"no column of power, expected one of {', '.join(_POWER)}",
            line=1,
        )
    notes = [f"stamps are taken as local time, {zone}"]
    by = next((n for n in _NAMES if n in held), None)
    if by is None:
        notes.append("no column tells boards apart: taken as one")
    boards: dict[str, list[tuple[float, Row]]] = {}
    for row in table.rows:
        at = _stamp(row[held["timestamp"].at], zone)
        name = "only" if by is None else row[held[by].at].text
        rows = boards.setdefault(name, [])
        if rows and at < rows[-1][0]:
            back = f"stamp goes back by {rows[-1][0] - at:.3f} s"
            table.skipped.append(row[held["timestamp"].at].skipped(back))
            continue
        rows.append((at, row))
    found = [_board(name, rows, held, powers) for name, rows in boards.items()]
    return SmiLog(tuple(found), tuple(table.skipped), tuple(notes))


def _zone(given: str | datetime.tzinfo) -> datetime.tzinfo:
    if isinstance(given, datetime.tzinfo):
        return given
    if given in ("UTC", "Z"):
        return datetime.UTC
    match = _OFFSET.fullmatch(given) if isinstance(given, str) else None
    if match is None or int(match[3]) > 59 or int(match[2]) > 23:
        raise InputError(
            f"utc_offset is {shown(given)}, expected '+01:00', 'UTC' or a time zone"
        )
    sign = -1 if match[1] == "-" else 1
    minutes = sign * (60 * int(match[2]) + int(match[3]))
    return datetime.timezone(datetime.timedelta(minutes=minutes))


def _columns(table: Table) -> dict[str, _Column]:
    """Return columns by their bare names."""
    found: dict[str, _Column] = {}
    for column in table.columns:
        match = _HEADER.fullmatch(column)
        bare, unit = (match[1], match[2]) if match else (column, None)
        if bare in found:
            raise ReaderError(table.file, f"two columns {shown(bare)}", line=1)
        found[bare] = _Column(column, unit)
    return found


def _stamp(cell: Cell, zone: datetime.tzinfo) -> float:
    """Return the time in s since 1970 of a local stamp."""
    for form in _STAMPS:
        try:
            local = datetime.datetime.strptime(cell.text, form)
        except ValueError:
            continue
        try:
            early = local.replace(tzinfo=zone, fold=0)
            late = local.replace(tzinfo=zone, fold=1)
            same = early.utcoffset() == late.utcoffset()
            found = early.timestamp()
        except (ValueError, OverflowError):
            break
        if not same:
            raise cell.error(
                "a stamp that occurs once: clocks were changed, state a fixed offset"
            )
        return found
    raise cell.error("a stamp such as 2023/07/08 19:28:27.236")


def _board(
    name: str,
    rows: list[tuple[float, Row]],
    held: Mapping[str, _Column],
    powers: Sequence[str],
) -> SmiBoard:
    device = _device(rows[0][1], held)
    traces = tuple(_trace(power, rows, held[power], device) for power in powers)
    other = {
        column.at: tuple(row[column.at].text for _, row in rows)
        for bare, column in held.items()
        if bare != "timestamp" and bare not in powers
    }
    return SmiBoard(name, traces, ReadOnly(other))


def _trace(
    power: str,
    rows: list[tuple[float, Row]],
    column: _Column,
    device: Device | None,
) -> Trace:
    source, scope = _POWER[power]
    times: list[float] = []
    watts: list[float] = []
    missing: list[Missing] = []
    for at, row in rows:
        cell = row[column.at]
        if cell.missing or cell.text == "ERR!":
            missing.append(Missing(at, at, f"line {row.line}: {cell.text or 'empty'}"))
            continue
        value = _watts(cell, column.unit)
        if value < 0.0:
            missing.append(Missing(at, at, f"line {row.line}: {value:g} W below 0"))
            continue
        times.append(at)
        watts.append(value)
    time = np.array(times, dtype=float)
    values = np.array(watts, dtype=float)
    return Trace(
        time, values, time, source, scope, missing=tuple(missing), device=device
    )


def _watts(cell: Cell, unit: str | None) -> float:
    match = _VALUE.fullmatch(cell.text)
    expected = "a power such as 126.96 or 126.96 W"
    if match is None:
        raise cell.error(expected)
    stated = match[2] or unit or "W"
    value = Cell(match[1], cell.file, cell.line, cell.column).number(expected)
    if stated == "W":
        return value
    try:
        return value * unit_factor(stated, dimension="power", where=cell.column)
    except UnitError:
        raise cell.error(expected) from None


def _device(row: Row, held: Mapping[str, _Column]) -> Device | None:
    """Return the board as far as its first row names it, or None without an index."""

    def text(*names: str) -> str:
        for name in names:
            if name in held and not row[held[name].at].missing:
                return row[held[name].at].text
        return ""

    index = text("index")
    if not index.isdecimal() or len(index) > 6:
        return None
    limit = None
    for name in ("enforced.power.limit", "power.limit"):
        if limit is None and text(name):
            limit = _watts(row[held[name].at], held[name].unit)
    return Device(
        uuid=text("uuid", "gpu_uuid"),
        pci_bus_id=text("pci.bus_id", "gpu_bus_id"),
        name=text("name", "gpu_name"),
        index=int(index),
        driver=text("driver_version"),
        power_limit=limit,
    )
