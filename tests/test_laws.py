"""Behaviour of every kind of law, each against a closed form.

Most checks need no solved quantile: the survival function of the truth is known,
so a bracket is right when that function steps over the level inside it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from probcalc.composed import (
    Variable,
    expected_shortfall,
    maximum,
    minimum,
    mixture,
    probability_above,
    product,
    quantile,
    repeat,
    scale,
    shift,
    sum_of,
)
from probcalc.distribution import (
    Constant,
    Distribution,
    Empirical,
    Quantile,
    as_law,
)
from probcalc.errors import InputError, ToleranceError

LEVELS = (0.5, 0.01, 1e-3, 1e-6, 1e-9)
#: Chance that a statistical check of this file is wrong, all of them together.
FALSE_ALARM = 1e-9
STATISTICAL_CHECKS = 12

Survival = Callable[[float], float]


def assert_level(
    found: Quantile,
    above: Survival,
    sf: float,
    *,
    slack: float = 1e-11,
    width: float | None = 1e-4,
) -> None:
    """`above` steps over `sf` inside the certified bracket, `width` wide at most."""
    assert found.kind == "certified"
    assert found.lower <= found.value <= found.upper
    assert above(found.upper) <= sf * (1 + slack), (found, above(found.upper))
    just_below = math.nextafter(found.lower, -math.inf)
    assert above(just_below) >= sf * (1 - slack), (found, above(just_below))
    if width is not None:
        assert found.upper - found.lower <= width * abs(found.value), found


def gamma_sf(shape: float, size: float = 1.0) -> Survival:
    return lambda x: float(special.gammaincc(shape, max(x, 0.0) / size))


def exponential_sf(rate: float = 1.0) -> Survival:
    return lambda x: math.exp(-rate * max(x, 0.0))


def hypoexponential_sf(*rates: float) -> Survival:
    """Sum of exponentials of distinct rates: partial fractions."""
    terms = [
        (math.prod(other / (other - rate) for other in rates if other != rate), rate)
        for rate in rates
    ]
    return lambda x: (
        1.0 if x <= 0 else math.fsum(c * math.exp(-rate * x) for c, rate in terms)
    )


def irwin_hall_sf(n: int) -> Survival:
    """Sum of n uniforms on (0, 1), in exact rational arithmetic."""

    def above(x: float) -> float:
        t = n - Fraction(x)  # P(S > x) = P(S < n - x) by symmetry
        if t <= 0:
            return 0.0
        total = sum(
            (-1) ** k * math.comb(n, k) * (t - k) ** n
            for k in range(math.floor(t) + 1)
            if k <= n
        )
        return float(Fraction(total) / math.factorial(n))

    return above


# ---- closed forms ----------------------------------------------------------------

CLOSED: dict[str, tuple[Callable[[], Any], Survival]] = {
    # Density infinite at zero.
    "20 gammas of shape 1/20": (
        lambda: repeat(stats.gamma(0.05), 20),
        exponential_sf(),
    ),
    "10 gammas of shape 1/20": (
        lambda: repeat(stats.gamma(0.05), 10),
        gamma_sf(0.5),
    ),
    "two gammas of shape 1/20": (
        lambda: repeat(stats.gamma(0.05), 2),
        gamma_sf(0.1),
    ),
    "1,000 exponentials": (lambda: repeat(stats.expon(), 1000), gamma_sf(1000)),
    "sum of two repeats": (
        lambda: sum_of(repeat(stats.gamma(0.7), 10), repeat(stats.gamma(2.0), 3)),
        gamma_sf(13.0),
    ),
    "8 gammas of distinct shapes": (
        lambda: sum_of(*[stats.gamma(0.3 + k / 4) for k in range(8)]),
        gamma_sf(8 * 0.3 + 7),
    ),
    # Scales far from one.
    "tiny scale": (
        lambda: repeat(stats.expon(scale=1e-300), 4),
        gamma_sf(4, 1e-300),
    ),
    "huge scale": (lambda: repeat(stats.expon(scale=1e300), 4), gamma_sf(4, 1e300)),
    "scaled from outside": (
        lambda: scale(repeat(stats.gamma(0.5), 6), 3e-9),
        gamma_sf(3, 3e-9),
    ),
    # Bounded on both sides.
    "12 uniforms": (lambda: repeat(stats.uniform(), 12), irwin_hall_sf(12)),
    "uniform, shifted": (
        lambda: shift(repeat(stats.uniform(), 3), 7.5),
        lambda x: irwin_hall_sf(3)(x - 7.5),
    ),
    # Extremes.
    "largest of 1,000": (
        lambda: maximum(*[stats.expon(scale=1 / (1 + k / 100)) for k in range(1000)]),
        lambda x: (
            -math.expm1(
                math.fsum(
                    math.log1p(-math.exp(-(1 + k / 100) * x)) for k in range(1000)
                )
            )
            if x > 0
            else 1.0
        ),
    ),
    "smallest of 1,000": (
        lambda: minimum(*[stats.expon(scale=1 / (1 + k / 100)) for k in range(1000)]),
        exponential_sf(math.fsum(1 + k / 100 for k in range(1000))),
    ),
    # Renyi: largest of three Exp(1) = Exp(1) + Exp(2) + Exp(3); smallest = Exp(3).
    # Renyi again, as a minimum within a maximum within a sum.
    "nested extremes": (
        lambda: sum_of(
            minimum(
                maximum(stats.expon(), stats.expon()),
                maximum(stats.expon(scale=1e6), 1e9),
            ),
            1.0,
        ),
        lambda x: hypoexponential_sf(1.0, 2.0)(x - 1),
    ),
    "sums of extremes": (
        lambda: sum_of(
            maximum(*[stats.expon()] * 3), minimum(*[stats.expon(scale=2)] * 8)
        ),
        hypoexponential_sf(1.0, 2.0, 3.0, 4.0),
    ),
    "largest of a sum and a law": (
        lambda: maximum(repeat(stats.expon(), 2), stats.expon(scale=3)),
        lambda x: (
            1 - (1 - gamma_sf(2)(x)) * -math.expm1(-max(x, 0.0) / 3)
            if x < 5
            else gamma_sf(2)(x) + math.exp(-x / 3) * (1 - gamma_sf(2)(x))
        ),
    ),
    # Atoms.
    "mixture": (
        lambda: mixture([0.25, 0.75], [stats.expon(), stats.expon(scale=10)]),
        lambda x: 0.25 * exponential_sf()(x) + 0.75 * exponential_sf(0.1)(x),
    ),
    "sum of mixtures": (
        lambda: repeat(mixture([0.5, 0.5], [Constant(0.0), stats.expon()]), 2),
        lambda x: 0.5 * exponential_sf()(x) + 0.25 * gamma_sf(2)(x) if x >= 0 else 1.0,
    ),
    # A factor on a law; the same factor on two laws.
    "factor": (
        lambda: product(Empirical([0.95, 1.0, 1.05]), repeat(stats.expon(), 2)),
        lambda x: sum(gamma_sf(2, g)(x) for g in (0.95, 1.0, 1.05)) / 3,
    ),
    "shared factor": (
        lambda: (
            lambda gain: sum_of(
                product(gain, stats.expon()), product(gain, stats.gamma(2))
            )
        )(Variable("gain", Empirical([0.5, 1.0, 2.0]))),
        lambda x: sum(gamma_sf(3, g)(x) for g in (0.5, 1.0, 2.0)) / 3,
    ),
}


def _levels_of(case: str) -> tuple[float, ...]:
    """A thousand distinct laws take a moment: two levels are enough there."""
    return (0.5, 1e-9) if case.endswith("of 1,000") else LEVELS


@pytest.mark.parametrize(
    ("case", "sf"), [(case, sf) for case in CLOSED for sf in _levels_of(case)]
)
def test_closed_form_inside_certified_bracket(case: str, sf: float) -> None:
    build, above = CLOSED[case]
    assert_level(quantile(build(), sf=sf), above, sf)


#: Parts of scales far from each other: the bracket must hold, and be narrow enough to
#: be of use; it may be wider than asked, and then says why.
HARD: dict[str, tuple[Callable[[], Any], Survival]] = {
    "scales 1 and 1e6": (
        lambda: sum_of(stats.expon(), stats.expon(scale=1e6)),
        hypoexponential_sf(1.0, 1e-6),
    ),
    "scales 1e-6 and 1e3": (
        lambda: sum_of(stats.expon(scale=1e-6), stats.expon(scale=1e3)),
        hypoexponential_sf(1e6, 1e-3),
    ),
    "rare far atom": (
        lambda: sum_of(
            mixture([1 - 2**-23, 2**-23], [Constant(0.0), Constant(1e9)]),
            stats.expon(),
        ),
        lambda x: (
            (1 - 2**-23) * exponential_sf()(x) + 2**-23 * exponential_sf()(x - 1e9)
        ),
    ),
}


@pytest.mark.parametrize("sf", LEVELS)
@pytest.mark.parametrize("case", HARD)
def test_parts_of_scales_far_from_each_other(case: str, sf: float) -> None:
    build, above = HARD[case]
    found = quantile(build(), sf=sf)
    assert_level(found, above, sf, width=None)
    assert found.upper - found.lower <= 1e-4 * found.value or found.limited_by


def _conditioned() -> dict[str, tuple[Any, Survival]]:
    """One draw in places from which it cannot be factored out.

    A, B: Exp(1). Integrating over A, with t the value asked:
    max(A + B, 2A) and max(A, B) + A are one event, P = exp(-t/2) + t/2 exp(-t);
    min(A + B, 2A): P = (1 + t/2) exp(-t).
    """
    a, b = Variable("A", stats.expon()), stats.expon()

    def larger(x: float) -> float:
        x = max(x, 0.0)
        return math.exp(-x / 2) + x / 2 * math.exp(-x)

    def smaller(x: float) -> float:
        x = max(x, 0.0)
        return (1 + x / 2) * math.exp(-x)

    return {
        "max(A + B, 2 A)": (maximum(sum_of(a, b), scale(a, 2.0)), larger),
        "max(A, B) + A": (sum_of(maximum(a, b), a), larger),
        "min(A + B, 2 A)": (minimum(sum_of(a, b), scale(a, 2.0)), smaller),
        "max(A, 2) + A": (
            sum_of(maximum(a, 2.0), a),
            lambda x: math.exp(-(x / 2 if x >= 4 else max(x - 2, 0.0))),
        ),
    }


@pytest.mark.parametrize("sf", [0.5, 0.01, 1e-9])
@pytest.mark.parametrize("case", list(_conditioned()))
def test_shared_draw_that_cannot_be_factored_out(case: str, sf: float) -> None:
    law, above = _conditioned()[case]
    # Conditioned on cells of the shared draw: certified, and as wide as it says.
    assert_level(law.quantile(sf=sf), above, sf, width=0.2)


@pytest.mark.parametrize("sf", [0.99, 0.5, 0.025, 1e-6, 1e-9])
def test_unbounded_below_and_above(sf: float) -> None:
    """Normals: mean 3 and variance 25 = 9 + 16."""
    law = sum_of(stats.norm(1, 3), stats.norm(2, 4))
    # The width is relative to the value, which may be near zero: no width here.
    assert_level(
        law.quantile(sf=sf),
        lambda x: float(special.ndtr(-(x - 3) / 5)),
        sf,
        width=None,
    )


@pytest.mark.parametrize("sf", [0.99, 0.3, 1e-3, 1e-9])
def test_no_mean_on_either_side(sf: float) -> None:
    """Eight Cauchy laws: right, or refused with a bracket that holds."""
    law = repeat(stats.cauchy(), 8)

    def above(x: float) -> float:
        return math.atan2(8.0, x) / math.pi

    try:
        found = law.quantile(sf=sf)
    except ToleranceError as refusal:
        found = refusal.best
        if found is None:
            return
    assert above(found.upper) <= sf * (1 + 1e-11)
    assert above(found.lower) >= sf * (1 - 1e-11)


# Two-fold sums of lognormal(0, sigma), tanh-sinh quadrature at 40 digits.
WIDE_LOGNORMAL = {
    1.5: (
        "2.955647315514296772957",
        "50.69816160552388522995",
        "142.6846551559302150475",
        "1540.012544203463215422",
        "9551.373565676195679041",
    ),
    3.0: (
        "5.93866896537313696252",
        "2296.594008236953239955",
        "19429.1477885403710389",
        "2361846.186516109040221",
        "91169558.22651202450598",
    ),
}


@pytest.mark.parametrize("sf", LEVELS)
@pytest.mark.parametrize("sigma", WIDE_LOGNORMAL)
def test_wide_lognormal_is_right_or_refused(sigma: float, sf: float) -> None:
    right = Fraction(WIDE_LOGNORMAL[sigma][LEVELS.index(sf)])
    try:
        found = repeat(stats.lognorm(sigma), 2).quantile(sf=sf)
    except ToleranceError as refusal:
        found = refusal.best
        if found is None:
            return
    assert Fraction(found.lower) <= right
    assert math.isinf(found.upper) or right <= Fraction(found.upper)


@pytest.mark.parametrize("sf", [0.5, 1e-3, 1e-9])
def test_hundred_thousand_fold_sums(sf: float) -> None:
    gammas = repeat(stats.gamma(0.5), 100_000).quantile(sf=sf)
    assert_level(gammas, gamma_sf(50_000), sf, slack=1e-8)
    coins = repeat(Empirical([0.0] * 9 + [1.0]), 100_000).quantile(sf=sf)
    right = float(stats.binom(100_000, 0.1).isf(sf))
    assert coins.lower == coins.value == coins.upper == right


@pytest.mark.parametrize("copies", [2, 3, 40])
def test_offsets_that_cancel(copies: int) -> None:
    """Leaves of size 1,000 whose sum is near zero: errors are those of the leaves."""
    law = sum_of(repeat(Empirical([1000.1, 1000.3]), copies), -1000.1 * copies)
    low, high = Fraction(1000.1), Fraction(1000.3)
    offset = Fraction(-1000.1 * copies)
    found = law.quantile(sf=2.0 ** -(copies + 1))
    right = copies * high + offset
    assert Fraction(found.lower) <= right <= Fraction(found.upper)
    found = law.quantile(p=2.0 ** -(copies + 1))
    right = copies * low + offset
    assert Fraction(found.lower) <= right <= Fraction(found.upper)
    assert found.upper - found.lower <= 1e-6


@pytest.mark.parametrize("sf", [0.5, 1e-6])
def test_offset_far_larger_than_the_spread(sf: float) -> None:
    """1e12 + Exp(mean 1e-6): neighbours of 1e12 are 1.2e-4 apart."""
    for law in (
        shift(stats.expon(scale=1e-6), 1e12),
        sum_of(stats.expon(scale=1e-6), 1e12),
    ):
        found = law.quantile(sf=sf)
        right = Fraction(10) ** 12 + Fraction(-1e-6 * math.log(sf))
        assert Fraction(found.lower) <= right <= Fraction(found.upper)
        # A handful of neighbours.
        assert found.upper - found.lower <= 1e-2


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


# ---- the answer ------------------------------------------------------------------


def test_fields_of_a_quantile() -> None:
    law = repeat(stats.gamma(2), 5)
    found = law.quantile(p=0.99)
    assert found.p == 0.99
    assert found.sf == pytest.approx(0.01, rel=1e-12)
    assert found.kind == "certified"
    assert found.limited_by
    assert "\n" not in found.limited_by
    assert [field.name for field in dataclasses.fields(Quantile)][:6] == [
        "p",
        "value",
        "lower",
        "upper",
        "kind",
        "limited_by",
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.value = 0.0  # type: ignore[misc]
    assert law.quantile(0.99).value == found.value


def test_survival_level_is_kept_where_p_cannot_be() -> None:
    """1 - 1e-9 as a double is off by 2.8e-8 relative in the tail."""
    law = repeat(stats.expon(), 2)
    by_sf, by_p = law.quantile(sf=1e-9), law.quantile(p=1 - 1e-9)
    assert by_sf.sf == 1e-9
    assert by_p.sf == 1 - (1 - 1e-9)
    deep = law.quantile(sf=1e-30)
    assert deep.sf == 1e-30
    assert_level(deep, gamma_sf(2), 1e-30)


@pytest.mark.parametrize("rtol", [1e-2, 1e-4, 2e-5])
def test_width_follows_the_tolerance(rtol: float) -> None:
    law = sum_of(stats.lognorm(0.5), stats.expon(), stats.gamma(0.5))
    found = law.quantile(sf=1e-6, rtol=rtol)
    assert found.upper - found.lower <= rtol * found.value
    narrow = law.quantile(sf=1e-6, rtol=2e-5)
    assert found.lower <= narrow.upper
    assert narrow.lower <= found.upper


def test_tails_are_computed_without_one_minus() -> None:
    """Relative accuracy in both tails, where 1 - cdf would be noise."""
    law = repeat(stats.gamma(0.5), 16)
    for x in (60.0, 80.0):  # P(S > x) about 1e-17 and 1e-25
        right = gamma_sf(8)(x)
        assert float(law.ccdf(x)) == pytest.approx(right, rel=1e-4)
        found = law.probability_above(x)
        assert found.lower <= right * (1 + 1e-11)
        assert right * (1 - 1e-11) <= found.upper
    assert float(law.cdf(60.0)) == pytest.approx(1.0, abs=1e-12)


def test_cdf_and_inverse_take_arrays_and_agree() -> None:
    law = sum_of(stats.lognorm(0.5), stats.expon())
    x = np.array([[0.5, 1.0, 2.0], [3.0, 5.0, 9.0]])
    below, above = law.cdf(x), law.ccdf(x)
    assert np.shape(below) == x.shape
    np.testing.assert_allclose(below + above, 1.0, rtol=0, atol=1e-9)
    assert np.all(np.diff(np.ravel(below)) > 0)
    p = np.array([0.1, 0.5, 0.999])
    np.testing.assert_allclose(law.cdf(law.icdf(p)), p, rtol=1e-5)
    np.testing.assert_allclose(law.ccdf(law.iccdf(1 - p)), 1 - p, rtol=1e-5)
    assert law.isf(0.01) == law.iccdf(0.01)
    assert np.ndim(law.cdf(1.0)) == 0


@pytest.mark.parametrize(
    "law",
    [
        Constant(1.0),
        Empirical([1.0, 2.0]),
        sum_of(Empirical([1.0, 2.0]), Empirical([0.0, 3.0])),
        sum_of(stats.expon(), 1.0),
        maximum(stats.expon(), stats.gamma(2)),
    ],
    ids=["constant", "empirical", "lattice sum", "smooth sum", "maximum"],
)
def test_nan_in_is_nan_out(law: Any) -> None:
    for answer in (law.cdf, law.ccdf, law.icdf, law.iccdf):
        assert math.isnan(float(answer(math.nan)))
    values = np.asarray(law.cdf([math.nan, 1e9]))
    assert math.isnan(values[0])
    assert values[1] == pytest.approx(1.0, abs=1e-12)
    assert (float(law.cdf(-math.inf)), float(law.cdf(math.inf))) == (0.0, 1.0)
    assert (float(law.ccdf(-math.inf)), float(law.ccdf(math.inf))) == (1.0, 0.0)


def test_functions_take_any_law() -> None:
    assert_level(quantile(stats.expon(), sf=1e-6), exponential_sf(), 1e-6)
    assert quantile(4.0, 0.5).value == 4.0
    assert quantile(Empirical([1.0, 2.0, 3.0]), 0.5).value == 2.0
    found = probability_above(stats.expon(), 2.0)
    assert found.lower <= math.exp(-2) * (1 + 1e-12)
    assert math.exp(-2) * (1 - 1e-12) <= found.upper
    tail = expected_shortfall(stats.expon(), sf=0.01)
    assert tail.lower <= (1 - math.log(0.01)) * (1 + 1e-12)
    assert (1 - math.log(0.01)) * (1 - 1e-12) <= tail.upper


# ---- moments and expected shortfall ----------------------------------------------


def test_moments_of_composed_laws() -> None:
    parts = stats.lognorm(0.5), stats.gamma(2, scale=3)
    law = sum_of(*parts)
    assert float(law.mean()) == pytest.approx(
        sum(float(part.mean()) for part in parts), rel=1e-9
    )
    assert float(law.variance()) == pytest.approx(
        sum(float(part.var()) for part in parts), rel=1e-9
    )
    # Largest of three Exp(1): mean 1 + 1/2 + 1/3, variance 1 + 1/4 + 1/9.
    largest = maximum(*[stats.expon()] * 3)
    assert float(largest.mean()) == pytest.approx(11 / 6, rel=1e-6)
    assert float(largest.variance()) == pytest.approx(49 / 36, rel=1e-4)
    bounds = largest.mean_bounds()
    assert bounds.kind == "certified"
    assert bounds.lower <= 11 / 6 * (1 + 1e-12)
    assert bounds.upper >= 11 / 6 * (1 - 1e-12)
    assert bounds.upper - bounds.lower <= 1e-4 * bounds.value
    shared = Variable("X", stats.expon())
    assert float(sum_of(shared, shared).variance()) == pytest.approx(4.0, rel=1e-6)
    scaled = scale(largest, 2.0)
    assert float(scaled.variance()) == pytest.approx(49 / 9, rel=1e-4)
    blend = mixture([0.5, 0.5], [0.0, stats.expon()])
    assert float(blend.mean()) == pytest.approx(0.5, rel=1e-9)
    assert float(blend.variance()) == pytest.approx(0.75, rel=1e-9)


def test_moments_that_do_not_exist() -> None:
    pareto = repeat(stats.pareto(1.5), 16)
    assert float(pareto.mean()) == pytest.approx(48.0, rel=1e-9)
    assert math.isinf(float(pareto.variance()))
    levy = repeat(stats.levy(), 4)
    assert math.isinf(float(levy.mean()))
    tail = levy.expected_shortfall(sf=0.01)
    assert math.isinf(tail.upper)


SHORTFALL: dict[str, tuple[Callable[[], Any], Callable[[float], float]]] = {
    # E[X | X > q] sf = a b sf_{a+1}(q) for a gamma law of shape a and scale b.
    "gamma sum": (
        lambda: repeat(stats.gamma(0.5, scale=2.0), 16),
        lambda sf: (
            16.0 * float(special.gammaincc(9, float(special.gammainccinv(8, sf)))) / sf
        ),
    ),
    "normal sum": (
        lambda: sum_of(stats.norm(100, 3), stats.norm(50, 4)),
        lambda sf: (
            150
            + 5
            * math.exp(-0.5 * float(special.ndtri(sf)) ** 2)
            / math.sqrt(2 * math.pi)
            / sf
        ),
    ),
    "12 uniforms, distinct": (
        lambda: sum_of(*[stats.uniform(k, 1.0) for k in range(1, 3)]),
        # Triangular on (3, 5): q = 5 - sqrt(2 sf), E[X | X > q] = 5 - 2 sqrt(2 sf)/3.
        lambda sf: 5 - 2 * math.sqrt(2 * sf) / 3,
    ),
}


@pytest.mark.parametrize("sf", [0.5, 0.01, 1e-6, 1e-9])
@pytest.mark.parametrize("case", SHORTFALL)
def test_expected_shortfall_bracket(case: str, sf: float) -> None:
    build, right = SHORTFALL[case]
    found = build().expected_shortfall(sf=sf)
    truth = right(sf)
    assert found.kind == "certified"
    assert found.lower <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= found.upper
    assert found.lower <= found.value <= found.upper
    assert found.upper - found.lower <= 1e-6 * found.value


def test_expected_shortfall_with_atoms_is_exact() -> None:
    """Mean of the worst outcomes: (1/sf) integral of the quantile over the tail."""
    law = sum_of(Empirical([0.0, 1.0, 2.0, 5.0]), Empirical([0.0, 10.0]))
    # Outcomes of 1/8 each: 15, 12, 11, 10, 5, 2, 1, 0.
    for sf, right in ((0.25, 13.5), (0.125, 15.0), (0.1875, 14.0), (0.5, 12.0)):
        found = law.expected_shortfall(sf=sf)
        assert found.lower <= right * (1 + 1e-12)
        assert right * (1 - 1e-12) <= found.upper
        assert found.upper - found.lower <= 1e-9
    assert law.expected_shortfall(0.75).value == pytest.approx(13.5, rel=1e-12)


# ---- sampling --------------------------------------------------------------------

SAMPLED: dict[str, Callable[[], Any]] = {
    "empirical": lambda: Empirical([1.0, 1.0, 2.0, 5.0]),
    "weighted": lambda: Empirical([1.0, 2.0, 5.0], weights=[0.5, 0.3, 0.2]),
    "sum": lambda: sum_of(stats.lognorm(0.5), stats.expon(), 1.0),
    "repeat": lambda: repeat(stats.gamma(0.5), 12),
    "extremes": lambda: maximum(stats.expon(), minimum(stats.gamma(2), 1.5)),
    "mixture": lambda: repeat(mixture([0.9, 0.1], [0.0, stats.expon()]), 5),
    "shared": lambda: (
        lambda a: maximum(sum_of(a, stats.expon()), sum_of(a, stats.gamma(2)))
    )(Variable("A", stats.lognorm(0.5))),
    "factor": lambda: product(Empirical([0.5, 2.0]), stats.expon()),
    "scaled": lambda: shift(scale(stats.uniform(), 4.0), -1.0),
    "scipy": lambda: sum_of(stats.Normal(mu=1.0, sigma=2.0), stats.Uniform(a=0, b=1)),
}


@pytest.mark.parametrize("case", SAMPLED)
def test_sampling_agrees_with_the_cdf(case: str) -> None:
    """Dvoretzky-Kiefer-Wolfowitz: sup |F_n - F| beyond eps has 2 exp(-2 n eps^2)."""
    assert len(SAMPLED) <= STATISTICAL_CHECKS
    law = SAMPLED[case]()
    n = 20_000
    allowed = math.sqrt(math.log(2 * STATISTICAL_CHECKS / FALSE_ALARM) / (2 * n))
    drawn = np.sort(law.sample(n, rng=np.random.default_rng(20260714)))
    assert drawn.shape == (n,)
    x = np.unique(np.quantile(drawn, np.linspace(0, 1, 15), method="inverted_cdf"))
    measured = np.searchsorted(drawn, x, side="right") / n
    just_below = np.searchsorted(drawn, x, side="left") / n
    assert np.max(np.abs(measured - np.asarray(law.cdf(x), float))) <= allowed
    before = np.asarray(law.cdf(x - 1e-7 * np.maximum(np.abs(x), 1)), float)
    assert np.max(np.abs(just_below - before)) <= allowed + 1e-5


def test_samples_follow_the_seed_and_the_shape() -> None:
    law = sum_of(stats.lognorm(0.5), Empirical([1.0, 2.0]))
    one = law.sample((3, 4), rng=7)
    assert np.shape(one) == (3, 4)
    np.testing.assert_array_equal(one, law.sample((3, 4), rng=7))
    assert not np.array_equal(one, law.sample((3, 4), rng=8))
    assert np.ndim(law.sample(rng=1)) == 0


def test_empirical_draws_are_runs_that_occurred() -> None:
    drawn = Empirical([0.1, 0.7, 2.3]).sample(1000, rng=3)
    assert set(np.unique(drawn)) == {0.1, 0.7, 2.3}


# ---- refusals --------------------------------------------------------------------


def test_impossible_tolerance_is_refused_with_the_best_bracket() -> None:
    law = sum_of(*[stats.expon(scale=10.0**-k) for k in range(6)], stats.lognorm(2.0))
    with pytest.raises(ToleranceError) as refusal:
        law.quantile(sf=1e-9, rtol=1e-13, memory=2**20)
    message = str(refusal.value)
    assert "\n" not in message
    assert "1e-13" in message
    best = refusal.value.best
    if best is not None:
        again = law.quantile(sf=1e-9, rtol=1e-3)
        assert best.lower <= again.upper
        assert again.lower <= best.upper
    with pytest.raises(InputError):
        law.quantile(sf=1e-9, rtol=0.0)
