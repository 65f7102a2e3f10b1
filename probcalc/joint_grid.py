"""Composition of a joint expression on the grid, and what is wrong with it at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.joint_leaf import FINE, Cell, Steps, cell_of, time_axis, widths_of
from probcalc.joint_outcomes import quantum_of_values
from probcalc.joint_terms import (
    Joint,
    JointLeaf,
    JointMaximum,
    JointRuns,
    JointSum,
    in_order,
)

if TYPE_CHECKING:
    from probcalc.kernels.joint_reading import Smear

__all__ = ["Program", "Surface", "noise_of", "program_of", "steps_for", "surface_of"]

FloatArray = npt.NDArray[Any]


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
    from probcalc.kernels.joint import Profile, profile
    from probcalc.kernels.joint_spectra import PHASE_ERROR, transform_error

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
    from probcalc.kernels.joint_reading import REACH

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
    from probcalc.kernels.joint import compose
    from probcalc.kernels.joint_reading import REACH, smear, tail_error, unfold
    from probcalc.kernels.joint_spectra import DYADIC

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
