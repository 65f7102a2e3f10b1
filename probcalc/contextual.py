"""Contextual signatures: one element's laws at several characterised contexts.

Between characterised contexts every quantile of T and of d, and s, is interpolated
linearly: along one variable between neighbours, over several in the simplices of a
Delaunay triangulation. Beyond their hull nothing is known, and nothing is said.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.context import Context, Trace
from probcalc.distribution import Constant, Distribution, Empirical
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.readonly import ReadOnly

__all__ = [
    "ContextualSignature",
    "Moved",
    "characterised",
    "signature_of",
    "trace_of",
    "traced",
]

FloatArray = npt.NDArray[np.float64]
#: Levels at which laws are compared to tell the error of interpolation.
LEVELS: FloatArray = np.linspace(0.01, 0.99, 99, dtype=np.float64)
SIGNATURE = "contextual signature"
TRACE = "trace"


class Moved(NamedTuple):
    """Values of runs in their contexts, shape (samples,) each.

    Attributes
    ----------
    time, dynamic_energy : ndarray
        s and J.
    static_power : ndarray
        Change of s of all devices together, W.
    """

    time: FloatArray
    dynamic_energy: FloatArray
    static_power: FloatArray


class Gap(NamedTuple):
    """Error of interpolation: of T in s, d in J, s in W."""

    time: float
    dynamic_energy: float
    static_power: float


@dataclass(frozen=True, slots=True, eq=False)
class ContextualSignature:
    """Laws of one element at characterised contexts; made by `characterised`.

    Attributes
    ----------
    name : str
        Of the element.
    variables : tuple of str
    points : ndarray, shape (contexts, variables)
        The null context first.
    elements : tuple of Element
        As measured at each of them.
    gap : Gap
        Error of interpolation. Along one variable with three contexts or more the
        largest error when a context is left out and interpolated (kind ``estimate``:
        at twice the spacing); else the largest difference between two contexts, which
        bounds it for a response that lies between those at the surrounding contexts.
    mesh : object
        Triangulation over several variables.
    """

    name: str
    variables: tuple[str, ...]
    points: FloatArray
    elements: tuple[Element, ...]
    gap: Gap
    mesh: Any = None

    def weights(self, state: Mapping[str, FloatArray]) -> FloatArray:
        """Weights of the characterised contexts, shape (contexts, samples).

        Raises
        ------
        InputError
            A state outside their hull; names the element, the variable and its value.
        """
        values = np.stack([np.atleast_1d(state[name]) for name in self.variables])
        reach = np.ptp(self.points, axis=0)
        for name, x, column, width in zip(
            self.variables, values, self.points.T, reach, strict=True
        ):
            low, high = float(column.min()), float(column.max())
            # Rounding alone leaves no context outside.
            wrong = (x < low - 1e-9 * width) | (x > high + 1e-9 * width)
            if wrong.any():
                raise InputError(
                    f"element {self.name!r}: its context has {name!r} = "
                    f"{float(x[int(np.argmax(wrong))]):.6g}, characterised from "
                    f"{low:g} to {high:g}; characterise it there too"
                )
        if len(self.variables) == 1:
            return self._between(np.clip(values[0], *self._ends()))
        return self._within(values)

    def _ends(self) -> tuple[float, float]:
        return float(self.points.min()), float(self.points.max())

    def _between(self, x: FloatArray) -> FloatArray:
        column = self.points[:, 0]
        order = np.argsort(column)
        grid = column[order]
        right = np.clip(np.searchsorted(grid, x, side="right"), 1, grid.size - 1)
        part = (x - grid[right - 1]) / (grid[right] - grid[right - 1])
        found = np.zeros((column.size, x.size))
        at = np.arange(x.size)
        found[order[right - 1], at] = 1.0 - part
        found[order[right], at] += part
        return found

    def _within(self, values: FloatArray) -> FloatArray:
        # One unit in each variable, as the triangulation was made.
        low, width = self.points.min(axis=0), np.ptp(self.points, axis=0)
        x = ((values.T - low) / width).clip(0.0, 1.0)
        simplex = self.mesh.find_simplex(x, tol=1e-9)
        outside = simplex < 0
        if outside.any():
            i = int(np.argmax(outside))
            shown = ", ".join(
                f"{name!r} = {v:.6g}"
                for name, v in zip(self.variables, values[:, i], strict=True)
            )
            raise InputError(
                f"element {self.name!r}: its context has {shown}, outside the hull of "
                f"the {len(self.elements)} characterised contexts; characterise it "
                "there too"
            )
        transform = self.mesh.transform[simplex]
        n = len(self.variables)
        inner = np.einsum("sij,sj->si", transform[:, :n], x - transform[:, n])
        weights = np.concatenate([inner, 1.0 - inner.sum(axis=1, keepdims=True)], 1)
        found = np.zeros((len(self.elements), x.shape[0]))
        for corner, w in zip(self.mesh.simplices[simplex].T, weights.T, strict=True):
            found[corner, np.arange(x.shape[0])] += w
        return found

    def moved(
        self, state: Mapping[str, FloatArray], time: FloatArray, energy: FloatArray
    ) -> Moved:
        """Runs drawn in the null context, as they are in another one.

        T becomes the interpolated quantile at the level that the drawn T has in the
        null context, and d likewise: no quantiles cross, and the two stay as dependent
        as they were drawn.

        Parameters
        ----------
        state : mapping of str to ndarray, shape (samples,)
        time, energy : ndarray, shape (samples,)
            T in s and d in J, drawn from the laws of the null context.
        """
        w = self.weights(state)
        powers = np.array([e.static_power for e in self.elements])
        return Moved(
            _mapped([e.time for e in self.elements], w, time),
            _mapped([e.dynamic_energy for e in self.elements], w, energy),
            powers @ w - powers[0],
        )

    def at(self, context: Context) -> Element | None:
        """Return the element in a context, or None where no exact law is to hand.

        It is at a characterised context, between constants, and for measured runs: run
        k of the null context is moved as `moved` says.

        Raises
        ------
        InputError
            A context outside the hull, or without one of the variables.
        """
        state = {}
        for name in self.variables:
            if name not in context.values:
                raise InputError(
                    f"element {self.name!r}: the context does not state {name!r}"
                )
            state[name] = np.array([context.values[name]])
        w = self.weights(state)[:, 0]
        null = self.elements[0]
        if (w == 1.0).any():
            return self.elements[int(np.argmax(w))]
        used = [e for e, x in zip(self.elements, w, strict=True) if x > 0.0]
        power = float(w @ [e.static_power for e in self.elements])
        share = power / null.static_power if null.static_power else 1.0
        powers = {d: p * share for d, p in null.powers.items()}
        if all(_constant(e) for e in used):
            time, energy = (
                float(w @ [float(getattr(e, field).mean()) for e in self.elements])
                for field in ("time", "dynamic_energy")
            )
            return Element(
                self.name,
                time=time,
                dynamic_energy=energy,
                static_power=powers,
                device=null.devices,
            )
        if null.runs is None or any(e.runs is None for e in used):
            return None
        size = len(null.runs)
        spread = {name: np.full(size, v[0]) for name, v in state.items()}
        found = self.moved(spread, null.runs.time, null.runs.dynamic_energy)
        return Element.from_runs(
            self.name,
            time=found.time,
            energy=found.dynamic_energy + power * found.time,
            static_power=powers,
            device=null.devices,
            blocks=null.runs.blocks,
        )


def characterised(
    points: Sequence[tuple[Context, Element]], *, name: str | None = None
) -> Element:
    """Return an element with its laws at several contexts, for predictions in context.

    It composes as any element does, with its laws of the null context.

    Parameters
    ----------
    points : sequence of (Context, Element)
        The null context first; each context states the same variables.
    name : str, optional
        That of the first element without.

    Raises
    ------
    InputError
        Fewer than two contexts, contexts that differ in their variables or are stated
        twice, elements on different devices, contexts that span no hull (all in one
        line over two variables).
    """
    if len(points) < 2:
        raise InputError(
            f"contextual signature: {len(points)} contexts, expected at least two"
        )
    contexts = [c for c, _ in points]
    elements = tuple(e for _, e in points)
    null = elements[0]
    called = name or null.name
    where = f"element {called!r}, contextual signature"
    variables = tuple(contexts[0].values)
    for c, e in points:
        if not isinstance(e, Element) or not isinstance(c, Context):
            raise InputError(f"{where}: expected contexts with elements, got {c!r:.60}")
        if tuple(c.values) != variables or not variables:
            raise InputError(
                f"{where}: contexts state {list(variables)} and {list(c.values)}, "
                "expected the same variables, at least one"
            )
        if e.devices != null.devices:
            raise InputError(
                f"{where}: measured on {list(null.devices)} and {list(e.devices)}, "
                "expected the same devices"
            )
    at = np.array([[c.values[v] for v in variables] for c in contexts])
    if np.unique(at, axis=0).shape[0] < len(points):
        raise InputError(f"{where}: one context is stated twice")
    mesh = _mesh(at, where) if len(variables) > 1 else None
    at.flags.writeable = False
    gap = Gap(*(_gap(at, elements, field) for field in Gap._fields))
    made = ContextualSignature(called, variables, at, elements, gap, mesh)
    found = _with(null, SIGNATURE, made)
    object.__setattr__(found, "name", called)
    return found


def traced(element: Element, trace: Trace) -> Element:
    """Return the element with what it does, for mechanisms to see."""
    if not isinstance(trace, Trace):
        raise InputError(
            f"element {element.name!r}: expected a trace, got {trace!r:.60}"
        )
    return _with(element, TRACE, trace)


def signature_of(element: Element) -> ContextualSignature | None:
    """Return the contextual signature of an element, if it has one."""
    return element.metadata.get(SIGNATURE)


def trace_of(element: Element) -> Trace | None:
    """Return the trace of an element, if it states one."""
    return element.metadata.get(TRACE)


def _with(element: Element, key: str, value: Any) -> Element:
    other = copy.copy(element)
    object.__setattr__(other, "metadata", ReadOnly({**element.metadata, key: value}))
    return other


def _constant(element: Element) -> bool:
    return isinstance(element.time, Constant) and isinstance(
        element.dynamic_energy, Constant
    )


def _quantiles(law: Distribution, below: FloatArray, above: FloatArray) -> FloatArray:
    """Quantiles at levels, each from the side on which its level is exact."""
    low = below <= 0.5
    found = np.empty(below.shape)
    if isinstance(law, Constant):
        found[:] = law.value
        return found
    found[low] = law.icdf(below[low])
    found[~low] = law.iccdf(above[~low])
    return found


def _mapped(laws: list[Distribution], w: FloatArray, x: FloatArray) -> FloatArray:
    null = laws[0]
    if all(isinstance(law, Constant) for law in laws):
        values = np.array([float(law.mean()) for law in laws])
        # Kept as drawn (on whole ticks) but for the change.
        return x + (values @ w - values[0])
    if isinstance(null, Constant):
        raise InputError(
            "contextual signature: constant in the null context and random in another "
            "one, expected laws of one kind"
        )
    below = np.asarray(null.cdf(x), dtype=float)
    above = np.asarray(null.ccdf(x), dtype=float)
    change = np.zeros_like(x)
    own = _quantiles(null, below, above)
    for law, part in zip(laws[1:], w[1:], strict=True):
        if part.any():
            change += part * (_quantiles(law, below, above) - own)
    return x + change


def _mesh(points: FloatArray, where: str) -> Any:
    from scipy.spatial import Delaunay, QhullError

    width = np.ptp(points, axis=0)
    try:
        if (width == 0.0).any():
            raise QhullError
        return Delaunay((points - points.min(axis=0)) / width)
    except (QhullError, ValueError):
        raise InputError(
            f"{where}: {len(points)} contexts span no hull over {points.shape[1]} "
            "variables, expected some that are not all in one line or plane"
        ) from None


def _profile(element: Element, field: str) -> FloatArray:
    if field == "static_power":
        return np.array([element.static_power])
    law = getattr(element, field)
    if isinstance(law, Constant | Empirical):
        return np.asarray(law.icdf(LEVELS), dtype=float)
    levels = np.asarray(LEVELS, dtype=np.float64)
    return _quantiles(law, levels, levels[::-1])  # they lie evenly about one half


def _gap(points: FloatArray, elements: tuple[Element, ...], field: str) -> float:
    values = np.array([_profile(e, field) for e in elements])
    if points.shape[1] > 1 or len(elements) < 3:
        return float(np.ptp(values, axis=0).max())
    order = np.argsort(points[:, 0])
    x, y = points[order, 0], values[order]
    part = ((x[1:-1] - x[:-2]) / (x[2:] - x[:-2]))[:, None]
    return float(np.abs(y[1:-1] - (1.0 - part) * y[:-2] - part * y[2:]).max())
