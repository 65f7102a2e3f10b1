"""Signatures of the same element and context, put together block after block."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.documents import as_json

if TYPE_CHECKING:
    from probcalc.measurement.signature import Signature

__all__ = ["extended"]

FloatArray = npt.NDArray[np.float64]


def extended(first: Signature, second: Signature) -> Signature:
    """Return the first with the blocks of the second; see `Signature.extended`."""
    from probcalc.measurement.signature import COMMON

    where = f"signature {first.element!r}"
    for name in ("element", "context", *COMMON):
        a, b = as_json(getattr(first, name)), as_json(getattr(second, name))
        if a != b:
            raise InputError(f"{where}: {name} is {a} and {b}, expected the same")
    if (first.run_time is None) != (second.run_time is None):
        raise InputError(f"{where}: times of single executions in one of two only")
    new = []
    for i, name in enumerate(second.block_names):
        if name not in first.block_names:
            new.append(i)
        elif not _equal(first, first.block_names.index(name), second, i):
            raise InputError(
                f"{where}: block {name!r} is there with other values; a block is "
                "measured once"
            )
    return _joined(first, second, new) if new else first


def _equal(first: Signature, i: int, second: Signature, j: int) -> bool:
    """Whether two blocks hold the same values."""
    for table in ("time", "energy", "run_time"):
        a, b = getattr(first, table), getattr(second, table)
        if a is None:
            continue
        count = "executions" if table == "run_time" else "runs"
        n, m = getattr(first, count)[i], getattr(second, count)[j]
        if not np.array_equal(a[i, :n], b[j, :m], equal_nan=True):
            return False
    return True


def _joined(first: Signature, second: Signature, new: list[int]) -> Signature:
    shift = {j: first.runs.size + n for n, j in enumerate(new)}
    more: dict[str, Any] = {}
    for name in ("probe", "metadata"):
        mine, other = getattr(first, name), getattr(second, name)
        if as_json(mine) != as_json(other):
            more[name] = other
    joined: dict[str, Any] = {
        "runs": np.concatenate([first.runs, second.runs[new]]),
        "block_names": (*first.block_names, *(second.block_names[j] for j in new)),
        # What the block says of itself comes before what its signature said.
        "block_details": (
            *first.block_details,
            *({**more, **second.block_details[j]} for j in new),
        ),
        "windows": (
            *first.windows,
            *(
                replace(w, block=shift[w.block])
                for w in second.windows
                if w.block in shift
            ),
        ),
    }
    counts = {"time": "runs", "energy": "runs", "run_time": "executions"}
    if first.executions is not None and second.executions is not None:
        joined["executions"] = np.concatenate(
            [first.executions, second.executions[new]]
        )
    for name, count in counts.items():
        a, b = getattr(first, name), getattr(second, name)
        if a is not None:
            joined[name] = _stacked(a, b[new], int(joined[count].max()))
    return replace(first, **joined)


def _stacked(a: FloatArray, b: FloatArray, width: int) -> FloatArray:
    found = np.full((a.shape[0] + b.shape[0], width), np.nan)
    found[: a.shape[0], : a.shape[1]] = a
    # A block that is not taken over is in the first as well: none is wider than both.
    found[a.shape[0] :, : b.shape[1]] = b
    return found
