"""Busy and idle time of devices: sums of means, united intervals, common factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.draws import DrawFactor
from probcalc.element import Element
from probcalc.montecarlo import simulate
from probcalc.occupancy import occupancy
from probcalc.plan import Plan, PlanNode


def on(name: str, time: Any, device: str = "gpu0") -> Element:
    return Element(name, time=time, static_power=60.0, device=device)


def test_overlapping_nodes_keep_a_device_busy_once() -> None:
    nodes = [
        PlanNode("a", on("a", 3.0)),
        PlanNode("b", on("b", 2.0), release=2.0),
        PlanNode("c", on("c", 1.0), release=6.0),
        PlanNode("d", on("d", 0.5), release=0.5),
        PlanNode("e", on("e", 8.0, "gpu1")),
    ]
    gpu0, gpu1 = occupancy(simulate(Plan.of(nodes), samples=50))
    assert (gpu0.busy.value, gpu0.idle.value) == (5.0, 3.0)  # 0..4 and 6..7
    assert gpu0.share.value == 3.0 / 8.0
    assert gpu0.idle_energy.value == 180.0
    assert (gpu1.busy.value, gpu1.idle.value) == (8.0, 0.0)
    assert gpu1.busy.kind == "certified"


def test_means_are_exact_sums_where_nodes_are_in_order() -> None:
    law = stats.gamma(4.0)
    nodes = [PlanNode(f"n{i}", on("n", law)) for i in range(5)]
    nodes.append(PlanNode("last", on("l", 1.0, "gpu1"), ["n4"]))
    plan = Plan.of(nodes, orders={"gpu0": [f"n{i}" for i in range(5)]})
    first, last = occupancy(simulate(plan, samples=4000, seed=1))
    assert first.busy.value == first.busy.upper == pytest.approx(20.0)
    assert first.idle.lower < 1.0 < first.idle.upper
    assert last.busy.value == 1.0
    assert last.idle.lower < 20.0 < last.idle.upper


def test_a_factor_of_all_nodes_leaves_the_idle_share_known() -> None:
    """Makespan and busy time of one sample are compared, not two means."""
    nodes = [
        PlanNode("a", on("a", 3.0), labels={"job": 0}),
        PlanNode("b", on("b", 1.0, "gpu1"), labels={"job": 0}),
    ]
    factor = DrawFactor("job", stats.lognorm(0.5), by="job")
    plan = Plan.of(nodes).drawn(factors=[factor])
    simulation = simulate(plan, samples=4000, seed=2)
    a, b = occupancy(simulation)
    assert a.idle.value == pytest.approx(0.0, abs=1e-6)
    assert a.idle.upper < 1e-6
    mean = float(np.exp(0.125))
    assert b.busy.lower < mean < b.busy.upper
    assert b.idle.lower < 2.0 * mean < b.idle.upper
