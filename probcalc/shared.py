"""Shared factors: one draw that several elements have in common (section 4, App. F).

The gain of an instrument, a static-power calibration, a common temperature: whatever
they are worth, they are worth the same for every element that names them and in every
execution, so that they do not average out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from probcalc.distribution import Distribution, as_law, law_key
from probcalc.errors import CompositionError, InputError

__all__ = ["ActsOn", "How", "Shared", "consistent"]

ActsOn = Literal["energy", "time", "static_power"]
How = Literal["scale", "shift"]
_UNITS = {"energy": "J", "time": "s", "static_power": "W"}


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Shared:
    """One draw that scales or shifts every element that names it.

    The draw is independent of everything else, perfectly correlated between the
    elements that name it, and the same in every execution: in ``a ** n`` and in
    `Prediction.over` its contribution to the mean of n executions does not shrink.

    Parameters
    ----------
    name : str
        Such as ``"gain:gpu0"``; one name stands for one law within a term.
    law : number or Distribution
        Of the factor (``scale``, positive) or of what is added (``shift``, in J, s
        or W).
    acts_on : {"energy", "time", "static_power"}
        ``energy``: s and d alike, as the gain of an instrument does; a shift is
        added to the energy of each execution. ``time``: T, and the static energy
        with it. ``static_power``: s alone, with the dynamic energy left as stated.
    how : {"scale", "shift"}
        A scale comes before a shift where an element names both.

    Raises
    ------
    InputError
        An empty name, an unknown `acts_on` or `how`, a factor that can be negative.

    Examples
    --------
    >>> from scipy import stats
    >>> Shared("gain:gpu0", stats.Uniform(a=0.95, b=1.05))
    <Shared 'gain:gpu0': scales energy>
    """

    name: str
    law: Distribution
    acts_on: ActsOn
    how: How

    def __init__(
        self,
        name: str,
        law: Any,
        acts_on: ActsOn = "energy",
        how: How = "scale",
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"shared factor: expected a name, got {name!r}")
        for given, field, known in (
            (acts_on, "acts_on", get_args(ActsOn)),
            (how, "how", get_args(How)),
        ):
            if given not in known:
                raise InputError(
                    f"shared factor {name!r}: {field} is {given!r}, expected one of "
                    f"{', '.join(map(repr, known))}"
                )
        law = as_law(law, name=f"shared factor {name!r}")
        lowest = float(law.support()[0])
        if how == "scale" and not lowest >= 0.0:
            raise InputError(
                f"shared factor {name!r}: a scale must be positive, but its law goes "
                f"down to {lowest:g}; cut it with scipy.stats.truncate(law, lb=...)"
            )
        if how == "scale" and not float(law.mean()) > 0.0:
            raise InputError(f"shared factor {name!r}: a scale of 0 leaves nothing")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "law", law)
        object.__setattr__(self, "acts_on", acts_on)
        object.__setattr__(self, "how", how)

    def __repr__(self) -> str:
        """Name and what it does."""
        return f"<Shared {self.name!r}: {self.sentence}>"

    @property
    def sentence(self) -> str:
        """What it does, in words."""
        if self.how == "scale":
            return f"scales {self.acts_on}"
        return f"adds to {self.acts_on} ({_UNITS[self.acts_on]})"

    def same_as(self, other: Shared) -> bool:
        """Whether both say the same of the one factor they name."""
        if self is other:
            return True
        alike = self.acts_on == other.acts_on and self.how == other.how
        return alike and (
            law_key(self.law) == law_key(other.law) or bool(self.law == other.law)
        )


def consistent(factors: Iterable[Shared]) -> dict[str, Shared]:
    """Return the factors by name.

    Raises
    ------
    CompositionError
        One name that stands for two different factors.
    """
    found: dict[str, Shared] = {}
    for factor in factors:
        first = found.setdefault(factor.name, factor)
        if not first.same_as(factor):
            raise CompositionError(
                f"shared factor {factor.name!r} is stated in two ways, expected one "
                "law and one effect for one name"
            )
    return found
