"""Chunks of samples: a lowered plan compiled, run, and summarised.

Everything that a worker needs is arrays, so that any process can be sent it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.factors import rows_of, scaled
from probcalc.lowering import Lowered
from probcalc.summary import Summary

__all__ = ["Run", "Work", "compiled", "program_of", "samples_of", "summaries"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Work(NamedTuple):
    """What a chunk needs.

    Attributes
    ----------
    low : Lowered
    unit : float
        Joules of one in the summaries of energies.
    seed : int
    """

    low: Lowered
    unit: float
    seed: int


class Run(NamedTuple):
    """A compiled function with its program and the shape of its samples."""

    function: Any
    program: Any
    padded: int


def compiled(work: Work, padded: int, devices: Sequence[Any] | None) -> Run:
    """Put the program of a plan on its devices, for so many samples at a time."""
    import jax

    from probcalc.kernels.levelscan import BLOCK, forward

    shape, program = program_of(work.low, work.seed, limbs=len(devices or ()) > 1)
    blocks = padded // BLOCK
    if devices and len(devices) > 1:
        padded = -(-blocks // len(devices)) * len(devices) * BLOCK
    with jax.enable_x64(True):
        return Run(forward(shape, tuple(devices or ())), program, padded)


def program_of(low: Lowered, seed: int, *, limbs: bool = False) -> tuple[Any, Any]:
    """Shape and program of a lowered plan, its steps in chunks, on the device."""
    import jax
    import jax.numpy as jnp

    from probcalc.kernels.levelscan import CHUNK, Program, Shape
    from probcalc.kernels.philox import key_of

    steps, lanes = low.vertex.shape
    size = max(1, min(CHUNK // lanes, steps))
    idle = {"reads": low.slots, "writes": low.slots + 1}

    def chunked(name: str) -> Any:
        array = low.arrays[name]
        pad = np.full(
            ((-steps) % size, *array.shape[1:]), idle.get(name, 0), dtype=array.dtype
        )
        whole_ = np.concatenate([array, pad])
        return jnp.asarray(whole_.reshape(-1, size, *array.shape[1:]))

    laid = ("reads", "writes", "kind", "draw", "scale", "scale_energy")
    with jax.enable_x64(True):
        fields = {
            name: chunked(name) if name in laid else jnp.asarray(low.arrays[name])
            for name in Program._fields[:-2]
        }
        program = Program(
            **fields, last=jnp.int32(low.last), key=jnp.uint32(key_of(seed, 0))
        )
    shape = Shape(
        slots=low.slots,
        charges=len(low.amounts.charge_keys),
        energies=len(low.amounts.energy_keys),
        paired=low.amounts.paired,
        apart=low.amounts.apart,
        spread=bool(low.arrays["slopes"].any()),
        scaled=low.factors.scaled,
        limbs=limbs,
    )
    return shape, program


def samples_of(
    work: Work, first: int, count: int, run: Run
) -> tuple[IntArray, IntArray]:
    """Makespans in ticks, shape (count,), and sums as `Amounts` says, (sums, count)."""
    import jax
    import jax.numpy as jnp

    from probcalc.kernels.levelscan import BLOCK

    samples = np.arange(first, first + run.padded, dtype=np.int64)
    shape = (run.padded // BLOCK, BLOCK)
    factors = rows_of(work.low.factors, work.seed, samples)
    factors = factors.reshape(-1, *shape).transpose(1, 0, 2)
    with jax.enable_x64(True):
        makespans, sums = run.function(
            run.program,
            jnp.asarray(samples.astype(np.uint32).reshape(shape)),
            jnp.asarray(factors),
        )
        ticks = np.asarray(makespans).reshape(-1)[:count].astype(np.int64)
        sums = np.asarray(sums).transpose(1, 0, 2).reshape(-1, run.padded)
    return ticks, sums[:, :count]


def summaries(work: Work, first: int, count: int, run: Run) -> list[Summary]:
    """Summaries of time, energy, static and dynamic energy of one chunk."""
    low, books, amounts = work.low, work.low.books, work.low.amounts
    ticks, sums = samples_of(work, first, count, run)
    samples = np.arange(first, first + count, dtype=np.int64)
    draws = books.draws(work.seed, samples)
    pace = scaled(books.paces, draws, count)
    static = np.zeros(count)
    for key, watts in books.base.items():
        static += watts * scaled(key, draws, count) * ticks * low.tick
    charges = len(amounts.charge_keys)
    for key, unit, row in zip(
        amounts.charge_keys, amounts.charge_units, sums[:charges], strict=True
    ):
        static += scaled(key, draws, count) * row * unit
    static *= pace
    dynamic = np.zeros(count)
    for key, joules in amounts.constants:
        dynamic += scaled(key, draws, count) * joules
    for key, row in zip(amounts.energy_keys, sums[charges:], strict=True):
        dynamic += scaled(key, draws, count) * row * amounts.quantum
    for name, runs in books.shifts.items():
        dynamic += runs * draws[name]
    times = np.rint(ticks * pace).astype(np.int64) if books.paces else ticks
    energies = (static + dynamic, static, dynamic)
    return [
        Summary.of(times),
        *(Summary.of(np.rint(e / work.unit).astype(np.int64)) for e in energies),
    ]
