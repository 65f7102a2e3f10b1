"""Measured columns from CSV and Parquet files, capped before memory is taken."""

from __future__ import annotations

import csv
import pathlib
import stat
from collections.abc import Iterator

from probcalc.errors import PlanError
from probcalc.expression import nearest
from probcalc.units import shown

__all__ = ["MAX_BYTES", "MAX_ROWS", "read_labels", "read_numbers"]

MAX_BYTES = 256 * 2**20
"""Size of a file of measured runs."""
MAX_ROWS = 5_000_000
"""Runs taken from one column."""


def read_numbers(path: pathlib.Path, column: str, *, where: str) -> list[float]:
    """Read a numeric column of a CSV or Parquet file, in file order.

    Parameters
    ----------
    path : Path
        A regular file whose name ends in ``.csv`` or ``.parquet``; a CSV file has
        a header line and is UTF-8.
    column : str
        Name of the column.
    where : str
        What the column is for, for messages.

    Raises
    ------
    PlanError
        No such file or column, a cell that is missing or no number (row named), a
        file or column above the caps, Parquet without pyarrow.
    """
    values: list[float] = []
    for place, cell in _cells(path, column, where):
        if cell is None or cell == "":
            raise PlanError(f"{where}: {place}: column {column!r} has no value")
        try:
            values.append(float(cell))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise PlanError(
                f"{where}: {place}: {shown(cell)} in column {column!r} is no number"
            ) from None
    return values


def read_labels(path: pathlib.Path, column: str, *, where: str) -> list[str]:
    """Read a column of labels, such as the block of every run; see `read_numbers`."""
    return [str(cell) for _, cell in _cells(path, column, where)]


def _cells(path: pathlib.Path, column: str, where: str) -> Iterator[tuple[str, object]]:
    """Yield the place and the content of every cell of a column."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise PlanError(f"{where}: {path.name!r} is neither a .csv nor a .parquet file")
    # A pipe or a device could be endless, or hang; only plain files are opened.
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable name"
        raise PlanError(f"{where}: cannot read {shown(path.name)}: {reason}") from None
    if not stat.S_ISREG(found.st_mode):
        raise PlanError(f"{where}: {shown(path.name)} is not a plain file")
    if found.st_size > MAX_BYTES:
        raise PlanError(
            f"{where}: {path.name!r} has {found.st_size:,} bytes; at most"
            f" {MAX_BYTES:,} allowed"
        )
    rows = _csv if suffix == ".csv" else _parquet
    for count, cell in enumerate(rows(path, column, where)):
        if count >= MAX_ROWS:
            raise PlanError(
                f"{where}: {path.name!r} has more than {MAX_ROWS:,} rows allowed"
            )
        yield cell


def _no_column(path: pathlib.Path, column: str, known: list[str], where: str) -> str:
    hint = nearest(column, tuple(known))
    return f"{where}: {path.name!r} has no column {column!r}{hint}"


def _csv(path: pathlib.Path, column: str, where: str) -> Iterator[tuple[str, object]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            header = [name.strip() for name in next(lines, [])]
            if header.count(column) != 1:
                if column in header:
                    raise PlanError(
                        f"{where}: {path.name!r} has {header.count(column)} columns"
                        f" {column!r}"
                    )
                raise PlanError(_no_column(path, column, header, where))
            at = header.index(column)
            for row in lines:
                if row:  # the csv module gives an empty list for an empty line
                    place = f"{path.name!r} line {lines.line_num}"
                    yield place, row[at].strip() if at < len(row) else None
    except UnicodeDecodeError:
        raise PlanError(f"{where}: {path.name!r} is not UTF-8 text") from None
    except (OSError, csv.Error) as error:
        raise PlanError(f"{where}: cannot read {path.name!r}: {error}") from None


def _parquet(
    path: pathlib.Path, column: str, where: str
) -> Iterator[tuple[str, object]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise PlanError(
            f"{where}: reading {path.name!r} needs pyarrow, which is not installed"
            " (extra 'parquet'); or write the runs as .csv"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if column not in names:
                raise PlanError(_no_column(path, column, names, where))
            row = 0
            for batch in file.iter_batches(columns=[column]):
                for cell in batch.column(0).to_pylist():
                    row += 1
                    yield f"{path.name!r} row {row}", cell
    except (OSError, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:100]
        raise PlanError(f"{where}: cannot read {path.name!r}: {reason}") from None
