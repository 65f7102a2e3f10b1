"""Study: iteration times composed from measured forward and backward passes.

Data: ml-energy/zeus, branch kronos, commit 38cb3f90c30d9041d4b141cfe5c922dba55baa45
(Apache License 2.0), sosp24_data/perseus/A100: times of every forward, backward and
data load of bert and gpt3xl on four A100, 1F1B, for several plans of clocks. Run as

    python -m probcalc.validation.perseus FOLDER

Each iteration's own times go through the schedule; the gap is what is measured less
what is composed. Nothing is fitted. Iterations 0 and 1 are cold starts and left out.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.kernels import graph
from probcalc.measurement.readers.perseus import RankProfile, read_profile
from probcalc.plan import Plan
from probcalc.schedules import one_f_one_b

__all__ = ["COLD", "Gap", "Iterations", "as_table", "gaps", "iterations"]

FloatArray = npt.NDArray[np.float64]

COLD = 2


class Gap(NamedTuple):
    """Measured and composed iteration times of one plan of clocks.

    Attributes
    ----------
    model, clocks : str
    iterations : int
    measured : float
        Mean iteration time of rank 0, s.
    bare, bare_sd : float
        Mean and spread over iterations of measured less composed time, s.
    loaded, loaded_sd : float
        The same with the recorded load times of first and last stage as elements.
    """

    model: str
    clocks: str
    iterations: int
    measured: float
    bare: float
    bare_sd: float
    loaded: float
    loaded_sd: float


class Iterations(NamedTuple):
    """Iterations of one plan of clocks, cold ones left out.

    Attributes
    ----------
    model, clocks : str
    measured : ndarray, shape (iterations,)
        Iteration times of rank 0, s.
    bare, loaded : ndarray, shape (iterations,)
        Composed from the iteration's own times, without and with the recorded load
        times of first and last stage, s.
    """

    model: str
    clocks: str
    measured: FloatArray
    bare: FloatArray
    loaded: FloatArray


def iterations(folder: pathlib.Path, model: str) -> Iterator[Iterations]:
    """Compose every iteration of every recorded plan of a model.

    Parameters
    ----------
    folder : Path
        Holds ``A100_MODEL/N.prof.json``.
    model : {"bert", "gpt3xl"}
    """
    files = sorted(
        (folder / f"A100_{model}").glob("*.prof.json"),
        key=lambda path: int(path.name.partition(".")[0]),
    )
    for path in files:
        yield _iterations(model, path.name.partition(".")[0], read_profile(path).ranks)


def _iterations(model: str, clocks: str, ranks: tuple[RankProfile, ...]) -> Iterations:
    count = ranks[0].time.size
    microbatches = ranks[0].times["forward"][COLD].size
    unit = Element("unit", time=1.0, static_power=60.0, device="gpu0")
    ends = {0: unit, len(ranks) - 1: unit}
    bare, loaded = (
        one_f_one_b(len(ranks), microbatches, forward=unit, backward=unit, load=load)
        for load in (None, ends)
    )
    kept = range(COLD, count)
    return Iterations(
        model,
        clocks,
        ranks[0].time[COLD:],
        np.array([_composed(bare, ranks, i) for i in kept]),
        np.array([_composed(loaded, ranks, i) for i in kept]),
    )


def gaps(folder: pathlib.Path, model: str) -> Iterator[Gap]:
    """Gap of every recorded plan of a model; arguments as `iterations`."""
    for r in iterations(folder, model):
        bare, loaded = r.measured - r.bare, r.measured - r.loaded
        yield Gap(
            model,
            r.clocks,
            r.measured.size,
            float(r.measured.mean()),
            float(bare.mean()),
            float(bare.std(ddof=1)),
            float(loaded.mean()),
            float(loaded.std(ddof=1)),
        )


def _composed(plan: Plan, ranks: tuple[RankProfile, ...], iteration: int) -> float:
    count = ranks[0].times["forward"][iteration].size
    labels: Any = plan.labels
    names = ("stage", "kind", "microbatch")
    durations = np.array(
        [
            _time(ranks[stage].times[kind][iteration], microbatch, count)
            for stage, kind, microbatch in zip(*(labels[n] for n in names), strict=True)
        ]
    )
    return _longest(plan, durations)


def _time(times: FloatArray, microbatch: int, microbatches: int) -> float:
    # The last stage loads twice for each microbatch, one after the other.
    each = times.size // microbatches
    return float(times[microbatch * each : (microbatch + 1) * each].sum())


def _longest(plan: Plan, durations: FloatArray) -> float:
    return graph.longest(
        len(plan), plan.sources, plan.targets, plan.lags, durations, plan.releases
    )


def as_table(found: list[Gap]) -> str:
    """Lay gaps out as a table in Markdown."""
    head = "| model | plan | iterations | measured (s) | gap, bare (s) "
    lines = [head + "| gap, with loads (s) |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {g.model} | {g.clocks} | {g.iterations} | {g.measured:.3f} | "
        f"{g.bare:.3f} ± {g.bare_sd:.3f} | {g.loaded:.3f} ± {g.loaded_sd:.3f} |"
        for g in found
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    place = pathlib.Path(sys.argv[1])
    print(as_table([g for model in ("bert", "gpt3xl") for g in gaps(place, model)]))
