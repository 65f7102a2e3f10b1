"""The reduction bound: substitutions, tightness, and that it holds everywhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.plan import Edge, Plan, PlanNode
from probcalc.term import Term
from probcalc.validation.insensitivity import Shift, history_insensitive
from probcalc.validation.reduction import (
    Substitution,
    can_reduce,
    held_over_own,
    multiplicities,
    reduction_bound,
)
from probcalc.validation.simulated_contexts import random_case, worst_deviation
from tests.measured_runs import ENERGY_SD, runs


def element(name: str, device: str = "gpu0", time: float = 1.0) -> Element:
    return Element(
        name, time=time, dynamic_energy=2.0, static_power=50.0, device=device
    )


A, B, C = element("a"), element("b"), element("c")
FAR = element("far", "gpu1")


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (A, {"a": (0, 0)}),
        (A >> B, {"a": (0, 0), "b": (1, 0)}),
        (A | B, {"a": (0, 1), "b": (0, 1)}),
        (A & FAR, {"a": (0, 1), "far": (0, 1)}),
        (A >> (B | C), {"a": (0, 0), "b": (1, 1), "c": (1, 1)}),
        ((A >> B) ** 3, {"a": (2, 0), "b": (3, 0)}),
        ((A | B) >> C, {"a": (0, 1), "b": (0, 1), "c": (1, 0)}),
        (A >> A >> A, {"a": (2, 0)}),
    ],
)
def test_substitutions(term: Term, expected: dict[str, tuple[int, int]]) -> None:
    found = multiplicities(term)
    assert found == {name: Substitution(*m) for name, m in expected.items()}
    assert found["a"].total == sum(expected["a"])


def test_substitutions_of_plans() -> None:
    chain = Plan.of([PlanNode("x", A), PlanNode("y", B, ["x"])])
    assert multiplicities(chain) == {
        "a": Substitution(0, 0),
        "b": Substitution(1, 0),
    }
    fork = Plan.of(
        [PlanNode("x", A), PlanNode("y", B, ["x"]), PlanNode("z", FAR, ["x"])]
    )
    assert multiplicities(fork)["far"] == Substitution(1, 1)


def test_bound_by_hand() -> None:
    one = {"b": Shift(0.1, 3.0)}
    found = reduction_bound(A >> B, one)
    assert found.time == pytest.approx(0.1)
    assert found.energy == pytest.approx(50.0 * 0.1 + 3.0)
    assert found.linear == pytest.approx(found.energy)
    both = {n: Shift(0.1, 0.0) for n in "bc"}
    # At once only the longer path counts, with history and interference each.
    co = reduction_bound(A >> (B | C), both, both)
    assert co.time == pytest.approx(0.2)
    assert co.energy == pytest.approx(50.0 * 0.2)
    assert co.linear == pytest.approx(4 * 50.0 * 0.1)
    # Both devices are held: a shift of one costs the power of both.
    held = reduction_bound(A & FAR, {}, {n: Shift(0.1, 0.0) for n in ("a", "far")})
    assert held.energy == pytest.approx(100.0 * 0.1)


def test_static_power_shifts_for_as_long_as_the_element_runs() -> None:
    found = reduction_bound(A >> B, {"b": Shift(0.0, 0.0, static_power=2.0)})
    assert found.energy == pytest.approx(2.0 * 1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "element 'b': its shift by history is not given"),
        ({"b": Shift(-1.0, 0.0)}, "shift of time is -1.0, expected >= 0"),
        ({"b": Shift(0.0, float("nan"))}, "shift of dynamic_energy is nan"),
    ],
)
def test_bad_shifts(given: dict[str, Shift], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reduction_bound(A >> B, given)


@pytest.mark.parametrize("seed", range(150))
def test_bound_holds_at_every_quantile(seed: int) -> None:
    """Random terms and plans in random contexts inside the tolerances."""
    case = random_case(seed)
    bound = reduction_bound(case.plan, case.history, case.interference)
    off = worst_deviation(case, seed=seed, samples=200)
    assert off.energy <= bound.energy * (1.0 + 1e-9)
    assert off.time <= bound.time * (1.0 + 1e-9)
    assert bound.energy <= bound.linear * (1.0 + 1e-9)


def test_bound_is_broken_when_tolerances_are() -> None:
    broken = 0
    for seed in range(30):
        case = random_case(seed)
        bound = reduction_bound(case.plan, case.history, case.interference)
        off = worst_deviation(case, seed=seed, samples=50, beyond=40.0)
        broken += bound.energy > 0.0 and off.energy > bound.energy
    assert broken >= 20


def test_bound_is_attained_on_chains() -> None:
    """Nothing smaller would do: all shifts at their largest, one way."""
    term = A >> B >> C
    shifts = {n: Shift(0.2, 1.0) for n in "bc"}
    bound = reduction_bound(term, shifts)
    assert bound.energy == pytest.approx(2 * (50.0 * 0.2 + 1.0))


def test_can_reduce() -> None:
    rng = np.random.default_rng(1)
    margin = 1.96 * ENERGY_SD
    parts = {
        n: history_insensitive(
            runs(rng, blocks=30, name=n),
            runs(rng, blocks=30, name=n),
            margin=margin,
            levels=(),
            tail=None,
        )
        for n in ("b", "c")
    }
    b, c = (runs(rng, blocks=5, name=n) for n in ("b", "c"))
    a = runs(rng, blocks=5, name="a")
    term = a >> (b >> c) ** 5
    found = can_reduce(term, parts, tolerance=11 * margin)
    assert found.enough is True
    assert found.bound == pytest.approx(10 * margin)
    assert can_reduce(term, parts, tolerance=9 * margin).enough is False
    assert found.cut is not None
    assert found.gain == pytest.approx(9 * margin)  # five pairs, measured as one
    missing = can_reduce(term, {"b": parts["b"]}, tolerance=1.0)
    assert missing.enough is None
    assert missing.missing == ("c (history)",)
    with pytest.raises(InputError, match="tolerance is 0"):
        can_reduce(term, parts, tolerance=0.0)


def test_lags_are_no_shift() -> None:
    plan = Plan.of([PlanNode("x", A), PlanNode("y", B, [Edge("x", lag=5.0)])])
    assert reduction_bound(plan, {"b": Shift(0.1, 0.0)}).time == pytest.approx(0.1)
    assert math.isfinite(reduction_bound(plan, {"b": Shift(0.1, 0.0)}).energy)


def test_margins_are_taken_at_the_power_of_all_that_waits() -> None:
    """Another board of the same power waits for it: its margin counts twice."""
    rng = np.random.default_rng(3)
    margin = 1.96 * ENERGY_SD
    alike: dict[str, Any] = {"margin": margin, "levels": (), "tail": None}
    a = history_insensitive(
        runs(rng, blocks=30, name="a"), runs(rng, blocks=30, name="a"), **alike
    )
    here = runs(rng, blocks=4, name="a")
    other = Element("b", time=0.01, static_power=60.0, device="gpu1")
    first = runs(rng, blocks=4, name="p")
    term = (first >> here) & other
    verdicts = {"a": a}
    beside = {
        n: history_insensitive(
            runs(rng, blocks=30, name=n), runs(rng, blocks=30, name=n), **alike
        )
        for n in ("a", "b", "p")
    }
    with pytest.raises(InputError, match="is about 'history of"):
        can_reduce(term, verdicts, beside, tolerance=1.0)
    found = can_reduce((first >> here), verdicts, tolerance=1.0)
    assert found.bound == pytest.approx(margin)
    with pytest.raises(InputError, match="is about 'history of a'"):
        can_reduce(first >> runs(rng, blocks=4, name="c"), {"c": a}, tolerance=1.0)
    assert held_over_own(term)["a"] == pytest.approx(2.0)
