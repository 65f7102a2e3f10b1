"""Study: how often verdicts are wrong, and how often they decide.

One element in two contexts whose true shift is delta standard deviations of a run, half
of it through T and half through d. The margin is 1.96 standard deviations, as in the
paper's rule, which is judged beside the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.validation.insensitivity import history_insensitive, plain_rule
from probcalc.validation.verdict import HELD, REFUTED

__all__ = ["Row", "as_table", "error_rates"]

FloatArray = npt.NDArray[np.float64]
POWER, TIME, DYNAMIC = 60.0, 1e-2, 1.0
TIME_SD, DYNAMIC_SD = 1e-4, 6e-3
SD = float(np.hypot(POWER * TIME_SD, DYNAMIC_SD))
SHIFTS = (0.0, 1.0, 1.5, 2.5, 4.0)


class Row(NamedTuple):
    """Outcomes at one true shift.

    Attributes
    ----------
    runs : str
    blocks, each : int
        Processes per context, and runs in each.
    shift : float
        True left side of the inequality in standard deviations; 1.96 is the margin.
    held, refuted : float
        Shares of the verdict's outcomes; the rest is undecided.
    plain : float
        Share in which the paper's rule on sample means says "insensitive".
    repeats : int
    """

    runs: str
    blocks: int
    each: int
    shift: float
    held: float
    refuted: float
    plain: float
    repeats: int

    @property
    def wrong(self) -> float:
        """Share of wrong verdicts."""
        return self.held if self.shift > 1.96 else self.refuted


def error_rates(*, seed: int = 0, repeats: int = 400) -> Iterator[Row]:
    """Run the study; about two minutes for 400 repeats."""
    cases = [
        ("normal", 3, 1, 0.0, 0.0),
        ("normal", 10, 1, 0.0, 0.0),
        ("normal", 30, 1, 0.0, 0.0),
        ("lognormal", 5, 1, 0.0, 0.0),
        ("lognormal", 30, 1, 0.0, 0.0),
        ("AR(1) .9", 10, 10, 0.9, 0.0),
        ("process offset 1 sd", 3, 20, 0.0, 1.0),
        ("process offset 1 sd", 10, 20, 0.0, 1.0),
        ("process offset 1 sd", 20, 20, 0.0, 1.0),
        ("one process", 1, 100, 0.0, 1.0),
    ]
    for i, (name, blocks, each, correlation, offset) in enumerate(cases):
        for j, shift in enumerate(SHIFTS):
            rng = np.random.default_rng([seed, i, j])
            held = refuted = plain = 0
            for _ in range(repeats):
                a, b = (
                    _element(rng, name, blocks, each, correlation, offset, moved)
                    for moved in (0.0, shift)
                )
                outcome = history_insensitive(
                    a, b, margin=1.96 * SD, levels=(), tail=None
                ).outcome
                held += outcome is HELD
                refuted += outcome is REFUTED
                plain += plain_rule(a, b).insensitive
            yield Row(
                name,
                blocks,
                each,
                shift,
                held / repeats,
                refuted / repeats,
                plain / repeats,
                repeats,
            )


def _element(
    rng: np.random.Generator,
    name: str,
    blocks: int,
    each: int,
    correlation: float,
    offset: float,
    shift: float,
) -> Element:
    size = (2, blocks, each)
    if name == "lognormal":
        mean = np.exp(0.32)
        sd = mean * np.sqrt(np.exp(0.64) - 1.0)
        z = (rng.lognormal(0.0, 0.8, size) - mean) / sd
    else:
        z = rng.normal(size=size)
    for k in range(1, each if correlation else 0):
        fresh = np.sqrt(1.0 - correlation**2) * z[:, :, k]
        z[:, :, k] = correlation * z[:, :, k - 1] + fresh
    z = z + offset * rng.normal(size=(2, blocks, 1))
    half = 0.5 * shift * SD
    time = TIME + TIME_SD * z[0] + half / POWER
    energy = POWER * time + DYNAMIC + DYNAMIC_SD * z[1] + half
    return Element.from_runs(
        "kernel",
        time=time.ravel(),
        energy=energy.ravel(),
        static_power=POWER,
        device="gpu0",
        blocks=np.repeat(np.arange(blocks), each).tolist(),
    )


def as_table(rows: list[Row]) -> str:
    """Lay the study out as a table in Markdown."""
    head = "| runs | blocks x runs | shift / sd | held | refuted | undecided | wrong "
    lines = [
        head + "| plain rule says insensitive |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.runs} | {r.blocks} x {r.each} | {r.shift:g} | {r.held:.1%} | "
        f"{r.refuted:.1%} | {1.0 - r.held - r.refuted:.1%} | {r.wrong:.1%} | "
        f"{r.plain:.1%} |"
        for r in rows
    ]
    return "\n".join(lines)
