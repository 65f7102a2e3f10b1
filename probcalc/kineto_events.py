"""Events of a Kineto trace, checked and sorted by what they are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from probcalc.errors import PlanError
from probcalc.tracefile import entries, number, seconds, table, whole_of
from probcalc.tracefile import field as needed
from probcalc.units import shown

__all__ = ["Event", "Trace", "parse_events"]

# Categories, of older profilers too.
_WORK = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
_CALLS = {"cuda_runtime", "cuda_driver", "runtime"}
_OPS = {"cpu_op", "operator"}
_NONE = (-1, 2**32 - 1)  # "no stream" of CUDA, signed or not


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One complete event.

    Attributes
    ----------
    where : str
        File and entry, for messages.
    name, kind : str
    thread : tuple
        Process and thread that it stands on.
    start, end, duration : float
        In us; the duration as recorded.
    args : mapping
    """

    where: str
    name: str
    kind: str
    thread: tuple[Hashable, Hashable]
    start: float
    end: float
    duration: float
    args: Mapping[str, Any]

    def whole(self, key: str) -> int | None:
        """Return an argument that is a whole number, None where it is not there."""
        if key not in self.args:
            return None
        value = whole_of(self.args[key], f"{self.where}.args.{key}")
        return None if value in _NONE else value

    @property
    def device(self) -> int:
        """Number of the GPU of work, or of a synchronisation."""
        found = self.whole("device")
        if found is None:
            found = whole_of(self.thread[0], f"{self.where}.pid")
        return found

    @property
    def stream(self) -> int:
        """Number of the stream of work on a GPU."""
        found = self.whole("stream")
        if found is None:
            found = whole_of(self.thread[1], f"{self.where}.tid")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Events by what they are.

    Attributes
    ----------
    work : list of Event
        Kernels, copies and fills on GPUs.
    calls, ops : list of Event
        Of CUDA, and of PyTorch on the CPU.
    syncs : list of Event
    steps : list of Event
        Steps of the profiler.
    flows : dict
        By category and id, the (thread, ts) where a flow starts and ends.
    """

    work: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    ops: list[Event] = field(default_factory=list)
    syncs: list[Event] = field(default_factory=list)
    steps: list[Event] = field(default_factory=list)
    flows: dict[tuple[str, Hashable], dict[str, tuple[Any, float]]] = field(
        default_factory=dict
    )


def parse_events(document: Any, label: str) -> Trace:
    """Sort the events of a trace, which is a table or a bare list of them.

    Raises
    ------
    PlanError
        Anything but that; events without time or with wrong types.
    """
    where = f"{label}: traceEvents"
    if isinstance(document, Mapping):
        document = needed(document, "traceEvents", label)
    trace = Trace()
    for i, event in enumerate(entries(document, where)):
        at = f"{where}[{i}]"
        kind = table(event, at).get("ph")
        category = event.get("cat")
        category = category.lower() if isinstance(category, str) else ""
        if kind == "X":
            _complete(trace, event, category, at)
        elif kind in ("s", "f"):
            key = event.get("id")
            if isinstance(key, str | int):
                place = (_thread(event, at), number(event.get("ts"), f"{at}.ts", "us"))
                trace.flows.setdefault((category, key), {}).setdefault(kind, place)
    return trace


def _complete(
    trace: Trace, event: Mapping[str, Any], category: str, where: str
) -> None:
    name = event.get("name")
    if category in _WORK:
        held, kind = trace.work, _WORK[category]
    elif category in _CALLS:
        held, kind = trace.calls, "call"
    elif category in _OPS:
        held, kind = trace.ops, "op"
    elif category == "cuda_sync":
        held, kind = trace.syncs, "sync"
    elif isinstance(name, str) and name.startswith("ProfilerStep#"):
        if not category.startswith("gpu_"):
            trace.steps.append(_event(event, "step", where))
        return
    else:
        return
    held.append(_event(event, kind, where))


def _event(event: Mapping[str, Any], kind: str, where: str) -> Event:
    name = needed(event, "name", where)
    if not isinstance(name, str) or not name.strip():
        raise PlanError(f"{where}.name: {shown(name)} found; expected a name")
    start = number(needed(event, "ts", where), f"{where}.ts", "microseconds")
    duration = needed(event, "dur", where)
    seconds(duration, f"{where}.dur", 1e-6)
    args = table(event.get("args", {}), f"{where}.args")
    return Event(
        where=where,
        name=" ".join(name.split()),
        kind=kind,
        thread=_thread(event, where),
        start=start,
        end=start + duration,
        duration=duration,
        args=args,
    )


def _thread(event: Mapping[str, Any], where: str) -> tuple[Hashable, Hashable]:
    ids = event.get("pid"), event.get("tid")
    for key, value in zip(("pid", "tid"), ids, strict=True):
        if value is not None and not isinstance(value, str | int):
            raise PlanError(
                f"{where}.{key}: {shown(value)} found; expected a number or a text"
            )
    return ids
