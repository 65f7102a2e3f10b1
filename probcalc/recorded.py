"""Nodes as a trace recorded them, turned into a plan."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from probcalc.distribution import Empirical
from probcalc.element import Element
from probcalc.errors import InputError, PlanError
from probcalc.expression import nearest
from probcalc.plan import EDGE_KINDS, EdgeKind, Plan
from probcalc.runs import watts

__all__ = ["DynamicEnergy", "Edges", "Laws", "Record", "plan_of", "refused"]

#: Law of d in J by the name of what runs, or a function of that name and its time in s.
DynamicEnergy = Mapping[str, Any] | Callable[[str, float], Any] | None
Laws = Literal["recorded", "pooled"]
NO_ENERGY = "not in the file: static energy only"


@dataclass(frozen=True, slots=True)
class Record:
    """One execution that a trace recorded.

    Attributes
    ----------
    name : str
        Of the node, once in the trace.
    title : str
        Of what ran: kernel, operation, program.
    hosts : tuple of str
        Devices.
    time : float
        In s.
    energy : float, optional
        In J, where the trace has it.
    release : float
        In s.
    labels : mapping of str to hashable
    """

    name: str
    title: str
    hosts: tuple[str, ...]
    time: float
    energy: float | None = None
    release: float = 0.0
    labels: Mapping[str, Hashable] = field(default_factory=dict)


class Edges:
    """Collects edges one by one."""

    def __init__(self) -> None:
        self.sources: list[int] = []
        self.targets: list[int] = []
        self.lags: list[float] = []
        self.kinds: list[int] = []

    def add(
        self, source: int, target: int, lag: float = 0.0, kind: EdgeKind = "data"
    ) -> None:
        """Add an edge between two nodes, by number."""
        self.sources.append(source)
        self.targets.append(target)
        self.lags.append(lag)
        self.kinds.append(EDGE_KINDS.index(kind))


@contextlib.contextmanager
def refused(label: str) -> Iterator[None]:
    """Name the file in errors about what it holds."""
    try:
        yield
    except PlanError:
        raise
    except InputError as error:
        told = str(error).startswith(label.partition(":")[0] + ":")
        raise PlanError(str(error) if told else f"{label}: {error}") from error


def plan_of(
    records: Sequence[Record],
    edges: Edges,
    *,
    label: str,
    name: str,
    static_power: float | Mapping[str, float],
    dynamic_energy: DynamicEnergy = None,
    laws: Laws = "recorded",
) -> Plan:
    """Build the plan of recorded nodes; independent draws.

    Parameters
    ----------
    records : sequence of Record
    edges : Edges
    label : str
        The file, for messages.
    name : str
        Of the plan; "(static energy only)" is added where no energy is known.
    static_power : float or mapping of str to float
        In W: of every device, or by device.
    dynamic_energy : mapping or callable, optional
        Law of d by title, or a function of title and time.
    laws : {"recorded", "pooled"}
        Every node takes the time it took; or draws from the times of all nodes of its
        title on its devices.

    Raises
    ------
    PlanError
        No nodes, a name stated twice, a cycle; names the file.
    InputError
        Devices without static power, or unknown; titles without dynamic energy.
    """
    if laws not in get_args(Laws):
        raise InputError(f"laws is {laws!r}, expected 'recorded' or 'pooled'")
    if not records:
        raise PlanError(f"{label}: has no nodes, expected at least one")
    seen: set[str] = set()
    for record in records:
        if record.name in seen:
            raise PlanError(f"{label}: node {record.name!r} is stated twice")
        seen.add(record.name)
    powers = _powers(static_power, records)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, r in enumerate(records):
        key = (r.title, r.hosts) + (() if laws == "pooled" else (r.time, r.energy))
        groups.setdefault(key, []).append(i)
    known = any(r.energy is not None for r in records)
    if known and dynamic_energy is not None:
        raise InputError(f"dynamic_energy: {label} states energies of its own")
    if known:
        for record in records:
            if record.energy is None:
                raise PlanError(
                    f"{label}: node {record.name!r} has no energy, others have one"
                )
    silent = not known and dynamic_energy is None
    elements: list[Element] = []
    element_of = np.empty(len(records), dtype=np.int64)
    laws_by_title: dict[Any, Any] = {}
    for number, members in enumerate(groups.values()):
        mine = [records[i] for i in members]
        element_of[members] = number
        elements.append(
            _element(mine, powers, dynamic_energy, laws_by_title, label, silent)
        )
    keys = dict.fromkeys(key for r in records for key in r.labels)
    with refused(label):
        return Plan.from_arrays(
            elements=elements,
            element_of=element_of,
            sources=np.array(edges.sources, dtype=np.int64),
            targets=np.array(edges.targets, dtype=np.int64),
            lags=edges.lags,
            kinds=np.array(edges.kinds, dtype=np.int64),
            releases=[r.release for r in records],
            names=[r.name for r in records],
            labels={key: [r.labels.get(key) for r in records] for key in keys},
            name=f"{name} (static energy only)" if silent else name,
        )


def _element(
    records: Sequence[Record],
    powers: Mapping[str, float],
    dynamic_energy: DynamicEnergy,
    known: dict[Any, Any],
    label: str,
    silent: bool,
) -> Element:
    first = records[0]
    times = [r.time for r in records]
    energies = [r.energy for r in records if r.energy is not None]
    fields: dict[str, Any] = {
        "static_power": {host: powers[host] for host in first.hosts},
        "devices": first.hosts,
        "metadata": {"source": label}
        | ({"dynamic_energy": NO_ENERGY} if silent else {}),
    }
    if energies:
        if len(energies) < len(records):
            raise PlanError(
                f"{label}: {first.title!r}: energy is stated for some alone"
            )
        if len(set(zip(times, energies, strict=True))) > 1:
            with refused(label):
                return Element.from_runs(
                    first.title, time=times, energy=energies, **fields
                )
        static = math.fsum(powers[host] for host in first.hosts) * first.time
        dynamic = energies[0] - static
        if abs(dynamic) <= 4.0 * np.finfo(float).eps * max(energies[0], static):
            dynamic = 0.0  # E = s T, up to the rounding of the difference
        if dynamic < 0.0:
            raise PlanError(
                f"{label}: {first.name!r}: energy is {energies[0]:g} J, less than its "
                f"static energy {static:g} J; static power calibrated too high"
            )
        return Element(first.title, time=first.time, dynamic_energy=dynamic, **fields)
    law = 0.0
    if dynamic_energy is not None:
        time = math.fsum(times) / len(times)
        by_title = isinstance(dynamic_energy, Mapping)
        key = first.title if by_title else (first.title, time)
        if key not in known:  # equal executions share a law, not a draw
            known[key] = _law(dynamic_energy, first.title, time)
        law = known[key]
    varied = len(set(times)) > 1
    time_law = Empirical(np.array(times)) if varied else first.time
    return Element(first.title, time=time_law, dynamic_energy=law, **fields)


def _law(dynamic_energy: Any, title: str, time: float) -> Any:
    if callable(dynamic_energy):
        return dynamic_energy(title, time)
    if title not in dynamic_energy:
        hint = nearest(title, tuple(map(str, dynamic_energy)))
        raise InputError(f"dynamic_energy: none for {title[:60]!r}{hint}")
    return dynamic_energy[title]


def _powers(
    static_power: float | Mapping[str, float], records: Sequence[Record]
) -> dict[str, float]:
    devices = dict.fromkeys(host for r in records for host in r.hosts)
    if not isinstance(static_power, Mapping):
        power = watts(static_power, "static_power")
        return dict.fromkeys(devices, power)
    for device in static_power:
        if device not in devices:
            hint = nearest(str(device), devices)
            raise InputError(f"static_power: unknown device {device!r}{hint}")
    for device in devices:
        if device not in static_power:
            raise InputError(
                f"static_power: none for device {device!r}, stated for "
                f"{', '.join(map(repr, static_power)) or 'none'}"
            )
    return {d: watts(static_power[d], f"static_power of {d!r}") for d in devices}
