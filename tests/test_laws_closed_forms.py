"""Composed laws, each against the survival function of the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from scipy import special, stats

from probcalc.composed import (
    Variable,
    maximum,
    minimum,
    mixture,
    product,
    quantile,
    repeat,
    scale,
    shift,
    sum_of,
)
from probcalc.distribution import Constant, Empirical
from probcalc.errors import ToleranceError
from tests.law_checks import (
    LEVELS,
    Survival,
    assert_level,
    exponential_sf,
    gamma_sf,
    hypoexponential_sf,
    irwin_hall_sf,
)

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
