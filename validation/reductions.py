"""Study: whether the reduction bound holds, and how tight it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from probcalc.validation.reduction import reduction_bound
from probcalc.validation.simulated_contexts import random_case, worst_deviation

__all__ = ["Found", "as_table", "reductions"]


class Found(NamedTuple):
    """What random terms and plans in random contexts show.

    Attributes
    ----------
    cases, nodes : int
        How many, and how many nodes they have together.
    broken : int
        Cases with a quantile of energy or time off by more than the bound.
    tightest : tuple of float
        Quantiles .5, .9 and 1 of what was seen over the bound of energy.
    linear : float
        Median of that bound over the sum of m_i tau_i.
    beyond, broken_beyond : int
        Cases whose shifts were taken forty times too large, and how many of them the
        bound then missed.
    """

    cases: int
    nodes: int
    broken: int
    tightest: tuple[float, float, float]
    linear: float
    beyond: int
    broken_beyond: int


def reductions(*, seed: int = 0, repeats: int = 10_000) -> Found:
    """Run the study; some two minutes for 10,000 cases."""
    nodes = broken = beyond = broken_beyond = 0
    used, linear = [], []
    for i in range(repeats):
        case = random_case(seed + i)
        nodes += len(case.plan)
        bound = reduction_bound(case.plan, case.history, case.interference)
        off = worst_deviation(case, seed=seed + i, samples=100)
        slack = 1.0 + 1e-9
        broken += off.energy > bound.energy * slack or off.time > bound.time * slack
        if bound.energy > 0.0:
            used.append(off.energy / bound.energy)
            linear.append(bound.energy / bound.linear)
            if i % 10 == 0:
                beyond += 1
                far = worst_deviation(case, seed=seed + i, samples=100, beyond=40.0)
                broken_beyond += far.energy > bound.energy
    half, most, all_ = np.quantile(used, [0.5, 0.9, 1.0])
    return Found(
        repeats,
        nodes,
        broken,
        (float(half), float(most), float(all_)),
        float(np.median(linear)),
        beyond,
        broken_beyond,
    )


def as_table(found: Found) -> str:
    """Lay the study out as a table in Markdown."""
    rows = {
        "random terms and plans": f"{found.cases:,} ({found.nodes:,} nodes)",
        "off by more than the bound at some quantile": str(found.broken),
        "seen over bound: median, .9 quantile, largest": ", ".join(
            f"{x:.3f}" for x in found.tightest
        ),
        "bound over the sum of m τ, median": f"{found.linear:.2f}",
        "shifts forty times beyond the tolerance: bound missed": (
            f"{found.broken_beyond} of {found.beyond}"
        ),
    }
    lines = ["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())]
    return "\n".join(lines)
