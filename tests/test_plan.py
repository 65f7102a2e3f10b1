"""Plans: what is kept, what is refused, and how terms and draw groups become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from probcalc.draws import DrawFactor
from probcalc.element import Element, idle
from probcalc.errors import CompositionError, InputError
from probcalc.kernels import graph
from probcalc.plan import EDGE_KINDS, Edge, Plan, PlanNode


def element(name: str, device: str = "gpu0", time: Any = 1.0, **fields: Any) -> Element:
    return Element(name, time=time, static_power=60.0, device=device, **fields)


def runs(name: str, device: str, times: list[float]) -> Element:
    energies = [70.0 * t for t in times]
    return Element.from_runs(
        name, time=times, energy=energies, static_power=60.0, device=device
    )


A, B = element("a"), element("b", "gpu1")


def test_parallel_edges_keep_the_largest_lag() -> None:
    nodes = [PlanNode("x", A), PlanNode("y", B, [Edge("x", 40.0), Edge("x", 3.0)])]
    plan = Plan.of(nodes)
    assert plan.lags.tolist() == [40.0]
    assert plan.sources.tolist() == [0]
    assert plan.targets.tolist() == [1]


def test_orders_become_serial_edges() -> None:
    nodes = [PlanNode("x", A), PlanNode("y", A), PlanNode("z", A)]
    assert not Plan.of(nodes).serial("gpu0")
    plan = Plan.of(nodes, orders={"gpu0": ["z", "x", "y"]})
    assert plan.serial("gpu0")
    assert {(plan.names[a], plan.names[b]) for a, b in _edges(plan)} == {
        ("z", "x"),
        ("x", "y"),
    }
    assert {EDGE_KINDS[k] for k in plan.kinds} == {"serial"}


def _edges(plan: Plan) -> list[tuple[int, int]]:
    return list(zip(plan.sources.tolist(), plan.targets.tolist(), strict=True))


def test_nodes_keep_their_order_and_levels() -> None:
    nodes = [
        PlanNode("late", A, ["early"]),
        PlanNode("early", B, labels={"microbatch": 3}),
        PlanNode("last", A, ["late", "early"], release=2.5),
    ]
    plan = Plan.of(nodes)
    assert plan.names == ("late", "early", "last")
    assert plan.level.tolist() == [1, 0, 2]
    assert plan.order.tolist() == [1, 0, 2]
    assert plan.releases.tolist() == [0.0, 0.0, 2.5]
    assert plan.labels["microbatch"] == (None, 3, None)
    assert plan.index("last") == 2
    assert len(plan) == 3


def test_an_element_placed_elsewhere_keeps_its_law_and_power() -> None:
    plan = Plan.of([PlanNode("x", A, device="gpu7"), PlanNode("y", A)])
    assert plan.devices == ("gpu7", "gpu0")
    assert plan.baselines == {"gpu7": 60.0, "gpu0": 60.0}
    assert plan.elements[0].time is A.time


def test_arrays_are_read_only() -> None:
    plan = Plan.of([PlanNode("x", A), PlanNode("y", B, ["x"])])
    for array in (plan.element_of, plan.lags, plan.level, plan.draws.rows):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_term_becomes_one_node_per_execution() -> None:
    plan = Plan.from_term((A & B) >> (A**3) >> B)
    assert plan.names == ("a#1", "b#1", "a#2", "a#3", "a#4", "b#2")
    assert _edges(plan) == [(0, 2), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert len(plan.elements) == 2


def test_barriers_between_composites() -> None:
    plan = Plan.from_term((A & B) >> (B & A))
    assert sorted(_edges(plan)) == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_deep_terms_are_laid_out_without_recursion() -> None:
    term = A
    for _ in range(3000):
        term = (term >> A) | A
    plan = Plan.from_term(term)
    assert len(plan) == 6001


def test_what_nothing_runs_holds_no_device() -> None:
    plan = Plan.from_arrays(
        elements=[A, B], element_of=[0, 0], sources=[0], targets=[1]
    )
    assert plan.devices == ("gpu0",)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "empty": (lambda: Plan.of([]), "has no nodes"),
    "cycle": (
        lambda: Plan.of([PlanNode("x", A, ["y"]), PlanNode("y", B, ["x"])]),
        "wait for each other: (x -> y -> x|y -> x -> y)",
    ),
    "itself": (lambda: Plan.of([PlanNode("x", A, ["x"])]), "x -> x"),
    "order against data": (
        lambda: Plan.of(
            [PlanNode("F", A), PlanNode("B", A, ["F"])], orders={"gpu0": ["B", "F"]}
        ),
        "wait for each other: (F -> B -> F|B -> F -> B)",
    ),
    "unknown": (lambda: Plan.of([PlanNode("x", A, ["q"])]), "no node 'q'"),
    "twice": (
        lambda: Plan.of([PlanNode("x", A), PlanNode("x", B)]),
        "'x' is stated twice",
    ),
    "no name": (lambda: Plan.of([PlanNode(" ", A)]), "expected a name"),
    "no element": (
        lambda: Plan.of([PlanNode("x", A >> A)]),  # type: ignore[arg-type]
        "node 'x': expected an Element, got Sequential",
    ),
    "after a text": (lambda: Plan.of([PlanNode("x", A, "y")]), "expected a list"),
    "lag": (
        lambda: Plan.of([PlanNode("x", A), PlanNode("y", B, [Edge("x", -1.0)])]),
        "node 'y', lag is -1.0, expected seconds >= 0",
    ),
    "release": (
        lambda: Plan.of([PlanNode("x", A, release=float("nan"))]),
        "node 'x', release is nan",
    ),
    "kind": (
        lambda: Plan.of([PlanNode("x", A), PlanNode("y", B, [Edge("x", kind="why")])]),  # type: ignore[arg-type]
        "kind of an edge is 'why'",
    ),
    "order elsewhere": (
        lambda: Plan.of([PlanNode("x", A)], orders={"gpu1": ["x"]}),
        "order of 'gpu1': node 'x' does not run there",
    ),
    "powers differ": (
        lambda: Plan.of(
            [
                PlanNode("x", A),
                PlanNode("y", Element("c", time=1, static_power=50, device="gpu0")),
            ]
        ),
        "static power is 60 W for 'a' and 50 W for 'c'",
    ),
    "baseline of nobody": (
        lambda: Plan.of([PlanNode("x", A)], baselines={"gpu9": 1.0}),
        "unknown device 'gpu9'",
    ),
    "array index": (
        lambda: Plan.from_arrays(
            elements=[A], element_of=[0, 1], sources=[], targets=[]
        ),
        "element_of: entry 1 is 1, expected 0 to 0",
    ),
    "array lag": (
        lambda: Plan.from_arrays(
            elements=[A], element_of=[0, 0], sources=[0], targets=[1], lags=[-2]
        ),
        "lags: entry 0 is -2",
    ),
    "labels": (
        lambda: Plan.from_arrays(
            elements=[A],
            element_of=[0, 0],
            sources=[],
            targets=[],
            labels={"stage": [1]},
        ),
        "1 labels 'stage' for 2 nodes",
    ),
    "two operating points": (
        lambda: Plan.of(
            [
                PlanNode("x", element("p", operating_point="1410 MHz")),
                PlanNode("y", element("q", operating_point="900 MHz")),
            ]
        ),
        "nodes 'x' and 'y' can overlap at two operating points",
    ),
    "devices": (lambda: Plan.of([PlanNode("x", A, devices=["g", "h"])]), "placed on 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_plans_are_refused_by_name(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_operating_points_one_after_the_other_are_fine() -> None:
    fast, slow = (element(n, operating_point=n) for n in ("1410 MHz", "900 MHz"))
    plan = Plan.of([PlanNode("x", fast), PlanNode("y", slow, ["x"])])
    assert plan.serial("gpu0")
    with pytest.raises(CompositionError):
        Plan.of([PlanNode("x", fast), PlanNode("y", slow)])


def test_a_node_of_no_duration_is_a_node() -> None:
    gap = idle(0.0, device="gpu0", static_power=60.0)
    assert len(Plan.of([PlanNode("x", gap)])) == 1


# -- draw groups


def two_microbatches() -> Plan:
    f = runs("f", "gpu0", [1.0, 2.0, 3.0])
    b = runs("b", "gpu1", [2.0, 4.0, 6.0])
    nodes = [
        PlanNode(f"{e.name}{m}", e, labels={"microbatch": m, "rank": m % 2})
        for m in range(2)
        for e in (f, b)
    ]
    return Plan.of([*nodes, PlanNode("end", idle(0.0, device="gpu0", static_power=60))])


def test_rows_are_drawn_together_by_label() -> None:
    plan = two_microbatches()
    assert plan.draws.fresh
    assert plan.draws.sentence == "every node draws afresh"
    grouped = plan.drawn(rows="microbatch")
    assert grouped.draws.rows.tolist() == [0, 0, 1, 1, 2]
    assert not grouped.draws.fresh
    assert "one microbatch draw one measured row" in grouped.draws.sentence
    both = plan.drawn(rows=("microbatch", "rank"))
    assert both.draws.rows.tolist() == [0, 0, 1, 1, 2]


def test_factors_nest_with_rows() -> None:
    rank = DrawFactor("rank", stats.lognorm(0.1), by="rank", acts_on="both")
    plan = two_microbatches().drawn(rows="microbatch", factors=[rank])
    assert plan.draws.factors[0].ids.tolist() == [0, 0, 1, 1, -1]
    assert "one draw per rank" in plan.draws.sentence


def _mixed(other: Element) -> Plan:
    f = runs("f", "gpu0", [1.0, 2.0, 3.0])
    labels = {"microbatch": 0}
    return Plan.of(
        [PlanNode("x", f, labels=labels), PlanNode("y", other, labels=labels)]
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: two_microbatches().drawn(rows="step"),
            "no label 'step', the plan has",
        ),
        (
            lambda: _mixed(runs("b", "gpu1", [1.0, 2.0])).drawn(rows="microbatch"),
            "element 'b' has 2 runs and 'f' 3",
        ),
        (
            lambda: _mixed(element("b", "gpu1", stats.gamma(2.0))).drawn("microbatch"),
            "element 'b' has a law without runs",
        ),
        (
            lambda: DrawFactor("r", stats.norm(1.0, 0.1), by="rank"),
            "goes down to -inf, expected a positive factor",
        ),
        (
            lambda: DrawFactor("r", 1.0, by="rank", acts_on=cast(Any, "x")),
            "acts_on is 'x'",
        ),  # type: ignore[arg-type]
        (
            lambda: two_microbatches().drawn(
                factors=[DrawFactor("r", 1.0, by="rank")] * 2
            ),
            "the name is taken",
        ),
    ],
)
def test_bad_groups_are_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


# -- graphs


@st.composite
def digraphs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 12))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return n, array[:, 0].copy(), array[:, 1].copy()


@settings(max_examples=200, deadline=None)
@given(digraphs())
def test_levels_and_cycles_agree(case: tuple[int, np.ndarray, np.ndarray]) -> None:
    n, sources, targets = case
    level = graph.levels(n, sources, targets)
    walk = graph.cycle(n, sources, targets)
    edges = set(zip(sources.tolist(), targets.tolist(), strict=True))
    if (level >= 0).all():
        assert walk.size == 0
        assert all(level[b] > level[a] for a, b in edges)
        for v in range(n):
            before = [int(level[a]) for a, b in edges if b == v]
            assert level[v] == max(before, default=-1) + 1
    else:
        ring = walk.tolist()
        assert ring
        assert all(
            (a, b) in edges for a, b in zip(ring, ring[1:] + ring[:1], strict=True)
        )


@settings(max_examples=100, deadline=None)
@given(digraphs(), st.data())
def test_reaching_is_having_a_path(
    case: tuple[int, np.ndarray, np.ndarray], data: st.DataObject
) -> None:
    n, a, b = case
    sources, targets = np.minimum(a, b)[a != b], np.maximum(a, b)[a != b]
    level = graph.levels(n, sources, targets)
    starts, indices = graph.adjacency(n, sources, targets)
    near = np.eye(n, dtype=bool)
    near[sources, targets] = True
    far = np.linalg.matrix_power(near.astype(float), n) > 0
    u, v = (data.draw(st.integers(0, n - 1)) for _ in range(2))
    assert graph.reaches(starts, indices, level, u, v) == far[u, v]
