"""Tables of text from other tools: rows with their lines, cells with their columns.

A last line without its end may have lost part of its last value: such a row is left
out and reported. An empty or written-out missing value is missing, never zero.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from probcalc import tracefile
from probcalc.errors import InputError, PlanError
from probcalc.units import shown

__all__ = [
    "Cell",
    "ReaderError",
    "Row",
    "Skipped",
    "Table",
    "is_missing",
    "read_document",
    "read_table",
    "read_text",
]

_MISSING = frozenset({"", "n/a", "na", "nan", "none", "null", "-"})


class ReaderError(InputError):
    """A file of another tool that cannot be read.

    Attributes
    ----------
    file : str
    line : int or None
        From 1.
    column : str or None
        Its name, or its number where it has none.
    """

    def __init__(
        self,
        file: str,
        said: str,
        *,
        line: int | None = None,
        column: str | None = None,
    ) -> None:
        self.file, self.line, self.column = file, line, column
        at = "" if line is None else f", line {line}"
        at += "" if column is None else f", column {shown(column)}"
        text = f"{file}{at}: {said}"
        # What stands in a file may hold control characters.
        super().__init__("".join(c if c.isprintable() else "?" for c in text))

    def __reduce__(self) -> tuple[object, ...]:
        """Copy and pickle by its message."""
        return _error_again, (self.args, self.file, self.line, self.column)


def _error_again(
    args: tuple[object, ...], file: str, line: int | None, column: str | None
) -> ReaderError:
    error = ReaderError.__new__(ReaderError)
    error.args = args
    error.file, error.line, error.column = file, line, column
    return error


@dataclass(frozen=True, slots=True)
class Skipped:
    """What a reader left out.

    Attributes
    ----------
    line : int or None
        From 1; None in a file that has no lines of its own.
    column : str or None
        None for a whole row.
    reason : str
    text : str
        What stands there.
    """

    line: int | None
    column: str | None
    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table and its place."""

    text: str
    file: str
    line: int
    column: str

    @property
    def missing(self) -> bool:
        """Whether it says that there is no value."""
        return is_missing(self.text)

    def error(self, expected: str) -> ReaderError:
        """Return the error that says what was expected here."""
        return ReaderError(
            self.file,
            f"{shown(self.text)} found, expected {expected}",
            line=self.line,
            column=self.column,
        )

    def skipped(self, reason: str) -> Skipped:
        """Return the note that this value was left out."""
        return Skipped(self.line, self.column, reason, self.text)

    def number(self, expected: str = "a number") -> float:
        """Return a finite number.

        Raises
        ------
        ReaderError
            Anything else.
        """
        try:
            value = float(self.text)
        except ValueError:
            value = math.nan
        # Python reads 1_000 and digits of other scripts; tools do not write them.
        if not math.isfinite(value) or "_" in self.text or not self.text.isascii():
            raise self.error(expected)
        return value

    def whole(self, expected: str = "a whole number") -> int:
        """Return a whole number, which may be written 3.0."""
        value = self.number(expected)
        if value != math.floor(value) or abs(value) > 2**53:
            raise self.error(expected)
        return int(value)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, by column."""

    line: int
    cells: dict[str, Cell]

    def __getitem__(self, column: str) -> Cell:
        """Return the cell of a column."""
        return self.cells[column]

    def __contains__(self, column: str) -> bool:
        """Whether there is such a column."""
        return column in self.cells


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text.

    Attributes
    ----------
    file : str
        What messages call it.
    columns : tuple of str
    rows : tuple of Row
    skipped : list of Skipped
        Rows that could not be told apart; the reader adds its own.
    """

    file: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    skipped: list[Skipped] = field(default_factory=list)

    def need(self, *names: str) -> None:
        """Check that columns are there.

        Raises
        ------
        ReaderError
            Naming the first that is not.
        """
        for name in names:
            if name not in self.columns:
                found = ", ".join(self.columns)
                raise ReaderError(
                    self.file,
                    f"no column {name!r}, found {found[:200] or 'none'}",
                    line=1,
                )

    def unread(self, known: Sequence[str]) -> None:
        """Note columns that the reader does not take."""
        for name in self.columns:
            if name not in known:
                self.skipped.append(Skipped(1, name, "column not read"))


def is_missing(text: str) -> bool:
    """Whether a text says that there is no value: empty, N/A, nan, or in brackets."""
    bare = text.strip()
    return bare.lower() in _MISSING or (bare.startswith("[") and bare.endswith("]"))


def read_text(path: str | pathlib.Path) -> str:
    """Read a text file, packed by gzip or not, UTF-8 or UTF-16 with its mark.

    Raises
    ------
    ReaderError
        A file that cannot be read, or is no text.
    """
    label = tracefile.label_of(path)
    try:
        content = tracefile.read_bytes(path)
    except PlanError as error:
        raise ReaderError(label, _after(label, error)) from None
    # Windows' shell redirects output as UTF-16.
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ReaderError(
            label, f"byte {error.start} is no {error.encoding} text", line=line
        ) from None


def read_document(path: str | pathlib.Path) -> object:
    """Read one JSON document.

    Raises
    ------
    ReaderError
        A file that cannot be read, or no valid JSON, with the place.
    """
    label = tracefile.label_of(path)
    try:
        return tracefile.read_json(path)
    except PlanError as error:
        raise ReaderError(label, _after(label, error)) from None


def _after(label: str, error: PlanError) -> str:
    """What an error says after the name of the file."""
    return str(error).removeprefix(f"{label}: ")


def read_table(
    path: str | pathlib.Path,
    *,
    delimiter: str = ",",
    columns: Sequence[str] | None = None,
) -> Table:
    """Read a table of text whose first line names the columns.

    Parameters
    ----------
    delimiter : str
    columns : sequence of str, optional
        Names of the columns of a file without a first line of names.

    Raises
    ------
    ReaderError
        No text, no names, two columns of one name, an open quote.
    """
    label = tracefile.label_of(path)
    text = read_text(path)
    lines = _lines(text, label, delimiter)
    if columns is None:
        _, names = next(lines, (1, []))
        names = [name.strip() for name in names]
    else:
        names = list(columns)
    if not any(names):
        raise ReaderError(label, "is empty, expected a line of column names", line=1)
    for name in names:
        if names.count(name) > 1:
            raise ReaderError(label, f"two columns {shown(name)}", line=1)
    ended = text.endswith(("\n", "\r"))
    rows: list[Row] = []
    skipped: list[Skipped] = []
    held = list(lines)
    for i, (line, fields) in enumerate(held):
        whole = delimiter.join(fields)
        if not whole.strip():
            continue
        if i == len(held) - 1 and not ended:
            reason = "the last line has no end: it may be cut off"
        elif len(fields) != len(names):
            reason = f"{len(fields)} values for {len(names)} columns"
        else:
            cells = {
                name: Cell(cell.strip(), label, line, name)
                for name, cell in zip(names, fields, strict=True)
            }
            rows.append(Row(line, cells))
            continue
        skipped.append(Skipped(line, None, reason, whole[:200]))
    return Table(label, tuple(names), tuple(rows), skipped)


def _lines(text: str, label: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each row, and its fields."""
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        skipinitialspace=True,
        strict=True,
    )
    line = 1
    try:
        for fields in reader:
            yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise ReaderError(label, f"no table: {error}", line=line) from None
