"""Plan files: devices, elements with their laws, and one expression, in TOML.

The schema is described in ``docs/plan-file.md``.  Every key that is not in it is an
error; sizes are capped before memory is taken; nothing in a plan is executed.
"""

from __future__ import annotations

import pathlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

from probcalc.element import Element
from probcalc.elementspec import (
    Device,
    Scope,
    choice,
    free_table,
    read_device,
    read_element,
)
from probcalc.errors import PlanError
from probcalc.expression import NAME, parse_all
from probcalc.lawspec import (
    Context,
    check_keys,
    located,
    read_law,
    text,
)
from probcalc.planspec import KEYS, read_nodes
from probcalc.readonly import ReadOnly
from probcalc.shared import Shared
from probcalc.units import shown

__all__ = ["Device", "PlanFile", "read_plan"]

MAX_BYTES = 4 * 2**20
"""Size of a plan file; long lists of runs belong into a CSV file."""
MAX_ENTRIES = 10_000
"""Devices, elements, terms or shared factors, each."""

_TOP = (
    "name",
    "description",
    "expression",
    "devices",
    "elements",
    "terms",
    "shared",
    "metadata",
    *KEYS,
)
_DIMENSION = {"energy": "energy", "time": "time", "static_power": "power"}


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What a plan file says.

    Attributes
    ----------
    name : str
    expression : str
        As written; empty for nodes or a schedule.
    term : Element, Term or Plan
        What is built from the elements: the expression, or the plan.
    elements : mapping of str to Element
    devices : mapping of str to Device
    shared : mapping of str to Shared
    meta : mapping
        Description and free metadata.
    """

    name: str
    expression: str
    term: Any
    elements: Mapping[str, Element]
    devices: Mapping[str, Device]
    shared: Mapping[str, Shared]
    meta: Mapping[str, Any]

    @property
    def baselines(self) -> dict[str, float]:
        """Static power in W of the devices that are held."""
        return {name: self.devices[name].static_power for name in self.term.devices}


def read_plan(
    source: str | pathlib.Path | BinaryIO | TextIO,
    *,
    name: str | None = None,
    expression: str | None = None,
) -> PlanFile:
    """Read a plan from a file or an open stream.

    Parameters
    ----------
    source : path or stream
        A TOML file, or a stream of one; files named in a plan are looked for
        beside it, and in the current folder for a stream.
    name : str, optional
        What to call the source in messages.
    expression : str, optional
        To be used in place of the expression of the plan.

    Returns
    -------
    PlanFile

    Raises
    ------
    PlanError, UnitError, CompositionError, InputError
        All of one line that names the file, the line or key, the value found and
        what was expected.
    """
    if isinstance(source, str | pathlib.Path):
        path = pathlib.Path(source)
        label, folder = name or path.name, path.parent
        content = _content_of(path, label)
    else:
        label, folder = name or "standard input", pathlib.Path()
        content = source.read(MAX_BYTES + 1)
    return _plan(_toml(content, label), label, folder, expression)


def _content_of(path: pathlib.Path, label: str) -> bytes:
    try:
        if path.is_dir():
            raise PlanError(f"{label}: is a folder; expected a plan file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanError(f"{shown(str(path))}: cannot be read: {reason}") from None


def _toml(content: bytes | str, label: str) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise PlanError(
            f"{label}: more than {MAX_BYTES:,} bytes; put long lists of runs into a"
            " CSV file"
        )
    try:
        decoded = content.decode() if isinstance(content, bytes) else content
        return tomllib.loads(decoded)
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{label}: byte {error.start} is not UTF-8; expected a TOML file"
        ) from None
    except ValueError as error:  # TOMLDecodeError is one; so is a number too long
        reason = " ".join(str(error).split())[:200]
        raise PlanError(f"{label}: no valid TOML: {reason}") from None
    except RecursionError:
        raise PlanError(f"{label}: lists or tables nested too deeply") from None


def _table(document: Mapping[str, Any], key: str, label: str) -> Mapping[str, Any]:
    """Return one of the tables of named entries, its names checked."""
    where = f"{label}: {key}"
    table = document.get(key, {})
    if not isinstance(table, Mapping):
        raise PlanError(f"{where}: {shown(table)} found; expected a table")
    if len(table) > MAX_ENTRIES:
        raise PlanError(
            f"{where}: {len(table):,} entries; at most {MAX_ENTRIES:,} allowed"
        )
    for name in table:
        if NAME.fullmatch(name) is None or len(name) > 200:
            raise PlanError(
                f"{where}: {name[:60]!r} is no name; expected a letter, then letters,"
                " digits and _ . : -"
            )
    return table


def _plan(
    document: Mapping[str, Any],
    label: str,
    folder: pathlib.Path,
    expression: str | None,
) -> PlanFile:
    check_keys(document, _TOP, label)
    name = text(document.get("name", label), f"{label}: name")
    description = text(document.get("description", ""), f"{label}: description")
    devices = {
        key: read_device(key, value, f"{label}: devices.{key}")
        for key, value in _table(document, "devices", label).items()
    }
    shared = {
        key: _shared(key, value, f"{label}: shared.{key}", folder)
        for key, value in _table(document, "shared", label).items()
    }
    elements = {
        key: read_element(
            key, value, Scope(f"{label}: elements.{key}", folder, devices, shared)
        )
        for key, value in _table(document, "elements", label).items()
    }
    if not elements:
        raise PlanError(f"{label}: no elements; expected at least [elements.NAME]")
    meta = dict(free_table(document.get("metadata", {}), f"{label}: metadata"))
    if description:
        meta["description"] = description
    held = (
        ReadOnly(elements),
        ReadOnly(devices),
        ReadOnly(shared),
        ReadOnly(meta),
    )
    scheduled = [key for key in KEYS if key in document]
    if scheduled and expression is None:
        for key in ("expression", "terms"):
            if key in document:
                raise PlanError(f"{label}: gives both {key!r} and {scheduled[0]!r}")
        plan = read_nodes(document, elements, devices, label, folder=folder, name=name)
        return PlanFile(name, "", plan, *held)
    where = f"{label}: expression"
    if expression is not None:
        where = "expression"
    elif "expression" not in document:
        raise PlanError(f"{label}: 'expression' is missing, such as \"rms >> linear\"")
    else:
        expression = text(document["expression"], where)
    places = {"": where}
    texts = {"": expression}
    for key, value in _table(document, "terms", label).items():
        places[key] = f"{label}: terms.{key}"
        texts[key] = text(value, places[key])
        if key in elements:
            raise PlanError(f"{places[key]}: is the name of an element too")
    term = parse_all(texts, elements, places=places)[""]
    return PlanFile(name, " ".join(expression.split()), term, *held)


def _shared(name: str, value: Any, where: str, folder: pathlib.Path) -> Shared:
    table = check_keys(value, ("law", "acts_on", "how"), where)
    if "law" not in table:
        raise PlanError(f"{where}: 'law' is missing")
    acts_on = choice(table, "acts_on", tuple(_DIMENSION), where)
    how = choice(table, "how", ("scale", "shift"), where)
    dimension = "number" if how == "scale" else _DIMENSION[acts_on]
    context = Context(f"{where}.law", dimension, folder, signed=how == "shift")
    law = read_law(table["law"], context)
    with located(where):
        return Shared(name, law, acts_on=acts_on, how=how)  # type: ignore[arg-type]
