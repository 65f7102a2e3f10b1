"""Plans whose nodes choose in groups: relaxation by HiGHS and local search.

All nodes of a group run at one device point, so that slack of one node cannot be used
without the others. The relaxation mixes the points of a group, alike for all its nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import ToleranceError
from probcalc.frontier_problem import Problem

__all__ = ["Groups", "descended", "fastest_of", "relaxed"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The options of groups, as sums over their nodes.

    Attributes
    ----------
    problem : Problem
    sizes : ndarray of int64, shape (groups,)
        Options of each group.
    offset : ndarray of int64, shape (groups + 1,)
    cost : ndarray, shape (options,)
        Sum of x over the nodes of the group, in J.
    column : ndarray of int64, shape (points,)
        Option that each point of `Problem.time` belongs to.
    """

    problem: Problem
    sizes: IntArray
    offset: IntArray
    cost: FloatArray
    column: IntArray

    @classmethod
    def of(cls, problem: Problem) -> Groups:
        """Sum up what each option of each group costs."""
        sizes = np.zeros(int(problem.unit.max()) + 1, dtype=np.int64)
        sizes[problem.unit] = np.diff(problem.first)
        offset = np.concatenate([[0], np.cumsum(sizes)])
        counts = np.diff(problem.first)
        within = np.arange(problem.time.size) - np.repeat(problem.first[:-1], counts)
        column = offset[np.repeat(problem.unit, counts)] + within
        cost = np.bincount(column, weights=problem.cost, minlength=int(offset[-1]))
        return cls(problem, sizes, offset, cost.astype(np.float64), column)

    def picks(self, options: IntArray) -> IntArray:
        """Points by rank for options, shape (..., groups) to (..., nodes)."""
        return self.problem.first[:-1] + options[..., self.problem.unit]

    def values(self, options: IntArray) -> tuple[FloatArray, FloatArray]:
        """Times in s and energies in J of rows of options, shape (rows, groups)."""
        from probcalc.kernels.assignment import makespans

        p = self.problem
        spans = makespans(*p.graph, p.time[self.picks(options)])
        costs = self.cost[self.offset[:-1] + options].sum(axis=1)
        return spans, p.base * spans + costs


def relaxed(groups: Groups, deadline: float) -> tuple[float, FloatArray]:
    """Lower bound of the energy within a deadline, and shares of all options.

    Parameters
    ----------
    deadline : float
        In s; infinite for none.

    Returns
    -------
    bound : float
        In J, by weak duality, so that it holds whatever the solver's tolerance.
    shares : ndarray, shape (options,)

    Raises
    ------
    ToleranceError
        HiGHS finds no optimum.
    """
    from scipy.optimize import linprog

    p = groups.problem
    n, m = p.order.size, groups.cost.size
    matrix, right = _precedence(groups)
    sums = _sums(groups)
    upper = np.full(n + m + 1, np.inf)
    upper[-1] = deadline
    found = linprog(
        np.concatenate([np.zeros(n), groups.cost, [p.base]]),
        A_ub=matrix, b_ub=right, A_eq=sums, b_eq=np.ones(groups.sizes.size),
        bounds=np.stack([np.zeros(n + m + 1), upper], axis=1), method="highs-ds",
    )  # fmt: skip
    if found.status != 0:
        raise ToleranceError(
            f"frontier: HiGHS found no optimum of the relaxation: {found.message}"
        )
    flow = np.maximum(-found.ineqlin.marginals, 0.0)
    bound = _dual_bound(groups, matrix, right, flow, deadline)
    return bound, found.x[n : n + m]


def _precedence(groups: Groups) -> tuple[Any, FloatArray]:
    """Rows ``start + mixture of times + lag <= start or makespan``, and releases."""
    from scipy.sparse import csr_array

    p = groups.problem
    n = p.order.size
    target = np.repeat(np.arange(n), np.diff(p.graph.before))
    arcs, last = target.size, n + groups.cost.size
    rows = [np.arange(arcs), np.arange(arcs), arcs + np.arange(n), arcs + np.arange(n)]
    columns = [p.graph.source, target, np.arange(n), np.full(n, last)]
    values = [np.ones(arcs), -np.ones(arcs), np.ones(n), -np.ones(n)]
    before = np.concatenate([p.graph.source, np.arange(n)])
    counts = np.diff(p.first)[before]
    rows.append(np.repeat(np.arange(arcs + n), counts))
    points = _ranges(p.first[:-1][before], counts)
    columns.append(n + groups.column[points])
    values.append(p.time[points])
    rows.append(arcs + n + np.arange(n))
    columns.append(np.arange(n))
    values.append(-np.ones(n))
    matrix = csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(arcs + 2 * n, last + 1),
    )
    return matrix, np.concatenate([-p.graph.lag, np.zeros(n), -p.graph.release])


def _ranges(starts: IntArray, counts: IntArray) -> IntArray:
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts)


def _sums(groups: Groups) -> Any:
    from scipy.sparse import csr_array

    n, m = groups.problem.order.size, groups.cost.size
    rows = np.repeat(np.arange(groups.sizes.size), groups.sizes)
    return csr_array(
        (np.ones(m), (rows, n + np.arange(m))), shape=(groups.sizes.size, n + m + 1)
    )


def _dual_bound(
    groups: Groups, matrix: Any, right: FloatArray, flow: FloatArray, deadline: float
) -> float:
    """Bound of the energy by weak duality, for any flow that is not negative."""
    # min c z over rows z <= right is at least min over z of (c + flow rows) z - flow
    # right. Shares of a group sum to 1, so its part is its least option. Starts and
    # makespan lie between 0 and the longest time any choice can take: what the flow
    # fails to conserve costs no more than that.
    p = groups.problem
    n, m = p.order.size, groups.cost.size
    reduced = matrix.T @ flow
    reduced[n : n + m] += groups.cost
    reduced[-1] += p.base
    slowest = np.maximum.reduceat(p.time, p.first[:-1])
    longest = math.fsum(
        [*slowest.tolist(), *p.graph.lag.tolist(), *p.graph.release.tolist()]
    )
    most = min(deadline, longest)
    options = np.minimum.reduceat(reduced[n : n + m], groups.offset[:-1])
    free = np.minimum(reduced[np.r_[0:n, n + m]] * most, 0.0)
    terms = [*options.tolist(), *free.tolist(), -float(flow @ right)]
    # Lower by more than sums and products can have rounded up.
    sizes = abs(matrix).T @ flow
    size = float(sizes[n : n + m].max() + np.abs(groups.cost).max()) * options.size
    size += float(sizes[:n].sum() + sizes[-1] + p.base) * most
    size += float(flow @ np.abs(right))
    return math.fsum(terms) - 2.0**-50 * size


def fastest_of(groups: Groups) -> IntArray:
    """Options with the shortest makespan that changes of one or two groups find."""
    start = np.zeros(groups.sizes.size, dtype=np.int64)
    for g in range(start.size):
        times = np.bincount(
            groups.column, weights=groups.problem.time, minlength=groups.cost.size
        )
        mine = times[groups.offset[g] : groups.offset[g + 1]]
        start[g] = int(np.argmin(mine))
    return descended(groups, start, None)


def descended(groups: Groups, start: IntArray, deadline: float | None) -> IntArray:
    """Local search over options from a start that keeps the deadline.

    Parameters
    ----------
    start : ndarray of int64, shape (groups,)
    deadline : float or None
        In s; None looks for the shortest makespan instead of the least energy.
    """
    best = start.copy()
    value = _value(groups, best[None], deadline)[0]
    while True:
        improved = False
        for rows in (_single(groups, best), _double(groups, best)):
            if not rows.size:
                continue
            values = _value(groups, rows, deadline)
            k = int(np.argmin(values))
            if values[k] < value:
                best, value, improved = rows[k], values[k], True
                break
        if not improved:
            return best


def _value(groups: Groups, rows: IntArray, deadline: float | None) -> FloatArray:
    spans, joules = groups.values(rows)
    if deadline is None:
        return spans
    return np.where(spans <= deadline, joules, np.inf)


def _single(groups: Groups, best: IntArray) -> IntArray:
    """Every option of every group, one group changed at a time."""
    group = np.repeat(np.arange(best.size), groups.sizes)
    rows = np.tile(best, (group.size, 1))
    option = np.arange(group.size) - groups.offset[group]
    rows[np.arange(group.size), group] = option
    return rows[option != best[group]]


def _double(groups: Groups, best: IntArray) -> IntArray:
    """Two groups changed by up to two options each, up to a number of pairs."""
    steps = np.array([-2, -1, 1, 2])
    moves = [
        (g, o)
        for g in range(best.size)
        for o in (best[g] + steps).tolist()
        if 0 <= o < groups.sizes[g]
    ]
    if len(moves) > 400:
        moves = moves[:: len(moves) // 400 + 1]
    a, b = np.triu_indices(len(moves), 1)
    table = np.array(moves, dtype=np.int64).reshape(-1, 2)
    apart = table[a, 0] != table[b, 0]
    a, b = a[apart], b[apart]
    rows = np.tile(best, (a.size, 1))
    index = np.arange(a.size)
    rows[index, table[a, 0]] = table[a, 1]
    rows[index, table[b, 0]] = table[b, 1]
    return rows
