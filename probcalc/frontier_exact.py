"""Plans small enough to try every choice."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from probcalc.frontier_problem import Problem

__all__ = ["MOST_CHOICES", "choices", "unbeaten"]

IntArray = npt.NDArray[np.int64]

#: Choices up to which all are tried.
MOST_CHOICES = 50_000
_CHUNK = 4096


def choices(problem: Problem) -> float:
    """Return the number of choices of all units together."""
    return math.prod(map(float, _options(problem)))


def unbeaten(problem: Problem) -> tuple[IntArray, ...]:
    """Every choice that no other one beats in (time, energy), by rising time.

    Exact: all choices are tried, to the rounding of sums.
    """
    from probcalc.kernels.assignment import makespans
    from probcalc.kernels.pareto import reduced

    picks = np.empty((0, problem.order.size), dtype=np.int64)
    time, energy = np.empty(0), np.empty(0)
    for block in _blocks(problem):
        spans = makespans(*problem.graph, problem.time[block])
        joules = problem.base * spans + problem.cost[block].sum(axis=1)
        time, energy = np.append(time, spans), np.append(energy, joules)
        picks = np.concatenate([picks, block])
        kept = reduced(time, energy)
        time, energy, picks = time[kept], energy[kept], picks[kept]
    return tuple(picks)


def _options(problem: Problem) -> list[int]:
    sizes = np.diff(problem.first)
    if not problem.grouped:
        return sizes.tolist()
    units, at = np.unique(problem.unit, return_index=True)
    return sizes[at[np.argsort(units)]].tolist()


def _blocks(problem: Problem) -> Iterator[IntArray]:
    options = _options(problem)
    unit = problem.unit
    if not problem.grouped:
        unit = np.arange(problem.order.size)
    total = math.prod(options)
    for start in range(0, total, _CHUNK):
        number = np.arange(start, min(start + _CHUNK, total))
        picks = np.array(np.unravel_index(number, options)).T
        yield problem.first[:-1] + picks[:, unit]
