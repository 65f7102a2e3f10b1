"""The real pynvml against the stand-in: what goes wrong with boards and drivers."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from probcalc.measurement import faults
from probcalc.measurement.clock import offset_among
from probcalc.measurement.drivererrors import driver_error
from probcalc.measurement.meter import SOURCES
from tests import standin_reads as reads
from tests.standin import ENERGY, USAGE, Standin, built, real_clock, record


@pytest.fixture
def standin(
    tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Standin:
    return Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)


# --- what a board is -----------------------------------------------------------------


def test_boards_are_found_by_uuid_and_pci_id_and_tell_their_facts(
    standin: Standin,
) -> None:
    trace = standin.constant(200)
    found = standin.run(
        reads.described,
        [
            record("device", uuid="GPU-a", trace=trace),
            record("device", uuid="GPU-b", trace=trace, pids="7,5", limit_mw=400000),
        ],
    )
    assert found["names"] == ["GPU-a", "GPU-b"]
    assert found["by_pci"] == found["pickled"] == "GPU-b"
    assert found["driver"] == "999.1"
    assert found["limit"] == 400.0
    assert found["processes"] == [5, 7]
    assert found["facts"] == {
        "vbios": "00.01.02.03.04",
        "architecture": "Ampere",
        "compute_capability": "8.0",
        "ecc": True,
        "persistence": True,
        "sm_clock_mhz": 1410,
        "memory_clock_mhz": 1215,
        "largest_sm_clock_mhz": 1410,
        "largest_memory_clock_mhz": 1215,
        "default_power_limit": 400.0,
        "power_limit_range": [200.0, 400.0],
        "module": False,
    }
    assert found["unknown"][0] == "NoDeviceError"
    assert "GPU-nobody" in found["unknown"][1]
    assert found["by_index"] == "GPU-b"
    assert found["too_many"][0] == found["nameless"][0] == "NoDeviceError"
    assert "there are 2 boards" in found["too_many"][1]
    assert "expected a UUID" in found["nameless"][1]


def test_a_missing_driver_is_said(standin: Standin) -> None:
    gone = {"LD_LIBRARY_PATH": "", "PROBCALC_STANDIN": "/nowhere"}
    found = standin.run(reads.enumerated, [], environment=gone)
    assert found[0] == "DriverMissingError"
    assert "not found" in found[1]
    # The library is there, and its driver is not loaded.
    found = standin.run(
        reads.enumerated, [], environment={"PROBCALC_STANDIN": "/nowhere"}
    )
    assert found[0] == "DriverMissingError"
    assert "not loaded" in found[1]


@pytest.mark.parametrize("code", [*range(1, 29), 999, 12345])
def test_every_driver_error_is_typed_and_names_what_was_asked(code: int) -> None:
    error = driver_error(code, "GPU-a: counter")
    assert isinstance(error, faults.InstrumentError)
    assert str(error).startswith("GPU-a: counter: ")
    assert "\n" not in str(error)
    lost = isinstance(error, faults.DeviceLostError)
    assert lost == (code in (15, 16))


def test_a_lost_board_does_not_hide_the_others(standin: Standin) -> None:
    trace = standin.constant(200)
    boards = [record("device", uuid=f"GPU-{c}", trace=trace) for c in "abc"]
    fault = record("fault", gpu=1, kind="lost", t0_s=0, t1_s=10)
    found, said = standin.run(reads.left_out, [*boards, fault])
    assert found == [0, 2]
    assert len(said) == 1
    assert "board 1" in said[0]


# --- sources and scopes (cases 2, 8, 12, 15) -----------------------------------------


def test_sources_of_an_ordinary_board_cover_the_board(standin: Standin) -> None:
    board = record("device", trace=standin.constant(250), counter0_mj=7000)
    found = standin.run(reads.every_source, [board])
    assert found["counter board"] == pytest.approx(7.0 + 250.0 * 5.0, abs=2e-3)
    for source in SOURCES[1:]:
        assert found[f"{source} board"] == 250.0
    assert found["temperature"] == 40.0
    others = {
        value
        for key, value in found.items()
        if key.endswith((" gpu", " module", " memory"))
    }
    assert others == {"NotSupportedError"}


def test_a_module_has_its_own_scopes_that_are_never_mixed(standin: Standin) -> None:
    board = record(
        "device", trace=standin.constant(250), module_mw=80000, counter0_mj=0
    )
    found = standin.run(reads.every_source, [board])
    assert found["facts"]["module"] is True
    assert found["facts"]["usage_scope"] == "gpu"
    assert found["facts"]["module_power_limit"] == 460.0
    assert found["counter module"] == pytest.approx(330.0 * 5.0, abs=2e-3)
    assert found["power_instant gpu"] == 250.0
    assert found["power_instant module"] == 330.0
    assert found["power_usage gpu"] == 250.0
    for refused in ("counter board", "power_instant board", "power_usage module"):
        assert found[refused] == "NotSupportedError"


def test_one_field_that_fails_is_seen_though_the_call_succeeds(
    standin: Standin,
) -> None:
    board = record("device", trace=standin.constant(250), average_ms=0)
    fault = record("fault", call="field:186", kind="error", value=27)
    found = standin.run(reads.every_source, [board, fault])
    assert found["power_instant board"] == "NotReadyError"
    assert found["power_average board"] == "NotSupportedError"
    assert found["power_usage board"] == pytest.approx(250.0)


def test_not_ready_at_the_counter_alone_leaves_the_rest(standin: Standin) -> None:
    board = record("device", trace=standin.constant(250))
    fault = record("fault", call=ENERGY, kind="error", value=27)
    kind, message, power, temperature = standin.run(
        reads.counter_not_ready, [board, fault]
    )
    assert kind == "NotReadyError"
    assert "try later" in message
    assert (power, temperature) == (250.0, 40.0)


def test_a_board_that_answers_no_query_has_no_energy_source(standin: Standin) -> None:
    board = record("device", trace=standin.constant(5), answers="identity")
    found = standin.run(reads.nothing_answers, [board])
    assert found[0] == found[2] == "NoSourceError"
    assert "no energy source" in found[1]
    # Where not even the name is told, opening it says so.
    board = record("device", trace=standin.constant(5), answers="none")
    found = standin.run(reads.enumerated, [board])
    assert found[0] == "NoSourceError"
    assert "no energy source" in found[1]


# --- readings that cannot be (cases 9, 10, 11, 14) -----------------------------------


def test_power_far_above_the_limit_is_missing(standin: Standin) -> None:
    board = record("device", trace=standin.constant(250), limit_mw=300000)
    fault = record("fault", call=USAGE, kind="set", value=3700000, t0_s=1.0, t1_s=1.99)
    kind, message, trace = standin.run(reads.power_too_high, [board, fault])
    assert kind == "OutOfRangeError"
    assert "3700 W, expected 0 to 450 W" in message
    assert set(trace["value"]) == {250.0}
    assert len(trace["value"]) == 40
    assert len(trace["missing"]) == 20


def test_samples_are_stamped_with_our_clock(standin: Standin) -> None:
    # 60 W, then 300 W from 2 s on; samples of 20 ms, 100 of them kept.
    trace = standin.steps((60.0, 2.0), (300.0, 10.0))
    board = record("device", trace=trace, sample_base_us=5_000_000_000_000)
    found = standin.run(reads.sample_buffer, [board])
    before = np.array(found["first"]["before"])
    assert before.size == 100
    assert np.allclose(np.diff(before), 0.02)
    # At most the 5 ms by which the newest sample was old, never later than the call.
    assert 3.000 <= before[-1] <= 3.005 + 1e-9
    step = before[int(np.argmax(np.array(found["first"]["value"]) > 200.0))]
    assert step == pytest.approx(2.02, abs=0.006)
    # The second call saw a fresher one: the offset got better, and none comes twice.
    later = np.array(found["later"]["before"])
    assert later[0] > before[-1]
    # A third call, 19 ms after its newest sample, does not make it worse.
    assert found["newest"] == pytest.approx(3.6, abs=1e-6)


def test_samples_stamped_with_the_boot_clock_need_no_guess(standin: Standin) -> None:
    board = record("device", trace=standin.constant(99), sample_base_us=-1)
    late, count = standin.run(
        reads.samples_of_the_boot_clock, [board], clock=real_clock()
    )
    assert -60.0 < late <= 0.0
    assert count > 0


def test_only_a_clock_that_fits_the_stamps_is_taken() -> None:
    boot, wall = -3600.0, -1.77e9
    assert offset_among([boot, wall], newest=3604.9, now=5.0) == boot
    assert offset_among([boot, wall], newest=1.77e9 + 4.9, now=5.0) == wall
    # A clock of the driver's own, and one that would be in the future.
    assert offset_among([boot, wall], newest=5.0e6, now=5.0) is None
    assert offset_among([boot, wall], newest=3605.1, now=5.0) is None


def test_the_lag_of_averaged_power_is_seen(standin: Standin) -> None:
    trace = standin.steps((60.0, 2.0), (300.0, 10.0))
    found = standin.run(reads.averaged_step, [record("device", trace=trace)])
    assert (
        found["power_usage"] == found["power_average"] == pytest.approx(108.0, abs=1e-2)
    )
    assert found["power_instant"] == 300.0


def test_a_lost_board_is_read_again_by_uuid(standin: Standin) -> None:
    board = record("device", uuid="GPU-lost", trace=standin.constant(200))
    fault = record("fault", kind="lost", t0_s=8.0, t1_s=8.5)
    found = standin.run(reads.through_ten_seconds, [board, fault])
    # Every poll of the half second; the handle is taken anew at the next.
    missing = found["counter"]["missing"]
    assert [before for before, _, _ in missing] == pytest.approx(
        np.arange(8.0, 8.475, 0.05).tolist()
    )
    assert all("GPU-lost" in reason for _, _, reason in missing)
    before = np.array(found["counter"]["before"])
    assert before[-1] == pytest.approx(10.0)
    assert np.diff(before).max() == pytest.approx(0.55)


def test_a_loss_between_two_polls_is_not_hidden(standin: Standin) -> None:
    board = record("device", trace=standin.constant(200))
    fault = record("fault", kind="lost", t0_s=8.0, t1_s=8.5)
    found = standin.run(reads.loss_between_polls, [board, fault])
    assert found == ["DeviceLostError", "nothing"]


# --- throttling ----------------------------------------------------------------------


def test_throttle_time_is_read_in_seconds(standin: Standin) -> None:
    board = record(
        "device",
        trace=standin.constant(200),
        throttle_fields="74,270",
        throttle_from_s=3,
        throttle_to_s=5,
    )
    # A reason that fails later is no zero: the sum would fall.
    fault = record("fault", call="field:74", kind="error", value=3, t0_s=10)
    found = standin.run(reads.throttle_times, [board, fault])
    assert found[:3] == [0.0, pytest.approx(0.5), pytest.approx(2.0)]
    assert found[3] == "NotSupportedError"
    assert "field 74" in found[4]


def test_throttle_time_that_no_field_tells_is_refused(standin: Standin) -> None:
    board = record("device", trace=standin.constant(200))
    assert standin.run(reads.throttle_refused, [board])[0] == "NotSupportedError"


# --- imports --------------------------------------------------------------------------


def test_instruments_import_neither_the_driver_nor_anything_heavy() -> None:
    names = "boards nvml polling probe recording records replay sampler visible"
    lines = [f"import probcalc.measurement.{name}" for name in names.split()]
    script = "; ".join([*lines, "import sys", "print(*sys.modules)"])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"pynvml", "jax", "numba", "scipy", "pint", "matplotlib", "xarray", "arviz"}
    assert not heavy & set(done.stdout.split())
