"""Plans in TOML: nodes, orders, schedules and draw groups, and what is refused."""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any

import numpy as np
import pytest

from probcalc.elementspec import Scope, read_device, read_element
from probcalc.errors import CompositionError, InputError, PlanError, UnitError
from probcalc.plan import EDGE_KINDS, Plan
from probcalc.planspec import KEYS, read_nodes
from probcalc.schedules import one_f_one_b

HEAD = """
[devices]
gpu0.static_power = "60 W"
gpu1.static_power = "50 W"
[elements.f]
device = "gpu0"
time = { samples = [1.0, 1.2], unit = "s" }
energy = { samples = [90.0, 99.0], unit = "J" }
[elements.b]
device = "gpu0"
time = { samples = [2.0, 2.5], unit = "s" }
energy = { samples = [190.0, 199.0], unit = "J" }
[elements.w]
device = "gpu0"
time = "0.5 s"
[elements.both]
devices = ["gpu0", "gpu1"]
time = "0.25 s"
"""
NODES = """
[[nodes]]
name = "x"
element = "f"
labels = { microbatch = 0, part = "first" }
[[nodes]]
name = "y"
element = "b"
device = "gpu1"
after = ["x", { node = "x", lag = "2 ms", kind = "sync" }]
[[nodes]]
name = "z"
element = "f"
release = "1.5 s"
labels = { microbatch = 0 }
[orders]
gpu0 = ["x", "z"]
"""
SCHEDULE = """
[schedule]
kind = "1f1b"
stages = 2
microbatches = 4
forward = "f"
backward = ["b", "b"]
"""
DRAWS = """
[draws]
rows = "microbatch"
[[draws.factors]]
name = "slow"
law = { distribution = "lognormal", mean = 1, cv = 0.1 }
by = "stage"
acts_on = "time"
"""


def read(tables: str, head: str = HEAD, name: str | None = None) -> Plan:
    document: dict[str, Any] = tomllib.loads(head + tables)
    devices = {
        key: read_device(key, value, f"p.toml: devices.{key}")
        for key, value in document["devices"].items()
    }
    elements = {
        key: read_element(
            key, value, Scope(f"p.toml: {key}", pathlib.Path(), devices, {})
        )
        for key, value in document["elements"].items()
    }
    mine = {key: value for key, value in document.items() if key in KEYS}
    return read_nodes(mine, elements, devices, "p.toml", name=name)


def edges(plan: Plan) -> set[tuple[str, str]]:
    return {
        (plan.names[a], plan.names[b])
        for a, b in zip(plan.sources, plan.targets, strict=True)
    }


def test_nodes_with_lags_orders_and_labels() -> None:
    plan = read(NODES)
    assert plan.name == "p.toml"
    assert plan.names == ("x", "y", "z")
    assert edges(plan) == {("x", "y"), ("x", "z")}
    assert dict(zip(plan.targets.tolist(), plan.lags, strict=True)) == {1: 2e-3, 2: 0.0}
    assert {EDGE_KINDS[k] for k in plan.kinds} == {"data", "serial"}
    assert plan.releases.tolist() == [0.0, 0.0, 1.5]
    assert plan.labels == {"microbatch": (0, None, 0), "part": ("first", None, None)}
    assert plan.element_of.tolist() == [0, 1, 0]
    # The device's own power stands as what it draws idle.
    assert plan.baselines == {"gpu0": 60.0, "gpu1": 50.0}
    assert plan.elements[1].powers == {"gpu1": 60.0}
    assert plan.draws.fresh


def test_nodes_on_several_devices() -> None:
    plan = read(
        '[[nodes]]\nname = "a"\nelement = "both"\ndevices = ["gpu1", "gpu0"]\n',
        name="mine",
    )
    assert plan.name == "mine"
    assert plan.elements[0].devices == ("gpu1", "gpu0")


def test_a_schedule_is_what_its_generator_makes() -> None:
    plan = read(SCHEDULE)
    e = {e.name: e for e in plan.elements}
    other = one_f_one_b(2, 4, forward=e["f"], backward=e["b"], baselines={"gpu1": 50.0})
    assert plan.names == other.names
    assert edges(plan) == edges(other)
    assert plan.devices == ("gpu0", "gpu1")
    assert plan.baselines == {"gpu0": 60.0, "gpu1": 50.0}


def test_schedules_of_more_devices_than_are_described() -> None:
    plan = read(
        SCHEDULE.replace("stages = 2", "stages = 4").replace('["b", "b"]', '"b"')
    )
    assert sorted(plan.devices) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert plan.baselines["gpu3"] == 60.0


EXTRA = {
    "gpipe": ('kind = "gpipe"\nload = "w"\noptimiser = ["w", "w"]', 16 + 4 + 2),
    "lag": ('kind = "1f1b"\ntransfer = "3 ms"', 16),
    "transfer": ('kind = "1f1b"\ntransfer = "w"', 16 + 8),
    "loads": ('kind = "1f1b"\nload = { 0 = "w", 1 = "w" }', 16 + 8),
    "devices": ('kind = "1f1b"\ndevices = ["gpu1", "gpu0"]', 16),
    "interleaved": ('kind = "interleaved"\nchunks = 2', 32),
    "zero-bubble": ('kind = "zero-bubble"\nweight = "w"', 24),
}


@pytest.mark.parametrize("case", EXTRA)
def test_schedules_of_every_kind(case: str) -> None:
    tables, nodes = EXTRA[case]
    plan = read(SCHEDULE.replace('kind = "1f1b"', tables))
    assert len(plan) == nodes
    if case == "devices":
        assert plan.elements[plan.element_of[plan.index("F(0,0)")]].devices == ("gpu1",)
    if case == "lag":
        assert set(np.unique(plan.lags)) == {0.0, 3e-3}


def test_data_and_tensor_parallel() -> None:
    plan = read(
        '[schedule]\nkind = "data-parallel"\nreplicas = 2\nbuckets = 3\n'
        'forward = "f"\nbackward = "b"\nall_reduce = "both"\noptimiser = "w"\n'
    )
    assert len(plan) == 2 * 5 + 3
    head = HEAD + '[elements.net]\ndevice = "link"\ntime = 1\n'
    head = head.replace("[devices]", '[devices]\nlink.static_power = "5 W"')
    plan = read(
        '[schedule]\nkind = "tensor-parallel"\nranks = 2\nlayers = 2\n'
        'attention = "f"\nmlp = "b"\nall_reduce = "net"\nnetwork = "link"\n',
        head,
    )
    assert len(plan) == 2 * 2 * 3
    assert plan.baselines == {"gpu0": 60.0, "gpu1": 50.0, "link": 5.0}


def test_places_of_several_devices() -> None:
    head = HEAD.replace(
        "[devices]", "[devices]\na.static_power = 1\nb.static_power = 1"
    )
    plan = read(
        '[schedule]\nkind = "gpipe"\nstages = 2\nmicrobatches = 1\nforward = "both"\n'
        'backward = "both"\ndevices = [["gpu0", "gpu1"], ["a", "b"]]\n',
        head,
    )
    assert plan.devices == ("gpu0", "gpu1", "a", "b")


def test_draw_groups() -> None:
    plan = read(SCHEDULE + DRAWS)
    assert len(set(plan.draws.rows.tolist())) == 4
    (factor,) = plan.draws.factors
    assert (factor.name, factor.by, factor.acts_on) == ("slow", ("stage",), "time")
    assert factor.ids.tolist() == list(plan.labels["stage"])
    assert "one microbatch draw one measured row together" in plan.draws.sentence
    plan = read(SCHEDULE + '[draws]\nrows = "node"\n')
    assert plan.draws.fresh
    plan = read(SCHEDULE + '[draws]\nrows = ["stage", "microbatch"]\n')
    assert plan.draws.rows_by == ("stage", "microbatch")


BAD: dict[str, tuple[str, str, str, str, type[InputError]]] = {
    "both": (NODES, "", SCHEDULE, "give one of [[nodes]] and [schedule]", PlanError),
    "unknown key": (
        NODES, 'element = "b"', 'element = "b"\nafther = []',
        "nodes[1]: unknown key 'afther'; did you mean 'after'?", PlanError,
    ),
    "no name": (NODES, 'name = "y"', "", "nodes[1]: 'name' is missing", PlanError),
    "empty name": (
        NODES, 'name = "y"', 'name = " "', "nodes[1].name: ' ' found; expected a name",
        PlanError,
    ),
    "two lines of a name": (
        NODES, 'name = "y"', 'name = "a\\nb"', "found; expected a name on one line",
        PlanError,
    ),
    "a name twice": (
        NODES, 'name = "y"', 'name = "x"', "nodes[1].name: 'x' is the name of nodes[0]",
        PlanError,
    ),
    "no element": (
        NODES, 'element = "b"', "", "node 'y': 'element' is missing", PlanError,
    ),
    "unknown element": (
        NODES, 'element = "b"', 'element = "boht"',
        "node 'y'.element: unknown element 'boht'; did you mean 'both'?", PlanError,
    ),
    "unknown device": (
        NODES, 'device = "gpu1"', 'device = "gpuu1"',
        "node 'y'.device: unknown device 'gpuu1'; did you mean 'gpu1'?", PlanError,
    ),
    "too many devices": (
        NODES, 'device = "gpu1"', 'devices = ["gpu1", "gpu0"]',
        "node 'y': element 'b': placed on 2 devices ['gpu1', 'gpu0'], expected 1",
        InputError,
    ),
    "device and devices": (
        NODES, 'device = "gpu1"', 'device = "gpu1"\ndevices = ["gpu1"]',
        "node 'y': give one of 'device' and 'devices'", PlanError,
    ),
    "unknown predecessor": (
        NODES, '["x", {', '["xx", {',
        "node 'y'.after[0]: unknown node 'xx'; did you mean 'x'?", PlanError,
    ),
    "unknown predecessor with a lag": (
        NODES, 'node = "x"', 'node = "q"', "node 'y'.after[1].node: unknown node 'q'",
        PlanError,
    ),
    "a predecessor that is a number": (
        NODES, '["x", {', "[1, {", "node 'y'.after[0]: 1 found; expected a table",
        PlanError,
    ),
    "predecessors as a text": (
        NODES, 'after = ["x", { node = "x", lag = "2 ms", kind = "sync" }]',
        'after = "x"', "node 'y'.after: 'x' found; expected a list", PlanError,
    ),
    "negative lag": (
        NODES, '"2 ms"', '"-2 ms"',
        "node 'y'.after[1].lag: '-2 ms' found; expected zero or more", PlanError,
    ),
    "lag of another dimension": (
        NODES, '"2 ms"', '"2 J"', "node 'y'.after[1].lag: unit 'J' of '2 J' is not a u",
        UnitError,
    ),
    "kind": (
        NODES, '"sync"', '"sink"', "node 'y'.after[1].kind: 'sink' found; expected one",
        PlanError,
    ),
    "nan release": (
        NODES, '"1.5 s"', "nan", "node 'z'.release: nan is not finite", InputError,
    ),
    "labels": (
        NODES, "microbatch = 0 }", "microbatch = 0.5 }",
        "node 'z'.labels.microbatch: 0.5 found; expected a whole number or a text",
        PlanError,
    ),
    "labels as a list": (
        NODES, "labels = { microbatch = 0 }", "labels = []",
        "node 'z'.labels: [] found; expected a table", PlanError,
    ),
    "cycle": (
        NODES, 'element = "f"\nlabels = { microbatch = 0, part = "first" }',
        'element = "f"\nafter = ["z"]', "nodes wait for each other: ", InputError,
    ),
    "an order of no device": (
        NODES, "gpu0 = [", "gpu7 = [", "orders: unknown key 'gpu7'; did you mean 'gpu",
        PlanError,
    ),
    "an order of unknown nodes": (
        NODES, '["x", "z"]', '["x", "zz"]', "orders.gpu0[1]: unknown node 'zz'; did",
        PlanError,
    ),
    "an order with nodes of another device": (
        NODES, '["x", "z"]', '["x", "y"]',
        "order of 'gpu0': node 'y' does not run there", InputError,
    ),
    "no nodes": (NODES, NODES, "nodes = []", "has no nodes, expected at least one",
                 InputError),
    "nodes as a table": (
        NODES, NODES, "[nodes]\na = 1", "nodes: {'a': 1} found; expected a list",
        PlanError,
    ),
    "orders of a schedule": (
        SCHEDULE, SCHEDULE, SCHEDULE + "[orders]\n", "orders: a schedule has its own",
        PlanError,
    ),
    "no kind": (
        SCHEDULE, 'kind = "1f1b"', "", "schedule: 'kind' is missing", PlanError,
    ),
    "unknown kind": (
        SCHEDULE, '"1f1b"', '"1f1"',
        "schedule.kind: unknown schedule '1f1'; did you mean '1f1b'?", PlanError,
    ),
    "no stages": (
        SCHEDULE, "stages = 2", "", "schedule: 'stages' is missing", PlanError,
    ),
    "zero stages": (
        SCHEDULE, "stages = 2", "stages = 0",
        "schedule: stages: expected a whole number >= 1, got 0", InputError,
    ),
    "stages as a text": (
        SCHEDULE, "stages = 2", 'stages = "2"',
        "schedule: stages: expected a whole number >= 1, got '2'", InputError,
    ),
    "chunks of 1f1b": (
        SCHEDULE, "stages = 2", "stages = 2\nchunks = 2",
        "schedule: unknown key 'chunks'; ", PlanError,
    ),
    "no weight": (
        SCHEDULE, '"1f1b"', '"zero-bubble"', "schedule: 'weight' is missing", PlanError,
    ),
    "unknown forward": (
        SCHEDULE, 'forward = "f"', 'forward = "g"',
        "schedule.forward: unknown element 'g'; known: b, both, f, w", PlanError,
    ),
    "unknown backward": (
        SCHEDULE, '["b", "b"]', '["b", "bth"]',
        "schedule.backward[1]: unknown element 'bth'; did you mean 'both'?", PlanError,
    ),
    "no forward": (
        SCHEDULE, 'forward = "f"', "forward = []",
        "schedule: forward: 0 elements, expected one Element, or 2", InputError,
    ),
    "backwards missing": (
        SCHEDULE, '["b", "b"]', '["b"]',
        "schedule: backward: 1 elements, expected one Element, or 2", InputError,
    ),
    "unknown transfer": (
        SCHEDULE, "stages", 'transfer = "ww"\nstages',
        "schedule.transfer: unknown element 'ww'; did you mean 'w'?", PlanError,
    ),
    "transfer of a dimension": (
        SCHEDULE, "stages", 'transfer = "2 W"\nstages',
        "schedule.transfer: unit 'W' of '2 W' is not a unit of time", UnitError,
    ),
    "loads of no stage": (
        SCHEDULE, "stages", 'load = { first = "w" }\nstages',
        "schedule.load: 'first' found; expected the number of a stage", PlanError,
    ),
    "loads past the last": (
        SCHEDULE, "stages", 'load = { 2 = "w" }\nstages',
        "schedule: load: stage 2 found, expected 0 to 1", InputError,
    ),
    "an unknown place": (
        SCHEDULE, "stages", 'devices = ["gpu0", "cpu1"]\nstages',
        "schedule.devices[1]: unknown device 'cpu1'; did you mean 'gpu1'?", PlanError,
    ),
    "a schedule that is no table": (
        SCHEDULE, SCHEDULE, "schedule = 1", "schedule: 1 found; expected a table",
        PlanError,
    ),
    "unknown rows": (
        DRAWS, '"microbatch"', '"microbach"', "draws: rows: no label 'microbach', the",
        InputError,
    ),
    "rows as a number": (
        DRAWS, '"microbatch"', "3", "draws.rows: 3 found; expected a text", PlanError,
    ),
    "unknown key of draws": (
        DRAWS, "rows =", "row =", "draws: unknown key 'row'; did you mean 'rows'?",
        PlanError,
    ),
    "a factor by no label": (
        DRAWS, '"stage"', '"rank"', "draws: draw factor 'slow': no label 'rank', the p",
        InputError,
    ),
    "a factor without a law": (
        DRAWS, "law = ", "# ", "draws.factors[0]: 'law' is missing", PlanError,
    ),
    "a factor that can be zero": (
        DRAWS, '{ distribution = "lognormal", mean = 1, cv = 0.1 }', "[0.0, 1.0]",
        "draws.factors[0]: draw factor 'slow': its law goes down to 0, expected a posi",
        InputError,
    ),
    "a factor on nothing": (
        DRAWS, '"time"', '"tim"', "draws.factors[0].acts_on: 'tim' found; expected one",
        PlanError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_plans_are_one_clear_line(case: str) -> None:
    good, old, new, message, kind = BAD[case]
    assert old in good
    bad = good.replace(old, new, 1) if old else good + new
    if good is DRAWS:
        bad = SCHEDULE + bad
    # A key at the top stands before all tables.
    tables, head = (bad, HEAD) if bad.lstrip().startswith("[") else ("", bad + HEAD)
    with pytest.raises(kind) as caught:
        read(tables, head)
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.toml: ")
    assert "\n" not in str(caught.value)


def test_static_powers_that_differ_need_a_device_that_is_described() -> None:
    head = HEAD + '[elements.hot]\ndevice = "gpu0"\nstatic_power = "70 W"\ntime = 1\n'
    tables = SCHEDULE.replace('["b", "b"]', '"hot"')
    assert read(tables, head).baselines == {"gpu0": 60.0, "gpu1": 50.0}
    with pytest.raises(CompositionError, match=r"p\.toml: schedule: device 'gpu2': "):
        read(tables.replace("stages = 2", "stages = 3"), head)


def test_a_cycle_made_by_an_order_is_named() -> None:
    tables = """
    [[nodes]]
    name = "F(0,0)"
    element = "f"
    [[nodes]]
    name = "B(0,0)"
    element = "b"
    after = ["F(0,0)"]
    [orders]
    gpu0 = ["B(0,0)", "F(0,0)"]
    """
    with pytest.raises(InputError) as caught:
        read(tables)
    assert str(caught.value) in (
        f"p.toml: plan 'p.toml': nodes wait for each other: {a} -> {b} -> {a}"
        for a, b in (("F(0,0)", "B(0,0)"), ("B(0,0)", "F(0,0)"))
    )
