"""Plans as a plan file writes them: nodes with their predecessors, or a schedule.

``[[nodes]]`` or ``[schedule]`` stand in place of an expression; ``[orders]`` puts the
nodes of a device in order and ``[draws]`` says which nodes vary together. Described in
``docs/plan-file.md``.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from probcalc import schedules
from probcalc.draws import DrawFactor, FactorActsOn
from probcalc.element import Element
from probcalc.elementspec import Device, choice
from probcalc.errors import PlanError
from probcalc.expression import NAME, nearest
from probcalc.lawspec import Context, check_keys, located, read_law, text
from probcalc.layout import hosts_of
from probcalc.plan import EDGE_KINDS, Edge, EdgeKind, Plan, PlanNode
from probcalc.tracefile import name_of
from probcalc.units import quantity, shown

__all__ = ["KEYS", "read_nodes"]

KEYS = ("nodes", "schedule", "orders", "draws")
"""Tables of a plan file that are read here."""
MAX_NODES = 100_000
"""Nodes stated one by one."""

_NODE = ("name", "element", "device", "devices", "after", "release", "labels")
_SHAPE = ("devices", "transfer", "load", "optimiser")
_PIPELINE = ("stages", "microbatches", "forward", "backward")
# Of each kind: the generator, the keys it needs and those it can have.
_SCHEDULES: Mapping[str, tuple[Callable[..., Plan], Sequence[str], Sequence[str]]] = {
    "gpipe": (schedules.gpipe, _PIPELINE, _SHAPE),
    "1f1b": (schedules.one_f_one_b, _PIPELINE, _SHAPE),
    "interleaved": (schedules.interleaved, (*_PIPELINE, "chunks"), _SHAPE),
    "zero-bubble": (schedules.zero_bubble, (*_PIPELINE, "weight"), _SHAPE),
    "data-parallel": (
        schedules.data_parallel,
        ("replicas", "buckets", "forward", "backward", "all_reduce"),
        ("devices", "optimiser", "network"),
    ),
    "tensor-parallel": (
        schedules.tensor_parallel,
        ("ranks", "attention", "mlp", "all_reduce"),
        ("attention_backward", "mlp_backward", "layers", "devices", "network"),
    ),
}
_COUNTS = ("stages", "microbatches", "chunks", "replicas", "buckets", "ranks", "layers")


def read_nodes(
    document: Mapping[str, Any],
    elements: Mapping[str, Element],
    devices: Mapping[str, Device],
    label: str,
    *,
    folder: pathlib.Path | None = None,
    name: str | None = None,
) -> Plan:
    """Read the tables of `KEYS` of a plan file as a plan.

    Draws are independent unless ``[draws]`` says otherwise.

    Parameters
    ----------
    document : mapping
        The whole file.
    elements, devices : mapping
        What it may name.
    label : str
        The file, for messages.
    folder : Path, optional
        Where files are looked for that laws of draw factors name.
    name : str, optional
        Of the plan.

    Raises
    ------
    PlanError, UnitError, CompositionError, InputError
        All of one line that names the file, the key, the value found and what was
        expected; unknown names with the nearest known.
    """
    title = label if name is None else name
    if ("nodes" in document) == ("schedule" in document):
        raise PlanError(f"{label}: give one of [[nodes]] and [schedule]")
    if "nodes" in document:
        plan = _listed(document, elements, devices, label, title)
    else:
        if "orders" in document:
            raise PlanError(f"{label}: orders: a schedule has its own")
        plan = _scheduled(document["schedule"], elements, devices, label, title)
    return _drawn(plan, document.get("draws", {}), label, folder or pathlib.Path())


def _listed(
    document: Mapping[str, Any],
    elements: Mapping[str, Element],
    devices: Mapping[str, Device],
    label: str,
    name: str,
) -> Plan:
    tables = _list(document["nodes"], f"{label}: nodes")
    if len(tables) > MAX_NODES:
        raise PlanError(
            f"{label}: nodes: {len(tables):,} entries; at most {MAX_NODES:,} allowed"
        )
    names: dict[str, int] = {}
    for i, table in enumerate(tables):
        where = f"{label}: nodes[{i}]"
        check_keys(table, _NODE, where)
        key = name_of(_needed(table, "name", where), f"{where}.name")
        if names.setdefault(key, i) != i:
            raise PlanError(f"{where}.name: {key!r} is the name of nodes[{names[key]}]")
    nodes = [
        _node(table, names, elements, devices, f"{label}: node {key!r}")
        for key, table in zip(names, tables, strict=True)
    ]
    orders: dict[str, list[str]] = {}
    table = document.get("orders", {})
    for device, order in check_keys(table, tuple(devices), f"{label}: orders").items():
        where = f"{label}: orders.{device}"
        orders[device] = [
            _known(item, names, "node", f"{where}[{i}]")
            for i, item in enumerate(_list(order, where))
        ]
    used = [d for node in nodes for d in node.devices or node.element.devices]
    with located(label):
        return Plan.of(
            nodes, orders=orders, baselines=_baselines(used, devices), name=name
        )


def _node(
    table: Mapping[str, Any],
    names: Mapping[str, int],
    elements: Mapping[str, Element],
    devices: Mapping[str, Device],
    where: str,
) -> PlanNode:
    element = elements[_known(_needed(table, "element", where), elements, "element",
                              f"{where}.element")]  # fmt: skip
    hosts = None
    if "device" in table and "devices" in table:
        raise PlanError(f"{where}: give one of 'device' and 'devices'")
    if "device" in table or "devices" in table:
        key = "device" if "device" in table else "devices"
        given = [table[key]] if key == "device" else _list(table[key], f"{where}.{key}")
        hosts = [_known(d, devices, "device", f"{where}.{key}") for d in given]
        with located(where):
            element.on(*hosts)  # says what does not fit, with the place
    labels = table.get("labels", {})
    if not isinstance(labels, Mapping):
        raise PlanError(f"{where}.labels: {shown(labels)} found; expected a table")
    for key, value in labels.items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise PlanError(
                f"{where}.labels.{key}: {shown(value)} found; expected a whole number"
                " or a text"
            )
    return PlanNode(
        table["name"],
        element,
        after=[
            _edge(value, names, f"{where}.after[{i}]")
            for i, value in enumerate(_list(table.get("after", []), f"{where}.after"))
        ],
        devices=hosts,
        release=_duration(table.get("release", 0.0), f"{where}.release"),
        labels=dict(labels),
    )


def _edge(value: Any, names: Mapping[str, int], where: str) -> Edge:
    if isinstance(value, str):
        return Edge(_known(value, names, "node", where))
    table = check_keys(value, ("node", "lag", "kind"), where)
    return Edge(
        _known(_needed(table, "node", where), names, "node", f"{where}.node"),
        lag=_duration(table.get("lag", 0.0), f"{where}.lag"),
        kind=cast(EdgeKind, choice(table, "kind", EDGE_KINDS, where)),
    )


def _scheduled(
    value: Any,
    elements: Mapping[str, Element],
    devices: Mapping[str, Device],
    label: str,
    name: str,
) -> Plan:
    where = f"{label}: schedule"
    if not isinstance(value, Mapping):
        raise PlanError(f"{where}: {shown(value)} found; expected a table")
    kind = text(_needed(value, "kind", where), f"{where}.kind")
    if kind not in _SCHEDULES:
        raise PlanError(
            f"{where}.kind: unknown schedule {kind[:60]!r}"
            f"{nearest(kind, tuple(_SCHEDULES))}"
        )
    generator, needed, wanted = _SCHEDULES[kind]
    check_keys(value, ("kind", *needed, *wanted), where)
    for key in needed:
        _needed(value, key, where)
    arguments: dict[str, Any] = {}
    for key, given in value.items():
        at = f"{where}.{key}"
        if key in _COUNTS:
            arguments[key] = given
        elif key == "devices":
            arguments[key] = list(_places(given, devices, at))
        elif key == "network":
            arguments[key] = text(given, at)
        elif key == "transfer":
            arguments[key] = _transfer(given, elements, at)
        elif key == "load" and isinstance(given, Mapping):
            arguments[key] = {
                _stage(stage, at): _element(e, elements, f"{at}.{stage}")
                for stage, e in given.items()
            }
        elif key != "kind":
            arguments[key] = _elements(given, elements, at)
    with located(where):
        used = _used(arguments)
        baselines = _baselines(used, devices)
        return generator(**arguments, baselines=baselines, name=name)


def _used(arguments: Mapping[str, Any]) -> list[str]:
    """Devices that a schedule will hold, as far as a plan file can state them."""
    first = arguments.get("forward", arguments.get("attention"))
    if isinstance(first, list):
        first = first[0] if first else None
    count = next((arguments[k] for k in ("stages", "replicas", "ranks")
                  if k in arguments), 1)  # fmt: skip
    if first is None or not isinstance(count, int) or not 0 < count <= MAX_NODES:
        return []  # refused by the generator
    hosts = hosts_of(arguments.get("devices"), count, len(first.devices))
    used = [d for h in hosts for d in h]
    reduce = arguments.get("all_reduce", ())
    for e in (reduce,) if isinstance(reduce, Element) else reduce:
        if len(e.devices) == 1:
            used.append(arguments.get("network", "network"))
    return used


def _drawn(plan: Plan, value: Any, label: str, folder: pathlib.Path) -> Plan:
    where = f"{label}: draws"
    table = check_keys(value, ("rows", "factors"), where)
    rows = table.get("rows")
    if isinstance(rows, list):
        rows = [text(row, f"{where}.rows[{i}]") for i, row in enumerate(rows)]
    elif rows is not None:
        rows = text(rows, f"{where}.rows")
    factors = []
    for i, given in enumerate(_list(table.get("factors", []), f"{where}.factors")):
        at = f"{where}.factors[{i}]"
        held = check_keys(given, ("name", "law", "by", "acts_on"), at)
        for key in ("name", "law", "by"):
            _needed(held, key, at)
        law = read_law(held["law"], Context(f"{at}.law", "number", folder))
        by = held["by"] if isinstance(held["by"], list) else [held["by"]]
        by = [text(item, f"{at}.by") for item in by]
        acts_on = choice(held, "acts_on", get_args(FactorActsOn), at)
        with located(at):
            factors.append(
                DrawFactor(
                    text(held["name"], f"{at}.name"), law, by=by,
                    acts_on=cast(FactorActsOn, acts_on),
                )
            )  # fmt: skip
    if rows is None and not factors:
        return plan
    with located(where):
        return plan.drawn(None if rows == "node" else rows, factors)


def _baselines(used: Sequence[str], devices: Mapping[str, Device]) -> dict[str, float]:
    """What the devices draw that the file describes; the others as their elements."""
    return {d: devices[d].static_power for d in used if d in devices}


def _needed(table: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in table:
        raise PlanError(f"{where}: {key!r} is missing")
    return table[key]


def _known(value: Any, known: Mapping[str, Any], what: str, where: str) -> str:
    name = text(value, where)
    if name not in known:
        raise PlanError(f"{where}: unknown {what} {name[:60]!r}{nearest(name, known)}")
    return name


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise PlanError(f"{where}: {shown(value)} found; expected a list")
    return value


def _duration(value: Any, where: str) -> float:
    found = quantity(value, dimension="time", where=where)
    if found < 0.0:
        raise PlanError(f"{where}: {shown(value)} found; expected zero or more")
    return found


def _element(value: Any, elements: Mapping[str, Element], where: str) -> Element:
    return elements[_known(value, elements, "element", where)]


def _elements(value: Any, elements: Mapping[str, Element], where: str) -> Any:
    if not isinstance(value, list):
        return _element(value, elements, where)
    return [_element(e, elements, f"{where}[{i}]") for i, e in enumerate(value)]


def _transfer(value: Any, elements: Mapping[str, Element], where: str) -> Any:
    """Return the element of that name, or else the time it takes."""
    if isinstance(value, str) and (value in elements or NAME.fullmatch(value)):
        return _element(value, elements, where)
    return _duration(value, where)


def _stage(value: str, where: str) -> int:
    if not value.isdecimal() or len(value) > 9:
        raise PlanError(
            f"{where}: {value[:60]!r} found; expected the number of a stage"
        )
    return int(value)


def _places(value: Any, devices: Mapping[str, Device], where: str) -> Iterator[Any]:
    for i, place in enumerate(_list(value, where)):
        at = f"{where}[{i}]"
        if isinstance(place, list):
            yield [_known(d, devices, "device", at) for d in place]
        else:
            yield _known(place, devices, "device", at)
