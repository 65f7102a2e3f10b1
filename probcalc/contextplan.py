"""Plans gone through node by node with the state of every device, any mechanism.

All samples at a time; nodes in topological order. A run meets the state that the runs
before it in this order leave, and its runtime context follows from where the last pass
placed everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.context import Trace
from probcalc.contextsetup import Setup
from probcalc.errors import InputError
from probcalc.mechanisms.contention import excess
from probcalc.mechanisms.registry import Effect, Load, State
from probcalc.mechanisms.track import Track
from probcalc.plan import Plan

__all__ = ["Pass", "in_context", "plain"]

FloatArray = npt.NDArray[np.float64]


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
        Largest change of a duration by the last pass, s.
    """
    before = slow = np.zeros((2, *time.shape))
    if setup.passes:
        # Windows without any context first.
        _, start, finish = plain(setup.plan, time)
        slow = _contended(setup, start, finish)
    found = _passed(setup, time, energy, slow)
    for _ in range(setup.passes - 1):
        before, slow = slow, _contended(setup, found.start, found.finish)
        found = _passed(setup, time, energy, slow)
    return found, np.abs((slow[0] - before[0]) * found.own).max(axis=0)


def _contended(setup: Setup, start: FloatArray, finish: FloatArray) -> FloatArray:
    """Relative growth of times and energies, shape (2, nodes, samples)."""
    slow = np.zeros((2, *start.shape))
    for resource, nodes, demand in setup.uses:
        over = excess(start[nodes], finish[nodes], demand)
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


def plain(plan: Plan, time: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Makespans without any context, shape (samples,), with starts and finishes."""
    start, finish = np.empty_like(time), np.empty_like(time)
    before = _before(plan)
    for v in plan.order.tolist():
        start[v] = plan.releases[v]
        for a, lag in before[v]:
            start[v] = np.maximum(start[v], finish[a] + lag)
        finish[v] = start[v] + time[v]
    return finish.max(axis=0), start, finish


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
    columns: list[FloatArray] = [np.zeros(time.shape) for _ in range(8)]
    start, finish, own, full, alone, dynamic, power, beside = columns
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
        run = _Run(time[v], energy[v], np.zeros(samples), Effect())
        if states:
            entry[v] = next(iter(states.values()))
            run = _in_states(setup, i, states, run)
        own[v], alone[v], power[v], effects[v] = run
        full[v] = own[v] * (1.0 + slow[0, v])
        dynamic[v] = alone[v] * (1.0 + slow[1, v])
        finish[v] = start[v] + full[v]
        drawn = dynamic[v] + (setup.beyond[i] + power[v]) * full[v]
        for d in states:
            part = (
                e.powers[d] / e.static_power if e.static_power else 1 / len(e.devices)
            )
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


class _Run(NamedTuple):
    """T, d, the change of s, and what mechanisms had to do with it."""

    time: FloatArray
    energy: FloatArray
    power: FloatArray
    effect: Effect


def _in_states(setup: Setup, i: int, states: Mapping[str, State], null: _Run) -> _Run:
    """Return a run of an element as the states of its devices make it."""
    name, trace = setup.plan.elements[i].name, setup.traces[i]
    t, x = null.time, null.energy
    load = Load(t, x + setup.beyond[i] * t, _amounts(trace, t.size), trace)
    effect = _effect(setup, i, states, load)
    power = null.power
    signature = setup.signatures[i]
    if signature is not None:
        t, x, power = signature.moved(next(iter(states.values())), t, x)
    t = t + null.time * effect.time_scale + effect.time
    x = x + null.energy * effect.energy_scale + effect.energy
    _check(t, f"{name!r}, time", "s")
    _check(x, f"{name!r}, dynamic energy", "J")
    return _Run(t, x, power, effect)


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
