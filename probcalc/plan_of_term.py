"""The plan of a term: one node for every execution, barriers as edges."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.term import Repeat, Sequential, Term, postorder

__all__ = ["arrays_of_term"]

#: Executions beyond which a term is better predicted as a term.
MAX_NODES = 4_000_000


def arrays_of_term(term: Term) -> dict[str, Any]:
    """Return the arguments of `Plan.from_arrays` for a term.

    A part that occurs several times is laid out anew each time: fresh draws.

    Raises
    ------
    InputError
        Not a term, or one of more executions than a plan should hold.
    """
    if not isinstance(term, Term):
        raise InputError(f"plan: expected a term, got {type(term).__name__}")
    sizes: dict[int, int] = {}
    for node in postorder(term):
        inner = sum(sizes[id(part)] for part in node.parts)
        copies = node.count if isinstance(node, Repeat) else 1
        sizes[id(node)] = 1 if isinstance(node, Element) else inner * copies
        if sizes[id(node)] > MAX_NODES:
            raise InputError(
                f"plan: more than {MAX_NODES:,} executions in {term.label!r}"
            )
    elements: dict[int, int] = {}
    listed: list[Element] = []
    element_of: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    counts: dict[str, int] = {}
    names: list[str] = []
    # Results are pairs (first nodes, last nodes) of what was laid out. An explicit
    # stack of tasks, so that nesting is bounded by memory: a term to lay out, or how
    # many results to put together, negative for one after the other.
    results: list[tuple[list[int], list[int]]] = []
    tasks: list[Term | int] = [term]
    while tasks:
        task = tasks.pop()
        if isinstance(task, Element):
            number = len(element_of)
            element_of.append(elements.setdefault(id(task), len(listed)))
            if element_of[-1] == len(listed):
                listed.append(task)
            counts[task.name] = counts.get(task.name, 0) + 1
            names.append(f"{task.name}#{counts[task.name]}")
            results.append(([number], [number]))
        elif isinstance(task, Repeat):
            tasks.append(-task.count)
            tasks.extend([task.part] * task.count)
        elif isinstance(task, Term):
            size = len(task.parts)
            tasks.append(-size if isinstance(task, Sequential) else size)
            tasks.extend(reversed(task.parts))
        else:
            parts = results[-abs(task) :]
            del results[-abs(task) :]
            if task > 0:
                ends = [[i for part in parts for i in part[side]] for side in (0, 1)]
                results.append((ends[0], ends[1]))
                continue
            for (_, last), (first, _) in itertools.pairwise(parts):
                sources.extend(a for a in last for _ in first)
                targets.extend(b for _ in last for b in first)
            results.append((parts[0][0], parts[-1][1]))
    return {
        "elements": listed,
        "element_of": np.array(element_of, dtype=np.int64),
        "sources": np.array(sources, dtype=np.int64),
        "targets": np.array(targets, dtype=np.int64),
        "names": _plain(names, counts),
    }


def _plain(names: list[str], counts: dict[str, int]) -> list[str]:
    """Names without ``#1`` where an element runs once."""
    once = {f"{name}#1": name for name, count in counts.items() if count == 1}
    found = [once.get(name, name) for name in names]
    return found if len(set(found)) == len(found) else names
