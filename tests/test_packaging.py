"""The folders at the top of the repository are the subpackages of probcalc."""

from __future__ import annotations

import fnmatch
import os
import pathlib
import subprocess
import tomllib

import probcalc

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ("kernels", "measurement", "validation")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_links_point_at_the_folders() -> None:
    for name in FOLDERS:
        link = ROOT / "probcalc" / name
        assert link.resolve() == ROOT / name
        assert not pathlib.Path(os.readlink(link)).is_absolute()


def test_every_package_is_declared() -> None:
    tool = PROJECT["tool"]["setuptools"]
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for top in FOLDERS
        for init in (ROOT / top).rglob("__init__.py")
    }
    inner = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in (ROOT / "probcalc").glob("*/__init__.py")
        if not init.parent.is_symlink()
    }
    expected = {"probcalc"} | inner | {f"probcalc.{p}" for p in found}
    assert set(tool["packages"]) == expected
    assert tool["package-dir"] == {f"probcalc.{name}": name for name in FOLDERS}


def test_every_other_file_of_the_package_is_package_data() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["probcalc"]
    files = [
        path.relative_to(ROOT / "probcalc").as_posix()
        for path in (ROOT / "probcalc").glob("**/*")
        if path.is_file()
        and path.suffix not in (".py", ".pyc", ".nbi", ".nbc")
        and path.relative_to(ROOT / "probcalc").parts[0] not in FOLDERS
    ]
    assert "examples/overlap.toml" in files
    for file in files:
        assert any(fnmatch.fnmatch(file, pattern) for pattern in patterns), file


def test_the_version_is_said_once() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert probcalc.__version__.count(".") == 2


def test_the_package_stays_off_the_index_of_another_project() -> None:
    assert "Private :: Do Not Upload" in PROJECT["project"]["classifiers"]
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert "pip install " + "probcalc" not in page.read_text(), page


def test_dev_names_its_jobs() -> None:
    done = subprocess.run(
        [ROOT / "dev", "no-such-job"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dev: no job named 'no-such-job'; there are: run")
    for job in ("run", "test", "lint", "docs", "low", "bench", "all"):
        assert job in done.stderr


def test_scripts_can_be_run() -> None:
    for script in ("dev", ".ci/run"):
        assert os.access(ROOT / script, os.X_OK)
        done = subprocess.run(["bash", "-n", ROOT / script], check=False)
        assert done.returncode == 0
