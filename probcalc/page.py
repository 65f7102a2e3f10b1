"""One self-contained page about a plan: the budget first, then how sure, then why."""

from __future__ import annotations

import hashlib
import html
import math
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probcalc._version import __version__

if TYPE_CHECKING:
    from probcalc.plan import Plan
    from probcalc.planfile import PlanFile
    from probcalc.prediction import Prediction

__all__ = ["page", "shares_of"]

#: Samples of the timeline and of what moves the mean.
SAMPLES = 2000
MOST_ROWS = 40

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.6rem 0 .4rem}
.answer{font-size:1.25rem;border-left:4px solid currentColor;padding:.4rem .8rem}
.note{opacity:.75;font-size:.9rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #8884}
th,td{white-space:nowrap}
th:first-child,td:first-child{text-align:left}
th{cursor:pointer;user-select:none}
figure{margin:.5rem 0;background:#fff;color:#000;border-radius:4px;overflow-x:auto}
figure svg{width:100%;height:auto;min-width:20rem}
"""
# Sorts a table by the column that is clicked, numbers as numbers.
_SCRIPT = """
for(const th of document.querySelectorAll('th'))th.onclick=()=>{
const t=th.closest('table'),i=[...th.parentNode.children].indexOf(th),b=t.tBodies[0];
const v=r=>{const c=r.children[i],k=c.dataset.v??c.textContent;return isNaN(k)?k:+k};
const up=th.dataset.up!=='1';th.dataset.up=up?'1':'0';
[...b.rows].sort((p,q)=>(v(p)>v(q)?1:v(p)<v(q)?-1:0)*(up?1:-1)).forEach(r=>b.append(r))}
"""


def page(
    plan: PlanFile,
    prediction: Prediction,
    found: Mapping[str, Any],
    *,
    source: str | Path | None = None,
    seed: int = 0,
) -> str:
    """Return a page in HTML that needs no network.

    Parameters
    ----------
    found : mapping
        As `probcalc.report.budget` gives it.
    source : str or Path, optional
        The plan's file, whose digest becomes part of the page.
    seed : int
        Of the timeline and of what moves the mean.
    """
    from probcalc import pictures, report
    from probcalc.plan import Plan

    scales = report.scales(found)
    term = plan.term
    scheduled = term if isinstance(term, Plan) else Plan.from_term(term)
    parts = [
        f"<h1>{_text(found['plan'])}</h1>",
        f"<p class=note>{_text(found['description'])}</p>"
        if found["description"]
        else "",
        _answer(found, scales),
        "<h2>How sure</h2>",
        _quantiles(found, scales),
        _sure(found),
        _picture(pictures.exceedance(prediction, found, scales), "exceedance"),
        "<h2>Where the energy goes</h2>",
        _where(scheduled, found, scales),
        "<h2>What would change it</h2>",
        _change(scheduled, scales, seed),
        _timeline(scheduled, seed),
        "<h2>Method and provenance</h2>",
        _provenance(found, source, seed),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<title>{_text(found['plan'])}: energy and time</title>"
        f"<style>{_STYLE}</style></head><body>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<script>{_SCRIPT}</script></body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _figure(value: float | None, scale: float, unit: str) -> str:
    if value is None:
        return "open"
    return f"{value / scale:.6g} {_text(unit)}"


def _answer(found: Mapping[str, Any], scales: Mapping[str, tuple[float, str]]) -> str:
    lines = []
    for kind in ("energy", "time"):
        scale, unit = scales[kind]
        last = max(found[kind]["quantiles"], key=lambda q: -q["sf"])
        rare = (
            f"one execution in {round(1 / last['sf']):,}" if last["sf"] > 0 else "none"
        )
        lines.append(
            f"{kind.capitalize()}: {rare} needs more than "
            f"<b>{_figure(last['value'], scale, unit)}</b> "
            f"[{_figure(last['lower'], scale, unit)}, "
            f"{_figure(last['upper'], scale, unit)}], {_text(last['kind'])}; "
            f"{_figure(found[kind]['mean'], scale, unit)} on average."
        )
        over = found["probability_over"][kind]
        if over is not None:
            limit = _figure(found["limit"][kind], scale, unit)
            lines.append(
                f"P({kind} &gt; {limit}) = <b>{over['value']:.4g}</b> "
                f"[{over['lower']:.4g}, {over['upper']:.4g}], {_text(over['kind'])}."
            )
    return "<div class=answer>" + "<br>".join(lines) + "</div>"


def _table(head: Sequence[str], rows: Iterable[Sequence[tuple[str, object]]]) -> str:
    """A table whose cells are what is shown, and what it is sorted by."""
    body = "".join(
        "<tr>"
        + "".join(f"<td data-v='{_text(key)}'>{shown}</td>" for shown, key in row)
        + "</tr>"
        for row in rows
    )
    columns = "".join(f"<th>{_text(name)}</th>" for name in head)
    return (
        f"<div class=wide><table><thead><tr>{columns}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _quantiles(
    found: Mapping[str, Any], scales: Mapping[str, tuple[float, str]]
) -> str:
    rows = []
    for kind in ("energy", "time"):
        scale, unit = scales[kind]
        for q in found[kind]["quantiles"]:
            rows.append(
                [
                    (f"{kind} p {q['p']:.6g}", f"{kind}{q['p']}"),
                    (_figure(q["value"], scale, unit), q["value"]),
                    (_figure(q["lower"], scale, unit), q["lower"]),
                    (_figure(q["upper"], scale, unit), q["upper"]),
                    (_text(q["kind"]), q["kind"]),
                    (_text(q["limited_by"]), q["limited_by"]),
                ]
            )
    return _table(["quantile", "value", "lower", "upper", "kind", "limited by"], rows)


def _sure(found: Mapping[str, Any]) -> str:
    lines = [_text(line) for line in found["assumptions"]]
    if found["fewest_runs"] is not None:
        lines.append(
            f"a law is known from {found['fewest_runs']} runs: no bracket covers what "
            "they miss"
        )
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def _picture(figure: Any, name: str) -> str:
    from probcalc import pictures

    return f"<figure id={name}>{pictures.as_svg(figure)}</figure>"


def shares_of(plan: Plan) -> list[tuple[str, int, float, float]]:
    """Return of each element its executions, mean time in s and dynamic energy in J.

    Times are summed over executions; what runs at once is counted for each.
    """
    totals: dict[str, list[float]] = {}
    for i, e in enumerate(plan.elements):
        count = int((plan.element_of == i).sum())
        total = totals.setdefault(e.name, [0, 0.0, 0.0])
        total[0] += count
        total[1] += count * float(e.time.mean())
        total[2] += count * float(e.dynamic_energy.mean())
    return [(name, int(n), t, d) for name, (n, t, d) in totals.items()]


def _where(
    plan: Plan, found: Mapping[str, Any], scales: Mapping[str, tuple[float, str]]
) -> str:
    scale, unit = scales["energy"]
    whole = found["energy"]["mean"]
    lines = []
    for kind in ("static_energy", "dynamic_energy"):
        share = found[kind]["share"]
        shown = "" if share is None else f" ({share:.1%})"
        mean = _figure(found[kind]["mean"], scale, unit)
        lines.append(f"{kind.replace('_', ' ')}: {mean}{shown}")
    rows = []
    for name, count, seconds, joules in sorted(shares_of(plan), key=lambda r: -r[3])[
        :MOST_ROWS
    ]:
        share = joules / whole if whole else math.nan
        rows.append(
            [
                (_text(name), name),
                (f"{count:,}", count),
                (_figure(seconds, scales["time"][0], scales["time"][1]), seconds),
                (_figure(joules, scale, unit), joules),
                (f"{share:.1%}", share),
            ]
        )
    head = ["element", "executions", "time, summed", "dynamic energy", "of all energy"]
    return f"<p>{'; '.join(lines)} (means).</p>" + _table(head, rows)


def _change(plan: Plan, scales: Mapping[str, tuple[float, str]], seed: int) -> str:
    from probcalc.errors import ProbcalcError
    from probcalc.validation.sensitivity import sensitivity

    try:
        found = sensitivity(plan, samples=SAMPLES, seed=seed)
    except ProbcalcError as error:
        return f"<p class=note>Not worked out: {_text(error)}</p>"
    scale, unit = scales["energy"]
    rows = [
        [
            (_text(i.element), i.element),
            (f"{i.executions:,}", i.executions),
            (f"{i.slope / scale:.4g} {_text(unit)}", i.slope),
            (f"{i.variance_share:.1%}", i.variance_share),
        ]
        for i in found[:MOST_ROWS]
    ]
    head = ["element", "executions", "energy per 1 % more of it", "share of variance"]
    return (
        _table(head, rows)
        + f"<p class=note>Estimates from {SAMPLES:,} samples, seed {seed}.</p>"
    )


def _timeline(plan: Plan, seed: int) -> str:
    from probcalc import pictures
    from probcalc.errors import ProbcalcError
    from probcalc.montecarlo import simulate

    try:
        figure, one = pictures.timeline(simulate(plan, samples=SAMPLES, seed=seed))
    except ProbcalcError as error:
        return f"<h2>Timeline</h2><p class=note>Not drawn: {_text(error)}</p>"
    return (
        "<h2>Timeline</h2>"
        + _picture(figure, "timeline")
        + f"<p class=note>Sample {one['sample']} of {SAMPLES:,}, the median makespan, "
        f"{one['makespan']:.4g} s.</p>"
    )


def _provenance(found: Mapping[str, Any], source: str | Path | None, seed: int) -> str:
    import numpy
    import scipy

    facts = {
        "method": found["method"],
        "expression": found["expression"] or "a schedule",
        "probcalc": __version__,
        "NumPy": numpy.__version__,
        "SciPy": scipy.__version__,
        "Python": platform.python_version(),
        "seed of simulations": seed,
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    for key in ("samples", "draws", "nodes"):
        if key in found:
            facts[key] = found[key]
    if source is not None:
        content = Path(source).read_bytes()
        facts["plan file, SHA-256"] = hashlib.sha256(content).hexdigest()
    rows = [[(_text(k), k), (_text(v), v)] for k, v in facts.items()]
    return _table(["", ""], rows)
