"""Cross-check, gates, phases: what stops a verdict, and what a run is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.measurement.crosscheck import cross_check, instrument_gain
from probcalc.measurement.faults import ConflictError, NotSupportedError
from probcalc.measurement.gates import (
    dephasing_gaps,
    is_warm,
    needs_dephasing,
    thermal_gate,
    throttle_reading,
    throttling,
    warm_up,
)
from probcalc.measurement.meter import Device, Missing, Reading, Trace
from probcalc.measurement.phases import PHASES, split_phases
from probcalc.measurement.windows import WindowEnergy, window_energy
from tests.traces import counter_trace, power_trace, steps

LOAD = steps((60.0, 2.0), (200.0, 20.0), (60.0, 2.0))


def both(start: float, end: float) -> tuple[WindowEnergy, WindowEnergy]:
    counter = counter_trace(LOAD, 0.5, 23.5)
    power = power_trace(LOAD, 0.5, 23.5)
    return (
        window_energy(counter, start, end, period=0.1),
        window_energy(power, start, end, period=0.1, reading_window=0.1),
    )


def scaled(trace: Trace, factor: float) -> Trace:
    return Trace(trace.before, factor * trace.value, trace.after, trace.source)


# Cross-check -----------------------------------------------------------------
def test_counter_and_polled_power_agree_over_ten_seconds() -> None:
    check = cross_check(*both(4.0, 16.0))
    assert check.status == "agree"
    assert check.ratio == pytest.approx(1.0, abs=1e-3)
    check.require()


def test_agreement_over_less_than_ten_seconds_shows_nothing() -> None:
    check = cross_check(*both(4.0, 13.9))
    assert check.status == "undecided"
    assert not check.verdict_allowed
    with pytest.raises(ConflictError, match="no verdict"):
        check.require()


def test_the_published_conflict_is_one_and_gives_no_verdict() -> None:
    # 187.443 J by the counter and 326.883 J by polled power over 5.0045 s.
    load = steps((60.0, 2.0), (326.883 / 5.0045, 10.0), (60.0, 2.0))
    counter = scaled(counter_trace(load, 0.5, 13.5), 187.443 / 326.883)
    power = power_trace(load, 0.5, 13.5)
    first = window_energy(counter, 4.0, 9.0045, period=0.1)
    second = window_energy(power, 4.0, 9.0045, period=0.1, reading_window=0.1)
    assert first.energy == pytest.approx(187.443, rel=2e-3)
    assert second.energy == pytest.approx(326.883, rel=2e-3)
    check = cross_check(first, second)
    assert check.status == "conflict"
    assert not check.verdict_allowed
    with pytest.raises(ConflictError, match=r"instrument conflict.*no verdict"):
        check.require()
    loose = cross_check(first, second, tolerance=0.9)
    assert loose.status == "undecided"


def test_an_invalid_window_is_neither_agreement_nor_conflict() -> None:
    first, second = both(4.0, 16.0)
    broken = window_energy(counter_trace(LOAD, 0.5, 23.5), 4.0, 16.0, period=2.0)
    assert not broken.valid
    check = cross_check(broken, second)
    assert check.status == "undecided"
    assert math.isnan(check.ratio)
    assert "update periods" in check.reason
    assert cross_check(first, broken).status == "undecided"


def test_other_windows_and_other_scopes_are_not_compared() -> None:
    first, second = both(4.0, 16.0)
    with pytest.raises(InputError, match="expected the same"):
        cross_check(first, both(4.0, 15.9)[1])
    trace = counter_trace(LOAD, 0.5, 23.5)
    module = Trace(trace.before, trace.value, trace.after, "counter", scope="module")
    with pytest.raises(InputError, match="scopes 'module' and 'board'"):
        cross_check(window_energy(module, 4.0, 16.0, period=0.1), second)


def test_gain_is_found_with_its_own_error_and_refuses_invalid_windows() -> None:
    trace = scaled(counter_trace(LOAD, 0.5, 23.5), 0.94)
    found = [window_energy(trace, a, a + 2.0, period=0.1) for a in (4.0, 8.0, 12.0)]
    gain = instrument_gain(found, [400.0] * 3, reference_error=0.005)
    assert gain.ratio == pytest.approx(0.94, rel=2e-3)
    assert gain.relative_error == pytest.approx(0.005, rel=0.1)
    short = window_energy(trace, 4.0, 4.5, period=0.1)
    with pytest.raises(InputError, match="window 1 is not valid"):
        instrument_gain([found[0], short], [400.0, 100.0], reference_error=0.0)
    with pytest.raises(InputError, match="at least two"):
        instrument_gain(found[:1], [400.0], reference_error=0.0)


# Gates -----------------------------------------------------------------------
@dataclass
class Board:
    """A meter whose temperature and throttle time are functions of its clock."""

    temperatures: object
    throttle: object = None
    clock: float = 0.0
    device: Device = field(default_factory=lambda: Device("GPU-1", "0", "b", 0, "1"))

    def now(self) -> float:
        return self.clock

    def sleep(self, duration: float) -> None:
        self.clock += duration

    def read(self, source: str, scope: str = "board") -> Reading:
        raise NotSupportedError(source)

    def temperature(self) -> Reading:
        value = self.temperatures(self.clock)  # type: ignore[operator]
        if value is None:
            raise NotSupportedError("temperature is not read by this board")
        return Reading(self.clock, value, self.clock, "temperature")

    def throttled(self) -> Reading:
        if self.throttle is None:
            raise NotSupportedError("no throttle counters")
        return Reading(self.clock, self.throttle(self.clock), self.clock, "t")  # type: ignore

    def processes(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass


def test_the_thermal_gate_opens_after_five_seconds_near_the_reference() -> None:
    board = Board(lambda t: 40.0 + 20.0 * math.exp(-t / 10.0))
    gate = thermal_gate(board, 41.0)  # type: ignore[arg-type]
    assert gate.passed
    assert gate.temperature == pytest.approx(41.0, abs=1.0)
    # 42 degrees at 10 ln 10 s, and five more.
    opened = 10.0 * math.log(10.0) + 5.0
    assert opened - 1e-9 <= gate.waited <= opened + 0.5


def test_the_thermal_gate_fails_with_the_temperature_it_saw() -> None:
    gate = thermal_gate(Board(lambda t: 60.0), 41.0, time_limit=20.0)  # type: ignore
    assert not gate.passed
    assert "at 60 degree Celsius" in gate.reason
    assert gate.waited == pytest.approx(20.0, abs=0.5)
    # It swings across the reference and is never there for five seconds.
    swing = Board(lambda t: 41.0 + 3.0 * math.sin(t))
    assert not thermal_gate(swing, 41.0, time_limit=60.0).passed  # type: ignore
    silent = thermal_gate(Board(lambda t: None), 41.0, time_limit=5.0)  # type: ignore
    assert not silent.passed
    assert silent.temperature is None
    assert "not read by this board" in silent.reason


def test_throttling_keeps_the_thermal_gate_shut() -> None:
    held = Board(lambda t: 41.0, throttle=lambda t: min(t, 30.0) * 0.01)
    gate = thermal_gate(held, 41.0, time_limit=60.0)  # type: ignore[arg-type]
    assert gate.passed
    assert gate.waited >= 35.0 - 0.5
    shut = thermal_gate(
        Board(lambda t: 41.0, throttle=lambda t: t),  # type: ignore[arg-type]
        41.0,
        time_limit=20.0,
    )
    assert not shut.passed
    assert "throttled" in shut.reason


def test_throttle_time_that_is_not_known_is_not_zero() -> None:
    def at(seconds: float) -> Reading:
        return Reading(0.0, seconds, 0.0, "throttled")

    assert throttling(at(1.0), at(1.0)).time == 0.0
    grown = throttling(at(1.0), at(1.5))
    assert grown.throttled
    assert grown.time == 0.5
    assert throttling(None, at(1.0)).time is None
    assert "reset" in throttling(at(2.0), at(1.0)).reason
    assert throttle_reading(Board(lambda t: 40.0)) is None  # type: ignore[arg-type]


def test_warm_up_runs_until_the_last_tenth_agrees() -> None:
    clock = [0.0]

    def run() -> None:
        clock[0] += 0.01 * (1.0 + 2.0 * math.exp(-clock[0] / 0.5))

    warm = warm_up(run, lambda: clock[0], rise_time=1.5)
    assert warm.warm
    assert warm.durations.sum() >= 1.5
    assert is_warm(warm.durations, rise_time=1.5) == ""
    assert not warm.durations.flags.writeable


def test_warm_up_that_drifts_ends_at_its_limit_and_says_so() -> None:
    clock = [0.0]

    def run() -> None:
        clock[0] += 0.01 + 0.05 * clock[0]

    cold = warm_up(run, lambda: clock[0], time_limit=30.0)
    assert not cold.warm
    assert "not warm after" in cold.reason
    assert "expected at least 20" in is_warm([0.01] * 5)
    assert "rise time" in is_warm([0.01] * 50, rise_time=1.5)
    with pytest.raises(InputError, match="finite times"):
        is_warm([0.01, float("nan")] * 20)


def test_dephasing_gaps_are_uniform_over_a_period() -> None:
    gaps = dephasing_gaps(20_000, 0.1, seed=4)
    assert gaps.min() >= 0.0
    assert gaps.max() < 0.1
    assert gaps.mean() == pytest.approx(0.05, abs=6.1 * 0.1 / math.sqrt(12 * 20_000))
    assert np.array_equal(gaps, dephasing_gaps(20_000, 0.1, seed=4))
    assert needs_dephasing(0.05, 0.1, 0.025)
    assert needs_dephasing(0.05, 0.1, None)
    assert not needs_dephasing(0.05, 0.1, 0.1)
    assert not needs_dephasing(0.005, 0.1, 0.025)


# Phases ----------------------------------------------------------------------
@pytest.mark.parametrize("source", ["counter", "power"])
def test_phases_add_up_to_the_total_and_leave_no_gap(source: str) -> None:
    load = steps((60.0, 3.0), (120.0, 2.0), (300.0, 8.0), (90.0, 1.0), (60.0, 4.0))
    make = counter_trace if source == "counter" else power_trace
    trace = make(load, 0.5, 17.5)
    starts = (1.0, 3.0, 5.0, 13.0, 14.0)
    marks: dict[str, float] = dict(zip(PHASES, starts, strict=True))
    phases = split_phases(trace, marks, 17.0)
    assert phases.names == PHASES
    assert phases.valid
    assert phases.durations == pytest.approx([2.0, 2.0, 8.0, 1.0, 3.0])
    true = np.diff(load.energy(phases.edges))
    # Polled power shows a period late.
    slack = phases.error + (0.0 if source == "counter" else 0.11 * 300.0)
    assert np.all(np.abs(phases.energy - true) <= slack + 0.5)
    whole = split_phases(trace, {"run": 1.0}, 17.0)
    assert phases.total == pytest.approx(whole.total, rel=1e-12)
    assert all(phases.resolved)


def test_a_phase_shorter_than_an_update_is_named_and_still_adds_up() -> None:
    trace = counter_trace(LOAD, 0.5, 23.5)
    phases = split_phases(trace, {"busy": 4.0, "drain": 10.0}, 10.03, period=0.1)
    assert phases.resolved == (True, False)
    assert phases.energy[1] == pytest.approx(6.0, rel=0.05)
    assert phases.total == pytest.approx(6.03 * 200.0, rel=1e-3)


def test_a_broken_trace_gives_no_phases() -> None:
    whole = counter_trace(LOAD, 0.5, 23.5)
    outside = split_phases(whole, {"busy": 0.1}, 10.0, period=0.1)
    assert not outside.valid
    assert math.isnan(outside.total)
    keep = (whole.time < 8.0) | (whole.time > 9.0)
    lost = Missing(8.1, 8.9, "GPU is lost")
    arrays = (whole.before[keep], whole.value[keep], whole.after[keep])
    gap = Trace(*arrays, "counter", missing=(lost,))
    broken = split_phases(gap, {"busy": 4.0}, 12.0, period=0.1)
    assert "GPU is lost" in broken.reasons[0]
    assert np.all(np.isnan(broken.energy))
    with pytest.raises(InputError, match="'busy' starts at 4"):
        split_phases(whole, {"busy": 4.0, "drain": 3.0}, 12.0)
