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

from probcalc.kernels.levelscan import Program, Shape, _at, _chunk, _lanes, _values

__all__ = ["Found", "Laid", "Rows", "drawn", "excess", "passed"]


class Rows(NamedTuple):
    """How each row responds; the last row stands for no row and responds to nothing.

    Attributes
    ----------
    rate, gain : float32 arrays, shape (stages, rows)
        1 / tau, and rise at rest per unit of release rate.
    leak, threshold, slope : float32 arrays, shape (rows,)
        Charge per unit of state and second; state from which durations grow; by how
        much per unit.
    start : float32 array, shape (stages, rows)
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
    tick : float32
        Seconds of one.
    """

    reads: Any
    writes: Any
    row: Any
    share: Any
    release: Any
    rate: Any
    last: Any
    tick: Any


class Found(NamedTuple):
    """What a pass found.

    Attributes
    ----------
    end, plain : int32 arrays, shape (samples,)
        Ends in ticks, and what they would be if nothing responded.
    busy, idle : float64 arrays, shape (samples,)
        Charges of states that were met while vertices run, and in between.
    timed : float64 array, shape (samples,)
        Sum of `rate` times durations beyond the drawn ones.
    before, beside : int32 arrays, shape (steps, lanes)
        Largest change of a duration by state, and by overlap.
    charge : float32 array, shape (steps, lanes)
        Largest charge per second of a vertex.
    high, low : float32 array, shape (steps, lanes)
        Largest and smallest state that was met.
    overflow : bool array, shape ()
        Whether times left 32 bits.
    start, finish : int32 arrays, shape (steps, lanes, samples), or None
    """

    end: Any
    plain: Any
    busy: Any
    idle: Any
    timed: Any
    before: Any
    beside: Any
    charge: Any
    high: Any
    low: Any
    overflow: Any
    start: Any
    finish: Any


@functools.cache
def drawn(shape: Shape) -> Callable[..., tuple[Any, Any]]:
    """Compiled function of (program, samples, factors): ticks and quanta drawn.

    Returned are int32 arrays of shape (chunks, steps, lanes, samples): the numbers that
    `probcalc.kernels.levelscan.forward` draws for these samples.
    """

    def block(program: Program, samples: Any, factors: Any) -> Any:
        def one(_: Any, chunk: Any) -> Any:
            lane = _chunk(shape, program, samples, chunk)
            full = lane.kind.shape
            kind = lane.kind.reshape(-1)
            words = [w.reshape(-1, samples.shape[0]) for w in lane.words]
            shift, first = _at(program.shift, kind), _at(program.first, kind)
            rows, ticks = _values(shape, program, words[0], shift, first)
            quanta: Any = jnp.zeros_like(ticks)
            if shape.paired:
                at = _at(program.pair_first, kind)[:, None]
                quanta = _at(program.pairs, rows + at)
            if shape.apart:
                shift = _at(program.own_shift, kind)
                first = _at(program.own_first, kind)
                quanta = quanta + _values(shape, program, words[1], shift, first)[1]
            if shape.scaled:
                ticks, quanta = (
                    jnp.rint(x * _at(factors, scale.reshape(-1))).astype(jnp.int32)
                    for x, scale in (
                        (ticks, lane.scale),
                        (quanta, lane.scale_energy),
                    )
                )
            return None, (ticks.reshape(*full, -1), quanta.reshape(*full, -1))

        return lax.scan(one, None, _lanes(program))[1]

    return jax.jit(block)


class _Step(NamedTuple):
    reads: Any
    writes: Any
    row: Any
    share: Any
    release: Any
    rate: Any
    ticks: Any
    drawn: Any
    slow: Any


def _relaxed(rows: Rows, state: Any, row: Any, gap: Any) -> tuple[Any, Any]:
    """State after nothing for a while, and the charge meanwhile.

    x e^(-t/tau), of integral x tau (1 - e^(-t/tau)).
    """
    rate = _at(rows.rate.T, row).T[:, :, None]
    passed = -jnp.expm1(-gap[None] * rate)
    charge = _at(rows.leak, row)[:, None] * (state * passed / rate).sum(axis=0)
    return state * (1.0 - passed), charge


@functools.cache
def passed(slots: int, *, record: bool, contended: bool) -> Callable[..., Found]:
    """Compiled function of (rows, laid, ticks, released, slow): one pass.

    Parameters
    ----------
    slots : int
        Values kept alive, without the zero and the idle row.
    record : bool
        Whether starts and finishes are returned.
    contended : bool
        Whether durations are stretched by ``1 + slow``.

    Notes
    -----
    ``ticks`` is an int32, ``released`` and ``slow`` are float32 arrays of shape
    (steps, lanes, samples). With duration t, release E and state x before it,
    x e^(-t/tau) + G E g(t), g = (1 - e^(-t/tau)) / t, is the state after a vertex;
    g is 1 / tau for t = 0.
    """

    def run(rows: Rows, laid: Laid, ticks: Any, released: Any, slow: Any) -> Found:
        count = ticks.shape[2]
        tick = laid.tick

        def step(carry: Any, one: _Step) -> Any:
            values, plain, state, seen, busy, idle, timed, overflow = carry
            start = jnp.maximum(
                _at(values, one.reads[:, 0]), _at(values, one.reads[:, 1])
            )
            first = jnp.maximum(
                _at(plain, one.reads[:, 0]), _at(plain, one.reads[:, 1])
            )
            gap = (start - _at(seen, one.row)).astype(jnp.float32) * tick
            x, lost = _relaxed(rows, state[:, one.row], one.row, gap)
            total = x.sum(axis=0)
            slope = (_at(rows.slope, one.row) * one.share)[:, None]
            limit = _at(rows.threshold, one.row)[:, None]
            # Rounded apart, so that no slope and no excess leave a duration as it is.
            own = one.ticks + jnp.rint(
                one.ticks * (slope * jnp.maximum(total - limit, 0.0))
            ).astype(jnp.int32)
            full = own
            if contended:
                full = own + jnp.rint(own * one.slow).astype(jnp.int32)
            finish = start + full
            t = full.astype(jnp.float32) * tick
            energy = one.drawn + one.release[:, None] + one.rate[:, None] * t
            rate = _at(rows.rate.T, one.row).T[:, :, None]
            gain = _at(rows.gain.T, one.row).T[:, :, None]
            z = t[None] * rate
            gone = -jnp.expm1(-z)
            part = jnp.where(z > 0.0, gone / jnp.where(z > 0.0, z, 1.0), 1.0)
            after = x * (1.0 - gone) + gain * energy[None] * part * rate
            leak = _at(rows.leak, one.row)[:, None]
            # Of what it met alone: what it would charge from state 0 is its own.
            charge = leak * (x * gone / rate).sum(axis=0)
            grown = (full - one.ticks).astype(jnp.float32) * tick
            carry = (
                values.at[one.writes].set(finish, mode="promise_in_bounds"),
                plain.at[one.writes].set(first + one.ticks, mode="promise_in_bounds"),
                state.at[:, one.row].set(after),
                seen.at[one.row].set(finish),
                busy + charge.astype(jnp.float64).sum(axis=0),
                idle + lost.astype(jnp.float64).sum(axis=0),
                timed + (one.rate[:, None] * grown).astype(jnp.float64).sum(axis=0),
                overflow | (finish < start).any(),
            )
            mean = jnp.where(t > 0.0, charge / jnp.where(t > 0.0, t, 1.0), 0.0)
            out = (
                jnp.abs(own - one.ticks).max(axis=1),
                jnp.abs(full - own).max(axis=1),
                jnp.abs(mean).max(axis=1),
                total.max(axis=1),
                total.min(axis=1),
            )
            return carry, (*out, *((start, finish) if record else ()))

        places = rows.leak.shape[0]
        empty = jnp.zeros((slots + 2, count), jnp.int32)
        nothing = jnp.zeros(count, jnp.float64)
        state = jnp.broadcast_to(
            rows.start[:, :, None], (*rows.start.shape, count)
        ).astype(jnp.float32)
        seen = jnp.zeros((places, count), jnp.int32)
        carry = (empty, empty, state, seen, nothing, nothing, nothing, jnp.bool_(False))
        steps = _Step(
            laid.reads, laid.writes, laid.row, laid.share, laid.release, laid.rate,
            ticks, released, slow,
        )  # fmt: skip
        carry, out = lax.scan(step, carry, steps)
        values, plain, state, seen, busy, idle, timed, overflow = carry
        end = values[laid.last]
        everywhere = jnp.arange(places)
        gap = (end[None] - seen).astype(jnp.float32) * tick
        _, lost = _relaxed(rows, state, everywhere, gap)
        idle = idle + lost.astype(jnp.float64).sum(axis=0)
        times = out[5:] if record else (None, None)
        return Found(
            end, plain[laid.last], busy, idle, timed, *out[:5], overflow, *times
        )

    return jax.jit(run)


@functools.partial(jax.jit, static_argnames="bins")
def excess(start: Any, finish: Any, demand: Any, end: Any, *, bins: int) -> Any:
    """Mean excess over one of the total demand during each window.

    Parameters
    ----------
    start, finish : int32 arrays, shape (users, samples)
    demand : float32 array, shape (users,)
    end : int32 array, shape (samples,)
        No window ends later.
    bins : int
        Time up to the end is cut into so many; the total demand is averaged in each.

    Returns
    -------
    float32 array, shape (users, samples)
        0 for windows of no length.
    """
    samples = start.shape[1]
    scale = bins / jnp.maximum(end, 1).astype(jnp.float32)
    at = [x.astype(jnp.float32) * scale for x in (start, finish)]
    cell = [jnp.clip(x.astype(jnp.int32), 0, bins - 1) for x in at]
    part = [x - c for x, c in zip(at, cell, strict=True)]
    column = jnp.broadcast_to(jnp.arange(samples), start.shape)
    # A step of height d at b + f adds d (1 - f) to the mean of bin b and d to all
    # later ones: impulses d (1 - f) and d f in what is then summed up.
    total = jnp.zeros((samples, bins + 1), jnp.float32)
    for sign, c, f in zip((1.0, -1.0), cell, part, strict=True):
        height = sign * demand[:, None]
        total = total.at[column, c].add(height * (1.0 - f))
        total = total.at[column, c + 1].add(height * f)
    # Sums of many demands leave rounding behind where they should meet the capacity.
    over = jnp.cumsum(total, axis=1)[:, :bins] - 1.0
    over = jnp.where(over > 1e-5, over, 0.0)
    area = jnp.concatenate(
        [jnp.zeros((samples, 1), jnp.float32), jnp.cumsum(over, axis=1)], axis=1
    )
    ends = [
        area[column, c] + f * over[column, c]
        for c, f in zip(cell, part, strict=True)
    ]
    window = at[1] - at[0]
    long = window > 0.0
    return jnp.where(long, (ends[1] - ends[0]) / jnp.where(long, window, 1.0), 0.0)
