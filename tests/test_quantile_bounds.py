"""Intervals of quantiles, shares and shifts: known values, and how often they hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.errors import InputError, ToleranceError
from probcalc.validation.blocks import (
    Blocked,
    bootstrap_interval,
    design_effect,
    jackknife,
    mean_interval,
    welch,
)
from probcalc.validation.diagnostics import array_of, diagnosed
from probcalc.validation.quantiles import (
    exceedance,
    needed_runs,
    quantile_bounds,
    quantile_interval,
    simultaneous_band,
    tolerance_bound,
)
from probcalc.validation.shifts import quantile_shift
from probcalc.validation.tails import fit_tail
from tests.measured_runs import most


def blocked(rng: np.random.Generator, blocks: int, each: int, share: float) -> Blocked:
    """Standard normal runs, `share` of whose variance is between blocks."""
    z = math.sqrt(share) * rng.normal(size=(blocks, 1)) + math.sqrt(
        1.0 - share
    ) * rng.normal(size=(blocks, each))
    return Blocked.of(z.ravel(), np.repeat(np.arange(blocks), each))


def test_needed_runs_are_the_published_numbers() -> None:
    levels = (0.9, 0.95, 0.99, 0.999)
    assert [needed_runs(p) for p in levels] == [29, 59, 299, 2995]
    assert [needed_runs(p, sides=2) for p in levels] == [36, 72, 368, 3688]
    for p in levels:
        n = needed_runs(p)
        rng = np.random.default_rng(0)
        assert math.isfinite(tolerance_bound(Blocked.of(rng.normal(size=n)), p))
        assert math.isinf(tolerance_bound(Blocked.of(rng.normal(size=n - 1)), p))


@pytest.mark.parametrize(("n", "p"), [(30, 0.5), (100, 0.9), (400, 0.99)])
@pytest.mark.parametrize("law", [stats.norm(), stats.lognorm(0.8), stats.expon()])
def test_bounds_of_independent_runs_cover(n: int, p: float, law: Any) -> None:
    rng = np.random.default_rng([n, int(100 * p)])
    truth, repeats, missed = law.ppf(p), 600, [0, 0]
    for _ in range(repeats):
        x = Blocked.of(law.rvs(size=n, random_state=rng))
        _, low, high = quantile_bounds(x, p, level=0.95)
        missed[0] += int(low > truth)
        missed[1] += int(high < truth)
    assert max(missed) <= most(repeats)
    assert min(missed) >= 5  # and they are not far too wide


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
@pytest.mark.parametrize(("blocks", "each"), [(10, 20), (5, 20), (20, 50)])
@pytest.mark.parametrize("p", [0.5, 0.9])
def test_bounds_of_runs_in_blocks_cover(
    share: float, blocks: int, each: int, p: float
) -> None:
    rng = np.random.default_rng([blocks, each])
    truth, repeats, missed = stats.norm.ppf(p), 200, [0, 0]
    for _ in range(repeats):
        _, low, high = quantile_bounds(blocked(rng, blocks, each, share), p, level=0.95)
        missed[0] += int(low > truth)
        missed[1] += int(high < truth)
    # Ten blocks that share 30 % of the variance cover 92 %: 8 % are allowed here.
    assert max(missed) <= most(repeats, 0.08)


def test_runs_taken_for_independent_do_not_cover() -> None:
    """What the blocks are for: a process offset, ignored."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(200):
        data = blocked(rng, 10, 50, 0.3)
        _, low, _ = quantile_bounds(Blocked.of(data.values), 0.5, level=0.95)
        missed += low > 0.0
    assert missed > 40


def test_ties_are_not_interpolated() -> None:
    x = Blocked.of([1.0] * 50 + [2.0] * 50)
    _, low, high = quantile_bounds(x, 0.4, level=0.95)
    assert low in (1.0, 2.0)
    assert high in (1.0, 2.0)


def test_an_open_side_stays_open() -> None:
    q = quantile_interval(Blocked.of(range(20)), 0.99)
    assert q.kind == "open"
    assert math.isinf(q.upper)
    assert q.value == 19.0
    one = Blocked.of(np.arange(500.0), ["process"] * 500)
    assert quantile_interval(one, 0.5).kind == "open"


def test_shares_cover() -> None:
    rng = np.random.default_rng(4)
    missed = [0, 0]
    for _ in range(300):
        data = blocked(rng, 10, 30, 0.1)
        _, low, high = exceedance(data, 1.2815515655446004, level=0.95)
        missed[0] += low > 0.1
        missed[1] += high < 0.1
    assert max(missed) <= most(300, 0.07)
    share, low, high = exceedance(Blocked.of(np.zeros(100)), 1.0, level=0.95)
    assert (share, low) == (0.0, 0.0)
    assert high == pytest.approx(-math.expm1(math.log(0.05) / 100))


def test_means_of_blocks() -> None:
    data = Blocked.of([1.0, 3.0, 5.0, 7.0], ["a", "a", "b", "b"])
    value, low, high = mean_interval(data, 0.975)
    assert (value, high - value) == (4.0, pytest.approx(2.0 * 12.706, rel=1e-3))
    assert low == pytest.approx(2 * value - high)
    other = Blocked.of([2.0, 4.0, 6.0, 8.0], ["a", "a", "b", "b"])
    expected = stats.ttest_ind(other.means, data.means, equal_var=False)
    ends = expected.confidence_interval(0.9)
    assert welch(data, other, 0.95) == pytest.approx((1.0, ends.low, ends.high))


def test_block_bootstrap_and_jackknife() -> None:
    rng = np.random.default_rng(10)
    missed = 0
    for seed in range(100):
        data = blocked(rng, 20, 10, 0.3)
        _, low, high = bootstrap_interval(
            data, lambda v: float(v.mean()), resamples=200, seed=seed
        )
        missed += not low <= 0.0 <= high
    assert missed <= most(100, 0.08)  # twenty blocks: a little short of 95 %
    data = blocked(rng, 20, 10, 0.3)
    value, error = jackknife(data, lambda v: float(v.mean()))
    assert value == pytest.approx(data.values.mean())
    # For a mean of equal blocks it is the standard error of the block means.
    assert error == pytest.approx(data.means.std(ddof=1) / math.sqrt(20))
    with pytest.raises(InputError, match="expected at least 5"):
        bootstrap_interval(blocked(rng, 4, 5, 0.0), lambda v: float(v.mean()))
    with pytest.raises(InputError, match="resamples are too few"):
        bootstrap_interval(data, lambda v: float(v.mean()), resamples=20)
    with pytest.raises(InputError, match="expected at least 2"):
        jackknife(Blocked.of([1.0, 2.0], ["a", "a"]), lambda v: float(v.mean()))


def test_design_effect() -> None:
    rng = np.random.default_rng(5)
    fair = blocked(rng, 200, 20, 0.0)
    assert design_effect(fair, fair.values > 0.0) == pytest.approx(1.0, abs=0.3)
    whole = Blocked.of(np.repeat(rng.normal(size=200), 20), np.repeat(range(200), 20))
    # Runs of one block that are all alike count as one.
    assert design_effect(whole, whole.values > 0.0) == pytest.approx(20.0, rel=0.02)


def test_band_covers_everywhere_at_once() -> None:
    rng = np.random.default_rng(6)
    p = np.linspace(0.02, 0.98, 49)
    truth = stats.norm.ppf(p)
    missed = 0
    for _ in range(300):
        band = simultaneous_band(Blocked.of(rng.normal(size=80)))
        ends = np.array([band.quantile(float(x)) for x in p])
        missed += bool(np.any((ends[:, 0] > truth) | (ends[:, 1] < truth)))
    assert missed <= most(300)
    with pytest.raises(InputError, match="one block"):
        simultaneous_band(Blocked.of([1.0, 2.0], ["a", "a"]))


def test_shift_function() -> None:
    rng = np.random.default_rng(7)
    a, b = Blocked.of(rng.normal(size=2000)), Blocked.of(3.0 + rng.normal(size=2000))
    found = quantile_shift(a, b)
    assert np.all((found.lower < 3.0) & (found.upper > 3.0))
    assert 3.0 < found.largest < 4.0
    few = quantile_shift(Blocked.of([1.0, 2.0]), b, levels=[0.5])
    assert math.isinf(few.upper[0])
    with pytest.raises(InputError, match="levels are"):
        quantile_shift(a, b, levels=[1.0])


def test_tails_are_extrapolated_and_gated() -> None:
    rng = np.random.default_rng(8)
    tail = fit_tail(Blocked.of(stats.expon().rvs(20_000, random_state=rng)))
    assert tail.kind == "extrapolated"
    assert tail.quantile(sf=1e-6) == pytest.approx(-math.log(1e-6), rel=0.25)
    with pytest.raises(ToleranceError, match="Pareto-k is"):
        fit_tail(Blocked.of(stats.pareto(0.8).rvs(20_000, random_state=rng)))
    doubtful = fit_tail(Blocked.of(stats.pareto(1.7).rvs(20_000, random_state=rng)))
    assert "doubtful" in doubtful.warning
    with pytest.raises(InputError, match="20 runs in the tail"):
        fit_tail(Blocked.of(rng.normal(size=200)))
    with pytest.raises(InputError, match="not beyond the threshold"):
        tail.quantile(0.5)


def test_diagnoses() -> None:
    rng = np.random.default_rng(9)
    good = diagnosed(blocked(rng, 12, 50, 0.0))
    assert good.warnings == ()
    assert good.ess["0.5"] > 300
    bad = diagnosed(blocked(rng, 4, 50, 0.5))
    assert any("R-hat" in w for w in bad.warnings)
    assert any("4 blocks" in w for w in bad.warnings)
    same = diagnosed(Blocked.of(np.ones(20), np.repeat(range(4), 5)))
    assert "all runs are alike" in same.warnings[0]
    uneven = Blocked.of(range(9), [0] * 4 + [1] * 5)
    assert array_of(uneven).shape == (2, 4)
    with pytest.raises(InputError, match="at least 4"):
        diagnosed(Blocked.of(range(4), [0, 0, 1, 1]))


def test_bad_blocks() -> None:
    with pytest.raises(InputError, match="3 block labels for 2 runs"):
        Blocked.of([1.0, 2.0], [1, 2, 3])
    with pytest.raises(InputError):
        Blocked.of([])
    with pytest.raises(InputError):
        Blocked.of([1.0, float("nan")])
