"""Runs the benchmarks of laws under ``./dev bench``: right answers, no time limits.

The tables are printed (``-s`` shows them) and, where the environment variable
``PROBCALC_BENCH_JSON`` names a folder, written there as records.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib

import pytest

BENCHMARKS = sorted(
    path.stem for path in pathlib.Path(__file__).parent.glob("bench_*.py")
)
LAWS = [
    name for name in BENCHMARKS if name.startswith("bench_laws_") or "_than_" in name
]


@pytest.mark.bench
@pytest.mark.filterwarnings("default")  # other packages warn as they like
@pytest.mark.parametrize("name", LAWS)
def test_benchmark_of_laws_gives_right_answers(
    name: str, tmp_path: pathlib.Path
) -> None:
    folder = pathlib.Path(os.environ.get("PROBCALC_BENCH_JSON", tmp_path))
    path = folder / f"{name}.json"
    module = importlib.import_module(f"tests.benchmarks.{name}")
    report = module.main(["--json", str(path)])
    record = json.loads(path.read_text(encoding="utf-8"))
    assert {"benchmark", "machine", "rows"} <= set(record)
    assert any(row["who"] == "probcalc" for row in record["rows"])
    assert not report.failures(), "\n".join(report.failures())
