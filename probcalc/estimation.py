"""Estimation error: what a quantile is worth when laws come from few runs (section 4).

Two ways. The *bootstrap* draws runs again, whole blocks first and runs within them, and
works the prediction out anew. *Bands* hold for whatever law the runs came from: every
measured law is replaced by the largest and the smallest that a confidence band allows;
time and energy never fall when an operand grows, so that the composed laws enclose the
true one with the joint confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Distribution, Empirical, Kind, levels
from probcalc.element import Element
from probcalc.errors import CompositionError, InputError, ToleranceError
from probcalc.exact import energy_law, time_law
from probcalc.runs import Runs
from probcalc.setting import Setting, resolve
from probcalc.term import MultiParallel, Parallel, Repeat, Term

__all__ = ["Uncertainty", "uncertainty"]

FloatArray = npt.NDArray[np.float64]
# Runs that must lie beyond a quantile for its bootstrap interval to be worth anything:
# with fewer it covers 22 to 63 % where it says 95.
BEYOND = 10
QUICK = 1e-3


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """A quantile with an interval for its error from a finite number of runs.

    Attributes
    ----------
    of : {"energy", "time"}
    p, sf : float
        Level of the quantile.
    value : float
        The quantile of the laws as measured, in J or s.
    lower, upper : float
        Ends of the interval; infinite where the runs do not bound that side.
    level : float
        Confidence of the interval.
    kind : {"confidence", "open"}
        ``open`` where a side is infinite.
    method : {"bootstrap", "bands"}
    assumptions : tuple of str
    """

    of: str
    p: float
    sf: float
    value: float
    lower: float
    upper: float
    level: float
    kind: Kind
    method: str
    assumptions: tuple[str, ...]


def uncertainty(
    term: Term,
    p: float | None = None,
    *,
    sf: float | None = None,
    of: Literal["energy", "time"] = "energy",
    level: float = 0.95,
    method: Literal["bootstrap", "bands"] = "bootstrap",
    resamples: int = 400,
    seed: int | np.random.Generator | None = None,
    baselines: Mapping[str, float] | None = None,
) -> Uncertainty:
    """Interval for a quantile whose laws are known from measured runs alone.

    Elements are independent; laws that were not measured are taken as known.

    Parameters
    ----------
    term : Term
    p, sf : float
        Level of the quantile; exactly one.
    of : {"energy", "time"}
    level : float
        Confidence.
    method : {"bootstrap", "bands"}
        ``bootstrap``: percentile interval over `resamples` draws of blocks and runs
        within them; refused where fewer than 10 runs of an element are expected
        beyond the quantile. ``bands``: distribution-free, from the band of Dvoretzky,
        Kiefer, Wolfowitz and Massart around every measured law, `level` for all of
        them together; a side that the runs do not bound is reported open.
    resamples : int
    seed : int or Generator, optional
        For the bootstrap.
    baselines : mapping of str to float, optional
        As for `probcalc.predict.predict`.

    Raises
    ------
    InputError
        No measured element; levels outside (0, 1); too few runs, blocks or resamples;
        blocks of several runs for bands.
    CompositionError
        Bands for measured pairs of time and energy under ``|`` or ``&``.
    """
    p, sf = levels(p, sf)
    for given, known in ((of, ("energy", "time")), (method, ("bootstrap", "bands"))):
        if given not in known:
            raise InputError(f"uncertainty: {given!r}, expected one of {known}")
    if not 0.0 < level < 1.0:
        raise InputError(f"uncertainty: level must be between 0 and 1, got {level!r}")
    setting = resolve(term, baselines)
    measured = [e for e in setting.elements if _laws_of(e)]
    if not measured:
        raise InputError(
            f"uncertainty of {term.label!r}: no element has measured runs, so that "
            "there is no estimation error"
        )
    value = float(_at(_law(setting, of), p, sf).value)
    assumptions = [f"runs are those of {', '.join(e.name for e in measured[:4])}"]
    rest = [e.name for e in setting.elements if e not in measured]
    if rest:
        assumptions.append(f"taken as known: {', '.join(rest[:4])}")
    if method == "bootstrap":
        lower, upper = _bootstrap(
            setting, measured, of, p, sf, level, resamples, seed, baselines
        )
        assumptions.append("percentile interval, which holds for many runs only")
    else:
        lower, upper = _bands(setting, of, p, sf, level)
        assumptions.append("runs are independent draws of one law")
    bounded = math.isfinite(lower) and math.isfinite(upper)
    kind: Kind = "confidence" if bounded else "open"
    return Uncertainty(
        of, p, sf, value, lower, upper, level, kind, method, tuple(assumptions)
    )


def _law(setting: Setting, of: str, leaf: Any = None) -> Any:
    compose: Callable[..., Any] = energy_law if of == "energy" else time_law
    return compose(setting) if leaf is None else compose(setting, leaf=leaf)


def _at(law: Any, p: float, sf: float, rtol: float | None = None) -> Any:
    """Quantile at the rarer side of a level, exact where the other is not."""
    level = {"p": p} if p <= 0.5 else {"sf": sf}
    return law.quantile(**level, rtol=rtol)


def _laws_of(e: Element) -> list[Empirical]:
    """Return the laws of an element that were measured; runs count once."""
    if e.runs is not None:
        assert isinstance(e.time, Empirical)
        return [e.time]
    return [law for law in (e.time, e.dynamic_energy) if isinstance(law, Empirical)]


# ---- bootstrap ----------------------------------------------------------------------


def _bootstrap(
    setting: Setting,
    measured: list[Element],
    of: str,
    p: float,
    sf: float,
    level: float,
    resamples: int,
    seed: Any,
    baselines: Mapping[str, float] | None,
) -> tuple[float, float]:
    rarer = min(p, sf)
    for e in measured:
        for law in _laws_of(e):
            _enough(e, law, rarer)
    fewest = math.ceil(10.0 / (1.0 - level))
    if resamples < fewest:
        raise InputError(
            f"bootstrap: {resamples} resamples, expected at least {fewest} at level "
            f"{level:g}"
        )
    rng = np.random.default_rng(seed)
    found = np.empty(resamples)
    for index in range(resamples):
        again = {id(e): _resampled(e, rng) for e in measured}
        law = _law(resolve(_substituted(setting, again), baselines), of)
        try:
            found[index] = _at(law, p, sf, QUICK).value
        except ToleranceError as error:
            if error.best is None:
                raise
            found[index] = error.best.value
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(found, [tail, 1.0 - tail])
    return float(low), float(high)


def _enough(e: Element, law: Empirical, rarer: float) -> None:
    runs = law.samples.size
    if runs * rarer < BEYOND:
        needed = math.ceil(BEYOND / rarer - 1e-9)
        raise InputError(
            f"bootstrap: {runs} runs of {e.name!r} leave {runs * rarer:.2g} beyond the "
            f"quantile, expected {BEYOND}: it needs {needed} runs, or method='bands'"
        )
    if law.blocks is not None and len(set(law.blocks)) < 2:
        raise InputError(
            f"bootstrap: all runs of {e.name!r} are in one block, expected several"
        )


def _rows(law: Empirical, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Draw runs again: whole blocks, then as many runs within each as it has."""
    if law.blocks is None:
        return rng.integers(0, law.samples.size, law.samples.size)
    members: dict[Any, list[int]] = {}
    for index, label in enumerate(law.blocks):
        members.setdefault(label, []).append(index)
    blocks = [np.array(rows) for rows in members.values()]
    chosen = rng.integers(0, len(blocks), len(blocks))
    return np.concatenate([rng.choice(blocks[i], blocks[i].size) for i in chosen])


def _resampled(e: Element, rng: np.random.Generator) -> Element:
    if e.runs is not None:
        assert isinstance(e.time, Empirical)
        rows = _rows(e.time, rng)
        t, d = e.runs.time[rows], e.runs.dynamic_energy[rows]
        runs = Runs(t, e.runs.energy[rows], d)
        return e.with_laws(Empirical(t), Empirical(d), runs)
    time, dynamic = (
        _redrawn(law, rng) if isinstance(law, Empirical) else law
        for law in (e.time, e.dynamic_energy)
    )
    return e.with_laws(time, dynamic)


def _redrawn(law: Empirical, rng: np.random.Generator) -> Empirical:
    rows = _rows(law, rng)
    weights = None if law.weights is None else law.weights[rows]
    return Empirical(law.samples[rows], weights=weights)


def _substituted(setting: Setting, elements: Mapping[int, Element]) -> Term:
    """Return the term with some of its elements exchanged."""
    known: dict[int, Term] = {}
    for node in setting.order:
        if isinstance(node, Element):
            known[id(node)] = elements.get(id(node), node)
        elif isinstance(node, Repeat):
            known[id(node)] = Repeat(known[id(node.part)], node.count)
        else:
            parts = [known[id(part)] for part in node.parts]
            known[id(node)] = type(node)(parts)  # type: ignore[call-arg]
    return known[id(setting.term)]


# ---- bands --------------------------------------------------------------------------


def _bands(
    setting: Setting, of: str, p: float, sf: float, level: float
) -> tuple[float, float]:
    if of == "energy":
        _monotone(setting)
    # Bonferroni: `level` holds for all bands at once.
    seen: set[tuple[int, str]] = set()

    def collect(law: Distribution, e: Element, count: int) -> Distribution:
        if isinstance(law, Empirical):
            _bandable(law, e, count)
            seen.add((id(e), _which(law, e)))
        return law

    _law(setting, of, collect)
    miss = (1.0 - level) / max(len(seen), 1)
    high, lost = _Band(miss, +1), _Band(miss, -1)
    law = _law(setting, of, high)
    # P(some draw is unbounded) counts as infinite; the law is that given none is.
    target = (sf - high.open) / (1.0 - high.open) if high.open < 1.0 else 0.0
    upper = math.inf
    if target > 0.0:
        upper = float(_at(law, 1.0 - target, target).upper)
    law = _law(setting, of, lost)
    target = (p - lost.open) / (1.0 - lost.open) if lost.open < 1.0 else 0.0
    lower = -math.inf
    if target > 0.0:
        lower = float(_at(law, target, 1.0 - target).lower)
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


def _monotone(setting: Setting) -> None:
    """Refuse where energy can fall when a measured time grows."""
    if not any(isinstance(node, Parallel | MultiParallel) for node in setting.order):
        return
    for e in setting.elements:
        below = any(c < 0.0 for c in setting.beyond(e).values())
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
