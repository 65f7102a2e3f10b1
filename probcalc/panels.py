"""Gauss rules on panels that resolve a density, and the sum of two laws by them.

Panels are refined until each one's rule gives the mass that the closed-form
distribution function gives, so quadrature errors show where they arise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probcalc.families import Family
from probcalc.line import UNIT

__all__ = ["AGREEMENT", "TRIM", "Rule", "UnresolvedError", "pair_quantile", "rule_of"]

FloatArray = NDArray[np.float64]
Tail = Callable[[Any], FloatArray]

#: Largest relative difference of two computations of one quantile.
AGREEMENT = 1e-10
#: Probability that is cut off a law's ends, relative to the level and the count.
TRIM = 2e-13
#: Nodes per panel, and the largest phase w * width of the transform over one panel.
ORDER = 16
PHASE = 8.0
MAX_NODES = 1 << 15
_X, _W = np.polynomial.legendre.leggauss(ORDER)
_X, _W = (_X + 1.0) / 2.0, _W / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Panels of one law: ends, and those to be taken as one atom (mass and mean)."""

    family: Family
    left: FloatArray
    right: FloatArray
    atom: NDArray[np.bool_]

    @property
    def centre(self) -> float:
        """Mode, or the middle of a support with two modes."""
        return _centre(self.family)

    @property
    def width(self) -> float:
        """Distance of the two ends."""
        return float(self.right[-1] - self.left[0])

    def trimmed(self, tail: float) -> Rule:
        """Return the panels without those beyond which there is at most `tail`."""
        keep = (self.family.sf(self.left) > tail) & (self.family.cdf(self.right) > tail)
        return Rule(self.family, self.left[keep], self.right[keep], self.atom[keep])

    def halved(self) -> Rule:
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
            raise UnresolvedError
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


class UnresolvedError(Exception):
    """A density or transform needs more nodes than allowed."""


def _centre(family: Family) -> float:
    middle = 0.5 * (family.lower + family.upper)
    return middle if family.mode is None else family.mode


def _mass(family: Family, a: FloatArray, b: FloatArray) -> FloatArray:
    """P(a < X <= b) from whichever tail is the smaller."""
    low, high = family.cdf(a), family.sf(b)
    return np.where(low < high, family.cdf(b) - low, family.sf(a) - high)


def rule_of(family: Family, tail: float) -> Rule:
    """Panels over all but `tail` at each end, refined until each has its mass.

    Raises
    ------
    UnresolvedError
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
            raise UnresolvedError
    else:
        raise UnresolvedError
    left, right, atom = (np.concatenate(v) for v in zip(*done, strict=True))
    order = np.argsort(left)
    return Rule(family, left[order], right[order], atom[order])


def _edges(family: Family, tail: float) -> FloatArray:
    """First panel ends: doubling away from the mode, halving towards finite ends."""
    mode = _centre(family)
    unit = abs(family.scale) * (1.0 if family.kind != "lognorm" else family.shapes[0])
    if family.kind == "lognorm":
        unit *= abs(mode) / abs(family.scale)
    steps = unit * 2.0 ** np.arange(-1.0, 120.0)

    def side(end: float, outside: Tail, sign: float) -> FloatArray:
        x = mode + sign * steps
        if math.isfinite(end):
            x = x[np.abs(x - mode) < 0.5 * abs(end - mode)]
            gap = (end - mode) * 2.0 ** -np.arange(1.0, 100.0)
            x = np.append(x, np.append(end - gap, end)) if end != mode else x
        beyond = np.nonzero(outside(x) <= tail)[0]
        if beyond.size == 0:
            return x
        # the first point past which there is less than `tail`, among 32 in between
        x = x[: beyond[0] + 1]
        fine = np.linspace(x[-2] if x.size > 1 else mode, x[-1], 33)[1:]
        return np.append(x[:-1], fine[np.nonzero(outside(fine) <= tail)[0][0]])

    low = side(family.lower, family.cdf, -1.0)
    high = side(family.upper, family.sf, 1.0)
    edges = np.unique(np.concatenate([low, [mode], high]))
    if edges.size < 2 or not np.all(np.isfinite(edges)):
        raise UnresolvedError
    return edges


# ------------------------------------------------------------------ two laws
def _graded(cuts: FloatArray, at: float, sign: float) -> FloatArray:
    """Ends that close in on `at`, a point of no smoothness, from the side `sign`."""
    beyond = cuts[sign * (cuts - at) > 0.0]
    if beyond.size == 0 or not math.isfinite(at):
        return beyond[:0]
    gap = float(np.min(np.abs(beyond - at)))
    return at + sign * gap * 2.0 ** -np.arange(1.0, 50.0)


def _half(one: Rule, two: Rule, y: float, h: float, upper: bool) -> tuple[float, float]:
    """E[T_Y(y - X); X on the near side of h] and the same with Y's density.

    Near is below h for T = P(Y > .), above h for T = P(Y <= .). The panels of X are cut
    where y - X passes a panel end of Y, and graded towards ends of the supports.
    """
    low, high = float(one.left[0]), float(one.right[-1])
    low, high = (low, min(h, high)) if upper else (max(h, low), high)
    if not low < high:
        return 0.0, 0.0
    ends = np.concatenate([two.left, two.right[-1:]])
    cuts = np.concatenate([one.left, [low, high], y - ends])
    cuts = np.unique(cuts[(cuts >= low) & (cuts <= high)])
    f, g = one.family, two.family
    # Trimmed ends are none of the law's own: nothing happens there.
    own = (
        (f.lower, 1.0, one.left[0] == f.lower),
        (f.upper, -1.0, one.right[-1] == f.upper),
        (y - g.lower, -1.0, two.left[0] == g.lower),
        (y - g.upper, 1.0, two.right[-1] == g.upper),
    )
    extra = [
        _graded(cuts, at, sign)
        for at, sign, is_end in own
        if is_end and low <= at <= high
    ]
    cuts = np.unique(np.concatenate([cuts, *extra]))
    width = np.diff(cuts)
    t = cuts[:-1, None] + width[:, None] * _X
    mass = f.pdf(t) * (width[:, None] * _W)
    # A panel at an end of the support, where the density may be infinite: its exact
    # mass. (Elsewhere a difference of distribution functions would be less exact.)
    at_end = (cuts[:-1] == f.lower) | (cuts[1:] == f.upper)
    exact = _mass(f, cuts[:-1][at_end], cuts[1:][at_end])
    mass[at_end] = exact[:, None] * _W
    rest = y - t
    tail = g.sf(rest) if upper else g.cdf(rest)
    # at a singular end, to rounding; the density only steers Newton's method
    density = np.nan_to_num(g.pdf(rest), posinf=0.0)
    return float((mass * tail).sum()), float((mass * density).sum())


def _pair_sums(one: Rule, two: Rule, y: float, upper: bool) -> tuple[float, float]:
    """Tail and density at y of X + Y, as sums of positive terms.

    With h + k = y: X + Y > y exactly if (X <= h and Y > y - X), or (Y <= k and
    X > y - Y), or (X > h and Y > k), which exclude each other; so each law is
    integrated where it is not large against the distance to y, and nothing cancels
    however far out y is. The lower tail is the mirror image.
    """
    a, b = one.centre, two.centre
    h = a + 0.5 * (y - a - b)
    k = y - h
    first, second = _half(one, two, y, h, upper), _half(two, one, y, k, upper)
    if upper:
        both = float(one.family.sf(h) * two.family.sf(k))
    else:
        both = float(one.family.cdf(h) * two.family.cdf(k))
    return first[0] + second[0] + both, first[1] + second[1]


def pair_quantile(
    families: tuple[Family, Family], goal: float, upper: bool
) -> float | None:
    """Quantile of the sum of two independent laws; None where two ways differ.

    Parameters
    ----------
    families : pair of Family
    goal : float
        P(X + Y > quantile), or P(X + Y <= quantile) unless `upper`.

    Raises
    ------
    UnresolvedError
        A density needs more nodes than allowed.
    """
    one, two = (rule_of(f, 1e-6 * TRIM * goal) for f in families)
    sign = 1.0 if upper else -1.0
    # P(X + Y > 2q) <= 2 max P(X > q): the larger one's quantile is within reach.
    low, high = -math.inf, math.inf
    y = 0.0
    for rule in (one, two):
        tail = rule.family.sf(rule.right) if upper else rule.family.cdf(rule.left)
        ends = rule.right if upper else rule.left
        y += float(
            ends[int(np.argmin(np.abs(np.log(np.maximum(tail, 1e-300) / goal))))]
        )
    for _ in range(100):
        tail, density = _pair_sums(one, two, y, upper)
        low, high = (y, high) if (tail > goal) == upper else (low, y)
        move = math.nan
        if tail > 0.0 and density > 0.0:
            move = sign * tail / density * math.log(tail / goal)
        if abs(move) <= 4.0 * UNIT * abs(y):
            break
        y = y + move if low < y + move < high else 0.5 * (low + high)
        if not math.isfinite(y):
            return None
    again, density = _pair_sums(one.halved(), two.halved(), y, upper)
    if not density > 0.0 or abs(again - goal) > AGREEMENT * density * abs(y):
        return None
    return y
