"""Measured values in blocks: the block, a fresh process, is the unit that counts.

Runs of one process share what its start decided (memory layout, clocks, temperature):
more runs in it do not replace more processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from probcalc.distribution import as_samples
from probcalc.errors import InputError

__all__ = [
    "Blocked",
    "bootstrap_interval",
    "design_effect",
    "jackknife",
    "mean_interval",
    "welch",
    "welch_error",
]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Blocked:
    """Values by block.

    Attributes
    ----------
    values : FloatArray, shape (runs,)
    block : ndarray of int, shape (runs,)
        Number of the block of each run, from 0.
    name : str
        What they are and of what, for errors and tables.
    labels : tuple of hashable
        Of the blocks, in the order of their numbers; empty where every run is one.
    """

    values: FloatArray
    block: npt.NDArray[np.int64]
    name: str = "values"
    labels: tuple[Hashable, ...] = ()

    @classmethod
    def of(
        cls,
        values: Any,
        blocks: Iterable[Hashable] | None = None,
        *,
        name: str = "values",
    ) -> Self:
        """Check values and the block labels of their runs.

        Parameters
        ----------
        values : array_like, shape (runs,), or an element's `Runs` field
        blocks : iterable, optional
            Label for each run. Without it every run counts as a block of its own,
            which claims that all runs are independent.

        Raises
        ------
        InputError
            No values, values that are not finite, labels of another number.
        """
        array = as_samples(values, where=name)
        if blocks is None:
            return cls(array, np.arange(array.size), name)
        labels = list(blocks)
        if len(labels) != array.size:
            raise InputError(
                f"{name}: {len(labels)} block labels for {array.size} runs, expected "
                "one for each"
            )
        known: dict[Hashable, int] = {}
        numbers = [known.setdefault(label, len(known)) for label in labels]
        return cls(array, np.array(numbers, dtype=np.int64), name, tuple(known))

    def __len__(self) -> int:
        """Return the number of runs."""
        return self.values.size

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.block.max()) + 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Runs in each block."""
        return np.bincount(self.block)

    @property
    def means(self) -> FloatArray:
        """Mean of each block."""
        return np.bincount(self.block, self.values) / self.sizes

    def with_values(self, values: FloatArray, name: str | None = None) -> Blocked:
        """Return other values of the same runs."""
        named = self.name if name is None else name
        return Blocked(values, self.block, named, self.labels)

    def resampled(self, rng: np.random.Generator) -> FloatArray:
        """Draw blocks with replacement, all runs of each (cluster bootstrap)."""
        order = np.argsort(self.block, kind="stable")
        ends = np.cumsum(self.sizes)
        starts = ends - self.sizes
        drawn = rng.integers(0, self.blocks, self.blocks)
        return np.concatenate([self.values[order[starts[b] : ends[b]]] for b in drawn])


def mean_interval(data: Blocked, level: float) -> tuple[float, float, float]:
    """Mean of block means with one-sided bounds at `level` each, by Student's t.

    Blocks are independent. With one block both sides are open.
    """
    means = data.means
    centre = float(means.mean())
    if means.size < 2:
        return centre, -math.inf, math.inf
    error = float(means.std(ddof=1)) / math.sqrt(means.size)
    half = _t(level, means.size - 1) * error
    return centre, centre - half, centre + half


def welch(a: Blocked, b: Blocked, level: float) -> tuple[float, float, float]:
    """Difference of means, b less a, with one-sided bounds at `level` each (Welch).

    Returns
    -------
    value, lower, upper : float
        Open sides are infinite: fewer than two blocks on a side.
    """
    value, error, freedom = welch_error(a.means, b.means)
    if error == 0.0 or math.isinf(error):  # nothing varies, or nothing is known
        return value, value - error, value + error
    half = _t(level, freedom) * error
    return value, value - half, value + half


def welch_error(before: FloatArray, after: FloatArray) -> tuple[float, float, float]:
    """Difference of means, its standard error and degrees of freedom.

    Welch and Satterthwaite; an infinite error with fewer than two values on a side.
    """
    value = float(after.mean() - before.mean())
    if before.size < 2 or after.size < 2:
        return value, math.inf, math.nan
    va, vb = before.var(ddof=1) / before.size, after.var(ddof=1) / after.size
    total = va + vb
    if total == 0.0:
        return value, 0.0, math.nan
    freedom = total**2 / (va**2 / (before.size - 1) + vb**2 / (after.size - 1))
    return value, math.sqrt(total), float(freedom)


def bootstrap_interval(
    data: Blocked,
    statistic: Callable[[FloatArray], float],
    *,
    level: float = 0.95,
    resamples: int = 999,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Statistic with its percentile interval, whole blocks drawn again.

    Two-sided; for statistics that are smooth in the runs. For quantiles use
    `probcalc.validation.quantiles.quantile_interval`: their bootstrap does not cover.

    Raises
    ------
    InputError
        Fewer than 5 blocks; fewer resamples than the level asks for.
    """
    if data.blocks < 5:
        raise InputError(f"{data.name}: {data.blocks} blocks, expected at least 5")
    if resamples < 10.0 / (1.0 - level):
        raise InputError(f"bootstrap: {resamples} resamples are too few at {level:g}")
    rng = np.random.default_rng(seed)
    found = [statistic(data.resampled(rng)) for _ in range(resamples)]
    low, high = np.quantile(found, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return float(statistic(data.values)), float(low), float(high)


def jackknife(
    data: Blocked, statistic: Callable[[FloatArray], float]
) -> tuple[float, float]:
    """Statistic and its standard error, leaving out one block at a time.

    Raises
    ------
    InputError
        Fewer than 2 blocks.
    """
    b = data.blocks
    if b < 2:
        raise InputError(f"{data.name}: {b} block, expected at least 2")
    left = np.array([statistic(data.values[data.block != i]) for i in range(b)])
    error = math.sqrt((b - 1.0) / b * float(((left - left.mean()) ** 2).sum()))
    return float(statistic(data.values)), error


def _t(level: float, freedom: float) -> float:
    from scipy import special

    return float(special.stdtrit(freedom, level))


def design_effect(data: Blocked, indicator: npt.NDArray[np.bool_]) -> float:
    """How much larger the variance of a share is than for independent runs, at least 1.

    Parameters
    ----------
    indicator : ndarray of bool, shape (runs,)
        The runs that are counted.

    Notes
    -----
    Ratio estimator over blocks; runs that all are blocks of their own have none.
    """
    n, b = len(data), data.blocks
    if b == n or b < 2:
        return 1.0
    share = float(indicator.mean())
    plain = share * (1.0 - share) / n
    if plain == 0.0:
        return 1.0
    excess = np.bincount(data.block, indicator - share)
    found = b / (b - 1.0) * float(excess @ excess) / n**2
    return max(found / plain, 1.0)
