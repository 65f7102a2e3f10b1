"""Joint laws of T and x against closed forms and quadrature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from probcalc.composed import Composed
from probcalc.joint import (
    JointAffine,
    JointIndependent,
    JointRuns,
    Weighted,
    joint_maximum,
    joint_repeat,
    joint_sum,
    weighted,
)


def contains(law: Any, t: float, above: float, width: float = math.inf) -> None:
    found = law.probability_above(t, memory=2**24)
    assert found.kind == "certified"
    assert found.lower <= above * (1 + 1e-9) + 1e-14
    assert found.upper >= above * (1 - 1e-9) - 1e-14
    assert found.upper - found.lower <= width


def test_time_marginal_is_a_product_of_distribution_functions() -> None:
    parts = [JointAffine(stats.expon(scale=v), 0.0, 0.0) for v in (1.0, 0.5, 2.0)]
    law = Weighted(joint_maximum(*parts), 3.0)
    for t in (1.0, 5.0, 20.0, 60.0):
        below = math.prod(-math.expm1(-t / 3.0 / v) for v in (1.0, 0.5, 2.0))
        contains(law, t, 1.0 - below, 0.04)


def test_energy_marginal_is_a_sum() -> None:
    parts = [JointAffine(1.0, 0.0, stats.norm(v, v)) for v in (3.0, 4.0)]
    law = Weighted(joint_maximum(*parts), 10.0)
    for z in (-2.0, 0.0, 1.0, 4.0, 5.5):
        contains(law, 17.0 + 5.0 * z, float(stats.norm.sf(z)), 0.03)
    q = law.quantile(sf=1e-6)
    assert q.lower <= 17.0 + 5.0 * stats.norm.isf(1e-6) <= q.upper
    assert q.relative_width < 0.02
    assert law.support() == (-math.inf, math.inf)


def test_no_weight_or_no_maximum_is_one_dimension() -> None:
    a = JointAffine(stats.gamma(3), -1.0, stats.gamma(2))
    assert isinstance(weighted(joint_maximum(a, a), 0.0), Weighted)  # falling in T
    b = JointAffine(stats.gamma(3), 2.0, stats.gamma(2))
    assert isinstance(weighted(joint_maximum(b, b), 0.0), Composed)
    assert isinstance(weighted(joint_repeat(b, 9), 5.0), Composed)
    c = JointIndependent(stats.gamma(3), stats.gamma(2))
    assert isinstance(weighted(joint_maximum(c, c), 5.0), Composed)
    assert isinstance(weighted(joint_maximum(b, c), 5.0), Weighted)
    d = JointRuns([1.0, 1.0], [0.0, 4.0])
    e = JointRuns([1.0, 3.0], [2.0, 2.0])
    f = JointAffine(2.0, 3.0, stats.uniform())
    law = weighted(joint_maximum(joint_sum(d, e), f, c), 5.0)
    assert isinstance(law, Composed)
    r = JointRuns([1.0, 2.0], [3.0, 5.0])
    assert weighted(r, 10.0).quantile(0.5).value == 13.0


def test_reduced_law_agrees_with_the_grid() -> None:
    c = JointIndependent(stats.gamma(3), stats.gamma(2))
    d = JointIndependent(stats.gamma(6, scale=0.5), 1.0)
    expression = joint_maximum(joint_sum(c, d), joint_repeat(d, 2))
    line, grid = weighted(expression, 5.0), Weighted(expression, 5.0)
    for sf in (0.9, 0.1, 1e-3, 1e-6):
        q, r = line.quantile(sf=sf), grid.quantile(sf=sf)
        assert r.lower <= q.upper
        assert q.lower <= r.upper
        assert r.value == pytest.approx(q.value, rel=2e-3)
    assert grid.mean_bounds().lower <= line.mean() <= grid.mean_bounds().upper


def test_independent_coordinates_agree_with_quadrature() -> None:
    # E = 2 max(T1, T2) + x1 + x2, T exponential, x normal
    leaf = JointAffine(stats.expon(), 0.0, stats.norm(1.0, 0.5))
    law = Weighted(joint_maximum(leaf, leaf), 2.0)
    noise = stats.norm(2.0, math.sqrt(0.5))
    for t in (2.0, 5.0, 12.0, 25.0):
        truth, _ = integrate.quad(
            lambda s, t=t: 2 * math.exp(-s) * -math.expm1(-s) * noise.sf(t - 2 * s),
            0.0,
            60.0,
            epsabs=1e-13,
            epsrel=1e-10,
            points=[t / 2],
            limit=400,
        )
        contains(law, t, truth, 0.04)
        assert law.ccdf(t) == pytest.approx(truth, rel=0.02)
        assert law.ccdf(t) + law.cdf(t) == pytest.approx(1.0, abs=1e-9)
    bounds = law.mean_bounds()
    assert bounds.lower <= 5.0 <= bounds.upper  # 2 (1 + 1/2) + 2
    assert bounds.upper - bounds.lower < 0.05
    assert law.variance() == pytest.approx(4 * 1.25 + 0.5, rel=1e-3)


@pytest.mark.parametrize("slope", [-3.0, -1.0, 0.7])
def test_slope_of_either_sign_agrees_with_quadrature(slope: float) -> None:
    # E = 2 max(T1, T2) + slope T1, T uniform on (0, 1)
    a = JointAffine(stats.uniform(), slope, 0.0)
    b = JointAffine(stats.uniform(), 0.0, 0.0)
    law = weighted(joint_maximum(a, b), 2.0)
    for t in (-0.6, -0.1, 0.4, 0.9, 1.3, 2.2):
        # for T1 = s: P(2 max(s, T2) > t - slope s)
        def given(s: float, t: float = t) -> float:
            need = (t - slope * s) / 2.0
            return 1.0 if s > need else min(max(1.0 - need, 0.0), 1.0)

        truth = float(np.mean([given(s) for s in (np.arange(200_000) + 0.5) / 200_000]))
        found = law.probability_above(t, memory=2**24)
        assert found.lower <= truth + 1e-5
        assert found.upper >= truth - 1e-5
        assert found.upper - found.lower < 0.05


def test_heavy_tails_stay_inside_the_bracket() -> None:
    # T Pareto with infinite variance: P(E > t) of max over two, x = 0.5 T + constant 1
    leaf = JointAffine(stats.pareto(1.5), 0.5, 1.0)
    one = JointAffine(0.0, 0.0, 0.0)
    law = weighted(joint_maximum(leaf, one), 1.0)
    # E = 1.5 T + 1
    for sf in (0.5, 1e-2, 1e-4):
        q = law.quantile(sf=sf)
        truth = 1.5 * sf ** (-1 / 1.5) + 1.0
        assert q.lower <= truth <= q.upper
    assert law.variance() == math.inf
    endless = Weighted(joint_maximum(JointAffine(stats.levy(), 0.5, 1.0), one), 1.0)
    assert endless.mean() == endless.variance() == math.inf
    q = endless.quantile(sf=0.01)
    assert q.lower <= 1.5 * stats.levy.isf(0.01) + 1.0 <= q.upper
    assert law.mean_bounds().lower <= 5.5 <= law.mean_bounds().upper


def test_support_with_lines_that_fall() -> None:
    a = JointAffine(stats.expon(), -2.0, stats.uniform(1.0, 2.0))
    b = JointAffine(stats.expon(), -3.0, 0.0)
    # E = w max(T1, T2) - 2 T1 - 3 T2 + x
    assert weighted(joint_maximum(a, b), 5.0).support() == (1.0, math.inf)
    assert weighted(joint_maximum(a, b), 4.0).support()[0] == -math.inf
    c = JointRuns([1.0, 2.0], [-1.0, 5.0])
    assert weighted(joint_maximum(a, c), 5.0).support()[0] == 3.0


def test_shortfall_contains_the_tail_mean() -> None:
    r = np.random.default_rng(4)
    a = JointRuns(r.gamma(9.0, 0.1, 60), r.gamma(4.0, 0.5, 60))
    b = JointRuns(r.gamma(9.0, 0.1, 50), r.gamma(4.0, 0.5, 50))
    both = joint_maximum(a, b)
    listed = weighted(both, 3.0)
    t = np.maximum.outer(a.time, b.time)
    e = np.sort((3.0 * t + np.add.outer(a.x, b.x)).ravel())
    found = listed.expected_shortfall(sf=0.01)
    truth = float(e[-30:].mean())
    assert found.lower <= truth + 1e-12
    assert found.upper >= truth - 1e-12
    assert found.upper - found.lower < 1e-9 * truth
    assert listed.mean() == pytest.approx(e.mean(), rel=1e-13)
    assert listed.variance() == pytest.approx(e.var(), rel=1e-12)
    assert listed.quantile(0.8).value == float(e[math.ceil(0.8 * e.size) - 1])
    grid = weighted(joint_maximum(a, b, JointAffine(0.0, 0.0, stats.norm())), 3.0)
    assert isinstance(grid, Weighted)
    x = grid.sample(200_000, rng=8)
    found = grid.expected_shortfall(sf=0.05)
    worst = np.sort(x)[-10_000:]
    error = 7.0 * worst.std() / math.sqrt(worst.size)
    assert found.lower <= worst.mean() + error
    assert found.upper >= worst.mean() - error
    assert found.upper - found.lower < 0.1 * worst.mean()
