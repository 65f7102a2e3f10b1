"""Plans: fully scheduled DAGs of elements on devices (section 3.3.4).

Every node is one execution of an element, a fresh draw of its law unless the plan's
draw groups say otherwise. A node starts at the latest finish of its predecessors, and
the makespan is the latest finish of all. Every device is held for the whole makespan.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from probcalc.draws import DrawFactor, Draws, labels_of, row_groups
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.plannode import EDGE_KINDS, Edge, EdgeKind, PlanNode, arrays_of_nodes
from probcalc.precedence import Precedence, check_points
from probcalc.readonly import ReadOnly, reduced
from probcalc.setting import Account, accounted
from probcalc.term import Term

__all__ = ["EDGE_KINDS", "Edge", "EdgeKind", "Plan", "PlanNode"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan:
    """A scheduled DAG as arrays; made by `of`, `from_arrays` or `from_term`.

    Attributes
    ----------
    name : str
    elements : tuple of Element
        Distinct, each placed on its devices.
    element_of : ndarray of int64, shape (nodes,)
        Element of each node.
    names : tuple of str
        Of the nodes, each once.
    sources, targets : ndarray of int64, shape (edges,)
        Edges, without parallel ones: of several between two nodes the largest lag
        stays.
    lags : ndarray, shape (edges,)
        In s, from the finish of the source to the start of the target.
    kinds : ndarray of int64, shape (edges,)
        Index into `EDGE_KINDS`.
    releases : ndarray, shape (nodes,)
        Earliest starts in s.
    labels : mapping of str to tuple
        Labels of the nodes, None where a node has none.
    stated : mapping of str to float
        Baseline powers that were stated, W.
    draws : Draws
        Which nodes vary together.
    level : ndarray of int64, shape (nodes,)
        Longest number of edges from a node without predecessors.
    order : ndarray of int64, shape (nodes,)
        Nodes by level, then as stated: a topological order.
    account : Account
        Baseline power of every device, and the factors it stands under.
    """

    name: str
    elements: tuple[Element, ...]
    element_of: IntArray
    names: tuple[str, ...]
    sources: IntArray
    targets: IntArray
    lags: FloatArray
    kinds: IntArray
    releases: FloatArray
    labels: Mapping[str, tuple[Hashable, ...]]
    stated: Mapping[str, float]
    draws: Draws
    level: IntArray
    order: IntArray
    account: Account

    @classmethod
    def of(
        cls,
        nodes: Iterable[PlanNode],
        *,
        orders: Mapping[str, Sequence[str]] | None = None,
        baselines: Mapping[str, float] | None = None,
        name: str = "plan",
    ) -> Self:
        """Build a plan from named nodes; every node is an independent draw.

        Parameters
        ----------
        nodes : iterable of PlanNode
        orders : mapping of str to sequence of str, optional
            By device, the nodes that run on it one after the other, in this order
            (serialisation edges).
        baselines : mapping of str to float, optional
            What a device draws in W while held and idle; without it the static power
            on which all elements on the device agree.

        Raises
        ------
        InputError
            No nodes; names that are unknown or stated twice; negative lags or
            releases; a cycle, naming its nodes; baselines of unknown devices.
        CompositionError
            A baseline that is needed and not known; nodes at two operating points
            that can overlap on one device.
        """
        return cls.from_arrays(
            **arrays_of_nodes(nodes, orders or {}, name),
            baselines=baselines,
            name=name,
        )

    @classmethod
    def from_arrays(
        cls,
        *,
        elements: Sequence[Element],
        element_of: npt.ArrayLike,
        sources: npt.ArrayLike,
        targets: npt.ArrayLike,
        lags: npt.ArrayLike | None = None,
        kinds: npt.ArrayLike | None = None,
        releases: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
        labels: Mapping[str, Sequence[Hashable]] | None = None,
        baselines: Mapping[str, float] | None = None,
        name: str = "plan",
    ) -> Self:
        """Build a plan from arrays, for plans of many nodes; independent draws.

        Parameters
        ----------
        elements : sequence of Element
            Distinct and placed.
        element_of : array_like of int, shape (nodes,)
        sources, targets : array_like of int, shape (edges,)
        lags : array_like, shape (edges,), optional
            In s; 0 without.
        kinds : array_like of int, shape (edges,), optional
            Indices into `EDGE_KINDS`; data without.
        releases : array_like, shape (nodes,), optional
            In s; 0 without.
        names : sequence of str, optional
            Distinct; the numbers of the nodes without.
        labels : mapping of str to sequence, optional
        baselines : mapping of str to float, optional

        Raises
        ------
        InputError, CompositionError
            As `of`.
        """
        where = f"plan {name!r}"
        element_of = _indices(element_of, len(elements), f"{where}, element_of")
        nodes = element_of.size
        if nodes == 0:
            raise InputError(f"{where}: has no nodes, expected at least one")
        used = np.unique(element_of)
        if used.size < len(elements):  # what nothing runs holds no device
            elements = [elements[i] for i in used]
            element_of = np.searchsorted(used, element_of)
        sources = _indices(sources, nodes, f"{where}, sources")
        targets = _indices(targets, nodes, f"{where}, targets")
        if sources.size != targets.size:
            raise InputError(
                f"{where}: {sources.size} sources and {targets.size} targets"
            )
        lag = _seconds(lags, sources.size, f"{where}, lags")
        release = _seconds(releases, nodes, f"{where}, releases")
        kind = (
            np.zeros(sources.size, dtype=np.int64)
            if kinds is None
            else _indices(kinds, len(EDGE_KINDS), f"{where}, kinds")
        )
        if kind.size != sources.size:
            raise InputError(f"{where}: {kind.size} kinds of {sources.size} edges")
        named = tuple(map(str, range(nodes)) if names is None else names)
        if len(named) != nodes or len(set(named)) != nodes:
            raise InputError(
                f"{where}: {len(set(named))} distinct names for {nodes} nodes"
            )
        from probcalc.kernels import graph

        if sources.size:
            sources, targets, lag, kind = graph.merged(
                nodes, sources, targets, lag, kind
            )
        level = graph.levels(nodes, sources, targets)
        if (level < 0).any():
            walk = [named[i] for i in graph.cycle(nodes, sources, targets)]
            shown = " -> ".join(walk[:8] + ["..."] * (len(walk) > 8) + walk[:1])
            raise InputError(f"{where}: nodes wait for each other: {shown}")
        columns = {}
        for key, column in (labels or {}).items():
            columns[key] = tuple(column)
            if len(columns[key]) != nodes:
                raise InputError(
                    f"{where}: {len(columns[key])} labels {key!r} for {nodes} nodes"
                )
        devices = _devices(elements)
        stated = dict(baselines or {})
        plan = cls(
            name=name,
            elements=tuple(elements),
            element_of=_held(element_of),
            names=named,
            sources=_held(sources),
            targets=_held(targets),
            lags=_held(lag),
            kinds=_held(kind),
            releases=_held(release),
            labels=ReadOnly(columns),
            stated=ReadOnly(stated),
            draws=Draws(_held(np.arange(nodes))),
            level=_held(level),
            order=_held(np.lexsort((np.arange(nodes), level))),
            account=accounted(tuple(elements), devices, stated),
        )
        check_points(plan)
        return plan

    @classmethod
    def from_term(
        cls,
        term: Term,
        *,
        baselines: Mapping[str, float] | None = None,
        name: str | None = None,
    ) -> Self:
        """Turn a term into the plan with the same law, one node per execution.

        ``a >> b`` becomes edges from all last nodes of a to all first nodes of b.
        """
        from probcalc.plan_of_term import arrays_of_term

        return cls.from_arrays(
            **arrays_of_term(term), baselines=baselines, name=name or term.label
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return self.element_of.size

    def __repr__(self) -> str:
        """Name, size and devices."""
        return (
            f"<Plan {self.name!r}: {len(self)} nodes, {self.sources.size} edges, "
            f"{len(self.elements)} elements on {len(self.devices)} devices>"
        )

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices, each held for the whole makespan."""
        return tuple(self.account.weights)

    @property
    def baselines(self) -> Mapping[str, float]:
        """Static power in W that each device draws while it is held and idle."""
        return self.account.baselines

    def index(self, node: str) -> int:
        """Return the number of a node.

        Raises
        ------
        InputError
            No node of that name.
        """
        try:
            return self.names.index(node)
        except ValueError:
            raise InputError(f"plan {self.name!r}: no node {node!r}") from None

    def drawn(
        self,
        rows: str | Sequence[str] | None = None,
        factors: Iterable[DrawFactor] = (),
    ) -> Plan:
        """Return the same plan with other draw groups.

        Parameters
        ----------
        rows : str or sequence of str, optional
            Label or labels: nodes that agree in them draw one measured row together.
            Their elements need equally many runs; run k of each is one row.
        factors : iterable of DrawFactor
            Factors that nodes have in common, by label.

        Raises
        ------
        InputError
            Unknown labels; rows of elements without equally many runs; two factors of
            one name.
        """
        held = tuple(factor.grouped(self.labels, len(self)) for factor in factors)
        named = [factor.name for factor in held]
        for name in named:
            if named.count(name) > 1 or name in self.account.shared:
                raise InputError(f"draw factor {name!r}: the name is taken")
        by = () if rows is None else labels_of(rows, "rows")
        groups = (
            row_groups(by, self.labels, self.elements, self.element_of)
            if by
            else np.arange(len(self))
        )
        return replace(self, draws=Draws(_held(groups), by, held))

    def with_elements(
        self,
        elements: Sequence[Element],
        element_of: npt.ArrayLike,
        *,
        baselines: Mapping[str, float] | None = None,
        name: str | None = None,
    ) -> Plan:
        """Return the same nodes and edges with other elements; independent draws.

        Parameters
        ----------
        elements, element_of
            As for `from_arrays`.
        baselines : mapping of str to float, optional
            This plan's own without.
        name : str, optional

        Raises
        ------
        InputError, CompositionError
            As `from_arrays`.
        """
        return Plan.from_arrays(
            elements=elements,
            element_of=element_of,
            sources=self.sources,
            targets=self.targets,
            lags=self.lags,
            kinds=self.kinds,
            releases=self.releases,
            names=self.names,
            labels=self.labels,
            baselines=self.baselines if baselines is None else baselines,
            name=self.name if name is None else name,
        )

    def serial(self, device: str) -> bool:
        """Whether the nodes of a device can never overlap: one chain of precedence."""
        mine = [i for i, e in enumerate(self.elements) if device in e.devices]
        nodes = np.flatnonzero(np.isin(self.element_of, mine))
        return Precedence.of(self).chain(nodes)


def _held(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    held = np.ascontiguousarray(array)
    if held is array and array.flags.writeable:
        held = array.copy()
    held.flags.writeable = False
    return held


def _indices(given: npt.ArrayLike, below: int, where: str) -> IntArray:
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise InputError(f"{where}: expected a list of whole numbers")
    array = array.astype(np.int64)
    wrong = np.flatnonzero((array < 0) | (array >= below))
    if wrong.size:
        raise InputError(
            f"{where}: entry {wrong[0]} is {array[wrong[0]]}, expected 0 to {below - 1}"
        )
    return array


def _seconds(given: npt.ArrayLike | None, size: int, where: str) -> FloatArray:
    if given is None:
        return np.zeros(size)
    array = np.array(given, dtype=np.float64)
    if array.shape != (size,):
        raise InputError(f"{where}: {array.shape} values, expected {size}")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0.0)))
    if wrong.size:
        raise InputError(
            f"{where}: entry {wrong[0]} is {array[wrong[0]]:g}, expected seconds >= 0"
        )
    return array


def _devices(elements: Sequence[Element]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(d for e in elements for d in e.devices))
