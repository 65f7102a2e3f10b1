"""Which nodes vary together: estimated from measured rows, judged on held-out steps.

No grouping is right for every job. `variance_shares` splits the variation of measured
times among nested groups (a random-effects model); `fit_groups` predicts the measured
steps of one half of a record from the other half under each candidate grouping, and
says when a record is too short or too unsteady to choose by.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError

__all__ = ["Record", "Share", "steady", "variance_shares"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Resamples of steps for an interval.
RESAMPLES = 400
#: A record is called unsteady when its halves differ at this level.
UNSTEADY = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Measured times of operations with what is known of each.

    Parameters
    ----------
    times : array_like, shape (rows,)
        In s, positive.
    labels : mapping of str to sequence, each of length rows
        ``"step"`` among them.

    Raises
    ------
    InputError
        Times that are not positive and finite; labels of another length; no steps.
    """

    times: FloatArray
    labels: Mapping[str, Sequence[Hashable]]
    steps: tuple[Hashable, ...] = field(init=False)
    step_of: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        times = np.array(self.times, dtype=float)
        wrong = np.flatnonzero(~(np.isfinite(times) & (times > 0.0)))
        if times.ndim != 1 or times.size == 0:
            raise InputError(f"record: times of shape {times.shape}, expected a list")
        if wrong.size:
            raise InputError(
                f"record: time of row {wrong[0]} is {times[wrong[0]]:g} s, expected > 0"
            )
        for name, column in self.labels.items():
            if len(column) != times.size:
                raise InputError(
                    f"record: {len(column)} labels {name!r} for {times.size} rows"
                )
        if "step" not in self.labels:
            raise InputError("record: no label 'step'")
        known: dict[Hashable, int] = {}
        numbers = [known.setdefault(s, len(known)) for s in self.labels["step"]]
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "steps", tuple(known))
        object.__setattr__(self, "step_of", np.array(numbers, dtype=np.int64))

    def numbered(self, names: Sequence[str]) -> IntArray:
        """Number the groups of rows that agree in some labels, as they appear.

        Raises
        ------
        InputError
            A label that the record does not have.
        """
        for name in names:
            if name not in self.labels:
                known = ", ".join(map(repr, self.labels))
                raise InputError(f"record: no label {name!r}, it has {known}")
        if not names:
            return np.zeros(self.times.size, dtype=np.int64)
        found: dict[tuple[Hashable, ...], int] = {}
        columns = zip(*(self.labels[name] for name in names), strict=True)
        return np.array(
            [found.setdefault(key, len(found)) for key in columns], dtype=np.int64
        )


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the variance of log times that one level of grouping carries.

    Attributes
    ----------
    level : str
        Labels joined, or ``"operation"`` for what is left.
    variance : float
        Component, an unbiased estimate that can come out below zero.
    share, lower, upper : float
        Of the sum of all components, negative ones taken for zero; the interval is a
        95 % bootstrap over steps.
    """

    level: str
    variance: float
    share: float
    lower: float
    upper: float


def variance_shares(
    record: Record,
    levels: Sequence[str] = ("step", "rank", "microbatch"),
    *,
    pool: Sequence[str] = ("rank", "stage", "kind"),
    seed: int = 0,
) -> tuple[Share, ...]:
    """Split the variance of log times among nested groups (random effects).

    Each row is log time less its pool's mean, and levels nest: a step, a rank in it, a
    microbatch in that. Components follow from the mean squares of a balanced nested
    design; every group must hold equally many rows.

    Parameters
    ----------
    record : Record
    levels : sequence of str
        Labels from the outermost in, ``"step"`` first.
    pool : sequence of str
        Rows that agree in these have one mean.
    seed : int
        Of the bootstrap.

    Raises
    ------
    InputError
        Unknown labels; groups of unequal size; fewer than three steps.
    """
    if not levels or levels[0] != "step":
        raise InputError(f"levels are {levels!r}, expected 'step' first")
    if len(record.steps) < 3:
        raise InputError(f"{len(record.steps)} steps, expected at least 3")
    y = np.log(record.times)
    pools = record.numbered(pool)
    y = y - (np.bincount(pools, weights=y) / np.bincount(pools))[pools]
    groups = [record.numbered(levels[: k + 1]) for k in range(len(levels))]
    sizes = [np.bincount(g) for g in groups]
    for level, size in zip(levels, sizes, strict=True):
        if np.unique(size).size > 1:
            raise InputError(
                f"variance_shares: groups of {level!r} hold {size.min()} to "
                f"{size.max()} rows, expected equally many"
            )
    tree = _tree(y, groups)
    components = _components(tree)
    total = _shares(components)
    rng = np.random.default_rng(seed)
    steps = len(record.steps)
    drawn = np.array(
        [
            _shares(_components([part[chosen] for part in tree]))
            for chosen in rng.integers(0, steps, (RESAMPLES, steps))
        ]
    )
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    names = ["/".join(levels[: k + 1]) for k in range(len(levels))] + ["operation"]
    return tuple(
        Share(name, float(v), float(s), float(a), float(b))
        for name, v, s, a, b in zip(names, components, total, low, high, strict=True)
    )


def _tree(y: FloatArray, groups: list[IntArray]) -> list[FloatArray]:
    """Rows as a nested array (steps, ...), and the means at every level."""
    order = np.lexsort(tuple(reversed(groups)))
    shape = []
    inside = y.size
    for group in groups:
        count = inside // int(np.bincount(group)[0])
        shape.append(count)
        inside = int(np.bincount(group)[0])
    rows = y[order].reshape(*shape, inside)
    found = [rows]
    while found[-1].ndim > 1:
        found.append(found[-1].mean(axis=-1))
    return found


def _components(tree: list[FloatArray]) -> FloatArray:
    """Variance components, outermost first, the rows' own last."""
    squares: list[float] = []
    repeats: list[int] = []
    below = 1
    for rows, means in itertools.pairwise(tree):
        inner = rows.shape[-1]
        gap = rows - means[..., None]
        degrees = max(means.size * (inner - 1), 1)
        squares.append(below * float((gap**2).sum()) / degrees)
        repeats.append(below)
        below *= inner
    steps = tree[-1]
    squares.append(below * float(steps.var(ddof=1)))
    repeats.append(below)
    # Each mean square holds its own component times its rows, and the one below it.
    found = [squares[0]]
    for k in range(1, len(squares)):
        found.append((squares[k] - squares[k - 1]) / repeats[k])
    return np.array(found[::-1])


def _shares(components: FloatArray) -> FloatArray:
    positive = np.maximum(components, 0.0)
    total = float(positive.sum())
    return positive / total if total > 0.0 else positive


def steady(observed: FloatArray) -> tuple[bool, str]:
    """Whether the two halves of measured step times could be of one law.

    Spread by the ratio of variances (F), level by Welch's test, both at 0.001. A few
    slow steps in one half make a record unsteady too: no law of the other half holds
    them.

    Returns
    -------
    steady : bool
    reason : str
        What was found.

    Raises
    ------
    InputError
        Fewer than eight steps.
    """
    from scipy import stats

    if observed.size < 8:
        raise InputError(f"{observed.size} steps, expected at least 8")
    half = observed.size // 2
    one, two = observed[:half], observed[half:]
    small, large = sorted(((one.var(ddof=1), one.size), (two.var(ddof=1), two.size)))
    if large[0] == 0.0:  # no spread in either: alike, or not
        level = spread = float(one[0] == two[0])
    else:
        ratio = large[0] / small[0] if small[0] > 0.0 else np.inf
        spread = min(2.0 * float(stats.f(large[1] - 1, small[1] - 1).sf(ratio)), 1.0)
        welch: Any = stats.ttest_ind(one, two, equal_var=False)
        level = float(welch.pvalue)
    shown = (
        f"halves of {one.size} and {two.size} steps: mean {one.mean():.4g} and "
        f"{two.mean():.4g} s (p {level:.2g}), sd {one.std(ddof=1):.3g} and "
        f"{two.std(ddof=1):.3g} s (p {spread:.2g})"
    )
    return min(spread, level) >= UNSTEADY, shown
