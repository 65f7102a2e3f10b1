"""What `import probcalc`, the help and a refusal leave unimported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "arviz",
    "arviz_stats",
    "jax",
    "matplotlib",
    "numba",
    "pint",
    "pyarrow",
    "pynvml",
    "scipy.stats",
)


def imported_after(code: str) -> set[str]:
    """Top-level names and `scipy.stats` in a fresh process that ran `code`."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import probcalc; dir(probcalc)",
        "from probcalc import Element, Empirical, Constant, PlanError, Shared",
        "from probcalc import predict, read_plan, sum_of",
        (
            "import contextlib, probcalc.cli as c\n"
            "with contextlib.suppress(SystemExit):\n"
            "    c.main(['--help'])"
        ),
        "import probcalc.cli; probcalc.cli.main(['budget', '--list-examples'])",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    assert imported_after(code).isdisjoint(HEAVY)


def test_the_bare_package_imports_nothing_but_itself() -> None:
    plain = imported_after("pass")
    found = imported_after("import probcalc")
    own = {name for name in found if name.partition(".")[0] == "probcalc"}
    assert own == {"probcalc", "probcalc._version"}
    assert "numpy" not in found - plain


def test_every_name_is_where_it_says() -> None:
    import probcalc

    for name in probcalc.__all__:
        assert getattr(probcalc, name) is not None
    assert set(probcalc.__all__) <= set(dir(probcalc))
    assert set(probcalc._MODULE_OF) | {"__version__"} == set(probcalc.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        probcalc.nothing  # noqa: B018


@pytest.mark.parametrize("first", ["probcalc.cli", "probcalc.planfile"])
def test_functions_are_functions_whatever_came_first(first: str) -> None:
    """A module named like one of the names would hide it once it is imported."""
    code = (
        f"import importlib; importlib.import_module({first!r})\n"
        "import importlib.util, pkgutil, types, probcalc\n"
        "for m in pkgutil.iter_modules(probcalc.__path__):\n"
        "    if not m.ispkg and m.name != '__main__':\n"
        "        importlib.import_module('probcalc.' + m.name)\n"
        "bad = [n for n in probcalc.__all__\n"
        "       if isinstance(getattr(probcalc, n), types.ModuleType)]\n"
        "assert not bad, bad"
    )
    imported_after(code)
