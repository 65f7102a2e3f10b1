"""What the probe finds out: sources that move, update periods, averaging."""

from __future__ import annotations

import csv
import datetime
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.measurement import faults
from probcalc.measurement.clock import HostClock
from probcalc.measurement.meter import Device, Trace
from probcalc.measurement.probe import Probe, probe
from probcalc.measurement.recording import Recording
from probcalc.measurement.replay import Fault, ReplayBoard, ReplayMeter
from probcalc.measurement.sensors import averaging_of, known_averaging, known_window
from probcalc.measurement.updates import period_of
from tests import standin_reads as reads
from tests.odd_meters import recorded
from tests.standin import ENERGY, Standin, built, record, trace_csv


@pytest.fixture
def standin(
    tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Standin:
    return Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)


def uneven(seed: int = 1, length: float = 15.0) -> tuple[Any, Any]:
    """Times in s and power in W of a load that changes all the time."""
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, length, 0.05)
    return t, rng.uniform(60.0, 280.0, t.size)


def nvidia_smi(path: pathlib.Path, column: str) -> Trace:
    """One column of a log of nvidia-smi, whose last line may be cut off."""
    with path.open(newline="") as file:
        rows = csv.reader(file)
        place = [name.strip() for name in next(rows)].index(column)
        kept = []
        for row in rows:
            if len(row) > place and row[place].strip()[:1].isdigit():
                stamp = datetime.datetime.strptime(
                    row[0].strip(), "%Y/%m/%d %H:%M:%S.%f"
                ).replace(tzinfo=datetime.UTC)
                kept.append((stamp.timestamp(), float(row[place])))
    t, w = np.array(kept).T
    return Trace(t, w, t, "power_instant")


# --- update periods ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "column", "period"),
    [
        ("nvml/gpu_power_benchmark/5050__3090__gpudata.csv", "instant", 0.100),
        ("nvml/gpu_power_benchmark/5050__3090__gpudata.csv", "average", 0.100),
        (
            "energy/nvml_vs_external_meter/Transient_Response_3090_TR/gpudata.csv",
            "instant",
            0.100,
        ),
        (
            "nvml/gpu_power_benchmark/pwr_update_freq__A100_gpudata.csv",
            "instant",
            0.101,
        ),
        ("nvml/gpu_power_benchmark/5050__A100__gpudata.csv", "instant", 0.101),
        (
            "energy/nvml_vs_external_meter/update_rate_A100_gpudata.csv",
            "instant",
            0.101,
        ),
        (
            "nvml/gpu_power_benchmark/pwr_update_freq__V100_gpudata.csv",
            "instant",
            0.020,
        ),
    ],
)
def test_update_periods_of_real_boards(
    shared_data: Callable[[str], pathlib.Path], name: str, column: str, period: float
) -> None:
    trace = nvidia_smi(shared_data(name), f"power.draw.{column} [W]")
    assert period_of(trace) == pytest.approx(period, rel=0.02)


@pytest.mark.parametrize("source", ["counter", "power_instant"])
@pytest.mark.parametrize("period", [0.02, 0.0701, 0.101])
def test_update_periods_of_replayed_boards(source: Any, period: float) -> None:
    board = ReplayBoard(Recording(*uneven()), period=period, phase=0.003)
    found = probe(ReplayMeter(board), duration=4.0).source(source)
    assert found is not None
    assert found.period == pytest.approx(period, rel=0.005)
    assert found.changes == pytest.approx(4.0 / period, abs=2.0)


def test_thirty_changes_are_needed() -> None:
    board = ReplayBoard(Recording(*uneven()))
    few = probe(ReplayMeter(board), duration=2.9).source("counter")
    enough = probe(ReplayMeter(board), duration=3.3).source("counter")
    assert few is not None
    assert few.period is None
    assert few.period_note == "unknown: 29 changes, more than 30 needed"
    assert enough is not None
    assert enough.period == pytest.approx(0.1, rel=0.01)


def test_polls_too_far_apart_do_not_show_themselves_as_updates() -> None:
    board = ReplayBoard(Recording(*uneven()), period=0.02)
    found = probe(ReplayMeter(board), duration=5.0, interval=0.05).source("counter")
    assert found is not None
    assert found.changes > 90
    assert found.period is None
    assert found.period_note == "unknown: polls 0.05 s apart show themselves"


# --- averaging -----------------------------------------------------------------------


def test_the_averaging_of_a_real_board_is_found(
    shared_data: Callable[[str], pathlib.Path],
) -> None:
    path = shared_data("nvml/gpu_power_benchmark/5050__3090__gpudata.csv")
    traces = [nvidia_smi(path, f"power.draw.{k} [W]") for k in ("average", "instant")]
    assert averaging_of(*traces) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("averaging", [0.5, 1.0])
def test_the_averaging_of_a_replayed_board_is_found(averaging: float) -> None:
    board = ReplayBoard(Recording(*uneven()), averaging=averaging)
    found = probe(ReplayMeter(board), duration=12.0)
    for source in ("power_average", "power_usage"):
        one = found.source(source)  # type: ignore[arg-type]
        assert one is not None
        assert one.averaging_from == "measured"
        assert one.averaging == pytest.approx(averaging, abs=0.1)
    instant = found.source("power_instant")
    assert instant is not None
    assert (instant.averaging, instant.averaging_from) == (0.0, "published")


def test_without_a_varying_load_averaging_is_only_published() -> None:
    board = ReplayBoard(
        recorded([0.0, 20.0], [200.0, 201.0]),
        facts={"architecture": "Ampere", "compute_capability": "8.6"},
    )
    found = probe(ReplayMeter(board), duration=8.0).source("power_usage")
    assert found is not None
    assert (found.averaging, found.averaging_from) == (1.0, "published")


@pytest.mark.parametrize(
    ("architecture", "capability", "averaging", "part"),
    [
        ("Volta", "7.0", 0.0, 0.5),
        ("Turing", "7.5", 0.0, 1.0),
        ("Ampere", "8.0", 0.0, 0.25),
        ("Ampere", "8.6", 1.0, 1.0),
        ("Ada", "8.9", 1.0, 1.0),
        ("Hopper", "9.0", 1.0, 0.25),
        ("Blackwell", "10.0", 1.0, None),
        (None, None, None, None),
    ],
)
def test_what_is_published_of_an_architecture(
    architecture: str | None,
    capability: str | None,
    averaging: float | None,
    part: float | None,
) -> None:
    facts = {"architecture": architecture, "compute_capability": capability}
    device = Device("GPU-a", "", "", 0, "", facts=facts)
    assert known_averaging(device, "power_usage") == averaging
    assert known_averaging(device, "power_average") == 1.0
    window = known_window(device, "power_instant", 0.1)
    assert window == (None if part is None else pytest.approx(0.1 * part))
    assert known_window(device, "power_instant", None) is None
    assert known_window(device, "power_average", 0.1) is None


# --- what answers and moves ----------------------------------------------------------


def test_the_probe_through_pynvml(standin: Standin) -> None:
    trace = trace_csv(standin.folder / "uneven.csv", *uneven())
    board = record("device", trace=trace, period_ms=101, counter="part", window_ms=25)
    wrong = [
        record("fault", kind="freeze", call=ENERGY, t0_s=0),
        record("fault", kind="error", call="field:185", value=3),
    ]
    found = standin.run(reads.probed, [board, *wrong])
    sources = {(s["source"], s["scope"]): s for s in found["probe"]["sources"]}
    counter = sources["counter", "board"]
    assert counter["answers"]
    assert not counter["moves"]
    assert counter["reason"] == "source does not move"
    average = sources["power_average", "board"]
    assert not average["answers"]
    assert "does not answer" in average["reason"]
    instant = sources["power_instant", "board"]
    assert instant["moves"]
    assert instant["reason"] is None
    assert instant["period"] == pytest.approx(0.101, rel=0.005)
    assert instant["reading_window"] == pytest.approx(0.02525, rel=0.005)
    samples = sources["power_samples", "board"]
    assert samples["period"] == pytest.approx(0.02, rel=0.005)
    assert found["usable"][0] == ["power_instant", "board"]
    assert ["counter", "board"] not in found["usable"]
    device = found["probe"]["device"]
    assert device["driver"] == "999.1"
    assert device["power_limit"] == 300.0
    for fact in ("vbios", "ecc", "persistence", "sm_clock_mhz", "compute_capability"):
        assert fact in device["facts"]
    assert found["probe"]["temperature"] == "answers"
    assert "does not answer" in found["probe"]["throttled"]
    assert "source does not move" in found["text"]
    assert "update period 0.10" in found["text"]
    assert "power limit 300 W" in found["text"]


def test_sources_of_a_module_keep_their_scopes() -> None:
    board = ReplayBoard(Recording(*uneven()), cpu_power=50.0, power_limit=300.0)
    found = probe(ReplayMeter(board), duration=4.0)
    scopes = {(s.source, s.scope) for s in found.usable}
    assert scopes == {
        ("counter", "module"),
        ("power_instant", "module"),
        ("power_instant", "gpu"),
        ("power_average", "module"),
        ("power_average", "gpu"),
        ("power_usage", "gpu"),
    }
    assert found.usable[0].source == "counter"
    assert found.source("counter") is None


def test_failures_are_counted_and_the_rest_is_used() -> None:
    fault = Fault("error", 1.0, 2.0, "counter", 999)
    board = ReplayBoard(Recording(*uneven()), faults=(fault,))
    found = probe(ReplayMeter(board), duration=8.0, interval=0.01).source("counter")
    assert found is not None
    assert found.failures == 100
    assert found.largest_gap == pytest.approx(1.01)
    assert found.period == pytest.approx(0.1, rel=0.01)


def test_a_probe_is_ready_for_json() -> None:
    found = probe(ReplayMeter(ReplayBoard(Recording(*uneven()))), duration=1.0)
    again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert again["sources"][0]["source"] == "counter"
    assert again["device"]["facts"]["replayed"] is True
    assert isinstance(found, Probe)


# --- with a load ---------------------------------------------------------------------


def test_a_load_is_run_meanwhile() -> None:
    ran = []

    def load() -> None:
        time.sleep(0.3)
        ran.append(time.monotonic())

    meter = ReplayMeter(ReplayBoard(Recording(*uneven()), period=0.005), HostClock())
    found = probe(meter, load, duration=0.05, interval=0.001)
    assert len(ran) == 1
    assert found.loaded
    assert found.duration >= 0.3
    counter = found.source("counter")
    assert counter is not None
    assert counter.moves


def test_the_error_of_a_load_is_raised() -> None:
    def load() -> None:
        raise KeyError("the load's own")

    meter = ReplayMeter(ReplayBoard(Recording(*uneven())), HostClock())
    with pytest.raises(KeyError, match="the load's own"):
        probe(meter, load, duration=60.0)


def test_wrong_use_is_refused() -> None:
    meter = ReplayMeter(ReplayBoard(Recording(*uneven())))
    with pytest.raises(InputError, match="leave load out"):
        probe(meter, lambda: None)
    with pytest.raises(InputError, match="duration is 0"):
        probe(meter, duration=0.0)
    with pytest.raises(InputError, match="interval is inf"):
        probe(meter, interval=float("inf"))
    silent = Fault("error", 0.0, value=3)
    board = ReplayBoard(Recording(*uneven()), faults=(silent,))
    with pytest.raises(faults.NoSourceError, match="no energy source"):
        probe(ReplayMeter(board))
