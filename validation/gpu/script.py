"""One script for a machine with an NVIDIA GPU, of ten minutes at most.

    python -m probcalc.validation.gpu OUT

Probes the board, measures two kernels alone, one after the other and at once on two
streams, ten fresh processes each, and judges what the calculus composes of the two
against the direct measurement. OUT/summary.json is small enough to be kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probcalc.element import Element
from probcalc.errors import ProbcalcError
from probcalc.measurement.campaign import Campaign, run
from probcalc.measurement.collected import Arm, written
from probcalc.measurement.instruments import meter_of, nvml, replay
from probcalc.measurement.settings import Settings
from probcalc.measurement.workload import Workload
from probcalc.term import Term
from probcalc.validation.blocks import Blocked
from probcalc.validation.deviation import deviation, predicted

__all__ = ["campaign_of", "main", "summary"]

_MODULE = "probcalc.validation.gpu.workloads"
ARMS = ("product", "stream", "sequence", "overlap")
#: The claim, declared before any measurement: mean energy and time within this share.
MARGIN = 0.03


def campaign_of(
    meter: dict[str, Any], *, blocks: int = 10, settings: Settings | None = None
) -> Campaign:
    """Return the campaign of the script: four arms on one board."""
    workloads = tuple(
        Workload(name, function=f"{_MODULE}:{name}", setup=f"{_MODULE}:kernels")
        for name in ARMS
    )
    usual = Settings(windows=2, seconds=1.5, idle=1.5, settle=1.0, interval=0.01)
    return Campaign(workloads, meter, blocks=blocks, settings=settings or usual)


def summary(campaign: Campaign, folder: Path) -> dict[str, Any]:
    """Write the signatures, compose the kernels, and compare with what was measured.

    Returns
    -------
    dict
        Plain data: device, driver, date, each arm's figures, and the verdicts.
    """
    arms = {arm.name: arm for arm, _ in written(campaign, folder, "gpu0")}
    found: dict[str, Any] = {
        "device": arms[ARMS[0]].records[0]["device"],
        "host": platform.machine(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "margin": MARGIN,
        "arms": {name: _figures(arm) for name, arm in arms.items()},
        "verdicts": {},
    }
    # One board, one static power: of the ready idle of all arms.
    power = float(np.concatenate([arm.idle_power for arm in arms.values()]).mean())
    parts = {name: _element(arms[name], power) for name in ARMS[:2]}
    terms: dict[str, Term] = {
        "sequence": parts["product"] >> parts["stream"],
        "overlap": parts["product"] | parts["stream"],
    }
    for name, term in terms.items():
        for of in ("time", "energy"):
            direct = _measured(arms[name], of)
            ours = predicted(term, of=of, samples=2000, resamples=100)
            verdict = deviation(
                ours, direct, margin=MARGIN * float(direct.values.mean()), levels=()
            )
            found["verdicts"][f"{name}, {of}"] = verdict.to_dict() | {
                "predicted_mean": float(ours.draws.mean()),
                "measured_mean": float(direct.values.mean()),
            }
    return found


def _element(arm: Arm, power: float) -> Element:
    """Means of windows as the law of an element: means are all that is compared."""
    good = ~(_missing(arm))
    return Element.from_runs(
        arm.name,
        time=arm.time[good],
        energy=arm.energy[good],
        static_power=power,
        device="gpu0",
        blocks=[b for b, row in zip(arm.blocks, good, strict=True) for _ in row[row]],
        conflicts="keep",
    )


def _missing(arm: Arm) -> Any:
    return np.isnan(arm.time) | np.isnan(arm.energy)


def _measured(arm: Arm, of: str) -> Blocked:
    good = ~_missing(arm)
    values = (arm.time if of == "time" else arm.energy)[good]
    blocks = [b for b, row in zip(arm.blocks, good, strict=True) for _ in row[row]]
    return Blocked.of(values, blocks, name=f"{arm.name}, {of}")


def _figures(arm: Arm) -> dict[str, Any]:
    good = ~_missing(arm)
    return {
        "grain": arm.grain,
        "blocks": len(arm.blocks),
        "time_s": [float(x) for x in arm.time[good]],
        "energy_j": [float(x) for x in arm.energy[good]],
        "static_power_w": arm.static_power if arm.idle_power.size else None,
        "excluded": [
            {"block": e.block, "window": e.window, "reasons": list(e.reasons)}
            for e in arm.excluded
        ],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script; what is there already is not measured again."""
    parser = argparse.ArgumentParser(prog="python -m probcalc.validation.gpu")
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--device", default="0", help="UUID, PCI id or number")
    parser.add_argument("--replay", metavar="TRACE", help="without a GPU")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="short windows, to try it")
    asked = parser.parse_args(argv)
    folder = Path(asked.out)
    meter = nvml(asked.device)
    if asked.replay:
        meter = replay(asked.replay, period=0.01, reading_window=0.01)
    quick = Settings(windows=2, seconds=0.15, idle=0.15, settle=0.0, interval=0.004)
    campaign = campaign_of(
        meter, blocks=asked.blocks, settings=quick if asked.quick else None
    )
    try:
        meter_of(meter).close()
        run(campaign, folder, progress=lambda done, all_, _: print(f"{done}/{all_}"))
        found = summary(campaign, folder)
    except ProbcalcError as error:
        print(f"gpu: {error}")
        return 2
    (folder / "summary.json").write_text(
        json.dumps(found, indent=1, default=str) + "\n"
    )
    for name, verdict in found["verdicts"].items():
        print(
            f"{name}: {verdict['outcome']}, predicted {verdict['predicted_mean']:.5g}, "
            f"measured {verdict['measured_mean']:.5g}"
        )
    return 0
