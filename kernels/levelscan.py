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

__all__ = ["BLOCK", "CHUNK", "Program", "Shape", "finishes", "forward"]

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
    bits : int
        Of the alias tables.
    charges : int
        Sums per sample that depend on times (0 for times alone).
    energies : int
        Sums per sample of independent or paired energies.
    drawn : bool
        Whether energies have draws of their own, beside those of times.
    scaled : bool
        Whether factors multiply times or energies.
    limbs : bool
        Whether products are taken in 16-bit limbs, where the device has no high
        product under `shard_map`.
    """

    slots: int
    bits: int
    charges: int = 0
    energies: int = 0
    drawn: bool = False
    scaled: bool = False
    limbs: bool = False


class Program(NamedTuple):
    """A laid out graph with its laws, as arrays on a device.

    Chunks of steps stand first: arrays over lanes have shape (chunks, steps, lanes).

    Attributes
    ----------
    reads, writes : int32 arrays, shape (..., 2), (...)
    kind : int32 array
        Row of all tables by kind; row 0 is an idle lane or a join.
    draw : uint32 array
        Counter of the draw: lanes with one number draw together.
    scale, scale_energy : int32 arrays
        Row of the factors; row 0 is one.
    law, own : int32 arrays, shape (kinds,)
        Alias table of times, and of energies drawn apart.
    thresholds, aliases : uint32 and int32 arrays, shape (laws * 2^bits,)
    ticks : int32 array, shape (kinds * 2^bits,)
    charge : int64 array, shape (charges, kinds * 2^bits)
        What an atom of time adds to each charge.
    energy : int64 array, shape (energies, kinds * 2^bits)
        What an atom of time adds to each energy: of pairs measured together.
    energy_own : int64 array, shape (energies, kinds * 2^bits)
        What an atom of the energy's own draw adds.
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
    law: Any
    own: Any
    thresholds: Any
    aliases: Any
    ticks: Any
    charge: Any
    energy: Any
    energy_own: Any
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


def _atoms(words: Any, law: Any, program: Program, bits: int) -> Any:
    """Atom of each word by the alias table of its law."""
    cell = (words >> (32 - bits)).astype(jnp.int32)
    at = cell + (law << bits)[:, None]
    keep = (words << bits) < _at(program.thresholds, at)
    return jnp.where(keep, cell, _at(program.aliases, at))


def _drawn(shape: Shape, program: Program, samples: Any, chunk: Any) -> Any:
    """Rows of the tables that a chunk of lanes draws, shape (steps, lanes, samples).

    Random words and alias tables are worked out here, for many lanes at once; what the
    rows say is read off step by step, where it is used: read here as well, XLA would
    draw again for every reader.
    """
    _, _, kind, draw, _, _ = chunk
    bits = shape.bits
    flat = kind.reshape(-1)
    first, second = words(samples, draw.reshape(-1), program.key, shape.limbs)
    base = (flat << bits)[:, None]
    rows = [_atoms(first, program.law[flat], program, bits) + base]
    if shape.drawn:
        rows.append(_atoms(second, program.own[flat], program, bits) + base)
    rows = lax.optimization_barrier(rows)
    return tuple(row.reshape(*kind.shape, samples.shape[0]) for row in rows)


def _at(table: Any, rows: Any) -> Any:
    return table.at[rows].get(mode="promise_in_bounds")


def _ticks(shape: Shape, program: Program, factors: Any, row: Any) -> Any:
    rows, scale = row
    ticks = _at(program.ticks, rows[0])
    if shape.scaled:
        ticks = jnp.rint(ticks * factors[scale]).astype(jnp.int32)
    return ticks


def _sums(shape: Shape, program: Program, factors: Any, row: Any) -> Any:
    """What a step of lanes adds to every sum, shape (sums, samples)."""
    rows, scale, scale_energy = row

    def total(table: Any, at: Any, by: Any) -> Any:
        found = _at(table, at)
        if shape.scaled:
            found = jnp.rint(found * factors[by]).astype(jnp.int64)
        return found.sum(axis=0)

    sums = [total(program.charge[c], rows[0], scale) for c in range(shape.charges)]
    for e in range(shape.energies):
        amount = total(program.energy[e], rows[0], scale_energy)
        if shape.drawn:
            amount += total(program.energy_own[e], rows[1], scale_energy)
        sums.append(amount)
    return jnp.stack(sums)


def _lanes(program: Program) -> Any:
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

    def step(carry: Any, row: Any) -> Any:
        values, sums = carry
        reads, writes, scale, scale_energy, rows = row
        # Each value is consumed by one scatter: XLA works out anew what has two.
        start = jnp.maximum(_at(values, reads[:, 0]), _at(values, reads[:, 1]))
        finish = start + _ticks(shape, program, factors, (rows, scale))
        values = values.at[writes].set(finish, mode="promise_in_bounds")
        if summed:
            sums += _sums(shape, program, factors, (rows, scale, scale_energy))
        return (values, sums), None

    def outer(carry: Any, chunk: Any) -> Any:
        reads, writes, _, _, scale, scale_energy = chunk
        rows = _drawn(shape, program, samples, chunk)
        return lax.scan(step, carry, (reads, writes, scale, scale_energy, rows))

    values = jnp.zeros((shape.slots + 2, count), jnp.int32)
    sums = jnp.zeros((summed, count), jnp.int64)
    (values, sums), _ = lax.scan(outer, (values, sums), _lanes(program))
    return values[program.last], sums


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

    def block(program: Program, samples: Any, factors: Any) -> Any:
        def step(values: Any, row: Any) -> Any:
            reads, writes, scale, rows = row
            start = jnp.maximum(_at(values, reads[:, 0]), _at(values, reads[:, 1]))
            finish = start + _ticks(shape, program, factors, (rows, scale))
            return values.at[writes].set(finish), (start, finish)

        def outer(values: Any, chunk: Any) -> Any:
            reads, writes, _, _, scale, _ = chunk
            rows = _drawn(shape, program, samples, chunk)
            return lax.scan(step, values, (reads, writes, scale, rows))

        values = jnp.zeros((shape.slots + 2, samples.shape[0]), jnp.int32)
        return lax.scan(outer, values, _lanes(program))[1]

    return jax.jit(block)
