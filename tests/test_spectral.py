"""Estimates for sums of laws without a closed transform, against closed forms."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from scipy import special, stats

from probcalc.distribution import Constant, Empirical
from probcalc.families import family_of
from probcalc.inversion import Inversion, inversion_of, spectral_estimate

LEVELS = ["0.5", "0.01", "0.001", "1e-6", "1e-9"]
Terms = Sequence[tuple[object, int]]
Find = Callable[[str], Path]


def inverted(terms: Terms) -> Inversion:
    law = inversion_of(terms)
    assert law is not None
    return law


@pytest.mark.parametrize(("n", "within"), [("2", 1e-14), ("16", 1e-11), ("128", 1e-11)])
def test_lognormal_sums(shared_data: Find, n: str, within: float) -> None:
    case = json.loads(shared_data("reference/laws.json").read_text())["cases"]["a"]
    law = stats.lognorm(float(case["sigma"]))
    values = spectral_estimate([(law, int(n))], 0.0, [float(v) for v in LEVELS])
    assert values is not None
    for level, value in zip(LEVELS, values, strict=True):
        exact = Fraction(case["n"][n]["x"][level])
        assert abs(Fraction(value) / exact - 1) <= within


SIDES = [1 - 1e-6, 0.99, 0.5, 0.01, 1e-6, 1e-9]


def estimates(terms: Terms, constant: float = 0.0) -> list[float]:
    values = spectral_estimate(terms, constant, SIDES)
    assert values is not None
    return values


def gamma_quantile(shape: float, sf: float) -> float:
    if sf > 0.5:
        return float(special.gammaincinv(shape, 1.0 - sf))
    return float(special.gammainccinv(shape, sf))


def test_numeric_transform_of_a_weibull_that_is_exponential() -> None:
    for n in (64, 1024):
        values = estimates([(stats.weibull_min(1.0, loc=2.0, scale=3.0), n)], 5.0)
        for sf, value in zip(SIDES, values, strict=True):
            exact = 3.0 * gamma_quantile(n, sf) + 2.0 * n + 5.0
            assert value == pytest.approx(exact, rel=1e-11)


def test_numeric_transform_of_a_beta_that_is_uniform() -> None:
    exact = inverted([(stats.uniform(), 12)])
    values = estimates([(stats.beta(1.0, 1.0), 12)])
    for sf, value in zip(SIDES, values, strict=True):
        assert value == pytest.approx(exact.quantile_bounds(sf=sf)[0], rel=1e-11)


def test_measured_law_beside_numeric_transforms() -> None:
    runs = Empirical([0.0, 3.0, 3.5, 20.0])
    values = estimates([(runs, 1), (stats.weibull_min(1.0), 60), (stats.norm(), 1)])
    check = inverted([(runs, 1), (stats.expon(), 60), (stats.norm(), 1)])
    for sf, value in zip(SIDES, values, strict=True):
        assert value == pytest.approx(check.quantile_bounds(sf=sf)[0], rel=1e-10)


@pytest.mark.parametrize(
    ("terms", "quantile"),
    [
        ([(stats.gamma(0.3), 2)], lambda sf: gamma_quantile(0.6, sf)),
        (
            [(stats.expon(), 1), (stats.gamma(2.0), 1)],
            lambda sf: gamma_quantile(3.0, sf),
        ),
        ([(stats.levy(), 2)], lambda sf: 2.0 / special.erfinv(sf) ** 2),
        (
            [(stats.uniform(), 2)],
            lambda sf: math.sqrt(2 - 2 * sf) if sf > 0.5 else 2 - math.sqrt(2 * sf),
        ),
        (
            [(stats.norm(0.0, 3.0), 1), (stats.norm(1.0, 4.0), 1)],
            lambda sf: 1.0 - 5.0 * special.ndtri(sf),
        ),
    ],
)
def test_sums_of_two_by_quadrature(
    terms: Terms, quantile: Callable[[float], float]
) -> None:
    for sf, value in zip(SIDES, estimates(terms), strict=True):
        assert value == pytest.approx(quantile(sf), rel=1e-9 if sf > 0.9 else 1e-12)


def test_reflected_sum_mirrors_the_quantiles() -> None:
    law = stats.make_distribution(stats.lognorm)(s=0.5)
    up = spectral_estimate([(law, 32)], 1.0, [0.9, 1e-6])
    down = spectral_estimate([(-1 * law, 32)], -1.0, [0.1, 1 - 1e-6])
    assert up is not None
    assert down is not None
    assert up[0] == pytest.approx(-down[0], rel=1e-11)
    # 1 - (1 - 1e-6) is 2.8e-11 off 1e-6
    assert up[1] == pytest.approx(-down[1], rel=1e-10)


def test_mixed_sum_against_the_normal_limit_and_itself() -> None:
    terms = [
        (stats.lognorm(0.5), 30),
        (stats.weibull_min(1.7), 30),
        (stats.gamma(2.0), 15),
        (stats.triang(0.3), 20),
        (stats.norm(), 3),
    ]
    whole = estimates(terms)
    split = estimates([(law, 1) for law, n in terms for _ in range(n)])
    assert whole == pytest.approx(split, rel=1e-13)
    families = [(family_of(law), n) for law, n in terms]
    mean = sum(f.mean * n for f, n in families if f is not None)
    variance = sum(f.variance * n for f, n in families if f is not None)
    # The median is below the mean by a sixth of skewness times sd, to first order.
    assert mean - 0.1 * math.sqrt(variance) < whole[2] < mean


@pytest.mark.parametrize(
    "terms",
    [
        [(stats.pareto(1.5), 16)],
        [(stats.levy(), 4)],
        [(stats.lognorm(2.5), 16)],
        [(stats.lomax(0.5), 3)],
        [(stats.cauchy(), 4)],
        [(Empirical([1.0, 2.0]), 4)],
        [(Constant(1.0), 1)],
    ],
)
def test_no_estimate_rather_than_a_wrong_one(terms: Terms) -> None:
    assert spectral_estimate(terms, 0.0, [0.5, 1e-6]) is None
