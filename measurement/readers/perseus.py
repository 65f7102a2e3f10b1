"""Records of Perseus (SOSP 2024): iterations of a pipeline, rank by rank.

``N.prof.json`` holds for every rank the time and energy of each iteration and the times
of each load, forward and backward within it; ``N.sched.json`` the clocks that were set,
in the order of the instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc import tracefile
from probcalc.errors import PlanError
from probcalc.measurement.readers.cells import ReaderError, Skipped, read_document
from probcalc.readonly import ReadOnly

__all__ = ["Profile", "RankClocks", "RankProfile", "read_profile", "read_schedule"]

FloatArray = npt.NDArray[np.float64]
MHZ = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class RankProfile:
    """Iterations of one rank.

    Attributes
    ----------
    rank : int
    time, energy : FloatArray, shape (iterations,)
        In s and J; an energy that is missing is NaN.
    times : mapping of str to tuple of FloatArray
        By kind ("load", "forward", "backward"), for each iteration the times in s of
        its instructions in order; empty where none was recorded.
    """

    rank: int
    time: FloatArray
    energy: FloatArray
    times: Mapping[str, tuple[FloatArray, ...]]


@dataclass(frozen=True, slots=True)
class Profile:
    """A record of all ranks, in the order of the file."""

    ranks: tuple[RankProfile, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RankClocks:
    """Clocks of one rank in Hz, in the order of its instructions."""

    rank: int
    frequency: FloatArray


def read_profile(path: str | Path) -> Profile:
    """Read ``N.prof.json``.

    Raises
    ------
    ReaderError
        A field that is missing or of another kind, a time that is negative; names the
        file and the entry.
    """
    label = tracefile.label_of(path)
    skipped: list[Skipped] = []
    ranks = [
        _rank(held, where, label, skipped)
        for held, where in _ranks(read_document(path), label)
    ]
    return Profile(tuple(ranks), tuple(skipped))


def _ranks(document: object, label: str) -> list[tuple[Mapping[str, Any], str]]:
    """Return the tables of the ranks and what to call them."""
    try:
        held = tracefile.entries(document, "ranks")
        if not held:
            raise ReaderError(label, "no ranks, expected at least one")
        return [
            (tracefile.table(one, f"entry {i}"), f"entry {i}")
            for i, one in enumerate(held)
        ]
    except PlanError as error:
        raise ReaderError(label, str(error)) from None


def _rank(
    held: Mapping[str, Any], where: str, label: str, skipped: list[Skipped]
) -> RankProfile:
    try:
        rank = tracefile.whole_of(
            tracefile.field(held, "rank", where), f"{where}, rank"
        )
        where = f"rank {rank}"
        time = _seconds(
            tracefile.field(held, "iter_time", where), f"{where}, iter_time"
        )
        energy = _energies(held, where, time.size, skipped)
        parts = tracefile.table(
            tracefile.field(held, "time_breakdown", where), f"{where}, time_breakdown"
        )
        times = {
            kind: _iterations(parts[kind], f"{where}, {kind}", time.size)
            for kind in parts
        }
    except PlanError as error:
        raise ReaderError(label, str(error)) from None
    _unread(held, where, skipped)
    return RankProfile(rank, time, energy, ReadOnly(times))


def _energies(
    held: Mapping[str, Any], where: str, count: int, skipped: list[Skipped]
) -> FloatArray:
    where = f"{where}, iter_energy"
    given = tracefile.entries(tracefile.field(held, "iter_energy", where), where)
    if len(given) != count:
        raise PlanError(f"{where}: {len(given)} values for {count} iterations")
    found = np.empty(count)
    for i, value in enumerate(given):
        at = f"{where}[{i}]"
        found[i] = np.nan if value is None else tracefile.number(value, at, "joules")
        if not found[i] > 0.0:
            skipped.append(
                Skipped(None, at, "no energy above 0 J: missing", str(value))
            )
            found[i] = np.nan
    found.setflags(write=False)
    return found


def _iterations(value: Any, where: str, count: int) -> tuple[FloatArray, ...]:
    held = tracefile.entries(value, where)
    if held and len(held) != count:
        raise PlanError(f"{where}: {len(held)} lists for {count} iterations")
    return tuple(_seconds(one, f"{where}[{i}]") for i, one in enumerate(held))


def _seconds(value: Any, where: str) -> FloatArray:
    held = tracefile.entries(value, where)
    found = np.array(
        [tracefile.seconds(v, f"{where}[{i}]") for i, v in enumerate(held)], dtype=float
    )
    found.setflags(write=False)
    return found


def _unread(held: Mapping[str, Any], where: str, skipped: list[Skipped]) -> None:
    read = ("rank", "iter_time", "iter_energy", "time_breakdown")
    for name in held:
        if name not in read:
            reason = "field not read"
            if name == "energy_breakdown" and not _values(held[name]):
                reason = "holds no values: energy was recorded by iteration alone"
            skipped.append(Skipped(None, f"{where}, {name}"[:200], reason))


def _values(value: Any) -> bool:
    """Whether nested lists and tables hold anything."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list):
            left += one
        else:
            return True
    return False


def read_schedule(path: str | Path) -> tuple[RankClocks, ...]:
    """Read ``N.sched.json``.

    Raises
    ------
    ReaderError
        A field that is missing or of another kind, a clock not above 0; names the file
        and the entry.
    """
    label = tracefile.label_of(path)
    found = []
    for held, where in _ranks(read_document(path), label):
        try:
            rank = tracefile.whole_of(
                tracefile.field(held, "rank", where), f"{where}, rank"
            )
            at = f"rank {rank}, power_states"
            given = tracefile.entries(tracefile.field(held, "power_states", at), at)
            clocks = [
                tracefile.number(v, f"{at}[{i}]", "a clock in MHz")
                for i, v in enumerate(given)
            ]
        except PlanError as error:
            raise ReaderError(label, str(error)) from None
        for i, clock in enumerate(clocks):
            if clock <= 0.0:
                raise ReaderError(
                    label,
                    f"{at}[{i}]: {clock:g} found; expected a clock in MHz above 0",
                )
        frequency = np.array(clocks, dtype=float) * MHZ
        frequency.setflags(write=False)
        found.append(RankClocks(rank, frequency))
    return tuple(found)
