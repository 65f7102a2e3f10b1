"""Fourier coefficients of atoms and masses on a circle, and their rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
import scipy.fft

__all__ = [
    "DYADIC",
    "LONG_PHASE_ERROR",
    "PHASE_ERROR",
    "UNIT",
    "circle_spectra",
    "cyclic",
    "line_spectrum",
    "ordered_spectrum",
    "transform_error",
]

FloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[Any]
Spectrum = npt.NDArray[Any]
Function = Callable[[FloatArray], FloatArray]

UNIT = 2.0**-53
#: Positions on the circle are integers over this modulus: multiples of up to 2^20 of
#: them are exact, so that phases are exact to one rounding.
DYADIC = 2**42
# Phases are multiplied up over this many frequencies, then computed afresh.
RUN = 8
# Rounding of `circle_spectra`: RUN products of sqrt(5) u with a factor good to 8 u.
PHASE_ERROR = 12.0 * RUN * UNIT
# The same for `ordered_spectrum`, where phases would cost more than the rest.
LONG_RUN = 32
LONG_PHASE_ERROR = 12.0 * LONG_RUN * UNIT


def transform_error(length: int) -> float:
    """Relative error of a transform of 2^a 3^b 5^c points: l1 to any bin, and in l2.

    Every input reaches every output through one product of unit factors, log2(length)
    levels of at most 8 u: 4 u for the twiddle and its product, the rest for the sums
    (a radix-5 butterfly spends 10 u on 2.3 levels). In l2 it is 6.7 u per level
    (Higham, Accuracy and Stability of Numerical Algorithms, Theorem 24.2).
    """
    return 8.0 * UNIT * (math.log2(max(length, 2)) + 2.0)


@nb.njit(cache=True)
def circle_spectra(
    row: IntArray,
    part: FloatArray,
    mass: FloatArray,
    position: IntArray,
    modulus: int,
    height: int,
    frequencies: int,
) -> Spectrum:
    """Fourier coefficients, row by row, of atoms on a circle.

    Parameters
    ----------
    row, part : ndarray, shape (atoms,)
        An atom gives ``1 - part`` of its mass to its row and the rest to the next.
    mass : ndarray, shape (atoms,)
    position : ndarray of int64, shape (atoms,)
        Place on the circle of `modulus` points; position * frequencies < 2^63.
    height, frequencies : int

    Returns
    -------
    ndarray, shape (height, frequencies)
        ``sum of mass exp(-2 pi i f position / modulus)``.
    """
    out = np.zeros((height, frequencies), np.complex128)
    for k in range(mass.size):
        place = position[k] % modulus
        angle = -2.0 * math.pi * (place / modulus)
        turn = complex(math.cos(angle), math.sin(angle))
        left = (1.0 - part[k]) * mass[k]
        right = part[k] * mass[k]
        i = row[k]
        f = 0
        while f < frequencies:
            angle = -2.0 * math.pi * (((place * f) % modulus) / modulus)
            z = complex(math.cos(angle), math.sin(angle))
            for g in range(f, min(f + RUN, frequencies)):
                out[i, g] += left * z
                if right > 0.0:
                    out[i + 1, g] += right * z
                z *= turn
            f += RUN
    return out


@nb.njit(cache=True)
def ordered_spectrum(
    operand: IntArray,
    mass: FloatArray,
    own: IntArray,
    other: IntArray,
    modulus: int,
    operands: int,
    frequencies: int,
) -> Spectrum:
    """Fourier coefficients of one weighted sum of both coordinates of a maximum.

    Of independent lists of atoms the largest first coordinate is found by going through
    all atoms in its order, without any grid: atom e, last of all, comes with atoms of
    the other lists that came before. The error is that of the running sums: (atoms +
    4 operands) u, and `LONG_PHASE_ERROR`, for each operand and the whole.

    Parameters
    ----------
    operand, mass : ndarray, shape (atoms,)
        Lists that the atoms belong to; ascending in the first coordinate.
    own, other : ndarray of int64, shape (atoms,)
        Place of an atom on the circle when it is the largest and when it is not.
    modulus, operands, frequencies : int

    Returns
    -------
    ndarray, shape (1, frequencies)
    """
    out = np.zeros((1, frequencies), np.complex128)
    turns = np.empty((mass.size, 2), np.complex128)
    places = np.empty((mass.size, 2), np.int64)
    for e in range(mass.size):
        places[e, 0], places[e, 1] = own[e] % modulus, other[e] % modulus
        for side in range(2):
            angle = -2.0 * math.pi * (places[e, side] / modulus)
            turns[e, side] = complex(math.cos(angle), math.sin(angle))
    sums = np.empty((operands, LONG_RUN), np.complex128)
    for f in range(0, frequencies, LONG_RUN):
        width = min(LONG_RUN, frequencies - f)
        sums[:] = 0.0
        for e in range(mass.size):
            angle = -2.0 * math.pi * (((places[e, 0] * f) % modulus) / modulus)
            y = mass[e] * complex(math.cos(angle), math.sin(angle))
            angle = -2.0 * math.pi * (((places[e, 1] * f) % modulus) / modulus)
            z = mass[e] * complex(math.cos(angle), math.sin(angle))
            turn_y, turn_z = turns[e, 0], turns[e, 1]
            mine = operand[e]
            for g in range(width):
                product = y
                for m in range(operands):
                    if m != mine:
                        product *= sums[m, g]
                out[0, f + g] += product
                sums[mine, g] += z
                y *= turn_y
                z *= turn_z
    return out


def line_spectrum(mass: FloatArray, period: int, frequencies: int) -> Spectrum:
    """First Fourier coefficients of a mass on a circle of `period` points."""
    wrapped = cyclic(mass[:, None], period)[:, 0]
    spectrum: Any = scipy.fft.rfft(wrapped, workers=1)
    return spectrum[:frequencies]


def cyclic(a: Any, length: int) -> Any:
    """Rows modulo `length`, padded with zeros."""
    out = np.zeros((-(-a.shape[0] // length) * length, a.shape[1]), a.dtype)
    out[: a.shape[0]] = a
    return out.reshape(-1, length, a.shape[1]).sum(axis=0)
