"""Every Python block in README.md and docs/ runs, page by page."""

from __future__ import annotations

import pathlib
import re
import shlex

import pytest

from probcalc.cli import main
from probcalc.planfile import read_plan

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: pathlib.Path, language: str) -> list[tuple[str, str]]:
    """Blocks of a page, each with the empty lines that keep line numbers true."""
    text = page.read_text()
    fence = rf"^```{language}\n(.*?)^```$"
    return [
        ("\n" * text.count("\n", 0, found.start(1)), found[1])
        for found in re.finditer(fence, text, re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: pathlib.Path) -> None:
    namespace: dict[str, object] = {"__name__": page.stem}
    for lines_above, block in blocks(page, "python"):
        exec(compile(lines_above + block, page, "exec"), namespace)


PLANS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, (_, block) in enumerate(blocks(page, "toml"))
    if "expression = " in block
]


@pytest.mark.parametrize("plan", PLANS)
def test_plans_in_the_documentation_are_read(plan: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "runs.csv").write_text("t,e,p\n1.0,200.0,a\n1.1,210.0,b\n")
    (tmp_path / "plan.toml").write_text(plan)
    assert read_plan(tmp_path / "plan.toml").elements


COMMANDS = [
    pytest.param(line.removeprefix("probcalc "), id=line)
    for page in PAGES
    for language in ("sh", "console")
    for _, block in blocks(page, language)
    for line in block.splitlines()
    if line.startswith("probcalc ") and "--example" in line and "|" not in line
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_in_the_documentation_work(
    command: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command, comments=True)) in (0, 1)
    assert capsys.readouterr().err == ""
