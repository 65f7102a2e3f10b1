"""Sums of n equal lognormal laws: bracket width and time in transform floors.

Target: width <= 1e-4 at survival 1e-9 in <= 6 times one rfft + irfft pair of the
length used; the estimate of a smooth sum to 1e-11 in <= 10 ms.
"""

from __future__ import annotations

from typing import Any

from scipy import stats

from probcalc.composed import repeat
from tests.benchmarks.harness import (
    LEVELS,
    LOGNORMAL_SUMS,
    Report,
    fft_pair,
    measure,
    peer,
    run,
    transforms,
)

TITLE = "iid sums: certified to 1e-4 within six transform pairs"


def build(report: Report, repeats: int) -> None:
    """Ours at each level, the estimate of all levels, and aggregate."""
    leaf = stats.lognorm(0.5)
    for n, truths in LOGNORMAL_SUMS.items():
        for sf, truth in zip(LEVELS, truths, strict=True):

            def one(n: int = n, sf: float = sf) -> Any:
                return repeat(leaf, n).quantile(sf=sf, rtol=1e-4)

            found, timing = measure(one, repeats=repeats)
            length, pairs = transforms(one)
            report.add(
                "probcalc",
                f"{n}-fold",
                f"{sf:g}",
                timing=timing,
                truth=truth,
                value=found.value,
                lower=found.lower,
                upper=found.upper,
                floor=fft_pair(length) if length else None,
                target="<= 6 floors" if sf == 1e-9 else "",
                note=f"N = {length}, {pairs:.1f} pairs; {found.limited_by}",
            )
        _scipy(report, leaf, n, truths, repeats)
        _aggregate(report, n, truths, repeats)


def _scipy(
    report: Report, leaf: Any, n: int, truths: tuple[str, ...], repeats: int
) -> None:
    """10^6 draws, what SciPy and NumPy offer for a sum: no bracket, slow far out."""
    import numpy as np

    if n > 16:
        return

    def draws() -> Any:
        rng = np.random.default_rng(1)
        total = np.zeros(1_000_000)
        for _ in range(n):
            total += leaf.rvs(size=total.size, random_state=rng)
        return np.quantile(total, [1 - sf for sf in LEVELS])

    values, timing = measure(draws, repeats=min(repeats, 2), warm=False)
    for sf, truth, value in zip(LEVELS, truths, values, strict=True):
        report.add(
            "scipy, 1e6 draws",
            f"{n}-fold",
            f"{sf:g}",
            timing=timing,
            truth=truth,
            value=float(value),
            note="time is for all five levels",
        )


def _aggregate(report: Report, n: int, truths: tuple[str, ...], repeats: int) -> None:
    import logging

    aggregate = peer("aggregate")
    if aggregate is None:
        report.refused("aggregate", f"{n}-fold", "all", "not installed")
        return
    logging.getLogger("aggregate").setLevel(logging.CRITICAL)

    def levels() -> list[float]:
        law = aggregate.build(
            f"agg A{n} {n} claims sev lognorm 0.5 fixed", update=False
        )
        law.update(log2=16)
        return [float(law.q(1 - sf)) for sf in LEVELS]

    values, timing = measure(levels, repeats=min(repeats, 3))
    for sf, truth, value in zip(LEVELS, truths, values, strict=True):
        report.add(
            "aggregate",
            f"{n}-fold",
            f"{sf:g}",
            timing=timing,
            truth=truth,
            value=value,
            note="time is for all five levels; no bracket",
        )


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test."""
    return run(TITLE, build, argv)


if __name__ == "__main__":
    main()
