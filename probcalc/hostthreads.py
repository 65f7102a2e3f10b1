"""Threads of the CPU in a trace: the innermost events, one after the other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from probcalc.kineto_events import Event

__all__ = ["Threads"]


class Threads:
    """Innermost events ("leaves") of every thread, in their order.

    An event that others lie within is no leaf: what it does beside them is the time
    between them.

    Parameters
    ----------
    events : sequence of Event
        Of any threads, in any order.

    Attributes
    ----------
    leaves : list of list of Event
        By thread.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        threads: dict[tuple[Hashable, Hashable], list[Event]] = {}
        for event in events:
            threads.setdefault(event.thread, []).append(event)
        self._first: dict[int, Event] = {}
        self._last: dict[int, Event] = {}
        self._outermost: dict[tuple[object, float], Event] = {}
        self.leaves: list[list[Event]] = []
        for mine in threads.values():
            # Those that start together enclose each other by their length.
            mine.sort(key=lambda e: (e.start, -e.end))
            for event in mine:
                self._outermost.setdefault((event.thread, event.start), event)
            self.leaves.append(self._innermost(mine))

    def _innermost(self, events: Sequence[Event]) -> list[Event]:
        leaves: list[Event] = []
        around: list[Event] = []
        for event, after in zip(events, [*events[1:], None], strict=True):
            while around and around[-1].end <= event.start:
                around.pop()
            around.append(event)
            # What starts within an event lies in it, even if rounded microseconds
            # let it end a little later.
            if after is not None and after.start < event.end:
                continue
            leaves.append(event)
            for outer in around:
                self._first.setdefault(id(outer), event)
                self._last[id(outer)] = event
        return leaves

    def first(self, event: Event) -> Event:
        """Return the first leaf of an event, itself if it is one."""
        return self._first.get(id(event), event)

    def last(self, event: Event) -> Event:
        """Return the last leaf of an event, itself if it is one."""
        return self._last.get(id(event), event)

    def at(self, thread: object, start: float) -> Event | None:
        """Return the outermost event of a thread that starts at some time."""
        return self._outermost.get((thread, start))
