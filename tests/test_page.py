"""The page about a plan, the doctor, and results in a notebook."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from probcalc.cli import main
from probcalc.element import Element
from probcalc.pictures import as_svg, bars
from probcalc.prediction import predict
from probcalc.validation.insensitivity import history_insensitive
from tests.measured_runs import runs

VOID = {"meta", "br", "link", "path", "use", "rect", "image", "input", "hr", "stop"}


class Balanced(HTMLParser):
    """Collects what is opened and never closed, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        # An end tag of a paragraph or a cell may be left out, another may not.
        assert tag in self.open, tag
        while self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(text: str) -> Balanced:
    found = Balanced()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def test_the_page_of_an_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "page.html"
    asked = ["report", "--example", "attention", "-o", str(file), "--limit", "3.4 J"]
    assert main(asked) == 0
    assert capsys.readouterr().out.strip() == str(file)
    text = file.read_text(encoding="utf-8")
    found = parsed(text)
    words = " ".join(found.text)
    assert words.index("one execution in") < words.index("How sure")
    assert "3.32 J" in words
    assert "P(energy > 3.4 J)" in words
    assert "prefix" in words
    assert "SHA-256" not in words  # an example has no file of the user's
    # Nothing is fetched.
    assert all(link.startswith(("#", "data:")) for link in found.links)
    assert not re.search(r"https?://(?!www\.w3\.org|purl\.org|creativecommons)", text)
    assert text.count("<svg") == 2  # exceedance and timeline


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        """\
name = "<script>alert(1)</script>"
description = "a & b <b>"
expression = "k"

[devices.gpu0]
static_power = "60 W"

[elements.k]
device = "gpu0"
time = { distribution = "gamma", mean = "10 ms", sd = "1 ms" }
"""
    )
    file = tmp_path / "page.html"
    assert main(["report", str(plan), "-o", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    words = " ".join(parsed(text).text)
    assert "SHA-256" in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "--example", "bert"], "-o: None found"),
        (["report", "--example", "bert", "-o", "x.pdf"], "expected an .html file"),
        (["report", "-o", "x.html"], "give one of PLAN"),
        (["report", "--example", "bert", "-o", "x.html", "--plot", "y.png"], "--plot"),
    ],
)
def test_bad_input(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "JAX: backend cpu" in out
    assert "NVML: " in out
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {p["name"]: p for p in found["packages"]}
    assert by_name["numpy"]["version"] == np.__version__


def test_notebooks_show_predictions_and_verdicts() -> None:
    element = Element("a<b", time=1.0, static_power=2.0, device="gpu0")
    shown = predict(element)._repr_html_()
    parsed(shown)
    assert "a&lt;b by exact" in shown
    assert "<td>2 J</td>" in shown
    rng = np.random.default_rng(1)
    verdict = history_insensitive(
        runs(rng, blocks=3), runs(rng, blocks=3), margin="2 %"
    )
    shown = verdict._repr_html_()
    parsed(shown)
    assert "<td>location</td>" in shown
    assert "open" in shown


def test_pictures_are_the_same_text_each_time() -> None:
    texts = {as_svg(bars(["a", "b"], [0.7, 0.3], "share")) for _ in range(2)}
    assert len(texts) == 1
    assert texts.pop().startswith("<svg")
