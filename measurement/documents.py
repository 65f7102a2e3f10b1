"""Free-form facts as plain data: what a JSON document holds, frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from probcalc.errors import InputError
from probcalc.readonly import ReadOnly
from probcalc.units import shown

__all__ = ["as_json", "frozen", "plain"]

DEEPEST = 50


def frozen(value: Any, where: str) -> Any:
    """Return plain data that cannot be changed: mappings, tuples, texts, numbers.

    Arrays and numbers of NumPy become tuples and Python's numbers, keys become texts.

    Raises
    ------
    InputError
        Anything that JSON cannot hold, NaN and infinities included (a value that is
        missing is None), named by its place.
    """
    return _frozen(value, where, 0)


def _frozen(value: Any, where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise InputError(f"{where}: nested too deeply, expected at most {DEEPEST}")
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return _frozen(value.tolist(), where, depth)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not np.isfinite(value):
            raise InputError(
                f"{where} is {value}, expected a finite number; missing is None"
            )
        return value
    if isinstance(value, Mapping):
        return _mapping(value, where, depth)
    if isinstance(value, list | tuple):
        return tuple(
            _frozen(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)
        )
    raise InputError(
        f"{where}: {shown(value)} is no plain data, expected a mapping, a list, a text "
        "or a number"
    )


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> ReadOnly[str, Any]:
    held: dict[str, Any] = {}
    for key, item in value.items():
        name = str(key)
        if name in held:
            raise InputError(f"{where}: two keys are written {name!r}")
        held[name] = _frozen(item, f"{where}, {shown(name)}", depth + 1)
    return ReadOnly(held)


def plain(value: Any) -> Any:
    """Return frozen data as dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def as_json(value: Any) -> str:
    """Return the JSON text of frozen data: equal data give equal texts."""
    return json.dumps(plain(value), sort_keys=True, allow_nan=False)
