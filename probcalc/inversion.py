"""Sums of independent laws whose transform is known, by certified inversion.

Normal, gamma (exponential, chi squared, Erlang), uniform, inverse Gaussian and
exponentially modified normal laws, constants, and measured laws beside at least one of
these: the moment generating function of the sum is a product of closed forms, and tail
probabilities follow from it by a tilted Bromwich sum of some tens of terms, with an
error bound that holds (`probcalc.kernels.inversion` has the identity and the bounds).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probcalc.distribution import Constant, Empirical, levels
from probcalc.errors import InputError
from probcalc.families import family_of
from probcalc.line import LEAST_TILT, UNIT, Line, newton
from probcalc.rows import Rows, add_rows, finished
from probcalc.spectral import spectral_estimate

__all__ = ["Inversion", "inversion_of", "spectral_estimate"]

#: Errors aimed at relative to the tail, the first that the number of terms allows.
GOALS = (1e-15, 1e-12, 1e-9, 1e-6)
MAX_TERMS = 1 << 15
#: Shares of the wanted tilt that are tried in turn.
SHARES = (1.0, 0.8, 0.6)


@dataclass(frozen=True, slots=True, eq=False)
class Inversion:
    """Law of a sum of independent laws with known transforms.

    Made by `inversion_of`. All bounds are certified: aliasing, the terms left out and
    floating-point rounding are included.

    Parameters
    ----------
    table : array, shape (factors, 4)
        Rows as in `probcalc.kernels.inversion`.
    at, mass : arrays
        Atoms of measured laws.
    constant : Fraction
        Exact constant of the sum; the factors are without their locations.
    lower, upper : float
        Support without the constant.
    """

    table: NDArray[np.float64] = field(repr=False)
    at: NDArray[np.float64] = field(repr=False)
    mass: NDArray[np.float64] = field(repr=False)
    constant: Fraction
    lower: float
    upper: float
    deviation: float

    def _factors(self) -> tuple[Any, Any, Any]:
        return self.table, self.at, self.mass

    def _line(self, t: float, y: float, density: bool = False) -> Line | None:
        from probcalc.kernels.bromwich import terms_of
        from probcalc.kernels.inversion import cgf, cutoff, window

        # Close to the end of the strip the copies fall off slowly and the sum gets
        # long: a tilt nearer to 0 costs some rounding and may need far fewer terms.
        for goal, share in itertools.product(GOALS, SHARES):
            tilt = t * share
            k0, _, k2, size = cgf(*self._factors(), tilt)
            if not (math.isfinite(k0) and 0.0 < k2 < math.inf):
                continue
            # the tail is about exp(K - t y) / (1 + sqrt(2 pi) t sd)
            pole = math.log1p(math.sqrt(2.0 * math.pi * k2) * abs(tilt))
            tail = k0 - tilt * y - pole
            copies = window(*self._factors(), tilt, y, tail + math.log(goal))
            terms, *cut = cutoff(
                *self._factors(), tilt, copies[0], math.log(goal), MAX_TERMS, density
            )
            if terms:
                break
        else:
            return None
        series = terms_of(*self._factors(), tilt, copies[0], terms)
        relative = UNIT * (4.0 + len(self.table)) * (size + 1.0)
        return Line(
            tilt, k0, relative, copies[0], copies[1:3], copies[3:], (*cut,), series
        )

    def _tilt(self, t: float, upper: bool) -> float:
        """Tilt `t`, kept away from 0 on the side wanted and inside the strip."""
        from probcalc.kernels.inversion import strip

        low, high = strip(self.table)
        least = LEAST_TILT / self.deviation
        if upper:
            start = max(t, 0.0)
            return min(max(t, least), 0.5 * (start + high))
        start = min(t, 0.0)
        return max(min(t, -least), 0.5 * (start + low))

    def _line_for(self, y: float, density: bool = False) -> Line | None:
        from probcalc.kernels.inversion import solve_saddle

        t = solve_saddle(*self._factors(), y, 0.0)
        return self._line(self._tilt(t, t >= 0.0), y, density)

    def bounds(self, x: float) -> tuple[float, float, float, float]:
        """Certified ``(sf_low, sf_high, cdf_low, cdf_high)`` at `x`.

        The smaller tail is bounded directly, the other as its complement.
        """
        y = self._local(x)
        if y <= self.lower:
            return 1.0, 1.0, 0.0, 0.0
        if y >= self.upper:
            return 0.0, 0.0, 1.0, 1.0
        line = self._line_for(y)
        if line is None:
            return 0.0, 1.0, 0.0, 1.0
        _, low, high, _, _ = line.at(y)
        if not low <= high:
            return 0.0, 1.0, 0.0, 1.0
        other = max(1.0 - high - UNIT, 0.0), min(1.0 - low + UNIT, 1.0)
        return (low, high, *other) if line.t > 0.0 else (*other, low, high)

    def sf_bounds(self, x: float) -> tuple[float, float]:
        """Certified bounds of P(S > x)."""
        return self.bounds(x)[:2]

    def cdf_bounds(self, x: float) -> tuple[float, float]:
        """Certified bounds of P(S <= x)."""
        return self.bounds(x)[2:]

    def pdf_bounds(self, x: float) -> tuple[float, float]:
        """Certified bounds of the density at `x`; (0, inf) where there are none."""
        from probcalc.kernels.inversion import cgf, density_norm

        y = self._local(x)
        if not self.lower < y < self.upper:
            return 0.0, 0.0
        line = self._line_for(y, density=True)
        if line is None:
            return 0.0, math.inf
        _, _, _, density, off = line.at(y)
        # Copies f(y + kW) exp(t k W): f <= exp(K(e) - e y) (1/2 pi) int |phi_e|.
        for log, e in (line.above, line.below):
            spread = 1.0 / math.sqrt(cgf(*self._factors(), e)[2])
            off += math.exp(log - e * y) * density_norm(self.table, e, spread)
        off += 4.0 * UNIT * abs(density)
        if not math.isfinite(density) or math.isnan(off):
            return 0.0, math.inf
        return max(density - off, 0.0), density + off

    def pdf(self, x: float) -> float:
        """Density at `x`, the middle of `pdf_bounds`; nan where these are open."""
        low, high = self.pdf_bounds(x)
        return 0.5 * (low + high) if high < math.inf else math.nan

    def quantile_bounds(
        self, p: float | None = None, *, sf: float | None = None
    ) -> tuple[float, float, float]:
        """Quantile and a certified bracket of it, ``(value, lower, upper)``.

        Raises
        ------
        InputError
            Unless exactly one of `p` and `sf` is given, strictly between 0 and 1.
        """
        from probcalc.kernels.inversion import cgf, solve_level

        below, above = levels(p, sf)
        # 1 - p is exact for p >= 1/2, so the smaller tail's level is always exact.
        upper = above <= below
        goal = above if upper else below
        sign = 1.0 if upper else -1.0
        t = solve_level(*self._factors(), math.log(goal), upper)
        y = cgf(*self._factors(), t)[1]
        line = self._line(self._tilt(t, upper), y)
        if line is None:
            return self._global(y), self._global(self.lower), self._global(self.upper)
        y, slack = newton(line, y, goal, sign)
        # From the tail to the bracket: the tail above the goal means below the
        # quantile on the upper side, above it on the lower side.
        found = [self.lower, self.upper]
        for side in (-1.0, 1.0):
            step = slack
            for _ in range(16):
                near = y + side * step
                _, low, high, _, _ = line.at(near)
                proven = low > goal if side * sign < 0.0 else high < goal
                if proven and self.lower < near < self.upper:
                    found[0 if side < 0.0 else 1] = near
                    break
                step *= 3.0
        low, high = (self._global(v) for v in found)
        return (
            self._global(y),
            math.nextafter(low, -math.inf),
            math.nextafter(high, math.inf),
        )

    def _local(self, x: float) -> float:
        """Subtract the constant, rounded once; infinite x stays."""
        return float(Fraction(x) - self.constant) if math.isfinite(x) else x

    def _global(self, y: float) -> float:
        return float(Fraction(y) + self.constant) if math.isfinite(y) else y


def inversion_of(
    terms: Sequence[tuple[object, int]], constant: float = 0.0
) -> Inversion | None:
    """Law of ``constant + sum of count copies of each law``, all independent.

    Parameters
    ----------
    terms : sequence of (law, count)
        Laws and how many independent copies of each enter the sum.
    constant : float
        Added to the sum.

    Returns
    -------
    Inversion or None
        None where a law has no closed transform and no atoms, or where the transform
        of the sum decays too slowly to be cut off (one exponential, two uniforms).

    Raises
    ------
    InputError
        A count that is not a positive integer.

    Examples
    --------
    >>> from scipy import stats
    >>> law = inversion_of([(stats.uniform(-0.5, 4.0), 1), (stats.norm(0, 0.3), 1)])
    >>> round(law.pdf(0.0), 9)
    0.238052412
    """
    exact = Fraction(constant)
    rows: Rows = {}
    atoms: list[tuple[Empirical, int]] = []
    for law, count in terms:
        if count < 1 or count != int(count):
            raise InputError(
                f"inversion: count = {count!r} of {law!r:.60}, "
                "expected a positive integer"
            )
        if isinstance(law, Constant):
            exact += Fraction(law.value) * int(count)
        elif isinstance(law, Empirical):
            atoms.append((law, int(count)))
        else:
            family = family_of(law)
            if family is None or not family.smooth:
                return None
            exact += add_rows(rows, family, int(count))
    if not rows:
        return None
    return _assembled(rows, atoms, exact)


def _assembled(
    rows: Rows,
    atoms: Sequence[tuple[Empirical, int]],
    constant: Fraction,
) -> Inversion | None:
    from probcalc.kernels.inversion import cgf

    table = finished(rows)
    lower, upper = Fraction(0), Fraction(0)
    open_below = open_above = False
    for kind, n, _, b in table:
        if kind == 2:
            lower -= Fraction(n) * Fraction(b)
            upper += Fraction(n) * Fraction(b)
        else:
            open_below |= kind == 0 or b < 0.0
            open_above |= kind == 0 or b > 0.0
    start = 0
    for law, count in atoms:
        stop = start + law.atoms.size
        table.append((4.0, float(count), float(start), float(stop)))
        lower += count * Fraction(float(law.atoms[0]))
        upper += count * Fraction(float(law.atoms[-1]))
        start = stop
    low, high = float(lower), float(upper)
    low = low if low <= lower else math.nextafter(low, -math.inf)
    high = high if high >= upper else math.nextafter(high, math.inf)
    low, high = -math.inf if open_below else low, math.inf if open_above else high
    arrays = (
        np.array(table),
        np.concatenate([law.atoms for law, _ in atoms]) if atoms else np.zeros(0),
        np.concatenate([law.mass for law, _ in atoms]) if atoms else np.zeros(0),
    )
    for array in arrays:
        array.flags.writeable = False
    variance = cgf(*arrays, 0.0)[2]
    if not 0.0 < variance < math.inf:
        return None
    law = Inversion(*arrays, constant, low, high, math.sqrt(variance))
    mean = float(cgf(*arrays, 0.0)[1])
    return None if law._line(law._tilt(0.0, True), mean) is None else law
