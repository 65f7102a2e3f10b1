"""Whether two arms did the same work: their outputs agree by a declared predicate.

Energies are compared only where both arms completed the same work. Unequal work is
kept and excluded, never adjusted.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError

__all__ = ["Agreement", "Output", "Predicate", "output_of", "predicate_of", "same_work"]

#: Numbers that are kept for an elementwise comparison.
MOST_KEPT = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What one arm produced, as far as a predicate needs it.

    Attributes
    ----------
    digest : str
        SHA-256 of its bytes, with shapes and types.
    values : ndarray or None
        Its numbers in order, where it is made of numbers and not too large.
    described : str
        Shapes and types.
    """

    digest: str
    values: npt.NDArray[np.float64] | None
    described: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether two outputs agree, and why not."""

    same: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Predicate:
    """When two outputs are the same work.

    Parameters
    ----------
    rtol, atol : float or None
        Elementwise tolerance, ``|a - b| <= atol + rtol |b|``; without both, bytes must
        be equal.
    custom : callable, optional
        Takes both outputs, as `Output`, and returns a truth value.
    name : str
        Stored with the campaign.
    """

    rtol: float | None = None
    atol: float | None = None
    custom: Callable[[Output, Output], bool] | None = None
    name: str = "bytes"


def predicate_of(text: str) -> Predicate:
    """Read a predicate: ``bytes``, ``rtol=1e-3,atol=1e-6`` or ``module:function``.

    Raises
    ------
    InputError
        Anything else, or a tolerance that is no number >= 0.
    """
    text = text.strip()
    if text == "bytes":
        return Predicate()
    if ":" in text:
        from probcalc.measurement.workload import imported

        return Predicate(custom=imported(text, "equal work"), name=text)
    given: dict[str, float] = {}
    for part in text.split(","):
        key, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if key not in ("rtol", "atol") or not (math.isfinite(value) and value >= 0.0):
            raise InputError(
                f"equal work: {part!r} found; expected 'bytes', 'rtol=NUMBER', "
                "'atol=NUMBER' or 'module:function'"
            )
        given[key] = value
    return Predicate(given.get("rtol"), given.get("atol"), name=text)


def output_of(result: Any) -> Output:
    """Keep what a workload returned: arrays (also of Torch and JAX), numbers, bytes.

    Raises
    ------
    InputError
        An object with no bytes of its own.
    """
    digest = hashlib.sha256()
    numbers: list[npt.NDArray[Any]] = []
    described = _add(result, digest, numbers, "output")
    values = None
    if numbers and sum(a.size for a in numbers) <= MOST_KEPT:
        flat = [a.ravel() for a in numbers]
        if not any(np.iscomplexobj(a) for a in flat):
            values = np.concatenate([a.astype(np.float64) for a in flat])
    return Output(digest.hexdigest(), values, described)


def _add(result: Any, digest: Any, numbers: list[npt.NDArray[Any]], where: str) -> str:
    if result is None:
        digest.update(b"none;")
        return "none"
    if isinstance(result, bytes | bytearray | memoryview):
        content = bytes(result)
        digest.update(b"bytes;" + content)
        return f"{len(content)} bytes"
    if isinstance(result, str):
        digest.update(b"text;" + result.encode())
        return f"text of {len(result)}"
    if isinstance(result, Mapping):
        parts = [
            f"{key}: {_add(result[key], digest, numbers, f'{where}[{key!r}]')}"
            for key in sorted(result, key=repr)
        ]
        digest.update(json.dumps(sorted(map(repr, result))).encode())
        return "{" + ", ".join(parts) + "}"
    if isinstance(result, tuple | list) and not all(
        isinstance(x, bool | int | float) for x in result
    ):
        parts = [
            _add(part, digest, numbers, f"{where}[{i}]")
            for i, part in enumerate(result)
        ]
        digest.update(f"list of {len(parts)};".encode())
        return "[" + ", ".join(parts) + "]"
    held: Any = result
    if hasattr(held, "detach"):  # Torch: off the device, and of a type NumPy knows
        held = held.detach().cpu()
        if "bfloat16" in str(held.dtype):
            held = held.float()
    elif type(held).__module__.partition(".")[0] == "cupy":
        held = held.get()
    array = np.asarray(held)
    if array.dtype.kind not in "biufc":
        raise InputError(
            f"{where}: {type(result).__name__} found; expected arrays, numbers, text, "
            "bytes, or lists and mappings of them"
        )
    numbers.append(array)
    head = f"{array.dtype.str}{array.shape}"
    digest.update(head.encode() + np.ascontiguousarray(array).tobytes())
    return head


def same_work(a: Output, b: Output, predicate: Predicate) -> Agreement:
    """Judge two outputs by a declared predicate.

    Raises
    ------
    InputError
        A tolerance is declared and an output is not made of numbers.
    """
    if predicate.custom is not None:
        same = bool(predicate.custom(a, b))
        return Agreement(same, "" if same else f"{predicate.name} says no")
    if a.digest == b.digest:
        return Agreement(True, "")
    if predicate.rtol is None and predicate.atol is None:
        if a.described != b.described:
            return Agreement(False, f"{a.described:.60} and {b.described:.60}")
        return Agreement(False, f"bytes differ ({a.described:.60})")
    if a.values is None or b.values is None:
        raise InputError(
            f"equal work: {predicate.name} is declared and the outputs are "
            f"{a.described:.60} and {b.described:.60}; expected numbers"
        )
    if a.values.size != b.values.size:
        return Agreement(False, f"{a.values.size} and {b.values.size} numbers")
    allowed = (predicate.atol or 0.0) + (predicate.rtol or 0.0) * np.abs(b.values)
    with np.errstate(invalid="ignore"):
        off = np.abs(a.values - b.values)
        # Equal infinities agree; NaN agrees with nothing but NaN in the same place.
        alike = (a.values == b.values) | (np.isnan(a.values) & np.isnan(b.values))
        wrong = ~(alike | (off <= allowed))
    if not wrong.any():
        return Agreement(True, "")
    i = int(np.argmax(wrong))
    return Agreement(
        False,
        f"{int(wrong.sum())} of {wrong.size} numbers differ by more than "
        f"{predicate.name}, first number {i}: {a.values[i]:g} and {b.values[i]:g}",
    )
