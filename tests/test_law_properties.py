"""Properties of the operators on laws, against enumeration in fractions.

Every finite law is also kept as a dictionary {value: probability} of
`fractions.Fraction`, composed by enumerating all outcomes. Nothing there is
rounded, so a certified bracket that misses is wrong and not unlucky.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from probcalc.composed import (
    Variable,
    expected_shortfall,
    maximum,
    minimum,
    mixture,
    probability_above,
    quantile,
    repeat,
    scale,
    shift,
    sum_of,
)
from probcalc.distribution import Constant, Empirical, Quantile

Exact = dict[Fraction, Fraction]

SETTINGS = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
LEVELS = (0.5, 0.1, 1e-3, 1e-6)


# ---- enumeration -----------------------------------------------------------------


def _combine(op: Callable[[Fraction, Fraction], Fraction], a: Exact, b: Exact) -> Exact:
    out: Exact = {}
    for x, p in a.items():
        for y, q in b.items():
            z = op(x, y)
            out[z] = out.get(z, Fraction(0)) + p * q
    return out


def _exact(samples: list[float]) -> Exact:
    out: Exact = {}
    for x in samples:
        value = Fraction(x)
        out[value] = out.get(value, Fraction(0)) + Fraction(1, len(samples))
    return out


def _map(law: Exact, move: Callable[[Fraction], Fraction]) -> Exact:
    return {move(x): p for x, p in law.items()}


def _blend(weights: list[Fraction], laws: list[Exact]) -> Exact:
    out: Exact = {}
    for w, law in zip(weights, laws, strict=True):
        for x, p in law.items():
            out[x] = out.get(x, Fraction(0)) + w * p
    return out


def _add(x: Fraction, y: Fraction) -> Fraction:
    return x + y


def _above(law: Exact, x: Fraction) -> Fraction:
    return sum((p for v, p in law.items() if v > x), Fraction(0))


def _quantile(law: Exact, sf: Fraction) -> Fraction:
    """Smallest value that is exceeded with probability at most `sf`."""
    left = Fraction(1)
    for x in sorted(law):
        left -= law[x]
        if left <= sf:
            return x
    raise AssertionError("probabilities do not add up to one")


def _assert_contains(found: Quantile, law: Exact, sf: float) -> None:
    """The bracket holds the exact quantile at a level within 1e-12 of `sf`.

    A level that falls on a step of the law by a last digit of a double may count
    for either side of the step.
    """
    level = Fraction(sf)
    low = _quantile(law, level * (1 + Fraction(1, 10**12)))
    high = _quantile(law, level * (1 - Fraction(1, 10**12)))
    assert found.kind == "certified"
    # A number made of numbers is rounded once, like any other: one unit of it.
    single = sum(p > 0 for p in law.values()) == 1
    unit = Fraction(math.ulp(found.value)) if single else Fraction(0)
    assert Fraction(found.lower) - unit <= high, (found, sf, float(low), float(high))
    assert low <= Fraction(found.upper) + unit, (found, sf, float(low), float(high))
    assert found.lower <= found.value <= found.upper


def _assert_same(first: Any, second: Any, points: Any) -> None:
    np.testing.assert_allclose(
        [float(first.cdf(x)) for x in points],
        [float(second.cdf(x)) for x in points],
        rtol=0,
        atol=1e-12,
    )


# ---- strategies ------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A law of the package and the same law enumerated."""

    law: Any
    exact: Exact
    text: str

    def __repr__(self) -> str:
        return self.text


def _leaf(samples: list[float]) -> Pair:
    return Pair(Empirical(samples), _exact(samples), f"Empirical({samples})")


def _constant(value: float) -> Pair:
    return Pair(Constant(value), {Fraction(value): Fraction(1)}, f"Constant({value})")


def _node(op: str, a: Pair, b: Pair) -> Pair:
    operator, rule = {
        "sum_of": (sum_of, _add),
        "maximum": (maximum, max),
        "minimum": (minimum, min),
    }[op]
    return Pair(
        operator(a.law, b.law),
        _combine(rule, a.exact, b.exact),
        f"{op}({a}, {b})",
    )


def _mixed(weight: int, a: Pair, b: Pair) -> Pair:
    w = Fraction(weight, 8)
    return Pair(
        mixture([float(w), float(1 - w)], [a.law, b.law]),
        _blend([w, 1 - w], [a.exact, b.exact]),
        f"mixture([{float(w)}, {float(1 - w)}], [{a}, {b}])",
    )


def _scaled(factor: float, a: Pair) -> Pair:
    return Pair(
        scale(a.law, factor),
        _blend([Fraction(1)], [_collect(a.exact, factor)]),
        f"scale({a}, {factor})",
    )


def _collect(law: Exact, factor: float) -> Exact:
    out: Exact = {}
    for x, p in law.items():
        y = x * Fraction(factor)
        out[y] = out.get(y, Fraction(0)) + p
    return out


def _shifted(offset: float, a: Pair) -> Pair:
    move = Fraction(offset)
    return Pair(
        shift(a.law, offset), _map(a.exact, lambda x: x + move), f"shift({a}, {offset})"
    )


def _repeated(n: int, a: Pair) -> Pair:
    exact = a.exact
    for _ in range(n - 1):
        exact = _combine(_add, exact, a.exact)
    return Pair(repeat(a.law, n), exact, f"repeat({a}, {n})")


def _trees(numbers: st.SearchStrategy[float], factors: list[float]) -> Any:
    leaves = st.one_of(
        st.lists(numbers, min_size=1, max_size=3).map(_leaf), numbers.map(_constant)
    )
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.builds(
                _node, st.sampled_from(["sum_of", "maximum", "minimum"]), parts, parts
            ),
            st.builds(_mixed, st.integers(0, 8), parts, parts),
            st.builds(_scaled, st.sampled_from(factors), parts),
            st.builds(_shifted, numbers, parts),
        ),
        max_leaves=5,
    )


INTEGERS = st.integers(-3, 6).map(float)
FLOATS = st.floats(0, 100, allow_subnormal=False).map(
    lambda x: x if abs(x) > 1e-6 else 0.0
)
SIGNED = st.floats(-1000, 1000, allow_subnormal=False).map(
    lambda x: x if abs(x) > 1e-6 else 0.0
)
SMALL = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=4)
MEASURED = st.lists(st.floats(0.01, 50, allow_subnormal=False), min_size=1, max_size=4)


# ---- enumeration against the engine ----------------------------------------------


@SETTINGS
@given(tree=_trees(INTEGERS, [0.0, 1.0, 2.0, 0.5]))
def test_integer_expressions_equal_enumeration(tree: Pair) -> None:
    """Inputs on one quantum: the lattice is the law itself, and nothing is lost."""
    for sf in LEVELS:
        found = quantile(tree.law, sf=sf)
        _assert_contains(found, tree.exact, sf)
        assert Fraction(found.upper) - Fraction(found.lower) <= Fraction(1, 10**4) * (
            abs(Fraction(found.value)) or 1
        ) or any(
            abs(_above(tree.exact, x) - Fraction(sf)) < Fraction(1, 10**12)
            for x in tree.exact
        )
    for x in sorted(tree.exact):
        right = _above(tree.exact, x)
        assert float(tree.law.ccdf(float(x))) == pytest.approx(float(right), abs=1e-11)
        assert float(tree.law.cdf(float(x))) == pytest.approx(
            float(1 - right), abs=1e-11
        )
    mean = sum(x * p for x, p in tree.exact.items())
    spread = sum((x - mean) ** 2 * p for x, p in tree.exact.items())
    assert float(tree.law.mean()) == pytest.approx(float(mean), rel=1e-12, abs=1e-12)
    assert float(tree.law.variance()) == pytest.approx(
        float(spread), rel=1e-10, abs=1e-10
    )


@SETTINGS
@given(tree=_trees(FLOATS, [0.0, 1.0, 0.3, 7.7]))
def test_measured_floats_are_inside_the_bracket(tree: Pair) -> None:
    """No common quantum: whatever rung is taken, the exact answer is inside."""
    for sf in LEVELS:
        _assert_contains(quantile(tree.law, sf=sf), tree.exact, sf)


@SETTINGS
@given(tree=_trees(SIGNED, [0.0, 1.0, 0.3, 1e-9, 1e9]))
def test_floats_of_both_signs_are_inside_the_bracket(tree: Pair) -> None:
    """Terms that cancel: the bracket carries the errors of the terms."""
    for sf in LEVELS:
        _assert_contains(quantile(tree.law, sf=sf), tree.exact, sf)


@SETTINGS
@given(tree=_trees(INTEGERS, [0.0, 1.0, 2.0, 0.5]))
def test_probability_bounds_hold_at_and_beside_every_atom(tree: Pair) -> None:
    for atom in sorted(tree.exact):
        x = float(atom)
        for limit in (math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf)):
            found = probability_above(tree.law, limit)
            right = _above(tree.exact, Fraction(limit))
            assert found.kind == "certified"
            # Equal masses such as 1/3 are themselves rounded once.
            assert Fraction(found.lower) <= right * (1 + Fraction(1, 10**12))
            assert Fraction(found.upper) >= right * (1 - Fraction(1, 10**12))
            assert found.upper - found.lower <= 1e-9


@SETTINGS
@given(tree=_trees(INTEGERS, [0.0, 1.0, 2.0, 0.5]), sf=st.floats(1e-6, 0.99))
def test_expected_shortfall_of_integer_expressions(tree: Pair, sf: float) -> None:
    """(1/sf) integral of the quantile over the worst `sf`, in fractions."""
    left = level = Fraction(sf)
    total = Fraction(0)
    for x in sorted(tree.exact, reverse=True):
        taken = min(tree.exact[x], left)
        total += taken * x
        left -= taken
    right = total / level
    found = expected_shortfall(tree.law, sf=sf)
    assert found.kind == "certified"
    slack = Fraction(1, 10**11) * (1 + abs(right))
    assert Fraction(found.lower) <= right + slack
    assert Fraction(found.upper) >= right - slack
    assert found.upper - found.lower <= 1e-6 * max(1.0, abs(found.value))


@SETTINGS
@given(samples=MEASURED, n=st.integers(2, 5))
def test_repeat_equals_enumeration(samples: list[float], n: int) -> None:
    both = _repeated(n, _leaf(samples))
    for sf in LEVELS:
        _assert_contains(both.law.quantile(sf=sf), both.exact, sf)


@SETTINGS
@given(
    a=SMALL,
    b=SMALL,
    c=SMALL,
    op=st.sampled_from(["max", "min", "twice", "middle", "same object", "copies"]),
)
def test_one_draw_shared_in_several_places(
    a: list[float], b: list[float], c: list[float], op: str
) -> None:
    """Enumerate over the draw of A: both appearances take the same value."""
    shared = Variable("A", Empirical(a))
    # One object in two places: its own leaves are drawn afresh, the variable is not.
    inner = maximum(shared, Empirical(b))
    rules: dict[str, tuple[Any, Callable[..., Fraction]]] = {
        "max": (
            maximum(sum_of(shared, Empirical(b)), sum_of(shared, Empirical(c))),
            lambda x, y, z: max(x + y, x + z),
        ),
        "min": (
            minimum(sum_of(shared, Empirical(b)), maximum(shared, Empirical(c))),
            lambda x, y, z: min(x + y, max(x, z)),
        ),
        "twice": (
            sum_of(shared, Empirical(b), shared, Empirical(c)),
            lambda x, y, z: x + y + x + z,
        ),
        "middle": (
            sum_of(maximum(shared, Empirical(b)), shared, Empirical(c)),
            lambda x, y, z: max(x, y) + x + z,
        ),
        "same object": (sum_of(inner, inner), lambda x, y, z: max(x, y) + max(x, z)),
        "copies": (
            sum_of(repeat(inner, 2), shared),
            lambda x, y, z: max(x, y) + max(x, z) + x,
        ),
    }
    law, rule = rules[op]
    if op in ("same object", "copies"):
        c = b
    exact: Exact = {}
    for x, p in _exact(a).items():
        for y, q in _exact(b).items():
            for z, r in _exact(c).items():
                value = rule(x, y, z)
                exact[value] = exact.get(value, Fraction(0)) + p * q * r
    for sf in LEVELS:
        _assert_contains(law.quantile(sf=sf), exact, sf)
    mean = sum(x * p for x, p in exact.items())
    assert float(law.mean()) == pytest.approx(float(mean), rel=1e-12, abs=1e-12)


# ---- algebra ---------------------------------------------------------------------


@SETTINGS
@given(a=SMALL, b=SMALL, c=SMALL, op=st.sampled_from([sum_of, maximum, minimum]))
def test_associative_and_commutative(
    a: list[float], b: list[float], c: list[float], op: Callable[..., Any]
) -> None:
    x, y, z = Empirical(a), Empirical(b), Empirical(c)
    points = [k / 2 for k in range(-1, 60)]
    flat = op(x, y, z)
    for other in (op(op(x, y), z), op(x, op(y, z)), op(z, y, x), op(op(z, x), y)):
        _assert_same(flat, other, points)


@SETTINGS
@given(a=MEASURED, b=MEASURED, c=MEASURED, op=st.sampled_from([sum_of, maximum]))
def test_order_does_not_move_a_bracket_away(
    a: list[float], b: list[float], c: list[float], op: Callable[..., Any]
) -> None:
    x, y, z = Empirical(a), Empirical(b), Empirical(c)
    for sf in (0.3, 1e-3):
        one = op(op(x, y), z).quantile(sf=sf)
        two = op(z, op(y, x)).quantile(sf=sf)
        assert one.lower <= two.upper
        assert two.lower <= one.upper


@SETTINGS
@given(a=SMALL, m=st.integers(1, 6), n=st.integers(1, 6))
def test_repeat_of_a_sum_of_counts(a: list[float], m: int, n: int) -> None:
    x = Empirical(a)
    points = [k / 2 for k in range(-1, 2 * 9 * (m + n) + 2)]
    whole = repeat(x, m + n)
    _assert_same(whole, sum_of(repeat(x, m), repeat(x, n)), points)
    _assert_same(repeat(x, m * n), repeat(repeat(x, m), n), points)


@pytest.mark.parametrize("sf", [0.5, 1e-3, 1e-9])
@pytest.mark.parametrize(
    "leaf",
    [stats.lognorm(0.5), stats.gamma(0.3), stats.uniform(1, 2), stats.weibull_min(0.8)],
    ids=["lognormal", "gamma below one", "uniform", "weibull"],
)
def test_repeat_of_a_sum_of_counts_on_smooth_laws(leaf: Any, sf: float) -> None:
    whole = repeat(leaf, 7).quantile(sf=sf)
    parts = sum_of(repeat(leaf, 3), repeat(leaf, 4)).quantile(sf=sf)
    assert max(whole.lower, parts.lower) <= min(whole.upper, parts.upper)


@SETTINGS
@given(a=SMALL, n=st.integers(0, 20))
def test_neutral_elements(a: list[float], n: int) -> None:
    x = Empirical(a)
    points = [k / 2 for k in range(-1, 30)]
    _assert_same(sum_of(x, 0.0), x, points)
    _assert_same(repeat(x, 1), x, points)
    _assert_same(scale(x, 1.0), x, points)
    _assert_same(shift(x, 0.0), x, points)
    _assert_same(maximum(x, min(a)), x, points)
    _assert_same(minimum(x, max(a)), x, points)
    _assert_same(mixture([1.0, 0.0], [x, Constant(n)]), x, points)
    _assert_same(shift(x, n), sum_of(x, float(n)), [p + n for p in points])


@SETTINGS
@given(
    a=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    rise=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    b=SMALL,
    c=SMALL,
    op=st.sampled_from([sum_of, maximum, minimum]),
)
def test_monotone_in_first_order_dominance(
    a: list[int],
    rise: list[int],
    b: list[float],
    c: list[float],
    op: Callable[..., Any],
) -> None:
    """A stochastically larger operand never lowers a quantile of the result."""
    low = Empirical([float(x) for x in a])
    high = Empirical([float(x + y) for x, y in zip(a, rise, strict=True)])
    first = op(sum_of(low, Empirical(b)), Empirical(c))
    second = op(sum_of(high, Empirical(b)), Empirical(c))
    for k in range(40):
        assert float(first.ccdf(k)) <= float(second.ccdf(k)) + 1e-12
    # 0.37 and 0.0123 are steps of none of these laws of 3 x <=4 x <=4 outcomes.
    for sf in (0.37, 0.0123):
        assert first.quantile(sf=sf).value <= second.quantile(sf=sf).value


# ---- finite with smooth: the mixture is known in closed form ---------------------


def _assert_level(
    found: Quantile, above: Callable[[float], float], sf: float, slack: float = 1e-11
) -> None:
    """`above` steps over `sf` inside the bracket (to `above`'s own rounding)."""
    assert found.kind == "certified"
    assert above(found.upper) <= sf * (1 + slack), (found, above(found.upper), sf)
    just_below = math.nextafter(found.lower, -math.inf)
    assert above(just_below) >= sf * (1 - slack), (found, above(just_below), sf)


@SETTINGS
@given(
    samples=MEASURED, shape=st.sampled_from([0.05, 0.5, 1.0, 2.5]), wide=st.booleans()
)
def test_finite_plus_gamma(samples: list[float], shape: float, wide: bool) -> None:
    size = 30.0 if wide else 0.3
    law = sum_of(Empirical(samples), stats.gamma(shape, scale=size))
    points = np.array(samples)

    def above(x: float) -> float:
        y = np.maximum(x - points, 0.0) / size
        return float(special.gammaincc(shape, y).mean())

    for sf in (0.5, 1e-3, 1e-9):
        _assert_level(law.quantile(sf=sf), above, sf)


@SETTINGS
@given(
    samples=MEASURED,
    sigma=st.sampled_from([0.01, 0.5, 3.0]),
    op=st.sampled_from(["max", "min"]),
)
def test_extremes_of_finite_and_lognormal(
    samples: list[float], sigma: float, op: str
) -> None:
    law = (maximum if op == "max" else minimum)(
        Empirical(samples), stats.lognorm(sigma)
    )
    points = np.array(samples)

    def above(x: float) -> float:
        if x <= 0:
            return 1.0
        s1 = float((points > x).mean())
        s2 = float(special.ndtr(-math.log(x) / sigma))
        return s1 + s2 - s1 * s2 if op == "max" else s1 * s2

    for sf in (0.5, 1e-3, 1e-9):
        _assert_level(law.quantile(sf=sf), above, sf)
