"""Shared draws in an expression: factored out where the algebra allows, else listed.

The evaluators treat all leaves as independent. An expression in which a shared leaf
stands more than once must first be rewritten so that it stands once:

    v + A + v + B            = 2 v + (A + B)
    (v + A) max (v + B)      = v + (A max B)
    v A + v B                = v (A + B)
    (v A) max (v B)          = v (A max B)          v >= 0

What cannot be factored is conditioned on by the planner.
"""

from __future__ import annotations

from collections.abc import Mapping

from probcalc.composed import max_node, min_node, same_variable, scale_node, sum_node
from probcalc.distribution import Constant
from probcalc.nodes import (
    Leaf,
    Max,
    Min,
    Mix,
    Node,
    Product,
    Scale,
    Shared,
    Sum,
    children,
    postorder,
)

__all__ = ["factored", "repeated", "substituted", "variables", "without_products"]


def variables(root: Node) -> dict[str, Shared]:
    """Shared leaves of an expression by name.

    Raises
    ------
    InputError
        One name with two different laws.
    """
    found: dict[str, Shared] = {}
    for node in postorder(root):
        if isinstance(node, Shared):
            same_variable(found.setdefault(node.name, node), node)
    return found


def occurrences(root: Node) -> dict[str, int]:
    """How often each shared leaf is drawn upon, copies counted (capped at two)."""
    counts: dict[int, dict[str, int]] = {}
    for node in postorder(root):
        if isinstance(node, Shared):
            counts[id(node)] = {node.name: 1}
            continue
        mine: dict[str, int] = {}
        for part, copies in children(node):
            for name, count in counts[id(part)].items():
                # n copies of a bare shared leaf are n times the one draw: one place.
                times = 1 if isinstance(part, Shared) else copies
                mine[name] = min(mine.get(name, 0) + count * times, 2)
        counts[id(node)] = mine
    return counts[id(root)]


def repeated(root: Node) -> list[str]:
    """Names of the shared leaves that stand more than once."""
    return sorted(name for name, count in occurrences(root).items() if count > 1)


def substituted(root: Node, values: Mapping[str, float]) -> Node:
    """The expression with the named shared leaves replaced by numbers."""
    return _rebuilt(root, lambda s: Leaf(Constant(values[s.name])), set(values))


def _rebuilt(root, leaf_for, names):  # type: ignore[no-untyped-def]
    done: dict[int, Node] = {}
    for node in postorder(root):
        if isinstance(node, Shared):
            done[id(node)] = leaf_for(node) if node.name in names else node
            continue
        if isinstance(node, Leaf):
            done[id(node)] = node
            continue
        if all(done[id(part)] is part for part, _ in children(node)):
            done[id(node)] = node
            continue
        done[id(node)] = with_parts(node, done)
    return done[id(root)]


#: Atoms of a factor up to which a product is written as a mixture.
MOST_ATOMS = 64


def without_products(root: Node) -> Node:
    """Products with factors of few atoms as mixtures of scaled parts: v R = a_i R.

    Every shared leaf must stand once: it is taken for a fresh one.
    """
    from probcalc.discretise import atoms_of

    done: dict[int, Node] = {}
    for node in postorder(root):
        if isinstance(node, Leaf | Shared):
            done[id(node)] = node
            continue
        changed = any(done[id(part)] is not part for part, _ in children(node))
        built = with_parts(node, done) if changed else node
        if isinstance(built, Product):
            atoms = atoms_of(built.factor.law, 0.0)
            if atoms is not None and atoms[0].size <= MOST_ATOMS:
                weights = tuple((atoms[1] / atoms[1].sum()).tolist())
                parts = tuple(scale_node(built.part, v) for v in atoms[0].tolist())
                built = parts[0] if len(parts) == 1 else Mix(weights, parts)
        done[id(node)] = built
    return done[id(root)]


def with_parts(node: Node, done: Mapping[int, Node]) -> Node:
    """A node over replaced parts, simplified."""
    match node:
        case Sum():
            return sum_node([(done[id(p)], n) for p, n in node.parts], node.constant)
        case Max():
            return max_node([(done[id(p)], n) for p, n in node.parts])
        case Min():
            return min_node([(done[id(p)], n) for p, n in node.parts])
        case Mix():
            return Mix(node.weights, tuple(done[id(p)] for p in node.parts))
        case Scale():
            return scale_node(done[id(node.part)], node.factor)
        case Product():
            factor, part = done[id(node.factor)], done[id(node.part)]
            if isinstance(factor, Leaf) and isinstance(factor.law, Constant):
                return scale_node(part, factor.law.value)
            assert isinstance(factor, Leaf | Shared)
            return Product(factor, part)
        case Leaf() | Shared():
            return node


# How a shared leaf v enters a node: not at all, as coefficient * v + rest, or as
# v * rest. None where it enters in another way.
Entry = tuple[str, float, Node | None]
NOT_AT_ALL = "absent"
ADDED = "added"
TIMES = "times"


def _entry(node: Node, name: str, known: Mapping[int, Entry | None]) -> Entry | None:
    if isinstance(node, Shared):
        return (ADDED, 1.0, None) if node.name == name else (NOT_AT_ALL, 0.0, node)
    entries = [known[id(part)] for part, _ in children(node)]
    if any(entry is None for entry in entries):
        return None
    kinds = [entry[0] for entry in entries if entry is not None]
    if all(kind == NOT_AT_ALL for kind in kinds):
        return (NOT_AT_ALL, 0.0, node)
    pairs = [
        (entry, copies)
        for entry, (_, copies) in zip(entries, children(node), strict=True)
        if entry is not None
    ]
    match node:
        case Scale():
            (kind, coefficient, rest), _ = pairs[0]
            scaled = None if rest is None else scale_node(rest, node.factor)
            return (kind, coefficient * node.factor, scaled)
        case Sum():
            return _sum_entry(node, pairs)
        case Max() | Min():
            return _extreme_entry(node, pairs)
        case Product():
            return _product_entry(node, pairs)
        case _:
            return None


def _sum_entry(node: Sum, pairs: list[tuple[Entry, int]]) -> Entry | None:
    kinds = {entry[0] for entry, _ in pairs}
    rests = [(e[2], n) for e, n in pairs if e[2] is not None]
    if TIMES not in kinds:
        coefficient = sum(entry[1] * copies for entry, copies in pairs)
        if not rests and node.constant == 0.0:
            return (ADDED, coefficient, None)
        return (ADDED, coefficient, sum_node(rests, node.constant))
    # v A + v B = v (A + B); a bare c v counts as v c.
    if NOT_AT_ALL in kinds or node.constant != 0.0:
        return None
    inner: list[tuple[Node, int]] = []
    for (kind, coefficient, rest), copies in pairs:
        if kind == ADDED:
            if rest is not None:
                return None
            inner.append((Leaf(Constant(coefficient)), copies))
        elif rest is not None:
            inner.append((rest, copies))
    return (TIMES, 1.0, sum_node(inner))


def _extreme_entry(node: Max | Min, pairs: list[tuple[Entry, int]]) -> Entry | None:
    kinds = {entry[0] for entry, _ in pairs}
    if len(kinds) != 1:
        return None
    build = max_node if isinstance(node, Max) else min_node
    zero = Leaf(Constant(0.0))
    rests = [(entry[2] if entry[2] is not None else zero, n) for entry, n in pairs]
    if kinds == {TIMES}:
        return (TIMES, 1.0, build(rests))
    coefficients = {entry[1] for entry, _ in pairs}
    if len(coefficients) == 1:
        return (ADDED, coefficients.pop(), build(rests))
    return None


def _product_entry(node: Product, pairs: list[tuple[Entry, int]]) -> Entry | None:
    (factor, _), (part, _) = pairs
    if factor[0] == ADDED and part[0] == NOT_AT_ALL:
        return (TIMES, 1.0, node.part)
    # w * (v * R) = v * (w * R) for another factor w.
    if factor[0] == NOT_AT_ALL and part[0] == TIMES and part[2] is not None:
        return (TIMES, 1.0, Product(node.factor, part[2]))
    return None


def factored(root: Node) -> tuple[Node, list[str]]:
    """Rewrite an expression so that shared leaves stand once, as far as possible.

    Returns
    -------
    node : Node
        Equal in law to `root`.
    left : list of str
        Shared leaves that still stand more than once.
    """
    shared = variables(root)
    left: list[str] = []
    for name in repeated(root):
        node = _factor_one(root, shared[name])
        if node is None:
            left.append(name)
        else:
            root = node
    # Factoring one can free another.
    if left and (still := repeated(root)) != left:
        root, left = factored(root) if len(still) < len(left) else (root, still)
    return root, left


def _standing_once(shared: Shared, entry: Entry) -> Node:
    kind, coefficient, rest = entry
    if kind == TIMES:
        assert rest is not None
        return scale_node(Product(shared, rest), coefficient)
    term = scale_node(shared, coefficient)
    return term if rest is None else sum_node([(term, 1), (rest, 1)])


def _grouped(
    node: Sum, shared: Shared, entries: Mapping[int, Entry | None]
) -> Node | None:
    """V A + v B + C = v (A + B) + C: only some parts have the factor."""
    inner: list[tuple[Node, int]] = []
    free: list[tuple[Node, int]] = []
    for part, copies in node.parts:
        entry = entries[id(part)]
        if entry is None:
            return None
        kind, coefficient, rest = entry
        if kind == NOT_AT_ALL:
            free.append((part, copies))
        elif kind == TIMES and rest is not None:
            inner.append((rest, copies))
        elif rest is None:
            inner.append((Leaf(Constant(coefficient)), copies))
        else:
            return None
    product = Product(shared, sum_node(inner))
    return sum_node([(product, 1), *free], node.constant)


def _factor_one(root: Node, shared: Shared) -> Node | None:
    """Factor at the lowest node that holds every place of the shared leaf."""
    name = shared.name
    entries: dict[int, Entry | None] = {}
    holds: dict[int, int] = {}
    for node in postorder(root):
        if isinstance(node, Leaf):
            entries[id(node)] = (NOT_AT_ALL, 0.0, node)
            holds[id(node)] = 0
            continue
        entries[id(node)] = _entry(node, name, entries)
        holds[id(node)] = int(isinstance(node, Shared) and node.name == name) + sum(
            holds[id(part)] for part, _ in children(node)
        )
    lowest = root
    while True:
        within = [
            (part, copies)
            for part, copies in children(lowest)
            if holds[id(part)] == holds[id(lowest)] > 0
        ]
        if len(within) != 1 or within[0][1] != 1 or isinstance(within[0][0], Shared):
            break
        lowest = within[0][0]
    entry = entries[id(lowest)]
    if entry is None and isinstance(lowest, Sum):
        replacement = _grouped(lowest, shared, entries)
    elif entry is None or entry[0] == NOT_AT_ALL:
        return None
    else:
        replacement = _standing_once(shared, entry)
    if replacement is None:
        return None
    if lowest is root:
        return replacement
    done: dict[int, Node] = {id(lowest): replacement}
    for node in postorder(root):
        if id(node) in done:
            continue
        parts = children(node)
        if parts and any(done.get(id(p), p) is not p for p, _ in parts):
            done[id(node)] = with_parts(
                node, {id(p): done.get(id(p), p) for p, _ in parts}
            )
        else:
            done[id(node)] = node
    return done[id(root)]
