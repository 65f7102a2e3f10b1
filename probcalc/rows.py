"""Families as rows of the table of `probcalc.kernels.inversion`; equal rows merge."""

from __future__ import annotations

import math
from fractions import Fraction

from probcalc.families import Family

__all__ = ["Rows", "add_rows", "finished"]

#: (kind, b) to the parts of `a` (or of the count) of the merged row.
Rows = dict[tuple[int, float], list[float]]


def add_rows(rows: Rows, family: Family, count: int) -> Fraction:
    """Add `count` independent copies of a smooth family; return their exact constant.

    Normals merge into one, gammas of one scale into one, and so on: sums of them are
    closed.
    """
    scale, shapes = family.scale, family.shapes
    shift = Fraction(family.loc)
    match family.kind:
        case "norm":
            found = [(0, 0.0, scale * scale)]
        case "gamma":
            found = [(1, scale, shapes[0])]
        case "uniform":
            # loc + scale/2 + half-width times a uniform on (-1, 1)
            found = [(2, 0.5 * abs(scale), 1.0)]
            shift += Fraction(scale) / 2
        case "invgauss":
            # log M(z) = (1 - sqrt(1 - 2 mu^2 scale z)) / mu
            found = [(3, 2.0 * shapes[0] ** 2 * scale, 1.0 / shapes[0])]
        case _:
            # exponentially modified normal: normal plus exponential
            found = [(0, 0.0, scale * scale), (1, scale * shapes[0], 1.0)]
    for kind, b, a in found:
        rows.setdefault((kind, b), []).append(count * a)
    return shift * count


def finished(rows: Rows) -> list[tuple[float, float, float, float]]:
    """Return the rows ``(kind, count, a, b)``."""
    table: list[tuple[float, float, float, float]] = []
    for (kind, b), sizes in rows.items():
        a = math.fsum(sizes)
        table.append((2.0, a, 0.0, b) if kind == 2 else (float(kind), 1.0, a, b))
    return table
