"""What a law answers: quantiles, probabilities, moments, shortfall, samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
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
from probcalc.distribution import Constant, Empirical, Quantile
from probcalc.errors import InputError, ToleranceError
from tests.law_checks import assert_level, exponential_sf, gamma_sf

#: Chance that a statistical check of this file is wrong, all of them together.
FALSE_ALARM = 1e-9
STATISTICAL_CHECKS = 12


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
