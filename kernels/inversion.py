"""Tail probabilities from a moment generating function: the tilted Bromwich sum.

A sum of independent factors is a table, one row per factor, columns
``kind, count, a, b``; M is the factor's moment generating function:

====  =========  =============================================================
kind  factor     log M(z)
====  =========  =============================================================
0     normal     a z^2 / 2
1     gamma      -a log(1 - b z)
2     uniform    count log(sinh(b z) / (b z))
3     inverse    a (1 - sqrt(1 - b z))
      Gaussian
4     atoms      count log(sum_k mass_k exp(z at_k)), k in [a, b)
====  =========  =============================================================

With tilt t inside the strip of M, K = log M, phi(w) = M(t + iw) / M(t), the function
g(x) = exp(t x - K(t)) T(x), where T(x) = P(S > x) for t > 0 and P(S <= x) for t < 0,
has the transform sign(t) phi(w) / (t + iw). Poisson's summation formula gives, with
Delta = 2 pi / W,

    sum_k g(x + k W) = sign(t) Delta / (2 pi) sum_j phi(w_j) exp(-i w_j x) / (t + i w_j)

exactly; what remains is to bound the copies k != 0 and the terms left out (here) and
the rounding (`probcalc.kernels.bromwich`).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from probcalc.kernels.transforms import SERIES

__all__ = ["cgf", "cutoff", "decay", "density_norm", "solve_level", "solve_saddle"]
__all__ += ["strip", "window"]

UNIT = 2.0**-53
TWO_PI = 2.0 * math.pi
#: Added to logarithms of bounds, for the rounding in them.
SLACK = 1e-9


@njit(cache=True)
def strip(table):
    """Interval of tilts in which every factor's generating function is finite."""
    low, high = -np.inf, np.inf
    for row in table:
        if row[0] == 1.0 or row[0] == 3.0:
            if row[3] > 0.0:
                high = min(high, 1.0 / row[3])
            else:
                low = max(low, 1.0 / row[3])
    return low, high


@njit(cache=True)
def cgf(table, at, mass, t):
    """K(t), K'(t), K''(t) and the sum of the sizes of the parts of K (for rounding).

    The last is weighted by the condition 1/(1 - b t) of the parts near their pole.
    """
    k0 = k1 = k2 = size = 0.0
    for row in table:
        kind, n, a, b = row[0], row[1], row[2], row[3]
        if kind == 0.0:
            p0, p1, p2, c = 0.5 * a * t * t, a * t, a, 1.0
        elif kind == 1.0:
            s = 1.0 - b * t
            p0, p1, p2, c = -a * math.log1p(-b * t), a * b / s, a * b * b / (s * s), 1.0
            # log(1 - bt) with bt off by u: absolute error u |bt| / (1 - bt)
            size += a * abs(b * t) / s
        elif kind == 2.0:
            y = abs(b * t)
            if y < 0.8:
                q = y * y
                p0 = 0.0
                for j in range(13, -1, -1):
                    p0 = p0 * q + SERIES[j]
                p0 *= q
            else:
                p0 = y + math.log(-math.expm1(-2.0 * y) / (2.0 * y))
                size += n * (y + abs(math.log(2.0 * y)) + 1.0)
            # derivatives only steer: a few terms of their series are enough
            if y < 0.1:
                q = y * y
                p1 = y / 3.0 * (1.0 - q / 15.0 * (1.0 - q / 10.5))
                p2 = (1.0 - q / 5.0 * (1.0 - q / 6.3)) / 3.0
            else:
                p1 = 1.0 / math.tanh(y) - 1.0 / y
                p2 = 1.0 / (y * y) - (1.0 / math.sinh(y) ** 2 if y < 300.0 else 0.0)
            p0, p2, c = n * p0, n * p2 * b * b, 1.0
            p1 = math.copysign(n * p1 * b, t * b)
        elif kind == 3.0:
            s = 1.0 - b * t
            r = math.sqrt(s)
            # 1 - sqrt(1 - y) = y / (1 + sqrt(1 - y))
            p0 = a * b * t / (1.0 + r)
            p1, p2 = a * b / (2.0 * r), a * b * b / (4.0 * s * r)
            size += a * abs(b * t) / r
            c = 2.0
        else:
            first, last = int(a), int(b)
            # atoms ascend: the largest exponent is at an end, where the moments are
            # taken about
            centre = at[last - 1] if t > 0.0 else at[first]
            m0 = m1 = m2 = 0.0
            for k in range(first, last):
                y = at[k] - centre
                e = mass[k] * math.exp(t * y)
                m0 += e
                m1 += e * y
                m2 += e * y * y
            m1 /= m0
            p0, p1 = n * (t * centre + math.log(m0)), n * (centre + m1)
            p2 = n * max(m2 / m0 - m1 * m1, 0.0)
            # each exponent is off by 2 u |t y|, the sum by (last - first) u
            size += n * (2.0 * abs(t) * (at[last - 1] - at[first]) + 8.0)
            size += n * (abs(t * centre) + (last - first))
            c = 1.0
        k0 += p0
        k1 += p1
        k2 += p2
        size += c * abs(p0)
    return k0, k1, k2, size


@njit(cache=True)
def _step_inside(t, low, high, ahead, span):
    """Move from t towards the end of the strip, doubling away from 0 if it is open."""
    end = high if ahead else low
    if math.isinf(end):
        return t + (span if ahead else -span)
    return 0.5 * (t + end)


@njit(cache=True)
def solve_saddle(table, at, mass, x, guess):
    """Tilt with K'(t) = x, to 1e-6 or so, by Newton's method inside a bracket."""
    low, high = strip(table)
    t = guess
    below, above = -np.inf, np.inf
    span = 0.0
    for _ in range(200):
        _, k1, k2, _ = cgf(table, at, mass, t)
        miss = k1 - x
        if abs(miss) <= 1e-7 * math.sqrt(k2) or above - below <= 1e-9 * abs(t):
            return t
        if miss < 0.0:
            below = t
        else:
            above = t
        new = t - miss / k2 if k2 > 0.0 else np.nan
        span = max(2.0 * span, 1.0 / math.sqrt(k2) if k2 > 0.0 else abs(t))
        if math.isinf(below) or math.isinf(above):
            # not yet enclosed: Newton's step, but no further than the safe one
            safe = _step_inside(t, low, high, miss < 0.0, span)
            if miss < 0.0:
                new = min(new, safe) if new > t else safe
            else:
                new = max(new, safe) if new < t else safe
        elif not below < new < above:
            new = 0.5 * (below + above)
        t = new
    return t


@njit(cache=True)
def solve_level(table, at, mass, log_tail, upper):
    """Tilt whose saddle-point estimate of the tail has logarithm `log_tail`.

    The estimate is K - t K' - log(max(1, |t| sqrt(2 pi K''))), less than 2 % off in the
    logarithm; it falls as t moves away from 0, so bisection on log t does.
    """
    low, high = strip(table)
    _, _, k2, _ = cgf(table, at, mass, 0.0)
    inner, outer = 0.0, (1.0 if upper else -1.0) / math.sqrt(k2)
    end = high if upper else low
    if not math.isinf(end) and abs(outer) > 0.5 * abs(end):
        outer = 0.5 * end
    for _ in range(400):
        if _log_tail(table, at, mass, outer) <= log_tail:
            break
        inner = outer
        outer = 2.0 * outer if math.isinf(end) else 0.5 * (outer + end)
    for _ in range(24):
        mid = 0.5 * (inner + outer)
        if _log_tail(table, at, mass, mid) > log_tail:
            inner = mid
        else:
            outer = mid
    return 0.5 * (inner + outer)


@njit(cache=True)
def _log_tail(table, at, mass, t):
    k0, k1, k2, _ = cgf(table, at, mass, t)
    # 1/(1 + y sqrt(pi/2) ...) ~ erfcx: exact for a normal law at both ends
    y = abs(t) * math.sqrt(k2)
    return k0 - t * k1 - math.log(math.sqrt(TWO_PI) * y + 2.0 - y / (0.7 + y))


@njit(cache=True)
def decay(table, t, w):
    """Log of a bound h of |phi| at w, and the slope bound of log h by log w beyond w.

    Each factor's slope falls with w (derivations in `probcalc.kernels.transforms`),
    atoms count as |phi| <= 1.
    """
    log = slope = 0.0
    for row in table:
        kind, n, a, b = row[0], row[1], row[2], row[3]
        if kind == 0.0:
            log -= 0.5 * a * w * w
            slope -= a * w * w
        elif kind == 1.0:
            q = (b * w / (1.0 - b * t)) ** 2
            log -= 0.5 * a * math.log1p(q)
            slope -= a * q / (1.0 + q)
        elif kind == 2.0:
            y, v = abs(b * t), b * w
            top = y / math.tanh(y) if y > 1e-8 else 1.0
            log += n * (math.log(top) - 0.5 * math.log(y * y + v * v))
            slope -= n * v * v / (y * y + v * v)
        elif kind == 3.0:
            s, q = 1.0 - b * t, b * w
            r = math.hypot(s, q)
            re = math.sqrt(0.5 * (r + s))
            log -= a * q * q / (2.0 * (r + s) * (re + math.sqrt(s)))
            slope -= a * q * q / (4.0 * re * r)
    return log, slope


@njit(cache=True)
def _outside(table, at, x, side):
    """Whether x lies beyond the end of the sum's support on `side`."""
    end = size = 0.0
    for row in table:
        kind, n, a, b = row[0], row[1], row[2], row[3]
        if kind == 0.0 or ((kind == 1.0 or kind == 3.0) and b * side > 0.0):
            return False
        if kind == 2.0:
            end += side * n * b
            size += n * b
        elif kind == 4.0:
            last = at[int(b) - 1] if side > 0.0 else at[int(a)]
            end += n * last
            size += n * abs(last)
    return side * (x - end) > 1e-12 * size


@njit(cache=True)
def _above_copies(table, at, mass, t, x, width):
    """Log of a bound of sum_{k >= 1} exp(t k W) T(x + k W), the copies on t's side.

    T(y) <= exp(K(e) - e y) for e beyond t (Chernoff); the sum over k is geometric.
    Returns the logarithm without the factor exp(-e x), and e.
    """
    side = 1.0 if t > 0.0 else -1.0
    if _outside(table, at, x + side * width, side):
        return -np.inf, t
    e = solve_saddle(table, at, mass, x + side * width, t)
    low, high = strip(table)
    end = high if side > 0.0 else low
    if side * (e - t) <= 0.0:
        return np.inf, t
    if not math.isinf(end) and abs(e - t) > 0.999 * abs(end - t):
        e = t + 0.999 * (end - t)
    k0, _, _, size = cgf(table, at, mass, e)
    gap = abs(e - t) * width
    k0 += SLACK + UNIT * (4.0 + len(table)) * size
    return k0 - gap - math.log(-math.expm1(-gap)), e


@njit(cache=True)
def _below_copies(table, at, mass, t, x, width):
    """Log of a bound of sum_{k >= 1} exp(-|t| k W) (1 - T(x - k W)), likewise."""
    side = 1.0 if t > 0.0 else -1.0
    if _outside(table, at, x - side * width, -side):
        return -np.inf, 0.0
    e = solve_saddle(table, at, mass, x - side * width, 0.0)
    if side * e > 0.0:
        e = 0.0
    k0, _, _, size = cgf(table, at, mass, e)
    gap = abs(t - e) * width
    k0 += SLACK + UNIT * (4.0 + len(table)) * size
    return k0 - gap - math.log(-math.expm1(-gap)), e


@njit(cache=True)
def window(table, at, mass, t, x, log_goal):
    """Spacing of the sum for tilt t near x, and the logarithms of the copies' bounds.

    The copies are to add less than exp(log_goal) to the tail. Returns ``(delta,
    log_above, e_above, log_below, e_below)``; the bounds are exp(log - e y) at a
    point y.
    """
    sd = math.sqrt(cgf(table, at, mass, t)[2])
    small, width = 0.0, 7.0 * sd
    for _ in range(40):
        if _copies_at(table, at, mass, t, x, width) <= log_goal:
            break
        small = width
        width *= 1.35
    for _ in range(3 if small > 0.0 else 0):
        middle = 0.5 * (small + width)
        if _copies_at(table, at, mass, t, x, middle) <= log_goal:
            width = middle
        else:
            small = middle
    # A spacing of 24 bits: w_j = j delta is then exact for j < 2^29.
    delta = TWO_PI / width
    scale = 2.0 ** (24 - math.frexp(delta)[1])
    delta = math.floor(delta * scale) / scale
    width = TWO_PI / delta
    above, e_above = _above_copies(table, at, mass, t, x, width)
    below, e_below = _below_copies(table, at, mass, t, x, width)
    return delta, above, e_above, below, e_below


@njit(cache=True)
def _copies_at(table, at, mass, t, x, width):
    above, e_above = _above_copies(table, at, mass, t, x, width)
    below, e_below = _below_copies(table, at, mass, t, x, width)
    return max(above - e_above * x, below - e_below * x)


@njit(cache=True)
def _pole(t, sd):
    """Log of tilted scale over tail: the tail is about exp(K - t x - pole)."""
    return math.log(1.0 + math.sqrt(TWO_PI) * abs(t) * sd)


@njit(cache=True)
def cutoff(table, at, mass, t, delta, log_eps, max_terms, density):
    """Find the number of terms, and the logarithms of what is left out.

    The number is 0 where the goal, exp(log_eps) relative, needs more than `max_terms`.

    (Delta/pi) sum_{j > J} h(w_j)/w_j <= (1/pi) int_Omega h/w dw <= h(Omega) / (pi A),
    since h(w) <= h(Omega) (w/Omega)^-A beyond Omega = J Delta. For the density the
    integrand is h: at most h(Omega) Omega / (pi (A - 1)).
    """
    sd = math.sqrt(cgf(table, at, mass, t)[2])
    goal = log_eps - _pole(t, sd)
    goal_density = log_eps - math.log(math.sqrt(TWO_PI) * sd) if density else np.inf
    lo, hi, j = 0, 0, 4
    while j <= max_terms:
        cut, cut_density = _cut(table, t, j * delta)
        if cut <= goal and cut_density <= goal_density:
            hi = j
            break
        lo = j
        j *= 2
    while hi - lo > max(1, hi // 32):
        mid = (lo + hi) // 2
        cut, cut_density = _cut(table, t, mid * delta)
        if cut <= goal and cut_density <= goal_density:
            hi = mid
        else:
            lo = mid
    cut, cut_density = _cut(table, t, max(hi, 1) * delta)
    return hi, cut, cut_density


@njit(cache=True)
def _cut(table, t, omega):
    log, slope = decay(table, t, omega)
    log += SLACK * (1.0 + abs(log))
    cut = log - math.log(-slope * math.pi) if slope < 0.0 else np.inf
    if slope < -1.0:
        return cut, log + math.log(omega / (math.pi * (-slope - 1.0)))
    return cut, np.inf


@njit(cache=True)
def density_norm(table, t, unit):
    """Bound of (1/2 pi) int |phi| dw, which bounds the tilted density everywhere.

    |phi| <= min(1, h) with h falling, summed from above on a geometric grid; beyond it
    int_Omega h <= h(Omega) Omega / (A - 1).
    """
    w = 0.05 * unit
    total = w
    log = 0.0
    for _ in range(2000):
        log, slope = decay(table, t, w)
        if slope < -1.5 and log < -5.0:
            return (total + math.exp(log) * w / (-slope - 1.0)) / math.pi * (1.0 + 1e-9)
        total += min(1.0, math.exp(log)) * 0.1 * w
        w *= 1.1
    return np.inf
