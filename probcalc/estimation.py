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
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.bands import band_interval, monotone, quantile_at
from probcalc.distribution import Empirical, Kind, levels
from probcalc.element import Element
from probcalc.errors import InputError, ToleranceError
from probcalc.exact import energy_law, time_law
from probcalc.plan import Plan
from probcalc.runs import Runs
from probcalc.setting import Setting, resolve
from probcalc.term import Repeat, Term

__all__ = ["Uncertainty", "fewest_blocks", "resampled", "uncertainty"]

FloatArray = npt.NDArray[np.float64]
# Runs that must lie beyond a quantile for its bootstrap interval to be worth anything:
# with fewer it covers 22 to 63 % where it says 95.
BEYOND = 10
# What one resample may take to work out: its bracket may be half as wide as the error
# it is to show, and its estimate is much better than its bracket.
QUICK = 0.5
QUICK_MEMORY = 2**24


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
        As for `probcalc.prediction.predict`.

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
    law = _law(setting, of)
    value = float(quantile_at(law, p, sf).value)
    assumptions = [f"runs are those of {', '.join(e.name for e in measured[:4])}"]
    rest = [e.name for e in setting.elements if e not in measured]
    if rest:
        assumptions.append(f"taken as known: {', '.join(rest[:4])}")
    if method == "bootstrap":
        fewest = min(own.samples.size for e in measured for own in _laws_of(e))
        error = math.sqrt(float(law.variance()) / fewest)
        rtol = min(max(QUICK * error / abs(value), 1e-9), 1e-2) if value else 1e-2
        again = _resampler(setting, measured, of, baselines)
        lower, upper = _bootstrap(again, measured, p, sf, level, resamples, seed, rtol)
        assumptions.append("percentile interval, which holds for many runs only")
    else:
        if of == "energy":
            monotone(setting)
        lower, upper = band_interval(lambda leaf: _law(setting, of, leaf), p, sf, level)
        assumptions.append("runs are independent draws of one law")
    bounded = math.isfinite(lower) and math.isfinite(upper)
    kind: Kind = "confidence" if bounded else "open"
    return Uncertainty(
        of, p, sf, value, lower, upper, level, kind, method, tuple(assumptions)
    )


def _law(setting: Setting, of: str, leaf: Any = None) -> Any:
    compose: Callable[..., Any] = energy_law if of == "energy" else time_law
    return compose(setting) if leaf is None else compose(setting, leaf=leaf)


def _laws_of(e: Element) -> list[Empirical]:
    """Return the laws of an element that were measured; runs count once."""
    if e.runs is not None:
        assert isinstance(e.time, Empirical)
        return [e.time]
    return [law for law in (e.time, e.dynamic_energy) if isinstance(law, Empirical)]


# ---- bootstrap ----------------------------------------------------------------------


def _bootstrap(
    again: Callable[[np.random.Generator], Any],
    measured: list[Element],
    p: float,
    sf: float,
    level: float,
    resamples: int,
    seed: Any,
    rtol: float,
) -> tuple[float, float]:
    for e in measured:
        for law in _laws_of(e):
            _enough(e, law, min(p, sf))
    fewest = math.ceil(10.0 / (1.0 - level) - 1e-9)
    if resamples < fewest:
        raise InputError(
            f"bootstrap: {resamples} resamples, expected at least {fewest} at level "
            f"{level:g}"
        )
    rng = np.random.default_rng(seed)
    found = [_quick(again(rng), p, sf, rtol) for _ in range(resamples)]
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(found, [tail, 1.0 - tail])
    return float(low), float(high)


def _resampler(
    setting: Setting,
    measured: list[Element],
    of: str,
    baselines: Mapping[str, float] | None,
) -> Callable[[np.random.Generator], Any]:
    """Return what works out the law anew from runs drawn again."""

    def again(rng: np.random.Generator) -> Any:
        elements = {id(e): _resampled(e, rng) for e in measured}
        return _law(resolve(_substituted(setting, elements), baselines), of)

    return again


def resampled(composed: Term | Plan, rng: np.random.Generator) -> Any:
    """Return a term or plan with the runs of its elements drawn again, block by block.

    Elements are independent; laws that were not measured stay as they are.
    Nodes that draw rows together keep their rows: the same are drawn again for all.
    """
    if isinstance(composed, Plan):
        rows = None
        if composed.draws.rows_by:
            rows = next(
                _rows(laws[0], rng) for e in composed.elements if (laws := _laws_of(e))
            )
        # One element placed on several devices is drawn again once.
        known: dict[tuple[int, int], tuple[Any, ...]] = {}
        elements = []
        for e in composed.elements:
            key = (id(e.time), id(e.dynamic_energy))
            if key not in known:
                again = _resampled(e, rng, rows) if _laws_of(e) else e
                known[key] = (again.time, again.dynamic_energy, again.runs)
            elements.append(e.with_laws(*known[key]))
        return replace(composed, elements=tuple(elements))
    setting = resolve(composed)
    measured = [e for e in setting.elements if _laws_of(e)]
    return _substituted(setting, {id(e): _resampled(e, rng) for e in measured})


def fewest_blocks(composed: Term | Plan) -> int:
    """Fewest blocks that a measured element of a composition has; 0 without any.

    Runs without labels count as a block each.
    """
    elements = (
        composed.elements if isinstance(composed, Plan) else resolve(composed).elements
    )
    counts = [
        law.samples.size if law.blocks is None else len(set(law.blocks))
        for e in elements
        for law in _laws_of(e)
    ]
    return min(counts, default=0)


def _quick(law: Any, p: float, sf: float, rtol: float) -> float:
    level = {"p": p} if p <= 0.5 else {"sf": sf}
    try:
        return law.quantile(**level, rtol=rtol, memory=QUICK_MEMORY).value
    except ToleranceError as error:
        if error.best is None:
            raise
        return error.best.value


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


def _resampled(
    e: Element,
    rng: np.random.Generator,
    rows: npt.NDArray[np.intp] | None = None,
) -> Element:
    if e.runs is not None:
        assert isinstance(e.time, Empirical)
        rows = _rows(e.time, rng) if rows is None else rows
        t, d = e.runs.time[rows], e.runs.dynamic_energy[rows]
        runs = Runs(t, e.runs.energy[rows], d)
        return e.with_laws(Empirical(t), Empirical(d), runs)
    time, dynamic = (
        _redrawn(law, rng, rows) if isinstance(law, Empirical) else law
        for law in (e.time, e.dynamic_energy)
    )
    return e.with_laws(time, dynamic)


def _redrawn(
    law: Empirical, rng: np.random.Generator, rows: npt.NDArray[np.intp] | None
) -> Empirical:
    rows = _rows(law, rng) if rows is None else rows
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
