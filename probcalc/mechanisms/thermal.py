"""Thermal coupling: heat left behind leaks and throttles (Table 1, App. A).

A Foster network of one or more stages: the temperature rise over the null context is
the sum of stage rises, tau_k dx_k/dt = R_k P(t) - x_k. Static power grows by the
leakage slope with the rise, which heats in its turn; beyond a threshold the clocks
fall.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probcalc.context import StateVariable, number
from probcalc.errors import InputError
from probcalc.mechanisms.registry import Effect, Load, Mechanism, State, share

__all__ = ["RISE", "Thermal", "thermal"]

FloatArray = npt.NDArray[np.float64]
RISE = "temperature rise"


@dataclass(frozen=True, slots=True, eq=False)
class Thermal:
    """Parameters of a device's thermal model, in closed loop with its leakage.

    Attributes
    ----------
    resistance, time_constant : ndarray, shape (stages,)
        R in K/W and tau in s of the stages, leakage fed back.
    leakage : float
        Growth of static power with the rise, W/K.
    threshold : float
        Rise beyond which the device throttles, K; infinite where it does not.
    throttling : float
        Relative growth of times per K beyond the threshold, 1/K.
    """

    resistance: FloatArray
    time_constant: FloatArray
    leakage: float
    threshold: float
    throttling: float

    @property
    def names(self) -> tuple[str, ...]:
        """Variables of the stages."""
        if self.resistance.size == 1:
            return (RISE,)
        return tuple(f"{RISE}, stage {k + 1}" for k in range(self.resistance.size))

    def rise(self, state: State) -> FloatArray:
        """Temperature rise over the null context, K."""
        return np.sum([state[name] for name in self.names], axis=0)

    def steady(self, power: float) -> float:
        """Rise after a long time at a constant draw beyond the baseline, K."""
        return float(self.resistance.sum()) * power

    def after(self, state: State, load: Load) -> dict[str, FloatArray]:
        """State after a load of constant power.

        x(t) = x(0) e^(-t/tau) + R E g(t), g = (1 - e^(-t/tau)) / t, which is 1 / tau
        for energy E released in no time.
        """
        found = {}
        for name, R, tau in zip(
            self.names, self.resistance, self.time_constant, strict=True
        ):
            decay = np.exp(-load.duration / tau)
            found[name] = state[name] * decay + R * load.energy * _gain(
                load.duration, tau
            )
        return found

    def leaked(self, state: State, load: Load) -> FloatArray:
        """Static energy beyond the baseline while a load lasts, J.

        The integral of leakage times rise: x(0) tau (1 - e^(-t/tau)) + R E (1 - tau g).
        """
        total = np.zeros_like(load.duration)
        for name, R, tau in zip(
            self.names, self.resistance, self.time_constant, strict=True
        ):
            passed = -np.expm1(-load.duration / tau)
            total = total + state[name] * tau * passed
            total += R * load.energy * (1.0 - tau * _gain(load.duration, tau))
        return self.leakage * total

    def slowdown(self, rise: FloatArray) -> FloatArray:
        """Relative growth of times at a rise."""
        return self.throttling * np.maximum(rise - self.threshold, 0.0)


def _gain(duration: FloatArray, tau: float) -> FloatArray:
    x = duration / tau
    small = x < 1e-12
    return np.where(small, 1.0, -np.expm1(-x) / np.where(small, 1.0, x)) / tau


def thermal(
    *,
    resistance: float | npt.ArrayLike,
    time_constant: float | npt.ArrayLike,
    leakage: float = 0.0,
    threshold: float | None = None,
    throttling: float = 0.0,
    devices: Iterable[str] | None = None,
    name: str = "thermal",
) -> Mechanism:
    """Return the thermal mechanism of a kind of device.

    Parameters
    ----------
    resistance, time_constant : float or array_like, shape (stages,)
        R in K/W and tau in s as measured with the leakage taken out: the rise over the
        null context is R P after a long time at P watts beyond the baseline.
    leakage : float
        Growth of static power with temperature, W/K.
    threshold : float, optional
        Rise in K beyond which times grow; the device does not throttle without it.
    throttling : float
        By how much, relatively, 1/K. Elements state their part of it as
        ``Trace(sensitivity={"thermal": ...})``, all of it where they do not.
    devices : iterable of str, optional
        Devices of the kind; all without.

    Raises
    ------
    InputError
        Values that are no numbers of the right sign; stages that differ in number;
        leakage times resistance of 1 or more (the device would run away).

    Notes
    -----
    Leakage is heat: x' = -x / tau + (R / tau)(P + leakage sum x). That is a Foster
    network again, of the eigenvalues of this system, which is symmetric in the scaled
    variables x_k sqrt(tau_k / R_k).
    """
    where = f"mechanism {name!r}"
    R, tau = (
        np.array([number(v, f"{where}, {what}", unit, open=True) for v in _each(given)])
        for given, what, unit in (
            (resistance, "resistance", "K/W"),
            (time_constant, "time constant", "s"),
        )
    )
    if R.size != tau.size or not R.size:
        raise InputError(
            f"{where}: {R.size} resistances and {tau.size} time constants, expected as "
            "many, at least one"
        )
    leak = number(leakage, f"{where}, leakage", "W/K")
    limit = np.inf
    if threshold is not None:
        limit = number(threshold, f"{where}, threshold", "K")
    slope = number(throttling, f"{where}, throttling", "1/K")
    if threshold is None and slope > 0.0:
        raise InputError(f"{where}: throttling is {slope:g} 1/K without a threshold")
    if leak * R.sum() >= 1.0:
        raise InputError(
            f"{where}: leakage {leak:g} W/K times resistance {R.sum():g} K/W is "
            f"{leak * R.sum():g}, expected below 1: the device would run away"
        )
    if leak > 0.0:
        R, tau = _closed(R, tau, leak)
    model = Thermal(R, tau, leak, limit, slope)

    def effect(state: State, load: Load) -> Effect:
        # What draws nothing waits, for as long as the schedule says.
        part = share(load.trace, name) * (load.energy > 0.0)
        return Effect(time_scale=part * model.slowdown(model.rise(state)))

    return Mechanism(
        name=name,
        cause="heat of earlier executions raises leakage and lowers clocks",
        timescale=f"{float(tau.min()):g} s to {float(tau.max()):g} s",
        protocol="energy at several device temperatures, all else fixed",
        variables=tuple(StateVariable(v, "K") for v in model.names),
        run=model.after,
        effect=effect,
        static_energy=model.leaked,
        devices=None if devices is None else tuple(devices),
        parameters=model,
    )


def _each(given: float | npt.ArrayLike) -> list[object]:
    return np.atleast_1d(np.asarray(given, dtype=object)).tolist()


def _closed(
    R: FloatArray, tau: FloatArray, leak: float
) -> tuple[FloatArray, FloatArray]:
    """Resistances and time constants with leakage fed back."""
    root = np.sqrt(R / tau)
    # With x = root y: y' = (-1 / tau + leak root root') y + root P, symmetric.
    rates, modes = np.linalg.eigh(np.diag(-1.0 / tau) + leak * np.outer(root, root))
    # Rise = root' y = sum over modes of (root' m)^2 / rate (1 - e^(-rate t)) P.
    gain = (root @ modes) ** 2
    rates = -rates
    order = np.argsort(1.0 / rates)
    return (gain / rates)[order], (1.0 / rates)[order]
