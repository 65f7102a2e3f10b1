"""What power readings are means of: measured where it can be, published otherwise."""

from __future__ import annotations

import numpy as np

from probcalc.measurement.meter import Device, Trace

__all__ = ["averaging_of", "known_averaging", "known_window"]

# Part of each update period that is read, by architecture and compute capability:
# 25 of 100 ms on A100 and H100, all on other Ampere, Ada and Turing boards, 10 of 20 ms
# on Volta and Pascal (arXiv 2312.02741). It depends on the driver too.
_READ = {
    "Pascal": 0.5,
    "Volta": 0.5,
    "Turing": 1.0,
    "Ampere": 1.0,
    "Ada": 1.0,
    "Hopper": 0.25,
}
_READ_GA100 = 0.25
# Since Ampere, but not on GA100, the driver's plain power reading is a mean over 1 s.
_AVERAGING = 1.0
_AVERAGED = ("Ampere", "Ada", "Hopper", "Blackwell")
# A trace must vary by this much for a mean of it to be told apart.
_VARIES = 0.05


def known_averaging(device: Device, source: str) -> float | None:
    """Return the time in s that readings of power are means of, as published.

    0 for instant ones; None where the architecture is not known.
    """
    if source in ("power_instant", "power_samples"):
        return 0.0
    if source == "power_average":
        return _AVERAGING
    architecture = device.facts.get("architecture")
    if architecture is None:
        return None
    averaged = architecture in _AVERAGED and not _ga100(device)
    return _AVERAGING if averaged else 0.0


def known_window(device: Device, source: str, period: float | None) -> float | None:
    """Return the part of an update period in s that is read at all, as published."""
    architecture = device.facts.get("architecture")
    if period is None or architecture not in _READ or source == "power_samples":
        return None
    if source in ("power_usage", "power_average") and known_averaging(device, source):
        return None
    return period * (_READ_GA100 if _ga100(device) else _READ[architecture])


def averaging_of(average: Trace, instant: Trace) -> float | None:
    """Return the time in s that one source is the running mean of another over.

    The width of the mean of the instant readings that comes nearest to the average
    ones, in steps of 0.05 s up to 3 s; 0 where the two agree as they are.

    Returns
    -------
    float or None
        None where power varied too little to tell, or no width fits.
    """
    if len(instant) < 10 or len(average) < 10:
        return None
    t, w = instant.time, instant.value
    spread = float(np.std(w))
    if not spread > _VARIES * float(np.mean(w)):
        return None
    # A reading stands for the time since the one before it.
    joules = np.concatenate([[0.0], np.cumsum(w[1:] * np.diff(t))])
    widths = np.arange(1, 61) * 0.05
    widths = widths[widths < 0.5 * (t[-1] - t[0])]
    late = average.time >= t[0] + (widths[-1] if widths.size else 0.0)
    at, value = average.time[late], average.value[late]
    if at.size < 10:
        return None
    tried = [(0.0, np.interp(at, t, w))]
    for width in widths:
        ends = np.interp(at, t, joules), np.interp(at - width, t, joules)
        tried.append((float(width), (ends[0] - ends[1]) / width))
    errors = [float(np.sqrt(np.mean((value - model) ** 2))) for _, model in tried]
    best = int(np.argmin(errors))
    return tried[best][0] if errors[best] < 0.2 * spread else None


def _ga100(device: Device) -> bool:
    return device.facts.get("compute_capability") == "8.0"
