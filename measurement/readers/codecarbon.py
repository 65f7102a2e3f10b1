"""Emissions files of CodeCarbon: one row for each run of its tracker.

Energies are in kWh. What was not measured is written as 0: it is missing here. Columns
differ between versions; those without energy are kept as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from probcalc.measurement.readers.cells import Cell, Row, Skipped, read_table
from probcalc.readonly import ReadOnly

__all__ = ["Emission", "Emissions", "read_emissions"]

#: J in 1 kWh.
KWH = 3.6e6
_PARTS = ("cpu_energy", "gpu_energy", "ram_energy")
#: Largest relative difference of the total and its parts that needs no note.
ROUNDING = 0.01


@dataclass(frozen=True, slots=True)
class Emission:
    """One row.

    Attributes
    ----------
    line : int
        Of the file.
    duration : float
        In s.
    energy : float or None
        Of all parts, in J; None where missing.
    parts : mapping of str to float or None
        "cpu", "gpu" and "ram" in J. The first and last are often a model's, not a
        measurement: the file does not tell.
    other : mapping of str to str
        All other columns as they stand: timestamp (local time), run_id and so on.
    """

    line: int
    duration: float
    energy: float | None
    parts: Mapping[str, float | None]
    other: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Emissions:
    """A file of emissions.

    Attributes
    ----------
    rows : tuple of Emission
    skipped : tuple of Skipped
    notes : tuple of str
        Rows of one run_id are totals since its start, not to be summed.
    """

    rows: tuple[Emission, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


def read_emissions(path: str | Path) -> Emissions:
    """Read emissions.csv: duration (s), energy_consumed (kWh) and the parts of it.

    A row with fewer values than columns is left out: CodeCarbon leaves empty columns
    out when it appends, so that its values cannot be told apart.

    Raises
    ------
    ReaderError
        No such columns, a value that is no number or negative; names file, line and
        column.
    """
    table = read_table(path)
    table.need("duration", "energy_consumed")
    rows: list[Emission] = []
    notes: list[str] = []
    for row in table.rows:
        duration = row["duration"].number("a duration in s")
        if duration <= 0.0:
            table.skipped.append(row["duration"].skipped("duration not above 0 s"))
            continue
        parts = {
            name.removesuffix("_energy"): _joules(row[name], table.skipped)
            for name in _PARTS
            if name in row
        }
        energy = _joules(row["energy_consumed"], table.skipped)
        notes += _sum(row, energy, parts)
        read = {"duration", "energy_consumed", *_PARTS}
        other = {n: row[n].text for n in table.columns if n not in read}
        rows.append(
            Emission(row.line, duration, energy, ReadOnly(parts), ReadOnly(other))
        )
    return Emissions(tuple(rows), tuple(table.skipped), (*notes, *_repeated(rows)))


def _joules(cell: Cell, skipped: list[Skipped]) -> float | None:
    if cell.missing:
        skipped.append(cell.skipped("no value"))
        return None
    value = cell.number("an energy in kWh")
    if value < 0.0:
        raise cell.error("an energy in kWh >= 0")
    if value == 0.0:
        skipped.append(cell.skipped("0 kWh: not measured, missing"))
        return None
    return value * KWH


def _sum(
    row: Row, energy: float | None, parts: Mapping[str, float | None]
) -> list[str]:
    known = [value for value in parts.values() if value is not None]
    if energy is None or not known:
        return []
    if abs(sum(known) - energy) <= ROUNDING * energy:
        return []
    summed = sum(known)
    said = f"energy_consumed is {energy:.6g} J, its parts add up to {summed:.6g} J"
    return [f"line {row.line}: {said}"]


def _repeated(rows: list[Emission]) -> list[str]:
    count: dict[str, int] = {}
    for row in rows:
        run = row.other.get("run_id", "")
        if run:
            count[run] = count.get(run, 0) + 1
    return [
        f"run_id {run}: {n} rows, each a total since its start; do not add them up"
        for run, n in count.items()
        if n > 1
    ]
