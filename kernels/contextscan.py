"""Longest paths whose durations depend on a state: the level scan with memory.

Every row (a place that takes one vertex at a time) carries a state of several stages,
each of which relaxes exponentially between and during vertices and rises with what the
vertex releases. A vertex that meets a high state takes longer. Who overlaps whom on a
shared resource is found by fixed-point passes: a pass records when vertices run, the
next one stretches them by the excess they met. Draws are those of
`probcalc.kernels.levelscan`, bit by bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probcalc.kernels.levelscan import (
    Program,
    Shape,
    chunked,
    finished,
    lane_arrays,
    row_values,
    take,
)

__all__ = ["Drawn", "Found", "Laid", "Rows", "drawn", "passed"]


class Rows(NamedTuple):
    """How each row responds; the last row stands for no row and responds to nothing.

    Attributes
    ----------
    rate, gain : float32 arrays, shape (rows, stages)
        1 / tau, and rise at rest per unit of release rate.
    leak, threshold, slope : float32 arrays, shape (rows,)
        Charge per unit of state and second; state from which durations grow; by how
        much per unit.
    start : float32 array, shape (rows, stages)
        State at time 0.
    """

    rate: Any
    gain: Any
    leak: Any
    threshold: Any
    slope: Any
    start: Any


class Laid(NamedTuple):
    """Vertices by step and lane.

    Attributes
    ----------
    reads, writes : int32 arrays, shape (steps, lanes, 2), (steps, lanes)
    row : int32 array, shape (steps, lanes)
    share : float32 array, shape (steps, lanes)
        Of the slope that the vertex takes.
    release, rate : float32 arrays, shape (steps, lanes)
        What every run releases besides what is drawn, and what it releases per second.
    last : int32
        Slot of the end.
    tick, quantum : float32
        Seconds of one tick, and what one of those drawn releases.
    """

    reads: Any
    writes: Any
    row: Any
    share: Any
    release: Any
    rate: Any
    last: Any
    tick: Any
    quantum: Any


class Found(NamedTuple):
    """What a pass found.

    Attributes
    ----------
    end : int32 array, shape (samples,)
        In ticks.
    busy, idle : float64 arrays, shape (samples,)
        Charges of states that were met while vertices run, and in between.
    timed : float64 array, shape (samples,)
        Sum of `rate` times durations beyond the drawn ones.
    met : float32 array, shape (steps, lanes, samples)
        State that each vertex met.
    overflow : bool array, shape ()
        Whether times left 32 bits.
    start, finish : int32 arrays, shape (steps, lanes, samples), or None
    """

    end: Any
    busy: Any
    idle: Any
    timed: Any
    met: Any
    overflow: Any
    start: Any
    finish: Any


class Drawn(NamedTuple):
    """Samples drawn, and when their vertices run if nothing responds.

    Attributes
    ----------
    end : int32 array, shape (samples,)
    ticks, quanta, start : int32 arrays, shape (steps, lanes, samples)
        The numbers that `probcalc.kernels.levelscan.forward` draws for these samples.
    """

    end: Any
    ticks: Any
    quanta: Any
    start: Any


@functools.cache
def drawn(shape: Shape) -> Callable[..., Drawn]:
    """Compiled function of (program, samples, factors): draws and their schedule."""

    def block(program: Program, samples: Any, factors: Any) -> Drawn:
        def step(values: Any, lane: Any) -> Any:
            start, ticks, rows = finished(shape, program, factors, values, lane)
            quanta: Any = jnp.zeros_like(ticks)
            if shape.paired:
                first = take(program.pair_first, lane.kind)[:, None]
                quanta = take(program.pairs, rows + first)
            if shape.apart:
                shift = take(program.own_shift, lane.kind)
                first = take(program.own_first, lane.kind)
                own = row_values(shape, program, lane.words[1], shift, first)[1]
                quanta = quanta + own
            if shape.scaled:
                scale = take(factors, lane.scale_energy)
                quanta = jnp.rint(quanta * scale).astype(jnp.int32)
            values = values.at[lane.writes].set(start + ticks, mode="promise_in_bounds")
            return values, (ticks, quanta, start)

        def flat(array: Any) -> Any:
            return array.reshape(-1, *array.shape[2:])

        def chunk(one: Any) -> Any:
            return chunked(shape, program, samples, one)

        lanes = jax.tree.map(flat, lax.map(chunk, lane_arrays(program)))
        values = jnp.zeros((shape.slots + 2, samples.shape[0]), jnp.int32)
        values, found = lax.scan(step, values, lanes)
        return Drawn(values[program.last], *found)

    return jax.jit(block)


class _Step(NamedTuple):
    reads: Any
    writes: Any
    row: Any
    share: Any
    release: Any
    rate: Any
    place: Any
    ticks: Any
    drawn: Any
    slow: Any


def _part(z: Any, decay: Any) -> Any:
    """Work out (1 - e^-z) / z, with e^-z at hand; z >= 0."""
    # Its series where the difference would cancel; what is left out is below 1e-7.
    series = 1.0 - z * (0.5 - z * (1.0 / 6.0 - z * (1.0 / 24.0)))
    return jnp.where(z < 0.06, series, (1.0 - decay) / z)


@functools.cache
def passed(
    slots: int, *, record: bool, contended: bool, leaks: bool, rates: bool
) -> Callable[..., Found]:
    """Compiled function of (rows, laid, ticks, quanta, slow): one pass.

    Parameters
    ----------
    slots : int
        Values kept alive, without the zero and the idle row.
    record : bool
        Whether starts and finishes are returned, and nothing but these and the end.
    contended : bool
        Whether durations are stretched by ``1 + slow``.
    leaks, rates : bool
        Whether any state charges, and any vertex releases or charges by time.

    Notes
    -----
    ``ticks`` and ``quanta`` are int32 arrays, ``slow`` is a float32 array, of shape
    (steps, lanes, samples). With duration t, release E and state x before it,
    x e^(-t/tau) + G E g(t), g = (1 - e^(-t/tau)) / t, is the state after a vertex;
    g is 1 / tau for t = 0.
    """

    # XLA works out anew, for each of its readers, what is not stored: exponentials and
    # finishes are written to a place and read from there.
    def run(rows: Rows, laid: Laid, ticks: Any, quanta: Any, slow: Any) -> Found:
        count, tick = ticks.shape[2], laid.tick

        def step(carry: Any, one: _Step) -> Any:
            values, state, held, sums, overflow = carry
            start = jnp.maximum(
                take(values, one.reads[:, 0]), take(values, one.reads[:, 1])
            )
            met = take(state, one.row)
            gap = start - lax.bitcast_convert_type(met[:, -1], jnp.int32)
            gap = gap.astype(jnp.float32) * tick
            rate = take(rows.rate, one.row)[:, :, None]
            gain = take(rows.gain, one.row)[:, :, None]
            tau = 1.0 / rate
            leak = take(rows.leak, one.row)[:, None]
            falls, decays = held
            falls = falls.at[one.place].set(
                jnp.exp(-gap[:, None] * rate), mode="promise_in_bounds"
            )
            x = met[:, :-1] * take(falls, one.place)
            total = x.sum(axis=1)
            slope = (take(rows.slope, one.row) * one.share)[:, None]
            limit = take(rows.threshold, one.row)[:, None]
            # Rounded apart, so that no slope and no excess leave a duration as it is.
            drawn = one.ticks.astype(jnp.float32)
            before = jnp.rint(drawn * (slope * jnp.maximum(total - limit, 0.0)))
            before = before.astype(jnp.int32)
            beside = jnp.zeros_like(before)
            if contended:
                own = (one.ticks + before).astype(jnp.float32)
                beside = jnp.rint(own * one.slow).astype(jnp.int32)
            full = one.ticks + before + beside
            values = values.at[one.writes].set(start + full, mode="promise_in_bounds")
            finish = take(values, one.writes)
            full = finish - start
            t = full.astype(jnp.float32) * tick
            energy = one.drawn.astype(jnp.float32) * laid.quantum
            energy = energy + one.release[:, None]
            if rates:
                energy = energy + one.rate[:, None] * t
            z = t[:, None] * rate
            decays = decays.at[one.place].set(jnp.exp(-z), mode="promise_in_bounds")
            decay = take(decays, one.place)
            part = _part(z, decay)
            kept = x * decay
            after = kept + (gain * rate) * energy[:, None] * part
            mark = lax.bitcast_convert_type(finish, jnp.float32)[:, None]
            state = state.at[one.row].set(
                jnp.concatenate([after, mark], axis=1), mode="promise_in_bounds"
            )
            held = falls, decays
            overflow = overflow | (finish < start)
            if record:
                return (values, state, held, sums, overflow), (start, finish)
            # Sums by lane: reducing over lanes at every step costs more than the rest.
            busy, idle, timed = sums
            if leaks:
                # Of what it met alone: what it would charge from state 0 is its own.
                busy = busy + leak * ((x - kept) * tau).sum(axis=1)
                idle = idle + leak * ((met[:, :-1] - x) * tau).sum(axis=1)
            if rates:
                more = (before + beside).astype(jnp.float32) * tick
                timed = timed + one.rate[:, None] * more
            return (values, state, held, (busy, idle, timed), overflow), total

        places, lanes = rows.leak.shape[0], ticks.shape[1]
        values = jnp.zeros((slots + 2, count), jnp.int32)
        nothing = jnp.zeros((lanes, count), jnp.float32)
        # The last stage is when the row was last left, as the bits of a whole number.
        state = jnp.concatenate([rows.start, jnp.zeros((places, 1))], axis=1)
        state = jnp.broadcast_to(state[:, :, None], (*state.shape, count))
        held = (jnp.zeros((lanes, rows.rate.shape[1], count), jnp.float32),) * 2
        carry = (
            values, state.astype(jnp.float32), held, (nothing,) * 3, nothing > 0.0
        )  # fmt: skip
        place = jnp.broadcast_to(jnp.arange(lanes), laid.row.shape)
        steps = _Step(
            laid.reads, laid.writes, laid.row, laid.share, laid.release, laid.rate,
            place, ticks, quanta, slow,
        )  # fmt: skip
        (values, state, _, sums, overflow), out = lax.scan(step, carry, steps)
        end = values[laid.last]
        if record:
            start, finish = out
            return Found(end, None, None, None, None, overflow.any(), start, finish)
        gap = end[None] - lax.bitcast_convert_type(state[:, -1], jnp.int32)
        z = (gap.astype(jnp.float32) * tick)[:, None] * rows.rate[..., None]
        lost = (state[:, :-1] * -jnp.expm1(-z) / rows.rate[..., None]).sum(axis=1)
        lost = (rows.leak[:, None] * lost).astype(jnp.float64).sum(axis=0)
        busy, idle, timed = (x.astype(jnp.float64).sum(axis=0) for x in sums)
        return Found(end, busy, idle + lost, timed, out, overflow.any(), None, None)

    return jax.jit(run)
