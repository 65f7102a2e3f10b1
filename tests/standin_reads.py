"""What the tests of instruments do in processes of their own, with the stand-in.

Each function is run by `Standin.run` and returns what JSON can hold. Nothing here
imports pytest, which would take longer than all the rest.
"""

from __future__ import annotations

import pickle
import time
import warnings
from typing import Any

from probcalc.measurement import faults
from probcalc.measurement.meter import SOURCES, Meter, Trace
from probcalc.measurement.nvml import NvmlMeter, devices
from probcalc.measurement.polling import Series, polled
from probcalc.measurement.probe import probe
from probcalc.measurement.sampler import Sampler
from probcalc.measurement.visible import visible_devices
from tests.standin import StandinClock


def only_meter() -> tuple[NvmlMeter, StandinClock]:
    clock = StandinClock()
    return NvmlMeter(devices()[0], clock), clock


def refusal(call: Any, *arguments: Any) -> list[str]:
    """Type and message of the error that a call raises."""
    try:
        call(*arguments)
    except faults.InstrumentError as error:
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


def polls(meter: Meter, source: Any, end: float, interval: float) -> Trace:
    series = Series()
    while meter.now() < end:
        series.add(polled(lambda: meter.read(source), meter.now))
        meter.sleep(interval)
    return series.trace((source, "board"), interval, meter.device)


def shown(trace: Trace) -> dict[str, Any]:
    """A trace as JSON can hold it."""
    return {
        "before": trace.before.tolist(),
        "value": trace.value.tolist(),
        "after": trace.after.tolist(),
        "source": trace.source,
        "scope": trace.scope,
        "missing": [[m.before, m.after, m.reason] for m in trace.missing],
        "interval": trace.interval,
    }


# --- what a board is -----------------------------------------------------------------


def described() -> dict[str, Any]:
    names = [d.uuid for d in devices()]
    by_pci = NvmlMeter("0000:08:00.0")
    return {
        "names": names,
        "by_pci": by_pci.device.uuid,
        "facts": dict(by_pci.device.facts),
        "driver": by_pci.device.driver,
        "limit": by_pci.device.power_limit,
        "processes": by_pci.processes(),
        "pickled": pickle.loads(pickle.dumps(by_pci)).device.uuid,
        "unknown": refusal(NvmlMeter, "GPU-nobody"),
        "by_index": NvmlMeter("1").device.uuid,
        "too_many": refusal(NvmlMeter, "2"),
        "nameless": refusal(NvmlMeter, "cuda:0"),
        "closed": [by_pci.close(), by_pci.close()],
    }


def enumerated() -> list[str]:
    return refusal(devices)


def left_out() -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [d.index for d in devices()]
    return [found, [str(w.message) for w in caught]]


def visible_power() -> list[Any]:
    """Power in W of the boards that are visible, or why they cannot be told."""
    clock = StandinClock()
    clock.set(1.0)
    try:
        boards = visible_devices()
    except faults.InstrumentError as error:
        return [type(error).__name__, str(error)]
    meters = [NvmlMeter(board, clock) for board in boards]
    return [meter.read("power_instant").value for meter in meters]


def mig_energy() -> dict[str, Any]:
    """Energy in J of all instances, each told by its own UUID and by the board's."""
    clock = StandinClock()
    clock.set(1.0)
    boards = visible_devices()
    meters = [NvmlMeter(board, clock) for board in boards]
    rows = [NvmlMeter(f"MIG-{k}", clock) for k in range(4)]
    first = [meter.read("counter") for meter in meters]
    clock.set(6.0)
    last = [meter.read("counter") for meter in meters]
    sampler = Sampler(rows)
    return {
        "energy": [b.value - a.value for a, b in zip(first, last, strict=True)],
        "scopes": [reading.scope for reading in last],
        "rows": sorted({row.device.uuid for row in rows}),
        "sampled": len(sampler._task.meters),
        "mig": [board.facts["mig"] for board in boards],
    }


# --- sources and scopes ---------------------------------------------------------------


def every_source() -> dict[str, Any]:
    meter, clock = only_meter()
    clock.set(5.0)
    found: dict[str, Any] = {"facts": dict(meter.device.facts)}
    for source in SOURCES:
        for scope in ("board", "gpu", "module", "memory"):
            try:
                reading = meter.read(source, scope)
            except faults.InstrumentError as error:
                found[f"{source} {scope}"] = type(error).__name__
            else:
                assert reading.scope == scope
                assert reading.before <= reading.after
                found[f"{source} {scope}"] = reading.value
    found["temperature"] = meter.temperature().value
    return found


def counter_not_ready() -> list[Any]:
    meter, clock = only_meter()
    clock.set(1.0)
    return [
        *refusal(meter.read, "counter"),
        meter.read("power_instant").value,
        meter.temperature().value,
    ]


def nothing_answers() -> list[Any]:
    meter, _ = only_meter()
    sampler = Sampler([NvmlMeter(meter.device)])
    return [*refusal(probe, meter), *refusal(sampler.start)]


# --- readings -------------------------------------------------------------------------


def power_too_high() -> list[Any]:
    meter, clock = only_meter()
    clock.set(1.0)
    said = refusal(meter.read, "power_usage")
    return [*said, shown(polls(meter, "power_usage", 4.0, 0.05))]


def sample_buffer() -> dict[str, Any]:
    meter, clock = only_meter()
    clock.set(3.005)
    first = meter.samples()
    clock.set(3.500)
    later = meter.samples(since=float(first.before[-1]))
    clock.set(3.619)
    return {
        "first": shown(first),
        "later": shown(later),
        "newest": meter.read("power_samples").time,
    }


def samples_of_the_boot_clock() -> list[float]:
    meter = NvmlMeter(devices()[0])
    trace = meter.samples()
    return [float(trace.before[-1]) - time.monotonic(), len(trace)]


def averaged_step() -> dict[str, float]:
    meter, clock = only_meter()
    clock.set(2.2)
    sources = ("power_usage", "power_average", "power_instant")
    return {source: meter.read(source).value for source in sources}


def through_ten_seconds() -> dict[str, Any]:
    """Counter and instant power, polled every 50 ms from 0 to 10 s."""
    meter, clock = only_meter()
    found = {"counter": shown(polls(meter, "counter", 10.02, 0.05))}
    clock.set(0.0)
    found["power"] = shown(polls(meter, "power_instant", 10.02, 0.05))
    return found


def loss_between_polls() -> list[str]:
    meter, clock = only_meter()
    clock.set(1.0)
    meter.read("counter")
    clock.set(9.0)
    return [refusal(meter.read, "counter")[0], refusal(meter.read, "counter")[0]]


def throttle_times() -> list[Any]:
    meter, clock = only_meter()
    found = []
    for t in (1.0, 3.5, 9.0):
        clock.set(t)
        found.append(meter.throttled().value)
    clock.set(11.0)
    return [*found, *refusal(meter.throttled)]


def throttle_refused() -> list[str]:
    return refusal(only_meter()[0].throttled)


# --- probe and sampler ----------------------------------------------------------------


def probed() -> dict[str, Any]:
    meter, _ = only_meter()
    found = probe(meter, duration=12.0, interval=0.01)
    return {
        "probe": found.as_dict(),
        "usable": [[s.source, s.scope] for s in found.usable],
        "text": str(found),
    }


def every_update() -> dict[str, list[float]]:
    """All that a replay can be compared by, at odd times."""
    meter, clock = only_meter()
    found: dict[str, list[float]] = {}
    for k in range(60):
        clock.set(0.137 * k)
        for source in ("counter", "power_instant", "power_average", "power_usage"):
            found.setdefault(source, []).append(meter.read(source).value)
        found.setdefault("temperature", []).append(meter.temperature().value)
        found.setdefault("throttled", []).append(meter.throttled().value)
    return found


def sampled() -> dict[str, Any]:
    """Two boards for 1.2 s of the host's clock in the sampler's process."""
    meters = [NvmlMeter(board) for board in devices()]
    with Sampler(meters, interval=0.02, watch=0.3) as sampler:
        time.sleep(0.6)
        meanwhile = sampler.traces()
        time.sleep(0.6)
        end = time.monotonic()
    traces, watched = sampler.traces(), sampler.watched()
    return {
        "end": end,
        "boards": {u: [shown(t) for t in found] for u, found in traces.items()},
        "meanwhile": {u: len(found[0]) for u, found in meanwhile.items()},
        "processes": {u: w.processes for u, w in watched.items()},
        "temperatures": {u: len(w.temperature) for u, w in watched.items()},
        "throttled": {u: len(w.throttled) for u, w in watched.items()},
    }


def slow_polls() -> dict[str, Any]:
    (board,) = devices()
    source = ("power_usage", "board")
    sampler = Sampler([NvmlMeter(board)], interval=0.1, sources=[source])
    with sampler:
        time.sleep(1.2)
    (trace,) = sampler.traces()[board.uuid]
    return {
        "interval": trace.interval,
        "rate": trace.rate,
        "gap": trace.largest_gap,
        "cost": float((trace.after - trace.before).min()),
        "count": len(trace),
    }
