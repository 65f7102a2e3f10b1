"""Exceptions of the package.

Every message is one line that names what was wrong, where, the value found and
what was expected, so that a command line can print it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probcalc.distribution import Quantile

__all__ = [
    "CompositionError",
    "InputError",
    "PlanError",
    "ProbcalcError",
    "ToleranceError",
    "UnitError",
]


class ProbcalcError(Exception):
    """Base of all errors that the package raises on purpose."""


class InputError(ProbcalcError, ValueError):
    """A value that cannot be used: wrong sign, NaN, empty, out of range."""


class UnitError(InputError):
    """A quantity in a unit of the wrong dimension, or with no known unit."""


class CompositionError(InputError):
    """An operator applied to elements that it does not compose (section 3.3)."""


class PlanError(InputError):
    """A plan file or expression that cannot be read; names file and position."""


class ToleranceError(ProbcalcError):
    """The asked tolerance cannot be reached within the memory allowed.

    Attributes
    ----------
    best : Quantile or None
        The narrowest certified bracket that was found.
    """

    def __init__(self, message: str, best: Quantile | None = None) -> None:
        super().__init__(message)
        self.best = best
