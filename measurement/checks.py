"""What a reading may be: its scope is one that the board has, its power can be true."""

from __future__ import annotations

import math

from probcalc.errors import InputError
from probcalc.measurement.faults import NotSupportedError, OutOfRangeError
from probcalc.measurement.meter import SOURCES, Device, Scope

__all__ = ["HIGHEST", "check_power", "check_scope", "scopes_of"]

# A reading of power above this many times the limit cannot be true.
HIGHEST = 1.5


def scopes_of(device: Device, source: str) -> tuple[Scope, ...]:
    """Return what a source can cover on a board, the widest first.

    On an ordinary board every source covers the board. On a module with a CPU the
    energy counter covers the module, and power is told apart.
    """
    fields = source in ("power_instant", "power_average")
    if not device.facts.get("module", False):
        return ("board", "memory") if fields else ("board",)
    if source == "counter":
        return ("module",)
    if source == "power_usage":
        return (device.facts.get("usage_scope", "module"),)
    return ("module", "gpu", "memory") if fields else ("module", "gpu")


def check_scope(device: Device, source: str, scope: Scope) -> None:
    """Refuse to read one scope as another.

    Raises
    ------
    NotSupportedError
        The source does not cover just that on this board.
    InputError
        No such source.
    """
    if source not in SOURCES:
        raise InputError(
            f"meter: source is {source!r}, expected one of " + ", ".join(SOURCES)
        )
    known = scopes_of(device, source)
    if scope not in known:
        raise NotSupportedError(
            f"{device.uuid}: {source} covers {' or '.join(known)}, not {scope}; scopes "
            "are never mixed"
        )


def check_power(device: Device, power: float, source: str, scope: Scope) -> None:
    """Refuse power in W outside [0, 1.5 x limit]; without a known limit, below 0.

    Raises
    ------
    OutOfRangeError
    """
    limit = device.power_limit
    if scope == "module":
        limit = device.facts.get("module_power_limit")
    highest = math.inf if limit is None else HIGHEST * limit
    if not 0.0 <= power <= highest:
        raise OutOfRangeError(
            f"{device.uuid}: {source} is {power:.6g} W, expected 0 to {highest:.6g} W "
            f"({HIGHEST:g} x limit)"
        )
