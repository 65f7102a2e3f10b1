"""Expressions of joint laws of time T and energy x: leaves, sums, maxima."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.distribution import (
    Constant,
    Distribution,
    Empirical,
    as_law,
    as_samples,
)
from probcalc.errors import InputError, ToleranceError
from probcalc.families import Family, family_of
from probcalc.readonly import reduced

__all__ = [
    "Joint",
    "JointAffine",
    "JointIndependent",
    "JointLeaf",
    "JointMaximum",
    "JointRuns",
    "JointSum",
    "KnownLaw",
    "flattened",
    "folded",
    "in_order",
    "joint_maximum",
    "joint_repeat",
    "joint_sum",
]

FloatArray = npt.NDArray[Any]

#: More copies are refused.
MAX_COPIES = 10**9


class KnownLaw:
    """A law of one coordinate, and what was asked of it before.

    Parameters
    ----------
    law : Distribution

    Attributes
    ----------
    values : (values, masses) or None
        Where the law is a finite list of outcomes; masses None for equal ones.
    family : Family or None
        Closed forms, where known.
    """

    __slots__ = ("_mean", "_ranges", "_variance", "family", "law", "values")

    def __init__(self, law: Distribution) -> None:
        self.law = law
        self.values: tuple[FloatArray, FloatArray | None] | None = None
        self.family: Family | None = None
        if isinstance(law, Constant):
            self.values = np.array([law.value]), None
        elif isinstance(law, Empirical):
            self.values = law.samples, law.weights
        else:
            self.family = family_of(law)
        self._ranges: dict[float, tuple[float, float]] = {}
        self._mean: float | None = None
        self._variance: float | None = None

    @property
    def mean(self) -> float:
        """E X."""
        if self._mean is None:
            self._mean = float(self.law.mean())
        return self._mean

    @property
    def variance(self) -> float:
        """Var X."""
        if self._variance is None:
            self._variance = float(self.law.variance())
        return self._variance

    def tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P(X <= x) and P(X > x)."""
        if self.family is not None:
            return self.family.cdf(x), self.family.sf(x)
        return np.asarray(self.law.cdf(x)), np.asarray(self.law.ccdf(x))

    def range(self, tail: float) -> tuple[float, float]:
        """Interval outside which about `tail` lies on either side."""
        if tail not in self._ranges:
            low, high = (float(v) for v in self.law.support())
            low = max(low, float(self.law.icdf(tail)))
            high = min(high, float(self.law.iccdf(tail)))
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ToleranceError(
                    f"joint law: {self.law!r:.60} has no finite quantile at "
                    f"{tail:.3g} from its ends"
                )
            self._ranges[tail] = low, high
        return self._ranges[tail]

    def width(self, tail: float) -> float:
        """Twelve standard deviations, or the range where that is less."""
        low, high = self.range(tail)
        sd = math.sqrt(max(self.variance, 0.0))
        return min(12.0 * sd, high - low) if math.isfinite(sd) else high - low

    def excess(self, tail: float) -> float:
        """E (X - high)+ + E (low - X)+ at most, for the range at this `tail`."""
        if self.values is not None:
            return 0.0
        low, high = self.range(tail)
        family = self.family
        if family is not None:
            # E (X - high)+ = E[X; X > high] - high P(X > high), and likewise below
            above = float(family.partial_above(high) - high * family.sf(high))
            below = float(low * family.cdf(low) - family.partial_below(low))
            return max(above, 0.0) + max(below, 0.0)
        # Cauchy and Schwarz: E[|X - mean|; outside] <= sd sqrt(P(outside))
        return math.sqrt(4.0 * tail * self.variance)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JointRuns:
    """Pairs of T and x as measured, dependence included.

    Parameters
    ----------
    time : array_like, shape (runs,)
        In s, not negative.
    x : array_like, shape (runs,)
        Energy above ``weight * time``, in J; of any sign.
    weights : array_like, shape (runs,), optional
        Probability of each run; equal when absent.

    Raises
    ------
    InputError
        Empty, NaN or infinite values, negative times, lengths that differ, weights
        that are negative or sum to zero.
    """

    time: Any
    x: Any
    weights: Any = None

    def __post_init__(self) -> None:
        time = as_samples(self.time, where="joint runs, time")
        x = as_samples(self.x, where="joint runs, x")
        if time.size != x.size:
            raise InputError(
                f"joint runs: {time.size} times and {x.size} values of x, "
                "expected one of each for every run"
            )
        if time.min() < 0.0:
            index = int(np.argmin(time))
            raise InputError(
                f"joint runs: time of run {index} is {time[index]!r} s, expected >= 0"
            )
        weights = self.weights
        if weights is not None:
            weights = as_samples(weights, where="joint runs, weights")
            if weights.size != time.size:
                raise InputError(
                    f"joint runs: {weights.size} weights for {time.size} runs, "
                    "expected one for each"
                )
            if weights.min() < 0.0 or weights.sum() <= 0.0:
                raise InputError(
                    f"joint runs: smallest weight {weights.min()!r}, sum "
                    f"{weights.sum()!r}, expected weights >= 0 with a positive sum"
                )
            weights = weights / weights.sum()
            weights.flags.writeable = False
        for name, value in (("time", time), ("x", x), ("weights", weights)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with read-only arrays."""
        return reduced(self)

    def __repr__(self) -> str:
        return f"<JointRuns: {self.time.size} runs>"


@dataclass(frozen=True, slots=True, eq=False)
class JointAffine:
    """x = slope * T + x', with x' independent of T.

    What an element is that runs at another static power than the one its device idles
    at: the slope is the difference of the two, of either sign.

    Parameters
    ----------
    time_law : law, SciPy distribution or float
        Law of T in s.
    slope : float
        In W.
    x_law : law, SciPy distribution or float
        Law of x' in J.
    """

    time_law: Any
    slope: float
    x_law: Any = 0.0
    known: tuple[KnownLaw, KnownLaw] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _set_laws(self, "joint affine")
        if not (isinstance(self.slope, numbers.Real) and math.isfinite(self.slope)):
            raise InputError(
                f"joint affine: slope must be a finite number, got {self.slope!r}"
            )
        object.__setattr__(self, "slope", float(self.slope))


@dataclass(frozen=True, slots=True, eq=False)
class JointIndependent:
    """T and x independent of each other.

    Parameters
    ----------
    time_law, x_law : law, SciPy distribution or float
        Laws of T in s and of x in J.
    """

    time_law: Any
    x_law: Any
    known: tuple[KnownLaw, KnownLaw] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _set_laws(self, "joint independent")

    @property
    def slope(self) -> float:
        """Return zero: x does not depend on T."""
        return 0.0


def _set_laws(leaf: Any, where: str) -> None:
    for name in ("time_law", "x_law"):
        law = as_law(getattr(leaf, name), name=f"{where}, {name}")
        object.__setattr__(leaf, name, law)
    known = KnownLaw(leaf.time_law), KnownLaw(leaf.x_law)
    values = known[0].values
    if values is not None and values[0].min() < 0.0:
        raise InputError(
            f"{where}, time_law: value {values[0].min()!r} s, expected times >= 0"
        )
    object.__setattr__(leaf, "known", known)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JointSum:
    """Both coordinates of independent parts added; each with its number of copies."""

    parts: tuple[tuple[Joint, int], ...]

    def __repr__(self) -> str:
        return f"<JointSum: {sum(n for _, n in self.parts)} parts>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JointMaximum:
    """Largest time and sum of x of independent parts; each with its copies."""

    parts: tuple[tuple[Joint, int], ...]

    def __repr__(self) -> str:
        return f"<JointMaximum: {sum(n for _, n in self.parts)} parts>"


JointLeaf = JointRuns | JointAffine | JointIndependent
Joint = JointLeaf | JointSum | JointMaximum


def flattened(
    kind: type[JointSum] | type[JointMaximum],
    parts: Iterable[tuple[Any, int]],
    where: str,
) -> Joint:
    """One node of all parts: those of its own kind taken apart, equal ones counted."""
    merged: dict[int, tuple[Joint, int]] = {}

    def put(part: Joint, count: int) -> None:
        merged[id(part)] = (part, merged.get(id(part), (part, 0))[1] + count)

    for index, (part, count) in enumerate(parts):
        if not isinstance(part, Joint):
            raise InputError(
                f"{where}, part {index}: expected a joint law, "
                f"got {type(part).__name__} {part!r:.60}"
            )
        if isinstance(part, kind):
            for inner, n in part.parts:
                put(inner, n * count)
        else:
            put(part, count)
    if not merged:
        raise InputError(f"{where}: no parts, expected at least one")
    found = tuple(merged.values())
    return found[0][0] if len(found) == 1 and found[0][1] == 1 else kind(found)


def joint_sum(*parts: Joint) -> Joint:
    """Sequential composition of independent parts: both coordinates add."""
    return flattened(JointSum, ((part, 1) for part in parts), "joint_sum")


def joint_maximum(*parts: Joint) -> Joint:
    """Parallel composition of independent parts: T is the largest, x the sum."""
    return flattened(JointMaximum, ((part, 1) for part in parts), "joint_maximum")


def joint_repeat(part: Joint, n: int) -> Joint:
    """Return n independent runs of a part, one after the other.

    Raises
    ------
    InputError
        Unless n is an integer from 1 to 10^9.
    """
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        raise InputError(f"joint_repeat: n must be an integer, got {n!r}")
    if not 1 <= n <= MAX_COPIES:
        raise InputError(
            f"joint_repeat: n must be between 1 and {MAX_COPIES}, got {n!r}"
        )
    return flattened(JointSum, [(part, int(n))], "joint_repeat")


def in_order(root: Joint) -> Iterator[Joint]:
    """Every distinct node once, parts first; no recursion, so any depth."""
    seen: set[int] = set()
    stack: list[tuple[Joint, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded or not isinstance(node, JointSum | JointMaximum):
            if expanded or id(node) not in seen:
                seen.add(id(node))
                yield node
            continue
        if id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((part, False) for part, _ in node.parts)


def folded(
    root: Joint,
    leaf: Callable[[JointLeaf], Any],
    combine: Callable[[JointSum | JointMaximum, list[tuple[Any, int]]], Any],
) -> Any:
    """Value of an expression from values of its leaves."""
    values: dict[int, Any] = {}
    for node in in_order(root):
        if isinstance(node, JointSum | JointMaximum):
            parts = [(values[id(part)], n) for part, n in node.parts]
            values[id(node)] = combine(node, parts)
        else:
            values[id(node)] = leaf(node)
    return values[id(root)]
