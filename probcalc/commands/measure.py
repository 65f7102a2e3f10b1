"""``probcalc probe`` and ``probcalc measure``: from a board to signatures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from probcalc.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from probcalc.measurement.campaign import Campaign

__all__ = ["add"]

_PROBE_HELP = """\
examples:
  probcalc probe
  probcalc probe --device GPU-af7b61d8 --load mymodule:function --json
"""
_MEASURE_HELP = """\
Each block is a fresh process. OUT keeps the blocks: the same command goes on where it
was interrupted. Signatures are written to OUT/signatures.

examples:
  probcalc measure out --function layer=mymodule:forward --setup layer=mymodule:make
  probcalc measure out --command train="python train.py --steps 10" --blocks 10
  probcalc measure out --function a=m:f --function b=m:g --equal-work rtol=1e-3
  probcalc measure out --function a=m:f --replay trace.csv   # without a GPU
"""


def add(commands: Any) -> None:
    """Add both commands to a parser's."""
    probe = commands.add_parser(
        "probe",
        help="what the instruments of a board are worth",
        description="Which sources answer and move, how often they are updated, what "
        "they cover.",
        epilog=_PROBE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _board(probe)
    probe.add_argument("--load", metavar="M:F", help="Python callable to run meanwhile")
    probe.add_argument(
        "--seconds", type=float, default=8.0, metavar="S", help="default 8"
    )
    probe.add_argument("--json", action="store_true", help="write JSON")
    probe.set_defaults(run=_probe)
    measure = commands.add_parser(
        "measure",
        help="measure workloads in fresh processes and write their signatures",
        description="Measure time and energy of workloads, block by block.",
        epilog=_MEASURE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one = measure.add_argument
    one("out", metavar="OUT", help="folder of the campaign")
    one("--function", action="append", default=[], metavar="NAME=M:F")
    one("--command", action="append", default=[], metavar="NAME=SHELL", dest="shell")
    one("--setup", action="append", default=[], metavar="NAME=M:F")
    _board(measure)
    one("--blocks", type=int, default=10, help="fresh processes of each; default 10")
    one("--windows", type=int, default=5, help="windows in each block; default 5")
    one(
        "--window",
        type=float,
        metavar="S",
        help="length in s; at least ten update periods, 2 s or more without it",
    )
    one("--idle", type=float, default=3.0, metavar="S", help="idle power; default 3")
    one("--settle", type=float, default=1.5, metavar="S", help="before it; default 1.5")
    one("--interval", type=float, default=0.01, metavar="S", help="between polls")
    one("--thermal-limit", type=float, default=0.0, metavar="S")
    one("--timer", default="auto", help="auto, torch, cupy, jax or host")
    one("--equal-work", metavar="RULE", help="bytes, rtol=..,atol=.. or M:F")
    one("--context", action="append", default=[], metavar="KEY=VALUE")
    one("--name", metavar="DEVICE", help="of the device in expressions")
    one("--seed", type=int, default=0, metavar="S", help="order of arms; default 0")
    one("--json", action="store_true", help="write JSON")
    measure.set_defaults(run=_measure)


def _board(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device",
        metavar="ID",
        help="UUID, its beginning, PCI id or number; the first visible one without",
    )
    command.add_argument(
        "--replay", metavar="TRACE", help="a recorded trace in place of a board (CSV)"
    )
    command.add_argument(
        "--period", type=float, metavar="S", help="update period of the replay"
    )


def _meter(arguments: argparse.Namespace) -> dict[str, Any]:
    from probcalc.measurement.instruments import nvml, replay

    if arguments.replay is not None:
        if arguments.device is not None:
            raise InputError("give one of --device and --replay")
        if arguments.period is None:
            return replay(arguments.replay)
        return replay(
            arguments.replay, period=arguments.period, reading_window=arguments.period
        )
    if arguments.period is not None:
        raise InputError("--period: only for --replay; a board is probed")
    if arguments.device is not None:
        return nvml(arguments.device)
    from probcalc.measurement.faults import NoDeviceError
    from probcalc.measurement.visible import visible_devices

    boards = visible_devices()
    if not boards:
        raise NoDeviceError(
            "no board is visible (CUDA_VISIBLE_DEVICES is empty, or there is none); "
            "--replay TRACE runs without one"
        )
    return nvml(boards[0].uuid)


def _probe(arguments: argparse.Namespace) -> int:
    from probcalc.measurement.instruments import meter_of
    from probcalc.measurement.probe import probe
    from probcalc.measurement.workload import imported

    load = None
    if arguments.load is not None:
        load = _loading(imported(arguments.load, "--load"))
    meter = meter_of(_meter(arguments))
    try:
        found = probe(meter, load, duration=arguments.seconds)
    finally:
        meter.close()
    if arguments.json:
        print(json.dumps(found.as_dict(), indent=2, default=str))
    else:
        print(found)
    return 0


def _loading(load: Callable[..., Any]) -> Callable[[], object]:
    """Run a load whose failure is an error of the user's own."""
    from probcalc.measurement.workload import WorkloadError

    def run() -> object:
        try:
            return load()
        except Exception as error:
            raise WorkloadError(f"--load: {type(error).__name__}: {error}") from error

    return run


def _measure(arguments: argparse.Namespace) -> int:
    from probcalc.measurement.campaign import CampaignError, is_begun, run

    campaign = _campaign(arguments)
    status, failure = 0, None
    with _bar(campaign) as progress:
        # What is there is written all the same.
        try:
            run(campaign, arguments.out, progress=progress)
        except KeyboardInterrupt:
            status = 130
        except CampaignError as error:
            failure = error
    if failure is not None and not is_begun(campaign, arguments.out):
        raise failure
    found = _written(campaign, arguments)
    if arguments.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print(_as_text(found))
    if failure is not None:
        raise failure
    unused = [s["element"] for s in found["signatures"] if not s["windows_used"]]
    if unused and not status:
        raise InputError(f"{unused[0]}: no valid window; its reasons are above")
    return status


def _campaign(arguments: argparse.Namespace) -> Campaign:
    from probcalc.measurement.campaign import Campaign
    from probcalc.measurement.settings import Settings
    from probcalc.measurement.workload import Workload

    setups = _pairs(arguments.setup, "--setup")
    functions = _pairs(arguments.function, "--function")
    unknown = sorted(set(setups) - set(functions))
    if unknown:
        raise InputError(f"--setup: no --function is named {unknown[0]!r}")
    workloads = [
        Workload(name, function=text, setup=setups.get(name))
        for name, text in functions.items()
    ]
    workloads += [
        Workload(name, command=text)
        for name, text in _pairs(arguments.shell, "--command").items()
    ]
    if not workloads:
        raise InputError("give --function NAME=module:function or --command NAME=SHELL")
    return Campaign(
        tuple(workloads),
        _meter(arguments),
        blocks=arguments.blocks,
        seed=arguments.seed,
        equal_work=arguments.equal_work,
        settings=Settings(
            windows=arguments.windows,
            seconds=arguments.window,
            idle=arguments.idle,
            settle=arguments.settle,
            interval=arguments.interval,
            timer=arguments.timer,
            thermal_limit=arguments.thermal_limit,
        ),
        context=_pairs(arguments.context, "--context"),
    )


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise InputError(f"{option}: {text[:60]!r} found; expected NAME=VALUE")
        if name in found:
            raise InputError(f"{option}: {name!r} is given twice")
        found[name] = value
    return found


@contextmanager
def _bar(
    campaign: Campaign,
) -> Iterator[Callable[[int, int, Mapping[str, Any]], None]]:
    """A progress bar on a terminal, with the power of the last block; else lines."""
    total = campaign.blocks * len(campaign.workloads)
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        tqdm = None
    if tqdm is None or not sys.stderr.isatty():

        def line(done: int, all_: int, block: Mapping[str, Any]) -> None:
            print(
                f"{done}/{all_} {block['name']}: {_power(block)}",
                file=sys.stderr,
                flush=True,
            )

        yield line
        return
    with tqdm(total=total, unit="block") as bar:

        def step(done: int, _: int, block: Mapping[str, Any]) -> None:
            bar.update(done - bar.n)
            bar.set_postfix_str(f"{block['name']} {_power(block)}")

        yield step


def _power(block: Mapping[str, Any]) -> str:
    good = [w for w in block["windows"] if w["valid"]]
    if not good:
        return f"no valid window: {block['windows'][0]['reasons'][0]}"
    joules = sum(w["energy"] for w in good)
    return f"{joules / sum(w['end'] - w['start'] for w in good):.1f} W"


def _written(campaign: Campaign, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the signatures of what is there; say what is used and what is not."""
    import numpy as np

    from probcalc.measurement.campaign import failures_of
    from probcalc.measurement.collected import written

    found = []
    for arm, path in written(campaign, arguments.out, arguments.name):
        used = np.isfinite(arm.energy)
        found.append(
            {
                "element": arm.name,
                "file": str(path),
                "blocks": len(arm.blocks),
                "windows_used": int(used.sum()),
                "grain": arm.grain,
                "sources": arm.sources,
                "time_s": float(arm.time[used].mean()) if used.any() else None,
                "energy_j": float(arm.energy[used].mean()) if used.any() else None,
                "static_power_w": arm.static_power if arm.idle_power.size else None,
                "excluded": [
                    {"block": e.block, "window": e.window, "reasons": list(e.reasons)}
                    for e in arm.excluded
                ],
            }
        )
    failed = [
        {
            "element": campaign.workloads[f["arm"]].name,
            "block": f["block"],
            "failure": f["failure"],
        }
        for f in failures_of(arguments.out)
    ]
    return {"signatures": found, "failed": failed}


def _as_text(found: Mapping[str, Any]) -> str:
    lines = []
    for s in found["signatures"]:
        if s["time_s"] is None:
            lines.append(f"{s['element']}: no valid window in {s['blocks']} blocks")
        else:
            lines.append(
                f"{s['element']}: {s['blocks']} blocks, {s['windows_used']} windows of "
                f"{s['grain']} runs; a run takes {s['time_s']:.4g} s and "
                f"{s['energy_j']:.4g} J (means)"
            )
        polled = [source for source in s["sources"] if source != "counter"]
        if polled:
            lines.append(
                f"  warning: energy from polled {polled[0]}, not from a counter"
            )
        lines += [
            f"  block {e['block']}"
            + ("" if e["window"] is None else f", window {e['window']}")
            + f" not used: {'; '.join(e['reasons'])}"
            for e in s["excluded"][:10]
        ]
        if len(s["excluded"]) > 10:
            lines.append(f"  and {len(s['excluded']) - 10} more not used")
        lines.append(f"  {s['file']}")
    failed = found["failed"]
    lines += [
        f"{f['element']}: block {f['block']} failed: {f['failure']}" for f in failed[:5]
    ]
    if len(failed) > 5:
        lines.append(f"  and {len(failed) - 5} more failures")
    return "\n".join(lines) or "no finished block"
