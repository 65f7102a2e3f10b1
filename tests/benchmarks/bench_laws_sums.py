"""Sums of distinct laws and maxima of sums: bracket width and time.

Target: width <= 1e-4 at survival 1e-9 in <= 20 times one rfft + irfft pair for sums
of eight distinct leaves. Peers: OpenTURNS (no bracket), aggregate (no bracket).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scipy import special, stats

from probcalc.composed import Variable, maximum, sum_of
from tests.benchmarks.harness import (
    LEVELS,
    Report,
    fft_pair,
    measure,
    peer,
    run,
    transforms,
)

TITLE = "sums of distinct laws: certified to 1e-4 within twenty transform pairs"

#: Sum of lognormal(k/10, 0.3 + k/20), k = 0 ... 7: trapezoid convolution of positive
#: terms (no cancellation) at two spacings, which agree in the digits given.
EIGHT_LOGNORMALS = (
    "12.911566361285",
    "22.210331415188",
    "27.970087277230",
    "56.036256286530",
    "110.61514369565",
)
#: Smallest to largest of max(A + B, C + D) and of max(A + B, A + C) with A shared:
#: tanh-sinh quadrature, 40 digits.
TWO_SUMS = (
    "2.728133462609545028576",
    "5.501986226463650764033",
    "6.921317777586212478224",
    "12.24387094232534068249",
    "21.28125962094084999757",
)
SHARED = (
    "2.531720545339581872876",
    "5.353592388034028558858",
    "6.89533671270113174419",
    "12.63631864874036096429",
    "21.7638063067461457539",
)


def _lognormal(mu: float, sigma: float) -> Any:
    return stats.lognorm(sigma, scale=math.exp(mu))


def _cases() -> dict[str, tuple[Callable[[], Any], tuple[Any, ...]]]:
    eight = [_lognormal(k / 10, 0.3 + k / 20) for k in range(8)]
    gammas = [stats.gamma(0.5 + (i % 16) / 4) for i in range(64)]
    rates = [stats.expon(scale=1 / k) for k in range(1, 9)]
    a, b = _lognormal(0.0, 0.5), stats.gamma(2, scale=0.5)
    c, d = _lognormal(0.2, 0.4), stats.gamma(3, scale=0.4)
    return {
        "8 lognormals": (lambda: sum_of(*eight), EIGHT_LOGNORMALS),
        "64 gammas": (
            lambda: sum_of(*gammas),
            tuple(float(special.gammainccinv(152.0, sf)) for sf in LEVELS),
        ),
        # In law the largest of eight Exp(1) (Renyi).
        "8 exponentials": (
            lambda: sum_of(*rates),
            tuple(-math.log(-math.expm1(math.log1p(-sf) / 8)) for sf in LEVELS),
        ),
        "max(A+B, C+D)": (lambda: maximum(sum_of(a, b), sum_of(c, d)), TWO_SUMS),
        "max(A+B, A+C), A shared": (
            lambda: maximum(sum_of(Variable("A", a), b), sum_of(Variable("A", a), c)),
            SHARED,
        ),
    }


def build(report: Report, repeats: int) -> None:
    """Ours at each level; OpenTURNS on the same laws."""
    for case, (expression, truths) in _cases().items():
        for sf, truth in zip(LEVELS, truths, strict=True):

            def one(expression: Callable[[], Any] = expression, sf: float = sf) -> Any:
                return expression().quantile(sf=sf, rtol=1e-4)

            found, timing = measure(one, repeats=repeats)
            length, pairs = transforms(one)
            report.add(
                "probcalc",
                case,
                f"{sf:g}",
                timing=timing,
                truth=truth,
                value=found.value,
                lower=found.lower,
                upper=found.upper,
                floor=fft_pair(length) if length else None,
                target="<= 20 floors" if sf == 1e-9 and case[0] == "8" else "",
                note=f"N = {length}, {pairs:.1f} pairs; {found.limited_by}",
            )
        _openturns(report, case, truths, repeats)


def _openturns(
    report: Report, case: str, truths: tuple[Any, ...], repeats: int
) -> None:
    ot = peer("openturns")
    if ot is None:
        report.refused("openturns", case, "all", "not installed")
        return
    add = getattr(ot, "LinearCombinationDistribution", None) or ot.RandomMixture

    def lognormal(mu: float, sigma: float) -> Any:
        return ot.LogNormal(mu, sigma, 0.0)

    a, b = lognormal(0.0, 0.5), ot.Gamma(2.0, 2.0, 0.0)
    c, d = lognormal(0.2, 0.4), ot.Gamma(3.0, 2.5, 0.0)
    make: dict[str, Callable[[], Any]] = {
        "8 lognormals": lambda: add(
            [lognormal(k / 10, 0.3 + k / 20) for k in range(8)]
        ),
        "64 gammas": lambda: add(
            [ot.Gamma(0.5 + (i % 16) / 4, 1.0, 0.0) for i in range(64)]
        ),
        "8 exponentials": lambda: add([ot.Exponential(float(k)) for k in range(1, 9)]),
        "max(A+B, C+D)": lambda: ot.MaximumDistribution([add([a, b]), add([c, d])]),
        # As written: OpenTURNS draws A afresh for each operand.
        "max(A+B, A+C), A shared": lambda: ot.MaximumDistribution(
            [add([a, b]), add([a, c])]
        ),
    }

    def levels() -> list[float]:
        law = make[case]()
        return [float(law.computeQuantile(sf, True)[0]) for sf in LEVELS]

    values, timing = measure(levels, repeats=min(repeats, 2), budget=20, warm=False)
    for sf, truth, value in zip(LEVELS, truths, values, strict=True):
        report.add(
            "openturns",
            case,
            f"{sf:g}",
            timing=timing,
            truth=truth,
            value=value,
            note="time is for all five levels; no bracket",
        )


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test."""
    return run(TITLE, build, argv)


if __name__ == "__main__":
    main()
