"""Characterisation: parameters of mechanisms from measured runs (App. A).

Each fit isolates one mechanism, as its protocol says: temperatures with the power that
made them, static power at several temperatures, runs beside others against runs alone,
warm against cold runs. Every number comes with its confidence interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from probcalc.distribution import as_samples
from probcalc.driftfit import DriftFit, fit_drift
from probcalc.errors import InputError
from probcalc.fitting import Estimate, columns, lag, least
from probcalc.runs import not_negative_runs

__all__ = [
    "CacheFit",
    "DriftFit",
    "Estimate",
    "ThermalFit",
    "ThrottlingFit",
    "fit_cache",
    "fit_contention",
    "fit_drift",
    "fit_leakage",
    "fit_thermal",
    "fit_throttling",
]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ThermalFit:
    """A thermal stage fitted to a record of temperature and power.

    Attributes
    ----------
    resistance, time_constant, ambient : Estimate
        K/W, s, and the temperature without any power beyond the baseline, K.
    residual : float
        Spread of what the model leaves over, K.
    lag_correlation : float
        Of neighbouring residuals; the errors allow for it.
    """

    resistance: Estimate
    time_constant: Estimate
    ambient: Estimate
    residual: float
    lag_correlation: float


@dataclass(frozen=True, slots=True)
class ThrottlingFit:
    """Times against temperature rise, flat up to a threshold.

    Attributes
    ----------
    threshold : Estimate
        K.
    slope : Estimate
        Relative growth of times beyond it, 1/K.
    base : Estimate
        Time up to the threshold, s.
    """

    threshold: Estimate
    slope: Estimate
    base: Estimate


@dataclass(frozen=True, slots=True)
class CacheFit:
    """What resident bytes save; `probcalc.mechanisms.cache` takes both."""

    time_per_byte: Estimate
    energy_per_byte: Estimate


def fit_thermal(
    time: npt.ArrayLike,
    temperature: npt.ArrayLike,
    power: npt.ArrayLike,
    *,
    level: float = 0.95,
) -> ThermalFit:
    """Fit R and tau of one thermal stage to a record; independence is not assumed.

    Parameters
    ----------
    time : array_like, shape (readings,)
        s, increasing.
    temperature : array_like, shape (readings,)
        K (differences alone matter).
    power : array_like, shape (readings,)
        Beyond the baseline, W, constant from each reading to the next.
    level : float

    Raises
    ------
    InputError
        Lengths that differ, fewer than 8 readings, times that do not increase, power
        that never changes temperature enough to tell R and tau.

    Notes
    -----
    Least squares over ambient, R, tau and the first temperature; covariance of
    Gauss-Newton times (1 + r) / (1 - r) with the correlation r of neighbouring
    residuals.
    """
    where = "thermal record"
    t, y, p = columns(
        where, time=time, temperature=temperature,
        power=power,
    )  # fmt: skip
    steps = np.diff(t)
    if not (steps > 0.0).all():
        i = int(np.argmax(steps <= 0.0))
        raise InputError(f"{where}: time of reading {i + 1} does not increase")

    def model(x: FloatArray) -> FloatArray:
        ambient, R, log_tau, first = x
        decay = np.exp(-steps / math.exp(log_tau))
        found = np.empty_like(y)
        found[0] = rise = first
        for i, d in enumerate(decay):
            found[i + 1] = rise = rise * d + R * p[i] * (1.0 - d)
        return ambient + found

    span = float(t[-1] - t[0])
    size = max(float(np.ptp(p)), 1e-9)
    best = None
    for share in (0.03, 0.1, 0.3, 1.0):
        start = np.array(
            [y.min(), max(float(np.ptp(y)), 1e-6) / size, math.log(share * span), 0.0]
        )
        found = least(model, y, start)
        if best is None or found[2] < best[2]:
            best = found
    assert best is not None
    x, cov, _ = best
    rest = y - model(x)
    if not np.isfinite(cov).all() or x[1] <= 0.0:
        raise InputError(
            f"{where}: R = {x[1]:.3g} K/W does not follow from {t.size} readings over "
            f"{span:.3g} s; expected power that steps up or down for some time "
            "constants"
        )
    r = max(lag(rest), 0.0)
    cov = cov * (1.0 + r) / max(1.0 - r, 1e-3)
    freedom = max((t.size - 4) * (1.0 - r) / (1.0 + r), 1.0)
    se = np.sqrt(np.diag(cov))
    log = Estimate.of(float(x[2]), float(se[2]), freedom, "", level)
    tau = math.exp(x[2])
    constant = Estimate(
        tau, tau * log.error, math.exp(log.lower), math.exp(log.upper), "s", level
    )
    return ThermalFit(
        Estimate.of(float(x[1]), float(se[1]), freedom, "K/W", level),
        constant,
        Estimate.of(float(x[0]), float(se[0]), freedom, "K", level),
        float(np.sqrt(rest @ rest / max(t.size - 4, 1))),
        r,
    )


def fit_leakage(
    temperature: npt.ArrayLike, static_power: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Fit the leakage slope: a line through static power against temperature, W/K.

    Parameters
    ----------
    temperature, static_power : array_like, shape (readings,)
        K and W, each reading of a device at rest, independent of the others.

    Raises
    ------
    InputError
        Lengths that differ, fewer than 8 readings, one temperature alone.
    """
    where = "leakage record"
    x, y = columns(where, temperature=temperature, power=static_power)
    x = x - x.mean()
    if float(x @ x) == 0.0:
        raise InputError(f"{where}: all readings at one temperature, expected several")
    slope = float(x @ y) / float(x @ x)
    rest = y - y.mean() - slope * x
    error = math.sqrt(float(rest @ rest) / (x.size - 2) / float(x @ x))
    return Estimate.of(slope, error, x.size - 2, "W/K", level)


def fit_throttling(
    rise: npt.ArrayLike, time: npt.ArrayLike, *, level: float = 0.95
) -> ThrottlingFit:
    """Fit threshold and slope of throttling to times at several temperature rises.

    Parameters
    ----------
    rise, time : array_like, shape (runs,)
        K over the null context, and s.

    Raises
    ------
    InputError
        As `fit_leakage`; times that do not grow anywhere.
    """
    where = "throttling record"
    x, y = columns(where, rise=rise, time=time)
    not_negative_runs(y, f"{where}, time", "s")

    def model(v: FloatArray) -> FloatArray:
        base, slope, limit = v
        return base * (1.0 + slope * np.maximum(x - limit, 0.0))

    best = None
    for limit in np.quantile(x, np.linspace(0.05, 0.9, 18)):
        above = np.maximum(x - limit, 0.0)
        line = np.polyfit(above, y, 1) if np.ptp(above) > 0.0 else (0.0, y.mean())
        start = np.array([line[1], line[0] / line[1], limit])
        found = least(model, y, start)
        if best is None or found[2] < best[2]:
            best = found
    assert best is not None
    v, cov, _ = best
    if v[1] <= 0.0 or not np.isfinite(cov).all():
        raise InputError(
            f"{where}: times do not grow with the rise from {x.min():.3g} to "
            f"{x.max():.3g} K, expected some beyond a threshold"
        )
    se, n = np.sqrt(np.diag(cov)), x.size - 3
    return ThrottlingFit(
        Estimate.of(float(v[2]), float(se[2]), n, "K", level),
        Estimate.of(float(v[1]), float(se[1]), n, "1/K", level),
        Estimate.of(float(v[0]), float(se[0]), n, "s", level),
    )


def fit_contention(
    alone: npt.ArrayLike,
    beside: Sequence[npt.ArrayLike],
    excess: Sequence[float],
    *,
    level: float = 0.95,
) -> Estimate:
    """Fit the slowdown of a resource: growth of times per relative excess demand.

    Parameters
    ----------
    alone : array_like, shape (runs,)
        Times in isolation, s.
    beside : sequence of array_like
        Times beside others, one array for each co-running set.
    excess : sequence of float
        Total demand over capacity less one of each set, above 0.

    Raises
    ------
    InputError
        Counts that differ, fewer than 2 runs of a set, an excess that is not positive.

    Notes
    -----
    Weighted least squares through the origin of the relative growths; the mean in
    isolation, common to all, is propagated once.
    """
    base = as_samples(alone, where="runs alone")
    sets = [as_samples(b, where=f"runs beside, set {i}") for i, b in enumerate(beside)]
    if len(sets) != len(excess) or not sets:
        raise InputError(
            f"contention record: {len(sets)} sets and {len(excess)} excesses, expected "
            "as many, at least one"
        )
    for name, runs in [("alone", base), *((f"set {i}", s) for i, s in enumerate(sets))]:
        not_negative_runs(runs, f"contention record, {name}, time", "s")
        if runs.size < 2:
            raise InputError(f"contention record: one run of {name}, expected two")
    x = np.array(excess, dtype=float)
    if not (np.isfinite(x) & (x > 0.0)).all():
        raise InputError(
            f"contention record: excess is {x.tolist()}, expected above 0: below the "
            "capacity nothing happens"
        )
    mean, own = float(base.mean()), float(base.var(ddof=1) / base.size)
    if mean <= 0.0:
        raise InputError("contention record: mean time alone is 0 s, expected above 0")
    growth = np.array([s.mean() / mean - 1.0 for s in sets])
    variance = np.array([s.var(ddof=1) / s.size for s in sets]) / mean**2
    weight = x / np.maximum(variance, 1e-300)
    slope = float(weight @ growth / (weight @ x))
    shared = float(weight @ (1.0 + growth) / (weight @ x))
    error = math.sqrt(1.0 / float(weight @ x) + shared**2 * own / mean**2)
    freedom = float(min(base.size, *(s.size for s in sets)) - 1)
    return Estimate.of(slope, error, freedom, "1 per relative excess", level)


def fit_cache(
    cold: tuple[npt.ArrayLike, npt.ArrayLike],
    warm: tuple[npt.ArrayLike, npt.ArrayLike],
    resident: float,
    *,
    level: float = 0.95,
) -> CacheFit:
    """Fit what each resident byte saves: cold runs less warm ones.

    Parameters
    ----------
    cold, warm : (array_like, array_like)
        Times in s and dynamic energies in J of runs; independent of each other.
    resident : float
        Bytes that are there when a warm run starts, of those that it uses.

    Raises
    ------
    InputError
        Fewer than 2 runs, no resident bytes.
    """
    if not (math.isfinite(resident) and resident > 0.0):
        raise InputError(f"cache record: resident is {resident!r} B, expected above 0")
    found = []
    for k, (what, unit) in enumerate((("time", "s/B"), ("dynamic energy", "J/B"))):
        a, b = (
            as_samples(runs[k], where=f"cache record, {name}, {what}")
            for name, runs in (("cold", cold), ("warm", warm))
        )
        if a.size < 2 or b.size < 2:
            raise InputError(f"cache record: one run of {what}, expected two of each")
        va, vb = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
        total = float(va + vb)
        # Welch and Satterthwaite.
        parts = va**2 / (a.size - 1) + vb**2 / (b.size - 1)
        freedom = total**2 / float(parts) if parts > 0.0 else float(a.size + b.size - 2)
        saved = float(a.mean() - b.mean())
        found.append(
            Estimate.of(
                saved / resident, math.sqrt(total) / resident, freedom, unit, level
            )
        )
    return CacheFit(*found)
