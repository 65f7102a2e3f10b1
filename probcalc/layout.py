"""Blocks of nodes laid out on devices: what the generators of schedules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.plan import EDGE_KINDS, EdgeKind, Plan
from probcalc.runs import whole

__all__ = ["Hosts", "Layout", "each", "hosts_of", "size"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Hosts = tuple[str, ...]

MAX_NODES = 5_000_000
"""Nodes of a generated plan."""


class Layout:
    """Collects nodes and edges block by block and numbers them in the end.

    Nodes of one block share a kind and a pattern of names. Independent draws.

    Parameters
    ----------
    labels : sequence of str
        Names of the whole-number labels that nodes can have.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = {name: list[IntArray]() for name in labels}
        self._kinds: list[tuple[str, int]] = []
        self._names: list[str] = []
        self._elements: list[Element] = []
        self._placed: dict[tuple[int, Hosts], int] = {}
        self._devices: dict[Hosts, int] = {}
        self._element_of: list[IntArray] = []
        self._device_of: list[IntArray] = []
        self._edges: list[tuple[IntArray, IntArray, IntArray]] = []
        self._lags: list[FloatArray] = []
        self._size = 0

    def place(self, element: Element, hosts: Hosts, where: str) -> int:
        """Return the number of an element placed on some devices.

        Raises `InputError` that names the argument where the devices do not fit.
        """
        key = (id(element), hosts)
        if key not in self._placed:
            if len(hosts) != len(element.devices):
                raise InputError(
                    f"{where}: element {element.name!r} runs on "
                    f"{len(element.devices)} devices, expected {len(hosts)}, to be "
                    f"placed on {', '.join(hosts)}"
                )
            self._devices.setdefault(hosts, len(self._devices))
            self._placed[key] = len(self._elements)
            self._elements.append(element.on(*hosts))
        return self._placed[key]

    def add(
        self,
        kind: str,
        stem: str,
        elements: Sequence[tuple[Element, Hosts]],
        which: npt.ArrayLike,
        labels: Mapping[str, npt.ArrayLike],
        named: Sequence[str] = (),
    ) -> IntArray:
        """Add a block of nodes and return their provisional numbers.

        Parameters
        ----------
        kind : str
            Label "kind" of all nodes, and how messages name the argument.
        stem : str
            Names are the stem with labels in parentheses.
        elements : sequence of (Element, hosts)
        which : array_like of int, shape (nodes,)
            Index into `elements`.
        labels : mapping of str to array_like of int, shape (nodes,)
        named : sequence of str, optional
            Labels that make the names, all of them without.
        """
        number = np.array([self.place(e, h, kind) for e, h in elements])
        order = np.array([self._devices[h] for _, h in elements])
        index = np.asarray(which, dtype=np.int64).ravel()
        self._element_of.append(number[index])
        self._device_of.append(order[index])
        columns = {key: np.asarray(v).ravel() for key, v in labels.items()}
        for key, held in self._labels.items():
            held.append(columns.get(key, np.full(index.size, -1)).astype(np.int64))
        shown = zip(*(columns[key].tolist() for key in named or labels), strict=True)
        self._names += [f"{stem}({','.join(map(str, row))})" for row in shown]
        self._kinds.append((kind, index.size))
        first, self._size = self._size, self._size + index.size
        return np.arange(first, self._size)

    def connect(
        self,
        sources: npt.ArrayLike,
        targets: npt.ArrayLike,
        lag: float = 0.0,
        kind: EdgeKind = "data",
    ) -> None:
        """Add edges between nodes of equal position, broadcast to one shape."""
        a, b = np.broadcast_arrays(np.asarray(sources), np.asarray(targets))
        kinds = np.full(a.size, EDGE_KINDS.index(kind))
        self._edges.append((a.ravel(), b.ravel(), kinds))
        self._lags.append(np.full(a.size, lag))

    def serialise(
        self, nodes: IntArray, lane: npt.ArrayLike, key: npt.ArrayLike
    ) -> None:
        """Run the nodes of each lane one after the other, by ascending key."""
        lanes = np.asarray(lane).ravel()
        order = np.lexsort((np.asarray(key).ravel(), lanes))
        a, b = order[:-1], order[1:]
        same = lanes[a] == lanes[b]
        self.connect(nodes[a[same]], nodes[b[same]], kind="serial")

    def plan(self, name: str, baselines: Mapping[str, float] | None) -> Plan:
        """Number the nodes by (level, device), and build the plan."""
        from probcalc.kernels import graph

        a, b, kinds = (
            np.concatenate(
                [np.empty(0, np.int64), *(edges[i] for edges in self._edges)]
            )
            for i in (0, 1, 2)
        )
        lags = np.concatenate([np.empty(0), *self._lags])
        device = np.concatenate(self._device_of)
        level = graph.levels(self._size, a, b)
        order = np.lexsort((np.arange(self._size), device, level))
        number = np.empty(self._size, dtype=np.int64)
        number[order] = np.arange(self._size)
        picked = order.tolist()
        kind = [k for k, count in self._kinds for _ in range(count)]
        labels: dict[str, Sequence[Any]] = {"kind": [kind[i] for i in picked]}
        for key, columns in self._labels.items():
            column = np.concatenate(columns)[order].tolist()
            labels[key] = [None if value < 0 else value for value in column]
        return Plan.from_arrays(
            elements=self._elements,
            element_of=np.concatenate(self._element_of)[order],
            sources=number[a],
            targets=number[b],
            lags=lags,
            kinds=kinds,
            names=[self._names[i] for i in picked],
            labels=labels,
            baselines=baselines,
            name=name,
        )


def each(given: Any, counts: Sequence[int], where: str) -> list[Element]:
    """Return one element for each place, from one for all or a sequence.

    Parameters
    ----------
    given : Element or sequence of Element
    counts : sequence of int
        The first is the number of places; a shorter sequence, of the length of
        another, is repeated.

    Raises
    ------
    InputError
        No elements, or another number of them; named by `where`.
    """
    if isinstance(given, Element):
        return [given] * counts[0]
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise InputError(f"{where}: expected an Element or a list, got {given!r:.60}")
    for e in given:
        if not isinstance(e, Element):
            raise InputError(f"{where}: expected Elements, got {e!r:.60}")
    if len(given) not in counts:
        expected = " or ".join(map(str, sorted(set(counts))))
        raise InputError(
            f"{where}: {len(given)} elements, expected one Element, or {expected}"
        )
    return list(given) * (counts[0] // len(given))


def hosts_of(devices: Any, count: int, width: int) -> list[Hosts]:
    """Return the devices of each place: those stated, or gpu0, gpu1, ...

    Parameters
    ----------
    devices : sequence of str or of sequence of str, or None
    count, width : int
        Places, and devices of each.

    Raises
    ------
    InputError
        Another number of places, or a device stated twice.
    """
    if devices is None:
        return [
            tuple(f"gpu{i * width + j}" for j in range(width)) for i in range(count)
        ]
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise InputError(f"devices: expected a list of names, got {devices!r:.60}")
    hosts = [(d,) if isinstance(d, str) else tuple(d) for d in devices]
    if len(hosts) != count:
        raise InputError(f"devices: {len(hosts)} places, expected {count}")
    seen: set[str] = set()
    for device in (d for h in hosts for d in h):
        if not isinstance(device, str) or not device.strip():
            raise InputError(f"devices: expected names, got {device!r:.60}")
        if device in seen:
            raise InputError(f"devices: {device!r} is stated twice")
        seen.add(device)
    return hosts


def size(value: object, where: str, others: int = 1) -> int:
    """Return a count of at least 1 that keeps a plan within `MAX_NODES`.

    Raises `InputError`.
    """
    count = whole(value, where)
    if count * others > MAX_NODES:
        raise InputError(
            f"{where}: {count:,} makes a plan of more than {MAX_NODES:,} nodes"
        )
    return count
