"""Plans gone through node by node with the state of every device, any mechanism.

All samples at a time; nodes in topological order. A run meets the state that the runs
before it in this order leave, and its runtime context follows from where the last pass
placed everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.context import NULL_CONTEXT, Context, StateVariable, Trace
from probcalc.contextual import ContextualSignature, signature_of, trace_of
from probcalc.errors import CompositionError, InputError
from probcalc.mechanisms.contention import Use, excess, uses
from probcalc.mechanisms.registry import Effect, Load, Mechanisms, State
from probcalc.mechanisms.track import Track
from probcalc.plan import Plan

__all__ = ["Pass", "Setup", "in_context", "plain", "set_up"]

IntArray = npt.NDArray[np.int64]
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
    from probcalc.precedence import check_serial

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


class Pass(NamedTuple):
    """What one pass over a plan found; arrays of shape (nodes, samples) unless stated.

    Attributes
    ----------
    start, finish : ndarray
        s.
    own, full : ndarray
        T in the entry context alone, and in the runtime context too, s.
    alone, dynamic : ndarray
        d in the entry context alone, and in the runtime context too, J.
    power, beside : ndarray
        Static power beyond that of the null context while the node runs, by the state
        it entered with, and by what ran beside it, W.
    busy, idle : ndarray, shape (samples,)
        Static energy beyond the baselines while devices are busy, and idle, J.
    end : ndarray, shape (samples,)
        Makespan, s.
    met : mapping of str to (float, float)
        Range of each variable that runs entered with.
    entry : list of mapping of str to ndarray
        State that each node met on the first of its devices that has one.
    effects : list of Effect
        Of mechanisms on each node, entry contexts alone.
    leaks : bool
        Whether states make devices draw static energy beyond the baselines.
    """

    start: FloatArray
    finish: FloatArray
    own: FloatArray
    full: FloatArray
    alone: FloatArray
    dynamic: FloatArray
    power: FloatArray
    beside: FloatArray
    busy: FloatArray
    idle: FloatArray
    end: FloatArray
    met: dict[str, tuple[float, float]]
    entry: list[State]
    effects: list[Effect]
    leaks: bool


def in_context(
    setup: Setup, time: FloatArray, energy: FloatArray
) -> tuple[Pass, FloatArray]:
    """Go through a plan until all its passes are done.

    Parameters
    ----------
    time, energy : ndarray, shape (nodes, samples)
        T in s and d in J in the null context, alone.

    Returns
    -------
    Pass
    change : ndarray, shape (samples,)
        Largest change of a duration that one more pass would make, s.
    """
    slow = np.zeros((2, *time.shape))
    for _ in range(setup.passes):
        found = _passed(setup, time, energy, slow)
        slow = _contended(setup, found, time.shape)
    found = _passed(setup, time, energy, slow)
    change = np.zeros(time.shape[1])
    if setup.passes:
        again = _contended(setup, found, time.shape)
        change = np.abs((again[0] - slow[0]) * found.own).max(axis=0)
    return found, change


def _contended(setup: Setup, found: Pass, shape: tuple[int, ...]) -> FloatArray:
    """Relative growth of times and energies by contention, shape (2, nodes, samples)."""
    slow = np.zeros((2, *shape))
    for resource, nodes, demand in setup.uses:
        over = excess(found.start[nodes], found.finish[nodes], demand)
        slow[0, nodes] += resource.slowdown * over
        slow[1, nodes] += resource.energy * over
    return slow


def _before(plan: Plan) -> list[list[tuple[int, float]]]:
    before: list[list[tuple[int, float]]] = [[] for _ in range(len(plan))]
    for a, b, lag in zip(
        plan.sources.tolist(), plan.targets.tolist(), plan.lags.tolist(), strict=True
    ):
        before[b].append((a, lag))
    return before


def plain(plan: Plan, time: FloatArray) -> FloatArray:
    """Makespans without any context, shape (samples,)."""
    finish = np.empty_like(time)
    before = _before(plan)
    for v in plan.order.tolist():
        start = np.full(time.shape[1], plan.releases[v])
        for a, lag in before[v]:
            start = np.maximum(start, finish[a] + lag)
        finish[v] = start + time[v]
    return finish.max(axis=0)


def _passed(
    setup: Setup, time: FloatArray, energy: FloatArray, slow: FloatArray
) -> Pass:
    plan = setup.plan
    samples = time.shape[1]
    tracks = {
        d: Track(m, m.state(setup.contexts[d], samples, f"device {d!r}"), samples)
        for d, m in setup.devices.items()
    }
    open_group = dict.fromkeys(tracks, -1)
    sizes = {d: Counter(setup.groups[d].values()) for d in tracks}
    start, finish, own, full, alone, dynamic, power, beside = np.zeros(
        (8, *time.shape)
    )
    met: dict[str, tuple[float, float]] = {}
    entry: list[State] = [{}] * len(plan)
    effects = [Effect()] * len(plan)
    before = _before(plan)
    for v in plan.order.tolist():
        i = int(plan.element_of[v])
        e = plan.elements[i]
        start[v] = plan.releases[v]
        for a, lag in before[v]:
            start[v] = np.maximum(start[v], finish[a] + lag)
        states = {}
        for d in e.devices:
            if d in tracks:
                if setup.groups[d][v] != open_group[d]:
                    tracks[d].close()
                    open_group[d] = setup.groups[d][v]
                single = sizes[d][open_group[d]] == 1
                states[d] = tracks[d].enter(start[v], alone=single)
                _note(met, states[d])
        t, x, extra = time[v], energy[v], np.zeros(samples)
        load = Load(t, x + setup.beyond[i] * t, _amounts(setup.traces[i], samples))
        load = load._replace(trace=setup.traces[i])
        if states:
            entry[v] = next(iter(states.values()))
            effects[v] = _effect(setup, i, states, load)
            moved = setup.signatures[i]
            if moved is not None:
                t, x, extra = moved.moved(entry[v], t, x)
            a, b, c, y = effects[v]
            t, x = t + time[v] * a + b, x + energy[v] * c + y
            _check(t, f"{e.name!r}, time", "s")
            _check(x, f"{e.name!r}, dynamic energy", "J")
        own[v] = t
        full[v] = t * (1.0 + slow[0, v])
        alone[v] = x
        dynamic[v] = x * (1.0 + slow[1, v])
        power[v] = extra
        finish[v] = start[v] + full[v]
        drawn = dynamic[v] + (setup.beyond[i] + extra) * full[v]
        for d in states:
            part = e.powers[d] / e.static_power if e.static_power else 1 / len(e.devices)
            tracks[d].leave(v, start[v], finish[v], part * drawn, setup.traces[i])
    end = finish.max(axis=0)
    busy, idle = (power * full).sum(axis=0), np.zeros(samples)
    long = np.where(full > 0.0, full, 1.0)
    for track in tracks.values():
        track.rest(end)
        busy, idle = busy + track.busy, idle + track.idle
        for v, joules in track.charged.items():
            for into, part in zip((power, beside), joules, strict=True):
                into[v] += np.where(full[v] > 0.0, part / long[v], 0.0)
    leaks = any(t.idle.any() or t.busy.any() for t in tracks.values())
    return Pass(
        start, finish, own, full, alone, dynamic, power, beside, busy, idle, end, met,
        entry, effects, leaks,
    )  # fmt: skip


def _amounts(trace: Trace | None, samples: int) -> dict[str, FloatArray]:
    if trace is None:
        return {}
    return {name: np.full(samples, x) for name, x in trace.amounts.items()}


def _note(met: dict[str, tuple[float, float]], state: State) -> None:
    for name, values in state.items():
        low, high = met.get(name, (np.inf, -np.inf))
        met[name] = (min(low, float(values.min())), max(high, float(values.max())))


def _effect(setup: Setup, i: int, states: Mapping[str, State], load: Load) -> Effect:
    """Effect of all mechanisms that an element takes part in and is not measured over.

    On several devices it waits for the slowest; energies are shared out evenly.
    """
    signature = setup.signatures[i]
    known = set(signature.variables) if signature is not None else set()
    amounts = {} if load.trace is None else load.trace.amounts
    found: list[Effect] = []
    for device, state in states.items():
        total = Effect()
        for m in setup.devices[device].entry:
            if known & {v.name for v in m.variables}:
                continue  # its signature says what these do to it
            if all(name in amounts for name in m.needs):
                total = total.plus(m.effect(state, load))
        found.append(total)
    if len(found) == 1:
        return found[0]
    grown: Any = np.max(
        [np.broadcast_to(load.duration * e.time_scale + e.time, load.duration.shape)
         for e in found], axis=0,
    )  # fmt: skip
    share = 1.0 / len(found)
    return Effect(
        0.0,
        grown,
        share * sum(e.energy_scale for e in found),
        share * sum(e.energy for e in found),
    )


def _check(values: FloatArray, where: str, unit: str) -> None:
    if not (values >= 0.0).all():
        wrong = float(values[int(np.argmax(~(values >= 0.0)))])
        raise InputError(
            f"element {where}: context makes it {wrong:.6g} {unit}, expected >= 0; the "
            "effects of its mechanisms are larger than what they act on"
        )
