"""Readings of several boards, in memory and in a file that grows while they come."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probcalc.measurement.meter import SOURCES, Device, Missing, Reading, Trace
from probcalc.measurement.polling import Series

__all__ = ["Log", "Records", "Watch"]

# A board's UUID, what was read of it, and the scope of that.
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Watch:
    """What was watched on a board beside its energy.

    Attributes
    ----------
    temperature : tuple of Reading
        In degree Celsius.
    throttled : tuple of Reading
        Cumulative time in s with clocks held down.
    processes : tuple of int
        Ids of all compute processes that were seen on the board at any time.
    missing : tuple of Missing
        Of the above.
    """

    temperature: tuple[Reading, ...]
    throttled: tuple[Reading, ...]
    processes: tuple[int, ...]
    missing: tuple[Missing, ...]


@dataclass(slots=True)
class Records:
    """Readings by board, source and scope, in the order they came."""

    series: dict[_Key, Series] = field(default_factory=dict)
    seen: dict[str, set[int]] = field(default_factory=dict)

    def add(self, key: _Key, found: Reading | Missing) -> None:
        """Add what a poll found."""
        self.series.setdefault(key, Series()).add(found)

    def saw(self, uuid: str, processes: Iterable[int]) -> None:
        """Add processes on a board."""
        self.seen.setdefault(uuid, set()).update(processes)

    def flush(self) -> None:
        """Nothing to do in memory."""

    def traces(self, device: Device, interval: float) -> tuple[Trace, ...]:
        """Return one trace for each source and scope of a board."""
        return tuple(
            series.trace((source, scope), interval, device)  # type: ignore[arg-type]
            for (uuid, source, scope), series in self.series.items()
            if uuid == device.uuid and source in SOURCES
        )

    def watch(self, uuid: str) -> Watch:
        """Return temperatures, throttle times and processes of a board."""
        kept: dict[str, tuple[Reading, ...]] = {}
        missing: list[Missing] = []
        for (of, source, _), series in self.series.items():
            if of == uuid and source not in SOURCES:
                rows = zip(series.before, series.value, series.after, strict=True)
                kept[source] = tuple(Reading(*row, source) for row in rows)
                missing += series.missing
        return Watch(
            kept.get("temperature", ()),
            kept.get("throttled", ()),
            tuple(sorted(self.seen.get(uuid, ()))),
            tuple(missing),
        )

    @classmethod
    def read(cls, path: Path) -> Records:
        """Read what a `Log` has written so far; a line half written is left out."""
        records = cls()
        keys: dict[int, _Key] = {}
        for line in path.read_bytes().split(b"\n")[:-1]:
            kind, *rest = json.loads(line)
            if kind == "key":
                keys[rest[0]] = (rest[1], rest[2], rest[3])
            elif kind == "processes":
                records.saw(rest[0], rest[1])
            elif kind == "missing":
                records.add(keys[rest[0]], Missing(*rest[1:]))
            else:
                _, source, scope = keys[kind]
                records.add(keys[kind], Reading(*rest, source, scope))  # type: ignore[arg-type]
        return records


class Log:
    """A file of readings: one line of JSON each, whole polls written at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._keys: dict[_Key, int] = {}
        self._lines: list[str] = []

    def add(self, key: _Key, found: Reading | Missing) -> None:
        """Add what a poll found."""
        if key not in self._keys:
            self._keys[key] = len(self._keys)
            self._line("key", self._keys[key], *key)
        number = self._keys[key]
        if isinstance(found, Missing):
            self._line("missing", number, found.before, found.after, found.reason)
        else:
            self._line(number, found.before, found.value, found.after)

    def saw(self, uuid: str, processes: Iterable[int]) -> None:
        """Add processes on a board."""
        self._line("processes", uuid, list(processes))

    def flush(self) -> None:
        """Write the lines added since the last time."""
        text = "".join(self._lines).encode()
        self._lines.clear()
        while text:
            text = text[os.write(self._file, text) :]

    def _line(self, *items: Any) -> None:
        self._lines.append(json.dumps(items) + "\n")
