"""Whether two arms did the same work: their outputs agree by a declared predicate.

Energies are compared only where both arms completed the same work. Unequal work is
kept and excluded, never adjusted.
"""

from __future__ import annotations

import hashlib
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
    shape : str
        Its structure without the types of numbers.
    rest : str
        SHA-256 of all in it that is not numbers.
    """

    digest: str
    values: npt.NDArray[np.float64] | None
    described: str
    shape: str = ""
    rest: str = ""


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
        if key in given:
            raise InputError(f"equal work: {key!r} is given twice in {text!r}")
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
    kept = _Kept()
    described, shape = kept.add(result, "output")
    values = None
    if kept.numbers and sum(a.size for a in kept.numbers) <= MOST_KEPT:
        flat = [a.ravel() for a in kept.numbers]
        if not any(np.iscomplexobj(a) for a in flat):
            values = np.concatenate([a.astype(np.float64) for a in flat])
    return Output(
        kept.whole.hexdigest(), values, described, shape, kept.rest.hexdigest()
    )


class _Kept:
    """Digests of an output and the numbers in it, filled part by part."""

    def __init__(self) -> None:
        self.whole = hashlib.sha256()
        self.rest = hashlib.sha256()
        self.numbers: list[npt.NDArray[Any]] = []

    def add(self, result: Any, where: str) -> tuple[str, str]:
        """Take a part; return it described, with and without types of numbers."""
        if result is None or isinstance(result, bytes | bytearray | memoryview | str):
            return self._content(result)
        if isinstance(result, Mapping):
            keys = sorted(result, key=repr)
            self._note("mapping", "".join(map(repr, keys)).encode())
            parts = [(k, self.add(result[k], f"{where}[{k!r}]")) for k in keys]
            return (
                "{" + ", ".join(f"{k}: {p[0]}" for k, p in parts) + "}",
                "{" + ", ".join(f"{k}: {p[1]}" for k, p in parts) + "}",
            )
        if isinstance(result, tuple | list) and not all(
            isinstance(x, bool | int | float) for x in result
        ):
            self._note("list", str(len(result)).encode())
            found = [self.add(x, f"{where}[{i}]") for i, x in enumerate(result)]
            return (
                "[" + ", ".join(p[0] for p in found) + "]",
                "[" + ", ".join(p[1] for p in found) + "]",
            )
        return self._array(result, where)

    def _note(self, kind: str, content: bytes, *, also_rest: bool = True) -> None:
        # Lengths go in front: no two outputs run into the same bytes.
        head = f"{kind} {len(content)};".encode()
        for digest in (self.whole, self.rest) if also_rest else (self.whole,):
            digest.update(head + content)

    def _content(self, result: Any) -> tuple[str, str]:
        if result is None:
            self._note("none", b"")
            return "none", "none"
        if isinstance(result, str):
            self._note("text", result.encode(errors="surrogatepass"))
            return f"text of {len(result)}", "text"
        content = bytes(result)
        self._note("bytes", content)
        return f"{len(content)} bytes", "bytes"

    def _array(self, result: Any, where: str) -> tuple[str, str]:
        held: Any = result
        if hasattr(held, "detach"):  # Torch: off the device, of a type NumPy knows
            held = held.detach().cpu()
            if "bfloat16" in str(held.dtype):
                held = held.float()
        elif type(held).__module__.partition(".")[0] == "cupy":
            held = held.get()
        array = np.asarray(held)
        if array.dtype.kind not in "biufc":
            raise InputError(
                f"{where}: {type(result).__name__} found; expected arrays, numbers, "
                "text, bytes, or lists and mappings of them"
            )
        self.numbers.append(array)
        described = f"{array.dtype.str}{array.shape}"
        content = np.ascontiguousarray(array).tobytes()
        self._note(described, content, also_rest=False)
        return described, f"numbers{array.shape}"


def same_work(a: Output, b: Output, predicate: Predicate) -> Agreement:
    """Judge two outputs by a declared predicate.

    With a tolerance, structure and all that is not numbers must be equal.
    """
    if predicate.custom is not None:
        same = bool(predicate.custom(a, b))
        return Agreement(same, "" if same else f"{predicate.name} says no")
    if a.digest == b.digest:
        return Agreement(True, "")
    if not (predicate.rtol or predicate.atol):
        if a.described != b.described:
            return Agreement(False, f"{a.described:.60} and {b.described:.60}")
        return Agreement(False, f"bytes differ ({a.described:.60})")
    if a.shape != b.shape:
        return Agreement(False, f"{a.shape:.60} and {b.shape:.60}")
    if a.rest != b.rest:
        return Agreement(False, "what is not numbers differs")
    if a.values is None or b.values is None:
        return Agreement(
            False, f"{a.described:.60}: not numbers that {predicate.name} can compare"
        )
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
