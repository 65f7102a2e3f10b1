"""Pictures: legible in grey, units on every axis, no title that repeats an axis."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from probcalc.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probcalc.montecarlo import Simulation
    from probcalc.prediction import Prediction

__all__ = ["as_svg", "bars", "blank", "exceedance", "saved", "timeline"]

#: Survival levels a curve goes through.
CURVE = 24
MOST_ROWS = 64
GREYS = ("0.25", "0.6", "0.8", "0.45", "0.9")
HATCHES = ("", "//", "..", "\\\\", "xx")


def blank(width: float, height: float) -> Figure:
    """Return an empty picture of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def saved(figure: Figure, file: str, option: str = "--plot") -> None:
    """Write a picture to a .png, .svg or .pdf file.

    Raises
    ------
    InputError
        A file name whose ending names no format of pictures.
    """
    if file.rpartition(".")[2].lower() not in figure.canvas.get_supported_filetypes():
        raise InputError(
            f"{option}: {file!r} found; expected a .png, .svg or .pdf file"
        )
    figure.savefig(file)


def as_svg(figure: Figure) -> str:
    """Return a picture as SVG, to be put into a page."""
    import matplotlib

    out = io.StringIO()
    # The same picture gives the same text: no date, no random names.
    with matplotlib.rc_context({"svg.hashsalt": "probcalc", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def exceedance(
    prediction: Prediction, found: Mapping[str, Any], scales: Mapping[str, Any]
) -> Figure:
    """Draw P(time > t) and P(energy > e) with the brackets of their quantiles.

    The lines go through quantiles, which cost the same wherever the law lies.

    Parameters
    ----------
    found : mapping
        As `probcalc.report.budget` gives it.
    scales : mapping
        By kind, what to divide by and the unit that is left.
    """
    figure = blank(9, 4)
    for axes, kind in zip(figure.subplots(1, 2), scales, strict=True):
        law, points = getattr(prediction, kind), found[kind]["quantiles"]
        scale, unit = scales[kind]
        rarest = min(point["sf"] for point in points)
        even = np.geomspace(0.8, min(rarest, 1e-3), CURVE)
        levels = sorted({0.99, 0.9, *even, *(point["sf"] for point in points)})
        values, kept = _through(law, levels)
        axes.plot(np.array(values) / scale, kept, color="0.2", linewidth=1.4)
        for point in points:
            _bracket(axes, point, scale)
        limit = found["limit"][kind]
        if limit is not None:
            axes.axvline(limit / scale, color="0.2", linestyle="--", label="budget")
            axes.legend(frameon=False)
        axes.set(xlabel=f"{kind} x ({unit})", ylabel=f"P({kind} > x)", yscale="log")
    return figure


def _through(law: Any, levels: Sequence[float]) -> tuple[list[float], list[float]]:
    """Quantiles at survival levels; those that are out of reach are left out."""
    from probcalc.errors import ToleranceError

    values, kept = [], []
    for level in levels:
        try:
            values.append(law.quantile(sf=float(level)).value)
        except ToleranceError:
            continue
        kept.append(level)
    return values, kept


def _bracket(axes: Any, point: Mapping[str, Any], scale: float) -> None:
    value, lower, upper = (point[k] for k in ("value", "lower", "upper"))
    if value is None:
        return
    error = [
        [0.0 if lower is None else (value - lower) / scale],
        [0.0 if upper is None else (upper - value) / scale],
    ]
    axes.errorbar(
        value / scale,
        point["sf"],
        xerr=error,
        fmt="o",
        color="0.2",
        markerfacecolor="white",
        capsize=3,
    )


def timeline(simulation: Simulation) -> tuple[Figure, dict[str, Any]]:
    """Draw every device of the sample whose makespan is the median.

    Returns
    -------
    Figure
    dict
        Which sample it is, and its makespan in s.
    """
    from probcalc.criticality import median_sample, replay

    plan = simulation.plan
    sample = median_sample(simulation)
    one = replay(plan, sample=sample, seed=simulation.seed)
    rows = plan.devices[:MOST_ROWS]
    figure = blank(11, 1.5 + 0.35 * len(rows))
    axes = figure.subplots()
    names = sorted({e.name for e in plan.elements})
    look = {
        name: (GREYS[i % len(GREYS)], HATCHES[(i // len(GREYS)) % len(HATCHES)])
        for i, name in enumerate(names)
    }
    for row, device in enumerate(rows):
        for i, e in enumerate(plan.elements):
            if device not in e.devices:
                continue
            nodes = np.flatnonzero(plan.element_of == i)
            lengths = one.finishes[nodes] - one.starts[nodes]
            axes.broken_barh(
                np.stack([one.starts[nodes], lengths], axis=1).tolist(),
                (row - 0.4, 0.8),
                facecolors=look[e.name][0],
                hatch=look[e.name][1],
                edgecolor="white",
                linewidth=0.3,
            )
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set(xlabel="time (s)", xlim=(0.0, one.makespan))
    if len(names) <= 10:
        from matplotlib.patches import Patch

        handles = [
            Patch(facecolor=look[n][0], hatch=look[n][1], edgecolor="white", label=n)
            for n in names
        ]
        figure.legend(handles=handles, loc="outside right upper", fontsize="small")
    return figure, {"sample": sample, "makespan": one.makespan}


def bars(names: Sequence[str], values: Sequence[float], label: str) -> Figure:
    """Draw shares as bars, the largest first as they are given."""
    figure = blank(7, 0.6 + 0.32 * len(names))
    axes = figure.subplots()
    axes.barh(range(len(names)), values, color="0.45", height=0.7)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel=label)
    return figure
