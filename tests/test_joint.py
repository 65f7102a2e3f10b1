"""Joint laws of T and x: simulation, the algebra, as operands, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from probcalc.composed import maximum, repeat, sum_of
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
