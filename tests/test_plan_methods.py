"""Exact laws, bounds and moments of plans against the reference; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scipy import stats

from probcalc.draws import DrawFactor
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.plan import Plan, PlanNode
from probcalc.prediction import predict
from probcalc.seriesparallel import reduced
from tests.reference_plans import POWER, cases, plan_of

EXACT = [
    "chain3",
    "forkjoin3",
    "shared_prefix",
    "wheatstone",
    "1f1b_2x4_cv0.1",
    "1f1b_2x8_cv0.1",
    "1f1b_2x8_cv0.3",
    "1f1b_3x4_cv0.1",
]


@pytest.mark.parametrize("name", EXACT)
def test_exact_laws_are_those_of_the_reference(
    name: str, shared_data: Callable[[str], Any]
) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    plan, right = plan_of(case), case["makespan"]
    found = predict(plan, "exact")
    assert found.method == "exact"
    assert found.time.mean() == pytest.approx(right["mean_ticks"] * case["tick"], 1e-9)
    power = POWER * len(plan.devices)
    for p, ticks in right["quantile_ticks"].items():
        q = found.time.quantile(float(p))
        assert q.kind == "certified"
        assert q.lower <= ticks * case["tick"] <= q.upper
        assert q.value == pytest.approx(ticks * case["tick"], rel=1e-9)
    # One static power for each device and no dynamic energy: E = B T.
    middle = right["quantile_ticks"]["0.5"] * case["tick"]
    assert found.energy.quantile(0.5).value == pytest.approx(power * middle, rel=1e-9)


@pytest.mark.parametrize(
    "name", ["wheatstone", "1f1b_3x4_cv0.1", "1f1b_2x8_cv0.1", "1f1b_4x8_cv0.1"]
)
def test_bounds_enclose_the_reference(
    name: str, shared_data: Callable[[str], Any]
) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    found = predict(plan_of(case), "bounds").time
    above = case["independence_upper_bound"].get("quantile_ticks", {})
    for p, ticks in case["makespan"]["quantile_ticks"].items():
        low, high = (
            (ticks["lo95"], ticks["hi95"]) if isinstance(ticks, dict) else [ticks] * 2
        )
        q = found.quantile(float(p))
        assert q.kind == "certified"
        assert q.lower <= high * case["tick"]
        assert low * case["tick"] <= q.upper * (1 + 1e-12)
        if p in above:
            assert q.upper == pytest.approx(above[p] * case["tick"], rel=1e-3)


def test_moments_are_near_at_a_small_spread(
    shared_data: Callable[[str], Any],
) -> None:
    case = cases(shared_data("reference/plans.json"))["1f1b_16x128_cv0.05"]
    found = predict(plan_of(case), "moments").time
    right = case["makespan"]["mean_ticks"] * case["tick"]
    assert found.mean() == pytest.approx(right, rel=2e-3)
    assert found.quantile(0.99).kind == "estimate"


def test_long_chains_reduce_without_recursion() -> None:
    e = Element("e", time=stats.gamma(2.0), static_power=60.0, device="gpu0")
    size = 50_000
    plan = Plan.from_arrays(
        elements=[e],
        element_of=[0] * size,
        sources=list(range(size - 1)),
        targets=list(range(1, size)),
    )
    assert reduced(plan).whole


def test_dependent_nodes_are_refused_by_name() -> None:
    e = Element("e", time=stats.gamma(2.0), static_power=60.0, device="gpu0")
    plan = Plan.of([PlanNode("a", e, labels={"rank": 0})])
    grouped = plan.drawn(factors=[DrawFactor("pace", stats.lognorm(0.1), by="rank")])
    for method in ("exact", "bounds", "moments"):
        with pytest.raises(InputError, match="monte-carlo"):
            predict(grouped, method)  # type: ignore[arg-type]
    assert predict(grouped, samples=500).method == "monte-carlo"
    with pytest.raises(InputError, match="expected method 'monte-carlo'"):
        predict(plan, "exact", samples=100)
