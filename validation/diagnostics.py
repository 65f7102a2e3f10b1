"""Diagnostics of measured runs with ArviZ: a block is a chain, a run is a draw.

They say whether runs mix within and across processes. Intervals come from blocks
(`probcalc.validation.quantiles`), not from here: a process offset of a fifth of the
spread leaves R-hat near 1 while intervals from runs cover two thirds of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.validation.blocks import Blocked, design_effect

__all__ = ["Diagnosis", "array_of", "diagnosed"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """How good a set of runs is.

    Attributes
    ----------
    runs, blocks : int
    rhat : float
        Split R-hat, rank-normalised; NaN where it cannot be told.
    ess : mapping of str to float
        Effective runs, for the mean (bulk) and for quantiles .5, .9 and .99.
    mcse : mapping of str to float
        Standard error of mean and quantiles by draws, in the unit of the runs.
    autocorrelation : float
        Of neighbouring runs within blocks.
    effect : float
        Design effect: runs of a block count as so many fewer.
    warnings : tuple of str
    """

    runs: int
    blocks: int
    rhat: float
    ess: dict[str, float]
    mcse: dict[str, float]
    autocorrelation: float
    effect: float
    warnings: tuple[str, ...]


def array_of(data: Blocked) -> FloatArray:
    """Return runs as an array of chains and draws; longer blocks lose their last runs.

    Returns
    -------
    FloatArray, shape (blocks, runs of the shortest block)
    """
    shortest = int(data.sizes.min())
    return np.stack(
        [data.values[data.block == b][:shortest] for b in range(data.blocks)]
    )


def diagnosed(data: Blocked) -> Diagnosis:
    """Diagnose runs in blocks.

    Raises
    ------
    InputError
        Fewer than four runs in the shortest block: ArviZ needs as many.
    """
    draws = array_of(data)
    if draws.shape[1] < 4:
        raise InputError(
            f"{data.name}: {draws.shape[1]} runs in the shortest block, expected at "
            "least 4"
        )
    if np.ptp(draws) == 0.0:
        return Diagnosis(
            len(data),
            data.blocks,
            math.nan,
            {},
            {},
            math.nan,
            1.0,
            ("all runs are alike: the instrument may be too coarse",),
        )
    from arviz_stats.base import array_stats  # pyright: ignore[reportPrivateImportUsage]

    rhat = _number(array_stats.rhat(draws)) if data.blocks > 1 else math.nan
    ess = {"bulk": _number(array_stats.ess(draws, method="bulk"))}
    mcse = {"mean": _number(array_stats.mcse(draws, method="mean"))}
    for p in (0.5, 0.9, 0.99):
        ess[f"{p:g}"] = _number(array_stats.ess(draws, method="quantile", prob=p))
        mcse[f"{p:g}"] = _number(array_stats.mcse(draws, method="quantile", prob=p))
    centred = draws - draws.mean(axis=1, keepdims=True)
    power = float((centred**2).sum())
    lagged = float((centred[:, 1:] * centred[:, :-1]).sum())
    auto = lagged / power if power > 0.0 else math.nan
    effect = design_effect(data, data.values > np.quantile(data.values, 0.5))
    return Diagnosis(
        len(data),
        data.blocks,
        rhat,
        ess,
        mcse,
        auto,
        effect,
        tuple(_warnings(data, rhat, auto, effect)),
    )


def _number(x: Any) -> float:
    return float(np.asarray(x))


def _warnings(data: Blocked, rhat: float, auto: float, effect: float) -> list[str]:
    found = []
    if data.blocks < 10:
        found.append(f"{data.blocks} blocks: expected 10 or more for a verdict")
    if rhat > 1.01:
        found.append(f"R-hat {rhat:.3f}: processes differ")
    if auto > 0.2:
        found.append(f"neighbouring runs are correlated ({auto:.2f})")
    if effect > 2.0:
        found.append(
            f"design effect {effect:.1f}: runs of one process count as so many fewer"
        )
    return found
