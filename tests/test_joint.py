"""Joint laws of T and x against enumeration, closed forms and Monte Carlo."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from probcalc import joint as module
from probcalc.composed import Composed, maximum, repeat, sum_of
from probcalc.distribution import Empirical
from probcalc.errors import InputError, ToleranceError
from probcalc.joint import (
    Joint,
    JointAffine,
    JointIndependent,
    JointMaximum,
    JointRuns,
    JointSum,
    Weighted,
    joint_maximum,
    joint_repeat,
    joint_sum,
    weighted,
)

FALSE_ALARM = 1e-9  # of one Monte Carlo comparison
Law = dict[tuple[Fraction, Fraction], Fraction]
Draw = Callable[[st.SearchStrategy[Any]], Any]


# ---------------------------------------------------------------- brute force
def exact(node: Joint) -> Law:
    """Joint law of an expression of finite lists, in fractions."""
    if isinstance(node, JointRuns):
        pairs = list(zip(node.time, node.x, strict=True))
        masses = (
            [Fraction(1, len(pairs))] * len(pairs)
            if node.weights is None
            else [Fraction(float(w)) for w in node.weights]
        )
        return collect(
            (Fraction(float(t)), Fraction(float(x)), p)
            for (t, x), p in zip(pairs, masses, strict=True)
        )
    if isinstance(node, JointAffine | JointIndependent):
        slope = Fraction(node.slope)
        return collect(
            (t, slope * t + x, p * q)
            for t, p in outcomes(node.time_law)
            for x, q in outcomes(node.x_law)
        )
    both = max if isinstance(node, JointMaximum) else lambda a, b: a + b
    result: Law | None = None
    for part, n in node.parts:
        for _ in range(n):
            other = exact(part)
            result = (
                other
                if result is None
                else collect(
                    (both(t, u), x + y, p * q)
                    for ((t, x), p), ((u, y), q) in itertools.product(
                        result.items(), other.items()
                    )
                )
            )
    assert result is not None
    return result


def outcomes(law: Any) -> list[tuple[Fraction, Fraction]]:
    values = law.samples if isinstance(law, Empirical) else np.array([law.value])
    return [(Fraction(float(v)), Fraction(1, values.size)) for v in values]


def collect(items: Any) -> Law:
    law: Law = defaultdict(Fraction)
    for t, x, p in items:
        law[t, x] += p
    return law


def energy(law: Law, weight: float) -> list[tuple[Fraction, Fraction]]:
    """E in rising order with P(E > value)."""
    by: dict[Fraction, Fraction] = defaultdict(Fraction)
    for (t, x), p in law.items():
        by[Fraction(weight) * t + x] += p
    out: list[tuple[Fraction, Fraction]] = []
    left = sum(by.values())
    for value in sorted(by):
        left -= by[value]
        out.append((value, left))
    return out


# -------------------------------------------------------------------- strategies
# Eighths, so that sums and products are exact in floating point.
eighths = st.integers(0, 40).map(lambda k: k / 8)
signed = st.integers(-24, 40).map(lambda k: k / 8)
# Values on no grid, with few digits, so that fractions stay small.
thirds = st.integers(0, 300).map(lambda k: round(k / 37, 3))


@st.composite
def runs(draw: Draw, times: Any = eighths, most: int = 3) -> JointRuns:
    n = draw(st.integers(1, most))
    t = draw(st.lists(times, min_size=n, max_size=n))
    x = draw(st.lists(signed, min_size=n, max_size=n))
    return JointRuns(np.array(t), np.array(x))


@st.composite
def affine(draw: Draw, times: Any = eighths) -> JointAffine:
    t = draw(st.lists(times, min_size=1, max_size=2))
    x = draw(st.lists(signed, min_size=1, max_size=2))
    slope = draw(st.sampled_from([-2.0, -0.5, 0.0, 0.75, 3.0]))
    return JointAffine(Empirical(np.array(t)), slope, Empirical(np.array(x)))


def trees(times: Any = eighths) -> st.SearchStrategy[Joint]:
    """Expressions of up to four leaves that end in a maximum."""
    leaf = st.one_of(runs(times), affine(times))
    pair = st.tuples(st.booleans(), leaf, leaf).map(
        lambda v: (joint_sum if v[0] else joint_maximum)(v[1], v[2])
    )
    return st.tuples(pair, st.one_of(leaf, pair)).map(lambda v: joint_maximum(*v))


relaxed = settings(max_examples=20, deadline=None)


def check_bounds(law: Weighted, expression: Joint, weight: float) -> None:
    """Bounds of P(E > t) at, before and after every outcome contain the truth."""
    result = law._result(1e-6)
    values = energy(exact(expression), weight)
    for value, above in values:
        v, tail = float(value), float(above)
        lower, upper = result.lower_at(np.array([v])), result.upper_at(np.array([v]))
        assert lower[0] <= tail * (1 + 1e-12) + 1e-13
        assert upper[0] >= tail * (1 - 1e-12) - 1e-13
    for sf in (0.9, 0.5, 0.3, 0.05, 1e-3, 1e-6):
        truth = float(next(v for v, above in values if float(above) <= sf))
        if any(abs(float(above) - sf) < 1e-9 for _, above in values):
            continue  # the level sits on a step: either end is right
        found = law._quantile(1 - sf, sf, True, law.grid)
        assert found.lower - 1e-12 <= truth <= found.upper + 1e-12, sf
        assert found.lower <= found.value <= found.upper
    mean = float(
        sum((Fraction(weight) * t + x) * p for (t, x), p in exact(expression).items())
    )
    bounds = law.mean_bounds()
    assert bounds.lower <= mean <= bounds.upper


# ------------------------------------------------------------- against enumeration
@relaxed
@given(trees(), st.sampled_from([0.5, 1.0, 4.0]))
def test_listed_is_exact(expression: Joint, weight: float) -> None:
    law = Weighted(expression, weight)
    result = law._result()
    assert result.atoms
    expected = energy(exact(expression), weight)
    np.testing.assert_allclose(
        result.points, [float(v) for v, _ in expected], rtol=1e-14, atol=1e-13
    )
    np.testing.assert_allclose(
        result.above, [float(p) for _, p in expected], rtol=1e-13, atol=1e-15
    )
    assert law._quantile(0.5, 0.5, True, 512).limited_by.startswith("nothing")


@relaxed
@given(trees(), st.sampled_from([0.5, 1.0, 4.0]))
def test_multiples_of_a_quantum_need_no_rounding(
    expression: Joint, weight: float
) -> None:
    law = Weighted(expression, weight, 64, listed=0)
    check_bounds(law, expression, weight)


@relaxed
@given(trees(thirds), st.sampled_from([0.5, 1.0, 7.3]))
def test_bracket_contains_enumeration(expression: Joint, weight: float) -> None:
    """Nothing is listed: also the smallest expression goes through the grid."""
    law = Weighted(expression, weight, 64, listed=0)
    check_bounds(law, expression, weight)


@pytest.mark.parametrize("few", [0, 6])
@pytest.mark.parametrize("seed", range(6))
def test_either_way_to_a_bracket_holds_alone(
    few: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rounding down and up serves few draws, noise bounds any number: copies included.
    monkeypatch.setattr(module, "FEW", few)
    r = np.random.default_rng(seed)

    def leaf() -> Joint:
        n = int(r.integers(1, 4))
        t, x = np.round(r.uniform(0, 8, n), 3), np.round(r.uniform(-3, 5, n), 3)
        if r.random() < 0.5:
            return JointRuns(t, x)
        return JointAffine(Empirical(t), float(r.choice([-4, -0.5, 2])), Empirical(x))

    a, b, c = leaf(), leaf(), leaf()
    expression = joint_maximum(joint_repeat(joint_maximum(a, b), 2), a, c, c)
    weight = float(r.choice([0.5, 3.0]))
    check_bounds(Weighted(expression, weight, 48, listed=0), expression, weight)
    # Lists of runs alone go in the order of their T, without a grid of it.
    t, x = np.round(r.uniform(0, 8, (2, 3)), 3), np.round(r.uniform(-3, 5, (2, 3)), 3)
    p = JointRuns(t[0], x[0], np.array([1.0, 2.0, 5.0]))
    q = JointRuns(np.append(t[1], t[0, 0]), np.append(x[1], 1.0))
    expression = joint_maximum(p, q, q)
    law = Weighted(expression, weight, 48, listed=0)
    check_bounds(law, expression, weight)
    if "in order" not in law._result(1e-6).limited_by:
        pytest.fail(f"expected runs in order, got {law._result(1e-6).limited_by}")


@relaxed
@given(trees(thirds))
def test_sums_of_parts_on_one_line(expression: Joint) -> None:
    whole = joint_sum(
        joint_repeat(expression, 2), JointRuns([0.31, 0.9], [0.2, -1.7]), expression
    )
    law = Weighted(whole, 2.0, 64, listed=0)
    result = law._result(1e-6)
    # Enumerated in floating point: three copies of a law of up to 81 outcomes.
    one = exact(expression)
    parts = [one, one, one, exact(JointRuns([0.31, 0.9], [0.2, -1.7]))]
    values, masses = np.zeros(1), np.ones(1)
    for part in parts:
        v = np.array([float(2 * t + x) for t, x in part])
        p = np.array([float(q) for q in part.values()])
        values = np.add.outer(values, v).ravel()
        masses = np.multiply.outer(masses, p).ravel()
    for at in np.quantile(values, [0.0, 0.1, 0.5, 0.9, 0.99]):
        for t in (at - 0.01, at + 0.01):
            truth = float(masses[values > t].sum())
            assert result.lower_at(np.array([t]))[0] <= truth + 1e-10
            assert result.upper_at(np.array([t]))[0] >= truth - 1e-10
    bounds = law.mean_bounds()
    assert bounds.lower <= float(values @ masses) <= bounds.upper


# ------------------------------------------------------------ against closed forms
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


def test_composed_times_are_spelled_out() -> None:
    t = maximum(sum_of(stats.gamma(3), 1.0), repeat(stats.gamma(2), 2))
    a, b, *_ = mixed(3)
    law = weighted(joint_maximum(joint_sum(JointIndependent(t, 2.0), a), b), 5.0)
    assert isinstance(law, Weighted)
    assert law.quantile(0.5).kind == "certified"
    draws = law.sample(100_000, rng=1)
    assert_quantiles_hold(law, draws)
    line = JointAffine(sum_of(stats.gamma(3), 1.0), -2.0, 0.5)
    law = weighted(joint_maximum(line, b), 5.0)
    assert law.quantile(0.5).kind == "certified"
    assert_quantiles_hold(law, law.sample(100_000, rng=2))


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


# -------------------------------------------------------------- against simulation
def mixed(seed: int, runs: int = 400) -> list[Joint]:
    r = np.random.default_rng(seed)
    out: list[Joint] = []
    for i in range(3):
        t = r.gamma(30.0, 0.03, runs)
        out.append(JointRuns(t, 4.0 * t + r.gamma(5.0, 0.4, runs)))
        out.append(
            JointAffine(
                stats.lognorm(0.2, scale=0.8 + 0.1 * i),
                (-5.0, 2.0, 6.0)[i],
                stats.gamma(4.0, scale=0.5),
            )
        )
    return out


def assert_quantiles_hold(law: Any, draws: npt.NDArray[np.float64]) -> None:
    n = draws.size
    k = -float(stats.norm.ppf(FALSE_ALARM))
    for sf in (0.9, 0.5, 0.1, 0.01, 1e-3):
        q = law.quantile(sf=sf)
        slack = k * math.sqrt(sf * (1 - sf) / n) + k * k / n
        assert np.mean(draws > q.upper) <= sf + slack
        assert np.mean(draws >= q.lower) >= sf - slack
        assert q.kind == "certified"


@pytest.mark.parametrize("seed", [0, 1])
def test_series_parallel_expression_contains_monte_carlo(seed: int) -> None:
    a, b, c, d, e, f = mixed(seed)
    whole = joint_maximum(
        joint_sum(a, joint_maximum(b, c), d), joint_sum(e, joint_repeat(f, 2))
    )
    law = weighted(whole, 9.0)
    draws = law.sample(10**6, rng=100 + seed)
    assert_quantiles_hold(law, draws)
    # The estimate is much better than the bracket: it has the same law but for noise.
    for sf in (0.5, 0.1, 0.01):
        q = law.quantile(sf=sf)
        assert np.mean(draws > q.value) == pytest.approx(
            sf, abs=0.01 * sf + 7 * math.sqrt(sf / draws.size)
        )
    assert law.mean() == pytest.approx(
        float(draws.mean()), abs=7 * draws.std() / 1e3 + 1e-3 * draws.mean()
    )


def test_many_copies_of_a_parallel_part() -> None:
    a, b, *_ = mixed(5)
    part = joint_maximum(a, b)
    law = weighted(joint_repeat(part, 64), 9.0)
    single = weighted(part, 9.0)
    draws = single.sample((64, 40_000), rng=3).sum(axis=0)
    assert_quantiles_hold(law, draws)
    q = law.quantile(sf=0.01)
    assert q.upper - q.lower < 0.35 * draws.std()  # noise is pooled, not added up
    assert law.variance() == pytest.approx(64 * single.variance(), rel=1e-3)


def test_large_lists_of_runs_go_in_the_order_of_their_times() -> None:
    r = np.random.default_rng(6)
    runs = []
    for _ in range(2):
        t = np.round(r.gamma(20.0, 0.05, 2500), 2)  # ties within and between
        runs.append(JointRuns(t, 3.0 * t + r.gamma(4.0, 0.3, 2500)))
    law = weighted(joint_maximum(*runs), 10.0)
    assert isinstance(law, Weighted)
    t = np.maximum.outer(runs[0].time, runs[1].time)
    e = np.sort((10.0 * t + np.add.outer(runs[0].x, runs[1].x)).ravel())
    for sf in (0.9, 0.5, 0.01, 1e-4, 1e-6):
        q = law.quantile(sf=sf)
        truth = float(e[e.size - 1 - math.floor(sf * e.size + 1e-9)])
        assert q.lower <= truth <= q.upper
        assert q.relative_width < 1e-3
        assert "in order" in q.limited_by
    bounds = law.mean_bounds()
    assert bounds.lower <= float(e.mean()) <= bounds.upper
    assert bounds.upper - bounds.lower < 1e-6
    assert law.variance() == pytest.approx(float(e.var()), rel=1e-5)
    shortfall = law.expected_shortfall(sf=0.01)
    worst = float(e[-62_500:].mean())
    assert shortfall.lower <= worst <= shortfall.upper
    assert shortfall.upper - shortfall.lower < 1e-2 * worst


# ------------------------------------------------------------------- the algebra
def test_order_of_operands_does_not_matter() -> None:
    a, b, c, d, *_ = mixed(7)
    one = weighted(joint_maximum(joint_sum(a, b), c, d), 5.0)
    other = weighted(joint_maximum(d, joint_sum(b, a), c), 5.0)
    for sf in (0.5, 1e-3, 1e-6):
        q, r = (law.quantile(sf=sf, memory=2**24) for law in (one, other))
        assert q.value == pytest.approx(r.value, rel=1e-4)
        assert max(q.lower, r.lower) <= min(q.upper, r.upper)


def test_nested_operands_are_flattened_and_merged() -> None:
    a, b, c, *_ = mixed(8)
    left = joint_maximum(joint_maximum(a, b), c, a)
    assert isinstance(left, JointMaximum)
    assert left.parts == ((a, 2), (b, 1), (c, 1))
    run = joint_repeat(joint_sum(a, joint_repeat(b, 3)), 4)
    assert isinstance(run, JointSum)
    assert run.parts == ((a, 4), (b, 12))
    assert joint_sum(a) is a
    assert repr(left) == "<JointMaximum: 4 parts>"


@pytest.mark.slow
def test_thousands_of_parts_and_deep_nesting() -> None:
    r = np.random.default_rng(0)
    parts = [
        JointRuns(r.gamma(9.0, 0.1, 30), r.gamma(4.0, 0.5, 30)) for _ in range(1500)
    ]
    wide = weighted(joint_maximum(*parts), 1.0, grid=64)
    assert wide.quantile(0.5, memory=2**18).kind == "certified"
    deep: Joint = parts[0]
    for i in range(600):  # two nodes each: deeper than Python would recurse
        deep = joint_maximum(joint_sum(deep, parts[i % 40]), parts[(i + 7) % 40])
    law = weighted(deep, 1.0, grid=32)
    x = law.sample(50, rng=1)
    q = law.quantile(0.5, memory=2**16)
    assert q.lower <= float(np.median(x)) + 10 * x.std()
    assert q.upper >= float(np.median(x)) - 10 * x.std()


def test_sample_draws_every_copy_afresh() -> None:
    a = JointRuns([0.0, 1.0], [0.0, 0.0])
    x = weighted(joint_maximum(a, a, a), 1.0).sample(20_000, rng=1)
    assert np.mean(x) == pytest.approx(0.875, abs=0.02)
    law = Weighted(joint_sum(a, a), 1.0)
    again = law.sample((3, 4), rng=7)
    np.testing.assert_array_equal(again, law.sample((3, 4), rng=7))
    assert set(np.unique(law.sample(500, rng=2))) == {0.0, 1.0, 2.0}
    assert np.ndim(law.sample(rng=3)) == 0


# ---------------------------------------------------------------- as an operand
def test_sum_with_other_laws_contains_monte_carlo() -> None:
    a, b, *_ = mixed(12)
    law = weighted(joint_maximum(a, b), 9.0)
    total = sum_of(law, stats.gamma(5.0, scale=2.0), repeat(law, 2))
    r = np.random.default_rng(3)
    draws = law.sample((3, 200_000), rng=r).sum(axis=0) + r.gamma(5.0, 2.0, 200_000)
    assert_quantiles_hold(total, draws)


def test_lattice_bounds_enclose_the_law() -> None:
    a, b, *_ = mixed(9)
    law = weighted(joint_maximum(a, b), 9.0)
    assert isinstance(law, Weighted)
    low, high = law.quantile(sf=0.999).lower, law.quantile(sf=1e-4).upper
    for step in (0.01, 0.3):
        bounds = law.lattice_bounds(step, low=low, high=high)
        assert bounds.lower.step == bounds.upper.step == step
        total = [
            float(v.mass.sum()) + v.lost_below + v.lost_above
            for v in (bounds.lower, bounds.upper)
        ]
        assert total == pytest.approx([1.0, 1.0], abs=1e-12)
        for t in np.linspace(low, high, 40):
            at = law.probability_above(float(t))
            # the bounds of the law are at least as good as those of its lattices
            assert bounds.lower.ccdf(t) <= at.upper + 1e-12
            assert bounds.upper.ccdf(t) >= at.lower - 1e-12
        draws = law.sample(100_000, rng=11)
        for t in np.quantile(draws, [0.05, 0.5, 0.95]):
            share = float(np.mean(draws > t))
            slack = 7 * math.sqrt(0.25 / draws.size)
            assert bounds.lower.ccdf(t) <= share + slack
            assert bounds.upper.ccdf(t) >= share - slack


def test_lattice_bounds_of_a_listed_law_are_tight() -> None:
    a = JointRuns([1.0, 2.0], [3.0, 5.0])
    law = Weighted(joint_maximum(a, a), 10.0)  # 16, 28, 28, 30
    bounds = law.lattice_bounds(1.0, low=16.0, high=30.0)
    assert bounds.lower.lost_below == bounds.upper.lost_above == 0.0
    for lattice in (bounds.lower, bounds.upper):
        assert lattice.mean() == pytest.approx(25.5, abs=1.0 + 1e-12)
    assert bounds.lower.mean() <= 25.5 <= bounds.upper.mean()


# ------------------------------------------------------------ tolerance and input
def test_a_wider_bracket_says_what_limited_it() -> None:
    a, b, *_ = mixed(10)
    law = weighted(joint_maximum(a, b), 9.0)
    small = law.quantile(sf=0.01, memory=2**20)
    large = law.quantile(sf=0.01)
    assert small.limited_by.startswith("joint grid ")
    assert large.upper - large.lower < small.upper - small.lower
    assert small.lower <= large.upper
    assert large.lower <= small.upper
    with pytest.raises(ToleranceError, match="asked for 1e-09") as caught:
        law.quantile(sf=0.01, rtol=1e-9)
    assert caught.value.best is not None
    assert caught.value.best.lower <= large.upper
    assert law.quantile(sf=0.01, rtol=0.5).relative_width <= 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JointRuns([1.0, 2.0], [1.0]), "2 times and 1 values of x"),
        (lambda: JointRuns([1.0, -2.0], [1.0, 1.0]), "time of run 1 is"),
        (lambda: JointRuns([], []), "no samples"),
        (lambda: JointRuns([1.0], [math.nan]), "sample 0 is NaN"),
        (lambda: JointRuns([1.0], [1.0], [0.0]), "weights >= 0 with a positive sum"),
        (lambda: JointRuns([1.0], [1.0], [1.0, 2.0]), "2 weights for 1 runs"),
        (lambda: JointAffine(1.0, math.inf), "slope must be a finite number"),
        (lambda: JointAffine("fast", 1.0), "joint affine, time_law"),
        (lambda: JointIndependent(1.0, math.nan), "joint independent, x_law"),
        (lambda: joint_sum(), "no parts"),
        (
            lambda: joint_maximum(JointAffine(1.0, 1.0), cast(Any, 3.0)),
            "part 1: expected a joint",
        ),
        (lambda: joint_repeat(JointAffine(1.0, 1.0), 0), "between 1 and"),
        (
            lambda: joint_repeat(JointAffine(1.0, 1.0), cast(Any, 1.5)),
            "n must be an integer",
        ),
        (lambda: joint_repeat(JointAffine(1.0, 1.0), True), "n must be an integer"),
        (lambda: weighted(JointAffine(1.0, 1.0), -1.0), "weight must be a finite"),
        (lambda: weighted(cast(Any, 3.0), 1.0), "weighted: expected a joint law"),
        (lambda: weighted(JointAffine(1.0, 1.0), 1.0, grid=2), "from 16 to 8192"),
        (lambda: JointRuns([1.0], [[1.0]]), "one-dimensional"),
    ],
)
def test_bad_input_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_levels_are_checked() -> None:
    a, b, *_ = mixed(11)
    law = weighted(joint_maximum(a, b), 9.0)
    levels: list[dict[str, Any]] = [{"p": 1.0}, {"sf": 0.0}, {}, {"p": 0.5, "sf": 0.5}]
    for wrong in levels:
        with pytest.raises(InputError, match="quantile"):
            law.quantile(**wrong)
