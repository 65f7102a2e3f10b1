"""Study: draw groups of two public training jobs, judged on held-out steps.

Data: ByteDance-Seed/StragglerAnalysis (Apache License 2.0), commit
8efcd7f37f158af26ac64d0b6fbf1f22d28a6e83, jobs ST (DP 2, PP 4, 4 microbatches, 32 steps)
and SE (DP 32, PP 2, 8 microbatches, 43 steps, sequences of uneven length): durations of
every forward and backward pass, and measured step times. Run as

    python -m probcalc.validation.stragglers FOLDER
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import numpy as np

from probcalc.element import Element
from probcalc.grouping import GroupFit, fit_groups
from probcalc.groups import Record
from probcalc.plan import Plan
from probcalc.schedules import one_f_one_b

__all__ = ["as_table", "fitted", "job", "replicas"]

_KINDS = {"forward-compute": "forward", "backward-compute": "backward"}


def replicas(ranks: int, stages: int, microbatches: int) -> Plan:
    """One 1F1B pipeline per data-parallel rank, all at once; laws are placeholders."""
    unit = Element("unit", time=1.0, static_power=60.0, device="gpu0")
    one = one_f_one_b(stages, microbatches, forward=unit, backward=unit)
    size = len(one)
    offsets = np.repeat(np.arange(ranks) * size, one.sources.size)
    elements = [e.on(f"{e.devices[0]}.{r}") for r in range(ranks) for e in one.elements]
    labels: dict[str, Any] = {
        name: list(one.labels[name]) * ranks for name in ("stage", "kind", "microbatch")
    }
    labels["rank"] = np.repeat(np.arange(ranks), size).tolist()
    return Plan.from_arrays(
        elements=elements,
        element_of=np.concatenate(
            [one.element_of + r * len(one.elements) for r in range(ranks)]
        ),
        sources=np.tile(one.sources, ranks) + offsets,
        targets=np.tile(one.targets, ranks) + offsets,
        labels=labels,
        name=f"1F1B {stages} x {microbatches}, {ranks} replicas",
    )


def job(folder: pathlib.Path, name: str) -> tuple[Plan, Record, dict[Any, float]]:
    """Plan, measured rows and measured step times of a job.

    Parameters
    ----------
    folder : Path
        Holds ``trace-NAME.parquet`` and ``result-NAME.json``.
    name : {"ST", "SE"}
    """
    from pyarrow import parquet

    table = parquet.read_table(folder / f"trace-{name}.parquet").to_pydict()
    kept = [i for i, kind in enumerate(table["optype"]) if kind in _KINDS]
    labels = {
        "step": [table["step"][i] for i in kept],
        "rank": [table["dp_rank"][i] for i in kept],
        "stage": [table["stage"][i] for i in kept],
        "kind": [_KINDS[table["optype"][i]] for i in kept],
        "microbatch": [table["mb_id"][i] for i in kept],
    }
    order = sorted(range(len(kept)), key=lambda k: labels["step"][k])
    times = np.array([table["duration"][i] for i in kept])
    record = Record(times[order], {k: [v[i] for i in order] for k, v in labels.items()})
    text = (folder / f"result-{name}.json").read_text(encoding="utf-8")
    observed = {int(k): v for k, v in json.loads(text)["step_t_base"].items()}
    sizes = [max(labels[key]) + 1 for key in ("rank", "stage", "microbatch")]
    return replicas(*sizes), record, observed


def fitted(folder: pathlib.Path, name: str, samples: int = 4096) -> GroupFit:
    """Fit the draw groups of a job."""
    plan, record, observed = job(folder, name)
    return fit_groups(plan, record, observed, samples=samples)


def as_table(name: str, fit: GroupFit) -> str:
    """Lay a fit out as a table in Markdown."""
    choice = f", {fit.chosen}" if fit.chosen else ""
    head = (
        "| grouping | test steps | mean error | sd, predicted / measured "
        "| steps above predicted q.9 | CRPS (s) |"
    )
    lines = [f"**{name}**: {fit.verdict}{choice}; {fit.reason}", "", head]
    lines.append("|---|---|---|---|---|---|")
    lines += [
        f"| {s.grouping} | {s.steps} | {100 * s.mean_error:+.1f} ± "
        f"{100 * s.mean_error_se:.1f} % | {s.sd_ratio:.2f} | {s.above} of {s.steps} "
        f"({s.above / s.steps:.2f}) | {s.crps:.4f} |"
        for s in fit.scores
    ]
    lines += [
        "",
        "| level | share of the variance of log times | 95 % interval |",
        "|---|---|---|",
    ]
    lines += [
        f"| {s.level} | {s.share:.3f} | {s.lower:.3f} to {s.upper:.3f} |"
        for s in fit.shares
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    for each in ("ST", "SE"):
        print(as_table(each, fitted(pathlib.Path(sys.argv[1]), each)), end="\n\n")
