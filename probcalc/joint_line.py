"""E = weight * T + x of the parts of an outermost sum, each on a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.joint_grid import Program, Surface, noise_of
from probcalc.joint_leaf import NEAR, Axis, atoms_axis, axis_of, on_points
from probcalc.joint_outcomes import outcomes_of, size_of, sizes_of
from probcalc.joint_terms import Joint, JointLeaf, JointMaximum, JointRuns

if TYPE_CHECKING:
    from probcalc.kernels.joint_reading import Smear

__all__ = [
    "Line",
    "atoms_line",
    "leaf_lines",
    "orderable",
    "ordered_line",
    "ordered_points",
    "surface_line",
]

FloatArray = npt.NDArray[Any]
UNIT = 2.0**-53

#: Nodes times grid points that one answer may cost when no tolerance is demanded.
WORK = 2**28
#: A maximum of up to so many lists of runs is worked out in the order of their T.
ORDERED = 8
#: Relative accuracy that SciPy's distribution functions are taken to have. {E > t} is
#: in each coordinate of a leaf an interval up to infinity, or the complement of one, so
#: that P(E > t) is off by the same relative error for each draw of T and of x.
FUNCTION_ERROR = 2e-12


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
    from probcalc.kernels.joint_reading import fold

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
    from probcalc.kernels.joint_reading import REACH, fold, smear, tail_error, unfold
    from probcalc.kernels.joint_spectra import (
        DYADIC,
        LONG_PHASE_ERROR,
        ordered_spectrum,
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
