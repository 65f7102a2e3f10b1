"""What the command line shows of a prediction: numbers, table, picture."""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import TYPE_CHECKING, Any

from probcalc.distribution import Bounds, Empirical
from probcalc.element import Element
from probcalc.errors import ToleranceError
from probcalc.plain import finite
from probcalc.plan import Plan
from probcalc.term import postorder

if TYPE_CHECKING:
    from probcalc.distribution import Quantile
    from probcalc.planfile import PlanFile
    from probcalc.prediction import Prediction

__all__ = ["as_text", "budget", "plot", "scales"]

_UNITS = {"time": "s", "energy": "J"}
_RTOL = 1e-4
_NARROWEST = 1e-7
_PREFIXES = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G"}


def budget(
    plan: PlanFile,
    prediction: Prediction,
    *,
    levels: Sequence[tuple[str, float]],
    limits: Mapping[str, float],
    rtol: float | None = None,
) -> dict[str, Any]:
    """Work out the figures of ``probcalc budget``, in SI units.

    Parameters
    ----------
    plan : PlanFile
    prediction : Prediction
        Of the term of the plan.
    levels : sequence of tuple
        ``("p", 0.99)`` or ``("sf", 1e-9)``.
    limits : mapping of str to float
        Limits of ``"energy"`` (J) and ``"time"`` (s).
    rtol : float, optional
        Relative width asked of the brackets of quantiles. By default 1e-4, or a
        fiftieth of the standard deviation where that is narrower and within reach.

    Returns
    -------
    dict
        The documented JSON document (``docs/json.md``).
    """
    found: dict[str, Any] = {
        "plan": plan.name,
        "description": plan.meta.get("description", ""),
        "expression": plan.expression,
        "method": prediction.method,
    }
    if isinstance(plan.term, Plan):
        found["nodes"] = len(plan.term)
        found["draws"] = plan.term.draws.sentence
    if prediction.simulation is not None:
        found["samples"] = prediction.simulation.samples
        found["seed"] = prediction.simulation.seed
    for kind, unit in _UNITS.items():
        law = getattr(prediction, kind)
        part = _moments(law)
        found[kind] = {
            "unit": unit,
            **part,
            "quantiles": [
                _fields(
                    _quantile(kind, law, name, level, rtol, part),
                    ("p", "sf", "value", "lower", "upper", "kind", "limited_by"),
                )
                for name, level in levels
            ],
        }
    whole = found["energy"]["mean"]
    for kind in ("static_energy", "dynamic_energy"):
        part = _moments(getattr(prediction, kind))
        # Of an infinite mean there is no share.
        share = 0.0 if whole == 0.0 else None
        if whole and part["mean"] is not None:
            share = part["mean"] / whole
        found[kind] = {"unit": "J", **part, "share": share}
    found["limit"] = {kind: limits.get(kind) for kind in _UNITS}
    found["probability_over"] = {
        kind: _fields(
            getattr(prediction, kind).probability_above(limits[kind]),
            ("value", "lower", "upper", "kind"),
        )
        if kind in limits
        else None
        for kind in _UNITS
    }
    found["grain"] = prediction.grain
    found["fewest_runs"] = _fewest_runs(plan)
    found["assumptions"] = [str(line) for line in prediction.assumptions]
    return found


def _quantile(
    kind: str,
    law: Any,
    name: str,
    level: float,
    rtol: float | None,
    moments: Mapping[str, Any],
) -> Quantile:
    try:
        return _reached(law, name, level, rtol, moments)
    except ToleranceError as error:
        raise ToleranceError(
            f"{kind}, {error}; a larger --rtol, another level or method may do",
            error.best,
        ) from error


def _reached(
    law: Any, name: str, level: float, rtol: float | None, moments: Mapping[str, Any]
) -> Quantile:
    if rtol is not None:
        return law.quantile(**{name: level}, rtol=rtol)
    # A bracket as wide as the law itself would tell its quantiles not apart.
    mean, sd = moments["mean"], moments["sd"]
    narrow = sd / abs(mean) / 50.0 if mean and sd else _RTOL
    if _NARROWEST < narrow < _RTOL:
        try:
            return law.quantile(**{name: level}, rtol=narrow)
        except ToleranceError as missed:
            # An aim, not a demand: the bracket that was found says how wide it is.
            if missed.best is not None and missed.best.relative_width <= _RTOL:
                return missed.best
    return law.quantile(**{name: level})


def _fewest_runs(plan: PlanFile) -> int | None:
    """Smallest number of measured runs behind a law of the plan."""
    parts = plan.term.elements if isinstance(plan.term, Plan) else postorder(plan.term)
    sizes = [
        law.samples.size
        for element in parts
        if isinstance(element, Element)
        for law in (element.time, element.dynamic_energy)
        if isinstance(law, Empirical)
    ]
    return min(sizes, default=None)


def _moments(law: Any) -> dict[str, Any]:
    """Mean and sd; open where the memory allowed does not reach them."""
    mean = Bounds(math.inf, -math.inf, math.inf, "open")
    variance = math.inf
    with contextlib.suppress(ToleranceError):
        mean = law.mean_bounds()
    with contextlib.suppress(ToleranceError):
        variance = max(float(law.variance()), 0.0)
    return {
        "mean": finite(mean.value),
        "mean_error": _fields(mean, ("lower", "upper", "kind")),
        "sd": finite(math.sqrt(variance)),
    }


def _fields(result: Any, names: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(result, name)
        found[name] = value if isinstance(value, str) else finite(value)
    return found


# --- the table ---------------------------------------------------------------

_DIGITS = 6
"""Significant digits of a figure that is exact or an estimate."""


def as_text(found: Mapping[str, Any]) -> str:
    """Lay the figures of `budget` out for people, in fitting units.

    Brackets are rounded outward, so that what is printed holds as well.
    """
    lines = [_plain(found["plan"])]
    if found["description"]:
        lines.append(_plain(found["description"]))
    expression = textwrap.shorten(_plain(found["expression"]), 200, placeholder=" ...")
    if expression:
        lines += ["", f"expression  {expression}"]
    else:
        lines += ["", f"nodes       {found['nodes']:,}"]
    lines.append(f"method      {found['method']}")
    if "samples" in found:
        lines.append(f"samples     {found['samples']:,}, seed {found['seed']}")
    for kind in _UNITS:
        lines += ["", kind, *_columns(_rows(found, kind))]
    notes = list(found["assumptions"])
    if found["fewest_runs"] is not None:
        runs = "1 run" if found["fewest_runs"] == 1 else f"{found['fewest_runs']} runs"
        notes.append(f"a law is known from {runs}: no bracket covers what they miss")
    lines += ["", "assumed"]
    for note in notes:
        lines += textwrap.wrap(
            _plain(note), 84, initial_indent="  - ", subsequent_indent="    "
        )
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text without the control characters that a plan file could hold."""
    return "".join(c if c.isprintable() else " " for c in text)


def _rows(found: Mapping[str, Any], kind: str) -> list[tuple[str, ...]]:
    part = found[kind]
    power, unit = _prefix(_size_of(part), part["unit"])
    mean = {"value": part["mean"], **part["mean_error"]}
    rows = [_row("mean", mean, power, unit), ("sd", _spread(part["sd"], power, unit))]
    if kind == "energy":
        for name in ("static", "dynamic"):
            share = found[f"{name}_energy"]
            row: tuple[str, ...] = _row(
                name, {"value": share["mean"], **share["mean_error"]}, power, unit
            )
            if share["share"] is not None:
                row = (*row, f"{100 * share['share']:.1f} % of the mean")
            rows.append(row)
    for point in part["quantiles"]:
        # 1 - sf has lost the digits of a small sf, so the rarer side is shown.
        name = f"p {point['p']:g}" if point["p"] <= 0.9999 else f"sf {point['sf']:g}"
        rows.append(_row(name, point, power, unit))
    over = found["probability_over"][kind]
    if over is not None:
        power, unit = _prefix(found["limit"][kind], part["unit"])
        limit = f"P(> {found['limit'][kind] / 10.0**power:.6g} {unit})"
        bracket = "" if over["kind"] == "estimate" else "exactly"
        if over["lower"] != over["upper"]:
            low, high = (
                _few_digits(over[side], rounding)
                for side, rounding in (("lower", ROUND_FLOOR), ("upper", ROUND_CEILING))
            )
            bracket = f"[{low}, {high}]"
        value = _few_digits(over["value"], ROUND_HALF_EVEN)
        rows.append((limit, value, bracket, over["kind"]))
    return rows


def _row(
    name: str, point: Mapping[str, Any], power: int, unit: str
) -> tuple[str, str, str, str]:
    """Name, value, bracket and kind of a figure with its error."""
    value, lower, upper, kind = (point[k] for k in ("value", "lower", "upper", "kind"))
    if value is None:
        return name, "not known" if kind == "open" else "infinite", "", kind
    exponent = _last_place(value, lower, upper, power)
    shown = f"{_rounded(value, power, exponent, ROUND_HALF_EVEN)} {unit}"
    if lower == upper:
        return name, shown, "" if kind == "estimate" else "exactly", kind
    if None not in (lower, upper) and upper - lower <= 1e-12 * abs(value):
        return name, shown, "to rounding", kind
    low = _rounded(lower, power, exponent, ROUND_FLOOR)
    high = _rounded(upper, power, exponent, ROUND_CEILING)
    return name, shown, f"[{low}, {high}]", kind


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    count = max(map(len, rows))
    full = [(*row, *[""] * (count - len(row))) for row in rows]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in full
    ]


def _size_of(part: Mapping[str, Any]) -> float:
    """Size by which the unit of a table is chosen: the mean, else a quantile."""
    sizes = [part["mean"], *(point["value"] for point in part["quantiles"])]
    return next((size for size in sizes if size is not None), 0.0)


def _prefix(size: float, unit: str) -> tuple[int, str]:
    """Power of ten and name of the unit in which a value has one to three digits."""
    power = 0
    if size != 0.0 and math.isfinite(size):
        power = 3 * math.floor(math.log10(abs(size)) / 3)
        power = min(max(power, -9), 0 if unit == "s" else 9)
    return power, _PREFIXES[power] + unit


def _last_place(
    value: float, lower: float | None, upper: float | None, power: int
) -> int:
    """Exponent of the last decimal shown: two digits of the width, 4 to 12 in all."""
    if value == 0.0:
        return -_DIGITS
    first = math.floor(math.log10(abs(value))) - power
    width = 0.0 if lower is None or upper is None else upper - lower
    if width <= 1e-12 * abs(value):
        return first - _DIGITS + 1
    last = math.floor(math.log10(width)) - power - 1
    return min(max(last, first - 11), first - 3)


def _rounded(value: float | None, power: int, exponent: int, rounding: str) -> str:
    if value is None:
        return "open"
    if value == 0.0:
        return "0"
    step = Decimal(1).scaleb(min(exponent, 0))
    return f"{Decimal(value).scaleb(-power).quantize(step, rounding):f}"


def _few_digits(probability: float, rounding: str) -> str:
    """Four significant digits of a probability, however small."""
    rounded = Context(prec=4, rounding=rounding).create_decimal_from_float(probability)
    return f"{float(rounded):.4g}"


def _spread(sd: float | None, power: int, unit: str) -> str:
    return "infinite or not known" if sd is None else f"{sd / 10.0**power:.4g} {unit}"


# --- the picture -------------------------------------------------------------


def scales(found: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Return by kind what figures are divided by, and the unit that is left."""
    chosen = {}
    for kind in _UNITS:
        power, unit = _prefix(_size_of(found[kind]), found[kind]["unit"])
        chosen[kind] = (10.0**power, unit)
    return chosen


def plot(prediction: Prediction, found: Mapping[str, Any], file: str) -> None:
    """Draw P(time > t) and P(energy > e) to a file; see `probcalc.pictures`.

    Raises
    ------
    InputError
        A file name whose ending names no format of pictures.
    """
    from probcalc import pictures

    pictures.saved(pictures.exceedance(prediction, found, scales(found)), file)
