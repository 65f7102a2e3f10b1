"""The terms of the tilted Bromwich sum, and the sum at a point, with rounding bounds.

Tables, tilt and identity are those of `probcalc.kernels.inversion`. Frequencies are
w_j = j delta, exact in floating point by the choice of delta.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from probcalc.kernels.transforms import SERIES

__all__ = ["evaluate", "terms_of"]

UNIT = 2.0**-53
TWO_PI = 2.0 * math.pi
#: Terms between restarts of a recurrence.
BLOCK = 32


@njit(cache=True)
def _series(re, im):
    """Log(sinh z / z) for |z| < 0.8 as (real, imaginary), by Horner's rule in z^2."""
    x, y = re * re - im * im, 2.0 * re * im
    p, q = 0.0, 0.0
    for k in range(13, -1, -1):
        p += SERIES[k]
        p, q = p * x - q * y, p * y + q * x
    return p, q


@njit(cache=True)
def _log_factor(kind, n, a, b, t, w):
    """Log phi(w) of one factor: real and imaginary part, and the size of its rounding.

    The size times a small multiple of the unit roundoff bounds the absolute error: it
    adds up the parts, each times its condition.
    """
    if kind == 0.0:
        re, im = -0.5 * a * w * w, a * t * w
        return re, im, abs(re) + abs(im)
    if kind == 1.0:
        s = 1.0 - b * t
        q = b * w / s
        re, im = -0.5 * a * math.log1p(q * q), a * math.atan(q)
        # q is off by (3 + |bt|/s) u relative, and q d/dq log1p(q^2)/2 <= log1p(q^2),
        # q d/dq atan(q) <= atan(q).
        return re, im, (2.0 * abs(re) + abs(im)) * (1.0 + abs(b * t) / s)
    if kind == 3.0:
        # sqrt(s - iq) = R - i q/(2R), R = sqrt((|s - iq| + s)/2)
        s, q = 1.0 - b * t, b * w
        r = math.hypot(s, q)
        root = math.sqrt(0.5 * (r + s))
        re = -a * q * q / (2.0 * (r + s) * (root + math.sqrt(s)))
        im = 0.5 * a * q / root
        return re, im, 2.0 * (abs(re) + abs(im)) * (1.0 + abs(b * t) / s)
    # uniform, z = b (t + iw); sinh(z)/z is even, so take Re z >= 0
    y, v = b * t, b * w
    if y < 0.0:
        y, v = -y, -v
    modulus = math.hypot(y, v)
    if modulus < 0.8:
        re, im = _series(y, v)
        base, _ = _series(y, 0.0)
        return n * (re - base), n * im, n * modulus * modulus
    # |sinh z|^2 = sinh(y)^2 + sin(v)^2, arg by tanh: no overflow for large y
    sine, cosine = math.sin(v), math.cos(v)
    if y > 30.0:
        top, rest = 0.0, math.log(2.0 * y)
        # log(sinh(y)/y) = y - log(2y), log|sinh z| = y - log 2: y itself drops out
        re = math.log(y / modulus)
        condition = abs(v)
    else:
        h = math.hypot(math.sinh(y), sine)
        top = math.log(h / modulus)
        if y < 0.8:
            rest, _ = _series(y, 0.0)
        else:
            rest = math.log(math.sinh(y) / y)
        re = top - rest
        condition = (abs(v) + y) * math.cosh(y) / h
    im = math.atan2(sine, math.tanh(y) * cosine) - math.atan2(v, y)
    return n * re, n * im, n * (abs(top) + abs(rest) + 4.0 + condition)


@njit(cache=True)
def _multiply_atoms(re, im, err, at, mass, first, last, n, t, delta):
    """Multiply the terms by phi(w)^n of a law with atoms, errors in `err` (absolute).

    exp(i w_j x) goes by the recurrence z -> z exp(i delta x), restarted every BLOCK
    terms: off by at most (|w x| + 4 + 4 BLOCK) u.
    """
    count = last - first
    centre = at[last - 1] if t > 0.0 else at[first]
    weight, total = np.empty(count), 0.0
    for k in range(count):
        weight[k] = mass[first + k] * math.exp(t * (at[first + k] - centre))
        total += weight[k]
    # relative error of a weight: that of its exponent and the normalisation's
    off = UNIT * (2.0 * abs(t) * (at[last - 1] - at[first]) + 8.0 + count)
    spread = 0.0
    for k in range(count):
        weight[k] /= total
        spread += weight[k] * abs(at[first + k])
    cd, sd = np.empty(count), np.empty(count)
    for k in range(count):
        cd[k], sd[k] = math.cos(delta * at[first + k]), math.sin(delta * at[first + k])
    p, q = np.empty(count), np.empty(count)
    sums = np.empty((2, BLOCK))
    for start in range(0, len(re), BLOCK):
        size = min(BLOCK, len(re) - start)
        for k in range(count):
            angle = start * delta * at[first + k]
            p[k], q[k] = weight[k] * math.cos(angle), weight[k] * math.sin(angle)
        for j in range(size):
            # two chains of additions each, which the processor runs side by side
            a = b = c = d = 0.0
            for k in range(0, count - 1, 2):
                a += p[k]
                b += q[k]
                c += p[k + 1]
                d += q[k + 1]
            if count % 2:
                a += p[count - 1]
                b += q[count - 1]
            for k in range(count):
                p[k], q[k] = p[k] * cd[k] - q[k] * sd[k], p[k] * sd[k] + q[k] * cd[k]
            sums[0, j], sums[1, j] = a + c, b + d
        for j in range(size):
            i = start + j
            e = off + UNIT * (2.0 * i * delta * spread + 8.0 + 5.0 * BLOCK + count)
            modulus = math.hypot(sums[0, j], sums[1, j]) + e
            power = modulus**n
            gap = power - max(modulus - e, 0.0) ** n
            # the n-th power by squaring: every factor z is off by less than 4 u, and
            # so is the power n times that
            c, s, r, m, left = 1.0, 0.0, sums[0, j], sums[1, j], int(n)
            while left > 0:
                if left & 1:
                    c, s = c * r - s * m, c * m + s * r
                r, m = r * r - m * m, 2.0 * r * m
                left >>= 1
            gap += power * UNIT * 4.0 * n
            err[i] = err[i] * power + math.hypot(re[i], im[i]) * gap
            re[i], im[i] = re[i] * c - im[i] * s, re[i] * s + im[i] * c


@njit(cache=True)
def terms_of(table, at, mass, t, delta, terms):
    """phi(w_j) / (t + i w_j) for j = 0..terms and a bound of each one's error.

    Returns
    -------
    re, im, err : arrays, shape (terms + 1,)
        The weight of the conjugate term, 2 for j > 0, is not included.
    """
    re, im, err = np.empty(terms + 1), np.empty(terms + 1), np.empty(terms + 1)
    for j in range(terms + 1):
        w = j * delta
        log = angle = size = 0.0
        for row in table:
            if row[0] != 4.0:
                x, y, z = _log_factor(row[0], row[1], row[2], row[3], t, w)
                log += x
                angle += y
                size += z
        modulus = math.exp(log)
        re[j], im[j] = modulus * math.cos(angle), modulus * math.sin(angle)
        # parameters, products and the sum over rows: (6 + rows) u of the sizes
        err[j] = modulus * UNIT * (12.0 + (6.0 + len(table)) * size)
    for row in table:
        if row[0] == 4.0:
            first, last = int(row[2]), int(row[3])
            _multiply_atoms(re, im, err, at, mass, first, last, row[1], t, delta)
    for j in range(terms + 1):
        w = j * delta
        r2 = t * t + w * w
        re[j], im[j] = (re[j] * t + im[j] * w) / r2, (im[j] * t - re[j] * w) / r2
        err[j] = err[j] / math.sqrt(r2) + 4.0 * UNIT * math.hypot(re[j], im[j])
    return re, im, err


@njit(cache=True)
def evaluate(re, im, err, t, delta, x):
    """Sum the Bromwich series at x: tail, density, and their rounding bounds.

    Returns ``(tail, density, tail_error, density_error)`` without the factor
    exp(K(t) - t x); the tail carries the sign of t.
    """
    tail = density = tail_off = density_off = 0.0
    low_tail = low_density = 0.0
    for j in range(len(re)):
        w = j * delta
        angle = w * x
        c, s = math.cos(angle), math.sin(angle)
        weight = 1.0 if j == 0 else 2.0
        # G exp(-i w x), and phi exp(-i w x) = (t + i w) of it
        p, q = re[j] * c + im[j] * s, im[j] * c - re[j] * s
        # Neumaier's sums: rounding 2 u of the total instead of u per term
        y = weight * p
        new = tail + y
        low_tail += (tail - new) + y if abs(tail) >= abs(y) else (y - new) + tail
        tail = new
        y = weight * (t * p - w * q)
        new = density + y
        low_density += (
            (density - new) + y if abs(density) >= abs(y) else (y - new) + density
        )
        density = new
        # x is off by u |x| itself, as is the product w x
        e = weight * (
            err[j] + math.hypot(re[j], im[j]) * UNIT * (8.0 + 2.0 * abs(angle))
        )
        tail_off += e
        density_off += e * math.hypot(t, w)
    scale = delta / TWO_PI
    tail, density = (tail + low_tail) * scale, (density + low_density) * scale
    tail_off = tail_off * scale * (1.0 + 1e-9) + 8.0 * UNIT * abs(tail)
    density_off = density_off * scale * (1.0 + 1e-9) + 8.0 * UNIT * abs(density)
    return math.copysign(1.0, t) * tail, density, tail_off, density_off
