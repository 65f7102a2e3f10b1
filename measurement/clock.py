"""Clocks that readings are stamped with: the host's, or one that tests advance."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from probcalc.errors import InputError

__all__ = ["Clock", "HostClock", "VirtualClock", "host_offsets", "offset_among"]

# A driver's newest stamp is no older than this, in s, and none is from the future but
# by rounding.
_OLDEST, _AHEAD = 60.0, 1e-3


class Clock(Protocol):
    """Time in s from any origin, and a way to let some pass."""

    def now(self) -> float:
        """Return the time in s."""
        ...

    def sleep(self, duration: float) -> None:
        """Let `duration` s pass."""
        ...


@dataclass(frozen=True, slots=True)
class HostClock:
    """The host's monotonic clock, which on Linux all processes share."""

    def now(self) -> float:
        """Return the time in s since the host started."""
        return time.monotonic()

    def sleep(self, duration: float) -> None:
        """Wait for `duration` s."""
        time.sleep(max(duration, 0.0))


class VirtualClock:
    """A clock that moves only when it is told to.

    Parameters
    ----------
    start : float
        In s.

    Examples
    --------
    >>> clock = VirtualClock()
    >>> clock.sleep(0.25)
    >>> clock.now()
    0.25
    """

    __slots__ = ("_now",)

    def __init__(self, start: float = 0.0) -> None:
        # Whole nanoseconds, so that a thousand steps of 1 ms make one second.
        self._now = round(start * 1e9)

    def now(self) -> float:
        """Return the time in s."""
        return self._now * 1e-9

    def sleep(self, duration: float) -> None:
        """Move on by `duration` s; a negative one is refused."""
        if not (math.isfinite(duration) and duration >= 0.0):
            raise InputError(
                f"clock: sleep of {duration!r} s, expected a finite number >= 0"
            )
        self._now += round(duration * 1e9)


def host_offsets() -> tuple[float, ...]:
    """Return what to add to the host's boot clock and wall clock to get ours, in s.

    Those that the host has: Linux has both.
    """
    found = []
    for name in ("CLOCK_BOOTTIME", "CLOCK_REALTIME"):
        clock = getattr(time, name, None)
        if clock is None:
            continue
        # The tightest of a few pairs: another process may run between two calls.
        pairs = []
        for _ in range(3):
            before = time.monotonic()
            other = time.clock_gettime(clock)
            after = time.monotonic()
            pairs.append((after - before, 0.5 * (before + after) - other))
        found.append(min(pairs)[1])
    return tuple(found)


def offset_among(offsets: Iterable[float], newest: float, now: float) -> float | None:
    """Return the offset that puts a stamp in s shortly before now, or None.

    Examples
    --------
    >>> offset_among([0.0, -1.77e9], newest=1.77e9 + 4.98, now=5.0)
    -1770000000.0
    """
    for offset in offsets:
        if -_OLDEST < newest + offset - now < _AHEAD:
            return offset
    return None
