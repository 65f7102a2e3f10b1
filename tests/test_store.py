"""Signatures, their files and folders: nothing lost, nothing made up, nothing mixed."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import pickle
import subprocess
import sys
import types
from typing import Any

import h5netcdf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probcalc.errors import InputError
from probcalc.measurement import signature_file, signature_tables, store
from probcalc.measurement.signature import Signature, Window
from probcalc.measurement.store import (
    DamagedError,
    ForeignError,
    NewerVersionError,
    StoreError,
    load,
    load_all,
    save,
)
from probcalc.measurement.windows import WindowEnergy
from probcalc.prediction import predict

ROOT = pathlib.Path(__file__).resolve().parent.parent
FACTS: dict[str, Any] = {
    "context": {"gpu": "A100", "clock": 1410, "neighbours": ["idle", None]},
    "block_names": ("p0", "p1", "p2"),
    "devices": ("gpu0",),
    "static_power": {"gpu0": 60.0},
    "static_power_error": {"gpu0": 1.2},
    "operating_point": {"sm_mhz": 1410},
    "workload": {"tokens": 4096},
    "implementation": "fused",
    "device_facts": {"uuid": "GPU-1", "driver": "550.54", "power_limit": 400.0},
    "probe": {"sources": [{"source": "counter", "period": 0.1}]},
    "calibration": {"reference": 40.0, "covariance": [[1.0, 0.0], [0.0, 0.1]]},
    "metadata": {"note": "π µ 漢 \n line", "seed": 2**60, "ok": True},
    "block_details": ({"host": "a"}, {"host": "b"}, {}),
}


def ragged(**changes: Any) -> Signature:
    """Three blocks of 3, 1 and 2 runs; a window says why one energy is missing."""
    windows = (
        Window(0, 0, True, energy=90.0, lower=89.0, upper=91.0, start=1.0, end=2.0),
        Window(0, 1, False, ("counter was reset",), estimate=-4.9e6, method="ticks"),
        Window(2, None, True, energy=60.0, kind="bound", details={"idle": True}),
    )
    fields = {**FACTS, "windows": windows, **changes}
    return Signature.from_blocks(
        fields.pop("element", "rms norm"),
        fields.pop("time", [[1.0, 1.1, 1.2], [1.3], [1.0, 1.05]]),
        fields.pop("energy", [[90.0, np.nan, 99.0], [110.0], [88.0, 89.5]]),
        **fields,
    )


def means() -> Signature:
    """Two blocks of windows over four executions, with the times of each one."""
    single = [[1.0, 1.1, 0.9, 1.0, 1.2, 1.0, 1.0, 0.8], [1.0, 1.0, 1.0, 1.4]]
    return Signature.from_blocks(
        "gemm",
        [[1.0, 1.0], [1.1]],
        [[80.0, 82.0], [88.0]],
        run_time=single,
        grain=4,
        static_power={"gpu0": 60.0},
    )


def test_all_that_is_stored_comes_back(tmp_path: pathlib.Path) -> None:
    for signature in (ragged(), means()):
        found = load(save(signature, tmp_path))
        assert found.same_as(signature)
        assert found.metadata == signature.metadata
        assert not found.time.flags.writeable
        assert pickle.loads(pickle.dumps(found)).same_as(signature)
    assert not ragged().same_as(means())
    assert not ragged().same_as(ragged(metadata={"seed": 2**60}))
    assert not ragged().same_as(ragged(windows=()))


def test_blocks_may_differ_in_runs_and_missing_is_not_zero(
    tmp_path: pathlib.Path,
) -> None:
    found = load(save(ragged(), tmp_path))
    assert found.runs.tolist() == [3, 1, 2]
    assert np.isnan(found.time).tolist() == [
        [False, False, False],
        [False, True, True],
        [False, False, True],
    ]
    assert np.isnan(found.energy).sum() == 4
    assert found.complete.sum() == 5
    assert found.windows[1].reasons == ("counter was reset",)


def test_a_block_without_runs_is_a_block() -> None:
    s = Signature.from_blocks("a", [[], [1.0]], [[], [2.0]])
    assert s.runs.tolist() == [0, 1]
    empty = Signature.from_blocks("a", [[], []], [[], []])
    found = signature_file.decode(signature_file.encode(empty), "x")
    assert found.same_as(empty)
    assert found.time.shape == (2, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"element": " "}, "element: ' ' found, expected a text of one line"),
        ({"element": "a\nb"}, "expected a text of one line"),
        ({"energy": [[90.0, 0.0, 99.0], [110.0], [88.0, 89.0]]}, "missing is NaN"),
        (
            {"time": [[1.0, -1.0, 1.0], [1.0], [1.0, 1.0]]},
            "time of block 0, run 1 is -1 s, expected above 0 s",
        ),
        ({"time": [[1.0, np.inf, 1.0], [1.0], [1.0, 1.0]]}, "a finite number, or NaN"),
        ({"time": [[1.0, 1.0], [1.0], [1.0, 1.0]]}, "one of each for every run"),
        ({"grain": 0}, "grain is 0, expected a whole number >= 1"),
        ({"grain": True}, "grain is True"),
        ({"block_names": ("a", "a", "b")}, "block names: 'a' is there twice"),
        ({"block_names": ("a", "b")}, "2 block names for 3 blocks"),
        ({"devices": ()}, "no device"),
        ({"static_power": {"gpu1": 60.0}}, "expected its devices ['gpu0']"),
        ({"static_power": {"gpu0": -1.0}}, "static power is -1.0"),
        ({"metadata": {"a": [1.0, float("nan")]}}, "'a'[1] is nan, expected a finite"),
        ({"metadata": {"a": object}}, "is no plain data"),
        ({"metadata": {1: "a", "1": "b"}}, "two keys are written '1'"),
        ({"context": "A100"}, "context: expected a mapping"),
        ({"run_time": [[1.0], [1.0], [1.0]]}, "run_time is for a grain above 1"),
        ({"block_details": ({},)}, "details of 1 blocks, expected 3"),
        (
            {"windows": (Window(0, 0, False, ("gap",)),)},
            "is invalid, and run 0 of block 0 has an energy",
        ),
        (
            {"windows": (Window(0, 1, True, energy=1.0),)},
            "is valid, and run 1 of block 0 has no energy",
        ),
        (
            {"windows": (Window(1, 1, True, energy=1.0),)},
            "run 1 of block 1, which made 1",
        ),
        ({"windows": (Window(3, 0, True, energy=1.0),)}, "block 3 of 3"),
        (
            {"windows": (Window(0, 0, True, energy=1.0, scope="module"),)},
            "scopes are never mixed",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match="signature") as caught:
        ragged(**changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_beyond_the_runs_of_a_block_are_refused() -> None:
    table = np.array([[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="block 1, run 1 is 2 s, expected NaN beyond"):
        Signature("a", table, table, np.array([2, 1]))
    with pytest.raises(InputError, match="expected the 3 runs of the longest block"):
        Signature("a", table, table, np.array([3, 1]))


def test_windows_say_what_they_are() -> None:
    with pytest.raises(InputError, match="valid, expected an energy and no reasons"):
        Window(0, 0, True)
    with pytest.raises(InputError, match="invalid, expected reasons and no energy"):
        Window(0, 0, False)
    with pytest.raises(InputError, match="energy is nan, expected a finite number"):
        Window(0, 0, True, energy=float("nan"))
    found = WindowEnergy(
        None, 1.0, 2.0, "estimate", "naive", False, ("counter was reset",), 0.0, 5.0,
        3, 0.1, float("nan"), 0.01, "board", "counter", 7.0, 12,
    )  # fmt: skip
    window = Window.of(found, 2, 1, temperature=[40.0, None])
    assert (window.energy, window.estimate, window.repetitions) == (None, 7.0, 12)
    assert window.details["rate"] is None
    assert window.details["temperature"] == (40.0, None)
    assert window.details["updates"] == 3


# ------------------------------------------------------------------ other programs


def test_the_file_opens_without_this_package(tmp_path: pathlib.Path) -> None:
    import xarray

    with xarray.open_dataset(save(ragged(), tmp_path)) as data:
        assert dict(data.sizes) == {"block": 3, "run": 3, "device": 1, "window": 3}
        units = {name: data[name].attrs.get("units") for name in data.variables}
        assert (units["time"], units["energy"]) == ("s", "J")
        assert units["static_power"] == units["static_power_error"] == "W"
        assert (units["window_start"], units["window_energy"]) == ("s", "J")
        assert int(data.attrs["format_version"]) == signature_file.VERSION
        assert (data.attrs["element"], int(data.attrs["grain"])) == ("rms norm", 1)
        assert data["runs"].values.tolist() == [3, 1, 2]
        assert data["block"].values.tolist() == ["p0", "p1", "p2"]
        assert data["time"].dims == data["energy"].dims == ("block", "run")
        assert data["time"].dtype == np.float64
        np.testing.assert_array_equal(data["energy"].values, ragged().energy)
        assert json.loads(str(data["context"].values)) == FACTS["context"]
        assert json.loads(str(data["window_reasons"].values[1])) == [
            "counter was reset"
        ]


def test_the_file_opens_in_arviz(tmp_path: pathlib.Path) -> None:
    import arviz

    group = arviz.from_netcdf(str(save(ragged(), tmp_path)))["posterior"]
    assert dict(group["time"].sizes) == {"chain": 3, "draw": 3}
    assert group["chain"].values.tolist() == ["p0", "p1", "p2"]
    assert group["energy"].attrs["units"] == "J"
    np.testing.assert_array_equal(group["energy"].values, ragged().energy)


def test_to_arviz_has_blocks_as_chains_and_runs_as_draws() -> None:
    import arviz

    found = ragged().to_arviz()["posterior"]
    assert found["time"].dims == ("chain", "draw")
    assert found["time"].attrs["units"] == "s"
    assert found["chain"].values.tolist() == ["p0", "p1", "p2"]
    assert found.attrs["runs_left_out"] == 0
    np.testing.assert_array_equal(found["energy"].values, ragged().energy)
    cut = ragged().to_arviz(ragged="cut")
    assert dict(cut["posterior"]["time"].sizes) == {"chain": 3, "draw": 1}
    assert cut["posterior"].attrs["runs_left_out"] == 3
    whole = Signature.from_blocks(
        "a",
        list(np.arange(1.0, 41.0).reshape(4, 10)),
        list(np.arange(2.0, 42.0).reshape(4, 10)),
    )
    rhat: Any = arviz.rhat(whole.to_arviz())
    assert float(rhat["time"]) > 1.5  # blocks lie apart


def test_the_later_arviz_gets_a_tree(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import xarray

    # From 1.0 on ArviZ has no class of its own, and opens files by xarray's tree.
    monkeypatch.setitem(sys.modules, "arviz", types.ModuleType("arviz"))
    found = ragged().to_arviz()
    assert isinstance(found, xarray.DataTree)
    assert found["posterior"]["time"].dims == ("chain", "draw")
    assert found["posterior"].attrs["element"] == "rms norm"
    with xarray.open_datatree(save(ragged(), tmp_path), engine="h5netcdf") as tree:
        stored = tree["posterior"]["energy"]
        assert stored.dims == ("chain", "draw")
        np.testing.assert_array_equal(stored.values, ragged().energy)


def test_to_arviz_refuses_what_it_cannot_cut() -> None:
    s = Signature.from_blocks("a", [[np.nan, 1.0]], [[1.0, 1.0]])
    with pytest.raises(InputError, match="nothing is left to cut to"):
        s.to_arviz(ragged="cut")


# ----------------------------------------------------------------------- elements


def test_an_element_has_the_runs_and_their_blocks() -> None:
    element = ragged().to_element()
    assert element.runs is not None
    assert element.runs.time.tolist() == [1.0, 1.2, 1.3, 1.0, 1.05]
    assert element.runs.energy.tolist() == [90.0, 99.0, 110.0, 88.0, 89.5]
    assert element.runs.blocks == ("p0", "p0", "p1", "p2", "p2")
    assert element.grain == 1
    assert element.static_power == 60.0
    assert element.metadata["runs_missing"] == 1
    assert element.operating_point == (("sm_mhz", 1410),)
    (factor,) = element.shared
    assert factor.name == "calibration:gpu0"
    assert factor.acts_on == "static_power"
    assert float(np.sqrt(factor.law.variance())) == pytest.approx(0.02, rel=1e-6)


def test_means_over_windows_keep_their_grain_and_are_not_composed_as_runs() -> None:
    element = means().to_element()
    assert element.grain == 4
    assert element.time.mean() == pytest.approx(3.1 / 3.0, rel=1e-12)
    assert means().run_time is not None
    with pytest.raises(InputError, match="grain"):
        predict(element >> ragged(static_power_error=None).to_element())


def test_an_element_needs_runs_and_static_power() -> None:
    lost = [[np.nan] * 3, [np.nan], [np.nan] * 2]
    with pytest.raises(InputError, match="no run has both a time and an energy"):
        ragged(energy=lost, windows=()).to_element()
    bare = ragged(static_power=None, static_power_error=None)
    with pytest.raises(InputError, match="no static power was measured"):
        bare.to_element()
    assert bare.to_element(static_power=50.0).static_power == 50.0
    assert ragged().to_element(static_power=50.0).shared == ()
    with pytest.raises(InputError, match="dynamic energy E - s T is negative"):
        ragged().to_element(static_power=85.0)
    kept = ragged().to_element(static_power=85.0, conflicts="keep")
    assert kept.calibration_conflict


def test_errors_of_several_devices_must_be_stated() -> None:
    two = ragged(
        devices=("gpu0", "gpu1"),
        static_power={"gpu0": 30.0, "gpu1": 30.0},
        static_power_error={"gpu0": 1.0, "gpu1": 1.0},
    )
    with pytest.raises(InputError, match="state shared="):
        two.to_element()
    assert dict(two.to_element(shared=()).powers) == {"gpu0": 30.0, "gpu1": 30.0}


# ------------------------------------------------------------------------- folder


def test_names_of_files_are_safe_and_distinct() -> None:
    names = ["a/b", "a\\b", "a b", "A b", "../a", "", ".", "CON", "漢", "語", "x" * 400]
    found = [store.file_name(name) for name in names]
    found += [store.file_name("a b", {"gpu": gpu}) for gpu in (0, 1, "1", None)]
    assert len(set(map(str.lower, found))) == len(found)
    for name in found:
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
        assert not name.startswith((".", "-"))
        assert len(name) < 80
    assert store.file_name("a", {"x": 1, "y": 2}) == store.file_name(
        "a", {"y": 2, "x": 1}
    )


def test_what_is_there_is_not_overwritten_unasked(tmp_path: pathlib.Path) -> None:
    path = save(ragged(), tmp_path)
    before = path.read_bytes()
    assert save(ragged(), tmp_path) == path  # the same again
    other = ragged(metadata={"note": "second"})
    with pytest.raises(StoreError, match="expected existing='extend' or 'replace'"):
        save(other, tmp_path)
    assert path.read_bytes() == before
    save(other, tmp_path, existing="replace")
    assert load(path).metadata == {"note": "second"}
    with pytest.raises(InputError, match="existing is 'maybe'"):
        save(other, tmp_path, existing="maybe")  # type: ignore[arg-type]


def test_other_contexts_are_other_files(tmp_path: pathlib.Path) -> None:
    save(ragged(), tmp_path)
    save(ragged(context={"gpu": "H100"}), tmp_path)
    found = load_all(tmp_path)
    assert sorted(s.context["gpu"] for s in found.signatures) == ["A100", "H100"]
    assert not found.refused


def one_block(name: str, runs: int, **changes: Any) -> Signature:
    values = 1.0 + 0.01 * np.arange(runs)
    fields: dict[str, Any] = {"static_power": {"gpu0": 60.0}, **changes}
    window = (Window(0, 0, True, energy=100.0),)
    return Signature.from_blocks(
        "e", [values], [100.0 * values], block_names=(name,), windows=window, **fields
    )


def test_blocks_are_added_once(tmp_path: pathlib.Path) -> None:
    for name, runs in (("a", 2), ("b", 5), ("a", 2), ("c", 1)):
        path = save(one_block(name, runs), tmp_path, existing="extend")
    found = load(path)
    assert found.block_names == ("a", "b", "c")
    assert found.runs.tolist() == [2, 5, 1]
    assert [w.block for w in found.windows] == [0, 1, 2]
    assert found.time[2, 0] == 1.0
    assert np.isnan(found.time[2, 1:]).all()
    with pytest.raises(StoreError, match="block 'a' is there with other values"):
        save(one_block("a", 3), tmp_path, existing="extend")
    with pytest.raises(StoreError, match="grain is 1 and 2, expected the same"):
        save(one_block("d", 1, grain=2), tmp_path, existing="extend")
    with pytest.raises(StoreError, match="static_power is"):
        save(
            one_block("d", 1, static_power={"gpu0": 61.0}), tmp_path, existing="extend"
        )
    assert load(path).same_as(found)


def test_what_later_blocks_were_probed_as_goes_with_them() -> None:
    first = one_block("a", 1, probe={"rate": 99.0}, metadata={"seed": 1})
    joined = first.extended(one_block("b", 1, probe={"rate": 98.0}))
    assert joined.probe == {"rate": 99.0}
    assert joined.block_details[0] == {}
    assert joined.block_details[1] == {"probe": {"rate": 98.0}, "metadata": {}}


def test_blocks_of_any_length_are_added_in_any_order() -> None:
    both = Signature.from_blocks(
        "e", [[1.0], [1.0] * 9], [[2.0], [2.0] * 9], block_names=("b", "a")
    )
    first = Signature.from_blocks("e", [[1.0] * 9], [[2.0] * 9], block_names=("a",))
    second = Signature.from_blocks("e", [[3.0]], [[4.0]], block_names=("c",))
    joined = first.extended(both).extended(second)
    assert joined.block_names == ("a", "b", "c")
    assert joined.runs.tolist() == [9, 1, 1]
    assert second.extended(both).runs.tolist() == [1, 1, 9]
    assert second.extended(first.extended(both)).time.shape == (3, 9)


WRITER = """
import sys
import numpy as np
from probcalc.measurement.signature import Signature
from probcalc.measurement.store import save
me, folder = sys.argv[1:]
for i in range(4):
    value = [1.0 + int(me) + 0.1 * i]
    one = dict(block_names=(f"{me}-{i}",))
    save(Signature.from_blocks("shared", [value], [value], **one), folder,
         existing="extend")
    save(Signature.from_blocks(f"own {me}", [value], [value], **one), folder,
         existing="extend")
"""


def test_writers_at_the_same_time_lose_nothing(tmp_path: pathlib.Path) -> None:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(i), str(tmp_path)], env=env)
        for i in range(4)
    ]
    assert [w.wait(120) for w in writers] == [0, 0, 0, 0]
    found = load_all(tmp_path)
    assert not found.refused
    by_name = {s.element: s for s in found.signatures}
    assert sorted(by_name) == ["own 0", "own 1", "own 2", "own 3", "shared"]
    assert sorted(by_name["shared"].block_names) == [
        f"{me}-{i}" for me in range(4) for i in range(4)
    ]
    for name, time in zip(
        by_name["shared"].block_names, by_name["shared"].time[:, 0], strict=True
    ):
        me, i = map(int, name.split("-"))
        assert time == 1.0 + me + 0.1 * i
    left = [p.name for p in tmp_path.iterdir() if p.suffix != ".nc"]
    assert left == [store.LOCK]


# ------------------------------------------------------------------------ refusals


def test_a_damaged_file_is_refused_and_the_rest_is_read(tmp_path: pathlib.Path) -> None:
    good = save(ragged(), tmp_path)
    bad = {
        name: save(one_block(name, 2, metadata={}), tmp_path / name) for name in "abcd"
    }
    whole = bad["a"].read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    contents = {
        "cut.nc": whole[: len(whole) // 2],
        "cut-by-one.nc": whole[:-1],
        "empty.nc": b"",
        "flipped.nc": bytes(flipped),
        "text.nc": b"time,energy\n1,2\n",
        "newer.nc": whole.replace(b"signature 1 sha256", b"signature 2 sha256"),
        "copy of it.nc": good.read_bytes(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.nc").mkdir()
    (tmp_path / ".half-written.nc").write_bytes(whole[:100])
    (tmp_path / "notes.txt").write_text("not ours")
    found = load_all(tmp_path)
    assert [s.element for s in found.signatures] == ["rms norm"]
    reasons = {r.path.name: r.reason for r in found.refused}
    expected = {
        "cut.nc": "cut off",
        "cut-by-one.nc": "cut off",
        "empty.nc": "cut off",
        "flipped.nc": "changed since it was written",
        "text.nc": "check sum at its end is missing",
        "newer.nc": "format version 2, expected at most 1",
        "copy of it.nc": "same element and context as",
        "folder.nc": "cannot be opened",
    }
    # Of two files with the same content the first by name is read.
    first = min(good.name, "copy of it.nc")
    expected[{"copy of it.nc", good.name}.difference({first}).pop()] = expected.pop(
        "copy of it.nc"
    )
    assert set(reasons) == set(expected)
    for name, said in expected.items():
        assert said in reasons[name]
        assert name in reasons[name]
        assert "\n" not in reasons[name]
    with pytest.raises(NewerVersionError, match=r"newer\.nc"):
        load(tmp_path / "newer.nc")
    with pytest.raises(DamagedError, match=r"flipped\.nc"):
        load(tmp_path / "flipped.nc")
    with pytest.raises(StoreError, match="no such folder"):
        load_all(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be opened"):
        load(tmp_path / "elsewhere.nc")


def test_a_damaged_file_is_not_extended(tmp_path: pathlib.Path) -> None:
    path = save(one_block("a", 1), tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    before = path.read_bytes()
    with pytest.raises(DamagedError):
        save(one_block("b", 1), tmp_path, existing="extend")
    assert path.read_bytes() == before


WHOLE = signature_file.encode(means())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_no_change_of_a_file_goes_unseen(data: st.DataObject) -> None:
    whole = bytearray(WHOLE)
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[at] ^= data.draw(st.integers(1, 255))
    else:
        del whole[at:]
    with pytest.raises(StoreError, match=r"^x\.nc: "):
        signature_file.decode(bytes(whole), "x.nc")


def test_files_of_other_programs_are_read_unchecked_or_refused(
    tmp_path: pathlib.Path,
) -> None:
    import xarray

    path = save(ragged(), tmp_path)
    again = tmp_path / "again.nc"
    with xarray.open_dataset(path) as data:
        data.to_netcdf(again, engine="h5netcdf")
    with pytest.raises(DamagedError, match="saved again by another program"):
        load(again)
    assert load(again, checked=False).same_as(ragged())
    with h5netcdf.File(again, "a") as file:
        file.attrs["format_version"] = np.int64(7)
    with pytest.raises(NewerVersionError, match="format version 7"):
        load(again, checked=False)
    with h5netcdf.File(again, "a") as file:
        file.attrs["format"] = "something else"
    with pytest.raises(ForeignError, match="'something else'"):
        load(again, checked=False)
    with h5netcdf.File(tmp_path / "bare.nc", "w") as file:
        file.attrs["format"] = signature_file.FORMAT
        file.attrs["format_version"] = np.int64(1)
    with pytest.raises(DamagedError, match=r"bare\.nc: cannot be read"):
        load(tmp_path / "bare.nc", checked=False)


def test_a_value_that_another_program_made_zero_is_refused(
    tmp_path: pathlib.Path,
) -> None:
    path = save(ragged(), tmp_path)
    path.write_bytes(path.read_bytes().rpartition(b"\nprobcalc")[0])
    with h5netcdf.File(path, "a") as file:
        energy: Any = file["energy"]
        energy[0, 1] = 0.0
    with pytest.raises(DamagedError, match="a value that is missing is NaN"):
        load(path, checked=False)


numbers = st.floats(1e-9, 1e9) | st.just(float("nan"))
texts = st.text(max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.lists(st.lists(st.tuples(numbers, numbers), max_size=4), min_size=1, max_size=4),
    st.dictionaries(texts, plain, max_size=3),
    st.dictionaries(texts, plain, max_size=3),
    st.integers(1, 1000),
)
def test_whatever_is_stored_comes_back(
    blocks: list[list[tuple[float, float]]],
    context: dict[str, Any],
    metadata: dict[str, Any],
    grain: int,
) -> None:
    signature = Signature.from_blocks(
        "e",
        [[t for t, _ in block] for block in blocks],
        [[e for _, e in block] for block in blocks],
        context=context,
        metadata=metadata,
        grain=grain,
    )
    found = signature_file.decode(signature_file.encode(signature), "x")
    assert found.same_as(signature)
    assert found.key == signature.key


# -------------------------------------------------------------------------- tables


def test_a_folder_is_listed(tmp_path: pathlib.Path) -> None:
    save(ragged(), tmp_path)
    save(means(), tmp_path)
    (tmp_path / "bad.nc").write_bytes(b"no")
    rows, refused = signature_tables.signatures_table(tmp_path)
    assert [r.path.name for r in refused] == ["bad.nc"]
    row = next(r for r in rows if r["element"] == "rms norm")
    counts = {"blocks": 3, "runs": 6, "missing": 1, "windows": 3, "invalid": 1}
    assert {name: row[name] for name in counts} == counts
    assert row["time"]["mean"] == pytest.approx((1.1 + 1.3 + 1.025) / 3.0)
    assert row["time"]["unit"] == "s"
    assert row["energy"]["mean"] == pytest.approx((94.5 + 110.0 + 88.75) / 3.0)
    spread = np.std([94.5, 110.0, 88.75], ddof=1) / np.sqrt(3.0)
    assert row["energy"]["standard_error"] == pytest.approx(spread)
    assert row["energy"]["runs"] == 5
    json.dumps(rows)


def test_a_law_of_one_block_has_no_error_between_blocks() -> None:
    one = signature_tables.law_summary([[1.0, 2.0, np.nan]], "s")
    assert (one["mean"], one["standard_error"]) == (1.5, None)
    none = signature_tables.law_summary([[np.nan]], "J")
    assert (none["mean"], none["sd"], none["runs"], none["blocks"]) == (
        None,
        None,
        0,
        0,
    )


def test_what_two_signatures_differ_in() -> None:
    a = ragged()
    assert signature_tables.diff(a, a)["same"]
    assert signature_tables.diff(a, ragged())["facts"] == {}
    b = ragged(
        context={"gpu": "A100", "clock": 1200, "neighbours": ["idle", None]},
        device_facts={"uuid": "GPU-1", "driver": "560.1"},
        time=[[2.0, 2.2, 2.4], [2.6], [2.0, 2.1]],
    )
    found = signature_tables.diff(a, b)
    assert not found["same"]
    assert found["facts"] == {
        "context, clock": (1410, 1200),
        "device_facts, driver": ("550.54", "560.1"),
        "device_facts, power_limit": (400.0, None),
    }
    assert found["laws"]["time"]["ratio"] == pytest.approx(2.0)
    assert found["laws"]["energy"]["difference"] == 0.0
    own = signature_tables.law_summary(a.time, "s")["standard_error"]
    assert found["laws"]["time"]["standard_error"] == pytest.approx(own * np.sqrt(5.0))
    mixed = signature_tables.diff(a, means())
    assert mixed["facts"]["grain"] == (1, 4)
    assert mixed["laws"]["energy"]["difference"] is None


def test_export_writes_every_run_and_leaves_missing_cells_empty(
    tmp_path: pathlib.Path,
) -> None:
    folder = tmp_path / "store"
    save(ragged(), folder)
    save(means(), folder)
    (folder / "bad.nc").write_bytes(b"no")
    count, refused = signature_tables.export(folder, tmp_path / "all.csv")
    assert (count, len(refused)) == (2, 1)
    with (tmp_path / "all.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    lost = [r for r in rows if r["energy_j"] == ""]
    assert [(r["block"], r["run"], r["valid"], r["reasons"]) for r in lost] == [
        ("p0", "1", "False", "counter was reset")
    ]
    assert {r["grain"] for r in rows if r["element"] == "gemm"} == {"4"}
    signature_tables.export(folder, tmp_path / "all.json")
    held = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    by_name = {h["element"]: h for h in held}
    assert by_name["rms norm"]["blocks"][0]["energy"] == [90.0, None, 99.0]
    assert by_name["rms norm"]["context"] == FACTS["context"]
    assert len(by_name["gemm"]["blocks"][0]["run_time"]) == 8
    with pytest.raises(InputError, match=r"ends in \.csv or \.json"):
        signature_tables.export(folder, tmp_path / "all.xlsx")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\n"
        "from probcalc.measurement import signature, store, signature_tables\n"
        "from probcalc.measurement.readers import (codecarbon, kareus, nvidia_smi, "
        "perseus, pyjoules, zeus)\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    heavy = {
        "xarray",
        "pandas",
        "arviz",
        "jax",
        "numba",
        "matplotlib",
        "pynvml",
        "h5py",
    }
    assert heavy.isdisjoint(done.stdout.split())
