"""Transform inversion: certified bounds and estimates against closed forms."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from probcalc.distribution import Constant, Empirical
from probcalc.errors import InputError
from probcalc.families import family_of
from probcalc.inversion import Inversion, inversion_of

LEVELS = ["0.5", "0.01", "0.001", "1e-6", "1e-9"]
Terms = Sequence[tuple[object, int]]
Find = Callable[[str], Path]


def inverted(terms: Terms, constant: float = 0.0) -> Inversion:
    law = inversion_of(terms, constant)
    assert law is not None
    return law


def irwin_hall_sf(x: Fraction, n: int) -> Fraction:
    """P(U_1 + ... + U_n > x), exact: sum of (-1)^k C(n, k) (n - x - k)_+^n / n!."""
    y = n - x
    total = sum(
        (-1) ** k * math.comb(n, k) * (y - k) ** n for k in range(math.floor(y) + 1)
    )
    return Fraction(total) / math.factorial(n)


def exponential(y: Fraction) -> Fraction:
    """exp(y) for y >= 0 to 60 digits, by its series."""
    total, term, k = Fraction(0), Fraction(1), 0
    while k <= y or term > total / 10**60:
        total += term
        k += 1
        term = Fraction(round(term * y / k * 10**80), 10**80)
    return total


# ------------------------------------------------------------------ certified
@pytest.mark.parametrize("n", [4, 12, 40])
def test_irwin_hall(n: int) -> None:
    law = inverted([(stats.uniform(), n)])
    width = 1e-12 if n > 4 else 1e-9
    for x in (0.02 * n, 0.25 * n, 0.5 * n, 0.7 * n, 0.97 * n):
        sf, cdf = irwin_hall_sf(Fraction(x), n), 1 - irwin_hall_sf(Fraction(x), n)
        low, high = law.sf_bounds(x)
        assert Fraction(low) <= sf <= Fraction(high)
        assert high - low <= width * max(float(sf), 1e-4)
        low, high = law.cdf_bounds(x)
        assert Fraction(low) <= cdf <= Fraction(high)
        small = min(sf, cdf)
        tail = law.sf_bounds(x) if small == sf else law.cdf_bounds(x)
        assert tail[1] - tail[0] <= 100 * width * float(small)
    assert law.bounds(0.0) == (1.0, 1.0, 0.0, 0.0)
    assert law.bounds(n + 1.0) == (0.0, 0.0, 1.0, 1.0)


def test_erlang_in_both_tails() -> None:
    law = inverted([(stats.expon(scale=2.0), 3), (stats.erlang(5, scale=2.0), 7)])
    for x in (10.0, 40.0, 76.0, 120.0, 250.0):
        # 38 exponentials of scale 2: a Poisson sum of 38 terms
        y = Fraction(x) / 2
        sf = sum(y**k / math.factorial(k) for k in range(38)) / exponential(y)
        s_low, s_high, c_low, c_high = law.bounds(x)
        assert Fraction(s_low) <= sf <= Fraction(s_high)
        assert Fraction(c_low) <= 1 - sf <= Fraction(c_high)
        assert min(s_high / s_low, c_high / c_low) - 1 <= 1e-12


def test_exponentials_of_different_scales() -> None:
    # P(S > x) = sum_i exp(-x/s_i) prod_{j != i} s_i / (s_i - s_j), s_i whole quarters
    scales = [Fraction(k, 4) for k in range(4, 16)]
    law = inverted([(stats.expon(scale=float(s)), 1) for s in scales])
    for x in (5.0, 28.0, 60.0, 120.0):
        sf = Fraction(0)
        for s in scales:
            weight = math.prod(
                (s / (s - r) for r in scales if r != s), start=Fraction(1)
            )
            sf += weight / exponential(Fraction(x) / s)
        low, high = law.sf_bounds(x)
        assert Fraction(low) <= sf <= Fraction(high)
        assert high - low <= 1e-11 * float(min(sf, 1 - sf)) + 1e-15
        low, high = law.cdf_bounds(x)
        assert Fraction(low) <= 1 - sf <= Fraction(high)


def test_narrow_and_wide_normal() -> None:
    law = inverted([(stats.norm(0.0, 1e-6), 1), (stats.norm(0.0, 1.0), 1)])
    value, low, high = law.quantile_bounds(0.975)
    assert round(value, 9) == 1.959963985
    exact = special.ndtri(0.975) * math.sqrt(1.0 + 1e-12)
    assert low <= exact <= high
    assert high - low <= 1e-13
    assert law.quantile_bounds(0.025)[0] == pytest.approx(-value, rel=1e-14)
    value, low, high = law.quantile_bounds(sf=1e-300)
    assert low <= value <= high <= low * (1 + 1e-12)
    assert value == pytest.approx(37.0470962993612, rel=1e-12)


def uniform_plus_normal_sf(x: float, low: float, high: float, sd: float) -> float:
    """(1/L) int P(N > x - u) du = sd (G(a) - G(b)) / L, G(z) = phi(z) - z Phi(-z)."""

    def g(z: float) -> float:
        phi = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        return phi - z * float(special.ndtr(-z))

    return sd * (g((x - high) / sd) - g((x - low) / sd)) / (high - low)


def test_uniform_plus_normal() -> None:
    law = inverted([(stats.uniform(-0.5, 4.0), 1), (stats.norm(0.0, 0.3), 1)])
    assert round(law.pdf(0.0), 9) == 0.238052412
    low, high = law.pdf_bounds(0.0)
    exact = (special.ndtr(0.5 / 0.3) - special.ndtr(-3.5 / 0.3)) / 4.0
    assert low <= exact <= high <= low + 1e-12
    for x in (-1.5, 0.0, 1.5, 3.4, 4.4):
        want = uniform_plus_normal_sf(x, -0.5, 3.5, 0.3)
        low, high = law.sf_bounds(x)
        assert low - 1e-15 <= want <= high + 1e-15
        assert high - low <= 1e-12 * want
    # the density has mass 1: Gauss's rule over panels of half a standard deviation
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.arange(-3.0, 6.0 + 1e-9, 0.15)
    x = (edges[:-1, None] + 0.075 * (nodes + 1.0)).ravel()
    mass = sum(
        law.pdf(v) * w for v, w in zip(x, np.tile(weights * 0.075, 60), strict=True)
    )
    assert mass == pytest.approx(1.0, abs=1e-12)


def test_inverse_gaussian_sums_are_inverse_gaussian() -> None:
    # n copies of mean mu, shape 1 have mean n mu and shape n^2
    for mu, n, width in ((0.7, 10, 1e-13), (5.0, 3, 1e-9)):
        law = inverted([(stats.invgauss(mu, scale=2.0), n)])
        family = family_of(stats.invgauss(mu / n, scale=2.0 * n * n))
        assert family is not None
        for x in np.array([0.3, 1.0, 4.0]) * family.mean:
            s_low, s_high, c_low, c_high = law.bounds(x)
            assert s_low * (1 - 1e-13) <= family.sf(x) <= s_high * (1 + 1e-13)
            assert c_low * (1 - 1e-13) <= family.cdf(x) <= c_high * (1 + 1e-13)
            assert min(s_high - s_low, c_high - c_low) <= width


def test_exponentially_modified_normal() -> None:
    law = inverted([(stats.exponnorm(2.0, loc=1.0, scale=0.5), 1)])
    family = family_of(stats.exponnorm(2.0, loc=1.0, scale=0.5))
    assert family is not None
    for x in (-0.5, 1.0, 2.0, 12.0):
        s_low, s_high, c_low, c_high = law.bounds(x)
        assert s_low * (1 - 1e-13) <= family.sf(x) <= s_high * (1 + 1e-13)
        assert c_low * (1 - 1e-13) <= family.cdf(x) <= c_high * (1 + 1e-13)
        low, high = law.pdf_bounds(x)
        assert low * (1 - 1e-13) <= family.pdf(x) <= high * (1 + 1e-13)
        assert high <= low * (1 + 1e-10)


def test_measured_law_beside_a_normal() -> None:
    runs = Empirical([1.0, 1.5, 4.0, 4.0, 9.0])
    law = inverted([(runs, 3), (stats.norm(0.0, 0.2), 1), (Constant(2.0), 2)], 0.5)
    sums = [
        (a + b + c, p * q * r)
        for a, p in zip(runs.atoms, runs.mass, strict=True)
        for b, q in zip(runs.atoms, runs.mass, strict=True)
        for c, r in zip(runs.atoms, runs.mass, strict=True)
    ]
    for x in (7.0, 9.1, 16.0, 25.0, 31.6, 33.0):
        z = np.array([(s + 4.5 - x) / 0.2 for s, _ in sums])
        weight = np.array([w for _, w in sums])
        sf, cdf = float(weight @ special.ndtr(z)), float(weight @ special.ndtr(-z))
        s_low, s_high, c_low, c_high = law.bounds(x)
        assert s_low * (1 - 1e-13) <= sf <= s_high * (1 + 1e-13)
        assert c_low * (1 - 1e-13) <= cdf <= c_high * (1 + 1e-13)
        assert min(s_high - s_low, c_high - c_low) <= 1e-11 * min(sf, cdf)


def test_reflected_laws_and_constants() -> None:
    gamma = stats.make_distribution(stats.gamma)
    law = inverted([(-2 * gamma(a=3.0) + 1, 4), (stats.norm(0.0, 1.0), 1)], 7.0)
    mirror = inverted([(2 * gamma(a=3.0) - 1, 4), (stats.norm(0.0, 1.0), 1)], -7.0)
    for x in (-80.0, -20.0, -13.0, 0.0):
        s_low, s_high, c_low, c_high = law.bounds(x)
        assert (s_low, s_high) == pytest.approx(mirror.cdf_bounds(-x), rel=1e-12)
        assert (c_low, c_high) == pytest.approx(mirror.sf_bounds(-x), rel=1e-12)
    value, low, high = law.quantile_bounds(sf=1e-9)
    other, mirrored_low, mirrored_high = mirror.quantile_bounds(p=1e-9)
    assert value == pytest.approx(-other, rel=1e-13)
    assert low <= -mirrored_low
    assert -mirrored_high <= high


def test_constants_are_exact() -> None:
    terms = [(stats.norm(0.1, 1.0), 3), (stats.expon(0.3), 10), (Constant(0.1), 7)]
    plain = inverted([(stats.norm(), 3), (stats.expon(), 10)])
    law = inverted(terms, 2.0**40)
    shift = 3 * Fraction(0.1) + 10 * Fraction(0.3) + 7 * Fraction(0.1) + 2**40
    assert law.constant == shift
    value, low, high = law.quantile_bounds(0.9)
    base, _, _ = plain.quantile_bounds(0.9)
    assert low <= float(Fraction(base) + shift) <= high
    assert high - low <= 2 * math.ulp(value)


# ------------------------------------------------------------------ quantiles
def test_quantiles_of_equal_scale_gammas(shared_data: Find) -> None:
    case = json.loads(shared_data("reference/laws.json").read_text())["cases"]["b1"]
    terms = [
        (stats.gamma(float(a), scale=float(s)), 1)
        for a, s in zip(case["shapes"], case["scales"], strict=True)
    ]
    law = inverted(terms)
    for level in LEVELS:
        value, low, high = law.quantile_bounds(sf=float(level))
        exact = Fraction(case["x"][level])
        assert Fraction(low) <= exact <= Fraction(high)
        assert high - low <= 1e-13 * value
        assert abs(Fraction(value) / exact - 1) <= 1e-14


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_many_copies_of_gammas(scale: float) -> None:
    law = inverted(
        [(stats.gamma(0.5, scale=scale), 1024), (stats.expon(0, scale), 512)]
    )
    for sf in (1 - 1e-6, 0.9, 0.5, 1e-3, 1e-9, 1e-100):
        value, low, high = law.quantile_bounds(sf=sf)
        exact = scale * special.gammainccinv(1024.0, sf)
        assert low * (1 - 2e-13) <= exact <= high * (1 + 2e-13)
        assert low <= value <= high
        assert high - low <= 1e-13 * value


def test_quantile_levels_are_those_asked() -> None:
    # sf = 1e-9 and p = 1 - 1e-9 as a double differ by 2.8e-8 relative
    law = inverted([(stats.expon(), 16)])
    rounded = 1.0 - (1.0 - 1e-9)
    assert abs(rounded / 1e-9 - 1) > 2e-8
    for given, sf in (({"sf": 1e-9}, 1e-9), ({"p": 1.0 - 1e-9}, rounded)):
        _, low, high = law.quantile_bounds(**given)
        exact = float(special.gammainccinv(16.0, sf))
        assert low * (1 - 1e-14) <= exact <= high * (1 + 1e-14)
        assert high - low <= 1e-11


def test_brackets_are_proven_by_the_bounds() -> None:
    law = inverted([(stats.gamma(1.5), 3), (stats.uniform(), 5), (stats.norm(), 1)])
    for p in (1e-12, 1e-3, 0.3):
        _, low, high = law.quantile_bounds(p)
        assert law.cdf_bounds(low)[0] <= p <= law.cdf_bounds(high)[1]
        assert law.cdf_bounds(low - 1e-9)[1] < p < law.cdf_bounds(high + 1e-9)[0]


@pytest.mark.parametrize(
    "terms",
    [
        [(stats.expon(), 1)],
        [(stats.uniform(), 1)],
        [(stats.lognorm(0.5), 4)],
        [(stats.norm(), 1), (stats.lognorm(0.5), 1)],
        [(stats.norm(), 1), (stats.cauchy(), 1)],
        [(Constant(1.0), 3)],
        [(Empirical([1.0, 2.0]), 30)],
        [(stats.uniform(), 1), (stats.norm(0.0, 1e-9), 1)],
        [],
    ],
)
def test_what_cannot_be_certified_is_none(terms: Terms) -> None:
    assert inversion_of(terms) is None


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_counts_are_checked(count: Any) -> None:
    with pytest.raises(InputError, match=r"inversion: count = .*positive integer"):
        inversion_of([(stats.norm(), count)])


def test_levels_are_checked() -> None:
    law = inverted([(stats.norm(), 1)])
    with pytest.raises(InputError, match="exactly one of p and sf"):
        law.quantile_bounds()
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        law.quantile_bounds(1.0)


def test_infinite_and_far_points() -> None:
    law = inverted([(stats.norm(), 1), (stats.expon(), 2)])
    assert law.bounds(-math.inf) == (1.0, 1.0, 0.0, 0.0)
    assert law.bounds(math.inf) == (0.0, 0.0, 1.0, 1.0)
    low, high = law.sf_bounds(2000.0)
    assert 0.0 <= low <= high <= 1e-300
    low, high = law.cdf_bounds(-60.0)
    assert 0.0 <= low <= high <= 1e-300


def test_import_loads_neither_numba_nor_scipy_stats() -> None:
    code = (
        "import sys, probcalc.inversion; "
        "bad = {'scipy.stats', 'numba', 'jax'} & set(sys.modules); sys.exit(bool(bad))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
