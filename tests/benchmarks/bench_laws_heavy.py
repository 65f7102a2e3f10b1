"""Sums of heavy-tailed laws, of infinite variance or no mean at all.

Target: <= 50 ms a level with a bracket of 1e-4, or an honest refusal. Peers:
OpenTURNS and aggregate on the Pareto sum (no bracket).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy import stats

from probcalc.composed import repeat
from probcalc.errors import ToleranceError
from tests.benchmarks.harness import (
    LEVELS,
    Report,
    fft_pair,
    measure,
    peer,
    run,
    transforms,
)

TITLE = "heavy tails: certified to 1e-4 in 50 ms a level, or refused"

#: case -> (leaf, copies, right quantiles at LEVELS). Pareto: Talbot inversion of the
#: Laplace transform at 50 digits, two degrees agreeing. Levy: closed form.
CASES: dict[str, tuple[Any, int, tuple[str, ...]]] = {
    "16 Pareto(1.5)": (
        stats.pareto(1.5),
        16,
        (
            "38.46894974500692575951",
            "180.0877640651885775714",
            "679.6013633235409430339",
            "63541.03853468004886674",
            "6349649.20783736256782",
        ),
    ),
    "16 Pareto(1.2)": (
        stats.pareto(1.2),
        16,
        (
            "51.85716361408672205062",
            "533.6689358535149841359",
            "3261.367170106796733339",
            "1008021.822321911757477",
            "318737703.5861450471365",
        ),
    ),
    "4 Levy": (
        stats.levy(),
        4,
        (
            "35.16974941308371846399485",
            "101853.8301616996995885497",
            "10185911.02454713039741651",
            "10185916357875.96815587523",
            "10185916357881301483.87523",
        ),
    ),
}


def build(report: Report, repeats: int) -> None:
    """Ours at each level, and the peers on the Pareto sums."""
    for case, (leaf, n, truths) in CASES.items():
        for sf, truth in zip(LEVELS, truths, strict=True):

            def one(leaf: Any = leaf, n: int = n, sf: float = sf) -> Any:
                return repeat(leaf, n).quantile(sf=sf, rtol=1e-4)

            try:
                found, timing = measure(one, repeats=repeats)
            except ToleranceError as refusal:
                report.refused("probcalc", case, f"{sf:g}", refusal)
                continue
            length, pairs = transforms(one)
            report.add(
                "probcalc",
                case,
                f"{sf:g}",
                timing=timing,
                truth=truth,
                value=found.value,
                lower=found.lower,
                upper=found.upper,
                floor=fft_pair(length) if length else None,
                target="<= 50 ms",
                note=f"N = {length}, {pairs:.1f} pairs; {found.limited_by}",
            )
        if case.startswith("16 Pareto"):
            _peers(report, case, float(case[10:-1]), truths)


def _peers(report: Report, case: str, tail: float, truths: tuple[str, ...]) -> None:
    import logging

    ot, aggregate = peer("openturns"), peer("aggregate")
    work: dict[str, Callable[[], list[float]]] = {}
    if ot is not None:
        add = getattr(ot, "LinearCombinationDistribution", None) or ot.RandomMixture

        def openturns() -> list[float]:
            law = add([ot.Pareto(1.0, tail, 0.0)] * 16)
            return [float(law.computeQuantile(sf, True)[0]) for sf in LEVELS]

        work["openturns"] = openturns
    if aggregate is not None:
        logging.getLogger("aggregate").setLevel(logging.CRITICAL)

        def aggregated() -> list[float]:
            law = aggregate.build(
                f"agg P 16 claims sev 1 * pareto {tail} fixed", update=False
            )
            law.update(log2=18, bs=1)
            return [float(law.q(1 - sf)) + 16 for sf in LEVELS]

        work["aggregate"] = aggregated
    for who in ("openturns", "aggregate"):
        if who not in work:
            report.refused(who, case, "all", "not installed")
            continue
        try:
            values, timing = measure(work[who], repeats=1, warm=False)
        except Exception as problem:  # a peer's own failure is a row, not an end
            report.refused(who, case, "all", repr(problem))
            continue
        for sf, truth, value in zip(LEVELS, truths, values, strict=True):
            report.add(
                who,
                case,
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
