"""``probcalc budget`` and ``probcalc simulate``: what a plan costs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

from probcalc.errors import InputError
from probcalc.units import quantity

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from probcalc.planfile import PlanFile
    from probcalc.prediction import Prediction

__all__ = [
    "BUDGET_HELP",
    "add",
    "asked",
    "checked",
    "list_examples",
    "predicted",
    "read",
    "source",
    "status",
]

DEFAULT_LEVELS = (0.5, 0.9, 0.99, 0.999)
BUDGET_HELP = """\
examples:
  probcalc budget --example attention --limit "3.4 J"
  probcalc budget plan.toml -p 0.5 0.99 --sf 1e-9 --json
  probcalc budget plan.toml --limit "52 J" --fail-over 0.01 || echo too much
"""
_SIMULATE_HELP = """\
examples:
  probcalc simulate --example bert --samples 20000 --seed 1
  probcalc simulate plan.toml --rtol 0.001 --plot timeline.svg
"""


def add(commands: Any) -> None:
    """Add both commands to a parser's."""
    budget = commands.add_parser(
        "budget",
        help="time and energy of a plan: mean, sd, quantiles, chance of overrun",
        description="Time and energy of one execution of a plan, each with its error.",
        epilog=BUDGET_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source(budget)
    budget.add_argument(
        "--method",
        default="auto",
        help="auto (default), exact, bounds, moments or monte-carlo",
    )
    asked(budget, "relative width of brackets; default 1e-4, less for narrow laws")
    budget.set_defaults(run=_budget)
    simulation = commands.add_parser(
        "simulate",
        help="the same by Monte Carlo, with idle shares and critical nodes",
        description="Simulate a plan: time and energy with confidence intervals, idle "
        "shares of devices, critical nodes, and a timeline with --plot.",
        epilog=_SIMULATE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source(simulation)
    simulation.add_argument(
        "--samples", type=int, metavar="N", help="samples; default 100,000"
    )
    simulation.add_argument(
        "--seed", type=int, default=0, metavar="S", help="seed; default 0"
    )
    simulation.add_argument(
        "--progress", action="store_true", help="show a bar; needs tqdm"
    )
    asked(simulation, "go on until the 0.99 quantiles are this well known")
    simulation.set_defaults(run=_simulate)


def source(command: argparse.ArgumentParser) -> None:
    """Where the plan comes from."""
    add = command.add_argument
    add(
        "plan", nargs="?", metavar="PLAN", help="plan file (TOML); - for standard input"
    )
    add("--example", metavar="NAME", help="a plan that comes with the package")
    add("--list-examples", action="store_true", help="names of those plans, and leave")
    add(
        "--expression",
        metavar="TEXT",
        help="use this in place of the plan's expression",
    )


def asked(command: argparse.ArgumentParser, rtol: str) -> None:
    """What is asked of it, and how the answer is given."""
    add = command.add_argument
    add(
        "-p",
        type=float,
        nargs="+",
        metavar="P",
        help="quantiles by P(X <= x); default 0.5 0.9 0.99 0.999",
    )
    add(
        "--sf",
        type=float,
        nargs="+",
        metavar="Q",
        help="quantiles by P(X > x), exact for small Q such as 1e-9",
    )
    add("--limit", metavar="ENERGY", help='P(energy > this), such as "3.4 J"')
    add("--time-limit", metavar="TIME", help='P(time > this), such as "5 ms"')
    add(
        "--fail-over",
        type=float,
        metavar="P",
        help="exit 1 unless the upper bound of P(over a limit) is at most P",
    )
    add("--rtol", type=float, help=rtol)
    add("--json", action="store_true", help="write JSON, in s and J")
    add("--plot", metavar="FILE", help="draw to a .png, .svg or .pdf file")


def _examples() -> dict[str, Traversable]:
    folder = resources.files("probcalc") / "examples"
    return {
        entry.name.removesuffix(".toml"): entry
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def list_examples() -> Iterator[str]:
    """Name and description of every example."""
    import tomllib

    for name, entry in _examples().items():
        document = tomllib.loads(entry.read_text(encoding="utf-8"))
        yield f"{name:<12} {document.get('description', '')}"


def read(arguments: argparse.Namespace) -> PlanFile:
    """Read the plan that is asked for."""
    from probcalc.planfile import read_plan

    if (arguments.plan is None) == (arguments.example is None):
        raise InputError("give one of PLAN (- for standard input) and --example NAME")
    options: dict[str, Any] = {"expression": arguments.expression}
    if arguments.example is not None:
        from probcalc.expression import nearest

        examples = _examples()
        if arguments.example not in examples:
            raise InputError(
                f"no example {arguments.example[:60]!r}"
                f"{nearest(arguments.example, tuple(examples))}"
            )
        with resources.as_file(examples[arguments.example]) as path:
            return read_plan(path, **options)
    if arguments.plan == "-":
        return read_plan(getattr(sys.stdin, "buffer", sys.stdin), **options)
    return read_plan(arguments.plan, **options)


def checked(arguments: argparse.Namespace) -> dict[str, Any]:
    """Check everything that can be checked before the plan is worked out."""
    points = [("p", p) for p in arguments.p or ()]
    points += [("sf", q) for q in arguments.sf or ()]
    points = points or [("p", p) for p in DEFAULT_LEVELS]
    for name, level in points:
        if not 0.0 < level < 1.0:
            option = "-p" if name == "p" else "--sf"
            raise InputError(f"{option}: {level!r} found; expected between 0 and 1")
    limits: dict[str, float] = {}
    if arguments.limit is not None:
        limits["energy"] = quantity(
            arguments.limit, dimension="energy", where="--limit"
        )
    if arguments.time_limit is not None:
        limits["time"] = quantity(
            arguments.time_limit, dimension="time", where="--time-limit"
        )
    if arguments.fail_over is not None:
        if not 0.0 <= arguments.fail_over < 1.0:
            raise InputError(
                f"--fail-over: {arguments.fail_over!r} found; expected 0 <= P < 1"
            )
        if not limits:
            raise InputError("--fail-over: needs --limit or --time-limit")
    if arguments.rtol is not None and not 0.0 < arguments.rtol < 1.0:
        raise InputError(f"--rtol: {arguments.rtol!r} found; expected between 0 and 1")
    return {"levels": points, "limits": limits, "rtol": arguments.rtol}


def predicted(plan: PlanFile, method: Any, **options: Any) -> Prediction:
    """Predict a plan file; a schedule states its baselines itself."""
    from probcalc.plan import Plan
    from probcalc.prediction import predict

    baselines = None if isinstance(plan.term, Plan) else plan.baselines
    return predict(plan.term, method, baselines=baselines, **options)


def _budget(arguments: argparse.Namespace) -> int:
    wanted = checked(arguments)
    plan = read(arguments)
    from probcalc import report

    prediction = predicted(plan, arguments.method)
    found = report.budget(plan, prediction, **wanted)
    if arguments.plot is not None:
        report.plot(prediction, found, arguments.plot)
    if arguments.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print(report.as_text(found))
    return status(arguments, found)


def _simulate(arguments: argparse.Namespace) -> int:
    wanted = checked(arguments)
    plan = read(arguments)
    from probcalc import report, simulated

    prediction = predicted(
        plan,
        "monte-carlo",
        samples=arguments.samples,
        rtol=wanted.pop("rtol"),
        seed=arguments.seed,
        progress=arguments.progress,
    )
    assert prediction.simulation is not None
    found = report.budget(plan, prediction, **wanted)
    found |= simulated.details(prediction.simulation)
    if arguments.plot is not None:
        simulated.gantt(prediction.simulation, arguments.plot)
    if arguments.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print(report.as_text(found))
        print(simulated.details_as_text(found))
    return status(arguments, found)


def status(arguments: argparse.Namespace, found: dict[str, Any]) -> int:
    """1 where a limit may be passed with more than the probability allowed."""
    if arguments.fail_over is None:
        return 0
    over = [p for p in found["probability_over"].values() if p is not None]
    if any(p["kind"] == "estimate" for p in over):
        raise InputError(
            f"--fail-over: method {found['method']!r} gives estimates without an upper "
            "bound; expected exact, bounds or monte-carlo"
        )
    return int(any(p["upper"] > arguments.fail_over for p in over))
