"""Plans in context by the level scan: thermal states and shared resources alone.

The draws of every node are those of a simulation without context, bit by bit, for the
scan and for the general engine alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.chunks import program_of
from probcalc.contextsetup import Setup
from probcalc.distribution import Constant
from probcalc.errors import ToleranceError
from probcalc.factors import factors_of, rows_of
from probcalc.lowering import Lowered, lowered
from probcalc.mechanisms.registry import share as of
from probcalc.mechanisms.thermal import RISE, Thermal
from probcalc.plan import Plan

__all__ = ["Block", "Scan", "drawn_blocks", "scan_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Samples worked out at a time, fewer where so many values would not be held.
BLOCK = 1024
MOST_HELD = 1 << 24


class Block(NamedTuple):
    """What became of some samples; arrays of shape (samples,) unless stated.

    Attributes
    ----------
    time, plain_time : ndarray
        Makespan in context and without, s.
    static, dynamic, plain_dynamic : ndarray
        J; static beyond the baselines of the makespan.
    plain_static : ndarray
        The same without context.
    idle : ndarray
        Part of `static` that idle devices draw, J.
    before, beside : ndarray, shape (nodes, 3)
        Largest changes of T, d and s of each node by its entry context, and by its
        runtime context: s, J, W.
    change : float
        Largest change of a duration in the last pass, s.
    met : dict of str to (float, float)
        Range of each variable that runs entered with.
    """

    time: FloatArray
    plain_time: FloatArray
    static: FloatArray
    dynamic: FloatArray
    plain_static: FloatArray
    plain_dynamic: FloatArray
    idle: FloatArray
    before: FloatArray
    beside: FloatArray
    change: float
    met: dict[str, tuple[float, float]]


def constants_of(plan: Plan) -> FloatArray:
    """Energies of nodes that a simulation does not draw, J, shape (nodes,)."""
    scaled = bool(factors_of(plan).energy.any())
    found = []
    for e in plan.elements:
        law = e.dynamic_energy
        least, most = (float(end) for end in law.support())
        known = least == most and not (scaled and most > 0.0)
        if e.runs is None:
            known = known and isinstance(law, Constant)
        found.append(most if known else 0.0)
    return np.array(found)[plan.element_of]


def drawn_blocks(low: Lowered, seed: int, samples: int) -> Iterator[tuple[int, Any]]:
    """Draw blocks of samples, each with the number of those that count."""
    import jax
    import jax.numpy as jnp

    from probcalc.kernels.contextscan import drawn

    shape, program = program_of(low, seed)
    # A sample is a function of seed and number, whatever the block it is drawn in.
    size = BLOCK
    while size > 64 and (size * low.vertex.size > MOST_HELD or size // 2 >= samples):
        size //= 2
    for first in range(0, samples, size):
        numbers = np.arange(first, first + size, dtype=np.int64)
        with jax.enable_x64(True):
            found = drawn(shape)(
                program,
                jnp.asarray(numbers.astype(np.uint32)),
                jnp.asarray(rows_of(low.factors, seed, numbers)),
            )
        yield min(size, samples - first), found


def node_values(
    low: Lowered, constants: FloatArray, drawn: Any, count: int
) -> tuple[FloatArray, FloatArray]:
    """T in s and d in J of every node, shape (nodes, count)."""
    lane = _lane_of(low)
    ticks, quanta = (
        np.asarray(x).reshape(-1, x.shape[-1])[lane, :count].astype(float)
        for x in (drawn.ticks, drawn.quanta)
    )
    return ticks * low.tick, quanta * low.amounts.quantum + constants[:, None]


def _lane_of(low: Lowered) -> IntArray:
    """Where the nodes are among all steps and lanes."""
    vertex = low.vertex.ravel()
    lane = np.empty(low.vertices, dtype=np.int64)
    lane[vertex[vertex >= 0]] = np.flatnonzero(vertex >= 0)
    return lane[: low.nodes]


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A plan in context, ready for the level scan; made by `scan_of`."""

    setup: Setup
    low: Lowered
    rows: Any
    laid: Any
    users: tuple[tuple[IntArray, FloatArray, float], ...]
    constants: FloatArray
    passes: int
    leakage: FloatArray

    def block(self, drawn: Any, count: int) -> Block:
        """Work out a block of samples.

        Raises
        ------
        ToleranceError
            Times that leave 32 bits.
        """
        import jax
        import jax.numpy as jnp

        from probcalc.kernels.contextscan import passed
        from probcalc.kernels.overlaps import excess

        low, plan = self.low, self.setup.plan
        with jax.enable_x64(True):
            ticks, quanta = drawn.ticks, drawn.quanta
            size = ticks.shape[-1]
            start = np.asarray(drawn.start).reshape(-1, size)
            finish = (
                start + np.asarray(ticks).reshape(-1, size) if self.passes else start
            )
            end, change = drawn.end, 0.0
            found: Any = None
            before: Any = None
            slow: Any = None
            for number in range(max(self.passes, 1)):
                final = number >= self.passes - 1
                if self.passes:
                    before, slow = slow, np.zeros(start.shape, dtype=np.float32)
                    ends = np.asarray(end)
                    for rows, demand, slope in self.users:
                        excess(start, finish, rows, demand, ends, slope, slow)
                run = passed(
                    low.slots,
                    record=not final,
                    contended=slow is not None,
                    leaks=bool(self.leakage.any()),
                    rates=bool(self.setup.beyond.any()),
                )
                # Without contention its place is taken by what costs nothing.
                extra = ticks[:, :1] if slow is None else slow.reshape(ticks.shape)
                found = run(self.rows, self.laid, ticks, quanta, jnp.asarray(extra))
                if not final:
                    end = found.end
                    start, finish = (
                        np.asarray(x).reshape(-1, size)
                        for x in (found.start, found.finish)
                    )
                elif slow is not None:
                    change = self._changed(ticks, slow, before, count)
            if bool(found.overflow):
                raise ToleranceError(
                    f"plan {plan.name!r}: in context its times leave 32 bits of ticks "
                    f"of {low.tick:.3g} s; the mechanisms stretch them too far"
                )
            energy = quanta.sum(axis=(0, 1), dtype=jnp.int64)
            beyond = jnp.zeros(size)
            if self.setup.beyond.any():
                rate = self.laid.rate.astype(jnp.float64) * low.tick
                beyond = (rate[..., None] * ticks).sum(axis=(0, 1))
        sums = np.asarray(energy)[:count], np.asarray(beyond)[:count]
        grown = self._grown(ticks, found.met, slow, count)
        return self._block(found, drawn.end, *sums, grown, change, count)

    def _changed(self, ticks: Any, after: Any, before: Any | None, count: int) -> float:
        """Largest change of a drawn duration from one pass to the next, s."""
        from probcalc.kernels.overlaps import largest

        times = np.asarray(ticks).reshape(-1, ticks.shape[-1])
        first = np.empty((0, 1), np.float32) if before is None else before
        moved = [largest(after, first, times, rows, count) for rows, _, _ in self.users]
        return max(moved) * self.low.tick

    def _grown(self, ticks: Any, met: Any, slow: Any | None, count: int) -> FloatArray:
        """What `probcalc.kernels.overlaps.changes` finds, of every node."""
        from probcalc.kernels.overlaps import changes

        size = ticks.shape[-1]
        none = np.empty((0, size), dtype=np.float32)
        row = np.asarray(self.laid.row).ravel()
        slope = np.asarray(self.rows.slope)[row] * np.asarray(self.laid.share).ravel()
        found = changes(
            np.asarray(ticks).reshape(-1, size),
            np.asarray(met).reshape(-1, size),
            none if slow is None else slow,
            slope,
            np.asarray(self.rows.threshold)[row],
            count,
        )
        return found[:, _lane_of(self.low)]

    def _block(
        self,
        found: Any,
        plain: Any,
        quanta: Any,
        plain_static: Any,
        grown: FloatArray,
        change: float,
        count: int,
    ) -> Block:
        low, plan = self.low, self.setup.plan
        dynamic = quanta * low.amounts.quantum + float(self.constants.sum())
        end, first, busy, idle, timed = (
            np.asarray(x)[:count].astype(float)
            for x in (found.end, plain, found.busy, found.idle, found.timed)
        )
        before, beside, high, least = grown
        none = np.zeros_like(before)
        followed = np.array([bool(set(e.devices) & set(self.setup.devices))
                             for e in plan.elements])[plan.element_of]  # fmt: skip
        charge = self.leakage * np.maximum(np.abs(high), np.abs(least))
        met = {}
        if followed.any():
            met[RISE] = float(least[followed].min()), float(high[followed].max())
        return Block(
            end * low.tick, first * low.tick, plain_static + busy + idle + timed,
            dynamic, plain_static, dynamic, idle,
            np.stack([before * low.tick, none, charge], axis=1),
            np.stack([beside * low.tick, none, none], axis=1),
            change, met,
        )  # fmt: skip


def scan_of(setup: Setup) -> Scan | None:
    """Lay a plan in context out for the scan; None where it takes the general engine.

    The scan follows thermal states of devices on which nodes run one after the other,
    each node on one of them, and resources that cost time alone.
    """
    plan = setup.plan
    models: dict[str, Thermal] = {}
    for device, mechanisms in setup.devices.items():
        if len(mechanisms.entry) != 1:
            return None
        model = mechanisms.entry[0].parameters
        if not isinstance(model, Thermal) or not setup.serial(device):
            return None
        models[device] = model
    stages = {m.resistance.size for m in models.values()}
    several = any(sum(d in models for d in e.devices) > 1 for e in plan.elements)
    if len(stages) > 1 or several or any(setup.signatures):
        return None
    if any(use.resource.energy for use in setup.uses):
        return None
    return _laid(setup, models, lowered(plan))


def _laid(setup: Setup, models: dict[str, Thermal], low: Lowered) -> Scan:
    import jax
    import jax.numpy as jnp

    from probcalc.kernels.contextscan import Laid, Rows
    from probcalc.kernels.levelscan import CHUNK

    plan = setup.plan
    names = list(models)
    stages = next((m.resistance.size for m in models.values()), 1)
    fields = {
        "rate": np.ones((len(names) + 1, stages)),
        "gain": np.zeros((len(names) + 1, stages)),
        "start": np.zeros((len(names) + 1, stages)),
        "leak": np.zeros(len(names) + 1),
        "threshold": np.zeros(len(names) + 1),
        "slope": np.zeros(len(names) + 1),
    }
    for i, (device, model) in enumerate(models.items()):
        fields["rate"][i] = 1.0 / model.time_constant
        fields["gain"][i] = model.resistance
        fields["leak"][i] = model.leakage
        fields["threshold"][i] = model.threshold
        fields["slope"][i] = model.throttling
        state = setup.devices[device].state(setup.contexts[device], 1, device)
        fields["start"][i] = [float(state[name][0]) for name in model.names]
    row, share = np.full(len(plan.elements), len(names)), np.ones(len(plan.elements))
    for i, e in enumerate(plan.elements):
        for d in e.devices:
            if d in models:
                row[i] = names.index(d)
                share[i] = of(setup.traces[i], setup.devices[d].entry[0].name)
                if e.dynamic_energy.support()[1] == 0.0 and not setup.beyond[i]:
                    share[i] = 0.0  # it waits
    constants = constants_of(plan)
    steps, lanes = low.vertex.shape
    size = max(1, min(CHUNK // lanes, steps))
    padded = -(-steps // size) * size
    vertex = np.full((padded, lanes), -1, dtype=np.int64)
    vertex[:steps] = low.vertex
    node = (vertex >= 0) & (vertex < len(plan))
    at = np.where(node, vertex, 0)
    element = plan.element_of[at]

    def spread(values: npt.NDArray[Any], otherwise: float, kind: Any) -> Any:
        return jnp.asarray(np.where(node, values, otherwise).astype(kind))

    def stacked(name: str, idle: int) -> Any:
        array = low.arrays[name]
        full = np.full((padded, *array.shape[1:]), idle, dtype=array.dtype)
        full[:steps] = array
        return jnp.asarray(full)

    with jax.enable_x64(True):
        laid = Laid(
            reads=stacked("reads", low.slots),
            writes=stacked("writes", low.slots + 1),
            row=spread(row[element], len(names), np.int32),
            share=spread(share[element], 0.0, np.float32),
            release=spread(constants[at], 0.0, np.float32),
            rate=spread(setup.beyond[element], 0.0, np.float32),
            last=jnp.int32(low.last),
            tick=jnp.float32(low.tick),
            quantum=jnp.float32(low.amounts.quantum),
        )
        rows = Rows(**{k: jnp.asarray(v.astype(np.float32)) for k, v in fields.items()})
        lane = _lane_of(low)
        users = tuple(
            (lane[use.nodes], use.demand, use.resource.slowdown) for use in setup.uses
        )
    leakage = fields["leak"][row][plan.element_of]
    return Scan(setup, low, rows, laid, users, constants, setup.passes, leakage)


def sure(plan: Plan) -> bool:
    """Whether nothing in a plan is random."""
    laws = [law for e in plan.elements for law in (e.time, e.dynamic_energy)]
    return not plan.draws.factors and all(isinstance(law, Constant) for law in laws)
