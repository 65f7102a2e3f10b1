"""Standard laws (location 0, scale 1) as arrays: tails, densities, partial moments.

Every function takes an array of points inside the support, shape (n,), and keeps the
relative accuracy of its own tail. Partial moments are ``below(z) = E[Z; Z <= z]`` and
``above(z) = E[Z; Z > z]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special as sp

__all__ = ["STANDARD", "Function", "Standard"]

Function = Callable[[Any], Any]
_SQRT_2PI = math.sqrt(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = (_NODES + 1.0) / 2.0, _WEIGHTS / 2.0
_BIG = float(np.finfo(float).max)


@dataclass(frozen=True, slots=True)
class Standard:
    """A family at location 0 and scale 1; all functions take points of the support."""

    cdf: Function
    sf: Function
    pdf: Function
    below: Function
    above: Function
    lower: float
    upper: float
    mean: float
    variance: float
    mode: float | None


# ------------------------------------------------------------- normal tails
def _mills(x: Any) -> Any:
    """Mills ratio m(x) = (1 - Phi(x)) / phi(x)."""
    return math.sqrt(math.pi / 2.0) * sp.erfcx(x / math.sqrt(2.0))


def _phi(x: Any) -> Any:
    return np.exp(-0.5 * x * x) / _SQRT_2PI


def _mills_drop(a: Any, d: Any) -> Any:
    """m(a) - m(a + d) for d >= 0 without cancellation."""
    a, d = np.broadcast_arrays(np.asarray(a, float), np.asarray(d, float))
    b = a + d
    out = _mills(a) - _mills(b)
    # -m'(t) = 1 - t m(t); Gauss's rule over an interval of length <= 1 is exact to
    # rounding because m is entire with curvature of order one.
    near = (a < 4.0) & (d < 1.0)
    if np.any(near):
        t = a[near, None] + d[near, None] * _NODES
        out[near] = d[near] * ((1.0 - t * _mills(t)) @ _WEIGHTS)
    # Laplace's fraction m(t) = 1/(t + K_1), K_k = k/(t + K_{k+1}); its difference
    # D_k = K_k(a) - K_k(b) = k (d - D_{k+1}) / ((a + K_{k+1}(a)) (b + K_{k+1}(b)))
    # has D_{k+1} well below d for a >= 4, hence no cancellation.
    far = a >= 4.0
    if np.any(far):
        p, q, s = a[far], b[far], d[far]
        k_p, k_q, drop = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
        for k in range(60, 0, -1):
            drop = k * (s - drop) / ((p + k_p) * (q + k_q))
            k_p, k_q = k / (p + k_p), k / (q + k_q)
        out[far] = (s - drop) / ((p + k_p) * (q + k_q))
    return out


# ------------------------------------------------------------------ families
def _norm() -> Standard:
    # t phi(t) has the antiderivative -phi(t).
    return Standard(
        sp.ndtr, lambda z: sp.ndtr(-z), _phi, lambda z: -_phi(z), _phi,
        -math.inf, math.inf, 0.0, 1.0, 0.0,
    )  # fmt: skip


def _lognorm(s: float) -> Standard:
    # Z = exp(s N): weighting by Z shifts N by s (Girsanov), E[Z; Z <= z] =
    # exp(s^2/2) Phi(log z / s - s).
    m = math.exp(0.5 * s * s)
    return Standard(
        lambda z: sp.ndtr(np.log(z) / s),
        lambda z: sp.ndtr(-np.log(z) / s),
        lambda z: np.where(z > 0, _phi(np.log(z) / s) / (z * s), 0.0),
        lambda z: m * sp.ndtr(np.log(z) / s - s),
        lambda z: m * sp.ndtr(s - np.log(z) / s),
        0.0, math.inf, m, m * m * math.expm1(s * s), math.exp(-s * s),
    )  # fmt: skip


def _gamma(a: float) -> Standard:
    # z times the density of shape a is a times that of shape a + 1.
    cdf, sf = (lambda z: sp.gammainc(a, z)), (lambda z: sp.gammaincc(a, z))
    if a == 1.0:
        cdf, sf = (lambda z: -np.expm1(-z)), (lambda z: np.exp(-z))

    def pdf(z: Any) -> Any:
        if a < 20.0:
            return np.exp(sp.xlogy(a - 1.0, z) - z - sp.gammaln(a))
        # Stirling: log Gamma(a) = (a - 1/2) log a - a + log(2 pi)/2 + d(a), so that
        # the large terms meet as a (t - 1 - log t), t = z/a, before they are rounded.
        t, q = (z - a) / a, 1.0 / (a * a)
        d = (1.0 - q * (1.0 / 30.0 - q * (1.0 / 105.0 - q / 140.0))) / (12.0 * a)
        f = np.exp(a * (np.log1p(t) - t) - d) * (math.sqrt(a) / _SQRT_2PI)
        return np.where(z > 0, f / z, 0.0)

    return Standard(
        cdf, sf, pdf,
        lambda z: a * sp.gammainc(a + 1.0, z),
        lambda z: a * sp.gammaincc(a + 1.0, z),
        0.0, math.inf, a, a, max(a - 1.0, 0.0),
    )  # fmt: skip


def _uniform() -> Standard:
    return Standard(
        lambda z: z, lambda z: 1.0 - z, np.ones_like,
        lambda z: 0.5 * z * z, lambda z: 0.5 * (1.0 - z) * (1.0 + z),
        0.0, 1.0, 0.5, 1.0 / 12.0, 0.5,
    )  # fmt: skip


def _lomax(c: float) -> Standard:
    # sf = (1+z)^-c. E[Z; Z > z] = z sf(z) + (1+z)^(1-c) / (c-1);
    # E[Z; Z <= z] = ((1+z)^(1-c) - 1)/(1-c) - z sf(z), which cancels near 0, where
    # Gauss's rule on the positive integrand keeps the relative accuracy.
    def sf(z: Any) -> Any:
        return np.exp(-c * np.log1p(z))

    def below(z: Any) -> Any:
        out = sp.boxcox1p(z, 1.0 - c) - z * sf(z)
        near = z < 1.0 / (1.0 + c)
        if np.any(near):
            t = z[near, None] * _NODES
            f = t * np.exp(-(c + 1.0) * np.log1p(t))
            out[near] = c * z[near] * (f @ _WEIGHTS)
        return out

    def above(z: Any) -> Any:
        if c <= 1.0:
            return np.where(z < _BIG, math.inf, 0.0)
        return z * sf(z) + np.exp((1.0 - c) * np.log1p(z)) / (c - 1.0)

    mean = 1.0 / (c - 1.0) if c > 1.0 else math.inf
    var = c / ((c - 1.0) ** 2 * (c - 2.0)) if c > 2.0 else math.inf
    return Standard(
        lambda z: -np.expm1(-c * np.log1p(z)), sf,
        lambda z: c * np.exp(-(c + 1.0) * np.log1p(z)),
        below, above, 0.0, math.inf, mean, var, 0.0,
    )  # fmt: skip


def _levy() -> Standard:
    # Z = 1/N^2. With r = 1/(2z): E[Z; Z <= z] = Gamma(-1/2, r) / (2 sqrt(pi))
    # = exp(-r) / sqrt(pi r) - erfc(sqrt(r)); for large r by Legendre's fraction.
    def below(z: Any) -> Any:
        r = 0.5 / z
        g = np.exp(-r) / np.sqrt(math.pi * r) - sp.erfc(np.sqrt(r))
        far = r > 3.0
        if np.any(far):
            x = r[far]
            f = np.zeros_like(x)
            for k in range(40, 0, -1):
                f = k * (k + 0.5) / (x + 2.0 * k + 1.5 - f)
            g[far] = (
                np.exp(-x) / (np.sqrt(x) * (x + 1.5 - f)) / (2 * math.sqrt(math.pi))
            )
        return g

    return Standard(
        lambda z: sp.erfc(np.sqrt(0.5 / z)),
        lambda z: sp.erf(np.sqrt(0.5 / z)),
        lambda z: np.where(z > 0, np.exp(-0.5 / z - 1.5 * np.log(z)) / _SQRT_2PI, 0.0),
        below,
        lambda z: np.where(z < _BIG, math.inf, 0.0),
        0.0, math.inf, math.inf, math.inf, 1.0 / 3.0,
    )  # fmt: skip


def _weibull(c: float) -> Standard:
    # Z^c is exponential: E[Z; Z <= z] = lower incomplete gamma of 1 + 1/c at z^c.
    g = sp.gamma(1.0 + 1.0 / c)
    return Standard(
        lambda z: -np.expm1(-(z**c)),
        lambda z: np.exp(-(z**c)),
        lambda z: c * np.exp(sp.xlogy(c - 1.0, z) - z**c),
        lambda z: g * sp.gammainc(1.0 + 1.0 / c, z**c),
        lambda z: g * sp.gammaincc(1.0 + 1.0 / c, z**c),
        0.0, math.inf, float(g), float(sp.gamma(1.0 + 2.0 / c) - g * g),
        ((c - 1.0) / c) ** (1.0 / c) if c > 1.0 else 0.0,
    )  # fmt: skip


def _mills_tails(a: Any, d: Any) -> tuple[Any, Any]:
    """phi(a) (m(a) - m(a+d)) and phi(a) (m(-a) + m(a+d)), each for any sign of a."""
    tail = _phi(a) * _mills(a + d)
    minus = np.where(
        a < 0, sp.ndtr(-a) - tail, _phi(a) * _mills_drop(np.maximum(a, 0), d)
    )
    return minus, sp.ndtr(a) + tail


def _invgauss(mu: float) -> Standard:
    # Mean mu, shape 1. With a = (z/mu - 1)/sqrt(z), b = a + 2/sqrt(z) it is
    # cdf = Phi(a) + exp(2/mu) Phi(-b), E[Z; Z <= z] = mu (Phi(a) - exp(2/mu) Phi(-b)),
    # and exp(2/mu) phi(b) = phi(a), so everything is phi(a) times Mills ratios: no
    # overflow of exp(2/mu), no cancellation in either tail.
    def a(z: Any) -> Any:
        return (z / mu - 1.0) / np.sqrt(z)

    def b_tail(z: Any) -> Any:
        return _phi(a(z)) * _mills((z / mu + 1.0) / np.sqrt(z))

    def below(z: Any) -> Any:
        # a < 0: phi(a) (m(-a) - m(b)) with b - (-a) = 2 sqrt(z)/mu
        v = a(z)
        low = _phi(v) * _mills_drop(np.maximum(-v, 0.0), 2.0 * np.sqrt(z) / mu)
        return mu * np.where(v < 0, low, sp.ndtr(v) - b_tail(z))

    return Standard(
        lambda z: _mills_tails(a(z), 2.0 / np.sqrt(z))[1],
        lambda z: _mills_tails(a(z), 2.0 / np.sqrt(z))[0],
        lambda z: np.where(z > 0, _phi(a(z)) * np.exp(-1.5 * np.log(z)), 0.0),
        below,
        lambda z: mu * (sp.ndtr(-a(z)) + b_tail(z)),
        0.0, math.inf, mu, mu**3, mu / (math.hypot(1.0, 1.5 * mu) + 1.5 * mu),
    )  # fmt: skip


def _beta(a: float, b: float) -> Standard:
    # z times the density (a, b) is a/(a+b) times the density (a+1, b).
    m = a / (a + b)
    if a > 1.0 and b > 1.0:
        mode = (a - 1.0) / (a + b - 2.0)
    elif a < 1.0 and b < 1.0:
        mode = None
    else:
        mode = 0.5 if a == b else float(a > b)
    return Standard(
        lambda z: sp.betainc(a, b, z),
        lambda z: sp.betaincc(a, b, z),
        lambda z: np.exp(
            sp.xlogy(a - 1.0, z) + sp.xlog1py(b - 1.0, -z) - sp.betaln(a, b)
        ),
        lambda z: m * sp.betainc(a + 1.0, b, z),
        lambda z: m * sp.betaincc(a + 1.0, b, z),
        0.0, 1.0, m, m * b / ((a + b) * (a + b + 1.0)), mode,
    )  # fmt: skip


def _triang(c: float) -> Standard:
    # cdf z^2/c and E[Z; Z <= z] = 2 z^3/(3c) below c; with y = 1 - z, sf y^2/(1-c)
    # and E[Z; Z > z] = (y^2 - 2 y^3/3)/(1-c) above.
    m = (1.0 + c) / 3.0
    low, high = max(c, 1e-300), max(1.0 - c, 1e-300)

    def cdf(z: Any) -> Any:
        return np.where(z < c, z * z / low, 1.0 - (1.0 - z) ** 2 / high)

    def sf(z: Any) -> Any:
        return np.where(z < c, 1.0 - z * z / low, (1.0 - z) ** 2 / high)

    def left(z: Any) -> Any:
        return 2.0 * z**3 / (3.0 * low)

    def right(z: Any) -> Any:
        y = 1.0 - z
        return y * y * (1.0 - 2.0 * y / 3.0) / high

    return Standard(
        cdf, sf, lambda z: np.where(z < c, 2.0 * z / low, 2.0 * (1.0 - z) / high),
        lambda z: np.where(z < c, left(z), m - right(z)),
        lambda z: np.where(z < c, m - left(z), right(z)),
        0.0, 1.0, m, (1.0 - c + c * c) / 18.0, c,
    )  # fmt: skip


def _truncnorm(a: float, b: float) -> Standard:
    # Needs a + b >= 0 (reflect otherwise). Masses and moments are relative to
    # phi(r), r = max(a, 0), so that a window far out in the tail does not underflow.
    r = max(a, 0.0)

    def scaled(x: Any) -> Any:
        return np.exp(-0.5 * (x - r) * (x + r)) / _SQRT_2PI

    def mass(x: Any, y: Any) -> Any:
        """Mass between x and y over exp(-r^2/2)."""
        x, y = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
        up = scaled(x) * _mills(x) - np.where(y < _BIG, scaled(y) * _mills(y), 0.0)
        out = np.where(x < 0.0, sp.ndtr(y) - sp.ndtr(x), up)
        # A short interval: Gauss's rule of the positive integrand, not a difference.
        near = (y - x) * np.maximum(1.0, np.abs(x)) < 2.0
        if np.any(near):
            d = y[near] - x[near]
            t = x[near, None] + d[:, None] * _NODES
            out[near] = d * (scaled(t) @ _WEIGHTS)
        return out

    total = float(mass(np.array([a]), np.array([b]))[0])

    def moment(x: Any, y: Any) -> Any:
        # phi(x) - phi(y) by expm1 of the exponent's difference (y-x)(y+x)/2
        with np.errstate(over="ignore"):
            return -scaled(x) * np.expm1(-0.5 * (y - x) * (y + x)) / total

    mean = float(moment(a, b))
    # The variance cancels in closed form far out: Gauss's rule on panels instead.
    edge = np.linspace(max(a, -40.0), min(b, r + 40.0 / max(1.0, r)), 65)
    t = (edge[:-1, None] + np.diff(edge)[:, None] * _NODES).ravel()
    w = (np.diff(edge)[:, None] * _WEIGHTS).ravel() * scaled(t)
    return Standard(
        lambda z: mass(a, z) / total,
        lambda z: mass(z, b) / total,
        lambda z: scaled(z) / total,
        lambda z: moment(a, z),
        lambda z: moment(z, b),
        a, b, mean, float(w @ (t - mean) ** 2 / w.sum()), r,
    )  # fmt: skip


def _loguniform(a: float, b: float) -> Standard:
    # log Z uniform: cdf = log(z/a)/log(b/a), E[Z; Z <= z] = (z - a)/log(b/a).
    n, m = math.log(b / a), (b - a) / math.log(b / a)
    return Standard(
        lambda z: np.log1p((z - a) / a) / n,
        lambda z: -np.log1p((z - b) / b) / n,
        lambda z: 1.0 / (z * n),
        lambda z: (z - a) / n,
        lambda z: (b - z) / n,
        a, b, m, 0.5 * (a + b) * m - m * m, a,
    )  # fmt: skip


def _exponnorm(k: float) -> Standard:
    # Z = N + k E. cdf = Phi(z) - phi(z) m(1/k - z) =: F, density (Phi - F)/k;
    # integrating by parts E[Z; Z <= z] = (z + k) F - z Phi(z) - phi(z).
    def tail(z: Any) -> Any:
        # exp(1/(2k^2) - z/k) Phi(z - 1/k); the first form for z below 1/k
        low = _phi(z) * _mills(1.0 / k - np.minimum(z, 1.0 / k))
        high = np.exp((0.5 / k - z) / k) * sp.ndtr(z - 1.0 / k)
        return np.where(z < 1.0 / k, low, high)

    def cdf(z: Any) -> Any:
        low = _phi(z) * _mills_drop(np.maximum(-z, 0.0), 1.0 / k)
        return np.where(z < 0, low, sp.ndtr(z) - tail(z))

    def sf(z: Any) -> Any:
        return sp.ndtr(-z) + tail(z)

    # Mode: density = phi, that is m(1/k - z) = k; m decreases, so bisect.
    low, high = 0.0, k
    for _ in range(200):
        mid = 0.5 * (low + high)
        low, high = (mid, high) if _mills(1.0 / k - mid) < k else (low, mid)
    return Standard(
        cdf, sf, lambda z: tail(z) / k,
        lambda z: (z + k) * cdf(z) - z * sp.ndtr(z) - _phi(z),
        lambda z: (z + k) * sf(z) - z * sp.ndtr(-z) + _phi(z),
        -math.inf, math.inf, k, 1.0 + k * k, low,
    )  # fmt: skip


STANDARD: dict[str, Callable[..., Standard]] = {
    "norm": _norm,
    "lognorm": _lognorm,
    "gamma": _gamma,
    "uniform": _uniform,
    "lomax": _lomax,
    "levy": _levy,
    "weibull": _weibull,
    "invgauss": _invgauss,
    "beta": _beta,
    "triang": _triang,
    "truncnorm": _truncnorm,
    "loguniform": _loguniform,
    "exponnorm": _exponnorm,
}
