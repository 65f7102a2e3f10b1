"""Finding the quantum of which all values of an expression are multiples."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from probcalc.discretise import atoms_of
from probcalc.distribution import FloatArray
from probcalc.nodes import Leaf, Mix, Node, Product, Scale, Shared, Sum, postorder

__all__ = ["Quantum", "quantum_of"]

#: Values that lie within this many units in the last place of a multiple count as one.
CLOSE = 4.0 * 2.0**-53
#: More multiples than this in one value are no lattice worth having.
MOST = 2**40


class Quantum(NamedTuple):
    """Distance of lattice points; whether values and points are doubles exactly."""

    step: float
    exact: bool


def quantum_of(root: Node) -> Quantum | None:
    """Largest found number of which all values are integer multiples, else None.

    Tried are powers of two and of ten, and one over small integers, times the greatest
    common divisor of the multiples. Scaled and shifted parts count with their factors.
    """
    factors: dict[int, float | None] = {id(root): 1.0}
    exact = True
    order = list(postorder(root))
    values: list[FloatArray] = []
    for node in reversed(order):
        factor = factors[id(node)]
        match node:
            case Leaf() | Shared():
                if hasattr(node.law, "lattice_bounds") or factor is None:
                    return None
                atoms = atoms_of(node.law, 1e-18)
                if atoms is None:
                    return None
                values.append(factor * np.asarray(atoms[0], dtype=float))
                continue
            case Product():
                return None
            case Scale():
                inner = None if factor is None else factor * node.factor
                exact &= abs(math.frexp(node.factor)[0]) == 0.5
                parts = [node.part]
            case Sum():
                inner = factor
                parts = [part for part, _ in node.parts]
                if factor is not None:
                    values.append(np.array([factor * node.constant]))
            case Mix():
                inner, parts = factor, list(node.parts)
            case _:
                inner, parts = factor, [part for part, _ in node.parts]
        for part in parts:
            known = factors.setdefault(id(part), inner)
            if known != inner:  # one part under two factors
                factors[id(part)] = None
    numbers = np.unique(np.abs(np.concatenate(values)))
    found = quantum(numbers[numbers > 0.0])
    if found is None:
        return None
    return Quantum(found.step, found.exact and exact)


def quantum(numbers: FloatArray) -> Quantum | None:
    """Largest found quantum of positive numbers; one for none."""
    if numbers.size == 0:
        return Quantum(1.0, True)
    if numbers.size > 1_000_000:
        return None
    smallest = float(numbers[0])
    exponent = math.floor(math.log2(smallest))
    candidates = [
        *(2.0**e for e in range(exponent, exponent - 40, -2)),
        *(10.0**e for e in range(math.floor(math.log10(smallest)) + 1, -16, -1)),
        smallest,
    ]
    for unit in candidates:
        multiples = _multiples(numbers, unit)
        if multiples is None:
            continue
        step = int(np.gcd.reduce(multiples)) * unit
        exact = dyadic(step) and bool((np.rint(numbers / step) * step == numbers).all())
        return Quantum(step, exact)
    return None


def _multiples(numbers: FloatArray, unit: float) -> np.ndarray | None:
    # Dividing by 10^-k is exact in decimal meaning only through multiplication by the
    # integer power, which is a double up to 10^22.
    inverse = 1.0 / unit
    ratio = (
        numbers * round(inverse)
        if inverse > 1.0 and _whole(inverse)
        else numbers / unit
    )
    nearest = np.rint(ratio)
    if nearest[-1] > MOST or nearest[0] < 1.0:
        return None
    if (np.abs(ratio - nearest) > CLOSE * nearest).any():
        return None
    return nearest.astype(np.int64)


def _whole(x: float) -> bool:
    return abs(x - round(x)) <= 1e-12 * x


def dyadic(unit: float) -> bool:
    """Whether small multiples of a number are doubles: few bits in its mantissa."""
    mantissa, _ = math.frexp(unit)
    return (mantissa * 2.0**20).is_integer()
