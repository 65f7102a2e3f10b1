"""``probcalc validate`` and ``probcalc compare``: whether a prediction holds."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probcalc.errors import InputError
from probcalc.plain import finite
from probcalc.units import quantity

if TYPE_CHECKING:
    from probcalc.validation.blocks import Blocked
    from probcalc.validation.verdict import Verdict

__all__ = ["add"]

_VALIDATE_HELP = """\
MEASUREMENT is a signature (.nc) of "probcalc measure", or a .csv or .parquet file with
a header: columns "time_s" and "energy_j", and "block" with the process of each run.
Exit status: 0 held, 1 refuted, 3 undecided.

examples:
  probcalc validate plan.toml measured.csv --margin "2 %"
  probcalc validate plan.toml measured.csv --of time --margin "0.1 ms" --json
  probcalc validate --study error-rates
"""
_COMPARE_HELP = """\
A and B are files of runs as for "validate". Exit status: 0 A uses no more than B, but
for the margin; 1 it uses more; 3 undecided, with the blocks that would decide.

examples:
  probcalc compare fused.csv separate.csv
  probcalc compare fused.csv separate.csv --margin "1 %" --paired --json
"""


def add(commands: Any) -> None:
    """Add both commands to a parser's."""
    validate = commands.add_parser(
        "validate",
        help="whether a prediction agrees with direct measurement; studies",
        description="Compare a plan's prediction with direct measurement of the whole.",
        epilog=_VALIDATE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    validate.add_argument("plan", nargs="?", metavar="PREDICTION", help="plan file")
    validate.add_argument("measured", nargs="?", metavar="MEASUREMENT")
    validate.add_argument(
        "--study", metavar="NAME", help="run a study of the package itself"
    )
    validate.add_argument(
        "--records", metavar="FOLDER", help="public records that the study reads"
    )
    validate.add_argument(
        "--out",
        metavar="FOLDER",
        help="write the study's record, table and figure there",
    )
    validate.add_argument(
        "--repeats", type=int, metavar="N", help="of a study; its own number without"
    )
    validate.add_argument(
        "-p",
        type=float,
        nargs="*",
        default=[0.5, 0.9],
        metavar="P",
        help="quantiles to compare beside the mean; default 0.5 0.9",
    )
    validate.add_argument("--seed", type=int, default=0, metavar="S")
    _common(validate)
    validate.set_defaults(run=_validate)
    compare = commands.add_parser(
        "compare",
        help="whether one configuration uses less than another",
        description="Compare measured runs of two configurations.",
        epilog=_COMPARE_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    compare.add_argument("a", metavar="A")
    compare.add_argument("b", metavar="B")
    compare.add_argument(
        "--paired",
        action="store_true",
        help="block i of both was measured side by side",
    )
    _common(compare)
    compare.set_defaults(run=_compare)


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--of", choices=("energy", "time"), default="energy", help="default energy"
    )
    command.add_argument(
        "--margin",
        default=None,
        metavar="M",
        help='declared before the data: "0.1 J", "1 ms", or "2 %%" of the mean',
    )
    command.add_argument(
        "--level", type=float, default=0.95, help="confidence; default 0.95"
    )
    command.add_argument("--json", action="store_true", help="write JSON")


def _validate(arguments: argparse.Namespace) -> int:
    if arguments.study is not None:
        return _study(arguments)
    for option in ("records", "repeats", "out"):
        if getattr(arguments, option) is not None:
            raise InputError(f"--{option}: for --study alone")
    if arguments.plan is None or arguments.measured is None:
        raise InputError("give PREDICTION and MEASUREMENT, or --study NAME")
    if arguments.margin is None:
        raise InputError(
            "--margin is missing: by how much may they differ and still agree? "
            'Declare it before the data, such as "2 %"'
        )
    from probcalc.planfile import read_plan
    from probcalc.validation.deviation import (
        deviation,
        law_deviation,
        plain_deviation,
        predicted,
        single_runs,
    )

    runs, grain = _runs(arguments.measured, arguments.of)
    plan = read_plan(arguments.plan)
    prediction = predicted(plan.term, of=arguments.of, seed=arguments.seed)
    if grain != prediction.grain:
        raise InputError(
            f"{arguments.measured}: means of {grain} runs, and the prediction is of "
            f"means of {prediction.grain}; expected one grain (state it in the plan)"
        )
    margin = _margin(arguments, float(prediction.draws.mean()))
    main = deviation(
        prediction, runs, margin=margin, levels=arguments.p, level=arguments.level
    )
    beside = [
        single_runs(prediction, runs, level=arguments.level),
        law_deviation(prediction, runs, level=arguments.level, seed=arguments.seed),
    ]
    plain = plain_deviation(prediction, runs) if len(runs) > 1 else None
    influences = None
    if main.outcome.value == "refuted":
        from probcalc.validation.sensitivity import sensitivity

        gap = float(runs.values.mean() - prediction.draws.mean())
        influences = sensitivity(
            plan.term, gap=gap, of=arguments.of, seed=arguments.seed
        )
    if arguments.json:
        found = {
            "verdict": main.to_dict(),
            "beside": [v.to_dict() for v in beside],
            "plain_rule": None
            if plain is None
            else {
                "difference": plain.difference,
                "allowed": plain.allowed,
                "flagged": plain.flagged,
            },
            "influences": None
            if influences is None
            else [_influence(i, arguments.of) for i in influences],
        }
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print("\n".join(str(v) for v in (main, *beside)))
        if plain is not None:
            said = "flags a deviation" if plain.flagged else "flags nothing"
            print(
                f"the paper's rule on means, with the spread of single runs (a label, "
                f"no verdict), {said}: {plain.difference:+.4g} against "
                f"{plain.allowed:.4g}"
            )
        if influences is not None:
            print(_as_text(influences, arguments.of))
    return _status(main)


def _influence(i: Any, of: str) -> dict[str, Any]:
    return {
        "element": i.element,
        "executions": i.executions,
        "variance_share": finite(i.variance_share),
        "per_percent": {"unit": "J" if of == "energy" else "s", "value": i.slope},
        "factor_that_explains": finite(i.factor),
    }


def _as_text(influences: Any, of: str) -> str:
    unit = "J" if of == "energy" else "s"
    lines = [
        "",
        "what could explain it        share of variance   per 1 %       alone it takes",
    ]
    lines += [
        f"  {i.element[:24]:<24} {i.variance_share:12.1%}      {i.slope:10.4g} {unit}"
        f"   x {i.factor:.3f}"
        for i in influences[:12]
    ]
    return "\n".join(lines)


def _compare(arguments: argparse.Namespace) -> int:
    from probcalc.validation.comparison import compare

    (a, first), (b, second) = (
        _runs(name, arguments.of) for name in (arguments.a, arguments.b)
    )
    if first != second:
        raise InputError(
            f"{arguments.a} has means of {first} runs and {arguments.b} of {second}; "
            "expected one grain"
        )
    margin = 0.0
    if arguments.margin is not None:
        margin = _margin(arguments, float(b.means.mean()))
    unit = "J" if arguments.of == "energy" else "s"
    found = compare(
        a, b, unit=unit, margin=margin, level=arguments.level, paired=arguments.paired
    )
    if arguments.json:
        print(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        value, low, high = found.difference
        print(found.cheaper)
        print(
            f"mean of A less that of B: {value:+.4g} [{low:+.4g}, {high:+.4g}] {unit} "
            f"at {arguments.level:.0%}, ratio {found.ratio:.4f}"
        )
        print(
            f"a run of A is below one of B with probability {found.less.value:.3f} "
            f"[{found.less.lower:.3f}, {found.less.upper:.3f}]"
        )
        print(f"intervals separated: {'yes' if found.separated else 'no'}")
    return _status(found.cheaper)


def _study(arguments: argparse.Namespace) -> int:
    from probcalc.validation.studies import run

    found = run(
        arguments.study,
        records=arguments.records,
        repeats=arguments.repeats,
        seed=arguments.seed,
    )
    record = json.dumps(found.record, indent=1, allow_nan=False)
    if arguments.out is not None:
        folder = Path(arguments.out)
        folder.mkdir(parents=True, exist_ok=True)
        for ending, text in (("json", record), ("md", found.table)):
            file = folder / f"{found.name}.{ending}"
            file.write_text(text + "\n", encoding="utf-8")
        if found.figure is not None:
            from probcalc import pictures

            pictures.saved(found.figure(), str(folder / f"{found.name}.svg"), "--out")
    print(record if arguments.json else found.table)
    return 0


def _status(verdict: Verdict) -> int:
    return {"held": 0, "refuted": 1, "undecided": 3}[verdict.outcome.value]


def _runs(name: str, of: str) -> tuple[Blocked, int]:
    """Runs of a file in their blocks, and how many runs each value is the mean of."""
    from probcalc.columns import read_labels, read_numbers
    from probcalc.errors import PlanError
    from probcalc.validation.blocks import Blocked

    path = Path(name)
    if path.suffix == ".nc":
        return _signature(path, of)
    column = "energy_j" if of == "energy" else "time_s"
    values = read_numbers(path, column, where=name)

    def labels(column: str) -> list[str] | None:
        try:
            return read_labels(path, column, where=name)
        except PlanError as error:
            if "has no column" in str(error):
                return None
            raise

    # What an export says beside its runs: they must be of one thing.
    for column in ("element", "context", "grain"):
        distinct = sorted(set(labels(column) or ()))
        if len(distinct) > 1:
            raise InputError(
                f"{name}: holds several values of {column!r}, {distinct[0]!r:.40} and "
                f"{distinct[1]!r:.40}; expected the runs of one element"
            )
    grain = (labels("grain") or ["1"])[0]
    if not grain.isdigit() or int(grain) < 1:
        raise InputError(f"{name}: grain is {grain!r:.40}, expected a whole number")
    blocks = labels("block")
    if blocks is None:
        print(
            f"probcalc: {name}: no column 'block', every run counts as a process",
            file=sys.stderr,
        )
    return Blocked.of(values, blocks, name=path.stem), int(grain)


def _signature(path: Path, of: Any) -> tuple[Blocked, int]:
    """Runs of a measured signature, those that are missing left out."""
    from probcalc.measurement.store import load
    from probcalc.validation.measured import runs_of

    found = load(path)
    name = found.element if found.grain == 1 else f"{found.element} (mean of runs)"
    return runs_of(found, of, name=name), found.grain


def _margin(arguments: argparse.Namespace, mean: float) -> float:
    text = arguments.margin.strip()
    if text.endswith("%"):
        try:
            return float(text[:-1]) / 100.0 * mean
        except ValueError:
            raise InputError(
                f"--margin: {arguments.margin!r} found; expected such as '2 %'"
            ) from None
    return quantity(text, dimension=arguments.of, where="--margin")
