"""Laws known by a smaller and a larger one, between which every quantile lies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from probcalc.distribution import Bounds, Probability, Quantile
from probcalc.errors import ToleranceError
from probcalc.levelwise import each, quantiles

__all__ = ["Enclosed"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Enclosed:
    """A law known by a smaller and a larger one: every quantile lies between theirs.

    Parameters
    ----------
    lower, upper : law
        Stochastically smaller and larger, or equal.
    names : str
        What the two are, for `limited_by`.
    alike : bool
        Whether the two differ by no more than rounding, so that a variance can be
        told.
    """

    lower: Any
    upper: Any
    names: str
    alike: bool = False

    def __repr__(self) -> str:
        """Means of the two laws."""
        return f"<Enclosed: means {self.lower.mean():.6g} to {self.upper.mean():.6g}>"

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int | None = None,
    ) -> Quantile:
        """Bracket between the two laws' quantiles; `rtol` is not promised.

        The kind is ``certified``; the value is the middle, or of laws that are alike
        the larger one's.
        """
        del rtol
        options: dict[str, Any] = {} if memory is None else {"memory": memory}
        low = self.lower.quantile(p, sf=sf, **options)
        high = self.upper.quantile(p, sf=sf, **options)
        middle = 0.5 * (low.lower + high.upper)
        return replace(
            low,
            value=high.value if self.alike else middle,
            upper=high.upper,
            kind="certified",
            limited_by=self.names,
        )

    def quantiles(
        self,
        p: Iterable[float] | None = None,
        *,
        sf: Iterable[float] | None = None,
        rtol: float | None = None,
        memory: int | None = None,
    ) -> tuple[Quantile, ...]:
        """Brackets at several levels."""
        return quantiles(self, p, sf, rtol=rtol, memory=memory)

    def probability_above(
        self, limit: float, *, rtol: float = 1e-3, **options: Any
    ) -> Probability:
        """Bounds of P(X > limit)."""
        low = self.lower.probability_above(limit, rtol=rtol, **options)
        high = self.upper.probability_above(limit, rtol=rtol, **options)
        middle = 0.5 * (low.lower + high.upper)
        return Probability(middle, low.lower, high.upper, "certified")

    def mean_bounds(self) -> Bounds:
        """Bounds of the mean."""
        low, high = self.lower.mean_bounds(), self.upper.mean_bounds()
        middle = 0.5 * (low.lower + high.upper)
        return Bounds(middle, low.lower, high.upper, low.kind)

    def mean(self) -> float:
        """Middle of the bounds of the mean."""
        return self.mean_bounds().value

    def variance(self) -> float:
        """Variance of laws that are alike.

        Raises
        ------
        ToleranceError
            Of others: a law between two others can vary more than both.
        """
        if not self.alike:
            raise ToleranceError("variance: bounds of quantiles do not bound it")
        return 0.5 * (self.lower.variance() + self.upper.variance())

    def sample(self, shape: Any = (), *, rng: Any = None) -> Any:
        """Draw from the larger of two laws that are alike.

        Raises
        ------
        ToleranceError
            Of others: neither of the two is the law.
        """
        if not self.alike:
            raise ToleranceError("sample: the law is known by bounds alone")
        return self.upper.sample(shape, rng=rng)

    def expected_shortfall(
        self, p: float | None = None, *, sf: float | None = None
    ) -> Bounds:
        """Bounds of the mean of the worst `sf` share."""
        low = self.lower.expected_shortfall(p, sf=sf)
        high = self.upper.expected_shortfall(p, sf=sf)
        middle = 0.5 * (low.lower + high.upper)
        return Bounds(middle, low.lower, high.upper, "certified")

    def support(self) -> tuple[float, float]:
        """Smallest value of the one, largest of the other."""
        return self.lower.support()[0], self.upper.support()[1]

    def ccdf(self, x: npt.ArrayLike) -> Any:
        """Middle of the bounds of P(X > x)."""
        return 0.5 * (self.lower.ccdf(x) + self.upper.ccdf(x))

    def cdf(self, x: npt.ArrayLike) -> Any:
        """Middle of the bounds of P(X <= x)."""
        return 0.5 * (self.lower.cdf(x) + self.upper.cdf(x))

    def icdf(self, p: npt.ArrayLike) -> Any:
        """Middle of the brackets."""
        return each(p, lambda level: self.quantile(level).value)

    def iccdf(self, q: npt.ArrayLike) -> Any:
        """Middle of the brackets."""
        return each(q, lambda level: self.quantile(sf=level).value)
