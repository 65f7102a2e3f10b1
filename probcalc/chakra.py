"""Chakra execution traces, and PyTorch execution traces, in JSON as plans.

Three forms are read: the table with ``workload_graph`` (entries with ``Id``, ``Name``,
``data_deps``, ``ctrlDeps``, ``runtime`` in us), the table with ``nodes`` of a PyTorch
execution trace (``id``, ``name``, ``ctrl_deps``), and one JSON table after the other as
Chakra's own converter prints its messages (``id``, ``dataDeps``, ``ctrlDeps``,
``durationMicros``).
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from probcalc.errors import InputError, PlanError
from probcalc.plan import Plan
from probcalc.recorded import DynamicEnergy, Edges, Laws, Record, plan_of
from probcalc.tracefile import (
    entries,
    label_of,
    parse_all,
    read_bytes,
    seconds,
    stem_of,
    table,
    whole_of,
)
from probcalc.tracefile import member as member_of
from probcalc.units import shown

__all__ = ["read_chakra"]

US = 1e-6
# Each field by the names that the three forms have for it.
_ID = ("id", "Id")
_NAME = ("name", "Name")
_TYPE = ("type", "NodeType")
_TIME = ("runtime", "durationMicros", "duration_micros")
_DEPENDENCIES = {
    "data": ("data_deps", "dataDeps"),
    "sync": ("ctrl_deps", "ctrlDeps"),
}
_ROOT = "[pytorch|profiler|execution_trace|process]"


def read_chakra(
    path: str | pathlib.Path,
    *,
    static_power: float | Mapping[str, float],
    dynamic_energy: DynamicEnergy = None,
    member: str | None = None,
    missing: float | None = None,
    absent: Literal["raise", "omit"] = "raise",
    laws: Laws = "recorded",
    name: str | None = None,
) -> Plan:
    """Read an execution trace as a plan; independent draws.

    A node runs on "gpu0" where ``is_cpu_op`` is false and on "cpu" otherwise.
    Dependencies on data become data edges and those of control sync edges, from finish
    to start; a PyTorch execution trace states the caller of each as control, so that
    its times have to be those that an operation spends beside what it calls.

    Parameters
    ----------
    path : path
        Of the JSON or of a tar archive that holds it, packed by gzip or not.
    static_power, dynamic_energy, laws, name
        As for `kineto.read_kineto`; dynamic energy by the name of the operation.
    member : str, optional
        File in the archive; not needed where there is one alone.
    missing : float, optional
        Time in s of nodes for which the trace states none. Without it they are an
        error. (Chakra's own printer leaves out what is zero.)
    absent : {"raise", "omit"}
        Dependencies on nodes that the trace does not hold, as in a part of one.

    Returns
    -------
    Plan
        With labels "name" and "kind" (the type of the node); nodes are named by id.

    Raises
    ------
    PlanError
        Anything that is no such trace, in one line that names file, entry, field,
        value and what was expected.
    InputError
        As `recorded.plan_of`.
    """
    if absent not in ("raise", "omit"):
        raise InputError(f"absent is {absent!r}, expected 'raise' or 'omit'")
    if missing is not None:
        seconds(missing, "missing")
    label = label_of(path)
    content, label = member_of(read_bytes(path), label, member)
    nodes, where = _nodes(content, label)
    index: dict[int, int] = {}
    records: list[Record] = []
    for i, node in enumerate(nodes):
        at = f"{where}[{i}]"
        key = _whole(_field(table(node, at), _ID, at, required=True), f"{at}: id")
        if index.setdefault(key, i) != i:
            raise PlanError(f"{at}: node {key} is stated twice")
        records.append(_record(node, key, at, missing))
    edges = Edges()
    for i, node in enumerate(nodes):
        at = f"{where}[{i}]"
        for kind, keys in _DEPENDENCIES.items():
            given = _field(node, keys, at)
            # A PyTorch execution trace states the one caller of each, by number.
            single = isinstance(given, int) and not isinstance(given, bool)
            held = [given] if single else [] if given is None else given
            for j, before in enumerate(entries(held, f"{at}: {keys[0]}")):
                key = _whole(before, f"{at}: {keys[0]}[{j}]")
                if key not in index and absent == "omit":
                    continue
                if key not in index:
                    raise PlanError(
                        f"{at}: {keys[0]}[{j}]: no node {key}; absent='omit' leaves "
                        "out what a part of a trace does not hold"
                    )
                source = index[key]
                if source == i and single and records[i].title == _ROOT:
                    continue  # the process as a whole is its own caller
                edges.add(source, i, kind="data" if kind == "data" else "sync")
    return plan_of(
        records,
        edges,
        label=label,
        name=stem_of(label) if name is None else name,
        static_power=static_power,
        dynamic_energy=dynamic_energy,
        laws=laws,
    )


def _nodes(content: bytes, label: str) -> tuple[Sequence[Any], str]:
    """Return the entries of one of the three forms, and where they stand."""
    documents = parse_all(content, label)
    first = table(documents[0], label)
    for key in ("workload_graph", "nodes"):
        if key in first and len(documents) == 1:
            return entries(first[key], f"{label}: {key}"), f"{label}: {key}"
    # The first message is about the trace and no node.
    nodes = documents if _field(first, _ID, label) is not None else documents[1:]
    if not nodes:
        raise PlanError(
            f"{label}: neither 'workload_graph' nor 'nodes' found; expected a Chakra "
            "or PyTorch execution trace"
        )
    return nodes, f"{label}: node"


def _record(
    node: Mapping[str, Any], key: int, where: str, missing: float | None
) -> Record:
    name = _field(node, _NAME, where, required=True)
    if not isinstance(name, str) or not name.strip():
        raise PlanError(f"{where}: name: {shown(name)} found; expected a name")
    title = " ".join(name.split())
    time = _field(node, _TIME, where)
    if time is None and missing is None:
        raise PlanError(
            f"{where} ({title[:60]!r}): no time, expected {_TIME[0]!r} in us; "
            "missing=... states it for all nodes without"
        )
    if isinstance(time, str):  # as Chakra's printer writes whole numbers
        time = _whole(time, f"{where}: {_TIME[1]}")
    on_cpu = _on_cpu(node, where)
    kind = _field(node, _TYPE, where)
    if kind is not None and not isinstance(kind, int | str):
        raise PlanError(f"{where}: type: {shown(kind)} found; expected a number")
    return Record(
        name=str(key),
        title=title,
        hosts=("cpu",) if on_cpu else ("gpu0",),
        time=(missing or 0.0) if time is None else seconds(time, f"{where}: time", US),
        labels={"name": title, "kind": kind},
    )


def _on_cpu(node: Mapping[str, Any], where: str) -> bool:
    value = node.get("is_cpu_op")
    attributes = node.get("attr", ())
    for i, held in enumerate(attributes if isinstance(attributes, list) else ()):
        if table(held, f"{where}: attr[{i}]").get("name") == "is_cpu_op":
            # The printer leaves out what is false.
            value = held.get("boolVal", held.get("bool_val", False))
    if value is None:
        return True
    if not isinstance(value, bool):
        raise PlanError(
            f"{where}: is_cpu_op: {shown(value)} found; expected true or false"
        )
    return value


def _field(
    node: Mapping[str, Any], keys: Sequence[str], where: str, required: bool = False
) -> Any:
    """Return a field by whichever of its names it has."""
    for key in keys:
        if key in node:
            return node[key]
    if required:
        raise PlanError(f"{where}: {keys[0]!r} is missing")
    return None


def _whole(value: Any, where: str) -> int:
    """Return a whole number, which may be written as a text of digits."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 20:
        return int(value)
    return whole_of(value, where)
