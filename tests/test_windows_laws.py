"""From windows to laws: static power, the affine route, grain and break-even."""

from __future__ import annotations

import functools
import math
import operator

import numpy as np
import pytest
from scipy import stats

from probcalc.distribution import Empirical
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.measurement.affine import AffineEnergy, fit_affine, mean_of_runs
from probcalc.measurement.breakeven import (
    break_even,
    break_even_length,
    charged_once,
)
from probcalc.measurement.static_power import StaticPower, fit_static_power
from probcalc.prediction import predict
from probcalc.shared import Shared

FALSE_ALARM = 6.1  # standard errors, 1e-9


# Static power ----------------------------------------------------------------
def calibrated(rng: np.random.Generator, sd: float = 0.6) -> StaticPower:
    temperatures = np.repeat([40.0, 50.0, 60.0, 70.0], 5)
    power = 60.0 + 0.2 * (temperatures - 55.0)
    return fit_static_power(
        temperatures, power + rng.normal(0.0, sd, temperatures.size)
    )


def test_static_power_regression_has_the_covariance_of_its_estimates() -> None:
    rng = np.random.default_rng(11)
    fits = [calibrated(rng) for _ in range(2000)]
    found = np.array([fit.coefficients for fit in fits])
    assert fits[0].reference == 55.0
    # Var a = v/n, Var b = v/sum (T - mean)^2 over 20 windows of variance v = 0.36.
    right = 0.36 * np.array([1.0 / 20.0, 1.0 / (5.0 * 500.0)])
    error = FALSE_ALARM * math.sqrt(2.0 / 2000.0)
    assert np.var(found, axis=0) == pytest.approx(right, rel=error)
    stated = np.mean([np.diag(fit.covariance) for fit in fits], axis=0)
    assert stated == pytest.approx(right, rel=FALSE_ALARM * math.sqrt(2 / 18 / 2000))
    assert fits[0].covariance[0, 1] == 0.0
    for temperature in (40.0, 55.0, 70.0):
        true = 60.0 + 0.2 * (temperature - 55.0)
        covered = 0
        for fit in fits:
            low, high = fit.interval(temperature)
            covered += low <= true <= high
        miss = FALSE_ALARM * math.sqrt(0.05 * 0.95 * 2000)
        assert abs(covered - 1900) <= miss
    # The error grows away from the reference.
    assert fits[0].error(70.0) > 1.5 * fits[0].error(55.0)


def test_a_calibration_error_does_not_average_out_over_fifty_elements() -> None:
    # 3 % calibration error, 20 % static share, 0.8 % run-to-run spread.
    law = stats.truncate(stats.Normal(mu=1.0, sigma=0.03), lb=0.0)
    spread = 0.8 / 80.0

    def total(shared: Shared | None, independent: bool) -> float:
        parts = []
        for i in range(50):
            own = () if shared is None else shared
            if independent:
                own = Shared(f"calibration:{i}", law, acts_on="static_power")
            element = Element(
                f"e{i}",
                time=1.0,
                dynamic_energy=stats.Normal(mu=80.0, sigma=80.0 * spread),
                static_power=20.0,
                device="gpu0",
                shared=own,
            )
            parts.append(element)
        energy = predict(
            functools.reduce(operator.rshift, parts), method="moments"
        ).energy
        return math.sqrt(float(energy.variance())) / float(energy.mean())

    common = Shared("calibration:gpu0", law, acts_on="static_power")
    assert 100.0 * total(common, False) == pytest.approx(0.61, abs=0.005)
    assert 100.0 * total(None, True) == pytest.approx(0.14, abs=0.005)


def test_the_law_of_a_calibration_is_usable_as_a_shared_factor() -> None:
    fit = calibrated(np.random.default_rng(2))
    factor = fit.shared("calibration:gpu0", 60.0)
    assert factor.acts_on == "static_power"
    sigma = math.sqrt(float(factor.law.variance()))
    assert float(factor.law.mean()) == pytest.approx(1.0, abs=1e-7)
    # Student's t with 18 degrees of freedom is wider than a normal by root 18/16.
    right = math.sqrt(18.0 / 16.0) * fit.error(60.0) / fit.at(60.0)
    assert sigma == pytest.approx(right, rel=1e-6)
    held = Element(
        "held", time=2.0, static_power=fit.at(60.0), device="gpu0", shared=factor
    )
    energy = predict(held**100, method="moments").energy
    relative = math.sqrt(float(energy.variance())) / float(energy.mean())
    assert relative == pytest.approx(right, rel=1e-3)


def test_negative_dynamic_energies_are_reported_and_never_clipped() -> None:
    fit = fit_static_power([40.0, 50.0, 60.0, 70.0], [60.0, 62.0, 64.0, 66.0])
    found = fit.dynamic_energy([1.0, 1.0, 1.0], [70.0, 62.5, 60.0], 55.0)
    assert found.static_power == pytest.approx(63.0)
    assert found.value == pytest.approx([7.0, -0.5, -3.0])
    assert found.negative == (1, 2)


@pytest.mark.parametrize(
    ("temperature", "power", "message"),
    [
        ([40.0, 50.0, 60.0], [60.0, 61.0, 62.0], "3 idle windows"),
        ([40.0, 40.3, 50.0, 50.2], [60.0] * 4, "2 temperatures"),
        ([40.0, 50.0, 60.0, 70.0], [60.0, 0.0, 60.0, 60.0], r"power\[1\] is 0 W"),
        ([40.0, 50.0, 60.0, math.nan], [60.0] * 4, r"temperature\[3\] is nan"),
        ([40.0, 50.0, 60.0, 70.0], [60.0] * 3, "expected one of each"),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(
    temperature: list[float], power: list[float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit_static_power(temperature, power)


def test_static_power_is_not_extrapolated() -> None:
    fit = calibrated(np.random.default_rng(2))
    with pytest.raises(InputError, match="outside the calibration, 40 to 70"):
        fit.at(80.0)
    with pytest.raises(InputError, match="outside the calibration"):
        fit.law(30.0)


# The affine route ------------------------------------------------------------
GRAIN = 100


def means(
    seed: int, levels: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Means of T and E over windows of 100 runs of E = 0.2 + 90 T, with their runs."""
    rng = np.random.default_rng(seed)
    runs = [rng.gamma(16.0, level / 16.0, GRAIN) for level in levels]
    time = np.array([r.mean() for r in runs])
    energy = 0.2 + 90.0 * time + rng.normal(0.0, noise, time.size)
    return time, energy, runs


def affine(seed: int, levels: np.ndarray, noise: float) -> AffineEnergy:
    time, energy, _ = means(seed, levels, noise)
    return fit_affine(time, energy, grain=GRAIN, static_power=60.0)


def test_the_slope_is_found_and_covered_where_window_means_vary() -> None:
    levels = np.linspace(0.9e-2, 1.1e-2, 20)
    covered = 0
    for seed in range(500):
        fit = affine(seed, levels, noise=2e-3)
        assert fit.identifiable
        covered += abs(fit.slope - 90.0) <= fit.half_width
    assert abs(covered - 475) <= FALSE_ALARM * math.sqrt(0.05 * 0.95 * 500)


def test_the_per_run_law_of_energy_has_the_spread_of_runs_and_not_of_means() -> None:
    time, energy, runs = means(1, np.linspace(0.9e-2, 1.1e-2, 20), 1e-3)
    fit = fit_affine(time, energy, grain=GRAIN, static_power=60.0)
    every = np.concatenate(runs)
    element = fit.element("gemm", every, static_power=20.0, device="gpu0")
    assert element.grain == 1
    assert "identifiable: b = " in element.metadata["energy_route"]
    law = element.energy
    true = Empirical(0.2 + 90.0 * every)
    for p in (0.01, 0.5, 0.99):
        assert float(law.icdf(p)) == pytest.approx(float(true.icdf(p)), rel=0.02)
    spread = math.sqrt(float(law.variance()))
    assert spread > 3.0 * np.std(energy)


@pytest.mark.parametrize(
    "levels", [np.full(20, 1e-2), np.linspace(0.9999e-2, 1.0001e-2, 20)]
)
def test_the_affine_route_is_refused_where_window_means_hardly_vary(
    levels: np.ndarray,
) -> None:
    # The noise of a window outweighs the little that its mean T moves.
    fit = affine(3, levels, noise=0.05)
    assert not fit.identifiable
    assert "not identifiable" in fit.report
    with pytest.raises(InputError, match=r"not identifiable.*mean_of_runs"):
        fit.energies([1e-2])


def test_constant_window_means_identify_nothing() -> None:
    time = np.full(8, 1e-2)
    energy = 1.1 + 1e-3 * np.arange(8)
    fit = fit_affine(time, energy, grain=GRAIN, static_power=60.0)
    assert math.isinf(fit.half_width)
    assert fit.spread == 0.0
    with pytest.raises(InputError, match="not identifiable"):
        fit.element("a", time, static_power=60.0, device="gpu0")


def test_grain_is_kept_and_never_mixed() -> None:
    time, energy, _ = means(1, np.linspace(0.9e-2, 1.1e-2, 20), 1e-3)
    element = mean_of_runs(
        "gemm", time, energy, grain=[GRAIN] * 20, static_power=20.0, device="gpu0"
    )
    assert element.grain == GRAIN
    assert predict(element).grain == GRAIN
    with pytest.raises(InputError, match="never mixed"):
        mean_of_runs(
            "gemm",
            time,
            energy,
            grain=[GRAIN] * 19 + [50],
            static_power=20.0,
            device="gpu0",
        )
    with pytest.raises(InputError, match=r"windows of \[50, 100\] runs"):
        fit_affine(time, energy, grain=[100] * 10 + [50] * 10)
    with pytest.raises(InputError, match="4 windows, expected at least 5"):
        fit_affine(time[:4], energy[:4], grain=100)


def test_a_run_can_scatter_more_than_the_window_shows() -> None:
    fit = affine(5, np.linspace(0.9e-2, 1.1e-2, 200), noise=2e-3)
    assert fit.residual == pytest.approx(2e-3, rel=0.35)
    assert fit.run_residual == pytest.approx(10.0 * fit.residual)


def test_an_energy_that_comes_out_negative_is_refused() -> None:
    time = np.linspace(1.0, 2.0, 10)
    fit = fit_affine(time, 100.0 * time - 50.0, grain=1)
    with pytest.raises(InputError, match=r"run 1 of T = 0\.2 s comes to -30 J"):
        fit.energies([1.0, 0.2])


# Break-even ------------------------------------------------------------------
BUILD = 19.793  # J
LENGTH = np.array([10.0, 120.0, 600.0])  # s
SAVED = np.array([0.0541, 0.0670, 0.0677])
NET = np.array([-0.2001, 0.0362, 0.0613])


def test_the_published_amortised_build_is_charged_once() -> None:
    # The energies of the episodes are not printed: those of the first two follow from
    # their own net savings, and the straight line through them gives the third.
    first, second = BUILD / (SAVED[:2] - NET[:2])
    slope = (second - first) / (LENGTH[1] - LENGTH[0])
    energy = first + slope * (LENGTH - LENGTH[0])
    assert 5.0 < slope < 5.3
    net = [charged_once(BUILD, s, e) for s, e in zip(SAVED, energy, strict=True)]
    assert net == pytest.approx(NET, abs=5.1e-5)
    below, crossing, above = break_even_length(LENGTH, SAVED * energy, BUILD)
    assert (below, above) == (10.0, 120.0)
    assert 50.0 < crossing < 60.0


def test_break_even_of_numbers_is_their_ratio() -> None:
    pays = break_even(20.0, 0.5)
    assert pays.runs == 40.0
    assert pays.quantile(0.01) == pays.quantile(0.99) == 40.0
    assert pays.paid_off(40).value == pytest.approx(1.0)
    assert pays.paid_off(39).value == pytest.approx(0.0, abs=1e-9)
    assert break_even(20.0, -0.5).runs == math.inf
    assert break_even(20.0, -0.5).quantile(0.5, most=1e6) == math.inf
    assert break_even(0.0, 1.0).paid_off(0).value == 1.0
    assert break_even(1.0, 1.0).paid_off(0).value == 0.0


@pytest.mark.parametrize("n", [20.0, 38.0, 40.0, 41.5, 60.0])
def test_probability_of_having_paid_off_in_closed_form(n: float) -> None:
    # n S - B is normal where build energy B and mean saving S are.
    pays = break_even(stats.Normal(mu=20.0, sigma=1.5), stats.Normal(mu=0.5, sigma=0.1))
    right = stats.norm.cdf((0.5 * n - 20.0) / math.hypot(1.5, 0.1 * n))
    found = pays.paid_off(n)
    assert found.kind == "certified"
    assert found.lower <= right <= found.upper
    assert found.upper - found.lower < 3e-4


def test_independent_savings_average_out_and_a_shared_one_does_not() -> None:
    saving = stats.Normal(mu=0.5, sigma=0.5)
    fresh = break_even(20.0, saving, draws="independent")
    same = break_even(20.0, saving)
    for n in (36, 40, 60):
        right = stats.norm.cdf((0.5 * n - 20.0) / (0.5 * math.sqrt(n)))
        found = fresh.paid_off(n)
        assert found.value == pytest.approx(right, abs=1e-4)
        assert found.lower - 1e-9 <= right <= found.upper + 1e-9
    assert fresh.paid_off(80).value > 0.999
    assert same.paid_off(80).value < 0.7
    # P(0.5 n + 0.5 root n z >= 20) >= 0.95 from n = 53 on.
    root = 0.5 * (1.6448536 + math.sqrt(1.6448536**2 + 160.0))
    assert fresh.quantile(0.95) == math.ceil(root**2)
    with pytest.raises(InputError, match="whole number"):
        fresh.paid_off(40.5)


def test_independent_savings_against_a_build_energy_that_is_a_law() -> None:
    build = stats.Normal(mu=20.0, sigma=1.5)
    saving = stats.Normal(mu=0.5, sigma=0.5)
    found = break_even(build, saving, draws="independent").paid_off(44)
    right = stats.norm.cdf((22.0 - 20.0) / math.hypot(1.5, 0.5 * math.sqrt(44)))
    assert found.kind == "estimate"
    assert found.lower <= right <= found.upper


def test_measured_savings_pay_off_run_by_run() -> None:
    build = Empirical([10.0, 20.0])
    saving = Empirical([1.0, 2.0])
    pays = break_even(build, saving)
    # 10 <= 10 x 1 and 20 <= 10 x 2, not 20 <= 10 x 1: three of four.
    for n, right in ((4, 0.0), (5, 0.25), (10, 0.75), (19, 0.75), (20, 1.0)):
        found = pays.paid_off(n)
        assert found.lower <= right <= found.upper
        assert found.value == pytest.approx(right, abs=2e-4)


def test_savings_that_may_be_negative_may_never_pay_off() -> None:
    pays = break_even(20.0, stats.Normal(mu=0.5, sigma=0.5))
    # Even odds at 40 runs, and a little less than that is asked for.
    assert pays.quantile(0.4999) == 40.0
    # P(S > 0) = 0.841: no number of runs is enough for 90 %.
    assert pays.quantile(0.9, most=1e7) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: break_even(-1.0, 1.0), "build energy can be negative"),
        (lambda: break_even(1.0, 1.0, draws="some"), "expected 'same'"),  # type: ignore
        (lambda: break_even(1.0, 1.0).paid_off(-1), "expected a number >= 0"),
        (lambda: charged_once(1.0, 0.1, 0.0), "expected > 0"),
        (lambda: break_even_length([1.0, 1.0], [1.0, 2.0], 1.0), "must ascend"),
        (lambda: break_even_length([1, 2, 3], [1, 3, 1], 2), "fall below"),
    ],
)
def test_break_even_questions_that_make_no_sense(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
