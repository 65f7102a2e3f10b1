"""Lists of stored signatures, what two of them differ in, and their export.

All as plain data, for a command line to print. Figures of spread over blocks are over
the means of blocks: runs of one block share its process.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.atomic import write_atomic
from probcalc.measurement.documents import plain
from probcalc.measurement.signature import Signature
from probcalc.measurement.store import Refused, load_all
from probcalc.plain import finite

__all__ = ["diff", "export", "law_summary", "runs_table", "signatures_table"]

FloatArray = npt.NDArray[np.float64]
_FACTS = (
    "grain",
    "devices",
    "scope",
    "static_power",
    "static_power_error",
    "workload",
    "implementation",
    "operating_point",
    "context",
    "device_facts",
    "probe",
    "calibration",
    "metadata",
)
_COLUMNS = (
    "element",
    "context",
    "block",
    "run",
    "grain",
    "time_s",
    "energy_j",
    "valid",
    "reasons",
)


def law_summary(values: npt.ArrayLike, unit: str) -> dict[str, Any]:
    """Return the mean of blocks by runs, its standard error over blocks, and spread.

    Parameters
    ----------
    values : array_like, shape (blocks, runs)
        NaN where missing.

    Returns
    -------
    dict
        ``mean`` over block means; ``standard_error`` of it, None for fewer than two
        blocks; ``sd`` of runs around their mean, None for fewer than two; ``runs``,
        ``blocks``, ``unit``. Mean None where all are missing.
    """
    table = np.asarray(values, dtype=float)
    rows = [row[np.isfinite(row)] for row in table]
    means = np.array([row.mean() for row in rows if row.size])
    runs = np.concatenate([*rows, np.empty(0)])
    spread = means.std(ddof=1) / math.sqrt(means.size) if means.size > 1 else None
    return {
        "mean": float(means.mean()) if means.size else None,
        "standard_error": None if spread is None else float(spread),
        "sd": float(runs.std(ddof=1)) if runs.size > 1 else None,
        "runs": int(runs.size),
        "blocks": int(means.size),
        "unit": unit,
    }


def signatures_table(
    folder: str | Path,
) -> tuple[tuple[dict[str, Any], ...], tuple[Refused, ...]]:
    """Return one row for each signature of a folder, and the files refused.

    Rows have element, context, grain, blocks, runs, missing (runs without a time or
    an energy), windows, invalid (of them), time and energy as `law_summary`, and
    static_power in W by device.
    """
    found = load_all(folder)
    return tuple(map(_row, found.signatures)), found.refused


def _row(s: Signature) -> dict[str, Any]:
    return {
        "element": s.element,
        "context": plain(s.context),
        "grain": s.grain,
        "blocks": int(s.runs.size),
        "runs": int(s.runs.sum()),
        "missing": int(s.made.sum() - s.complete.sum()),
        "windows": len(s.windows),
        "invalid": sum(not w.valid for w in s.windows),
        "time": law_summary(s.time, "s"),
        "energy": law_summary(s.energy, "J"),
        "static_power": plain(s.static_power),
    }


def diff(a: Signature, b: Signature) -> dict[str, Any]:
    """Return what two signatures differ in.

    Returns
    -------
    dict
        ``facts``: by place such as "context, gpu", the two values (None where one has
        none); ``laws``: by "time" and "energy" both summaries, the difference of
        means, its standard error from both spreads over blocks as if independent
        (None where unknown) and the ratio b to a; no difference of laws of different
        grain or scope is taken. ``same`` tells whether all is equal.
    """
    facts: dict[str, tuple[Any, Any]] = {}
    if a.element != b.element:
        facts["element"] = (a.element, b.element)
    for name in _FACTS:
        _compare(plain(getattr(a, name)), plain(getattr(b, name)), name, facts)
    comparable = a.grain == b.grain and a.scope == b.scope
    laws = {
        name: _laws(getattr(a, name), getattr(b, name), unit, comparable)
        for name, unit in (("time", "s"), ("energy", "J"))
    }
    return {"same": a.same_as(b), "facts": facts, "laws": laws}


def _compare(a: Any, b: Any, place: str, found: dict[str, tuple[Any, Any]]) -> None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}):
            _compare(a.get(key), b.get(key), f"{place}, {key}", found)
    elif json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True):
        found[place] = (a, b)


def _laws(a: FloatArray, b: FloatArray, unit: str, comparable: bool) -> dict[str, Any]:
    first, second = law_summary(a, unit), law_summary(b, unit)
    found: dict[str, Any] = {"a": first, "b": second}
    found |= {"difference": None, "standard_error": None, "ratio": None}
    if comparable and first["mean"] is not None and second["mean"] is not None:
        found["difference"] = second["mean"] - first["mean"]
        found["ratio"] = second["mean"] / first["mean"]
        errors = first["standard_error"], second["standard_error"]
        if None not in errors:
            found["standard_error"] = math.hypot(*errors)
    return found


def runs_table(signature: Signature) -> tuple[dict[str, Any], ...]:
    """Return one row for each run: block, run, time in s, energy in J, validity.

    A value that is missing is None; `valid` is None and `reasons` empty where no
    window is kept.
    """
    windows = {(w.block, w.run): w for w in signature.windows if w.run is not None}
    rows = []
    for i, j in np.argwhere(signature.made).tolist():
        window = windows.get((i, j))
        rows.append(
            {
                "element": signature.element,
                "context": json.dumps(plain(signature.context), sort_keys=True),
                "block": signature.block_names[i],
                "run": j,
                "grain": signature.grain,
                "time_s": finite(signature.time[i, j]),
                "energy_j": finite(signature.energy[i, j]),
                "valid": None if window is None else window.valid,
                "reasons": "" if window is None else "; ".join(window.reasons),
            }
        )
    return tuple(rows)


def export(folder: str | Path, path: str | Path) -> tuple[int, tuple[Refused, ...]]:
    """Write the signatures of a folder to one file; return how many, and the refused.

    Parameters
    ----------
    path : str or Path
        ``.csv``: the rows of `runs_table`, an empty cell where missing. ``.json``: all
        that signatures hold, null where missing. Appears whole or not at all.

    Raises
    ------
    InputError
        Another ending.
    StoreError
        No such folder.
    """
    path = Path(path)
    kinds = {".csv": _csv, ".json": _json}
    if path.suffix.lower() not in kinds:
        raise InputError(f"{path}: expected a name that ends in .csv or .json")
    found = load_all(folder)
    text = kinds[path.suffix.lower()](found.signatures)
    write_atomic(path, text.encode())
    return len(found.signatures), found.refused


def _csv(signatures: tuple[Signature, ...]) -> str:
    held = io.StringIO()
    writer: csv.DictWriter[str] = csv.DictWriter(held, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for signature in signatures:
        writer.writerows(runs_table(signature))
    return held.getvalue()


def _json(signatures: tuple[Signature, ...]) -> str:
    return json.dumps([_whole(s) for s in signatures], indent=1, allow_nan=False) + "\n"


def _whole(s: Signature) -> dict[str, Any]:
    held: dict[str, Any] = {"element": s.element}
    held |= {name: plain(getattr(s, name)) for name in _FACTS}
    held["units"] = {"time": "s", "energy": "J", "run_time": "s", "static_power": "W"}
    held["blocks"] = [
        {
            "name": name,
            "details": plain(s.block_details[i]),
            "runs": int(s.runs[i]),
            "time": _list(s.time[i, : s.runs[i]]),
            "energy": _list(s.energy[i, : s.runs[i]]),
            "run_time": None
            if s.run_time is None or s.executions is None
            else _list(s.run_time[i, : s.executions[i]]),
        }
        for i, name in enumerate(s.block_names)
    ]
    held["windows"] = [w.as_dict() for w in s.windows]
    return held


def _list(values: FloatArray) -> list[float | None]:
    return [finite(v) for v in values]
