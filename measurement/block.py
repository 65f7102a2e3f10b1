"""One block of a campaign: a fresh process that warms up and measures one arm.

Run by `probcalc.measurement.campaign` as a module; what is asked comes as JSON on
standard input, and what was found is written to a file that appears whole.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc._version import __version__
from probcalc.errors import InputError, ProbcalcError
from probcalc.measurement.atomic import write_atomic
from probcalc.measurement.crosscheck import cross_check
from probcalc.measurement.equalwork import Output, output_of
from probcalc.measurement.faults import InstrumentError
from probcalc.measurement.gates import (
    Throttling,
    dephasing_gaps,
    needs_dephasing,
    thermal_gate,
    throttle_reading,
    throttling,
    warm_up,
)
from probcalc.measurement.instruments import meter_of
from probcalc.measurement.meter import Meter, Trace
from probcalc.measurement.sampler import Sampler
from probcalc.measurement.settings import Settings
from probcalc.measurement.timers import Timed, Timer, timer_of
from probcalc.measurement.updates import period_of
from probcalc.measurement.windows import WindowEnergy, window_energy
from probcalc.measurement.workload import Job, Workload, job_of

__all__ = ["measured"]

FloatArray = npt.NDArray[np.float64]
#: Window in update periods, above the ten that tick alignment needs.
PERIODS = 12.0
SHORTEST = 2.0  # s


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Repetitions in one window, with what was read around them."""

    timed: Timed
    gaps: float
    temperatures: tuple[float | None, float | None]
    throttle: Throttling


def measured(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Measure one block and return what was found, as plain data.

    Raises
    ------
    ProbcalcError
        A workload or an instrument that fails.
    """
    workload = Workload(**asked["workload"])
    settings = Settings(**asked["settings"])
    meter = meter_of(asked["meter"])
    before = _processes(meter)
    job = job_of(workload)
    timer = timer_of(settings.timer)
    with Sampler([meter], interval=settings.interval) as sampler:
        rate = _warm(job, timer, settings)
        gate = None
        if settings.thermal_limit > 0.0 and asked.get("reference") is not None:
            gate = thermal_gate(
                meter, asked["reference"], time_limit=settings.thermal_limit
            )
        temperature = _temperature(meter)
        idle = [_idle(meter, settings)]
        sampler.check()
        # Where no probe did, the traces so far tell how often the source is updated.
        period = asked["meter"].get("period") or period_of(_preferred(sampler, meter))
        count, gaps = _repetitions(job, rate, period, settings, asked)
        rng = np.random.default_rng(asked["seed"])
        runs = [
            _window(job, timer, meter, count, gaps, period, rng)
            for _ in range(settings.windows)
        ]
        idle.append(_idle(meter, settings))
    traces = sampler.traces()[meter.device.uuid]
    found = _found(runs, idle, traces, job, asked["meter"])
    try:
        output = output_of(runs[-1].timed.output)
    except InputError as error:
        if asked.get("keep_output"):
            raise
        output = Output("", None, str(error))  # nobody asked for equal work
    if asked.get("keep_output") and output.values is not None:
        _keep(output.values, Path(asked["file"]))
    return found | {
        "block": asked["block"],
        "arm": asked["arm"],
        "name": workload.name,
        "timer": timer.name,
        "temperature": temperature,
        "thermal_gate": None if gate is None else asdict(gate),
        "device": _device(meter),
        "other_processes": _others(before, _processes(meter)),
        "output": {
            name: getattr(output, name)
            for name in ("digest", "described", "shape", "rest")
        },
        "process": os.getpid(),
        "host": platform.node(),
        "python": platform.python_version(),
        "version": __version__,
        "ended": time.time(),
    }


def _warm(job: Job, timer: Timer, settings: Settings) -> float:
    """Warm up; return the median time of a repetition in s."""
    if job.is_command:
        # A command brings its own process: one run fills caches of files.
        return float(timer.run(job.run, 1).duration[0])
    done = warm_up(
        lambda: timer.wait(job.run()), time.monotonic, time_limit=settings.warm_limit
    )
    if not done.warm:
        raise InstrumentError(f"workload {job.name!r}: {done.reason}")
    late = done.durations[-max(len(done.durations) // 10, 3) :]
    return float(np.median(late))


def _repetitions(
    job: Job,
    each: float,
    period: float | None,
    settings: Settings,
    asked: Mapping[str, Any],
) -> tuple[int, bool]:
    """Repetitions of a window, and whether to put gaps between them.

    All blocks of an arm keep to the repetitions of its first one: one grain.
    """
    seconds = settings.seconds
    if seconds is None:
        seconds = max(SHORTEST, PERIODS * (period or 0.0))
    window = asked["meter"].get("reading_window")
    part = window is not None and period is not None and window < 0.97 * period
    gaps = settings.dephase
    if gaps is None:
        gaps = bool(part and needs_dephasing(each, period or 1.0, window))
    if job.is_command:
        # Each run starts at a random phase: what the sensor misses of it is noise.
        return 1, gaps
    if asked.get("repetitions"):
        return int(asked["repetitions"]), gaps
    spent = each + (0.5 * period if gaps and period else 0.0)
    return max(math.ceil(seconds / max(spent, 1e-9)), 1), gaps


def _window(
    job: Job,
    timer: Timer,
    meter: Meter,
    count: int,
    dephased: bool,
    period: float | None,
    rng: np.random.Generator,
) -> _Run:
    gaps = dephasing_gaps(count, period, seed=rng) if dephased and period else None
    before, first = throttle_reading(meter), _temperature(meter)
    timed = timer.run(job.run, count, gaps=gaps)
    after, last = throttle_reading(meter), _temperature(meter)
    spent = 0.0 if gaps is None else float(gaps.sum())
    return _Run(timed, spent, (first, last), throttling(before, after))


def _idle(meter: Meter, settings: Settings) -> dict[str, Any]:
    """Let the board be ready and idle; its power is read off the trace later."""
    time.sleep(settings.settle)
    start = time.monotonic()
    before = _temperature(meter)
    time.sleep(settings.idle)
    return {
        "start": start,
        "end": time.monotonic(),
        "temperature": _mean(before, _temperature(meter)),
    }


def _found(
    runs: Sequence[_Run],
    idle: list[dict[str, Any]],
    traces: Sequence[Trace],
    job: Job,
    meter: Mapping[str, Any],
) -> dict[str, Any]:
    counter = next((t for t in traces if t.source == "counter"), None)
    power = next((t for t in traces if t.source != "counter"), None)
    options: dict[str, Any] = {
        name: meter.get(name) for name in ("period", "reading_window")
    }
    for rest in idle:
        # Nothing runs that could keep step with the sensor: its readings are a sample.
        idling = options | {"least_periods": 3.0, "dephased": True}
        found = _energy(counter, power, rest["start"], rest["end"], idling)
        rest["window"] = _plain(found)
        rest["power"] = found.power
    known = [rest["power"] for rest in idle if rest["power"] is not None]
    options["idle_power"] = float(np.mean(known)) if known else None
    windows = []
    for run in runs:
        timed = run.timed
        more: dict[str, Any] = {"repetitions": timed.duration.size}
        if timed.duration.size > 1:
            more["completions"] = timed.done
        more["dephased"] = run.gaps > 0.0
        found = _energy(counter, power, timed.start, timed.end, options | more)
        windows.append(_with(_net(found, run.gaps, options["idle_power"]), run))
    checked = None
    if counter is not None and power is not None and runs:
        checked = _checked(counter, power, runs, options)
    return {
        "grain": 1 if job.is_command else int(runs[0].timed.duration.size),
        "windows": windows,
        "idle": idle,
        "cross_check": checked,
    }


def _energy(
    counter: Trace | None,
    power: Trace | None,
    start: float,
    end: float,
    options: dict[str, Any],
) -> WindowEnergy:
    """Counter before polled power; the other one where the first is not valid."""
    found = []
    for trace in (counter, power):
        if trace is not None:
            asked = dict(options)
            if trace is power:
                asked.pop("completions", None)
                asked.pop("least_periods", None)
            found.append(window_energy(trace, start, end, **asked))
    if not found:
        raise InstrumentError("no source of energy was read")
    return next((one for one in found if one.valid), found[0])


def _net(found: WindowEnergy, gaps: float, idle: float | None) -> WindowEnergy:
    """Take the idle energy of dephasing gaps off."""
    if gaps == 0.0 or found.energy is None:
        return found
    if idle is None:
        return replace(
            found, energy=None, valid=False, reasons=("idle power is not known",)
        )
    less = gaps * idle
    ends = [None if x is None else x - less for x in (found.lower, found.upper)]
    return replace(
        found,
        energy=found.energy - less,
        lower=ends[0],
        upper=ends[1],
        notes=(*found.notes, f"{less:.4g} J of {gaps:.3g} s idle gaps taken off"),
    )


def _checked(
    counter: Trace, power: Trace, runs: Sequence[_Run], options: dict[str, Any]
) -> dict[str, Any]:
    """Counter against polled power from the first window to the last."""
    start, end = runs[0].timed.start, runs[-1].timed.end
    first = window_energy(counter, start, end, method="naive", **options)
    second = window_energy(power, start, end, **options)
    found = cross_check(first, second)
    return {
        "status": found.status,
        "reason": found.reason,
        "counter": first.estimate,
        "polled": second.estimate,
    }


def _with(found: WindowEnergy, run: _Run) -> dict[str, Any]:
    plain = _plain(found)
    throttle = run.throttle
    return plain | {
        "run_time": run.timed.duration.tolist(),
        "gaps": run.gaps,
        "temperature": list(run.temperatures),
        "throttled": throttle.time,
        "throttle_note": throttle.reason,
    }


def _plain(found: WindowEnergy) -> dict[str, Any]:
    plain = asdict(found)
    for key, value in plain.items():
        if isinstance(value, float) and not math.isfinite(value):
            plain[key] = None
        elif isinstance(value, tuple):
            plain[key] = list(value)
    return plain


def _preferred(sampler: Sampler, meter: Meter) -> Trace:
    traces = sampler.traces()[meter.device.uuid]
    return next((t for t in traces if t.source == "counter"), traces[0])


def _temperature(meter: Meter) -> float | None:
    try:
        return meter.temperature().value
    except InstrumentError:
        return None


def _mean(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else 0.5 * (a + b)


def _processes(meter: Meter) -> set[int]:
    """Compute processes on the board; none where the driver does not tell."""
    try:
        return set(meter.processes())
    except InstrumentError:
        return set()


def _others(before: set[int], after: set[int]) -> list[int]:
    """Processes on the board that are not this one."""
    own = os.getpid()
    new = after - before - {own}
    # In a container the driver knows this process by another number: it is the one
    # that came when the workload was opened.
    if own not in after and len(new) == 1:
        new = set()
    return sorted((before | new) - {own})


def _device(meter: Meter) -> dict[str, Any]:
    device = meter.device
    names = ("uuid", "pci_bus_id", "name", "index", "driver", "power_limit")
    return {n: getattr(device, n) for n in names} | {"facts": dict(device.facts)}


def _keep(values: FloatArray, file: Path) -> None:
    """Keep an output's numbers beside the block, for elementwise comparison."""
    import io

    held = io.BytesIO()
    np.save(held, values, allow_pickle=False)
    write_atomic(file.with_suffix(".npy"), held.getvalue())


def _run(read: Callable[[], str]) -> int:
    asked = json.loads(read())
    try:
        found = measured(asked)
    except ProbcalcError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    except Exception as error:  # whatever the workload raises
        said = " ".join(str(error).split())
        name = asked["workload"]["name"]
        print(f"workload {name!r}: {type(error).__name__}: {said}", file=sys.stderr)
        return 1
    write_atomic(
        Path(asked["file"]), json.dumps(found, allow_nan=False, default=str).encode()
    )
    return 0


if __name__ == "__main__":
    sys.exit(_run(sys.stdin.read))
