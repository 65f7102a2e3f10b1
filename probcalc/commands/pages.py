"""``probcalc report`` and ``probcalc doctor``."""

from __future__ import annotations

import argparse
import json
import platform
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from probcalc._version import __version__
from probcalc.commands import plans
from probcalc.errors import InputError

__all__ = ["add"]

_REPORT_HELP = """\
examples:
  probcalc report plan.toml -o report.html
  probcalc report --example bert -o bert.html --limit "25 kJ"
"""
_DOCTOR_HELP = """\
examples:
  probcalc doctor
  probcalc doctor --json
"""
#: Package, what for, and how to get it.
_PACKAGES = (
    ("numpy", "laws", ""),
    ("scipy", "laws", ""),
    ("numba", "convolution and order statistics", ""),
    ("jax", "Monte Carlo", ""),
    ("nvidia-ml-py", "measurement", ""),
    ("arviz", "diagnostics", ""),
    ("h5netcdf", "signatures on disk", ""),
    ("matplotlib", "pictures", ""),
    ("tqdm", "progress bars", "extra `progress`"),
    ("pyarrow", "Parquet files", "extra `parquet`"),
    ("distributed", "simulation on a Dask cluster", "extra `dask`"),
)


def add(commands: Any) -> None:
    """Add both commands to a parser's."""
    report = commands.add_parser(
        "report",
        help="one self-contained page about a plan",
        description="Write a page: the budget, how sure, where the energy goes, what "
        "would change it, the timeline, the provenance.",
        epilog=_REPORT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plans.source(report)
    report.add_argument("-o", "--output", metavar="FILE", help="an .html file")
    report.add_argument(
        "--method",
        default="auto",
        help="auto (default), exact, bounds, moments or monte-carlo",
    )
    report.add_argument("--seed", type=int, default=0, metavar="S")
    plans.asked(report, "relative width of brackets")
    report.set_defaults(run=_report)
    doctor = commands.add_parser(
        "doctor",
        help="versions, devices, what is missing and how to get it",
        description="What this installation has, sees and lacks.",
        epilog=_DOCTOR_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("--json", action="store_true", help="write JSON")
    doctor.set_defaults(run=_doctor)


def _report(arguments: argparse.Namespace) -> int:
    if arguments.output is None or not arguments.output.endswith(".html"):
        raise InputError(f"-o: {arguments.output!r} found; expected an .html file")
    if arguments.plot is not None:
        raise InputError("--plot: the page has its own pictures; use budget --plot")
    asked = plans.checked(arguments)
    plan = plans.read(arguments)
    from probcalc import page, report

    prediction = plans.predicted(plan, arguments.method)
    found = report.budget(plan, prediction, **asked)
    source = arguments.plan if arguments.plan not in (None, "-") else None
    text = page.page(plan, prediction, found, source=source, seed=arguments.seed)
    Path(arguments.output).write_text(text, encoding="utf-8")
    if arguments.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print(arguments.output)
    return plans.status(arguments, found)


def _doctor(arguments: argparse.Namespace) -> int:
    found: dict[str, Any] = {
        "probcalc": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": [_package(*one) for one in _PACKAGES],
        "jax": _jax(),
        "nvml": _nvml(),
        "examples": len(list((resources.files("probcalc") / "examples").iterdir())),
    }
    if arguments.json:
        print(json.dumps(found, indent=2, allow_nan=False))
        return 0
    print(f"probcalc {found['probcalc']}, Python {found['python']}, {found['machine']}")
    for p in found["packages"]:
        version = p["version"] or f"missing; {p['how'] or 'a dependency'}"
        print(f"  {p['name']:<14} {version:<28} {p['what_for']}")
    print(f"JAX: {found['jax']}")
    for line in found["nvml"]:
        print(line if line.startswith("NVML") else f"NVML: {line}")
    return 0


def _package(name: str, what_for: str, how: str) -> dict[str, Any]:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = None
    return {"name": name, "version": version, "what_for": what_for, "how": how}


def _jax() -> str:
    try:
        import jax

        devices = ", ".join(str(d) for d in jax.devices())
        return f"backend {jax.default_backend()}, {devices}"
    except Exception as error:  # whatever a backend raises when it does not come up
        return f"does not start: {type(error).__name__}: {str(error).splitlines()[0]}"


def _nvml() -> list[str]:
    from probcalc.errors import ProbcalcError

    try:
        from probcalc.measurement.nvml import devices
        from probcalc.measurement.visible import visible_devices

        boards = devices()
        visible = {d.uuid for d in visible_devices()}
    except ProbcalcError as error:
        return [str(error)]
    except ImportError as error:
        return [f"{error}; install nvidia-ml-py"]
    if not boards:
        return ["no boards"]
    return [
        f"{d.name}, {d.uuid}, driver {d.driver}"
        + ("" if d.uuid in visible else ", not visible")
        for d in boards
    ]
