"""Transforms of standard laws (location 0, scale 1) and how fast they decay.

Each entry of ``TRANSFORMS`` is (right end of the strip of the moment generating
function, its logarithm for complex z, decay). ``decay(theta, w, *shapes)`` returns
log of a bound of ``|M(theta + iw) / M(theta)|`` and a bound, valid at every higher
frequency too, of the derivative of that logarithm by log w.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SERIES", "TRANSFORMS"]

Function = Callable[..., Any]


def _series(terms: int) -> NDArray[np.float64]:
    """Coefficients of log(sinh z / z) in z^2: 4^k B_2k / (2k (2k)!), k = 1, 2, ...

    By x coth x = 1 + x d/dx log(sinh x / x) and sinh x (x coth x) = x cosh x, power by
    power, in fractions.
    """
    coth = [Fraction(1)]
    for k in range(1, terms + 1):
        rest = sum(coth[j] / math.factorial(2 * (k - j) + 1) for j in range(k))
        coth.append(Fraction(1, math.factorial(2 * k)) - rest)
    return np.array([float(coth[k] / (2 * k)) for k in range(1, terms + 1)])


#: Coefficients of log(sinh z / z) in z^2. The radius is pi: 14 terms leave
#: (0.8/pi)^28 < 3e-17 of the first for |z| < 0.8.
SERIES = _series(14)


def _log_sinhc(z: Any) -> Any:
    """log(sinh z / z), by its power series (radius pi) for small z."""
    z = np.asarray(z, dtype=complex)
    small = np.abs(z) < 0.8
    s = np.where(small, z * z, 0.0)
    series = s * np.polynomial.polynomial.polyval(s, SERIES)
    # sinh z = exp(|Re z|) (...)/2 avoids overflow
    y = np.where(z.real < 0, -z, z)
    y = np.where(small, 1.0, y)
    return np.where(small, series, y + np.log(-np.expm1(-2.0 * y) / (2.0 * y)))


def _decay_norm(theta: float, w: Any) -> tuple[Any, Any]:
    # |phi| = exp(-w^2/2) for every tilt; d log/d log w = -w^2 falls with w.
    return -0.5 * w * w, -w * w


def _decay_gamma(theta: float, w: Any, a: float) -> tuple[Any, Any]:
    # Tilting a gamma changes its scale to 1/(1 - theta): |phi| = (1 + t^2)^(-a/2),
    # t = w/(1 - theta); slope -a t^2/(1 + t^2) falls with w.
    t2 = np.square(w / (1.0 - theta))
    return -0.5 * a * np.log1p(t2), -a * t2 / (1.0 + t2)


def _decay_uniform(theta: float, w: Any) -> tuple[Any, Any]:
    # |exp(theta + iw) - 1| <= exp(theta) + 1, so |phi| <= |theta| coth(|theta|/2) /
    # |theta + iw|; slope -w^2/(theta^2 + w^2) falls with w.
    t = abs(theta)
    top = t / math.tanh(0.5 * t) if t > 1e-8 else 2.0
    r2 = t * t + w * w
    return np.log(top) - 0.5 * np.log(r2), -w * w / r2


def _decay_invgauss(theta: float, w: Any, mu: float) -> tuple[Any, Any]:
    # log|phi| = (sqrt(s) - Re sqrt(s - iq))/mu, s = 1 - 2 mu^2 theta, q = 2 mu^2 w.
    # With r = |s - iq|, R = Re sqrt(s - iq) = sqrt((r+s)/2): R^2 - s = q^2/(2(r+s)).
    # Slope -q^2/(4 mu R r) = -(1 - s/r) sqrt(2(r+s))/(2 mu)/2 ... falls with w, since
    # both (1 - s/r) and sqrt(r + s) grow.
    s, q = 1.0 - 2.0 * mu * mu * theta, 2.0 * mu * mu * w
    r = np.hypot(s, q)
    re = np.sqrt(0.5 * (r + s))
    log = -q * q / (2.0 * (r + s) * (re + math.sqrt(s)) * mu)
    return log, -q * q / (4.0 * mu * re * r)


def _decay_exponnorm(theta: float, w: Any, k: float) -> tuple[Any, Any]:
    one, two = _decay_norm(theta, w), _decay_gamma(theta * k, w * k, 1.0)
    return one[0] + two[0], one[1] + two[1]


TRANSFORMS: dict[str, tuple[Function, Function, Function]] = {
    "norm": (lambda: math.inf, lambda z: 0.5 * z * z, _decay_norm),
    "gamma": (lambda a: 1.0, lambda z, a: -a * np.log1p(-z), _decay_gamma),
    "uniform": (
        lambda: math.inf,
        lambda z: 0.5 * z + _log_sinhc(0.5 * z),
        _decay_uniform,
    ),
    "invgauss": (
        lambda mu: 0.5 / (mu * mu),
        # 1 - sqrt(1 - y) = y/(1 + sqrt(1 - y)), y = 2 mu^2 z
        lambda z, mu: 2.0 * mu * z / (1.0 + np.sqrt(1.0 - 2.0 * mu * mu * z)),
        _decay_invgauss,
    ),
    "exponnorm": (
        lambda k: 1.0 / k,
        lambda z, k: 0.5 * z * z - np.log1p(-k * z),
        _decay_exponnorm,
    ),
}
