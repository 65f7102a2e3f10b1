"""Law of E of a joint expression: its parts added, bounded on both sides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.joint_grid import program_of, steps_for, surface_of
from probcalc.joint_leaf import widths_of
from probcalc.joint_line import (
    Line,
    atoms_line,
    leaf_lines,
    orderable,
    ordered_line,
    ordered_points,
    surface_line,
)
from probcalc.joint_outcomes import collapsed, listing, sizes_of
from probcalc.joint_terms import Joint, JointMaximum, JointSum, in_order

__all__ = ["Result", "evaluated", "stepped"]

FloatArray = npt.NDArray[Any]
UNIT = 2.0**-53

#: Joint outcomes of a part inside a larger expression that are listed one by one.
#: Fewer than for a law of its own: each costs an operation on the grid.
ENUMERATE_PART = 65_536
#: Up to so many draws T and x are also rounded down and up.
FEW = 6


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
    from probcalc.kernels.joint import window
    from probcalc.kernels.joint_reading import bracket
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
