"""Contention for shared resources: demand against capacity (Table 1, axiom P5).

While all that runs asks no more of a resource than its capacity, nothing happens.
Beyond it every user is served its demand times capacity over total demand, so that its
run takes longer by the mean excess over its own window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from probcalc.context import number
from probcalc.errors import InputError
from probcalc.readonly import ReadOnly

__all__ = ["Contention", "Resource", "Use", "contention", "excess"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Scope = Literal["device", "fabric"]


@dataclass(frozen=True, slots=True, init=False)
class Resource:
    """A resource that several executions share.

    Parameters
    ----------
    name : str
        As in the ``demand`` of traces.
    capacity : float
        What it can serve, in `unit`.
    unit : str
    scope : {"device", "fabric"}
        Whether each device has one of its own, or all devices share one.
    slowdown, energy : float
        Relative growth of time and of dynamic energy per unit of relative excess; a
        slowdown of 1 is a run that does nothing but wait for the resource.

    Raises
    ------
    InputError
        A capacity that is not positive, negative slopes, an unknown scope.
    """

    name: str
    capacity: float
    unit: str
    scope: Scope
    slowdown: float
    energy: float

    def __init__(
        self,
        name: str,
        capacity: float,
        *,
        unit: str = "B/s",
        scope: Scope = "fabric",
        slowdown: float = 1.0,
        energy: float = 0.0,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"resource: expected a name, got {name!r}")
        where = f"resource {name!r}"
        if scope not in get_args(Scope):
            raise InputError(
                f"{where}: scope is {scope!r}, expected 'device' or 'fabric'"
            )
        for field, value in {
            "name": name,
            "capacity": number(capacity, f"{where}, capacity", unit, open=True),
            "unit": unit,
            "scope": scope,
            "slowdown": number(slowdown, f"{where}, slowdown"),
            "energy": number(energy, f"{where}, energy"),
        }.items():
            object.__setattr__(self, field, value)


@dataclass(frozen=True, slots=True)
class Contention:
    """The runtime mechanism: resources, and how often overlaps are worked out.

    Attributes
    ----------
    resources : mapping of str to Resource
    passes : int
        How often overlaps are taken from the last schedule, the first one without any
        context.
    """

    resources: Mapping[str, Resource]
    passes: int


def contention(*resources: Resource, passes: int = 2) -> Contention:
    """Return the contention for some resources.

    Parameters
    ----------
    *resources : Resource
    passes : int
        Fixed-point passes: who overlaps whom depends on how long runs take, which
        depends on who overlaps. What the last one still changed is reported.

    Raises
    ------
    InputError
        No resources, one name twice, or no passes.
    """
    held: dict[str, Resource] = {}
    for resource in resources:
        if not isinstance(resource, Resource):
            raise InputError(f"contention: expected resources, got {resource!r:.60}")
        if resource.name in held:
            raise InputError(f"contention: resource {resource.name!r} is stated twice")
        held[resource.name] = resource
    if not held:
        raise InputError("contention: no resources, expected at least one")
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
        raise InputError(f"contention: passes is {passes!r}, expected at least 1")
    return Contention(ReadOnly(held), passes)


class Use(NamedTuple):
    """Nodes that share one resource, each with its demand over the capacity."""

    resource: Resource
    nodes: IntArray
    demand: FloatArray


def uses(
    resources: Mapping[str, Resource],
    demands: Sequence[Mapping[str, float]],
    devices: Sequence[Iterable[str]],
    names: Sequence[str],
    element_of: IntArray,
) -> list[Use]:
    """Gather who shares what; resources of a device apart for each device.

    Parameters
    ----------
    demands, devices, names : sequence
        Of each element.
    element_of : ndarray of int64, shape (nodes,)

    Raises
    ------
    InputError
        A demand beyond the capacity: alone, a run is served no more than that.
    """
    found = []
    for resource in resources.values():
        groups: dict[str, dict[int, float]] = {}
        for i, demand in enumerate(demands):
            asked = demand.get(resource.name, 0.0)
            if asked > resource.capacity:
                raise InputError(
                    f"element {names[i]!r}: demand of {resource.name!r} is {asked:g} "
                    f"{resource.unit}, expected at most its capacity "
                    f"{resource.capacity:g} {resource.unit}"
                )
            if asked == 0.0:
                continue
            hosts = devices[i] if resource.scope == "device" else ("",)
            for host in hosts:
                groups.setdefault(host, {})[i] = asked / resource.capacity
        for members in groups.values():
            share = np.zeros(len(demands))
            share[list(members)] = list(members.values())
            nodes = np.flatnonzero(share[element_of] > 0.0)
            if nodes.size > 1:
                found.append(Use(resource, nodes, share[element_of[nodes]]))
    return found


def excess(start: FloatArray, finish: FloatArray, demand: FloatArray) -> FloatArray:
    """Mean excess of total demand over capacity during each window, exact.

    Parameters
    ----------
    start, finish : ndarray, shape (nodes, samples)
    demand : ndarray, shape (nodes,)
        Over the capacity.

    Returns
    -------
    ndarray, shape (nodes, samples)
        0 for windows of no length. Costs a sort of all ends per sample.
    """
    n = demand.size
    ends = np.concatenate([start, finish])
    order = np.argsort(ends, axis=0, kind="stable")
    times = np.take_along_axis(ends, order, axis=0)
    steps = np.concatenate([demand, -demand])[order]
    total = np.cumsum(steps, axis=0)[:-1]
    # Sums of many demands leave rounding behind where they should meet the capacity.
    over = np.where(total > 1.0 + 1e-12 * n, total - 1.0, 0.0)
    area = np.zeros_like(times)
    np.cumsum(over * np.diff(times, axis=0), axis=0, out=area[1:])
    at = np.empty_like(area)
    np.put_along_axis(at, order, area, axis=0)
    window = finish - start
    long = window > 0.0
    return np.where(long, (at[n:] - at[:n]) / np.where(long, window, 1.0), 0.0)
