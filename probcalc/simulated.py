"""What ``probcalc simulate`` shows beside a budget: devices, criticality, a Gantt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from probcalc.criticality import criticality, median_sample, replay
from probcalc.errors import InputError
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
    """Draw every device of the sample whose makespan is the median.

    Raises
    ------
    InputError
        A file name whose ending names no format of pictures.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plan = simulation.plan
    figure = Figure(
        figsize=(11, 1.5 + 0.35 * min(len(plan.devices), 64)), layout="constrained"
    )
    canvas = FigureCanvasAgg(figure)
    if file.rpartition(".")[2].lower() not in canvas.get_supported_filetypes():
        raise InputError(f"--plot: {file!r} found; expected a .png, .svg or .pdf file")
    sample = median_sample(simulation)
    one = replay(plan, sample=sample, seed=simulation.seed)
    axes = figure.subplots()
    names = sorted({e.name for e in plan.elements})
    colours = {name: f"C{i % 10}" for i, name in enumerate(names)}
    for row, device in enumerate(plan.devices):
        for i, e in enumerate(plan.elements):
            if device not in e.devices:
                continue
            nodes = np.flatnonzero(plan.element_of == i)
            spans = np.stack(
                [one.starts[nodes], one.finishes[nodes] - one.starts[nodes]], axis=1
            )
            axes.broken_barh(
                spans.tolist(),
                (row - 0.4, 0.8),
                facecolors=colours[e.name],
                edgecolor="white",
                linewidth=0.3,
            )
    axes.set_yticks(range(len(plan.devices)), plan.devices)
    axes.invert_yaxis()
    axes.set(
        xlabel="time (s)",
        title=f"{plan.name}: sample {sample}, makespan {one.makespan:.4g} s (median)",
    )
    if len(names) <= 10:
        for name in names:
            axes.plot([], [], color=colours[name], linewidth=6, label=name)
        figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(file)
