"""What the nodes of a plan can choose: points of elements, groups, what can overlap."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np
import numpy.typing as npt

from probcalc.draws import label_ids
from probcalc.errors import CompositionError, InputError
from probcalc.operating import OperatingSet
from probcalc.plan import Plan

__all__ = ["Points", "check_overlap", "check_sets", "units_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

Part = tuple[FloatArray, FloatArray, IntArray]


class Points:
    """Points of each element of a plan, as (T, x, number of the point)."""

    def __init__(self, plan: Plan, sets: Mapping[str, OperatingSet]) -> None:
        self.plan = plan
        self.sets = sets
        #: All points of each element.
        self.all: list[Part] = []
        for e in plan.elements:
            held = math.fsum(plan.baselines[d] for d in e.devices)
            found = sets.get(e.name) or OperatingSet.of_elements(e.name, [e])
            points = np.arange(len(found))
            self.all.append((found.time, found.beyond(held), points))
        self._kept: dict[int, Part] = {}

    def device_points(self, number: int) -> tuple[Hashable, ...]:
        """omega_dev of every point of an element."""
        e = self.plan.elements[number]
        return (
            self.sets[e.name].device_points
            if e.name in self.sets
            else (e.operating_point,)
        )

    def unbeaten(self, number: int) -> Part:
        """Points of an element that are not beaten in (T, x), by rising time."""
        from probcalc.kernels.pareto import reduced

        if number not in self._kept:
            time, cost, point = self.all[number]
            kept = reduced(time, cost)
            self._kept[number] = time[kept], cost[kept], point[kept]
        return self._kept[number]

    def by_key(
        self, unit: IntArray
    ) -> tuple[list[Part], tuple[tuple[Hashable, ...], ...]]:
        """Points of every node, one for each key that all nodes of its group have."""
        members: dict[int, list[int]] = {}
        for v, u in enumerate(unit.tolist()):
            members.setdefault(u, []).append(v)
        parts: list[Part] = [self.all[0]] * len(self.plan)
        keys: list[tuple[Hashable, ...]] = []
        memo: dict[tuple[int, ...], tuple[list[Part], tuple[Hashable, ...]]] = {}
        for u in range(len(members)):
            nodes = members[u]
            kinds = tuple(dict.fromkeys(self.plan.element_of[nodes].tolist()))
            if len(nodes) == 1:
                part = self.unbeaten(kinds[0])
                parts[nodes[0]] = part
                names = self.device_points(kinds[0])
                keys.append(tuple(names[k] for k in part[2]))
                continue
            if kinds not in memo:
                memo[kinds] = self._common(kinds, self.plan.names[nodes[0]])
            found, common = memo[kinds]
            for v in nodes:
                parts[v] = found[kinds.index(int(self.plan.element_of[v]))]
            keys.append(common)
        return parts, tuple(keys)

    def _common(
        self, kinds: tuple[int, ...], node: str
    ) -> tuple[list[Part], tuple[Hashable, ...]]:
        options: list[dict[Hashable, int]] = []
        fixed: list[int] = []
        for e in kinds:
            table: dict[Hashable, int] = {}
            for k, key in enumerate(self.device_points(e)):
                if key in table:
                    table[key] = self._better(e, table[key], k)
                else:
                    table[key] = k
            if set(table) == {None}:
                fixed.append(len(options))  # runs alike at every device point
            options.append(table)
        free = [t for i, t in enumerate(options) if i not in fixed]
        if not free:
            free = options[:1]
        common = tuple(key for key in free[0] if all(key in t for t in free))
        if not common:
            raise InputError(
                f"group of node {node!r}: its elements have no device point in common"
            )
        parts: list[Part] = []
        for i, e in enumerate(kinds):
            picks = [options[i][None if i in fixed else key] for key in common]
            time, cost, point = self.all[e]
            parts.append((time[picks], cost[picks], point[picks]))
        return parts, common

    def _better(self, number: int, a: int, b: int) -> int:
        time, cost, _ = self.all[number]
        if time[a] <= time[b] and cost[a] <= cost[b]:
            return a
        if time[b] <= time[a] and cost[b] <= cost[a]:
            return b
        e = self.plan.elements[number]
        raise InputError(
            f"operating set {e.name!r}: points {a} and {b} share device point "
            f"{self.device_points(number)[a]!r} and neither beats the other; give each "
            "a device point of its own to choose it in groups"
        )


def check_sets(plan: Plan, sets: Mapping[str, OperatingSet]) -> None:
    """Refuse operating sets that are not of the plan's elements."""
    if not isinstance(plan, Plan):
        raise InputError(f"frontier: expected a Plan, got {plan!r:.60}")
    width = {e.name: len(e.devices) for e in plan.elements}
    for name, held in sets.items():
        if not isinstance(held, OperatingSet):
            raise InputError(f"frontier: set of {name!r} is {held!r:.60}")
        if name not in width:
            raise InputError(
                f"frontier: plan {plan.name!r} has no element {name!r}, expected "
                f"one of {', '.join(map(repr, list(width)[:6]))}"
            )
        if len(held.elements[0].devices) != width[name]:
            raise InputError(
                f"frontier: operating set {held.name!r} is on "
                f"{len(held.elements[0].devices)} devices, element {name!r} on "
                f"{width[name]}"
            )
    if plan.account.shared:
        raise CompositionError(
            f"frontier: plan {plan.name!r} has shared factor "
            f"{next(iter(plan.account.shared))!r}; state it as a draw factor"
        )


def units_of(plan: Plan, by: tuple[str, ...]) -> tuple[IntArray, bool]:
    """Group of every node, numbered in the order they appear."""
    if not by:
        return np.arange(len(plan)), False
    labels = dict(plan.labels)
    if "device" in by and "device" not in labels:
        labels["device"] = tuple(plan.elements[e].devices for e in plan.element_of)
    ids = label_ids(by, labels, len(plan), "groups")
    alone = np.flatnonzero(ids < 0)
    ids[alone] = ids.max(initial=-1) + 1 + np.arange(alone.size)
    return ids, True


def check_overlap(plan: Plan, points: Points, unit: IntArray | None) -> None:
    """Refuse choices that could not run side by side on one device."""
    for device in plan.devices:
        mine = [i for i, e in enumerate(plan.elements) if device in e.devices]
        if plan.serial(device):
            continue
        for i in mine:
            e = plan.elements[i]
            for one in points.sets[e.name].elements if e.name in points.sets else (e,):
                host = one.devices[e.devices.index(device)]
                if one.powers[host] != plan.baselines[device]:
                    raise CompositionError(
                        f"device {device!r}: a point of {e.name!r} draws "
                        f"{one.powers[host]:g} W, not the baseline "
                        f"{plan.baselines[device]:g} W, and nodes there can overlap; "
                        "state their order, or one static power"
                    )
        values = {key for i in mine for key in points.device_points(i)} - {None}
        nodes = np.flatnonzero(np.isin(plan.element_of, mine))
        one_group = unit is not None and np.unique(unit[nodes]).size == 1
        if len(values) > 1 and not one_group:
            raise CompositionError(
                f"device {device!r}: nodes there can overlap and could choose "
                f"{len(values)} device points, expected their order, or one group for "
                "the device"
            )
