"""The command ``probcalc``.

Exit status: 0 done; 1 over a limit by ``--fail-over``, or a claim refuted; 2 bad input,
with one line on standard error; 3 a claim undecided; 130 interrupted; 141 when the
reader of the output went away.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from probcalc._version import __version__
from probcalc.commands import frontier, measure, pages, plans, signatures, verdicts
from probcalc.errors import InputError, ProbcalcError

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="probcalc",
        description="Energy and time of composed computations, as whole laws.",
        epilog=plans.BUDGET_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for room in (plans, pages, frontier, measure, signatures, verdicts):
        room.add(commands)
    return parser


def _say(message: object) -> int:
    line = " ".join(str(message).split())
    print(f"probcalc: {line}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal without Unicode shows escapes
            reconfigure(errors="backslashreplace")
    try:
        arguments = _parser().parse_args(argv)
        if getattr(arguments, "list_examples", False):
            print("\n".join(plans.list_examples()))
            status = 0
        else:
            status = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except ProbcalcError as error:
        return _say(error)
    except BrokenPipeError:
        # Keeps the interpreter from failing once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _say(error)
    except MemoryError:
        return _say("not enough memory for this plan")
    except KeyboardInterrupt:
        return 130
