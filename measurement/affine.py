"""From energies of windows to energies of runs, through the times of the runs.

A window over k runs gives the mean of k: its variance is a k-th of a run's and its
shape is lost. The time of each run is seen, so where d is affine in T the energy is
too, E = s T + d = a + b T, and the law of T carries over. That needs window means of
T that vary enough to tell b.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.readonly import reduced
from probcalc.runs import whole

__all__ = ["AffineEnergy", "fit_affine", "mean_of_runs"]

FloatArray = npt.NDArray[np.float64]

LEAST_WINDOWS = 5


@dataclass(frozen=True, slots=True, eq=False)
class AffineEnergy:
    """E = a + b T from window means, and whether they could tell b.

    Attributes
    ----------
    intercept, slope : float
        a in J and b in W. With b not identifiable both are only what came out.
    covariance : FloatArray, shape (2, 2)
        Of a and b, in J^2, J W and W^2.
    grain : int
        Runs in each window.
    windows : int
    residual : float
        Standard deviation in J of window means around the line.
    spread : float
        Standard deviation of the window means of T over their mean.
    half_width : float
        Of the 95 % confidence interval of b, in W.
    scale : float
        What `half_width` is compared to in W: the larger of |b| and static power.
    tolerance : float
        Largest `half_width` over `scale` that tells b.
    lowest, highest : float
        Window means of T in s that were seen.
    """

    intercept: float
    slope: float
    covariance: FloatArray
    grain: int
    windows: int
    residual: float
    spread: float
    half_width: float
    scale: float
    tolerance: float
    lowest: float
    highest: float

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    @property
    def identifiable(self) -> bool:
        """Whether the window means of T vary enough to tell the slope."""
        return self.half_width <= self.tolerance * self.scale

    @property
    def run_residual(self) -> float:
        """Most that a run's energy can scatter around the line, sd in J.

        Were all the scatter of the windows that of independent runs, a run's would be
        root k times it. It holds the instrument's noise too: the energies that come
        of the line leave it out, and this says how much that may be.
        """
        return self.residual * math.sqrt(self.grain)

    @property
    def report(self) -> str:
        """The identifiability report, in one line."""
        verdict = "identifiable" if self.identifiable else "not identifiable"
        return (
            f"{verdict}: b = {self.slope:.4g} +- {self.half_width:.3g} W (95 % "
            f"confidence), expected within {self.tolerance * self.scale:.3g} W; window "
            f"means of T vary by {100 * self.spread:.3g} % (sd) over {self.windows} "
            f"windows of {self.grain} runs; scatter around the line (sd) "
            f"{self.residual:.3g} J a window, at most {self.run_residual:.3g} J a run"
        )

    def energies(self, time: npt.ArrayLike) -> FloatArray:
        """Return the energy a + b T in J of runs of T in s.

        Raises
        ------
        InputError
            The slope is not identifiable, or an energy comes out negative.
        """
        if not self.identifiable:
            raise InputError(
                f"affine energy: slope {self.report}; measure at other clocks or "
                "sizes so that T varies, or keep the law of means (mean_of_runs)"
            )
        times = np.asarray(time, dtype=float)
        found = self.intercept + self.slope * times
        bad = np.flatnonzero(~(found >= 0.0))
        if bad.size:
            raise InputError(
                f"affine energy: run {bad[0]} of T = {times.flat[bad[0]]:g} s comes to "
                f"{found.flat[bad[0]]:g} J, expected >= 0"
            )
        return found

    def element(
        self,
        name: str,
        time: npt.ArrayLike,
        *,
        static_power: float,
        device: str,
        blocks: Sequence[Hashable] | None = None,
        **fields: Any,
    ) -> Element:
        """Return an element of single runs (grain 1) from the times of its runs.

        Parameters
        ----------
        time : array_like, shape (runs,)
            T of each run in s.
        static_power, device, blocks, **fields
            As for `Element.from_runs`.
        """
        metadata = {**fields.pop("metadata", {}), "energy_route": self.report}
        return Element.from_runs(
            name,
            time=time,
            energy=self.energies(time),
            static_power=static_power,
            device=device,
            blocks=blocks,
            metadata=metadata,
            **fields,
        )


def fit_affine(
    time: npt.ArrayLike,
    energy: npt.ArrayLike,
    *,
    grain: int | Sequence[int],
    static_power: float = 0.0,
    tolerance: float = 0.25,
) -> AffineEnergy:
    """Fit E = a + b T to window means, with the report of what they identify.

    Windows are taken as independent.

    Parameters
    ----------
    time, energy : array_like, shape (windows,)
        Mean T in s and mean E in J over the runs of each window.
    grain : int or sequence of int
        Runs in each window; one grain for all.
    static_power : float
        In W: b is at least about that, and its error is weighed against it.
    tolerance : float
        Largest half-width of b's 95 % interval relative to b or static power.

    Raises
    ------
    InputError
        Fewer than 5 windows, grains that differ, values that are not finite or
        negative, lengths that differ.
    """
    x, y = np.asarray(time, float), np.asarray(energy, float)
    if x.ndim != 1 or x.shape != y.shape:
        raise InputError(
            f"affine energy: times of shape {x.shape} and energies of shape {y.shape}, "
            "expected one of each for every window"
        )
    for name, values in (("time", x), ("energy", y)):
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0.0)))
        if bad.size:
            raise InputError(
                f"affine energy: {name}[{bad[0]}] is {values[bad[0]]}, expected a "
                "finite number >= 0"
            )
    runs = _one_grain(grain)
    if x.size < LEAST_WINDOWS:
        raise InputError(
            f"affine energy: {x.size} windows, expected at least {LEAST_WINDOWS}"
        )
    middle = float(x.mean())
    off = x - middle
    square = float(off @ off)
    # Means that differ by the rounding of their own computation do not differ.
    if square <= (1e-12 * middle) ** 2 * x.size:
        slope, left, half, variances = 0.0, y - y.mean(), math.inf, (math.inf, 0.0)
        residual = float(np.std(left, ddof=1))
    else:
        slope = float(off @ y) / square
        left = y - y.mean() - slope * off
        residual = math.sqrt(float(left @ left) / (x.size - 2))
        variances = (residual**2 / square, residual**2 / x.size)
        half = math.sqrt(variances[0]) * float(special.stdtrit(x.size - 2, 0.975))
    steep, level = variances
    cross = 0.0 if math.isinf(steep) else -middle * steep
    covariance = np.array([[level + middle**2 * steep, cross], [cross, steep]])
    covariance.setflags(write=False)
    return AffineEnergy(
        intercept=float(y.mean()) - slope * middle,
        slope=slope,
        covariance=covariance,
        grain=runs,
        windows=int(x.size),
        residual=residual,
        spread=math.sqrt(square / (x.size - 1)) / middle if middle > 0.0 else 0.0,
        half_width=half,
        scale=max(abs(slope), float(static_power)),
        tolerance=tolerance,
        lowest=float(x.min()),
        highest=float(x.max()),
    )


def mean_of_runs(
    name: str,
    time: npt.ArrayLike,
    energy: npt.ArrayLike,
    *,
    grain: int | Sequence[int],
    static_power: float,
    device: str,
    **fields: Any,
) -> Element:
    """Return an element of window means, which keeps the grain it was measured at.

    Parameters
    ----------
    time, energy : array_like, shape (windows,)
        Mean T in s and mean E in J over the runs of each window.
    grain : int or sequence of int
        Runs in each window; one grain for all.

    Raises
    ------
    InputError
        Grains that differ, and as for `Element.from_runs`.
    """
    return Element.from_runs(
        name,
        time=time,
        energy=energy,
        static_power=static_power,
        device=device,
        grain=_one_grain(grain),
        **fields,
    )


def _one_grain(grain: int | Sequence[int]) -> int:
    """Return the runs of every window, which must be as many."""
    if isinstance(grain, str | bytes):
        raise InputError(f"grain: expected a number of runs, got {grain!r}")
    listed = list(grain) if isinstance(grain, Sequence | np.ndarray) else [grain]
    grains = {whole(k, "grain") for k in listed}
    if len(grains) != 1:
        raise InputError(
            f"grain: windows of {sorted(grains)} runs, expected one grain; means of "
            "different numbers of runs are never mixed: fit each apart"
        )
    return grains.pop()
