"""Which nodes decide the makespan, and when each one runs in one sample.

The criticality index of a node is the probability that it has no float: that delaying
it would delay the whole. Where several paths are longest, the nodes of all of them are
critical (ties count for every one).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.chunks import Work, compiled, program_of
from probcalc.distribution import Probability
from probcalc.errors import InputError
from probcalc.factors import rows_of, scaled
from probcalc.lowering import Lowered, lowered
from probcalc.montecarlo import Simulation
from probcalc.plan import Plan
from probcalc.runs import whole
from probcalc.sampled import binomial_interval

__all__ = [
    "Criticality",
    "Replay",
    "criticality",
    "median_sample",
    "replay",
    "replays",
]

FloatArray = npt.NDArray[np.float64]
TickArray = npt.NDArray[np.int32]

#: Vertices times samples that are held at a time.
HELD = 1 << 24
MOST_BLOCK = 64


@dataclass(frozen=True, slots=True, eq=False)
class Criticality:
    """How often each node was critical.

    Attributes
    ----------
    plan : Plan
    counts : ndarray of int64, shape (nodes,)
    samples, seed : int
    level : float
        Confidence of each interval on its own.
    """

    plan: Plan
    counts: npt.NDArray[np.int64]
    samples: int
    seed: int
    level: float = 0.95

    @property
    def index(self) -> FloatArray:
        """Criticality index of every node, shape (nodes,)."""
        return self.counts / self.samples

    def of(self, node: str) -> Probability:
        """Criticality index of a node with its exact binomial interval."""
        k, n = int(self.counts[self.plan.index(node)]), self.samples
        low, high = binomial_interval(k, k, n, self.level)
        return Probability(k / n, low, high, "confidence")


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """One sample of a plan, node by node.

    Attributes
    ----------
    plan : Plan
    sample, seed : int
    starts, finishes : ndarray, shape (nodes,)
        In s.
    makespan : float
        In s.
    """

    plan: Plan
    sample: int
    seed: int
    starts: FloatArray
    finishes: FloatArray
    makespan: float


def criticality(plan: Plan, *, samples: int = 1000, seed: int = 0) -> Criticality:
    """Estimate the criticality index of every node; independent but for draw groups.

    The samples are the first ones of `probcalc.montecarlo.simulate` with the same
    seed. Ties count for every node that is on some longest path.

    Raises
    ------
    InputError
        Samples or seed out of range, and as `simulate`.
    """
    from probcalc.kernels.graph import critical_counts, levels

    count = whole(samples, "criticality: samples")
    low = lowered(plan, energy=False)
    level = levels(low.vertices, low.sources, low.targets)
    order = np.argsort(-level[low.sources], kind="stable")
    counts = np.zeros(low.vertices, dtype=np.int64)
    size = max(1, min(HELD // low.vertices, MOST_BLOCK))
    for first in range(0, count, size):
        start, finish = _times(low, seed, first, size)
        kept = slice(0, min(size, count - first))
        counts += critical_counts(
            order,
            low.sources,
            low.targets,
            np.ascontiguousarray(start[:, kept]),
            np.ascontiguousarray(finish[:, kept]),
        )
    return Criticality(plan, counts[: len(plan)], count, seed)


def replay(plan: Plan, *, sample: int, seed: int = 0) -> Replay:
    """Draw one sample of a simulation again, with the times of every node.

    Parameters
    ----------
    plan : Plan
    sample : int
        From 0.
    seed : int
        That of the simulation.

    Raises
    ------
    InputError
        A sample below 0.
    """
    if isinstance(sample, bool) or not isinstance(sample, int | np.integer):
        raise InputError(f"replay: sample is {sample!r}, expected a whole number >= 0")
    if not 0 <= sample < 1 << 32:
        raise InputError(f"replay: sample is {sample!r}, expected 0 <= sample < 2^32")
    return next(replays(plan, samples=1, seed=seed, first=int(sample)))


def replays(
    plan: Plan, *, samples: int, seed: int = 0, first: int = 0
) -> Iterator[Replay]:
    """Draw samples of a simulation again one after the other, as `replay` does.

    Parameters
    ----------
    plan : Plan
    samples : int
        How many, from `first` on.
    seed, first : int
    """
    count = whole(samples, "replays: samples")
    low = lowered(plan, energy=False)
    nodes = slice(0, len(plan))
    size = max(1, min(HELD // low.vertices, MOST_BLOCK, count))
    for begin in range(first, first + count, size):
        start, finish = _times(low, seed, begin, size)
        numbers = np.arange(begin, begin + size, dtype=np.int64)
        pace = scaled(low.books.paces, low.books.draws(seed, numbers), size)
        for i in range(min(size, first + count - begin)):
            seconds = low.tick * float(pace[i])
            yield Replay(
                plan,
                begin + i,
                seed,
                start[nodes, i].astype(float) * seconds,
                finish[nodes, i].astype(float) * seconds,
                float(finish[:, i].max()) * seconds,
            )


def median_sample(simulation: Simulation) -> int:
    """Return the first sample whose makespan is nearest to the median.

    Looked for among the first 4,096 samples.
    """
    from probcalc.chunks import samples_of

    low = lowered(simulation.plan)
    count = min(simulation.samples, 4096)
    work = Work(low, 1.0, simulation.seed)
    run = compiled(work, -(-count // 256) * 256, None)
    ticks, _ = samples_of(work, 0, count, run)
    middle = float(np.quantile(ticks, 0.5, method="inverted_cdf"))
    return int(np.argmin(np.abs(ticks - middle)))


def _times(
    low: Lowered, seed: int, first: int, count: int
) -> tuple[TickArray, TickArray]:
    """Starts and finishes in ticks, shape (vertices, samples)."""
    import jax
    import jax.numpy as jnp

    from probcalc.kernels.levelscan import finishes

    shape, program = program_of(low, seed)
    samples = np.arange(first, first + count, dtype=np.int64)
    with jax.enable_x64(True):
        found: Any = finishes(shape)(
            program,
            jnp.asarray(samples.astype(np.uint32)),
            jnp.asarray(rows_of(low.factors, seed, samples)),
        )
        start, finish = (np.asarray(a).reshape(-1, count) for a in found)
    vertex = low.vertex.ravel()
    lane = np.empty(low.vertices, dtype=np.int64)
    lane[vertex[vertex >= 0]] = np.flatnonzero(vertex >= 0)
    return start[lane], finish[lane]
