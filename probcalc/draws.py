"""Draw groups: which nodes of a plan vary together (sections 5.2.2 and App. F).

Independence between the nodes of a plan is an assumption, and often the largest error
of a prediction. A plan therefore names how its nodes draw: every node afresh, nodes
with one label by one measured row, or nodes with one label under one common factor;
groups nest (a factor of the rank, a row of the microbatch).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Constant, Distribution, Empirical, as_law
from probcalc.element import Element
from probcalc.errors import InputError

__all__ = ["DrawFactor", "Draws", "FactorActsOn", "label_ids"]

IntArray = npt.NDArray[np.int64]
FactorActsOn = Literal["time", "energy", "both"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DrawFactor:
    """A random factor that nodes of one group have in common, one draw per group.

    Unlike a `Shared` factor of elements, which is one draw for a whole plan, each
    value of a label (each rank, each microbatch) draws its own.

    Parameters
    ----------
    name : str
    law : number or Distribution
        Positive; of mean 1 where it is to leave means as they are.
    by : str or sequence of str
        Label, or labels taken together, whose values are the groups.
    acts_on : {"time", "energy", "both"}
        Whether it multiplies T, the dynamic energy d, or both.
    ids : ndarray of int64, shape (nodes,)
        Group of each node, -1 for none; filled in by the plan.

    Raises
    ------
    InputError
        A law that can be zero or negative, an unknown `acts_on`.
    """

    name: str
    law: Distribution
    by: tuple[str, ...]
    acts_on: FactorActsOn
    ids: IntArray

    def __init__(
        self,
        name: str,
        law: Any,
        *,
        by: str | Sequence[str],
        acts_on: FactorActsOn = "time",
        ids: npt.ArrayLike = (),
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"draw factor: expected a name, got {name!r}")
        where = f"draw factor {name!r}"
        if acts_on not in get_args(FactorActsOn):
            raise InputError(
                f"{where}: acts_on is {acts_on!r}, expected one of "
                f"{', '.join(map(repr, get_args(FactorActsOn)))}"
            )
        law = as_law(law, name=where)
        lowest = float(law.support()[0])
        if not lowest >= 0.0 or float(law.cdf(0.0)) > 0.0:
            raise InputError(
                f"{where}: its law goes down to {lowest:g}, expected a positive factor"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "law", law)
        object.__setattr__(self, "by", labels_of(by, where))
        object.__setattr__(self, "acts_on", acts_on)
        held = np.array(ids, dtype=np.int64)
        held.flags.writeable = False
        object.__setattr__(self, "ids", held)

    def __repr__(self) -> str:
        """Name, what it multiplies and its groups."""
        return f"<DrawFactor {self.name!r}: {self.sentence}>"

    @property
    def sentence(self) -> str:
        """What it does, in words."""
        what = {"both": "time and dynamic energy", "energy": "dynamic energy"}
        on = what.get(self.acts_on, "time")
        return f"factor {self.name!r} on {on}, one draw per {' and '.join(self.by)}"

    def grouped(self, labels: Mapping[str, Sequence[Hashable]], nodes: int) -> Self:
        """Return it with the group of each node filled in from labels."""
        ids = label_ids(self.by, labels, nodes, f"draw factor {self.name!r}")
        return type(self)(
            self.name, self.law, by=self.by, acts_on=self.acts_on, ids=ids
        )


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """How the nodes of a plan draw.

    Attributes
    ----------
    rows : ndarray of int64, shape (nodes,)
        Nodes with one number draw one measured row together; a number of its own is a
        fresh draw.
    rows_by : tuple of str
        Labels that make the groups; empty where every node draws afresh.
    factors : tuple of DrawFactor
    """

    rows: IntArray
    rows_by: tuple[str, ...] = ()
    factors: tuple[DrawFactor, ...] = ()

    @property
    def fresh(self) -> bool:
        """Whether all nodes are independent draws."""
        return not self.factors and np.unique(self.rows).size == self.rows.size

    @property
    def sentence(self) -> str:
        """The grouping that is assumed, in words."""
        if self.rows_by:
            by = " and ".join(self.rows_by)
            rows = f"nodes of one {by} draw one measured row together"
        else:
            rows = "every node draws afresh"
        return "; ".join([rows, *(factor.sentence for factor in self.factors)])


def labels_of(by: str | Sequence[str], where: str) -> tuple[str, ...]:
    """Return one or several names of labels as a tuple."""
    names = (by,) if isinstance(by, str) else tuple(by)
    if not names or not all(isinstance(n, str) and n for n in names):
        raise InputError(f"{where}: by is {by!r}, expected the name of a label")
    return names


def label_ids(
    by: Sequence[str],
    labels: Mapping[str, Sequence[Hashable]],
    nodes: int,
    where: str,
) -> IntArray:
    """Number the groups of nodes whose labels agree, in the order they appear.

    Nodes without one of the labels (None) belong to no group: -1.

    Raises
    ------
    InputError
        A label that the plan does not have.
    """
    for name in by:
        if name not in labels:
            held = ", ".join(map(repr, labels)) or "none"
            raise InputError(f"{where}: no label {name!r}, the plan has {held}")
    known: dict[tuple[Hashable, ...], int] = {}
    ids = np.full(nodes, -1, dtype=np.int64)
    for i, key in enumerate(zip(*(labels[name] for name in by), strict=True)):
        if None not in key:
            ids[i] = known.setdefault(key, len(known))
    return ids


def row_groups(
    by: tuple[str, ...],
    labels: Mapping[str, Sequence[Hashable]],
    elements: Sequence[Element],
    element_of: IntArray,
) -> IntArray:
    """Return the row group of each node; nodes of no group draw afresh.

    Raises
    ------
    InputError
        A group whose elements were not measured in equally many runs, or have laws
        that are no runs: there is no common row to draw.
    """
    nodes = element_of.size
    ids = label_ids(by, labels, nodes, "rows")
    alone = np.flatnonzero(ids < 0)
    groups = int(ids.max(initial=-1)) + 1
    ids[alone] = groups + np.arange(alone.size)
    counts = np.array([_rows_of(e) for e in elements])[element_of]
    shared = np.bincount(ids, minlength=groups)[ids] > 1
    if (shared & (counts < 0)).any():
        e = elements[element_of[int(np.argmax(shared & (counts < 0)))]]
        raise InputError(
            f"rows by {' and '.join(by)}: element {e.name!r} has a law without runs, "
            "expected measured runs or a constant; let it draw afresh or under a factor"
        )
    varied = shared & (counts > 0)
    most = np.zeros(groups + alone.size, dtype=np.int64)
    np.maximum.at(most, ids[varied], counts[varied])
    odd = varied & (counts != most[ids])
    if odd.any():
        i = int(np.argmax(odd))
        j = int(np.argmax((ids == ids[i]) & (counts == most[ids[i]])))
        a, b = elements[element_of[i]], elements[element_of[j]]
        raise InputError(
            f"rows by {' and '.join(by)}: element {a.name!r} has {counts[i]} runs and "
            f"{b.name!r} {counts[j]}, expected as many: run k of both is one row"
        )
    return ids


def _rows_of(element: Element) -> int:
    """Return the number of runs; 0 for a constant, -1 for laws without runs."""
    if element.runs is not None:
        return len(element.runs)
    laws = [element.time, element.dynamic_energy]
    if all(isinstance(law, Constant) for law in laws):
        return 0
    sizes = {
        law.samples.size
        for law in laws
        if isinstance(law, Empirical) and law.weights is None
    }
    plain = all(isinstance(law, Constant | Empirical) for law in laws)
    return sizes.pop() if plain and len(sizes) == 1 else -1


def positive(value: float, where: str) -> float:
    """Check a number of seconds that must not be negative."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.floating | np.integer)
        or not (math.isfinite(value) and value >= 0.0)
    ):
        raise InputError(f"{where} is {value!r}, expected seconds >= 0")
    return float(value)
