"""Leaves of joint expressions on the grid: T on rows, x in the Fourier domain."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.errors import ToleranceError
from probcalc.joint_outcomes import outcomes_of
from probcalc.joint_terms import JointLeaf, JointRuns, KnownLaw

__all__ = [
    "Axis",
    "Cell",
    "Steps",
    "atoms_axis",
    "axis_of",
    "cell_of",
    "on_points",
    "time_axis",
    "widths_of",
]

FloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[Any]

#: Longer grids for one law are refused.
MAX_CELLS = 2**24
#: Points of x to a column of the grid, for laws that are no list of outcomes.
FINE = 8
#: Positions this close to a grid point are taken to be on it; accounted as a shift.
NEAR = 1e-9


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
        from probcalc.kernels.joint_spectra import circle_spectra, line_spectrum

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
    from probcalc.kernels.joint_spectra import DYADIC

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
