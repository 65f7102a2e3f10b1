"""Importers: public traces read without loss, and what each edge means."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pathlib
import tarfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probcalc.chakra import read_chakra
from probcalc.dagbench import read_dagbench
from probcalc.distribution import Constant, Empirical
from probcalc.edgelist import from_networkx, read_edgelist
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.kineto import read_kineto
from probcalc.plan import EDGE_KINDS, Plan
from probcalc.wfformat import read_wfformat

Find = Callable[[str], pathlib.Path]


def times(plan: Plan) -> np.ndarray:
    return np.array([e.time.mean() for e in plan.elements])[plan.element_of]


def replay(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Start and finish of every node when each takes its mean time."""
    took, starts = times(plan), plan.releases.copy()
    out: list[list[int]] = [[] for _ in range(len(plan))]
    for k, source in enumerate(plan.sources.tolist()):
        out[source].append(k)
    for i in plan.order:
        for k in out[i]:
            j = plan.targets[k]
            starts[j] = max(starts[j], starts[i] + took[i] + plan.lags[k])
    return starts, starts + took


def pairs(plan: Plan) -> set[tuple[str, str]]:
    """Edges by the names of their nodes."""
    return {
        (plan.names[a], plan.names[b])
        for a, b in zip(plan.sources, plan.targets, strict=True)
    }


def kinds(plan: Plan) -> Counter[str]:
    return Counter(EDGE_KINDS[k] for k in plan.kinds)


def written(path: pathlib.Path, document: Any) -> pathlib.Path:
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_text(text)
    return path


# --- Kineto ---------------------------------------------------------------------

HTA = ("alexnet", "simple_add", "event_sync_multi_stream")
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def hta(find: Find, name: str) -> tuple[pathlib.Path, list[dict[str, Any]]]:
    path = find(f"dag/hta/critical_path_{name}_trace.json.gz")
    with gzip.open(path) as file:
        return path, json.load(file)["traceEvents"]


@pytest.mark.parametrize("name", HTA)
def test_kineto_reads_all_work_of_all_streams(shared_data: Find, name: str) -> None:
    path, events = hta(shared_data, name)
    work = [e for e in events if e.get("cat") in WORK]
    plan = read_kineto(path, static_power=60.0)
    assert len(plan) == len(work)
    assert plan.devices == ("gpu0",)
    assert plan.name.endswith("(static energy only)")
    assert all("static energy only" in e.metadata["dynamic_energy"]
               for e in plan.elements)  # fmt: skip
    assert Counter(plan.labels["kind"]) == Counter(
        e["cat"].removeprefix("gpu_") for e in work
    )
    assert np.allclose(times(plan), [e["dur"] * 1e-6 for e in work], rtol=1e-15)
    streams = Counter(e["args"]["stream"] for e in work)
    assert Counter(plan.labels["stream"]) == streams
    assert kinds(plan)["serial"] == sum(n - 1 for n in streams.values())


@pytest.mark.parametrize("name", HTA)
def test_kineto_never_starts_work_later_than_recorded(
    shared_data: Find, name: str
) -> None:
    # Every edge and release is a lower limit that the recorded run kept, so a replay
    # of the recorded times is never behind it.
    path, events = hta(shared_data, name)
    calls = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if e.get("cat") == "cuda_runtime"
    }
    work = [e for e in events if e.get("cat") in WORK]
    first = min(calls[e["args"]["correlation"]] for e in work)
    recorded = np.array([(e["ts"] - first) * 1e-6 for e in work])
    for cpu in ("none", "launches"):
        starts, _ = replay(read_kineto(path, static_power=60.0, cpu=cpu))
        assert (starts <= recorded + 2e-6).all()


@pytest.mark.parametrize("name", HTA)
def test_kineto_with_the_cpu_replays_the_recorded_span(
    shared_data: Find, name: str
) -> None:
    path, events = hta(shared_data, name)
    plan = read_kineto(path, static_power={"gpu0": 60.0, "cpu": 90.0}, cpu="ops")
    # Innermost events of the one thread, by brute force.
    host = [e for e in events if e.get("cat") in ("cpu_op", "cuda_runtime")]
    order = sorted(range(len(host)), key=lambda i: (host[i]["ts"], -host[i]["dur"]))
    inner = [
        host[i]
        for k, i in enumerate(order)
        if not any(
            host[j]["ts"] < host[i]["ts"] + host[i]["dur"] for j in order[k + 1 :]
        )
    ]
    work = [e for e in events if e.get("cat") in WORK]
    assert len(plan) == len(work) + len(inner)
    assert plan.labels["kind"].count("op") + plan.labels["kind"].count("call") == len(
        inner
    )
    assert kinds(plan)["data"] == len(work)  # each has the launch that it follows
    last = max(e["ts"] + e["dur"] for e in [*inner, *work])
    span = (last - min(e["ts"] for e in inner)) * 1e-6
    assert replay(plan)[1].max() == pytest.approx(span, rel=1e-4)


def test_kineto_waits_of_streams_become_edges(shared_data: Find) -> None:
    path, _ = hta(shared_data, HTA[2])
    plan = read_kineto(path, static_power=60.0)
    # Three streams of a fill and a product; the third waits for the first.
    gemm, fill = "ampere_sgemm_128x64_nn", "Memset (Device)"
    assert pairs(plan) == {
        (f"{fill}#1", f"{gemm}#1"),
        (f"{fill}#2", f"{gemm}#2"),
        (f"{fill}#3", f"{gemm}#3"),
        (f"{gemm}#1", f"{fill}#3"),
    }
    assert kinds(plan) == {"serial": 3, "sync": 1}


def x(cat: str, name: str, ts: float, dur: float, tid: Any, **args: Any) -> Any:
    return {
        "ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1,
        "tid": tid, "args": args,
    }  # fmt: skip


def kernel(name: str, ts: float, dur: float, stream: int, correlation: int) -> Any:
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return x("kernel", name, ts, dur, stream, **args)


def call(name: str, ts: float, dur: float, correlation: int, tid: Any = 9) -> Any:
    return x("cuda_runtime", name, ts, dur, tid, correlation=correlation)


TRACE = [
    x("user_annotation", "ProfilerStep#7", 0, 100, 9),
    call("cudaLaunchKernel", 0, 4, 1),
    kernel("a", 6, 50, 1, 1),
    call("cudaStreamSynchronize", 10, 48, 2),
    x("cuda_sync", "Stream Sync", 11, 46, 1, cuda_sync_kind="Stream Sync", stream=1,
      device=0, correlation=2),
    call("cudaLaunchKernel", 60, 4, 3),
    kernel("b", 70, 10, 2, 3),
    call("cudaLaunchKernel", 65, 4, 4),
    kernel("b", 82, 14, 2, 4),
]  # fmt: skip


def test_kineto_what_is_launched_after_a_wait_follows_it(
    tmp_path: pathlib.Path,
) -> None:
    path = written(tmp_path / "t.json", {"traceEvents": TRACE})
    plan = read_kineto(path, static_power=60.0)
    assert pairs(plan) == {("a#1", "b#1"), ("b#1", "b#2")}
    assert plan.labels["step"] == ("7", "7", "7")
    # Another thread's launches do not follow: it did not wait.
    for event in TRACE[5], TRACE[7]:
        event["tid"] = 8
    try:
        path = written(tmp_path / "t.json", TRACE)  # a bare list of events
        assert pairs(read_kineto(path, static_power=60.0)) == {("b#1", "b#2")}
    finally:
        for event in TRACE[5], TRACE[7]:
            event["tid"] = 9


def test_kineto_queries_do_not_wait(tmp_path: pathlib.Path) -> None:
    events = [*TRACE[:3], call("cudaStreamQuery", 10, 2, 2), *TRACE[4:]]
    plan = read_kineto(written(tmp_path / "t.json", events), static_power=60.0)
    assert pairs(plan) == {("b#1", "b#2")}


def test_kineto_waits_for_the_whole_device_need_no_event(
    tmp_path: pathlib.Path,
) -> None:
    events = [*TRACE[:3], call("cudaDeviceSynchronize", 10, 48, 2), *TRACE[5:]]
    plan = read_kineto(written(tmp_path / "t.json", events), static_power=60.0)
    assert ("a#1", "b#1") in pairs(plan)


def test_kineto_launches_from_flows(tmp_path: pathlib.Path) -> None:
    flow = [
        {"ph": "s", "cat": "ac2g", "id": 5, "pid": 1, "tid": 9, "ts": 3.0},
        {"ph": "f", "cat": "ac2g", "id": 5, "pid": 1, "tid": 1, "ts": 20.0},
    ]
    work = kernel("a", 20, 5, 1, 5)
    del work["args"]["correlation"]
    other = [call("cudaLaunchKernel", 1, 1, 6), kernel("b", 4, 5, 2, 6)]
    path = written(tmp_path / "t.json", [*flow, work, *other])
    plan = read_kineto(path, static_power=60.0, cpu="launches")
    assert plan.releases == pytest.approx([2e-6, 0.0])


def test_kineto_backward_follows_forward_on_another_thread(
    tmp_path: pathlib.Path,
) -> None:
    events = [
        x("cpu_op", "forward", 0, 10, 1),
        x("cpu_op", "inner", 2, 6, 1),
        x("cpu_op", "backward", 30, 10, 2),
        {"ph": "s", "cat": "fwdbwd", "id": 1, "pid": 1, "tid": 1, "ts": 0},
        {"ph": "f", "cat": "fwdbwd", "id": 1, "pid": 1, "tid": 2, "ts": 30},
    ]
    path = written(tmp_path / "t.json", events)
    plan = read_kineto(path, static_power=60.0, cpu="ops")
    assert plan.names == ("inner#1", "backward#1")
    assert pairs(plan) == {("inner#1", "backward#1")}
    assert plan.releases == pytest.approx([0.0, 28e-6])


def test_kineto_energy_by_name_or_function(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "t.json", TRACE)
    law = Constant(0.25)
    plan = read_kineto(path, static_power=60.0, dynamic_energy={"a": 1.0, "b": law})
    assert plan.name == "t"
    held = {(e.name, float(e.dynamic_energy.mean())) for e in plan.elements}
    assert held == {("a", 1.0), ("b", 0.25)}
    plan = read_kineto(path, static_power=60.0, dynamic_energy=lambda n, t: 100.0 * t)
    of = [float(e.dynamic_energy.mean()) for e in plan.elements]
    assert of == pytest.approx([5e-3, 1e-3, 1.4e-3])
    with pytest.raises(InputError, match="dynamic_energy: none for 'b'; known: a"):
        read_kineto(path, static_power=60.0, dynamic_energy={"a": 1.0})


def test_kineto_pooled_times_of_one_kernel(tmp_path: pathlib.Path) -> None:
    plan = read_kineto(
        written(tmp_path / "t.json", TRACE), static_power=60.0, laws="pooled"
    )
    assert [e.name for e in plan.elements] == ["a", "b"]
    law = plan.elements[1].time
    assert isinstance(law, Empirical)
    assert sorted(law.samples) == pytest.approx([10e-6, 14e-6])
    assert plan.element_of.tolist() == [0, 1, 1]


BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "cpu": ({"cpu": "all"}, "cpu is 'all', expected one of 'none', 'launches', 'ops'"),
    "laws": ({"laws": "fit"}, "laws is 'fit', expected 'recorded' or 'pooled'"),
    "power": ({"static_power": -1.0}, "static_power: static power is -1.0, expected"),
    "power of another": (
        {"static_power": {"gpu1": 60.0}},
        "static_power: unknown device 'gpu1'; did you mean 'gpu0'",
    ),
    "no power": (
        {"static_power": {"gpu0": 60.0}, "cpu": "ops"},
        "static_power: none for device 'cpu', stated for 'gpu0'",
    ),
    "no power at all": (
        {"static_power": {}},
        "none for device 'gpu0', stated for none",
    ),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_kineto_arguments(tmp_path: pathlib.Path, case: str) -> None:
    arguments, message = BAD_ARGUMENTS[case]
    path = written(tmp_path / "t.json", TRACE)
    with pytest.raises(InputError, match=message):
        read_kineto(path, **{"static_power": 60.0, **arguments})


# --- Chakra -----------------------------------------------------------------------


def archived(path: pathlib.Path, member: str) -> Any:
    with tarfile.open(path) as archive:
        file = archive.extractfile(member)
        assert file is not None
        return json.load(file)


def test_chakra_reads_all_nodes_and_dependencies(shared_data: Find) -> None:
    path = shared_data("dag/chakra/json_trace.tar.gz")
    member = "jsonData/chakra.0.json"
    raw = archived(path, member)["workload_graph"]
    silent = [n for n in raw if "runtime" not in n]
    assert len(silent) == 157
    with pytest.raises(InputError, match=r"workload_graph\[20\].*: no time, expected"):
        read_chakra(path, member=member, static_power=60.0)
    plan = read_chakra(path, member=member, static_power=60.0, missing=2e-6)
    assert plan.names == tuple(str(n["Id"]) for n in raw)
    assert pairs(plan) == {(str(p), str(n["Id"])) for n in raw for p in n["data_deps"]}
    assert plan.sources.size == sum(len(n["data_deps"]) for n in raw) == 181878
    assert np.allclose(times(plan), [n.get("runtime", 2) * 1e-6 for n in raw])
    on_cpu = [plan.elements[e].devices == ("cpu",) for e in plan.element_of]
    assert on_cpu == [n["is_cpu_op"] for n in raw]


def test_chakra_reads_a_part_of_a_trace(shared_data: Find) -> None:
    path = shared_data("dag/chakra/json_trace.tar.gz")
    member = "jsonData/small_chakra.0.json"
    raw = archived(path, member)["workload_graph"]
    with pytest.raises(InputError, match=r"\[0\]: ctrl_deps\[0\]: no node 3; absent="):
        read_chakra(path, member=member, static_power=60.0)
    plan = read_chakra(path, member=member, static_power=60.0, absent="omit")
    assert pairs(plan) == {(str(p), str(n["Id"])) for n in raw for p in n["data_deps"]}
    assert len(plan) == 7


def test_chakra_reads_a_pytorch_execution_trace(shared_data: Find) -> None:
    path = shared_data("dag/chakra/1.0.2-chakra.0.0.4.tgz")
    raw = archived(path, "1.0.2-chakra.0.0.4.json")["nodes"]
    with pytest.raises(InputError, match=r"nodes\[0\].*: no time, expected 'runtime'"):
        read_chakra(path, static_power=60.0)
    plan = read_chakra(path, static_power=60.0, missing=0.0)
    assert len(plan) == len(raw) == 263
    # The process is its own caller; all others have one.
    assert pairs(plan) == {
        (str(n["ctrl_deps"]), str(n["id"])) for n in raw if n["ctrl_deps"] != n["id"]
    }
    assert kinds(plan) == {"sync": 262}
    assert replay(plan)[1].max() == 0.0


def test_chakra_reads_messages_one_after_the_other(tmp_path: pathlib.Path) -> None:
    messages = [
        {"version": "0.0.4"},
        {"id": "1", "name": "a", "type": "COMP_NODE", "durationMicros": "5"},
        {"id": "2", "name": "b", "dataDeps": ["1"], "durationMicros": "7",
         "attr": [{"name": "is_cpu_op", "boolVal": True}]},
        {"id": "3", "name": "c", "ctrlDeps": ["1", "2"], "durationMicros": 2,
         "attr": [{"name": "is_cpu_op"}]},
    ]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text("\n".join(json.dumps(m, indent=1) for m in messages))
    plan = read_chakra(path, static_power=60.0)
    assert pairs(plan) == {("1", "2"), ("1", "3"), ("2", "3")}
    assert kinds(plan) == {"data": 1, "sync": 2}
    assert times(plan) == pytest.approx([5e-6, 7e-6, 2e-6])
    assert [plan.elements[e].devices[0] for e in plan.element_of] == [
        "cpu", "cpu", "gpu0",
    ]  # fmt: skip
    assert plan.labels["kind"] == ("COMP_NODE", None, None)


def test_chakra_archives_of_several_files_need_a_choice(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "t.tar"
    node = json.dumps({"nodes": [{"id": 1, "name": "a", "runtime": 1}]}).encode()
    with tarfile.open(path, "w") as archive:
        for name in ("one.json", "two.json", "._two.json"):
            held = tarfile.TarInfo(name)
            held.size = len(node)
            archive.addfile(held, io.BytesIO(node))
    with pytest.raises(InputError, match=r"t\.tar: state which file, member=.*one"):
        read_chakra(path, static_power=60.0)
    with pytest.raises(InputError, match=r"t\.tar: no file 'three', member="):
        read_chakra(path, static_power=60.0, member="three")
    plan = read_chakra(path, static_power=60.0, member="two.json", name="mine")
    assert plan.name == "mine (static energy only)"


# --- WfFormat ---------------------------------------------------------------------


def test_wfformat_reads_all_tasks_and_dependencies(shared_data: Find) -> None:
    files = sorted(shared_data("dag/wfinstances").glob("*.json"))
    assert len(files) == 19
    for path in files:
        workflow = json.loads(path.read_text())["workflow"]
        tasks = workflow["specification"]["tasks"]
        took = {t["id"]: t["runtimeInSeconds"] for t in workflow["execution"]["tasks"]}
        plan = read_wfformat(path, static_power=60.0, device="somewhere")
        assert plan.names == tuple(t["id"] for t in tasks)
        assert pairs(plan) == {(p, t["id"]) for t in tasks for p in t["parents"]}
        assert pairs(plan) == {(t["id"], c) for t in tasks for c in t["children"]}
        assert times(plan).tolist() == [took[name] for name in plan.names]


def test_wfformat_longest_paths_are_those_of_the_reference(shared_data: Find) -> None:
    cases = json.loads(shared_data("reference/plans.json").read_text())["cases"]
    checked = 0
    for case in cases:
        if not case["name"].startswith("wf_"):
            continue
        path = shared_data(case["dag"]["file"].replace("data_dag/", "dag/"))
        plan = read_wfformat(path, static_power=60.0, device="somewhere")
        assert len(plan) == case["dag"]["nodes"]
        assert plan.sources.size == case["dag"]["edges"]
        # In tenths of ms, of times that were rounded to ms.
        longest = replay(plan)[1].max() * 1e4
        assert longest == pytest.approx(
            case["deterministic_critical_path"], abs=5.0 * int(plan.level.max() + 1)
        )
        checked += 1
    assert checked == 6


def test_wfformat_machines_are_devices(shared_data: Find) -> None:
    path = shared_data("dag/wfinstances/bwa-chameleon-small-001.json")
    plan = read_wfformat(path, static_power=60.0)
    assert len(plan.devices) == 4
    assert plan.baselines == dict.fromkeys(plan.devices, 60.0)
    path = shared_data("dag/wfinstances/bacass-dirt02-001.json")
    with pytest.raises(InputError, match=r"execution\.tasks\[0\]: task .* no machine"):
        read_wfformat(path, static_power=60.0)
    assert read_wfformat(path, static_power=60.0, device="d").devices == ("d",)


WORKFLOW: dict[str, Any] = {
    "name": "w",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "a_ID001", "id": "a1", "parents": [], "children": ["b1"]},
                {"name": "b_ID002", "id": "b1", "parents": ["a1"], "children": []},
                {"name": "b_ID003", "id": "b2", "parents": ["a1"], "children": []},
            ]
        },
        "execution": {
            "tasks": [
                {"id": "b1", "runtimeInSeconds": 3.5, "machines": ["m"]},
                {"id": "b2", "runtimeInSeconds": 0, "machine": "m"},
                {"id": "a1", "runtimeInSeconds": 2, "machines": ["m", "n"]},
            ]
        },
    },
}


def energised(tmp_path: pathlib.Path, key: str, *values: float) -> pathlib.Path:
    document = json.loads(json.dumps(WORKFLOW))
    tasks = document["workflow"]["execution"]["tasks"]
    for task, value in zip(tasks, values, strict=False):
        task[key] = value
    return written(tmp_path / "w.json", document)


def test_wfformat_tasks_of_several_machines_and_of_no_time(
    tmp_path: pathlib.Path,
) -> None:
    plan = read_wfformat(written(tmp_path / "w.json", WORKFLOW), static_power=60.0)
    assert plan.names == ("a1", "b1", "b2")
    assert plan.elements[plan.element_of[0]].powers == {"m": 60.0, "n": 60.0}
    assert times(plan).tolist() == [2.0, 3.5, 0.0]
    assert plan.labels["name"] == ("a", "b", "b")


def test_wfformat_energies(tmp_path: pathlib.Path) -> None:
    path = energised(tmp_path, "energyInKWh", 1e-4, 0.0, 1e-4)
    plan = read_wfformat(path, static_power=60.0)
    assert plan.name == "w"
    dynamic = [float(plan.elements[e].dynamic_energy.mean()) for e in plan.element_of]
    assert dynamic == pytest.approx([360 - 120 * 2, 360 - 60 * 3.5, 0.0])
    path = energised(tmp_path, "avgPowerInW", 70, 70, 130)
    plan = read_wfformat(path, static_power=60.0)
    dynamic = [float(plan.elements[e].dynamic_energy.mean()) for e in plan.element_of]
    assert dynamic == pytest.approx([20.0, 35.0, 0.0])
    with pytest.raises(InputError, match=r"dynamic_energy: w\.json states energies"):
        read_wfformat(path, static_power=60.0, dynamic_energy={})


def test_wfformat_pooled_runs_keep_time_and_energy_together(
    tmp_path: pathlib.Path,
) -> None:
    path = energised(tmp_path, "avgPowerInW", 70, 70, 130)
    plan = read_wfformat(path, static_power=60.0, laws="pooled")
    b = plan.elements[plan.element_of[1]]
    assert b.runs is not None
    assert b.runs.time.tolist() == [3.5, 0.0]
    assert b.runs.energy.tolist() == [245.0, 0.0]


# --- dagbench -----------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_dagbench_reads_all_tasks_and_dependencies(
    shared_data: Find, phase: str
) -> None:
    path = shared_data(f"dag/dagbench/gpt2_tensor_sh12_{phase}.graph.json")
    metadata = shared_data(f"dag/dagbench/gpt2_tensor_sh12_{phase}.metadata.yaml")
    raw = json.loads(path.read_text())["task_graph"]
    plan = read_dagbench(path, unit="ms", static_power=60.0, metadata=metadata)
    assert (len(plan), plan.sources.size) == (327, 614)
    assert plan.level.max() + 1 == 63  # depth, as the metadata state it
    assert pairs(plan) == {(d["source"], d["target"]) for d in raw["dependencies"]}
    assert np.allclose(times(plan), [t["cost"] * 1e-3 for t in raw["tasks"]])
    assert not plan.lags.any()
    plan = read_dagbench(path, unit="ms", static_power=60.0, bandwidth=1e9)
    sizes = {(d["source"], d["target"]): d["size"] for d in raw["dependencies"]}
    for a, b, lag in zip(plan.sources, plan.targets, plan.lags, strict=True):
        assert lag == pytest.approx(sizes[plan.names[a], plan.names[b]] / 1e9)


def test_dagbench_counts_are_checked(tmp_path: pathlib.Path) -> None:
    graph = {"tasks": [{"name": "t_1", "cost": 2.0}], "dependencies": []}
    path = written(tmp_path / "g.graph.json", {"task_graph": graph})
    stated = written(tmp_path / "g.yaml", "graph_stats:\n  num_tasks: 2\n")
    with pytest.raises(InputError, match=r"1 found; expected num_tasks: 2 of g\.yaml"):
        read_dagbench(path, unit="ms", static_power=1.0, metadata=stated)
    with pytest.raises(InputError, match="unit: 'J' is not a unit of time"):
        read_dagbench(path, unit="J", static_power=1.0)
    with pytest.raises(InputError, match="bandwidth is 0, expected bytes per s > 0"):
        read_dagbench(path, unit="ms", static_power=1.0, bandwidth=0)
    plan = read_dagbench(path, unit="us", static_power=1.0)
    assert times(plan).tolist() == [2e-6]


# --- edge lists ---------------------------------------------------------------------

GRAPH: dict[str, Any] = {
    "name": "g",
    "devices": {"gpu0": {"static_power": "60 W"}, "gpu1": {"static_power": 50}},
    "nodes": [
        {"name": "a", "device": "gpu0", "time": "1 s", "energy": "90 J"},
        {"name": 7, "device": "gpu1", "time": 2, "dynamic_energy": "3 J",
         "release": "1.5 s", "labels": {"microbatch": 3}},
        {"name": "c", "element": "f", "device": "gpu0", "time": [1, 3]},
        {"name": "d", "element": "f", "device": "gpu0", "time": [1, 3]},
    ],
    "edges": [
        {"source": "a", "target": 7, "lag": 40},
        {"source": "a", "target": 7, "lag": "3 s", "kind": "sync"},
        {"source": 7, "target": "c"},
    ],
}  # fmt: skip


def test_edges_in_json(tmp_path: pathlib.Path) -> None:
    plan = read_edgelist(written(tmp_path / "g.json", GRAPH))
    assert plan.name == "g"
    assert plan.names == ("a", "7", "c", "d")
    assert pairs(plan) == {("a", "7"), ("7", "c")}
    assert plan.lags.tolist() == [40.0, 0.0]
    assert plan.releases.tolist() == [0.0, 1.5, 0.0, 0.0]
    assert plan.labels["microbatch"] == (None, 3, None, None)
    assert plan.baselines == {"gpu0": 60.0, "gpu1": 50.0}
    assert float(plan.elements[0].dynamic_energy.mean()) == 30.0
    # Nodes that name one element, described alike, share its law.
    assert plan.element_of.tolist() == [0, 1, 2, 2]
    path = tmp_path / "g.json.gz"
    path.write_bytes(gzip.compress(json.dumps(GRAPH).encode()))
    assert pairs(read_edgelist(path)) == pairs(plan)


EDGES = "source,target,lag,kind\na,b,40,sync\na,b,3,data\nb,c,0.5 ms,\n"
NODES = (
    "name,time,device,energy,release,microbatch\n"
    "a,1 ms,gpu0,,,0\nb,0.002,gpu1,0.12,,1\nc,0,gpu0,,1 s,\n"
)


def test_edges_in_csv(tmp_path: pathlib.Path) -> None:
    edges = written(tmp_path / "e.csv", EDGES)
    nodes = written(tmp_path / "n.csv", NODES)
    plan = read_edgelist(edges, nodes=nodes, static_power=60.0)
    assert pairs(plan) == {("a", "b"), ("b", "c")}
    assert plan.lags.tolist() == [40.0, 0.5e-3]
    assert times(plan).tolist() == [1e-3, 2e-3, 0.0]
    assert plan.releases.tolist() == [0.0, 0.0, 1.0]
    assert plan.labels["microbatch"] == ("0", "1", None)
    assert float(plan.elements[1].dynamic_energy.mean()) == 0.0  # 0.12 J = 60 W 2 ms
    with pytest.raises(InputError, match=r"n\.csv: rows\[0\].*unknown device 'gpu0'"):
        read_edgelist(edges, nodes=nodes, static_power={"gpu1": 60.0})
    with pytest.raises(InputError, match=r"a list of edges; nodes=\.\.\. names"):
        read_edgelist(edges)


def test_edges_written_by_the_csv_module(tmp_path: pathlib.Path) -> None:
    rows = [["source", "target"], ["x, y", 'say "z"']]
    with (tmp_path / "e.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    nodes = 'name,time,device\n"x, y",1,d\n"say ""z""",2,d\n'
    plan = read_edgelist(
        tmp_path / "e.csv",
        nodes=written(tmp_path / "n.csv", nodes),
        static_power={"d": 1.0},
    )
    assert pairs(plan) == {("x, y", 'say "z"')}


# --- networkx -------------------------------------------------------------------------


class Graph:
    """What a directed graph of networkx answers."""

    def __init__(self, nodes: Any, edges: Any, directed: bool = True) -> None:
        self._nodes, self._edges, self._directed = nodes, edges, directed

    def is_directed(self) -> bool:
        return self._directed

    def nodes(self, data: bool) -> Any:
        return self._nodes

    def edges(self, data: bool) -> Any:
        return self._edges


ON = {"device": "gpu0", "static_power": 60.0}


def test_a_graph_of_networkx_becomes_a_plan() -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.MultiDiGraph(name="mine")
    e = Element("e", time=1.0, static_power=60.0, device="gpu0")
    graph.add_node("a", element=e)
    graph.add_node(2, time="2 ms", labels={"step": 1}, release=0.5, pos=[0, 1], **ON)
    graph.add_edge("a", 2, lag=40)
    graph.add_edge("a", 2, lag=3, kind="sync")
    plan = from_networkx(graph)
    assert plan.name == "mine"
    assert plan.names == ("a", "2")
    assert plan.lags.tolist() == [40.0]
    assert plan.labels == {"step": (None, 1)}
    assert times(plan).tolist() == [1.0, 2e-3]
    assert plan.releases.tolist() == [0.0, 0.5]
    with pytest.raises(InputError, match="the graph has no directions"):
        from_networkx(nx.Graph())


BAD_GRAPHS: dict[str, tuple[Any, str]] = {
    "no graph": (3, "expected a directed networkx graph, got 3"),
    "no directions": (Graph([], [], directed=False), "the graph has no directions"),
    "empty": (Graph([], []), "has no nodes"),
    "no time": (Graph([("a", ON)], []), "node 'a': neither 'element' nor 'time'"),
    "no device": (Graph([("a", {"time": 1})], []), "node 'a': neither 'device' nor"),
    "no power": (
        Graph([("a", {"time": 1, "device": "d"})], []),
        "node 'a': no static power of device 'd'",
    ),
    "no element": (
        Graph([("a", {"element": 1.0})], []),
        "node 'a': element is 1.0, expected an Element",
    ),
    "negative": (Graph([("a", {"time": -1, **ON})], []), "time is -1 s, expected >= 0"),
    "nan": (Graph([("a", {"time": float("nan"), **ON})], []), "node 'a': .*nan"),
    "a unit": (Graph([("a", {"time": "1 J", **ON})], []), "'J' .*not a unit of time"),
    "names alike": (
        Graph([(1, {"time": 1, **ON}), ("1", {"time": 1, **ON})], []),
        "node '1' is stated twice",
    ),
    "a weight": (
        Graph([("a", {"time": 1, **ON})], [("a", "a", {"weight": 2})]),
        "edge 'a' -> 'a': has 'weight' and no 'lag'",
    ),
    "a lag": (
        Graph([("a", {"time": 1, **ON})], [("a", "a", {"lag": -2})]),
        "edge 'a' -> 'a': lag: -2 found; expected zero or more",
    ),
    "a kind": (
        Graph([("a", {"time": 1, **ON})], [("a", "a", {"kind": "dat"})]),
        "kind: 'dat' found; expected one of 'data', 'sync', 'serial'",
    ),
    "a cycle": (
        Graph(
            [("a", {"time": 1, **ON}), ("b", {"time": 1, **ON})],
            [("a", "b", {}), ("b", "a", {})],
        ),
        "nodes wait for each other: a -> b -> a|nodes wait for each other: b -> a -> b",
    ),
    "labels": (
        Graph([("a", {"time": 1, "labels": {"x": []}, **ON})], []),
        r"node 'a': labels: 'x' is \[\]; expected a text or a number",
    ),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_bad_graphs_are_named(case: str) -> None:
    graph, message = BAD_GRAPHS[case]
    with pytest.raises(InputError, match=message) as caught:
        from_networkx(graph)
    assert "\n" not in str(caught.value)
