"""Operating frontiers of compositions: which points nothing beats (section 6).

With b the power that its devices draw while held, an element adds ``x = E - b T`` to
what holding them costs. Under every operator times add up or the longest counts, and x
adds up, so that a composition needs of its parts the points that are not beaten in
(T, x), not only those of their own frontiers in (T, E): a part with slack is held to
the end anyway and is chosen by what it adds. Only the whole is judged by (T, E), and
there the energy-minimal makespan is where its frontier stops.

Times and energies are means.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping

import numpy as np

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.frontier_rules import across, after, beside, joined, switching
from probcalc.frontier_table import MIXED, Frontier, Rows, made
from probcalc.operating import OperatingSet
from probcalc.runs import whole

__all__ = [
    "MIXED",
    "Frontier",
    "frontier_of",
    "multi_parallel",
    "parallel",
    "repeat",
    "sequential",
    "switched",
]


def frontier_of(
    operating: OperatingSet, *, baselines: Mapping[str, float] | None = None
) -> Frontier:
    """Return the points of an element that may be of use.

    Parameters
    ----------
    operating : OperatingSet
    baselines : mapping of str to float, optional
        By device, in W; without it the static power on which all points agree.

    Raises
    ------
    InputError
        No baselines, and points that do not agree; baselines of other devices.

    Examples
    --------
    >>> rope = OperatingSet.of(
    ...     "rope", time=[1.0, 1.25, 1.5], energy=[200.0, 180.0, 185.0],
    ...     static_power=60.0, device="gpu0", device_points=[1410, 1200, 900],
    ... )
    >>> frontier_of(rope)
    <Frontier of 'rope': 2 points, 3 kept>
    """
    first = operating.elements[0]
    if baselines is None:
        for i, e in enumerate(operating.elements):
            if list(e.powers.values()) != list(first.powers.values()):
                raise InputError(
                    f"operating set {operating.name!r}: static power is "
                    f"{first.static_power:g} W at point 0 and {e.static_power:g} W at "
                    f"point {i}, state the baselines of its devices"
                )
        baselines = dict(first.powers)
    if set(baselines) != set(first.devices):
        raise InputError(
            f"operating set {operating.name!r}: baselines of {sorted(baselines)}, "
            f"expected {sorted(first.devices)}"
        )
    cost = operating.beyond(math.fsum(baselines.values()))
    every = np.arange(len(operating))
    rows = Rows(
        operating.time, cost, operating.static_power, operating.device_points,
        every[:, None],
    )  # fmt: skip
    return made(operating.name, baselines, rows, (), operating)


def sequential(*parts: Frontier) -> Frontier:
    """One after the other; every part is free to choose, but for `parallel` outside.

    Switching between device points costs nothing here: see `switched`.
    """
    return _folded(parts, after, ">>")


def parallel(*parts: Frontier) -> Frontier:
    """Side by side on the same devices, at one device point throughout.

    Raises
    ------
    CompositionError
        Parts on other devices; no device point in common; one device point with two
        static powers.
    """
    return _folded(parts, beside, "|")


def multi_parallel(*parts: Frontier) -> Frontier:
    """Side by side on different devices; every part is free to choose.

    Raises
    ------
    CompositionError
        Parts that share a device.
    """
    return _folded(parts, across, "&")


def repeat(part: Frontier, n: int, *, mixed: bool = False) -> Frontier:
    """Return n runs one after the other.

    Parameters
    ----------
    mixed : bool
        Whether runs may choose differently; else all take one point.

    Raises
    ------
    InputError
        Unless n is a whole number of at least 1.
    """
    count = whole(n, "repeat: executions")
    if mixed:
        # Runs are alike, so that halves of them are: sums of sums by squaring.
        found, power = None, part
        while count:
            if count & 1:
                found = power if found is None else sequential(found, power)
            count >>= 1
            if count:
                power = sequential(power, power)
        assert found is not None
        return found
    rows = Rows(
        count * part.time, count * part.cost, part.held, part.points,
        np.arange(len(part))[:, None],
    )  # fmt: skip
    return made(f"({part.name}) ** {count}", part.baselines, rows, (part,), None)


def switched(
    *parts: Frontier,
    transition: Callable[[Hashable, Hashable], Element | None],
) -> Frontier:
    """One after the other where changing the device point takes time or energy.

    Parameters
    ----------
    parts : Frontier
        Each run of them holds one device point.
    transition : callable
        Takes the device points before and after, which differ, to the element that
        runs in between, such as `probcalc.element.transition` makes; None for nothing.

    Raises
    ------
    CompositionError
        A part that runs at no single device point; transitions on other devices.
    """
    return _folded(parts, functools.partial(switching, transition=transition), ">>")


Rule = Callable[[Frontier, Frontier], Rows]


def _folded(parts: tuple[Frontier, ...], rule: Rule, sign: str) -> Frontier:
    if not parts:
        raise InputError(f"frontier of {sign!r}: no parts, expected at least one")
    for part in parts:
        if not isinstance(part, Frontier):
            raise InputError(f"frontier of {sign!r}: expected Frontiers, got {part!r}")

    def both(a: Frontier, b: Frontier) -> Frontier:
        rows = rule(a, b)
        return made(f"({a.name} {sign} {b.name})", joined(a, b), rows, (a, b), None)

    return functools.reduce(both, parts)
