"""Summaries merge in any order; laws read off samples keep their confidence."""

from __future__ import annotations

import functools
import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from probcalc.errors import ToleranceError
from probcalc.sampled import Sampled
from probcalc.summary import BITS, Summary

NUMBERS = st.one_of(
    st.integers(-(2**20), 2**20),
    st.integers(-(2**47), 2**47),
    st.sampled_from([0, 2**BITS - 1, 2**BITS, 2**BITS + 1, -(2**BITS), 2**47]),
)
LISTS = st.lists(NUMBERS, min_size=1, max_size=60)


def law(numbers: Any, unit: float = 1.0, level: float = 0.95) -> Sampled:
    return Sampled(Summary.of(np.asarray(numbers, dtype=np.int64)), unit, level)


@given(st.lists(LISTS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_partition_and_order_merge_to_the_same(
    parts: list[list[int]], random: Random
) -> None:
    whole = Summary.of(np.array([x for part in parts for x in part]))
    pieces = [Summary.of(np.array(part, dtype=np.int64)) for part in parts]
    random.shuffle(pieces)
    merged = functools.reduce(Summary.merged, pieces)
    assert merged.digest == whole.digest
    middle = len(pieces) // 2
    if middle:
        halves = [
            functools.reduce(Summary.merged, half)
            for half in (pieces[middle:], pieces[:middle])
        ]
        assert halves[0].merged(halves[1]).digest == whole.digest


@given(LISTS)
def test_sums_are_exact_and_ranks_lie_in_their_bins(numbers: list[int]) -> None:
    found = Summary.of(np.array(numbers, dtype=np.int64))
    assert found.count == len(numbers)
    assert found.total == sum(numbers)
    assert found.squares == sum(x * x for x in numbers)
    assert (found.least, found.most) == (min(numbers), max(numbers))
    for rank, right in enumerate(sorted(numbers), start=1):
        low, high = found.ranked(rank)
        assert low <= right <= high
        assert high - low <= abs(right) / 2 ** (BITS - 1)


def test_numbers_of_too_many_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="48 bits"):
        Summary.of(np.array([1 << 48]))


def test_quantiles_of_a_partitioned_record() -> None:
    numbers = np.repeat([1000, 3000, 9000], [26, 11, 2])
    rng = np.random.default_rng(3)
    for _ in range(5):
        parts = np.array_split(rng.permutation(numbers), 7)
        merged = functools.reduce(Summary.merged, map(Summary.of, parts))
        found = Sampled(merged, 1.0)
        assert found.icdf([0.5, 0.9, 0.95]).tolist() == [1000.0, 3000.0, 9000.0]


def test_far_quantiles_of_few_samples_say_how_many_are_needed() -> None:
    few = law(np.arange(71))
    with pytest.raises(ToleranceError, match="at least 368 needed"):
        few.quantile(0.99)
    with pytest.raises(ToleranceError):
        law(np.arange(367)).quantile(0.99)
    q = law(np.arange(368)).quantile(0.99)
    assert q.upper == 367.0
    assert q.kind == "confidence"
    assert "95%" in q.limited_by


@pytest.mark.parametrize("n", [5, 20, 71, 300, 1000])
@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_ranks_enclose_quantiles_and_no_narrower_ones_do(n: int, p: float) -> None:
    """Each end misses with at most 2.5 %: with binomial(n, p) samples below."""
    try:
        q = law(np.arange(1, n + 1)).quantile(p)
    except ToleranceError:
        # No rank: even the extreme sample misses more often.
        assert max(stats.binom.pmf(0, n, p), stats.binom.pmf(n, n, p)) > 0.025
        return
    low, high = int(q.lower), int(q.upper)
    assert stats.binom.cdf(low - 1, n, p) <= 0.025 < stats.binom.cdf(low, n, p)
    assert stats.binom.sf(high - 1, n, p) <= 0.025 < stats.binom.sf(high - 2, n, p)


def test_probabilities_have_exact_binomial_intervals() -> None:
    found = law([1] * 18 + [5] * 2)
    p = found.probability_above(3.0)
    assert p.value == 0.1
    # Clopper and Pearson: each end makes what was seen 2.5 % likely.
    assert stats.binom.sf(1, 20, p.lower) == pytest.approx(0.025)
    assert stats.binom.cdf(2, 20, p.upper) == pytest.approx(0.025)
    none = found.probability_above(7.0)
    assert (none.value, none.lower) == (0.0, 0.0)
    assert none.upper == pytest.approx(1.0 - 0.025 ** (1 / 20))
    assert found.probability_above(0.0).upper == 1.0


def test_moments_are_those_of_the_samples() -> None:
    rng = np.random.default_rng(1)
    numbers = rng.integers(-(10**9), 10**12, 5000)
    found = law(numbers, unit=0.5)
    assert found.mean() == pytest.approx(0.5 * np.mean(numbers), rel=1e-14)
    assert found.variance() == pytest.approx(0.25 * np.var(numbers, ddof=1), rel=1e-12)
    bounds = found.mean_bounds()
    half = stats.norm.ppf(0.975) * math.sqrt(found.variance() / 5000)
    assert bounds.upper - bounds.value == pytest.approx(half)
    assert law([3]).variance() == 0.0


def test_the_mean_of_a_tail_is_covered() -> None:
    missed = 0
    right = 1.0 + math.log(20.0)  # of an exponential law, beyond sf = 0.05
    for seed in range(200):
        draws = np.random.default_rng(seed).exponential(size=2000)
        found = law(np.rint(draws * 2.0**30), unit=2.0**-30)
        tail = found.expected_shortfall(sf=0.05)
        missed += not tail.lower <= right <= tail.upper
    # Asymptotic intervals of 100 samples in the tail: a little short of 95 %.
    assert missed <= stats.binom(200, 0.08).isf(1e-4)
