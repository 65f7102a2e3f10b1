"""Laws that are given: constants, atoms, measured runs, and SciPy's."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.composed import (
    maximum,
    minimum,
    mixture,
    quantile,
    repeat,
    scale,
    shift,
    sum_of,
)
from probcalc.distribution import Constant, Distribution, Empirical, as_law
from tests.law_checks import LEVELS, assert_level, exponential_sf, gamma_sf

# ---- atoms, constants, zeros -----------------------------------------------------


def test_atom_at_zero_is_a_quantile() -> None:
    law = repeat(mixture([0.9, 0.1], [Constant(0.0), stats.expon()]), 2)
    # P(S > 0) = 1 - 0.81.
    for sf in (0.5, 0.1901):
        found = law.quantile(sf=sf)
        assert found.lower <= 0.0 <= found.upper
        assert found.upper - found.lower <= 1e-3
    assert law.quantile(sf=0.1899).upper > 0.0
    assert law.cdf(0.0) == pytest.approx(0.81, abs=1e-9)
    assert law.cdf(-1e-9) == pytest.approx(0.0, abs=1e-12)


def test_sums_of_constants_are_exact() -> None:
    for law in (
        sum_of(1.0, 2.0, Constant(3.0)),
        repeat(2.0, 3),
        maximum(6.0, Constant(1.0)),
        minimum(6.0, 8.0),
        scale(3.0, 2.0),
        shift(5.5, 0.5),
        mixture([1.0], [6.0]),
    ):
        found = quantile(law, sf=1e-9)
        assert (found.lower, found.value, found.upper) == (6.0, 6.0, 6.0)
        assert found.kind == "certified"
        assert float(law.mean()) == 6.0
        assert float(law.variance()) == 0.0
        assert (law.cdf(5.999), law.cdf(6.0), law.ccdf(6.0)) == (0.0, 1.0, 0.0)


def test_sum_of_decimal_constants_is_rounded_once() -> None:
    """0.1 and 0.2 are not what they look like: one unit in the last place at most."""
    found = sum_of(0.1, 0.2, 0.3).quantile(0.5)
    exact = Fraction(0.1) + Fraction(0.2) + Fraction(0.3)
    assert abs(Fraction(found.value) - exact) <= Fraction(math.ulp(0.6)) / 2
    assert found.upper - found.lower <= 4 * math.ulp(0.6)


def test_scale_by_zero_is_the_constant_zero() -> None:
    law = scale(stats.expon(), 0.0)
    assert quantile(law, sf=1e-9).upper == 0.0
    assert float(law.mean()) == 0.0


@pytest.mark.parametrize("sf", LEVELS)
def test_level_on_a_step_holds_one_side_of_it(sf: float) -> None:
    """Dyadic masses make the cumulative probabilities exact doubles."""
    law = sum_of(Empirical([0.0, 1.0]), Empirical([0.0, 2.0]))
    # Four outcomes 0, 1, 2, 3 of 1/4 each; P(S > 1) = 1/2 exactly.
    assert law.quantile(sf=0.5).value == 1.0
    assert law.quantile(sf=math.nextafter(0.5, 0)).upper >= 1.0
    assert law.quantile(sf=0.25).value == 2.0
    assert law.quantile(p=0.75).value == 2.0
    assert law.quantile(sf=min(sf, 0.2)).value == 3.0


# ---- empirical laws --------------------------------------------------------------


def test_empirical_keeps_order_ties_and_blocks() -> None:
    law = Empirical([3.0, 1.0, 3.0, 2.0], blocks=["a", "a", "b", "b"])
    assert list(law.samples) == [3.0, 1.0, 3.0, 2.0]
    assert law.blocks == ("a", "a", "b", "b")
    assert law.cdf(2.0) == 0.5
    assert law.ccdf(2.0) == 0.5
    assert [law.icdf(p) for p in (0.25, 0.26, 0.5, 0.51, 1.0)] == [1, 2, 2, 3, 3]
    assert law.iccdf(0.5) == 2.0
    assert law.mean() == 2.25
    assert law.variance() == pytest.approx(0.6875, abs=1e-15)
    assert law.support() == (1.0, 3.0)
    with pytest.raises(ValueError, match="read-only"):
        law.samples[0] = 9.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        law.samples = np.zeros(1)  # type: ignore[misc]


def test_empirical_does_not_alias_the_given_array() -> None:
    given = np.array([1.0, 2.0])
    law = Empirical(given)
    given[0] = 99.0
    assert law.mean() == 1.5


def test_weights_are_probabilities_of_runs() -> None:
    law = Empirical([1.0, 2.0, 1.0], weights=[1.0, 2.0, 1.0])
    assert law.cdf(1.0) == 0.5
    assert law.mean() == 1.5
    rare = Empirical([0.0, 1e9], weights=[1.0, 1e-20])
    assert rare.ccdf(0.0) == pytest.approx(1e-20, rel=1e-12)
    twice = repeat(rare, 2)
    assert twice.ccdf(0.0) == pytest.approx(2e-20, rel=1e-6)
    found = twice.quantile(sf=1e-20)
    assert found.lower <= 1e9 <= found.upper


def test_single_run_is_a_constant() -> None:
    law = repeat(Empirical([2.5]), 4)
    found = law.quantile(sf=1e-9)
    assert (found.lower, found.upper) == (10.0, 10.0)
    assert float(law.variance()) == 0.0


def test_samples_over_nine_decades() -> None:
    samples = [10.0**k for k in range(-6, 4)]
    law = repeat(Empirical(samples), 3)
    outcomes = sorted(
        sum((Fraction(x) for x in draw), Fraction(0))
        for draw in itertools.product(samples, repeat=3)
    )
    for sf in (0.9, 0.5, 0.1, 0.0005):
        found = law.quantile(sf=sf)
        right = outcomes[len(outcomes) - 1 - math.floor(sf * len(outcomes))]
        assert Fraction(found.lower) <= right <= Fraction(found.upper), (sf, found)


def test_empirical_and_smooth_over_nine_decades() -> None:
    samples = [10.0**k for k in range(-6, 4)]

    def above(x: float) -> float:
        return math.fsum(exponential_sf(1e4)(x - s) for s in samples) / 10

    law = sum_of(Empirical(samples), stats.expon(scale=1e-4))
    for sf in (0.55, 0.05, 1e-6):
        assert_level(law.quantile(sf=sf), above, sf, width=1e-3)


# ---- what laws are accepted ------------------------------------------------------


def _new_infrastructure() -> dict[str, tuple[Any, Any]]:
    lognormal = stats.make_distribution(stats.lognorm)
    normal = stats.Normal(mu=10.0, sigma=2.0)
    return {
        "Normal": (normal, stats.norm(10, 2)),
        "Uniform": (stats.Uniform(a=1.0, b=3.0), stats.uniform(1, 2)),
        "make_distribution": (lognormal(s=0.5), stats.lognorm(0.5)),
        "truncate": (
            stats.truncate(normal, lb=9.0, ub=14.0),
            stats.truncnorm(-0.5, 2.0, 10, 2),
        ),
        "shifted and scaled": (normal * 2 + 1, stats.norm(21, 4)),
    }


@pytest.mark.parametrize("name", list(_new_infrastructure()))
def test_new_scipy_distributions_are_laws(name: str) -> None:
    new, frozen = _new_infrastructure()[name]
    assert isinstance(new, Distribution)
    assert as_law(new) is new
    for sf in (0.5, 1e-6):
        one = sum_of(new, new).quantile(sf=sf)
        two = repeat(frozen, 2).quantile(sf=sf)
        assert one.kind == two.kind == "certified"
        assert max(one.lower, two.lower) <= min(one.upper, two.upper)
        alone = quantile(new, sf=sf)
        right = float(frozen.isf(sf))
        assert alone.lower <= right * (1 + 1e-9)
        assert right * (1 - 1e-9) <= alone.upper


def test_scipy_mixture_and_order_statistic() -> None:
    blend = stats.Mixture(
        [stats.Normal(mu=5.0, sigma=1.0), stats.Normal(mu=50.0, sigma=1.0)],
        weights=[0.75, 0.25],
    )
    # Upper components are out of the way: P(> x) = P(both) at x in the gap.
    law = sum_of(blend, Constant(1.0))
    assert float(law.ccdf(30.0)) == pytest.approx(0.25, rel=1e-9)
    largest = stats.order_statistic(stats.Uniform(a=0.0, b=1.0), r=4, n=4)
    found = sum_of(largest, 2.0).quantile(0.5)
    assert found.lower <= 2 + 0.5**0.25 <= found.upper


def test_discrete_scipy_laws_keep_their_atoms() -> None:
    """Poisson(3) ten-fold is Poisson(30): an integer, without width."""
    found = repeat(stats.poisson(3.0), 10).quantile(sf=1e-6)
    assert found.value == float(stats.poisson(30.0).isf(1e-6))
    assert found.lower <= found.value <= found.upper
    mixed = maximum(stats.binom(10, 0.5), stats.binom(5, 0.1)).quantile(sf=0.01)
    assert mixed.value == float(stats.binom(10, 0.5).isf(0.01))


def test_equal_names_are_not_equal_laws() -> None:
    """Laws from values share SciPy's default name; they must not be merged."""
    one = stats.rv_discrete(values=([0, 1], [0.5, 0.5]))()
    five = stats.rv_discrete(values=([0, 5], [0.5, 0.5]))()
    law = sum_of(one, five)
    assert float(law.mean()) == pytest.approx(3.0, rel=1e-12)
    assert law.quantile(sf=1e-3).value == 6.0
    assert float(law.cdf(1.5)) == pytest.approx(0.5, abs=1e-12)


def test_discrete_law_off_the_integers() -> None:
    halves = stats.rv_discrete(values=([0, 0.5, 2], [0.25, 0.5, 0.25]))()
    law = sum_of(halves, 1.0)
    assert law.quantile(sf=0.3).value == 1.5
    assert float(law.cdf(1.5)) == pytest.approx(0.75, abs=1e-12)
    assert float(law.mean()) == pytest.approx(1.75, abs=1e-12)
    twice = repeat(halves, 2)
    # 0, 0.5, 1, 2, 2.5, 4 with sixteenths 1, 4, 4, 2, 4, 1.
    for x, below in ((0.5, 5), (1.0, 9), (2.0, 11), (2.5, 15), (4.0, 16)):
        assert float(twice.cdf(x)) == pytest.approx(below / 16, abs=1e-12)


class ZeroInflated:
    """A law of one's own, with an atom where its support begins."""

    def support(self) -> tuple[float, float]:
        return (0.0, math.inf)

    def cdf(self, x: Any, /) -> Any:
        x = np.asarray(x, dtype=float)
        return np.where(x < 0, 0.0, 1 - 0.1 * np.exp(-np.maximum(x, 0)))[()]

    def ccdf(self, x: Any, /) -> Any:
        x = np.asarray(x, dtype=float)
        return np.where(x < 0, 1.0, 0.1 * np.exp(-np.maximum(x, 0)))[()]

    def icdf(self, p: Any, /) -> Any:
        return self.iccdf(1 - np.asarray(p, dtype=float))

    def iccdf(self, p: Any, /) -> Any:
        return np.maximum(-np.log(10 * np.asarray(p, dtype=float)), 0.0)[()]

    def mean(self) -> float:
        return 0.1

    def variance(self) -> float:
        return 0.19

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        return self.iccdf(np.random.default_rng(rng).random(shape))


@pytest.mark.parametrize("sf", [0.5, 0.01, 1e-6])
def test_law_of_ones_own_with_an_atom_at_its_lower_end(sf: float) -> None:
    """Twelve of them: binomial mixture of Erlang laws."""
    own = ZeroInflated()
    assert isinstance(own, Distribution)

    def above(x: float) -> float:
        return math.fsum(
            math.comb(12, k) * 0.1**k * 0.9 ** (12 - k) * gamma_sf(k)(x)
            for k in range(1, 13)
        )

    found = repeat(own, 12).quantile(sf=sf)
    # Known by its distribution function alone: no narrow bracket is promised.
    assert_level(found, above, sf, width=0.05)
    largest = maximum(own, own).quantile(sf=0.1)
    right = -math.log(10 * (1 - math.sqrt(0.9)))
    assert largest.lower <= right <= largest.upper
