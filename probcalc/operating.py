"""Operating sets: all settings an element can run at, and its frontier (section 6).

A setting is an implementation (kappa) and an operating point (omega), the latter with a
part that the whole device shares (a clock, a power cap) and one that is the element's
own (a share of the cores). Each setting has a law of its own; a frontier is drawn of
the means.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Empirical
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.readonly import reduced as reduced_copy

__all__ = ["ELEMENT_POINT", "OperatingSet"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Key of `Element.metadata` for the part of the operating point that is its own.
ELEMENT_POINT = "element_point"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OperatingSet:
    """The points an element can run at, each an element of its own.

    Made by `of` from numbers, or by `of_elements`.

    Attributes
    ----------
    name : str
    elements : tuple of Element
        One for each point, all on the same devices.
    time, dynamic_energy, energy : ndarray, shape (points,)
        Means in s and J.
    static_power : ndarray, shape (points,)
        In W, of all devices together.
    device_points : tuple of hashable
        omega_dev of each point: its `Element.operating_point`.
    """

    name: str
    elements: tuple[Element, ...]
    time: FloatArray
    dynamic_energy: FloatArray
    energy: FloatArray
    static_power: FloatArray
    device_points: tuple[Hashable, ...]

    @classmethod
    def of_elements(cls, name: str, elements: Iterable[Element]) -> Self:
        """Gather elements that are one computation in several settings.

        Elements with the same implementation and operating point would be one point
        stated twice.

        Raises
        ------
        InputError
            No points; different devices; one setting stated twice; means that are not
            finite.
        """
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"operating set: expected a name, got {name!r}")
        held: tuple[Element, ...] = tuple(elements)
        where = f"operating set {name!r}"
        if not held:
            raise InputError(f"{where}: has no points, expected at least one")
        known: dict[Hashable, int] = {}
        width = None
        for i, e in enumerate(held):
            if not isinstance(e, Element):
                raise InputError(f"{where}, point {i}: expected an Element, got {e!r}")
            width = len(e.devices) if width is None else width
            if len(e.devices) != width:
                raise InputError(
                    f"{where}, point {i}: on {len(e.devices)} devices, expected "
                    f"{width} as point 0"
                )
            if e.shared:
                raise InputError(
                    f"{where}, point {i}: names shared factor {e.shared[0].name!r}, "
                    "expected points without; state it as a draw factor of the plan"
                )
            key = setting(e)
            if len(held) > 1 and key in known:
                raise InputError(
                    f"{where}: points {known[key]} and {i} have one setting "
                    f"{described(e)}, expected each once"
                )
            known[key] = i
        time = np.array([float(e.time.mean()) for e in held])
        dynamic = np.array([float(e.dynamic_energy.mean()) for e in held])
        power = np.array([e.static_power for e in held])
        energy = np.array([_energy(e) for e in held])
        for field, unit, values in (("time", "s", time), ("energy", "J", energy)):
            wrong = np.flatnonzero(~np.isfinite(values))
            if wrong.size:
                raise InputError(
                    f"{where}, point {wrong[0]}: mean {field} is {values[wrong[0]]} "
                    f"{unit}, expected a finite number"
                )
        for array in (time, dynamic, energy, power):
            array.flags.writeable = False
        points = tuple(e.operating_point for e in held)
        return cls(name, held, time, dynamic, energy, power, points)

    @classmethod
    def of(
        cls,
        name: str,
        *,
        time: npt.ArrayLike,
        energy: npt.ArrayLike | None = None,
        dynamic_energy: npt.ArrayLike | None = None,
        static_power: npt.ArrayLike,
        device: str | None = None,
        devices: Sequence[str] | None = None,
        device_points: Sequence[Any] | None = None,
        element_points: Sequence[Any] | None = None,
        implementations: Sequence[Any] | None = None,
    ) -> Self:
        """Gather points from numbers.

        Parameters
        ----------
        time : array_like, shape (points,)
            In s.
        energy, dynamic_energy : array_like, shape (points,)
            Total E or dynamic d in J: one of the two.
        static_power : float or array_like, shape (points,)
            In W, of all devices together.
        device, devices : str or sequence of str
        device_points, element_points, implementations : sequence, optional
            omega_dev, omega_elem and kappa of each point; element points are numbered
            where none of the three is given.

        Raises
        ------
        InputError
            As `of_elements`; other lengths; NaN, infinite or negative values; an
            energy below ``static_power * time``.

        Examples
        --------
        >>> rope = OperatingSet.of(
        ...     "rope", time=[1.0, 1.25, 1.5], energy=[200.0, 180.0, 185.0],
        ...     static_power=60.0, device="gpu0", device_points=[1410, 1200, 900],
        ... )
        >>> rope.frontier().tolist()
        [0, 1]
        >>> rope.useful().tolist()
        [0, 1, 2]
        """
        where = f"operating set {name!r}"
        seconds = _numbers(time, None, f"{where}, time", "s")
        count = seconds.size
        if count == 0:
            raise InputError(f"{where}: has no points, expected at least one")
        watts = _numbers(static_power, count, f"{where}, static power", "W")
        if (energy is None) == (dynamic_energy is None):
            raise InputError(f"{where}: give one of energy and dynamic_energy")
        given = dynamic_energy if energy is None else energy
        what = "dynamic energy" if energy is None else "energy"
        joules = _numbers(given, count, f"{where}, {what}", "J")
        if energy is not None:
            static = watts * seconds
            dynamic = joules - static
            # A difference within the rounding of its own computation is no energy.
            noise = 4.0 * np.finfo(float).eps * np.maximum(joules, static)
            dynamic[np.abs(dynamic) <= noise] = 0.0
            wrong = np.flatnonzero(dynamic < 0.0)
            if wrong.size:
                i = wrong[0]
                raise InputError(
                    f"{where}, point {i}: energy {joules[i]:g} J is below the static "
                    f"{watts[i]:g} W x {seconds[i]:g} s = {static[i]:g} J; static "
                    "power calibrated too high, or noise"
                )
            joules = dynamic
        if device_points is element_points is implementations is None:
            element_points = range(count)
        columns = [
            _column(values, count, f"{where}, {field}")
            for field, values in (
                ("device points", device_points),
                ("element points", element_points),
                ("implementations", implementations),
            )
        ]
        elements = [
            Element(
                name,
                time=seconds[i],
                dynamic_energy=joules[i],
                static_power=watts[i],
                device=device,
                devices=devices,
                operating_point=columns[0][i],
                implementation=columns[2][i],
                metadata={}
                if columns[1][i] is None
                else {ELEMENT_POINT: columns[1][i]},
            )
            for i in range(count)
        ]
        return cls.of_elements(name, elements)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced_copy(self)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.elements)

    def __repr__(self) -> str:
        """Name and number of points."""
        return f"<OperatingSet {self.name!r}: {len(self)} points>"

    @property
    def settings(self) -> tuple[str, ...]:
        """What each point is, in words."""
        return tuple(described(e) for e in self.elements)

    def frontier(self) -> IntArray:
        """Points that no other one beats in (T, E), by rising time.

        These suffice where the element runs alone on its devices (section 6).
        """
        from probcalc.kernels.pareto import reduced

        return reduced(self.time, self.energy)

    def useful(self, baseline: float | None = None) -> IntArray:
        """Points that no other one beats in (T, x), by rising time; x is E - b T.

        These may be needed where something else runs in parallel: then the device is
        held anyway and an element with slack is chosen by what it adds to that, its
        dynamic energy where it draws no more static power than an idle device does.

        Parameters
        ----------
        baseline : float, optional
            What its devices draw in W while held and idle; without it the static power
            on which all points agree.

        Raises
        ------
        InputError
            No baseline, and points that do not agree.
        """
        from probcalc.kernels.pareto import reduced

        return reduced(self.time, self.beyond(baseline))

    def beyond(self, baseline: float | None = None) -> FloatArray:
        """Return x = (s - b) T + d in J, shape (points,); parameters as `useful`."""
        if baseline is None:
            baseline = float(self.static_power[0])
            if (self.static_power != baseline).any():
                raise InputError(
                    f"operating set {self.name!r}: static power is {baseline:g} to "
                    f"{self.static_power.max():g} W, state the baseline of its devices"
                )
        return (self.static_power - baseline) * self.time + self.dynamic_energy


def setting(element: Element) -> tuple[Hashable, ...]:
    """Return what distinguishes a point: kappa, omega_dev, omega_elem."""
    own = element.metadata.get(ELEMENT_POINT)
    return element.implementation, element.operating_point, own


def described(element: Element) -> str:
    """Return the setting of a point in words."""
    parts = [str(part) for part in setting(element) if part is not None]
    return ", ".join(parts) or element.name


def _energy(element: Element) -> float:
    if element.runs is not None:
        return float(Empirical(element.runs.energy).mean())
    return element.static_power * float(element.time.mean()) + float(
        element.dynamic_energy.mean()
    )


def _numbers(given: Any, size: int | None, where: str, unit: str) -> FloatArray:
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{where}: expected numbers of {unit}") from None
    if array.ndim == 0 and size is not None:
        array = np.full(size, float(array))
    if array.ndim != 1 or (size is not None and array.size != size):
        raise InputError(
            f"{where}: shape {array.shape}, expected {size or 'one value a point'}"
        )
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0.0)))
    if wrong.size:
        value = array[wrong[0]]
        shown = "NaN" if math.isnan(value) else f"{value:g}"
        raise InputError(
            f"{where} of point {wrong[0]} is {shown} {unit}, expected a finite number "
            ">= 0"
        )
    return array


def _column(given: Sequence[Any] | None, size: int, where: str) -> list[Any]:
    if given is None:
        return [None] * size
    column = list(given)
    if len(column) != size:
        raise InputError(f"{where}: {len(column)} given for {size} points")
    return [v.item() if isinstance(v, np.generic) else v for v in column]
