"""Terms: structure, device rules, and size without recursion or quadratic cost."""

from __future__ import annotations

import operator

import pytest

from probcalc.element import Element, idle, transition
from probcalc.errors import CompositionError, InputError
from probcalc.term import (
    MultiParallel,
    Parallel,
    Repeat,
    Sequential,
    executions,
    postorder,
)


def on(device, name="e", **fields) -> Element:
    return Element(name, time=1.0, static_power=60.0, device=device, **fields)


a, b, c = on("gpu0", "a"), on("gpu0", "b"), on("gpu0", "c")
x, y, z = on("gpu1", "x"), on("gpu2", "y"), on(("gpu0", "gpu1"), "z")


def test_operators_build_what_they_say():
    assert isinstance(a >> b, Sequential)
    assert isinstance(a | b, Parallel)
    assert isinstance(a & x, MultiParallel)
    assert isinstance(a**3, Repeat)
    assert (a >> x).devices == ("gpu0", "gpu1")
    assert (a | b).devices == ("gpu0",)
    assert (a & x).devices == ("gpu0", "gpu1")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((a >> b) >> c, a >> (b >> c)),
        ((a | b) | c, a | (b | c)),
        ((a & x) & y, a & (x & y)),
        ((a**2) ** 3, a**6),
        (Sequential([a, b, c]), a >> b >> c),
        (Parallel([a, b | c]), a | b | c),
    ],
)
def test_associative_operators_are_flat(left, right):
    assert left == right
    assert hash(left) == hash(right)
    assert left.parts == right.parts


def test_order_and_operator_matter_to_equality():
    assert a >> b != b >> a
    assert a >> b != a | b
    assert a**2 != a**3
    assert a**2 != a >> a
    assert (a >> b) != "a >> b"
    assert a**1 is a


def test_terms_are_frozen():
    with pytest.raises(AttributeError):
        (a >> b).parts = ()  # type: ignore[misc]


def test_precedence_is_pythons():
    term = a >> b**2 | c
    assert isinstance(term, Parallel)
    assert term.parts[1] is c
    assert term.parts[0] == a >> Repeat(b, 2)


def test_terms_read_as_expressions():
    assert str(a >> (b | c) ** 2 >> b**3) == "a >> (b | c) ** 2 >> b ** 3"
    assert repr((a & x) >> z) == "<Sequential: (a & x) >> z>"
    long = Sequential([a] * 1000)
    assert len(str(long)) <= 72
    assert str(long).endswith("...")


@pytest.mark.parametrize(
    ("compose", "words"),
    [
        (lambda: a | x, ("'a'", "'x'", "'gpu0'", "'gpu1'", "use &")),
        (lambda: a | z, ("'a'", "'z'", "share only 'gpu0'", ">>")),
        (lambda: (a >> b) | x, ("'a >> b'", "'x'", "use &")),
        (lambda: a & b, ("'a'", "'b'", "'gpu0'", "use |")),
        (lambda: a & z, ("'a'", "'z'", "they share 'gpu0'", ">>")),
        (lambda: (a & x) & (b >> y), ("they share 'gpu0'", ">>")),
        (lambda: Parallel([a, b, x]), ("'a'", "'x'", "use &")),
        (lambda: MultiParallel([a, x, b]), ("'b'", "'gpu0'")),
    ],
)
def test_device_rules_name_elements_devices_and_the_right_operator(compose, words):
    with pytest.raises(CompositionError) as caught:
        compose()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_parallel_needs_one_operating_point():
    slow = on("gpu0", "slow", operating_point={"sm_clock": 990})
    fast = on("gpu0", "fast", operating_point={"sm_clock": 1410})
    also = on("gpu0", "also", operating_point={"sm_clock": 990})
    assert isinstance(slow | also | a, Parallel)
    assert isinstance(slow >> fast, Sequential)
    for compose in (
        lambda: slow | fast,
        lambda: (slow >> fast) | a,
        lambda: Parallel([slow, also, fast]),
    ):
        with pytest.raises(CompositionError, match=r"'slow' is at.*'fast' at"):
            compose()


def test_nothing_runs_beside_a_transition():
    change = transition(1410, 990, time=0.1, static_power=60.0, device="gpu0")
    assert isinstance(a >> change >> b, Sequential)
    with pytest.raises(CompositionError, match="one operating point"):
        operator.or_(change, a)


def test_multi_parallel_may_differ_in_operating_points():
    fast = on("gpu0", operating_point=1410)
    slow = on("gpu1", operating_point=990)
    assert (fast & slow).devices == ("gpu0", "gpu1")


@pytest.mark.parametrize("n", [0, -1, 2.0, "2", True, None])
def test_repeat_takes_whole_numbers_from_one(n):
    with pytest.raises(InputError, match="whole number"):
        a.repeat(n)
    with pytest.raises(InputError, match="whole number"):
        operator.pow(a, n)


@pytest.mark.parametrize(
    "compose",
    [
        lambda: operator.rshift(a, 3),
        lambda: operator.or_(a, "b"),
        lambda: operator.and_(a, None),
        lambda: Sequential([a, 1.0]),  # type: ignore[list-item]
        lambda: Repeat(7, 2),  # type: ignore[arg-type]
    ],
)
def test_operands_are_terms(compose):
    with pytest.raises(CompositionError, match="expected an element or a term"):
        compose()


@pytest.mark.parametrize("kind", [Sequential, Parallel, MultiParallel])
def test_composites_have_parts(kind):
    with pytest.raises(CompositionError, match="no parts"):
        kind([])
    assert kind([a]).parts == (a,)


def test_executions_multiply_through_repeats():
    term = ((a >> b >> a) ** 5 >> a) ** 7
    counts = executions(term)
    assert counts[id(a)] == 7 * (5 * 2 + 1)
    assert counts[id(b)] == 35


def test_postorder_lists_parts_first_and_once():
    inner = a >> b
    term = (inner | c) >> inner
    order = list(postorder(term))
    assert len({id(node) for node in order}) == len(order)
    for node in order:
        for part in node.parts:
            assert order.index(part) < order.index(node)


def test_long_chains_and_deep_nesting_need_no_recursion():
    chain = a
    for _ in range(10_000):
        chain = chain >> b
    assert len(chain.parts) == 10_001
    deep = a
    for _ in range(5_000):
        deep = (deep >> b) | c
    assert sum(1 for _ in postorder(deep)) == 10_003
    assert hash(deep) == hash(deep)
    again = a
    for _ in range(5_000):
        again = (again >> b) | c
    assert deep == again
    assert len(str(deep)) <= 72


def test_large_repeats_expand_nothing():
    term = (a >> b) ** 10**9
    assert sum(1 for _ in postorder(term)) == 4
    assert executions(term)[id(a)] == 10**9


def test_idle_holds_its_device():
    assert (idle(1.0, device="gpu1", static_power=60.0) & a).devices == (
        "gpu1",
        "gpu0",
    )


def test_plus_and_times_are_refused_with_what_is_meant() -> None:
    e = Element("a", time=1.0, static_power=1.0, device="gpu0")
    for made in (lambda: e + e, lambda: sum([e, e])):  # type: ignore[operator]
        with pytest.raises(CompositionError, match=">> \\(one after the other"):
            made()
    for made in (lambda: e * 3, lambda: 3 * e):  # type: ignore[operator]
        with pytest.raises(CompositionError, match="\\*\\* n or"):
            made()
