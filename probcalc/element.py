"""Elements: the signature (T, d, s) of one unit of computation (sections 3.1, 3.2)."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Distribution, Empirical, as_law
from probcalc.errors import InputError
from probcalc.readonly import ReadOnly
from probcalc.runs import (
    Runs,
    most,
    name_runs,
    not_negative_law,
    not_negative_runs,
    paired,
    watts,
    whole,
)
from probcalc.shared import Shared, consistent
from probcalc.term import Point, Term

__all__ = ["Element", "idle", "transition"]


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Element(Term):
    """A unit of computation with its law; T and d are independent unless measured.

    Its energy is E = s T + d (axiom P1). Executions are independent of each other
    and of other elements, but for the factors named in `shared`.

    Parameters
    ----------
    name : str
        Used in expressions, results and errors.
    time : number or Distribution
        T in s.
    dynamic_energy : number or Distribution
        d in J, independent of T. For measured pairs use `from_runs`.
    static_power : float or mapping of str to float
        s in W: what its devices draw together while it runs. For several devices a
        number is split evenly; a mapping states each device.
    device, devices : str or iterable of str
        Where it runs; give one of the two.
    workload, implementation, operating_point : optional
        The paper's theta, kappa and omega. A mapping or any hashable value; a
        mapping is kept as sorted pairs. Elements under ``|`` that state their
        operating point must agree on it.
    metadata : mapping, optional
        Hardware, driver, instrument, protocol, provenance.
    shared : Shared or sequence of Shared
        Factors that it has in common with other elements.
    grain : int
        1 for laws of single runs; k for laws of means over windows of k runs.
    time_max, energy_max : float
        Largest T in s and E in J that can occur, where that is known (a time limit);
        used for confidence bands alone.

    Raises
    ------
    InputError
        Negative, NaN or infinite values and laws that can be negative, naming the
        element and the field; no device or the same one twice; unusable samples.

    Examples
    --------
    >>> rms = Element("rms", time=1.55e-3, static_power=60.0, device="gpu0")
    >>> rms >> rms
    <Sequential: rms >> rms>
    """

    name: str
    time: Distribution
    dynamic_energy: Distribution
    powers: Mapping[str, float]
    devices: tuple[str, ...]
    runs: Runs | None
    workload: Hashable
    implementation: Hashable
    operating_point: Hashable
    metadata: Mapping[str, Any]
    shared: tuple[Shared, ...]
    grain: int
    time_max: float
    energy_max: float
    calibration_conflict: tuple[int, ...]
    points: tuple[Point, ...]
    parts: tuple[Term, ...]

    def __init__(
        self,
        name: str,
        *,
        time: Any,
        dynamic_energy: Any = 0.0,
        static_power: float | Mapping[str, float],
        device: str | Iterable[str] | None = None,
        devices: str | Iterable[str] | None = None,
        workload: Any = None,
        implementation: Any = None,
        operating_point: Any = None,
        metadata: Mapping[str, Any] | None = None,
        shared: Shared | Sequence[Shared] = (),
        grain: int = 1,
        time_max: float = math.inf,
        energy_max: float = math.inf,
    ) -> None:
        where = _named(name)
        hosts = _devices(device, devices, where)
        time = as_law(time, name=f"{where}, time")
        not_negative_law(time, f"{where}, time", "s")
        dynamic_energy = as_law(dynamic_energy, name=f"{where}, dynamic energy")
        not_negative_law(dynamic_energy, f"{where}, dynamic energy", "J")
        point = _frozen(operating_point, f"{where}, operating point")
        stated = () if point is None else tuple(Point(d, point, name) for d in hosts)
        _fill(
            self,
            name=name,
            time=time,
            dynamic_energy=dynamic_energy,
            powers=_powers(static_power, hosts, where),
            devices=hosts,
            runs=None,
            workload=_frozen(workload, f"{where}, workload"),
            implementation=_frozen(implementation, f"{where}, implementation"),
            operating_point=point,
            metadata=ReadOnly(dict(metadata or {})),
            shared=_factors(shared, where),
            grain=whole(grain, f"{where}, grain"),
            time_max=most(time_max, time, f"{where}, time_max"),
            energy_max=most(energy_max, dynamic_energy, f"{where}, energy_max"),
            calibration_conflict=(),
            points=stated,
            parts=(),
        )

    @classmethod
    def from_runs(
        cls,
        name: str,
        *,
        time: npt.ArrayLike,
        energy: npt.ArrayLike,
        static_power: float | Mapping[str, float],
        device: str | Iterable[str] | None = None,
        devices: str | Iterable[str] | None = None,
        blocks: Iterable[Any] | None = None,
        conflicts: Literal["raise", "keep"] = "raise",
        nan: Literal["raise", "omit"] = "raise",
        **fields: Any,
    ) -> Element:
        """Keep measured runs as the joint law of T and E, dependence included.

        Other parameters as for `Element`.

        Parameters
        ----------
        time, energy : array_like, shape (runs,)
            T in s and E in J of each run; ``d = E - s T`` is derived.
        blocks : iterable of hashable, length runs, optional
            Label of the block (fresh process) of each run.
        conflicts : {"raise", "keep"}
            What to do with runs whose dynamic energy is negative (axiom P1):
            refuse them, or keep them as they are and list them in
            `calibration_conflict`. They are never clipped.
        nan : {"raise", "omit"}
            Missing values raise an error, or their runs are left out.

        Raises
        ------
        InputError
            As for `Element`; lengths that differ; negative times or energies;
            negative dynamic energy, naming runs and values.

        Examples
        --------
        >>> e = Element.from_runs(
        ...     "rope", time=[1.0, 2.0], energy=[70.0, 150.0],
        ...     static_power=60.0, device="gpu0",
        ... )
        >>> e.dynamic_energy.samples
        array([10., 30.])
        """
        where = _named(name)
        if conflicts not in ("raise", "keep"):
            raise InputError(
                f"{where}: conflicts is {conflicts!r}, expected 'raise' or 'keep'"
            )
        powers = _powers(static_power, _devices(device, devices, where), where)
        times, energies, labels = paired(time, energy, blocks, nan, where)
        not_negative_runs(times, f"{where}, time", "s")
        not_negative_runs(energies, f"{where}, energy", "J")
        static = math.fsum(powers.values()) * times
        dynamic = energies - static
        # A difference within the rounding of its own computation is no energy: a
        # run with E = s T exactly has d = 0, on which side of 0 it may fall.
        noise = 4.0 * np.finfo(float).eps * np.maximum(energies, static)
        dynamic[np.abs(dynamic) <= noise] = 0.0
        negative = np.flatnonzero(dynamic < 0.0)
        if negative.size and conflicts == "raise":
            raise InputError(
                f"{where}: dynamic energy E - s T is negative in "
                f"{name_runs(negative, dynamic, 'J')} of {times.size}; static power "
                f"{math.fsum(powers.values()):g} W calibrated too high, or noise; "
                "conflicts='keep' keeps the runs as measured"
            )
        element = cls(
            name, time=0.0, static_power=powers, device=tuple(powers), **fields
        )
        dynamic.flags.writeable = False
        law = Empirical(dynamic, blocks=labels)
        _fill(
            element,
            time=Empirical(times, blocks=labels),
            dynamic_energy=law,
            runs=Runs(times, energies, law.samples, law.blocks),
            calibration_conflict=tuple(int(i) for i in negative),
        )
        most(element.time_max, times, f"{where}, time_max")
        most(element.energy_max, energies, f"{where}, energy_max")
        return element

    def with_laws(
        self, time: Distribution, dynamic_energy: Distribution, runs: Runs | None = None
    ) -> Element:
        """Return the same element with other laws, unchecked."""
        other = copy.copy(self)
        _fill(other, time=time, dynamic_energy=dynamic_energy, runs=runs)
        return other

    def on(self, *devices: str) -> Element:
        """Return the same element placed on other devices, one for each of its own.

        Laws, runs and static power stay as they are: what was measured on one board
        stands for another one of its kind.

        Raises
        ------
        InputError
            Another number of devices than it holds, or one of them twice.

        Examples
        --------
        >>> e = Element("forward", time=1.0, static_power=60.0, device="gpu0")
        >>> e.on("gpu3").powers["gpu3"]
        60.0
        """
        where = _named(self.name)
        hosts = _devices(None, devices, where)
        if len(hosts) != len(self.devices):
            raise InputError(
                f"{where}: placed on {len(hosts)} devices {list(hosts)}, expected "
                f"{len(self.devices)}"
            )
        if hosts == self.devices:
            return self
        moved = dict(zip(self.devices, hosts, strict=True))
        other = copy.copy(self)
        powers = {moved[device]: power for device, power in self.powers.items()}
        points = tuple(p._replace(device=moved[p.device]) for p in self.points)
        _fill(other, devices=hosts, powers=ReadOnly(powers), points=points)
        return other

    def __hash__(self) -> int:
        """Hash by identity: two elements are two, whatever they are called."""
        return object.__hash__(self)

    def __repr__(self) -> str:
        """Name, devices and number of runs."""
        runs = "" if self.runs is None else f", {len(self.runs)} runs"
        return f"<Element {self.name!r} on {', '.join(self.devices)}{runs}>"

    @property
    def label(self) -> str:
        """Its name."""
        return self.name

    @property
    def static_power(self) -> float:
        """Static power s in W of all its devices together."""
        return math.fsum(self.powers.values())

    @property
    def coupled(self) -> bool:
        """Whether T and d were measured together and both vary."""
        return self.runs is not None and self.runs.coupled

    @property
    def energy(self) -> Distribution:
        """Law of E = s T + d in J, as measured or with T and d independent.

        Shared factors are left out: they belong to a prediction.
        """
        from probcalc.composed import scale, sum_of

        if self.runs is not None:
            return Empirical(self.runs.energy, blocks=self.runs.blocks)
        return sum_of(scale(self.time, self.static_power), self.dynamic_energy)


def idle(
    duration: Any,
    *,
    device: str | Iterable[str] | None = None,
    devices: str | Iterable[str] | None = None,
    static_power: float | Mapping[str, float],
    name: str = "idle",
    shared: Shared | Sequence[Shared] = (),
) -> Element:
    """Return an element that waits, at static power and no dynamic energy.

    ``idle(0)`` is neutral under ``>>``.
    """
    return Element(
        name,
        time=duration,
        static_power=static_power,
        device=device,
        devices=devices,
        shared=shared,
    )


def transition(
    before: Any,
    after: Any,
    *,
    time: Any,
    dynamic_energy: Any = 0.0,
    static_power: float | Mapping[str, float],
    device: str | Iterable[str] | None = None,
    devices: str | Iterable[str] | None = None,
    name: str | None = None,
    shared: Shared | Sequence[Shared] = (),
) -> Element:
    """Return an element that takes its devices from one operating point to another.

    It composes like any other, but not under ``|``: nothing else can run at one
    operating point while that changes.
    """
    element = Element(
        f"{before}->{after}" if name is None else name,
        time=time,
        dynamic_energy=dynamic_energy,
        static_power=static_power,
        device=device,
        devices=devices,
        shared=shared,
        metadata={"transition": (before, after)},
    )
    where = f"element {element.name!r}, operating point"
    ends = _frozen(before, where), _frozen(after, where)
    points = [Point(d, end, element.name) for d in element.devices for end in ends]
    _fill(element, points=tuple(dict.fromkeys(points)))
    return element


def _fill(element: Element, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(element, name, value)


def _named(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"element: expected a name, got {name!r}")
    return f"element {name!r}"


def _devices(one: Any, several: Any, where: str) -> tuple[str, ...]:
    if (one is None) == (several is None):
        raise InputError(f"{where}: give one of device and devices")
    given = one if several is None else several
    if isinstance(given, str):
        given = (given,)
    try:
        hosts = tuple(given)
    except TypeError:
        raise InputError(f"{where}: expected device names, got {given!r}") from None
    for host in hosts:
        if not isinstance(host, str) or not host.strip():
            raise InputError(f"{where}: expected device names, got {host!r}")
        if hosts.count(host) > 1:
            raise InputError(f"{where}: device {host!r} is stated twice")
    if not hosts:
        raise InputError(f"{where}: no device, expected at least one")
    return hosts


def _powers(given: Any, hosts: tuple[str, ...], where: str) -> Mapping[str, float]:
    if isinstance(given, Mapping):
        if set(given) != set(hosts):
            raise InputError(
                f"{where}: static power is stated for {sorted(map(str, given))}, "
                f"expected its devices {sorted(hosts)}"
            )
        powers = {host: watts(given[host], f"{where} on {host!r}") for host in hosts}
    else:
        total = watts(given, where)
        powers = {host: total / len(hosts) for host in hosts}
    return ReadOnly(powers)


def _factors(given: Any, where: str) -> tuple[Shared, ...]:
    factors = (given,) if isinstance(given, Shared) else tuple(given)
    for factor in factors:
        if not isinstance(factor, Shared):
            raise InputError(f"{where}: expected Shared factors, got {factor!r:.60}")
    return tuple(consistent(factors).values())


def _frozen(value: Any, where: str) -> Hashable:
    """Return something hashable: a mapping becomes its sorted pairs."""
    if isinstance(value, Mapping):
        return tuple((str(k), _frozen(value[k], where)) for k in sorted(value, key=str))
    if isinstance(value, list | tuple):
        return tuple(_frozen(item, where) for item in value)
    try:
        hash(value)
    except TypeError:
        raise InputError(
            f"{where}: expected a mapping, a text or a number, got {value!r:.60}"
        ) from None
    return value
