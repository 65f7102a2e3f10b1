"""The replayed board: its sensor against closed forms and against the C stand-in."""

from __future__ import annotations

import copy
import itertools
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.measurement import faults
from probcalc.measurement.clock import HostClock, VirtualClock
from probcalc.measurement.recording import Recording
from probcalc.measurement.replay import Fault, ReplayBoard, ReplayMeter
from tests import standin_reads as reads
from tests.odd_meters import recorded
from tests.standin import ENERGY, USAGE, Standin, built, record, trace_csv


@pytest.fixture
def standin(
    tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Standin:
    return Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)


def wandering(seed: int) -> tuple[Any, Any, Any, Any]:
    """Times in s, power in W, temperature, clock of an uneven load."""
    rng = np.random.default_rng(seed)
    time = np.cumsum(rng.uniform(0.001, 0.05, 300))
    power = rng.uniform(50.0, 280.0, 300)
    return time, power, rng.uniform(40.0, 60.0, 300), np.full(300, 1200.0)


@pytest.mark.parametrize(
    ("counter", "usage", "period", "phase", "window"),
    [("full", "average", 0.1, 0.037, 0.1), ("part", "instant", 0.101, 0.0, 0.025)],
)
def test_replay_and_stand_in_agree_on_every_reading(
    standin: Standin,
    counter: Any,
    usage: Any,
    period: float,
    phase: float,
    window: float,
) -> None:
    columns = wandering(3)
    trace = trace_csv(standin.folder / "wandering.csv", *columns)
    shared = {"counter": counter, "usage": usage}
    board = record(
        "device",
        trace=trace,
        period_ms=1e3 * period,
        phase_ms=1e3 * phase,
        window_ms=1e3 * window,
        counter0_mj=123456,
        throttle_fields=74,
        throttle_from_s=1.5,
        throttle_to_s=2.5,
        **shared,
    )
    wrong = [
        record("fault", kind="reset", call=ENERGY, t0_s=3.3, value=5000),
        record("fault", kind="freeze", call=USAGE, t0_s=4.0, t1_s=5.0),
        record("fault", kind="scale", call="field:186", t0_s=2.0, t1_s=3.0, value=0.5),
        record("fault", kind="set", call="field:185", t0_s=1, t1_s=2, value=77000),
    ]
    found = standin.run(reads.every_update, [board, *wrong])
    meter = ReplayMeter(
        ReplayBoard(
            Recording.from_csv(trace),
            period=period,
            phase=phase,
            reading_window=window,
            counter_start=123.456,
            throttled=((1.5, 2.5),),
            faults=(
                Fault("reset", 3.3, call="counter", value=5.0),
                Fault("freeze", 4.0, 5.0, "power_usage"),
                Fault("scale", 2.0, 3.0, "power_instant", 0.5),
                Fault("set", 1.0, 2.0, "power_average", 77.0),
            ),
            **shared,
        )
    )
    for k in range(60):
        meter.sleep(0.137 * k - meter.now())
        for source in ("counter", "power_instant", "power_average", "power_usage"):
            # Each rounds to a whole mJ or mW.
            assert meter.read(source).value == pytest.approx(
                found[source][k], abs=1.1e-3
            ), (source, k)
        assert meter.temperature().value == found["temperature"][k]
        assert meter.throttled().value == pytest.approx(found["throttled"][k])
    assert len(set(found["counter"])) > 40


def test_a_full_counter_is_the_integral_at_each_update() -> None:
    recording = Recording(*wandering(4))
    meter = ReplayMeter(ReplayBoard(recording, period=0.02, phase=0.013))
    for t in np.linspace(0.05, 6.0, 40):
        meter.sleep(float(t) - meter.now())
        at = 0.013 + 0.02 * np.floor((t - 0.013) / 0.02)
        first = 0.013 - 0.02
        truth = float(recording.energy(at) - recording.energy(first))
        assert meter.read("counter").value == pytest.approx(truth, abs=1e-3)


def test_a_part_time_counter_takes_its_window_for_the_whole_period() -> None:
    # 25 ms before each update at 300 W, the other 75 ms at 100 W.
    time = np.sort(np.concatenate([0.1 * np.arange(100), 0.1 * np.arange(100) + 0.075]))
    time = np.sort(np.concatenate([time, time[1:] - 1e-7]))
    power = np.where((time + 2e-8) % 0.1 < 0.075 - 5e-8, 100.0, 300.0)
    recording = recorded(time.tolist(), power.tolist())
    board = {"reading_window": 0.025, "counter": "part"}
    part = ReplayMeter(ReplayBoard(recording, **board))  # type: ignore[arg-type]
    full = ReplayMeter(ReplayBoard(recording))
    for meter in (part, full):
        meter.sleep(5.0)
    assert part.read("counter").value == pytest.approx(1500.0, rel=1e-4)
    assert full.read("counter").value == pytest.approx(750.0, rel=1e-4)
    # After its end the last power goes on: 20 s of it.
    start = part.read("counter").value
    part.sleep(20.0)
    rest = 300.0 * 15.1 + 1500.0 - 75.0 * 0.3
    assert part.read("counter").value - start == pytest.approx(rest, rel=0.01)


def test_averages_lag_behind_a_step() -> None:
    step = recorded([0.0, 2.0, 2.000001, 9.0], [60.0, 60.0, 300.0, 300.0])
    meter = ReplayMeter(ReplayBoard(step))
    meter.sleep(2.2)
    assert meter.read("power_average").value == pytest.approx(108.0, abs=0.01)
    assert meter.read("power_usage").value == pytest.approx(108.0, abs=0.01)
    assert meter.read("power_instant").value == pytest.approx(300.0, abs=0.01)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (3, faults.NotSupportedError),
        (15, faults.DeviceLostError),
        (27, faults.NotReadyError),
        (999, faults.InstrumentError),
    ],
)
def test_errors_come_for_their_time_and_call(code: int, kind: type[Exception]) -> None:
    recording = recorded([0.0, 9.0], [200.0, 200.0])
    fault = Fault("error", 1.0, 2.0, "counter", code)
    meter = ReplayMeter(ReplayBoard(recording, faults=(fault,)))
    meter.read("counter")
    meter.sleep(1.0)
    with pytest.raises(kind, match=r"GPU-00000000.*counter"):
        meter.read("counter")
    assert meter.read("power_instant").value == 200.0
    meter.sleep(1.0)
    assert meter.read("counter").value == 400.0


def test_a_loss_ends_with_a_new_handle() -> None:
    recording = recorded([0.0, 9.0], [200.0, 200.0])
    board = ReplayBoard(recording, faults=(Fault("lost", 1.0, 2.0),))
    meter = ReplayMeter(board)
    meter.sleep(3.0)
    # Gone and back between two readings: that is seen, once.
    with pytest.raises(faults.DeviceLostError):
        meter.temperature()
    assert meter.temperature().value == 40.0
    again = ReplayMeter(board)
    again.sleep(1.5)
    for _ in range(2):
        with pytest.raises(faults.DeviceLostError):
            again.read("counter")
    again.sleep(0.5)
    assert again.read("counter").value == 400.0


def test_what_is_not_there_is_not_supported() -> None:
    recording = recorded([0.0, 9.0], [200.0, 200.0])
    board = ReplayBoard(recording, counter="none", averaging=0.0, throttled=None)
    meter = ReplayMeter(board)
    for call in (
        lambda: meter.read("counter"),
        lambda: meter.read("power_average"),
        lambda: meter.read("power_samples"),
        lambda: meter.read("power_instant", "module"),
        lambda: meter.read("power_instant", "memory"),
        meter.throttled,
    ):
        with pytest.raises(faults.NotSupportedError):
            call()
    with pytest.raises(InputError, match="expected one of counter"):
        meter.read("watts")  # type: ignore[arg-type]


def test_power_above_the_limit_is_out_of_range() -> None:
    board = ReplayBoard(recorded([0.0, 9.0], [500.0, 500.0]), power_limit=300.0)
    with pytest.raises(faults.OutOfRangeError, match=r"500 W, expected 0 to 450 W"):
        ReplayMeter(board).read("power_usage")


def test_a_module_counts_its_cpu() -> None:
    board = ReplayBoard(recorded([0.0, 9.0], [200.0, 200.0]), cpu_power=50.0)
    meter = ReplayMeter(board)
    meter.sleep(2.0)
    assert meter.read("counter", "module").value == pytest.approx(500.0)
    assert meter.read("power_instant", "gpu").value == 200.0
    assert meter.read("power_instant", "module").value == 250.0
    with pytest.raises(faults.NotSupportedError, match="scopes are never mixed"):
        meter.read("counter")


def test_a_call_takes_its_time() -> None:
    board = ReplayBoard(recorded([0.0, 9.0], [200.0, 200.0]))
    meter = ReplayMeter(board, call_cost=0.35)
    reading = meter.read("counter")
    assert (reading.before, reading.after) == (0.0, pytest.approx(0.35))


def test_copies_share_their_clock_and_go_on_from_there() -> None:
    board = ReplayBoard(recorded([0.0, 9.0], [200.0, 200.0]))
    clock = VirtualClock(5.0)
    pair = [ReplayMeter(board, clock), ReplayMeter(board, clock)]
    clock.sleep(1.0)
    first, second = pickle.loads(pickle.dumps(pair))
    first.sleep(2.0)
    assert second.read("counter").value == 600.0
    assert pair[0].read("counter").value == 200.0
    assert copy.deepcopy(pair[0]).now() == 6.0


def test_a_replay_in_real_time_runs_on_the_host_s_clock(tmp_path: pathlib.Path) -> None:
    path = trace_csv(tmp_path / "t.csv", [0.0, 9.0], [200.0, 200.0], [50.2, 51.0])
    meter = ReplayMeter.from_csv(path, real_time=True, period=0.01)
    assert not meter.virtual
    assert meter.temperature().value == 50.0
    before, reading, after = HostClock().now(), meter.read("counter"), HostClock().now()
    assert before <= reading.before <= reading.after <= after
    highest = 200.0 * (reading.after - meter._origin)
    lowest = 200.0 * (reading.before - 0.01 - meter._origin)
    assert lowest - 1e-3 <= reading.value <= highest + 1e-3


# --- recordings ----------------------------------------------------------------------


def test_energy_of_a_recording_is_its_trapezoid() -> None:
    time, power, _, _ = wandering(5)
    recording = Recording(time, power)
    whole = float(np.trapezoid(power, time))
    assert float(recording.energy(time[-1])) == pytest.approx(whole)
    assert float(recording.energy(time[-1] + 2.0)) == pytest.approx(
        whole + 2.0 * power[-1]
    )
    assert float(recording.energy(time[0] - 2.0)) == pytest.approx(-2.0 * power[0])
    middle = 0.5 * (time[7] + time[8])
    part = np.trapezoid([*power[:8], 0.5 * (power[7] + power[8])], [*time[:8], middle])
    assert float(recording.energy(middle)) == pytest.approx(float(part))
    assert float(recording.mean(middle, 0.0)) == pytest.approx(
        0.5 * (power[7] + power[8])
    )


def test_a_repeated_recording_repeats_its_energy() -> None:
    time, power, temperature, clock = wandering(6)
    recording = Recording(time, power, temperature, clock)
    many = recording.repeated(3)
    span = many.time[time.size] - time[0]
    for k, t in itertools.product(range(3), time[::50]):
        assert float(np.interp(t + k * span, many.time, many.power)) == pytest.approx(
            float(np.interp(t, time, power))
        )
    assert many.temperature_at(float(time[10] + span)) == temperature[10]
    with pytest.raises(ValueError, match="read-only"):
        many.power[0] = 1.0


@pytest.mark.parametrize(
    ("time", "power", "says"),
    [
        ([], [], "at least one"),
        ([0.0, 1.0], [1.0], "power has shape"),
        ([0.0, np.nan], [1.0, 1.0], r"time\[1\] is nan"),
        ([0.0, 0.0], [1.0, 1.0], r"time\[1\] is 0 s"),
        ([0.0, 1.0], [1.0, -2.0], r"power\[1\] is -2 W"),
    ],
)
def test_bad_recordings_are_refused(time: Any, power: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Recording(time, power)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "columns are none"),
        ("time,power\n0,1\n", "columns are time, power"),
        ("t_s,power_w\n0,1\n1,N/A\n", "line 3: power_w is 'N/A'"),
        ("t_s,power_w\n0,1\n1\n", "line 3: power_w is 'nothing'"),
    ],
)
def test_bad_files_are_refused_by_line(
    tmp_path: pathlib.Path, text: str, says: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        Recording.from_csv(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


def test_columns_are_read_by_name(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("sm_mhz, power_w, other, t_s\n900,100,x,0\n901,200,y,1\n")
    recording = Recording.from_csv(path)
    assert float(recording.energy(1.0)) == 150.0
    assert recording.sm_clock_mhz_at(1.0) == 901.0
    assert recording.temperature_at(1.0) == 40.0


def test_bad_sensors_and_faults_are_refused() -> None:
    recording = recorded([0.0], [1.0])
    with pytest.raises(InputError, match="period is 0"):
        ReplayBoard(recording, period=0.0)
    with pytest.raises(InputError, match="counter is 'some'"):
        ReplayBoard(recording, counter="some")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="usage is 'x'"):
        ReplayBoard(recording, usage="x")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="kind is 'gone'"):
        Fault("gone", 0.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected an end after the start"):
        Fault("error", 2.0, 1.0)
    with pytest.raises(InputError, match="sleep of -1"):
        VirtualClock().sleep(-1.0)
