"""Properties of the operators on terms, against enumeration in fractions.

Elements have a few outcomes each, on a binary grid, so that every outcome of a term can
be listed. The oracle is no formula of the package: it lays executions out on a time
line and charges every device for every moment it is held.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from probcalc.distribution import Empirical, Quantile
from probcalc.element import Element, idle
from probcalc.prediction import predict
from probcalc.term import MultiParallel, Parallel, Repeat, Sequential, Term

SETTINGS = settings(
    phases=(Phase.explicit, Phase.generate),
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
# No cumulative probability of these small laws falls on one of these levels.
LEVELS = (0.01237, 0.3713, 0.5321, 0.91373, 0.99713)
RTOL = 1e-4

Outcome = tuple[Fraction, Fraction]  # time, dynamic energy
Law = dict[Fraction, Fraction]


# ---- the oracle -----------------------------------------------------------------


def outcomes(e: Element) -> list[Outcome]:
    """All equally likely outcomes of one execution."""
    if e.runs is not None:
        pairs = zip(e.runs.time, e.runs.dynamic_energy, strict=True)
        return [(Fraction(t), Fraction(d)) for t, d in pairs]
    listed = []
    for law in (e.time, e.dynamic_energy):
        values = law.samples if isinstance(law, Empirical) else [law.mean()]
        listed.append([Fraction(float(v)) for v in values])
    return list(itertools.product(*listed))


@dataclass(frozen=True)
class Busy:
    """An execution on the time line."""

    element: Element
    start: Fraction
    end: Fraction
    dynamic: Fraction


def runs_of(term: Term) -> list[Element]:
    """Executions of a term, in a fixed order."""
    if isinstance(term, Element):
        return [term]
    times = term.count if isinstance(term, Repeat) else 1
    return [e for part in term.parts for e in runs_of(part)] * times


def laid_out(term: Term, drawn: Any, start: Fraction) -> tuple[list[Busy], Fraction]:
    """Place the executions of a term on the time line; return where it ends."""
    if isinstance(term, Element):
        time, dynamic = next(drawn)
        return [Busy(term, start, start + time, dynamic)], start + time
    parts = list(term.parts)
    if isinstance(term, Repeat):
        parts *= term.count
    busy: list[Busy] = []
    end = start
    for part in parts:
        one_after_other = isinstance(term, Sequential | Repeat)
        placed, stop = laid_out(part, drawn, end if one_after_other else start)
        busy += placed
        end = stop if one_after_other else max(end, stop)
    return busy, end


def charged(term: Term, busy: list[Busy], end: Fraction, base: dict) -> Fraction:
    """Static power of every device over every stretch of time, and dynamic energy."""
    edges = sorted({Fraction(0), end, *(b.start for b in busy), *(b.end for b in busy)})
    total = sum((b.dynamic for b in busy), Fraction(0))
    for left, right in itertools.pairwise(edges):
        for device in term.devices:
            power = Fraction(base[device])
            for b in busy:
                if device in b.element.devices and b.start <= left and right <= b.end:
                    power += Fraction(b.element.powers[device]) - Fraction(base[device])
            total += power * (right - left)
    return total


def enumerated(term: Term, base: dict[str, float]) -> tuple[Law, Law]:
    """Laws of time and energy, every outcome listed, nothing rounded."""
    choices = [outcomes(e) for e in runs_of(term)]
    count = 1
    for c in choices:
        count *= len(c)
    time: Law = {}
    energy: Law = {}
    for drawn in itertools.product(*choices):
        busy, end = laid_out(term, iter(drawn), Fraction(0))
        spent = charged(term, busy, end, base)
        time[end] = time.get(end, Fraction(0)) + Fraction(1, count)
        energy[spent] = energy.get(spent, Fraction(0)) + Fraction(1, count)
    return time, energy


def exact_quantile(law: Law, p: float) -> Fraction:
    total = Fraction(0)
    for value in sorted(law):
        total += law[value]
        if total >= Fraction(p):
            return value
    raise AssertionError("mass is less than one")


def assert_law(found: Any, law: Law) -> None:
    """The certified brackets hold the true quantiles, and are narrow."""
    for p in LEVELS:
        true = float(exact_quantile(law, p))
        q: Quantile = found.quantile(p)
        assert q.kind == "certified"
        assert q.lower <= true <= q.upper, (p, q, true)
        assert q.upper - q.lower <= RTOL * max(abs(true), 1.0), (p, q, true)
    mean = float(sum(x * w for x, w in law.items()))
    bounds = found.mean_bounds()
    assert bounds.lower - 1e-12 <= mean <= bounds.upper + 1e-12
    assert bounds.upper - bounds.lower <= RTOL * max(mean, 1.0)


def assert_same(found: Any, other: Any) -> None:
    for p in LEVELS:
        a, b = found.quantile(p), other.quantile(p)
        slack = 1e-12 * max(abs(a.upper), abs(b.upper))
        assert a.lower <= b.upper + slack, (p, a, b)
        assert b.lower <= a.upper + slack, (p, a, b)
        assert a.value == pytest.approx(b.value, rel=RTOL, abs=1e-9)


def size_of(term: Term) -> int:
    count = 1
    for e in runs_of(term):
        count *= len(outcomes(e))
    return count


# ---- strategies -----------------------------------------------------------------

quarters = st.integers(0, 12).map(lambda k: k / 4)
joules = st.integers(0, 24).map(lambda k: k / 4)


def law(values):
    several = st.lists(values, min_size=2, max_size=3).map(
        lambda v: Empirical(np.array(v))
    )
    return st.one_of(values, several)


@st.composite
def elements(draw, device="gpu0", power=8.0, measured=None):
    """An element of independent laws or of measured pairs."""
    name = draw(st.sampled_from("abcdefgh"))
    fixed = {"static_power": power, "device": device}
    if draw(st.booleans()) if measured is None else measured:
        pairs = draw(st.lists(st.tuples(quarters, joules), min_size=1, max_size=3))
        times = [t for t, _ in pairs]
        energy = [power * t + d for t, d in pairs]
        return Element.from_runs(name, time=times, energy=energy, **fixed)
    return Element(
        name, time=draw(law(quarters)), dynamic_energy=draw(law(joules)), **fixed
    )


@st.composite
def terms(draw, depth=2, devices=("gpu0",), powers=(8.0,)):
    """A term on the given devices, of at most a few executions."""
    if len(devices) == 1 and (depth == 0 or draw(st.booleans())):
        return draw(elements(devices[0], draw(st.sampled_from(powers))))
    kind = draw(st.sampled_from([">>", "|", "**"] + ["&"] * 2 * (len(devices) > 1)))
    below = {"depth": max(depth - 1, 0), "powers": powers}
    if kind == "&" or depth == 0:
        half = len(devices) // 2
        left = draw(terms(devices=devices[:half], **below))
        return left & draw(terms(devices=devices[half:], **below))
    left = draw(terms(devices=devices, **below))
    if kind == "**":
        return left ** draw(st.integers(1, 2))
    right = draw(terms(devices=devices, **below))
    return left >> right if kind == ">>" else left | right


# ---- exact against enumeration ---------------------------------------------------


@SETTINGS
@given(terms(depth=2))
def test_exact_is_enumeration_on_one_device(term):
    assume(size_of(term) <= 2000)
    time, energy = enumerated(term, {"gpu0": 8.0})
    found = predict(term)
    assert_law(found.time, time)
    assert_law(found.energy, energy)


@SETTINGS
@given(terms(depth=2, devices=("gpu0", "gpu1")))
def test_exact_is_enumeration_on_two_devices(term):
    assume(size_of(term) <= 2000)
    time, energy = enumerated(term, {"gpu0": 8.0, "gpu1": 8.0})
    found = predict(term)
    assert_law(found.time, time)
    assert_law(found.energy, energy)


@SETTINGS
@given(
    terms(depth=1, devices=("gpu0", "gpu1"), powers=(4.0, 8.0, 12.0)),
    st.sampled_from([2.0, 8.0]),
)
def test_different_static_powers_are_charged_by_the_time_line(term, baseline):
    assume(size_of(term) <= 1000)
    base = {"gpu0": baseline, "gpu1": 6.0}
    time, energy = enumerated(term, base)
    found = predict(term, baselines=base)
    assert_law(found.time, time)
    assert_law(found.energy, energy)


@SETTINGS
@given(terms(depth=2, devices=("gpu0", "gpu1")))
def test_static_and_dynamic_energy_add_up_in_the_mean(term):
    assume(size_of(term) <= 2000)
    found = predict(term)
    parts = found.static_energy.mean() + found.dynamic_energy.mean()
    assert parts == pytest.approx(found.energy.mean(), rel=RTOL, abs=1e-9)
    held = 8.0 * len(term.devices) * found.time.mean()
    assert found.static_energy.mean() == pytest.approx(held, rel=RTOL, abs=1e-9)


# ---- the algebra -----------------------------------------------------------------

one = elements()
other_device = elements(device="gpu1")


@SETTINGS
@given(one, one, one)
def test_sequential_and_parallel_are_associative(a, b, c):
    assert (a >> b) >> c == a >> (b >> c)
    assert (a | b) | c == a | (b | c)
    # The same without flattening: through a part that repeats.
    left, right = ((a >> b) ** 2) >> c, (a >> b) >> ((a >> b) >> c)
    assert_same(predict(left).energy, predict(right).energy)


@SETTINGS
@given(one, other_device, elements(device="gpu2"))
def test_multi_parallel_is_associative_and_commutative(a, x, y):
    assert (a & x) & y == a & (x & y)
    first, second = predict((a & x) & y), predict(y & (x & a))
    assert_same(first.energy, second.energy)
    assert_same(first.time, second.time)


@SETTINGS
@given(one, one, one)
def test_sequential_and_parallel_commute(a, b, c):
    for left, right in (
        (a >> b >> c, c >> a >> b),
        (a | b, b | a),
        ((a >> b) | c, c | (b >> a)),
    ):
        first, second = predict(left), predict(right)
        assert_same(first.energy, second.energy)
        assert_same(first.time, second.time)


@SETTINGS
@given(one, one)
def test_idle_of_no_duration_is_neutral(a, b):
    nothing = idle(0.0, device="gpu0", static_power=8.0)
    term = (a >> b) | b
    for same in (nothing >> term, term >> nothing, ((nothing >> a >> b) | b)):
        assert_same(predict(same).energy, predict(term).energy)
        assert_same(predict(same).time, predict(term).time)


@SETTINGS
@given(quarters, joules, one, one)
def test_sequential_distributes_but_for_the_first_dynamic_energy(t, d, b, c):
    # a is constant: drawn once or twice it is the same, so that the two sides can be
    # compared quantile by quantile.
    a = Element("a", time=t, dynamic_energy=d, static_power=8.0, device="gpu0")
    factored = predict(a >> (b | c))
    spread = predict((a >> b) | (a >> c))
    assert_same(spread.time, factored.time)
    assert_same(spread.static_energy, factored.static_energy)
    for p in LEVELS:
        low, high = factored.energy.quantile(p), spread.energy.quantile(p)
        assert high.value - low.value == pytest.approx(d, abs=RTOL * (1 + high.value))
        assert high.lower <= low.upper + d + 1e-9
        assert low.lower + d <= high.upper + 1e-9


@SETTINGS
@given(one, one, one)
def test_duplicated_dynamic_energy_is_that_of_the_first(a, b, c):
    factored, spread = predict(a >> (b | c)), predict((a >> b) | (a >> c))
    extra = spread.dynamic_energy.mean() - factored.dynamic_energy.mean()
    assert extra == pytest.approx(a.dynamic_energy.mean(), rel=RTOL, abs=1e-6)


def larger(e: Element, longer: list[float], more: list[float]) -> Element:
    """Stochastically larger in time and energy, run by run."""
    times, dynamics = (list(v) for v in zip(*outcomes(e), strict=True))
    t = [float(x) + longer[i % len(longer)] for i, x in enumerate(times)]
    d = [float(x) + more[i % len(more)] for i, x in enumerate(dynamics)]
    energy = [8.0 * x + y for x, y in zip(t, d, strict=True)]
    return Element.from_runs(
        e.name, time=t, energy=energy, static_power=8.0, device=e.devices
    )


@SETTINGS
@given(
    one,
    one,
    other_device,
    st.lists(quarters, min_size=1, max_size=3),
    st.lists(joules, min_size=1, max_size=3),
)
def test_a_larger_operand_lowers_no_quantile(a, b, x, longer, more):
    big = larger(a, longer, more)
    for compose in (
        lambda e: e >> b,
        lambda e: e | b,
        lambda e: e & x,
        lambda e: ((e >> b) | e) >> b,
    ):
        below, above = predict(compose(a)), predict(compose(big))
        for p in LEVELS:
            for name in ("time", "energy"):
                low = getattr(below, name).quantile(p)
                high = getattr(above, name).quantile(p)
                assert high.upper >= low.lower
                assert high.value >= low.value - RTOL * (1 + abs(low.value))


@SETTINGS
@given(one, st.integers(1, 3), st.integers(1, 3))
def test_repeats_add_up(a, m, n):
    together, apart = predict(a ** (m + n)), predict(a**m >> a**n)
    assert a ** (m + n) != a**m >> a**n
    assert_same(together.energy, apart.energy)
    assert_same(together.time, apart.time)


@SETTINGS
@given(one, one, st.integers(1, 2))
def test_repeats_add_up_beside_others(a, b, n):
    together, apart = predict((a ** (n + 1)) | b), predict((a**n >> a) | b)
    assert_same(together.energy, apart.energy)


# ---- joint laws ------------------------------------------------------------------


@SETTINGS
@given(
    st.lists(quarters, min_size=2, max_size=3, unique=True),
    st.lists(joules, min_size=2, max_size=3, unique=True),
    one,
)
def test_joint_is_independent_when_independent(times, dynamics, b):
    fixed: dict[str, Any] = {"static_power": 8.0, "device": "gpu0"}
    independent = Element(
        "a",
        time=Empirical(np.array(times)),
        dynamic_energy=Empirical(np.array(dynamics)),
        **fixed,
    )
    pairs = list(itertools.product(times, dynamics))
    joint = Element.from_runs(
        "a",
        time=[t for t, _ in pairs],
        energy=[8.0 * t + d for t, d in pairs],
        **fixed,
    )
    assert joint.coupled
    for compose in (lambda e: e | b, lambda e: (e >> b) | e, lambda e: e >> b):
        assert_same(
            predict(compose(joint)).energy, predict(compose(independent)).energy
        )


@SETTINGS
@given(elements(measured=True), elements(measured=True), other_device)
def test_brackets_of_coupled_runs_hold_the_brute_force_answer(a, b, x):
    term = ((a >> b) | a) & x
    assume(size_of(term) <= 1000)
    _, energy = enumerated(term, {"gpu0": 8.0, "gpu1": 8.0})
    found = predict(term).energy
    for p in (*LEVELS, 0.9999):
        q = found.quantile(p)
        assert q.lower <= float(exact_quantile(energy, p)) <= q.upper


@SETTINGS
@given(one, one)
def test_tails_are_asked_for_by_survival_probability(a, b):
    term = (a >> b) | b
    assume(size_of(term) <= 500)
    _, energy = enumerated(term, {"gpu0": 8.0})
    q = predict(term).energy.quantile(sf=1e-9)
    assert q.lower <= float(max(energy)) <= q.upper


@SETTINGS
@given(terms(depth=1, devices=("gpu0", "gpu1")), st.integers(0, 60))
def test_budget_is_the_probability_above(term, limit):
    assume(size_of(term) <= 500)
    _, energy = enumerated(term, {"gpu0": 8.0, "gpu1": 8.0})
    # Off the grid of all outcomes, so that no atom lies on the limit.
    over = predict(term).budget(limit + 0.01)
    true = float(sum(w for x, w in energy.items() if x > limit + Fraction(1, 100)))
    assert over.lower - 1e-12 <= true <= over.upper + 1e-12


def test_parallel_and_multi_parallel_differ_in_what_they_hold():
    a = Element("a", time=2.0, static_power=8.0, device="gpu0")
    x = Element("x", time=3.0, static_power=4.0, device="gpu1")
    b = Element("b", time=3.0, static_power=8.0, device="gpu0")
    assert predict(Parallel([a, b])).energy.mean() == 8.0 * 3.0
    assert predict(MultiParallel([a, x])).energy.mean() == 12.0 * 3.0
    assert predict((a & x) >> b).energy.mean() == 12.0 * 6.0
