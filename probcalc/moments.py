"""Means and variances only, by the paper's formulas: fast, approximate (App. F).

Every law is taken for a normal one with its mean and variance; the longest of two is
Clark's closed form (Operations Research 9, 1961). Shared factors enter to first order,
as covariance. No bound is given: results are labelled estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Bounds, Probability, Quantile, levels
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.setting import Setting, Weight, factors, key_of
from probcalc.term import Repeat, Sequential

__all__ = ["Gaussian", "clark", "moment_laws"]

FloatArray = npt.NDArray[np.float64]
_LIMIT = "moments: a normal law in place of the true one"


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Normal law that stands for one of which two moments are known: an estimate.

    Parameters
    ----------
    average, spread : float
        Mean and variance.
    """

    average: float
    spread: float

    @property
    def sd(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.spread)

    def mean(self) -> float:
        """E X."""
        return self.average

    def variance(self) -> float:
        """Var X."""
        return self.spread

    def support(self) -> tuple[float, float]:
        """Return the real line, or the one value of a constant."""
        if self.spread == 0.0:
            return self.average, self.average
        return -math.inf, math.inf

    def cdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X <= x)."""
        return self._tail(x, 1.0)

    def ccdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X > x)."""
        if self.spread == 0.0:
            return np.where(np.asarray(x, dtype=float) < self.average, 1.0, 0.0)[()]
        return self._tail(x, -1.0)

    def _tail(self, x: npt.ArrayLike, sign: float) -> Any:
        from scipy.special import ndtr

        x = np.asarray(x, dtype=float)
        if self.spread == 0.0:
            return np.where(x >= self.average, 1.0, 0.0)[()]
        return ndtr(sign * (x - self.average) / self.sd)[()]

    def icdf(self, p: npt.ArrayLike, /) -> Any:
        """Quantile at P(X <= x) = p."""
        from scipy.special import ndtri

        return (self.average + self.sd * ndtri(np.asarray(p, dtype=float)))[()]

    def iccdf(self, p: npt.ArrayLike, /) -> Any:
        """Quantile at P(X > x) = p."""
        return 2.0 * self.average - self.icdf(p)

    def isf(self, p: npt.ArrayLike, /) -> Any:
        """`iccdf` under the name of SciPy's frozen variables."""
        return self.iccdf(p)

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Draw independent values; `rng` is a generator or a seed."""
        return np.random.default_rng(rng).normal(self.average, self.sd, shape)

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int = 0,
    ) -> Quantile:
        """Quantile of kind ``estimate``; `rtol` and `memory` change nothing."""
        p, sf = levels(p, sf)
        value = float(self.icdf(p) if p <= 0.5 else self.iccdf(sf))
        return Quantile(p, value, value, value, "estimate", _LIMIT, sf)

    def probability_above(
        self, limit: float, *, rtol: float | None = None, memory: int = 0
    ) -> Probability:
        """P(X > limit) of kind ``estimate``."""
        value = float(self.ccdf(limit))
        return Probability(value, value, value, "estimate")

    def expected_shortfall(
        self, p: float | None = None, *, sf: float | None = None, memory: int = 0
    ) -> Bounds:
        """Mean of the worst ``sf`` share of outcomes, of kind ``estimate``."""
        p, sf = levels(p, sf)
        z = (self.quantile(sf=sf).value - self.average) / self.sd if self.spread else 0
        density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        value = self.average + self.sd * density / sf
        return Bounds(value, value, value, "estimate")

    def mean_bounds(self) -> Bounds:
        """Mean, of kind ``estimate``."""
        return Bounds(self.average, self.average, self.average, "estimate")


class Clark(NamedTuple):
    """Moments of the longest of two, and how much of it is the first."""

    mean: float
    variance: float
    share: float


def clark(m1: float, v1: float, m2: float, v2: float, covariance: float = 0.0) -> Clark:
    """Moments of the maximum of two normal quantities, possibly correlated.

    With theta^2 = v1 + v2 - 2 cov and alpha = (m1 - m2) / theta, ``share`` is
    Phi(alpha): the covariance of the maximum with anything else is ``share`` of the
    first one's plus the rest of the second one's (Clark 1961, equations 2 to 7).

    Examples
    --------
    >>> clark(0.0, 1.0, 0.0, 1.0).mean  # 1 / sqrt(pi)
    0.5641895835
    """
    from scipy.special import ndtr

    theta = math.sqrt(max(v1 + v2 - 2.0 * covariance, 0.0))
    if theta == 0.0:
        # The difference is constant: the longer one is always the same.
        return Clark(m1, v1, 1.0) if m1 >= m2 else Clark(m2, v2, 0.0)
    alpha = (m1 - m2) / theta
    first, second = float(ndtr(alpha)), float(ndtr(-alpha))
    density = math.exp(-0.5 * alpha * alpha) / math.sqrt(2.0 * math.pi)
    # E M = m2 + theta (alpha Phi(alpha) + phi(alpha)), measured from m2 so that the
    # variance does not cancel.
    over = theta * (alpha * first + density)
    # E (M - m2)^2, Clark's equation (5) with both means measured from m2
    second_moment = first * (v1 + (m1 - m2) ** 2) + second * v2
    second_moment += (m1 - m2) * theta * density
    return Clark(m2 + over, max(second_moment - over * over, 0.0), first)


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """Moments of several quantities of one execution.

    Attributes
    ----------
    mean : FloatArray, shape (k,)
    own : FloatArray, shape (k, k)
        Covariance from what is drawn afresh in every execution.
    slopes : dict of str to FloatArray, shape (k,)
        Change per unit of each shared factor; adds up over executions.
    """

    mean: FloatArray
    own: FloatArray
    slopes: dict[str, FloatArray]

    def __add__(self, other: _Moments) -> _Moments:
        slopes = dict(self.slopes)
        for name, slope in other.slopes.items():
            slopes[name] = slopes.get(name, 0.0) + slope
        return _Moments(self.mean + other.mean, self.own + other.own, slopes)

    def repeated(self, n: int) -> _Moments:
        """N executions: own variances add, slopes add (so their variance is n^2)."""
        slopes = {name: n * slope for name, slope in self.slopes.items()}
        return _Moments(n * self.mean, n * self.own, slopes)

    def mapped(self, matrix: FloatArray) -> _Moments:
        """Linear combinations of the quantities."""
        slopes = {name: matrix @ slope for name, slope in self.slopes.items()}
        return _Moments(matrix @ self.mean, matrix @ self.own @ matrix.T, slopes)

    def scaled(self, name: str, mean: float, variance: float, mask: Any) -> _Moments:
        """Multiply some of the quantities by a shared factor."""
        mask = np.asarray(mask, dtype=float)
        by = np.where(mask > 0, mean, 1.0)
        # E g^2 = mean^2 + variance where both are multiplied
        own = self.own * (np.outer(by, by) + variance * np.outer(mask, mask))
        slopes = {key: by * slope for key, slope in self.slopes.items()}
        slopes[name] = slopes.get(name, 0.0) + mask * self.mean
        return _Moments(by * self.mean, own, slopes)

    def shifted(self, name: str, mean: float, by: FloatArray) -> _Moments:
        """Add a shared amount to each quantity, `by` times."""
        slopes = {**self.slopes, name: self.slopes.get(name, 0.0) + by}
        return _Moments(self.mean + mean * by, self.own, slopes)


def moment_laws(setting: Setting) -> tuple[Gaussian, Gaussian, Gaussian, Gaussian]:
    """Laws of time, energy, static and dynamic energy, from two moments each.

    Elements independent but for shared factors, which enter to first order.

    Raises
    ------
    InputError
        An element or factor whose mean or variance is not finite.
    """
    known: dict[int, _Moments] = {}
    spread = {n: _finite(f.law, f"shared factor {n!r}") for n, f in _shared(setting)}
    for node in setting.order:
        if isinstance(node, Element):
            known[id(node)] = _element(node, setting, spread)
        elif isinstance(node, Repeat):
            known[id(node)] = known[id(node.part)].repeated(node.count)
        else:
            total = known[id(node.parts[0])]
            for part in node.parts[1:]:
                if isinstance(node, Sequential):
                    total = total + known[id(part)]
                else:
                    total = _longest(total, known[id(part)], spread)
            known[id(node)] = total
    # (T, S, D) -> (T, E, static, D): the baselines are paid for all of T.
    m = known[id(setting.term)]
    m = _paid(m, setting.account.base, setting, spread)
    final = m.mapped(np.array([[1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 0, 1]], float))
    variance = np.diag(final.own).copy()
    for name, slope in final.slopes.items():
        variance += spread[name][1] * slope**2
    laws = [
        Gaussian(float(mean), max(float(v), 0.0))
        for mean, v in zip(final.mean, variance, strict=True)
    ]
    return laws[0], laws[1], laws[2], laws[3]


def _shared(setting: Setting) -> list[tuple[str, Any]]:
    return sorted(setting.account.shared.items())


def _finite(law: Any, where: str) -> tuple[float, float]:
    mean, variance = float(law.mean()), float(law.variance())
    if not (math.isfinite(mean) and math.isfinite(variance)):
        raise InputError(
            f"{where}: mean {mean:g} and variance {variance:g}, but method='moments' "
            "needs both finite"
        )
    return mean, variance


def _element(
    e: Element, setting: Setting, spread: dict[str, tuple[float, float]]
) -> _Moments:
    """Moments of (T, S, D): S = (s - b) T, D the dynamic energy."""
    t_mean, t_var = _finite(e.time, f"element {e.name!r}, time")
    d_mean, d_var = _finite(e.dynamic_energy, f"element {e.name!r}, dynamic energy")
    cross = 0.0
    if e.runs is not None:
        t, d = e.runs.time - t_mean, e.runs.dynamic_energy - d_mean
        cross = float((t * d).mean())
    m = _Moments(
        np.array([t_mean, 0.0, d_mean]),
        np.array([[t_var, 0.0, cross], [0.0, 0.0, 0.0], [cross, 0.0, d_var]]),
        {},
    )
    for name in key_of(e, "time"):
        m = m.scaled(name, *spread[name], [1, 0, 0])
    for shift in factors(e, "time", "shift"):
        m = m.shifted(shift.name, spread[shift.name][0], np.array([1.0, 0.0, 0.0]))
    for name in key_of(e, "energy"):
        m = m.scaled(name, *spread[name], [0, 0, 1])
    for shift in factors(e, "energy", "shift"):
        m = m.shifted(shift.name, spread[shift.name][0], np.array([0.0, 0.0, 1.0]))
    return _paid(m, setting.account.beyond(e), setting, spread)


def _paid(
    m: _Moments,
    power: Weight,
    setting: Setting,
    spread: dict[str, tuple[float, float]],
) -> _Moments:
    """Add a power, possibly under shared factors, times T to the static energy."""
    for key, watts in power.items():
        # (T, S, D, c T), the last under its factors, then into S
        m4 = m.mapped(np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [watts, 0, 0]], float))
        for name in key:
            m4 = m4.scaled(name, *spread[name], [0, 0, 0, 1])
        m = m4.mapped(np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0]], float))
    return m


def _longest(
    a: _Moments, b: _Moments, spread: dict[str, tuple[float, float]]
) -> _Moments:
    """Longest T of two, sums of the rest."""
    names = sorted({*a.slopes, *b.slopes})
    none = np.zeros(3)
    sa = {n: a.slopes.get(n, none) for n in names}
    sb = {n: b.slopes.get(n, none) for n in names}
    va = a.own[0, 0] + sum(spread[n][1] * sa[n][0] ** 2 for n in names)
    vb = b.own[0, 0] + sum(spread[n][1] * sb[n][0] ** 2 for n in names)
    covariance = sum(spread[n][1] * sa[n][0] * sb[n][0] for n in names)
    longest = clark(a.mean[0], va, b.mean[0], vb, covariance)
    share, rest = longest.share, 1.0 - longest.share
    total = a + b
    mean = total.mean.copy()
    mean[0] = longest.mean
    slopes = {n: sa[n] + sb[n] for n in names}
    for n in names:
        slopes[n][0] = share * sa[n][0] + rest * sb[n][0]
    own = total.own.copy()
    own[0] = own[:, 0] = share * a.own[0] + rest * b.own[0]
    # What of the variance of the longest is not due to the shared factors.
    due = sum(spread[n][1] * slopes[n][0] ** 2 for n in names)
    own[0, 0] = max(longest.variance - due, 0.0)
    return _Moments(mean, own, slopes)
