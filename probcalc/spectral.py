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
from probcalc.line import LEAST_TILT, UNIT, Line, newton

__all__ = ["spectral_estimate"]

FloatArray = NDArray[np.float64]

#: Largest relative difference of the two computations, of the quantile.
AGREEMENT = 1e-10
#: Probability that is cut off a law's ends, relative to the level and the count.
TRIM = 2e-13
#: Nodes per panel, and the largest phase w * width of the transform over one panel.
ORDER = 16
PHASE = 8.0
MAX_NODES = 1 << 15
MAX_WORK = 1 << 25
_X, _W = np.polynomial.legendre.leggauss(ORDER)
_X, _W = (_X + 1.0) / 2.0, _W / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """Panels of one law: ends, and those to be taken as one atom (mass and mean)."""

    family: Family
    left: FloatArray
    right: FloatArray
    atom: NDArray[np.bool_]

    def halved(self) -> _Rule:
        """Return the same panels cut in two; atoms stay."""
        a, b = self.left[~self.atom], self.right[~self.atom]
        middle = 0.5 * (a + b)
        left = np.concatenate([self.left[self.atom], a, middle])
        right = np.concatenate([self.right[self.atom], middle, b])
        order = np.argsort(left)
        atom = np.arange(left.size) < np.count_nonzero(self.atom)
        return replace(self, left=left[order], right=right[order], atom=atom[order])

    def nodes(self, omega: float) -> tuple[FloatArray, FloatArray]:
        """Ascending nodes and masses, good for frequencies up to `omega`."""
        parts = np.ceil((self.right - self.left) * (omega / PHASE))
        parts = np.where(self.atom, 1, np.maximum(parts, 1))
        if parts.sum() * ORDER > MAX_NODES:
            raise _Unresolved
        n = parts.astype(int)
        step = np.repeat((self.right - self.left) / n, n)
        first = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        left = np.repeat(self.left, n) + step * first
        x = left[:, None] + step[:, None] * _X
        mass = self.family.pdf(x) * (step[:, None] * _W)
        atom = np.repeat(self.atom, n)
        if atom.any():
            a, b = self.left[self.atom], self.right[self.atom]
            m = _mass(self.family, a, b)
            g = self.family.partial_below(b) - self.family.partial_below(a)
            mean = np.clip(g / np.where(m > 0.0, m, 1.0), a, b)
            x[atom], mass[atom] = mean[:, None], m[:, None] / ORDER
        return x.ravel(), mass.ravel()


class _Unresolved(Exception):
    """The law or its transform needs more nodes than there are."""


def _mass(family: Family, a: FloatArray, b: FloatArray) -> FloatArray:
    """P(a < X <= b) from whichever tail is the smaller."""
    low, high = family.cdf(a), family.sf(b)
    return np.where(low < high, family.cdf(b) - low, family.sf(a) - high)


def _rule(family: Family, tail: float) -> _Rule:
    """Panels over all but `tail` at each end, refined until each has its mass.

    Raises
    ------
    _Unresolved
        No such panels within the number of nodes.
    """
    edges = _edges(family, tail)
    left, right = edges[:-1], edges[1:]
    size = float(np.median(right - left))
    done: list[tuple[FloatArray, FloatArray, NDArray[np.bool_]]] = []
    for _ in range(120):
        if left.size == 0:
            break
        mass = _mass(family, left, right)
        width = right - left
        x = left[:, None] + width[:, None] * _X
        found = width * (family.pdf(x) @ _W)
        # Rounding of the difference, and what the rule should reach in any case.
        least = np.minimum(family.cdf(right), family.sf(left))
        good = np.abs(found - mass) <= 1e-13 * mass + 2e-14 * least + 1e-3 * tail
        # A narrow panel at a singularity or kink: mass and mean are enough, what is
        # neglected is mass (w width)^2.
        atom = ~good & (mass * (width / size) ** 2 <= 1e-24)
        keep = good | atom
        done.append((left[keep], right[keep], atom[keep]))
        left, right = left[~keep], right[~keep]
        middle = 0.5 * (left + right)
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        if left.size * ORDER > MAX_NODES:
            raise _Unresolved
    else:
        raise _Unresolved
    left, right, atom = (np.concatenate(v) for v in zip(*done, strict=True))
    order = np.argsort(left)
    return _Rule(family, left[order], right[order], atom[order])


def _edges(family: Family, tail: float) -> FloatArray:
    """First panel ends: doubling away from the mode, halving towards finite ends."""
    mode = family.mode
    if mode is None:
        mode = 0.5 * (family.lower + family.upper)
    unit = abs(family.scale) * (1.0 if family.kind != "lognorm" else family.shapes[0])
    if family.kind == "lognorm":
        unit *= mode / abs(family.scale)
    steps = unit * 2.0 ** np.arange(-1.0, 200.0)

    def side(end: float, outside: object, sign: float) -> FloatArray:
        x = mode + sign * steps
        if math.isfinite(end):
            x = x[np.abs(x - mode) < 0.5 * abs(end - mode)]
            gap = (end - mode) * 2.0 ** -np.arange(1.0, 200.0)
            x = np.append(x, np.append(end - gap, end)) if end != mode else x
        beyond = np.nonzero(outside(x) <= tail)[0]  # type: ignore[operator]
        return x[: beyond[0] + 1] if beyond.size else x

    low = side(family.lower, family.cdf, -1.0)
    high = side(family.upper, family.sf, 1.0)
    edges = np.unique(np.concatenate([low, [mode], high]))
    if edges.size < 2 or not np.all(np.isfinite(edges)):
        raise _Unresolved
    return edges


# ------------------------------------------------------------------ two laws
def _pair_sums(
    one: _Rule, two: _Rule, y: float, upper: bool
) -> tuple[float, float]:
    """Tail and density at y of X + Y: the integral of f_X(t) T_Y(y - t), all positive.

    Panels of X, cut where y - t passes a panel end of Y, so that both are smooth.
    """
    ends = np.concatenate([two.left, two.right[-1:]])
    cuts = np.concatenate([one.left, one.right[-1:], y - ends])
    cuts = np.unique(cuts[(cuts >= one.left[0]) & (cuts <= one.right[-1])])
    width = np.diff(cuts)
    t = cuts[:-1, None] + width[:, None] * _X
    mass = one.family.pdf(t) * (width[:, None] * _W)
    # a singular end of X: the rule is scaled to the exact mass of the panel
    exact = _mass(one.family, cuts[:-1], cuts[1:])
    got = mass.sum(axis=1)
    off = np.abs(got - exact) > 1e-9 * exact
    mass[off] *= (exact[off] / np.where(got[off] > 0.0, got[off], 1.0))[:, None]
    rest = y - t
    tail = two.family.sf(rest) if upper else two.family.cdf(rest)
    return float((mass * tail).sum()), float((mass * two.family.pdf(rest)).sum())


def _pair_quantile(
    families: tuple[Family, Family], goal: float, upper: bool
) -> float | None:
    one, two = (_rule(f, 1e-6 * TRIM * goal) for f in families)
    sign = 1.0 if upper else -1.0
    # P(X + Y > 2q) <= 2 max P(X > q): the larger one's quantile is within reach.
    low, high = -math.inf, math.inf
    y = 0.0
    for rule in (one, two):
        tail = rule.family.sf(rule.right) if upper else rule.family.cdf(rule.left)
        ends = rule.right if upper else rule.left
        y += float(ends[int(np.argmin(np.abs(np.log(np.maximum(tail, 1e-300) / goal))))])
    for _ in range(100):
        tail, density = _pair_sums(one, two, y, upper)
        if (tail > goal) == upper:
            low = y
        else:
            high = y
        move = math.nan
        if tail > 0.0 and density > 0.0:
            move = sign * tail / density * math.log(tail / goal)
        if abs(move) <= 4.0 * UNIT * abs(y):
            break
        y += move
        if not low < y < high:
            y = _between(low, high, y)
            if not math.isfinite(y):
                return None
    again, density = _pair_sums(one.halved(), two.halved(), y, upper)
    if not density > 0.0 or abs(again - goal) > AGREEMENT * density * abs(y):
        return None
    return y


def _between(low: float, high: float, y: float) -> float:
    if math.isfinite(low) and math.isfinite(high):
        return 0.5 * (low + high)
    return y


# ------------------------------------------------------------------ many laws
@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """Rows with closed transforms, atoms of measured laws, and rules with counts."""

    rows: list[tuple[float, float, float, float]]
    measured: list[tuple[FloatArray, FloatArray, int]]
    rules: list[tuple[_Rule, int]]

    def factors(self, omega: float) -> tuple[FloatArray, FloatArray, FloatArray]:
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
