"""A thermal mechanism from times alone: a record that drifts as its device warms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.fitting import Estimate, columns, lag, least
from probcalc.mechanisms.registry import Mechanism
from probcalc.mechanisms.thermal import thermal
from probcalc.runs import not_negative_runs

__all__ = ["DriftFit", "fit_drift"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DriftFit:
    """A thermal stage fitted to times alone, without any temperature.

    Attributes
    ----------
    base : Estimate
        Time of a run in the context that the record starts in, s.
    gain : Estimate
        Relative growth of times after a long time, per watt beyond the baseline: the
        product of resistance and throttling, which times do not tell apart.
    time_constant : Estimate
        s.
    residual : float
        Spread of what the model leaves over, s.
    """

    base: Estimate
    gain: Estimate
    time_constant: Estimate
    residual: float

    def mechanism(self, *, name: str = "thermal") -> Mechanism:
        """Return the mechanism, with 1 K/W for the resistance that is not known.

        The null context is that in which the record starts; it throttles from there.
        """
        return thermal(
            resistance=1.0,
            time_constant=self.time_constant.value,
            threshold=0.0,
            throttling=self.gain.value,
            name=name,
        )


def fit_drift(
    time: npt.ArrayLike, power: npt.ArrayLike, *, level: float = 0.95
) -> DriftFit:
    """Fit a thermal stage to the times of runs that follow each other without a gap.

    Parameters
    ----------
    time : array_like, shape (runs,)
        s, in the order they came.
    power : array_like, shape (runs,)
        Mean draw of each run beyond the baseline, W.

    Raises
    ------
    InputError
        Lengths that differ, fewer than 8 runs, times that do not grow.

    Notes
    -----
    T_i = T_0 (1 + g y_i), y' = (P - y) / tau, y = 0 at the start. Least squares, errors
    as in `fit_thermal`.
    """
    where = "drift record"
    y, p = columns(where, time=time, power=power)
    not_negative_runs(y, f"{where}, time", "s")

    def model(x: FloatArray) -> FloatArray:
        base, gain, log_tau = x
        decay = np.exp(-y / math.exp(log_tau))
        found, state = np.empty_like(y), 0.0
        for i, d in enumerate(decay):
            found[i] = base * (1.0 + gain * state)
            state = state * d + p[i] * (1.0 - d)
        return found

    best = None
    grown = max(float(y[-3:].mean() / y[0] - 1.0), 1e-3) / max(float(p.mean()), 1e-9)
    for share in (0.05, 0.2, 0.5):
        found = least(
            model, y, np.array([y[0], grown, math.log(share * float(y.sum()))])
        )
        if best is None or found[2] < best[2]:
            best = found
    assert best is not None
    x, cov, _ = best
    if x[1] <= 0.0 or not np.isfinite(cov).all():
        raise InputError(f"{where}: times do not grow, there is no drift to describe")
    rest = y - model(x)
    r = max(lag(rest), 0.0)
    cov = cov * (1.0 + r) / max(1.0 - r, 1e-3)
    freedom = max((y.size - 3) * (1.0 - r) / (1.0 + r), 1.0)
    se = np.sqrt(np.diag(cov))
    log = Estimate.of(float(x[2]), float(se[2]), freedom, "", level)
    tau = math.exp(x[2])
    return DriftFit(
        Estimate.of(float(x[0]), float(se[0]), freedom, "s", level),
        Estimate.of(float(x[1]), float(se[1]), freedom, "1/W", level),
        Estimate(
            tau, tau * log.error, math.exp(log.lower), math.exp(log.upper), "s", level
        ),
        float(np.sqrt(rest @ rest / max(y.size - 3, 1))),
    )
