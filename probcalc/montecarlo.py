"""Monte Carlo propagation of plans: time and energy of every sample of one pass.

Sample i is a function of the seed and of i alone. Chunks of samples may be worked out
on any device or by any worker, in any order; their summaries merge to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from probcalc.chunks import Work, compiled, summaries
from probcalc.distribution import Constant
from probcalc.errors import InputError, ToleranceError
from probcalc.lowering import Lowered, lowered
from probcalc.plan import Plan
from probcalc.runs import whole
from probcalc.sampled import Sampled
from probcalc.summary import Summary

__all__ = ["QUANTITIES", "Simulation", "simulate"]

QUANTITIES = ("time", "energy", "static_energy", "dynamic_energy")
#: Samples without anything asked.
SAMPLES = 100_000
#: Samples after which a precision is looked at: these times powers of two.
FIRST_LOOK = 8192
#: Most samples that a precision may take.
MOST_SAMPLES = 1 << 26
#: Lane samples of one chunk.
CHUNK_WORK = 1 << 26
MEMORY = 1 << 30
_MAX_SEED = 1 << 64


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Simulation:
    """What a simulation of a plan found.

    Attributes
    ----------
    plan : Plan
    time, energy, static_energy, dynamic_energy : Sampled
        Laws in s and J, each number with its confidence interval.
    samples, seed : int
    tick, quantum : float
        Resolution of times in s and of energies in J.
    lost : float
        Largest share of a law's variance that its atoms lack; 0 where all laws are
        drawn as they are.
    shift : float
        Bound of what rounding to ticks moves the mean makespan by, in s.
    """

    plan: Plan
    time: Sampled
    energy: Sampled
    static_energy: Sampled
    dynamic_energy: Sampled
    samples: int
    seed: int
    tick: float
    quantum: float
    lost: float
    shift: float

    def __repr__(self) -> str:
        """Plan, samples, means."""
        return (
            f"<Simulation of {self.plan.name!r}: {self.samples:,} samples, seed "
            f"{self.seed}, mean time {self.time.mean():.6g} s, mean energy "
            f"{self.energy.mean():.6g} J>"
        )

    @property
    def digest(self) -> str:
        """Fingerprint of all samples: equal for equal seeds, whatever the chunks."""
        return "".join(getattr(self, name).summary.digest[:16] for name in QUANTITIES)


def simulate(
    plan: Plan,
    *,
    samples: int | None = None,
    rtol: float | None = None,
    seed: int = 0,
    level: float = 0.95,
    chunk: int | None = None,
    memory: int = MEMORY,
    devices: Sequence[Any] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Simulation:
    """Simulate a plan; nodes are independent but for its draw groups.

    Parameters
    ----------
    plan : Plan
    samples : int, optional
        Default 100,000; with `rtol` the most that are taken.
    rtol : float, optional
        Go on until the intervals of the 0.99 quantiles of time and energy are at most
        this share of their values wide. Looked at after 8,192 samples and after each
        doubling, so that the result depends on the seed and on `rtol` alone.
    seed : int
        At least 0, below 2^64.
    level : float
        Confidence of all intervals.
    chunk : int, optional
        Samples worked out at a time; the result does not depend on it.
    memory : int
        Bytes that the arrays of a chunk may take.
    devices : sequence of jax.Device, optional
        Blocks of a chunk are dealt out among them.
    executor : concurrent.futures.Executor, optional
        Chunks are submitted to it: a process pool, Dask's
        ``client.get_executor()``, mpi4py's ``MPIPoolExecutor``.
    progress : bool
        Show a bar; needs the package tqdm.

    Returns
    -------
    Simulation

    Raises
    ------
    InputError
        Samples, seed, level, rtol, chunk or memory out of range; a plan that cannot be
        simulated (`probcalc.lowering.lowered`).
    ToleranceError
        `rtol` is not reached with the most samples; memory too small for one block.
    """
    from probcalc.kernels.levelscan import BLOCK

    most = _checked(samples, rtol, seed, level)
    low = lowered(plan)
    work = Work(low, _unit(low), seed)
    size = _chunk_size(low, chunk, memory, len(devices or ()) or 1)
    total: list[Summary] | None = None
    done = 0
    with _bar(progress, most if rtol is None else None) as bar:
        while True:
            goal = most
            if rtol is not None:
                goal = min(max(FIRST_LOOK, 2 * done), most)
            pieces = [(i, min(size, goal - i)) for i in range(done, goal, size)]
            padded = -(-min(size, goal - done) // BLOCK) * BLOCK
            for found in _run(work, pieces, padded, devices, executor):
                total = (
                    found
                    if total is None
                    else [a.merged(b) for a, b in zip(total, found, strict=True)]
                )
                bar.update(found[0].count)
            done = goal
            assert total is not None
            laws = _laws(total, low.tick, work.unit, level, sure=_constant(plan))
            width = math.inf if rtol is None else _width(laws)
            if done == most or (rtol is not None and width <= rtol):
                break
    if rtol is not None and width > rtol:
        raise ToleranceError(
            f"simulate: the 0.99 quantiles are known to {width:.3g} of their values "
            f"after {done:,} samples, asked {rtol:.3g}; about "
            f"{done * (width / rtol) ** 2:.3g} samples needed"
        )
    return Simulation(
        plan, *laws, samples=done, seed=seed, tick=low.tick, quantum=work.unit,
        lost=low.lost,
        shift=low.shift,
    )  # fmt: skip


def _checked(samples: Any, rtol: Any, seed: Any, level: Any) -> int:
    if (
        isinstance(seed, bool)
        or not isinstance(seed, int | np.integer)
        or not 0 <= seed < _MAX_SEED
    ):
        raise InputError(f"simulate: seed is {seed!r}, expected 0 <= seed < 2^64")
    if not isinstance(level, float) or not 0.0 < level < 1.0:
        raise InputError(f"simulate: level is {level!r}, expected between 0 and 1")
    if rtol is not None and not (isinstance(rtol, int | float) and 0.0 < rtol < 1.0):
        raise InputError(f"simulate: rtol is {rtol!r}, expected between 0 and 1")
    if samples is None:
        return SAMPLES if rtol is None else MOST_SAMPLES
    count = whole(samples, "simulate: samples")
    if count >= 1 << 32:
        raise InputError(f"simulate: samples is {count:,}, expected below 2^32")
    return count


def _chunk_size(low: Lowered, chunk: int | None, memory: int, devices: int) -> int:
    from probcalc.kernels.levelscan import BLOCK, CHUNK

    steps, lanes = low.vertex.shape
    rows, sums = len(low.factors.rows), low.amounts.sums
    # Of one block: its values, a chunk of words on the way, sums by lane, factors.
    one = BLOCK * (
        4 * low.slots + 40 * max(CHUNK, lanes) + 16 * sums * lanes + 16 * rows + 128
    )
    fixed = one * devices + sum(array.nbytes for array in low.arrays.values())
    if fixed > memory:
        raise ToleranceError(
            f"simulate: with the plan, one block of {BLOCK} samples takes {fixed:,} "
            f"bytes, memory is {memory:,}"
        )
    held = BLOCK * (160 + 8 * sums + 16 * rows)  # results and factors of a block
    blocks = max(min((memory - fixed) // held, 1024), 1)
    if chunk is not None:
        # Fewer than asked where memory does not allow them.
        return min(whole(chunk, "simulate: chunk"), blocks * BLOCK)
    blocks = min(CHUNK_WORK // (steps * lanes * BLOCK) + 1, blocks)
    return -(-blocks // devices) * devices * BLOCK


def _run(
    work: Work,
    pieces: Sequence[tuple[int, int]],
    padded: int,
    devices: Sequence[Any] | None,
    executor: Executor | None,
) -> Iterator[list[Summary]]:
    if executor is None:
        run = compiled(work, padded, devices)
        for first, count in pieces:
            yield summaries(work, first, count, run)
        return
    waiting: set[Future[list[Summary]]] = set()
    queue = iter(pieces)
    # As many in flight as keeps workers busy, not all at once.
    for piece in queue:
        waiting.add(executor.submit(_one, work, *piece, padded))
        if len(waiting) >= 64:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    for future in waiting:
        yield future.result()


def _one(work: Work, first: int, count: int, padded: int) -> list[Summary]:
    """Work out one chunk in a worker."""
    return summaries(work, first, count, compiled(work, padded, None))


def _unit(low: Lowered) -> float:
    """Joules of one in the summaries of energies: 2^-46 of a bound of all of them."""
    books, amounts = low.books, low.amounts
    most = {source.name: source.most for source in books.shared}

    def largest(key: Sequence[str]) -> float:
        return math.prod(most[name] for name in key)

    pace = largest(books.paces)
    held = sum(abs(w) * largest(key) for key, w in books.base.items()) * low.longest
    gains = [largest(k) for k in (*amounts.charge_keys, *amounts.energy_keys)]
    gains += [largest(key) for key, _ in amounts.constants]
    gain = max(gains, default=1.0)
    size = (held + amounts.most_charge * gain) * pace + amounts.most_energy * gain
    size += sum(runs * most[name] for name, runs in books.shifts.items())
    return 2.0 ** math.ceil(math.log2(size / (1 << 46))) if size > 0.0 else 1.0


def _constant(plan: Plan) -> bool:
    """Whether nothing in a plan is random."""
    if plan.draws.factors or plan.account.shared:
        return False
    laws = [law for e in plan.elements for law in (e.time, e.dynamic_energy)]
    return all(isinstance(law, Constant) for law in laws)


def _laws(
    total: Sequence[Summary], tick: float, unit: float, level: float, *, sure: bool
) -> tuple[Sampled, Sampled, Sampled, Sampled]:
    units = (tick, unit, unit, unit)
    time, energy, static, dynamic = (
        Sampled(summary, one, level, sure)
        for summary, one in zip(total, units, strict=True)
    )
    return time, energy, static, dynamic


def _width(laws: Sequence[Sampled]) -> float:
    """Relative width of the intervals of the 0.99 quantiles of time and energy."""
    worst = 0.0
    for law in laws[:2]:
        try:
            q = law.quantile(0.99)
        except ToleranceError:
            return math.inf
        if q.value != 0.0:
            worst = max(worst, (q.upper - q.lower) / abs(q.value))
    return worst


class _Silent:
    """A progress bar that shows nothing."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, _: int) -> None:
        """Count."""


def _bar(shown: bool, total: int | None) -> Any:
    if not shown:
        return _Silent()
    try:
        from tqdm import tqdm
    except ImportError:
        raise InputError(
            "progress: needs the package tqdm, which is not installed"
        ) from None
    return tqdm(total=total, unit=" samples", unit_scale=True)
