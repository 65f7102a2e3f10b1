"""Bounds of plans: on the right sides of the truth, whatever the plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.element import Element
from probcalc.errors import CompositionError, ToleranceError
from probcalc.kernels import graph
from probcalc.kleindorfer import independent_maxima
from probcalc.lattice import Lattice
from probcalc.montecarlo import simulate
from probcalc.plan import Plan
from probcalc.plan_bounds import bound_laws, lower_time
from probcalc.plan_exact import exact_laws
from probcalc.schedules import one_f_one_b
from probcalc.seriesparallel import reduced
from tests.reference_plans import POWER, cases, plan_of
from tests.test_plan_exact import enumerated, on, pipeline, random_plan, wheatstone

#: Standard errors of a simulated share that a check allows; seeds are fixed.
SIGMAS = 5.0


def test_random_plans_lie_between_their_bounds() -> None:
    loose = 0
    for seed in range(40):
        plan = random_plan(seed, nodes=3 + seed % 5)
        masses = enumerated(plan)
        time, _, static, _ = bound_laws(plan)
        for value in masses:
            above = math.fsum(p for v, p in masses.items() if v > value)
            found = time.probability_above(value + 1e-3)
            assert found.lower <= above * (1 + 1e-9) + 1e-15
            assert above <= found.upper * (1 + 1e-9) + 1e-15
            loose += found.upper - found.lower > 1e-6
        mean = math.fsum(v * p for v, p in masses.items())
        bounds = time.mean_bounds()
        assert bounds.lower * (1 - 1e-9) <= mean <= bounds.upper * (1 + 1e-9)
        power = math.fsum(plan.baselines.values())
        assert static.mean() == pytest.approx(power * bounds.value, rel=1e-9)
    assert loose > 10  # the plans were not series-parallel throughout


def test_independent_maxima_of_the_reference(
    shared_data: Callable[[str], Any],
) -> None:
    case = cases(shared_data("reference/plans.json"))["wheatstone"]
    right = case["independence_upper_bound"]
    pair = independent_maxima(plan_of(case)).survival(1.0, "first", 1e-12).pair
    # Masses from the first to the last point; beyond stands what was cut off.
    found = pair.upper.mass[right["offset"] - pair.upper.first :]
    size = len(right["pmf"])
    assert found[:size] == pytest.approx(right["pmf"], abs=1e-9)
    assert found[size:].sum() < 1e-9


BOUNDED = [
    "1f1b_2x4_cv0.1",
    "1f1b_2x32_cv0.1",
    "1f1b_3x4_cv0.1",
    "1f1b_2x8_cv0.3",
    "1f1b_4x8_cv0.1",
    "1f1b_8x32_slowstage",
    "zbh1_4x16_cv0.1",
]


@pytest.mark.parametrize(
    "name",
    [*BOUNDED, *(pytest.param("1f1b_16x128_cv0.05", marks=pytest.mark.slow),)],
)
def test_reference_lies_between_the_bounds(
    name: str, shared_data: Callable[[str], Any]
) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    plan, tick = plan_of(case), case["tick"]
    low, high = lower_time(plan), independent_maxima(plan)
    known = case.get("series_parallel_lower_bound", {}).get("quantile_ticks", {})
    for p, ticks in case["makespan"]["quantile_ticks"].items():
        if not 0.05 < float(p) < 0.9999:
            continue
        ends = (
            (ticks["lo95"], ticks["hi95"]) if isinstance(ticks, dict) else [ticks] * 2
        )
        below, above = low.quantile(float(p)).lower, high.quantile(float(p)).upper
        assert below <= ends[1] * tick
        assert ends[0] * tick <= above * (1 + 1e-12)
        # Not below the reference's own lower bound, not above its upper one.
        assert below >= known.get(p, 0.0) * tick * (1 - 1e-12)
        kleindorfer = case["independence_upper_bound"]["quantile_ticks"][p] * tick
        assert above <= kleindorfer * (1 + 1e-12)
        assert above >= kleindorfer * (1 - 1e-3)


def test_lower_bound_is_no_worse_than_the_longest_path() -> None:
    for seed in range(30):
        plan = random_plan(seed, nodes=7)
        means = np.array([e.time.mean() for e in plan.elements])[plan.element_of]
        path = graph.longest(
            len(plan), plan.sources, plan.targets, plan.lags, means, plan.releases
        )
        assert lower_time(plan).mean() >= path * (1 - 1e-9)


def test_cutting_takes_paths_away_only() -> None:
    """Makespans of constant durations: never longer, and the longest path stays."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(2, 14))
        a, b = np.triu_indices(nodes, 1)
        kept = rng.random(a.size) < rng.random()
        plan = Plan.from_arrays(
            elements=[on(f"e{i}", float(i + 1)) for i in range(5)],
            element_of=rng.integers(0, 5, nodes),
            sources=a[kept],
            targets=b[kept],
            lags=rng.integers(0, 2, int(kept.sum())).astype(float),
            releases=np.where(rng.random(nodes) < 0.2, 2.0, 0.0),
        )
        cut = reduced(plan, to_one=True)
        assert cut.whole
        times = np.array([float(e.time.mean()) for e in plan.elements])
        whole = graph.longest(
            len(plan),
            plan.sources,
            plan.targets,
            plan.lags,
            times[plan.element_of],
            plan.releases,
        )
        assert lower_time(plan).mean() == pytest.approx(whole, rel=1e-12)


def test_wide_pipeline_reduces_to_one_arc() -> None:
    law = stats.gamma(9.0)
    plan = pipeline(16, 32, law, law)
    assert len(reduced(plan).arcs) > 100
    assert reduced(plan, to_one=True).whole


def test_continuous_laws_and_random_energies_are_bounded() -> None:
    dynamic = stats.gamma(4.0, scale=3.0)
    plan = one_f_one_b(
        stages=4,
        microbatches=4,
        forward=on("f", stats.gamma(25.0, scale=0.04), dynamic_energy=dynamic),
        backward=on("b", stats.gamma(25.0, scale=0.08), dynamic_energy=dynamic),
    )
    laws = bound_laws(plan)
    found = simulate(plan, samples=50_000, seed=9)
    for law, drawn in zip(
        laws, (found.time, found.energy, found.static_energy), strict=False
    ):
        for p in (0.1, 0.5, 0.9, 0.99):
            at = law.quantile(p)
            assert at.kind == "certified"
            assert "independent maxima" in at.limited_by
            error = SIGMAS * math.sqrt(p * (1 - p) / drawn.samples)
            assert drawn.cdf(at.upper) > p - error
            assert drawn.cdf(at.lower) < p + error
            assert at.upper < 1.15 * at.lower
        bounds = law.mean_bounds()
        assert bounds.lower < drawn.mean() < bounds.upper
        assert law.support()[0] >= 0.0


def test_bounds_of_a_series_parallel_plan_hold_its_exact_law() -> None:
    plan = pipeline(2, 5, stats.gamma(25.0, scale=0.04), stats.gamma(25.0, scale=0.08))
    exact, bounds = exact_laws(plan)[0], bound_laws(plan)[0]
    for p in (0.01, 0.5, 0.99):
        at, inner = bounds.quantile(p), exact.quantile(p)
        assert at.lower <= inner.upper
        assert inner.lower <= at.upper
    # The part that is kept is the whole plan.
    assert bounds.lower.quantile(0.9).value == pytest.approx(
        exact.quantile(0.9).value, rel=1e-6
    )


def test_no_static_power_leaves_dynamic_energy() -> None:
    law = Lattice(1, 1.0, [0.5, 0.5])
    element = Element("e", time=law, dynamic_energy=7.0, static_power=0.0, device="d")
    plan = Plan.from_arrays(
        elements=[element], element_of=[0, 0], sources=[], targets=[]
    )
    _, energy, static, _ = bound_laws(plan)
    assert energy.mean() == 14.0
    assert static.mean() == 0.0


def test_what_is_not_bounded_is_said() -> None:
    laws = {name: Lattice(1, 1.0, [0.5, 0.5]) for name in "abcde"}
    time, energy, _, _ = bound_laws(wheatstone(laws))
    with pytest.raises(ToleranceError, match="variance"):
        time.variance()
    with pytest.raises(ToleranceError, match="bounds alone"):
        energy.sample(3, rng=np.random.default_rng(0))
    pair = Element.from_runs(
        "pair",
        time=[1.0, 2.0, 3.0],
        energy=[70.0, 150.0, 200.0],
        static_power=POWER,
        device="gpu0",
    )
    plan = Plan.from_arrays(elements=[pair], element_of=[0], sources=[], targets=[])
    with pytest.raises(CompositionError, match="'pair' has time and energy that were"):
        bound_laws(plan)
