"""Criticality of nodes, replayed samples, and rounding to ticks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.criticality import criticality, median_sample, replay, replays
from probcalc.draws import DrawFactor
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.lattice import Lattice
from probcalc.lowering import lowered, rounded
from probcalc.montecarlo import simulate
from probcalc.plan import Edge, Plan, PlanNode

UNEVEN = Lattice(1, 1.0, np.array([0.2, 0.3, 0.1, 0.4]))


def on(name: str, time: Any, device: str = "gpu0", **fields: Any) -> Element:
    return Element(name, time=time, static_power=60.0, device=device, **fields)


def makespans(plan: Plan, seed: int, count: int) -> Any:
    from probcalc.chunks import Work, compiled, samples_of

    low = lowered(plan)
    work = Work(low, 1.0, seed)
    ticks, _ = samples_of(work, 0, count, compiled(work, 256, None))
    return ticks * low.tick


def network() -> Plan:
    """Eleven activities with two critical chains, A E H and B E H, then J."""
    times = {
        "A": 8, "B": 14, "C": 15, "D": 17, "E": 10, "F": 7, "G": 18, "H": 5, "I": 2,
        "J": 17, "K": 14,
    }  # fmt: skip
    before = {
        "D": "AB", "E": "A", "F": "AB", "G": "C", "H": "BE", "I": "F", "J": "HI",
        "K": "HI",
    }  # fmt: skip
    return Plan.of(
        [
            PlanNode(name, on(name, float(time), f"d{name}"), [*before.get(name, "")])
            for name, time in times.items()
        ]
    )


def test_a_network_with_two_critical_chains() -> None:
    plan = network()
    found = simulate(plan, samples=300)
    q = found.time.quantile(0.5)
    assert (q.lower, q.value, q.upper) == (40.0, 40.0, 40.0)
    index = dict(zip(plan.names, criticality(plan, samples=50).index, strict=True))
    assert {name for name, share in index.items() if share == 1.0} == set("ABEFHIJ")
    assert {name for name, share in index.items() if share == 0.0} == set("CDGK")


def test_two_equal_nodes_are_critical_half_of_the_time() -> None:
    x, y = on("x", stats.gamma(2.0)), on("y", stats.gamma(2.0), "gpu1")
    found = criticality(
        Plan.of([PlanNode("x", x), PlanNode("y", y)]), samples=4000, seed=1
    )
    # Ties of 30 bits hardly occur: one of both is critical.
    assert abs(int(found.counts.sum()) - 4000) <= 2
    assert abs(found.index[0] - 0.5) < 4.0 * 0.5 / np.sqrt(4000)
    share = found.of("x")
    assert share.kind == "confidence"
    assert share.lower < 0.5 < share.upper


def test_ties_count_for_every_node() -> None:
    coin = Lattice(1, 1.0, np.array([0.5, 0.5]))
    plan = Plan.of([PlanNode("x", on("x", coin)), PlanNode("y", on("y", coin, "gpu1"))])
    found = criticality(plan, samples=4000, seed=2)
    # Each has the longest time with 3/4, both together with 1/2.
    error = 4.0 * np.sqrt(0.75 * 0.25 / 4000)
    assert np.abs(found.index - 0.75).max() < error


def test_waits_are_part_of_paths() -> None:
    nodes = [
        PlanNode("a", on("a", 1.0)),
        PlanNode("b", on("b", 1.0, "gpu1"), [Edge("a", lag=5.0)]),
        PlanNode("c", on("c", 2.0, "gpu2"), ["a"]),
        PlanNode("d", on("d", 1.0, "gpu3"), release=3.0),
        PlanNode("e", on("e", 1.0, "gpu4"), ["b", "c", "d"]),
    ]
    plan = Plan.of(nodes)
    assert criticality(plan, samples=3).index.tolist() == [1.0, 1.0, 0.0, 0.0, 1.0]
    one = replay(plan, sample=0)
    assert one.starts.tolist() == [0.0, 6.0, 1.0, 3.0, 7.0]
    assert one.finishes.tolist() == [1.0, 7.0, 3.0, 4.0, 8.0]
    assert one.makespan == 8.0


def test_replays_are_the_samples_of_the_simulation() -> None:
    """Although energies, with larger tables than times, are left out."""
    a = on("a", UNEVEN, dynamic_energy=stats.gamma(3.0))
    b = on("b", stats.lognorm(0.3), "gpu1", dynamic_energy=3.0)
    nodes = [
        PlanNode("a", a, labels={"rank": 0}),
        PlanNode("b", b, ["a"], labels={"rank": 1}),
    ]
    factor = DrawFactor("pace", stats.lognorm(0.1), by="rank")
    for plan in (Plan.of(nodes), Plan.of(nodes).drawn(factors=[factor])):
        right = makespans(plan, 5, 100)
        found = [one.makespan for one in replays(plan, samples=100, seed=5)]
        assert found == right.tolist()
        assert replay(plan, sample=37, seed=5).makespan == right[37]
        simulation = simulate(plan, samples=100, seed=5)
        middle = median_sample(simulation)
        assert right[middle] == pytest.approx(np.median(right), rel=0.05)
        counted = criticality(plan, samples=100, seed=5)
        assert counted.counts.tolist() == [100, 100]


@pytest.mark.parametrize("sample", [-1, True, 1.5, 1 << 32])
def test_samples_out_of_range_are_refused(sample: Any) -> None:
    with pytest.raises(InputError, match="replay: sample is"):
        replay(network(), sample=sample)


def test_draws_of_a_node_do_not_change_with_other_nodes() -> None:
    """Common random numbers: laws elsewhere, finer or coarser, leave them alone."""
    a, b = on("a", UNEVEN), on("b", UNEVEN, "gpu1")
    nodes = [PlanNode("a", a), PlanNode("b", b, ["a"])]
    right = makespans(Plan.of(nodes), 3, 200)
    for law in (0.0, Lattice(0, 2.0**-10, np.full(500, 1 / 500)), stats.uniform(0, 1)):
        more = PlanNode("c", on("c", law, "gpu2"))
        found = makespans(Plan.of([*nodes, more]), 3, 200)
        assert found == pytest.approx(right, rel=1e-8)


# -- rounding to ticks


def test_rounding_keeps_means_and_stays_next_to_values() -> None:
    rng = np.random.default_rng(7)
    for size in (1, 2, 3, 20, 1000):
        values = rng.gamma(2.0, 3.0, size)
        mass = rng.dirichlet(np.ones(size))
        found = rounded(values, mass)
        assert (found == np.rint(found)).all()
        assert (np.abs(found - values) < 1.0).all()
        assert (found >= 0.0).all()
        nearest = abs(float(mass @ (np.rint(values) - values)))
        assert abs(float(mass @ (found - values))) <= nearest
    assert abs(float(mass @ (found - values))) < 1e-3
    whole = np.array([0.0, 3.0, 7.0])
    assert (rounded(whole, np.full(3, 1 / 3)) == whole).all()


def test_long_plans_of_wide_laws_get_a_tick_that_keeps_their_mean() -> None:
    law = stats.lognorm(1.0)
    element = on("op", law)
    count = 3000
    plan = Plan.from_arrays(
        elements=[element],
        element_of=np.zeros(count, dtype=np.int64),
        sources=np.arange(count - 1),
        targets=np.arange(1, count),
    )
    low = lowered(plan, energy=False)
    assert low.shift > 1e-4 * count * law.mean()  # coarse, were it not for the mean
    found = simulate(plan, samples=2000, seed=1).time
    error = found.standard_error
    assert abs(found.mean() - count * law.mean()) < 4.0 * error
    right = np.sqrt(count) * law.std()
    assert found.standard_deviation() == pytest.approx(right, rel=0.07)


def test_constant_energies_are_exact() -> None:
    element = on("n", 0.1, dynamic_energy=0.3)
    found = simulate(Plan.of([PlanNode("n", element)]), samples=300)
    for law, right in ((found.energy, 6.3), (found.static_energy, 6.0)):
        q = law.quantile(0.5)
        assert q.lower == q.upper
        assert q.value == pytest.approx(right, rel=1e-13)
        assert law.mean() == pytest.approx(right, rel=1e-13)
