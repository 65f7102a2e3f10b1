"""Plans from lists of nodes and edges: JSON, CSV, networkx graphs.

Parallel edges keep the largest lag. Every node states its time and where it runs, and
every device its static power; a node that an edge names has to be listed.
"""

from __future__ import annotations

import csv
import io
import json
import pathlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from probcalc.distribution import Constant
from probcalc.element import Element
from probcalc.elementspec import Device, Scope, read_device, read_element
from probcalc.errors import InputError, PlanError
from probcalc.lawspec import check_keys, has_samples, located
from probcalc.plan import EDGE_KINDS, Edge, EdgeKind, Plan, PlanNode
from probcalc.recorded import refused
from probcalc.runs import watts
from probcalc.tracefile import (
    MAX_NODES,
    entries,
    field,
    label_of,
    name_of,
    named,
    read_bytes,
    read_json,
    stem_of,
    table,
)
from probcalc.units import quantity, shown

__all__ = ["from_networkx", "read_edgelist"]

Powers = float | Mapping[str, float] | None
_OWN = ("name", "element", "release", "labels")


def read_edgelist(
    path: str | pathlib.Path,
    *,
    nodes: str | pathlib.Path | None = None,
    static_power: Powers = None,
    name: str | None = None,
) -> Plan:
    """Read a plan from a list of nodes and one of edges; independent draws.

    In JSON both stand in one file, with the fields of elements of a plan file::

        {"devices": {"gpu0": {"static_power": "60 W"}},
         "nodes": [{"name": "a", "device": "gpu0", "time": "1 ms", "energy": "90 mJ"},
                   {"name": "b", "device": "gpu0", "time": 0.002, "release": 0}],
         "edges": [{"source": "a", "target": "b", "lag": "40 us", "kind": "sync"}]}

    In CSV the edges have columns ``source``, ``target`` and, if wanted, ``lag`` and
    ``kind``; the nodes are another file with ``name``, ``time``, ``device`` and, if
    wanted, ``dynamic_energy`` or ``energy``, ``release``, ``element``; other columns
    are labels. Plain numbers are in s, J and W.

    Parameters
    ----------
    path : path
        Of the JSON, or of the CSV of edges; packed by gzip or not.
    nodes : path, optional
        Of the CSV of nodes.
    static_power : float or mapping of str to float, optional
        In W: of every device for which the file states none, or by device.
    name : str, optional
        Of the plan; what the file says, or the file's name, without.

    Raises
    ------
    PlanError
        Anything that is no such file, in one line that names file, entry, field,
        value and what was expected.
    """
    label = label_of(path)
    if nodes is not None or label.removesuffix(".gz").endswith(".csv"):
        if nodes is None:
            raise PlanError(f"{label}: a list of edges; nodes=... names that of nodes")
        document: Mapping[str, Any] = {
            "nodes": _csv_nodes(nodes),
            "edges": _csv_rows(path, ("source", "target"), ("lag", "kind")),
        }
        labels = f"{label_of(nodes)}: rows", f"{label}: rows"
    else:
        document = table(read_json(path), label)
        known = ("name", "description", "devices", "nodes", "edges", "metadata")
        check_keys(document, known, label)
        labels = f"{label}: nodes", f"{label}: edges"
    with refused(label):
        return _built(document, labels, pathlib.Path(path), static_power, name)


def from_networkx(
    graph: Any, *, static_power: Powers = None, name: str | None = None
) -> Plan:
    """Turn a directed networkx graph into a plan; independent draws.

    Parameters
    ----------
    graph : networkx.DiGraph or networkx.MultiDiGraph
        Each node has an attribute `element`, or `time` and `device` or `devices` and,
        if wanted, `dynamic_energy`, `static_power`: numbers in SI units, texts with
        units, or laws. Nodes can have `release` and `labels` (a mapping), edges `lag`
        and `kind`. Other attributes are left alone, but an edge with `weight` and no
        `lag` is refused.
    static_power : float or mapping of str to float, optional
        In W, of nodes that state none: of every device, or by device.
    name : str, optional

    Returns
    -------
    Plan
        Nodes are named by the text of what they are in the graph.

    Raises
    ------
    InputError
        No directed graph; attributes that are missing or wrong, naming the node; and
        as `Plan.of`.
    """
    try:
        directed = graph.is_directed()
        pairs = list(graph.nodes(data=True))
        links = list(graph.edges(data=True))
        title = name or str(getattr(graph, "name", "")) or "graph"
    except (AttributeError, TypeError):
        raise InputError(
            f"from_networkx: expected a directed networkx graph, got {graph!r:.60}"
        ) from None
    if not directed:
        raise InputError("from_networkx: the graph has no directions")
    before: dict[str, list[Edge]] = {str(key): [] for key, _ in pairs}
    for a, b, given in links:
        at = f"edge {a!r:.60} -> {b!r:.60}"
        if "weight" in given and "lag" not in given:
            raise InputError(f"{at}: has 'weight' and no 'lag'; state the lag in s")
        lag = _seconds(given.get("lag", 0.0), f"{at}: lag")
        before[str(b)].append(
            Edge(str(a), lag, _kind(given.get("kind", "data"), f"{at}: kind"))
        )
    nodes = [
        PlanNode(
            str(key),
            _element(str(key), given, static_power),
            before[str(key)],
            release=_seconds(given.get("release", 0.0), f"node {key!r:.60}: release"),
            labels=_labels(given.get("labels", {}), f"node {key!r:.60}: labels"),
        )
        for key, given in pairs
    ]
    return Plan.of(nodes, name=title)


def _built(
    document: Mapping[str, Any],
    labels: tuple[str, str],
    path: pathlib.Path,
    static_power: Powers,
    name: str | None,
) -> Plan:
    label = label_of(path)
    title = document.get("name", stem_of(label)) if name is None else name
    listed = entries(field(document, "nodes", label), labels[0])
    devices = _devices(document.get("devices", {}), listed, static_power, label)
    elements: dict[tuple[str, str], Element] = {}
    held: list[PlanNode] = []
    index: dict[str, int] = {}
    for i, node in enumerate(listed):
        at = f"{labels[0]}[{i}]"
        scope = Scope(at, path.parent, devices, {})
        held.append(_node(table(node, at), scope, elements))
        if index.setdefault(held[i].name, i) != i:
            raise PlanError(f"{at}: node {held[i].name!r} is stated twice")
    before: list[list[Edge]] = [[] for _ in held]
    for i, edge in enumerate(entries(document.get("edges", []), labels[1])):
        at = f"{labels[1]}[{i}]"
        check_keys(edge, ("source", "target", "lag", "kind"), at)
        a, b = (
            named(_text(field(edge, key, at)), index, f"{at}.{key}")
            for key in ("source", "target")
        )
        lag = _seconds(edge.get("lag", 0.0), f"{at}.lag")
        kind = _kind(edge.get("kind", "data"), f"{at}.kind")
        before[b].append(Edge(held[a].name, lag, kind))
    return Plan.of(
        [replace(node, after=b) for node, b in zip(held, before, strict=True)],
        baselines=_baselines(held, devices),
        name=name_of(title, f"{label}: name"),
    )


def _node(
    given: Mapping[str, Any], scope: Scope, elements: dict[tuple[str, str], Element]
) -> PlanNode:
    """Read one node; those that name one element, described alike, share it."""
    where = scope.where
    key = name_of(_text(field(given, "name", where)), f"{where}.name")
    release = _seconds(given.get("release", 0.0), f"{where}.release")
    labels = _labels(given.get("labels", {}), f"{where}.labels")
    fields = {k: v for k, v in given.items() if k not in _OWN}
    title = name_of(given.get("element", key), f"{where}.element")
    known = (title, json.dumps(fields, sort_keys=True, default=repr))
    if known not in elements:
        elements[known] = _described(title, fields, scope)
    return PlanNode(key, elements[known], release=release, labels=labels)


def _described(title: str, fields: Mapping[str, Any], scope: Scope) -> Element:
    time, energy = fields.get("time"), fields.get("energy")
    with refused(scope.where):
        if energy is None or has_samples(energy) or has_samples(time):
            return read_element(title, fields, scope)
        # One number for the total energy: d = E - s T.
        rest = {k: v for k, v in fields.items() if k != "energy"}
        element = read_element(title, rest, scope)
        if "dynamic_energy" in rest or not isinstance(element.time, Constant):
            raise PlanError(
                f"{scope.where}.energy: {shown(energy)} found; expected it beside a "
                "constant time, without 'dynamic_energy'"
            )
        total = quantity(energy, dimension="energy", where=f"{scope.where}.energy")
        static = element.static_power * element.time.value
        dynamic = total - static
        if abs(dynamic) <= 1e-15 * max(abs(total), static):
            dynamic = 0.0  # E = s T, up to the rounding of the difference
        if dynamic < 0.0:
            raise PlanError(
                f"{scope.where}.energy: {shown(energy)} found; expected at least the "
                f"static energy s T = {static:g} J"
            )
        return element.with_laws(element.time, Constant(dynamic))


def _devices(
    stated: Any, nodes: Sequence[Any], static_power: Powers, label: str
) -> dict[str, Device]:
    """Devices that the file states, and those that the argument does."""
    where = f"{label}: devices"
    devices = {
        key: read_device(key, value, f"{where}.{key}")
        for key, value in table(stated, where).items()
    }
    if isinstance(static_power, Mapping):
        given = dict(static_power)
    elif static_power is None:
        given = {}
    else:
        hosts = [h for n in nodes for h in _hosts(n) if h not in devices]
        given = dict.fromkeys(hosts, static_power)
    for device, power in given.items():
        if device in devices:
            raise InputError(f"static_power: {label} states that of {device!r}")
        devices[device] = Device(device, watts(power, f"static_power of {device!r}"))
    return devices


def _hosts(node: Any) -> list[str]:
    held = node if isinstance(node, Mapping) else {}
    given = held.get("devices", [held.get("device")])
    return [h for h in given if isinstance(h, str)] if isinstance(given, list) else []


def _baselines(
    nodes: Iterable[PlanNode], devices: Mapping[str, Device]
) -> dict[str, float]:
    used = dict.fromkeys(d for node in nodes for d in node.element.devices)
    return {d: devices[d].static_power for d in used}


def _element(key: str, given: Mapping[str, Any], static_power: Powers) -> Element:
    """Return the element of a node of a graph from its attributes."""
    where = f"node {key[:60]!r}"
    if "element" in given:
        if not isinstance(given["element"], Element):
            raise InputError(
                f"{where}: element is {given['element']!r:.60}, expected an Element"
            )
        return given["element"]
    if "time" not in given:
        raise InputError(f"{where}: neither 'element' nor 'time' is given")
    hosts = given.get("devices", given.get("device"))
    if hosts is None:
        raise InputError(f"{where}: neither 'device' nor 'devices' is given")
    hosts = (hosts,) if isinstance(hosts, str) else tuple(hosts)
    power: Any = given.get("static_power", static_power)
    if isinstance(power, Mapping):
        for host in hosts:
            if host not in power:
                raise InputError(f"{where}: no static power of device {host!r}")
        power = {host: power[host] for host in hosts}
    elif power is None:
        raise InputError(f"{where}: no static power of device {hosts[0]!r}")
    else:
        power = dict.fromkeys(hosts, power)
    laws = {}
    for field_, dimension in (("time", "time"), ("dynamic_energy", "energy")):
        value = given.get(field_, 0.0)
        if isinstance(value, str):
            value = quantity(value, dimension=dimension, where=f"{where}: {field_}")
        laws[field_] = value
    with located(where):
        return Element(key, static_power=power, devices=hosts, **laws)


def _csv_nodes(path: str | pathlib.Path) -> list[dict[str, Any]]:
    known = ("name", "time", "device", "dynamic_energy", "energy", "release", "element")
    found = []
    for row in _csv_rows(path, known[:3], None):
        node: dict[str, Any] = {key: row[key] for key in known if key in row}
        node["labels"] = {k: v for k, v in row.items() if k not in known}
        found.append(node)
    return found


def _csv_rows(
    path: str | pathlib.Path, needed: Sequence[str], wanted: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Read the rows of a CSV file; numbers without a unit become numbers."""
    label = label_of(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in rows.fieldnames or ()]
        for key in needed:
            if key not in header:
                raise PlanError(
                    f"{label}: no column {key!r}; found {', '.join(header) or 'none'}"
                )
        for key in header:
            if header.count(key) > 1 or (
                wanted is not None and key not in (*needed, *wanted)
            ):
                raise PlanError(f"{label}: unexpected column {key!r}")
        rows.fieldnames = header
        found = []
        for row in rows:
            if None in row or None in row.values():
                raise PlanError(
                    f"{label}: line {rows.line_num} has another number of cells than "
                    "the header"
                )
            if len(found) == MAX_NODES:
                raise PlanError(f"{label}: more than {MAX_NODES:,} rows")
            found.append({k: _cell(k, v) for k, v in row.items() if v.strip()})
    except UnicodeDecodeError as error:
        raise PlanError(f"{label}: byte {error.start} is not UTF-8") from None
    except csv.Error as error:
        raise PlanError(f"{label}: no valid CSV: {error}") from None
    return found


def _cell(key: str, value: str) -> Any:
    value = value.strip()
    if key not in ("time", "dynamic_energy", "energy", "release", "lag"):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _text(value: Any) -> Any:
    """Return the text of a name that is a whole number, as ids often are."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole and abs(value) < 10**18 else value


def _seconds(value: Any, where: str) -> float:
    found = quantity(value, dimension="time", where=where)
    if found < 0.0:
        raise PlanError(f"{where}: {shown(value)} found; expected zero or more")
    return found


def _kind(value: Any, where: str) -> EdgeKind:
    for kind in EDGE_KINDS:
        if value == kind:
            return kind
    raise PlanError(
        f"{where}: {shown(value)} found; expected one of "
        f"{', '.join(map(repr, EDGE_KINDS))}"
    )


def _labels(value: Any, where: str) -> dict[str, Hashable]:
    for key, label in table(value, where).items():
        if not isinstance(key, str) or not isinstance(label, Hashable):
            raise PlanError(
                f"{where}: {shown(key)} is {shown(label)}; expected a text or a number"
            )
    return dict(value)
