"""Moments of plans: exact where Clark's formulas are, near where spreads are small."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.kernels.clark import frontier_moments
from probcalc.kernels.lanes import joined, laid_out
from probcalc.lattice import Lattice
from probcalc.moments import clark
from probcalc.montecarlo import simulate
from probcalc.plan import Plan, PlanNode
from probcalc.plan_moments import moment_laws_of_plan
from probcalc.shared import Shared
from tests.reference_plans import POWER, cases, plan_of
from tests.test_plan_exact import on, pipeline

PAIRS = {"time": [1.0, 2.0, 4.0], "energy": [70.0, 150.0, 245.0]}


def along(
    edges: list[tuple[int, int]], mean: Any, variance: Any, cross: Any = None
) -> tuple[float, float, float]:
    """Mean, variance and covariance with a sum, of the longest path of a graph."""
    size = len(mean)
    sources, targets = np.array(edges or [(0, 0)][:0]).reshape(-1, 2).T.astype(np.int64)
    graph = joined(size, sources, targets)

    def padded(given: Any) -> np.ndarray:
        held = np.zeros(graph.vertices)
        held[:size] = given
        return held

    return frontier_moments(
        *laid_out(graph),
        padded(mean),
        padded(variance),
        padded(0.0 if cross is None else cross),
    )


def test_maximum_of_two_normals_is_that_of_the_reference(
    shared_data: Callable[[str], Any],
) -> None:
    case = cases(shared_data("reference/plans.json"))["gauss_max"]
    found = along([], case["mean"], np.square(case["sd"]))
    assert found[0] == pytest.approx(case["makespan"]["mean"], rel=1e-9)
    assert found[1] == pytest.approx(case["makespan"]["var"], rel=1e-9)


def test_what_two_paths_share_is_not_drawn_twice() -> None:
    # X + max(Y, Z): the variance of X stands once, whatever Y and Z.
    _, apart, _ = along([], [5.0, 5.2], [1.0, 2.0])
    mean, variance, _ = along([(0, 1), (0, 2)], [3.0, 5.0, 5.2], [7.0, 1.0, 2.0])
    assert variance == pytest.approx(7.0 + apart, rel=1e-12)
    assert mean == pytest.approx(3.0 + along([], [5.0, 5.2], [1.0, 2.0])[0], rel=1e-12)
    # Nor is it where the paths part and meet twice, behind each other.
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5)]
    _, twice, _ = along(edges, [3.0, 5.0, 5.2, 3.0, 5.0, 5.2], [7, 1, 2, 7, 1, 2])
    assert twice == pytest.approx(2 * variance, rel=1e-12)


def test_chains_are_exact() -> None:
    laws = [stats.gamma(4.0), stats.lognorm(0.5), stats.uniform(1.0, 2.0)]
    plan = Plan.from_arrays(
        elements=[on(f"e{i}", law) for i, law in enumerate(laws)],
        element_of=[0, 1, 2, 1],
        sources=[0, 1, 2],
        targets=[1, 2, 3],
        lags=[0.5, 0.0, 0.25],
    )
    time, energy, static, dynamic = moment_laws_of_plan(plan)
    mean = 0.75 + math.fsum(laws[i].mean() for i in (0, 1, 2, 1))
    variance = math.fsum(laws[i].var() for i in (0, 1, 2, 1))
    assert time.mean() == pytest.approx(mean, rel=1e-12)
    assert time.variance() == pytest.approx(variance, rel=1e-12)
    for law in (energy, static):
        assert law.mean() == pytest.approx(POWER * mean, rel=1e-12)
        assert law.variance() == pytest.approx(POWER**2 * variance, rel=1e-12)
    assert dynamic.mean() == 0.0
    assert time.quantile(0.9).kind == "estimate"


def test_energy_of_a_chain_counts_what_was_measured_together() -> None:
    pair = Element.from_runs("pair", static_power=60.0, device="gpu0", **PAIRS)  # type: ignore[arg-type]
    plan = Plan.from_arrays(
        elements=[pair], element_of=[0, 0], sources=[0], targets=[1]
    )
    _, energy, static, dynamic = moment_laws_of_plan(plan)
    measured = np.array(PAIRS["energy"])
    assert energy.mean() == pytest.approx(2.0 * measured.mean(), rel=1e-12)
    assert energy.variance() == pytest.approx(2.0 * measured.var(), rel=1e-12)
    times = np.array(PAIRS["time"])
    assert static.variance() == pytest.approx(2.0 * 3600.0 * times.var(), rel=1e-12)
    spent = measured - 60.0 * times
    assert dynamic.variance() == pytest.approx(2.0 * spent.var(), rel=1e-12)


def test_energy_beyond_the_baseline_of_a_chain() -> None:
    busy = on("busy", stats.gamma(9.0), dynamic_energy=stats.gamma(4.0, scale=10.0))
    plan = Plan.from_arrays(
        elements=[busy],
        element_of=[0, 0],
        sources=[0],
        targets=[1],
        lags=[2.0],
        baselines={"gpu0": 20.0},
    )
    _, energy, static, _ = moment_laws_of_plan(plan)
    # Busy at 60 W, waiting at 20 W.
    assert static.mean() == pytest.approx(2 * 60.0 * 9.0 + 20.0 * 2.0, rel=1e-12)
    assert static.variance() == pytest.approx(2 * 3600.0 * 9.0, rel=1e-12)
    assert energy.mean() == pytest.approx(static.mean() + 80.0, rel=1e-12)
    assert energy.variance() == pytest.approx(static.variance() + 800.0, rel=1e-12)


def test_energy_of_a_pipeline_agrees_with_simulation() -> None:
    """Time, energy and their covariance, where maxima matter."""
    pair = Element.from_runs(
        "forward",
        time=[0.9, 1.0, 1.1, 1.0],
        energy=[70.0, 78.0, 92.0, 80.0],
        static_power=60.0,
        device="gpu0",
    )
    backward = Element.from_runs(
        "backward",
        time=[1.9, 2.0, 2.2, 1.9],
        energy=[150.0, 160.0, 181.0, 155.0],
        static_power=60.0,
        device="gpu0",
    )
    from probcalc.schedules import one_f_one_b

    plan = one_f_one_b(stages=4, microbatches=8, forward=pair, backward=backward)
    laws = moment_laws_of_plan(plan)
    found = simulate(plan, samples=20_000, seed=4)
    drawn = (found.time, found.energy, found.static_energy, found.dynamic_energy)
    for law, right in zip(laws, drawn, strict=True):
        assert law.mean() == pytest.approx(right.mean(), rel=2e-3)
        assert math.sqrt(law.variance()) == pytest.approx(
            right.standard_deviation(), rel=0.1
        )


#: Largest relative errors of the mean and of quantiles from .1 to .99.
SMALL = {"1f1b_16x128_cv0.05": (1.5e-3, 2e-3), "1f1b_8x32_slowstage": (1e-4, 1e-3)}


@pytest.mark.parametrize("name", SMALL)
def test_pipelines_of_small_spread(
    name: str, shared_data: Callable[[str], Any]
) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    law, tick = moment_laws_of_plan(plan_of(case))[0], case["tick"]
    right = case["makespan"]
    mean, quantile = SMALL[name]
    assert law.mean() == pytest.approx(right["mean_ticks"] * tick, rel=mean)
    for p in ("0.1", "0.5", "0.9", "0.99"):
        value = right["quantile_ticks"][p]["value"] * tick
        assert law.quantile(float(p)).value == pytest.approx(value, rel=quantile)


def test_wide_spreads_are_percents_off(shared_data: Callable[[str], Any]) -> None:
    """What the docs say: no bound, and short in the tail at a spread of 0.3."""
    case = cases(shared_data("reference/plans.json"))["1f1b_4x8_cv0.3_energy"]
    law, tick = moment_laws_of_plan(plan_of(case))[0], case["tick"]
    value = case["makespan"]["quantile_ticks"]["0.99"]["value"] * tick
    assert 0.95 * value < law.quantile(0.99).value < value


def test_constant_plans_have_no_spread() -> None:
    plan = pipeline(4, 4, 1.0, 2.0)
    time, energy, _, _ = moment_laws_of_plan(plan)
    assert time.mean() == pytest.approx(21.0)  # (M + P - 1) (F + B)
    assert time.variance() == 0.0
    assert energy.mean() == pytest.approx(4 * POWER * 21.0)


def test_equal_and_nested_times_meet_without_spread() -> None:
    # The two operands of the last maximum are one variable: nothing is added.
    mean, variance, _ = along([(0, 1), (0, 2)], [3.0, 0.0, 0.0], [2.0, 0.0, 0.0])
    assert (mean, variance) == (3.0, 2.0)
    mean, variance, covariance = along([], [3.0, 3.0], [1.0, 1.0], [0.5, 0.25])
    level, spread, _ = clark(3.0, 1.0, 3.0, 1.0, 0.0)
    assert mean == pytest.approx(level, rel=1e-12)
    assert variance == pytest.approx(spread, rel=1e-12)
    assert covariance == pytest.approx(0.5 * (0.5 + 0.25), rel=1e-12)


def test_laws_without_moments_are_refused() -> None:
    heavy = on("heavy", stats.pareto(1.5))
    plan = Plan.of([PlanNode("a", heavy)])
    with pytest.raises(InputError, match="'heavy', time: a law without finite"):
        moment_laws_of_plan(plan)


def test_dependent_nodes_are_refused() -> None:
    gain = Shared("gain", stats.lognorm(0.1), acts_on="energy")
    law = Lattice(1, 1.0, [0.5, 0.5])
    plan = Plan.of([PlanNode("a", on("a", law, dynamic_energy=3.0, shared=(gain,)))])
    with pytest.raises(InputError, match="expected method 'monte-carlo'"):
        moment_laws_of_plan(plan)
