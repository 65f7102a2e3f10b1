"""Study: frontiers of pipelines against those of lowtime 0.3 on the same instances.

lowtime is the solver of Perseus (Chung et al., SOSP 2024). A folder of its records
holds ``instances/*.json`` (operating points, edges of synchronous 1F1B pipelines) and
``frontier_<instance>__<mode>__*.csv`` with the time and energy that its assignments
realise. ``python -m probcalc.validation.lowtime FOLDER`` prints the comparison.
"""

from __future__ import annotations

import csv
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probcalc.deadline import plan_frontier
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.frontier_plans import PlanFrontier
from probcalc.operating import OperatingSet
from probcalc.plan import Plan

__all__ = ["INSTANCES", "Comparison", "compared", "main", "read_instance"]

#: Instances of the record, by growing number of nodes.
INSTANCES = (
    "gpt3_a100_pp4_mb8",
    "gpt3_a100_pp8_mb12",
    "gpt3_a100_pp4_mb32",
    "gpt3_a100_pp8_mb24",
    "gpt3_a100_pp4_mb64",
    "gpt3_a100_pp4_mb128",
)
_SCHEMA = "pipeline-dag/1"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One frontier of lowtime beside one of ours.

    Attributes
    ----------
    record : str
        Name of the file.
    points : int
        Points of lowtime's frontier.
    worse : int
        Those at whose realised makespan ours costs more energy.
    least, mean, most : float
        Energy saved at its realised makespans, as shares of its energy.
    gap : float
        Mean gap of our points to their bound.
    """

    record: str
    points: int
    worse: int
    least: float
    mean: float
    most: float
    gap: float


def read_instance(file: pathlib.Path) -> tuple[Plan, dict[str, OperatingSet]]:
    """Read a plan and the operating sets of its elements.

    A device draws its blocking power while held; energies of points are totals, with
    that power in them.

    Raises
    ------
    InputError
        Another schema; fields that are missing.
    """
    held: dict[str, Any] = json.loads(pathlib.Path(file).read_text())
    if held.get("schema") != _SCHEMA:
        raise InputError(
            f"{file}: schema is {held.get('schema')!r}, expected {_SCHEMA!r}"
        )
    power = held["idle_power_w_per_device"]
    sets = {
        name: OperatingSet.of(
            name,
            time=[p["time_s"] for p in points],
            energy=[p["energy_j"] for p in points],
            static_power=power,
            device="gpu0",
            device_points=[p["knob"] for p in points],
        )
        for name, points in held["choice_sets"].items()
    }
    nodes = held["nodes"]
    return _plan(file.stem, nodes, held["edges"], sets), sets


def _plan(
    name: str,
    nodes: Sequence[Mapping[str, Any]],
    edges: Sequence[Sequence[str]],
    sets: Mapping[str, OperatingSet],
) -> Plan:
    known: dict[tuple[str, int], int] = {}
    elements: list[Element] = []
    element_of = []
    for node in nodes:
        key = node["choices"], node["device"]
        if key not in known:
            known[key] = len(elements)
            elements.append(sets[key[0]].elements[0].on(f"gpu{key[1]}"))
        element_of.append(known[key])
    index = {node["id"]: i for i, node in enumerate(nodes)}
    return Plan.from_arrays(
        elements=elements,
        element_of=element_of,
        sources=[index[a] for a, _ in edges],
        targets=[index[b] for _, b in edges],
        names=list(index),
        labels={
            "stage": [node["device"] for node in nodes],
            "kind": [node["kind"] for node in nodes],
            "microbatch": [node["microbatch"] for node in nodes],
        },
        name=name,
    )


def compared(
    file: pathlib.Path,
    plan: Plan,
    sets: Mapping[str, OperatingSet],
    frontier: PlanFrontier,
) -> Comparison:
    """Compare a record of lowtime with a frontier, at its realised makespans.

    Makespans at which the points of the frontier do not do are asked for by name.
    """
    lines = csv.DictReader(file.read_text().splitlines())
    theirs = [
        (float(row["realised_time_s"]), float(row["realised_total_energy_j"]))
        for row in lines
    ]
    missed = [t for t, e in theirs if frontier.cheapest(t).energy > e]
    found = [frontier]
    if missed:
        found.append(plan_frontier(plan, sets, deadlines=missed))
    saved = []
    for t, e in theirs:
        ours = min(f.cheapest(t).energy for f in found if f.points[0].time <= t)
        saved.append((e - ours) / e)
    return Comparison(
        file.stem,
        len(saved),
        sum(s < 0.0 for s in saved),
        min(saved),
        sum(saved) / len(saved),
        max(saved),
        frontier.gap,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each instance and for each record of it."""
    given = list(sys.argv[1:] if argv is None else argv)
    if len(given) != 1:
        print("usage: python -m probcalc.validation.lowtime FOLDER", file=sys.stderr)
        return 2
    folder = pathlib.Path(given[0])
    for name in INSTANCES:
        plan, sets = read_instance(folder / "instances" / f"{name}.json")
        frontier = plan_frontier(plan, sets, points=100)
        a, b = frontier.points[0], frontier.points[-1]
        print(
            f"{name}: {len(plan)} nodes, {len(frontier)} points, {a.time:.4f} s at "
            f"{a.energy:.1f} J to {b.time:.4f} s at {b.energy:.1f} J; gap to the bound "
            f"(certified): mean {100 * frontier.gap:.3f} %, largest "
            f"{100 * max(p.gap for p in frontier.points):.3f} %"
        )
        for file in sorted(folder.glob(f"frontier_{name}__*.csv")):
            c = compared(file, plan, sets, frontier)
            print(
                f"  {c.record}: {c.points} points, {c.worse} cheaper than ours; "
                f"saved {100 * c.least:.2f} to {100 * c.most:.2f} %, "
                f"mean {100 * c.mean:.2f} %"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
