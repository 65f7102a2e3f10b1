"""What the benchmarks share: timing, the transform floor, one table, one record.

A time on its own says little, so every figure of ours stands beside the time of one
``rfft`` and one ``irfft`` of the same length, measured in the same run, and beside
other packages on the same work. Nothing here asserts a time: `Report.failures` is
about right and wrong answers only.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import scipy.fft

__all__ = [
    "LEVELS",
    "LOGNORMAL_SUMS",
    "Report",
    "Timing",
    "fft_pair",
    "machine",
    "measure",
    "peer",
    "run",
    "transforms",
]

Result = TypeVar("Result")

#: Survival levels of the reference values, and of every benchmark.
LEVELS = (0.5, 0.01, 0.001, 1e-6, 1e-9)

#: Quantiles at LEVELS of the sum of n iid lognormal(0, 0.5), in ball arithmetic.
LOGNORMAL_SUMS: dict[int, tuple[str, ...]] = {
    2: (
        "2.118740544441676616684228157",
        "4.970638426250541418273272015",
        "6.638183960070987855766211558",
        "12.96247923502824353600603499",
        "22.50824537428112212965486647",
    ),
    16: (
        "17.96040076965552846817197471",
        "24.53545543789581294972127067",
        "27.26740657413901056868737267",
        "34.83835300577449567325106941",
        "44.1537926888369289289107926",
    ),
    128: (
        "144.8677790575196209549445982",
        "161.7237673234923038089702401",
        "167.7296956165240905608001897",
        "181.7322970229422892929778792",
        "193.1965870505439870807681154",
    ),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall time of one call in seconds: median over repeats, with its spread.

    Parameters
    ----------
    median, low, high : float
        Median, fastest and slowest repeat, in seconds.
    cpu : float
        Processor time of the whole process in the median repeat, in seconds; above
        `median` where several threads worked.
    repeats : int
        Number of timed calls; one untimed call came before them.
    """

    median: float
    low: float
    high: float
    cpu: float
    repeats: int


def measure(
    call: Callable[[], Result],
    *,
    repeats: int = 7,
    budget: float = 10.0,
    warm: bool = True,
) -> tuple[Result, Timing]:
    """Result and timing of a call, called once untimed first.

    Parameters
    ----------
    call : callable without arguments
    repeats : int
        Timed calls at most.
    budget : float
        Seconds after which no further call starts.
    warm : bool
        Whether to make the untimed call, which compiles and fills caches.
    """
    result = call() if warm else None
    walls: list[tuple[float, float]] = []
    begin = time.perf_counter()
    enabled = gc.isenabled()
    gc.disable()
    try:
        while len(walls) < max(repeats, 1):
            cpu, wall = time.process_time(), time.perf_counter()
            result = call()
            spent = time.perf_counter() - wall
            walls.append((spent, time.process_time() - cpu))
            if time.perf_counter() - begin > budget:
                break
    finally:
        if enabled:
            gc.enable()
    middle = sorted(walls)[len(walls) // 2]
    times = [wall for wall, _ in walls]
    assert result is not None
    return result, Timing(
        statistics.median(times), min(times), max(times), middle[1], len(times)
    )


@functools.cache
def fft_pair(length: int) -> Timing:
    """Time of one real transform of `length` points and its inverse."""
    vector = np.random.default_rng(length).random(length)

    def pair() -> Any:
        return scipy.fft.irfft(scipy.fft.rfft(vector), length)

    return measure(pair, repeats=25, budget=1.0)[1]


@contextmanager
def _watched(lengths: list[int]) -> Iterator[None]:
    """Note the length of every real transform made through ``scipy.fft``."""
    originals = {name: getattr(scipy.fft, name) for name in ("rfft", "irfft")}

    def watch(name: str) -> Callable[..., Any]:
        original = originals[name]

        @functools.wraps(original)
        def watched(x: Any, n: int | None = None, *args: Any, **kwargs: Any) -> Any:
            points = np.shape(x)[-1] if name == "rfft" else 2 * (np.shape(x)[-1] - 1)
            lengths.append(points if n is None else int(n))
            return original(x, n, *args, **kwargs)

        return watched

    for name in originals:
        setattr(scipy.fft, name, watch(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(scipy.fft, name, original)


def transforms(call: Callable[[], Any]) -> tuple[int, float]:
    """Longest real transform of a call, and all of them in pairs of that length.

    Returns
    -------
    longest : int
        0 when the call made none.
    pairs : float
        Sum of N log2 N over all transforms over twice that of the longest.
    """
    lengths: list[int] = []
    with _watched(lengths):
        call()
    if not lengths:
        return 0, 0.0
    longest = max(lengths)
    work = math.fsum(n * math.log2(max(n, 2)) for n in lengths)
    return longest, work / (2 * longest * math.log2(max(longest, 2)))


def peer(name: str) -> Any | None:
    """Import another package, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def machine() -> dict[str, Any]:
    """Processor, system and versions, for the record."""
    model = platform.processor()
    information = pathlib.Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    packages = ("numpy", "scipy", "numba", "openturns", "aggregate", "dp-accounting")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
    }


@dataclass(slots=True)
class Report:
    """Rows of one benchmark: who, what, how right, how wide, how long."""

    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        who: str,
        case: str,
        level: str,
        *,
        timing: Timing | None = None,
        truth: Fraction | float | str | None = None,
        value: float | None = None,
        lower: float | None = None,
        upper: float | None = None,
        floor: Timing | None = None,
        target: str = "",
        note: str = "",
    ) -> None:
        """Add a figure; relative error and width follow from the numbers given."""
        right = None if truth is None else Fraction(truth)
        error = contains = width = None
        if right is not None and value is not None and math.isfinite(value):
            error = float((Fraction(value) - right) / right)
        if lower is not None and upper is not None:
            if right is not None:
                # A truth given as a double was itself rounded on its way.
                slack = abs(right) * Fraction(1, 10**13) * isinstance(truth, float)
                contains = math.isinf(lower) or Fraction(lower) <= right + slack
                if math.isfinite(upper):
                    contains = contains and right - slack <= Fraction(upper)
            size = max(abs(lower), abs(upper))
            width = (upper - lower) / size if 0 < size < math.inf else upper - lower
        self.rows.append(
            {
                "who": who,
                "case": case,
                "level": level,
                "error": error,
                "width": width,
                "contains": contains,
                "time": None if timing is None else asdict(timing),
                "floor": None if floor is None else asdict(floor),
                "floors": None
                if timing is None or floor is None
                else timing.median / floor.median,
                "target": target,
                "note": note,
            }
        )

    def refused(self, who: str, case: str, level: str, why: object) -> None:
        """Add a row for work that was refused or failed."""
        text = " ".join(str(why).split())[:100]
        self.add(who, case, level, note=f"refused: {text}")

    def failures(self) -> list[str]:
        """Rows of ours whose certified bracket does not hold the right value."""
        return [
            f"{row['case']} at {row['level']}: {row}"
            for row in self.rows
            if row["who"] == "probcalc" and row["contains"] is False
        ]

    def table(self) -> str:
        """Text table of all rows."""
        head = "who case level error width holds ms spread cpu_ms floors target note"
        lines: list[list[Any]] = [head.split()]
        for row in self.rows:
            t = row["time"]
            lines.append(
                [
                    row["who"],
                    row["case"],
                    row["level"],
                    _figure(row["error"], ".1e"),
                    _figure(row["width"], ".1e"),
                    {None: "", True: "yes", False: "NO"}[row["contains"]],
                    _figure(t and 1e3 * t["median"], ".3g"),
                    "" if t is None else f"{1e3 * t['low']:.3g}..{1e3 * t['high']:.3g}",
                    _figure(t and 1e3 * t["cpu"], ".3g"),
                    _figure(row["floors"], ".1f"),
                    row["target"],
                    row["note"],
                ]
            )
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join(
                cell.ljust(w) for cell, w in zip(line, widths, strict=True)
            ).rstrip()
            for line in lines
        )

    def record(self) -> dict[str, Any]:
        """What is written as JSON: title, machine, rows."""
        return {"benchmark": self.title, "machine": machine(), "rows": self.rows}


def _figure(x: float | None, form: str) -> str:
    return "" if x is None else format(x, form)


def run(
    title: str,
    build: Callable[[Report, int], None],
    argv: Sequence[str] | None = None,
) -> Report:
    """Run one benchmark from the command line: print its table, write its record.

    Parameters
    ----------
    title : str
        The claim measured.
    build : callable
        Fills a report; the second argument is the number of repeats.
    argv : sequence of str, optional
        ``[--json PATH] [--repeats N]``; the command line where absent.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", type=pathlib.Path, help="write the record here")
    parser.add_argument("--repeats", type=int, default=7, help="timed calls a figure")
    options = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    report = Report(title)
    build(report, options.repeats)
    about = machine()
    print(f"# {title}")
    print(f"{about['processor']}, {about['usable_cores']} cores, load {about['load']}")
    print(", ".join(f"{k} {v}" for k, v in about["versions"].items()))
    print(report.table())
    if options.json is not None:
        options.json.write_text(json.dumps(report.record(), indent=1), encoding="utf-8")
    return report
