"""Task graphs of dagbench as plans."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping

from probcalc.errors import InputError, PlanError
from probcalc.plan import Plan
from probcalc.recorded import DynamicEnergy, Edges, Laws, Record, plan_of
from probcalc.tracefile import (
    entries,
    field,
    label_of,
    name_of,
    named,
    number,
    read_bytes,
    read_json,
    seconds,
    stem_of,
    table,
)
from probcalc.units import unit_factor

__all__ = ["read_dagbench"]


def read_dagbench(
    path: str | pathlib.Path,
    *,
    unit: str,
    static_power: float | Mapping[str, float],
    device: str = "gpu0",
    bandwidth: float | None = None,
    metadata: str | pathlib.Path | None = None,
    dynamic_energy: DynamicEnergy = None,
    laws: Laws = "recorded",
    name: str | None = None,
) -> Plan:
    """Read a task graph of dagbench (``*.graph.json``) as a plan; independent draws.

    The graph does not say where tasks run: they may all overlap on one device.

    Parameters
    ----------
    path : path
    unit : str
        Of the costs, which the graph does not state: "ms" where the metadata say
        ``compute_time_ms``.
    static_power, dynamic_energy, laws, name
        As for `kineto.read_kineto`; dynamic energy by the name of a task without the
        numbers at its end.
    device : str
        Where the tasks run.
    bandwidth : float, optional
        In bytes per s; an edge then takes its size divided by that. Without it data
        take no time.
    metadata : path, optional
        The graph's ``*.metadata.yaml``: its numbers of tasks and edges are checked.

    Raises
    ------
    PlanError
        Anything that is no such file, in one line that names file, entry, field, value
        and what was expected.
    """
    label = label_of(path)
    factor = unit_factor(unit, dimension="time", where="unit")
    if bandwidth is not None and not number(bandwidth, "bandwidth", "bytes per s") > 0:
        raise InputError(f"bandwidth is {bandwidth!r}, expected bytes per s > 0")
    graph = table(
        field(table(read_json(path), label), "task_graph", label),
        f"{label}: task_graph",
    )
    where = f"{label}: tasks"
    index: dict[str, int] = {}
    records: list[Record] = []
    for i, task in enumerate(entries(field(graph, "tasks", label), where)):
        at = f"{where}[{i}]"
        key = name_of(field(table(task, at), "name", at), f"{at}.name")
        if index.setdefault(key, i) != i:
            raise PlanError(f"{at}: task {key!r} is stated twice")
        time = seconds(field(task, "cost", f"{at} ({key!r})"), f"{at}.cost", factor)
        title = re.sub(r"(_[0-9]+)+$", "", key) or key
        records.append(Record(key, title, (device,), time, labels={"name": title}))
    edges = Edges()
    where = f"{label}: dependencies"
    for i, edge in enumerate(entries(field(graph, "dependencies", label), where)):
        at = f"{where}[{i}]"
        a, b = (
            named(field(table(edge, at), key, at), index, f"{at}.{key}")
            for key in ("source", "target")
        )
        lag = 0.0
        if bandwidth is not None:
            lag = seconds(field(edge, "size", at), f"{at}.size", 1.0 / bandwidth)
        edges.add(a, b, lag)
    if metadata is not None:
        counted = {"num_tasks": len(records), "num_edges": len(edges.sources)}
        _check_counts(metadata, counted, label)
    return plan_of(
        records,
        edges,
        label=label,
        name=stem_of(label) if name is None else name,
        static_power=static_power,
        dynamic_energy=dynamic_energy,
        laws=laws,
    )


def _check_counts(
    path: str | pathlib.Path, counted: Mapping[str, int], label: str
) -> None:
    text = read_bytes(path).decode(errors="replace")
    for key, count in counted.items():
        stated = re.search(rf"^ *{key}: *([0-9]{{1,12}}) *$", text, re.MULTILINE)
        if stated is None:
            raise PlanError(f"{label_of(path)}: graph_stats.{key} is missing")
        if int(stated[1]) != count:
            raise PlanError(
                f"{label}: {count} found; expected {key}: {stated[1]} of "
                f"{label_of(path)}"
            )
