"""Is A cheaper than B: differences, pairs, and single runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from probcalc.errors import InputError
from probcalc.validation.blocks import Blocked
from probcalc.validation.comparison import compare, less_than, probability_less
from probcalc.validation.verdict import HELD, REFUTED, UNDECIDED
from tests.measured_runs import energies, most, runs


def test_clear_and_unclear() -> None:
    rng = np.random.default_rng(1)
    a = energies(runs(rng, blocks=10, each=5, name="a"))
    b = energies(runs(rng, blocks=10, each=5, shift=3.0, name="b"))
    found = compare(a, b)
    assert found.cheaper.outcome is HELD
    assert found.separated
    assert less_than(a, b)
    assert not less_than(b, a)
    assert found.ratio < 1.0
    assert compare(b, a).cheaper.outcome is REFUTED
    near = compare(*(energies(runs(rng, blocks=3)) for _ in "ab"))
    assert near.cheaper.outcome is UNDECIDED
    assert near.cheaper.further is None or near.cheaper.further >= 1
    json.dumps(found.to_dict(), allow_nan=False)


def test_wrong_answers_are_rare() -> None:
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(300):
        a, b = (energies(runs(rng, blocks=5, each=3)) for _ in "ab")
        wrong += compare(a, b).cheaper.outcome is not UNDECIDED
    assert wrong <= most(300, 0.10)  # either way, five percent each


def test_probability_less_covers_and_matches_the_formula() -> None:
    rng = np.random.default_rng(3)
    truth = float(stats.norm.cdf(1.0 / np.sqrt(2.0)))
    missed = 0
    for _ in range(300):
        block = rng.normal(size=(2, 12, 1)) * 0.3
        z = np.sqrt(1.0 - 0.09) * rng.normal(size=(2, 12, 10)) + block
        labels = np.repeat(np.arange(12), 10)
        a, b = (Blocked.of(z[i].ravel() + i, labels) for i in (0, 1))
        found = probability_less(a, b)
        missed += not found.lower <= truth <= found.upper
    assert missed <= most(300, 0.06)


def test_ties_and_full_separation() -> None:
    same = Blocked.of(np.ones(10))
    assert probability_less(same, same).value == 0.5
    assert probability_less(same, same).kind == "open"
    low, high = Blocked.of(np.arange(10.0)), Blocked.of(100.0 + np.arange(10.0))
    found = probability_less(low, high)
    assert found.value == found.upper == 1.0
    assert found.lower == pytest.approx(0.025 ** (1 / 10))
    assert probability_less(high, low).upper == pytest.approx(1 - 0.025 ** (1 / 10))
    half = probability_less(Blocked.of([1.0, 2.0]), Blocked.of([1.0, 2.0]))
    assert half.value == 0.5


def test_pairs_remove_what_blocks_share() -> None:
    rng = np.random.default_rng(4)
    drift = np.linspace(0.0, 5.0, 10)
    a = Blocked.of(10.0 + drift + 0.01 * rng.normal(size=10), name="a")
    b = Blocked.of(10.1 + drift + 0.01 * rng.normal(size=10), name="b")
    assert compare(a, b).cheaper.outcome is UNDECIDED
    assert compare(a, b, paired=True).cheaper.outcome is HELD
    with pytest.raises(InputError, match="pairs need equally many"):
        compare(a, Blocked.of(range(9)), paired=True)
