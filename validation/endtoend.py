"""Study: verdicts on the Perseus A100 records, from composition to coverage.

Data as in `probcalc.validation.perseus`. Run as

    probcalc validate --study perseus-verdicts --records FOLDER

Forward and backward times are rows of one iteration, drawn together. The bare
composition lacks the data loads and everything that nobody timed; what is left after
the loads, "other", is estimated on some plans of clocks and used on another one.
"""

from __future__ import annotations

import math
import pathlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.validation.blocks import Blocked
from probcalc.validation.deviation import Predicted, deviation
from probcalc.validation.drift import FEWEST, drift
from probcalc.validation.perseus import COLD, Iterations, iterations
from probcalc.validation.verdict import Verdict

__all__ = ["Judged", "as_table", "judged", "record"]

FloatArray = npt.NDArray[np.float64]
SAMPLES = 4000


class Judged(NamedTuple):
    """What is found on one plan of clocks, predicted from the others.

    Attributes
    ----------
    model, clocks : str
    bare : Verdict
        "The bare composition is the iteration time."
    gap : tuple of float
        Measured less bare, mean with its bounds, s.
    loads : float
        Share of the gap that the recorded loads explain.
    other : tuple of float
        What remains, mean and sd over iterations, s.
    inside, judged : int
        Iterations inside the predicted 90 % interval, of all.
    drift : Verdict or None
        "The iteration time does not drift by more than 0.5 %"; None of fewer than 12
        iterations.
    """

    model: str
    clocks: str
    bare: Verdict
    gap: tuple[float, float, float]
    loads: float
    other: tuple[float, float]
    inside: int
    judged: int
    drift: Verdict | None


def judged(folder: pathlib.Path, model: str, *, seed: int = 0) -> list[Judged]:
    """Judge every recorded plan of a model by what the others say.

    Parameters
    ----------
    folder : Path
        As for `probcalc.validation.perseus.gaps`.
    """
    records = list(iterations(folder, model))
    found = []
    for r in records:
        others = [o.measured - o.loaded for o in records if o is not r]
        inside = _inside(r, others, seed)
        bare = deviation(
            Predicted(r.bare, (), "time", f"{model}, plan {r.clocks}, bare"),
            Blocked.of(r.measured, name="iterations"),
            margin=0.01 * float(r.measured.mean()),
            levels=(0.5,),
        )
        gap = r.measured - r.bare
        half = 1.96 * float(gap.std(ddof=1)) / math.sqrt(gap.size)
        rest = r.measured - r.loaded
        found.append(
            Judged(
                model,
                r.clocks,
                bare,
                (float(gap.mean()), float(gap.mean()) - half, float(gap.mean()) + half),
                1.0 - float(rest.mean() / gap.mean()),
                (float(rest.mean()), float(rest.std(ddof=1))),
                inside,
                r.measured.size,
                drift(
                    r.measured,
                    margin=0.005 * float(r.measured.mean()),
                    unit="s",
                    name=f"{model}, plan {r.clocks}",
                )
                if r.measured.size >= FEWEST
                else None,
            )
        )
    return found


def _inside(record: Iterations, others: list[FloatArray], seed: int) -> int:
    """Iterations of one half inside the interval from the other half, both ways.

    "Other" of a plan not seen: Student's t around the mean over plans, with the spread
    between plans, and the residuals of single iterations.
    """
    rng = np.random.default_rng(seed)
    means = np.array([gap.mean() for gap in others])
    residuals = np.concatenate([gap - gap.mean() for gap in others])
    spread = float(means.std(ddof=1)) * math.sqrt(1.0 + 1.0 / means.size)
    count = 0
    for half in (0, 1):
        composed = record.loaded[half::2]
        other = (
            means.mean()
            + spread * rng.standard_t(means.size - 1, SAMPLES)
            + rng.choice(residuals, SAMPLES)
        )
        low, high = np.quantile(rng.choice(composed, SAMPLES) + other, [0.05, 0.95])
        held_out = record.measured[1 - half :: 2]
        count += int(np.count_nonzero((held_out >= low) & (held_out <= high)))
    return count


def as_table(found: list[Judged]) -> str:
    """Lay the study out as a table in Markdown."""
    head = "| model | plan | bare composition | gap (s) | of it loads | other (s) "
    lines = [
        head + "| inside 90 % | drift |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for j in found:
        moved = (
            "too few iterations"
            if j.drift is None
            else f"{j.drift.outcome.value}, {j.drift.parts[0].reason}"
        )
        lines.append(
            f"| {j.model} | {j.clocks} | {j.bare.outcome.value} | {j.gap[0]:.3f} "
            f"[{j.gap[1]:.3f}, {j.gap[2]:.3f}] | {j.loads:.0%} | {j.other[0]:.4f} ± "
            f"{j.other[1]:.4f} | {j.inside} of {j.judged} | {moved} |"
        )
    return "\n".join(lines)


def record(found: list[Judged]) -> dict[str, Any]:
    """Return the study as plain data, for its JSON record."""
    return {
        "study": "perseus-verdicts",
        "cold iterations left out": COLD,
        "plans": [
            {
                "model": j.model,
                "plan": j.clocks,
                "bare": j.bare.to_dict(),
                "gap_s": list(j.gap),
                "share_of_loads": j.loads,
                "other_s": list(j.other),
                "inside": j.inside,
                "judged": j.judged,
                "drift": None if j.drift is None else j.drift.to_dict(),
            }
            for j in found
        ],
    }
