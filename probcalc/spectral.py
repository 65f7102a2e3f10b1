"""Estimates for sums of laws with a density but no closed transform.

Each density is replaced by a Gauss rule on panels that resolve it (checked panel by
panel against the closed-form distribution function), so its transform at any tilt is a
finite sum; the tail of the whole sum then follows from the tilted Bromwich series as
in `probcalc.inversion`. A sum of exactly two laws is integrated directly. Every value
is computed twice, with another tilt, window, cut-off and rule, and is withheld unless
the two agree: an estimate, without a certificate, but not silently wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from probcalc.distribution import Constant, Empirical, levels
from probcalc.families import Family, family_of
from probcalc.line import LEAST_TILT, Line, newton
from probcalc.panels import (
    AGREEMENT,
    TRIM,
    Rule,
    UnresolvedError,
    pair_quantile,
    rule_of,
)
from probcalc.rows import Rows, add_rows, finished

__all__ = ["spectral_estimate"]

FloatArray = NDArray[np.float64]
Factors = tuple[FloatArray, FloatArray, FloatArray]

#: Nodes times terms up to which the transform is summed directly, and the largest
#: length of a lattice otherwise.
DIRECT_WORK = 1 << 19
MAX_LENGTH = 1 << 17
#: The same product where the density is not smooth enough for a lattice.
MAX_WORK = 1 << 22
#: How much wider than the law itself its tilted image may be.
SPREAD = 1.6
#: Width of a law over the sum's standard deviation beyond which nothing is tried.
WIDEST = 1e4
#: Logarithms and rates of the bounds of copies above and below (`Line`).
Copies = tuple[float, ...]
_NO_CUT = (-math.inf, -math.inf)


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """Rows with closed transforms, atoms of measured laws, and rules with counts."""

    rows: list[tuple[float, float, float, float]]
    measured: list[tuple[FloatArray, FloatArray, int]]
    rules: list[tuple[Rule, int]]

    def factors(self, omega: float) -> Factors:
        """Table, atoms and masses good for frequencies up to `omega`."""
        table = list(self.rows)
        at, mass = [np.zeros(0)], [np.zeros(0)]
        start = 0
        laws = [(*rule.nodes(omega), n) for rule, n in self.rules]
        for x, m, n in [*self.measured, *laws]:
            table.append((4.0, float(n), float(start), float(start + x.size)))
            start += x.size
            at.append(x)
            mass.append(m)
        return np.array(table), np.concatenate(at), np.concatenate(mass)


def _direct_line(
    factors: Factors, t: float, omega: float, delta: float, copies: Copies
) -> Line:
    """Line at tilt `t` with the terms up to frequency `omega`, by the rules' nodes."""
    from probcalc.kernels.bromwich import terms_of
    from probcalc.kernels.inversion import cgf

    series = terms_of(*factors, t, delta, math.ceil(omega / delta))
    k0 = cgf(*factors, t)[0]
    return Line(t, k0, 0.0, delta, copies[:2], copies[2:], _NO_CUT, series)


def _lattice_line(
    law: _Sum, t: float, nyquist: float, delta: float, copies: Copies
) -> tuple[Line | None, float]:
    """Line at tilt `t`, the densities' transforms by the trapezoid rule and one FFT.

    The rule adds to phi(w) its copies at w + 2 pi k / h, so for a smooth density it
    converges faster than any power of the step h = pi / nyquist; for one with jumps
    or kinks it does not. Returned is a line, or None where a transform is not small
    at the end, and how large the largest is there.
    """
    from scipy import fft, special

    from probcalc.kernels.bromwich import terms_of
    from probcalc.kernels.inversion import cgf

    width = 2.0 * math.pi / delta
    # next_fast_len is typed as optional
    length = int(fft.next_fast_len(math.ceil(width * nyquist / math.pi), True) or 0)
    step = width / length
    phi = np.ones(length // 2 + 1, dtype=complex)
    log = 0.0
    for rule, n in law.rules:
        # The cut ends, smoothed so that they do not show in the transform: past them
        # lies no probability that matters, though its tilted image may.
        low, high, soft = rule.left[0], rule.right[-1], 0.05 * rule.width
        first, last = math.ceil((low - soft) / step), math.floor((high + soft) / step)
        if last - first > 4 * MAX_LENGTH:
            raise UnresolvedError
        k = np.arange(first, last + 1)
        x = k * step
        end = float(x[-1] if t > 0.0 else x[0])
        past = np.maximum(x - high, low - x) / soft
        taper = 0.5 * special.erfc(12.0 * np.maximum(past, 0.0) - 6.0)
        tilted = rule.family.pdf(x) * taper * np.exp(t * (x - end))
        total = float(tilted.sum())
        cells = np.bincount(k % length, weights=tilted / total, minlength=length)
        transform = np.conj(np.asarray(fft.rfft(cells)))
        top = float(np.max(np.abs(transform[-length // 32 :])))
        if not top <= 1e-12:
            return None, top
        phi *= _power(transform, n)
        log += n * (t * end + math.log(total * step))
    count = int(np.nonzero(np.abs(phi) > 1e-17)[0][-1])
    rest = replace(law, rules=[]).factors(0.0)
    if len(rest[0]):
        re, im, err = terms_of(*rest, t, delta, count)
        log += cgf(*rest, t)[0]
    else:
        w = delta * np.arange(count + 1)
        re, im = t / (t * t + w * w), -w / (t * t + w * w)
        err = np.zeros(count + 1)
    g = (re + 1j * im) * phi[: count + 1]
    series = (np.ascontiguousarray(g.real), np.ascontiguousarray(g.imag), err)
    return Line(t, log, 0.0, delta, copies[:2], copies[2:], _NO_CUT, series), 0.0


def _power(z: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """Raise to a whole power by squaring; NumPy's goes by logarithms."""
    out = np.ones_like(z)
    while n:
        if n & 1:
            out = out * z
        n >>= 1
        z = z * z
    return out


def _line(
    law: _Sum, t: float, omega: float, delta: float, copies: Copies
) -> tuple[Line, float]:
    """Line at tilt `t` by whichever way is cheap, and the frequency it goes to.

    `omega` is where to begin looking for the cut-off or, negative, the lattice's
    highest frequency found before.
    """
    start = omega
    if omega > 0.0:
        try:
            omega, factors = _cut(law, t, omega, delta, DIRECT_WORK)
            return _direct_line(factors, t, omega, delta, copies), omega
        except UnresolvedError:
            omega = -8.0 * omega
    before = math.inf
    while -omega / delta < 0.5 * MAX_LENGTH:
        line, top = _lattice_line(law, t, -omega, delta, copies)
        if line is not None:
            return line, omega
        # A smooth transform falls ever faster, one of a kink like a power.
        if not top <= 0.02 * before:
            break
        before = top
        omega *= 2.0
    omega, factors = _cut(law, t, abs(start), delta, MAX_WORK)
    return _direct_line(factors, t, omega, delta, copies), omega


def _cut(
    law: _Sum, t: float, omega: float, delta: float, work: int
) -> tuple[float, Factors]:
    """Frequency, `omega` or more, beyond which the transform is below 1e-16."""
    from probcalc.kernels.bromwich import terms_of

    goal = math.log(1e-16)
    while True:
        factors = law.factors(omega)
        if factors[1].size * omega / delta > work:
            raise UnresolvedError
        size = 1e-300
        for w in (0.9 * omega, omega):
            re, im, _ = terms_of(*factors, t, w, 1)
            size = max(size, math.hypot(re[1], im[1]) * math.hypot(t, w))
        if math.log(size) <= goal:
            return omega, factors
        # log|phi| falls like w^2 at most: never far too high
        omega *= min(max(1.02 * math.sqrt(goal / min(math.log(size), -1.0)), 1.06), 1.6)


def _limited(
    factors: Factors,
    t: float,
    deviation: float,
    upper: bool,
) -> float:
    """Tilt `t`, away from 0, but not so far that the tilted sum spreads out.

    A sub-exponential law, cut off, has a saddle point where its tilted density has a
    second hump at the cut; a smaller tilt serves better and costs only rounding.
    """
    from probcalc.kernels.inversion import cgf, strip

    low, high = strip(factors[0])
    least = LEAST_TILT / deviation
    t = max(min(max(t, least), 0.5 * high + 0.5 * max(t, 0.0)), 0.0) if upper else t
    t = t if upper else min(max(min(t, -least), 0.5 * low + 0.5 * min(t, 0.0)), 0.0)
    if math.sqrt(cgf(*factors, t)[2]) <= SPREAD * deviation:
        return t
    inner, outer = 0.0, t
    for _ in range(12):
        middle = 0.5 * (inner + outer)
        if math.sqrt(cgf(*factors, middle)[2]) <= SPREAD * deviation:
            inner = middle
        else:
            outer = middle
    return inner


def _many_quantile(
    law: _Sum, goal: float, upper: bool, omega: float
) -> tuple[float | None, float]:
    """Quantile of the sum, or None; and the frequency the terms went to.

    `omega` is that frequency at another level, 0 if there is none.
    """
    from probcalc.kernels.inversion import cgf, solve_level, solve_saddle, window

    factors = law.factors(0.0)
    deviation = math.sqrt(cgf(*factors, 0.0)[2])
    widest = max((rule.width for rule, _ in law.rules), default=0.0)
    if not 0.0 < deviation < math.inf or widest > WIDEST * deviation:
        return None, omega
    sign = 1.0 if upper else -1.0
    t = solve_level(*factors, math.log(goal), upper)
    t = _limited(factors, t, deviation, upper)
    y = float(cgf(*factors, t)[1])
    omega = omega or 6.0 / deviation
    attempt = 0
    while True:
        attempt += 1
        delta, *copies = window(*factors, t, y, math.log(1e-15 * goal))
        line, omega = _line(law, t, omega, delta, (*copies,))
        y, _ = newton(line, y, goal, sign)
        if not math.isfinite(y) or attempt > 5:
            return None, omega
        better = _limited(factors, solve_saddle(*factors, y, t), deviation, upper)
        if abs(better - t) <= 0.1 * abs(t) and line.copies(y) <= 1e-13 * goal:
            break
        t = better
    # The same once more: another tilt, window, cut-off and rule.
    t, delta, none = 0.85 * t, delta / 1.1, (-math.inf, 0.0, -math.inf, 0.0)
    if omega > 0.0:
        halved = replace(law, rules=[(rule.halved(), n) for rule, n in law.rules])
        again = _direct_line(halved.factors(1.2 * omega), t, 1.2 * omega, delta, none)
    else:
        again, _ = _lattice_line(law, t, -1.2 * omega, delta, none)
        if again is None:
            return None, omega
    for one in (line, again):
        tail, _, _, density, _ = one.at(y)
        miss = AGREEMENT * density * (abs(y) + deviation)
        if not (density > 0.0 and abs(tail - goal) <= miss):
            return None, omega
    return y, omega


def spectral_estimate(
    terms: Sequence[tuple[object, int]],
    constant: float,
    sf_levels: Sequence[float],
) -> list[float] | None:
    """Quantiles of ``constant + sum of count copies of each law``, all independent.

    Parameters
    ----------
    terms : sequence of (law, count)
        Laws of named families, measured laws, constants.
    constant : float
        Added to the sum.
    sf_levels : sequence of float
        Survival probabilities, each strictly between 0 and 1.

    Returns
    -------
    list of float or None
        One quantile per level, an estimate good to about 1e-10 or better; None where
        a law is not known, or where two computations of one quantile differ (heavy
        tails in sums of three or more, transforms that hardly decay).
    """
    rows: Rows = {}
    numeric: dict[Family, int] = {}
    measured: list[tuple[FloatArray, FloatArray, int]] = []
    exact = Fraction(constant)
    for law, count in terms:
        family = None if isinstance(law, Constant | Empirical) else family_of(law)
        if isinstance(law, Constant):
            exact += Fraction(law.value) * int(count)
        elif isinstance(law, Empirical):
            measured.append((law.atoms, law.mass, int(count)))
        elif family is None:
            return None
        else:
            exact += Fraction(family.loc) * int(count)
            family = replace(family, loc=0.0)
            numeric[family] = numeric.get(family, 0) + int(count)
    pair = sum(numeric.values()) == 2 and not measured
    if not pair:
        for family in [f for f in numeric if f.smooth]:
            exact += add_rows(rows, family, numeric.pop(family))
    if not (numeric or rows):
        return None
    out: list[float] = []
    goals = [(min(p, s), s <= p) for p, s in (levels(None, v) for v in sf_levels)]
    try:
        with np.errstate(all="ignore"):
            found = _found(rows, measured, numeric, goals, pair)
    except UnresolvedError:
        return None
    for y in found:
        if y is None:
            return None
        out.append(float(Fraction(y) + exact))
    return out


def _found(
    rows: Rows,
    measured: list[tuple[FloatArray, FloatArray, int]],
    numeric: dict[Family, int],
    goals: list[tuple[float, bool]],
    pair: bool,
) -> list[float | None]:
    if pair:
        one, two = [f for f, n in numeric.items() for _ in range(n)]
        return [pair_quantile((one, two), *goal) for goal in goals]
    tail = TRIM / max(sum(numeric.values()), 1)
    least = tail * min(goal for goal, _ in goals)
    whole = [(rule_of(f, least), n) for f, n in numeric.items()]
    out: list[float | None] = []
    omega = 0.0
    for goal, upper in goals:
        rules = [(rule.trimmed(tail * goal), n) for rule, n in whole]
        law = _Sum(finished(rows), measured, rules)
        y, omega = _many_quantile(law, goal, upper, min(0.8 * omega, omega))
        out.append(y)
    return out
