"""Static power from ready idle at several temperatures, with its shared error (step 8).

The board must be idle and ready: context alive, same clocks. What a driver draws with
no context is another, lower figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from probcalc.errors import InputError
from probcalc.readonly import reduced
from probcalc.shared import Shared

__all__ = ["DynamicEnergy", "StaticPower", "fit_static_power"]

FloatArray = npt.NDArray[np.float64]

LEAST_TEMPERATURES = 3
APART = 1.0  # K, what the thermal gate holds: closer levels are one temperature


@dataclass(frozen=True, slots=True, eq=False)
class DynamicEnergy:
    """Dynamic energies d = E - s T as they come out, negative ones included.

    Attributes
    ----------
    value : FloatArray, shape (runs,)
        In J; never clipped.
    negative : tuple of int
        Runs with d < 0: static power calibrated too high, or noise (axiom P1).
    static_power : float
        s in W that was taken off.
    """

    value: FloatArray
    negative: tuple[int, ...]
    static_power: float

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)


@dataclass(frozen=True, slots=True, eq=False)
class StaticPower:
    """Static power s(T) = a + b (T - reference), with the covariance of a and b.

    Attributes
    ----------
    reference : float
        Mean temperature of the windows in degree Celsius.
    coefficients : FloatArray, shape (2,)
        a in W and b in W/K.
    covariance : FloatArray, shape (2, 2)
        Of the coefficients, in W^2, W^2/K and W^2/K^2.
    residual : float
        Standard deviation in W of the windows around the line.
    windows : int
    lowest, highest : float
        Temperatures in degree Celsius that were calibrated.
    """

    reference: float
    coefficients: FloatArray
    covariance: FloatArray
    residual: float
    windows: int
    lowest: float
    highest: float

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    def at(self, temperature: float) -> float:
        """Return s in W at a temperature in degree Celsius within the calibration.

        Raises
        ------
        InputError
            Outside the temperatures calibrated by more than 1 K, or s not above 0.
        """
        self._covered(temperature)
        a, b = self.coefficients
        power = float(a + b * (temperature - self.reference))
        if not power > 0.0:
            raise InputError(
                f"static power: {power:.4g} W at {temperature:g} degree Celsius, "
                "expected above 0 W"
            )
        return power

    def error(self, temperature: float) -> float:
        """Return the standard error of s in W at a temperature in degree Celsius."""
        self._covered(temperature)
        row = np.array([1.0, temperature - self.reference])
        return math.sqrt(max(float(row @ self.covariance @ row), 0.0))

    def interval(self, temperature: float, level: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval of s in W (Student's t, windows - 2)."""
        power, error = self.at(temperature), self.error(temperature)
        half = error * float(special.stdtrit(self.windows - 2, 0.5 + 0.5 * level))
        return power - half, power + half

    def law(self, temperature: float) -> Any:
        """Return the law of the true static power over the calibrated one.

        A normal around 1 with the calibration's relative error, widened to the spread
        of Student's t for few windows and cut at 0.
        """
        freedom = self.windows - 2
        wide = math.sqrt(freedom / (freedom - 2)) if freedom > 2 else 3.0
        sigma = wide * self.error(temperature) / self.at(temperature)
        if sigma == 0.0:
            return 1.0
        from scipy import stats

        return stats.truncnorm(-1.0 / sigma, math.inf, loc=1.0, scale=sigma)

    def shared(self, name: str, temperature: float) -> Shared:
        """Return the calibration error that every element on the board shares.

        Parameters
        ----------
        name : str
            Such as ``"calibration:gpu0"``, the same for all elements of the board.
        temperature : float
            In degree Celsius, at which the elements run.
        """
        return Shared(name, self.law(temperature), acts_on="static_power")

    def dynamic_energy(
        self, time: npt.ArrayLike, energy: npt.ArrayLike, temperature: float
    ) -> DynamicEnergy:
        """Return d = E - s T of runs, with those that came out negative named.

        Parameters
        ----------
        time, energy : array_like, shape (runs,)
            In s and J, per run or means of one grain.
        temperature : float
            In degree Celsius.
        """
        times, energies = np.asarray(time, float), np.asarray(energy, float)
        if times.shape != energies.shape or times.ndim != 1:
            raise InputError(
                f"dynamic energy: times of shape {times.shape} and energies of shape "
                f"{energies.shape}, expected one of each for every run"
            )
        power = self.at(temperature)
        value = energies - power * times
        value.setflags(write=False)
        negative = tuple(int(i) for i in np.flatnonzero(value < 0.0))
        return DynamicEnergy(value, negative, power)

    def _covered(self, temperature: float) -> None:
        if not self.lowest - APART <= temperature <= self.highest + APART:
            raise InputError(
                f"static power: {temperature!r} degree Celsius is outside the "
                f"calibration, {self.lowest:g} to {self.highest:g}"
            )


def fit_static_power(temperature: npt.ArrayLike, power: npt.ArrayLike) -> StaticPower:
    """Regress the mean power of idle windows on their mean temperature.

    Windows are taken as independent: each entry is a whole window of ready idle, not
    a reading, since readings that follow each other share their noise.

    Parameters
    ----------
    temperature : array_like, shape (windows,)
        Mean of each window in degree Celsius, at 3 temperatures or more that are at
        least 1 K apart.
    power : array_like, shape (windows,)
        Mean of each window in W.

    Raises
    ------
    InputError
        Fewer than 4 windows or 3 temperatures, lengths that differ, power not above
        0 W, numbers that are not finite.

    Examples
    --------
    >>> line = fit_static_power([40.0, 50.0, 60.0, 70.0], [60.0, 62.0, 64.0, 66.0])
    >>> round(line.at(55.0), 6)
    63.0
    """
    x, y = np.asarray(temperature, float), np.asarray(power, float)
    where = "static power"
    if x.ndim != 1 or x.shape != y.shape:
        raise InputError(
            f"{where}: temperatures of shape {x.shape} and powers of shape {y.shape}, "
            "expected one of each for every idle window"
        )
    for name, values in (("temperature", x), ("power", y)):
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise InputError(f"{where}: {name}[{bad[0]}] is {values[bad[0]]}")
    low = np.flatnonzero(y <= 0.0)
    if low.size:
        raise InputError(f"{where}: power[{low[0]}] is {y[low[0]]:g} W, expected > 0")
    if x.size < 4:
        raise InputError(f"{where}: {x.size} idle windows, expected at least 4")
    levels = _levels(x)
    if levels < LEAST_TEMPERATURES:
        raise InputError(
            f"{where}: idle at {levels} temperatures {APART:g} K apart, expected at "
            f"least {LEAST_TEMPERATURES}"
        )
    reference = float(x.mean())
    design = np.column_stack([np.ones(x.size), x - reference])
    # The columns are orthogonal about the mean, so that a and b are independent; at
    # another temperature both come in.
    off = x - reference
    square = float(off @ off)
    coefficients = np.array([y.mean(), float(off @ y) / square])
    left = y - design @ coefficients
    variance = float(left @ left) / (x.size - 2)
    covariance = np.array([[variance / x.size, 0.0], [0.0, variance / square]])
    coefficients.setflags(write=False)
    covariance.setflags(write=False)
    return StaticPower(
        reference,
        coefficients,
        covariance,
        math.sqrt(variance),
        int(x.size),
        float(x.min()),
        float(x.max()),
    )


def _levels(temperature: FloatArray) -> int:
    """Return how many temperatures can be picked that are 1 K apart."""
    count, last = 0, -math.inf
    for value in np.sort(temperature):
        if value - last >= APART:
            count, last = count + 1, float(value)
    return count
