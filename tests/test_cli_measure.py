"""`probcalc probe`, `measure`, `signatures` and the script for a GPU, on a replay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from probcalc.cli import main
from probcalc.measurement.store import load, load_all
from probcalc.validation.gpu import script
from tests.standin import Standin, built, real_clock, record

ROOT = Path(__file__).resolve().parent.parent
QUICK = [
    *("--windows", "2", "--window", "0.15", "--idle", "0.15"),
    *("--settle", "0", "--interval", "0.004"),
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.csv"
    t = np.arange(0.0, 60.0, 0.01)
    rows = np.stack([t, 200.0 + 20.0 * np.sin(37.0 * t)], axis=1)
    lines = "\n".join(",".join(f"{x:.4f}" for x in row) for row in rows)
    file.write_text("t_s,power_w\n" + lines + "\n")
    return file


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))


def measure(trace: Path, out: Path, *more: str) -> list[str]:
    return [
        "measure",
        str(out),
        *("--function", "product=tests.campaign_work:product"),
        *("--setup", "product=tests.campaign_work:matrices"),
        *("--replay", str(trace), "--period", "0.01", "--name", "gpu0"),
        *QUICK,
        *more,
    ]


def test_from_a_function_to_a_signature_and_a_comparison(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    rows = "rows=tests.campaign_work:product_by_rows"
    asked = measure(
        trace,
        out,
        *("--function", rows, "--setup", "rows=tests.campaign_work:matrices"),
        *("--equal-work", "rtol=1e-9,atol=1e-9", "--blocks", "2"),
        *("--context", "where=replay", "--json"),
    )
    assert main(asked) == 0
    shown, progress = capsys.readouterr()
    found = json.loads(shown)["signatures"]
    assert [s["element"] for s in found] == ["product", "rows"]
    assert progress.splitlines()[-1].startswith("4/4 ")
    for s in found:
        assert s["blocks"] == 2
        assert s["windows_used"] + len(s["excluded"]) >= 4
        signature = load(s["file"])
        assert signature.context == {"where": "replay"}
        assert signature.grain == s["grain"] > 1
        assert signature.devices == ("gpu0",)
        assert signature.to_element(conflicts="keep").grain == s["grain"]
    # Nothing is measured again.
    assert main(asked) == 0
    assert capsys.readouterr().err == ""
    folder = str(out / "signatures")
    assert main(["signatures", "list", folder]) == 0
    assert "where=replay" in capsys.readouterr().out
    assert main(["signatures", "list", folder, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["signatures"]) == 2
    assert main(["signatures", "show", found[0]["file"]]) == 0
    assert "static power of gpu0" in capsys.readouterr().out
    assert main(["signatures", "show", found[0]["file"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["grain"] == found[0]["grain"]
    assert main(["signatures", "diff", found[0]["file"], found[1]["file"]]) == 0
    assert "element: 'product' and 'rows'" in capsys.readouterr().out
    assert main(["signatures", "diff", found[0]["file"], found[0]["file"]]) == 0
    assert capsys.readouterr().out == "the same\n"
    table = tmp_path / "runs.csv"
    assert main(["signatures", "export", folder, str(table)]) == 2
    assert "there are product, rows; expected one" in capsys.readouterr().err
    only = [folder, str(table), "--element", "product"]
    assert main(["signatures", "export", *only]) == 0
    assert "runs of product in" in capsys.readouterr().out
    header, first = table.read_text().splitlines()[:2]
    assert header.startswith("element,context,block,run")
    assert first.startswith("product,")
    assert main(["signatures", "list", str(out)]) == 2
    assert "look in" in capsys.readouterr().err
    # An export is read again, and its grain with it.
    assert main(["compare", str(table), str(table), "--of", "time"]) in (0, 3)
    capsys.readouterr()
    assert main(["compare", str(table), found[1]["file"]]) == 2
    assert "expected one grain" in capsys.readouterr().err
    status = main(["compare", found[0]["file"], found[0]["file"], "--of", "time"])
    assert status in (0, 3)
    assert "mean of A less that of B" in capsys.readouterr().out.replace("\n", " ")


def test_what_is_there_is_written_when_an_arm_fails(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    more = ["--function", "broken=tests.campaign_work:broken", "--blocks", "4"]
    assert main(measure(trace, out, *more, "--json")) == 2
    shown, said = capsys.readouterr()
    assert "it does not work" in said.splitlines()[-1]
    found = json.loads(shown)
    assert [s["element"] for s in found["signatures"]] == ["product"]
    assert {f["element"] for f in found["failed"]} == {"broken"}
    assert len(load_all(out / "signatures").signatures) == 1


def test_a_campaign_through_pynvml(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The real pynvml on a library that stands in for the driver's."""
    standin = Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)
    board = record(
        "device",
        uuid="GPU-a",
        trace=standin.constant(250),
        period_ms=20,
        window_ms=20,
        throttle_fields="74,269",
    )
    config = tmp_path / "board"
    config.write_text("\n".join([real_clock(), board]) + "\n")
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(standin.library.parent),
        "PROBCALC_STANDIN": str(config),
        "CUDA_VISIBLE_DEVICES": "GPU-a",
    }
    out = tmp_path / "out"
    asked = [
        *("measure", str(out), "--command", "nap=sleep 1.2", "--blocks", "1"),
        *("--windows", "1", "--idle", "0.5", "--settle", "0", "--json"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "probcalc", *asked],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["signatures"]
    assert found["excluded"] == []
    assert found["grain"] == 1
    assert found["static_power_w"] == pytest.approx(250.0, rel=0.05)
    assert found["energy_j"] == pytest.approx(250.0 * found["time_s"], rel=0.05)
    signature = load(found["file"])
    assert signature.device_facts["uuid"] == "GPU-a"
    # The counter was probed once, and its period kept.
    probed = json.loads((out / "probe.json").read_text())
    (counter,) = (s for s in probed["sources"] if s["source"] == "counter")
    assert counter["period"] == pytest.approx(0.02, rel=0.02)


def test_a_damaged_signature_is_refused_and_the_rest_read(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(measure(trace, out, "--blocks", "1")) == 0
    folder = out / "signatures"
    (folder / "broken-0000000000000000.nc").write_bytes(b"not a file of this kind")
    capsys.readouterr()
    assert main(["signatures", "list", str(folder)]) == 2
    shown, said = capsys.readouterr()
    assert "product" in shown
    assert "broken-0000000000000000.nc" in said


def test_an_interrupt_keeps_what_is_there(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "probcalc", *measure(trace, out, "--blocks", "50")],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("1/50 ")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "product: " in shown
    (signature,) = load_all(out / "signatures").signatures
    done = len(list((out / "blocks").glob("[0-9]*.json")))
    assert signature.runs.size == done
    assert 1 <= done < 50


def test_probe(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["probe", "--replay", str(trace), "--period", "0.02", "--seconds", "1"]
    assert main(asked) == 0
    assert "update period 0.02 s" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (counter,) = (s for s in found["sources"] if s["source"] == "counter")
    assert counter["period"] == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "out"], "give --function"),
        (["measure", "out", "--function", "no_equals"], "expected NAME=VALUE"),
        (
            ["measure", "out", "--command", "a=b", "--command", "a=c"],
            "'a' is given twice",
        ),
        (["measure", "out", "--command", "a=b", "--setup", "b=c:d"], "no --function"),
        (
            ["measure", "out", "--command", "a=b", "--replay", "no.csv"],
            "no.csv: No such file",
        ),
        (
            ["measure", "out", "--command", "a=b", "--replay", "x", "--device", "0"],
            "one of --device and --replay",
        ),
        (["probe", "--period", "1"], "only for --replay"),
        (["probe", "--load", "x"], "--load"),
        (["signatures", "list", "no_such_folder"], "no such folder"),
        (["signatures", "show", "no_such.nc"], "cannot be opened"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_the_script_for_a_gpu_through_pynvml(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    standin = Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)
    board = record(
        "device",
        uuid="GPU-a",
        trace=standin.constant(250),
        period_ms=20,
        window_ms=20,
        arch=9,
        throttle_fields="74,269",
    )
    config = tmp_path / "board"
    config.write_text("\n".join([real_clock(), board]) + "\n")
    out = tmp_path / "gpu"
    done = subprocess.run(
        [sys.executable, "-m", "probcalc.validation.gpu", str(out), "--blocks", "2"],
        env=os.environ
        | {
            "LD_LIBRARY_PATH": str(standin.library.parent),
            "PROBCALC_STANDIN": str(config),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / "summary.json").read_text())
    assert found["device"]["uuid"] == "GPU-a"
    for arm in found["arms"].values():
        assert arm["static_power_w"] == pytest.approx(250.0, rel=0.05)
    assert len(found["verdicts"]) == 4


def test_the_script_for_a_gpu_without_one(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu"
    asked = [str(out), "--replay", str(trace), "--blocks", "2", "--quick"]
    assert script.main(asked) == 0
    found = json.loads((out / "summary.json").read_text())
    assert set(found["arms"]) == {"product", "stream", "sequence", "overlap"}
    assert set(found["verdicts"]) == {
        f"{name}, {of}" for name in ("sequence", "overlap") for of in ("time", "energy")
    }
    assert len(load_all(out / "signatures").signatures) == 4
    assert "sequence, energy:" in capsys.readouterr().out
    assert script.main([str(out), "--replay", str(tmp_path / "no.csv")]) == 2
