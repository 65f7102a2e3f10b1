"""The small language of plan expressions: names, ``>>``, ``&``, ``|``, ``**``.

A text such as ``"rms >> linear1 >> ((rope >> attention) | allreduce)"`` is read
by a recursive-descent parser into a tree and then built from named elements with
their own operators.  Nothing is ever evaluated as Python, and the size of what an
expression asks for is known, and capped, before any of it is built.

Grammar, loosest first, which is Python's precedence (calculus, section 2)::

    parallel   = across { "|" across }        same-device parallel
    across     = sequence { "&" sequence }    cross-device parallel
    sequence   = power { ">>" power }         one after the other
    power      = atom [ "**" INTEGER ]        so many independent runs in a row
    atom       = NAME | "(" parallel ")"
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from probcalc.errors import InputError, PlanError

if TYPE_CHECKING:
    from probcalc.term import Term

__all__ = [
    "NAME",
    "Size",
    "Tree",
    "build",
    "names_in",
    "nearest",
    "parse",
    "parse_all",
    "parse_tree",
    "size",
]

MAX_LENGTH = 100_000
"""Characters in one expression."""
MAX_DEPTH = 64
"""Parentheses inside each other."""
MAX_LEAVES = 20_000
"""Elements in an expression, each counted as often as it is written."""
MAX_NESTED = 200
"""Operators inside each other, terms named by terms included."""
MAX_RUNS = 1_000_000_000
"""Runs of elements in an expression, repeats multiplied out."""

NAME = re.compile(r"[^\W\d][\w.:-]*")
"""What names an element: a letter or underscore, then letters, digits, ``_.:-``."""

_TOKEN = re.compile(rf"\s*(?:({NAME.pattern})|([0-9]+)|(>>|\*\*|[&|()])|(\S))")
_OPERATORS = {">>": operator.rshift, "&": operator.and_, "|": operator.or_}
_LOOSEST_FIRST = ("|", "&", ">>")


@dataclass(frozen=True, slots=True)
class Tree:
    """One node of a parsed expression.

    Attributes
    ----------
    kind : str
        ``"name"``, ``"**"``, ``">>"``, ``"&"`` or ``"|"``.
    position : int
        Where it stands in the text, counted from 1.
    name : str
        The element, for a name.
    count : int
        The number of runs, for ``**``.
    parts : tuple of Tree
        The operands; two or more for the binary operators, which associate.
    """

    kind: str
    position: int
    name: str = ""
    count: int = 1
    parts: tuple[Tree, ...] = ()


class _Parser:
    """Tokens of one text and the place reached in them."""

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self.tokens = self._tokens(text)
        self.next = 0

    def fail(self, position: int, message: str) -> PlanError:
        return PlanError(f"{self.where}, character {position}: {message}")

    def _tokens(self, text: str) -> list[tuple[str, str, int]]:
        tokens: list[tuple[str, str, int]] = []
        end = len(text.rstrip())
        at = 0
        while at < end:
            found = _TOKEN.match(text, at)
            assert found is not None  # the last branch takes any character
            kinds = ("name", "integer", "operator", "other")
            kind = kinds[(found.lastindex or 4) - 1]
            value = found[found.lastindex or 4]
            position = found.end() - len(value) + 1
            if kind == "other":
                raise self.fail(
                    position,
                    f"unexpected {value!r}; expected a name, '>>', '&', '|', '**' or"
                    " parentheses",
                )
            tokens.append((kind, value, position))
            at = found.end()
        tokens.append(("end", "", end + 1))
        return tokens

    def take(self, *values: str) -> tuple[str, str, int] | None:
        """Take the next token if it is an operator among `values`."""
        kind, value, _ = token = self.tokens[self.next]
        if kind == "operator" and value in values:
            self.next += 1
            return token
        return None

    def unexpected(self, expected: str) -> PlanError:
        kind, value, position = self.tokens[self.next]
        found = "the expression ends" if kind == "end" else f"unexpected {value[:40]!r}"
        return self.fail(position, f"{found}; expected {expected}")

    def binary(self, level: int, depth: int) -> Tree:
        if level == len(_LOOSEST_FIRST):
            return self.power(depth)
        symbol = _LOOSEST_FIRST[level]
        parts = [self.binary(level + 1, depth)]
        position = parts[0].position
        while token := self.take(symbol):
            position = token[2] if len(parts) == 1 else position
            parts.append(self.binary(level + 1, depth))
        if len(parts) == 1:
            return parts[0]
        return Tree(symbol, position, parts=tuple(parts))

    def power(self, depth: int) -> Tree:
        base = self.atom(depth)
        token = self.take("**")
        if token is None:
            return base
        kind, digits, position = self.tokens[self.next]
        if kind != "integer":
            raise self.unexpected("a whole number of runs after '**'")
        if len(digits) > 10 or int(digits) > MAX_RUNS:
            raise self.fail(
                position, f"{digits[:12]} runs asked for; at most {MAX_RUNS:,} allowed"
            )
        if int(digits) < 1:
            raise self.fail(position, f"{digits} runs asked for; expected at least 1")
        self.next += 1
        if self.take("**"):
            self.next -= 1
            raise self.unexpected("parentheses around the first '**' of two")
        return Tree("**", token[2], count=int(digits), parts=(base,))

    def atom(self, depth: int) -> Tree:
        kind, value, position = self.tokens[self.next]
        if kind == "name":
            self.next += 1
            return Tree("name", position, name=value)
        if self.take("("):
            if depth >= MAX_DEPTH:
                raise self.fail(position, f"more than {MAX_DEPTH} nested parentheses")
            inner = self.binary(0, depth + 1)
            if not self.take(")"):
                raise self.unexpected(f"')' to match '(' at character {position}")
            return inner
        raise self.unexpected("a name or '('")


def parse_tree(text: str, *, where: str = "expression") -> Tree:
    """Parse an expression without looking up its names.

    Raises
    ------
    PlanError
        Not a text, empty, too long or deep, or a syntax error, with its position
        (counted from 1) and what was expected there.
    """
    if not isinstance(text, str):
        raise PlanError(f"{where}: {type(text).__name__} found; expected a text")
    if len(text) > MAX_LENGTH:
        raise PlanError(
            f"{where}: {len(text):,} characters; at most {MAX_LENGTH:,} allowed"
        )
    parser = _Parser(text, where)
    tree = parser.binary(0, 0)
    if parser.tokens[parser.next][0] != "end":
        raise parser.unexpected("'>>', '&', '|', '**' or the end")
    return tree


def names_in(tree: Tree) -> dict[str, int]:
    """Names of a tree, each with the position where it stands first."""
    found: dict[str, int] = {}
    pending = [tree]
    while pending:
        node = pending.pop()
        if node.kind == "name":
            found.setdefault(node.name, node.position)
        pending.extend(reversed(node.parts))
    return found


class Size(NamedTuple):
    """How much an expression asks for."""

    leaves: int = 1
    """Elements, each as often as it is written."""
    runs: int = 1
    """Runs of elements, repeats multiplied out."""
    depth: int = 1
    """Operators inside each other."""


def size(tree: Tree, sizes: Mapping[str, Size], *, where: str = "expression") -> Size:
    """Size of a tree, refused above the caps.

    `sizes` has those of the names that stand for expressions themselves; any other
    name is one element.

    Raises
    ------
    PlanError
        More than `MAX_LEAVES` elements, `MAX_RUNS` runs or `MAX_NESTED` operators
        inside each other.
    """
    if tree.kind == "name":
        return sizes.get(tree.name, Size())
    below = [size(part, sizes, where=where) for part in tree.parts]
    found = Size(
        leaves=sum(part.leaves for part in below),
        runs=sum(part.runs for part in below) * tree.count,
        depth=max(part.depth for part in below) + 1,
    )
    for value, most, what in (
        (found.leaves, MAX_LEAVES, "elements"),
        (found.runs, MAX_RUNS, "runs"),
        (found.depth, MAX_NESTED, "operators inside each other"),
    ):
        if value > most:
            raise PlanError(f"{where}: more than {most:,} {what} in one expression")
    return found


def build(tree: Tree, names: Mapping[str, Any], *, where: str = "expression") -> Any:
    """Build a tree from named elements or terms with their own operators.

    Raises
    ------
    PlanError
        A name that is not in `names`, with its position and the nearest known.
    CompositionError
        An operator that the elements do not allow, with its position.
    """
    if tree.kind == "name":
        if tree.name not in names:
            raise _unknown(tree.name, tree.position, names, where)
        return names[tree.name]
    parts = [build(part, names, where=where) for part in tree.parts]
    try:
        if tree.kind == "**":
            return parts[0] ** tree.count
        result = parts[0]
        for part in parts[1:]:
            result = _OPERATORS[tree.kind](result, part)
        return result
    except InputError as error:
        message = f"{where}, {tree.kind!r} at character {tree.position}: {error}"
        raise type(error)(message) from error


def _unknown(
    name: str, position: int, known: Mapping[str, Any], where: str
) -> PlanError:
    return PlanError(
        f"{where}, character {position}: unknown element"
        f" {name[:60]!r}{nearest(name, known)}"
    )


def nearest(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """End of a message about an unknown name: the nearest known, or all of them."""
    close = difflib.get_close_matches(name[:100], known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    some = sorted(filter(None, known))[:12]
    more = ", ..." if len(known) > len(some) else ""
    return f"; known: {', '.join(some) or 'none'}{more}"


def parse(
    text: str, names: Mapping[str, Any], *, where: str = "expression"
) -> Term | Any:
    """Read an expression over named elements; every name is an independent run.

    Parameters
    ----------
    text : str
        Such as ``"rms >> (compute | allreduce) ** 28"``.
    names : mapping of str to Element or Term
        What the names stand for.  A name written twice means two runs.
    where : str
        What the text belongs to, for messages.

    Raises
    ------
    PlanError
        Syntax error or unknown name, with its position counted from 1; an
        expression too long, too deep or too large.
    CompositionError
        An operator that the elements do not allow, with its position.

    Examples
    --------
    Any objects with the four operators will do, whole numbers too:

    >>> parse("a >> b ** 2 | c", {"a": 1024, "b": 2, "c": 1})
    65
    """
    return parse_all({"": text}, names, places={"": where})[""]


def parse_all(
    texts: Mapping[str, str], names: Mapping[str, Any], *, places: Mapping[str, str]
) -> dict[str, Any]:
    """Read expressions that may name each other, such as the terms of a plan.

    Parameters
    ----------
    texts : mapping of str to str
        Expressions by name.
    names : mapping of str to Element or Term
        What the other names stand for.
    places : mapping of str to str
        What to call each expression in messages.

    Raises
    ------
    PlanError
        As `parse`; and an expression that refers to itself, through others or not.
    CompositionError
        An operator that the elements do not allow, with its position.
    """
    trees = {key: parse_tree(text, where=places[key]) for key, text in texts.items()}
    known = {**names, **texts}
    for key, tree in trees.items():
        for name, position in names_in(tree).items():
            if name not in known:
                raise _unknown(name, position, known, places[key])
    built = dict(names)
    sizes: dict[str, Size] = {}
    for key in _ordered(trees, places):
        sizes[key] = size(trees[key], sizes, where=places[key])
        built[key] = build(trees[key], built, where=places[key])
    return built


def _ordered(trees: Mapping[str, Tree], places: Mapping[str, str]) -> list[str]:
    """Order expressions so that each comes after those it names; refuse cycles.

    Depth first with its own stack: the chain may be longer than Python's.
    """
    below = {
        key: [name for name in names_in(tree) if name in trees]
        for key, tree in trees.items()
    }
    order: list[str] = []
    done: set[str] = set()
    for root in trees:
        path = {} if root in done else {root: 0}  # keeps the order of entry
        while path:
            key, at = path.popitem()
            if at == len(below[key]):
                done.add(key)
                order.append(key)
                continue
            path[key] = at + 1
            name = below[key][at]
            if name in path:
                on = list(path)
                cycle = [*on[on.index(name) :][:20], name]
                raise PlanError(
                    f"{places[name]}: refers to itself: {' -> '.join(cycle)}"
                )
            if name not in done:
                path[name] = 0
    return order
