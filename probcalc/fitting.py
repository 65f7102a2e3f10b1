"""Least squares with intervals, for parameters of mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.distribution import as_samples
from probcalc.errors import InputError

__all__ = ["Estimate", "columns", "lag", "least"]

FloatArray = npt.NDArray[np.float64]
FEWEST = 8


class Estimate(NamedTuple):
    """A fitted parameter, with its interval of kind ``confidence``.

    Attributes
    ----------
    value, error, lower, upper : float
        Estimate, standard error, and interval, in `unit`.
    unit : str
    level : float
    """

    value: float
    error: float
    lower: float
    upper: float
    unit: str
    level: float

    @classmethod
    def of(
        cls, value: float, error: float, freedom: float, unit: str, level: float
    ) -> Estimate:
        """Return the interval of Student's t."""
        from scipy import special

        half = float(special.stdtrit(freedom, 0.5 + 0.5 * level)) * error
        return cls(value, error, value - half, value + half, unit, level)


def columns(where: str, **given: npt.ArrayLike) -> tuple[FloatArray, ...]:
    """Check the columns of a record: as many readings of each, at least 8."""
    found = [as_samples(v, where=f"{where}, {name}") for name, v in given.items()]
    sizes = {x.size for x in found}
    if len(sizes) > 1:
        raise InputError(
            f"{where}: {', '.join(str(x.size) for x in found)} values, expected as many"
        )
    if found[0].size < FEWEST:
        raise InputError(
            f"{where}: {found[0].size} readings, expected at least {FEWEST}"
        )
    return tuple(found)


def least(
    model: Callable[[FloatArray], FloatArray], y: FloatArray, start: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Least squares: parameters, their covariance, and the sum of squares."""
    from scipy.optimize import least_squares

    scale = np.maximum(np.abs(start), 1e-6)
    fit = least_squares(lambda x: model(x) - y, start, x_scale=scale, method="trf")
    squares = float(2.0 * fit.cost)
    # Scaled, so that units do not decide what is singular.
    J = fit.jac * scale
    try:
        inner = np.linalg.inv(J.T @ J)
    except np.linalg.LinAlgError:
        inner = np.full((start.size, start.size), np.inf)
    spread = squares / max(y.size - start.size, 1)
    return fit.x, spread * inner * np.outer(scale, scale), squares


def lag(rest: FloatArray) -> float:
    """Correlation of neighbours."""
    centred = rest - rest.mean()
    size = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / size if size > 0.0 else 0.0
