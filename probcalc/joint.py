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
the result by `probcalc.kernels.joint_reading.bracket`. For few leaves T and x are also
rounded down, and up, which gives laws surely below and above, and the narrower bound
counts.

No grid at all is needed where the outcomes are few enough to be listed, or T and x are
independent after all; and no grid of T for a maximum of lists of runs, which is gone
through in the order of T. Parts of an outermost sum enter by their E alone: they are
worked out one by one, each on the grid that suits it, and added in one dimension.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.composed import MEMORY, Composed
from probcalc.distribution import Bounds, Kind, Probability, Quantile, generator, levels
from probcalc.errors import InputError, ToleranceError
from probcalc.joint_answers import bracketed, lattice_pair, shortfall, support_of
from probcalc.joint_line import WORK
from probcalc.joint_reduce import reduced, spelled_out
from probcalc.joint_result import FEW, Result, evaluated, stepped
from probcalc.joint_sampling import drawn
from probcalc.joint_terms import (
    Joint,
    JointAffine,
    JointIndependent,
    JointMaximum,
    JointRuns,
    JointSum,
    KnownLaw,
    in_order,
    joint_maximum,
    joint_repeat,
    joint_sum,
)
from probcalc.lattice import LatticeBounds
from probcalc.levelwise import each, quantiles

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

#: Rows and columns of the grid unless asked otherwise.
GRID = 512
#: Joint outcomes that are listed one by one rather than put on a grid.
ENUMERATE = 4_000_000
#: What reading the result off the grid costs, in nodes.
READING = 15


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

    def quantiles(
        self,
        p: Iterable[float] | None = None,
        *,
        sf: Iterable[float] | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> tuple[Quantile, ...]:
        """Brackets at several levels, as `quantile` each."""
        return quantiles(self, p, sf, rtol=rtol, memory=memory)

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
        return each(p, lambda level: self.quantile(level).value)

    def iccdf(self, p: npt.ArrayLike, /) -> Any:
        """Quantile values at P(E > x) = p (their errors: `quantile`)."""
        return each(p, lambda level: self.quantile(sf=level).value)

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
