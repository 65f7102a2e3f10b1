"""``probcalc signatures``: what a folder of measured signatures holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probcalc.errors import InputError
from probcalc.plain import finite

if TYPE_CHECKING:
    from probcalc.measurement.signature import Signature
    from probcalc.measurement.store import Refused

__all__ = ["add"]

_HELP = """\
examples:
  probcalc signatures list out/signatures
  probcalc signatures show out/signatures/rms-3bbf76daaf29eb26.nc
  probcalc signatures diff before.nc after.nc
  probcalc signatures export out/signatures runs.csv --element layer
"""


def add(commands: Any) -> None:
    """Add the command to a parser's."""
    command = commands.add_parser(
        "signatures",
        help="list, show, compare and export measured signatures",
        description="What a folder of measured signatures holds.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = command.add_subparsers(dest="job", metavar="JOB", required=True)
    listed = jobs.add_parser("list", help="one line for each signature of a folder")
    listed.add_argument("folder", metavar="FOLDER")
    listed.set_defaults(run=_list)
    shown = jobs.add_parser("show", help="one signature, with diagnostics of its runs")
    shown.add_argument("file", metavar="FILE")
    shown.set_defaults(run=_show)
    compared = jobs.add_parser("diff", help="what two signatures differ in")
    compared.add_argument("a", metavar="A")
    compared.add_argument("b", metavar="B")
    compared.set_defaults(run=_diff)
    for job in (listed, shown, compared):
        job.add_argument("--json", action="store_true", help="write JSON")
    exported = jobs.add_parser("export", help="all signatures as one .csv or .json")
    exported.add_argument("folder", metavar="FOLDER")
    exported.add_argument("file", metavar="FILE")
    exported.add_argument(
        "--element", metavar="NAME", help="the one to write; needed for .csv of several"
    )
    exported.set_defaults(run=_export)


def _list(arguments: argparse.Namespace) -> int:
    from probcalc.measurement.signature_tables import signatures_table

    rows, refused = signatures_table(arguments.folder)
    inner = Path(arguments.folder) / "signatures"
    if not rows and not refused and inner.is_dir():
        raise InputError(f"{arguments.folder}: no signatures; look in {inner}")
    if arguments.json:
        print(
            json.dumps(
                {
                    "signatures": list(rows),
                    "refused": [
                        {"file": str(r.path), "reason": r.reason} for r in refused
                    ],
                },
                indent=2,
                allow_nan=False,
            )
        )
    else:
        head = f"{'element':<24} {'context':<24} {'blocks':>6} {'runs':>6} "
        head += (
            f"{'missing':>7} {'grain':>6}  {'time (mean ± se)':<24} energy (mean ± se)"
        )
        lines = [head]
        lines += [
            f"{r['element'][:24]:<24} {_brief(r['context']):<24} {r['blocks']:>6} "
            f"{r['runs']:>6} {r['missing']:>7} {r['grain']:>6}  {_law(r['time']):<24} "
            f"{_law(r['energy'])}"
            for r in rows
        ]
        print("\n".join(lines))
    return _said(refused)


def _brief(context: Mapping[str, Any]) -> str:
    text = ", ".join(f"{k}={v}" for k, v in context.items())
    return text if len(text) <= 24 else text[:21] + "..."


def _law(law: Mapping[str, Any]) -> str:
    if law["mean"] is None:
        return "missing"
    error = law["standard_error"]
    spread = "± ?" if error is None else f"± {error:.2g}"
    return f"{law['mean']:.5g} {spread} {law['unit']}"


def _said(refused: Iterable[Refused]) -> int:
    """Name the files that were not read; the rest was."""
    status = 0
    for one in refused:
        print(f"probcalc: {one.reason}", file=sys.stderr)
        status = 2
    return status


def _show(arguments: argparse.Namespace) -> int:
    from probcalc.measurement.signature_tables import law_summary
    from probcalc.measurement.store import load

    s = load(arguments.file)
    found = {
        "element": s.element,
        "context": _plain(s.context),
        "grain": s.grain,
        "devices": list(s.devices),
        "scope": s.scope,
        "static_power": _plain(s.static_power),
        "static_power_error": _plain(s.static_power_error),
        "time": law_summary(s.time, "s"),
        "energy": law_summary(s.energy, "J"),
        "invalid": [
            {"block": w.block, "run": w.run, "reasons": list(w.reasons)}
            for w in s.windows
            if not w.valid
        ],
        "device_facts": _plain(s.device_facts),
        "diagnosis": {name: _diagnosis(s, name) for name in ("time", "energy")},
    }
    if arguments.json:
        print(json.dumps(found, indent=2, allow_nan=False))
        return 0
    print(f"{s.element}  {_brief(found['context'])}")
    print(f"  {int(s.runs.sum())} runs in {s.runs.size} blocks, grain {s.grain}")
    print(f"  time {_law(found['time'])}, energy {_law(found['energy'])}")
    for host, power in (found["static_power"] or {}).items():
        error = (found["static_power_error"] or {}).get(host)
        spread = "± ?" if error is None else f"± {error:.2g}"
        print(f"  static power of {host}: {power:.5g} {spread} W, scope {s.scope}")
    for name, diagnosis in found["diagnosis"].items():
        for warning in diagnosis["warnings"]:
            print(
                f"  {warning}" if warning.startswith(name) else f"  {name}: {warning}"
            )
    for w in found["invalid"][:10]:
        print(f"  block {w['block']}, run {w['run']}: {'; '.join(w['reasons'])}")
    return 0


def _diagnosis(s: Signature, name: Any) -> dict[str, Any]:
    """Diagnose runs in blocks; what cannot be told is a warning, not an error."""
    from probcalc.validation.diagnostics import diagnosed
    from probcalc.validation.measured import runs_of

    try:
        found = diagnosed(runs_of(s, name, name=name))
    except InputError as error:
        return {"warnings": [str(error)]}
    return {
        "rhat": finite(found.rhat),
        "ess": {k: finite(v) for k, v in found.ess.items()},
        "mcse": {k: finite(v) for k, v in found.mcse.items()},
        "autocorrelation": finite(found.autocorrelation),
        "design_effect": finite(found.effect),
        "warnings": list(found.warnings),
    }


def _plain(document: Any) -> Any:
    from probcalc.measurement.documents import plain

    return plain(document)


def _diff(arguments: argparse.Namespace) -> int:
    from probcalc.measurement.signature_tables import diff
    from probcalc.measurement.store import load

    found = diff(load(arguments.a), load(arguments.b))
    if arguments.json:
        print(json.dumps(found, indent=2, allow_nan=False))
        return 0
    if found["same"]:
        print("the same")
        return 0
    for place, (a, b) in found["facts"].items():
        print(f"{place}: {a!r:.60} and {b!r:.60}")
    for name, laws in found["laws"].items():
        line = f"{name}: {_law(laws['a'])} and {_law(laws['b'])}"
        if laws["difference"] is not None:
            error = laws["standard_error"]
            spread = "?" if error is None else f"{error:.2g}"
            line += f", difference {laws['difference']:+.4g} ± {spread}"
        print(line)
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from probcalc.measurement.signature_tables import export

    if not arguments.file.endswith(".csv"):
        if arguments.element is not None:
            raise InputError("--element: for .csv files; a .json holds all")
        count, refused = export(arguments.folder, arguments.file)
        print(f"{count} signatures in {arguments.file}")
        return _said(refused)
    return _export_runs(arguments)


def _export_runs(arguments: argparse.Namespace) -> int:
    """Write the runs of one signature that have a value."""
    import csv
    import io

    from probcalc.measurement.atomic import write_atomic
    from probcalc.measurement.signature_tables import runs_table
    from probcalc.measurement.store import load_all

    found = load_all(arguments.folder)
    names = [s.element for s in found.signatures]
    wanted = [
        s
        for s in found.signatures
        if arguments.element is None or s.element == arguments.element
    ]
    if len(wanted) != 1:
        shown = ", ".join(dict.fromkeys(names)) or "none"
        raise InputError(
            f"{arguments.folder}: {len(wanted)} signatures fit, there are {shown}; "
            "expected one by --element (its runs are no others' runs), or a .json file"
        )
    rows = runs_table(wanted[0])
    whole = [r for r in rows if r["time_s"] is not None and r["energy_j"] is not None]
    if not whole:
        raise InputError(f"{wanted[0].element}: no run has both a time and an energy")
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(whole)
    write_atomic(Path(arguments.file).resolve(), out.getvalue().encode())
    left = len(rows) - len(whole)
    more = f", {left} without a value left out" if left else ""
    print(f"{len(whole)} runs of {wanted[0].element} in {arguments.file}{more}")
    return _said(found.refused)
