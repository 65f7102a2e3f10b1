"""Mechanisms: closed forms, invariants, characterisation, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probcalc.characterise import (
    fit_cache,
    fit_contention,
    fit_drift,
    fit_leakage,
    fit_thermal,
    fit_throttling,
)
from probcalc.context import NULL_CONTEXT, Context, StateVariable, Trace
from probcalc.errors import InputError
from probcalc.mechanisms import (
    Effect,
    Load,
    Mechanism,
    Mechanisms,
    Resource,
    cache,
    contention,
    power_delivery,
    thermal,
)
from probcalc.mechanisms.contention import excess
from probcalc.mechanisms.power_delivery import SETTLED
from probcalc.mechanisms.thermal import RISE

SURE = 1.0 - 1e-9


def load(duration, energy, **amounts):
    n = np.size(duration)
    return Load(
        np.atleast_1d(np.asarray(duration, float)),
        np.broadcast_to(np.asarray(energy, float), (n,)).copy(),
        {k: np.full(n, float(v)) for k, v in amounts.items()},
    )


def test_one_stage_follows_the_closed_form():
    model = thermal(resistance=0.1, time_constant=30.0).parameters
    t = np.array([0.0, 1.0, 30.0, 300.0])
    found = model.after({RISE: np.full(4, 5.0)}, load(t, 200.0 * t))[RISE]
    np.testing.assert_allclose(found, 20.0 + (5.0 - 20.0) * np.exp(-t / 30.0))
    # Energy released in no time raises the stage by R E / tau.
    found = model.after({RISE: np.zeros(1)}, load(0.0, 600.0))[RISE]
    np.testing.assert_allclose(found, 0.1 * 600.0 / 30.0)


def test_leakage_in_closed_loop_against_integrated_equations():
    R, tau, leak = np.array([0.05, 0.08]), np.array([2.0, 40.0]), 1.5
    mechanism = thermal(resistance=R, time_constant=tau, leakage=leak)
    model = mechanism.parameters
    x, step, energy = np.zeros(2), 1e-3, 0.0
    for _ in range(int(50.0 / step)):
        power = 150.0 + leak * x.sum()
        energy += leak * x.sum() * step
        x = x + step * (R * power - x) / tau
    state = {name: np.zeros(1) for name in model.names}
    work = load(50.0, 150.0 * 50.0)
    assert model.rise(model.after(state, work))[0] == pytest.approx(x.sum(), rel=1e-3)
    assert model.leaked(state, work)[0] == pytest.approx(energy, rel=1e-3)
    # At rest the gain is R / (1 - leakage R).
    gain = R.sum() / (1.0 - leak * R.sum())
    assert model.steady(100.0) == pytest.approx(100.0 * gain)


@given(
    st.lists(st.floats(0.0, 50.0), min_size=1, max_size=8),
    st.floats(0.0, 300.0),
    st.floats(0.0, 4.0),
)
def test_a_run_in_pieces_is_the_whole_run(pieces, power, leak):
    model = thermal(
        resistance=[0.05, 0.1], time_constant=[3.0, 30.0], leakage=leak
    ).parameters
    state = {name: np.array([7.0]) for name in model.names}
    whole = load(sum(pieces), power * sum(pieces))
    once, leaked = model.after(state, whole), model.leaked(state, whole)
    total = np.zeros(1)
    for piece in pieces:
        part = load(piece, power * piece)
        total = total + model.leaked(state, part)
        state = model.after(state, part)
    for name in model.names:
        np.testing.assert_allclose(state[name], once[name], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(total, leaked, rtol=1e-9, atol=1e-9)


def test_effects_fade_with_elapsed_time():
    model = thermal(resistance=0.1, time_constant=30.0).parameters
    gaps = np.array([0.0, 10.0, 100.0, 1000.0])
    rise = model.after({RISE: np.full(4, 20.0)}, load(gaps, 0.0))[RISE]
    assert (np.diff(rise) < 0.0).all()
    assert rise[-1] < 1e-12


@given(
    st.lists(
        st.tuples(st.floats(0, 200), st.floats(0, 200), st.floats(0, 200)),
        min_size=1,
        max_size=12,
    )
)
def test_resident_bytes_stay_within_the_capacity(runs):
    mechanism = cache(capacity=100.0, sets=["a", "b"])
    state = {v.name: np.zeros(1) for v in mechanism.variables}
    for a, b, traffic in runs:
        amounts = {"uses a": a, "uses b": b, "traffic": traffic}
        state = mechanism.run(state, load(1.0, 0.0, **amounts))
        held = np.array([x[0] for x in state.values()])
        assert (held >= -1e-9).all()
        assert held.sum() <= 100.0 * (1 + 1e-12)


def test_intervening_traffic_displaces_in_proportion():
    mechanism = cache(capacity=100.0, sets=["a"], time_per_byte=1e-3)
    state = {v.name: np.zeros(1) for v in mechanism.variables}
    state = mechanism.run(state, load(1.0, 0.0, **{"uses a": 60.0, "traffic": 0.0}))
    assert state["resident, a"][0] == 60.0
    # 40 of 80 bytes fit beside it; the other 40 displace: 60 of 60 + 0 others.
    state = mechanism.run(state, load(1.0, 0.0, traffic=80.0))
    assert state["resident, a"][0] == pytest.approx(20.0)
    warm = load(1.0, 0.0)._replace(trace=Trace({"uses a": 60.0, "traffic": 0.0}))
    assert mechanism.effect(state, warm).time[0] == pytest.approx(-0.02)
    state = mechanism.run(state, load(1.0, 0.0, traffic=100.0))
    assert state["resident, a"][0] == pytest.approx(0.0)


def test_power_delivery_decays_to_the_ending_draw():
    mechanism = power_delivery(time_constant=1e-6, time_per_watt=1e-9)
    state = mechanism.run({SETTLED: np.zeros(2)}, load([1e-6, 1.0], [2e-4, 200.0]))
    np.testing.assert_allclose(state[SETTLED], [200.0 * (1 - math.exp(-1)), 200.0])
    # From idle the step is in the signature; from a settled draw it is spared.
    saved = mechanism.effect(state, load([1.0, 1.0], [200.0, 300.0])).time
    np.testing.assert_allclose(saved, [-1e-9 * 200.0 * (1 - math.exp(-1)), -2e-7])
    none = mechanism.effect({SETTLED: np.zeros(1)}, load(1.0, 200.0))
    assert none.time[0] == 0.0


def test_excess_is_the_time_average_beyond_capacity():
    start = np.array([[0.0], [1.0], [5.0]])
    finish = np.array([[4.0], [3.0], [5.0]])
    found = excess(start, finish, np.array([0.8, 0.7, 0.9]))
    # Together 1.5 from 1 to 3; the third has no window.
    np.testing.assert_allclose(found[:, 0], [0.5 * 2.0 / 4.0, 0.5, 0.0])
    below = excess(start, finish, np.array([0.5, 0.5, 1.0]))
    assert not below.any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_the_kernel_of_overlaps_is_the_reference(seed, users):
    from probcalc.kernels.overlaps import excess as kernel

    rng = np.random.default_rng(seed)
    start = rng.integers(0, 300, (users, 20)).astype(np.int32)
    finish = (start + rng.integers(0, 90, (users, 20))).astype(np.int32)
    demand = rng.uniform(0.1, 0.9, users)
    right = excess(start.astype(float), finish.astype(float), demand)
    # Users stand among others, in any order.
    rows = rng.permutation(users + 3)[:users]
    among = np.zeros((2, users + 3, 20), dtype=np.int32)
    among[0, rows], among[1, rows] = start, finish
    out = np.zeros(among.shape[1:], dtype=np.float32)
    kernel(among[0], among[1], rows, demand, finish.max(axis=0), 1.0, out)
    np.testing.assert_allclose(out[rows], right, rtol=1e-5, atol=1e-6)
    assert not np.delete(out, rows, axis=0).any()


def recorded(R=0.12, tau=25.0, ambient=300.0, seed=3):
    rng = np.random.default_rng(seed)
    t = np.arange(400) * 0.5
    power = np.where((t // 40).astype(int) % 2 == 0, 250.0, 20.0)
    rise = np.zeros(t.size)
    for i in range(t.size - 1):
        d = math.exp(-0.5 / tau)
        rise[i + 1] = rise[i] * d + R * power[i] * (1 - d)
    return t, ambient + rise + rng.normal(0.0, 0.3, t.size), power


def test_thermal_parameters_are_found_again():
    fit = fit_thermal(*recorded(), level=SURE)
    assert fit.resistance.lower <= 0.12 <= fit.resistance.upper
    assert fit.time_constant.lower <= 25.0 <= fit.time_constant.upper
    assert fit.ambient.lower <= 300.0 <= fit.ambient.upper
    assert fit.resistance.error < 0.01 * fit.resistance.value
    assert fit.residual == pytest.approx(0.3, rel=0.3)


def test_leakage_slope_is_found_again():
    rng = np.random.default_rng(5)
    temperature = np.repeat([310.0, 320.0, 330.0, 340.0], 10)
    power = 60.0 + 0.4 * (temperature - 300.0) + rng.normal(0.0, 0.5, 40)
    fit = fit_leakage(temperature, power, level=SURE)
    assert fit.lower <= 0.4 <= fit.upper
    assert fit.error < 0.02


def test_throttling_is_found_again():
    rng = np.random.default_rng(6)
    rise = rng.uniform(0.0, 40.0, 200)
    time = 2.0 * (1.0 + 0.01 * np.maximum(rise - 22.0, 0.0))
    fit = fit_throttling(rise, time + rng.normal(0.0, 0.005, 200), level=SURE)
    assert fit.threshold.lower <= 22.0 <= fit.threshold.upper
    assert fit.slope.lower <= 0.01 <= fit.slope.upper
    assert fit.base.lower <= 2.0 <= fit.base.upper
    assert fit.threshold.error < 1.0


def test_drift_is_found_again_from_times_alone():
    rng = np.random.default_rng(8)
    y, times = 0.0, []
    for _ in range(60):
        times.append(6.0 * (1.0 + 1.5e-4 * y))
        y = 200.0 + (y - 200.0) * math.exp(-times[-1] / 70.0)
    fit = fit_drift(
        np.array(times) + rng.normal(0, 0.005, 60), [200.0] * 60, level=SURE
    )
    assert fit.base.lower <= 6.0 <= fit.base.upper
    assert fit.gain.lower <= 1.5e-4 <= fit.gain.upper
    assert fit.time_constant.lower <= 70.0 <= fit.time_constant.upper
    assert fit.time_constant.error < 10.0
    model = fit.mechanism().parameters
    assert model.slowdown(np.array([200.0]))[0] == pytest.approx(200 * fit.gain.value)
    with pytest.raises(InputError, match="times do not grow"):
        fit_drift(np.linspace(6.0, 5.0, 20), [200.0] * 20)


def test_contention_and_cache_are_found_again():
    rng = np.random.default_rng(7)
    alone = rng.normal(1.0, 0.02, 50)
    beside = [rng.normal(1.0 + 0.7 * x, 0.02, 50) for x in (0.2, 0.5)]
    fit = fit_contention(alone, beside, [0.2, 0.5], level=SURE)
    assert fit.lower <= 0.7 <= fit.upper
    assert fit.error < 0.02
    cold = rng.normal(1.0, 0.01, 40), rng.normal(50.0, 0.5, 40)
    warm = rng.normal(0.8, 0.01, 40), rng.normal(45.0, 0.5, 40)
    saved = fit_cache(cold, warm, 1e6, level=SURE)
    assert saved.time_per_byte.lower <= 2e-7 <= saved.time_per_byte.upper
    assert saved.energy_per_byte.lower <= 5e-6 <= saved.energy_per_byte.upper


def stated(name, variables=(), reads=(), **fields):
    return Mechanism(
        name=name,
        cause="a test",
        timescale="1 s",
        protocol="none",
        variables=tuple(StateVariable(v, "K") for v in variables),
        reads=reads,
        **fields,
    )


def test_mechanisms_that_read_others_come_after_them():
    late = stated("late", ["b"], ("a",), run=lambda s, _: {"b": s["a"] + 1.0})
    early = stated("early", ["a"], run=lambda s, _: {"a": s["a"] + 1.0})
    both = Mechanisms.of([late, early])
    assert [m.name for m in both.entry] == ["early", "late"]
    state, _ = both.run(both.state(NULL_CONTEXT, 1, "x"), load(1.0, 0.0))
    assert state["b"][0] == 2.0


def test_circles_between_mechanisms_are_refused():
    a, b, c = (stated(x, [x], (y,)) for x, y in ("pq", "qr", "rp"))
    with pytest.raises(InputError, match=r"circle: p -> q -> r -> p"):
        Mechanisms.of([a, b, c])


def test_variables_that_are_missing_or_carried_twice_are_refused():
    with pytest.raises(InputError, match=r"'m': reads the variable 'x', which no mech"):
        Mechanisms.of([stated("m", ["a"], ("x",))])
    with pytest.raises(InputError, match=r"both carry the variable 'a'"):
        Mechanisms.of([stated("m", ["a"]), stated("n", ["a"])])
    with pytest.raises(InputError, match="stated twice"):
        Mechanisms.of([stated("m"), stated("m")])
    both = Mechanisms.of([thermal(resistance=0.1, time_constant=1.0)])
    with pytest.raises(InputError, match=r"device 'g': variable 'temperature rise'"):
        both.state(Context({}), 1, "device 'g'")
    with pytest.raises(InputError, match=r"no mechanism carries the variable 'noise'"):
        both.state(Context({"noise": 1.0}, others_null=True), 1, "device 'g'")
    forgets = Mechanisms.of([stated("m", ["a"], run=lambda s, _: {})])
    with pytest.raises(InputError, match=r"'m': its update rule does not return.*'a'"):
        forgets.run({"a": np.zeros(1)}, load(1.0, 0.0))
    wild = Mechanisms.of([stated("m", ["a"], run=lambda s, _: {"a": s["a"] * np.nan})])
    with pytest.raises(InputError, match=r"'m': .* 'a' NaN"):
        wild.run({"a": np.zeros(1)}, load(1.0, 0.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Resource("f", -1.0), r"resource 'f', capacity is -1.0, .*> 0 B/s"),
        (lambda: Resource("f", 0.0), r"capacity is 0.0"),
        (lambda: Resource("f", 1.0, scope="rack"), r"scope is 'rack'"),  # type: ignore[arg-type]
        (lambda: Resource("f", 1.0, slowdown=-1.0), r"slowdown is -1.0"),
        (lambda: contention(), "no resources"),
        (lambda: contention(Resource("f", 1.0), passes=0), "passes is 0"),
        (lambda: cache(capacity=-5.0, sets=["a"]), r"'cache', capacity is -5.0"),
        (lambda: cache(capacity=5.0, sets=["a", "a"]), "distinct"),
        (lambda: thermal(resistance=-0.1, time_constant=1.0), r"resistance is -0.1"),
        (lambda: thermal(resistance=0.1, time_constant=0.0), r"time constant is 0.0"),
        (
            lambda: thermal(resistance=0.5, time_constant=1.0, leakage=2.0),
            "the device would run away",
        ),
        (
            lambda: thermal(resistance=0.5, time_constant=1.0, throttling=0.1),
            "without a threshold",
        ),
        (
            lambda: thermal(resistance=[0.5, 1.0], time_constant=1.0),
            "2 resistances and 1 time constants",
        ),
        (lambda: power_delivery(time_constant=-1.0), r"time constant is -1.0"),
        (lambda: Trace({"traffic": -1.0}), r"amounts of 'traffic' is -1.0"),
        (lambda: Trace(demand={"f": math.nan}), r"demand of 'f' is nan"),
        (lambda: Context({"a": math.inf}), r"variable 'a' is inf"),
        (lambda: stated(" "), "name is ' '"),
        (lambda: Mechanisms.of([3]), "expected mechanisms, got int"),
        (lambda: StateVariable("a", "B", null=-1.0, lower=0.0), "between 0 and inf B"),
        (lambda: fit_leakage([300.0] * 9, [1.0] * 9), "one temperature"),
        (lambda: fit_leakage([300.0], [1.0]), "1 readings, expected at least 8"),
        (lambda: fit_contention([1, 1], [[2, 2]], [0.0]), "expected above 0"),
        (lambda: fit_cache(([1], [1]), ([1], [1]), 1.0), "expected two of each"),
        (lambda: fit_thermal(np.zeros(9), np.zeros(9), np.ones(9)), "not increase"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_effects_add():
    total = Effect(0.1, 2.0).plus(Effect(0.2, -1.0, 0.0, 3.0))
    assert total == Effect(pytest.approx(0.3), 1.0, 0.0, 3.0)
