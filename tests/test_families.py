"""Named families: distribution functions, partial moments and transforms."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.errors import InputError
from probcalc.families import Family, family_of

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2

# name, law, points from far down to far up
CASES: list[tuple[str, Any, list[float]]] = [
    ("norm", stats.norm(1.0, 2.0), [-15.0, -3.0, 0.5, 1.0, 4.0, 19.0]),
    ("lognorm", stats.lognorm(0.5, scale=2.0), [0.02, 0.3, 1.5, 2.5, 30.0, 200.0]),
    ("lognorm wide", stats.lognorm(2.0), [1e-5, 0.1, 1.1, 50.0, 1e6]),
    ("gamma below 1", stats.gamma(0.3), [1e-8, 0.01, 0.3, 1.0, 5.0, 40.0]),
    ("gamma", stats.gamma(50.0, scale=0.1), [1.0, 3.0, 5.0, 7.0, 15.0]),
    ("gamma large", stats.gamma(5000.0), [4500.0, 4900.0, 5000.0, 5200.0, 5500.0]),
    ("expon", stats.expon(scale=3.0), [1e-8, 0.01, 1.0, 10.0, 100.0]),
    ("chi2", stats.chi2(5.0), [1e-4, 1.0, 5.0, 40.0]),
    ("erlang", stats.erlang(3), [1e-4, 1.0, 5.0, 40.0]),
    ("uniform", stats.uniform(1.0, 2.0), [1.0 + 1e-9, 1.5, 2.9, 3.0 - 1e-9]),
    ("pareto", stats.pareto(1.5), [1.0 + 1e-9, 1.2, 3.0, 1e4, 1e9]),
    ("lomax", stats.lomax(2.5), [1e-9, 1e-3, 0.28, 0.3, 30.0, 1e5]),
    ("lomax, mean inf", stats.lomax(0.5), [1e-9, 1e-3, 0.5, 0.7, 30.0]),
    ("lomax steep", stats.lomax(40.0), [1e-9, 1e-3, 0.02, 0.03, 1.0]),
    ("levy", stats.levy(), [0.003, 0.05, 0.16, 0.18, 1.0, 1e6]),
    ("weibull", stats.weibull_min(1.5), [1e-6, 0.01, 0.5, 3.0, 12.0]),
    ("weibull below 1", stats.weibull_min(0.6), [1e-6, 0.01, 1.0, 3.0, 200.0]),
    ("invgauss", stats.invgauss(0.7, scale=2.0), [0.02, 0.1, 1.4, 16.0, 60.0]),
    ("invgauss skewed", stats.invgauss(20.0), [0.02, 0.3, 20.0, 3000.0, 2e4]),
    ("invgauss narrow", stats.invgauss(0.02), [0.01, 0.015, 0.02, 0.035, 0.04]),
    ("beta", stats.beta(2.5, 3.0), [1e-9, 0.01, 0.3, 0.99, 0.9999]),
    ("beta infinite", stats.beta(0.5, 3.0), [1e-9, 0.01, 0.3, 0.99, 0.9999]),
    ("triang", stats.triang(0.3), [1e-6, 0.1, 0.3, 0.5, 0.99999]),
    ("truncnorm", stats.truncnorm(-1.0, 2.5), [-0.999999, -0.9, 0.1, 1.9, 2.499999]),
    ("truncnorm far", stats.truncnorm(7.0, 9.0), [7.00001, 7.3, 8.0, 8.99]),
    ("truncnorm reflected", stats.truncnorm(-9.0, -7.0), [-8.99, -8.0, -7.00001]),
    ("halfnorm", stats.halfnorm(), [1e-6, 0.1, 1.0, 9.0]),
    ("genpareto", stats.genpareto(0.2, scale=3.0), [1e-9, 0.1, 1.0, 1e3]),
    ("genpareto 0", stats.genpareto(0.0), [1e-9, 0.1, 1.0, 40.0]),
    ("genpareto bounded", stats.genpareto(-0.3), [1e-9, 0.1, 1.0, 3.3]),
    ("loguniform", stats.loguniform(1.0, 1000.0), [1.000001, 1.1, 30.0, 999.9]),
    ("exponnorm", stats.exponnorm(1.5), [-8.0, -4.0, -1.0, 0.5, 10.0, 40.0]),
    ("exponnorm narrow", stats.exponnorm(0.1), [-6.0, -1.0, 0.5, 6.0, 10.0]),
]
IDS = [name for name, _, _ in CASES]


def recognised(law: Any) -> Family:
    family = family_of(law)
    assert family is not None
    return family


def close(got: Any, want: float, rel: float, absolute: float = 0.0) -> bool:
    return bool(abs(got - want) <= rel * abs(want) + absolute)


def integrals(
    density: Callable[[Any], Any], near: float, far: float, unit: float
) -> tuple[float, float]:
    """Mass and first moment between two points, by panels graded at both ends.

    Panels double away from `near`, where the density is largest, and halve towards a
    finite `far`; independent of the code under test.
    """
    sign = 1.0 if far > near else -1.0
    powers = np.append(np.arange(0.0, 50.0, 0.25), np.arange(50.0, 220.0))
    steps = unit * 1e-3 * 2.0**powers
    if np.isinf(far):
        edges = near + sign * np.append(0.0, steps)
    else:
        gap = abs(far - near)
        halves = 0.5 * gap * 2.0 ** -np.arange(0.0, 240.0, 0.5)
        steps = steps[steps < 0.5 * gap]
        edges = np.concatenate(
            [[near], near + sign * steps, far - sign * halves, [far]]
        )
        edges = np.unique(edges)[:: int(sign)]
    width = np.abs(np.diff(edges))
    x = np.minimum(edges[:-1], edges[1:])[:, None] + width[:, None] * NODES
    with np.errstate(all="ignore"):
        mass = np.nan_to_num(density(x), posinf=0.0) * width[:, None] * WEIGHTS
    return float(mass.sum()), float((x * mass).sum())


@pytest.mark.parametrize(("name", "law", "points"), CASES, ids=IDS)
def test_tails_and_partial_moments_are_integrals_of_the_density(
    name: str, law: Any, points: list[float]
) -> None:
    family = recognised(law)
    low, high = law.support()
    density = law.pdf
    if name in ("gamma large", "invgauss skewed"):  # SciPy's own cancels there
        density = family.pdf
    unit = law.std() if np.isfinite(law.std()) else 1.0

    def between(x: float, end: float) -> tuple[float, float]:
        kinks = [0.3] if name == "triang" and min(x, end) < 0.3 < max(x, end) else []
        span = min(unit, abs(x - low)) if abs(x - low) > 0 else unit
        parts = [
            integrals(density, a, b, span)
            for a, b in itertools.pairwise([x, *kinks, end])
        ]
        return sum(m for m, _ in parts), sum(g for _, g in parts)

    for x in points:
        below, first_below = between(x, low)
        above, first_above = between(x, high)
        # 1e-14 of a term where the two of E[X; ...] nearly cancel
        slack = 1e-14 * (unit + abs(law.median()))
        assert close(family.cdf(x), below, 2e-12)
        assert close(family.sf(x), above, 2e-12)
        assert close(family.partial_below(x), first_below, 2e-12, slack * below)
        if np.isinf(family.mean):
            assert family.partial_above(x) == np.inf
        else:
            assert close(family.partial_above(x), first_above, 2e-12, slack * above)
        assert close(family.pdf(x), law.pdf(x), 2e-11)


@pytest.mark.parametrize(("name", "law", "points"), CASES, ids=IDS)
def test_support_and_moments(name: str, law: Any, points: list[float]) -> None:
    family = recognised(law)
    assert (family.lower, family.upper) == pytest.approx(law.support(), rel=1e-14)
    mean, variance = law.stats("mv")
    if name == "levy":  # SciPy says nan for what is infinite
        mean, variance = np.inf, np.inf
    if name in ("pareto", "lomax, mean inf"):
        variance = np.inf
    assert family.mean == pytest.approx(float(mean), rel=1e-12)
    assert family.variance == pytest.approx(float(variance), rel=1e-9)
    ends = np.array([family.lower, family.upper])
    with np.errstate(all="ignore"):
        assert np.array_equal(family.cdf(ends), [0.0, 1.0])
        assert np.array_equal(family.sf(ends), [1.0, 0.0])
    beyond = np.array([family.lower - 1.0, family.upper + 1.0])
    assert np.array_equal(family.pdf(beyond), [0.0, 0.0])
    if family.mode is not None and family.pdf(family.mode) < np.inf:
        grid = np.linspace(points[0], points[-1], 2001)
        assert family.pdf(family.mode) >= (1.0 - 1e-12) * family.pdf(grid).max()


def test_far_tails_against_high_precision_values() -> None:
    # 50-digit evaluations of the closed forms
    ig = recognised(stats.invgauss(0.7))
    assert close(ig.sf(90.0), 2.44149372175640078e-43, 5e-14)
    assert close(ig.partial_above(90.0), 2.2208956755563296e-41, 5e-14)
    levy = recognised(stats.levy())
    assert close(levy.partial_below(0.003), 5.38691218496718961e-77, 5e-14)
    assert close(recognised(stats.halfnorm()).sf(20.0), 5.50724823721246739e-89, 5e-14)


def test_lomax_partial_moment_keeps_its_accuracy_near_zero() -> None:
    # E[X; X <= x] -> c x^2/2 - c (c+1) x^3/3 + ...
    for c in (0.5, 1.0, 2.5):
        x = 1e-7
        series = c * x * x / 2 - c * (c + 1) * x**3 / 3
        assert close(recognised(stats.lomax(c)).partial_below(x), series, 1e-12)


@pytest.mark.parametrize(
    ("law", "same"),
    [
        (stats.Normal(mu=1.0, sigma=2.0), stats.norm(1.0, 2.0)),
        (stats.Normal(), stats.norm()),
        (stats.Uniform(a=1.0, b=3.0), stats.uniform(1.0, 2.0)),
        (stats.make_distribution(stats.lognorm)(s=0.5), stats.lognorm(0.5)),
        (stats.make_distribution(stats.halfnorm)(), stats.halfnorm()),
        (2 * stats.make_distribution(stats.gamma)(a=0.5) + 1, stats.gamma(0.5, 1, 2)),
        (stats.Normal() + 2, stats.norm(2.0)),
        (stats.lognorm(s=0.5, scale=2.0), stats.lognorm(0.5, 0.0, 2.0)),
        (SimpleNamespace(frozen=stats.expon(scale=2.0)), stats.expon(0.0, 2.0)),
        (stats.chi2(6), stats.gamma(3.0, scale=2.0)),
        (stats.pareto(2.0, scale=3.0), stats.lomax(2.0, loc=3.0, scale=3.0)),
    ],
)
def test_equal_laws_written_differently_are_one_family(law: Any, same: Any) -> None:
    assert recognised(law) == recognised(same)
    assert hash(recognised(law)) == hash(recognised(same))


def test_negative_scale_reflects() -> None:
    base = recognised(stats.lognorm(0.5))
    law = recognised(-2 * stats.make_distribution(stats.lognorm)(s=0.5) + 1)
    x = np.array([-20.0, -3.0, -1.0, 0.5])
    z = (1.0 - x) / 2.0
    assert np.array_equal(law.cdf(x), base.sf(z))
    assert np.array_equal(law.sf(x), base.cdf(z))
    assert np.allclose(law.pdf(x), base.pdf(z) / 2, rtol=1e-15)
    want = base.sf(z) - 2 * base.partial_above(z)
    assert np.allclose(law.partial_below(x), want, rtol=1e-13)
    assert (law.lower, law.upper) == (-np.inf, 1.0)
    assert law.mean == pytest.approx(1 - 2 * base.mean)


@pytest.mark.parametrize(
    "law",
    [
        3.0,
        "norm",
        stats.cauchy(),
        stats.poisson(3.0),
        stats.lognorm([0.5, 1.0]),
        stats.exp(stats.Normal()),
        stats.truncate(stats.Normal(), -1.0, 1.0),
        stats.lognorm,
    ],
)
def test_unknown_laws_are_none(law: Any) -> None:
    assert family_of(law) is None


def test_a_law_that_only_bears_a_known_name_is_not_taken_for_it() -> None:
    class Other(stats.rv_continuous):
        def _pdf(self, x: Any, *args: Any) -> Any:
            return 0.5 * np.exp(-np.abs(x))

    assert family_of(Other(name="norm")()) is None


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (stats.lognorm(-1.0), r"law lognorm: s = -1.0, expected a positive finite"),
        (stats.norm(0.0, -1.0), r"law norm: scale = -1.0, expected a positive"),
        (stats.norm(0.0, 0.0), r"law norm: scale = 0.0, expected a positive"),
        (stats.norm(np.inf, 1.0), r"law norm: loc = inf, expected a finite number"),
        (stats.gamma(np.nan), r"law gamma: a = nan, expected a number"),
        (stats.triang(2.0), r"law triang: c = 2.0, expected a number in \[0, 1\]"),
        (stats.loguniform(3.0, 2.0), r"law loguniform: b = 2.0, expected more than a"),
        (stats.truncnorm(1.0, 1.0), r"law truncnorm: b = 1.0, expected more than a"),
        (stats.genpareto(np.inf), r"law genpareto: c = inf, expected a finite number"),
        (stats.chi2(0.0), r"law chi2: df = 0.0, expected a positive finite number"),
        (stats.beta(1.0, -2.0), r"law beta: b = -2.0, expected a positive finite"),
        (stats.expon(scale=np.inf), r"law expon: scale = inf, expected a positive"),
    ],
)
def test_bad_parameters_are_named(law: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        family_of(law)


SMOOTH: list[tuple[Any, list[float]]] = [
    (stats.norm(1.0, 2.0), [-1.0, 0.0, 0.7]),
    (stats.gamma(2.5, loc=1.0, scale=0.5), [-3.0, 0.0, 1.5]),
    (stats.uniform(-1.0, 3.0), [-2.0, 0.0, 1e-9, 4.0]),
    (stats.invgauss(0.7, scale=2.0), [-2.0, 0.0, 0.3]),
    (stats.exponnorm(1.5, scale=0.5), [-2.0, 0.0, 1.0]),
    (-1 * stats.make_distribution(stats.gamma)(a=1.5), [-0.7, 0.0, 2.0]),
]


@pytest.mark.parametrize(("law", "tilts"), SMOOTH)
def test_log_mgf_is_the_transform_of_the_density(law: Any, tilts: list[float]) -> None:
    family = recognised(law)
    assert family.smooth
    # Tilted densities below exp(-40) of their peak play no part.
    span = 100.0 * np.sqrt(family.variance)
    low, high = (
        max(family.lower, family.mean - span),
        min(family.upper, family.mean + span),
    )
    edges = np.unique(
        np.concatenate(
            [
                np.linspace(low, high, 4001),
                low + (high - low) * 2.0 ** -np.arange(1.0, 60.0),
                high - (high - low) * 2.0 ** -np.arange(1.0, 60.0),
            ]
        )
    )
    x = edges[:-1, None] + np.diff(edges)[:, None] * NODES
    mass = law.pdf(x) * np.diff(edges)[:, None] * WEIGHTS
    for theta in tilts:
        assert family.theta_min < theta < family.theta_max
        for w in (0.0, 0.3, 2.0, 7.0):
            z = complex(theta, w)
            want = complex((mass * np.exp(z * x)).sum())
            log = family.log_mgf(z)
            assert log is not None
            scale = float((mass * np.exp(theta * x)).sum())
            assert abs(np.exp(complex(log)) - want) <= 1e-9 * scale


@pytest.mark.parametrize(("law", "tilts"), SMOOTH)
def test_decay_bounds_the_transform_and_its_slope(law: Any, tilts: list[float]) -> None:
    family = recognised(law)
    w = np.geomspace(1e-3, 1e5, 400)
    for theta in tilts:
        log, slope = family.decay(theta, w)
        at, base = family.log_mgf(theta + 1j * w), family.log_mgf(theta)
        assert at is not None
        assert base is not None
        true = at.real - base.real
        assert np.all(true <= log + 1e-9 * (1.0 + np.abs(log)))
        # The bound falls at least as fast as promised anywhere beyond: its secants
        # from one frequency to the next are below the slope at the first.
        secant = np.diff(log) / np.diff(np.log(w))
        rounding = 1e-9 * (1.0 + np.abs(log[:-1]))
        assert np.all(secant <= slope[:-1] + rounding)
        assert np.all(np.diff(slope) <= 1e-12)


def test_families_without_a_transform_say_so() -> None:
    family = recognised(stats.lognorm(0.5))
    assert not family.smooth
    assert family.log_mgf(0.0) is None
    assert family.decay(0.0, 3.0) == (0.0, 0.0)
    assert (family.theta_min, family.theta_max) == (0.0, 0.0)


def test_import_does_not_load_scipy_stats_or_numba() -> None:
    code = (
        "import sys, probcalc.families; "
        "bad = {'scipy.stats', 'numba', 'jax'} & set(sys.modules); sys.exit(bool(bad))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
