"""Bringing a law onto a lattice with its rounding stated.

A law is given by half cells: cell c is [c, c + 1) in steps, its left half has mass
``mass[2c]`` and its right half ``mass[2c + 1]``; ``excess`` is the first moment of each
half cell measured from its own left end, in steps (between 0 and mass / 2). Atoms that
sit on a point belong to the cell to their right.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

__all__ = ["atoms_to_halves", "concentrate", "round_down", "round_up", "spread"]

FloatArray = npt.NDArray[np.float64]


def atoms_to_halves(
    positions: FloatArray, mass: FloatArray, first: int, cells: int
) -> tuple[FloatArray, FloatArray]:
    """Half-cell masses and excess moments of atoms.

    Parameters
    ----------
    positions : ndarray, shape (atoms,)
        In steps, inside [first, first + cells).
    mass : ndarray, shape (atoms,)
    first, cells : int
        First point and number of cells.
    """
    half = np.clip(np.floor(2.0 * (positions - first)), 0, 2 * cells - 1)
    index = half.astype(np.intp)
    excess = np.clip((positions - first) - 0.5 * index, 0.0, 0.5)
    return (
        np.bincount(index, weights=mass, minlength=2 * cells),
        np.bincount(index, weights=mass * excess, minlength=2 * cells),
    )


def spread(mass: FloatArray, excess: FloatArray) -> FloatArray:
    """Split each cell's mass to its ends, the mean kept.

    The result is above the law in the increasing convex order: splitting a value to
    two points around it with the same mean is a mean-preserving spread.

    Returns
    -------
    ndarray, shape (cells + 1,)
    """
    cell = mass[0::2] + mass[1::2]
    to_right = excess[0::2] + excess[1::2] + 0.5 * mass[1::2]
    to_right = np.minimum(to_right, cell)
    out = np.zeros(cell.size + 1)
    out[:-1] += cell - to_right
    out[1:] += to_right
    return out


def round_down(mass: FloatArray) -> FloatArray:
    """Move each cell's mass to its left end; shape (cells + 1,)."""
    return np.append(mass[0::2] + mass[1::2], 0.0)


def round_up(mass: FloatArray) -> FloatArray:
    """Move each cell's mass to its right end; shape (cells + 1,)."""
    return np.append(0.0, mass[0::2] + mass[1::2])


@nb.njit(cache=True)
def concentrate(mass: FloatArray, excess: FloatArray) -> FloatArray:
    """Gather mass on points, each from a sub-law whose mean is at least the point.

    The result is below the law in the increasing convex order: replacing a sub-law by
    its mean is a mean-preserving contraction, moving it down from there lowers it.
    Half cells are thinned proportionally. Built outwards from the heaviest point, so
    that what is left over ends in the thin tails. Losses occur where a cell's balance
    cannot be met; they only lower the result.

    Parameters
    ----------
    mass, excess : ndarray, shape (2 * cells,)

    Returns
    -------
    ndarray, shape (cells + 1,)
    """
    cells = mass.size // 2
    out = np.zeros(cells + 1)
    if cells == 1:
        out[0] = mass[0] + mass[1]
        return out
    start = 1
    heaviest = -1.0
    for k in range(1, cells):
        around = mass[2 * k - 1] + mass[2 * k]
        if around > heaviest:
            heaviest = around
            start = k
    # At the start point: the half cell to its left has a deficit, the one to its right
    # an excess; the heavier side is thinned until the two balance.
    left, right = 2 * start - 1, 2 * start
    deficit = mass[left] * 0.5 - excess[left]
    surplus = excess[right]
    keep_left = keep_right = 1.0
    if deficit > surplus:
        keep_left = surplus / deficit
    elif surplus > 0.0:
        keep_right = deficit / surplus
    out[start] = keep_left * mass[left] + keep_right * mass[right]
    # Rightwards: `rest` is what remains of the cell left of point k, `short` its
    # deficit against point k. It is filled up with the halves to the right of k.
    rest = (1.0 - keep_right) * mass[right] + mass[right + 1]
    short = (1.0 - keep_right) * (mass[right] - excess[right]) + (
        0.5 * mass[right + 1] - excess[right + 1]
    )
    for k in range(start + 1, cells):
        near, far = mass[2 * k], mass[2 * k + 1]
        near_excess = excess[2 * k]
        far_excess = 0.5 * far + excess[2 * k + 1]
        if short <= near_excess:
            part = short / near_excess if near_excess > 0.0 else 0.0
            out[k] += rest + part * near
            rest = (1.0 - part) * near + far
            short = (1.0 - part) * (near - near_excess) + (far - far_excess)
        elif short <= near_excess + far_excess:
            part = (short - near_excess) / far_excess
            out[k] += rest + near + part * far
            rest = (1.0 - part) * far
            short = (1.0 - part) * (far - far_excess)
        else:
            part = (near_excess + far_excess) / short if short > 0.0 else 1.0
            out[k] += part * rest + near + far
            out[k - 1] += (1.0 - part) * rest
            rest = 0.0
            short = 0.0
    out[cells - 1] += rest
    # Leftwards: `rest` is what remains of the cell right of point k, `over` its excess
    # against point k. It is balanced with the halves to the left of k.
    rest = (1.0 - keep_left) * mass[left] + mass[left - 1]
    over = (1.0 - keep_left) * (mass[left] * 0.5 + excess[left]) + excess[left - 1]
    for k in range(start - 1, 0, -1):
        near, far = mass[2 * k - 1], mass[2 * k - 2]
        near_deficit = 0.5 * near - excess[2 * k - 1]
        far_deficit = far - excess[2 * k - 2]
        if over <= near_deficit:
            part = over / near_deficit if near_deficit > 0.0 else 0.0
            out[k] += rest + part * near
            rest = (1.0 - part) * near + far
            over = (1.0 - part) * (near - near_deficit) + (far - far_deficit)
        elif over <= near_deficit + far_deficit:
            part = (over - near_deficit) / far_deficit
            out[k] += rest + near + part * far
            rest = (1.0 - part) * far
            over = (1.0 - part) * (far - far_deficit)
        else:
            out[k] += rest + near + far
            rest = 0.0
            over = 0.0
    out[0] += rest
    return out
