"""What elements say together of their devices (sections 2 and 4).

Resolves, before anything is computed: the baseline power of every device, the shared
factors that act on it, and the grain of the laws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from probcalc.distribution import Constant
from probcalc.element import Element
from probcalc.errors import CompositionError, InputError
from probcalc.readonly import ReadOnly
from probcalc.runs import watts
from probcalc.shared import ActsOn, How, Shared, consistent
from probcalc.term import MultiParallel, Parallel, Term, executions, postorder

__all__ = [
    "Account",
    "Setting",
    "Weight",
    "accounted",
    "add",
    "factors",
    "key_of",
    "resolve",
]

# A power, as coefficients in W of products of shared factors, by their names: the
# baselines 60 g + 50 h of two devices with gains g and h are {("g",): 60, ("h",): 50}.
Weight = dict[tuple[str, ...], float]


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """What devices draw, and the shared factors it stands under.

    Attributes
    ----------
    baselines : mapping of str to float
        Static power in W that each device draws while it is held and idle; without
        the devices that are never idle and for which it makes no difference.
    weights : mapping of str to Weight
        The same with the shared factors that act on it.
    shared : mapping of str to Shared
        Factors by name.
    gains, paces : tuple of str
        Scales of energy and of time that every element names.
    """

    baselines: Mapping[str, float]
    weights: Mapping[str, Weight]
    shared: Mapping[str, Shared]
    gains: tuple[str, ...]
    paces: tuple[str, ...]

    @property
    def base(self) -> Weight:
        """Baseline power of all devices together."""
        total: Weight = {}
        for weight in self.weights.values():
            total = add(total, weight)
        return total

    def beyond(self, element: Element) -> Weight:
        """Return s - b, the static power beyond the baselines of its devices."""
        total: Weight = {}
        for device, power in element.powers.items():
            total = add(total, _static_weight(element, power))
            total = add(total, self.weights[device], -1.0)
        return total

    def own_paces(self, element: Element) -> list[str]:
        """Return what acts on the time of an element and not on all others alike."""
        scales = [n for n in key_of(element, "time") if n not in self.paces]
        return scales + [f.name for f in factors(element, "time", "shift")]

    def stripped(self, key: Iterable[str]) -> tuple[str, ...]:
        """Drop the gains that every element names: they stand before everything."""
        return tuple(name for name in key if name not in self.gains)

    def effective(self, weight: Weight) -> Weight:
        """Return a power as it multiplies times that lack their common factors."""
        found: Weight = {}
        for key, value in weight.items():
            key = tuple(sorted((*self.stripped(key), *self.paces)))
            found = add(found, {key: value})
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A term with all that is needed to work out what it costs.

    Attributes
    ----------
    term : Term
    order : tuple of Term
        Its distinct nodes, parts first.
    elements : tuple of Element
        Its distinct elements, in the order they appear.
    counts : dict of int to int
        Executions of each node in one execution of the term, by id.
    account : Account
        What its devices draw.
    grain : int
        Runs over which the laws of the elements are means.
    """

    term: Term
    order: tuple[Term, ...]
    elements: tuple[Element, ...]
    counts: dict[int, int]
    account: Account
    grain: int


def factors(element: Element, acts_on: ActsOn, how: How = "scale") -> list[Shared]:
    """Return the factors of a kind that an element names, by name."""
    found = [f for f in element.shared if f.acts_on == acts_on and f.how == how]
    return sorted(found, key=lambda f: f.name)


def key_of(element: Element, *acts_on: ActsOn) -> tuple[str, ...]:
    """Return the names of the scales of an element that act on any of these."""
    return tuple(sorted(f.name for kind in acts_on for f in factors(element, kind)))


def add(a: Weight, b: Weight, sign: float = 1.0) -> Weight:
    """Return the sum of two weights, without coefficients that are zero."""
    total = dict(a)
    for key, value in b.items():
        total[key] = total.get(key, 0.0) + sign * value
    return {key: value for key, value in total.items() if value != 0.0}


def resolve(term: Term, stated: Mapping[str, float] | None = None) -> Setting:
    """Work out the setting of a term.

    A baseline can be left out where the device is never idle: every element holds all
    devices, one after the other.

    Raises
    ------
    InputError
        Not a term, and as `accounted`.
    CompositionError
        Mixed grains, and as `accounted`.
    """
    if not isinstance(term, Term):
        raise InputError(
            f"predict: expected an element or a term, got {type(term).__name__} "
            f"{term!r:.60}"
        )
    order = tuple(postorder(term))
    elements = tuple(node for node in order if isinstance(node, Element))
    return Setting(
        term=term,
        order=order,
        elements=elements,
        counts=executions(term),
        account=accounted(
            elements, term.devices, stated, idles=_idles(order, elements, term)
        ),
        grain=_grain(elements, parallel=any(map(_parallel, order))),
    )


def accounted(
    elements: tuple[Element, ...],
    devices: tuple[str, ...],
    stated: Mapping[str, float] | None,
    *,
    idles: bool = True,
) -> Account:
    """Work out what the devices of some elements draw while held.

    The baseline of a device is the static power on which all elements on that device
    agree. Where they do not agree it must be stated, unless no device is ever idle.

    Raises
    ------
    InputError
        A stated baseline of an unknown device or that is no power.
    CompositionError
        Different static powers or factors along one device whose baseline matters
        and is not stated; one factor name for two factors.
    """
    given = _stated(stated, devices)
    shared = consistent(factor for e in elements for factor in e.shared)
    on: dict[str, list[Element]] = {device: [] for device in devices}
    for e in elements:
        _check_shifts(e)
        for device in e.devices:
            on[device].append(e)
    found = {d: _baseline(d, on[d], given.get(d), idles) for d in devices}
    return Account(
        baselines=ReadOnly(
            {d: power for d, (power, _) in found.items() if power is not None}
        ),
        weights=ReadOnly({d: weight for d, (_, weight) in found.items()}),
        shared=ReadOnly(shared),
        gains=_common(elements, "energy"),
        paces=_common(elements, "time"),
    )


def _static_weight(element: Element, power: float) -> Weight:
    """Weigh the static power of one device with the factors an element names."""
    key = key_of(element, "energy", "static_power")
    weight: Weight = {key: power} if power else {}
    gain = key_of(element, "energy")
    for factor in factors(element, "static_power", "shift"):
        # s -> s + V, and the gain of the instrument comes on top
        weight = add(weight, {tuple(sorted((*gain, factor.name))): 1.0})
    return weight


def _common(elements: tuple[Element, ...], acts_on: ActsOn) -> tuple[str, ...]:
    named = [set(key_of(e, acts_on)) for e in elements]
    return tuple(sorted(set.intersection(*named)))


def _stated(
    stated: Mapping[str, float] | None, devices: tuple[str, ...]
) -> dict[str, float]:
    given = dict(stated or {})
    for device, power in given.items():
        if device not in devices:
            raise InputError(
                f"baselines: unknown device {device!r}, expected one of "
                f"{', '.join(map(repr, devices))}"
            )
        given[device] = watts(power, f"baseline of {device!r}")
    return given


def _parallel(node: Term) -> bool:
    return isinstance(node, Parallel | MultiParallel) and len(node.parts) > 1


def _idles(order: tuple[Term, ...], elements: tuple[Element, ...], term: Term) -> bool:
    """Whether a device can be held without an element running on it."""
    everything = set(term.devices)
    return any(map(_parallel, order)) or any(
        set(e.devices) != everything for e in elements
    )


def _baseline(
    device: str, on: list[Element], stated: float | None, idles: bool
) -> tuple[float | None, Weight]:
    first = on[0]
    power = first.powers[device] if stated is None else stated
    weight = _static_weight(first, power)
    for other in on[1:]:
        same_power = stated is not None or other.powers[device] == power
        if same_power and _static_weight(other, power) == weight:
            continue
        if not idles:
            return None, {}
        if not same_power:
            raise CompositionError(
                f"device {device!r}: static power is {power:g} W for {first.name!r} "
                f"and {other.powers[device]:g} W for {other.name!r}, and the device "
                f"can be idle: state what it draws then, baselines={{{device!r}: ...}}"
            )
        raise CompositionError(
            f"device {device!r}: {first.name!r} and {other.name!r} name different "
            "shared factors of its static power, and the device can be idle: name "
            "the same factors in every element on it"
        )
    return power, weight


def _check_shifts(e: Element) -> None:
    """Refuse shifts that can make a time or a static power negative."""
    lows = {"time": float(e.time.support()[0]), "static_power": min(e.powers.values())}
    for acts_on in ("time", "static_power"):
        shifts = factors(e, acts_on, "shift")
        if not shifts:
            continue
        low = lows[acts_on]
        for scale in factors(e, acts_on):
            low *= float(scale.law.support()[0])
        low += sum(float(shift.law.support()[0]) for shift in shifts)
        if low < 0.0:
            raise InputError(
                f"element {e.name!r}: {acts_on} can be as low as {low:g} under shared "
                f"factor {shifts[0].name!r}, expected >= 0"
            )


def _grain(elements: tuple[Element, ...], *, parallel: bool) -> int:
    """Return the one grain of all elements that vary; the mean of 7.0 is 7.0."""
    grains: dict[int, Element] = {}
    for e in elements:
        if not all(isinstance(law, Constant) for law in (e.time, e.dynamic_energy)):
            grains.setdefault(e.grain, e)
    if len(grains) > 1:
        (k, a), (m, b) = sorted(grains.items())[:2]
        raise CompositionError(
            f"grains differ: {a.name!r} is stated per {_per(k)} and {b.name!r} per "
            f"{_per(m)}; laws of single runs and of means do not compose"
        )
    grain = next(iter(grains), 1)
    if grain > 1 and parallel:
        raise CompositionError(
            f"{grains[grain].name!r} is stated per {_per(grain)}: the mean of the "
            "longest is not the longest mean, so | and & need laws of single runs"
        )
    return grain


def _per(grain: int) -> str:
    return "single run" if grain == 1 else f"mean of {grain} runs"
