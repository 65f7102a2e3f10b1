"""``probcalc frontier``: trade time for energy in a plan."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probcalc.commands import plans
from probcalc.errors import InputError
from probcalc.units import quantity

if TYPE_CHECKING:
    from probcalc.frontier_plans import PlanFrontier
    from probcalc.operating import OperatingSet
    from probcalc.plan import Plan

__all__ = ["add"]

_HELP = """\
POINTS is a .csv with a header: columns "element" (a name of the plan), "point" (a
clock, cap or other setting that the device shares), "time_s" and "energy_j" or
"dynamic_j", one line for each point. Elements without lines stay as they are.

examples:
  probcalc frontier plan.toml --points points.csv
  probcalc frontier plan.toml --points points.csv --deadline "1.6 s" --json
  probcalc frontier plan.toml --points points.csv --deadline "1.6 s" --risk 0.95
  probcalc frontier plan.toml --points points.csv --export frontier.csv --plot f.svg
"""


def add(commands: Any) -> None:
    """Add the command to a parser's."""
    command = commands.add_parser(
        "frontier",
        help="the least energy for a deadline, or the whole frontier",
        description="Choose an operating point for every node of a plan. Times and "
        "energies are means, except with --risk.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plans.source(command)
    one = command.add_argument
    one("--points", metavar="FILE", help="operating points of the elements (.csv)")
    one("--deadline", metavar="TIME", help='such as "1.6 s"')
    one("--risk", type=float, metavar="P", help="keep the deadline with probability P")
    one("--groups", metavar="LABEL", help="nodes alike in it, or on one device, share")
    one("--count", type=int, default=30, metavar="N", help="points; default 30")
    one("--samples", type=int, default=4096, metavar="N", help="of --risk")
    one("--seed", type=int, default=0, metavar="S", help="of --risk; default 0")
    one("--json", action="store_true", help="write JSON, in s and J")
    one(
        "--export", metavar="FILE", help="a .csv line for each point and its assignment"
    )
    one("--plot", metavar="FILE", help="draw to a .png, .svg or .pdf file")
    command.set_defaults(run=_frontier)


def _frontier(arguments: argparse.Namespace) -> int:
    if arguments.points is None:
        raise InputError("--points is missing: a .csv with the points of the elements")
    if arguments.risk is not None and arguments.deadline is None:
        raise InputError("--risk: needs --deadline")
    for option in ("export", "plot"):
        if arguments.risk is not None and getattr(arguments, option) is not None:
            raise InputError(f"--{option}: for the frontier of means, without --risk")
    deadline = None
    if arguments.deadline is not None:
        deadline = quantity(arguments.deadline, dimension="time", where="--deadline")
    read = plans.read(arguments)
    from probcalc.plan import Plan

    plan = read.term if isinstance(read.term, Plan) else Plan.from_term(read.term)
    sets = _sets(Path(arguments.points), plan)
    if arguments.risk is not None:
        assert deadline is not None
        return _risk(arguments, plan, sets, deadline)
    from probcalc.deadline import plan_frontier

    found = plan_frontier(
        plan,
        sets,
        groups=arguments.groups,
        deadlines=None if deadline is None else [deadline],
        points=arguments.count,
    )
    if arguments.export is not None:
        if not arguments.export.endswith(".csv"):
            raise InputError(
                f"--export: {arguments.export!r} found; expected a .csv file"
            )
        Path(arguments.export).write_text(found.to_csv(), encoding="utf-8")
    if arguments.plot is not None:
        _plot(found, arguments.plot)
    if arguments.json:
        print(json.dumps({"points": found.rows()}, indent=1, allow_nan=False))
    else:
        print(_as_text(found))
    return 0


def _sets(file: Path, plan: Plan) -> dict[str, OperatingSet]:
    """Operating points by element; static power and devices are those of the plan."""
    from probcalc.columns import read_labels, read_numbers
    from probcalc.errors import PlanError
    from probcalc.operating import OperatingSet

    where = "--points"
    names = read_labels(file, "element", where=where)
    points = read_labels(file, "point", where=where)
    times = read_numbers(file, "time_s", where=where)
    kind = "energy"
    try:
        joules = read_numbers(file, "energy_j", where=where)
    except PlanError as error:
        if "has no column" not in str(error):
            raise
        kind, joules = "dynamic_energy", read_numbers(file, "dynamic_j", where=where)
    known = {e.name: e for e in plan.elements}
    rows: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if name not in known:
            raise InputError(
                f"{where}: {file.name}: no element {name!r:.60} in plan {plan.name!r}; "
                f"there are {', '.join(sorted(known)[:12])}"
            )
        rows.setdefault(name, []).append(i)
    return {
        name: OperatingSet.of(
            name,
            time=[times[i] for i in mine],
            **{kind: [joules[i] for i in mine]},  # type: ignore[arg-type]
            static_power=known[name].static_power,
            devices=known[name].devices,
            device_points=[points[i] for i in mine],
        )
        for name, mine in rows.items()
    }


def _as_text(found: PlanFrontier) -> str:
    knee = found.knee()
    head = f"{found.problem.plan.name}: {len(found)} points (means), mean gap to the "
    lines = [
        head + f"certified bound {found.gap:.3%}",
        "     time (s)    energy (J)     power (W)      gap",
    ]
    lines += [
        f"{p.time:13.6g} {p.energy:13.6g} {p.power:13.6g}  {p.gap:7.3%}"
        + ("  knee" if p is knee and len(found) > 2 else "")
        for p in found.points
    ]
    return "\n".join(lines)


def _plot(found: PlanFrontier, file: str) -> None:
    from probcalc import pictures

    figure = pictures.blank(6, 4)
    axes = figure.subplots()
    time = [p.time for p in found.points]
    axes.step(time, [p.bound for p in found.points], where="post", color="0.65")
    axes.plot(time, [p.bound for p in found.points], ".", color="0.65", label="bound")
    axes.plot(
        time,
        [p.energy for p in found.points],
        "o-",
        color="0.2",
        markersize=3,
        label="plans",
    )
    axes.set(xlabel="makespan, mean (s)", ylabel="energy, mean (J)")
    axes.legend(frameon=False)
    pictures.saved(figure, file)


def _risk(
    arguments: argparse.Namespace,
    plan: Plan,
    sets: dict[str, OperatingSet],
    deadline: float,
) -> int:
    from probcalc.frontier_risk import risk_plan

    spread = _with_spread(plan, sets)
    found = risk_plan(
        plan,
        spread,
        deadline,
        p=arguments.risk,
        groups=arguments.groups,
        points=arguments.count,
        samples=arguments.samples,
        seed=arguments.seed,
    )
    judged = {"chosen": found.chosen, "mean_optimal": found.mean_optimal}
    plain = {
        name: None
        if one is None
        else {
            "time": _error(one.time, "s"),
            "late": _error(one.late, "1"),
            "energy": _error(one.energy, "J"),
        }
        for name, one in judged.items()
    }
    if arguments.json:
        shown = {
            "deadline_s": deadline,
            "p": found.p,
            "measure": found.measure,
            "samples": found.samples,
            "seed": found.seed,
            **plain,
        }
        print(json.dumps(shown, indent=1, allow_nan=False))
        return 0
    for name, one in judged.items():
        if one is None:
            print(f"{name.replace('_', '-')}: no plan keeps the deadline on average")
            continue
        t, late = one.time, one.late
        print(
            f"{name.replace('_', '-')}: {found.p:g} quantile of time {t.value:.6g} s "
            f"[{t.lower:.6g}, {t.upper:.6g}], late with probability {late.value:.3g} "
            f"[{late.lower:.3g}, {late.upper:.3g}], {found.measure} of energy "
            f"{one.energy.value:.6g} J"
        )
    return 0


def _error(found: Any, unit: str) -> dict[str, Any]:
    return {
        "unit": unit,
        "value": found.value,
        "lower": found.lower,
        "upper": found.upper,
        "kind": found.kind,
    }


def _with_spread(plan: Plan, sets: dict[str, OperatingSet]) -> dict[str, OperatingSet]:
    """Points whose laws have the shape of the plan's element, scaled to their means."""
    from probcalc.composed import scale
    from probcalc.element import Element
    from probcalc.operating import OperatingSet

    known = {e.name: e for e in plan.elements}
    found = {}
    for name, points in sets.items():
        e = known[name]
        mean = float(e.time.mean())
        if e.runs is not None or mean <= 0.0:
            raise InputError(
                f"element {name!r}: --risk scales the law of its time, which was "
                "measured with its energy or is zero; use probcalc.frontier_risk"
            )
        found[name] = OperatingSet.of_elements(
            name,
            [
                Element(
                    name,
                    time=scale(e.time, float(p.time.mean()) / mean),
                    dynamic_energy=p.dynamic_energy,
                    static_power=dict(p.powers),
                    devices=p.devices,
                    operating_point=p.operating_point,
                )
                for p in points.elements
            ],
        )
    return found
