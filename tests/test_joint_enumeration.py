"""Joint laws of T and x against enumeration of their outcomes, in fractions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probcalc import joint_result as module
from probcalc.distribution import Empirical
from probcalc.joint import (
    Joint,
    JointAffine,
    JointIndependent,
    JointMaximum,
    JointRuns,
    Weighted,
    joint_maximum,
    joint_repeat,
    joint_sum,
)

Law = dict[tuple[Fraction, Fraction], Fraction]
Draw = Callable[[st.SearchStrategy[Any]], Any]


# ---------------------------------------------------------------- brute force
def exact(node: Joint) -> Law:
    """Joint law of an expression of finite lists, in fractions."""
    if isinstance(node, JointRuns):
        pairs = list(zip(node.time, node.x, strict=True))
        masses = (
            [Fraction(1, len(pairs))] * len(pairs)
            if node.weights is None
            else [Fraction(float(w)) for w in node.weights]
        )
        return collect(
            (Fraction(float(t)), Fraction(float(x)), p)
            for (t, x), p in zip(pairs, masses, strict=True)
        )
    if isinstance(node, JointAffine | JointIndependent):
        slope = Fraction(node.slope)
        return collect(
            (t, slope * t + x, p * q)
            for t, p in outcomes(node.time_law)
            for x, q in outcomes(node.x_law)
        )
    both = max if isinstance(node, JointMaximum) else lambda a, b: a + b
    result: Law | None = None
    for part, n in node.parts:
        for _ in range(n):
            other = exact(part)
            result = (
                other
                if result is None
                else collect(
                    (both(t, u), x + y, p * q)
                    for ((t, x), p), ((u, y), q) in itertools.product(
                        result.items(), other.items()
                    )
                )
            )
    assert result is not None
    return result


def outcomes(law: Any) -> list[tuple[Fraction, Fraction]]:
    values = law.samples if isinstance(law, Empirical) else np.array([law.value])
    return [(Fraction(float(v)), Fraction(1, values.size)) for v in values]


def collect(items: Any) -> Law:
    law: Law = defaultdict(Fraction)
    for t, x, p in items:
        law[t, x] += p
    return law


def energy(law: Law, weight: float) -> list[tuple[Fraction, Fraction]]:
    """E in rising order with P(E > value)."""
    by: dict[Fraction, Fraction] = defaultdict(Fraction)
    for (t, x), p in law.items():
        by[Fraction(weight) * t + x] += p
    out: list[tuple[Fraction, Fraction]] = []
    left = sum(by.values())
    for value in sorted(by):
        left -= by[value]
        out.append((value, left))
    return out


# -------------------------------------------------------------------- strategies
# Eighths, so that sums and products are exact in floating point.
eighths = st.integers(0, 40).map(lambda k: k / 8)
signed = st.integers(-24, 40).map(lambda k: k / 8)
# Values on no grid, with few digits, so that fractions stay small.
thirds = st.integers(0, 300).map(lambda k: round(k / 37, 3))


@st.composite
def runs(draw: Draw, times: Any = eighths, most: int = 3) -> JointRuns:
    n = draw(st.integers(1, most))
    t = draw(st.lists(times, min_size=n, max_size=n))
    x = draw(st.lists(signed, min_size=n, max_size=n))
    return JointRuns(np.array(t), np.array(x))


@st.composite
def affine(draw: Draw, times: Any = eighths) -> JointAffine:
    t = draw(st.lists(times, min_size=1, max_size=2))
    x = draw(st.lists(signed, min_size=1, max_size=2))
    slope = draw(st.sampled_from([-2.0, -0.5, 0.0, 0.75, 3.0]))
    return JointAffine(Empirical(np.array(t)), slope, Empirical(np.array(x)))


def trees(times: Any = eighths) -> st.SearchStrategy[Joint]:
    """Expressions of up to four leaves that end in a maximum."""
    leaf = st.one_of(runs(times), affine(times))
    pair = st.tuples(st.booleans(), leaf, leaf).map(
        lambda v: (joint_sum if v[0] else joint_maximum)(v[1], v[2])
    )
    return st.tuples(pair, st.one_of(leaf, pair)).map(lambda v: joint_maximum(*v))


relaxed = settings(max_examples=20, deadline=None)


def check_bounds(law: Weighted, expression: Joint, weight: float) -> None:
    """Bounds of P(E > t) at, before and after every outcome contain the truth."""
    result = law._result(1e-6)
    values = energy(exact(expression), weight)
    for value, above in values:
        v, tail = float(value), float(above)
        lower, upper = result.lower_at(np.array([v])), result.upper_at(np.array([v]))
        assert lower[0] <= tail * (1 + 1e-12) + 1e-13
        assert upper[0] >= tail * (1 - 1e-12) - 1e-13
    for sf in (0.9, 0.5, 0.3, 0.05, 1e-3, 1e-6):
        truth = float(next(v for v, above in values if float(above) <= sf))
        if any(abs(float(above) - sf) < 1e-9 for _, above in values):
            continue  # the level sits on a step: either end is right
        found = law._quantile(1 - sf, sf, True, law.grid)
        assert found.lower - 1e-12 <= truth <= found.upper + 1e-12, sf
        assert found.lower <= found.value <= found.upper
    mean = float(
        sum((Fraction(weight) * t + x) * p for (t, x), p in exact(expression).items())
    )
    bounds = law.mean_bounds()
    assert bounds.lower <= mean <= bounds.upper


# ------------------------------------------------------------- against enumeration
@relaxed
@given(trees(), st.sampled_from([0.5, 1.0, 4.0]))
def test_listed_is_exact(expression: Joint, weight: float) -> None:
    law = Weighted(expression, weight)
    result = law._result()
    assert result.atoms
    expected = energy(exact(expression), weight)
    np.testing.assert_allclose(
        result.points, [float(v) for v, _ in expected], rtol=1e-14, atol=1e-13
    )
    np.testing.assert_allclose(
        result.above, [float(p) for _, p in expected], rtol=1e-13, atol=1e-15
    )
    assert law._quantile(0.5, 0.5, True, 512).limited_by.startswith("nothing")


@relaxed
@given(trees(), st.sampled_from([0.5, 1.0, 4.0]))
def test_multiples_of_a_quantum_need_no_rounding(
    expression: Joint, weight: float
) -> None:
    law = Weighted(expression, weight, 64, listed=0)
    check_bounds(law, expression, weight)


@relaxed
@given(trees(thirds), st.sampled_from([0.5, 1.0, 7.3]))
def test_bracket_contains_enumeration(expression: Joint, weight: float) -> None:
    """Nothing is listed: also the smallest expression goes through the grid."""
    law = Weighted(expression, weight, 64, listed=0)
    check_bounds(law, expression, weight)


@pytest.mark.parametrize("few", [0, 6])
@pytest.mark.parametrize("seed", range(6))
def test_either_way_to_a_bracket_holds_alone(
    few: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rounding down and up serves few draws, noise bounds any number: copies included.
    monkeypatch.setattr(module, "FEW", few)
    r = np.random.default_rng(seed)

    def leaf() -> Joint:
        n = int(r.integers(1, 4))
        t, x = np.round(r.uniform(0, 8, n), 3), np.round(r.uniform(-3, 5, n), 3)
        if r.random() < 0.5:
            return JointRuns(t, x)
        return JointAffine(Empirical(t), float(r.choice([-4, -0.5, 2])), Empirical(x))

    a, b, c = leaf(), leaf(), leaf()
    expression = joint_maximum(joint_repeat(joint_maximum(a, b), 2), a, c, c)
    weight = float(r.choice([0.5, 3.0]))
    check_bounds(Weighted(expression, weight, 48, listed=0), expression, weight)
    # Lists of runs alone go in the order of their T, without a grid of it.
    t, x = np.round(r.uniform(0, 8, (2, 3)), 3), np.round(r.uniform(-3, 5, (2, 3)), 3)
    p = JointRuns(t[0], x[0], np.array([1.0, 2.0, 5.0]))
    q = JointRuns(np.append(t[1], t[0, 0]), np.append(x[1], 1.0))
    expression = joint_maximum(p, q, q)
    law = Weighted(expression, weight, 48, listed=0)
    check_bounds(law, expression, weight)
    if "in order" not in law._result(1e-6).limited_by:
        pytest.fail(f"expected runs in order, got {law._result(1e-6).limited_by}")


@relaxed
@given(trees(thirds))
def test_sums_of_parts_on_one_line(expression: Joint) -> None:
    whole = joint_sum(
        joint_repeat(expression, 2), JointRuns([0.31, 0.9], [0.2, -1.7]), expression
    )
    law = Weighted(whole, 2.0, 64, listed=0)
    result = law._result(1e-6)
    # Enumerated in floating point: three copies of a law of up to 81 outcomes.
    one = exact(expression)
    parts = [one, one, one, exact(JointRuns([0.31, 0.9], [0.2, -1.7]))]
    values, masses = np.zeros(1), np.ones(1)
    for part in parts:
        v = np.array([float(2 * t + x) for t, x in part])
        p = np.array([float(q) for q in part.values()])
        values = np.add.outer(values, v).ravel()
        masses = np.multiply.outer(masses, p).ravel()
    for at in np.quantile(values, [0.0, 0.1, 0.5, 0.9, 0.99]):
        for t in (at - 0.01, at + 0.01):
            truth = float(masses[values > t].sum())
            assert result.lower_at(np.array([t]))[0] <= truth + 1e-10
            assert result.upper_at(np.array([t]))[0] >= truth - 1e-10
    bounds = law.mean_bounds()
    assert bounds.lower <= float(values @ masses) <= bounds.upper
