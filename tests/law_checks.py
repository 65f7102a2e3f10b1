"""Survival functions in closed form, and the check of a bracket against one.

Most checks need no solved quantile: the survival function of the truth is known,
so a bracket is right when that function steps over the level inside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from scipy import special

from probcalc.distribution import Quantile

LEVELS = (0.5, 0.01, 1e-3, 1e-6, 1e-9)

Survival = Callable[[float], float]


def assert_level(
    found: Quantile,
    above: Survival,
    sf: float,
    *,
    slack: float = 1e-11,
    width: float | None = 1e-4,
) -> None:
    """`above` steps over `sf` inside the certified bracket, `width` wide at most."""
    assert found.kind == "certified"
    assert found.lower <= found.value <= found.upper
    assert above(found.upper) <= sf * (1 + slack), (found, above(found.upper))
    just_below = math.nextafter(found.lower, -math.inf)
    assert above(just_below) >= sf * (1 - slack), (found, above(just_below))
    if width is not None:
        assert found.upper - found.lower <= width * abs(found.value), found


def gamma_sf(shape: float, size: float = 1.0) -> Survival:
    return lambda x: float(special.gammaincc(shape, max(x, 0.0) / size))


def exponential_sf(rate: float = 1.0) -> Survival:
    return lambda x: math.exp(-rate * max(x, 0.0))


def hypoexponential_sf(*rates: float) -> Survival:
    """Sum of exponentials of distinct rates: partial fractions."""
    terms = [
        (math.prod(other / (other - rate) for other in rates if other != rate), rate)
        for rate in rates
    ]
    return lambda x: (
        1.0 if x <= 0 else math.fsum(c * math.exp(-rate * x) for c, rate in terms)
    )


def irwin_hall_sf(n: int) -> Survival:
    """Sum of n uniforms on (0, 1), in exact rational arithmetic."""

    def above(x: float) -> float:
        t = n - Fraction(x)  # P(S > x) = P(S < n - x) by symmetry
        if t <= 0:
            return 0.0
        total = sum(
            (-1) ** k * math.comb(n, k) * (t - k) ** n
            for k in range(math.floor(t) + 1)
            if k <= n
        )
        return float(Fraction(total) / math.factorial(n))

    return above
