"""A plan in context: thermal states and a shared fabric against no context at all.

1F1B of 16 stages and 128 microbatches with its transfers, drawn from densities; the
same samples with and without context, in one run. Compile times are left out. Target:
at most 3 times the run without context.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from scipy import stats

from probcalc.context import Trace
from probcalc.contextual import traced
from probcalc.element import Element
from probcalc.mechanisms import Resource, contention, thermal
from probcalc.montecarlo import simulate
from probcalc.plan import Plan
from probcalc.propagation import predict_in_context
from probcalc.schedules import one_f_one_b
from tests.benchmarks.bench_montecarlo_node_samples import one_core
from tests.benchmarks.harness import Report, measure, run

TITLE = "A plan in context within three runs without"
SEED = 1


class Case(NamedTuple):
    """A pipeline, and how many samples of it are drawn."""

    stages: int
    microbatches: int
    samples: int


FULL = (Case(16, 128, 4096),)
SMALL = (Case(4, 8, 256),)


def pipeline(case: Case) -> Plan:
    """1F1B with transfers that share one fabric."""
    ends = [
        Element(
            name,
            time=stats.lognorm(0.1, scale=seconds),
            dynamic_energy=stats.lognorm(0.1, scale=225.0 * seconds),
            static_power=60.0,
            device="gpu0",
        )
        for name, seconds in (("F", 0.04), ("B", 0.08))
    ]
    transfer = Element(
        "X",
        time=stats.lognorm(0.1, scale=0.01),
        dynamic_energy=0.1,
        static_power=0.0,
        device="link",
    )
    return one_f_one_b(
        case.stages,
        case.microbatches,
        forward=ends[0],
        backward=ends[1],
        transfer=traced(transfer, Trace(demand={"fabric": 20e9})),
    )


def build(report: Report, repeats: int, cases: tuple[Case, ...] = FULL) -> None:
    """Every case: without context, then with one and with two passes of contention."""
    with one_core():
        for case in cases:
            _case(report, case, min(repeats, 5))


def _case(report: Report, case: Case, repeats: int) -> None:
    plan = pipeline(case)
    name = f"1F1B {case.stages}x{case.microbatches}"
    heat = thermal(
        resistance=0.15,
        time_constant=20.0,
        leakage=0.4,
        threshold=20.0,
        throttling=0.004,
        devices=[f"gpu{i}" for i in range(case.stages)],
    )
    free, floor = measure(
        lambda: simulate(plan, samples=case.samples, seed=SEED), repeats=repeats
    )
    report.add("no context", name, "", timing=floor, floor=floor, note="the floor")
    mean = float(free.time.mean())
    for passes in (1, 2):
        fabric = contention(Resource("fabric", 100e9), passes=passes)
        found, timing = measure(
            lambda mechanisms=(heat, fabric): predict_in_context(
                plan, mechanisms=mechanisms, samples=case.samples, seed=SEED
            ),
            repeats=repeats,
        )
        reduced = float(found.reduced.time.mean())
        report.add(
            f"in context, {passes} passes",
            name,
            "",
            timing=timing,
            floor=floor,
            # The same draws: the reduced mean is that of the run without context.
            truth=mean,
            value=reduced,
            lower=reduced * (1.0 - 1e-9),
            upper=reduced * (1.0 + 1e-9),
            target="<= 3 floors",
            note=f"{found.context_energy.mean():+.4g} J by context, last pass changed "
            f"up to {found.change:.2g} s",
        )


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test; ``--small`` for a trial."""
    given = sys.argv[1:] if argv is None else list(argv)
    small = "--small" in given
    given = [word for word in given if word != "--small"]

    def chosen(report: Report, repeats: int) -> None:
        build(report, repeats, SMALL if small else FULL)

    return run(TITLE, chosen, given)


if __name__ == "__main__":
    main()
