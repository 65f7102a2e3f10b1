"""When a one-off cost has paid off: build energy over the saving per run (step 10)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.composed import repeat
from probcalc.distribution import Constant, Distribution, Probability, as_law
from probcalc.errors import InputError

__all__ = ["BreakEven", "break_even", "break_even_length", "charged_once"]

FloatArray = npt.NDArray[np.float64]

# Strata of the build energy's law; the bracket of a probability is a stratum wide.
STRATA = 4096
ROUNDING = 1e-12  # of the laws' own functions
FEWER = 256  # where each costs a composed law


@dataclass(frozen=True, slots=True)
class BreakEven:
    """How many runs it takes to save what was spent once, as a law.

    Attributes
    ----------
    build : Distribution
        Energy spent once, in J.
    saving : Distribution
        Energy saved by a run, or by a unit of length, in J; may be negative.
    draws : {"same", "independent"}
        ``same``: one draw for every run, of what is known of the mean saving.
        ``independent``: a fresh draw in each run.
    """

    build: Distribution
    saving: Distribution
    draws: Literal["same", "independent"]

    @property
    def runs(self) -> float:
        """Mean build energy over mean saving, in runs; infinite where none is saved.

        A point: `paid_off` and `quantile` say how sure it is.
        """
        saving = float(self.saving.mean())
        return float(self.build.mean()) / saving if saving > 0.0 else math.inf

    def paid_off(self, n: float) -> Probability:
        """Return the probability that n runs have saved the build energy.

        Build energy and saving are independent. Its bracket is certified, but an
        estimate for independent draws against a build energy that is a law.

        Parameters
        ----------
        n : float
            Runs, or the length of an episode where `saving` is that of a unit of
            length; a whole number for independent draws.
        """
        if isinstance(n, bool) or not (math.isfinite(n) and n >= 0.0):
            raise InputError(f"break-even: {n!r} runs, expected a number >= 0")
        if n == 0.0:
            # Nothing is saved yet: paid off only where nothing was spent.
            spent = float(self.build.ccdf(0.0))
            return Probability(1.0 - spent, 1.0 - spent, 1.0 - spent, "certified")
        if self.draws == "same":
            return self._against(self.saving, n, STRATA)
        if n != int(n):
            raise InputError(f"break-even: {n!r} runs, expected a whole number")
        saved = repeat(self.saving, int(n))
        if isinstance(self.build, Constant):
            return saved.probability_above(math.nextafter(self.build.value, -math.inf))
        return replace(self._against(saved, 1.0, FEWER), kind="estimate")

    def quantile(self, p: float, *, most: float = 1e9) -> float:
        """Return the least whole number of runs that has paid off with probability p.

        The lower end of each probability's bracket is asked to reach p. Infinite
        where `most` runs do not; with independent draws `most` is 1e6 or less.

        Raises
        ------
        InputError
            Unless 0 < p < 1.
        """
        if not 0.0 < p < 1.0:
            raise InputError(f"break-even: p is {p!r}, expected a number in (0, 1)")
        if self.draws == "independent":
            most = min(most, 1e6)
        low, high = 0, 1
        while self.paid_off(high).lower < p:
            if high >= most:
                return math.inf
            low, high = high, min(2 * high, int(most))
        while high - low > 1:
            middle = (low + high) // 2
            if self.paid_off(middle).lower < p:
                low = middle
            else:
                high = middle
        return float(high)

    def _against(self, saved: Any, n: float, strata: int) -> Probability:
        """Return P(n x saved >= build), with the build energy cut in strata.

        P(saved >= b / n) falls with b, so that over a stratum of the build energy it
        lies between its values at the two ends.
        """
        if isinstance(self.build, Constant):
            edges = np.array([self.build.value, self.build.value])
        else:
            inner = np.arange(1, strata) / strata
            low, high = (float(x) for x in self.build.support())
            edges = np.concatenate([[low], self.build.icdf(inner), [high]])
        finite = np.isfinite(edges)
        above = np.where(edges > 0.0, 0.0, 1.0)  # of an end at infinity
        # P(S >= x) is P(S > x') for the number x' just below x.
        at = np.nextafter(edges[finite] / n, -math.inf)
        above[finite] = np.asarray(saved.ccdf(at), dtype=float)
        upper, lower = float(np.mean(above[:-1])), float(np.mean(above[1:]))
        upper, lower = min(upper + ROUNDING, 1.0), max(lower - ROUNDING, 0.0)
        return Probability(0.5 * (lower + upper), lower, upper, "certified")


def break_even(
    build: Any,
    saving: Any,
    *,
    draws: Literal["same", "independent"] = "same",
) -> BreakEven:
    """Return the law of the runs that pay for a one-off energy.

    Parameters
    ----------
    build : number or Distribution
        Energy spent once, in J, >= 0.
    saving : number or Distribution
        Energy in J that a run saves, or a unit of length.
    draws : {"same", "independent"}
        Whether all runs share one draw of the saving, as they do when its law is
        what is known of its mean, or each draws afresh.

    Raises
    ------
    InputError
        A build energy that can be negative by more than its law's rounding, an
        unknown `draws`.

    Examples
    --------
    >>> pays = break_even(20.0, 0.5)
    >>> pays.runs, pays.quantile(0.9), round(pays.paid_off(39).value, 9)
    (40.0, 40.0, 0.0)
    """
    if draws not in ("same", "independent"):
        raise InputError(
            f"break-even: draws is {draws!r}, expected 'same' or 'independent'"
        )
    spent = as_law(build, name="break-even, build")
    if float(spent.support()[0]) < 0.0 and float(spent.cdf(-math.ulp(0.0))) > 1e-9:
        raise InputError(
            "break-even: build energy can be negative, expected >= 0 J; cut the law "
            "with scipy.stats.truncate(law, lb=0)"
        )
    return BreakEven(spent, as_law(saving, name="break-even, saving"), draws)


def charged_once(build: float, saving: float, energy: float) -> float:
    """Return the net saving of an episode that pays the build energy itself.

    Parameters
    ----------
    build : float
        Energy spent once, in J.
    saving : float
        Part of the episode's energy that is saved.
    energy : float
        Energy of the episode without it, in J.

    Returns
    -------
    float
        Part of the episode's energy; negative before break-even.

    Examples
    --------
    >>> charged_once(build=20.0, saving=0.05, energy=100.0)
    -0.15
    """
    if not (math.isfinite(energy) and energy > 0.0):
        raise InputError(f"episode: energy is {energy!r} J, expected > 0")
    if not (math.isfinite(build) and build >= 0.0 and math.isfinite(saving)):
        raise InputError(f"episode: build is {build!r} J, saving {saving!r}")
    return saving - build / energy


def break_even_length(
    length: npt.ArrayLike, saved: npt.ArrayLike, build: float
) -> tuple[float, float, float]:
    """Return where the energy saved passes the build energy: below, between, above.

    Parameters
    ----------
    length : array_like, shape (episodes,)
        Ascending lengths, in s or runs.
    saved : array_like, shape (episodes,)
        Energy in J that an episode of each length saves.
    build : float
        Energy spent once, in J.

    Returns
    -------
    tuple of float
        Longest length that has not paid off, the straight line's crossing, and the
        shortest that has: 0 and infinity where the episodes do not tell, NaN for a
        crossing outside them.

    Raises
    ------
    InputError
        Lengths not ascending, or savings that cross more than once.
    """
    t, e = np.asarray(length, float), np.asarray(saved, float)
    if t.ndim != 1 or t.shape != e.shape or not t.size:
        raise InputError(f"break-even: lengths {t.shape} and savings {e.shape} differ")
    if not (np.all(np.isfinite(t)) and np.all(np.isfinite(e))):
        raise InputError("break-even: lengths and savings must be finite")
    if np.any(np.diff(t) <= 0.0):
        raise InputError("break-even: lengths must ascend")
    paid = e >= build
    if np.any(np.diff(paid.astype(int)) < 0):
        raise InputError("break-even: savings fall below the build energy again")
    first = int(np.argmax(paid)) if paid.any() else t.size
    below = 0.0 if first == 0 else float(t[first - 1])
    if first in (0, t.size):
        return below, math.nan, float(t[0]) if first == 0 else math.inf
    part = (build - e[first - 1]) / (e[first] - e[first - 1])
    return below, float(below + part * (t[first] - below)), float(t[first])
