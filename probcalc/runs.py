"""Measured runs of one element, and checks of what an element is given."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Constant, Distribution, Empirical, as_samples
from probcalc.errors import InputError
from probcalc.readonly import reduced

__all__ = [
    "Runs",
    "most",
    "name_runs",
    "not_negative_law",
    "not_negative_runs",
    "paired",
    "watts",
    "whole",
]

FloatArray = npt.NDArray[np.float64]

# A law such as a normal reaches below zero in principle; less than this of it there
# is below what its own parameters are known to.
NEGLIGIBLE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Measured runs, time and energy together as they occurred.

    Attributes
    ----------
    time, energy, dynamic_energy : FloatArray, shape (runs,)
        In s and J; ``dynamic_energy`` is ``energy - static_power * time``.
    blocks : tuple or None
        Label of the block (fresh process) of each run.
    """

    time: FloatArray
    energy: FloatArray
    dynamic_energy: FloatArray
    blocks: tuple[Hashable, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    def __len__(self) -> int:
        """Return the number of runs."""
        return self.time.size

    @property
    def coupled(self) -> bool:
        """Whether T and d both vary, so that their joint law matters."""
        return bool(np.ptp(self.time) > 0.0 and np.ptp(self.dynamic_energy) > 0.0)


def not_negative_runs(values: FloatArray, where: str, unit: str) -> None:
    """Refuse negative values, naming their runs."""
    negative = np.flatnonzero(values < 0.0)
    if negative.size:
        raise InputError(
            f"{where} is negative in {name_runs(negative, values, unit)} of "
            f"{values.size}, expected >= 0"
        )


def name_runs(runs: npt.NDArray[np.intp], values: FloatArray, unit: str) -> str:
    """Name the first runs of a list with their values."""
    shown = ", ".join(f"run {i} ({values[i]:.6g} {unit})" for i in runs[:3])
    more = f" and {runs.size - 3} more" if runs.size > 3 else ""
    return shown + more


def paired(
    time: Any, energy: Any, blocks: Any, nan: str, where: str
) -> tuple[FloatArray, FloatArray, tuple[Hashable, ...] | None]:
    """Check the runs of an element; with ``nan="omit"`` whole runs are left out."""
    sizes = [np.shape(values) for values in (time, energy)]
    if len(sizes[0]) == len(sizes[1]) == 1 and sizes[0] != sizes[1]:
        raise InputError(
            f"{where}: {sizes[0][0]} times and {sizes[1][0]} energies, expected one "
            "of each for every run"
        )
    labels = None if blocks is None else tuple(blocks)
    if labels is not None and len(labels) != sizes[0][0]:
        raise InputError(
            f"{where}: {len(labels)} block labels for {sizes[0][0]} runs, expected "
            "one for each"
        )
    if nan == "omit":
        try:
            kept = ~(
                np.isnan(np.asarray(time, float)) | np.isnan(np.asarray(energy, float))
            )
        except (TypeError, ValueError):
            kept = np.ones(sizes[0], dtype=bool)  # as_samples says what is wrong
        else:
            time, energy = np.asarray(time)[kept], np.asarray(energy)[kept]
        if labels is not None:
            labels = tuple(b for b, keep in zip(labels, kept, strict=True) if keep)
    elif nan != "raise":
        raise InputError(f"{where}: nan is {nan!r}, expected 'raise' or 'omit'")
    times = as_samples(time, where=f"{where}, time")
    energies = as_samples(energy, where=f"{where}, energy")
    return times, energies, labels


def not_negative_law(law: Distribution, where: str, unit: str) -> None:
    """Refuse a law with mass below zero, naming what is negative."""
    if isinstance(law, Constant) and law.value < 0.0:
        raise InputError(f"{where} is {law.value:g} {unit}, expected >= 0")
    if isinstance(law, Empirical):
        not_negative_runs(law.samples, where, unit)
    lowest = float(law.support()[0])
    if math.isnan(lowest):
        raise InputError(f"{where}: the support of its law starts at NaN")
    if lowest < 0.0:
        below = float(law.cdf(-math.ulp(0.0)))
        if not below <= NEGLIGIBLE:
            raise InputError(
                f"{where} is negative with probability {below:.2g}, expected >= 0; "
                "cut the law with scipy.stats.truncate(law, lb=0) or take another"
            )


def watts(value: Any, where: str) -> float:
    """Return a static power in W, checked."""
    bad = isinstance(value, bool | str)
    try:
        power = math.nan if bad else float(value)
    except (TypeError, ValueError):
        power = math.nan
    if not (math.isfinite(power) and power >= 0.0):
        raise InputError(
            f"{where}: static power is {value!r}, expected a number of watts >= 0"
        )
    return power + 0.0


def whole(n: object, what: str) -> int:
    """Return a whole number of executions, at least 1.

    Raises
    ------
    InputError
        Anything else, named by `what`.
    """
    try:
        count = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1 or isinstance(n, bool):
        raise InputError(f"{what}: expected a whole number >= 1, got {n!r}")
    return count


def most(value: Any, law: Distribution | FloatArray, where: str) -> float:
    """Return a stated largest value, checked against what occurs."""
    try:
        bound = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        bound = math.nan
    highest = np.max(law) if isinstance(law, np.ndarray) else law.support()[1]
    if math.isnan(bound) or not bound >= float(highest):
        if bound == math.inf:
            return bound
        raise InputError(
            f"{where} is {value!r}, expected a number that no run exceeds "
            f"(the largest is {float(highest):g})"
        )
    return bound
