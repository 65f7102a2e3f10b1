"""Windows: what each rule refuses, and that nothing refused becomes a number."""

from __future__ import annotations

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.measurement.meter import Device, Missing, Trace
from probcalc.measurement.updates import period_of, updates_of
from probcalc.measurement.windows import WindowEnergy, window_energy
from tests.traces import Load, counter_trace, power_trace, steps, work

STEADY = steps((60.0, 1.0), (200.0, 20.0), (60.0, 1.0))


def refused(window: WindowEnergy, reason: str) -> None:
    """A window without an energy, which says why."""
    assert not window.valid
    assert window.energy is None
    assert window.per_repetition is None
    assert window.power is None
    assert any(reason in r for r in window.reasons), window.reasons


def polled(t: np.ndarray, w: np.ndarray, source: str = "power_instant") -> Trace:
    return Trace(t, w, t, source)  # type: ignore[arg-type]


# Integration of power --------------------------------------------------------
@pytest.mark.parametrize("every", [0.01, 0.05, 0.013])
def test_constant_power_integrates_to_itself_with_repeated_readings(
    every: float,
) -> None:
    t = np.arange(-0.5, 10.5, every)
    window = window_energy(polled(t, np.full(t.size, 200.0)), 0.0, 10.0, period=0.1)
    assert window.energy == pytest.approx(2000.0, rel=1e-12)
    assert window.method == "polled"
    assert window.lower == pytest.approx(2000.0)
    assert window.upper == pytest.approx(2000.0)


def test_a_step_integrates_to_its_true_value_with_repeated_readings() -> None:
    t = np.arange(0, 1001) * 0.01
    power = np.where(t < 5.0, 50.0, 350.0)
    window = window_energy(polled(t, power), 0.0, 10.0, period=0.1)
    # The step is seen between two polls 10 ms apart: half of one at 300 W, no more.
    assert window.energy == pytest.approx(2000.0, abs=0.5 * 0.01 * 300.0 + 1e-9)
    assert window.lower is not None
    assert window.upper is not None
    assert window.lower <= 2000.0 <= window.upper


def test_ends_are_interpolated_between_the_samples_around_them() -> None:
    t = np.arange(0.0, 12.0, 0.04)
    window = window_energy(polled(t, 100.0 + 10.0 * t), 1.01, 9.03, period=0.1)
    true = 100.0 * 8.02 + 5.0 * (9.03**2 - 1.01**2)
    assert window.energy == pytest.approx(true, rel=1e-12)


def test_a_delay_that_is_known_can_be_taken_off() -> None:
    trace = power_trace(steps((60.0, 2.0), (230.0, 5.0), (60.0, 2.0)), 0.5, 8.5)
    late = window_energy(trace, 2.0, 7.0, period=0.1, reading_window=0.1)
    right = window_energy(trace, 2.0, 7.0, period=0.1, reading_window=0.1, lag=0.1)
    assert late.energy == pytest.approx(1150.0 - 0.1 * 170.0, rel=2e-3)
    assert right.energy == pytest.approx(1150.0, rel=2e-3)


def test_what_is_yet_to_show_when_the_trace_ends_is_in_the_bound() -> None:
    # Power steps 80 ms before the end, and no update has told.
    load = steps((60.0, 11.92), (300.0, 5.0))
    whole = power_trace(load, 0.5, 14.0, phase=0.01)
    seen = whole.time <= 12.0 + 1e-9
    t, w = whole.time[seen], whole.value[seen]
    window = window_energy(
        polled(t[:-2], w[:-2]),
        2.0,
        float(t[-3]),
        period=0.1,
        reading_window=0.1,
        idle_power=60.0,
        power_limit=300.0,
    )
    true = float(load.energy(t[-3]) - load.energy(2.0))
    assert window.energy is not None
    assert window.upper is not None
    assert true - window.energy > 10.0
    assert window.upper >= true
    assert window.kind == "bound"


def test_samples_must_bracket_both_ends() -> None:
    t = np.arange(0.0, 10.0, 0.02)
    trace = polled(t, np.full(t.size, 200.0))
    refused(window_energy(trace, -0.5, 5.0, period=0.1), "bracket the start")
    refused(window_energy(trace, 1.0, 10.5, period=0.1), "bracket the end")
    assert window_energy(trace, 0.0, 9.98, period=0.1).valid


def test_power_over_less_than_an_update_is_refused() -> None:
    window = window_energy(power_trace(STEADY, 0.5, 20.0), 5.0, 5.08, period=0.1)
    refused(window, "window shorter than update period")


def test_fewer_than_two_samples_an_update_are_refused() -> None:
    t = np.arange(0.0, 60.0, 1.0)
    window = window_energy(polled(t, np.full(t.size, 200.0)), 5.0, 50.0, period=0.1)
    refused(window, "samples an update")
    assert window.rate == pytest.approx(1.0)
    assert window.largest_gap == pytest.approx(1.0)


def test_a_poll_that_costs_more_than_asked_shows_in_the_achieved_rate() -> None:
    t = np.arange(0.0, 30.0, 0.35)
    trace = Trace(t, np.full(t.size, 200.0), t, "power_instant", interval=0.1)
    window = window_energy(trace, 1.0, 29.0, period=0.1)
    assert window.rate == pytest.approx(1.0 / 0.35)
    refused(window, "samples an update")


# Averaging -------------------------------------------------------------------
def test_averaging_lag_is_said_and_refused_where_it_matters() -> None:
    load = steps((60.0, 5.0), (300.0, 10.0), (60.0, 3.0))
    trace = power_trace(load, 1.5, 17.5, width=1.0, source="power_average")
    # A fifth of the mean lies after the step: 60 + 0.2 x 240.
    assert np.interp(5.2, trace.time, trace.value) == pytest.approx(108.0)
    at_once = window_energy(trace, 5.0, 15.0, period=0.1)
    refused(at_once, "averaging lag")
    assert at_once.lower is not None
    assert at_once.upper is not None
    assert at_once.lower <= 3000.0 <= at_once.upper
    later = window_energy(trace, 6.5, 13.5, period=0.1)
    assert later.energy == pytest.approx(2100.0, rel=1e-6)
    assert any("averaging lag" in note for note in later.notes)


def test_usage_of_unknown_averaging_is_noted() -> None:
    t = np.arange(0.0, 10.0, 0.02)
    trace = polled(t, np.full(t.size, 200.0), "power_usage")
    assert any("Ampere" in n for n in window_energy(trace, 1.0, 9.0, period=0.1).notes)
    stated = window_energy(trace, 1.0, 9.0, period=0.1, averaging=0.0)
    assert not any("Ampere" in n for n in stated.notes)


# The counter -----------------------------------------------------------------
def test_equal_end_points_are_never_zero_joules() -> None:
    trace = counter_trace(STEADY, 0.5, 20.0)
    for method in ("naive", "ticks"):
        window = window_energy(trace, 5.01, 5.04, method=method, period=0.1)
        refused(window, "window shorter than update period")
        assert window.estimate is None
    two = Trace([5.01, 5.04], [812.0, 812.0], [5.01, 5.04], "counter")  # type: ignore
    refused(window_energy(two, 5.01, 5.04, period=0.1), "shorter than update period")


@pytest.mark.parametrize("method", ["naive", "ticks"])
def test_a_counter_that_stands_still_under_load_does_not_move(method: str) -> None:
    t = np.arange(0.0, 20.0, 0.01)
    trace = Trace(t, np.full(t.size, 5000.0), t, "counter")
    window = window_energy(trace, 2.0, 18.0, method=method, period=0.1)  # type: ignore
    refused(window, "source does not move")
    assert window.estimate is None
    refused(window_energy(trace, 2.0, 18.0), "source does not move")


def test_a_decrease_is_a_reset() -> None:
    two = Trace([0.0, 10.0], [5000.0, 90.763], [0.0, 10.0], "counter")  # type: ignore
    window = window_energy(two, 0.0, 10.0, period=0.1)
    refused(window, "counter decreased from 5000 J to 90.763 J: reset")
    trace = counter_trace(STEADY, 0.5, 20.0)
    fallen = np.where(trace.time > 9.0, trace.value - 1500.0, trace.value)
    reset = Trace(trace.before, fallen, trace.after, "counter")
    for method in ("naive", "ticks"):
        refused(window_energy(reset, 3.0, 15.0, method=method, period=0.1), "reset")
    # A window that ends before it is whole.
    assert window_energy(reset, 2.0, 8.5, method="ticks", period=0.1).valid


def test_windows_must_hold_enough_update_periods() -> None:
    trace = counter_trace(STEADY, 0.5, 20.0)
    kept = window_energy(trace, 5.0, 9.9, method="naive", period=0.1)
    refused(kept, "49 update periods, expected 50 for naive")
    assert kept.estimate == pytest.approx(4.9 * 200.0, rel=0.03)
    assert window_energy(trace, 5.0, 10.0, method="naive", period=0.1).valid
    refused(
        window_energy(trace, 5.0, 5.9, method="ticks", period=0.1),
        "9 update periods, expected 10 for ticks",
    )
    assert window_energy(trace, 5.0, 6.0, method="ticks", period=0.1).valid


def test_energy_outside_what_the_board_can_draw_is_invalid_and_not_clipped() -> None:
    trace = counter_trace(STEADY, 0.5, 20.0)
    high = window_energy(trace, 2.0, 12.0, period=0.1, power_limit=130.0)
    refused(high, "outside")
    assert high.estimate == pytest.approx(2000.0, rel=1e-3)
    low = window_energy(trace, 2.0, 12.0, period=0.1, idle_power=1100.0)
    refused(low, "outside")
    board = Device("GPU-1", "0", "board", 0, "550", power_limit=130.0)
    named = Trace(trace.before, trace.value, trace.after, "counter", device=board)
    refused(window_energy(named, 2.0, 12.0, period=0.1), "outside")
    ok = window_energy(trace, 2.0, 12.0, period=0.1, idle_power=60.0, power_limit=300.0)
    assert ok.energy == pytest.approx(2000.0, rel=1e-3)


@pytest.mark.parametrize("source", ["counter", "power_instant"])
def test_a_gap_is_a_reason_and_not_a_zero(source: str) -> None:
    if source == "counter":
        whole = counter_trace(STEADY, 0.5, 20.0, poll=0.01)
    else:
        whole = power_trace(STEADY, 0.5, 20.0)
    keep = (whole.time < 8.0) | (whole.time > 8.5)
    lost = Missing(8.1, 8.1, "GPU is lost")
    arrays = (whole.before[keep], whole.value[keep], whole.after[keep])
    trace = Trace(*arrays, source, missing=(lost,))  # type: ignore[arg-type]
    window = window_energy(trace, 3.0, 15.0, period=0.1)
    refused(window, "gap of 0.5")
    refused(window, "GPU is lost")
    assert window_energy(trace, 9.0, 15.0, period=0.1).valid
    # Only one read of many failed: no gap to speak of.
    few = Trace(
        whole.before,
        whole.value,
        whole.after,
        whole.source,
        missing=(Missing(8.001, 8.002, "N/A"),),
    )
    assert window_energy(few, 3.0, 15.0, period=0.1).valid


def test_a_plain_difference_needs_only_its_ends_unless_a_read_failed() -> None:
    ends = Trace([0.0, 10.0], [100.0, 2100.0], [1e-4, 10.0001], "counter")  # type: ignore
    window = window_energy(ends, 0.0, 10.0, period=0.1, power_limit=300.0)
    assert window.energy == pytest.approx(2000.0)
    assert window.method == "naive"
    lost = Missing(4.0, 4.1, "GPU is lost")
    broken = Trace(ends.before, ends.value, ends.after, "counter", missing=(lost,))
    refused(window_energy(broken, 0.0, 10.0, period=0.1), "GPU is lost")


def test_naive_bounds_come_from_period_and_brackets() -> None:
    ends = Trace([0.0, 10.0], [100.0, 2100.0], [0.01, 10.01], "counter")  # type: ignore
    window = window_energy(
        ends, 0.0, 10.0, period=0.1, idle_power=60.0, power_limit=300.0
    )
    # Up to a period of energy at either end, and the length of the call.
    assert window.lower == pytest.approx(2000.0 - 300.0 * (0.1 + 0.01))
    assert window.upper == pytest.approx(2000.0 + 300.0 * (0.1 + 0.01))
    assert window.kind == "bound"
    free = window_energy(ends, 0.0, 10.0, period=0.1)
    assert free.kind == "none"
    assert free.upper is None
    assert any("state power_limit" in note for note in free.notes)


def test_without_a_period_the_counter_is_refused() -> None:
    trace = counter_trace(STEADY, 2.0, 4.0)
    refused(window_energy(trace, 2.5, 3.5), "update period unknown")
    long = window_energy(counter_trace(STEADY, 0.5, 20.0), 2.0, 12.0)
    assert long.period == pytest.approx(0.1, rel=0.01)
    assert long.valid


def test_per_repetition_energy_and_grain() -> None:
    made = work(np.full(2000, 5e-3), [(230.0, 1.0)], idle=60.0, start=1.0)
    trace = counter_trace(made.load, 0.5, made.end + 0.5)
    for method, done in (("ticks", None), ("regression", made.completions)):
        window = window_energy(
            trace,
            1.0,
            made.end,
            method=method,  # type: ignore[arg-type]
            repetitions=2000,
            completions=done,
            period=0.1,
        )
        assert window.repetitions == 2000
        assert window.per_repetition == pytest.approx(1.15, rel=2e-3)
        assert window.power == pytest.approx(230.0, rel=2e-3)
    auto = window_energy(trace, 1.0, made.end, completions=made.completions)
    assert auto.method == "regression"
    assert window_energy(trace, 1.0, made.end, repetitions=2000).method == "ticks"


def test_ticks_and_regression_follow_runs_that_are_not_evenly_spread() -> None:
    # Runs of one energy, 1 J, the second half of them twice as slow.
    durations = np.concatenate([np.full(1000, 5e-3), np.full(1000, 1e-2)])
    power = np.repeat(1.0 / durations, 1)
    edges = 1.0 + np.concatenate([[0.0], np.cumsum(durations)])
    load = Load(edges, np.concatenate([[60.0], power, [60.0]]))
    trace = counter_trace(load, 0.5, edges[-1] + 0.5)
    for method in ("ticks", "regression"):
        window = window_energy(
            trace,
            1.0,
            float(edges[-1]),
            method=method,  # type: ignore[arg-type]
            completions=edges[1:],
            period=0.1,
        )
        assert window.per_repetition == pytest.approx(1.0, rel=1e-3)


# Part-time sensors -----------------------------------------------------------
def test_short_runs_are_trusted_on_a_part_time_sensor_and_long_ones_are_not() -> None:
    made = work(np.full(3000, 4e-3), [(230.0, 0.5), (100.0, 0.5)], idle=60.0, start=1.0)
    trace = counter_trace(made.load, 0.5, made.end + 0.5, reading_window=0.025)
    facts = {"period": 0.1, "reading_window": 0.025, "power_limit": 300.0}
    short = window_energy(trace, 1.0, made.end, repetitions=3000, **facts)  # type: ignore
    assert short.energy == pytest.approx(165.0 * 12.0, rel=0.02)
    unknown = window_energy(trace, 1.0, made.end, **facts)  # type: ignore[arg-type]
    refused(unknown, "part-time sensor: 25 % of the time is read")


def test_an_unknown_reading_window_is_noted_and_allowed_for() -> None:
    trace = power_trace(steps((60.0, 4.0), (200.0, 6.0), (60.0, 4.0)), 0.5, 13.5)
    window = window_energy(trace, 2.0, 12.0, period=0.1)
    assert any("reading window unknown" in note for note in window.notes)
    full = window_energy(trace, 2.0, 12.0, period=0.1, reading_window=0.1)
    assert not full.notes
    assert window.energy == full.energy
    assert window.upper - window.lower > 5 * (full.upper - full.lower)  # type: ignore


# Updates ---------------------------------------------------------------------
def test_updates_lie_between_the_polls_that_saw_them() -> None:
    trace = counter_trace(STEADY, 2.0, 8.0, phase=0.037, poll=3e-3, cost=1e-3)
    found = updates_of(trace)
    true = 0.037 + 0.1 * np.round((found.time - 0.037) / 0.1)
    assert np.array_equal(np.diff(np.round(true / 0.1)), np.ones(len(found) - 1))
    assert len(found) >= 58
    assert np.all((found.earliest <= true) & (true <= found.latest))
    assert not found.value.flags.writeable


@pytest.mark.parametrize("period", [0.02, 0.1, 0.101])
@pytest.mark.parametrize("poll", [2e-3, 7e-3, 9.5e-3])
def test_the_update_period_is_found_from_polls(period: float, poll: float) -> None:
    rng = np.random.default_rng(3)
    trace = counter_trace(STEADY, 2.0, 18.0, period=period, poll=poll, rng=rng)
    assert period_of(trace) == pytest.approx(period, rel=0.005)


def test_updates_written_in_two_steps_and_gaps_leave_the_period_alone() -> None:
    trace = counter_trace(STEADY, 2.0, 18.0, poll=2e-3)
    value = trace.value.copy()
    new = np.flatnonzero(np.diff(value)) + 1
    value[new[::2]] -= 1e-3  # seen before its last digit was written
    torn = Trace(trace.before, value, trace.after, "counter")
    assert len(updates_of(torn)) > 1.4 * new.size
    assert period_of(torn) == pytest.approx(0.1, rel=0.005)
    away = (trace.time % 2.0) > 0.25
    arrays = (trace.before[away], trace.value[away], trace.after[away])
    assert period_of(Trace(*arrays, "counter")) == pytest.approx(0.1, rel=0.03)


def test_too_few_changes_give_no_period() -> None:
    assert period_of(counter_trace(STEADY, 2.0, 4.9)) is None


# What is asked wrongly -------------------------------------------------------
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"start": 5.0, "end": 5.0}, "expected an end after the start"),
        ({"start": 5.0, "end": float("nan")}, "expected an end after the start"),
        ({"method": "polled"}, "does not fit a trace of counter"),
        ({"method": "guess"}, "expected auto, naive"),
        ({"method": "regression"}, "needs completions"),
        ({"repetitions": 0}, "expected at least 1"),
        ({"completions": [6.0, 5.5]}, "ascending"),
        ({"completions": [6.0, 50.0]}, "within the window"),
        ({"completions": [6.0], "repetitions": 2}, "1 completions for 2"),
        ({"period": 0.0}, "period is 0 s"),
        ({"power_limit": -1.0}, "power_limit is -1.0"),
        ({"level": 1.0}, "level is 1.0"),
    ],
)
def test_wrong_questions_are_refused(asked: dict, message: str) -> None:
    asked = {"start": 5.0, "end": 10.0, **asked}
    with pytest.raises(InputError, match=message):
        window_energy(counter_trace(STEADY, 0.5, 20.0), **asked)
