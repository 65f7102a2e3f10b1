"""Runs functions in fresh processes against a replayed NVML library.

The library is built once with gcc and found by the real pynvml in place of NVIDIA's.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = pathlib.Path(__file__).with_suffix("") / "nvml_standin.c"
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
USAGE = "nvmlDeviceGetPowerUsage"


def record(of: str, /, **values: object) -> str:
    """One line of the configuration."""
    return "\t".join([of, *(f"{key}={value}" for key, value in values.items())])


def trace_csv(
    path: pathlib.Path, time: npt.ArrayLike, *columns: npt.ArrayLike
) -> pathlib.Path:
    """Write a trace of power in W, then temperature and clock if given."""
    names = ["t_s", "power_w", "temp_c", "sm_mhz"][: 1 + len(columns)]
    table = np.column_stack([time, *columns])
    rows = [",".join(f"{value:.9g}" for value in row) for row in table]
    path.write_text("\n".join([",".join(names), *rows]) + "\n")
    return path


@dataclass(frozen=True)
class Standin:
    """The library, and where configurations go."""

    library: pathlib.Path
    folder: pathlib.Path

    def constant(self, watts: float) -> pathlib.Path:
        """A trace of constant power."""
        return trace_csv(self.folder / f"{watts:g}.csv", [0.0, 100.0], [watts] * 2)

    def steps(self, *stretches: tuple[float, float]) -> pathlib.Path:
        """A trace of power in W for a time in s each, with edges of 1 us."""
        ends = np.cumsum([t for _, t in stretches])
        starts = np.concatenate([[0.0], ends[:-1] + 1e-6])
        at = np.column_stack([starts, ends]).ravel()
        watts = np.repeat([w for w, _ in stretches], 2)
        name = "-".join(f"{w:g}x{t:g}" for w, t in stretches)
        return trace_csv(self.folder / f"{name[:80]}.csv", at, watts)

    def run(
        self,
        function: Callable[[], Any],
        records: Iterable[str],
        *,
        clock: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Any:
        """Return what a function of a test module returns in a fresh process."""
        done = self.finished(function, records, clock, environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def finished(
        self,
        function: Callable[[], Any],
        records: Iterable[str],
        clock: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a function of a test module in a fresh process."""
        config = self.folder / "config"
        clock = record("clock", mode="virtual") if clock is None else clock
        config.write_text("\n".join([clock, *records]) + "\n")
        module = f"tests.{function.__module__.rpartition('.')[2]}"
        script = (
            f"import json; from {module} import {function.__name__} as f; "
            "print(json.dumps(f()))"
        )
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        return subprocess.run(
            [sys.executable, "-c", script],
            env={
                **kept,
                "LD_LIBRARY_PATH": str(self.library.parent),
                "PROBCALC_STANDIN": str(config),
                "PYTHONPATH": str(ROOT),
                **(environment or {}),
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def real_clock() -> str:
    """A clock that all processes share, with replay time 0 now."""
    return record(
        "clock",
        mode="real",
        origin_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
    )


@functools.cache
def built(folder: pathlib.Path) -> pathlib.Path:
    """Build the library, or skip where there is no compiler."""
    import pytest

    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the NVML stand-in needs gcc and Linux")
    folder.mkdir(exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    flags = [
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run(
        [compiler, *flags, "-o", str(library), str(SOURCE), soname, "-lm"], check=True
    )
    return library


class StandinClock:
    """The stand-in's virtual clock, for meters in the process that runs it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._library.standin_now_ns.restype = ctypes.c_int64
        self._library.standin_set_ns.argtypes = [ctypes.c_int64]
        self._library.standin_advance_ns.argtypes = [ctypes.c_int64]

    def now(self) -> float:
        return self._library.standin_now_ns() * 1e-9

    def sleep(self, duration: float) -> None:
        self._library.standin_advance_ns(round(duration * 1e9))

    def set(self, time: float) -> None:
        self._library.standin_set_ns(round(time * 1e9))
