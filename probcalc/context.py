"""Contexts: what an execution inherits, and whom it runs beside (sections 3.1, 3.4).

An entry context is the physical state of a device, as named variables with units; a
runtime context is the set of elements that run at the same time, with the windows in
which they overlap. What an element does is fixed by its trace; context changes how long
that takes and how much energy it needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from probcalc.errors import InputError
from probcalc.readonly import ReadOnly

__all__ = [
    "NULL_CONTEXT",
    "Context",
    "Overlap",
    "RuntimeContext",
    "StateVariable",
    "Trace",
    "number",
]


@dataclass(frozen=True, slots=True)
class StateVariable:
    """A physical state of a device that can be measured or set.

    Attributes
    ----------
    name : str
    unit : str
        SI, such as ``"K"`` or ``"B"``.
    null : float
        Value in the null context: no mechanism carries state from prior execution.
    lower, upper : float
        Values that are physically possible.

    Raises
    ------
    InputError
        A null value outside what is possible.
    """

    name: str
    unit: str
    null: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf

    def __post_init__(self) -> None:
        self.check(self.null, f"state variable {self.name!r}, null value")

    def check(self, value: float, where: str) -> float:
        """Return a value that is possible; `where` is named in errors."""
        value = number(value, where, self.unit, lower=-math.inf)
        if not self.lower <= value <= self.upper:
            raise InputError(
                f"{where} is {value:g} {self.unit}, expected between {self.lower:g} "
                f"and {self.upper:g} {self.unit}"
            )
        return value


@dataclass(frozen=True, slots=True, init=False)
class Context:
    """An entry context: values of state variables, in their units.

    Parameters
    ----------
    values : mapping of str to float
    others_null : bool
        Whether variables that are not stated have their null values. Without it, a
        variable that a mechanism needs and that is not stated is an error.

    Raises
    ------
    InputError
        A value that is no finite number; names the variable.

    Examples
    --------
    >>> Context({"temperature rise": 12.5}, others_null=True)
    Context(temperature rise=12.5, others null)
    """

    values: Mapping[str, float]
    others_null: bool

    def __init__(
        self, values: Mapping[str, float], *, others_null: bool = False
    ) -> None:
        held = {
            name: number(value, f"context, variable {name!r}", lower=-math.inf)
            for name, value in values.items()
        }
        object.__setattr__(self, "values", ReadOnly(dict(sorted(held.items()))))
        object.__setattr__(self, "others_null", others_null)

    def __repr__(self) -> str:
        """Values by name."""
        shown = [f"{name}={value:g}" for name, value in self.values.items()]
        return f"Context({', '.join(shown + ['others null'] * self.others_null)})"

    def __hash__(self) -> int:
        """Hash its values."""
        return hash((tuple(self.values.items()), self.others_null))

    def value(self, variable: StateVariable, where: str) -> float:
        """Value of a variable; `where` is named in errors.

        Raises
        ------
        InputError
            The variable is not stated, or its value is not possible.
        """
        if variable.name in self.values:
            return variable.check(
                self.values[variable.name], f"{where}, variable {variable.name!r}"
            )
        if self.others_null:
            return variable.null
        held = ", ".join(map(repr, self.values)) or "none"
        raise InputError(
            f"{where}: variable {variable.name!r} ({variable.unit}) is missing, the "
            f"context states {held}; state it, or others_null=True"
        )


#: The reproducible start state in which no mechanism carries state.
NULL_CONTEXT = Context({}, others_null=True)


class Overlap(NamedTuple):
    """A node that runs beside another one, and when, in s."""

    node: str
    element: str
    start: float
    finish: float


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """The set of elements that run while a node runs, itself left out.

    Attributes
    ----------
    node : str
    overlaps : tuple of Overlap
        By start; windows of no length are left out.
    """

    node: str
    overlaps: tuple[Overlap, ...] = ()

    @property
    def alone(self) -> bool:
        """Whether it runs in isolation."""
        return not self.overlaps


@dataclass(frozen=True, slots=True, init=False)
class Trace:
    """What an element does, whatever its context: the actions that mechanisms see.

    Parameters
    ----------
    amounts : mapping of str to float
        What one run does in total and evenly over its time, such as ``traffic`` in B
        through the cache; names are those that the mechanisms read.
    demand : mapping of str to float
        What it asks of each shared resource while it runs alone, in the unit of the
        resource's capacity.
    sensitivity : mapping of str to float
        By mechanism, how much of the effect it takes: 0 none, 1 all of it.

    Raises
    ------
    InputError
        A value that is negative or no finite number; names the field.
    """

    amounts: Mapping[str, float]
    demand: Mapping[str, float]
    sensitivity: Mapping[str, float]

    def __init__(
        self,
        amounts: Mapping[str, float] | None = None,
        *,
        demand: Mapping[str, float] | None = None,
        sensitivity: Mapping[str, float] | None = None,
    ) -> None:
        given = {"amounts": amounts, "demand": demand, "sensitivity": sensitivity}
        for field, values in given.items():
            held = {
                name: number(value, f"trace, {field} of {name!r}")
                for name, value in (values or {}).items()
            }
            object.__setattr__(self, field, ReadOnly(held))

    def __hash__(self) -> int:
        """Hash its values."""
        return hash(
            tuple(
                tuple(sorted(values.items()))
                for values in (self.amounts, self.demand, self.sensitivity)
            )
        )


def number(
    value: object, where: str, unit: str = "", *, lower: float = 0.0, open: bool = False
) -> float:
    """Return a finite number that is not below (or, `open`, above) a limit.

    Raises
    ------
    InputError
        Names `where`, the value and what was expected.
    """
    try:
        found = math.nan if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = math.nan
    good = math.isfinite(found) and (found > lower if open else found >= lower)
    if not good:
        limit = "" if lower == -math.inf else f" {'>' if open else '>='} {lower:g}"
        raise InputError(
            f"{where} is {value!r:.40}, expected a finite number{limit}"
            f"{' ' + unit if unit else ''}"
        )
    return found
