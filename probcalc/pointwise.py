"""Survival functions evaluated point by point: closed forms and transform inversion.

Where every sum in an expression has a closed form or a certified inversion, P(X > t)
follows at any t from the leaves: products of distribution functions for a maximum, of
survival functions for a minimum, weighted sums for a mixture. The bounds carry the
rounding of SciPy's functions (taken to be accurate to 1e-13 relative).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probcalc.discretise import FUNCTION_ACCURACY
from probcalc.distribution import Constant, Distribution, FloatArray, Frozen
from probcalc.families import Family, family_of
from probcalc.nodes import Leaf, Max, Min, Mix, Node, Scale, Shared, Sum, postorder

__all__ = ["Pointwise", "closed", "pointwise"]

#: Bounds of P(X > t) and of P(X <= t) at a number t: four numbers.
Answer = tuple[float, float, float, float]
Function = Callable[[float], Answer]


@dataclass(frozen=True, slots=True, eq=False)
class Pointwise:
    """Bounds of P(X > t) and P(X <= t) at any t, and what they rest on."""

    at: Function
    name: str


def closed(root: Node) -> Node:
    """Replace sums with a law in closed form by that law.

    Normals; gammas of one scale (exponentials, chi squares); Lévy laws.
    """
    from probcalc.variables import with_parts

    done: dict[int, Node] = {}
    for node in postorder(root):
        if isinstance(node, Leaf | Shared):
            done[id(node)] = node
            continue
        rebuilt = with_parts(node, done)
        if isinstance(rebuilt, Sum):
            rebuilt = _closed_sum(rebuilt)
        done[id(node)] = rebuilt
    return done[id(root)]


def _closed_sum(node: Sum) -> Node:
    leaves = [(part, n) for part, n in node.parts if isinstance(part, Leaf)]
    if len(leaves) != len(node.parts):
        return node
    families = [(family_of(part.law), n) for part, n in leaves]
    kinds = {f.kind for f, _ in families if f is not None}
    if any(f is None for f, _ in families) or len(kinds) != 1:
        return node
    known = [(f, n) for f, n in families if f is not None]
    if any(f.scale < 0.0 for f, _ in known):
        return node
    from scipy import stats

    location = math.fsum([node.constant, *(n * f.loc for f, n in known)])
    match kinds.pop():
        case "norm":
            spread = math.sqrt(math.fsum(n * f.scale**2 for f, n in known))
            frozen = stats.norm(location, spread)
        case "gamma" if len({f.scale for f, _ in known}) == 1:
            shape = math.fsum(n * f.shapes[0] for f, n in known)
            frozen = stats.gamma(shape, loc=location, scale=known[0][0].scale)
        case "levy":
            root_scale = math.fsum(n * math.sqrt(f.scale) for f, n in known)
            frozen = stats.levy(loc=location, scale=root_scale**2)
        case _:
            return node
    return Leaf(Frozen(frozen))


def pointwise(root: Node) -> Pointwise | None:
    """Survival bounds of an expression point by point, or None where a sum has none."""
    names: set[str] = set()
    functions: dict[int, Function] = {}
    for node in postorder(root):
        function = _function(node, functions, names)
        if function is None:
            return None
        functions[id(node)] = function
    name = " and ".join(sorted(names)) if names else "closed form"
    return Pointwise(functions[id(root)], name)


def _function(
    node: Node, known: dict[int, Function], names: set[str]
) -> Function | None:
    match node:
        case Leaf() | Shared():
            if hasattr(node.law, "lattice_bounds"):
                return None
            return _leaf(node.law)
        case Scale():
            inner, factor = known[id(node.part)], node.factor
            return lambda t: inner(t / factor)
        case Sum() if len(node.parts) == 1 and node.parts[0][1] == 1:
            inner, constant = known[id(node.parts[0][0])], node.constant
            return lambda t: inner(t - constant)
        case Sum():
            return _inverted(node, names) or _beside_atoms(node)
        case Max():
            return _extreme(node.parts, known, _as_is)
        case Min():
            return _extreme(node.parts, known, _flipped)
        case Mix():
            weighted = [
                (known[id(part)], w)
                for part, w in zip(node.parts, node.weights, strict=True)
            ]
            return lambda t: _mixed([(f(t), w) for f, w in weighted])
        case _:
            return None


def _leaf(law: Distribution) -> Function:
    if isinstance(law, Constant):
        value = law.value
        return lambda t: (1.0, 1.0, 0.0, 0.0) if t < value else (0.0, 0.0, 1.0, 1.0)
    family = family_of(law)
    above = law.ccdf if family is None else family.sf
    below = law.cdf if family is None else family.cdf

    return lambda t: _slackened(float(above(t)), float(below(t)))


def _as_is(answer: Answer) -> Answer:
    return answer


def _extreme(
    parts: Sequence[tuple[Node, int]],
    known: dict[int, Function],
    turned: Callable[[Answer], Answer],
) -> Function:
    """Maximum of independent parts; of turned answers, the minimum.

    Laws of one family and shape are evaluated together, as one vector.
    """
    groups: dict[tuple[str, tuple[float, ...]], list[tuple[Family, int]]] = {}
    single: list[tuple[Function, int]] = []
    for part, n in parts:
        family = family_of(part.law) if isinstance(part, Leaf) else None
        if family is None or family.scale <= 0.0:
            single.append((known[id(part)], n))
        else:
            groups.setdefault((family.kind, family.shapes), []).append((family, n))
    vectors = [_standardised(members) for members in groups.values()]

    def at(t: float) -> Answer:
        answers = [(turned(f(t)), n) for f, n in single]
        for family, loc, width, counts in vectors:
            z = (t - loc) / width
            above, below = family.sf(z), family.cdf(z)
            answers += [
                (turned(_slackened(s, c)), n)
                for s, c, n in zip(above.tolist(), below.tolist(), counts, strict=True)
            ]
        return turned(_maximum(answers))

    return at


def _standardised(
    members: Sequence[tuple[Family, int]],
) -> tuple[Family, FloatArray, FloatArray, list[int]]:
    loc = np.array([family.loc for family, _ in members])
    width = np.array([family.scale for family, _ in members])
    standard = replace(members[0][0], loc=0.0, scale=1.0)
    return standard, loc, width, [n for _, n in members]


def _slackened(s: float, c: float) -> Answer:
    slack = FUNCTION_ACCURACY
    return (
        s * (1.0 - slack),
        min(s * (1.0 + slack), 1.0),
        c * (1.0 - slack),
        min(c * (1.0 + slack), 1.0),
    )


def _flipped(answer: Answer) -> Answer:
    s_low, s_high, c_low, c_high = answer
    return c_low, c_high, s_low, s_high


def _maximum(answers: list[tuple[Answer, int]]) -> Answer:
    # log P(max <= t) = sum n log F; 1 - F^n by expm1 and log1p, accurate in the tail.
    # Each F from whichever of F and 1 - F is the smaller.
    def log_at_most(c: float, s: float, n: int) -> float:
        if s < 0.5:
            return n * math.log1p(-s)
        return n * math.log(c) if c > 0.0 else -math.inf

    slack = 4.0 * FUNCTION_ACCURACY
    low = math.fsum(
        log_at_most(c_low, s_high, n) for (_, s_high, c_low, _), n in answers
    )
    high = math.fsum(
        log_at_most(c_high, s_low, n) for (s_low, _, _, c_high), n in answers
    )
    return (
        -math.expm1(high) * (1.0 - slack),
        min(-math.expm1(low) * (1.0 + slack), 1.0),
        math.exp(low) * (1.0 - slack),
        min(math.exp(high) * (1.0 + slack), 1.0),
    )


def _mixed(answers: list[tuple[Answer, float]]) -> Answer:
    totals = [math.fsum(w * a[i] for a, w in answers) for i in range(4)]
    slack = 4.0 * FUNCTION_ACCURACY
    return (
        totals[0] * (1.0 - slack),
        min(totals[1] * (1.0 + slack), 1.0),
        totals[2] * (1.0 - slack),
        min(totals[3] * (1.0 + slack), 1.0),
    )


def _inverted(node: Sum, names: set[str]) -> Function | None:
    from probcalc.inversion import inversion_of

    if not all(isinstance(part, Leaf) for part, _ in node.parts):
        return None
    terms = [(part.law, n) for part, n in node.parts if isinstance(part, Leaf)]
    inversion = inversion_of(terms, node.constant)
    if inversion is None:
        return None
    names.add("transform inversion")

    def at(t: float) -> Answer:
        s_low, s_high = inversion.sf_bounds(t)
        c_low, c_high = inversion.cdf_bounds(t)
        return s_low, s_high, c_low, c_high

    return at


#: Combinations of atoms beside one smooth law that are summed over.
MOST_ATOMS = 1 << 13


def _beside_atoms(node: Sum) -> Function | None:
    """One law of a closed form beside few outcomes: P(A + X > t) = E P(X > t - A)."""
    from probcalc.atoms import atoms_law

    smooth = [
        pair
        for pair in node.parts
        if isinstance(pair[0], Leaf) and family_of(pair[0].law) is not None
    ]
    if len(smooth) != 1 or smooth[0][1] != 1:
        return None
    rest = tuple(pair for pair in node.parts if pair is not smooth[0])
    listed = atoms_law(Sum(rest, node.constant))
    part = smooth[0][0]
    if listed is None or listed[0].size > MOST_ATOMS or not isinstance(part, Leaf):
        return None
    family = family_of(part.law)
    assert family is not None
    values, mass = listed
    slack = 2.0 * FUNCTION_ACCURACY

    def at(t: float) -> Answer:
        s = float(family.sf(t - values) @ mass)
        c = float(family.cdf(t - values) @ mass)
        return (
            s * (1.0 - slack),
            min(s * (1.0 + slack), 1.0),
            c * (1.0 - slack),
            min(c * (1.0 + slack), 1.0),
        )

    return at


def crossing(
    function: Function, p: float, sf: float, start: float, span: float
) -> tuple[float, float]:
    """A t surely before and a t surely past the quantile, as close as bounds allow.

    The root of the middle of the bounds is found first; from there the ends step
    outwards until the bounds are on their sides of the level.

    Parameters
    ----------
    function : callable
    p, sf : float
        Level; the smaller of the two decides, so that both tails keep their accuracy.
    start, span : float
        Where to begin and how far to step at first.
    """
    from scipy import optimize

    upper = sf <= 0.5

    def before(t: float) -> bool:
        s_low, _, _, c_high = function(t)
        return s_low > sf if upper else c_high < p

    def past(t: float) -> bool:
        _, s_high, c_low, _ = function(t)
        return s_high <= sf if upper else c_low >= p

    def distance(t: float) -> float:
        s_low, s_high, c_low, c_high = function(t)
        if upper:
            return math.log(max(0.5 * (s_low + s_high), 1e-320) / sf)
        return -math.log(max(0.5 * (c_low + c_high), 1e-320) / p)

    low = _stepped_out(before, start, span, -1.0)
    high = _stepped_out(past, start, span, 1.0)
    if not (math.isfinite(low) and math.isfinite(high)):
        return low, high
    root = 0.5 * (low + high)
    if distance(low) > 0.0 > distance(high):
        root = optimize.brentq(
            distance,
            low,
            high,
            xtol=5e-324,
            rtol=np.float64(1e-15),
            maxiter=4000,
            disp=False,
        )
        assert isinstance(root, float)
    nearest = max(abs(root) * 2.0**-52, 5e-324)
    return (
        max(low, _stepped_out(before, root, nearest, -1.0)),
        min(high, _stepped_out(past, root, nearest, 1.0)),
    )


def _stepped_out(
    holds: Callable[[float], bool], start: float, span: float, side: float
) -> float:
    """First t from `start` to a side where `holds`, in growing steps; else infinite."""
    t, step = start, span
    while math.isfinite(t):
        if holds(t):
            return t
        t += side * step
        step *= 2.0
    return t
