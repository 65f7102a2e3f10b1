"""One signature as the bytes of one netCDF-4 file, and back.

The file describes itself: dimensions `block` and `run` (`execution` for times of single
executions, `window` and `device`), units as attributes, free-form facts as variables
that hold JSON. Its group `posterior` repeats time and energy with the dimensions
`chain` and `draw`, under which ArviZ opens it. A last line after the netCDF content,
which HDF5 passes over, holds a check sum.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from probcalc._version import __version__
from probcalc.errors import InputError, ProbcalcError
from probcalc.measurement.documents import as_json
from probcalc.measurement.signature import Signature
from probcalc.measurement.window_record import NUMBERS, TEXTS, Window

if TYPE_CHECKING:
    import h5netcdf

__all__ = [
    "VERSION",
    "DamagedError",
    "ForeignError",
    "NewerVersionError",
    "StoreError",
    "decode",
    "encode",
]

VERSION = 1
FORMAT = "probcalc signature"

_DOCUMENTS = {
    "context": "what it was measured under",
    "workload": "theta",
    "implementation": "kappa",
    "operating_point": "omega",
    "device_facts": "boards and driver",
    "probe": "what the instruments are worth",
    "calibration": "how static power was found",
    "metadata": "all else",
}
_OF_WINDOWS = {"reasons": [], "notes": [], "details": {}}


class StoreError(ProbcalcError):
    """A file or folder of signatures that cannot be used as asked; names it."""


class DamagedError(StoreError):
    """Cut off, or changed since it was written."""


class ForeignError(StoreError):
    """No signature, or not one of this package."""


class NewerVersionError(StoreError):
    """Written by a later version of this package."""


def encode(signature: Signature) -> bytes:
    """Return a signature as the content of a netCDF-4 file."""
    import h5netcdf

    held = io.BytesIO()
    with h5netcdf.File(held, "w") as file:
        _attributes(file, signature)
        _arrays(file, signature)
        _windows(file, signature.windows)
        _copy_for_arviz(file, signature)
    content = held.getvalue()
    return content + _line(content)


def _line(content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return f"\n{FORMAT} {VERSION} sha256 {digest}\n".encode()


def _attributes(file: h5netcdf.File, signature: Signature) -> None:
    now = datetime.datetime.now(datetime.UTC)
    file.attrs["format"] = FORMAT
    file.attrs["format_version"] = np.int64(VERSION)
    file.attrs["probcalc_version"] = __version__
    file.attrs["written"] = now.isoformat(timespec="seconds")
    file.attrs["element"] = signature.element
    file.attrs["grain"] = np.int64(signature.grain)
    file.attrs["scope"] = signature.scope


def _arrays(file: h5netcdf.File, s: Signature) -> None:
    file.dimensions = {"block": s.runs.size, "device": len(s.devices)}
    mean = "" if s.grain == 1 else f", mean of {s.grain} executions"
    _numbers(file, "runs", ("block",), s.runs, "1", "runs made, missing ones included")
    if s.time.shape[1]:
        file.dimensions["run"] = s.time.shape[1]
        for name, unit in (("time", "s"), ("energy", "J")):
            said = f"{name} per execution{mean}; NaN where missing"
            _numbers(file, name, ("block", "run"), getattr(s, name), unit, said)
    if s.run_time is not None and s.executions is not None:
        _numbers(file, "executions", ("block",), s.executions, "1", "executions timed")
        if s.run_time.shape[1]:
            file.dimensions["execution"] = s.run_time.shape[1]
            said = "time of single executions; NaN where missing"
            dims = ("block", "execution")
            _numbers(file, "run_time", dims, s.run_time, "s", said)
    _texts(file, "block", ("block",), s.block_names, "name of the block, a process")
    _texts(file, "device", ("device",), s.devices, "where it ran")
    for name in ("static_power", "static_power_error"):
        by = getattr(s, name)
        if by is not None:
            values = np.array([by[device] for device in s.devices])
            said = f"{name.replace('_', ' ')} of ready idle"
            _numbers(file, name, ("device",), values, "W", said)
    for name, said in _DOCUMENTS.items():
        _texts(file, name, (), as_json(getattr(s, name)), said, json=True)
    known = [as_json(d) for d in s.block_details]
    _texts(file, "block_details", ("block",), known, "known of each block", json=True)


def _windows(file: h5netcdf.File, windows: tuple[Window, ...]) -> None:
    if not windows:
        return
    file.dimensions["window"] = len(windows)
    dims = ("window",)
    whole = {
        "block": "number of its block",
        "run": "column of its run, -1 for none",
        "repetitions": "executions in it, -1 where unknown",
        "valid": "1 where its energy may be used",
    }
    for name, said in whole.items():
        values = [getattr(w, name) for w in windows]
        column = np.array([-1 if v is None else int(v) for v in values], dtype=np.int64)
        _numbers(file, f"window_{name}", dims, column, "1", said)
    for name, unit in NUMBERS.items():
        values = [getattr(w, name) for w in windows]
        column = np.array([np.nan if v is None else v for v in values])
        said = f"{name} of the window; NaN where missing"
        _numbers(file, f"window_{name}", dims, column, unit, said)
    for name in TEXTS:
        values = [getattr(w, name) for w in windows]
        _texts(file, f"window_{name}", dims, values, name, json=False)
    for name in _OF_WINDOWS:
        values = [as_json(getattr(w, name)) for w in windows]
        _texts(file, f"window_{name}", dims, values, name, json=True)


def _copy_for_arviz(file: h5netcdf.File, s: Signature) -> None:
    if not s.time.shape[1]:
        return
    group = file.create_group("posterior")
    group.dimensions = {"chain": s.time.shape[0], "draw": s.time.shape[1]}
    _texts(group, "chain", ("chain",), s.block_names, "name of the block")
    for name, unit in (("time", "s"), ("energy", "J")):
        said = "as in the root, under ArviZ's dimensions"
        _numbers(group, name, ("chain", "draw"), getattr(s, name), unit, said)


def _numbers(
    group: Any, name: str, dims: tuple[str, ...], values: Any, unit: str, said: str
) -> None:
    fill = np.nan if values.dtype.kind == "f" else None
    variable = group.create_variable(name, dims, dtype=values.dtype, fillvalue=fill)
    variable[...] = values
    variable.attrs["units"] = unit
    variable.attrs["long_name"] = said


def _texts(
    group: Any,
    name: str,
    dims: tuple[str, ...],
    values: Any,
    said: str,
    *,
    json: bool = False,
) -> None:
    import h5py

    variable = group.create_variable(name, dims, dtype=h5py.string_dtype())
    variable[...] = np.array(values, dtype=object) if dims else values
    variable.attrs["long_name"] = said
    if json:
        variable.attrs["media_type"] = "application/json"


def decode(content: bytes, where: str, *, checked: bool = True) -> Signature:
    """Return the signature that a file holds.

    Parameters
    ----------
    content : bytes
        Of the file.
    where : str
        What messages call it.
    checked : bool
        Whether it must be as it was written; a file that another program has saved
        again has lost its check sum.

    Raises
    ------
    DamagedError
        Cut off or changed.
    NewerVersionError
        Of a later format.
    ForeignError
        No signature.
    """
    body = _verified(content, where) if checked else content
    import h5netcdf

    try:
        with h5netcdf.File(io.BytesIO(body), "r") as file:
            version = _version(file, where)
            if version > VERSION:
                raise _newer(version, where)
            return _signature(file)
    except ProbcalcError as error:
        if isinstance(error, StoreError):
            raise
        raise DamagedError(f"{where}: {error}") from None
    except Exception as error:  # whatever HDF5 finds wrong
        said = " ".join(str(error).split())
        raise DamagedError(
            f"{where}: cannot be read: {type(error).__name__}: {said}"
        ) from None


def _verified(content: bytes, where: str) -> bytes:
    """Return the netCDF content of a file whose check sum is right."""
    body, _, last = content[:-1].rpartition(b"\n")
    words = last.decode("ascii", "replace").split(" ")
    if content[-1:] != b"\n" or len(words) != 5 or " ".join(words[:2]) != FORMAT:
        raise DamagedError(
            f"{where}: the check sum at its end is missing: cut off, no signature, or "
            "saved again by another program"
        )
    if words[2].isdecimal() and int(words[2]) > VERSION:
        raise _newer(int(words[2]), where)
    if _line(body).split()[-1] != last.split()[-1]:
        raise DamagedError(f"{where}: changed since it was written (check sum)")
    return body


def _newer(version: int, where: str) -> NewerVersionError:
    return NewerVersionError(
        f"{where}: format version {version}, expected at most {VERSION}; a later "
        "probcalc reads it"
    )


def _version(file: h5netcdf.File, where: str) -> int:
    attrs: Any = file.attrs
    named = attrs.get("format")
    if named != FORMAT:
        raise ForeignError(
            f"{where}: its attribute format is {str(named)[:60]!r}, expected {FORMAT!r}"
        )
    return int(attrs["format_version"])


def _signature(file: h5netcdf.File) -> Signature:
    attrs: Any = file.attrs
    runs = np.array(file["runs"][...])
    devices = _strings(file, "device")
    empty = np.empty((runs.size, 0))
    fields: dict[str, Any] = {name: json.loads(_one(file, name)) for name in _DOCUMENTS}
    for name in ("static_power", "static_power_error"):
        if name in file.variables:
            watts = np.array(file[name][...]).tolist()
            fields[name] = dict(zip(devices, watts, strict=True))
    if "executions" in file.variables:
        fields["executions"] = np.array(file["executions"][...])
        timed = "run_time" in file.variables
        fields["run_time"] = np.array(file["run_time"][...]) if timed else empty
    return Signature(
        element=str(attrs["element"]),
        time=np.array(file["time"][...]) if "time" in file.variables else empty,
        energy=np.array(file["energy"][...]) if "energy" in file.variables else empty,
        runs=runs,
        block_names=_strings(file, "block"),
        grain=int(attrs["grain"]),
        devices=devices,
        scope=str(attrs["scope"]),
        windows=_windows_of(file),
        block_details=tuple(map(json.loads, _strings(file, "block_details"))),
        **fields,
    )


def _windows_of(file: h5netcdf.File) -> tuple[Window, ...]:
    if "window" not in file.dimensions:
        return ()
    columns: dict[str, Any] = {}
    for name in ("block", "run", "repetitions", "valid"):
        columns[name] = np.array(file[f"window_{name}"][...]).tolist()
    for name in ("run", "repetitions"):
        columns[name] = [None if v == -1 else v for v in columns[name]]
    columns["valid"] = [v == 1 for v in columns["valid"]]
    for name in NUMBERS:
        values = np.array(file[f"window_{name}"][...])
        columns[name] = [None if np.isnan(v) else float(v) for v in values]
    for name in TEXTS:
        columns[name] = _strings(file, f"window_{name}")
    for name in _OF_WINDOWS:
        columns[name] = [json.loads(v) for v in _strings(file, f"window_{name}")]
    rows = zip(*columns.values(), strict=True)
    return tuple(Window(**dict(zip(columns, row, strict=True))) for row in rows)


def _strings(file: h5netcdf.File, name: str) -> tuple[str, ...]:
    return tuple(
        v.decode() if isinstance(v, bytes) else str(v) for v in file[name][...]
    )


def _one(file: h5netcdf.File, name: str) -> str:
    value = file[name][...]
    value = value.item() if isinstance(value, np.ndarray) else value
    if not isinstance(value, str | bytes):
        raise InputError(f"{name} holds no text")
    return value.decode() if isinstance(value, bytes) else value
