"""The interaction graph: which pairs must not be composed as if alone (section 4.4).

It starts empty. Elements are composed context-independently, a deviation is detected,
the pair behind it is identified and characterised, and its edge is reused wherever the
pair occurs. Directed edges are histories (the state A leaves perturbs B), undirected
ones interference. Single effects that are negligible can add up, so conditions are
checked for whole prefixes and co-running sets too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.plain import finite
from probcalc.term import MultiParallel, Parallel, Repeat, Sequential, Term
from probcalc.validation.insensitivity import p_value
from probcalc.validation.verdict import Verdict

__all__ = [
    "Condition",
    "Interaction",
    "InteractionGraph",
    "Unsafe",
    "coarsened",
    "conditions_of",
    "interaction_of",
    "unsafe_parts",
    "with_tests",
]

VERSION = 1
Kind = Literal["history", "interference"]


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """Under what an element runs: after a prefix, or beside a set.

    Attributes
    ----------
    kind : {"history", "interference"}
    element : str
        Whose signature may move.
    others : tuple of str
        The prefix in its order, or the co-running set, sorted.
    """

    kind: Kind
    element: str
    others: tuple[str, ...]

    def __post_init__(self) -> None:
        """Sort a co-running set."""
        if self.kind not in ("history", "interference"):
            raise InputError(
                f"condition of {self.element!r}: kind is {self.kind!r}, expected "
                "'history' or 'interference'"
            )
        if isinstance(self.others, str) or not self.others:
            raise InputError(
                f"condition of {self.element!r}: others are {self.others!r}, expected "
                "names of at least one; no others are named"
            )
        if self.kind == "interference":
            object.__setattr__(self, "others", tuple(sorted(self.others)))

    def __str__(self) -> str:
        """Arrow for a history, bars for interference."""
        if self.kind == "history":
            return " >> ".join(self.others) + f" -> {self.element}"
        return f"{self.element} beside " + " | ".join(self.others)


@dataclass(frozen=True, slots=True)
class Interaction:
    """One tested condition.

    Attributes
    ----------
    condition : Condition
    perturbation : float
        Shift of the element's energy, mean of |.|, J (the verdict's first part).
    lower, upper : float
        Its confidence bounds.
    p : float
        Evidence against insensitivity, before correction.
    edge : bool
        Whether it is one, at the graph's false-discovery rate.
    outcome : str
        Of the verdict on its own.
    evidence : mapping
        The verdict, as plain data.
    """

    condition: Condition
    perturbation: float
    lower: float
    upper: float
    p: float
    edge: bool
    outcome: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InteractionGraph:
    """What has been tested, and which of it are edges.

    Parameters
    ----------
    tests : tuple of Interaction
    rate : float
        Expected share of false edges among all edges (Benjamini and Hochberg).
    """

    tests: tuple[Interaction, ...] = ()
    rate: float = 0.05

    def __post_init__(self) -> None:
        """Check the rate."""
        if not 0.0 < self.rate < 1.0:
            raise InputError(
                f"interaction graph: rate is {self.rate!r}, expected between 0 and 1"
            )

    @property
    def nodes(self) -> tuple[str, ...]:
        """Elements that occur, sorted."""
        names = {t.condition.element for t in self.tests}
        for t in self.tests:
            names.update(t.condition.others)
        return tuple(sorted(names))

    @property
    def edges(self) -> tuple[Interaction, ...]:
        """Conditions under which an element must not be composed as if alone."""
        return tuple(t for t in self.tests if t.edge)

    def of(self, condition: Condition) -> Interaction | None:
        """Return the test of a condition, if there is one."""
        return next((t for t in self.tests if t.condition == condition), None)

    def save(self, file: str | Path) -> None:
        """Write it as JSON."""
        content = {
            "version": VERSION,
            "rate": self.rate,
            "tests": [_plain(t) for t in self.tests],
        }
        Path(file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, file: str | Path) -> InteractionGraph:
        """Read what `save` wrote.

        Raises
        ------
        InputError
            No such file, no JSON, or of another version.
        """
        try:
            content = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot be read: {error}") from error
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise InputError(f"{file}: expected an interaction graph of version 1")
        try:
            tests = tuple(_test(t) for t in content["tests"])
            return cls(tests, float(content["rate"]))
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{file}: {type(error).__name__} {error}") from error

    def draw(self, file: str | Path) -> None:
        """Draw nodes on a circle: arrows for histories, lines for interference."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        angle = np.linspace(0.0, 2.0 * np.pi, len(self.nodes), endpoint=False)
        place = {
            n: (math.cos(a), math.sin(a))
            for n, a in zip(self.nodes, angle, strict=True)
        }
        for t in self.edges:
            c = t.condition
            for other in c.others:
                axes.annotate(
                    "",
                    xy=place[c.element],
                    xytext=place[other],
                    arrowprops={
                        "arrowstyle": "-|>" if c.kind == "history" else "-",
                        "linestyle": "-" if len(c.others) == 1 else ":",
                        "color": "0.2" if c.kind == "history" else "0.5",
                        "shrinkA": 22,
                        "shrinkB": 22,
                        "connectionstyle": "arc3,rad=0.12",
                    },
                )
            x, y = place[c.element]
            axes.text(
                0.75 * x, 0.75 * y, f"{t.perturbation:.3g} J", ha="center", fontsize=8
            )
        for name, (x, y) in place.items():
            axes.text(
                x,
                y,
                name,
                ha="center",
                va="center",
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "0.2"},
            )
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
        axes.set_axis_off()
        figure.savefig(file)


def _plain(t: Interaction) -> dict[str, Any]:
    found = asdict(t)
    for key in ("perturbation", "lower", "upper"):
        found[key] = finite(found[key])
    return found


def _test(found: Mapping[str, Any]) -> Interaction:
    condition = Condition(
        found["condition"]["kind"],
        str(found["condition"]["element"]),
        tuple(map(str, found["condition"]["others"])),
    )
    lower, upper = found["lower"], found["upper"]
    return Interaction(
        condition,
        math.nan if found["perturbation"] is None else float(found["perturbation"]),
        -math.inf if lower is None else float(lower),
        math.inf if upper is None else float(upper),
        float(found["p"]),
        bool(found["edge"]),
        str(found["outcome"]),
        dict(found["evidence"]),
    )


def interaction_of(
    condition: Condition, null: Element, other: Element, verdict: Verdict
) -> Interaction:
    """Return the evidence of one condition, not yet corrected for many.

    Parameters
    ----------
    null, other : Element
        The element from the null context in isolation, and under the condition.
    verdict : Verdict
        Of `history_insensitive` or `interference_insensitive` on the two.
    """
    part = verdict.parts[0]
    return Interaction(
        condition,
        part.value,
        part.lower,
        part.upper,
        p_value(null, other, margin=verdict.claim.margin),
        False,
        verdict.outcome.value,
        verdict.to_dict(),
    )


def with_tests(
    graph: InteractionGraph, tests: Iterable[Interaction]
) -> InteractionGraph:
    """Return the graph with more tests; a newer one of a condition replaces the older.

    Edges are decided anew over all tests: Benjamini and Hochberg hold the share of
    false ones at the graph's rate, however many pairs are tested.
    """
    known = {t.condition: t for t in graph.tests}
    known.update({t.condition: t for t in tests})
    listed = sorted(known.values(), key=lambda t: t.condition)
    if not listed:
        return replace(graph, tests=())
    p = np.array([t.p for t in listed])
    order = np.argsort(p, kind="stable")
    passed = np.flatnonzero(p[order] <= graph.rate * np.arange(1, p.size + 1) / p.size)
    cut = p[order[passed[-1]]] if passed.size else -1.0
    edges = tuple(
        replace(t, edge=bool(q <= cut)) for t, q in zip(listed, p, strict=True)
    )
    return replace(graph, tests=edges)


def conditions_of(term: Term) -> tuple[Condition, ...]:
    """List what a composition realises: predecessors, whole prefixes, co-running sets.

    Repeats count as two executions: what follows itself does so from the second on.
    """
    found: dict[Condition, None] = {}

    def walk(
        part: Term, before: tuple[str, ...], beside: tuple[str, ...]
    ) -> tuple[str, ...]:
        if isinstance(part, Element):
            if before:
                found[Condition("history", part.name, before[-1:])] = None
                found[Condition("history", part.name, before)] = None
            if beside:
                found[Condition("interference", part.name, beside)] = None
                for other in beside:
                    found[Condition("interference", part.name, (other,))] = None
            return (*before, part.name)
        if isinstance(part, Repeat):
            return walk(part.part, walk(part.part, before, beside), beside)
        if isinstance(part, Sequential):
            for child in part.parts:
                before = walk(child, before, beside)
            return before
        assert isinstance(part, Parallel | MultiParallel)
        names = [_names(child) for child in part.parts]
        after = before
        for i, child in enumerate(part.parts):
            others = tuple(n for j, x in enumerate(names) if j != i for n in x)
            walk(child, before, (*beside, *others))
            after = (*after, *names[i])
        return after

    walk(term, (), ())
    return tuple(found)


def _names(part: Term) -> tuple[str, ...]:
    if isinstance(part, Element):
        return (part.name,)
    if isinstance(part, Repeat):
        return _names(part.part)
    return tuple(n for child in part.parts for n in _names(child))


@dataclass(frozen=True, slots=True)
class Unsafe:
    """What stands in the way of composing a term as if its elements were alone.

    Attributes
    ----------
    edges : tuple of Interaction
        Conditions the term realises that are edges.
    untested : tuple of Condition
        Conditions it realises that nobody has tested.
    """

    edges: tuple[Interaction, ...]
    untested: tuple[Condition, ...]


def unsafe_parts(graph: InteractionGraph, term: Term) -> Unsafe:
    """Reuse a graph: which conditions of a new term are edges, or not tested."""
    edges, untested = [], []
    for condition in conditions_of(term):
        test = graph.of(condition)
        if test is None:
            untested.append(condition)
        elif test.edge:
            edges.append(test)
    return Unsafe(tuple(edges), tuple(untested))


def coarsened(term: Term, part: Term | Sequence[Term], element: Element) -> Term:
    """Return the term with a part replaced by one element that was measured as a whole.

    Parameters
    ----------
    part : Term, or neighbours of a sequence in their order
        All its occurrences are replaced.

    Raises
    ------
    InputError
        The part does not occur, or the element holds other devices.
    """
    parts = (part,) if isinstance(part, Term) else tuple(part)
    if len(parts) == 1 and isinstance(parts[0], Sequential):
        parts = parts[0].parts
    devices = {d for p in parts for d in p.devices}
    if set(element.devices) != devices:
        raise InputError(
            f"element {element.name!r} holds {sorted(element.devices)}, expected "
            f"{sorted(devices)} as the part it replaces"
        )
    count = 0

    def walk(node: Term) -> Term:
        nonlocal count
        if len(parts) == 1 and node == parts[0]:
            count += 1
            return element
        if isinstance(node, Element):
            return node
        if isinstance(node, Repeat):
            return Repeat(walk(node.part), node.count)
        children: list[Term] = []
        i = 0
        while i < len(node.parts):
            window = node.parts[i : i + len(parts)]
            if len(parts) > 1 and isinstance(node, Sequential) and window == parts:
                children.append(element)
                count += 1
                i += len(parts)
            else:
                children.append(walk(node.parts[i]))
                i += 1
        if len(children) == 1:
            return children[0]
        return type(node)(children)  # type: ignore[call-arg]

    found = walk(term)
    if not count:
        shown = " >> ".join(map(str, parts))
        raise InputError(f"{term.label}: {shown:.60} does not occur in it")
    return found
