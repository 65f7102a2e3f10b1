"""Kinds of bad plans: each is one clear line that names the place and the value."""

from __future__ import annotations

import pathlib

import pytest

from probcalc.cli import main
from probcalc.errors import CompositionError, InputError, PlanError, UnitError
from probcalc.planfile import read_plan

GOOD = """\
expression = "a >> b"
devices.gpu0.static_power = "60 W"
devices.gpu1.static_power = "60 W"
[elements.a]
device = "gpu0"
time = "1 ms"
[elements.b]
device = "gpu0"
time = { samples = [1, 2, 3], unit = "ms" }
dynamic_energy = { distribution = "gamma", mean = "1 J", cv = 0.1 }
"""

A_TIME = 'time = "1 ms"'
B_TIME = 'time = { samples = [1, 2, 3], unit = "ms" }'
B_ENERGY = 'dynamic_energy = { distribution = "gamma", mean = "1 J", cv = 0.1 }'
EXPRESSION = 'expression = "a >> b"'
FILE = "time = { file = 'runs.csv', column = 't', unit = 's' }"

BAD: dict[str, tuple[str, str, type[InputError], str]] = {
    "no TOML": (A_TIME, "time = ", PlanError, "no valid TOML: .*line 6"),
    "twice the same table": (
        "[elements.b]",
        "[elements.a]",
        PlanError,
        r"no valid TOML: .*line 7",
    ),
    "unknown key at the top": (
        EXPRESSION,
        EXPRESSION + "\nexpresion = 1",
        PlanError,
        "unknown key 'expresion'; did you mean 'expression'",
    ),
    "unknown key of an element": (
        A_TIME,
        A_TIME + "\ndynamic_energi = 1",
        PlanError,
        r"elements\.a: unknown key 'dynamic_energi'; did you mean 'dynamic_energy'",
    ),
    "unknown key of a device": (
        "gpu1.static_power",
        "gpu1.static",
        PlanError,
        r"devices\.gpu1: unknown key 'static'; did you mean 'static_power'",
    ),
    "no expression": (EXPRESSION, "", PlanError, "'expression' is missing"),
    "an expression of another kind": (
        EXPRESSION,
        "expression = 3",
        PlanError,
        "expression: 3 found; expected a text",
    ),
    "syntax error in the expression": (
        EXPRESSION,
        'expression = "a >> | b"',
        PlanError,
        r"expression, character 6: unexpected '\|'; expected a name or '\('",
    ),
    "unknown element": (
        EXPRESSION,
        'expression = "a >> linear"',
        PlanError,
        "expression, character 6: unknown element 'linear'; known: a, b",
    ),
    "parallel across devices": (
        'device = "gpu0"\n' + B_TIME,
        'device = "gpu1"\n' + B_TIME,
        CompositionError,
        r"'\|' at character 3: .*'a' is on 'gpu0' and 'b' is on 'gpu1'; use &",
    ),
    "multi-device parallel on one device": (
        EXPRESSION,
        'expression = "a & b"',
        CompositionError,
        r"'&' at character 3: .*share 'gpu0'; use \|",
    ),
    "two operating points at once": (
        A_TIME,
        A_TIME
        + '\noperating_point = 990\n[elements.c]\ndevice = "gpu0"\ntime = 1\n'
        + "operating_point = 1410",
        CompositionError,
        "'a' is at 990 and 'c' at 1410",
    ),
    "cyclic reference": (
        EXPRESSION,
        'expression = "x"\nterms = { x = "a >> y", y = "x ** 2" }',
        PlanError,
        r"terms\.x: refers to itself: x -> y -> x",
    ),
    "a term named like an element": (
        EXPRESSION,
        EXPRESSION + '\nterms.a = "b"',
        PlanError,
        r"terms\.a: is the name of an element too",
    ),
    "zero repeats": (
        EXPRESSION,
        'expression = "a ** 0"',
        PlanError,
        "character 6: 0 runs asked for",
    ),
    "unknown device": (
        'device = "gpu0"\ntime = "1 ms"',
        'device = "gpu2"\ntime = "1 ms"',
        PlanError,
        r"elements\.a: unknown device 'gpu2'; did you mean 'gpu[01]'",
    ),
    "no device": (
        'device = "gpu0"\ntime = "1 ms"',
        A_TIME,
        PlanError,
        r"elements\.a: give one of 'device' and 'devices'",
    ),
    "the same device twice": (
        'device = "gpu0"\ntime = "1 ms"',
        'devices = ["gpu0", "gpu0"]\n' + A_TIME,
        InputError,
        r"elements\.a: element 'a': device 'gpu0' is stated twice",
    ),
    "negative static power": (
        'gpu1.static_power = "60 W"',
        'gpu1.static_power = "-60 W"',
        PlanError,
        r"devices\.gpu1\.static_power: '-60 W' found; expected zero or more",
    ),
    "static power without a unit": (
        'gpu1.static_power = "60 W"',
        'gpu1.static_power = "60"',
        UnitError,
        r"devices\.gpu1\.static_power: '60' has no unit; expected a power such as",
    ),
    "unit of the wrong dimension": (
        A_TIME,
        'time = "60 W"',
        UnitError,
        r"elements\.a\.time: unit 'W' of '60 W' is not a unit of time",
    ),
    "unit of a list of the wrong dimension": (
        B_TIME,
        'time = { samples = [1], unit = "J" }',
        UnitError,
        r"elements\.b\.time\.unit: 'J' is not a unit of time; expected",
    ),
    "an uncertain number": (
        A_TIME,
        'time = "3 (-1/+4)"',
        InputError,
        r"elements\.a\.time: .*uncertain but states no law",
    ),
    "negative time": (
        A_TIME,
        'time = "-1 ms"',
        InputError,
        r"elements\.a: element 'a', time is -0.001 s, expected >= 0",
    ),
    "a negative run": (
        B_TIME,
        'time = ["1 ms", "-2 ms"]',
        InputError,
        r"elements\.b: element 'b', time is negative in run 1 \(-0.002 s\)",
    ),
    "NaN": (
        A_TIME,
        "time = nan",
        InputError,
        r"elements\.a\.time: nan is not finite",
    ),
    "NaN among runs": (
        B_TIME,
        "time = [1.0, nan]",
        InputError,
        r"elements\.b\.time: .*sample 1 is NaN",
    ),
    "no runs": (B_TIME, "time = []", PlanError, r"elements\.b\.time: no runs"),
    "a run that is a text": (
        B_TIME,
        'time = { samples = [1, "2 ms"], unit = "ms" }',
        PlanError,
        r"elements\.b\.time\.samples\[1\]: '2 ms' is no number",
    ),
    "runs without a unit": (
        B_TIME,
        "time = { samples = [1, 2] }",
        PlanError,
        r"elements\.b\.time: measured runs without 'unit'",
    ),
    "no time": (A_TIME, "", PlanError, r"elements\.a: 'time' is missing"),
    "dynamic energy below zero": (
        A_TIME,
        "time = [1.0, 1.0]\nenergy = [70.0, 50.0]",
        InputError,
        r"elements\.a: .*negative in run 1 \(-10 J\) of 2; static power",
    ),
    "times and energies of different number": (
        A_TIME,
        "time = [1.0, 1.0]\nenergy = [70.0]",
        PlanError,
        r"elements\.a: 2 runs of 'time' and 1 of 'energy'; expected one of each",
    ),
    "total energy beside a law of time": (
        A_TIME,
        A_TIME + "\nenergy = [70.0]",
        PlanError,
        r"elements\.a\.time: '1 ms' found; expected measured runs",
    ),
    "two energies": (
        B_ENERGY,
        B_ENERGY + "\nenergy = [1.0, 2.0, 3.0]",
        PlanError,
        r"elements\.b: gives both 'energy' and 'dynamic_energy'",
    ),
    "blocks of unequal kind": (
        A_TIME,
        'time = [1.0, 1.0]\nblocks = [1, "x"]',
        InputError,
        r"elements\.a\.blocks: .*block labels of different kinds \(int, str\)",
    ),
    "blocks of another number": (
        A_TIME,
        "time = [1.0, 1.0]\nblocks = [1, 1, 2]",
        InputError,
        r"elements\.a\.blocks: .*3 block labels for 2 runs",
    ),
    "unknown distribution": (
        B_ENERGY,
        B_ENERGY.replace("gamma", "gama"),
        PlanError,
        r"dynamic_energy\.distribution: unknown distribution 'gama'; did you mean",
    ),
    "a parameter missing": (
        B_ENERGY,
        B_ENERGY.replace(", cv = 0.1", ""),
        PlanError,
        "gamma needs mean, cv; or mean, sd; or shape, scale; found mean",
    ),
    "an unknown parameter": (
        B_ENERGY,
        B_ENERGY.replace("cv", "cov"),
        PlanError,
        r"elements\.b\.dynamic_energy: unknown key 'cov'; did you mean 'cv'",
    ),
    "a parameter out of range": (
        B_ENERGY,
        B_ENERGY.replace("0.1", "-0.1"),
        PlanError,
        r"dynamic_energy\.cv: -0\.1 found; expected a number from",
    ),
    "a parameter of the wrong dimension": (
        B_ENERGY,
        B_ENERGY.replace("1 J", "1 s"),
        UnitError,
        r"elements\.b\.dynamic_energy\.mean: unit 's' of '1 s' is not a unit of energy",
    ),
    "a normal law that is negative": (
        B_ENERGY,
        'dynamic_energy = { distribution = "normal", mean = "1 J", sd = "1 J" }',
        PlanError,
        "negative with probability 0.16; state lower = 0",
    ),
    "limits that leave nothing": (
        B_ENERGY,
        B_ENERGY.replace("gamma", "normal").replace("cv = 0.1", "cv = 1e-3, lower = 2"),
        PlanError,
        "leave next to nothing",
    ),
    "an empty interval": (
        B_ENERGY,
        'dynamic_energy = { distribution = "uniform", low = "2 J", high = "2 J" }',
        PlanError,
        r"high: '2 J' found; expected more than low",
    ),
    "zero mass": (
        A_TIME,
        "time = { mixture = [{ weight = 0, law = 1 }] }",
        PlanError,
        r"elements\.a\.time\.mixture: weights add up to 0; expected 1",
    ),
    "an empty law": (
        A_TIME,
        "time = {}",
        PlanError,
        "a law needs one of .*; found an empty table",
    ),
    "no such file": (
        B_TIME,
        "time = { file = 'no.csv', column = 't', unit = 's' }",
        PlanError,
        r"elements\.b\.time: cannot read 'no\.csv': No such file",
    ),
    "no such column": (
        B_TIME,
        FILE.replace("'t'", "'T'"),
        PlanError,
        r"'runs\.csv' has no column 'T'; known: t, words",
    ),
    "a cell that is no number": (
        B_TIME,
        FILE.replace("'t'", "'words'"),
        PlanError,
        r"'runs\.csv' line 2: 'one' in column 'words' is no number",
    ),
    "an empty cell": (
        B_TIME,
        FILE.replace("runs", "holes"),
        PlanError,
        r"'holes\.csv' line 3: column 't' has no value",
    ),
    "a file of another kind": (
        B_TIME,
        FILE.replace("runs.csv", "runs.pkl"),
        PlanError,
        r"'runs\.pkl' is neither a \.csv nor a \.parquet file",
    ),
    "a folder in place of a file": (
        B_TIME,
        FILE.replace("runs.csv", "folder.csv"),
        PlanError,
        r"'folder\.csv' is not a plain file",
    ),
    "a broken Parquet file": (
        B_TIME,
        FILE.replace("runs.csv", "broken.parquet"),
        PlanError,
        r"cannot read 'broken\.parquet'",
    ),
    "unknown shared factor": (
        A_TIME,
        A_TIME + '\nshared = ["gain"]',
        PlanError,
        r"elements\.a\.shared: unknown factor 'gain'; known: none",
    ),
    "a shared factor with a unit": (
        EXPRESSION,
        EXPRESSION + '\nshared.gain.law = "1 J"',
        UnitError,
        r"shared\.gain\.law: unit 'J' of '1 J' is not wanted",
    ),
    "a shared factor that can be negative": (
        EXPRESSION,
        EXPRESSION
        + '\nshared.gain.law = { distribution = "uniform", low = -1, high = 1 }',
        InputError,
        r"shared\.gain: shared factor 'gain': a scale must be positive",
    ),
    "an unknown effect": (
        EXPRESSION,
        EXPRESSION + '\nshared.gain = { law = 1, acts_on = "power" }',
        PlanError,
        r"shared\.gain\.acts_on: 'power' found; expected one of 'energy', 'time'",
    ),
    "a name that no expression can hold": (
        "[elements.b]",
        '[elements."b c"]',
        PlanError,
        "elements: 'b c' is no name",
    ),
    "idle with a law of its own": (
        A_TIME,
        A_TIME + '\nidle = "1 ms"',
        PlanError,
        r"elements\.a: unknown key 'time'",
    ),
    "a transition without its end": (
        A_TIME,
        A_TIME + "\ntransition = { from = 1 }",
        PlanError,
        r"elements\.a\.transition: needs both 'from' and 'to'",
    ),
}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "runs.csv").write_text("t,words\n1,one\n")
    (tmp_path / "holes.csv").write_text("t,words\n1,one\n,two\n")
    (tmp_path / "runs.pkl").write_bytes(b"")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "folder.csv").mkdir()
    return tmp_path


def test_the_plan_without_a_fault_is_read(folder: pathlib.Path) -> None:
    (folder / "plan.toml").write_text(GOOD)
    assert set(read_plan(folder / "plan.toml").elements) == {"a", "b"}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_plan_is_one_clear_line(
    kind: str, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part, instead, error, message = BAD[kind]
    assert part in GOOD
    text = GOOD.replace(part, instead)
    if kind == "parallel across devices":
        text = text.replace("a >> b", "a | b")
    if kind == "two operating points at once":
        text = text.replace("a >> b", "a | c")
    path = folder / "plan.toml"
    path.write_text(text)
    with pytest.raises(error, match=message) as caught:
        read_plan(path)
    line = str(caught.value)
    assert line.startswith("plan.toml: ")
    assert "\n" not in line
    assert len(line) < 400
    assert main(["budget", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"probcalc: {line}\n"
