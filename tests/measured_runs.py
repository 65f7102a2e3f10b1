"""Made-up measured elements whose truth is known, for tests of verdicts."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.validation.blocks import Blocked

FloatArray = npt.NDArray[np.float64]
Shape = Literal["normal", "lognormal"]

POWER = 60.0
TIME, DYNAMIC = 1e-2, 1.0
#: Of one comparison with what chance allows.
FALSE_ALARM = 1e-9
#: Standard deviations of T and d of single runs, and so of E = s T + d.
TIME_SD, DYNAMIC_SD = 1e-4, 6e-3
ENERGY_SD = float(np.hypot(POWER * TIME_SD, DYNAMIC_SD))


def noise(rng: np.random.Generator, size: tuple[int, ...], shape: Shape) -> FloatArray:
    """Numbers of mean 0 and variance 1."""
    if shape == "normal":
        return rng.normal(size=size)
    sigma = 0.8
    mean = np.exp(0.5 * sigma**2)
    sd = mean * np.sqrt(np.exp(sigma**2) - 1.0)
    return (rng.lognormal(0.0, sigma, size) - mean) / sd


def runs(
    rng: np.random.Generator,
    *,
    blocks: int,
    each: int = 1,
    shift: float = 0.0,
    shape: Shape = "normal",
    offset: float = 0.0,
    slow: float = 0.0,
    correlation: float = 0.0,
    name: str = "kernel",
) -> Element:
    """One element's runs; `shift` moves s T + d by so many sd, half through each.

    `offset` is the sd of a block's common offset, `slow` the share of runs that take
    half as long again, `correlation` that of neighbouring runs of a block, all in
    units of the sd of single runs.
    """
    z = noise(rng, (2, blocks, each), shape)
    for i in range(1, each):
        if correlation:
            z[:, :, i] = correlation * z[:, :, i - 1] + np.sqrt(
                1.0 - correlation**2
            ) * noise(rng, (2, blocks), shape)
    z = z + offset * rng.normal(size=(2, blocks, 1))
    half = 0.5 * shift * ENERGY_SD
    time = TIME + TIME_SD * z[0] + half / POWER
    time = np.where(rng.random(time.shape) < slow, 1.5 * time, time)
    dynamic = DYNAMIC + DYNAMIC_SD * z[1] + half
    return Element.from_runs(
        name,
        time=time.ravel(),
        energy=(POWER * time + dynamic).ravel(),
        static_power=POWER,
        device="gpu0",
        blocks=np.repeat(np.arange(blocks), each).tolist(),
    )


def energies(element: Element) -> Blocked:
    """Energy of an element's runs, by block."""
    assert element.runs is not None
    return Blocked.of(element.runs.energy, element.runs.blocks, name=element.name)


def most(repeats: int, rate: float = 0.05) -> int:
    """Errors that are not exceeded by chance, if they happen at the rate."""
    from scipy import stats

    return int(stats.binom(repeats, rate).isf(FALSE_ALARM))
