"""Frontiers of elements and compositions, and the Pareto kernels."""

from __future__ import annotations

import csv
import itertools
import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from probcalc.element import Element, transition
from probcalc.errors import CompositionError, InputError
from probcalc.frontier import (
    MIXED,
    Frontier,
    frontier_of,
    multi_parallel,
    parallel,
    repeat,
    sequential,
    switched,
)
from probcalc.kernels import pareto
from probcalc.operating import OperatingSet

Points = list[tuple[float, float]]


def unbeaten(points: Points) -> Points:
    """Points that no other one beats, by comparing all pairs."""
    distinct = sorted(set(points))
    return [
        p
        for p in distinct
        if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in distinct)
    ]


small = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
        lambda p: (float(p[0]), float(p[1]))
    ),
    min_size=1,
    max_size=9,
)


triples = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=3
)


def arrays(points: Points) -> tuple[np.ndarray, np.ndarray]:
    time, cost = np.array(points).T
    return time.copy(), cost.copy()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(small, small)
def test_kernels_keep_what_no_pair_beats_and_nothing_else(a: Points, b: Points) -> None:
    ta, ca = arrays(a)
    kept = pareto.reduced(ta, ca)
    assert list(zip(ta[kept], ca[kept], strict=True)) == unbeaten(a)
    # of equal points the first one stays
    assert all(a.index((float(ta[i]), float(ca[i]))) == i for i in kept)
    tb, cb = arrays(b)
    other = pareto.reduced(tb, cb)
    left, right = (ta[kept], ca[kept]), (tb[other], cb[other])
    for kernel, join in ((pareto.sums, np.add), (pareto.maxima, np.maximum)):
        i, j = kernel(*left, *right)
        time = join(left[0][i], right[0][j])
        cost = left[1][i] + right[1][j]
        every = [
            (float(join(p[0], q[0])), p[1] + q[1]) for p, q in itertools.product(a, b)
        ]
        assert list(zip(time, cost, strict=True)) == unbeaten(every)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(small)
def test_hull_is_the_largest_convex_function_below(a: Points) -> None:
    time, cost = arrays(unbeaten(a))
    corners = pareto.hull(time, cost)
    below = np.interp(time, time[corners], cost[corners])
    assert (cost >= below - 1e-12).all()
    slopes = np.diff(cost[corners]) / np.diff(time[corners])
    assert (np.diff(slopes) > 0.0).all()


def test_sums_that_tie_in_floating_point_keep_the_cheapest() -> None:
    big = 2.0**60
    i, j = pareto.sums(
        np.array([big]), np.array([0.0]), np.array([1.0, 2.0]), np.array([5.0, 3.0])
    )
    assert (i.tolist(), j.tolist()) == ([0], [1])


def operating(
    name: str,
    points: Points,
    *,
    device: str = "gpu0",
    clocks: list[int] | None = None,
    power: float = 10.0,
) -> OperatingSet:
    time, dynamic = zip(*points, strict=True)
    return OperatingSet.of(
        name, time=[1.0 + t for t in time], dynamic_energy=dynamic, device=device,
        static_power=power, device_points=clocks,
    )  # fmt: skip


def reached(frontier: Frontier) -> Points:
    kept = frontier.frontier()
    return list(zip(frontier.time[kept], frontier.energy[kept], strict=True))


def whole(points: Points) -> Points:
    return [(1.0 + t, d) for t, d in points]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(small, small, small)
def test_compositions_are_what_all_choices_give(
    a: Points, b: Points, c: Points
) -> None:
    first, second, third = (
        frontier_of(operating(n, p)) for n, p in zip("abc", (a, b, c), strict=True)
    )
    there = frontier_of(operating("c", c, device="gpu1"))
    every = list(itertools.product(whole(a), whole(b), whole(c)))
    assert reached(sequential(first, second, third)) == unbeaten(
        [(s := p[0] + q[0] + r[0], 10.0 * s + p[1] + q[1] + r[1]) for p, q, r in every]
    )
    # with slack: the second part is held to the end of the third
    joined = multi_parallel(sequential(first, second), there)
    assert reached(joined) == unbeaten(
        [
            (s := max(p[0] + q[0], r[0]), 20.0 * s + p[1] + q[1] + r[1])
            for p, q, r in every
        ]
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(triples, triples, small)
def test_parallel_parts_share_one_device_point(
    a: list[tuple[int, int]], b: list[tuple[int, int]], c: Points
) -> None:
    clocks = [1400, 1200, 1000]
    power = np.array([14.0, 12.0, 10.0])
    sets = [
        OperatingSet.of(
            name, time=[1.0 + t for t, _ in points],
            dynamic_energy=[float(d) for _, d in points], static_power=power,
            device="gpu0", device_points=clocks,
        )
        for name, points in (("a", a), ("b", b))
    ]  # fmt: skip
    base = {"gpu0": 10.0}
    left, right = (frontier_of(s, baselines=base) for s in sets)
    tail = frontier_of(operating("c", c))
    together = parallel(left, right)
    side = [
        (float(t := 1.0 + max(p[0], q[0])), float(s * t + p[1] + q[1]))
        for p, q, s in zip(a, b, power, strict=True)
    ]
    assert reached(together) == unbeaten(side)
    # inside a sequence, what is saved beyond the baseline counts
    after = sequential(together, tail)
    every = [(t + r[0], e + 10.0 * r[0] + r[1]) for t, e in side for r in whole(c)]
    assert reached(after) == unbeaten(every)
    for point in together.frontier().tolist():
        assert len({setting for _, setting in together.assignment(point)}) == 1


def test_a_sequence_under_parallel_keeps_its_clock() -> None:
    clocks = [1400, 1000]
    a = frontier_of(operating("a", [(0.0, 9.0), (1.0, 2.0)], clocks=clocks))
    b = frontier_of(operating("b", [(0.0, 4.0), (2.0, 3.0)], clocks=clocks))
    c = frontier_of(operating("c", [(0.0, 1.0), (3.0, 0.0)], clocks=clocks))
    free = sequential(a, b)
    assert MIXED in free.points
    assert reached(free) == [(2.0, 33.0)]
    held = parallel(free, c)
    assert [dict(held.assignment(i)) for i in range(len(held))] == [
        {"a": "1400", "b": "1400", "c": "1400"},
        {"a": "1000", "b": "1000", "c": "1000"},
    ]


def test_uniform_leaves_what_runs_at_one_device_point() -> None:
    clocks = [1400, 1000]
    a = frontier_of(operating("a", [(0.0, 90.0), (1.0, 2.0)], clocks=clocks))
    b = frontier_of(operating("b", [(0.0, 40.0), (2.0, 3.0)], clocks=clocks))
    both = sequential(a, b)
    assert reached(both) == unbeaten(
        [(2.0, 150.0), (3.0, 72.0), (4.0, 133.0), (5.0, 55.0)]
    )
    assert reached(both.uniform()) == [(2.0, 150.0), (5.0, 55.0)]
    away = frontier_of(operating("c", [(0.0, 1.0)], clocks=[700]))
    with pytest.raises(CompositionError, match="no device point at which all"):
        sequential(both, away).uniform()


def test_repeat_is_one_point_or_a_mixture() -> None:
    a = frontier_of(operating("a", [(0.0, 90.0), (1.0, 60.0), (2.0, 45.0)]))
    assert reached(repeat(a, 4)) == [
        (4.0, 400.0), (8.0, 320.0), (12.0, 300.0),
    ]  # fmt: skip
    mixed = repeat(a, 4, mixed=True)
    every = [
        (sum(t for t, _ in p), 10.0 * sum(t for t, _ in p) + sum(e for _, e in p))
        for p in itertools.product([(1.0, 90.0), (2.0, 60.0), (3.0, 45.0)], repeat=4)
    ]
    assert reached(mixed) == unbeaten(every)
    assert len(mixed.assignment(0)) == 4


def test_switching_costs_what_the_transition_takes() -> None:
    clocks = [1400, 1000]
    parts = [
        frontier_of(operating(n, p, clocks=clocks))
        for n, p in (
            ("a", [(0.0, 40.0), (1.0, 9.0)]),
            ("b", [(0.0, 5.0), (4.0, 4.0)]),
            ("c", [(0.0, 40.0), (1.0, 9.0)]),
        )
    ]

    def change(before: object, after: object) -> Element:
        return transition(
            before, after, time=0.25, dynamic_energy=1.0, static_power=10.0,
            device="gpu0",
        )  # fmt: skip

    found = switched(*parts, transition=change)
    every = []
    own = (
        [(1.0, 40.0), (2.0, 9.0)],
        [(1.0, 5.0), (5.0, 4.0)],
        [(1.0, 40.0), (2.0, 9.0)],
    )
    for picks in itertools.product(range(2), repeat=3):
        changes = sum(x != y for x, y in itertools.pairwise(picks))
        time = sum(p[k][0] for p, k in zip(own, picks, strict=True)) + 0.25 * changes
        cost = sum(p[k][1] for p, k in zip(own, picks, strict=True)) + changes
        every.append((time, 10.0 * time + cost))
    assert reached(found) == unbeaten(every)
    assert reached(found) != reached(sequential(*parts))


def test_slack_keeps_points_past_the_least_total_energy(
    shared_data: Callable[[str], pathlib.Path],
) -> None:
    """Kareus' sweep of windows and SM splits: 16 points in (T, d), 11 in (T, E)."""
    file = shared_data("energy/kareus/attention_overlap_sweep_default.csv")
    rows = list(csv.reader(file.read_text().splitlines()))[1:]
    values = np.array([[float(v) for v in row] for row in rows])
    time = values[:, 4::4].mean(axis=1)
    energy = values[:, 5::4].mean(axis=1)
    sweep = OperatingSet.of(
        "attention", time=time, energy=energy, static_power=120.0,
        devices=("gpu0", "gpu1"), element_points=[tuple(v) for v in values[:, :4]],
    )  # fmt: skip
    assert sweep.frontier().size == 11
    assert sweep.useful().size == 16
    assert set(sweep.frontier()) <= set(sweep.useful())


def test_laws_of_points_are_taken_at_their_means() -> None:
    law = stats.gamma(4.0, scale=0.25)
    points = [
        Element(
            "a", time=law, dynamic_energy=3.0, static_power=7.0, device="gpu0",
            operating_point=1400,
        ),
        Element(
            "a", time=2.0, dynamic_energy=1.0, static_power=5.0, device="gpu0",
            operating_point=1000,
        ),
    ]  # fmt: skip
    found = OperatingSet.of_elements("a", points)
    assert found.energy.tolist() == pytest.approx([10.0, 11.0])
    assert found.beyond(5.0).tolist() == pytest.approx([5.0, 1.0])
    with pytest.raises(InputError, match="state the baseline"):
        found.useful()
    with pytest.raises(InputError, match="state the baselines"):
        frontier_of(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time": [], "energy": []}, "has no points"),
        ({"time": [1.0, np.nan], "energy": [90.0, 90.0]}, "time of point 1 is NaN s"),
        ({"time": [1.0, 2.0], "energy": [90.0, np.inf]}, "energy of point 1 is inf J"),
        ({"time": [1.0, -2.0], "energy": [90.0, 1.0]}, "time of point 1 is -2 s"),
        (
            {"time": [1.0, 2.0], "energy": [90.0, 110.0]},
            "point 1: energy 110 J is below the static 60 W x 2 s = 120 J",
        ),
        (
            {"time": [1.0, 2.0], "energy": [90.0, 150.0], "device_points": [9, 9]},
            "points 0 and 1 have one setting 9",
        ),
        ({"time": [1.0, 2.0], "energy": [90.0]}, "expected 2"),
        ({"time": [1.0], "energy": [90.0], "dynamic_energy": [1.0]}, "give one of"),
        (
            {"time": [1.0], "energy": [90.0], "device_points": [1, 2]},
            "2 given for 1 points",
        ),
    ],
)
def test_bad_sets_are_named(given: dict[str, list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OperatingSet.of("rope", static_power=60.0, device="gpu0", **given)  # type: ignore[arg-type]


def test_compositions_that_cannot_be() -> None:
    a = frontier_of(operating("a", [(0.0, 1.0)], clocks=[1400]))
    b = frontier_of(operating("b", [(0.0, 1.0)], clocks=[1000]))
    there = frontier_of(operating("c", [(0.0, 1.0)], device="gpu1"))
    other = frontier_of(operating("d", [(0.0, 1.0)], power=11.0))
    with pytest.raises(CompositionError, match="no device point at which both"):
        parallel(a, b)
    with pytest.raises(CompositionError, match="expected the same"):
        parallel(a, there)
    with pytest.raises(CompositionError, match="both hold device 'gpu0'"):
        multi_parallel(a, b)
    with pytest.raises(CompositionError, match="baseline is 10 W for 'a' and 11 W"):
        sequential(a, other)
    with pytest.raises(InputError, match="no parts"):
        sequential()
