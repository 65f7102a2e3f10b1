"""What ``probcalc simulate`` shows beside a budget: devices, criticality, a Gantt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from probcalc.criticality import criticality
from probcalc.montecarlo import Simulation
from probcalc.occupancy import occupancy

__all__ = ["details", "details_as_text", "gantt"]

#: Critical nodes that are listed, and samples that they are judged by.
LISTED = 10
JUDGED = 512
#: Nodes up to which criticality is worked out without being asked.
MOST_NODES = 200_000


def details(simulation: Simulation) -> dict[str, Any]:
    """Devices with their idle shares, and the nodes most often critical, for JSON."""
    found: dict[str, Any] = {
        "devices": [
            {
                "device": d.device,
                "busy": {"unit": "s"} | asdict(d.busy),
                "idle": {"unit": "s"} | asdict(d.idle),
                "idle_share": {"unit": "1"} | asdict(d.share),
                "idle_energy": {"unit": "J"} | asdict(d.idle_energy),
            }
            for d in occupancy(simulation)
        ],
        "critical": None,
    }
    plan = simulation.plan
    if len(plan) <= MOST_NODES:
        judged = criticality(
            plan, samples=min(JUDGED, simulation.samples), seed=simulation.seed
        )
        first = np.argsort(-judged.counts, kind="stable")[:LISTED]
        found["critical"] = {
            "samples": judged.samples,
            "nodes": [
                {"node": plan.names[i]} | asdict(judged.of(plan.names[i]))
                for i in first.tolist()
            ],
        }
    return found


def details_as_text(found: Mapping[str, Any]) -> str:
    """Lay `details` out for people."""
    lines = ["", "devices            idle share                 idle energy"]
    shown = found["devices"][:16]
    for d in shown:
        share, joules = d["idle_share"], d["idle_energy"]
        lines.append(
            f"  {d['device'][:16]:<16} {100 * share['value']:6.2f} % "
            f"[{100 * share['lower']:.2f}, {100 * share['upper']:.2f}]"
            f"   {joules['value']:.5g} J"
        )
    if len(found["devices"]) > len(shown):
        lines.append(f"  and {len(found['devices']) - len(shown)} more")
    critical = found["critical"]
    if critical is not None:
        lines += ["", f"critical nodes, of {critical['samples']} samples (ties count)"]
        lines += [
            f"  {n['node'][:40]:<40} {n['value']:.3f} "
            f"[{n['lower']:.3f}, {n['upper']:.3f}]"
            for n in critical["nodes"]
        ]
    return "\n".join(lines)


def gantt(simulation: Simulation, file: str) -> None:
    """Draw every device of the median sample to a file; see `probcalc.pictures`.

    Raises
    ------
    InputError
        A file name whose ending names no format of pictures.
    """
    from probcalc import pictures

    figure, one = pictures.timeline(simulation)
    figure.suptitle(
        f"{simulation.plan.name}: sample {one['sample']}, makespan "
        f"{one['makespan']:.4g} s (median)"
    )
    pictures.saved(figure, file)
