"""Laws of two dependent quantities: time T and energy x above a baseline.

An element is a pair (T, x) with E = weight * T + x (calculus, section 2). Sequential
composition adds both coordinates; parallel composition takes the largest time and adds
x. Where T and x of an operand depend on each other the joint law has to be composed:
here with T on a grid and x in the Fourier domain through the whole expression.

Operands are independent fresh draws, even the same object twice.

How the bracket comes about. E is the largest, over the paths of the expression, of
``weight * (sum of T on the path) + sum of all x``: increasing and convex in every
coordinate of every leaf. A T that is split between its two neighbours on the grid with
the mean kept gains noise that is, given the leaves, independent, of mean zero and at
most one step wide: Hoeffding's inequality along one path bounds how far it lowers E, a
union over paths how far it raises it. x is not rounded; to be read off few frequencies
it is smeared once, by a kernel whose law is known. Both kinds of noise are taken out of
the result by `probcalc.kernels.joint.bracket`. For few leaves T and x are also rounded
down, and up, which gives laws surely below and above, and the narrower bound counts.

No grid at all is needed where the outcomes are few enough to be listed, or T and x are
independent after all; and no grid of T for a maximum of lists of runs, which is gone
through in the order of T. Parts of an outermost sum enter by their E alone: they are
worked out one by one, each on the grid that suits it, and added in one dimension.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.composed import (
    MEMORY,
    Composed,
    maximum,
    repeat,
    scale,
    shift,
    sum_of,
)
from probcalc.distribution import (
    Bounds,
    Constant,
    Distribution,
    Empirical,
    Kind,
    Probability,
    Quantile,
    as_law,
    as_samples,
    generator,
    levels,
)
from probcalc.errors import InputError, ToleranceError
from probcalc.families import Family, family_of
from probcalc.lattice import Lattice, LatticeBounds
from probcalc.nodes import Leaf, Max, Node, Sum, postorder

if TYPE_CHECKING:
    from probcalc.kernels.joint import Smear

__all__ = [
    "Joint",
    "JointAffine",
    "JointIndependent",
    "JointMaximum",
    "JointRuns",
    "JointSum",
    "Weighted",
    "joint_maximum",
    "joint_repeat",
    "joint_sum",
    "weighted",
]

FloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[Any]

UNIT = 2.0**-53
#: Rows and columns of the grid unless asked otherwise.
GRID = 512
#: Joint outcomes that are listed one by one rather than put on a grid.
ENUMERATE = 4_000_000
#: The same for a part inside a larger expression, where each costs a grid operation.
ENUMERATE_PART = 65_536
#: Nodes times grid points that one answer may cost when no tolerance is demanded, and
#: what reading the result off the grid costs in nodes.
WORK = 2**28
READING = 15
#: A maximum of up to so many lists of runs is worked out in the order of their T.
ORDERED = 8
#: Up to so many draws T and x are also rounded down and up.
FEW = 6
#: More copies, and longer grids for one law, are refused.
MAX_COPIES = 10**9
MAX_CELLS = 2**24
#: Points of x to a column of the grid, for laws that are no list of outcomes.
FINE = 8
#: Positions this close to a grid point are taken to be on it; accounted as a shift.
NEAR = 1e-9
#: Relative accuracy that SciPy's distribution functions are taken to have. {E > t} is
#: in each coordinate of a leaf an interval up to infinity, or the complement of one, so
#: that P(E > t) is off by the same relative error for each draw of T and of x.
FUNCTION_ERROR = 2e-12


# ------------------------------------------------------------------ expressions
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


# ----------------------------------------------------- outcomes listed one by one
class Atoms(NamedTuple):
    """Joint outcomes; `mass` None where all are equally likely."""

    t: FloatArray
    x: FloatArray
    mass: FloatArray | None

    @property
    def masses(self) -> FloatArray:
        """Probability of each outcome."""
        if self.mass is None:
            return np.full(self.t.size, 1.0 / self.t.size)
        return self.mass


def _both(
    first: tuple[FloatArray, FloatArray | None],
    second: tuple[FloatArray, FloatArray | None],
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """All pairs of two lists of outcomes, and their masses."""
    (a, p), (b, q) = first, second
    left, right = np.repeat(a, b.size), np.tile(b, a.size)
    if p is None and q is None:
        return left, right, None
    p = np.full(a.size, 1.0 / a.size) if p is None else p
    q = np.full(b.size, 1.0 / b.size) if q is None else q
    return left, right, np.outer(p, q).ravel()


def size_of(leaf: JointLeaf) -> float:
    """Number of outcomes of a leaf; infinite where it is no list of outcomes."""
    if isinstance(leaf, JointRuns):
        return leaf.time.size
    time, x = (law.values for law in leaf.known)
    return math.inf if time is None or x is None else time[0].size * x[0].size


def outcomes_of(leaf: JointLeaf) -> Atoms:
    """List the outcomes of a leaf that has finitely many."""
    if isinstance(leaf, JointRuns):
        return Atoms(leaf.time, leaf.x, leaf.weights)
    time, x = (law.values for law in leaf.known)
    assert time is not None
    assert x is not None
    t, rest, mass = _both(time, x)
    return Atoms(t, leaf.slope * t + rest, mass)


def _power_size(parts: list[tuple[float, int]]) -> float:
    """Product of sizes to their counts, infinite where it is very large."""
    log = sum(n * math.log(size) for size, n in parts)
    return math.inf if log > 60.0 else math.prod(size**n for size, n in parts)


def sizes_of(root: Joint) -> dict[int, float]:
    """Number of outcomes of every node, by id."""
    out: dict[int, float] = {}
    for node in in_order(root):
        if isinstance(node, JointSum | JointMaximum):
            out[id(node)] = _power_size([(out[id(p)], n) for p, n in node.parts])
        else:
            out[id(node)] = size_of(node)
    return out


def listing(root: Joint) -> Atoms:
    """All outcomes of an expression of finite lists (check `sizes_of` first)."""
    return folded(root, outcomes_of, _combined)


def _combined(node: JointSum | JointMaximum, parts: list[tuple[Atoms, int]]) -> Atoms:
    result: Atoms | None = None
    for atoms, count in parts:
        times = count
        if atoms.t.size == 1:
            t = atoms.t if isinstance(node, JointMaximum) else count * atoms.t
            atoms, times = Atoms(t, count * atoms.x, None), 1
        for _ in range(times):
            result = atoms if result is None else _pairwise(node, result, atoms)
    assert result is not None
    return result


def _pairwise(node: JointSum | JointMaximum, a: Atoms, b: Atoms) -> Atoms:
    i, j, mass = _both(
        (np.arange(a.t.size, dtype=float), a.mass),
        (np.arange(b.t.size, dtype=float), b.mass),
    )
    i, j = i.astype(np.intp), j.astype(np.intp)
    both = np.maximum if isinstance(node, JointMaximum) else np.add
    return Atoms(both(a.t[i], b.t[j]), a.x[i] + b.x[j], mass)


def collapsed(root: Joint, limit: int) -> Joint:
    """Replace parts of few outcomes by one leaf that lists them."""
    sizes = sizes_of(root)
    known: dict[int, JointRuns] = {}

    def runs(part: Joint) -> JointRuns:
        # Of one object one leaf is made, so that equal leaves are worked out once.
        if isinstance(part, JointRuns):
            return part
        if id(part) not in known:
            known[id(part)] = JointRuns(*listing(part))
        return known[id(part)]

    def combine(
        node: JointSum | JointMaximum, parts: list[tuple[Any, int]]
    ) -> tuple[Joint, float]:
        size = sizes[id(node)]
        if size <= limit:
            return node, size
        kept: list[tuple[Joint, int]] = []
        small: list[tuple[Joint, int]] = []
        product = 1.0
        for (part, inner), count in sorted(parts, key=lambda p: p[0][1]):
            grown = _power_size([(product, 1), (inner, count)])
            if grown <= limit:
                small.append((part, count))
                product = grown
            else:
                kept.append((runs(part) if inner <= limit else part, count))
        if len(small) == 1:
            kept.append((runs(small[0][0]), small[0][1]))
        elif small:
            kept.append((runs(type(node)(tuple(small))), 1))
        return flattened(type(node), kept, "joint law"), math.inf

    return folded(root, lambda leaf: (leaf, sizes[id(leaf)]), combine)[0]


def quantum_of_values(values: FloatArray) -> float:
    """Largest step of which all values are multiples to 8 ulp; zero if there is none.

    Decimal steps (timers count in those) are tried first, then binary ones.
    """
    top = float(np.abs(values).max(initial=0.0))
    if top == 0.0:
        return 1.0
    for base in (10.0, 2.0):
        for digits in range(16 if base == 10.0 else 50):
            scaled = values * base**digits
            whole = np.round(scaled)
            if top * base**digits > 2.0**50:
                break
            if np.all(np.abs(scaled - whole) <= 8.0 * UNIT * np.abs(whole)):
                return float(np.gcd.reduce(whole.astype(np.int64))) / base**digits
    return 0.0


# ------------------------------------------------------------- leaves on the grid
class Axis(NamedTuple):
    """One coordinate on a grid: value of point k is origin + (first + k) * step.

    ``below`` and ``above`` is mass moved to the ends from outside, ``shifted`` the
    largest known displacement, ``noisy`` whether mass was split between points.
    """

    first: int
    mass: FloatArray
    origin: float
    below: float
    above: float
    shifted: float
    noisy: bool


def on_points(position: FloatArray) -> FloatArray:
    """Round positions that are integers but for rounding (NEAR is accounted)."""
    near = np.round(position)
    return np.where(np.abs(position - near) < NEAR, near, position)


def _shares(at: FloatArray, rounding: int) -> FloatArray:
    """Share of the mass at positions `at` that goes to the next point."""
    part = at - np.floor(at)
    if rounding == 0:
        return part
    return np.where(part > 0.0, 1.0, 0.0) if rounding > 0 else np.zeros(at.size)


def atoms_axis(
    values: FloatArray,
    mass: FloatArray | None,
    step: float,
    origin: float,
    rounding: int = 0,
) -> Axis:
    """Bring outcomes onto multiples of a step from an origin."""
    at = on_points((values - origin) / step)
    weights = np.full(at.size, 1.0 / at.size) if mass is None else mass
    low, part = np.floor(at), _shares(at, rounding)
    first = int(low.min())
    index = (low - first).astype(np.intp)
    size = int(index.max()) + 1 + int(part.any())
    out = np.bincount(index, weights=weights * (1.0 - part), minlength=size)
    if part.any():
        out[1:] += np.bincount(index, weights=weights * part, minlength=size)[:-1]
    noisy = rounding == 0 and bool(part.any())
    return Axis(first, out, origin, 0.0, 0.0, NEAR * step, noisy)


def axis_of(
    law: KnownLaw, factor: float, step: float, tail: float, rounding: int = 0
) -> Axis:
    """Law of ``factor * X`` on multiples of `step`; about `tail` is moved at each end.

    A finite list of outcomes lies on a grid that starts at its least value.
    """
    if factor == 0.0:
        return atoms_axis(np.zeros(1), None, step, 0.0)
    if law.values is not None:
        values = factor * law.values[0]
        return atoms_axis(values, law.values[1], step, float(values.min()), rounding)
    low, high = sorted(factor * v for v in law.range(tail))
    first = math.floor(low / step)
    cells = max(math.ceil(high / step) - first, 1)
    if cells > MAX_CELLS:
        raise ToleranceError(
            f"joint law: a law spans {cells} grid steps, more than {MAX_CELLS}"
        )
    family = law.family
    fine = 1
    if family is None and rounding == 0:
        fine = max(4, min(64, 8192 // cells))
    edges = step * (first + np.arange(cells * fine + 1) / fine) / factor
    below, above = law.tails(edges)
    # A difference of the smaller of the two functions keeps its relative accuracy.
    left = np.minimum(below[:-1], below[1:]) < 0.5
    mass = np.abs(np.where(left, np.diff(below), np.diff(above)))
    ends = (below[0], above[-1]) if factor > 0.0 else (above[0], below[-1])
    shifted = 0.0
    if rounding != 0:
        to_right = mass if rounding > 0 else np.zeros(cells)
    elif family is not None:
        # Share of the right end: (E[Y; cell] - (left end) mass) / step, Y = factor X,
        # from the partial moments of X; those from above are infinite with the mean.
        with np.errstate(invalid="ignore"):
            part = -np.diff(family.partial_above(edges))
        part = np.where(
            left | ~np.isfinite(part), np.diff(family.partial_below(edges)), part
        )
        start = step * (first + np.arange(cells))
        to_right = np.clip((abs(factor) * part - start * mass) / step, 0.0, mass)
    else:
        # Sub-cells stand for their middles: a known shift, then a fair split.
        pieces = mass.reshape(cells, fine)
        mass = pieces.sum(axis=1)
        to_right = np.minimum(pieces @ ((np.arange(fine) + 0.5) / fine), mass)
        shifted = 0.5 * step / fine
    out = np.append(mass - to_right, 0.0)
    out[1:] += to_right
    out[0] += ends[0]
    out[-1] += ends[1]
    return Axis(first, out, 0.0, float(ends[0]), float(ends[1]), shifted, rounding == 0)


class Steps(NamedTuple):
    """Distance of rows and of columns; whether all T lie on rows, all x on columns."""

    row: float
    column: float
    rows_exact: bool = False
    exact: bool = False


class Cell(NamedTuple):
    """A leaf on the grid of rows: atoms in x on rows, plus an x' common to all.

    ``on`` and ``off`` are the sums of squared noise ranges, in units of E squared, when
    the leaf lies on the longest path and when it does not.
    """

    first: int
    height: int
    row: IntArray
    part: FloatArray
    mass: FloatArray
    x: FloatArray
    rest: FloatArray | None
    origin: float
    missing: float
    extra: float
    shifted: float
    on: float
    off: float

    def lines(self, step: float) -> list[FloatArray]:
        """Masses of x, of independent summands, from the least value in steps."""
        out = [atoms_axis(self.x, self.mass, step, 0.0).mass]
        return out if self.rest is None else [*out, self.rest]

    def spectrum(
        self, steps: Steps, bins: int, discrete: bool
    ) -> npt.NDArray[np.complex128]:
        """Fourier coefficients of x, row by row, on a circle of `bins` columns."""
        from probcalc.kernels.joint import circle_spectra, line_spectrum

        frequencies = bins // 2 + 1
        place, modulus = _placed(self.x, steps, bins, discrete)
        out = circle_spectra(
            self.row, self.part, self.mass, place, modulus, self.height, frequencies
        )
        if self.rest is not None:
            period = bins if discrete else FINE * bins
            out *= line_spectrum(self.rest, period, frequencies)
        return out


def _rounded(x: FloatArray, steps: Steps, rounding: int) -> FloatArray:
    """Put x on columns, where it is to lie on them."""
    if rounding == 0:
        return x
    at = on_points(x / steps.column)
    return steps.column * (np.ceil(at) if rounding > 0 else np.floor(at))


def _placed(
    x: FloatArray, steps: Steps, bins: int, discrete: bool
) -> tuple[IntArray, int]:
    """Places on the circle, as integers over a modulus."""
    from probcalc.kernels.joint import DYADIC

    if discrete:
        return np.rint(x / steps.column).astype(np.int64), bins
    # Rounding to 2^-43 of the circle is accounted as a shift in `surface_of`.
    return np.rint(x * (DYADIC / (steps.column * bins))).astype(np.int64), DYADIC


def cell_of(
    leaf: JointLeaf, weight: float, steps: Steps, tail: float, rounding: int
) -> Cell:
    """Bring a leaf onto the grid: T split (0), or T and x rounded down (-1), up (1)."""
    near = weight * NEAR * steps.row + NEAR * steps.column
    if isinstance(leaf, JointRuns):
        atoms = outcomes_of(leaf)
        at = on_points(atoms.t / steps.row)
        low, part = np.floor(at), _shares(at, rounding)
        first = int(low.min())
        row = (low - first).astype(np.int64)
        noise = (weight * steps.row) ** 2 if rounding == 0 and part.any() else 0.0
        origin = float(atoms.x.min())
        return Cell(
            first,
            int(row.max()) + 1 + int(part.any()),
            row,
            part,
            atoms.masses,
            _rounded(atoms.x - origin, steps, rounding),
            None,
            origin,
            0.0,
            0.0,
            near,
            noise,
            0.0,
        )
    rows = time_axis(leaf, steps.row, tail, rounding)
    slope = leaf.slope
    # x = slope T + x' uses T as rounded, so that a split of T moves E by weight + slope
    # (by the slope alone off the path). Rounding down, row i holds T in [t_i, t_i+1]:
    # the least of slope T is at its right end for a falling line; up likewise.
    ahead = -rounding if slope < 0.0 else 0
    x = slope * steps.row * (np.arange(rows.mass.size) + ahead)
    origin = float(x.min()) + slope * steps.row * rows.first
    x = _rounded(x - x.min(), steps, rounding)
    fine = steps.column if rounding else steps.column / FINE
    on = off = 0.0
    if rows.noisy:
        on, off = ((weight + slope) * steps.row) ** 2, (slope * steps.row) ** 2
    missing, extra = rows.above, rows.below
    if slope < 0.0:  # E may fall with T: mass moved to an end may be on either side
        missing = extra = rows.above + rows.below
    near += (weight + abs(slope)) * rows.shifted
    rest = axis_of(leaf.known[1], 1.0, fine, tail, rounding)
    origin += rest.origin + fine * rest.first
    if rest.noisy:
        on, off = on + fine**2, off + fine**2
    count = rows.mass.size
    return Cell(
        rows.first,
        count,
        np.arange(count),
        np.zeros(count),
        rows.mass,
        x,
        rest.mass if rest.mass.size > 1 else None,
        origin,
        missing + rest.above,
        extra + rest.below,
        near + rest.shifted,
        on,
        off,
    )


def time_axis(leaf: JointLeaf, step: float, tail: float, rounding: int) -> Axis:
    """T of a leaf on multiples of the step."""
    if isinstance(leaf, JointRuns):
        return atoms_axis(leaf.time, leaf.weights, step, 0.0, rounding)
    law = leaf.known[0]
    if law.values is not None:
        return atoms_axis(*law.values, step, 0.0, rounding)
    return axis_of(law, 1.0, step, tail, rounding)


def widths_of(
    leaf: JointLeaf, weight: float, tail: float
) -> tuple[float, float, float]:
    """Widths of T, of x and of weight * T + x: 12 sd, or the range if that is less."""
    if isinstance(leaf, JointRuns):
        mass = outcomes_of(leaf).masses
        out = []
        for values in (leaf.time, leaf.x, weight * leaf.time + leaf.x):
            off = values - values @ mass
            sd = math.sqrt(float(off * off @ mass))
            out.append(min(12.0 * sd, float(np.ptp(values))))
        return out[0], out[1], out[2]
    t, x = (law.width(tail) for law in leaf.known)
    slope = leaf.slope
    return t, math.hypot(slope * t, x), math.hypot((weight + slope) * t, x)


# ------------------------------------------------------------------ parts on the grid
class Program(NamedTuple):
    """A part as the kernels want it: numbered nodes, operands first."""

    nodes: list[tuple[str, list[tuple[int, int]]]]
    leaves: dict[int, JointLeaf]
    draws: list[int]

    def total(self, value: Callable[[int], float]) -> float:
        """Sum over the leaves, each as often as it is drawn."""
        return sum(self.draws[i] * value(i) for i in self.leaves)

    def each(self, tail: float) -> float:
        """Share of one end of one draw in the mass that may be left out."""
        return tail / (4.0 * sum(self.draws))


def program_of(root: Joint) -> Program:
    """Number the nodes of an expression."""
    order = list(in_order(root))
    number = {id(node): i for i, node in enumerate(order)}
    nodes: list[tuple[str, list[tuple[int, int]]]] = []
    depth: list[int] = []
    leaves: dict[int, JointLeaf] = {}
    for i, node in enumerate(order):
        if isinstance(node, JointSum | JointMaximum):
            # Deepest first: fewer spectra are held at the same time.
            operands = sorted(
                ((number[id(part)], n) for part, n in node.parts),
                key=lambda operand: -depth[operand[0]],
            )
            nodes.append(("sum" if isinstance(node, JointSum) else "max", operands))
            depth.append(1 + depth[operands[0][0]])
        else:
            leaves[i] = node
            nodes.append(("leaf", []))
            depth.append(0)
    draws = [0] * len(order)
    draws[-1] = 1
    for i in range(len(order) - 1, -1, -1):
        for part, n in nodes[i][1]:
            draws[part] += n * draws[i]
    return Program(nodes, leaves, draws)


def noise_of(
    program: Program, on: dict[int, float], off: dict[int, float], s: FloatArray
) -> tuple[FloatArray, float]:
    """Bound of log E exp(s * noise of E), and the largest squared range of one path.

    Noise of a leaf of range r: log E exp(s Z) <= s^2 r^2 / 8 (Hoeffding's lemma). A sum
    adds; at a maximum, exp of the largest is at most the sum of exp over the operands,
    each with itself on the path and the others off it.
    """
    eighth = s * s / 8.0
    values: list[tuple[FloatArray, float, float]] = []
    for i, (kind, operands) in enumerate(program.nodes):
        if kind == "leaf":
            values.append((on[i] * eighth, on[i], off[i]))
            continue
        parts = [(*values[j], n) for j, n in operands]
        aside = sum(n * o for *_, o, n in parts)
        if kind == "sum":
            log: Any = sum(n * part for part, _, _, n in parts)
            worst = sum(n * v for _, v, _, n in parts)
        else:
            each = [math.log(n) + part - o * eighth for part, _, o, n in parts]
            log = aside * eighth + np.logaddexp.reduce(each)
            worst = aside + max(v - o for _, v, o, _ in parts)
        values.append((log, worst, aside))
    return values[-1][0], values[-1][1]


def _profiles(program: Program, row: float, tail: float, rounding: int) -> Any:
    """Rows of every node."""
    from probcalc.kernels.joint import PHASE_ERROR, Profile, profile, transform_error

    each = program.each(tail)
    # Coefficients of the atoms and of x'.
    error = PHASE_ERROR + transform_error(2**20)
    leaves = {}
    for i, leaf in program.leaves.items():
        axis = time_axis(leaf, row, each, rounding)
        leaves[i] = Profile(axis.first, axis.mass, 0, error, 0.0, 0.0)
    return profile(program.nodes, leaves, [math.log(each)] * len(program.nodes))


def _columns(
    cells: Iterable[tuple[Cell, int]], step: float, log_tail: float
) -> tuple[int, int, bool]:
    """Window of the sum of all x in steps, from the least value; whether it is all."""
    from probcalc.kernels.joint import window

    masses: list[FloatArray] = []
    counts: list[int] = []
    for cell, count in cells:
        lines = cell.lines(step)
        masses.extend(lines)
        counts.extend([count] * len(lines))
    low, high = window(masses, counts, [0.0] * len(masses), log_tail)
    last = sum(n * (m.size - 1) for m, n in zip(masses, counts, strict=True))
    return low, high, low == 0 and high == last


def _exact_steps(program: Program) -> tuple[float, float]:
    """Steps of which all T and all x are multiples; zero where there is none."""
    rows: list[FloatArray] = []
    columns: list[FloatArray] = []
    for leaf in program.leaves.values():
        if not isinstance(leaf, JointRuns):
            return 0.0, 0.0
        rows.append(leaf.time)
        columns.append(leaf.x - leaf.x.min())
    found = np.unique(np.concatenate(rows)), np.unique(np.concatenate(columns))
    return quantum_of_values(found[0]), quantum_of_values(found[1])


def steps_for(program: Program, weight: float, grid: int, tail: float) -> Steps:
    """Steps at which the grid holds the mass: about `grid` squared points in all."""
    from probcalc.kernels.joint import REACH

    each = program.each(tail)
    widths = {i: widths_of(v, weight, each) for i, v in program.leaves.items()}
    row = math.sqrt(program.total(lambda i: widths[i][0] ** 2))
    column = math.sqrt(program.total(lambda i: widths[i][1] ** 2))
    if row == 0.0:  # constants, but not of one value
        row = max(_latest(leaf, each) for leaf in program.leaves.values()) or 1.0
    exact_row, exact_column = _exact_steps(program)

    def rows_at(step: float) -> int:
        # Operands of a maximum may reach far below it; they get at most four times
        # the rows of the whole.
        sizes = [p.mass.size for p in _profiles(program, step, tail, 0)]
        return max(sizes[-1], max(sizes) // 4)

    def columns_at(step: float) -> int:
        steps = Steps(found_row, FINE * step)
        cells = (
            (cell_of(leaf, weight, steps, each, 0), program.draws[i])
            for i, leaf in program.leaves.items()
        )
        low, high, _ = _columns(cells, step, math.log(tail / 4.0))
        return high - low + 1

    def fits(step: float, points_at: Callable[[float], int]) -> int:
        """Points that an exact step needs; zero where that is too many."""
        needed = points_at(step) if step > 0.0 else 0
        return needed if needed <= 2 * grid else 0

    found_row, found_column = exact_row, exact_column
    rows = fits(exact_row, rows_at)
    if not rows:
        found_row = _fitted(row / grid, grid, rows_at)
    slope = max(
        (abs(v.slope) for v in program.leaves.values() if not isinstance(v, JointRuns)),
        default=0.0,
    )
    if column == 0.0 and slope == 0.0:  # every x is its own origin
        found_column, columns = 1.0, 1
    else:
        # A constant T is split between two rows; with it goes a line through it.
        column = max(column, slope * found_row)
        columns = fits(exact_column, columns_at)
        if not columns:
            found_column = _fitted(column / grid, grid, columns_at)
    # What one of the two does not need is left to the other, up to four times as much.
    # Else T gets the more rows the more its noise counts: about two times sqrt(path)
    # rows, against two columns for x (`smear`).
    factor = 1.0
    if columns:
        factor = min(grid / columns, 4.0)
    elif rows:
        factor = max(rows / grid, 0.25)
    else:
        ones, zeros = dict.fromkeys(widths, 1.0), dict.fromkeys(widths, 0.0)
        path = noise_of(program, ones, zeros, np.zeros(1))[1]
        ratio = weight * found_row * math.sqrt(path) / found_column
        factor = min(max(math.sqrt(ratio), 0.5), 2.0)
    if not rows:
        found_row /= max(factor, 0.5)
    if not columns:
        found_column *= grid / max(grid / factor - 2 * REACH, 64)
    return Steps(found_row, found_column, rows > 0, columns > 0)


def _latest(leaf: JointLeaf, tail: float) -> float:
    """Largest T of a leaf that counts."""
    if isinstance(leaf, JointRuns):
        return float(leaf.time.max())
    values = leaf.known[0].values
    if values is not None:
        return float(values[0].max())
    return leaf.known[0].range(tail)[1]


def _fitted(guess: float, points: int, points_at: Callable[[float], int]) -> float:
    """Step at which about so many points are needed."""
    for _ in range(4):
        needed = points_at(guess)
        if needed <= 2:
            break  # all but constant
        guess *= needed / points
        if 0.8 * points <= needed <= 1.25 * points:
            break
    return guess


class Surface(NamedTuple):
    """Mass of a part on the grid, and all that is wrong with it.

    Row i is T = row * (first + i); column k, stored as (k + turn) modulo their number,
    is x = origin + column * k.
    """

    mass: FloatArray
    first: int
    steps: Steps
    origin: float
    turn: int
    error: float
    missing: float
    extra: float
    shifted: float
    on: dict[int, float]
    off: dict[int, float]
    kernel: Smear | None
    reach: float


def surface_of(
    program: Program, weight: float, steps: Steps, tail: float, rounding: int
) -> Surface:
    """Compose a part on the grid of the given steps."""
    from probcalc.kernels.convolution import fft_length
    from probcalc.kernels.joint import DYADIC, REACH, compose, smear, tail_error, unfold

    each = program.each(tail)
    cells = {
        i: cell_of(leaf, weight, steps, each, rounding)
        for i, leaf in program.leaves.items()
    }
    discrete = steps.exact or rounding != 0
    fine = 1 if discrete else FINE
    log_tail = math.log(tail / 4.0)
    low, high, everything = _columns(
        ((cells[i], program.draws[i]) for i in cells), steps.column / fine, log_tail
    )
    outside = 0.0 if everything else 2.0 * math.exp(log_tail)
    # One column more at either side for the last split, and the reach of the kernel.
    margin = 0 if discrete else REACH + 1
    start = math.floor(low / fine) - margin
    bins = fft_length(math.ceil(high / fine) - start + 1 + margin)
    kernel = None if discrete else smear(bins)
    if kernel is not None:
        outside += kernel.outside
    profiles = _profiles(program, steps.row, tail, rounding)
    spectrum = compose(
        program.nodes, profiles, lambda i: cells[i].spectrum(steps, bins, discrete)
    )
    mass, error = unfold(spectrum, bins, None if kernel is None else kernel.transform)
    root = profiles[-1]
    origin = program.total(lambda i: cells[i].origin)
    shifted = program.total(lambda i: cells[i].shifted)
    shifted += sum(program.draws) * 2.0 * bins * steps.column / DYADIC
    reach = program.total(
        lambda i: (
            weight * steps.row * cells[i].height
            + sum(m.size for m in cells[i].lines(steps.column / fine))
            * steps.column
            / fine
        )
    )
    return Surface(
        mass,
        root.first,
        steps,
        origin + steps.column * start,
        start % bins,
        error + tail_error(root.error, bins),
        root.missing + outside + program.total(lambda i: cells[i].missing),
        root.extra + outside + program.total(lambda i: cells[i].extra),
        shifted,
        {i: c.on for i, c in cells.items()},
        {i: c.off for i, c in cells.items()},
        kernel,
        reach + bins * steps.column,
    )


# -------------------------------------------------------------- parts on one line
class Line(NamedTuple):
    """Law of E of one part on a line: point k is origin + (first + k) * step.

    Attributes
    ----------
    error, relative : float
        Rounding error of the mass above any point, absolute and relative to it.
    missing, extra : float
        Mass absent, and mass put where it is not.
    shifted : float
        Largest known displacement of E.
    spread : float
        Largest sum of squared ranges of the bounded noise on one path.
    down, up : callable
        Bounds of log E exp(s * noise), downwards on the longest path and upwards.
    smear : (Smear, column) or None
        Noise in x that all paths have in common, and the width of its bins.
    mean : tuple of float
        Estimate, lower and upper bound of E's mean.
    variance : float
        Of E, the estimate.
    slack : float
        How far E (E - t)+ may lie above what the mass says, for any t.
    grid : str
        Size of the grid it comes from, empty if from none.
    """

    first: int
    mass: FloatArray
    origin: float
    error: float
    relative: float
    missing: float
    extra: float
    shifted: float
    spread: float
    down: Callable[[FloatArray], FloatArray]
    up: Callable[[FloatArray], FloatArray]
    smear: tuple[Smear, float] | None
    mean: tuple[float, float, float]
    variance: float
    slack: float
    grid: str = ""


def _axis_line(
    axis: Axis,
    step: float,
    mean: float,
    variance: float,
    relative: float,
    excess: float,
) -> Line:
    noise = step * step if axis.noisy else 0.0

    def split(s: FloatArray) -> FloatArray:
        return s * s * (noise / 8.0)  # Hoeffding's lemma

    slack = 1e-14 * abs(mean)
    return Line(
        axis.first,
        axis.mass,
        axis.origin,
        0.0,
        relative,
        axis.above,
        axis.below,
        axis.shifted,
        noise,
        split,
        split,
        None,
        (mean, mean - slack, mean + slack),
        variance,
        slack + excess + axis.shifted,
    )


def atoms_line(values: FloatArray, mass: FloatArray | None, step: float) -> Line:
    """Law of E given outcome by outcome."""
    axis = atoms_axis(values, mass, step, float(values.min()))
    weights = np.full(values.size, 1.0 / values.size) if mass is None else mass
    mean = float(values @ weights)
    off = values - mean
    return _axis_line(axis, step, mean, float(off * off @ weights), 0.0, 0.0)


def leaf_lines(leaf: JointLeaf, weight: float, step: float, tail: float) -> list[Line]:
    """E of a single leaf, as the sum of independent lines."""
    if isinstance(leaf, JointRuns):
        return [atoms_line(weight * leaf.time + leaf.x, leaf.weights, step)]
    out: list[Line] = []
    for law, factor in zip(leaf.known, (weight + leaf.slope, 1.0), strict=True):
        axis = axis_of(law, factor, step, tail)
        if factor == 0.0:
            out.append(_axis_line(axis, step, 0.0, 0.0, 0.0, 0.0))
            continue
        mean, variance = factor * law.mean, factor**2 * law.variance
        excess = abs(factor) * law.excess(tail)
        out.append(_axis_line(axis, step, mean, variance, FUNCTION_ERROR, excess))
    return out


def surface_line(
    program: Program, surface: Surface, weight: float, step: float, tail: float
) -> Line:
    """E = weight * T + x of a part, from the grid onto a line of the given step."""
    from probcalc.kernels.joint import fold

    rows, columns = surface.mass.shape
    row, column = weight * surface.steps.row, surface.steps.column
    length = math.ceil((row * (rows - 1) + column * (columns - 1)) / step) + 2
    mass = fold(surface.mass, row / step, column / step, surface.turn, length)
    start = row * surface.first + surface.origin
    # Splits after the composition: x between columns, E between points of the line.
    after = step * step + (0.0 if surface.kernel is None else column**2)
    kernel = surface.kernel

    worst = noise_of(program, surface.on, surface.off, np.zeros(1))[1]

    def path(s: FloatArray) -> FloatArray:
        return noise_of(program, surface.on, surface.off, s)[0]

    def down(s: FloatArray) -> FloatArray:
        return s * s * ((worst + after) / 8.0)

    def up(s: FloatArray) -> FloatArray:
        return path(s) + s * s * (after / 8.0)

    k = np.arange(length)
    total = float(mass.sum())
    middle = step * float(mass @ k) / total
    variance = step**2 * float(mass @ (k - middle / step) ** 2) / total
    if kernel is not None:
        variance -= kernel.variance * column**2
    # Mass wrong by at most w in total moves the mean by at most w times the reach of
    # the values. The noise of one path, of x and of the line has mean zero; the mean of
    # the largest path is raised by at most min over s of path(s) / s (Jensen).
    wrong = surface.missing + surface.extra + surface.error + abs(1.0 - total)
    slack = wrong * (surface.reach + step * length) + surface.shifted
    slack += 1e-12 * abs(start + middle)
    bias = 0.0
    if worst > 0.0:
        s = np.geomspace(1e-4, 1e2, 60) / math.sqrt(worst)
        bias = float(np.min(path(s) / s))
    each = program.each(tail)
    excess = program.total(lambda i: _excess(program.leaves[i], weight, each))
    mean = start + middle
    return Line(
        0,
        mass,
        start,
        surface.error,
        FUNCTION_ERROR * sum(program.draws),
        surface.missing,
        surface.extra,
        surface.shifted + NEAR * step,
        worst + after,
        down,
        up,
        None if kernel is None else (kernel, column),
        (mean, mean - bias - slack - excess, mean + slack + excess),
        max(variance, 0.0),
        slack + excess,
        f"joint grid {rows}x{columns}",
    )


def orderable(part: JointMaximum) -> int:
    """Number of operands of a maximum of few lists of runs; else zero."""
    if not all(isinstance(leaf, JointRuns) for leaf, _ in part.parts):
        return 0
    copies = sum(n for _, n in part.parts)
    return copies if copies <= ORDERED else 0


def ordered_points(parts: Iterable[tuple[Joint, int]], grid: int, listed: int) -> int:
    """Points for the circle of such maxima, within what all of them may cost."""
    load = 0
    for part, _ in parts:
        if isinstance(part, JointMaximum) and sizes_of(part)[id(part)] > listed:
            runs = sum(
                size_of(v) * n for v, n in part.parts if isinstance(v, JointRuns)
            )
            load += int(runs) * (orderable(part) + 2) if orderable(part) else 0
    return max(min(8 * grid, WORK // max(load, 1)), 2048)


def ordered_line(
    part: JointMaximum, weight: float, points: int, step: float, rounding: int
) -> Line:
    """E of a maximum of lists of runs, in the order of their T: T is not rounded."""
    from probcalc.kernels.convolution import fft_length
    from probcalc.kernels.joint import (
        DYADIC,
        LONG_PHASE_ERROR,
        REACH,
        fold,
        ordered_spectrum,
        smear,
        tail_error,
        unfold,
    )

    runs = [leaf for leaf, n in part.parts for _ in range(n)]
    lists = [outcomes_of(leaf) for leaf in runs if isinstance(leaf, JointRuns)]
    time = np.concatenate([a.t for a in lists])
    order = np.argsort(time, kind="stable")
    # Energies from where they begin: of the last run weight * T + x, of the others x.
    begin = weight * max(float(a.t.min()) for a in lists)
    x = np.concatenate([a.x - a.x.min() for a in lists])[order]
    late = np.maximum(weight * time[order] - begin, 0.0)
    top = float(late.max()) + sum(float(np.ptp(a.x)) for a in lists)
    margin = 2 * len(lists) if rounding else REACH + 2
    column = (top or 1.0) / max(points - 2 * margin, 64)
    bins = fft_length(math.ceil(top / column) + 2 * margin)
    kernel = None if rounding else smear(bins)
    if kernel is None:
        up = np.ceil if rounding > 0 else np.floor
        own, other = up(on_points((late + x) / column)), up(on_points(x / column))
        modulus = bins
    else:
        scale_ = DYADIC / (column * bins)
        own, other = np.rint((late + x) * scale_), np.rint(x * scale_)
        modulus = DYADIC
    spectrum = ordered_spectrum(
        np.repeat(np.arange(len(lists)), [a.t.size for a in lists])[order],
        np.concatenate([a.masses for a in lists])[order],
        own.astype(np.int64),
        other.astype(np.int64),
        modulus,
        len(lists),
        bins // 2 + 1,
    )
    mass, error = unfold(spectrum, bins, None if kernel is None else kernel.transform)
    rounded = (time.size + 4 * len(lists)) * UNIT + 2.0 * LONG_PHASE_ERROR
    error += tail_error((len(lists) + 1) * rounded, bins)
    start = begin + sum(float(a.x.min()) for a in lists) - margin * column
    length = math.ceil(column / step * (bins - 1)) + 2
    line = fold(mass, 0.0, column / step, bins - margin, length)
    shifted = len(lists) * (2.0 * bins * column / DYADIC + NEAR * column)
    after = step * step + (0.0 if kernel is None else column**2)
    k = np.arange(length)
    middle = float(line @ k) / float(line.sum())
    variance = step**2 * float(line @ (k - middle) ** 2)
    outside = 0.0
    if kernel is not None:
        variance -= kernel.variance * column**2
        outside = kernel.outside

    def split(s: FloatArray) -> FloatArray:
        return s * s * (after / 8.0)

    mean = start + step * middle
    slack = (error + outside) * bins * column + shifted + 1e-12 * abs(mean)
    if rounding:
        slack += (len(lists) + 1) * column
    return Line(
        0,
        line,
        start,
        error,
        0.0,
        outside,
        outside,
        shifted + NEAR * step,
        after,
        split,
        split,
        None if kernel is None else (kernel, column),
        (mean, mean - slack, mean + slack),
        max(variance, 0.0),
        slack,
        f"{time.size} runs in order, {bins} bins",
    )


def _excess(leaf: JointLeaf, weight: float, tail: float) -> float:
    """Bound of how far mass beyond the range of a leaf moves the mean of E."""
    if isinstance(leaf, JointRuns):
        return 0.0
    time = (weight + abs(leaf.slope)) * leaf.known[0].excess(tail)
    return time + leaf.known[1].excess(tail)


# ------------------------------------------------------------------------ results
class Result(NamedTuple):
    """What is known of E: bounds of its distribution at points, its mean, variance.

    ``lower`` and ``upper`` bound P(E > point); ``atoms``: E has no other values than
    the points, else the bounds hold between points only by monotony. ``slack`` is how
    far a point may be off, ``stop_slack`` how far E (E - t)+ may lie above what the
    masses say.
    """

    points: FloatArray
    below: FloatArray
    above: FloatArray
    lower: FloatArray
    upper: FloatArray
    atoms: bool
    slack: float
    mean: tuple[float, float, float]
    variance: float
    limited_by: str
    stop_slack: float

    @property
    def below_lower(self) -> FloatArray:
        """Lower bounds of P(E <= point), not as 1 - x where nothing is uncertain."""
        known = np.array_equal(self.upper, self.above)
        return self.below if known else 1.0 - self.upper

    @property
    def below_upper(self) -> FloatArray:
        """Upper bounds of P(E <= point)."""
        known = np.array_equal(self.lower, self.above)
        return self.below if known else 1.0 - self.lower

    def upper_at(self, t: FloatArray) -> FloatArray:
        """Upper bounds of P(E > t)."""
        return stepped(self.points, self.upper, t - self.slack, 1.0)

    def lower_at(self, t: FloatArray) -> FloatArray:
        """Lower bounds of P(E > t)."""
        if self.atoms:
            return stepped(self.points, self.lower, t + self.slack, 1.0)
        after = np.searchsorted(self.points, t + self.slack, side="left")
        return np.append(self.lower, 0.0)[after]


def stepped(
    points: FloatArray, values: FloatArray, at: FloatArray, before: float
) -> FloatArray:
    """Value at the last point that is not beyond; `before` where there is none."""
    index = np.searchsorted(points, at, side="right")
    return np.append(before, values)[index]


def _listed_result(root: Joint, weight: float) -> Result:
    """Exact law of an expression whose outcomes can be listed."""
    atoms = listing(root)
    values = weight * atoms.t + atoms.x
    order = np.argsort(values, kind="stable")
    values = values[order]
    ends = np.append(np.flatnonzero(np.diff(values)), values.size - 1)
    if atoms.mass is None:
        # Ratios of integers, rounded once: levels such as 4/5 compare exactly.
        count = ends + 1
        below, above = count / values.size, (values.size - count) / values.size
        slack = 0.0
        mean = float(values.mean())
        variance = float(values.var())
    else:
        mass = atoms.mass[order]
        below = np.cumsum(mass)[ends]
        above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)[ends + 1]
        slack = 4.0 * UNIT * values.size  # relative: all terms are positive
        mean = float(values @ mass)
        variance = float((values - mean) ** 2 @ mass)
    size = float(np.abs(weight * atoms.t).max() + np.abs(atoms.x).max())
    error = 4.0 * UNIT * size * (2 + len(list(in_order(root))))
    return Result(
        values[ends],
        below,
        above,
        above * (1.0 - slack),
        above * (1.0 + slack),
        True,
        error,
        (mean, mean - error, mean + error),
        variance,
        "nothing: all outcomes listed",
        error + slack * float(np.ptp(values)),
    )


def _lines(
    root: Joint,
    weight: float,
    grid: int,
    step: float,
    tail: float,
    rounding: int,
    listed: int,
) -> list[tuple[Line, int]]:
    """E of every part of the outermost sum on a line."""
    parts = root.parts if isinstance(root, JointSum) else ((root, 1),)
    each = tail / (4.0 * sum(n for _, n in parts))
    points = ordered_points(parts, grid, listed)
    out: list[tuple[Line, int]] = []
    for part, count in parts:
        if isinstance(part, JointMaximum):
            if sizes_of(part)[id(part)] <= listed:
                atoms = listing(part)
                values = weight * atoms.t + atoms.x
                out.append((atoms_line(values, atoms.mass, step), count))
                continue
            if orderable(part):
                line = ordered_line(part, weight, points, step, rounding)
                out.append((line, count))
                continue
            program = program_of(part)
            steps = steps_for(program, weight, grid, each)
            surface = surface_of(program, weight, steps, each, rounding)
            line = surface_line(program, surface, weight, step, each)
            out.append((line, count))
        else:
            assert not isinstance(part, JointSum)
            lines = leaf_lines(part, weight, step, each)
            out.extend((line, count) for line in lines)
    return out


class _Tail(NamedTuple):
    """P(E > origin + step * (first + k)): estimate, its complement, and bounds."""

    first: int
    origin: float
    above: FloatArray
    below: FloatArray
    lower: FloatArray
    upper: FloatArray


def _tail(
    lines: list[tuple[Line, int]], step: float, tail: float, noisy: bool = True
) -> _Tail:
    """Add independent lines, and take the noise out of the bounds if there is any."""
    from probcalc.kernels.convolution import fft_length, tilted_sum
    from probcalc.kernels.joint import bracket, window
    from probcalc.kernels.survival import suffix_sums

    counts = [n for _, n in lines]

    def total(value: Callable[[Line], Any]) -> Any:
        return sum(n * value(line) for line, n in lines)

    first = total(lambda line: line.first)
    error = total(lambda line: line.error)
    missing, extra = total(lambda line: line.missing), total(lambda line: line.extra)
    if counts == [1]:
        mass = lines[0][0].mass
    else:
        masses = [line.mass for line, _ in lines]
        # The error of a line is one of tails: by parts, a sum of exponentials of one
        # sign is off by at most twice that times the largest.
        errors = [2.0 * line.error for line, _ in lines]
        low, high = window(masses, counts, errors, math.log(tail))
        whole = total(lambda line: line.mass.size - 1) + 1
        bins = fft_length(high - low + 1)
        if bins >= whole:
            low = 0
        else:
            missing, extra = missing + 2.0 * tail, extra + 2.0 * tail
        summed = tilted_sum(masses, counts, 0.0, low, bins)
        mass = summed.mass * math.exp(summed.log_scale)
        negative = np.minimum(mass, 0.0)
        error += bins * summed.error - float(negative.sum())
        mass = mass - negative
        first += low
    above = suffix_sums(mass)
    above = np.append(above[0] + mass[0], above)
    relative = 4.0 * UNIT * mass.size + total(lambda line: line.relative)
    lower = np.maximum(above * (1.0 - relative) - error - extra, 0.0)
    upper = np.minimum(above * (1.0 + relative) + error + missing, 1.0)
    pad = 0
    if noisy:
        smeared, width = _smeared(lines, step)
        lower, upper, pad = bracket(
            lower,
            upper,
            math.sqrt(total(lambda line: line.spread)) / step,
            lambda s: total(lambda line: line.down(s / step)),
            lambda s: total(lambda line: line.up(s / step)),
            smeared,
            width,
        )
    zeros, ones = np.zeros(pad), np.ones(pad)
    return _Tail(
        first - 1 - pad,
        total(lambda line: line.origin),
        np.concatenate([ones, np.minimum(above, 1.0), zeros]),
        np.concatenate([zeros, [0.0], np.minimum(np.cumsum(mass), 1.0), ones]),
        lower,
        upper,
    )


def _smeared(
    lines: list[tuple[Line, int]], step: float
) -> tuple[Callable[[FloatArray], FloatArray] | None, float]:
    """Tail of the smearing of all parts together, in points of the line; its scale."""
    found = [(*line.smear, n) for line, n in lines if line.smear is not None]
    if not found:
        return None, 0.0
    width = math.sqrt(sum(n * k.variance * c * c for k, c, n in found)) / step
    if len(found) == 1 and found[0][2] == 1:
        kernel, column, _ = found[0]
        return lambda y: kernel.tail(y * (step / column)), width
    rates = np.geomspace(0.05, 20.0, 60) / width
    logs = sum(n * k.log_moment(rates * (c / step)) for k, c, n in found)

    def tail(y: FloatArray) -> FloatArray:
        # Markov; what lies beyond the reach of the kernels is accounted as lost mass.
        return np.exp(np.minimum(np.min(logs - np.multiply.outer(y, rates), -1), 0.0))

    return tail, width


def _at(values: FloatArray, position: FloatArray, lower: bool) -> FloatArray:
    """Bounds at real positions (in points) from those at points."""
    index = (np.ceil(position) if lower else np.floor(position)).astype(np.int64)
    inside = values[np.clip(index, 0, values.size - 1)]
    if lower:
        return np.where(index >= values.size, 0.0, inside)
    return np.where(index < 0, 1.0, inside)


def _grid_result(
    root: Joint, weight: float, grid: int, tail: float, listed: int
) -> Result:
    """Law of E from the grid, bounded."""
    program = program_of(root)
    each = program.each(tail)
    widths = {i: widths_of(v, weight, each) for i, v in program.leaves.items()}
    # A leaf may have less spread of E than of T and x, the whole need not.
    width = program.total(
        lambda i: (
            max(widths[i][2], 0.1 * math.hypot(weight * widths[i][0], widths[i][1]))
            ** 2
        )
    )
    # Finer where no part comes from the grid: then nothing else limits the bracket.
    parts = root.parts if isinstance(root, JointSum) else ((root, 1),)
    coarse = any(
        isinstance(part, JointMaximum)
        and not orderable(part)
        and sizes_of(part)[id(part)] > listed
        for part, _ in parts
    )
    step = (math.sqrt(width) or 1.0) / ((24.0 if coarse else 192.0) * grid)
    lines = _lines(root, weight, grid, step, tail, 0, listed)
    found = _tail(lines, step, tail)
    lower, upper = found.lower, found.upper
    slack = sum(n * line.shifted for line, n in lines)
    if sum(program.draws[i] for i in program.leaves) <= FEW:
        at = found.first + np.arange(lower.size)
        for rounding in (-1, 1):
            other_lines = _lines(root, weight, grid, step, tail, rounding, listed)
            other = _tail(other_lines, step, tail, noisy=False)
            at_other = at - other.first + (found.origin - other.origin) / step
            # What is left of noise is a split between two points for every line.
            moved = sum(n for line, n in other_lines if line.spread > 0.0)
            if rounding < 0:
                lower = np.maximum(lower, _at(other.lower, at_other + moved, True))
            else:
                upper = np.minimum(upper, _at(other.upper, at_other - moved, False))
            slack = max(slack, sum(n * line.shifted for line, n in other_lines))
    points = found.origin + step * (found.first + np.arange(lower.size))
    slack += 64.0 * UNIT * float(np.abs(points).max(initial=0.0))
    stop = sum(n * line.slack for line, n in lines)
    # Rounding and windows of the sum: mass wrong by at most the last upper bound.
    stop += float(found.upper[-1]) * step * sum(n * v.mass.size for v, n in lines)
    names = [line.grid for line, _ in lines if line.grid]
    others = f" and {len(names) - 1} others" if len(names) > 1 else ""
    mean = [sum(n * line.mean[i] for line, n in lines) for i in range(3)]
    return Result(
        points,
        found.below,
        found.above,
        np.maximum.accumulate(lower[::-1])[::-1],
        np.minimum.accumulate(upper),
        False,
        slack,
        (mean[0], mean[1], mean[2]),
        sum(n * line.variance for line, n in lines),
        names[0] + others if names else f"line of {points.size} points",
        stop,
    )


def _exact_result(root: Joint, weight: float, grid: int, tail: float) -> Result | None:
    """Law of E where all outcomes lie on one grid of at most the size asked for."""
    if not isinstance(root, JointMaximum):
        return None
    program = program_of(root)
    steps = steps_for(program, weight, grid, tail)
    if not (steps.exact and steps.rows_exact):
        return None
    surface = surface_of(program, weight, steps, tail, 0)
    if any(surface.on.values()):
        return None
    rows, columns = surface.mass.shape
    mass = np.roll(surface.mass, -surface.turn, axis=1)
    times = weight * steps.row * (surface.first + np.arange(rows))
    x = surface.origin + steps.column * np.arange(columns)
    values = times[:, None] + x
    order = np.argsort(values, axis=None, kind="stable")
    points, mass = values.ravel()[order], mass.ravel()[order]
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)[1:]
    relative = 4.0 * UNIT * mass.size
    slack = surface.shifted + 64.0 * UNIT * float(np.abs(points).max())
    mean = float(points @ mass)
    wrong = surface.error + surface.missing + surface.extra + relative
    stop = wrong * (surface.reach + float(np.ptp(points))) + slack
    lower = above * (1.0 - relative) - surface.error - surface.extra
    upper = above * (1.0 + relative) + surface.error + surface.missing
    return Result(
        points,
        np.cumsum(mass),
        above,
        np.maximum(lower, 0.0),
        np.minimum(upper, 1.0),
        True,
        slack,
        (mean, mean - stop, mean + stop),
        float(mass @ (points - mean) ** 2),
        f"rounding on the exact joint grid {rows}x{columns}",
        stop,
    )


def evaluated(
    root: Joint, weight: float, grid: int, tail: float, listed: int
) -> Result:
    """Law of E, by whatever way is exact or else narrowest."""
    if sizes_of(root)[id(root)] <= listed:
        return _listed_result(root, weight)
    root = collapsed(root, min(listed, ENUMERATE_PART))
    exact = _exact_result(root, weight, grid, tail)
    if exact is not None:
        return exact
    return _grid_result(root, weight, grid, tail, listed)


# ------------------------------------------------------------------------ answers
def bracketed(
    result: Result, level: float, by_sf: bool, ends: tuple[float, float]
) -> tuple[float, float, float]:
    """Estimate and bounds of a quantile; `ends` are known whatever the result says.

    The quantile is the smallest t with P(E > t) <= sf, that is P(E <= t) >= p. Levels
    compare as given: 1 - 0.8 is not quite 1 / 5.
    """
    points = result.points
    if by_sf:
        enough = int(np.searchsorted(-result.upper, -level))
        over = int(np.searchsorted(-result.lower, -level)) - 1
        at = int(np.searchsorted(-result.above, -level))
    else:
        enough = int(np.searchsorted(result.below_lower, level))
        over = int(np.searchsorted(result.below_upper, level)) - 1
        at = int(np.searchsorted(result.below, level))
    if result.atoms:
        over += 1  # E is above point `over`, so at the next one at least
    low, high = ends
    upper = points[enough] + result.slack if enough < points.size else high
    lower = points[over] - result.slack if 0 <= over < points.size else low
    lower, upper = max(float(lower), low), min(float(upper), high)
    value = float(points[min(at, points.size - 1)])
    return min(max(value, lower), upper), lower, upper


def shortfall(result: Result, sf: float, least: float) -> tuple[float, float, float]:
    """Estimate and bounds of the mean of the worst `sf` share; E >= `least` surely."""
    t = result.points
    widths = np.diff(t)

    def stop_loss(survival: FloatArray) -> FloatArray:
        return np.append(np.cumsum((survival[:-1] * widths)[::-1])[::-1], 0.0)

    # E (E - t)+ <= E (E' - t)+: noise of mean zero only raises a convex function.
    above = float(np.min(t + (stop_loss(result.above) + result.stop_slack) / sf))
    above += result.slack
    # The law with survival `lower` is below E in first order; so is its shortfall,
    # t_0 + integral of min(lower, sf) / sf where lower(t_0) >= sf. Between points
    # that are no atoms only the value at the next one is sure.
    lower = result.lower if result.atoms else np.append(result.lower[1:], 0.0)
    start = max(int(np.searchsorted(-lower, -sf, side="right")) - 1, 0)
    below = least
    if lower[start] >= sf or result.atoms:
        clipped = np.minimum(lower[start:-1], sf) @ widths[start:]
        below = float(t[start] + clipped / sf - result.slack)
    value = float(np.min(t + stop_loss(result.above) / sf))
    return min(max(value, below), above), below, above


def lattice_pair(
    result: Result, step: float, low: float, ends: tuple[float, float]
) -> LatticeBounds:
    """Laws on multiples of a step, below and above E in first order.

    Mass below `low` is moved there in the upper law and lost in the lower one; `ends`
    are bounds of E.
    """
    least, most = ends
    reach = result.points[[0, -1]] + [-2.0 * result.slack, 2.0 * result.slack]
    start = float(reach[0]) if low <= least else max(low, float(reach[0]))
    first = math.floor(start / step)
    last = max(math.ceil(float(reach[1]) / step), first + 1)
    if last - first > MAX_CELLS:
        raise ToleranceError(
            f"joint law: {last - first} lattice points, more than {MAX_CELLS}"
        )
    at = step * np.arange(first, last + 1)
    lower, upper = result.lower_at(at), result.upper_at(at)
    # A law on the points with survival function s has s(t) = s(point before t). So
    # P(E > point) bounds from above what lies between two points, and the lower law
    # has at each point the survival of the next.
    begin = 1.0 if least - result.slack >= at[0] else float(lower[0])
    beyond = 0.0 if most <= at[-1] else float(upper[-1])
    upper[-1] = beyond
    down = np.append(lower[1:], 0.0)

    def masses(before: float, survival: FloatArray) -> FloatArray:
        return np.maximum(-np.diff(survival, prepend=before), 0.0)

    return LatticeBounds(
        Lattice(first, step, masses(begin, down), 1.0 - begin, 0.0, "down"),
        Lattice(first, step, masses(1.0, upper), 0.0, beyond, "up"),
    )


def support_of(root: Joint, weight: float) -> tuple[float, float]:
    """Bounds of the possible values of E."""
    early = math.inf

    def leaf(node: JointLeaf) -> tuple[float, ...]:
        """Least and largest T and x, and least x of what does not fall with T."""
        nonlocal early
        if isinstance(node, JointRuns):
            t, x = node.time, node.x
            early = min(early, float(t.min()))
            low = float(x.min())
            return float(t.min()), float(t.max()), low, float(x.max()), low, 0.0
        t, x = node.time_law.support(), node.x_law.support()
        first, last = float(t[0]), float(t[1])
        early = min(early, first)
        lines = [node.slope * v if node.slope else 0.0 for v in (first, last)]
        rest = float(x[0]) + (lines[0] if node.slope > 0.0 else 0.0)
        top = max(lines) + float(x[1])
        return first, last, min(lines) + float(x[0]), top, rest, max(-node.slope, 0.0)

    def combine(
        node: JointSum | JointMaximum, parts: list[tuple[Any, int]]
    ) -> tuple[float, ...]:
        added = [sum(n * part[i] for part, n in parts) for i in range(6)]
        if isinstance(node, JointMaximum):
            added[:2] = [max(part[i] for part, _ in parts) for i in (0, 1)]
        return tuple(added)

    first, last, low, high, rest, fall = folded(root, leaf, combine)
    if weight == 0.0:
        return low, high
    low, high = low + weight * first, high + weight * last
    if 0.0 < fall <= weight and early >= 0.0:
        # Times are not negative, so each is at most the whole: sum of slope T over the
        # falling lines is at least -fall times the whole T.
        low = max(low, (weight - fall) * first + rest)
    return low, high


# ----------------------------------------------------------------------- the law
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Weighted:
    """Law of E = weight * T + x of a joint expression; made by `weighted`.

    Parameters
    ----------
    expression : Joint
    weight : float
        In W, not negative.
    grid : int
        Rows and columns of the grid of T and x to begin with.
    listed : int
        Largest number of joint outcomes that are listed instead.
    """

    expression: Joint
    weight: float
    grid: int = GRID
    listed: int = ENUMERATE
    _known: dict[tuple[int, float], Result] = field(
        default_factory=dict, init=False, compare=False
    )

    def __repr__(self) -> str:
        return f"<Weighted: {self.weight:.6g} * T + x of {self.expression!r}>"

    def _result(self, sf: float = 1e-6, grid: int | None = None) -> Result:
        # The law is immutable, so that what was found once stays true.
        tail = next((t for t in (1e-7, 1e-10, 1e-13) if t <= 1e-4 * sf), 1e-16)
        key = (self.grid if grid is None else grid, tail)
        if key not in self._known:
            self._known[key] = evaluated(
                self.expression, self.weight, *key, self.listed
            )
        return self._known[key]

    @property
    def _kind(self) -> Kind:
        for node in in_order(self.expression):
            if isinstance(node, JointAffine | JointIndependent):
                laws = node.time_law, node.x_law
                if any(isinstance(law, Composed | Weighted) for law in laws):
                    return "estimate"  # their distribution functions are estimates
        return "certified"

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> Quantile:
        """Quantile with a bracket that contains it.

        Parameters
        ----------
        p, sf : float
            Level as P(E <= e) or as P(E > e); exactly one.
        rtol : float, optional
            Width of the bracket over the value. A given tolerance is a demand; the
            default 1e-4 an aim: the bracket may be wider, with the grid that limits it.
        memory : int
            Bytes that the grid may take.

        Raises
        ------
        InputError
            Level outside (0, 1), or not exactly one.
        ToleranceError
            `rtol` cannot be reached within `memory`.
        """
        by_sf = sf is not None
        p, sf = levels(p, sf)
        aim = 1e-4 if rtol is None else float(rtol)
        cap = _cap(memory)
        grid = min(self.grid, cap)
        found = self._quantile(p, sf, by_sf, grid)
        finer = self._finer(
            grid, found.relative_width / aim, cap, rtol is not None, min(p, sf)
        )
        if finer > grid:
            found = self._quantile(p, sf, by_sf, finer)
        if rtol is not None and found.relative_width > rtol:
            raise ToleranceError(
                f"joint law: quantile at sf={sf:.6g} known to relative width "
                f"{found.relative_width:.3g} from {found.limited_by} within {memory} "
                f"bytes, asked for {rtol:.3g}",
                found,
            )
        return found

    def _quantile(self, p: float, sf: float, by_sf: bool, grid: int) -> Quantile:
        result = self._result(min(p, sf), grid)
        level = sf if by_sf else p
        value, lower, upper = bracketed(result, level, by_sf, self.support())
        return Quantile(
            p, value, lower, upper, self._sort(lower, upper), result.limited_by, sf
        )

    def _sort(self, lower: float, upper: float) -> Kind:
        return self._kind if math.isfinite(lower) and math.isfinite(upper) else "open"

    def probability_above(
        self, limit: float, *, rtol: float = 1e-3, memory: int = MEMORY
    ) -> Probability:
        """P(E > limit) with certified bounds.

        Parameters
        ----------
        limit : float
            In J.
        rtol : float
            Width of the bounds over the probability that is aimed at; a finer grid is
            tried once where the first does not reach it.
        memory : int
            Bytes that the grid may take.

        Raises
        ------
        InputError
            A limit that is no number.
        """
        if not isinstance(limit, numbers.Real) or math.isnan(limit):
            raise InputError(
                f"probability_above: limit must be a number, got {limit!r}"
            )
        cap = _cap(memory)
        grid = min(self.grid, cap)
        found = self._probability(limit, 1e-6, grid)
        if found.upper > 0.0:
            width = (found.upper - found.lower) / found.upper
            finer = self._finer(grid, width / rtol, cap, False, 1e-6)
            if finer > grid:
                found = self._probability(limit, max(found.value, 1e-12), finer)
        return found

    def _finer(
        self, grid: int, excess: float, cap: int, demanded: bool, sf: float
    ) -> int:
        """Grid that would narrow a bracket `excess` times too wide, or what is allowed.

        The width goes with the steps, that is with 1 / grid. A tolerance that is
        demanded may take all memory, but is not tried where that would not do.
        """
        if excess <= 1.0 or self._result(sf, grid).atoms:
            return grid
        wanted = 1.2 * grid * min(excess, 1e6)
        nodes = sum(1 for _ in in_order(self.expression))
        cost = 3 * (nodes + READING) if nodes <= 2 * FEW else nodes + READING
        most = cap if demanded else min(cap, math.sqrt(WORK / cost))
        if demanded and wanted > most:
            return grid
        finer = 2 ** math.floor(math.log2(min(2.0 * wanted, most)))
        return finer if finer >= 1.4 * grid else grid

    def _probability(self, limit: float, sf: float, grid: int) -> Probability:
        result = self._result(sf, grid)
        low, high = self.support()
        at = np.array([float(limit)])
        value = float(stepped(result.points, result.above, at, 1.0)[0])
        if limit >= high or limit < low:
            sure = float(limit < low)
            return Probability(sure, sure, sure, self._kind)
        lower, upper = float(result.lower_at(at)[0]), float(result.upper_at(at)[0])
        return Probability(min(max(value, lower), upper), lower, upper, self._kind)

    def cdf(self, x: npt.ArrayLike, /) -> Any:
        """P(E <= x), the estimate (bounds: `probability_above`)."""
        result = self._result()
        return stepped(result.points, result.below, np.asarray(x, float), 0.0)[()]

    def ccdf(self, x: npt.ArrayLike, /) -> Any:
        """P(E > x), the estimate, computed as such (bounds: `probability_above`)."""
        result = self._result()
        return stepped(result.points, result.above, np.asarray(x, float), 1.0)[()]

    def icdf(self, p: npt.ArrayLike, /) -> Any:
        """Quantile values at P(E <= x) = p (their errors: `quantile`)."""
        return _each(p, lambda level: self.quantile(level).value)

    def iccdf(self, p: npt.ArrayLike, /) -> Any:
        """Quantile values at P(E > x) = p (their errors: `quantile`)."""
        return _each(p, lambda level: self.quantile(sf=level).value)

    def isf(self, p: npt.ArrayLike, /) -> Any:
        """`iccdf` under the name of SciPy's frozen variables."""
        return self.iccdf(p)

    def mean(self) -> float:
        """E E (its error: `mean_bounds`)."""
        return self.mean_bounds().value

    def mean_bounds(self) -> Bounds:
        """E E with certified bounds."""
        value, lower, upper = self._result().mean
        if not math.isfinite(value) or self._largest(lambda law: law.mean) == math.inf:
            return Bounds(math.inf, lower, math.inf, "open")
        return Bounds(value, lower, upper, self._sort(lower, upper))

    def variance(self) -> float:
        """Var E, an estimate that the rows make slightly too large."""
        if self._largest(lambda law: law.variance) == math.inf:
            return math.inf
        return self._result().variance

    def _largest(self, moment: Callable[[KnownLaw], float]) -> float:
        """Largest moment of the laws that E depends on."""
        found = 0.0
        for node in in_order(self.expression):
            if isinstance(node, JointAffine | JointIndependent):
                if self.weight + abs(node.slope) > 0.0:
                    found = max(found, moment(node.known[0]))
                found = max(found, moment(node.known[1]))
        return found

    def expected_shortfall(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        memory: int = MEMORY,
    ) -> Bounds:
        """Mean of the worst ``sf`` share of outcomes, bracketed.

        ``min over t of t + E(E - t)+ / sf`` (Rockafellar and Uryasev).
        """
        p, sf = levels(p, sf)
        result = self._result(min(p, sf), min(self.grid, _cap(memory)))
        value, lower, upper = shortfall(result, sf, self.support()[0])
        return Bounds(value, lower, upper, self._sort(lower, upper))

    def support(self) -> tuple[float, float]:
        """Return bounds of the possible values."""
        return support_of(self.expression, self.weight)

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Draw independent values; `rng` is a generator or a seed."""
        size = (int(shape),) if np.ndim(shape) == 0 else tuple(shape)
        t, x = drawn(self.expression, size, generator(rng))
        return (self.weight * t + x)[()]

    def lattice_bounds(self, step: float, *, low: float, high: float) -> LatticeBounds:
        """Two laws on a lattice between which E lies in first order.

        Parameters
        ----------
        step : float
            Distance of the points, which are integers times `step`; in J.
        low, high : float
            Range that matters, infinite for all. Mass below it is moved to its end
            where that keeps the order, else accounted as lost.
        """
        # The bounds are worth about a step: finer where that is cheap.
        middle = self._quantile(0.5, 0.5, True, self.grid)
        excess = (middle.upper - middle.lower) / step
        finer = self._finer(self.grid, excess, _cap(MEMORY), False, 1e-9)
        # Mass above `high` is kept where it is: that costs little, leaves no doubt.
        return lattice_pair(self._result(1e-9, finer), step, low, self.support())


def _cap(memory: int) -> int:
    """Largest grid within `memory` bytes: about four spectra of its size are held."""
    return max(int(math.sqrt(memory / 64.0)), 16)


def _each(level: npt.ArrayLike, one: Callable[[float], float]) -> Any:
    values = np.asarray(level, dtype=float)
    out = np.array([one(float(v)) for v in values.ravel()]).reshape(values.shape)
    return out.item() if out.ndim == 0 else out


class _Frame:
    """One node being drawn: its parts in turn, and their time and x so far."""

    __slots__ = ("copies", "largest", "t", "x")

    def __init__(self, node: JointSum | JointMaximum, shape: tuple[int, ...]) -> None:
        self.largest = isinstance(node, JointMaximum)
        self.copies = iter([(part, n) for part, n in node.parts])
        self.t = np.full(shape, -np.inf) if self.largest else np.zeros(shape)
        self.x = np.zeros(shape)

    def take(self, t: Any, x: Any) -> None:
        self.t = np.maximum(self.t, t) if self.largest else self.t + t
        self.x = self.x + x


def drawn(
    root: Joint, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw T and x; every copy of a part afresh."""
    outer = _Frame(JointSum(((root, 1),)), shape)
    stack: list[tuple[_Frame, Iterator[Joint]]] = []
    current, todo = outer, _copied(outer)
    while True:
        part = next(todo, None)
        if part is None:
            if not stack:
                return current.t, current.x
            done = current
            current, todo = stack.pop()
            current.take(done.t, done.x)
        elif isinstance(part, JointSum | JointMaximum):
            stack.append((current, todo))
            current = _Frame(part, shape)
            todo = _copied(current)
        else:
            current.take(*_drawn_leaf(part, shape, rng))


def _copied(frame: _Frame) -> Iterator[Joint]:
    for part, n in frame.copies:
        for _ in range(n):
            yield part


def _drawn_leaf(
    leaf: JointLeaf, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[Any, Any]:
    if isinstance(leaf, JointRuns):
        chosen = rng.choice(leaf.time.size, size=shape, p=leaf.weights)
        return leaf.time[chosen], leaf.x[chosen]
    t = leaf.time_law.sample(shape, rng=rng)
    return t, leaf.slope * t + leaf.x_law.sample(shape, rng=rng)


def _line_law(leaf: JointLeaf, weight: float) -> Any:
    """E of a single leaf as a law of one dimension; None where there is none."""
    if isinstance(leaf, JointRuns):
        return Empirical(weight * leaf.time + leaf.x, weights=leaf.weights)
    if weight + leaf.slope < 0.0:
        listed = leaf.known[0].values
        if listed is None:
            return None
        part = Empirical((weight + leaf.slope) * listed[0], weights=listed[1])
        return sum_of(part, leaf.x_law)
    return sum_of(scale(leaf.time_law, weight + leaf.slope), leaf.x_law)


def _apart(leaf: JointLeaf) -> tuple[Any, Any] | None:
    """Laws of T and of x where the two are independent, else None."""
    if isinstance(leaf, JointRuns):
        t, x = leaf.time, leaf.x
        if np.ptp(t) == 0.0:
            return Constant(float(t[0])), Empirical(x, weights=leaf.weights)
        if np.ptp(x) == 0.0:
            return Empirical(t, weights=leaf.weights), Constant(float(x[0]))
        return None
    if leaf.slope == 0.0:
        return leaf.time_law, leaf.x_law
    if isinstance(leaf.time_law, Constant):
        return leaf.time_law, shift(leaf.x_law, leaf.slope * leaf.time_law.value)
    return None


def _added(parts: list[tuple[Any, int]]) -> Composed:
    return sum_of(*(repeat(law, n) for law, n in parts))


def reduced(root: Joint, weight: float) -> Composed | None:
    """The law in one dimension, where no joint law is needed."""
    order = list(in_order(root))
    leaves = [v for v in order if not isinstance(v, JointSum | JointMaximum)]
    if weight == 0.0 or not any(isinstance(node, JointMaximum) for node in order):
        # Every draw enters by its weight * T + x alone.
        laws = {id(leaf): _line_law(leaf, weight) for leaf in leaves}
        if any(law is None for law in laws.values()):
            return None
        return sum_of(
            folded(root, lambda v: laws[id(v)], lambda _, parts: _added(parts))
        )
    apart = {id(leaf): _apart(leaf) for leaf in leaves}
    if any(pair is None for pair in apart.values()):
        return None

    # T and x independent in every leaf stay independent (calculus, section 2).
    def time(node: JointSum | JointMaximum, parts: list[tuple[Any, int]]) -> Composed:
        if isinstance(node, JointSum):
            return _added(parts)
        return maximum(*(law for law, n in parts for _ in range(n)))

    def one(coordinate: int) -> Callable[[JointLeaf], Any]:
        return lambda leaf: (apart[id(leaf)] or (0.0, 0.0))[coordinate]

    energy = folded(root, one(1), lambda _, parts: _added(parts))
    return sum_of(scale(folded(root, one(0), time), weight), energy)


def spelled_out(root: Joint) -> Joint:
    """Leaves whose T is composed of other laws, as expressions of those.

    With x = 0 beside every T, and x' as a part of its own that takes no time. A line
    through T is spelled out over sums only: the slope times a maximum is no leaf's.
    """

    def leaf(node: JointLeaf) -> Joint:
        if isinstance(node, JointRuns) or not isinstance(node.time_law, Composed):
            return node
        time = _joint_time(node.time_law.node, node.slope)
        if time is None:
            return node
        rest = JointIndependent(Constant(0.0), node.x_law)
        return joint_sum(time, rest)

    def combine(node: JointSum | JointMaximum, parts: list[tuple[Joint, int]]) -> Joint:
        same = all(
            new is old for (new, _), (old, _) in zip(parts, node.parts, strict=True)
        )
        return node if same else flattened(type(node), parts, "joint law")

    return folded(root, leaf, combine)


def _joint_time(root: Node, slope: float) -> Joint | None:
    """A law of time as a joint expression; None where it has other parts than + max."""
    known: dict[int, Joint] = {}
    for node in postorder(root):
        if isinstance(node, Leaf):
            known[id(node)] = JointAffine(node.law, slope, Constant(0.0))
        elif isinstance(node, Sum):
            parts = [(known[id(part)], n) for part, n in node.parts]
            if node.constant != 0.0:
                extra = JointAffine(Constant(node.constant), slope, Constant(0.0))
                parts.append((extra, 1))
            known[id(node)] = flattened(JointSum, parts, "joint law")
        elif isinstance(node, Max) and slope == 0.0:
            parts = [(known[id(part)], n) for part, n in node.parts]
            known[id(node)] = flattened(JointMaximum, parts, "joint law")
        else:
            return None
    return known[id(root)]


def weighted(
    expression: Joint, weight: float, *, grid: int = GRID
) -> Weighted | Composed:
    """Law of E = weight * T + x of a joint expression of independent draws.

    A law of one dimension after all (no maximum, no weight, or T and x independent in
    every leaf) is returned as such; otherwise T and x are composed jointly.

    Parameters
    ----------
    expression : Joint
    weight : float
        In W, not negative: E must not fall with T.
    grid : int
        Rows and columns of the grid to begin with, from 16 to 8192.

    Raises
    ------
    InputError
        A weight that is negative or no finite number, no joint expression, a grid out
        of range.

    Examples
    --------
    >>> a = JointRuns([1.0, 2.0], [3.0, 5.0])
    >>> weighted(joint_maximum(a, a), 10.0).quantile(0.5).value
    28.0
    """
    if not isinstance(expression, Joint):
        raise InputError(
            f"weighted: expected a joint law, got {type(expression).__name__} "
            f"{expression!r:.60}"
        )
    if not (isinstance(weight, numbers.Real) and 0.0 <= weight < math.inf):
        raise InputError(
            f"weighted: weight must be a finite number >= 0, got {weight!r}"
        )
    if isinstance(grid, bool) or not isinstance(grid, numbers.Integral):
        raise InputError(f"weighted: grid must be an integer, got {grid!r}")
    if not 16 <= grid <= 8192:
        raise InputError(f"weighted: grid must be from 16 to 8192, got {grid!r}")
    line = reduced(expression, float(weight))
    if line is not None:
        return line
    return Weighted(spelled_out(expression), float(weight), int(grid))
