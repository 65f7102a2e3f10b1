"""Distribution-free bands around measured laws, pushed through the operators.

Time and energy never fall when an operand grows. So a law composed of the largest
(smallest) laws that the confidence bands allow is above (below) the true one, with the
confidence that all bands hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from probcalc.distribution import Distribution, Empirical
from probcalc.element import Element
from probcalc.errors import CompositionError, InputError
from probcalc.exact import LeafLaw
from probcalc.setting import Setting
from probcalc.term import MultiParallel, Parallel

__all__ = ["band_interval", "monotone", "quantile_at"]


def quantile_at(law: Any, p: float, sf: float) -> Any:
    """Quantile at the rarer side of a level, exact where the other is not."""
    return law.quantile(p) if p <= 0.5 else law.quantile(sf=sf)


def band_interval(
    law_of: Callable[[LeafLaw], Any], p: float, sf: float, level: float
) -> tuple[float, float]:
    """Interval for a quantile from bands around every measured law.

    Parameters
    ----------
    law_of : callable
        Composes the law with the laws of elements exchanged by what it is given.
    p, sf : float
        Level of the quantile, both ways.
    level : float
        Confidence of all bands together.

    Raises
    ------
    CompositionError, InputError
        Where no band can be given: pairs under ``|`` or ``&``, weights, blocks.
    """
    # Bonferroni: `level` holds for all bands at once.
    seen: set[tuple[int, str]] = set()

    def collect(law: Distribution, e: Element, count: int) -> Distribution:
        if isinstance(law, Empirical):
            _bandable(law, e, count)
            seen.add((id(e), _which(law, e)))
        return law

    law_of(collect)
    miss = (1.0 - level) / max(len(seen), 1)
    high, lost = _Band(miss, +1), _Band(miss, -1)
    law = law_of(high)
    # P(some draw is unbounded) counts as infinite; the law is that given none is.
    target = (sf - high.open) / (1.0 - high.open) if high.open < 1.0 else 0.0
    upper = math.inf
    if target > 0.0:
        upper = float(quantile_at(law, 1.0 - target, target).upper)
    law = law_of(lost)
    target = (p - lost.open) / (1.0 - lost.open) if lost.open < 1.0 else 0.0
    lower = -math.inf
    if target > 0.0:
        lower = float(quantile_at(law, target, 1.0 - target).lower)
    return lower, upper


def _which(law: Empirical, e: Element) -> str:
    if law is e.time:
        return "time"
    return "dynamic_energy" if law is e.dynamic_energy else "energy"


def _bandable(law: Empirical, e: Element, count: int) -> None:
    if count == 0 and e.coupled:
        raise CompositionError(
            f"bands: time and energy of {e.name!r} were measured together and wait for "
            "others under | or &, where no band around pairs is known; use "
            "method='bootstrap'"
        )
    if law.weights is not None:
        raise InputError(f"bands: runs of {e.name!r} have weights, expected plain runs")
    blocks = law.blocks
    if blocks is not None and len(set(blocks)) < len(blocks):
        raise InputError(
            f"bands: runs of {e.name!r} within a block are not independent draws; use "
            "method='bootstrap', or one run of each block"
        )


def monotone(setting: Setting) -> None:
    """Refuse where energy can fall when a measured time grows."""
    if not any(isinstance(node, Parallel | MultiParallel) for node in setting.order):
        return
    for e in setting.elements:
        below = any(c < 0.0 for c in setting.account.beyond(e).values())
        if below and isinstance(e.time, Empirical):
            raise CompositionError(
                f"bands: {e.name!r} runs below the baseline power of its devices, so "
                "that energy can fall when its time grows; use method='bootstrap'"
            )


class _Band:
    """Exchange measured laws for the largest (+1) or smallest (-1) of their bands.

    Mass eps = sqrt(log(2 / miss) / 2n) (Massart 1990) goes from one end of the runs to
    the other side's bound. Where there is no bound the law is that given that the mass
    was not drawn, and `open` counts the chance that some draw was.
    """

    def __init__(self, miss: float, sign: int) -> None:
        self.miss = miss
        self.sign = sign
        self.inside = 0.0  # log P(no draw is unbounded)
        self.done: dict[tuple[int, str], Any] = {}

    @property
    def open(self) -> float:
        """P(some draw is unbounded)."""
        return -math.expm1(self.inside)

    def __call__(self, law: Distribution, e: Element, count: int) -> Any:
        if not isinstance(law, Empirical):
            return law
        key = (id(e), _which(law, e))
        if key not in self.done:
            self.done[key] = self._band(law, e, count)
        return self.done[key]

    def _band(self, law: Empirical, e: Element, count: int) -> Empirical:
        n = law.samples.size
        eps = min(math.sqrt(math.log(2.0 / self.miss) / (2.0 * n)), 1.0)
        values = np.sort(law.samples)[:: self.sign]
        # Mass taken off the end that the law moves away from, run by run.
        mass = np.diff(np.maximum(np.arange(n + 1) / n - eps, 0.0))
        bound = _highest(law, e) if self.sign > 0 else _lowest(law, e)
        if math.isfinite(bound):
            return Empirical(np.append(values, bound), weights=np.append(mass, eps))
        if eps >= 1.0:
            self.inside = -math.inf
            return law
        self.inside += count * math.log1p(-eps)
        return Empirical(values, weights=mass)


def _lowest(law: Empirical, e: Element) -> float:
    """Axiom P1: no time and no energy is negative, unless runs were kept that are."""
    return 0.0 if law is e.time or not e.calibration_conflict else -math.inf


def _highest(law: Empirical, e: Element) -> float:
    """Return what the element states as the largest possible value."""
    which = _which(law, e)
    if which == "time":
        return e.time_max
    if which == "dynamic_energy" or not math.isfinite(e.energy_max):
        return e.energy_max
    # w T + d = (w - s) T + E: bounded by both
    assert e.runs is not None
    longest = int(np.argmax(e.runs.time))
    spent = law.samples[longest] - e.runs.energy[longest]
    over = max(spent, 0.0) / e.runs.time[longest] * (1.0 + 1e-12)
    return e.energy_max + (over * e.time_max if over > 0.0 else 0.0)
