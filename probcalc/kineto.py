"""Traces of the PyTorch profiler (Kineto, Chrome trace JSON) as plans.

Kernels, copies and fills are nodes on one device for each GPU; its streams are lanes
that overlap on it. What orders them is what the trace records:

* the order within a stream;
* a stream that waits for an event of another one ("Stream Wait Event");
* a thread of the CPU that waits for a stream, an event or the device ("Stream Sync",
  "Event Sync", "Context Sync") before it launches more;
* with ``cpu="launches"`` or ``cpu="ops"``, the launch of each by the CPU.

Synchronisation events stand in traces recorded with
``_ExperimentalConfig(enable_cuda_sync_events=True)``. Without them only calls that
wait for whole devices are known to wait for what.
"""

from __future__ import annotations

import bisect
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from probcalc.errors import InputError, PlanError
from probcalc.hostthreads import Threads
from probcalc.kineto_events import Event, Trace, parse_events
from probcalc.plan import Plan
from probcalc.recorded import DynamicEnergy, Edges, Laws, Record, plan_of
from probcalc.tracefile import label_of, read_json, stem_of

__all__ = ["Cpu", "read_kineto"]

Cpu = Literal["none", "launches", "ops"]

US = 1e-6
_LAUNCH_FLOWS = ("ac2g", "async_cpu_to_gpu", "async_gpu")
_WHOLE_DEVICE = ("cudaDeviceSynchronize", "cuCtxSynchronize")
_STEM = 80  # characters of the name of a kernel in that of its node


def read_kineto(
    path: str | pathlib.Path,
    *,
    static_power: float | Mapping[str, float],
    dynamic_energy: DynamicEnergy = None,
    cpu: Cpu = "none",
    laws: Laws = "recorded",
    name: str | None = None,
) -> Plan:
    """Read a trace of the PyTorch profiler as a plan; independent draws.

    Parameters
    ----------
    path : path
        Of the JSON, packed by gzip or not.
    static_power : float or mapping of str to float
        In W, which no trace has: of every device, or by device ("gpu0", "cpu").
    dynamic_energy : mapping or callable, optional
        Law of d in J by the name of the kernel, or a function of that name and its
        time in s. Without it the plan's energy is static only, as its name says.
    cpu : {"none", "launches", "ops"}
        The GPU alone, as if launches always came early enough; or nothing starts
        before its launch, counted from the first of them; or the innermost operations
        and calls on the CPU are nodes of device "cpu" too, with the time between them
        as lags, and work follows the call that launches it.
    laws : {"recorded", "pooled"}
        Every node takes the time it took, or draws from all times of its kernel.
    name : str, optional
        Of the plan; the file's without.

    Returns
    -------
    Plan
        With labels "kind" ("kernel", "memcpy", "memset", "op", "call"), "name",
        "stream" and "step" (number of the profiler's step). Nodes are named by kernel
        and count: ``gemm#3``.

    Raises
    ------
    PlanError
        Anything that is no such trace, in one line that names file, entry, field,
        value and what was expected.
    InputError
        As `recorded.plan_of`.
    """
    if cpu not in get_args(Cpu):
        known = ", ".join(map(repr, get_args(Cpu)))
        raise InputError(f"cpu is {cpu!r}, expected one of {known}")
    label = label_of(path)
    trace = parse_events(read_json(path), label)
    if not trace.work and cpu != "ops":
        raise PlanError(
            f"{label}: no work on a GPU; expected events of category 'kernel', "
            "'gpu_memcpy' or 'gpu_memset'"
        )
    works = _works(trace)
    edges = Edges()
    streams = _streams(works)
    for stream in streams.values():
        for a, b in itertools.pairwise(stream.works):
            edges.add(a.node, b.node, kind="serial")
    _stream_waits(trace, streams, edges)
    origin = min([w.launched for w in works], default=0.0)
    names: dict[str, int] = {}
    steps = sorted((e.start, e.end, e.name) for e in trace.steps)
    records = [
        _record(
            w.event, names, (f"gpu{w.event.device}",), w.event.duration, steps,
            at=w.launched, stream=w.event.stream,
            release=(w.launched - origin) * US if cpu == "launches" else 0.0,
        )
        for w in works
    ]  # fmt: skip
    if cpu == "ops":
        _host_nodes(trace, works, streams, records, names, edges, steps)
    else:
        _host_waits(trace, streams, edges)
    return plan_of(
        records,
        edges,
        label=label,
        name=stem_of(label) if name is None else name,
        static_power=static_power,
        dynamic_energy=dynamic_energy,
        laws=laws,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """One kernel, copy or fill, and the call that launched it."""

    node: int
    event: Event
    call: Event | None
    launched: float  # us; its own start where the launch was not recorded
    thread: Any
    lane: tuple[int, int]  # device and stream


class _Stream:
    """Work of one stream in its order, searched by the time of launch."""

    def __init__(self, works: Sequence[_Work]) -> None:
        self.works = works
        # In the order of the stream, the latest launch so far.
        self._latest = list(itertools.accumulate((w.launched for w in works), max))

    def last(self, until: float) -> _Work | None:
        """Return the last work of which all was launched by some time."""
        i = bisect.bisect_right(self._latest, until) - 1
        return self.works[i] if i >= 0 else None

    def first(self, since: float, thread: Any = None) -> _Work | None:
        """Return the first work launched from some time on, by some thread."""
        for i in range(bisect.bisect_left(self._latest, since), len(self.works)):
            w = self.works[i]
            if w.launched >= since and thread in (None, w.thread):
                return w
        return None


def _works(trace: Trace) -> list[_Work]:
    calls = _by_correlation(trace.calls)
    ends = {
        flow["f"]: flow["s"]
        for (category, _), flow in trace.flows.items()
        if category in _LAUNCH_FLOWS and len(flow) == 2
    }
    works = []
    for node, event in enumerate(trace.work):
        call = calls.get(event.whole("correlation"))
        thread, at = None, event.start
        if call is not None:
            thread, at = call.thread, call.start
        elif (event.thread, event.start) in ends:
            thread, at = ends[event.thread, event.start]
        # Nothing starts before its launch: clocks of two processors differ.
        at, lane = min(at, event.start), (event.device, event.stream)
        works.append(_Work(node, event, call, at, thread, lane))
    return works


def _by_correlation(events: Sequence[Event]) -> dict[int | None, Event]:
    found: dict[int | None, Event] = {}
    for event in events:
        key = event.whole("correlation")
        if key is not None:
            found.setdefault(key, event)
    return found


def _streams(works: Sequence[_Work]) -> dict[tuple[int, int], _Stream]:
    lanes: dict[tuple[int, int], list[_Work]] = {}
    for w in works:
        lanes.setdefault(w.lane, []).append(w)
    for lane in lanes.values():
        lane.sort(key=lambda w: (w.event.start, w.launched))
    return {key: _Stream(lane) for key, lane in lanes.items()}


def _awaited(
    sync: Event,
    call: Event | None,
    records: Mapping[int | None, Event],
    streams: Mapping[tuple[int, int], _Stream],
) -> list[_Work]:
    """Work that a synchronisation waits for: the last of each stream concerned."""
    called = sync.start if call is None else call.start
    kind = sync.args.get("cuda_sync_kind", sync.name)
    if kind in ("Event Sync", "Stream Wait Event"):
        lane = streams.get((sync.device, sync.whole("wait_on_stream") or 0))
        if sync.whole("wait_on_stream") is None or lane is None:
            return []  # an event that was never recorded, or with no work before it
        record = records.get(sync.whole("wait_on_cuda_event_record_corr_id"))
        found = lane.last(called if record is None else record.start)
        # Where the record of the event is unknown it is taken to be the latest before
        # the wait, unless the trace shows that this was not waited for.
        if record is None and found is not None and found.event.end > sync.end:
            return []
        return [found] if found is not None else []
    if kind == "Stream Sync":
        lanes = [streams.get((sync.device, sync.stream))]
    elif kind == "Context Sync":
        lanes = [lane for (device, _), lane in streams.items() if device == sync.device]
    else:
        return []
    found = [lane.last(called) for lane in lanes if lane is not None]
    return [w for w in found if w is not None]


def _stream_waits(
    trace: Trace, streams: Mapping[tuple[int, int], _Stream], edges: Edges
) -> None:
    calls = _by_correlation(trace.calls)
    for sync in trace.syncs:
        if sync.args.get("cuda_sync_kind", sync.name) != "Stream Wait Event":
            continue
        call = calls.get(sync.whole("correlation"))
        key = sync.device, sync.stream
        lane = streams.get(key)
        if lane is None:
            continue
        after = lane.first(sync.start if call is None else call.start)
        for before in _awaited(sync, call, calls, streams):
            if after is not None and before.lane != key:
                edges.add(before.node, after.node, kind="sync")


def _waits(
    trace: Trace, streams: Mapping[tuple[int, int], _Stream]
) -> list[tuple[Event, list[_Work]]]:
    """Waits of the CPU, as the call or else the event, and what they wait for."""
    calls = _by_correlation(trace.calls)
    found = []
    known = set()
    for sync in trace.syncs:
        if sync.args.get("cuda_sync_kind", sync.name) == "Stream Wait Event":
            continue
        call = calls.get(sync.whole("correlation"))
        if call is not None and "Query" in call.name:
            continue  # asks and does not wait
        known.add(id(call))
        found.append((call or sync, _awaited(sync, call, calls, streams)))
    for call in trace.calls:
        if call.name in _WHOLE_DEVICE and id(call) not in known:
            last = [lane.last(call.start) for lane in streams.values()]
            found.append((call, [w for w in last if w is not None]))
    return found


def _host_waits(
    trace: Trace, streams: Mapping[tuple[int, int], _Stream], edges: Edges
) -> None:
    """What a thread launches after a wait follows what it waited for."""
    for wait, awaited in _waits(trace, streams):
        thread = wait.thread if wait.kind == "call" else None
        for key, lane in streams.items():
            after = lane.first(wait.end, thread)
            for before in awaited:
                if after is not None and before.lane != key:
                    edges.add(before.node, after.node, kind="sync")


def _host_nodes(
    trace: Trace,
    works: Sequence[_Work],
    streams: Mapping[tuple[int, int], _Stream],
    records: list[Record],
    names: dict[str, int],
    edges: Edges,
    steps: Sequence[tuple[float, float, str]],
) -> None:
    """Add the innermost events of the CPU, what launches, and what waits."""
    threads = Threads([*trace.ops, *trace.calls])
    origin = min((leaf.start for mine in threads.leaves for leaf in mine), default=0.0)
    waits: dict[int, list[_Work]] = {}
    for wait, awaited in _waits(trace, streams):
        waits.setdefault(id(threads.last(wait)), []).extend(awaited)
    nodes: dict[int, int] = {}
    earlier: dict[int, Event | None] = {}
    for mine in threads.leaves:
        before: Event | None = None
        for leaf in mine:
            node = nodes[id(leaf)] = len(records)
            awaited = waits.get(id(leaf), ())
            # A call that waits takes the time that is left of it once that is done.
            done = max([leaf.start, *(w.event.end for w in awaited)])
            own = min(leaf.duration, max(0.0, leaf.end - done)) if awaited else None
            release = (leaf.start - origin) * US if before is None else 0.0
            records.append(
                _record(
                    leaf, names, ("cpu",), leaf.duration if own is None else own,
                    steps, at=leaf.start, release=release,
                )
            )  # fmt: skip
            for w in awaited:
                edges.add(w.node, node, kind="sync")
            if before is not None:
                gap = max(0.0, leaf.start - before.end) * US
                edges.add(nodes[id(before)], node, gap, kind="serial")
            earlier[id(leaf)], before = before, leaf
    for w in works:
        if w.call is None:
            continue
        leaf = threads.last(w.call)
        if leaf.end <= w.event.start:
            edges.add(nodes[id(leaf)], w.node)
            continue
        # It started before the call returned, as copies from pageable memory do: so
        # long after the leaf before.
        before = earlier[id(leaf)]
        since = origin if before is None else before.end
        lag = max(0.0, w.event.start - since) * US
        if before is None:
            records[w.node] = replace(records[w.node], release=lag)
        else:
            edges.add(nodes[id(before)], w.node, lag)
    for (category, _), flow in trace.flows.items():
        if category == "fwdbwd" and len(flow) == 2:
            forward, backward = threads.at(*flow["s"]), threads.at(*flow["f"])
            if forward is not None and backward is not None:
                a, b = threads.last(forward), threads.first(backward)
                if a.end <= b.start:
                    edges.add(nodes[id(a)], nodes[id(b)])


def _record(
    event: Event,
    names: dict[str, int],
    hosts: tuple[str, ...],
    duration: float,
    steps: Sequence[tuple[float, float, str]],
    *,
    at: float,
    release: float,
    stream: int | None = None,
) -> Record:
    stem = event.name[:_STEM]
    names[stem] = names.get(stem, 0) + 1
    i = bisect.bisect_right(steps, (at, float("inf"), "")) - 1
    inside = i >= 0 and at < steps[i][1]
    return Record(
        name=f"{stem}#{names[stem]}",
        title=event.name,
        hosts=hosts,
        time=duration * US,
        release=release,
        labels={
            "kind": event.kind,
            "name": event.name,
            "stream": stream,
            "step": steps[i][2].partition("#")[2] if inside else None,
        },
    )
