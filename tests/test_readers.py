"""Readers of other tools' files: typed errors by place, nothing dropped in silence."""

from __future__ import annotations

import datetime
import gzip
import json
import pathlib
import pickle
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.measurement.readers import (
    cells,
    codecarbon,
    kareus,
    nvidia_smi,
    perseus,
    pyjoules,
    zeus,
)
from probcalc.measurement.readers.cells import ReaderError
from probcalc.measurement.updates import period_of
from probcalc.measurement.windows import window_energy

Find = Callable[[str], pathlib.Path]
Read = Callable[[pathlib.Path], Any]

SMI = "timestamp, index, power.draw [W], power.draw.instant [W]\n"
ZEUS = "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n"
STAGES = "stage,instruction,frequency,time,energy\n"
SWEEP = (
    "overlap_start,overlap_end,comm_sm_number,comm_block_size,0:time (s),"
    "0:total energy (J),0:rank0 energy (J),0:rank1 energy (J)\n"
)
CARBON = (
    "timestamp,project_name,run_id,duration,emissions,cpu_energy,gpu_energy,"
    "ram_energy,energy_consumed,gpu_model\n"
)
JOULES = "timestamp;tag;duration;package_0;nvidia_gpu_0\n"


def read_smi(path: pathlib.Path) -> nvidia_smi.SmiLog:
    return nvidia_smi.read_log(path, utc_offset="+01:00")


READERS: dict[str, tuple[Read, str]] = {
    "smi": (read_smi, SMI),
    "windows": (zeus.read_windows, ZEUS),
    "stages": (zeus.read_stage_profile, STAGES),
    "sweep": (kareus.read_sweep, SWEEP),
    "carbon": (codecarbon.read_emissions, CARBON),
    "joules": (pyjoules.read_trace, JOULES),
    "profile": (perseus.read_profile, ""),
    "schedule": (perseus.read_schedule, ""),
}


@pytest.fixture
def file(tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    def write(text: str) -> pathlib.Path:
        path = tmp_path / "log.csv"
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write


Write = Callable[[str], pathlib.Path]


def refused(read: Read, path: pathlib.Path) -> ReaderError:
    with pytest.raises(ReaderError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path.name}")
    return caught.value


# ------------------------------------------------------------------------- tables


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_none_are_refused_by_name(
    name: str, file: Write, tmp_path: pathlib.Path
) -> None:
    read, _ = READERS[name]
    assert "cannot be read" in str(refused(read, tmp_path / "none.csv"))
    assert "cannot be read" in str(refused(read, tmp_path))
    refused(read, file(""))
    refused(read, file("a,b\n1,2\n"))
    path = tmp_path / "binary.csv"
    path.write_bytes(b"timestamp\xff\xfe\x00,tag\n")
    refused(read, path)


def test_the_place_of_an_error_is_told(file: Write) -> None:
    error = refused(zeus.read_windows, file(ZEUS + "1,a,2,3,4\n1,b,2,x,4\n"))
    assert (error.file, error.line, error.column) == ("log.csv", 3, "gpu0_energy")
    assert str(error) == (
        "log.csv, line 3, column 'gpu0_energy': 'x' found, expected an energy"
    )
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.column) == (str(error), 3, "gpu0_energy")


def test_lines_are_counted_with_quotes_and_empty_lines(file: Write) -> None:
    text = ZEUS + '\n1,"two\nlines",2,3,4\n1,b,0.5,x,4\n'
    error = refused(zeus.read_windows, file(text))
    assert error.line == 5
    with_quotes = zeus.read_windows(file(ZEUS + '1,"two\nlines",2,3,4\n'))
    assert with_quotes.windows[0].name == "two\nlines"


def test_rows_of_another_width_are_reported(file: Write) -> None:
    found = zeus.read_windows(file(ZEUS + "1,a,2,3\n2,b,2,3,4\n3,c,2,3,4,5\n"))
    assert [w.name for w in found.windows] == ["b"]
    assert [(s.line, s.reason) for s in found.skipped] == [
        (2, "4 values for 5 columns"),
        (4, "6 values for 5 columns"),
    ]
    assert found.skipped[0].text == "1,a,2,3"


@pytest.mark.parametrize("end", ["", "2,b,2,3,4", "2,b,2,3", "2"])
def test_a_last_line_that_is_cut_off_is_reported(end: str, file: Write) -> None:
    found = zeus.read_windows(file(ZEUS + "1,a,2,3,4\n" + end))
    assert [w.name for w in found.windows] == ["a"]
    assert [(s.line, s.text) for s in found.skipped] == ([(3, end)] if end else [])
    assert all("may be cut off" in s.reason for s in found.skipped)


def test_other_encodings_and_packed_files(tmp_path: pathlib.Path) -> None:
    text = ZEUS + "1,µ,2,3,4\n"
    contents = {
        "plain": text.encode(),
        "mark": text.encode("utf-8-sig"),
        "utf16": text.encode("utf-16"),
        "windows": text.replace("\n", "\r\n").encode(),
        "packed": gzip.compress(text.encode()),
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert zeus.read_windows(path).windows[0].name == "µ"


def test_two_columns_of_one_name_are_refused(file: Write) -> None:
    error = refused(zeus.read_windows, file(ZEUS.strip() + ",gpu0_energy\n"))
    assert "two columns 'gpu0_energy'" in str(error)


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "1_0", "٣", "0x10", "1,5"])
def test_what_is_no_number_is_refused(text: str) -> None:
    cell = cells.Cell(text, "f", 2, "c")
    with pytest.raises(ReaderError, match=r"f, line 2, column 'c': .* a number"):
        cell.number()


# --------------------------------------------------------------------------- Zeus


def test_a_counter_that_did_not_move_gives_no_energy(file: Write) -> None:
    rows = "1,a,2,0.0,4\n2,a,2,-5,4\n3,a,2,,N/A\n4,a,2,3.5,4\n5,a,0,3,4\n"
    found = zeus.read_windows(file(ZEUS + rows))
    assert [dict(w.energy) for w in found.windows] == [
        {"gpu0": None, "gpu1": 4.0},
        {"gpu0": None, "gpu1": 4.0},
        {"gpu0": None, "gpu1": None},
        {"gpu0": 3.5, "gpu1": 4.0},
    ]
    assert [(s.line, s.column, s.reason.partition(":")[0]) for s in found.skipped] == [
        (2, "gpu0_energy", "the counter did not move"),
        (3, "gpu0_energy", "the counter was reset"),
        (4, "gpu0_energy", "no value"),
        (4, "gpu1_energy", "no value"),
        (6, "elapsed_time", "duration not above 0 s"),
    ]
    time, energy = found.runs("a")
    assert time.tolist() == [2.0] * 4
    assert np.isnan(energy).tolist() == [True, True, True, False]
    assert found.runs("a", ["gpu1"])[1][0] == 4.0
    with pytest.raises(InputError, match="no window 'b'"):
        found.runs("b")
    with pytest.raises(InputError, match="no device 'gpu2'"):
        found.runs("a", ["gpu2"])


def test_columns_that_are_not_read_are_told(file: Write) -> None:
    header = "start_time,window_name,elapsed_time,gpu0_energy,cpu0_energy,mood\n"
    found = zeus.read_windows(file(header + "1,a,2,3,4,5\n"))
    assert found.devices == ("gpu0", "cpu0")
    assert [(s.column, s.reason) for s in found.skipped] == [
        ("mood", "column not read")
    ]


def test_recorded_windows_are_read(shared_data: Find) -> None:
    path = shared_data("nvml/zeus/profile__A40+resnet50+gpu0,1,2,3.csv")
    found = zeus.read_windows(path)
    assert found.devices == ("gpu0", "gpu1", "gpu2", "gpu3")
    assert len(found.windows) == 9
    assert not found.skipped
    first = found.windows[0]
    assert first.name == "__GlobalPowerLimitOptimizer_300"
    assert first.duration == 8.226085375994444
    assert first.energy["gpu3"] == 1129.594999998808
    powers = [e / w.duration for w in found.windows for e in w.energy.values() if e]
    assert len(powers) == 36
    assert 90.0 < min(powers) < max(powers) < 300.0


def test_recorded_stage_profiles_are_read(shared_data: Find) -> None:
    folder = shared_data("energy/perseus_sosp24/stage_profile")
    found = zeus.read_stage_profile(folder / "gpt3-175b+a40_bf16.csv")
    assert len(found.points) == 8 * 2 * 60
    assert not found.skipped
    first = found.points[0]
    assert (first.stage, first.instruction, first.frequency) == (0, "forward", 1740e6)
    assert first.energy == 33.59392799949646


def test_a_stage_profile_has_each_point_once(file: Write) -> None:
    row = "0,forward,1740,0.1,33.6\n"
    error = refused(zeus.read_stage_profile, file(STAGES + row + row))
    assert (error.line, error.column) == (3, "frequency")
    for bad in ("0.5,forward,1740,0.1,1\n", "0,f,0,0.1,1\n", "0,f,1,0.1,-1\n"):
        refused(zeus.read_stage_profile, file(STAGES + bad))
    found = zeus.read_stage_profile(file(STAGES + "0,f,1740,0.1,\n"))
    assert not found.points
    assert found.skipped[0].reason == "no value: point left out"


# ------------------------------------------------------------------------ Perseus


def profile(**changes: Any) -> list[dict[str, Any]]:
    rank = {
        "rank": 0,
        "iter_time": [2.0, 1.0],
        "iter_energy": [100.0, 50.0],
        "time_breakdown": {"forward": [[0.5, 0.6], [0.5]], "backward": []},
        "energy_breakdown": {"forward": [[], []]},
    }
    return [{**rank, **changes}]


def test_a_profile_is_read_whole(file: Write) -> None:
    found = perseus.read_profile(file(json.dumps(profile())))
    (rank,) = found.ranks
    assert rank.time.tolist() == [2.0, 1.0]
    assert [t.tolist() for t in rank.times["forward"]] == [[0.5, 0.6], [0.5]]
    assert rank.times["backward"] == ()
    assert not rank.time.flags.writeable
    assert [s.column for s in found.skipped] == ["rank 0, energy_breakdown"]
    lost = perseus.read_profile(file(json.dumps(profile(iter_energy=[None, 0.0]))))
    assert np.isnan(lost.ranks[0].energy).all()
    assert len(lost.skipped) == 3


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "ranks: {} found; expected a list"),
        ([], "no ranks, expected at least one"),
        ([1], "entry 0: 1 found; expected a table"),
        ([{}], "entry 0: 'rank' is missing"),
        (profile(rank=1.5), "entry 0, rank: 1.5 found; expected a whole number"),
        (profile(iter_time=[1.0, "x"]), "rank 0, iter_time[1]: 'x' found"),
        (profile(iter_time=[1.0, -1.0]), "rank 0, iter_time[1]: -1.0 found"),
        (profile(iter_energy=[1.0]), "iter_energy: 1 values for 2 iterations"),
        (profile(time_breakdown={"load": [[1.0]]}), "1 lists for 2 iterations"),
        (profile(time_breakdown={"load": [1.0, 2.0]}), "rank 0, load[0]: 1.0 found"),
    ],
)
def test_a_profile_that_is_none_is_refused_by_entry(
    document: Any, said: str, file: Write
) -> None:
    assert said in str(refused(perseus.read_profile, file(json.dumps(document))))


def test_recorded_profiles_and_schedules_are_read(shared_data: Find) -> None:
    folder = shared_data("energy/perseus_sosp24/measured_raw/A100_bert")
    found = perseus.read_profile(folder / "0.prof.json")
    assert [r.rank for r in found.ranks] == [0, 1, 2, 3]
    assert found.ranks[0].time[0] == 9.774812698364258
    assert found.ranks[0].energy[1] == 1773.9340000003576
    assert [len(t) for t in found.ranks[3].times["load"]] == [64] * 30
    assert {s.reason.partition(":")[0] for s in found.skipped} == {"holds no values"}
    clocks = perseus.read_schedule(folder / "0.sched.json")
    assert [(c.rank, c.frequency.size) for c in clocks] == [
        (0, 134),
        (1, 136),
        (2, 134),
        (3, 132),
    ]
    assert float(clocks[0].frequency[0]) == 1410e6


def test_a_schedule_has_clocks_above_zero(file: Write) -> None:
    text = json.dumps([{"rank": 2, "power_states": [1410, 0]}])
    error = refused(perseus.read_schedule, file(text))
    assert "rank 2, power_states[1]: 0 found" in str(error)


# ------------------------------------------------------------------------- Kareus


def test_recorded_sweeps_are_read(shared_data: Find) -> None:
    path = shared_data("energy/kareus/attention_overlap_sweep_default.csv")
    found = kareus.read_sweep(path)
    assert len(found.settings) == 640
    assert not found.skipped
    first = found.settings[0]
    assert first.sequential
    assert dict(first.options)["comm_block_size"] == 512
    assert first.time[0] == 0.011560347686289139
    assert first.rank_energy.shape == (3, 2)
    np.testing.assert_allclose(first.rank_energy.sum(axis=1), first.energy, rtol=1e-9)
    assert sum(s.sequential for s in found.settings) < 640


def test_a_total_is_the_sum_of_its_ranks(file: Write) -> None:
    row = "-1,-1,1,512,0.01,3.0,1.0,1.0\n"
    error = refused(kareus.read_sweep, file(SWEEP + row))
    assert (error.line, error.column) == (2, "0:total energy (J)")
    assert "the sum of its ranks, 2 J" in str(error)
    found = kareus.read_sweep(file(SWEEP + "0,6,1,512,,,1.0,0\n"))
    setting = found.settings[0]
    assert np.isnan(setting.time[0])
    assert np.isnan(setting.energy[0])
    assert np.isnan(setting.rank_energy[0]).tolist() == [False, True]
    assert len(found.skipped) == 3
    assert not setting.sequential


# --------------------------------------------------------------------- nvidia-smi


def test_missing_power_is_missing_and_not_zero(file: Write) -> None:
    rows = (
        "2023/07/08 19:28:27.236, 0, 126.96 W, 126.80 W\n"
        "2023/07/08 19:28:27.336, 0, [N/A], 127.00 W\n"
        "2023/07/08 19:28:27.436, 0, [Not Supported], [GPU requires reset]\n"
        "2023/07/08 19:28:27.536, 0, N/A, -1 W\n"
        "2023/07/08 19:28:27.636, 0, 12"
    )
    found = read_smi(file(SMI.replace(" [W]", "") + rows))
    (board,) = found.boards
    usage, instant = board.traces
    assert (usage.source, instant.source) == ("power_usage", "power_instant")
    assert usage.value.tolist() == [126.96]
    assert [m.reason for m in usage.missing] == [
        "line 3: [N/A]",
        "line 4: [Not Supported]",
        "line 5: N/A",
    ]
    assert instant.value.tolist() == [126.80, 127.0]
    assert [m.reason for m in instant.missing] == [
        "line 4: [GPU requires reset]",
        "line 5: -1 W below 0",
    ]
    (cut,) = found.skipped
    assert (cut.line, cut.text) == (6, "2023/07/08 19:28:27.636,0,12")
    assert "may be cut off" in cut.reason


@pytest.mark.parametrize(
    ("header", "value", "watts"),
    [
        ("power.draw [W]", "126.96 W", 126.96),
        ("power.draw [W]", "126.96", 126.96),
        ("power.draw", "126.96 W", 126.96),
        ("power.draw", "126.96", 126.96),
        ("power.draw [mW]", "126960", 126.96),
        ("power.draw [W]", "126960 mW", 126.96),
    ],
)
def test_units_in_header_or_value_or_nowhere(
    header: str, value: str, watts: float, file: Write
) -> None:
    text = f"timestamp, {header}\n2023/07/08 19:28:27.236, {value}\n"
    (board,) = read_smi(file(text)).boards
    assert board.traces[0].value[0] == pytest.approx(watts, rel=1e-12)


@pytest.mark.parametrize("value", ["12 J", "1 2 3", "W", "12 bananas", "high"])
def test_what_is_no_power_is_refused(value: str, file: Write) -> None:
    error = refused(read_smi, file(SMI + f"2023/07/08 19:28:27.236, 0, {value}, 1\n"))
    assert (error.line, error.column) == (2, "power.draw [W]")
    assert "expected a power such as 126.96" in str(error)


@pytest.mark.parametrize(
    ("offset", "hours"),
    [
        ("+01:00", -1.0),
        ("-05:30", 5.5),
        ("UTC", 0.0),
        (datetime.timezone(datetime.timedelta(hours=9)), -9.0),
        (zoneinfo.ZoneInfo("Europe/London"), -1.0),
    ],
)
def test_local_stamps_become_utc(offset: Any, hours: float, file: Write) -> None:
    path = file(SMI + "2023/07/08 19:28:27.236, 0, 1, 2\n")
    found = nvidia_smi.read_log(path, utc_offset=offset)
    stamp = datetime.datetime(2023, 7, 8, 19, 28, 27, 236000, datetime.UTC)
    time = found.boards[0].traces[0].time[0]
    assert time == pytest.approx(stamp.timestamp() + 3600.0 * hours, abs=1e-6)
    assert any("local time" in note for note in found.notes)


def test_an_offset_must_be_stated(file: Write) -> None:
    path = file(SMI)
    with pytest.raises(TypeError, match="utc_offset"):
        nvidia_smi.read_log(path)  # type: ignore[call-arg]
    for offset in ("", "1", "+1:00", "+25:00", "+01:60", None):
        with pytest.raises(InputError, match=r"expected '\+01:00'"):
            nvidia_smi.read_log(path, utc_offset=offset)  # type: ignore[arg-type]


def test_an_hour_that_occurs_twice_is_refused(file: Write) -> None:
    path = file(SMI + "2023/10/29 01:30:00.000, 0, 1, 2\n")
    zone = zoneinfo.ZoneInfo("Europe/London")
    with pytest.raises(ReaderError, match="clocks were changed") as caught:
        nvidia_smi.read_log(path, utc_offset=zone)
    assert (caught.value.line, caught.value.column) == (2, "timestamp")


def test_boards_are_told_apart_and_a_stamp_may_not_go_back(file: Write) -> None:
    header = "timestamp, uuid, index, name, power.limit [W], power.draw [W], pstate\n"
    rows = (
        "2023/07/08 19:28:27.2, GPU-a, 0, A100, 400.00 W, 60.00 W, P0\n"
        "2023/07/08 19:28:27.3, GPU-b, 1, A100, [N/A], 70.00 W, P0\n"
        "2023/07/08 19:28:28.2, GPU-a, 0, A100, 400.00 W, 61.00 W, P2\n"
        "2023/07/08 19:28:27.9, GPU-a, 0, A100, 400.00 W, 62.00 W, P2\n"
    )
    found = read_smi(file(header + rows))
    assert [b.name for b in found.boards] == ["GPU-a", "GPU-b"]
    a, b = found.boards
    assert a.traces[0].value.tolist() == [60.0, 61.0]
    assert a.other["pstate"] == ("P0", "P2")
    assert a.traces[0].device is not None
    assert a.traces[0].device.power_limit == 400.0
    assert b.traces[0].device is not None
    assert b.traces[0].device.power_limit is None
    assert (b.traces[0].device.uuid, b.traces[0].device.index) == ("GPU-b", 1)
    (back,) = found.skipped
    assert (back.line, back.column) == (5, "timestamp")
    assert back.reason == "stamp goes back by 0.300 s"


def test_a_log_without_header_needs_columns(file: Write) -> None:
    path = file("2023/07/08 19:28:27.236, 126.96\n")
    assert "state columns=" in str(refused(read_smi, path))
    names = ["timestamp", "module.power.draw.instant"]
    found = nvidia_smi.read_log(path, utc_offset="UTC", columns=names)
    assert found.boards[0].traces[0].scope == "module"
    assert found.boards[0].traces[0].value.tolist() == [126.96]
    only = file("timestamp, pstate\n2023/07/08 19:28:27.236, P0\n")
    assert "no column of power" in str(refused(read_smi, only))


@pytest.mark.parametrize(
    ("name", "source", "period"),
    [("A100", "power_instant", 0.101), ("V100", "power_instant", 0.020)],
)
def test_recorded_logs_show_the_update_period(
    name: str, source: str, period: float, shared_data: Find
) -> None:
    folder = shared_data("nvml/gpu_power_benchmark")
    found = read_smi(folder / f"pwr_update_freq__{name}_gpudata.csv")
    (board,) = found.boards
    assert not found.skipped
    (trace,) = [t for t in board.traces if t.source == source]
    assert not trace.missing
    assert period_of(trace) == pytest.approx(period, rel=0.02)
    assert len(board.other["clocks.current.sm [MHz]"]) == len(trace)


def test_a_recorded_log_gives_windows_of_energy(shared_data: Find) -> None:
    path = shared_data("nvml/gpu_power_benchmark/5050__3090__gpudata.csv")
    found = read_smi(path)
    trace = next(t for t in found.boards[0].traces if t.source == "power_instant")
    stamp = datetime.datetime(2023, 7, 8, 18, 28, 27, 236000, datetime.UTC)
    assert trace.time[0] == pytest.approx(stamp.timestamp(), abs=1e-6)
    start = float(trace.time[0]) + 3.0
    window = window_energy(trace, start, start + 5.0)
    assert window.power is not None
    assert 125.0 < window.power < 350.0


# --------------------------------------------------------------------- CodeCarbon

CARBON_ROW = "2024-05-01T10:00:00,p,r1,3600,0.1,0.1,0.25,0.05,0.4,1 x A100\n"


def test_kilowatt_hours_become_joules(file: Write) -> None:
    found = codecarbon.read_emissions(file(CARBON + CARBON_ROW))
    (row,) = found.rows
    assert row.duration == 3600.0
    assert row.energy == pytest.approx(0.4 * 3.6e6, rel=1e-12)
    assert row.parts["gpu"] == pytest.approx(9e5, rel=1e-12)
    assert row.other["gpu_model"] == "1 x A100"
    assert row.other["timestamp"] == "2024-05-01T10:00:00"
    assert not found.skipped
    assert not found.notes


def test_what_was_not_measured_is_missing(file: Write) -> None:
    row = "2024-05-01T10:00:00,p,r1,10,0.1,0.1,0,0.05,0.15,\n"
    found = codecarbon.read_emissions(file(CARBON + row))
    assert found.rows[0].parts["gpu"] is None
    (skipped,) = found.skipped
    assert (skipped.line, skipped.column) == (2, "gpu_energy")
    assert skipped.reason == "0 kWh: not measured, missing"
    nothing = codecarbon.read_emissions(file(CARBON + "t,p,r,10,0,0,0,0,0,\n"))
    assert nothing.rows[0].energy is None
    assert len(nothing.skipped) == 4


def test_rows_that_lost_their_empty_columns_are_not_guessed_at(file: Write) -> None:
    short = "2024-05-01T10:00:00,p,r2,10,0.1,0.1,0.05,0.15\n"
    found = codecarbon.read_emissions(file(CARBON + CARBON_ROW + short))
    assert len(found.rows) == 1
    assert found.skipped[0].line == 3
    assert found.skipped[0].reason == "8 values for 10 columns"


def test_totals_of_one_run_are_not_to_be_added_up(file: Write) -> None:
    later = CARBON_ROW.replace("3600", "7200").replace("0.4,1", "0.9,1")
    found = codecarbon.read_emissions(file(CARBON + CARBON_ROW + later))
    assert len(found.rows) == 2
    parts, repeated = found.notes
    assert "line 3: energy_consumed is 3.24e+06 J, its parts add up to" in parts
    assert "run_id r1: 2 rows, each a total since its start" in repeated


def test_emissions_without_energy_are_refused(file: Write) -> None:
    error = refused(codecarbon.read_emissions, file("timestamp,duration\nt,1\n"))
    assert "no column 'energy_consumed'" in str(error)
    negative = CARBON_ROW.replace("0.25", "-0.25")
    error = refused(codecarbon.read_emissions, file(CARBON + negative))
    assert (error.line, error.column) == (2, "gpu_energy")


# ----------------------------------------------------------------------- pyJoules

# From the tool's issue 32: a GPU of 51 W whose energy reads 0.19 J in uJ.
ISSUE = "1675697491.336882;foo;3.7640533447265625;153976351.0;192276\n"


def test_energies_that_no_board_draws_are_asked_about(file: Write) -> None:
    error = refused(pyjoules.read_trace, file(JOULES + ISSUE))
    assert (error.line, error.column) == (2, "nvidia_gpu_0")
    assert "0.0511 W if in uJ, 51.1 W if in mJ" in str(error)
    assert "mJ is likely: in which unit was it written? State gpu_unit=" in str(error)


def test_a_stated_unit_is_taken(file: Write) -> None:
    found = pyjoules.read_trace(file(JOULES + ISSUE), gpu_unit="mJ")
    (sample,) = found.samples
    assert found.gpu_unit == "mJ"
    assert sample.energy["nvidia_gpu_0"] == pytest.approx(192.276, rel=1e-12)
    assert sample.energy["package_0"] == pytest.approx(153.976351, rel=1e-12)
    assert (sample.tag, sample.start) == ("foo", 1675697491.336882)
    as_said = pyjoules.read_trace(file(JOULES + ISSUE), gpu_unit="uJ")
    assert as_said.samples[0].energy["nvidia_gpu_0"] == pytest.approx(0.192276)
    with pytest.raises(InputError, match="gpu_unit is 'kJ'"):
        pyjoules.read_trace(file(JOULES + ISSUE), gpu_unit="kJ")  # type: ignore[arg-type]


def test_microjoules_that_are_plausible_are_read_as_documented(file: Write) -> None:
    text = JOULES + ISSUE.replace("192276", "192276000")
    found = pyjoules.read_trace(file(text))
    assert found.gpu_unit == "uJ"
    assert found.samples[0].energy["nvidia_gpu_0"] == pytest.approx(192.276)
    one_bad = text + ISSUE
    assert refused(pyjoules.read_trace, file(one_bad)).line == 3
    huge = JOULES + ISSUE.replace("192276", "192276000000000")
    assert "is likely" not in str(refused(pyjoules.read_trace, file(huge)))
    with pytest.raises(InputError, match="below a factor of 1000"):
        pyjoules.read_trace(file(text), gpu_power=(0.1, 1000.0))
    with pytest.raises(InputError, match="expected 0 < lowest < highest"):
        pyjoules.read_trace(file(text), gpu_power=(10.0, 1.0))


def test_a_trace_without_gpu_has_no_unit_in_question(file: Write) -> None:
    rows = "1599722530834595361;fib;656476;0.0;6531.0\n"
    found = pyjoules.read_trace(
        file("timestamp;tag;duration;package_0;core_0\n" + rows)
    )
    (sample,) = found.samples
    assert found.gpu_unit is None
    assert sample.duration == pytest.approx(656476e-9)  # old versions wrote ns
    assert sample.energy["package_0"] is None
    assert sample.energy["core_0"] == pytest.approx(0.006531)
    assert found.skipped[0].reason.startswith("the counter did not move")
    error = refused(pyjoules.read_trace, file(JOULES + "12;a;1;1;1\n"))
    assert (error.line, error.column) == (2, "timestamp")


# ------------------------------------------------------------- anything that comes

STAMPS = ["2023/07/08 19:28:27.236", "9999/12/31 23:59:59.9", "0001/01/01 00:00:00"]
EPOCHS = ["1599722530", "1599722530834595361"]
NUMBERS = ["0", "1", "2.5", "-1", "-0", "1e400", "nan", "1 W", "٣"]
OTHERS = ["", "N/A", "[Not Supported]", "x", '"', "'", "\0", "forward"]
FIELDS = ["rank", "iter_time", "iter_energy", "time_breakdown", "power_states", "load"]
words = st.sampled_from([*STAMPS, *EPOCHS, *NUMBERS, *OTHERS])
rows_of_words = st.lists(st.lists(words, max_size=12), max_size=6)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.just("x")
json_values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    ),
    max_leaves=30,
)


def anything(data: st.DataObject, name: str, header: str) -> bytes:
    """A file that is nearly right, cut, changed, or nothing at all."""
    if header:
        mark = ";" if name == "joules" else ","
        lines = [mark.join(row) for row in data.draw(rows_of_words)]
        end = data.draw(st.sampled_from(["", "\n"]))
        content = (header + "\n".join(lines) + end).encode()
    else:
        held = data.draw(json_values)
        whole = data.draw(st.sampled_from([held, profile(iter_time=held)]))
        content = json.dumps(whole).encode()
    kind = data.draw(st.sampled_from(["as it is", "cut", "changed", "random"]))
    at = data.draw(st.integers(0, len(content)))
    match kind:
        case "cut":
            return content[:at]
        case "changed":
            return content[:at] + data.draw(st.binary(max_size=2)) + content[at + 1 :]
        case "random":
            return data.draw(st.binary(max_size=60))
    return content


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_whatever_comes_is_read_or_refused_by_name(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    read, header = READERS[name]
    path = tmp_path_factory.getbasetemp() / f"fuzz-{name}.csv"
    path.write_bytes(anything(data, name, header))
    said, found = "", None
    try:
        found = read(path)
    except ReaderError as error:
        said = str(error)
    if found is None:
        assert said.startswith(path.name)
        assert said.isprintable()
    elif name != "schedule":
        assert all(skipped.reason for skipped in found.skipped)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows=st.lists(st.tuples(*[st.sampled_from(["1.5", "0", "", "-1", "2"])] * 2),
                     min_size=1, max_size=6))  # fmt: skip
def test_every_value_of_a_log_is_read_or_reported(
    rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "counted.csv"
    path.write_text(ZEUS + "".join(f"1,a,1,{x},{y}\n" for x, y in rows))
    found = zeus.read_windows(path)
    read = sum(e is not None for w in found.windows for e in w.energy.values())
    assert read + len(found.skipped) == 2 * len(rows)
    assert all(s.line and s.column for s in found.skipped)


def test_windows_of_a_log_become_an_element(shared_data: Find) -> None:
    path = shared_data("energy/zeus_power_limit_profiles/V100__resnet18__gpu0-1.csv")
    found = zeus.read_windows(path)
    time, energy = found.runs(found.names[0])
    element = Element.from_runs(
        "resnet18", time=time, energy=energy, static_power=50.0, devices=found.devices
    )
    assert element.energy.mean() == pytest.approx(1361.443 + 1402.245, rel=1e-9)
