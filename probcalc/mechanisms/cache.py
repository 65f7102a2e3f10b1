"""Cache and memory state: displacement by intervening traffic (Table 1, App. A).

Resident bytes of named data sets, and of all else, within one capacity. A run brings in
what it uses and is not there, and what streams through; where that does not fit, what
was there before is displaced in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probcalc.context import StateVariable, number
from probcalc.errors import InputError
from probcalc.mechanisms.registry import Effect, Load, Mechanism, State

__all__ = ["cache"]

REST = "resident, all else"


def resident(name: str) -> str:
    """Name of the variable of a data set."""
    return f"resident, {name}"


def cache(
    *,
    capacity: float,
    sets: Sequence[str],
    time_per_byte: float = 0.0,
    energy_per_byte: float = 0.0,
    name: str = "cache",
) -> Mechanism:
    """Return the cache mechanism of a kind of device; the null context is cold.

    Parameters
    ----------
    capacity : float
        B.
    sets : sequence of str
        Data sets that elements reuse. An element states in its trace's amounts, in B,
        ``"uses NAME"`` for each that it uses, and ``"traffic"`` for what only passes
        through; one without traffic takes no part.
    time_per_byte, energy_per_byte : float
        What each byte that is there already saves of the cold run, s/B and J/B.

    Raises
    ------
    InputError
        A capacity that is not positive, other values that are negative, no data set.
    """
    where = f"mechanism {name!r}"
    size = number(capacity, f"{where}, capacity", "B", open=True)
    time = number(time_per_byte, f"{where}, time per byte", "s/B")
    joules = number(energy_per_byte, f"{where}, energy per byte", "J/B")
    held = tuple(sets)
    if not held or len(set(held)) < len(held):
        raise InputError(
            f"{where}: data sets are {held!r:.60}, expected distinct names"
        )

    def run(state: State, load: Load) -> State:
        amounts = load.amounts
        before = {v: state[v] for v in (*map(resident, held), REST)}
        brought = {REST: np.minimum(amounts.get("traffic", 0.0), size)}
        used: dict[str, np.ndarray] = {}
        for n in held:
            v = resident(n)
            wanted = np.minimum(amounts.get(f"uses {n}", 0.0), size)
            brought[v] = np.maximum(wanted - before[v], 0.0)
            used[v] = np.minimum(before[v], wanted)
        total = np.sum(list(before.values()), axis=0)
        inserted = np.sum(
            [np.broadcast_to(b, total.shape) for b in brought.values()], axis=0
        )
        fits = np.minimum(1.0, size / np.maximum(inserted, size))
        over = np.maximum(total + fits * inserted - size, 0.0)
        # What this run uses stays as long as there is something else to displace.
        idle = {v: before[v] - used.get(v, 0.0) for v in before}
        unused = np.sum(list(idle.values()), axis=0)
        kept = 1.0 - np.minimum(over, unused) / np.where(unused > 0.0, unused, 1.0)
        rest = np.maximum(over - unused, 0.0)
        inuse = np.maximum(total - unused, 0.0)
        stays = 1.0 - np.minimum(rest, inuse) / np.where(inuse > 0.0, inuse, 1.0)
        return {
            v: idle[v] * kept + used.get(v, 0.0) * stays + fits * brought.get(v, 0.0)
            for v in before
        }

    def effect(state: State, load: Load) -> Effect:
        trace = load.trace
        if trace is None:
            return Effect()
        hits = np.zeros_like(load.duration)
        for n in held:
            hits = hits + np.minimum(
                state[resident(n)], trace.amounts.get(f"uses {n}", 0.0)
            )
        return Effect(time=-time * hits, energy=-joules * hits)

    return Mechanism(
        name=name,
        cause="earlier executions warm or pollute the cache",
        timescale="intervening traffic of the order of the capacity",
        protocol="energy with a cold and with a warm cache, all else fixed",
        variables=tuple(
            StateVariable(v, "B", lower=0.0, upper=size)
            for v in (*map(resident, held), REST)
        ),
        run=run,
        effect=effect,
        follows="trace",
        needs=("traffic",),
        parameters={"capacity": size, "sets": held},
    )
