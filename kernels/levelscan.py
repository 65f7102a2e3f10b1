"""Longest paths of random graphs: a scan over steps of lanes, vectorised over samples.

Times are int32 ticks, energies int64 quanta, so that a result does not depend on the
order of additions: the same bits on any device, for any number of samples at a time.
Sample i is a function of (key, i) alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from probcalc.kernels.philox import MULTIPLIER, ROUNDS, WEYL

__all__ = ["BLOCK", "CHUNK", "Program", "Shape", "finishes", "forward", "words"]

#: Samples of one block: temporaries stay within a core's cache.
BLOCK = 256
#: Random words (steps times lanes) worked out at a time for one block.
CHUNK = 256


class Shape(NamedTuple):
    """What the compiled code depends on; everything else is an argument.

    Attributes
    ----------
    slots : int
        Values kept alive, without the zero and the idle row.
    charges : int
        Sums per sample that grow with times (0 for times alone).
    energies : int
        Sums per sample of energies that are drawn.
    paired : bool
        Whether energies go with the draws of times.
    apart : bool
        Whether energies have draws of their own.
    spread : bool
        Whether rows stand for intervals, not all for single values.
    scaled : bool
        Whether factors multiply times or energies.
    limbs : bool
        Whether products are taken in 16-bit limbs, where the device has no high
        product under `shard_map`.
    """

    slots: int
    charges: int = 0
    energies: int = 0
    paired: bool = False
    apart: bool = False
    spread: bool = False
    scaled: bool = False
    limbs: bool = False


class Program(NamedTuple):
    """A laid out graph with its laws, as arrays on a device.

    Chunks of steps stand first: arrays over lanes have shape (chunks, steps, lanes).
    Two rows stand for each cell of an alias table: of words below its limit, and of
    the others.

    Attributes
    ----------
    reads, writes : int32 arrays, shape (..., 2), (...)
    kind : int32 array
        What the lane does; 0 is an idle lane or a join.
    draw : uint32 array
        Counter of the draw: lanes with one number draw together.
    scale, scale_energy : int32 arrays
        Row of the factors; row 0 is one.
    shift, own_shift : uint32 arrays, shape (kinds,)
        32 less the bits of the table of times, and of energies drawn apart.
    first, own_first : int32 arrays, shape (kinds,)
        First cells of these tables.
    limits : uint32 array, shape (cells,)
    values : int32 array, shape (2 cells,)
        Ticks or quanta of each row, the least where it stands for an interval.
    slopes : float32 array, shape (2 cells,)
        What each word of the row adds to that.
    pair_first : int32 array, shape (kinds,)
        From rows of times to rows of `pairs`.
    pairs : int32 array
        Quanta of energy of each row of times.
    coefficient : int64 array, shape (charges, kinds)
        What a tick adds to each charge.
    member : int64 array, shape (energies, kinds)
        1 where a kind adds to an energy, else 0.
    last : int32
        Slot of the makespan.
    key : uint32
    """

    reads: Any
    writes: Any
    kind: Any
    draw: Any
    scale: Any
    scale_energy: Any
    shift: Any
    own_shift: Any
    first: Any
    own_first: Any
    limits: Any
    values: Any
    slopes: Any
    pair_first: Any
    pairs: Any
    coefficient: Any
    member: Any
    last: Any
    key: Any


def _high(a: Any, b: Any, limbs: bool) -> Any:
    """Upper 32 bits of a product of two 32-bit words."""
    if not limbs:
        return lax.mulhi(a, b)
    low = jnp.uint32(0xFFFF)
    al, ah, bl, bh = a & low, a >> 16, b & low, b >> 16
    ll, lh, hl = al * bl, al * bh, ah * bl
    middle = (ll >> 16) + (lh & low) + (hl & low)
    return ah * bh + (lh >> 16) + (hl >> 16) + (middle >> 16)


def words(samples: Any, draws: Any, key: Any, limbs: bool) -> tuple[Any, Any]:
    """Two Philox words for every (draw, sample), shape (draws, samples)."""
    shape = (draws.shape[0], samples.shape[0])
    c0 = jnp.broadcast_to(samples[None, :], shape)
    c1 = jnp.broadcast_to(draws[:, None], shape)
    m = jnp.full(shape, np.uint32(MULTIPLIER))
    k = key
    for _ in range(ROUNDS):
        c0, c1 = _high(m, c0, limbs) ^ k ^ c1, m * c0
        k = k + np.uint32(WEYL)
    return c0, c1


def take(table: Any, rows: Any) -> Any:
    return table.at[rows].get(mode="promise_in_bounds")


def row_values(
    shape: Shape, program: Program, words: Any, shift: Any, first: Any
) -> tuple[Any, Any]:
    """Row of each word by the table of its lane, and what it is worth."""
    shift = shift[:, None]
    own = words >> shift
    cell = own.astype(jnp.int32) + first[:, None]
    limit = take(program.limits, cell)
    above = words >= limit
    rows = 2 * cell + above.astype(jnp.int32)
    values = take(program.values, rows)
    if shape.spread:
        # What the choice of a row leaves over of a word is uniform: where within its
        # interval the value lies. Less than 2^24 words, so that floats hold them.
        over = (words - jnp.where(above, limit, own << shift)).astype(jnp.int32)
        part = over.astype(jnp.float32) * take(program.slopes, rows)
        values = values + part.astype(jnp.int32)
    return rows, values


class _Lane(NamedTuple):
    """One step: its lanes and their words, the second one only where it is used."""

    reads: Any
    writes: Any
    kind: Any
    scale: Any
    scale_energy: Any
    words: tuple[Any, ...]


def chunked(shape: Shape, program: Program, samples: Any, chunk: Any) -> _Lane:
    """Lanes of a chunk of steps with their words.

    Words alone are worked out for many steps at once and then handed to the scan,
    which keeps them: what is derived from them has several readers, for each of which
    XLA would draw again.
    """
    reads, writes, kind, draw, scale, scale_energy = chunk
    both = words(samples, draw.reshape(-1), program.key, shape.limbs)
    used = both if shape.apart else both[:1]
    held = tuple(w.reshape(*kind.shape, samples.shape[0]) for w in used)
    return _Lane(reads, writes, kind, scale, scale_energy, held)


def finished(
    shape: Shape, program: Program, factors: Any, values: Any, lane: _Lane
) -> tuple[Any, Any, Any]:
    """Starts and ticks of one step, and their rows."""
    shift, first = (
        take(program.shift, lane.kind),
        take(program.first, lane.kind),
    )
    rows, ticks = row_values(shape, program, lane.words[0], shift, first)
    if shape.scaled:
        ticks = jnp.rint(ticks * take(factors, lane.scale)).astype(jnp.int32)
    start = jnp.maximum(take(values, lane.reads[:, 0]), take(values, lane.reads[:, 1]))
    return start, ticks, rows


def _amounts(
    shape: Shape, program: Program, factors: Any, lane: _Lane, ticks: Any, rows: Any
) -> list[Any]:
    """What each lane of a step adds to every sum, shape (lanes, samples) each."""
    kind = lane.kind
    amounts = [
        ticks.astype(jnp.int64) * take(program.coefficient[c], kind)[:, None]
        for c in range(shape.charges)
    ]
    if not shape.energies:
        return amounts
    quanta: Any = 0
    if shape.paired:
        quanta = take(program.pairs, rows + take(program.pair_first, kind)[:, None])
    if shape.apart:
        shift, first = (
            take(program.own_shift, kind),
            take(program.own_first, kind),
        )
        _, own = row_values(shape, program, lane.words[1], shift, first)
        quanta = quanta + own.astype(jnp.int64)
    if shape.scaled:
        quanta = jnp.rint(quanta * take(factors, lane.scale_energy))
    quanta = quanta.astype(jnp.int64)
    if shape.energies == 1:
        return [*amounts, quanta]
    member = [take(program.member[e], kind)[:, None] for e in range(shape.energies)]
    return amounts + [quanta * share for share in member]


def lane_arrays(program: Program) -> Any:
    return (
        program.reads,
        program.writes,
        program.kind,
        program.draw,
        program.scale,
        program.scale_energy,
    )


def _block(shape: Shape, program: Program, samples: Any, factors: Any) -> Any:
    """Makespans and sums of one block of samples."""
    count = samples.shape[0]
    summed = shape.charges + shape.energies

    def step(carry: Any, lane: _Lane) -> Any:
        values, sums = carry
        start, ticks, rows = finished(shape, program, factors, values, lane)
        # Each value is consumed by one scatter: XLA works out anew what has two.
        values = values.at[lane.writes].set(start + ticks, mode="promise_in_bounds")
        # Sums by lane: reducing over lanes at every step costs more than the rest.
        amounts = _amounts(shape, program, factors, lane, ticks, rows)
        return (values, [s + a for s, a in zip(sums, amounts, strict=True)]), None

    def outer(carry: Any, chunk: Any) -> Any:
        values, sums = carry
        lanes = chunked(shape, program, samples, chunk)
        nothing = jnp.zeros((lanes.kind.shape[1], count), jnp.int64)
        (values, by_lane), _ = lax.scan(step, (values, [nothing] * summed), lanes)
        sums = [s + a.sum(axis=0) for s, a in zip(sums, by_lane, strict=True)]
        return (values, sums), None

    values = jnp.zeros((shape.slots + 2, count), jnp.int32)
    sums = [jnp.zeros(count, jnp.int64)] * summed
    (values, sums), _ = lax.scan(outer, (values, sums), lane_arrays(program))
    whole = jnp.stack(sums) if summed else jnp.zeros((0, count), jnp.int64)
    return values[program.last], whole


@functools.cache
def forward(shape: Shape, devices: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """Compiled function of (program, samples, factors).

    ``samples`` is a uint32 array of shape (blocks, samples of a block), ``factors`` of
    shape (blocks, rows, samples of a block). Returned are makespans in ticks and sums
    in quanta, shapes (blocks, samples) and (blocks, sums, samples). With several
    devices the blocks are dealt out among them.
    """

    def blocks(program: Program, samples: Any, factors: Any) -> Any:
        return lax.map(
            lambda one: _block(shape, program, one[0], one[1]), (samples, factors)
        )

    if len(devices) < 2:
        return jax.jit(blocks)
    mesh = jax.sharding.Mesh(np.array(devices), ("block",))
    spec = jax.sharding.PartitionSpec
    return jax.jit(
        jax.shard_map(
            blocks,
            mesh=mesh,
            in_specs=(spec(), spec("block"), spec("block")),
            out_specs=spec("block"),
            check_vma=False,
        )
    )


@functools.cache
def finishes(shape: Shape) -> Callable[..., Any]:
    """Compiled function of (program, samples, factors): every start and finish.

    For one block; returned are arrays of shape (chunks, steps, lanes, samples).
    """
    bare = shape._replace(charges=0, energies=0, paired=False, apart=False)

    def block(program: Program, samples: Any, factors: Any) -> Any:
        def step(values: Any, lane: _Lane) -> Any:
            start, ticks, _ = finished(bare, program, factors, values, lane)
            finish = start + ticks
            return values.at[lane.writes].set(finish), (start, finish)

        def outer(values: Any, chunk: Any) -> Any:
            return lax.scan(step, values, chunked(bare, program, samples, chunk))

        values = jnp.zeros((bare.slots + 2, samples.shape[0]), jnp.int32)
        return lax.scan(outer, values, lane_arrays(program))[1]

    return jax.jit(block)
