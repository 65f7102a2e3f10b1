"""Plans stated node by node: named nodes, each with its predecessors."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from probcalc.draws import positive
from probcalc.element import Element
from probcalc.errors import InputError

__all__ = ["EDGE_KINDS", "Edge", "EdgeKind", "PlanNode", "arrays_of_nodes"]

IntArray = npt.NDArray[np.int64]
EdgeKind = Literal["data", "sync", "serial"]
#: What an edge is for; an edge holds its kind as an index into these.
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)


@dataclass(frozen=True, slots=True)
class Edge:
    """A predecessor: the node starts no earlier than its finish plus a lag.

    Parameters
    ----------
    node : str
        Name of the predecessor.
    lag : float
        In s, at least 0.
    kind : {"data", "sync", "serial"}
    """

    node: str
    lag: float = 0.0
    kind: EdgeKind = "data"


@dataclass(frozen=True, slots=True, eq=False)
class PlanNode:
    """One execution of an element in a plan.

    Parameters
    ----------
    name : str
    element : Element
    after : sequence of str or Edge
        Predecessors.
    device, devices : str or sequence of str, optional
        Where it runs, if not where the element was measured.
    release : float
        Earliest start in s.
    labels : mapping of str to hashable
        Such as the microbatch, stage or rank it belongs to.
    """

    name: str
    element: Element
    after: Sequence[str | Edge] = ()
    device: str | None = None
    devices: Sequence[str] | None = None
    release: float = 0.0
    labels: Mapping[str, Hashable] = field(default_factory=dict)


def arrays_of_nodes(
    nodes: Iterable[PlanNode], orders: Mapping[str, Sequence[str]], name: str
) -> dict[str, Any]:
    """Turn named nodes into what `probcalc.plan.Plan.from_arrays` takes.

    Raises
    ------
    InputError
        As `probcalc.plan.Plan.of`.
    """
    listed = list(nodes)
    for node in listed:
        if not isinstance(node, PlanNode):
            raise InputError(f"plan {name!r}: expected PlanNodes, got {node!r:.60}")
    index: dict[str, int] = {}
    for node in listed:
        if not isinstance(node.name, str) or not node.name.strip():
            raise InputError(f"plan {name!r}: expected a name, got {node.name!r}")
        if node.name in index:
            raise InputError(f"plan {name!r}: node {node.name!r} is stated twice")
        index[node.name] = len(index)
    edges: list[tuple[int, int, float, int]] = []
    for node in listed:
        for edge in _edges_of(node, name):
            edges.append(
                (
                    _node(edge.node, index, f"node {node.name!r}, predecessor"),
                    index[node.name],
                    positive(edge.lag, f"node {node.name!r}, lag"),
                    _kind(edge.kind, node.name),
                )
            )
    for device, order in orders.items():
        edges += _serial(device, order, listed, index)
    placed = [_placed(node) for node in listed]
    elements, element_of = _distinct(placed)
    keys = list(dict.fromkeys(key for node in listed for key in node.labels))
    columns = list(zip(*edges, strict=True)) if edges else [(), (), (), ()]
    return dict(
        elements=elements,
        element_of=element_of,
        sources=columns[0],
        targets=columns[1],
        lags=columns[2],
        kinds=columns[3],
        releases=[
            positive(node.release, f"node {node.name!r}, release") for node in listed
        ],
        names=[node.name for node in listed],
        labels={key: [node.labels.get(key) for node in listed] for key in keys},
    )


def _node(name: str, index: Mapping[str, int], where: str) -> int:
    if name not in index:
        raise InputError(f"{where}: no node {name!r}")
    return index[name]


def _kind(kind: str, node: str) -> int:
    if kind not in EDGE_KINDS:
        raise InputError(
            f"node {node!r}, kind of an edge is {kind!r}, expected one of "
            f"{', '.join(map(repr, EDGE_KINDS))}"
        )
    return EDGE_KINDS.index(kind)


def _edges_of(node: PlanNode, name: str) -> list[Edge]:
    if isinstance(node.after, str):
        raise InputError(
            f"node {node.name!r}: after is {node.after!r}, expected a list of names"
        )
    edges = [Edge(x) if isinstance(x, str) else x for x in node.after]
    for edge in edges:
        if not isinstance(edge, Edge):
            raise InputError(
                f"plan {name!r}: node {node.name!r}: predecessor {edge!r:.60}, "
                "expected a name or an Edge"
            )
    return edges


def _serial(
    device: str, order: Sequence[str], nodes: Sequence[PlanNode], index: dict[str, int]
) -> list[tuple[int, int, float, int]]:
    where = f"order of {device!r}"
    numbers = [_node(name, index, where) for name in order]
    for name, i in zip(order, numbers, strict=True):
        if device not in _placed(nodes[i]).devices:
            raise InputError(f"{where}: node {name!r} does not run there")
        if list(order).count(name) > 1:
            raise InputError(f"{where}: node {name!r} is stated twice")
    serial = EDGE_KINDS.index("serial")
    return [(a, b, 0.0, serial) for a, b in itertools.pairwise(numbers)]


def _placed(node: PlanNode) -> Element:
    if not isinstance(node.element, Element):
        raise InputError(
            f"node {node.name!r}: expected an Element, got "
            f"{type(node.element).__name__} {node.element!r:.60}"
        )
    if node.device is not None and node.devices is not None:
        raise InputError(f"node {node.name!r}: give one of device and devices")
    hosts = node.devices if node.device is None else (node.device,)
    return node.element if hosts is None else node.element.on(*hosts)


def _distinct(placed: Sequence[Element]) -> tuple[list[Element], IntArray]:
    """Elements that are one law on one place, once, and which of them each node is."""
    known: dict[tuple[int, int, str, tuple[str, ...]], int] = {}
    elements: list[Element] = []
    numbers = np.empty(len(placed), dtype=np.int64)
    for i, e in enumerate(placed):
        key = (id(e.time), id(e.dynamic_energy), e.name, e.devices)
        if key not in known:
            known[key] = len(elements)
            elements.append(e)
        numbers[i] = known[key]
    return elements, numbers
