"""`probcalc validate` and `probcalc compare` from files of runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from probcalc.cli import main


def write_runs(file: Path, scale: float = 1.0, blocks: int = 12, seed: int = 1) -> Path:
    rng = np.random.default_rng(seed)
    lines = ["block,time_s,energy_j"]
    for block in range(blocks):
        for _ in range(10):
            t = scale * rng.normal(0.010, 1e-4)
            lines.append(f"{block},{t!r},{(60 * t + scale * rng.normal(1.0, 0.01))!r}")
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.toml"
    file.write_text(
        """\
expression = "kernel"

[devices.gpu0]
static_power = "60 W"

[elements.kernel]
device = "gpu0"
time = { distribution = "gamma", mean = "10 ms", sd = "0.1 ms" }
dynamic_energy = { distribution = "gamma", mean = "1 J", sd = "0.01 J" }
"""
    )
    return file


def test_held_refuted_undecided(
    tmp_path: Path, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = write_runs(tmp_path / "right.csv")
    assert main(["validate", str(plan), str(right), "--margin", "2 %"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("HELD")
    assert "quantile 0.9" in out
    wrong = write_runs(tmp_path / "wrong.csv", scale=1.1)
    assert main(["validate", str(plan), str(wrong), "--margin", "2 %"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("REFUTED")
    assert "what could explain it" in out
    assert re.search(r"x 1\.(09|10)", out)  # ten percent more of the kernel
    few = write_runs(tmp_path / "few.csv", blocks=1)
    assert main(["validate", str(plan), str(few), "--margin", "2 %"]) == 3
    assert "one process only" in capsys.readouterr().out


def test_json(tmp_path: Path, plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = write_runs(tmp_path / "runs.csv", scale=1.1)
    asked = ["validate", str(plan), str(runs), "--margin", "0.01 J", "--json"]
    assert main(asked) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["outcome"] == "refuted"
    assert found["verdict"]["margin"] == {"value": 0.01, "unit": "J"}
    assert found["influences"][0]["element"] == "kernel"
    time = [*asked[:4], "0.01 ms", "--of", "time", "--json"]
    assert main(time) == 1
    assert json.loads(capsys.readouterr().out)["verdict"]["margin"]["unit"] == "s"


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write_runs(tmp_path / "a.csv", seed=2)
    b = write_runs(tmp_path / "b.csv", scale=1.05, seed=3)
    assert main(["compare", str(a), str(b)]) == 0
    out = capsys.readouterr().out
    assert "intervals separated: yes" in out
    assert main(["compare", str(b), str(a), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["outcome"] == "refuted"
    assert found["difference"]["unit"] == "J"
    c = write_runs(tmp_path / "c.csv", seed=4)
    assert main(["compare", str(a), str(c), "--of", "time"]) == 3
    assert main(["compare", str(b), str(a), "--margin", "20 %"]) == 0
    assert main(["compare", str(a), str(b), "--paired"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["validate"], "give PREDICTION and MEASUREMENT"),
        (["validate", "plan.toml", "a.csv"], "--margin is missing"),
        (
            ["validate", "plan.toml", "a.csv", "--margin", "2 %", "--seed", "-1"],
            "seed is -1",
        ),
        (["validate", "plan.toml", "a.csv", "--out", "x"], "--out: for --study"),
        (["validate", "--study", "nothing"], "no study 'nothing'; there are coverage"),
        (["validate", "--study", "coverage", "--repeats", "3"], "repeats is 3"),
        (["validate", "--study", "perseus"], "--records"),
        (["compare", "a.csv", "no.csv"], "no.csv"),
        (["compare", "a.csv", "a.csv", "--margin", "x %"], "--margin"),
        (["compare", "a.csv", "a.csv", "--margin", "1 s"], "--margin"),
        (["compare", "a.csv", "a.csv", "--level", "2"], "level is 2"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    plan: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_runs(tmp_path / "a.csv")
    places = [
        str(tmp_path / x) if x.endswith((".csv", ".toml")) else x for x in arguments
    ]
    assert plan.exists()
    assert main(places) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_study_writes_its_record_and_figure(tmp_path: Path) -> None:
    out = tmp_path / "studies"
    asked = ["validate", "--study", "error-rates", "--repeats", "20"]
    assert main([*asked, "--out", str(out)]) == 0
    assert {f.name for f in out.iterdir()} == {
        f"error-rates.{ending}" for ending in ("json", "md", "svg")
    }
    assert json.loads((out / "error-rates.json").read_text())["repeats"] == 20
    assert "refuted" in (out / "error-rates.md").read_text()


def test_a_study_runs_from_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--study", "reduction", "--repeats", "20"]) == 0
    assert (
        "off by more than the bound at some quantile | 0 |" in capsys.readouterr().out
    )
    asked = ["validate", "--study", "error-rates", "--repeats", "20", "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seed"] == 0
    # One process never decides, whatever the runs.
    assert all(
        row["held"] == row["refuted"] == 0.0
        for row in found["found"]
        if row["blocks"] == 1
    )
