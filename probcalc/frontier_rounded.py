"""Plans from their relaxation: rounding, repair and local search."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.frontier_problem import Problem
from probcalc.frontier_relaxed import Snapshot

__all__ = ["blended", "rounded", "trials_of"]

IntArray = npt.NDArray[np.int64]

#: Passes of the local search, and moves tried in each pass.
ROUNDS = 6
TRIALS = 200
#: Nodes up to which so many are tried; more nodes get fewer.
_NODES = 256


def rounded(
    problem: Problem, snapshot: Snapshot, deadline: float, *, trials: int = TRIALS
) -> IntArray:
    """Points by rank that keep a deadline in s, near an optimum of the relaxation.

    Parameters
    ----------
    deadline : float
        At least the fastest makespan.
    trials : int
        Moves tried in each pass of the local search; 0 for none.
    """
    from probcalc.kernels import assignment

    filled: Any = assignment.filled
    improved: Any = assignment.improved
    low, near = _roundings(problem, snapshot)
    arrays: Any = (
        *problem.graph, problem.first, problem.time, problem.cost, snapshot.worth,
        deadline,
    )  # fmt: skip
    best = problem.fastest()
    energy = problem.evaluate(best)[1]
    for start in (low, near, problem.fastest()):
        for largest in (False, True):
            pick, kept = filled(*arrays, largest, start)
            found = problem.evaluate(pick)[1]
            if kept and found < energy:
                best, energy = pick, found
        if start is near and energy < np.inf and kept:
            break  # the fastest is a last resort
    if trials:
        best = improved(*arrays, best, ROUNDS, trials)
    return best


def trials_of(problem: Problem, trials: int | None) -> int:
    """Moves tried in each pass where none are stated: fewer in larger plans."""
    if trials is not None:
        return trials
    return max(TRIALS * _NODES // max(problem.order.size, _NODES), 20)


def blended(
    problem: Problem,
    snapshot: Snapshot,
    deadline: float,
    fast: IntArray,
    slow: IntArray,
    *,
    trials: int,
) -> IntArray:
    """Points by rank that keep a deadline: one plan for a part, another for the rest.

    Plans at whose makespans points of all devices happen to agree are closest to their
    bounds. Between two of them, running one and then the other loses little more.

    Parameters
    ----------
    fast, slow : ndarray of int64, shape (nodes,)
        Points by rank of a plan that keeps the deadline and of one that does not.
    """
    from probcalc.kernels import assignment

    filled: Any = assignment.filled
    improved: Any = assignment.improved
    arrays: Any = (
        *problem.graph, problem.first, problem.time, problem.cost, snapshot.worth,
        deadline,
    )  # fmt: skip
    best, energy = fast, problem.evaluate(fast)[1]
    n = fast.size
    for early, late in ((fast, slow), (slow, fast)):
        # how many of the first nodes take the early plan, as slow as still allowed
        low, high = (0, n) if early is slow else (n, 0)
        while abs(high - low) > 1:
            middle = (low + high) // 2
            mix = np.concatenate([early[:middle], late[middle:]])
            if problem.makespan(mix) <= deadline:
                low = middle
            else:
                high = middle
        mix = np.concatenate([early[:low], late[low:]])
        mix, kept = filled(*arrays, False, mix)
        found = problem.evaluate(mix)[1]
        if kept and found < energy:
            best, energy = mix, found
    if trials and best is not fast:
        best = improved(*arrays, best, ROUNDS, trials)
    return best


def _roundings(problem: Problem, snapshot: Snapshot) -> tuple[IntArray, IntArray]:
    """Points no slower than the times of the relaxation, and those nearest to them."""
    first, sizes = problem.first[:-1], np.diff(problem.first)
    within = problem.time <= np.repeat(snapshot.time, sizes)
    low = first + np.maximum(np.add.reduceat(within, first) - 1, 0)
    up = np.minimum(low + 1, problem.first[1:] - 1)
    middle = 0.5 * (problem.time[low] + problem.time[up])
    return low, np.where(snapshot.time > middle, up, low)
