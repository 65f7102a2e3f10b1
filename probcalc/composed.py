"""Laws composed of independent laws: sums, maxima, minima, mixtures, products.

Functions here build expressions (`probcalc.nodes`); the question asked of the result
decides how they are worked out (`probcalc.planner`). There is no ``+`` on laws:
``X + X`` would not say whether it means one draw or two. `sum_of` and the others draw
every operand afresh; a `Variable` is one draw wherever it appears.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from probcalc.distribution import (
    Bounds,
    Constant,
    Distribution,
    Empirical,
    Frozen,
    Probability,
    Quantile,
    as_law,
    law_key,
)
from probcalc.errors import InputError
from probcalc.levelwise import each
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
    constant_of,
)

if TYPE_CHECKING:
    from probcalc.lattice import Lattice

__all__ = [
    "MEMORY",
    "Composed",
    "Variable",
    "expected_shortfall",
    "maximum",
    "minimum",
    "mixture",
    "probability_above",
    "product",
    "quantile",
    "repeat",
    "scale",
    "shift",
    "sum_of",
]

#: Default limit of the memory that working out one answer may take, in bytes.
MEMORY = 2**30
#: More copies than this are refused: the answer would be a normal law anyway.
MAX_COPIES = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """A law made of others. Every answer states its error.

    Made by `sum_of` and its neighbours, not by hand.
    """

    node: Node

    def __repr__(self) -> str:
        return f"<{type(self.node).__name__} law: mean {self.mean():.6g}>"

    def quantile(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> Quantile:
        """Quantile with a bracket that contains it.

        Parameters
        ----------
        p, sf : float
            Level as P(X <= x) or as P(X > x); exactly one. ``sf=1e-9`` is exact where
            ``p=1 - 1e-9`` is not.
        rtol : float, optional
            Width of the bracket over the size of the value. A given tolerance is a
            demand; the default 1e-4 is an aim, and a wider bracket is returned with
            what limited it.
        memory : int
            Bytes that may be used.

        Raises
        ------
        InputError
            Level outside (0, 1), or not exactly one.
        ToleranceError
            `rtol` cannot be reached within `memory`, or no finite bracket can.
        """
        from probcalc import planner

        return planner.quantile(self.node, p=p, sf=sf, rtol=rtol, memory=memory)

    def quantiles(
        self,
        p: Iterable[float] | None = None,
        *,
        sf: Iterable[float] | None = None,
        rtol: float | None = None,
        memory: int = MEMORY,
    ) -> tuple[Quantile, ...]:
        """Several quantiles at once: as `quantile` each, work shared where it can be.

        Parameters
        ----------
        p, sf : iterable of float
            Levels; exactly one of the two.
        """
        from probcalc import planner

        return planner.quantiles(self.node, p=p, sf=sf, rtol=rtol, memory=memory)

    def probability_above(
        self, limit: float, *, rtol: float = 1e-3, memory: int = MEMORY
    ) -> Probability:
        """P(X > limit) with certified bounds, aimed at `rtol` of the probability."""
        from probcalc import questions

        return questions.probability_above(self.node, limit, rtol=rtol, memory=memory)

    def expected_shortfall(
        self,
        p: float | None = None,
        *,
        sf: float | None = None,
        memory: int = MEMORY,
    ) -> Bounds:
        """Mean of the worst ``sf`` share of outcomes, bracketed.

        ``min over t of t + E(X - t)+ / sf`` (Rockafellar and Uryasev).
        """
        from probcalc import questions

        return questions.expected_shortfall(self.node, p=p, sf=sf, memory=memory)

    def mean(self) -> float:
        """E X (its error: `mean_bounds`)."""
        from probcalc import questions

        return questions.mean_bounds(self.node).value

    def mean_bounds(self) -> Bounds:
        """E X with certified bounds."""
        from probcalc import questions

        return questions.mean_bounds(self.node)

    def variance(self) -> float:
        """Var X; infinite where a part's is."""
        from probcalc import questions

        return questions.variance(self.node)

    def support(self) -> tuple[float, float]:
        """Return the smallest and the largest possible value."""
        from probcalc import extent

        return extent.support(self.node)

    def cdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X <= x): midpoint of certified bounds."""
        from probcalc import questions

        return questions.cdf(self.node, x, above=False)

    def ccdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X > x), computed as such: midpoint of certified bounds."""
        from probcalc import questions

        return questions.cdf(self.node, x, above=True)

    def pdf(self, x: npt.ArrayLike, /) -> Any:
        """Density, where the parts have transforms in closed form.

        Raises
        ------
        InputError
            Where no density can be given.
        """
        from probcalc import questions

        return questions.pdf(self.node, x)

    def icdf(self, p: npt.ArrayLike, /) -> Any:
        """Quantile values at P(X <= x) = p (their errors: `quantile`)."""
        return each(p, lambda level: self.quantile(level).value)

    def iccdf(self, p: npt.ArrayLike, /) -> Any:
        """Quantile values at P(X > x) = p (their errors: `quantile`)."""
        return each(p, lambda level: self.quantile(sf=level).value)

    def isf(self, p: npt.ArrayLike, /) -> Any:
        """`iccdf` under the name of SciPy's frozen variables."""
        return self.iccdf(p)

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Draw independent values; `rng` is a generator or a seed."""
        from probcalc import sampling

        return sampling.sample(self.node, shape, rng)

    def lattice(self, step: float | None = None, *, memory: int = MEMORY) -> Lattice:
        """The law on a lattice: exact where all parts lie on one, else rounded up.

        Parameters
        ----------
        step : float, optional
            Distance of points; found from the parts where they have one.
        """
        from probcalc import questions

        return questions.lattice(self.node, step, memory=memory)


@dataclass(frozen=True, slots=True)
class Variable:
    """One draw of a law, the same wherever the name appears in an expression.

    A law passed to `sum_of` and its neighbours is drawn afresh each time; a variable
    is not. Two variables of one name and one law are the same variable.

    Examples
    --------
    >>> from probcalc.distribution import Empirical
    >>> die = Empirical([1, 2, 3])
    >>> x = Variable("x", die)
    >>> sum_of(x, x).cdf(3.0).item()  # twice one draw: 2, 4 or 6
    0.3333333333333333
    """

    name: str
    law: Distribution

    if TYPE_CHECKING:

        def __init__(self, name: str, law: Any) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"variable: expected a name, got {self.name!r}")
        object.__setattr__(
            self, "law", as_law(self.law, name=f"variable {self.name!r}")
        )


Operand = Any


def _node(x: Operand, where: str) -> Node:
    if isinstance(x, Composed):
        return x.node
    if isinstance(x, Variable):
        return Shared(x.name, x.law)
    law = as_law(x, name=where)
    if isinstance(law, Empirical) and law.atoms.size == 1:
        return Leaf(Constant(float(law.atoms[0])))
    return Leaf(law)


def _nodes(laws: Sequence[Operand], where: str) -> list[Node]:
    if not laws:
        raise InputError(f"{where}: no operands, expected at least one")
    return [_node(x, f"{where}, operand {i}") for i, x in enumerate(laws)]


def _copies(n: Any, where: str) -> int:
    if isinstance(n, bool) or not isinstance(n, numbers.Integral) or n < 1:
        raise InputError(f"{where}: n must be an integer >= 1, got {n!r}")
    if int(n) > MAX_COPIES:
        raise InputError(f"{where}: n must be at most {MAX_COPIES}, got {n}")
    return int(n)


def _merged(parts: Iterable[tuple[Node, int]]) -> tuple[tuple[Node, int], ...]:
    """Equal leaves, and the same node object, once, with their numbers added."""
    merged: dict[Hashable, tuple[Node, int]] = {}
    for part, count in parts:
        key: Hashable = part.key if isinstance(part, Leaf) else ("node", id(part))
        if isinstance(part, Shared):
            key = ("shared", part.name)
        known, number = merged.get(key, (part, 0))
        if isinstance(known, Shared) and isinstance(part, Shared):
            same_variable(known, part)
        merged[key] = (known, number + count)
    return tuple(merged.values())


def same_variable(one: Shared, other: Shared) -> None:
    """Refuse one name for two laws.

    Raises
    ------
    InputError
    """
    if one is not other and law_key(one.law) != law_key(other.law):
        raise InputError(
            f"variable {one.name!r} stands for two different laws, "
            "expected one law for one name"
        )


def sum_node(parts: Iterable[tuple[Node, int]], constant: float = 0.0) -> Node:
    """Sum of fresh copies of nodes and a constant, flattened."""
    flat: list[tuple[Node, int]] = []
    constants = [constant]
    for part, count in parts:
        value = constant_of(part)
        if value is not None:
            constants.append(count * value)
        elif isinstance(part, Sum):
            flat.extend((inner, n * count) for inner, n in part.parts)
            constants.append(count * part.constant)
        else:
            flat.append((part, count))
    total = math.fsum(constants)
    # n times one shared draw is that draw scaled, not n draws.
    merged = tuple(
        (Scale(part, float(n)), 1) if isinstance(part, Shared) and n > 1 else (part, n)
        for part, n in _merged(flat)
    )
    if not merged:
        return Leaf(Constant(total))
    if len(merged) == 1 and merged[0][1] == 1 and total == 0.0:
        return merged[0][0]
    return Sum(merged, total)


def _extreme(kind: type[Max] | type[Min], parts: Iterable[tuple[Node, int]]) -> Node:
    flat: list[tuple[Node, int]] = []
    for part, count in parts:
        if isinstance(part, kind):
            flat.extend((inner, n * count) for inner, n in part.parts)
        else:
            flat.append((part, count))
    values = [constant_of(part) for part, _ in flat]
    known = [v for v in values if v is not None]
    rest = [pair for pair, v in zip(flat, values, strict=True) if v is None]
    if known:
        best = max(known) if kind is Max else min(known)
        rest.append((Leaf(Constant(best)), 1))
    merged = tuple(
        # The same draw twice is one draw: max(v, v) = v.
        (part, 1 if isinstance(part, Shared | Leaf) and _fixed(part) else count)
        for part, count in _merged(rest)
    )
    if len(merged) == 1 and merged[0][1] == 1:
        return merged[0][0]
    return kind(merged)


def _fixed(part: Shared | Leaf) -> bool:
    return isinstance(part, Shared) or isinstance(part.law, Constant)


def max_node(parts: Iterable[tuple[Node, int]]) -> Node:
    """Largest of fresh copies of nodes, flattened."""
    return _extreme(Max, parts)


def min_node(parts: Iterable[tuple[Node, int]]) -> Node:
    """Smallest of fresh copies of nodes, flattened."""
    return _extreme(Min, parts)


def scale_node(part: Node, factor: float) -> Node:
    """A node times a number >= 0, pushed through sums."""
    if factor == 1.0:
        return part
    if factor == 0.0:
        return Leaf(Constant(0.0))
    value = constant_of(part)
    if value is not None:
        return Leaf(Constant(factor * value))
    if isinstance(part, Scale):
        return scale_node(part.part, part.factor * factor)
    if isinstance(part, Sum) and part.constant != 0.0:
        inner = part.parts[0][0] if _single(part) else Sum(part.parts)
        return Sum(((Scale(inner, factor), 1),), factor * part.constant)
    return Scale(part, factor)


def _single(part: Sum) -> bool:
    return len(part.parts) == 1 and part.parts[0][1] == 1


def sum_of(*laws: Operand) -> Composed:
    """Law of the sum of independent quantities.

    Every operand is a draw of its own: ``sum_of(X, X)`` is two throws, not one doubled
    (that is ``scale(X, 2)``).

    Parameters
    ----------
    *laws : law, SciPy distribution, Variable or float

    Raises
    ------
    InputError
        No operand, or one that is no law; names which.

    Examples
    --------
    >>> from scipy import stats
    >>> total = sum_of(stats.norm(3, 3), stats.norm(4, 4))
    >>> q = total.quantile(0.5)
    >>> q.lower <= 7.0 <= q.upper
    True
    """
    return Composed(sum_node((part, 1) for part in _nodes(laws, "sum_of")))


def repeat(law: Operand, n: int) -> Composed:
    """Law of the sum of n independent runs of one law (n-fold ⊗).

    Examples
    --------
    >>> repeat(2.0, 3).quantile(0.5).value
    6.0
    """
    return Composed(sum_node([(_node(law, "repeat"), _copies(n, "repeat"))]))


def maximum(*laws: Operand) -> Composed:
    """Law of the largest of independent quantities (the time of ⊕, section 3.3)."""
    return Composed(max_node((part, 1) for part in _nodes(laws, "maximum")))


def minimum(*laws: Operand) -> Composed:
    """Law of the smallest of independent quantities."""
    return Composed(min_node((part, 1) for part in _nodes(laws, "minimum")))


def mixture(weights: Sequence[float], laws: Sequence[Operand]) -> Composed:
    """Law of one of several quantities, drawn with the weights.

    Parameters
    ----------
    weights : sequence of float
        Non-negative, summing to one within 1e-9.
    laws : sequence of laws, as many
    """
    parts = _nodes(list(laws), "mixture")
    values: list[float] = []
    for index, weight in enumerate(weights):
        if not isinstance(weight, numbers.Real) or not (
            math.isfinite(weight) and weight >= 0.0
        ):
            raise InputError(
                f"mixture: weight {index} is {weight!r}, expected a number >= 0"
            )
        values.append(float(weight))
    if len(values) != len(parts):
        raise InputError(
            f"mixture: {len(values)} weights for {len(parts)} laws, expected as many"
        )
    total = math.fsum(values)
    if abs(total - 1.0) > 1e-9:
        raise InputError(f"mixture: weights sum to {total!r}, expected one")
    kept = [(w / total, part) for w, part in zip(values, parts, strict=True) if w > 0.0]
    if len(kept) == 1:
        return Composed(kept[0][1])
    return Composed(Mix(tuple(w for w, _ in kept), tuple(part for _, part in kept)))


def scale(law: Operand, factor: float) -> Composed:
    """Law of a quantity times a number >= 0 (a change of unit, a power times a time).

    Raises
    ------
    InputError
        Factor negative or not finite.
    """
    value = _number(factor, "scale: factor")
    if value < 0.0:
        raise InputError(f"scale: factor must be >= 0, got {factor!r}")
    return Composed(scale_node(_node(law, "scale"), value))


def shift(law: Operand, offset: float) -> Composed:
    """Law of a quantity plus a number."""
    value = _number(offset, "shift: offset")
    return Composed(sum_node([(_node(law, "shift"), 1)], value))


def product(factor: Operand, law: Operand) -> Composed:
    """Law of a positive random factor times an independent quantity.

    A `Variable` as factor is one draw wherever it appears: an instrument's gain, say.

    Raises
    ------
    InputError
        A factor that can be negative, or that is itself composed.
    """
    node = _node(factor, "product, factor")
    value = constant_of(node)
    if value is not None:
        return scale(law, value)
    if not isinstance(node, Leaf | Shared):
        raise InputError(
            "product: the factor must be a law or a Variable, not a composed law"
        )
    low = float(node.law.support()[0])
    if low < 0.0:
        raise InputError(
            f"product: the factor must not be negative, its support starts at {low!r}"
        )
    return Composed(Product(node, _node(law, "product")))


def _number(x: Any, where: str) -> float:
    if isinstance(x, bool) or not isinstance(x, numbers.Real) or not math.isfinite(x):
        raise InputError(f"{where} must be a finite number, got {x!r}")
    return float(x)


def _composed(law: Operand, where: str) -> Composed:
    return law if isinstance(law, Composed) else Composed(_node(law, where))


def quantile(
    law: Operand,
    p: float | None = None,
    *,
    sf: float | None = None,
    rtol: float | None = None,
    memory: int = MEMORY,
) -> Quantile:
    """Quantile, with its bracket, of any law; see `Composed.quantile`.

    Examples
    --------
    >>> quantile([3.0][0], 0.9).value
    3.0
    """
    if not isinstance(law, Composed | Variable | Constant | Frozen) and hasattr(
        law, "quantile"
    ):
        return law.quantile(p, sf=sf, rtol=rtol, memory=memory)
    return _composed(law, "quantile").quantile(p, sf=sf, rtol=rtol, memory=memory)


def probability_above(
    law: Operand, limit: float, *, rtol: float = 1e-3, memory: int = MEMORY
) -> Probability:
    """P(X > limit) with its error, of any law."""
    return _composed(law, "probability_above").probability_above(
        limit, rtol=rtol, memory=memory
    )


def expected_shortfall(
    law: Operand,
    p: float | None = None,
    *,
    sf: float | None = None,
    memory: int = MEMORY,
) -> Bounds:
    """Mean of the worst outcomes, bracketed, of any law."""
    return _composed(law, "expected_shortfall").expected_shortfall(
        p, sf=sf, memory=memory
    )
