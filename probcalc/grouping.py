"""Candidate draw groups judged on held-out steps of a measured job."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Constant, Empirical
from probcalc.errors import InputError
from probcalc.groups import Record, Share, steady, variance_shares
from probcalc.plan import Plan

__all__ = ["CANDIDATES", "GroupFit", "Grouping", "Score", "fit_groups"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Fewest held-out steps of a direction from which anything is chosen.
FEWEST = 10
#: Values that stand for a predicted law.
ENSEMBLE = 400


@dataclass(frozen=True, slots=True)
class Grouping:
    """A way in which the nodes of a plan may draw measured rows.

    Attributes
    ----------
    name : str
    pool : tuple of str
        Rows that agree in these labels make the law of a node.
    rows : tuple of str
        Nodes that agree in these draw one row together; empty: each afresh.
    within : str
        Rows of one execution come from one value of this label (a step), or ``""``.
    means : bool
        Whether laws are replaced by their means.
    """

    name: str
    pool: tuple[str, ...]
    rows: tuple[str, ...] = ()
    within: str = ""
    means: bool = False


_OWN = ("rank", "stage", "kind")
CANDIDATES = (
    Grouping("means only", ("stage", "kind"), means=True),
    Grouping("independent, pooled", ("stage", "kind")),
    Grouping("independent, own rank", _OWN),
    Grouping("microbatch rows, own rank", _OWN, ("rank", "microbatch")),
    Grouping("rows within one step", _OWN, ("rank", "microbatch"), "step"),
)


@dataclass(frozen=True, slots=True)
class Score:
    """How one grouping predicts held-out steps, one direction.

    Attributes
    ----------
    grouping : str
    steps : int
        Held-out steps.
    mean_error, mean_error_se : float
        Predicted over measured mean, less one; and its standard error from the
        held-out steps.
    sd_ratio : float
        Predicted over measured standard deviation.
    above : int
        Held-out steps above the predicted 0.9 quantile (a tenth is right).
    crps : float
        Mean continuous ranked probability score in s; smaller is better.
    """

    grouping: str
    steps: int
    mean_error: float
    mean_error_se: float
    sd_ratio: float
    above: int
    crps: float


@dataclass(frozen=True, slots=True)
class GroupFit:
    """Which grouping a record supports.

    Attributes
    ----------
    verdict : {"chosen", "non-stationary", "too short"}
    chosen : str or None
        Name of the grouping, where the verdict is ``"chosen"``.
    reason : str
    shares : tuple of Share
    scores : tuple of Score
        Both directions of every candidate.
    """

    verdict: str
    chosen: str | None
    reason: str
    shares: tuple[Share, ...]
    scores: tuple[Score, ...]


def fit_groups(
    plan: Plan,
    record: Record,
    observed: Mapping[Hashable, float],
    *,
    candidates: Sequence[Grouping] = CANDIDATES,
    levels: Sequence[str] = ("step", "rank", "microbatch"),
    samples: int = 4096,
    seed: int = 0,
) -> GroupFit:
    """Choose the draw groups of a plan by the steps that they predict.

    Laws come from one half of the steps, and one constant (what a composition lacks:
    mean measured less mean composed time of that half); they are judged on the
    measured times of the other half, both ways. The smallest mean score wins.

    Parameters
    ----------
    plan : Plan
        Its nodes carry the labels of the record, but for the step.
    record : Record
        A row for every node and step.
    observed : mapping of step to float
        Measured step times in s.
    candidates : sequence of Grouping
    levels : sequence of str
        Of `variance_shares`.
    samples, seed : int
        Of each simulation.

    Raises
    ------
    InputError
        Labels that the plan or the record lacks; nodes without a row in some step;
        steps without a measured time.
    """
    rows = _rows(plan, record)
    times = np.array([_observed(observed, step) for step in record.steps])
    composed = np.array([_longest(plan, record.times[r]) for r in rows])
    calm, reason = steady(times)
    half = len(record.steps) // 2
    first, second = np.arange(half), np.arange(half, len(record.steps))
    scores: list[Score] = []
    for candidate in candidates:
        for train, test in ((first, second), (second, first)):
            constant = float((times[train] - composed[train]).mean())
            law = _ensemble(plan, record, rows, train, candidate, samples, seed)
            scores.append(_score(candidate.name, law + constant, times[test]))
    shares = variance_shares(record, levels, pool=_OWN, seed=seed)
    best = min(
        (c.name for c in candidates),
        key=lambda name: sum(s.crps for s in scores if s.grouping == name),
    )
    if not calm:
        verdict, chosen = "non-stationary", None
    elif min(first.size, second.size) < FEWEST:
        verdict, chosen = "too short", None
        reason = f"{half} held-out steps, expected at least {FEWEST}; {reason}"
    else:
        verdict, chosen = "chosen", best
    return GroupFit(verdict, chosen, reason, shares, tuple(scores))


def _observed(observed: Mapping[Hashable, float], step: Hashable) -> float:
    if step not in observed:
        raise InputError(f"fit_groups: no measured time of step {step!r}")
    return float(observed[step])


def _rows(plan: Plan, record: Record) -> IntArray:
    """Row of every node in every step, shape (steps, nodes)."""
    names = [name for name in plan.labels if name in record.labels]
    keys = list(zip(*(plan.labels[name] for name in names), strict=True))
    where = {
        (int(step), *key): i
        for i, (step, key) in enumerate(
            zip(
                record.step_of,
                zip(*(record.labels[name] for name in names), strict=True),
                strict=True,
            )
        )
    }
    found = np.empty((len(record.steps), len(plan)), dtype=np.int64)
    for s in range(len(record.steps)):
        for i, key in enumerate(keys):
            row = where.get((s, *key))
            if row is None:
                labels = ", ".join(f"{n} {v}" for n, v in zip(names, key, strict=True))
                raise InputError(
                    f"fit_groups: no row for node {plan.names[i]!r} ({labels}) in step "
                    f"{record.steps[s]!r}"
                )
            found[s, i] = row
    return found


def _longest(plan: Plan, durations: FloatArray) -> float:
    from probcalc.kernels import graph

    return graph.longest(
        len(plan), plan.sources, plan.targets, plan.lags, durations, plan.releases
    )


def _ensemble(
    plan: Plan,
    record: Record,
    rows: IntArray,
    train: IntArray,
    grouping: Grouping,
    samples: int,
    seed: int,
) -> FloatArray:
    """Values of equal weight that stand for the predicted makespan."""
    if grouping.within == "step":
        each = max(samples // train.size, 256)
        parts = [
            _ensemble(
                plan, record, rows, one, replace(grouping, within=""), each, seed + k
            )
            for k, one in enumerate(train[:, None])
        ]
        return np.concatenate(parts)
    from probcalc.montecarlo import simulate

    made = _with_laws(plan, record, rows[train], grouping)
    if grouping.rows:
        made = made.drawn(rows=grouping.rows)
    law = simulate(made, samples=samples, seed=seed).time
    return np.asarray(law.icdf((np.arange(ENSEMBLE) + 0.5) / ENSEMBLE))


def _with_laws(plan: Plan, record: Record, rows: IntArray, grouping: Grouping) -> Plan:
    """Return the plan with the laws of some steps, pooled as the grouping says."""
    for name in (*grouping.pool, *grouping.rows):
        if name not in plan.labels:
            raise InputError(
                f"grouping {grouping.name!r}: the plan has no label {name!r}"
            )
    pools: dict[tuple[Any, ...], int] = {}
    columns = zip(*(plan.labels[name] for name in grouping.pool), strict=True)
    number = np.array([pools.setdefault(key, len(pools)) for key in columns])
    # Rows of a pool by step, then by the other labels of its nodes: the same order in
    # every pool, so that run k of two pools is of one step and one microbatch.
    others = sorted(set(plan.labels) & set(record.labels) - {"stage", "kind"})
    order = sorted(
        range(len(plan)),
        key=lambda i: tuple(str(plan.labels[name][i]).zfill(12) for name in others),
    )
    elements = []
    for pool in range(len(pools)):
        nodes = [i for i in order if number[i] == pool]
        times = record.times[rows[:, nodes]].ravel()
        law = Constant(float(times.mean())) if grouping.means else Empirical(times)
        template = plan.elements[int(plan.element_of[nodes[0]])]
        elements.append(template.with_laws(law, Constant(0.0)))
    return plan.with_elements(
        elements,
        number,
        baselines={d: plan.baselines[d] for e in elements for d in e.devices},
    )


def _score(name: str, law: FloatArray, test: FloatArray) -> Score:
    mean = float(test.mean())
    gap = np.abs(law[:, None] - law[None, :]).mean()
    crps = float(np.abs(law[:, None] - test[None, :]).mean() - 0.5 * gap)
    return Score(
        name,
        test.size,
        float(law.mean()) / mean - 1.0,
        float(test.std(ddof=1)) / np.sqrt(test.size) / mean,
        float(law.std()) / float(test.std(ddof=1)),
        int((test > np.quantile(law, 0.9, method="inverted_cdf")).sum()),
        crps,
    )
