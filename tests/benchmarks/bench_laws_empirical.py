"""Sum of thirty-two measured laws of 1,000 runs each, all on one quantum of 1/1024.

Target: the exact answer at five levels in <= 100 ms. Peers: dp-accounting and
aggregate on the same integers. Reads the reference samples beside the checkout where
they are; otherwise laws of the same shape are drawn, and no right answer is known.
"""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import numpy as np

from probcalc.composed import sum_of
from probcalc.distribution import Empirical
from tests.benchmarks.harness import (
    LEVELS,
    Report,
    Timing,
    fft_pair,
    measure,
    peer,
    run,
    transforms,
)

TITLE = "32 measured laws: five exact quantiles within 100 ms"
QUANTUM = 1 / 1024
NAMES = ("0.5", "0.01", "0.001", "1e-6", "1e-9")


def _inputs() -> tuple[Any, Any, dict[str, float | None], str]:
    folder = pathlib.Path(__file__).resolve().parents[3] / "shared/data/reference"
    if (folder / "e_samples.npz").exists():
        with np.load(folder / "e_samples.npz") as archive:
            ints, raws = archive["ints"], archive["raws"]
        cases = json.loads((folder / "laws.json").read_text(encoding="utf-8"))
        right = cases["cases"]["e1"]["x_times_1024"]
        truths: dict[str, float | None] = {n: right[n] * QUANTUM for n in NAMES}
        return ints, raws, truths, "reference samples"
    rng = np.random.default_rng(11)
    raws = rng.lognormal(0.0, rng.uniform(0.3, 1.2, (32, 1)), (32, 1000))
    ints = np.maximum(np.rint(raws / QUANTUM), 1).astype(np.int64)
    return ints, raws, dict.fromkeys(NAMES), "drawn samples: no right answer known"


def build(report: Report, repeats: int) -> None:
    """Ours on the quantum and off it; dp-accounting and aggregate on the quantum."""
    ints, raws, truths, source = _inputs()
    rows = ints * QUANTUM

    def exact() -> Any:
        law = sum_of(*[Empirical(row) for row in rows])
        return [law.quantile(sf=sf) for sf in LEVELS]

    found, timing = measure(exact, repeats=repeats)
    length, pairs = transforms(exact)
    for name, q in zip(NAMES, found, strict=True):
        report.add(
            "probcalc",
            "on the quantum",
            name,
            timing=timing,
            truth=truths[name],
            value=q.value,
            lower=q.lower,
            upper=q.upper,
            floor=fft_pair(length) if length else None,
            target="<= 100 ms for all five",
            note=f"{source}; N = {length}, {pairs:.1f} pairs; {q.limited_by}",
        )

    def measured() -> Any:
        law = sum_of(*[Empirical(row) for row in raws])
        return [law.quantile(sf=sf) for sf in LEVELS]

    found, timing = measure(measured, repeats=min(repeats, 3))
    for name, q in zip(NAMES, found, strict=True):
        report.add(
            "probcalc",
            "off the quantum",
            name,
            timing=timing,
            value=q.value,
            lower=q.lower,
            upper=q.upper,
            note=f"the floats as measured, five levels; {q.limited_by}",
        )
    _dp_accounting(report, ints, truths, repeats)
    _aggregate(report, ints, truths)


def _add_all(
    report: Report,
    who: str,
    values: list[float],
    truths: dict[str, float | None],
    timing: Timing,
    note: str,
) -> None:
    for name, value in zip(NAMES, values, strict=True):
        report.add(
            who,
            "on the quantum",
            name,
            timing=timing,
            truth=truths[name],
            value=value,
            note=note,
        )


def _dp_accounting(
    report: Report, ints: Any, truths: dict[str, float | None], repeats: int
) -> None:
    pld = peer("dp_accounting.pld.pld_pmf")
    if pld is None:
        report.refused("dp-accounting", "on the quantum", "all", "not installed")
        return

    def levels() -> list[float]:
        total = None
        for row in ints:
            low = int(row.min())
            law = pld.DensePLDPmf(
                QUANTUM, low, np.bincount(row - low) / row.size, 0.0, True
            )
            total = law if total is None else total.compose(law, 1e-17)
        assert total is not None
        mass = total._probs
        above = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0) + total._infinity_mass
        return [
            float((total._lower_loss + int(np.argmax(above <= sf))) * QUANTUM)
            for sf in LEVELS
        ]

    values, timing = measure(levels, repeats=min(repeats, 3))
    _add_all(report, "dp-accounting", values, truths, timing, "five levels")


def _aggregate(report: Report, ints: Any, truths: dict[str, float | None]) -> None:
    import logging

    aggregate = peer("aggregate")
    if aggregate is None:
        report.refused("aggregate", "on the quantum", "all", "not installed")
        return
    logging.getLogger("aggregate").setLevel(logging.CRITICAL)

    def levels() -> list[float]:
        lines = ["port E"]
        for i, row in enumerate(ints):
            values, counts = np.unique(row, return_counts=True)
            points = " ".join(str(int(v)) for v in values)
            masses = " ".join(repr(float(c) / row.size) for c in counts)
            lines.append(f"    agg E{i} 1 claim dsev [{points}] [{masses}] fixed")
        law = aggregate.build("\n".join(lines) + "\n", update=False)
        law.update(log2=19, bs=1)
        return [float(law.q(1 - sf)) * QUANTUM for sf in LEVELS]

    try:
        values, timing = measure(levels, repeats=1, warm=False)
    except Exception as problem:  # a peer's own failure is a row, not an end
        report.refused("aggregate", "on the quantum", "all", repr(problem))
        return
    values = [v if math.isfinite(v) else math.nan for v in values]
    _add_all(report, "aggregate", values, truths, timing, "five levels, one run")


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test."""
    return run(TITLE, build, argv)


if __name__ == "__main__":
    main()
