"""Terms: expressions of elements under the operators of section 3.3.

A term only records what was composed; `probcalc.prediction.predict` works out what it
costs. Composites are terms as elements are (closure, section 3.1), and keep their
parts. Device rules are checked as a term is built, from summaries that every term
carries, so that the cost of one more operand does not grow with the term.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self, TypeVar

from probcalc.errors import CompositionError
from probcalc.runs import whole

__all__ = [
    "MultiParallel",
    "Parallel",
    "Point",
    "Repeat",
    "Sequential",
    "Term",
    "executions",
    "postorder",
]

NAME_LENGTH = 72


class Point(NamedTuple):
    """A stated operating point of a device, and an element that states it."""

    device: str
    value: Hashable
    element: str


class Term:
    """An element or a composition of elements, each execution independent.

    ``a >> b`` runs b after a (sequential), ``a | b`` runs both at once on the same
    device (parallel), ``a & b`` runs both at once on different devices
    (multi-device parallel), ``a ** n`` is ``a.repeat(n)``: n independent executions
    one after the other. Python's precedence holds: ``**``, ``>>``, ``&``, ``|``.

    Attributes
    ----------
    devices : tuple of str
        All devices that the term holds, each for the whole makespan.
    points : tuple of Point
        The operating points that its elements state.
    parts : tuple of Term
        What it is composed of; empty for an element.
    """

    __slots__ = ()

    devices: tuple[str, ...]
    points: tuple[Point, ...]
    parts: tuple[Term, ...]

    @property
    def label(self) -> str:
        """Name of an element, or the expression, shortened."""
        return expression_of(self, NAME_LENGTH)

    def __rshift__(self, other: Term) -> Sequential:
        """Run `other` after this one (sequential, section 3.3.1)."""
        return Sequential.join(self, _operand(">>", self, other))

    def __or__(self, other: Term) -> Parallel:
        """Run both at once on the same device (section 3.3.2)."""
        return Parallel.join(self, _operand("|", self, other))

    def __and__(self, other: Term) -> MultiParallel:
        """Run both at once on different devices (section 3.3.3)."""
        return MultiParallel.join(self, _operand("&", self, other))

    def __pow__(self, n: int) -> Term:
        """Return `n` independent executions, one after the other."""
        return self.repeat(n)

    def __add__(self, other: object) -> Term:
        """Refuse: one after the other is ``>>``, at once ``|`` or ``&``."""
        raise CompositionError(
            f"{self.label} + ...: elements are composed by >> (one after the other), | "
            "(at once on one device) or & (at once on different devices)"
        )

    def __mul__(self, other: object) -> Term:
        """Refuse: n executions are ``** n``."""
        raise CompositionError(
            f"{self.label} * ...: n executions one after the other are ** n or "
            ".repeat(n)"
        )

    __radd__ = __add__
    __rmul__ = __mul__

    def repeat(self, n: int) -> Term:
        """Return `n` independent executions, one after the other.

        Raises
        ------
        InputError
            Unless `n` is a whole number of at least 1.
        """
        return self if n == 1 and not isinstance(n, bool) else Repeat(self, n)

    def __eq__(self, other: object) -> bool:
        """Whether both compose the same elements (the same objects) alike."""
        return _same(self, other) if isinstance(other, Term) else NotImplemented

    def __hash__(self) -> int:
        """Hash what needs no walk through the parts, whose nesting may be deep."""
        return hash((type(self).__name__, len(self.parts), self.devices))

    def __repr__(self) -> str:
        """Class and expression, shortened."""
        return f"<{type(self).__name__}: {self.label}>"

    def __str__(self) -> str:
        """Return the expression, shortened."""
        return self.label


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class _Composite(Term):
    """A term with several operands under one associative operator."""

    parts: tuple[Term, ...]
    devices: tuple[str, ...]
    points: tuple[Point, ...]

    symbol: ClassVar[str] = ""

    def __init__(self, parts: Iterable[Term]) -> None:
        operands = tuple(_operand(self.symbol, None, part) for part in parts)
        if not operands:
            raise CompositionError(
                f"{type(self).__name__}: no parts, expected at least one"
            )
        flat: list[Term] = []
        devices = operands[0].devices
        points = operands[0].points
        for part in operands[1:]:
            devices, points = self.combine(
                (operands[0], devices, points), (part, part.devices, part.points)
            )
        for part in operands:
            flat.extend(part.parts if type(part) is type(self) else (part,))
        _fill(self, tuple(flat), devices, points)

    @classmethod
    def join(cls, left: Term, right: Term) -> Self:
        """Compose two terms; operands of the same operator are taken over flat."""
        devices, points = cls.combine(
            (left, left.devices, left.points), (right, right.devices, right.points)
        )
        parts = (
            *(left.parts if type(left) is cls else (left,)),
            *(right.parts if type(right) is cls else (right,)),
        )
        node = object.__new__(cls)
        _fill(node, parts, devices, points)
        return node

    @staticmethod
    def combine(left: _Summary, right: _Summary) -> tuple[_Devices, _Points]:
        """Check the device rule and return the devices and points of both."""
        return _union(left[1], right[1]), _union(left[2], right[2])


class Sequential(_Composite):
    """One after the other (section 3.3.1): times and energies add.

    A device that is not used by a part idles at its baseline power meanwhile.
    """

    __slots__ = ()
    symbol: ClassVar[str] = ">>"


class Parallel(_Composite):
    """At once on one device set, at one operating point (section 3.3.2).

    The time is the longest, dynamic energies add, static power is drawn once.

    Raises
    ------
    CompositionError
        Operands on other devices, or stated at different operating points.
    """

    __slots__ = ()
    symbol: ClassVar[str] = "|"

    @staticmethod
    def combine(left: _Summary, right: _Summary) -> tuple[_Devices, _Points]:
        """Check that the devices are the same and no operating points differ."""
        a, b = set(left[1]), set(right[1])
        if a != b:
            advice = (
                f"they share only {_list(a & b)}: use >> if they take turns, or state "
                "both on the same devices"
                if a & b
                else "use & for elements on different devices"
            )
            raise CompositionError(
                f"| composes elements on the same devices, but {_where(left)} and "
                f"{_where(right)}; {advice}"
            )
        points = _union(left[2], right[2])
        stated: dict[str, Point] = {}
        for point in points:
            first = stated.setdefault(point.device, point)
            if first.value != point.value:
                raise CompositionError(
                    f"| composes elements at one operating point of a device, but on "
                    f"{point.device!r} {first.element!r} is at {first.value!r} and "
                    f"{point.element!r} at {point.value!r}; use >> with a transition "
                    "between them, or measure both at one point"
                )
        return left[1], points


class MultiParallel(_Composite):
    """At once on disjoint devices (section 3.3.3).

    The time is the longest, dynamic energies add, every device is held to the end.

    Raises
    ------
    CompositionError
        Operands that share a device.
    """

    __slots__ = ()
    symbol: ClassVar[str] = "&"

    @staticmethod
    def combine(left: _Summary, right: _Summary) -> tuple[_Devices, _Points]:
        """Check that the devices are disjoint."""
        a, b = set(left[1]), set(right[1])
        if common := a & b:
            advice = (
                "use | for elements on one device"
                if a == b
                else "use >> if they take turns, or state them on disjoint devices"
            )
            raise CompositionError(
                f"& composes elements on different devices, but {_where(left)} and "
                f"{_where(right)}: they share {_list(common)}; {advice}"
            )
        return left[1] + right[1], left[2] + right[2]


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Repeat(Term):
    """`count` independent executions of one term, one after the other.

    Nothing is expanded: the n-fold sum is worked out as such. ``(a ** m) ** n`` is
    ``a ** (m * n)``.

    Raises
    ------
    InputError
        Unless `count` is a whole number of at least 1.
    """

    parts: tuple[Term, ...]
    count: int
    devices: tuple[str, ...]
    points: tuple[Point, ...]

    def __init__(self, part: Term, count: int) -> None:
        _operand("**", None, part)
        times = whole(count, f"repeat of {part.label!r}")
        if isinstance(part, Repeat):
            part, times = part.part, part.count * times
        _fill(self, (part,), part.devices, part.points)
        object.__setattr__(self, "count", times)

    @property
    def part(self) -> Term:
        """The term that is executed again and again."""
        return self.parts[0]


_T = TypeVar("_T", bound=Hashable)
_Devices = tuple[str, ...]
_Points = tuple[Point, ...]
_Summary = tuple[Term, _Devices, _Points]


def _fill(node: Term, parts: tuple[Term, ...], devices: _Devices, points: _Points):
    object.__setattr__(node, "parts", parts)
    object.__setattr__(node, "devices", devices)
    object.__setattr__(node, "points", points)


def _operand(symbol: str, left: Term | None, right: object) -> Term:
    if not isinstance(right, Term):
        beside = f" after {left.label!r}" if left is not None else ""
        raise CompositionError(
            f"operand of {symbol}{beside}: expected an element or a term, "
            f"got {type(right).__name__} {right!r:.60}"
        )
    return right


def _union(a: tuple[_T, ...], b: tuple[_T, ...]) -> tuple[_T, ...]:
    if a is b or not b:
        return a
    missing = set(b).difference(a)
    return (*a, *(x for x in dict.fromkeys(b) if x in missing)) if missing else a


def _list(devices: Iterable[str]) -> str:
    return ", ".join(repr(device) for device in sorted(devices))


def _where(side: _Summary) -> str:
    return f"{side[0].label!r} is on {_list(side[1])}"


def expression_of(term: Term, limit: int) -> str:
    """Write a term as an expression of at most `limit` characters."""
    out: list[str] = []
    size = 0
    stack: list[str | Term] = [term]
    while stack:
        item = stack.pop()
        if isinstance(item, Repeat):
            stack.extend((f" ** {item.count}", ")", item.part, "("))
            if not item.part.parts:
                stack[-3:] = [item.part]
            continue
        if isinstance(item, _Composite):
            tokens: list[str | Term] = []
            # No part takes less than two characters with its operator: more than
            # `limit` of them cannot be written.
            for index, part in enumerate(item.parts[: limit + 1]):
                if index:
                    tokens.append(f" {item.symbol} ")
                if isinstance(part, _Composite):
                    tokens.extend(("(", part, ")"))
                else:
                    tokens.append(part)
            stack.extend(reversed(tokens))
            continue
        text = item if isinstance(item, str) else item.label
        out.append(text)
        size += len(text)
        if size > limit:
            return "".join(out)[: limit - 3] + "..."
    return "".join(out)


def _same(a: Term, b: Term) -> bool:
    """Whether two terms compose the same elements in the same way."""
    pending = [(a, b)]
    compared: set[tuple[int, int]] = set()
    while pending:
        x, y = pending.pop()
        if x is y or (id(x), id(y)) in compared:
            continue
        compared.add((id(x), id(y)))
        if (
            type(x) is not type(y)
            or not x.parts
            or len(x.parts) != len(y.parts)
            or getattr(x, "count", 1) != getattr(y, "count", 1)
        ):
            return False
        pending.extend(zip(x.parts, y.parts, strict=True))
    return True


def postorder(term: Term) -> Iterator[Term]:
    """Yield every distinct node once, parts before what they are part of.

    Nodes are told apart by identity; nesting of any depth is walked without
    recursion.
    """
    seen: set[int] = set()
    stack: list[tuple[Term, bool]] = [(term, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((part, False) for part in reversed(node.parts))


def executions(term: Term) -> dict[int, int]:
    """Return how often each node is executed in one execution of the term, by id."""
    order = list(postorder(term))
    counts = dict.fromkeys(map(id, order), 0)
    counts[id(term)] = 1
    for node in reversed(order):
        times = counts[id(node)] * (node.count if isinstance(node, Repeat) else 1)
        for part in node.parts:
            counts[id(part)] += times
    return counts
