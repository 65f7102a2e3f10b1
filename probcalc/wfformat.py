"""Workflow executions in WfFormat 1.5 (WfCommons) as plans."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any

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
    read_json,
    seconds,
    stem_of,
    table,
)
from probcalc.units import shown

__all__ = ["read_wfformat"]

KWH = 3.6e6  # J
_NUMBER = re.compile(r"[_-]?(?:ID)?[0-9]+$")


def read_wfformat(
    path: str | pathlib.Path,
    *,
    static_power: float | Mapping[str, float],
    dynamic_energy: DynamicEnergy = None,
    device: str | None = None,
    laws: Laws = "recorded",
    name: str | None = None,
) -> Plan:
    """Read a workflow with its execution as a plan; independent draws.

    Parents precede their children, by either's word; tasks that share a machine may
    overlap on it, as they did. The times are `runtimeInSeconds`, 0 included.

    Parameters
    ----------
    path : path
        Of the JSON, packed by gzip or not.
    static_power, laws, name
        As for `kineto.read_kineto`; devices are machines.
    dynamic_energy : mapping or callable, optional
        As for `kineto.read_kineto`, by the name of a task without the number at its
        end; not where the file states energies.
    device : str, optional
        Where tasks run for which no machine is recorded; without it they are an error.

    Returns
    -------
    Plan
        With labels "name" (without its number) and "machine"; nodes are named by id.

    Raises
    ------
    PlanError
        Anything that is no such file, in one line that names file, entry, field, value
        and what was expected.
    InputError
        As `recorded.plan_of`.
    """
    if device is not None and (not isinstance(device, str) or not device.strip()):
        raise InputError(f"device is {device!r}, expected a name")
    label = label_of(path)
    document = table(read_json(path), label)
    version = document.get("schemaVersion")
    if version != "1.5":
        raise PlanError(f"{label}: schemaVersion: {shown(version)} found; expected 1.5")
    workflow = table(field(document, "workflow", label), f"{label}: workflow")
    tasks = _tasks(workflow, "specification", label)
    runs = _tasks(workflow, "execution", label)
    executed = _by_id(runs, f"{label}: execution.tasks")
    where = f"{label}: specification.tasks"
    index = _by_id(tasks, where)
    for key, i in executed.items():
        if key not in index:
            raise PlanError(
                f"{label}: execution.tasks[{i}]: no task {shown(key)} in the "
                "specification"
            )
    edges = Edges()
    records: list[Record] = []
    for key, i in index.items():
        task, at = tasks[i], f"{where}[{i}]"
        if key not in executed:
            raise PlanError(f"{at}: task {shown(key)} has no time: it was not executed")
        run = runs[executed[key]]
        records.append(
            _record(
                task, run, key, f"{label}: execution.tasks[{executed[key]}]", device
            )
        )
        for other in ("parents", "children"):
            for j, relative in enumerate(
                entries(task.get(other, []), f"{at}: {other}")
            ):
                found = named(relative, index, f"{at}: {other}[{j}]")
                edges.add(*((found, i) if other == "parents" else (i, found)))
    return plan_of(
        records,
        edges,
        label=label,
        name=stem_of(label) if name is None else name,
        static_power=static_power,
        dynamic_energy=dynamic_energy,
        laws=laws,
    )


def _tasks(workflow: Mapping[str, Any], part: str, label: str) -> Any:
    held = table(field(workflow, part, f"{label}: workflow"), f"{label}: {part}")
    return entries(field(held, "tasks", f"{label}: {part}"), f"{label}: {part}.tasks")


def _by_id(tasks: Any, where: str) -> dict[str, int]:
    index: dict[str, int] = {}
    for i, task in enumerate(tasks):
        at = f"{where}[{i}]"
        key = name_of(field(table(task, at), "id", at), f"{at}.id")
        if index.setdefault(key, i) != i:
            raise PlanError(f"{at}: task {key!r} is stated twice")
    return index


def _record(
    task: Mapping[str, Any],
    run: Mapping[str, Any],
    key: str,
    where: str,
    device: str | None,
) -> Record:
    time = seconds(
        field(run, "runtimeInSeconds", f"{where} ({key!r})"),
        f"{where}.runtimeInSeconds",
    )
    machines = run.get("machines", [])
    if "machine" in run:
        machines = [run["machine"]]
    hosts = tuple(
        name_of(host, f"{where}.machines[{j}]")
        for j, host in enumerate(entries(machines, f"{where}.machines"))
    )
    if not hosts and device is None:
        raise PlanError(
            f"{where}: task {key!r} has no machine; device=... states where it runs"
        )
    title = task.get("name", key)
    if not isinstance(title, str) or not title.strip():
        raise PlanError(f"{where}: name: {shown(title)} found; expected a name")
    title = " ".join(title.split())
    title = _NUMBER.sub("", title) or title
    hosts = tuple(dict.fromkeys(hosts)) or (str(device),)
    return Record(
        name=key,
        title=title,
        hosts=hosts,
        time=time,
        energy=_energy(run, time, where),
        labels={"name": title, "machine": hosts[0]},
    )


def _energy(run: Mapping[str, Any], time: float, where: str) -> float | None:
    """Energy in J as the file states it, or mean power times time."""
    for key, unit in (("energyInKWh", KWH), ("avgPowerInW", time)):
        if key in run:
            found = number(run[key], f"{where}.{key}", "a number >= 0")
            if found < 0.0:
                raise PlanError(
                    f"{where}.{key}: {shown(run[key])} found; expected a number >= 0"
                )
            return found * unit
    return None
