"""Narrower certified bracket in less time than dp-accounting, lognormal 128-fold.

dp-accounting's privacy loss distributions are the nearest public relative: integer
offset, step, mass, rounded down and up, composed by transforms. Two compositions
bracket every quantile. It is given its best setting for the width it reaches: the
grid that its own studies use, and finer ones until memory or time grows past ours.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from probcalc.composed import repeat
from tests.benchmarks.harness import (
    LEVELS,
    LOGNORMAL_SUMS,
    Report,
    measure,
    peer,
    run,
)

TITLE = "128-fold: a narrower bracket in less time than dp-accounting"
COPIES = 128


def build(report: Report, repeats: int) -> None:
    """All five levels, by us and by dp-accounting at three steps."""
    truths = LOGNORMAL_SUMS[COPIES]
    leaf = stats.lognorm(0.5)

    def ours() -> Any:
        law = repeat(leaf, COPIES)
        return [law.quantile(sf=sf, rtol=1e-4) for sf in LEVELS]

    found, timing = measure(ours, repeats=repeats)
    for sf, truth, q in zip(LEVELS, truths, found, strict=True):
        report.add(
            "probcalc",
            "128-fold",
            f"{sf:g}",
            timing=timing,
            truth=truth,
            value=q.value,
            lower=q.lower,
            upper=q.upper,
            target="narrower and faster",
            note=f"time is for all five levels; {q.limited_by}",
        )
    pld = peer("dp_accounting.pld.pld_pmf")
    if pld is None:
        report.refused("dp-accounting", "128-fold", "all", "not installed")
        return
    for power in (-8, -10, -12):
        step = 2.0**power

        def levels(step: float = step) -> tuple[list[float], list[float]]:
            low = _quantiles(_leaf(pld, leaf, step, up=False).self_compose(COPIES))
            high = _quantiles(_leaf(pld, leaf, step, up=True).self_compose(COPIES))
            return low, high

        (low, high), timing = measure(levels, repeats=min(repeats, 5))
        for sf, truth, lower, upper in zip(LEVELS, truths, low, high, strict=True):
            report.add(
                "dp-accounting",
                f"128-fold, step 2^{power}",
                f"{sf:g}",
                timing=timing,
                truth=truth,
                value=0.5 * (lower + upper),
                lower=lower,
                upper=upper,
                note="time is for all five levels",
            )


def _leaf(pld: Any, law: Any, step: float, *, up: bool) -> Any:
    points = math.ceil(float(law.isf(1e-17)) / step)
    above = law.sf(np.arange(points + 1) * step)
    mass = above[:-1] - above[1:]  # of (k step, (k + 1) step]
    rest = float(above[-1])
    if up:
        return pld.DensePLDPmf(step, 1, mass, rest, True)
    mass[-1] += rest
    return pld.DensePLDPmf(step, 0, mass, 0.0, False)


def _quantiles(law: Any) -> list[float]:
    """Smallest point k with P(S > k) <= sf, from the composed mass."""
    above = np.append(np.cumsum(law._probs[::-1])[::-1][1:], 0.0) + law._infinity_mass
    return [
        float((law._lower_loss + int(np.argmax(above <= sf))) * law._discretization)
        for sf in LEVELS
    ]


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test."""
    return run(TITLE, build, argv)


if __name__ == "__main__":
    main()
