"""Simulated plans against the rest of the reference values, continuous laws too."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.distribution import as_law
from probcalc.draws import DrawFactor
from probcalc.drawtable import draw_table
from probcalc.element import Element
from probcalc.lattice import Lattice
from probcalc.montecarlo import simulate
from probcalc.plan import Plan
from probcalc.sampled import Sampled
from probcalc.wfformat import read_wfformat
from tests.reference_plans import cases, plan_of

SIGMAS = 4.0

WORKFLOWS = (
    "wf_montage-chameleon-2mass-01d-001",
    "wf_epigenomics-chameleon-hep-1seq-50k-001",
    "wf_seismology-chameleon-400p-001",
    "wf_srasearch-chameleon-20a-003",
    "wf_blast-chameleon-small-001",
    "wf_bacass-dirt02-001",
)


def agrees(
    law: Sampled,
    mean: float,
    sd: float,
    quantiles: Mapping[str, Any],
    unit: float,
    error: float = 0.0,
) -> None:
    """Mean within four standard errors; quantiles within intervals of 1 - 1e-6."""
    bound = SIGMAS * math.hypot(sd / math.sqrt(law.samples), error)
    assert abs(law.mean() - mean) < bound
    wide = Sampled(law.summary, law.unit, level=1.0 - 1e-6)
    checked = 0
    for p, right in quantiles.items():
        if 0.005 < float(p) < 0.995:
            both = isinstance(right, Mapping)
            low, high = (right["lo95"], right["hi95"]) if both else (right, right)
            q = wide.quantile(float(p))
            # Ticks that are no multiples of the reference's round to their side.
            slack = max(law.unit, 1e-9 * high * unit)
            assert q.lower <= high * unit + slack, p
            assert low * unit - slack <= q.upper, p
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    "name",
    ["1f1b_2x4_cv0.1", "1f1b_2x128_cv0.1", "1f1b_2x8_cv0.3", "1f1b_8x32_cv0.1"],
)
def test_pipelines(name: str, shared_data: Callable[[str], Any]) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    right, tick = case["makespan"], case["tick"]
    law = simulate(plan_of(case), samples=20_000, seed=5).time
    assert law.unit == tick
    agrees(
        law,
        right["mean_ticks"] * tick,
        right["sd_ticks"] * tick,
        right["quantile_ticks"],
        tick,
        right.get("mean_se", 0.0) * tick,
    )


@pytest.mark.slow
def test_a_pipeline_of_131072_nodes(shared_data: Callable[[str], Any]) -> None:
    case = cases(shared_data("reference/plans.json"))["1f1b_64x1024_cv0.1"]
    right, tick = case["makespan"], case["tick"]
    law = simulate(plan_of(case), samples=2048, seed=5).time
    agrees(
        law,
        right["mean_ticks"] * tick,
        right["sd_ticks"] * tick,
        {p: q for p, q in right["quantile_ticks"].items() if 0.01 <= float(p) <= 0.99},
        tick,
        right["mean_se"] * tick,
    )


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows(name: str, shared_data: Callable[[str], Any]) -> None:
    """Recorded times, rounded to ms, times a factor of each task."""
    case = cases(shared_data("reference/plans.json"))[name]
    path = shared_data(case["dag"]["file"].replace("data_dag/", "dag/"))
    read = read_wfformat(path, static_power=60.0, device="node")
    assert len(read) == case["dag"]["nodes"]
    tasks = json.loads(path.read_text(encoding="utf-8"))["workflow"]["execution"]
    recorded = {t["id"]: t["runtimeInSeconds"] for t in tasks["tasks"]}
    elements, element_of = [], np.zeros(len(read), dtype=np.int64)
    for i, node in enumerate(read.names):
        time = round(1000.0 * recorded[node]) / 1000.0
        element_of[i] = i
        elements.append(Element(node, time=time, static_power=60.0, device="node"))
    mass = np.zeros(max(case["factor_tenths"]) + 1)
    mass[case["factor_tenths"]] = case["factor_prob"]
    factor = DrawFactor("pace", Lattice(1, 0.1, mass[1:]), by="task")
    plan = Plan.from_arrays(
        elements=elements,
        element_of=element_of,
        sources=read.sources,
        targets=read.targets,
        labels={"task": range(len(read))},
    ).drawn(factors=[factor])
    law = simulate(plan, samples=20_000, seed=7).time
    right, unit = case["makespan"], case["tick"]
    agrees(
        law,
        right["mean"] * unit,
        right["sd"] * unit,
        right["quantile"],
        unit,
        right["mean_se"] * unit,
    )


@pytest.mark.parametrize("k", ["2", "10", "1000"])
def test_the_longest_of_exponential_times(
    k: str, shared_data: Callable[[str], Any]
) -> None:
    right = cases(shared_data("reference/plans.json"))["exp_fork"]["results"][k]
    n = int(k)
    element = Element("x", time=stats.expon(), static_power=60.0, device="gpu0")
    none = np.zeros(0, dtype=np.int64)
    plan = Plan.from_arrays(
        elements=[element],
        element_of=np.zeros(n, dtype=np.int64),
        sources=none,
        targets=none,
    )
    found = simulate(plan, samples=20_000, seed=3)
    # Variance of the longest: sum of 1 / i^2.
    sd = math.sqrt(sum(1.0 / i**2 for i in range(1, n + 1)))
    assert found.lost < 1e-4
    agrees(found.time, right["mean"], sd, right["quantiles"], 1.0)


def test_the_longer_of_two_normal_times(shared_data: Callable[[str], Any]) -> None:
    case = cases(shared_data("reference/plans.json"))["gauss_max"]
    none = np.zeros(0, dtype=np.int64)
    elements = [
        Element(
            f"x{i}",
            time=stats.truncnorm(-m / s, np.inf, loc=m, scale=s),
            static_power=60.0,
            device=f"gpu{i}",
        )
        for i, (m, s) in enumerate(zip(case["mean"], case["sd"], strict=True))
    ]
    plan = Plan.from_arrays(
        elements=elements, element_of=[0, 1], sources=none, targets=none
    )
    right = case["makespan"]
    law = simulate(plan, samples=50_000, seed=3).time
    agrees(law, right["mean"], math.sqrt(right["var"]), right["quantiles"], 1.0)


@pytest.mark.parametrize(
    "law",
    [
        stats.expon(),
        stats.gamma(0.3),
        stats.lognorm(1.5),
        stats.norm(10.0),
        stats.lomax(2.5),
        stats.maxwell(),
    ],
    ids=lambda law: law.dist.name,
)
def test_tables_follow_densities_into_their_tails(law: Any) -> None:
    table = draw_table(as_law(law), "law")
    assert (table.widths[1:-1] > 0.0).all()
    low = table.values - 0.5 * table.widths
    sf = 2.0 ** -np.random.default_rng(1).uniform(0.1, 33.0, 300)
    for x, level in zip(law.isf(sf), sf, strict=True):
        share = np.clip((table.ends - x) / np.diff([low, table.ends], axis=0)[0], 0, 1)
        # Within a cell of a 48th of a halving the density is level but for 1.4 %.
        assert float(table.mass @ share) == pytest.approx(level, rel=1e-4)
    assert float(table.mass @ table.values) == pytest.approx(law.mean(), rel=1e-5)


@pytest.mark.slow
def test_the_longest_of_many_is_known_to_a_thousandth(
    shared_data: Callable[[str], Any],
) -> None:
    """Single values for cells, not intervals, would be off by more than that."""
    right = cases(shared_data("reference/plans.json"))["exp_fork"]["results"]["1000"]
    element = Element("x", time=stats.expon(), static_power=60.0, device="gpu0")
    none = np.zeros(0, dtype=np.int64)
    plan = Plan.from_arrays(
        elements=[element],
        element_of=np.zeros(1000, dtype=np.int64),
        sources=none,
        targets=none,
    )
    found = simulate(plan, samples=1 << 20, seed=4).time
    agrees(found, right["mean"], math.pi / math.sqrt(6.0), right["quantiles"], 1.0)
