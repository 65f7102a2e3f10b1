"""Is variant A cheaper than B? Means, intervals, and the chance of a single run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from probcalc.distribution import Probability
from probcalc.errors import InputError
from probcalc.plain import finite
from probcalc.validation.blocks import Blocked, mean_interval, welch
from probcalc.validation.verdict import Claim, Verdict, decided, intersection

__all__ = ["Comparison", "compare", "less_than", "probability_less"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two configurations, a and b.

    Attributes
    ----------
    cheaper : Verdict
        "a uses no more than b on average, but for the margin".
    difference : tuple of float
        Mean of a less that of b, with two-sided confidence bounds.
    ratio : float
        Mean of a over that of b.
    less : Probability
        P(a run of a uses less than a run of b), ties counting half.
    separated : bool
        Whether the interval of a lies below that of b (the rule of section 5.2.2).
    paired : bool
    """

    cheaper: Verdict
    difference: tuple[float, float, float]
    ratio: float
    less: Probability
    separated: bool
    paired: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        value, lower, upper = self.difference

        return {
            "verdict": self.cheaper.to_dict(),
            "difference": {
                "unit": self.cheaper.claim.unit,
                "value": finite(value),
                "lower": finite(lower),
                "upper": finite(upper),
                "kind": "confidence",
                "level": self.cheaper.claim.level,
            },
            "ratio": finite(self.ratio),
            "probability_less": {
                "value": self.less.value,
                "lower": self.less.lower,
                "upper": self.less.upper,
                "kind": self.less.kind,
            },
            "intervals_separated": self.separated,
            "paired": self.paired,
        }


def compare(
    a: Blocked,
    b: Blocked,
    *,
    unit: str = "J",
    margin: float = 0.0,
    level: float = 0.95,
    paired: bool = False,
) -> Comparison:
    """Compare what two configurations use.

    Parameters
    ----------
    margin : float
        By how much a may exceed b and still count as cheaper, declared before the data.
    paired : bool
        Block i of both was measured side by side: differences are taken within blocks,
        which removes what both share. Blocks are matched by their labels.

    Raises
    ------
    InputError
        Pairs whose blocks have not the same labels.
    """
    if paired:
        b = _paired_with(a, b)
    one_sided = _difference(a, b, level, paired)
    claim = Claim(f"{a.name} uses no more than {b.name}", margin, unit, level)
    blocks = min(a.blocks, b.blocks)
    part = decided("difference of means", *one_sided, claim, blocks=blocks)
    verdict = intersection(
        claim,
        [part],
        [(f"blocks of {a.name}", a.blocks), (f"blocks of {b.name}", b.blocks)],
        ["blocks are independent" if not paired else "pairs of blocks are independent"],
    )
    both = 0.5 + 0.5 * level
    ia, ib = mean_interval(a, both), mean_interval(b, both)
    return Comparison(
        verdict,
        _difference(a, b, both, paired),
        ia[0] / ib[0] if ib[0] else math.nan,
        probability_less(a, b, level=level),
        ia[2] < ib[1],
        paired,
    )


def _paired_with(a: Blocked, b: Blocked) -> Blocked:
    """Return b with its blocks numbered as those of a that bear their labels."""
    if a.labels == b.labels and a.blocks == b.blocks:
        return b
    unlabelled = not a.labels or not b.labels
    if unlabelled or set(a.labels) != set(b.labels):
        alone = sorted(map(str, set(a.labels) ^ set(b.labels)))[:3]
        raise InputError(
            f"{a.name} has {a.blocks} blocks and {b.name} {b.blocks}; pairs need "
            f"equally many, labelled alike ({', '.join(alone) or 'none'} in one alone)"
        )
    number = {label: i for i, label in enumerate(a.labels)}
    order = np.array([number[label] for label in b.labels], dtype=np.int64)
    return Blocked(b.values, order[b.block], b.name, a.labels)


def _difference(
    a: Blocked, b: Blocked, level: float, paired: bool
) -> tuple[float, float, float]:
    if not paired:
        return welch(b, a, level)
    return mean_interval(Blocked.of(a.means - b.means), level)


def less_than(a: Blocked, b: Blocked, *, level: float = 0.95) -> bool:
    """Whether a's upper end lies below b's lower end (the paper's rule)."""
    both = 0.5 + 0.5 * level
    return mean_interval(a, both)[2] < mean_interval(b, both)[1]


def probability_less(a: Blocked, b: Blocked, *, level: float = 0.95) -> Probability:
    """P(a run of a is below a run of b), ties half, with an interval over blocks.

    The statistic of Mann and Whitney; its variance from the placements' block means
    (DeLong, in clusters Obuchowski 1997).
    """
    from scipy import special

    below = _placed(a.values, b.values)  # share of b above each run of a
    above = _placed(-b.values, -a.values)
    value = float(below.mean())
    if a.blocks < 2 or b.blocks < 2:
        return Probability(value, 0.0, 1.0, "open")
    va = _variance_of_mean(a, below)
    vb = _variance_of_mean(b, above)
    few = min(a.blocks, b.blocks)
    side = 0.5 + 0.5 * level
    if va + vb == 0.0:
        # Every run of one is below every run of the other: what `few` blocks that all
        # agree say of the share of blocks that do.
        rare = (1.0 - side) ** (1.0 / few)
        if value == 0.5:
            return Probability(value, 0.0, 1.0, "open")
        ends = (rare, 1.0) if value > 0.5 else (0.0, 1.0 - rare)
        return Probability(value, *ends, "confidence")
    # On the logit scale an interval stays between 0 and 1.
    half = float(special.stdtrit(few - 1, side)) * math.sqrt(va + vb)
    inside = min(max(value, 1e-12), 1.0 - 1e-12)
    centre = math.log(inside / (1.0 - inside))
    width = half / (inside * (1.0 - inside))
    low, high = (float(special.expit(centre + s * width)) for s in (-1.0, 1.0))
    return Probability(value, low, high, "confidence")


def _placed(x: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Share of `among` above each x, ties half."""
    ordered = np.sort(among)
    left = np.searchsorted(ordered, x, side="left")
    right = np.searchsorted(ordered, x, side="right")
    return 1.0 - 0.5 * (left + right) / ordered.size


def _variance_of_mean(data: Blocked, values: np.ndarray) -> float:
    """Variance of the mean over runs, by blocks."""
    excess = np.bincount(data.block, values - values.mean())
    b = data.blocks
    return b / (b - 1.0) * float(excess @ excess) / len(data) ** 2
