"""Study: how often the intervals that the package prints hold.

Each row draws many data sets from a law whose truth is known, and counts on how many
sides the bound at its nominal level misses. Repeats and seed are part of the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Empirical
from probcalc.element import Element
from probcalc.estimation import uncertainty
from probcalc.montecarlo import simulate
from probcalc.plan import Plan, PlanNode
from probcalc.validation.blocks import Blocked, mean_interval
from probcalc.validation.comparison import probability_less
from probcalc.validation.quantiles import (
    exceedance,
    quantile_bounds,
    simultaneous_band,
)

__all__ = ["Row", "as_table", "coverage"]

FloatArray = npt.NDArray[np.float64]
Interval = Callable[[np.random.Generator], tuple[float, float, float]]


class Row(NamedTuple):
    """How often one interval held.

    Attributes
    ----------
    interval, data : str
        What was computed, and from what.
    nominal : float
        Of both sides together.
    low, high : float
        Shares of repeats in which the lower, and the upper, side held.
    both : float
    open : float
        Share of repeats with an open side, which holds as such.
    repeats : int
    """

    interval: str
    data: str
    nominal: float
    low: float
    high: float
    both: float
    open: float
    repeats: int


def coverage(*, seed: int = 0, repeats: int = 1000) -> Iterator[Row]:
    """Run the study; about a minute for a thousand repeats."""
    for i, (interval, data, nominal, one, share) in enumerate(_cases()):
        rng = np.random.default_rng([seed, i])
        count = max(round(repeats * share), 20)
        low = high = both = left_open = 0
        for _ in range(count):
            truth, lower, upper = one(rng)
            low += lower <= truth
            high += truth <= upper
            both += lower <= truth <= upper
            left_open += math.isinf(lower) or math.isinf(upper)
        yield Row(
            interval,
            data,
            nominal,
            low / count,
            high / count,
            both / count,
            left_open / count,
            count,
        )


def _cases() -> Iterator[tuple[str, str, float, Interval, float]]:
    from scipy import stats

    laws = {
        "normal": stats.norm(),
        "lognormal .8": stats.lognorm(0.8),
        "exponential": stats.expon(),
    }
    for law_name, law in laws.items():
        for n, p in ((30, 0.5), (100, 0.9), (400, 0.99)):
            yield (
                f"quantile {p:g}",
                f"{n} runs, {law_name}",
                0.90,
                _quantile(law, n, p),
                1.0,
            )
    for share in (0.0, 0.1, 0.3):
        for blocks, each in ((5, 20), (10, 20), (10, 100)):
            data = f"{blocks} x {each}, {share:.0%} between blocks"
            for p in (0.5, 0.9):
                yield (
                    f"quantile {p:g}",
                    data,
                    0.90,
                    _clustered(share, blocks, each, p),
                    0.5,
                )
            yield "mean", data, 0.90, _mean(share, blocks, each), 1.0
            yield "share above", data, 0.90, _share(share, blocks, each), 0.5
    yield "band, all levels", "80 runs, normal", 0.95, _band(80), 0.5
    yield "P(A < B)", "12 x 10, 10% between blocks", 0.95, _less(0.1), 0.5
    yield "simulated quantile .99", "2000 samples of a plan", 0.95, _simulated(), 0.2
    yield "bootstrap of a term, .5", "60 runs of each of 2", 0.95, _term(), 0.05


def _quantile(law: object, n: int, p: float) -> Interval:
    truth = float(law.ppf(p))  # type: ignore[attr-defined]

    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        runs = Blocked.of(law.rvs(size=n, random_state=rng))  # type: ignore[attr-defined]
        _, low, high = quantile_bounds(runs, p, level=0.95)
        return truth, low, high

    return one


def _runs(rng: np.random.Generator, share: float, blocks: int, each: int) -> Blocked:
    z = math.sqrt(share) * rng.normal(size=(blocks, 1)) + math.sqrt(
        1.0 - share
    ) * rng.normal(size=(blocks, each))
    return Blocked.of(z.ravel(), np.repeat(np.arange(blocks), each).tolist())


def _clustered(share: float, blocks: int, each: int, p: float) -> Interval:
    from scipy import special

    truth = float(special.ndtri(p))

    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        _, low, high = quantile_bounds(_runs(rng, share, blocks, each), p, level=0.95)
        return truth, low, high

    return one


def _mean(share: float, blocks: int, each: int) -> Interval:
    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        _, low, high = mean_interval(_runs(rng, share, blocks, each), 0.95)
        return 0.0, low, high

    return one


def _share(share: float, blocks: int, each: int) -> Interval:
    from scipy import special

    limit = float(special.ndtri(0.9))

    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        data = _runs(rng, share, blocks, each)
        _, low, high = exceedance(data, limit, level=0.95)
        return 0.1, low, high

    return one


def _band(n: int) -> Interval:
    from scipy import special

    p = np.linspace(0.02, 0.98, 49)
    truth = special.ndtri(p)

    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        band = simultaneous_band(Blocked.of(rng.normal(size=n)))
        ends = np.array([band.quantile(float(x)) for x in p])
        # How far the truth is inside, at the worst level.
        return 0.0, float((ends[:, 0] - truth).max()), float((ends[:, 1] - truth).min())

    return one


def _less(share: float) -> Interval:
    from scipy import special

    truth = float(special.ndtr(1.0 / math.sqrt(2.0)))

    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        a, b = (_runs(rng, share, 12, 10) for _ in "ab")
        found = probability_less(a, b.with_values(b.values + 1.0))
        return truth, found.lower, found.upper

    return one


def _simulated() -> Interval:
    from scipy import stats

    law = stats.gamma(20, scale=5e-4)
    unit = Element("unit", time=law, static_power=60.0, device="gpu0")
    plan = Plan.of([PlanNode("a", unit), PlanNode("b", unit, ["a"])])
    truth = float(stats.gamma(40, scale=5e-4).ppf(0.99))

    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        seed = int(rng.integers(1 << 60))
        q = simulate(plan, samples=2000, seed=seed).time.quantile(0.99)
        return truth, q.lower, q.upper

    return one


def _term() -> Interval:
    from scipy import stats

    truth = float(stats.gamma(40, scale=5e-4).median())

    def one(rng: np.random.Generator) -> tuple[float, float, float]:
        a, b = (
            Element(
                name,
                time=Empirical(rng.gamma(20, 5e-4, 60)),
                static_power=60.0,
                device="gpu0",
            )
            for name in "ab"
        )
        found = uncertainty(a >> b, 0.5, of="time", resamples=200, seed=rng)
        return truth, found.lower, found.upper

    return one


def as_table(rows: list[Row]) -> str:
    """Lay the study out as a table in Markdown."""
    lines = [
        "| interval | data | nominal | held | lower | upper | open | repeats |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.interval} | {r.data} | {r.nominal:.0%} | {r.both:.1%} | {r.low:.1%} | "
        f"{r.high:.1%} | {r.open:.0%} | {r.repeats} |"
        for r in rows
    ]
    return "\n".join(lines)
