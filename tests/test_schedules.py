"""Schedules: the reference's graphs, published bubble formulas, refused arguments."""

from __future__ import annotations

import hashlib
import itertools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probcalc.element import Element
from probcalc.errors import CompositionError, InputError
from probcalc.plan import EDGE_KINDS, Plan
from probcalc.schedules import (
    data_parallel,
    gpipe,
    interleaved,
    one_f_one_b,
    tensor_parallel,
    zero_bubble,
)


def element(name: str, time: float, *devices: str) -> Element:
    hosts = devices or ("gpu0",)
    return Element(
        name, time=time, static_power=dict.fromkeys(hosts, 60.0), devices=hosts
    )


F, B, W = element("forward", 1.0), element("backward", 2.0), element("weight", 1.0)


def finishes(plan: Plan, times: np.ndarray | None = None) -> np.ndarray:
    """Finish of every node, of mean times or of times of shape (nodes, ...)."""
    if times is None:
        times = np.array([e.time.mean() for e in plan.elements])[plan.element_of]
    finish = np.zeros_like(times)
    starts = np.zeros_like(times) + plan.releases.reshape(-1, *[1] * (times.ndim - 1))
    out: list[list[int]] = [[] for _ in range(len(plan))]
    for k, source in enumerate(plan.sources.tolist()):
        out[source].append(k)
    for i in plan.order:
        finish[i] = starts[i] + times[i]
        for k in out[i]:
            j = plan.targets[k]
            starts[j] = np.maximum(starts[j], finish[i] + plan.lags[k])
    return finish


def makespan(plan: Plan) -> float:
    return float(finishes(plan).max())


def on(plan: Plan, device: str) -> list[str]:
    """Names of the nodes of a device, by level."""
    return [
        plan.names[i]
        for i in plan.order
        if device in plan.elements[plan.element_of[i]].devices
    ]


# --- the graphs of the reference -------------------------------------------------

GENERATED: dict[str, Callable[..., Plan]] = {
    "1f1b": one_f_one_b,
    "gpipe": gpipe,
    "zb_h1": zero_bubble,
}


def reference(case: dict[str, Any]) -> Plan:
    dag = case["dag"]
    generator, *given = dag["generator"].split()
    counts = dict(text.split("=") for text in given) or dag
    arguments = {"weight": W} if generator == "zb_h1" else {}
    return GENERATED[generator](
        int(counts["P"]), int(counts["M"]), forward=F, backward=B, **arguments
    )


def edges_sha256(plan: Plan) -> str:
    """Hash of the sorted pairs (source, target) as compact JSON."""
    pairs = sorted(zip(plan.sources.tolist(), plan.targets.tolist(), strict=True))
    return hashlib.sha256(json.dumps(pairs, separators=(",", ":")).encode()).hexdigest()


def test_generators_reproduce_the_graphs_of_the_reference(
    shared_data: Callable[[str], pathlib.Path],
) -> None:
    cases = json.loads(shared_data("reference/plans.json").read_text())["cases"]
    checked = 0
    for case in cases:
        if "edges_sha256" not in case.get("dag", {}):
            continue
        plan, dag = reference(case), case["dag"]
        assert len(plan) == dag["nodes"], case["name"]
        assert edges_sha256(plan) == dag["edges_sha256"], case["name"]
        if "preds" in dag:
            before: list[set[int]] = [set() for _ in range(len(plan))]
            for a, b in zip(plan.sources.tolist(), plan.targets.tolist(), strict=True):
                before[b].add(a)
            assert before == [set(p) for p in dag["preds"]], case["name"]
            devices = [plan.elements[e].devices for e in plan.element_of]
            assert devices == [(f"gpu{d}",) for d in dag["device"]], case["name"]
        if "op_kind" in dag:
            kinds = ("forward", "backward", "weight")
            assert plan.labels["kind"] == tuple(kinds[k] for k in dag["op_kind"])
        checked += 1
    assert checked == 15


@pytest.mark.parametrize("job", ["ST", "SE"])
def test_1f1b_replays_recorded_steps_as_the_reference_does(
    shared_data: Callable[[str], pathlib.Path], job: str
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    cases = json.loads(shared_data("reference/plans.json").read_text())["cases"]
    (case,) = (c for c in cases if c["name"] == f"bytedance_replay_{job}")
    P, M, dp = (case["dag"][key] for key in ("P", "M", "dp"))
    table = parquet.read_table(shared_data(case["file"].replace("data_dag/", "dag/")))
    columns = {
        name: table[name].to_numpy()
        for name in ("step", "dp_rank", "stage", "seq_id", "duration")
    }
    kind = np.array(table["optype"].to_pylist())
    steps = np.unique(columns["step"])
    took = {}
    for name in ("forward", "backward"):
        mine = np.flatnonzero(kind == f"{name}-compute")
        keys = [columns[key][mine] for key in ("seq_id", "stage", "dp_rank", "step")]
        ordered = columns["duration"][mine[np.lexsort(keys)]].astype(float)
        took[name] = ordered.reshape(steps.size, dp, P, M)
    plan = one_f_one_b(P, M, forward=F, backward=B)
    labels = (plan.labels[key] for key in ("kind", "stage", "microbatch"))
    times = np.array([took[k][..., s, m] for k, s, m in zip(*labels, strict=True)])
    # Ranks of data parallelism end a step together.
    replayed = finishes(plan, times).max(axis=0).max(axis=1)
    assert replayed == pytest.approx(case["replay_s"], rel=1e-12)


# --- bubbles ------------------------------------------------------------------------

SIZES = [(1, 1), (1, 5), (2, 2), (4, 4), (4, 16), (5, 7), (8, 32)]


@pytest.mark.parametrize(("P", "M"), [*SIZES, (6, 3)])
@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
def test_bubble_of_gpipe_and_1f1b(
    schedule: Callable[..., Plan], P: int, M: int
) -> None:
    assert makespan(schedule(P, M, forward=F, backward=B)) == (M + P - 1) * 3.0


@pytest.mark.parametrize(("P", "M"), [(1, 3), (2, 2), (2, 6), (4, 4), (4, 16), (8, 16)])
@pytest.mark.parametrize("V", [1, 2, 3])
def test_bubble_of_interleaved_chunks_is_divided_by_their_number(
    P: int, M: int, V: int
) -> None:
    f, b = element("f", 1.0 / V), element("b", 2.0 / V)
    plan = interleaved(P, M, V, forward=f, backward=b)
    assert makespan(plan) == pytest.approx(M * 3.0 + (P - 1) * 3.0 / V, rel=1e-12)


@pytest.mark.parametrize(("P", "M"), SIZES)
@pytest.mark.parametrize(
    ("f", "b", "w"), [(1.0, 1.0, 1.0), (1.0, 2.0, 1.0), (2.0, 2.0, 0.5)]
)
def test_bubble_of_zb_h1(P: int, M: int, f: float, b: float, w: float) -> None:
    plan = zero_bubble(
        P, M, forward=element("f", f), backward=element("b", b), weight=element("w", w)
    )
    assert makespan(plan) == M * (f + b + w) + (P - 1) * (f + b - w)


def test_one_slow_stage_in_four() -> None:
    slow = [element("b", t) for t in (2.0, 2.0, 2.0, 5.0)]
    assert makespan(one_f_one_b(4, 4, forward=F, backward=slow)) == 33.0


def test_interleaved_with_one_chunk_has_the_order_of_1f1b_but_for_its_warm_up() -> None:
    plan = interleaved(1, 6, 1, forward=F, backward=B)
    other = one_f_one_b(1, 6, forward=F, backward=B)
    assert [name.partition(",0)")[0] for name in plan.names] == [
        name.partition(",0)")[0] for name in other.names
    ]


@pytest.mark.parametrize(("P", "M"), SIZES)
def test_activations_held_by_1f1b_and_zb_h1(P: int, M: int) -> None:
    plans = {
        "B": one_f_one_b(P, M, forward=F, backward=B),
        "W": zero_bubble(P, M, forward=F, backward=B, weight=W),
    }
    for stage in range(P):
        for freed, plan in plans.items():
            order = [name[0] for name in on(plan, f"gpu{stage}")]
            held = [(n == "F") - (n == freed) for n in order]
            most = max(itertools.accumulate(held))
            assert most == min(M, P - stage) if freed == "B" else most <= P


def test_every_device_runs_its_nodes_one_after_the_other() -> None:
    for plan in (
        gpipe(4, 6, forward=F, backward=B),
        one_f_one_b(4, 6, forward=F, backward=B),
        interleaved(3, 6, 2, forward=F, backward=B),
        zero_bubble(4, 6, forward=F, backward=B, weight=W),
    ):
        assert all(plan.serial(device) for device in plan.devices)


# --- what nodes are -----------------------------------------------------------------


def test_labels_and_names() -> None:
    plan = interleaved(2, 2, 2, forward=F, backward=B, optimiser=W)
    i = plan.index("B(1,0,1)")
    assert {key: column[i] for key, column in plan.labels.items()} == {
        "kind": "backward",
        "stage": 1,
        "microbatch": 0,
        "chunk": 1,
    }
    i = plan.index("O(1)")
    assert plan.labels["microbatch"][i] is None
    assert plan.labels["kind"][i] == "optimiser"
    assert one_f_one_b(2, 2, forward=F, backward=B).labels["chunk"] == (0,) * 8


def test_elements_are_placed_on_the_stages() -> None:
    fs = [element(f"f{s}", 1.0 + s) for s in range(3)]
    plan = one_f_one_b(3, 2, forward=fs, backward=B, devices=["a", "b", "c"])
    assert sorted(plan.devices) == ["a", "b", "c"]
    held = {(e.name, *e.devices) for e in plan.elements}
    assert ("f2", "c") in held
    assert ("backward", "b") in held
    assert len(held) == 6


def test_chunks_can_have_an_element_each() -> None:
    fs = [element(f"f{s}", 1.0) for s in range(4)]
    plan = interleaved(2, 2, 2, forward=fs, backward=B)
    of = {plan.names[i]: plan.elements[e].name for i, e in enumerate(plan.element_of)}
    assert [of[f"F({d},1,{v})"] for v in (0, 1) for d in (0, 1)] == [
        "f0", "f1", "f2", "f3",
    ]  # fmt: skip


def test_stages_of_several_devices() -> None:
    f, b = element("f", 1.0, "x", "y"), element("b", 2.0, "x", "y")
    plan = gpipe(2, 2, forward=f, backward=b)
    assert sorted(plan.devices) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    plan = gpipe(2, 2, forward=f, backward=b, devices=[("a", "b"), ("c", "d")])
    assert sorted(plan.devices) == ["a", "b", "c", "d"]


def test_microbatches_can_draw_rows_together() -> None:
    times = [1.0, 2.0, 4.0]
    f, b = (
        Element.from_runs(
            n, time=times, energy=[99.0 * t for t in times], static_power=60.0,
            device="x",
        )
        for n in "fb"
    )  # fmt: skip
    plan = one_f_one_b(2, 3, forward=f, backward=b).drawn("microbatch")
    assert len(set(plan.draws.rows.tolist())) == 3


# --- transfers, loads, optimisers ---------------------------------------------------


def test_a_lag_lies_between_stages_alone() -> None:
    plan = gpipe(3, 1, forward=F, backward=B, transfer=0.25)
    assert makespan(plan) == 3 * 3.0 + 4 * 0.25
    within = [
        k
        for k, (a, b) in enumerate(zip(plan.sources, plan.targets, strict=True))
        if plan.labels["stage"][a] == plan.labels["stage"][b]
    ]
    assert not plan.lags[within].any()


def test_transfers_take_turns_on_a_link() -> None:
    slow = element("send", 4.0, "link")
    plan = gpipe(2, 3, forward=F, backward=B, transfer=slow)
    # F(0, 0) ends at 1, then three transfers, F(1, 2) and B(1, 0): the three of the
    # way back start at 1 + 12 + 1 + 2, and B(0, 2) ends 2 after them.
    assert makespan(plan) == 1 + 12 + 1 + 2 + 12 + 2
    assert plan.serial("gpu0->gpu1")
    assert on(plan, "gpu1->gpu0") == ["SB(1,0)", "SB(1,1)", "SB(1,2)"]
    assert plan.labels["kind"].count("transfer") == 6


def test_transfers_in_a_ring_of_two_devices_take_turns_both_ways() -> None:
    sent = element("send", 0.5, "link")
    plan = interleaved(2, 4, 2, forward=F, backward=B, transfer=sent)
    assert all(plan.serial(device) for device in plan.devices)
    stems = {name.partition("(")[0] for name in on(plan, "gpu1->gpu0")}
    assert stems == {"SF", "SB"}


def test_transfers_can_hold_both_stages() -> None:
    sent = element("send", 0.5, "x", "y")
    plan = one_f_one_b(3, 2, forward=F, backward=B, transfer=sent)
    assert sorted(plan.devices) == ["gpu0", "gpu1", "gpu2"]
    i = plan.index("SB(2,1)")
    assert plan.elements[plan.element_of[i]].devices == ("gpu2", "gpu1")


def test_loads_come_before_forwards() -> None:
    load = element("load", 0.5)
    plan = one_f_one_b(2, 3, forward=F, backward=B, load=load)
    assert on(plan, "gpu0")[:4] == ["L(0,0)", "F(0,0)", "L(0,1)", "F(0,1)"]
    plan = one_f_one_b(2, 3, forward=F, backward=B, load={0: load, 1: load})
    assert on(plan, "gpu1")[:3] == ["L(1,0)", "F(1,0)", "B(1,0)"]
    plan = gpipe(1, 3, forward=F, backward=B, load=load)
    assert makespan(plan) == 3 * 3.5


def test_optimisers_come_last() -> None:
    steps = [element("step", 1.0), element("step", 7.0)]
    plan = gpipe(2, 2, forward=F, backward=B, optimiser=steps)
    assert [on(plan, f"gpu{s}")[-1] for s in (0, 1)] == ["O(0)", "O(1)"]
    # Stage 1 ends its last backward at 3 + 2 * 2 and then takes 7.
    assert makespan(plan) == 14.0


def test_baselines_are_those_stated() -> None:
    plan = gpipe(2, 1, forward=F, backward=B, baselines={"gpu1": 55.0})
    assert plan.baselines == {"gpu0": 60.0, "gpu1": 55.0}
    with pytest.raises(InputError, match="unknown device 'gpu9'"):
        gpipe(2, 1, forward=F, backward=B, baselines={"gpu9": 55.0})


def test_shorter_static_power_of_one_element_needs_a_baseline() -> None:
    f = Element("f", time=1.0, static_power=70.0, device="gpu0")
    with pytest.raises(CompositionError, match="state what it draws then"):
        gpipe(2, 1, forward=f, backward=B)


# --- data and tensor parallel -----------------------------------------------------


@pytest.mark.parametrize("reduce", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("replicas", [1, 4])
def test_all_reduces_overlap_the_backward(replicas: int, reduce: float) -> None:
    plan = data_parallel(
        replicas, 5, forward=F, backward=B, all_reduce=element("a", reduce)
    )
    assert makespan(plan) == 1.0 + 2.0 + 4 * max(2.0, reduce) + reduce
    assert len(plan) == replicas * 6 + 5
    assert plan.labels["bucket"][plan.index("A(3)")] == 3
    assert "network" in plan.devices


def test_all_reduces_on_all_replicas_and_the_optimiser() -> None:
    reduce = element("a", 3.0, "x", "y", "z")
    plan = data_parallel(
        3, 2, forward=F, backward=[B, W], all_reduce=reduce, optimiser=W
    )
    assert sorted(plan.devices) == ["gpu0", "gpu1", "gpu2"]
    assert makespan(plan) == 1 + 2 + 3 + 3 + 1
    i = plan.index("A(0)")
    assert plan.elements[plan.element_of[i]].devices == ("gpu0", "gpu1", "gpu2")
    first = {plan.names[a] for a in plan.sources[plan.targets == i]}
    assert first == {"B(0,0)", "B(1,0)", "B(2,0)"}
    assert {EDGE_KINDS[k] for k in plan.kinds[plan.targets == i]} == {"sync"}


def test_tensor_parallel_layers() -> None:
    reduce = element("r", 0.5, "x", "y")
    plan = tensor_parallel(2, attention=F, mlp=B, all_reduce=reduce, layers=3)
    assert makespan(plan) == 3 * (1 + 2 + 2 * 0.5)
    plan = tensor_parallel(
        2, attention=F, mlp=B, all_reduce=reduce, attention_backward=B, mlp_backward=W
    )
    assert makespan(plan) == (1 + 2 + 1) + (2 + 1 + 1)
    assert plan.labels["kind"].count("all_reduce") == 4
    assert all(plan.serial(device) for device in plan.devices)
    assert plan.labels["rank"][plan.index("AB(0,1)")] == 1


# --- refused ------------------------------------------------------------------------

TWO = element("two", 1.0, "x", "y")
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no stages": (
        lambda: gpipe(0, 4, forward=F, backward=B),
        "^stages: expected a whole number >= 1, got 0$",
    ),
    "half a microbatch": (
        lambda: one_f_one_b(2, 1.5, forward=F, backward=B),  # type: ignore[arg-type]
        "^microbatches: expected a whole number >= 1, got 1.5$",
    ),
    "true stages": (lambda: gpipe(True, 4, forward=F, backward=B), "^stages: "),
    "too many": (
        lambda: gpipe(1024, 10**6, forward=F, backward=B),
        "^microbatches: 1,000,000 makes a plan of more than 5,000,000 nodes$",
    ),
    "no chunks": (
        lambda: interleaved(2, 4, 0, forward=F, backward=B),
        "^chunks: expected a whole number >= 1, got 0$",
    ),
    "a group left over": (
        lambda: interleaved(4, 6, 2, forward=F, backward=B),
        "^microbatches is 6, expected a multiple of 4 stages$",
    ),
    "elements missing": (
        lambda: gpipe(4, 4, forward=[F, F], backward=B),
        "^forward: 2 elements, expected one Element, or 4$",
    ),
    "elements of chunks missing": (
        lambda: interleaved(2, 4, 2, forward=F, backward=[B, B, B]),
        "^backward: 3 elements, expected one Element, or 2 or 4$",
    ),
    "no elements": (lambda: gpipe(2, 4, forward=F, backward=[]), "^backward: 0 elem"),
    "a number": (
        lambda: gpipe(2, 4, forward=1.0, backward=B),  # type: ignore[arg-type]
        "^forward: expected an Element or a list, got 1.0$",
    ),
    "a list of numbers": (
        lambda: gpipe(2, 4, forward=[1.0, F], backward=B),  # type: ignore[list-item]
        "^forward: expected Elements, got 1.0$",
    ),
    "a term": (
        lambda: gpipe(2, 4, forward=F >> F, backward=B),  # type: ignore[arg-type]
        "^forward: expected an Element or a list, got <Sequential",
    ),
    "no weight": (
        lambda: zero_bubble(2, 4, forward=F, backward=B, weight=None),  # type: ignore[arg-type]
        "^weight: expected an Element or a list, got None$",
    ),
    "devices missing": (
        lambda: gpipe(2, 4, forward=F, backward=B, devices=["a"]),
        "^devices: 1 places, expected 2$",
    ),
    "devices as a text": (
        lambda: gpipe(2, 4, forward=F, backward=B, devices="ab"),
        "^devices: expected a list of names, got 'ab'$",
    ),
    "one device twice": (
        lambda: gpipe(2, 4, forward=F, backward=B, devices=["a", "a"]),
        "^devices: 'a' is stated twice$",
    ),
    "no name": (
        lambda: gpipe(2, 4, forward=F, backward=B, devices=["a", ""]),
        "^devices: expected names, got ''$",
    ),
    "devices of an element": (
        lambda: gpipe(2, 4, forward=F, backward=TWO),
        "^backward: element 'two' runs on 2 devices, expected 1, to be placed on gpu0$",
    ),
    "negative lag": (
        lambda: gpipe(2, 4, forward=F, backward=B, transfer=-1.0),
        "^transfer is -1.0, expected seconds >= 0$",
    ),
    "transfer of a single stage": (
        lambda: gpipe(1, 4, forward=F, backward=B, transfer=float("nan")),
        "^transfer is nan, expected seconds >= 0$",
    ),
    "transfer on three": (
        lambda: gpipe(
            2, 4, forward=F, backward=B, transfer=element("t", 1.0, "x", "y", "z")
        ),
        "^transfer: element 't' runs on 3 devices, expected 2, to be placed on gpu0, g",
    ),
    "load of no stage": (
        lambda: gpipe(2, 4, forward=F, backward=B, load={2: W}),
        "^load: stage 2 found, expected 0 to 1$",
    ),
    "a load that is none": (
        lambda: gpipe(2, 4, forward=F, backward=B, load={0: 1.0}),  # type: ignore[dict-item]
        "^load of stage 0: expected an Element",
    ),
    "loads as a list": (
        lambda: gpipe(2, 4, forward=F, backward=B, load=[W]),  # type: ignore[arg-type]
        "^load: expected an Element or a mapping, got",
    ),
    "optimisers missing": (
        lambda: gpipe(2, 4, forward=F, backward=B, optimiser=[W]),
        "^optimiser: 1 elements, expected one Element, or 2$",
    ),
    "no buckets": (
        lambda: data_parallel(2, 0, forward=F, backward=B, all_reduce=W),
        "^buckets: expected a whole number >= 1, got 0$",
    ),
    "an all-reduce on some": (
        lambda: data_parallel(3, 1, forward=F, backward=B, all_reduce=TWO),
        "^all_reduce: element 'two' runs on 2 devices, expected 1 or 3$",
    ),
    "a network that is a GPU": (
        lambda: data_parallel(
            2, 1, forward=F, backward=B, all_reduce=W, network="gpu1"
        ),
        "^network: 'gpu1' found, expected another device$",
    ),
    "half a backward": (
        lambda: tensor_parallel(
            2, attention=F, mlp=B, all_reduce=TWO, mlp_backward=W
        ),
        "^attention_backward, mlp_backward: give both or neither$",
    ),
    "no ranks": (
        lambda: tensor_parallel(0, attention=F, mlp=B, all_reduce=TWO),
        "^ranks: expected a whole number >= 1, got 0$",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_named(case: str) -> None:
    build, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
