"""Study: the drift of iteration times, described by a thermal mechanism and predicted.

Data: ml-energy/zeus, branch kronos, commit 38cb3f90c30d9041d4b141cfe5c922dba55baa45
(Apache License 2.0), iteration times and energies of `bert` on four A100 at the largest
clocks, of two jobs (perseus and envpipe), two plans each, one after the other. Run as

    python -m probcalc.validation.thermal_drift FOLDER

with the folder of ``iterations_A100_JOB.csv``. One mechanism is fitted to the first
plan of the first job, and predicts the other plans, none of whose times it has seen:
the first plan of the other job from the same cold start, the second plans from the
context that the first ones leave. Without context a signature is one number: the mean
of the plan that the mechanism was fitted to, or its value in the null context.
"""

from __future__ import annotations

import csv
import math
import pathlib
import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.characterise import DriftFit, fit_drift
from probcalc.context import NULL_CONTEXT, Context
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.mechanisms.thermal import RISE
from probcalc.propagation import predict_in_context
from probcalc.term import Sequential

__all__ = ["COLD", "Drift", "Record", "as_table", "drifts", "read_records"]

FloatArray = npt.NDArray[np.float64]

COLD = 2
#: Draw of an A100 that waits, W (sosp24_data of the same record: 83.64 W).
BASELINE = 83.64


class Record(NamedTuple):
    """Iterations of one plan, cold ones included.

    Attributes
    ----------
    job, plan : str
    time, energy : ndarray, shape (iterations,)
        Of rank 0, s and J.
    """

    job: str
    plan: str
    time: FloatArray
    energy: FloatArray


class Drift(NamedTuple):
    """How far off predictions of one plan's iteration times are.

    Attributes
    ----------
    job, plan : str
    iterations : int
    first, last : float
        Mean of the first and of the last five iterations, s.
    thermal, mean, null : float
        Root mean square error of the thermal mechanism, of the mean of the fitted plan,
        and of the null-context value, s.
    fitted : bool
        Whether it is the plan that was fitted.
    """

    job: str
    plan: str
    iterations: int
    first: float
    last: float
    thermal: float
    mean: float
    null: float
    fitted: bool


def read_records(
    path: pathlib.Path, *, model: str = "bert", plans: tuple[str, ...] = ("0", "1")
) -> list[Record]:
    """Read the iterations of rank 0 of some plans of a job.

    Raises
    ------
    InputError
        A plan that the file does not have.
    """
    rows: dict[str, list[tuple[int, float, float]]] = {p: [] for p in plans}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] == model and row["rank"] == "0" and row["plan"] in rows:
                values = float(row["iter_time_s"]), float(row["iter_energy_j"])
                rows[row["plan"]].append((int(row["iteration"]), *values))
    found = []
    job = path.stem.rpartition("_")[2]
    for plan, values in rows.items():
        if not values:
            raise InputError(f"{path.name}: no plan {plan!r} of {model!r}")
        table = np.array(sorted(values))
        found.append(Record(job, plan, table[:, 1], table[:, 2]))
    return found


def drifts(jobs: Mapping[str, list[Record]]) -> tuple[DriftFit, list[Drift]]:
    """Fit the first plan of the first job; judge every plan of every job.

    Parameters
    ----------
    jobs : mapping of str to list of Record
        Plans of each job in the order they ran.
    """
    first = next(iter(jobs.values()))[0]
    time, energy = first.time[COLD:], first.energy[COLD:]
    fit = fit_drift(time, energy / time - BASELINE)
    # Dynamic energy of a run in the null context, from the fitted plan alone.
    joules = float((energy - BASELINE * time).mean())
    found = []
    for job in jobs.values():
        entry = NULL_CONTEXT
        for record in job:
            predicted, exit_context = _predicted(fit, joules, record, entry)
            measured = record.time[COLD:]
            found.append(
                Drift(
                    record.job,
                    record.plan,
                    measured.size,
                    float(measured[:5].mean()),
                    float(measured[-5:].mean()),
                    _error(measured, predicted),
                    _error(measured, float(time.mean())),
                    _error(measured, fit.base.value),
                    record is first,
                )
            )
            entry = exit_context
    return fit, found


def _predicted(
    fit: DriftFit, joules: float, record: Record, entry: Context
) -> tuple[FloatArray, Context]:
    """Times of the warm iterations of a plan, and the context that it leaves.

    Warm iterations alone are followed: what the device does in the two cold ones, and
    between plans, is not recorded as the mechanism would need it.
    """
    count = record.time.size - COLD
    runs = [
        Element(
            f"iteration {i}",
            time=fit.base.value,
            dynamic_energy=joules,
            static_power=BASELINE,
            device="rank 0",
        )
        for i in range(count)
    ]
    probe = Element("next", time=0.0, static_power=BASELINE, device="rank 0")
    found = predict_in_context(
        Sequential([*runs, probe]),
        mechanisms=[fit.mechanism()],
        contexts={"rank 0": entry},
    )
    assert found.trace is not None
    rise = found.entry_context("next").values[RISE]
    return found.trace.full[:count, 0], Context({RISE: rise})


def _error(measured: FloatArray, predicted: FloatArray | float) -> float:
    return math.sqrt(float(np.mean((measured - predicted) ** 2)))


def as_table(fit: DriftFit, found: list[Drift]) -> str:
    """Lay the study out in Markdown; errors are root mean squares over iterations."""
    tau, gain = fit.time_constant, fit.gain
    said = (
        f"Fitted: {fit.base.value:.4g} s at the start, time constant {tau.value:.3g} s "
        f"[{tau.lower:.3g}, {tau.upper:.3g}], growth {1e6 * gain.value:.3g} "
        f"[{1e6 * gain.lower:.3g}, {1e6 * gain.upper:.3g}] ppm per W "
        f"({gain.level:.0%} confidence)."
    )
    head = "| job | plan | iterations | first, last five (s) | thermal (ms) "
    head += "| no context, mean (ms) | no context, null (ms) | |"
    lines = [said, "", head, "|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {d.job} | {d.plan} | {d.iterations} | {d.first:.3f}, {d.last:.3f} "
        f"| {1e3 * d.thermal:.1f} | {1e3 * d.mean:.1f} | {1e3 * d.null:.1f} "
        f"| {'fitted' if d.fitted else 'predicted'} |"
        for d in found
    ]
    return "\n".join(lines)


def study(folder: pathlib.Path) -> tuple[DriftFit, list[Drift]]:
    """Run the study on a folder of ``iterations_A100_JOB.csv``."""
    return drifts(
        {
            job: read_records(folder / f"iterations_A100_{job}.csv")
            for job in ("perseus", "envpipe")
        }
    )


if __name__ == "__main__":
    print(as_table(*study(pathlib.Path(sys.argv[1]))))
