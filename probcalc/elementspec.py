"""Devices and elements as a plan file writes them."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from probcalc.columns import read_labels
from probcalc.distribution import Empirical
from probcalc.element import Element, idle, transition
from probcalc.errors import PlanError
from probcalc.expression import nearest
from probcalc.lawspec import (
    Context,
    check_keys,
    has_samples,
    located,
    read_law,
    read_samples,
    text,
)
from probcalc.readonly import ReadOnly
from probcalc.shared import Shared
from probcalc.units import quantity, shown

__all__ = ["Device", "Scope", "choice", "free_table", "read_device", "read_element"]

_FREE = ("workload", "implementation", "operating_point")
_PLACE = ("device", "devices", "static_power", "shared")
_LAWS = ("time", "dynamic_energy", "grain", "metadata", *_PLACE, *_FREE)
_RUNS = ("energy", "paired", "blocks", "conflicts", "nan")


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a plan.

    Attributes
    ----------
    name : str
    static_power : float
        In W, drawn while the device is held, busy or idle.
    metadata : mapping
        Whatever the plan says about it.
    """

    name: str
    static_power: float
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an element stands, and what it may name."""

    where: str
    folder: pathlib.Path
    devices: Mapping[str, Device]
    shared: Mapping[str, Shared]

    def at(self, key: str) -> Context:
        """Context of one of its laws."""
        dimension = "time" if key in ("time", "idle") else "energy"
        return Context(f"{self.where}.{key}", dimension, self.folder)


def free_table(value: Any, where: str) -> Mapping[str, Any]:
    """Return a table of whatever keys."""
    if not isinstance(value, Mapping):
        raise PlanError(f"{where}: {shown(value)} found; expected a table")
    return value


def choice(table: Mapping[str, Any], key: str, known: tuple[str, ...], at: str) -> str:
    """Return one of a few words, the first of them by default."""
    value = table.get(key, known[0])
    if value not in known:
        raise PlanError(
            f"{at}.{key}: {shown(value)} found; expected one of"
            f" {', '.join(map(repr, known))}"
        )
    return value


def _power(value: Any, where: str) -> float:
    power = quantity(value, dimension="power", where=where)
    if power < 0:
        raise PlanError(f"{where}: {shown(value)} found; expected zero or more")
    return power


def read_device(name: str, value: Any, where: str) -> Device:
    """Read one entry of ``[devices]``."""
    table = check_keys(value, ("static_power", "metadata"), where)
    if "static_power" not in table:
        raise PlanError(f"{where}: 'static_power' is missing, such as \"60 W\"")
    metadata = free_table(table.get("metadata", {}), f"{where}.metadata")
    power = _power(table["static_power"], f"{where}.static_power")
    return Device(name, power, ReadOnly(dict(metadata)))


def read_element(name: str, value: Any, scope: Scope) -> Element:
    """Read one entry of ``[elements]``, of one of its four forms."""
    where = scope.where
    if not isinstance(value, Mapping):
        raise PlanError(f"{where}: {shown(value)} found; expected a table")
    if "idle" in value:
        table = check_keys(value, ("idle", *_PLACE), where)
        duration = read_law(table["idle"], scope.at("idle"))
        with located(where):
            return idle(duration, name=name, **_placed(table, scope))
    if "transition" in value:
        allowed = ("transition", "time", "dynamic_energy", *_PLACE)
        table = check_keys(value, allowed, where)
        ends = check_keys(table["transition"], ("from", "to"), f"{where}.transition")
        if len(ends) != 2:
            raise PlanError(f"{where}.transition: needs both 'from' and 'to'")
        laws = _laws(table, scope)
        with located(where):
            return transition(
                ends["from"], ends["to"], name=name, **laws, **_placed(table, scope)
            )
    table = check_keys(value, (*_LAWS, *_RUNS), where)
    fields = _placed(table, scope)
    fields |= {key: table[key] for key in (*_FREE, "grain") if key in table}
    fields["metadata"] = free_table(table.get("metadata", {}), f"{where}.metadata")
    if _paired(table, where):
        return _from_runs(name, table, scope, fields)
    for key in ("conflicts", "nan"):
        if key in table:
            raise PlanError(f"{where}.{key}: is for measured pairs of time and energy")
    laws = _laws(table, scope)
    if "blocks" in table:
        if not isinstance(laws["time"], Empirical):
            raise PlanError(f"{where}.blocks: is for times given as measured runs")
        with located(f"{where}.blocks"):
            blocks = _blocks(table["blocks"], scope)
            laws["time"] = Empirical(laws["time"].samples, blocks=tuple(blocks))
    with located(where):
        return Element(name, **laws, **fields)


def _paired(table: Mapping[str, Any], where: str) -> bool:
    """Whether time and energy are runs measured together, and kept so."""
    if "time" not in table:
        raise PlanError(f"{where}: 'time' is missing, such as \"1.55 ms\"")
    if "energy" in table:
        if "dynamic_energy" in table:
            raise PlanError(f"{where}: gives both 'energy' and 'dynamic_energy'")
        for key in ("time", "energy"):
            if not has_samples(table[key]):
                raise PlanError(
                    f"{where}.{key}: {shown(table[key])} found; expected measured"
                    " runs, time and energy of each; or give 'dynamic_energy'"
                )
    runs = all(has_samples(table.get(key)) for key in ("time", "dynamic_energy"))
    paired = table.get("paired", "energy" in table or runs)
    if not isinstance(paired, bool):
        raise PlanError(
            f"{where}.paired: {shown(paired)} found; expected true or false"
        )
    if paired and not ("energy" in table or runs):
        raise PlanError(f"{where}.paired: needs time and energy as measured runs")
    if "energy" in table and not paired:
        raise PlanError(
            f"{where}.paired: total energy holds its time's static share; only"
            " 'dynamic_energy' can be drawn apart from time"
        )
    return paired


def _from_runs(
    name: str, table: Mapping[str, Any], scope: Scope, fields: dict[str, Any]
) -> Element:
    where = scope.where
    time = read_samples(table["time"], scope.at("time"))
    key = "energy" if "energy" in table else "dynamic_energy"
    energy = read_samples(table[key], scope.at(key))
    if len(time) != len(energy):
        raise PlanError(
            f"{where}: {len(time)} runs of 'time' and {len(energy)} of {key!r};"
            " expected one of each for every run"
        )
    if key == "dynamic_energy":
        power = sum(fields["static_power"].values())
        energy = [power * t + d for t, d in zip(time, energy, strict=True)]
    if "blocks" in table:
        fields["blocks"] = _blocks(table["blocks"], scope)
    fields["conflicts"] = choice(table, "conflicts", ("raise", "keep"), where)
    fields["nan"] = choice(table, "nan", ("raise", "omit"), where)
    with located(where):
        return Element.from_runs(name, time=time, energy=energy, **fields)


def _laws(table: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    if "time" not in table:
        raise PlanError(f"{scope.where}: 'time' is missing, such as \"1.55 ms\"")
    return {
        key: read_law(table[key], scope.at(key))
        for key in ("time", "dynamic_energy")
        if key in table
    }


def _blocks(value: Any, scope: Scope) -> list[Any]:
    where = f"{scope.where}.blocks"
    if isinstance(value, list):
        for index, label in enumerate(value):
            if isinstance(label, bool) or not isinstance(label, int | str):
                raise PlanError(
                    f"{where}[{index}]: {shown(label)} found; expected a whole number"
                    " or a text"
                )
        return value
    table = check_keys(value, ("file", "column"), where)
    if len(table) != 2:
        raise PlanError(f"{where}: needs both 'file' and 'column'")
    path = scope.folder / text(table["file"], f"{where}.file")
    return read_labels(path, text(table["column"], f"{where}.column"), where=where)


def _placed(table: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Devices, their static power and the shared factors of an element."""
    where = scope.where
    if ("device" in table) == ("devices" in table):
        raise PlanError(f"{where}: give one of 'device' and 'devices'")
    if "device" in table:
        hosts = [text(table["device"], f"{where}.device")]
    else:
        hosts = _names(table["devices"], f"{where}.devices")
    for host in hosts:
        if host not in scope.devices:
            raise PlanError(
                f"{where}: unknown device {host[:60]!r}{nearest(host, scope.devices)}"
            )
    powers = {host: scope.devices[host].static_power for host in hosts}
    if "static_power" in table:
        given = table["static_power"]
        key = f"{where}.static_power"
        if isinstance(given, Mapping):
            check_keys(given, tuple(hosts), key)
            powers |= {host: _power(given[host], f"{key}.{host}") for host in given}
        elif len(hosts) > 1:
            raise PlanError(
                f"{key}: {shown(given)} found for {len(hosts)} devices; expected a"
                " table that states each"
            )
        else:
            powers = {hosts[0]: _power(given, key)}
    factors = _names(table.get("shared", []), f"{where}.shared")
    for factor in factors:
        if factor not in scope.shared:
            raise PlanError(
                f"{where}.shared: unknown factor"
                f" {factor[:60]!r}{nearest(factor, scope.shared)}"
            )
    shared = [scope.shared[factor] for factor in factors]
    return {"devices": hosts, "static_power": powers, "shared": shared}


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        raise PlanError(f"{where}: {shown(value)} found; expected a list of names")
    return [text(name, f"{where}[{index}]") for index, name in enumerate(value)]
