"""Composed predictions against direct measurement: error rates and power."""

from __future__ import annotations

import numpy as np
import pytest

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.plan import Plan
from probcalc.term import Term
from probcalc.validation.blocks import Blocked
from probcalc.validation.deviation import (
    deviation,
    law_deviation,
    plain_deviation,
    predicted,
    single_runs,
)
from probcalc.validation.insensitivity import Shift
from probcalc.validation.reduction import reduction_bound
from probcalc.validation.refinement import refinement
from probcalc.validation.sensitivity import sensitivity
from probcalc.validation.verdict import HELD, REFUTED, UNDECIDED
from tests.measured_runs import energies, most, runs


def layer(rng: np.random.Generator, blocks: int, each: int) -> tuple[Term, Blocked]:
    """A chain of two elements, and direct runs of it in other processes."""
    a, b = (runs(rng, blocks=blocks, each=each, name=n) for n in "ab")
    first, second = (energies(runs(rng, blocks=blocks, each=each)) for _ in "ab")
    return a >> b, first.with_values(first.values + second.values, "layer")


def test_a_right_prediction_is_not_refuted_too_often() -> None:
    rng = np.random.default_rng(1)
    refuted = wrong_law = 0
    for seed in range(60):
        term, direct = layer(rng, 6, 5)
        ours = predicted(term, resamples=60, samples=512, seed=seed)
        refuted += deviation(ours, direct, margin=0.0).outcome is REFUTED
        wrong_law += law_deviation(ours, direct, seed=seed).outcome is REFUTED
    assert refuted <= most(60)
    assert wrong_law <= most(60)


def test_a_bias_is_found_and_a_margin_holds() -> None:
    rng = np.random.default_rng(2)
    term, direct = layer(rng, 20, 20)
    ours = predicted(term, resamples=100, seed=1)
    biased = direct.with_values(1.02 * direct.values)  # 64 mJ of 3.2 J
    assert deviation(ours, biased, margin=0.02).outcome is REFUTED
    assert law_deviation(ours, biased).outcome is REFUTED
    assert single_runs(ours, biased).outcome is REFUTED
    assert deviation(ours, direct, margin=0.02).outcome is HELD
    assert deviation(ours, direct, margin=0.0).outcome is not HELD
    assert law_deviation(ours, direct).outcome is UNDECIDED
    # A bias of two thirds of a run's sd, which the plain rule cannot see.
    small = direct.with_values(direct.values + 0.008)
    assert not plain_deviation(ours, small).flagged
    assert deviation(ours, small, margin=0.0).outcome is REFUTED


def test_refinement_within_the_reduction_bound() -> None:
    rng = np.random.default_rng(9)
    term, whole = layer(rng, 20, 10)
    shifts = {"b": Shift(1e-4, 0.02)}
    bound = reduction_bound(term, shifts)
    assert refinement(term, whole, bound).outcome is HELD
    far = whole.with_values(whole.values + 5.0 * bound.energy)
    assert refinement(term, far, bound).outcome is REFUTED
    with pytest.raises(InputError, match="bound is -1"):
        refinement(term, whole, -1.0)


def test_one_process_decides_nothing() -> None:
    rng = np.random.default_rng(3)
    term, _ = layer(rng, 6, 10)
    one = energies(runs(rng, blocks=1, each=100, shift=1000.0))
    found = deviation(predicted(term, resamples=20), one, margin=1e-3)
    assert found.outcome is UNDECIDED


def test_predictions_of_plans_and_rows() -> None:
    rng = np.random.default_rng(4)
    term, direct = layer(rng, 8, 10)
    plan = Plan.from_term(term)
    ours = predicted(plan, samples=1024, resamples=20, seed=1)
    assert ours.draws.size == 1024
    spread = ours.spread(lambda draws: float(draws.mean()))
    assert 0.0 < spread.std() < 0.01
    assert deviation(ours, direct, margin=0.02).outcome is HELD
    time = predicted(term, of="time", samples=512, resamples=5)
    assert time.draws.mean() == pytest.approx(2e-2, rel=0.01)


def test_known_laws_are_taken_as_known() -> None:
    rng = np.random.default_rng(5)
    exact = Element(
        "exact", time=1e-2, dynamic_energy=1.0, static_power=60.0, device="gpu0"
    )
    ours = predicted(exact, samples=64, resamples=0)
    assert ours.again == ()
    direct = energies(runs(rng, blocks=20, each=10))
    assert deviation(ours, direct, margin=0.01, levels=(0.5,)).outcome is HELD


def test_sensitivity_points_at_the_largest() -> None:
    rng = np.random.default_rng(6)
    steady = runs(rng, blocks=5, each=20, name="steady")
    big = Element.from_runs(
        "big",
        time=rng.normal(0.1, 0.005, 100),
        energy=rng.normal(16.0, 0.1, 100),
        static_power=60.0,
        device="gpu0",
    )
    found = sensitivity(steady >> big, gap=1.6, samples=2000)
    assert [i.element for i in found] == ["big", "steady"]
    assert found[0].variance_share > 0.9 > 0.1 > found[1].variance_share
    # 16 J and a gap of 1.6 J: ten percent more of it would explain all.
    assert found[0].factor == pytest.approx(1.1, rel=0.01)
    assert found[0].slope == pytest.approx(0.16, rel=0.02)


def test_bad_input() -> None:
    rng = np.random.default_rng(7)
    term, direct = layer(rng, 4, 4)
    ours = predicted(term, samples=64, resamples=2)
    with pytest.raises(InputError, match="margin is -1"):
        deviation(ours, direct, margin=-1.0)
    with pytest.raises(InputError, match=r"inner is 1\.5"):
        single_runs(ours, direct, inner=1.5)
    with pytest.raises(InputError, match="one run has no spread"):
        plain_deviation(ours, Blocked.of([1.0]))


@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_few_processes_of_an_element_refute_nothing_too_often(blocks: int) -> None:
    """Processes differ by more than runs do; the prediction rests on a few of them."""
    rng = np.random.default_rng([8, blocks])
    refuted = law = 0
    for seed in range(40):
        part = runs(rng, blocks=blocks, each=10, offset=5.0, name="a")
        direct = energies(runs(rng, blocks=20, each=5, offset=5.0))
        ours = predicted(part, samples=400, resamples=60, seed=seed)
        assert ours.units == blocks
        found = deviation(ours, direct, margin=0.0)
        refuted += found.outcome is REFUTED
        law += law_deviation(ours, direct, repeats=99, seed=seed).outcome is REFUTED
        if blocks == 1:
            assert "one process only" in found.parts[0].reason
    assert refuted <= most(40)
    assert law <= most(40)
