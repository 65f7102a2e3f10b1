"""Kernels of the tilted Bromwich sum: generating functions, decay, rounding bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from probcalc.families import family_of
from probcalc.kernels import bromwich, inversion, transforms
from probcalc.line import Line

NONE = np.zeros(0)


def rows() -> list[tuple[list[float], Any]]:
    from scipy import stats

    return [
        ([0.0, 1.0, 4.0, 0.0], stats.norm(0.0, 2.0)),
        ([1.0, 1.0, 2.5, 0.5], stats.gamma(2.5, scale=0.5)),
        ([1.0, 1.0, 2.5, -0.5], -0.5 * stats.make_distribution(stats.gamma)(a=2.5)),
        ([2.0, 1.0, 0.0, 1.5], stats.uniform(-1.5, 3.0)),
        ([3.0, 1.0, 1 / 0.7, 2 * 0.49 * 2.0], stats.invgauss(0.7, scale=2.0)),
    ]


@pytest.mark.parametrize("index", range(5))
def test_cgf_and_decay_agree_with_the_families(index: int) -> None:
    row, law = rows()[index]
    family = family_of(law)
    assert family is not None
    table = np.array([row])
    low, high = inversion.strip(table)
    assert low == pytest.approx(family.theta_min)
    assert high == pytest.approx(family.theta_max)
    for share in (-0.9, -0.2, 1e-6, 0.1, 0.9):
        end = high if share > 0 else -low
        t = share * (end if math.isfinite(end) else 3.0)
        k0, k1, k2, size = inversion.cgf(table, NONE, NONE, t)
        log = family.log_mgf(t)
        assert log is not None
        # complex log1p and sinh are good to the unit roundoff, not relative to K
        assert k0 == pytest.approx(log.real, rel=1e-12, abs=2e-16)
        assert size >= abs(k0)
        # derivatives by central differences
        h = 1e-4 * min(1.0, abs(end - abs(t)) if math.isfinite(end) else 1.0)
        up = inversion.cgf(table, NONE, NONE, t + h)
        down = inversion.cgf(table, NONE, NONE, t - h)
        assert k1 == pytest.approx((up[0] - down[0]) / (2 * h), rel=1e-5, abs=1e-7)
        assert k2 == pytest.approx((up[1] - down[1]) / (2 * h), rel=1e-5)
        for w in (0.1, 3.0, 200.0):
            got = inversion.decay(table, t, w)
            assert got == pytest.approx(family.decay(t, w), rel=1e-12)


def test_series_of_the_uniform_transform() -> None:
    # log(sinh z / z) = z^2/6 - z^4/180 + z^6/2835 - z^8/37800 + z^10/467775 - ...
    known = [1 / 6, -1 / 180, 1 / 2835, -1 / 37800, 1 / 467775]
    assert transforms.SERIES[:5] == pytest.approx(known, rel=3e-16)
    for y in (0.01, 0.3, 0.79):
        powers = (y * y) ** np.arange(1, 15)
        want = math.log1p((math.sinh(y) - y) / y)
        assert float(transforms.SERIES @ powers) == pytest.approx(want, rel=1e-12)


def test_cgf_of_atoms() -> None:
    at, mass = np.array([-1.0, 0.5, 2.0]), np.array([0.2, 0.5, 0.3])
    table = np.array([[4.0, 7.0, 0.0, 3.0]])
    for t in (-400.0, -1.0, 0.0, 0.7, 400.0):
        k0, k1, k2, _ = inversion.cgf(table, at, mass, t)
        top = max(t * at)
        weight = mass * np.exp(t * at - top)
        mean = weight @ at / weight.sum()
        assert k0 == pytest.approx(7 * (top + math.log(weight.sum())), rel=1e-14)
        assert k1 == pytest.approx(7 * mean, rel=1e-13)
        variance = weight @ (at - mean) ** 2 / weight.sum()
        assert k2 == pytest.approx(7 * variance, rel=1e-9, abs=1e-12)


MIXED = np.array(
    [
        [0.0, 1.0, 0.3, 0.0],
        [1.0, 1.0, 2.5, 0.5],
        [1.0, 1.0, 1.5, -0.25],
        [2.0, 3.0, 0.0, 1.5],
        [3.0, 1.0, 1 / 0.7, 0.4],
    ]
)


def test_saddle_point_and_level() -> None:
    for x in (-50.0, -1.0, 1.3, 8.0, 100.0):
        t = inversion.solve_saddle(MIXED, NONE, NONE, x, 0.0)
        low, high = inversion.strip(MIXED)
        assert low < t < high
        assert inversion.cgf(MIXED, NONE, NONE, t)[1] == pytest.approx(x, rel=1e-5)
    # for a normal law the tail at K'(t) is known
    normal = np.array([[0.0, 1.0, 4.0, 0.0]])
    for level, upper, z in ((1e-9, True, 5.9978), (1e-3, False, -3.0902)):
        t = inversion.solve_level(normal, NONE, NONE, math.log(level), upper)
        assert 2.0 * t == pytest.approx(z, rel=0.03)


def reference_terms(t: float, w: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """phi(w)/(t + iw) of MIXED in extended precision."""
    wide, cwide = np.longdouble, np.clongdouble
    theta, z = wide(t), wide(t) + 1j * w.astype(cwide)

    def log_mgf(v: Any) -> Any:
        total = 0 * v
        for kind, n, a, b in MIXED.astype(wide):
            if kind == 0:
                total = total + a * v * v / 2
            elif kind == 1:
                total = total - a * np.log(1 - b * v)
            elif kind == 3:
                total = total + a * (1 - np.sqrt(1 - b * v))
            else:
                y = b * v
                total = total + n * np.log((np.exp(y) - np.exp(-y)) / (2 * y))
        return total

    exact = np.exp(log_mgf(z) - log_mgf(theta + 0 * z)) / z
    return exact.real, exact.imag


@pytest.mark.skipif(
    bool(np.finfo(np.longdouble).eps > 1e-18), reason="no extended precision here"
)
@pytest.mark.parametrize("t", [-1.9, -0.3, 0.05, 1.2, 1.9])
def test_rounding_bounds_of_the_terms_hold(t: float) -> None:
    delta, count = 1.0 / 16.0, 400
    re, im, err = bromwich.terms_of(MIXED, NONE, NONE, t, delta, count)
    exact_re, exact_im = reference_terms(t, delta * np.arange(count + 1.0))
    miss = np.hypot(re - exact_re, im - exact_im).astype(float)
    assert np.all(miss <= err)
    # and are not idle
    assert np.all(err[:100] <= 1e-12 * np.hypot(re, im)[:100])
    assert np.max(miss / err) > 1e-3


def test_rounding_bounds_of_atoms_hold() -> None:
    rng = np.random.default_rng(5)
    at = np.sort(np.round(rng.random(50) * 1000)) / 64
    mass = np.full(50, 1 / 50)
    n, t, delta, count = 9, 0.25, 1.0 / 32.0, 200
    table = np.array([[4.0, float(n), 0.0, 50.0]])
    re, im, err = bromwich.terms_of(table, at, mass, t, delta, count)
    wide = at.astype(np.longdouble)
    weight = np.exp(np.longdouble(t) * (wide - wide[-1]))
    weight /= weight.sum()
    w = delta * np.arange(count + 1, dtype=np.longdouble)
    phi = np.exp(1j * w[:, None] * wide) @ weight
    power = phi**0
    for _ in range(n):
        power = power * phi
    exact = power / (np.longdouble(t) + 1j * w)
    assert np.all(np.abs(re + 1j * im - exact) <= err)
    assert np.max(err) <= 1e-11


@pytest.mark.parametrize("log_goal", [-2.0, -6.0, -12.0, -30.0])
@pytest.mark.parametrize("x", [-3.0, 0.4, 2.0, 5.0])
def test_bounds_hold_for_windows_and_cuts_that_are_too_small(
    log_goal: float, x: float
) -> None:
    # Erlang sum of 24 exponentials, centred: copies and cut terms of visible size
    table = np.array([[1.0, 1.0, 24.0, 0.25]])
    y = 6.0 + x
    t = inversion.solve_saddle(table, NONE, NONE, y, 0.0)
    t = max(t, 0.4) if t >= 0.0 else min(t, -0.4)
    k0, _, k2, size = inversion.cgf(table, NONE, NONE, t)
    pole = math.log1p(math.sqrt(2 * math.pi * k2) * abs(t))
    goal = k0 - t * y - pole + log_goal
    delta, *copies = inversion.window(table, NONE, NONE, t, y, goal)
    count, *cut = inversion.cutoff(table, NONE, NONE, t, delta, log_goal, 9999, True)
    assert count > 0
    series = bromwich.terms_of(table, NONE, NONE, t, delta, count)
    relative = 2.0**-53 * 5.0 * (size + 1.0)
    line = Line(t, k0, relative, delta, (*copies[:2],), (*copies[2:],), (*cut,), series)
    value, low, high, density, off = line.at(y)
    z = Fraction(y) / Fraction(1, 4)
    terms = [z**k / math.factorial(k) for k in range(300)]
    upper = sum(terms[:24]) / sum(terms)
    exact = upper if t > 0 else 1 - upper
    assert Fraction(low) <= exact <= Fraction(high)
    exact_density = float(4 * terms[23] / sum(terms))
    norms = sum(
        math.exp(log - e * y) * inversion.density_norm(table, e, 1.0)
        for log, e in (copies[:2], copies[2:])
    )
    assert abs(density - exact_density) <= off + norms
    if log_goal == -2.0:  # the test would notice: the middle is visibly wrong
        assert abs(Fraction(value) / exact - 1) > 1e-9


def test_evaluation_sums_what_it_says() -> None:
    re, im, err = np.array([2.0, 0.5]), np.array([0.0, -0.25]), np.zeros(2)
    t, delta, x = 0.5, 0.75, 1.25
    tail, density, tail_off, density_off = bromwich.evaluate(re, im, err, t, delta, x)
    first = (0.5 - 0.25j) * np.exp(-0.75j * 1.25)
    scale = delta / (2 * math.pi)
    assert tail == pytest.approx(scale * (2.0 + 2 * first.real), rel=1e-15)
    second = 2 * ((t + 0.75j) * first).real
    assert density == pytest.approx(scale * (2.0 * t + second), rel=1e-15)
    assert 0.0 < tail_off < 1e-14
    assert 0.0 < density_off < 1e-14
    minus, *_ = bromwich.evaluate(re, im, err, -t, delta, x)
    assert minus == -tail


def test_density_norm_bounds_the_integral_of_the_transform() -> None:
    # normal: (1/2 pi) int exp(-w^2 s^2/2) dw = 1/(s sqrt(2 pi))
    for s in (0.1, 1.0, 30.0):
        table = np.array([[0.0, 1.0, s * s, 0.0]])
        exact = 1.0 / (s * math.sqrt(2 * math.pi))
        bound = inversion.density_norm(table, 0.3, 1.0 / s)
        assert exact <= bound <= 1.15 * exact
    single = np.array([[1.0, 1.0, 1.0, 1.0]])
    assert inversion.density_norm(single, 0.0, 1.0) == math.inf
