"""Checks of what a signature is made of."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.documents import frozen
from probcalc.measurement.window_record import Window
from probcalc.readonly import ReadOnly
from probcalc.runs import watts
from probcalc.units import shown

__all__ = [
    "counts",
    "details",
    "devices",
    "labels",
    "named",
    "padded",
    "singles",
    "table",
    "text",
    "watts_of",
    "whole",
    "windows",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LONGEST = 500


def text(value: Any, where: str) -> str:
    """Return a text of one line, not empty."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise InputError(f"{where}: {shown(value)} found, expected a text of one line")
    if len(value) > LONGEST:
        raise InputError(
            f"{where}: {len(value)} characters found, expected at most {LONGEST}"
        )
    return value


def named(element: Any) -> str:
    """Check the name of an element; return what messages call its signature."""
    return f"signature {text(element, 'signature, element')!r}"


def whole(value: Any, where: str, least: int = 1) -> int:
    """Return a whole number that is not below the least one."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise InputError(
            f"{where} is {shown(value)}, expected a whole number >= {least}"
        )
    return number


def counts(values: Any, where: str) -> IntArray:
    """Return numbers of runs by block, read-only."""
    given = np.asarray(values)
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iu":
        raise InputError(
            f"{where}: {shown(values)} found, expected one whole number for each block"
        )
    found = given.astype(np.int64)
    if found.min() < 0:
        i = int(np.argmin(found))
        raise InputError(f"{where}: block {i} has {found[i]}, expected >= 0")
    found.setflags(write=False)
    return found


def table(values: Any, runs: IntArray, where: str, unit: str) -> FloatArray:
    """Return values by block and run, read-only; NaN alone is missing."""
    try:
        found = np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{where}: expected numbers by block and run") from None
    if found.ndim != 2 or found.shape[0] != runs.size:
        raise InputError(
            f"{where} has shape {found.shape}, expected {runs.size} blocks by runs"
        )
    if found.shape[1] != runs.max():
        raise InputError(
            f"{where} has {found.shape[1]} columns, expected the {runs.max()} runs of "
            "the longest block"
        )
    beyond = np.arange(found.shape[1])[None, :] >= runs[:, None]
    for wrong, what in (
        (np.isinf(found), "a finite number, or NaN where missing"),
        (found < 0.0, f"above 0 {unit}"),
        (found == 0.0, f"above 0 {unit}; a value that is missing is NaN"),
        (beyond & ~np.isnan(found), "NaN beyond the runs that the block made"),
    ):
        bad = np.argwhere(wrong)
        if bad.size:
            i, j = map(int, bad[0])
            raise InputError(
                f"{where} of block {i}, run {j} is {found[i, j]:g} {unit}, expected "
                f"{what}"
            )
    found.setflags(write=False)
    return found


def padded(blocks: Sequence[npt.ArrayLike], where: str) -> tuple[FloatArray, IntArray]:
    """Return arrays of different lengths as one, padded with NaN, and the lengths."""
    arrays = []
    for i, block in enumerate(blocks):
        try:
            array = np.asarray(block, dtype=float)
        except (TypeError, ValueError):
            array = np.empty((0, 0))
        if array.ndim != 1:
            raise InputError(f"{where} of block {i}: expected one number for each run")
        arrays.append(array)
    if not arrays:
        raise InputError(f"{where}: no blocks, expected at least one")
    lengths = np.array([a.size for a in arrays], dtype=np.int64)
    found = np.full((len(arrays), int(lengths.max())), np.nan)
    for row, array in zip(found, arrays, strict=True):
        row[: array.size] = array
    return found, lengths


def singles(
    times: Any, executions: Any, blocks: int, grain: int, where: str
) -> tuple[FloatArray | None, IntArray | None]:
    """Return times of single executions and their numbers by block, or None twice."""
    if (times is None) != (executions is None):
        raise InputError(f"{where}: give both of run_time and executions, or none")
    if times is None:
        return None, None
    if grain == 1:
        raise InputError(
            f"{where}: run_time is for a grain above 1; at grain 1 time has them"
        )
    count = counts(executions, f"{where}, executions")
    if count.size != blocks:
        raise InputError(
            f"{where}: executions of {count.size} blocks, expected {blocks}"
        )
    return table(times, count, f"{where}, run_time", "s"), count


def labels(given: Iterable[str], blocks: int, where: str) -> tuple[str, ...]:
    """Return the names of blocks, by default their numbers."""
    names = tuple(given) or tuple(map(str, range(blocks)))
    if len(names) != blocks:
        raise InputError(
            f"{where}: {len(names)} block names for {blocks} blocks, expected one each"
        )
    return _distinct(names, f"{where}, block names")


def devices(given: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the devices of an element."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InputError(f"{where}: no device, expected at least one")
    return _distinct(names, f"{where}, devices")


def _distinct(names: tuple[str, ...], where: str) -> tuple[str, ...]:
    seen: set[str] = set()
    for name in names:
        if text(name, where) in seen:
            raise InputError(f"{where}: {name!r} is there twice")
        seen.add(name)
    return names


def watts_of(
    given: Any, hosts: tuple[str, ...], where: str
) -> ReadOnly[str, float] | None:
    """Return powers in W by device."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or set(given) != set(hosts):
        found = sorted(map(str, given)) if isinstance(given, Mapping) else shown(given)
        raise InputError(
            f"{where} is stated for {found}, expected its devices {sorted(hosts)}"
        )
    return ReadOnly(
        {host: watts(given[host], f"{where} on {host!r}") for host in hosts}
    )


def details(given: Iterable[Any], blocks: int, where: str) -> tuple[Any, ...]:
    """Return what is known of each block."""
    held = tuple(given) or ({},) * blocks
    if len(held) != blocks:
        raise InputError(f"{where}: details of {len(held)} blocks, expected {blocks}")
    for i, one in enumerate(held):
        if not isinstance(one, Mapping):
            raise InputError(f"{where}, details of block {i}: expected a mapping")
    return tuple(
        frozen(d, f"{where}, details of block {i}") for i, d in enumerate(held)
    )


def windows(
    given: Iterable[Any], energy: FloatArray, runs: IntArray, scope: str, where: str
) -> tuple[Window, ...]:
    """Return the windows, which must not contradict the energies."""
    held = tuple(given)
    seen: set[tuple[int, int]] = set()
    for i, window in enumerate(held):
        at = f"{where}, window {i}"
        if not isinstance(window, Window):
            raise InputError(f"{at}: {shown(window)} found, expected a Window")
        if not 0 <= window.block < runs.size:
            raise InputError(f"{at}: block {window.block} of {runs.size}")
        if window.run is None:
            continue
        cell = (window.block, window.run)
        if not 0 <= window.run < runs[window.block]:
            raise InputError(
                f"{at}: run {window.run} of block {window.block}, which made "
                f"{runs[window.block]}"
            )
        if cell in seen:
            raise InputError(f"{at}: run {window.run} of block {window.block} twice")
        seen.add(cell)
        if window.valid and window.scope not in ("", scope):
            raise InputError(
                f"{at} has scope {window.scope!r}, expected {scope!r}; scopes are "
                "never mixed"
            )
        if np.isnan(energy[cell]) == window.valid:
            is_, has = ("valid", "no") if window.valid else ("invalid", "an")
            raise InputError(
                f"{at} is {is_}, and run {window.run} of block {window.block} has "
                f"{has} energy"
            )
    return held
