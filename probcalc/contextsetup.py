"""Plan, mechanisms and contexts put together: what fits, and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probcalc.context import NULL_CONTEXT, Context, StateVariable, Trace
from probcalc.contextual import ContextualSignature, signature_of, trace_of
from probcalc.errors import CompositionError, InputError
from probcalc.mechanisms.contention import Use, uses
from probcalc.mechanisms.registry import Mechanisms
from probcalc.plan import Plan
from probcalc.precedence import check_serial

__all__ = ["Setup", "set_up"]

FloatArray = npt.NDArray[np.float64]
#: Most runs that may overlap on a device whose state is followed.
MOST_OVERLAPPING = 64


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """A plan with what its devices and elements know of context; made by `set_up`.

    Attributes
    ----------
    plan : Plan
    mechanisms : Mechanisms
    devices : mapping of str to Mechanisms
        Those that act on each device; devices without any are left out.
    contexts : mapping of str to Context
        At time 0, of each of these devices.
    signatures, traces : tuple
        Of each element, or None.
    uses : list of Use
        Shared resources with the nodes that contend for them.
    groups : mapping of str to dict of int to int
        Of each device, the group of every node on it; groups wait for each other.
    beyond : ndarray, shape (elements,)
        Static power beyond the baselines, W.
    """

    plan: Plan
    mechanisms: Mechanisms
    devices: Mapping[str, Mechanisms]
    contexts: Mapping[str, Context]
    signatures: tuple[ContextualSignature | None, ...]
    traces: tuple[Trace | None, ...]
    uses: list[Use]
    groups: Mapping[str, dict[int, int]]
    beyond: FloatArray

    def serial(self, device: str) -> bool:
        """Whether the nodes of a device that has a state run one after the other."""
        groups = self.groups[device]
        return len(set(groups.values())) == len(groups)

    @property
    def passes(self) -> int:
        """Corrections of who overlaps whom; 0 where nothing is contended for."""
        return self.mechanisms.runtime.passes if self.uses else 0


def set_up(
    plan: Plan, mechanisms: Mechanisms, contexts: Mapping[str, Context] | None
) -> Setup:
    """Check that plan, mechanisms and contexts fit.

    Raises
    ------
    InputError
        A context of an unknown device, with a variable missing or one that no mechanism
        carries there; a signature over a variable that none carries, or whose null
        context is another one; demand beyond a capacity; shared factors.
    CompositionError
        Too many nodes that can overlap on one device.
    """
    given = dict(contexts or {})
    for device in given:
        if device not in plan.devices:
            raise InputError(
                f"contexts: unknown device {device!r}, expected one of "
                f"{', '.join(map(repr, plan.devices[:8]))}"
            )
    if plan.account.shared:
        raise InputError(
            f"plan {plan.name!r}: shared factor {next(iter(plan.account.shared))!r}, "
            "expected none in a prediction in context; state a draw factor instead"
        )
    acting = {d: mechanisms.on(d) for d in plan.devices}
    for device, context in given.items():
        acting[device].state(context, 1, f"context of device {device!r}")
    acting = {d: m for d, m in acting.items() if m.entry}
    signatures = tuple(signature_of(e) for e in plan.elements)
    traces = tuple(trace_of(e) for e in plan.elements)
    for e, signature in zip(plan.elements, signatures, strict=True):
        if signature is not None:
            _check_signature(e.name, e.devices, signature, acting)
    resources = mechanisms.runtime.resources if mechanisms.runtime else {}
    shared = uses(
        resources,
        [{} if t is None else t.demand for t in traces],
        [e.devices for e in plan.elements],
        [e.name for e in plan.elements],
        plan.element_of,
    )
    beyond = [sum(plan.account.beyond(e).values()) for e in plan.elements]
    for e in plan.elements:
        check_serial(plan, e)
    return Setup(
        plan,
        mechanisms,
        acting,
        {d: given.get(d, NULL_CONTEXT) for d in acting},
        signatures,
        traces,
        shared,
        {d: _groups(plan, d) for d in acting},
        np.array(beyond, dtype=float),
    )


def _check_signature(
    name: str,
    devices: Sequence[str],
    signature: ContextualSignature,
    acting: Mapping[str, Mechanisms],
) -> None:
    carried: dict[str, StateVariable] = {}
    for device in devices:
        if device in acting:
            carried = carried or dict(acting[device].variables)
    for variable, null in zip(signature.variables, signature.points[0], strict=True):
        if variable not in carried:
            raise InputError(
                f"element {name!r}: characterised over {variable!r}, which no "
                f"mechanism carries on {devices[0]!r}"
            )
        if null != carried[variable].null:
            raise InputError(
                f"element {name!r}: its first context has {variable!r} = {null:g}, "
                f"expected the null context, {carried[variable].null:g}"
            )


def _groups(plan: Plan, device: str) -> dict[int, int]:
    """Groups of nodes on a device: each node waits for all of earlier groups."""
    on = np.array([device in e.devices for e in plan.elements])
    mine = plan.order[on[plan.element_of[plan.order]]]
    if plan.serial(device):
        return {int(v): k for k, v in enumerate(mine)}
    bit = {int(v): 1 << k for k, v in enumerate(mine)}
    before: list[list[int]] = [[] for _ in range(len(plan))]
    for a, b in zip(plan.sources.tolist(), plan.targets.tolist(), strict=True):
        before[b].append(a)
    # Ancestors on the device, as sets of bits.
    reach = [0] * len(plan)
    for v in plan.order.tolist():
        for p in before[v]:
            reach[v] |= reach[p] | bit.get(p, 0)
    later = (1 << mine.size) - 1
    cuts = set()
    for k in range(mine.size - 1, 0, -1):
        later &= reach[int(mine[k])]
        if later & ((1 << k) - 1) == (1 << k) - 1:
            cuts.add(k)
    found, group, first = {}, 0, 0
    for k, v in enumerate(mine.tolist()):
        if k in cuts:
            group, first = group + 1, k
        if k - first >= MOST_OVERLAPPING:
            raise CompositionError(
                f"device {device!r}: more than {MOST_OVERLAPPING} nodes from "
                f"{plan.names[int(mine[first])]!r} on can overlap, whose state is "
                "followed; state their order"
            )
        found[v] = group
    return found
