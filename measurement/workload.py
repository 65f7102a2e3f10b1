"""Workloads: what is run and timed, a Python callable or a shell command.

A callable is named ``module:function``. With a set-up, also ``module:function``, what
that returns is handed to the function on every repetition; set-up is not timed. What
the function returns in its last repetition is its output. A command is one repetition;
its output is what it writes to standard output.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from probcalc.errors import InputError, ProbcalcError

__all__ = ["Job", "Workload", "WorkloadError", "imported", "job_of"]


class WorkloadError(ProbcalcError):
    """A workload that fails while it is measured."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What an arm of a campaign runs.

    Parameters
    ----------
    name : str
        Of the element that it becomes.
    function : str, optional
        ``module:function``.
    command : str, optional
        Run by the shell; one of the two is given.
    setup : str, optional
        ``module:function``, for callables.
    """

    name: str
    function: str | None = None
    command: str | None = None
    setup: str | None = None

    def __post_init__(self) -> None:
        """Check that one thing is to be run."""
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"workload: name is {self.name!r}, expected a name")
        where = f"workload {self.name!r}"
        if (self.function is None) == (self.command is None):
            raise InputError(f"{where}: give exactly one of function and command")
        if self.command is not None:
            if not self.command.strip():
                raise InputError(f"{where}: command is empty")
            if self.setup is not None:
                raise InputError(f"{where}: a command takes no set-up")
        for field, text in (("function", self.function), ("setup", self.setup)):
            if text is not None:
                _split(text, f"{where}, {field}")

    @property
    def is_command(self) -> bool:
        """Whether it is a shell command."""
        return self.command is not None


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A workload that is ready: `run` is one repetition and returns its output."""

    name: str
    run: Callable[[], Any]
    is_command: bool


def job_of(workload: Workload) -> Job:
    """Import a callable and run its set-up, or make a command ready.

    Raises
    ------
    InputError
        A module or function that is not there.
    WorkloadError
        A set-up that fails.
    """
    if workload.command is not None:
        command = workload.command
        return Job(workload.name, lambda: _shell(command, workload.name), True)
    assert workload.function is not None
    function = imported(workload.function, f"workload {workload.name!r}")
    if workload.setup is None:
        return Job(workload.name, function, False)
    prepare = imported(workload.setup, f"workload {workload.name!r}, set-up")
    try:
        made = prepare()
    except Exception as error:
        raise WorkloadError(
            f"workload {workload.name!r}: its set-up {workload.setup} failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    return Job(workload.name, lambda: function(made), False)


def _split(text: str, where: str) -> tuple[str, str]:
    module, colon, name = text.partition(":")
    valid = colon and all(
        part.isidentifier() for part in (*module.split("."), *name.split("."))
    )
    if not valid:
        raise InputError(f"{where}: {text!r} found; expected module:function")
    return module, name


def imported(text: str, where: str) -> Callable[..., Any]:
    """Return the callable of ``module:function``; the working folder is searched too.

    Raises
    ------
    InputError
        No such module or function, or it cannot be called.
    """
    module, name = _split(text, where)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{where}: module {module!r}: {error}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InputError(f"{where}: module {module!r} has no {name!r}") from None
    if not callable(found):
        raise InputError(f"{where}: {text} cannot be called")
    return found


def _shell(command: str, name: str) -> bytes:
    """Run a command once and return what it wrote; what it complains of is shown."""
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(
            command, shell=True, stdout=subprocess.PIPE, stderr=errors, check=False
        )
        if done.returncode:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
            said = f": {last[0]:.200}" if last else ""
            raise WorkloadError(
                f"workload {name!r}: the command ended with status "
                f"{done.returncode}{said}"
            )
    return done.stdout
