"""Does a record drift? Runs of one process against the order they came in."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from probcalc.distribution import as_samples
from probcalc.errors import InputError
from probcalc.validation.verdict import Claim, Verdict, decided, intersection

__all__ = ["FEWEST", "drift"]

FEWEST = 12


def drift(
    values: npt.ArrayLike,
    *,
    margin: float,
    unit: str,
    name: str = "record",
    level: float = 0.95,
) -> Verdict:
    """Whether values stay the same, but for a margin, from the first run to the last.

    A line through the runs in their order; its error allows for neighbouring runs that
    vary together (Newey and West 1987, Bartlett weights). A record that drifts depends
    on what ran before: its spread is no noise of single runs.

    Parameters
    ----------
    values : array_like, shape (runs,)
        In the order they came.
    margin : float
        Declared before the data, in `unit`.

    Raises
    ------
    InputError
        Fewer than 12 runs.
    """
    from scipy import special

    y = as_samples(values, where=name)
    n = y.size
    if n < FEWEST:
        raise InputError(f"{name}: {n} runs, expected at least {FEWEST} to see a drift")
    claim = Claim(f"{name} does not drift", margin, unit, level)
    x = np.arange(n) - 0.5 * (n - 1)
    size = float(x @ x)
    slope = float(x @ y) / size
    moments = x * (y - y.mean() - slope * x)
    lags = math.floor(4.0 * (n / 100.0) ** (2.0 / 9.0))
    total = float(moments @ moments)
    for lag in range(1, lags + 1):
        weight = 1.0 - lag / (lags + 1.0)
        total += 2.0 * weight * float(moments[lag:] @ moments[:-lag])
    # Small samples: as many degrees of freedom as runs that are far enough apart.
    freedom = max((n - 2) / (lags + 1.0), 1.0)
    error = math.sqrt(max(total, 0.0) * n / (n - 2.0)) / size
    whole = slope * (n - 1)
    holding = float(special.stdtrit(freedom, level)) * error * (n - 1)
    refuting = float(special.stdtrit(freedom, 0.5 + 0.5 * level)) * error * (n - 1)
    part = decided(
        "first to last",
        abs(whole),
        max(abs(whole) - refuting, 0.0),
        abs(whole) + holding,
        claim,
        blocks=0,
        reason=f"{whole:+.4g} {unit} over {n} runs",
    )
    return intersection(
        claim, [part], [("runs", n)], ["a line, with correlated neighbours"]
    )
