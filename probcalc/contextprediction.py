"""What a prediction in context says: laws, and what context changed of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from probcalc.context import Context, Overlap, RuntimeContext
from probcalc.contextplan import Pass
from probcalc.distribution import Quantile
from probcalc.errors import InputError
from probcalc.plan import Plan
from probcalc.prediction import Prediction

__all__ = ["ContextPrediction", "RealisedShift", "Shifts"]


class RealisedShift(NamedTuple):
    """Largest change of an element's values by context, over executions and samples.

    Attributes
    ----------
    time, dynamic_energy, static_power : float
        s, J and W.
    """

    time: float
    dynamic_energy: float
    static_power: float


class Shifts(NamedTuple):
    """What entry contexts change of an element, and what runtime contexts do."""

    history: RealisedShift
    interference: RealisedShift


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ContextPrediction:
    """Laws of one execution of a term or plan whose elements depend on context.

    Attributes
    ----------
    time, energy, static_energy, dynamic_energy : law
        s and J.
    reduced : Prediction
        The same without any context: null-context values in isolation.
    context_energy, context_time : law
        Energy (J) and time (s) that come from context: in context less reduced, of the
        same draws. By ``exact`` of random elements, the differences of means.
    method : {"exact", "monte-carlo"}
    assumptions : tuple of str
    plan : Plan
    shifts : mapping of str to Shifts
        Largest realised changes of each element, by name: what the reduction bound of
        `probcalc.validation.reduction.reduction_bound` takes.
    idle_energy : float
        Largest static energy that idle devices draw because of their state, J; it is no
        element's, and comes on top of that bound.
    interpolation : (float, float)
        Bounds of what the interpolation of contextual signatures can be off by, added
        up over all nodes: s of time and J of energy.
    change : float
        Largest change of a duration by the last pass of contention, s.
    met : mapping of str to (float, float)
        Range of each state variable that executions entered with.
    trace : Pass or None
        Start, finish and context of every node, where contexts are deterministic.
    samples, seed : int or None
        Of a prediction by ``monte-carlo``.
    """

    time: Any
    energy: Any
    static_energy: Any
    dynamic_energy: Any
    reduced: Prediction
    context_energy: Any
    context_time: Any
    method: str
    assumptions: tuple[str, ...]
    plan: Plan
    shifts: Mapping[str, Shifts]
    idle_energy: float
    interpolation: tuple[float, float]
    change: float
    met: Mapping[str, tuple[float, float]]
    trace: Pass | None = None
    samples: int | None = None
    seed: int | None = None

    def __repr__(self) -> str:
        """Means, and what comes from context."""
        return (
            f"<ContextPrediction of {self.plan.name!r}: mean energy "
            f"{float(self.energy.mean()):.6g} J, of which "
            f"{float(self.context_energy.mean()):+.4g} J by context; mean time "
            f"{float(self.time.mean()):.6g} s; {self.method}>"
        )

    @property
    def history(self) -> dict[str, RealisedShift]:
        """Realised shifts by entry context, by name of the element."""
        return {name: s.history for name, s in self.shifts.items()}

    @property
    def interference(self) -> dict[str, RealisedShift]:
        """Realised shifts by runtime context, by name of the element."""
        return {name: s.interference for name, s in self.shifts.items()}

    def energy_quantile(self, p: float) -> Quantile:
        """Quantile of energy in J, its bracket widened by the interpolation error."""
        return _widened(self.energy, p, self.interpolation[1])

    def time_quantile(self, p: float) -> Quantile:
        """Quantile of time in s, its bracket widened by the interpolation error."""
        return _widened(self.time, p, self.interpolation[0])

    def entry_context(self, node: str) -> Context:
        """Context that a node starts in, where contexts are deterministic.

        Raises
        ------
        InputError
            Contexts that are random, an unknown node.
        """
        state = self._traced().entry[self.plan.index(node)]
        return Context({name: float(v[0]) for name, v in state.items()})

    def runtime_context(self, node: str) -> RuntimeContext:
        """Nodes that run beside one, with their windows; as `entry_context`."""
        trace = self._traced()
        v = self.plan.index(node)
        low = np.maximum(trace.start[:, 0], trace.start[v, 0])
        high = np.minimum(trace.finish[:, 0], trace.finish[v, 0])
        beside = np.flatnonzero(high > low)
        found = [
            Overlap(
                self.plan.names[u],
                self.plan.elements[self.plan.element_of[u]].name,
                float(low[u]),
                float(high[u]),
            )
            for u in beside.tolist()
            if u != v
        ]
        return RuntimeContext(node, tuple(sorted(found, key=lambda o: o.start)))

    def _traced(self) -> Pass:
        if self.trace is None:
            raise InputError(
                f"plan {self.plan.name!r}: contexts are random, each sample has its own"
            )
        return self.trace


def _widened(law: Any, p: float, by: float) -> Quantile:
    q = law.quantile(p) if hasattr(law, "quantile") else None
    if q is None:
        value = float(law.icdf(p))
        q = Quantile(p, value, value, value, "certified", "nothing is random", 1.0 - p)
    if not by:
        return q
    return Quantile(
        q.p, q.value, q.lower - by, q.upper + by, "estimate",
        f"interpolation between contexts: {by:.3g}; {q.limited_by}", q.sf,
    )  # fmt: skip
