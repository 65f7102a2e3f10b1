"""How results look in a notebook: small tables, with units and kinds of error."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probcalc.prediction import Prediction

__all__ = ["prediction_table", "table"]

LEVELS = (0.5, 0.9, 0.99, 0.999)


def table(title: str, head: list[str], rows: list[list[object]]) -> str:
    """Return a table in HTML; every cell is escaped."""
    columns = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(x))}</td>" for x in row) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{html.escape(title)}</caption>"
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
    )


def prediction_table(prediction: Prediction) -> str:
    """Return mean and quantiles of energy and time, each with its error."""
    rows: list[list[object]] = []
    for kind, unit in (("energy", "J"), ("time", "s")):
        law = getattr(prediction, kind)
        rows.append(_row(f"{kind}, mean", law.mean_bounds, unit))
        rows += [
            _row(f"{kind}, p {p:g}", partial(law.quantile, p), unit) for p in LEVELS
        ]
    title = f"{prediction.label} by {prediction.method}"
    return table(title, ["", "value", "lower", "upper", "kind"], rows)


def _row(name: str, ask: Any, unit: str) -> list[object]:
    """One figure, or why there is none: a notebook must not fail to show a result."""
    from probcalc.errors import ProbcalcError

    try:
        found = ask()
    except ProbcalcError as error:
        return [name, str(error), "", "", ""]
    ends = (found.value, found.lower, found.upper)
    return [name, *(f"{x:.6g} {unit}" for x in ends), found.kind]
