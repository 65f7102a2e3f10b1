"""`probcalc frontier`: the least energy for a deadline, from a file of points."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from probcalc.cli import main

PLAN = """\
name = "pipeline"

[devices.gpu0]
static_power = "80 W"

[devices.gpu1]
static_power = "80 W"

[elements.forward]
device = "gpu0"
time = { distribution = "gamma", mean = "50 ms", sd = "5 ms" }
dynamic_energy = "18 J"

[elements.backward]
device = "gpu0"
time = { distribution = "gamma", mean = "100 ms", sd = "10 ms" }
dynamic_energy = "36 J"

[schedule]
kind = "1f1b"
stages = 2
microbatches = 6
forward = "forward"
backward = "backward"
devices = ["gpu0", "gpu1"]
"""
SLOWER = [(1410, 1.0, 1.0), (1290, 1.08, 0.88), (1140, 1.2, 0.79), (1065, 1.32, 0.75)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    lines = ["element,point,time_s,dynamic_j"]
    for name, seconds, joules in (("forward", 0.05, 18.0), ("backward", 0.1, 36.0)):
        lines += [f"{name},{c},{seconds * t!r},{joules * e!r}" for c, t, e in SLOWER]
    points = tmp_path / "points.csv"
    points.write_text("\n".join(lines) + "\n")
    return str(plan), str(points)


def test_frontier_deadline_export_and_picture(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, points = files
    asked = ["frontier", plan, "--points", points]
    out, picture = tmp_path / "out.csv", tmp_path / "f.svg"
    more = ["--export", str(out), "--plot", str(picture), "--count", "8"]
    assert main([*asked, *more]) == 0
    assert "mean gap to the certified bound" in capsys.readouterr().out
    assert picture.stat().st_size > 1000
    with out.open() as file:
        rows = list(csv.DictReader(file))
    times = [float(r["time_s"]) for r in rows]
    energies = [float(r["energy_j"]) for r in rows]
    assert times == sorted(times)
    assert energies == sorted(energies, reverse=True)
    assert all(float(r["bound_j"]) <= float(r["energy_j"]) for r in rows)
    deadline = 0.5 * (times[0] + times[-1])
    assert main([*asked, "--deadline", f"{deadline} s", "--json"]) == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    assert point["time"] <= deadline
    assert point["bound"] <= point["energy"] <= energies[0]
    clocks = {str(c) for c, _, _ in SLOWER}
    for chosen in point["assignment"].values():
        assert any(clock in chosen for clock in clocks)


def test_risk(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    plan, points = files
    asked = ["frontier", plan, "--points", points, "--deadline", "1.25 s"]
    more = ["--risk", "0.9", "--samples", "1024", "--count", "6"]
    assert main([*asked, *more, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["chosen"]["time"]["upper"] <= 1.25 * 1.02
    assert found["chosen"]["time"]["kind"] == "confidence"
    assert found["mean_optimal"]["late"]["value"] > found["chosen"]["late"]["value"]
    assert main([*asked, *more]) == 0
    assert "mean-optimal: 0.9 quantile of time" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "--points is missing"),
        (["--points", "POINTS", "--risk", "0.9"], "needs --deadline"),
        (["--points", "POINTS", "--deadline", "3 J"], "--deadline"),
        (["--points", "POINTS", "--deadline", "1 ms"], "fastest makespan"),
        (["--points", "POINTS", "--export", "x.txt"], "expected a .csv"),
        (["--points", "no.csv"], "no.csv"),
    ],
)
def test_bad_input(
    files: tuple[str, str],
    more: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan, points = files
    asked = [points if x == "POINTS" else x for x in more]
    assert main(["frontier", plan, *asked]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_unknown_element(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("element,point,time_s,energy_j\nnobody,1410,1.0,100.0\n")
    assert main(["frontier", files[0], "--points", str(bad)]) == 2
    assert "no element 'nobody'" in capsys.readouterr().err
