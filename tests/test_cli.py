"""The command line: exit codes, JSON, standard input, one line for an error."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from probcalc.cli import main
from probcalc.commands import plans

ROOT = pathlib.Path(__file__).parent.parent
NOISY = """
name = "noisy"
expression = "a ** 4"
devices.gpu0.static_power = "50 W"
[elements.a]
device = "gpu0"
time = "10 ms"
dynamic_energy = { distribution = "gamma", shape = 2, scale = "1 J" }
"""


def run(*arguments: str) -> int:
    return main(["budget", *arguments])


def document(
    capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0
) -> dict[str, Any]:
    assert run(*arguments, "--json") == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


@pytest.fixture
def noisy(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "noisy.toml"
    path.write_text(NOISY)
    return str(path)


def test_the_attention_layer_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    """Section 2.4: 4.32 ms; 518 mJ static of 3.32 J measured."""
    found = document(capsys, "--example", "attention")
    assert found["time"]["mean"] == pytest.approx(4.32e-3, rel=1e-12)
    assert found["energy"]["mean"] == pytest.approx(3.32, rel=1e-12)
    assert found["static_energy"]["mean"] == pytest.approx(0.5184, rel=1e-12)
    assert round(1000 * found["static_energy"]["mean"]) == 518
    assert found["dynamic_energy"]["mean"] == pytest.approx(2.8016, rel=1e-12)


def test_the_layer_serialised_by_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """7.09 ms and 851 mJ: 333 mJ or 64 % too much."""
    text = "prefix >> compute >> allreduce"
    wrong = document(capsys, "--example", "attention", "--expression", text)
    right = document(capsys, "--example", "attention")
    static = wrong["static_energy"]["mean"], right["static_energy"]["mean"]
    assert wrong["time"]["mean"] == pytest.approx(7.09e-3, rel=1e-12)
    assert round(1000 * static[0]) == 851
    # The paper subtracts the rounded figures.
    assert round(1000 * static[0]) - round(1000 * static[1]) == 333
    assert round(100 * (static[0] / static[1] - 1)) == 64
    dynamic = [found["dynamic_energy"]["mean"] for found in (wrong, right)]
    assert dynamic[0] == pytest.approx(dynamic[1], rel=1e-12)


KEYS = {
    "plan": str,
    "description": str,
    "expression": str,
    "method": str,
    "time": dict,
    "energy": dict,
    "static_energy": dict,
    "dynamic_energy": dict,
    "limit": dict,
    "probability_over": dict,
    "grain": int,
    "fewest_runs": type(None),
    "assumptions": list,
}
KINDS = {"certified", "confidence", "open", "estimate"}


def test_the_json_document(capsys: pytest.CaptureFixture[str], noisy: str) -> None:
    found = document(
        capsys, noisy, "-p", "0.5", "0.99", "--sf", "1e-9", "--limit", "10 J"
    )
    assert {key: type(value) for key, value in found.items()} == KEYS
    assert found["plan"] == "noisy"
    assert found["expression"] == "a ** 4"
    for kind, unit in (("time", "s"), ("energy", "J")):
        part = found[kind]
        assert list(part) == ["unit", "mean", "mean_error", "sd", "quantiles"]
        assert part["unit"] == unit
        assert (
            part["mean_error"]["lower"] <= part["mean"] <= part["mean_error"]["upper"]
        )
        for point in part["quantiles"]:
            assert list(point) == [
                *("p", "sf", "value", "lower", "upper", "kind", "limited_by"),
            ]
            assert point["lower"] <= point["value"] <= point["upper"]
            assert point["kind"] in KINDS
        assert [point["sf"] for point in part["quantiles"]] == pytest.approx(
            [0.5, 0.01, 1e-9], rel=1e-9
        )
    for kind in ("static_energy", "dynamic_energy"):
        assert list(found[kind]) == ["unit", "mean", "mean_error", "sd", "share"]
    assert found["limit"] == {"time": None, "energy": 10.0}
    assert found["probability_over"]["time"] is None
    assert list(found["probability_over"]["energy"]) == [
        *("value", "lower", "upper", "kind"),
    ]


def test_the_figures_are_right(capsys: pytest.CaptureFixture[str], noisy: str) -> None:
    """The dynamic energy of four runs is gamma of shape 8, the rest a constant 2 J."""
    from scipy import special

    found = document(
        capsys,
        noisy,
        "--sf",
        "0.5",
        "0.01",
        "1e-9",
        "--limit",
        "12 J",
        "--rtol",
        "1e-5",
    )
    assert found["time"]["mean"] == pytest.approx(0.04)
    assert found["energy"]["mean"] == pytest.approx(10.0)
    assert found["energy"]["sd"] == pytest.approx(math.sqrt(8.0))
    assert found["static_energy"]["share"] == pytest.approx(0.2)
    for point in found["energy"]["quantiles"]:
        exact = 2.0 + float(special.gammainccinv(8.0, point["sf"]))
        assert point["lower"] <= exact * (1 + 1e-14)
        assert point["upper"] >= exact * (1 - 1e-14)
        assert point["upper"] - point["lower"] <= 1.01e-5 * exact
    over = found["probability_over"]["energy"]
    exact = float(special.gammaincc(8.0, 10.0))
    assert over["lower"] * (1 - 1e-12) <= exact <= over["upper"] * (1 + 1e-12)


def test_the_table(capsys: pytest.CaptureFixture[str], noisy: str) -> None:
    assert run(noisy, "--sf", "1e-9", "--limit", "12 J", "--time-limit", "39 ms") == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "noisy"
    assert "expression  a ** 4" in lines
    table = {line.split("  ")[1]: line for line in lines if line.startswith("  ")}
    assert "20.0 % of the mean" in table["static"]
    assert "sf 1e-09" in table
    assert "P(> 39 ms)" in table
    assert "P(> 12 J)" in table
    for name in ("mean", "sd", "sf 1e-09"):
        assert " J" in table[name]


def test_a_printed_bracket_holds_what_it_rounds() -> None:
    from probcalc.report import _row

    point = {"value": 0.123456789, "lower": 0.1234512345, "upper": 0.1234598765}
    name, value, bracket, kind = _row("p", {**point, "kind": "certified"}, -3, "mJ")
    assert (name, value, kind) == ("p", "123.4568 mJ", "certified")
    assert bracket == "[123.4512, 123.4599]"
    low, high = (float(side) for side in bracket.strip("[]").split(","))
    assert low <= 123.4512345
    assert high >= 123.4598765
    half = {"value": 2.0, "lower": 1.0, "upper": None, "kind": "open"}
    assert _row("p", half, 0, "s")[2] == "[1.00000, open]"
    sure = {"value": 2.0, "lower": 2.0, "upper": 2.0, "kind": "certified"}
    assert _row("p", sure, 0, "s")[1:3] == ("2.00000 s", "exactly")
    assert _row("p", sure | {"kind": "estimate"}, 0, "s")[1:3] == ("2.00000 s", "")
    near = sure | {"upper": math.nextafter(2.0, 3.0)}
    assert _row("p", near, 0, "s")[1:3] == ("2.00000 s", "to rounding")


def test_a_printed_probability_is_rounded_outward() -> None:
    from decimal import ROUND_CEILING, ROUND_FLOOR

    from probcalc.report import _few_digits

    assert _few_digits(1.23456e-13, ROUND_FLOOR) == "1.234e-13"
    assert _few_digits(1.23456e-13, ROUND_CEILING) == "1.235e-13"
    assert _few_digits(0.999999, ROUND_FLOOR) == "0.9999"
    assert _few_digits(0.999999, ROUND_CEILING) == "1"
    assert _few_digits(0.0, ROUND_CEILING) == "0"


@pytest.mark.parametrize("given", [NOISY, NOISY.encode()])
def test_standard_input(
    given: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = (
        io.StringIO(given)
        if isinstance(given, str)
        else io.TextIOWrapper(io.BytesIO(given))
    )
    monkeypatch.setattr("sys.stdin", stream)
    assert document(capsys, "-")["plan"] == "noisy"


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["--limit", "100 J", "--fail-over", "0.01"], 0),
        (["--limit", "10 J", "--fail-over", "0.01"], 1),
        (["--limit", "10 J", "--fail-over", "0.9"], 0),
        (["--time-limit", "39 ms", "--fail-over", "0.5"], 1),
        (["--time-limit", "41 ms", "--fail-over", "0"], 0),
        (["--limit", "100 J", "--time-limit", "39 ms", "--fail-over", "0.01"], 1),
        (["--limit", "10 J"], 0),
    ],
)
def test_exit_status_over_the_limit(
    limits: list[str], status: int, noisy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, noisy, *limits, status=status)
    assert found["probability_over"]["energy" if "J" in limits[1] else "time"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of PLAN"),
        (["x.toml", "--example", "attention"], "give one of PLAN"),
        (["no-such-plan.toml"], "'no-such-plan.toml': cannot be read: No such file"),
        (["."], "is a folder; expected a plan file"),
        (["--example", "atention"], "no example 'atention'; did you mean 'attention'?"),
        (["--example", "attention", "-p", "1"], "-p: 1.0 found; expected between 0"),
        (["--example", "attention", "-p", "-0.5"], "-p: -0.5 found; expected between"),
        (["--example", "attention", "-p", "nan"], "-p: nan found; expected between 0"),
        (["--example", "attention", "-p", "x"], "argument -p: invalid float value"),
        (["--example", "attention", "--sf", "0"], "--sf: 0.0 found; expected between"),
        (["--example", "attention", "--limit", "5 ms"], "--limit: unit 'ms' of '5 ms'"),
        (["--example", "attention", "--time-limit", "5"], "--time-limit: '5' has no"),
        (
            ["--example", "attention", "--fail-over", "0.1"],
            "--fail-over: needs --limit",
        ),
        (
            ["--example", "attention", "--limit", "1 J", "--fail-over", "2"],
            "--fail-over: 2.0 found",
        ),
        (["--example", "attention", "--rtol", "0"], "--rtol: 0.0 found"),
        (["--example", "attention", "--method", "magic"], "'magic'"),
        (["--example", "attention", "--expression", "a"], "expression, character 1"),
        (["--example", "attention", "--no-such"], "unrecognized arguments: --no-such"),
        (["--example", "attention", "--plot", "x.doc"], "--plot: 'x.doc'"),
        (["--example", "attention", "--plot", "no/such/x.png"], "No such file"),
        (["--example", "attention", "surplus", "many"], "unrecognized arguments"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("probcalc: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_no_command_and_a_wrong_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["budgets"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["budget", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 0
    out = capsys.readouterr().out
    assert "probcalc budget --example attention" in out


def test_every_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list-examples") == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"attention", "overlap"} <= set(names)
    for name in names:
        found = document(capsys, "--example", name)
        assert found["plan"] == name
        assert found["description"]
        for part in (found["time"], found["energy"]):
            assert part["mean"] > 0
            for point in part["quantiles"]:
                assert point["lower"] <= point["value"] <= point["upper"]


def test_brackets_tell_the_quantiles_of_a_narrow_law_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All outcomes of 28 draws of one of three runs, listed: sd is 2e-4 of the mean."""
    from probcalc.planfile import read_plan

    runs = (
        read_plan(ROOT / "probcalc/examples/overlap.toml").elements["overlapped"].runs
    )
    assert runs is not None
    found = document(capsys, "--example", "overlap", "--limit", "51 J")
    for kind, values in (("time", runs.time), ("energy", runs.energy)):
        outcomes = sorted(
            (
                float(values @ (i, j, 28 - i - j)),
                math.comb(28, i) * math.comb(28 - i, j) / 3.0**28,
            )
            for i in range(29)
            for j in range(29 - i)
        )
        points = found[kind]["quantiles"]
        for point in points:
            below, value, at = 0.0, -math.inf, iter(outcomes)
            while below < point["p"]:
                value, mass = next(at)
                below += mass
            assert point["lower"] * (1 - 1e-13) <= value <= point["upper"] * (1 + 1e-13)
        for before, after in itertools.pairwise(points):
            assert before["upper"] < after["lower"]
    over = found["probability_over"]["energy"]
    exact = sum(mass for value, mass in outcomes if value > 51.0)
    assert over["lower"] * (1 - 1e-12) <= exact <= over["upper"] * (1 + 1e-12)


def test_the_figures_of_the_overlap_example_are_the_measured_ones(
    shared_data: Any,
) -> None:
    import csv

    from probcalc.planfile import read_plan

    path = shared_data("energy/kareus/attention_overlap_sweep_default.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    measured = {
        tuple(float(row[f"{i}:{what}"]) for i in range(3) for what in
              ("time (s)", "total energy (J)"))
        for row in rows
    }  # fmt: skip
    plan = read_plan(ROOT / "probcalc" / "examples" / "overlap.toml")
    for element in plan.elements.values():
        assert element.runs is not None
        pairs = zip(element.runs.time, element.runs.energy, strict=True)
        flat = tuple(float(value) for pair in pairs for value in pair)
        assert any(flat == pytest.approx(row, rel=1e-14) for row in measured)


def test_the_picture(
    tmp_path: pathlib.Path, noisy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, start in (("x.png", b"\x89PNG"), ("x.svg", b"<?xml"), ("x.pdf", b"%PDF")):
        assert run(noisy, "--limit", "12 J", "--plot", str(tmp_path / name)) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert run("--example", "attention", "--plot", str(tmp_path / "c.png")) == 0
    assert capsys.readouterr().err == ""


def test_a_mean_that_is_infinite(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "heavy.toml"
    law = '{ distribution = "pareto", shape = 0.9, scale = "1 ms" }'
    path.write_text(NOISY.replace('"10 ms"', law).replace("a ** 4", "a"))
    found = document(capsys, str(path), "-p", "0.5")
    assert found["time"]["mean"] is None
    assert found["time"]["sd"] is None
    assert found["static_energy"]["share"] is None
    median = found["time"]["quantiles"][0]
    exact = 1e-3 * 2.0 ** (1 / 0.9)
    assert median["lower"] <= exact * (1 + 1e-12)
    assert median["upper"] >= exact * (1 - 1e-12)
    assert run(str(path), "-p", "0.5") == 0
    out = capsys.readouterr().out
    assert "infinite" in out
    assert "2.16" in out


def test_no_control_characters_reach_the_terminal(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(NOISY.replace('"noisy"', r'"\u001b[31mnoisy"'))
    assert run(str(path)) == 0
    path.write_text(NOISY + '\n["\\u001b[31m\\nx"]')
    assert run(str(path)) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert captured.err.count("\n") == 1


def in_a_process(*arguments: str, **options: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen(
        [sys.executable, "-m", "probcalc", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        **options,
    )


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = in_a_process("budget", "--list-examples")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything is written
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(plans, "_budget", interrupted)
    assert main(["budget", "x"]) == 130


def test_out_of_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exhausted(arguments: object) -> int:
        raise MemoryError

    monkeypatch.setattr(plans, "_budget", exhausted)
    assert main(["budget", "x"]) == 2
    assert capsys.readouterr().err == "probcalc: not enough memory for this plan\n"


def test_a_terminal_without_unicode() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    plan = NOISY.replace('"noisy"', '"Zürich µ"').encode()
    process = in_a_process("budget", "-", stdin=subprocess.PIPE, env=environment)
    out, err = process.communicate(plan)
    assert (process.returncode, err) == (0, b"")
    assert out.startswith(b"Z\\xfcrich \\xb5")
