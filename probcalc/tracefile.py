"""Files of traces and graphs: read within bounds, values checked at the door.

Messages are one line that names the file, the entry, the field, the value found and
what was expected. A field that is missing is an error; nothing takes its place.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import pathlib
import re
import stat
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from probcalc.errors import PlanError
from probcalc.expression import nearest
from probcalc.units import shown

__all__ = [
    "MAX_BYTES",
    "MAX_NODES",
    "entries",
    "field",
    "label_of",
    "member",
    "name_of",
    "named",
    "number",
    "parse_all",
    "parse_json",
    "read_bytes",
    "read_json",
    "seconds",
    "stem_of",
    "table",
    "whole_of",
]

MAX_BYTES = 512 * 2**20
"""Size of a file once unpacked."""
MAX_NODES = 2_000_000
"""Entries of a list in a file."""
MAX_NAME = 500
"""Characters of the name of a node."""

_GAP = re.compile(r"[ \t\n\r]*")


def label_of(path: str | pathlib.Path) -> str:
    """What a file is called in messages: its name, on one line."""
    return "".join(c if c.isprintable() else "?" for c in pathlib.Path(path).name)


def stem_of(label: str) -> str:
    """Name of a file without the ends that say how it is packed."""
    stem = label.rpartition(": ")[2]
    for end in (".gz", ".json", ".csv", ".graph"):
        stem = stem.removesuffix(end)
    return stem or label


def read_bytes(path: str | pathlib.Path) -> bytes:
    """Read a file, unpacked where it is gzip, of at most `MAX_BYTES`.

    Raises
    ------
    PlanError
        No file that can be read, too large, or a damaged or cut off archive.
    """
    label = label_of(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait
            raise OSError(0, "expected a regular file")
        with pathlib.Path(path).open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as file:
                    content = file.read(MAX_BYTES + 1)
            else:
                content = raw.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = " ".join(str(error).split())
        raise PlanError(f"{label}: damaged or cut off gzip: {reason}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanError(f"{label}: cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise PlanError(
            f"{label}: more than {MAX_BYTES:,} bytes; cut the trace shorter"
        )
    return content


def parse_json(content: bytes, label: str) -> Any:
    """Parse one JSON document; NaN and infinities are refused.

    Raises
    ------
    PlanError
        Not UTF-8 or no valid JSON, with the place; cut off before its end.
    """
    return parse_all(content, label, most=1)[0]


def parse_all(content: bytes, label: str, most: int = MAX_NODES) -> list[Any]:
    """Parse JSON documents that follow each other; see `parse_json`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{label}: byte {error.start} is not UTF-8; expected JSON"
        ) from None
    decoder = json.JSONDecoder(parse_constant=lambda word: _refuse(word, label))
    found: list[Any] = []
    end = 0
    try:
        while (start := _GAP.match(text, end).end()) < len(text):  # type: ignore[union-attr]
            if len(found) == most:
                raise json.JSONDecodeError("Extra data", text, start)
            document, end = decoder.raw_decode(text, start)
            found.append(document)
    except json.JSONDecodeError as error:
        place = f"{error.msg.lower()} at line {error.lineno}, column {error.colno}"
        # A string that never ends is reported where it begins.
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        what = "JSON is cut off" if cut else "no valid JSON"
        raise PlanError(f"{label}: {what}: {place}") from None
    except PlanError:
        raise
    except ValueError as error:  # a whole number of too many digits
        raise PlanError(f"{label}: no valid JSON: {str(error)[:80]}") from None
    except RecursionError:
        raise PlanError(f"{label}: lists or tables nested too deeply") from None
    if not found:
        raise PlanError(f"{label}: is empty; expected JSON")
    return found


def _refuse(word: str, label: str) -> NoReturn:
    raise PlanError(f"{label}: {word} found; expected finite numbers")


def read_json(path: str | pathlib.Path) -> Any:
    """Read one JSON document from a file, packed by gzip or not; see `parse_json`."""
    return parse_json(read_bytes(path), label_of(path))


def member(content: bytes, label: str, name: str | None) -> tuple[bytes, str]:
    """Return a file of a tar archive and what to call it; anything else as it is.

    Parameters
    ----------
    name : str, optional
        Of the file; not needed where there is one alone.
    """
    if content[257:262] != b"ustar":
        if name is not None:
            raise PlanError(f"{label}: is no archive; member={name!r} was asked for")
        return content, label
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            # Beside the files of its own, macOS packs stubs of their attributes.
            held = {
                m.name: m
                for m in archive
                if m.isfile()
                and not pathlib.PurePosixPath(m.name).name.startswith("._")
            }
            if name is None and len(held) == 1:
                (name,) = held
            if name not in held:
                known = ", ".join(sorted(held)[:12]) or "none"
                what = "state which file" if name is None else f"no file {name!r}"
                raise PlanError(f"{label}: {what}, member=...; the archive has {known}")
            if held[name].size > MAX_BYTES:
                raise PlanError(f"{label}: {name}: more than {MAX_BYTES:,} bytes")
            file = archive.extractfile(held[name])
            inner = b"" if file is None else file.read(MAX_BYTES)
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        reason = " ".join(str(error).split())
        raise PlanError(f"{label}: damaged or cut off archive: {reason}") from None
    return inner, f"{label}: {label_of(name)}"


def table(value: Any, where: str) -> Mapping[str, Any]:
    """Return a value that is a table."""
    if not isinstance(value, Mapping):
        raise PlanError(f"{where}: {shown(value)} found; expected a table")
    return value


def field(held: Mapping[str, Any], key: str, where: str) -> Any:
    """Return a field that must be there."""
    if key not in held:
        raise PlanError(f"{where}: {key!r} is missing")
    return held[key]


def entries(value: Any, where: str) -> Sequence[Any]:
    """Return a value that is a list, not too long."""
    if not isinstance(value, list):
        raise PlanError(f"{where}: {shown(value)} found; expected a list")
    if len(value) > MAX_NODES:
        raise PlanError(f"{where}: {len(value):,} entries; at most {MAX_NODES:,}")
    return value


def number(value: Any, where: str, what: str) -> float:
    """Return a value that is a finite number."""
    found = math.nan
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
    if not math.isfinite(found):
        raise PlanError(f"{where}: {shown(value)} found; expected {what}")
    return found


def seconds(value: Any, where: str, unit: float = 1.0) -> float:
    """Return a time in s of a number that counts units of so many s.

    Raises
    ------
    PlanError
        Not a number, not finite, negative.
    """
    names = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds"}
    what = f"{names.get(unit, f'units of {unit:g} s')} >= 0"
    found = number(value, where, what)
    if found < 0.0:
        raise PlanError(f"{where}: {shown(value)} found; expected {what}")
    return found * unit + 0.0


def whole_of(value: Any, where: str) -> int:
    """Return a value that is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(f"{where}: {shown(value)} found; expected a whole number")
    return value


def name_of(value: Any, where: str) -> str:
    """Return a value that is a name: a text of one line, not empty."""
    if not isinstance(value, str):
        raise PlanError(f"{where}: {shown(value)} found; expected a name")
    if not value.strip() or len(value) > MAX_NAME or not value.isprintable():
        raise PlanError(
            f"{where}: {shown(value)} found; expected a name on one line, of 1 to "
            f"{MAX_NAME} characters"
        )
    return value


def named(name: Any, index: Mapping[Any, int], where: str) -> int:
    """Return the number of a node by its name.

    Raises
    ------
    PlanError
        No such node, with the nearest name.
    """
    try:
        return index[name]
    except (KeyError, TypeError):
        pass
    hint = ""
    if isinstance(name, str) and len(index) <= 5_000:  # the search is slow
        hint = nearest(name, tuple(map(str, index)))
    raise PlanError(f"{where}: no node {shown(name)}{hint}")
