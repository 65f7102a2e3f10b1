"""Mean of the worst outcomes (expected shortfall) of sums, bracketed.

Target: a bracket of 1e-6 of the value. Peer: aggregate's ``tvar`` (no bracket).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scipy import special, stats

from probcalc.composed import maximum, repeat, sum_of
from tests.benchmarks.harness import (
    LEVELS,
    Report,
    fft_pair,
    measure,
    peer,
    run,
    transforms,
)

TITLE = "expected shortfall: certified to 1e-6"


def _gamma(sf: float) -> float:
    # E[X | X > q] sf = a sf_{a+1}(q) for a gamma law of shape a, here 128 * 0.5.
    q = float(special.gammainccinv(64.0, sf))
    return 64.0 * float(special.gammaincc(65.0, q)) / sf


def _normal(sf: float) -> float:
    z = float(special.ndtri(sf))
    return 150 + 5 * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / sf


CASES: dict[str, tuple[Callable[[], Any], Callable[[float], float] | None]] = {
    "128 gammas": (lambda: repeat(stats.gamma(0.5), 128), _gamma),
    "two normals": (lambda: sum_of(stats.norm(100, 3), stats.norm(50, 4)), _normal),
    "128 lognormals": (lambda: repeat(stats.lognorm(0.5), 128), None),
    "max of sums": (
        lambda: maximum(
            sum_of(stats.lognorm(0.5), stats.gamma(2)),
            sum_of(stats.lognorm(0.4), stats.gamma(3)),
        ),
        None,
    ),
}


def build(report: Report, repeats: int) -> None:
    """Ours at each level; aggregate on the gamma and the lognormal sum."""
    for case, (expression, right) in CASES.items():
        for sf in LEVELS:

            def one(expression: Callable[[], Any] = expression, sf: float = sf) -> Any:
                return expression().expected_shortfall(sf=sf)

            found, timing = measure(one, repeats=repeats)
            length, pairs = transforms(one)
            report.add(
                "probcalc",
                case,
                f"{sf:g}",
                timing=timing,
                truth=None if right is None else right(sf),
                value=found.value,
                lower=found.lower,
                upper=found.upper,
                floor=fft_pair(length) if length else None,
                target="width <= 1e-6",
                note=f"N = {length}, {pairs:.1f} pairs",
            )
    _aggregate(report, repeats)


def _aggregate(report: Report, repeats: int) -> None:
    import logging

    aggregate = peer("aggregate")
    severities = {"128 gammas": "gamma 0.5", "128 lognormals": "lognorm 0.5"}
    for case, severity in severities.items():
        if aggregate is None:
            report.refused("aggregate", case, "all", "not installed")
            continue
        logging.getLogger("aggregate").setLevel(logging.CRITICAL)

        def levels(severity: str = severity, case: str = case) -> list[float]:
            law = aggregate.build(
                f"agg S{case[4]} 128 claims sev {severity} fixed", update=False
            )
            law.update(log2=16)
            return [float(law.tvar(1 - sf)) for sf in LEVELS]

        try:
            values, timing = measure(levels, repeats=min(repeats, 3))
        except Exception as problem:  # a peer's own failure is a row, not an end
            report.refused("aggregate", case, "all", repr(problem))
            continue
        right = CASES[case][1]
        for sf, value in zip(LEVELS, values, strict=True):
            report.add(
                "aggregate",
                case,
                f"{sf:g}",
                timing=timing,
                truth=None if right is None else right(sf),
                value=value,
                note="time is for all five levels; no bracket",
            )


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test."""
    return run(TITLE, build, argv)


if __name__ == "__main__":
    main()
