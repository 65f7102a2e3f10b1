"""The sampler's process: with the real pynvml, with replays, and when it dies."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.measurement import faults
from probcalc.measurement.clock import HostClock, VirtualClock
from probcalc.measurement.meter import Reading
from probcalc.measurement.records import Log, Records
from probcalc.measurement.replay import Fault, ReplayBoard, ReplayMeter
from probcalc.measurement.sampler import Sampler
from tests import standin_reads as reads
from tests.odd_meters import Dying, Raising, Unopened, recorded
from tests.standin import USAGE, Standin, built, real_clock, record

STEADY = recorded([0.0, 900.0], [200.0, 200.0])
RAMP = recorded([0.0, 20.0], [100.0, 300.0])


@pytest.fixture
def standin(
    tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Standin:
    return Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)


# --- in its own process --------------------------------------------------------------


def test_two_boards_are_polled_in_another_process_on_one_clock(
    standin: Standin,
) -> None:
    found = standin.run(
        reads.sampled,
        [
            record("device", uuid="GPU-a", trace=standin.constant(100), pids=41),
            record("device", uuid="GPU-b", trace=standin.constant(200), pids="42,43"),
            # Every call fails for a time on the second; the sampler lives on.
            record("fault", gpu=1, call=USAGE, kind="error", value=999),
            record("fault", gpu=1, call="field:186", kind="error", value=3),
            record("fault", gpu=1, call="field:185", kind="error", value=3),
        ],
        clock=real_clock(),
    )
    assert set(found["boards"]) == {"GPU-a", "GPU-b"}
    sources = {u: [t["source"] for t in b] for u, b in found["boards"].items()}
    assert sources == {"GPU-a": ["counter", "power_instant"], "GPU-b": ["counter"]}
    for uuid, watts in (("GPU-a", 100.0), ("GPU-b", 200.0)):
        counter = found["boards"][uuid][0]
        before, after = np.array(counter["before"]), np.array(counter["after"])
        value = np.array(counter["value"])
        assert counter["interval"] == 0.02
        # On the parent's clock, up to after the end of the window.
        assert before[0] < found["end"] < after[-1]
        # Each shows the energy at the last update, of every 0.1 s, before the call.
        rise = value[-1] - value[0]
        assert rise <= watts * (after[-1] - before[0] + 0.1) + 1e-3
        assert rise >= watts * (before[-1] - after[0] - 0.1) - 1e-3
        assert 0 < found["meanwhile"][uuid] < before.size
        assert found["temperatures"][uuid] > 1
    assert found["processes"] == {"GPU-a": [41], "GPU-b": [42, 43]}
    # No throttle field answers there: missing, not zero.
    assert found["throttled"] == {"GPU-a": 0, "GPU-b": 0}


def test_slow_polls_show_in_the_achieved_rate(standin: Standin) -> None:
    board = record("device", trace=standin.constant(100))
    slow = record("fault", call=USAGE, kind="slow", value=350)
    found = standin.run(reads.slow_polls, [board, slow], clock=real_clock())
    assert found["interval"] == 0.1
    assert found["count"] >= 3
    assert found["cost"] >= 0.35
    assert found["rate"] <= 1 / 0.35
    assert found["gap"] >= 0.35


def test_a_replay_in_real_time_is_sampled_likewise() -> None:
    meter = ReplayMeter(ReplayBoard(STEADY, period=0.02), HostClock())
    with Sampler([meter], interval=0.005) as sampler:
        sampler.check()
        time.sleep(0.3)
    counter, power = sampler.traces()[meter.device.uuid]
    assert set(power.value) == {200.0}
    assert counter.device is not None
    assert counter.device.uuid == meter.device.uuid
    # The same replay time in both processes: each value is that of its own stamp.
    latest = 200.0 * (counter.after - meter._origin)
    earliest = 200.0 * (counter.before - meter._origin - 0.02)
    assert np.all(counter.value <= latest + 1e-3)
    assert np.all(counter.value >= earliest - 1e-3)


def test_readings_that_fail_are_gaps_and_the_rest_goes_on() -> None:
    with Sampler([Raising()], interval=0.01, sources=[("counter", "board")]) as sampler:  # type: ignore[list-item]
        time.sleep(0.2)
    (trace,) = sampler.traces()["GPU-raising"]
    watch = sampler.watched()["GPU-raising"]
    assert len(trace) >= 2
    assert set(trace.value) == {1.0}
    reasons = {m.reason for m in trace.missing}
    assert reasons <= {"reading is nan", "ZeroDivisionError: a fault of ours"}
    assert abs(len(trace.missing) - len(trace)) <= 1
    assert watch.temperature == watch.throttled == ()
    assert {m.reason for m in watch.missing} == {"ZeroDivisionError: a fault of ours"}
    assert watch.processes == (1,)


def test_its_death_fails_the_window() -> None:
    sampler = Sampler([Dying()], interval=0.01, sources=[("counter", "board")])  # type: ignore[list-item]
    sampler.start()
    sampler._work._process.wait(30.0)  # type: ignore[union-attr]
    for call in (sampler.check, sampler.traces, sampler.stop, sampler.traces):
        with pytest.raises(faults.InstrumentError, match=r"status -9.*are lost"):
            call()


def dying_after(error: type[Exception] | None) -> None:
    sampler = Sampler([Dying()], interval=0.01, sources=[("counter", "board")])  # type: ignore[list-item]
    with sampler:
        sampler._work._process.wait(30.0)  # type: ignore[union-attr]
        if error is not None:
            raise error("the workload's own")


def test_its_death_is_raised_on_leaving_unless_another_error_is() -> None:
    with pytest.raises(KeyError, match="the workload's own"):
        dying_after(KeyError)
    with pytest.raises(faults.InstrumentError, match="status -9"):
        dying_after(None)


def test_a_meter_that_does_not_open_there_says_so() -> None:
    with pytest.raises(faults.DriverMissingError, match="finds no driver"):
        Sampler([Unopened()]).start()  # type: ignore[list-item]


def test_it_ends_with_its_parent() -> None:
    meter = ReplayMeter(ReplayBoard(STEADY), HostClock())
    sampler = Sampler([meter])
    sampler.start()
    process: Any = sampler._work._process  # type: ignore[union-attr]
    # Ctrl-C in a terminal goes to all of the parent's group, and not to this one.
    assert os.getpgid(process.pid) != os.getpgid(0)
    # What the system does with the pipe when the parent is gone.
    process.stdin.close()
    assert process.wait(30.0) == 0
    process.stdin = None
    with pytest.raises(faults.InstrumentError, match="status 0"):
        sampler.stop()


# --- on a virtual clock --------------------------------------------------------------


def test_virtual_boards_are_polled_as_far_as_their_clock_has_come() -> None:
    clock = VirtualClock(3.0)
    boards = [ReplayBoard(STEADY, uuid="GPU-s"), ReplayBoard(RAMP, uuid="GPU-r")]
    meters = [ReplayMeter(board, clock) for board in boards]
    clock.sleep(0.5)
    with Sampler(meters, interval=0.02) as sampler:
        clock.sleep(1.0)
        early = sampler.traces()["GPU-r"][1]
        clock.sleep(9.0)
    clock.sleep(100.0)  # not the sampler's any more
    _, power = sampler.traces()["GPU-r"]
    assert early.time[0] == power.time[0] == 3.5
    assert early.time[-1] == pytest.approx(4.5)
    assert power.time[-1] == pytest.approx(13.5)
    assert np.array_equal(early.value, power.value[: len(early)])
    assert power.rate == pytest.approx(50.0)
    assert power.largest_gap == pytest.approx(0.02)
    # A ramp of 10 W a second, read as the mean of the 0.1 s before each update.
    at = np.floor((power.time - 3.0) / 0.1 + 1e-9) * 0.1
    assert power.value == pytest.approx(100.0 + 10.0 * (at - 0.05), abs=1e-2)
    assert len(sampler.watched()["GPU-s"].temperature) == 10


def test_virtual_polls_that_cost_more_than_the_interval_keep_to_its_grid() -> None:
    meter = ReplayMeter(ReplayBoard(STEADY), call_cost=0.035)
    source = ("power_instant", "board")
    with Sampler([meter], interval=0.01, sources=[source], watch=1e6) as sampler:  # type: ignore[list-item]
        meter.sleep(3.0)
    (trace,) = sampler.traces()[meter.device.uuid]
    # After the first, which reads temperature and processes too.
    steps = np.diff(trace.before)[1:]
    assert steps == pytest.approx(np.full(steps.size, 0.04))
    assert trace.rate == pytest.approx(25.0, rel=0.05)


def test_a_board_that_is_lost_for_a_time_is_read_again() -> None:
    board = ReplayBoard(STEADY, faults=(Fault("lost", 1.0, 2.0),))
    meter = ReplayMeter(board)
    with Sampler([meter], interval=0.1) as sampler:
        meter.sleep(3.0)
    counter, _ = sampler.traces()[meter.device.uuid]
    assert [m.before for m in counter.missing] == pytest.approx(
        np.arange(1.0, 1.95, 0.1).tolist()
    )
    assert counter.largest_gap == pytest.approx(1.1)


def test_boards_without_a_source_are_refused() -> None:
    fault = Fault("error", 0.0, value=3)
    meter = ReplayMeter(ReplayBoard(STEADY, faults=(fault,)))
    with pytest.raises(faults.NoSourceError, match="no energy source"):
        Sampler([meter]).start()


def test_wrong_use_is_refused() -> None:
    meter = ReplayMeter(ReplayBoard(STEADY))
    other = ReplayMeter(ReplayBoard(STEADY, uuid="GPU-other"))
    real = ReplayMeter(ReplayBoard(STEADY, uuid="GPU-real"), HostClock())
    for meters in ([meter, other], [meter, real]):
        with pytest.raises(InputError, match="different clocks"):
            Sampler(meters)
    with pytest.raises(InputError, match="no meters"):
        Sampler([])
    with pytest.raises(InputError, match="interval is 0"):
        Sampler([meter], interval=0)
    with pytest.raises(InputError, match="watch is nan"):
        Sampler([meter], watch=float("nan"))
    sampler = Sampler([meter])
    with pytest.raises(InputError, match="not started"):
        sampler.traces()
    with sampler, pytest.raises(InputError, match="started before"):
        sampler.start()


# --- the file ------------------------------------------------------------------------


def test_a_line_half_written_is_left_for_later(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "readings"
    log = Log(path)
    key = ("GPU-a", "counter", "board")
    for k in range(3):
        log.add(key, Reading(float(k), 1.0 / 3.0 + k, k + 0.5, "counter"))
    log.flush()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        records = Records.read(path)
        count = whole[:cut].count(b"\n")
        found = records.series.get(key)
        assert (0 if found is None else len(found.value)) == max(count - 1, 0)
    path.write_bytes(whole)
    assert Records.read(path).series[key].value == [1 / 3, 1 / 3 + 1, 1 / 3 + 2]
