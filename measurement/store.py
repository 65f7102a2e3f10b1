"""Signatures in a folder: one netCDF-4 file for each element and context.

Why netCDF-4 and not Parquet with JSON beside it: blocks by runs is a table with two
dimensions, which netCDF holds as it is and Parquet only as rows that must be put
together again; units, format and facts are part of the same file, so that the two
cannot be parted; `xarray.open_dataset(file)` and `arviz.from_netcdf(file)` (chain is
the block, draw the run) open it without this package. It is written by h5netcdf on
HDF5, without the netCDF C library. See `probcalc.measurement.signature_file` for what
is inside.

A file appears whole or not at all. Writers take turns by a lock on the folder, so that
of two which add blocks to the same file none undoes the other. A file that cannot be
read is refused by name, and the rest stays readable.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from probcalc.errors import InputError
from probcalc.measurement.atomic import locked, write_atomic
from probcalc.measurement.documents import as_json, frozen
from probcalc.measurement.signature import Signature
from probcalc.measurement.signature_file import (
    DamagedError,
    ForeignError,
    NewerVersionError,
    StoreError,
    decode,
    encode,
)

__all__ = [
    "DamagedError",
    "ForeignError",
    "Loaded",
    "NewerVersionError",
    "Refused",
    "StoreError",
    "file_name",
    "load",
    "load_all",
    "paths",
    "save",
]

SUFFIX = ".nc"
LOCK = ".signatures.lock"
Existing = Literal["refuse", "extend", "replace"]


class Refused(NamedTuple):
    """A file that was not read.

    Attributes
    ----------
    path : Path
    reason : str
        One line that names it.
    """

    path: Path
    reason: str


class Loaded(NamedTuple):
    """What a folder holds.

    Attributes
    ----------
    signatures : tuple of Signature
        In the order of their files' names.
    refused : tuple of Refused
    """

    signatures: tuple[Signature, ...]
    refused: tuple[Refused, ...]


def file_name(element: str, context: Mapping[str, Any] | None = None) -> str:
    """Return the name of the file of an element and context.

    The first part is there to be read; the second, sixteen digits of a digest of both
    whole, keeps apart what the first part does not.

    Examples
    --------
    >>> file_name("RMS norm/µ", {"gpu": "A100"})
    'rms-norm-c9422d768b4e91ee.nc'
    """
    key = as_json([element, frozen(context or {}, "context")])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    flat = unicodedata.normalize("NFKD", element).encode("ascii", "ignore").decode()
    readable = re.sub(r"[^a-z0-9]+", "-", flat.lower())[:48].strip("-")
    return f"{readable or 'element'}-{digest}{SUFFIX}"


def save(
    signature: Signature, folder: str | Path, *, existing: Existing = "refuse"
) -> Path:
    """Write a signature to its file in a folder, which is made if it is not there.

    Parameters
    ----------
    existing : {"refuse", "extend", "replace"}
        What to do where the folder has the element and context already, with other
        values: refuse; add the blocks that are new, as `Signature.extended`; or
        replace what is there, which is lost.

    Returns
    -------
    Path

    Raises
    ------
    StoreError
        The folder has other values and `existing` is "refuse"; blocks that cannot be
        added; a file there that cannot be read.
    """
    if existing not in ("refuse", "extend", "replace"):
        raise InputError(
            f"existing is {existing!r}, expected 'refuse', 'extend' or 'replace'"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(signature.element, signature.context)
    with locked(folder / LOCK):
        if existing != "replace" and path.exists():
            there = load(path)
            if there.same_as(signature):
                return path
            if existing == "refuse":
                raise StoreError(
                    f"{path}: has other values of {signature.element!r}; expected "
                    "existing='extend' or 'replace', or another folder"
                )
            try:
                signature = there.extended(signature)
            except InputError as error:
                raise StoreError(f"{path}: cannot be extended: {error}") from None
        write_atomic(path, encode(signature))
    return path


def load(path: str | Path, *, checked: bool = True) -> Signature:
    """Return the signature that a file holds.

    Parameters
    ----------
    checked : bool
        Whether the file must be byte for byte as it was written. A file that another
        program has saved again can only be read unchecked.

    Raises
    ------
    StoreError
        `DamagedError`, `NewerVersionError`, `ForeignError`, or a file that cannot be
        opened; the message names it.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{path}: cannot be opened: {reason}") from None
    return decode(content, str(path), checked=checked)


def paths(folder: str | Path) -> tuple[Path, ...]:
    """Return the files of signatures in a folder, by name; hidden ones left out.

    Raises
    ------
    StoreError
        No such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder of signatures")
    found = (p for p in folder.glob(f"*{SUFFIX}") if not p.name.startswith("."))
    return tuple(sorted(found))


def load_all(folder: str | Path) -> Loaded:
    """Return all signatures of a folder, and the files that were refused.

    A second file of the same element and context is refused: its runs would count
    twice.

    Raises
    ------
    StoreError
        No such folder.
    """
    signatures: list[Signature] = []
    refused: list[Refused] = []
    seen: dict[str, Path] = {}
    for path in paths(folder):
        try:
            found = load(path)
            if found.key in seen:
                raise StoreError(
                    f"{path}: same element and context as {seen[found.key].name}"
                )
        except StoreError as error:
            refused.append(Refused(path, str(error)))
            continue
        seen[found.key] = path
        signatures.append(found)
    return Loaded(tuple(signatures), tuple(refused))
