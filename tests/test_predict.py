"""Predictions: baselines, shared factors, executions, records, size."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.composed import Composed
from probcalc.distribution import Empirical
from probcalc.element import Element, idle
from probcalc.errors import CompositionError, InputError
from probcalc.prediction import predict
from probcalc.shared import Shared
from probcalc.term import Sequential

UNIFORM = stats.make_distribution(stats.uniform)()


def on(device: Any = "gpu0", name: str = "e", **fields: Any) -> Element:
    given: dict[str, Any] = {"time": 2.0, "dynamic_energy": 10.0, "static_power": 60.0}
    return Element(name, device=device, **(given | fields))


def runs(name="r", device: Any = "gpu0", *, seed=1, n=40, **fields: Any) -> Element:
    rng = np.random.default_rng(seed)
    t = rng.uniform(1.0, 2.0, n)
    e = 60.0 * t + 20.0 * t + rng.uniform(0.0, 5.0, n)
    given = {"time": t, "energy": e, "static_power": 60.0} | fields
    return Element.from_runs(name, device=device, **given)


def holds(law: Any, p: float, value: float, rel: float = 2e-4) -> None:
    """The bracket holds a value known otherwise, and is narrow."""
    q = law.quantile(p)
    assert q.kind == "certified"
    assert q.lower * (1 - 1e-12) <= value <= q.upper * (1 + 1e-12), q
    assert q.upper - q.lower <= rel * abs(value) + 1e-12, q


# ---- one element, operators -----------------------------------------------------


def test_one_element_is_a_term():
    found = predict(on())
    assert found.method == "exact"
    assert found.energy.mean() == 130.0
    assert found.static_energy.mean() == 120.0
    assert found.dynamic_energy.mean() == 10.0
    assert found.static_share == pytest.approx(120 / 130)
    assert found.dynamic_share == pytest.approx(10 / 130)
    assert isinstance(found.time, Composed)


def test_devices_are_held_to_the_end():
    a, x, c = on("gpu0", time=2.0), on("gpu1", time=3.0), on("gpu0", time=5.0)
    found = predict((a & x) >> c)
    assert found.time.mean() == 8.0
    assert found.static_energy.mean() == 2 * 60.0 * 8.0
    assert found.dynamic_energy.mean() == 30.0
    # Idle does not hold gpu1, yet the sequence does.
    both = predict(x >> a)
    assert both.static_energy.mean() == 120.0 * 5.0


def test_sequence_of_measured_runs_is_one_quantity_per_run():
    r = runs()
    assert r.runs is not None
    found = predict(r)
    energies = np.sort(r.runs.energy)
    for p in (0.12, 0.47, 0.88):
        holds(found.energy, p, energies[math.ceil(p * 40) - 1], 1e-9)


def test_measured_runs_wait_jointly_under_parallel():
    r, other = runs(), on(time=1.5, dynamic_energy=0.0)
    assert r.runs is not None
    found = predict(r | other)
    t, e = r.runs.time, r.runs.energy
    energies = np.sort(e + 60.0 * (np.maximum(t, 1.5) - t))
    for p in (0.12, 0.47, 0.88):
        q = found.energy.quantile(p)
        true = energies[math.ceil(p * 40) - 1]
        assert q.lower - 1e-9 <= true <= q.upper + 1e-9
        assert q.value == pytest.approx(true, rel=1e-4)


# ---- baselines ------------------------------------------------------------------


def test_baseline_is_what_elements_agree_on():
    found = predict(on() | on())
    assert dict(found.baselines) == {"gpu0": 60.0}


def test_never_idle_device_needs_no_baseline():
    a, b = on(name="a", static_power=60.0), on(name="b", static_power=90.0)
    found = predict(a >> b**2)
    assert found.static_energy.mean() == 60 * 2 + 2 * 90 * 2
    assert dict(found.baselines) == {}
    assert found.over(3).total.energy.mean() == 3 * found.energy.mean()
    stated = predict(a >> b**2, baselines={"gpu0": 10.0})
    assert stated.energy.mean() == pytest.approx(found.energy.mean(), rel=1e-12)


def test_disagreement_needs_a_stated_baseline():
    a, b = on(name="a", static_power=60.0), on(name="b", static_power=90.0, time=3.0)
    x = on("gpu1", name="x", time=4.0, static_power=5.0)
    for term in (a | b, (a >> b) & x, a >> b >> x):
        with pytest.raises(CompositionError) as caught:
            predict(term)
        for word in ("'gpu0'", "60 W for 'a'", "90 W for 'b'", "baselines="):
            assert word in str(caught.value)
    # gpu0 idles for 10 s at 50 W when x has run
    found = predict(a >> b >> x, baselines={"gpu0": 50.0})
    assert found.static_energy.mean() == pytest.approx(
        60 * 2 + 90 * 3 + 50 * 4 + 5 * (2 + 3 + 4)
    )
    together = predict(a | b, baselines={"gpu0": 50.0})
    assert together.static_energy.mean() == pytest.approx(50 * 3 + 10 * 2 + 40 * 3)


def test_idle_below_the_busy_static_power():
    busy = on("gpu0", time=Empirical(np.array([1.0, 2.0])), dynamic_energy=0.0)
    other = on("gpu1", time=Empirical(np.array([1.5, 3.0])), dynamic_energy=0.0)
    found = predict(busy & other, baselines={"gpu0": 20.0})
    # 60 t0 + 20 (m - t0) + 60 m over the four equally likely pairs
    pairs = [(t0, max(t0, t1)) for t0 in (1.0, 2.0) for t1 in (1.5, 3.0)]
    energies = sorted(40 * t0 + 80 * m for t0, m in pairs)
    for p, true in zip((0.2, 0.45, 0.7, 0.95), energies, strict=True):
        q = found.energy.quantile(p)
        assert q.lower - 1e-9 <= true <= q.upper + 1e-9
        assert q.value == pytest.approx(true, rel=1e-4)


def test_stated_baselines_are_checked():
    with pytest.raises(InputError, match="unknown device 'gpu7'"):
        predict(on(), baselines={"gpu7": 1.0})
    with pytest.raises(InputError, match="baseline of 'gpu0'"):
        predict(on(), baselines={"gpu0": -1.0})


# ---- shared factors -------------------------------------------------------------

GAIN = Shared("gain", stats.uniform(0.95, 0.1))


def test_gain_of_all_elements_multiplies_the_whole():
    a, b = on(name="a", shared=GAIN), on(name="b", shared=GAIN, time=3.0)
    found = predict((a | b) >> a)
    energy = 60 * 5 + 30
    for p in (0.1, 0.5, 0.9):
        holds(found.energy, p, energy * (0.95 + 0.1 * p))
    holds(found.static_energy, 0.9, 300 * 1.04)
    holds(found.dynamic_energy, 0.9, 30 * 1.04)
    assert found.time.mean() == 5.0


def test_gain_does_not_average_out_but_noise_does():
    noisy = on(dynamic_energy=stats.gamma(25.0, scale=4.0), shared=GAIN)
    one = predict(noisy)
    mean = one.over(10_000).mean
    assert mean.energy.mean() == pytest.approx(one.energy.mean(), rel=1e-3)
    energy = 120.0 + 100.0
    assert mean.energy.variance() == pytest.approx(
        (0.1 * energy) ** 2 / 12 + (1 + 0.01 / 12) * 400 / 10_000, rel=1e-2
    )
    # One execution: the noise of d, 20 J, is what matters.
    assert one.energy.variance() == pytest.approx(
        (0.1 * energy) ** 2 / 12 + (1 + 0.01 / 12) * 400, rel=1e-2
    )
    repeated = predict(noisy**10_000)
    assert repeated.energy.variance() == pytest.approx(
        10_000**2 * mean.energy.variance(), rel=1e-6
    )


def test_gain_of_measured_runs_under_parallel():
    r, other = runs(shared=GAIN), on(time=1.5, dynamic_energy=0.0, shared=GAIN)
    plain = predict(runs() | on(time=1.5, dynamic_energy=0.0))
    found = predict(r | other)
    assert found.energy.mean() == pytest.approx(plain.energy.mean(), rel=1e-3)
    assert found.energy.variance() == pytest.approx(
        plain.energy.variance() * (1 + 0.01 / 12)
        + plain.energy.mean() ** 2 * 0.01 / 12,
        rel=1e-2,
    )


def test_gain_of_one_element_in_a_sequence():
    a, b = on(name="a", shared=GAIN), on(name="b")
    found = predict(a >> b)
    holds(found.energy, 0.9, 130 * 1.04 + 130)
    with pytest.raises(CompositionError, match=r"'a' and 'b' name different shared"):
        predict(a | b)


def test_two_gains_of_two_devices_with_constant_times():
    other = Shared("other", stats.uniform(0.9, 0.2))
    a, x = on("gpu0", shared=GAIN), on("gpu1", time=3.0, shared=other)
    found = predict(a & x)
    # gpu0: 60 * 3 + 10 under one gain, gpu1: 60 * 3 + 10 under the other
    assert found.energy.mean() == pytest.approx(380.0, rel=1e-4)
    assert found.energy.variance() == pytest.approx(
        190**2 * (0.01 + 0.04) / 12, rel=1e-2
    )


def test_two_gains_and_a_random_time():
    other = Shared("other", stats.uniform(0.9, 0.2))
    time = Empirical(np.array([2.0, 3.0]))
    a = on("gpu0", time=time, dynamic_energy=0.0, shared=GAIN)
    x = on("gpu1", time=1.0, dynamic_energy=0.0, shared=other)
    found = predict(a & x)
    # E = 60 T (g + h): Var = E T^2 Var(g + h) 60^2 + (E g + h)^2 60^2 Var T
    expected = 3600 * (6.5 * 0.05 / 12 + 4 * 0.25)
    drawn = found.energy.sample((100_000,), rng=1)
    assert np.mean(drawn) == pytest.approx(300.0, abs=6 * math.sqrt(expected / 1e5))
    # The kurtosis is near 1, so that the sample variance has 0.1 % of error.
    assert np.var(drawn) == pytest.approx(expected, rel=1e-2)
    bounds = found.energy.mean_bounds()
    assert bounds.lower <= 300.0 <= bounds.upper


def test_static_power_factor_leaves_dynamic_energy():
    factor = Shared("s", stats.uniform(0.9, 0.2), acts_on="static_power")
    found = predict(on(shared=factor) | on(shared=factor, time=3.0))
    holds(found.energy, 0.9, 180 * 1.08 + 20)
    assert found.dynamic_energy.mean() == 20.0


def test_static_power_shift_adds_watts():
    extra = Shared("s", stats.uniform(0.0, 6.0), acts_on="static_power", how="shift")
    found = predict(on(shared=extra) >> on(shared=extra, time=3.0))
    holds(found.energy, 0.5, 63 * 5 + 20)
    below = Shared("b", stats.uniform(-70, 1.0), acts_on="static_power", how="shift")
    with pytest.raises(InputError, match=r"static_power can be as low as -10"):
        predict(on(shared=below))


def test_pace_scales_time_and_static_energy():
    pace = Shared("clock", stats.uniform(1.0, 0.5), acts_on="time")
    a, b = on(shared=pace), on(shared=pace, time=3.0)
    found = predict(a | b)
    holds(found.time, 0.5, 3.0 * 1.25)
    holds(found.energy, 0.5, 60 * 3 * 1.25 + 20)


def test_time_shift_of_all_branches():
    wait = Shared("wait", stats.uniform(0.0, 1.0), acts_on="time", how="shift")
    found = predict(on(shared=wait) | on(shared=wait, time=3.0))
    holds(found.time, 0.5, 3.5)
    holds(found.energy, 0.5, 60 * 3.5 + 20)
    early = Shared("early", stats.uniform(-3, 1.0), acts_on="time", how="shift")
    with pytest.raises(InputError, match=r"time can be as low as -1"):
        predict(on(shared=early))


def test_energy_shift_is_added_in_every_execution():
    extra = Shared("x", stats.uniform(0.0, 2.0), how="shift")
    found = predict(on(shared=extra) ** 5)
    holds(found.energy, 0.9, 5 * 130 + 5 * 1.8)
    holds(found.dynamic_energy, 0.9, 50 + 9)
    assert found.static_energy.mean() == 600.0


def test_factor_that_acts_on_time_alone_of_measured_runs_is_refused():
    pace = Shared("clock", stats.uniform(1.0, 0.5), acts_on="time")
    with pytest.raises(CompositionError, match=r"'clock'.*'r'.*method='moments'"):
        predict(runs(shared=pace))
    assert predict(runs(shared=pace), "moments").energy.mean() > 0


def test_one_name_stands_for_one_factor():
    other = Shared("gain", stats.uniform(0.9, 0.2))
    with pytest.raises(CompositionError, match="'gain' is stated in two ways"):
        predict(on(shared=GAIN) >> on(shared=other))


# ---- executions and grain -------------------------------------------------------


def test_over_gives_total_and_mean():
    e = on(dynamic_energy=Empirical(np.array([0.0, 10.0])))
    found = predict(e).over(4)
    assert found.n == 4
    assert found.total.energy.mean() == pytest.approx(4 * 125.0)
    assert found.total.energy.variance() == pytest.approx(4 * 25.0, rel=1e-6)
    assert found.mean.energy.mean() == pytest.approx(125.0)
    assert found.mean.energy.variance() == pytest.approx(25.0 / 4, rel=1e-6)
    assert found.total.time.mean() == 8.0
    assert found.mean.time.mean() == 2.0
    holds(found.total.energy, 0.99, 4 * 120 + 40, 1e-9)


def test_over_keeps_method_and_baselines():
    a, b = on(name="a"), on(name="b", static_power=90.0)
    found = predict(a | b, "moments", baselines={"gpu0": 50.0}).over(10)
    assert found.mean.method == "moments"
    assert found.mean.energy.mean() == pytest.approx(
        predict(a | b, baselines={"gpu0": 50.0}).energy.mean()
    )


def test_grain_of_window_means():
    window = on(dynamic_energy=Empirical(np.array([9.0, 11.0])), grain=50)
    found = predict(window >> window)
    assert found.grain == 50
    assert any("means of 50" in line for line in found.assumptions)
    # 100 executions are two windows of 50: 50 times the sum of two means
    total = found.over(100).total
    assert total.energy.mean() == pytest.approx(100 * 260.0)
    assert total.energy.variance() == pytest.approx(50**2 * 2 * 2 * 1.0, rel=1e-6)
    with pytest.raises(InputError, match="multiple"):
        found.over(75)


def test_grains_do_not_mix():
    window = on(name="w", dynamic_energy=Empirical(np.array([9.0, 11.0])), grain=50)
    single = on(name="v", dynamic_energy=Empirical(np.array([9.0, 11.0])))
    with pytest.raises(CompositionError, match=r"'v' is stated per single run and 'w'"):
        predict(window >> single)
    constant = on()
    assert predict(window >> constant).grain == 50
    with pytest.raises(CompositionError, match="longest"):
        predict(window | constant)


# ---- what a prediction says -----------------------------------------------------


def test_budgets():
    e = on(dynamic_energy=Empirical(np.array([0.0, 10.0, 20.0, 30.0])))
    found = predict(e)
    over = found.budget(135.0)
    assert over.lower <= 0.5 <= over.upper
    assert over.value == pytest.approx(0.5)
    assert found.time_budget(1.0).value == 1.0
    assert found.time_budget(2.0).value == 0.0


def test_assumptions_name_what_is_taken_for_granted():
    e = on(name="a", shared=GAIN)
    kept = Element.from_runs(
        "kept",
        time=[1.0, 2.0],
        energy=[50.0, 200.0],
        static_power=60.0,
        device="gpu0",
        shared=GAIN,
        conflicts="keep",
    )
    text = "\n".join(predict(e >> kept).assumptions)
    assert "independent" in text
    assert "gain scales energy of a, kept" in text
    assert "depend on each other as measured: kept" in text
    assert "negative dynamic energy are kept as measured: kept" in text
    assert "gpu0 60 W" in text


def test_conflicting_runs_are_predicted_as_measured():
    kept = Element.from_runs(
        "kept",
        time=[1.0, 2.0],
        energy=[50.0, 200.0],
        static_power=60.0,
        device="gpu0",
        conflicts="keep",
    )
    found = predict(kept)
    holds(found.energy, 0.25, 50.0, 1e-9)
    assert found.dynamic_energy.mean() == pytest.approx((-10 + 80) / 2)


def test_repr_has_units_and_brackets():
    text = repr(predict(on(name="rms", time=stats.lognorm(0.1, scale=2e-3))))
    assert "'rms'" in text
    assert "mJ" in text or " J" in text
    assert "ms [" in text
    assert "exact" in text
    assert len(text) < 250


def test_to_dict_is_json():
    e = on(dynamic_energy=Empirical(np.array([0.0, 10.0, 20.0, 30.0])))
    found = json.loads(json.dumps(predict(e, "moments").to_dict([0.5, 0.9])))
    assert found["method"] == "moments"
    assert found["energy"]["unit"] == "J"
    assert found["time"] == {
        "unit": "s",
        "mean": 2.0,
        "sd": 0.0,
        "quantiles": found["time"]["quantiles"],
    }
    assert [q["p"] for q in found["energy"]["quantiles"]] == [0.5, 0.9]
    assert found["static_energy"]["share"] == pytest.approx(120 / 135)
    exact = predict(e).to_dict([0.5])
    assert exact["energy"]["quantiles"][0]["kind"] == "certified"


# ---- size -----------------------------------------------------------------------


def test_long_chains_and_deep_nesting():
    chain = Sequential([on(), on(time=1.0)] * 5_000)
    found = predict(chain)
    assert found.time.mean() == pytest.approx(5_000 * 3.0)
    assert found.energy.mean() == pytest.approx(5_000 * (180 + 20))
    deep = on()
    for _ in range(3_000):
        deep = (deep >> on(time=1.0)) | on(time=0.5)
    assert predict(deep).time.mean() == pytest.approx(3_002.0)
    assert predict(deep, "moments").time.mean() == pytest.approx(3_002.0)


def test_repeats_are_not_expanded():
    e = on(dynamic_energy=Empirical(np.array([0.0, 10.0])))
    found = predict((e >> e) ** 1_000_000)
    assert found.energy.mean() == pytest.approx(2e6 * 125.0)
    assert found.energy.variance() == pytest.approx(2e6 * 25.0, rel=1e-6)


def test_idle_waits_at_the_baseline():
    found = predict(on() >> idle(1.0, device="gpu0", static_power=60.0))
    assert found.energy.mean() == 130.0 + 60.0
