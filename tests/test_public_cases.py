"""Small cases with known answers that other packages get wrong somewhere.

Each is small enough to be checked by hand; the numbers are the list's own.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import special, stats

from probcalc.composed import Variable, repeat, sum_of
from probcalc.distribution import Empirical, as_law
from probcalc.errors import InputError, UnitError
from probcalc.units import quantity


# 1 ---------------------------------------------------------------------------
def test_two_dice_are_triangular_and_one_die_doubled_is_not() -> None:
    x = [1.0, 2.0, 3.0]
    separate = sum_of(Empirical(x), Empirical(x))
    for value, below in zip((2, 3, 4, 5, 6), (1, 3, 6, 8, 9), strict=True):
        assert separate.cdf(value) == pytest.approx(below / 9, abs=1e-15)
    one = Variable("X", Empirical(x))
    doubled = sum_of(one, one)
    for value, below in ((1.9, 0), (2, 1), (3.9, 1), (4, 2), (5.9, 2), (6, 3)):
        assert doubled.cdf(value) == pytest.approx(below / 3, abs=1e-15)
    assert doubled.quantile(0.5).value == 4.0
    assert doubled.variance() == pytest.approx(4 * 2 / 3, rel=1e-14)
    assert separate.variance() == pytest.approx(2 * 2 / 3, rel=1e-14)


def test_the_same_law_object_twice_is_two_draws() -> None:
    law = Empirical([1.0, 2.0, 3.0])
    assert sum_of(law, law).cdf(2.0) == pytest.approx(1 / 9, abs=1e-15)


# 2 ---------------------------------------------------------------------------
def test_32_fold_probabilities_are_positive_and_right_to_the_last() -> None:
    law = repeat(Empirical([0.0, 1.0, 2.0], weights=[0.5, 0.25, 0.25]), 32)
    # Enumeration in integers: (2 + z + z^2)^32 / 4^32.
    mass = [1]
    for _ in range(32):
        grown = [0] * (len(mass) + 2)
        for k, m in enumerate(mass):
            grown[k] += 2 * m
            grown[k + 1] += m
            grown[k + 2] += m
        mass = grown
    assert len(mass) == 65
    assert sum(mass) == 4**32
    above = [float(law.ccdf(k - 0.5)) for k in range(66)]
    assert above[0] == 1.0
    assert above[65] == 0.0
    assert all(a > b for a, b in pairwise(above[32:]))
    assert all(a >= b for a, b in pairwise(above))
    for k in range(66):
        right = Fraction(sum(mass[k:]), 4**32)
        assert above[k] == pytest.approx(float(right), rel=1e-10)
    # The list's figure, to its own digits: P(S = 64) = 4^-32.
    assert above[64] == pytest.approx(5.421010862e-20, rel=1e-9)
    found = law.probability_above(63.0)
    assert Fraction(found.lower) <= Fraction(1, 4**32) <= Fraction(found.upper)


# 3 ---------------------------------------------------------------------------
def test_uniform_plus_normal() -> None:
    law = sum_of(stats.uniform(-0.5, 4.0), stats.norm(0.0, 0.3))

    # F(x) = (G(x + 0.5) - G(x - 3.5))/4 with G(y) = y Phi(y/s) + s phi(y/s), the
    # integral of the normal cdf.
    def part(y: float) -> float:
        return y * float(special.ndtr(y / 0.3)) + 0.3 * math.exp(
            -0.5 * (y / 0.3) ** 2
        ) / math.sqrt(2 * math.pi)

    def right(x: float) -> float:
        return (part(x + 0.5) - part(x - 3.5)) / 4

    for x in (-0.5, 0.0, 1.5, 3.0):
        assert law.cdf(x) == pytest.approx(right(x), abs=1e-9)
    assert law.cdf(20.0) - law.cdf(-20.0) == pytest.approx(1.0, abs=1e-12)
    # The density at 0 as a central difference of the distribution function; the
    # difference formula itself is off by h^2 |f''|/6 < 4e-7 at h = 1e-3.
    h = 1e-3
    assert (law.cdf(h) - law.cdf(-h)) / (2 * h) == pytest.approx(0.238052412, abs=3e-6)


# 4 ---------------------------------------------------------------------------
def test_narrow_plus_wide_normal() -> None:
    law = sum_of(stats.norm(0.0, 1e-6), stats.norm(0.0, 1.0))
    found = law.quantile(0.975)
    # sqrt(1 + 1e-12) times the standard normal quantile.
    assert found.value == pytest.approx(1.959963985, abs=1e-9)
    right = math.sqrt(1 + 1e-12) * float(special.ndtri(0.975))
    assert found.lower <= right <= found.upper


# 5 ---------------------------------------------------------------------------
def test_four_levy_laws_far_out() -> None:
    found = repeat(stats.levy(), 4).probability_above(1.018591636e19)
    assert found.lower <= 1e-9 * (1 + 1e-9)
    assert found.upper >= 1e-9 * (1 - 1e-9)
    assert found.value == pytest.approx(1e-9, rel=1e-3)


# 6 ---------------------------------------------------------------------------
def test_empirical_quantile_is_an_order_statistic() -> None:
    law = Empirical([5.0, 3.0, 6.0, -1.0, 3.0])
    assert law.icdf(0.8) == 5.0
    assert law.icdf(0.2) == -1.0
    assert law.icdf(0.6) == 3.0
    assert law.icdf(0.61) == 5.0
    assert list(law.samples) == [5.0, 3.0, 6.0, -1.0, 3.0]


# 8 ---------------------------------------------------------------------------
def test_a_missing_run_is_named_or_left_out_on_request() -> None:
    with pytest.raises(InputError, match=r"(?i)nan.*\b1\b|\b1\b.*nan"):
        Empirical([1.0, math.nan, 3.0])
    kept = Empirical([1.0, math.nan, 3.0], nan="omit")
    assert kept.samples.size == 2
    assert kept.mean() == 2.0


# 9, 10 -----------------------------------------------------------------------
def test_an_interval_without_a_law_is_refused() -> None:
    with pytest.raises(InputError, match="states no law") as refusal:
        quantity("3 (-1/+4)", dimension="energy", where="element 'rms', energy")
    assert "element 'rms', energy" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_joules_and_kilojoules_add_and_seconds_do_not() -> None:
    assert quantity("3 J + 2 kJ", dimension="energy", where="limit") == 2003.0
    parts = [quantity(x, dimension="energy", where="x") for x in ("3 J", "2 kJ")]
    assert sum_of(*parts).quantile(0.5).value == 2003.0
    with pytest.raises(UnitError, match=r"'s'.*'3 J \+ 2 s'"):
        quantity("3 J + 2 s", dimension="energy", where="limit")


# x - x -----------------------------------------------------------------------
def test_a_number_is_a_constant_law_of_itself() -> None:
    law = as_law(2.5)
    assert (law.mean(), law.variance()) == (2.5, 0.0)
    assert (law.cdf(2.4999), law.cdf(2.5), law.ccdf(2.5)) == (0.0, 1.0, 0.0)
    assert np.all(law.sample((3,), rng=np.random.default_rng(0)) == 2.5)
