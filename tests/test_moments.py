"""Moments: Clark's formulas, covariance of shared factors, labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.moments import Gaussian, clark
from probcalc.prediction import predict
from probcalc.shared import Shared


def element(name, mean, sd, d=(0.0, 0.0), device="gpu0", s=60.0, **fields) -> Element:
    time = stats.norm(mean, sd) if sd else mean
    dynamic = stats.norm(*d) if d[1] else d[0]
    return Element(
        name,
        time=time,
        dynamic_energy=dynamic,
        static_power=s,
        device=device,
        **fields,
    )


def by_quadrature(m1, v1, m2, v2, cov):
    """Moments of max(X, Y) by integrating Y given X in closed form."""
    s1 = math.sqrt(v1)
    slope = cov / v1
    rest = math.sqrt(v2 - cov * cov / v1)

    def moment(power):
        def inner(x):
            m = m2 + slope * (x - m1)
            z = (x - m) / rest
            Phi, phi = stats.norm.cdf(z), stats.norm.pdf(z)
            if power == 1:
                given = x * Phi + m * (1 - Phi) + rest * phi
            else:
                given = x * x * Phi + (m * m + rest**2) * (1 - Phi)
                given += (x + m) * rest * phi
            return given * stats.norm.pdf(x, m1, s1)

        span = m1 - 12 * s1, m1 + 12 * s1
        return integrate.quad(inner, *span, epsabs=1e-13, epsrel=1e-12, limit=400)[0]

    return moment(1), moment(2) - moment(1) ** 2


@pytest.mark.parametrize(
    "case",
    [
        (0.0, 1.0, 0.0, 1.0, 0.0),
        (1.0, 0.25, 1.2, 0.5, 0.0),
        (1.0, 0.25, 1.2, 0.5, 0.2),
        (3.0, 1.0, 2.0, 2.0, -0.7),
        (5.0, 0.1, 1.0, 0.1, 0.05),
    ],
)
def test_clark_agrees_with_quadrature(case):
    m1, v1, m2, v2, cov = case
    mean, variance = by_quadrature(m1, v1, m2, v2, cov)
    found = clark(m1, v1, m2, v2, cov)
    assert found.mean == pytest.approx(mean, rel=1e-9)
    assert found.variance == pytest.approx(variance, rel=1e-7)
    back = clark(m2, v2, m1, v1, cov)
    assert back.mean == pytest.approx(found.mean, rel=1e-12)
    assert back.share == pytest.approx(1 - found.share, rel=1e-12)


def test_well_separated_runtimes_keep_the_variance_of_the_longer():
    assert clark(10.0, 0.3, 1.0, 5.0).variance == pytest.approx(0.3, rel=1e-3)


def test_constant_difference_is_no_division_by_zero():
    assert clark(2.0, 1.0, 1.0, 1.0, 1.0) == (2.0, 1.0, 1.0)
    assert clark(1.0, 0.0, 1.0, 0.0) == (1.0, 0.0, 1.0)


def test_sequential_variance_is_the_sum():
    a = element("a", 2.0, 0.1, (5.0, 0.3))
    b = element("b", 3.0, 0.2, (4.0, 0.4))
    found = predict(a >> b, "moments")
    assert found.time.mean() == pytest.approx(5.0)
    assert found.time.variance() == pytest.approx(0.05)
    assert found.energy.mean() == pytest.approx(60 * 5 + 9)
    assert found.energy.variance() == pytest.approx(60**2 * 0.05 + 0.25)


@pytest.mark.parametrize("devices", [("gpu0", "gpu0"), ("gpu0", "gpu1")])
def test_parallel_variance_is_the_papers(devices):
    a = element("a", 2.0, 0.1, (5.0, 0.3), devices[0])
    b = element("b", 2.1, 0.2, (4.0, 0.4), devices[1])
    same = devices[0] == devices[1]
    found = predict(a | b if same else a & b, "moments")
    longest = clark(2.0, 0.01, 2.1, 0.04)
    s = 60.0 if same else 120.0
    assert found.energy.mean() == pytest.approx(s * longest.mean + 9.0)
    expected = 0.09 + 0.16 + s**2 * longest.variance
    assert found.energy.variance() == pytest.approx(expected)


def test_moments_agree_with_the_exact_method_where_laws_are_normal():
    a = element("a", 2.0, 0.01, (50.0, 3.0))
    b = element("b", 3.0, 0.02, (40.0, 4.0))
    exact = predict(a >> b >> a)
    found = predict(a >> b >> a, "moments")
    for p in (0.01, 0.5, 0.99):
        q = exact.energy.quantile(p)
        assert found.energy.quantile(p).value == pytest.approx(q.value, rel=1e-4)


def test_measured_covariance_enters():
    rng = np.random.default_rng(7)
    t = rng.uniform(1.0, 2.0, 200)
    e = Element.from_runs(
        "e", time=t, energy=100.0 * t + 3.0, static_power=60.0, device="gpu0"
    )
    found = predict(e, "moments")
    assert found.energy.variance() == pytest.approx(np.var(100.0 * t + 3.0))
    assert found.static_energy.variance() == pytest.approx(np.var(60.0 * t))


def test_joint_law_under_parallel_has_the_covariance_of_the_longest():
    # E = 60 max(T1, T2) + 40 T1 + 3: with independent normal times,
    # Cov(max, T1) = Phi(alpha) Var T1.
    rng = np.random.default_rng(8)
    t = rng.normal(2.0, 0.1, 4000)
    a = Element.from_runs(
        "a", time=t, energy=100.0 * t + 3.0, static_power=60.0, device="gpu0"
    )
    b = element("b", 2.0, 0.1)
    found = predict(a | b, "moments")
    longest = clark(t.mean(), t.var(), 2.0, 0.01)
    expected = (
        60.0**2 * longest.variance
        + 40.0**2 * t.var()
        + 2 * 60.0 * 40.0 * longest.share * t.var()
    )
    assert found.energy.variance() == pytest.approx(expected, rel=1e-9)


def test_shared_gain_adds_standard_deviations():
    gain = Shared("gain", stats.uniform(0.9, 0.2))
    a = element("a", 2.0, 0.0, (5.0, 0.3), shared=gain)
    found = predict(a**100, "moments")
    energy = 100 * (60 * 2.0 + 5.0)
    var_g = 0.2**2 / 12
    # Var(g S) = E g^2 Var S + Var g (E S)^2
    expected = (1 + var_g) * 100 * 0.09 + var_g * energy**2
    assert found.energy.variance() == pytest.approx(expected, rel=1e-12)
    mean = predict(a, "moments").over(100).mean
    assert mean.energy.variance() == pytest.approx(expected / 100**2, rel=1e-12)


def test_calibration_error_of_static_power_does_not_average_out():
    # 50 elements, 20 % static share, 3 % calibration error: 0.6 % of the energy.
    factor = Shared("s:gpu0", stats.uniform(1 - 0.03 * 3**0.5, 0.06 * 3**0.5))
    factor = Shared("s:gpu0", factor.law, acts_on="static_power")
    a = element("a", 1.0, 0.0, (240.0, 0.01), shared=factor)
    found = predict(a**50, "moments").energy
    assert found.sd / found.mean() == pytest.approx(0.006, rel=1e-2)


def test_shared_pace_makes_parallel_times_move_together():
    pace = Shared("clock", stats.uniform(0.9, 0.2), acts_on="time")
    a = element("a", 2.0, 0.0, shared=pace)
    b = element("b", 2.0, 0.0, device="gpu1", shared=pace)
    found = predict(a & b, "moments")
    assert found.time.mean() == pytest.approx(2.0)  # not more: they are one draw
    assert found.time.variance() == pytest.approx(4.0 * 0.2**2 / 12)


def test_shifts_add_once_for_each_execution_of_one_draw():
    wait = Shared("wait", stats.uniform(0.0, 1.0), acts_on="time", how="shift")
    extra = Shared("extra", stats.uniform(0.0, 6.0), acts_on="energy", how="shift")
    a = element("a", 2.0, 0.0, shared=[wait, extra])
    found = predict(a**3, "moments")
    assert found.time.mean() == pytest.approx(3 * 2.5)
    assert found.time.variance() == pytest.approx(9 / 12)
    assert found.energy.mean() == pytest.approx(60 * 7.5 + 9.0)


def test_results_are_labelled_estimates():
    found = predict(element("a", 2.0, 0.1), "moments")
    assert found.method == "moments"
    q = found.energy.quantile(sf=1e-9)
    assert q.kind == "estimate"
    assert q.value == pytest.approx(120.0 + 6.0 * stats.norm.isf(1e-9))
    assert found.budget(120.0).kind == "estimate"
    assert found.budget(120.0).value == pytest.approx(0.5)
    assert any("normal" in line for line in found.assumptions)


def test_laws_without_variance_are_refused():
    heavy = Element("heavy", time=stats.pareto(1.5), static_power=60.0, device="gpu0")
    with pytest.raises(InputError, match=r"'heavy', time.*variance inf"):
        predict(heavy, "moments")


def test_gaussian_law():
    law = Gaussian(3.0, 4.0)
    normal = stats.norm(3.0, 2.0)
    x = np.linspace(-3, 9, 7)
    np.testing.assert_allclose(law.cdf(x), normal.cdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.ccdf(x), normal.sf(x), rtol=1e-12)
    np.testing.assert_allclose(law.icdf([0.1, 0.9]), normal.ppf([0.1, 0.9]))
    np.testing.assert_allclose(law.iccdf([0.1, 0.9]), normal.isf([0.1, 0.9]))
    assert law.isf(1e-9) == pytest.approx(normal.isf(1e-9))
    z = stats.norm.ppf(0.99)
    shortfall = 3.0 + 2.0 * stats.norm.pdf(z) / 0.01
    assert law.expected_shortfall(0.99).value == pytest.approx(shortfall)
    assert law.mean_bounds().value == 3.0
    assert law.sample(10, rng=1).shape == (10,)


def test_gaussian_without_spread_is_a_constant():
    law = Gaussian(3.0, 0.0)
    assert law.support() == (3.0, 3.0)
    assert law.quantile(0.9).value == 3.0
    assert (law.cdf(3.0), law.ccdf(3.0), law.ccdf(2.9)) == (1.0, 0.0, 1.0)
    assert law.expected_shortfall(0.9).value == 3.0
