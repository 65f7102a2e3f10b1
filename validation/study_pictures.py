"""Pictures of the studies, legible in grey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probcalc import pictures
from probcalc.validation import coverage, endtoend, errorrates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["of_coverage", "of_error_rates", "of_verdicts"]


def of_coverage(rows: list[coverage.Row]) -> Figure:
    """Draw how often each interval held against what it says."""
    figure = pictures.blank(7, 0.8 + 0.18 * len(rows))
    axes = figure.subplots()
    for i, r in enumerate(rows):
        axes.plot([r.nominal], [i], marker="|", markersize=9, color="0.2")
        # Two standard errors of a share from so many repeats.
        half = 2.0 * (max(r.both * (1.0 - r.both), 1e-4) / r.repeats) ** 0.5
        axes.errorbar(
            r.both, i, xerr=half, fmt="o", markersize=3, color="0.45", capsize=2
        )
    axes.set_yticks(
        range(len(rows)), [f"{r.interval}, {r.data}" for r in rows], fontsize=6
    )
    axes.invert_yaxis()
    axes.set(xlabel="share of repeats in which it held (bar: nominal)")
    return figure


def of_error_rates(rows: list[errorrates.Row]) -> Figure:
    """Draw held and refuted against the true shift, one panel for each kind of runs."""
    kinds = list(dict.fromkeys((r.runs, r.blocks, r.each) for r in rows))
    lines = -(-len(kinds) // 2)
    figure = pictures.blank(8, 1.7 * lines)
    panels = figure.subplots(lines, 2, sharex=True, sharey=True).ravel()
    for axes, kind in zip(panels, kinds, strict=False):
        mine = [r for r in rows if (r.runs, r.blocks, r.each) == kind]
        shift = [r.shift for r in mine]
        axes.plot(shift, [r.held for r in mine], "o-", color="0.15", label="held")
        axes.plot(
            shift, [r.refuted for r in mine], "s--", color="0.45", label="refuted"
        )
        axes.plot(
            shift,
            [r.plain for r in mine],
            ":",
            color="0.6",
            label="plain rule: insensitive",
        )
        axes.axvline(1.96, color="0.7", linewidth=0.8)
        axes.set_title(f"{kind[0]}, {kind[1]} x {kind[2]}", fontsize=8)
    for axes in panels[len(kinds) :]:
        axes.set_visible(False)
    figure.supxlabel("true shift / sd of a run (margin at 1.96)")
    figure.supylabel("share of repeats")
    panels[0].legend(fontsize=6, frameon=False)
    return figure


def of_verdicts(found: list[endtoend.Judged]) -> Figure:
    """Draw the gap of each plan with its bounds, and what is left after the loads."""
    figure = pictures.blank(6, 3)
    axes = figure.subplots()
    for i, j in enumerate(found):
        value, low, high = j.gap
        axes.errorbar(
            i,
            value,
            yerr=[[value - low], [high - value]],
            fmt="o",
            color="0.15",
            capsize=3,
            label="measured less bare" if not i else None,
        )
        axes.errorbar(
            i,
            j.other[0],
            yerr=j.other[1],
            fmt="s",
            color="0.5",
            capsize=3,
            label="after the loads (sd)" if not i else None,
        )
    axes.set_xticks(range(len(found)), [f"plan {j.clocks}" for j in found])
    axes.set(ylabel="time (s)", ylim=(0.0, None))
    axes.legend(frameon=False, fontsize=8)
    return figure
