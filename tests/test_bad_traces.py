"""Traces and graphs that cannot be read: each is one clear line, never a guess."""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import pathlib
import random
import tarfile
from collections.abc import Callable
from typing import Any

import pytest

from probcalc import tracefile
from probcalc.chakra import read_chakra
from probcalc.dagbench import read_dagbench
from probcalc.edgelist import read_edgelist
from probcalc.errors import InputError, PlanError
from probcalc.kineto import read_kineto
from probcalc.plan import Plan
from probcalc.wfformat import read_wfformat


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1,
        "tid": args.get("stream", 9), "args": args,
    }  # fmt: skip


def kernel(name: str, ts: float, stream: int, correlation: int) -> dict[str, Any]:
    return event(
        "kernel", name, ts, 5, device=0, stream=stream, correlation=correlation
    )


GOOD: dict[str, Any] = {
    "kineto": {
        "schemaVersion": 1,
        "traceEvents": [
            event("cpu_op", "aten::mm", 0, 20),
            event("cuda_runtime", "cudaLaunchKernel", 1, 2, correlation=1),
            kernel("gemm", 5, 7, 1),
            event("cuda_runtime", "cudaEventRecord", 4, 1, correlation=2),
            event("cuda_runtime", "cudaStreamWaitEvent", 6, 1, correlation=3),
            event("cuda_sync", "Stream Wait Event", 6, 1, stream=8, device=0,
                  wait_on_stream=7, wait_on_cuda_event_record_corr_id=2,
                  correlation=3, cuda_sync_kind="Stream Wait Event"),
            event("cuda_runtime", "cudaLaunchKernel", 8, 2, correlation=4),
            kernel("gemm", 12, 8, 4),
            {"ph": "s", "cat": "ac2g", "id": 4, "pid": 1, "tid": 9, "ts": 8},
            {"ph": "f", "cat": "ac2g", "id": 4, "pid": 1, "tid": 8, "ts": 12},
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}},
        ],
    },
    "chakra": {
        "workload_graph": [
            {"Id": 1, "Name": "a", "NodeType": 4, "runtime": 3, "data_deps": [],
             "is_cpu_op": True},
            {"Id": 2, "Name": "b", "NodeType": 4, "runtime": 0, "data_deps": [1],
             "ctrlDeps": [1], "is_cpu_op": False},
        ]
    },
    "wfformat": {
        "name": "w",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {"name": "a_1", "id": "a", "parents": [], "children": ["b"]},
                    {"name": "b_1", "id": "b", "parents": ["a"], "children": []},
                ]
            },
            "execution": {
                "makespanInSeconds": 5,
                "tasks": [
                    {"id": "a", "runtimeInSeconds": 2.5, "machines": ["m"]},
                    {"id": "b", "runtimeInSeconds": 0, "machines": ["m"]},
                ],
            },
        },
    },
    "dagbench": {
        "name": "d",
        "task_graph": {
            "tasks": [{"name": "a", "cost": 1.5}, {"name": "b_0", "cost": 0}],
            "dependencies": [{"source": "a", "target": "b_0", "size": 10.0}],
        },
    },
    "edgelist": {
        "devices": {"gpu0": {"static_power": "60 W"}},
        "nodes": [
            {"name": "a", "device": "gpu0", "time": "1 s", "energy": 90},
            {"name": "b", "device": "gpu0", "time": [1, 2], "dynamic_energy": [3, 4]},
            {"name": "c", "device": "gpu0", "time": 0},
        ],
        "edges": [
            {"source": "a", "target": "b", "lag": "1 ms"},
            {"source": "b", "target": "c", "kind": "serial"},
        ],
    },
}  # fmt: skip
READ: dict[str, Callable[[pathlib.Path], Plan]] = {
    "kineto": lambda path: read_kineto(path, static_power=60.0, cpu="ops"),
    "chakra": lambda path: read_chakra(path, static_power=60.0),
    "wfformat": lambda path: read_wfformat(path, static_power=60.0),
    "dagbench": lambda path: read_dagbench(
        path, static_power=60.0, unit="ms", bandwidth=1e9
    ),
    "edgelist": lambda path: read_edgelist(path),
}
FORMATS = tuple(GOOD)
NODES = {"kineto": 6, "chakra": 2, "wfformat": 2, "dagbench": 2, "edgelist": 3}


def refusal(which: str, path: pathlib.Path) -> str:
    """Return the one line with which a file is refused."""
    with pytest.raises(PlanError) as caught:
        READ[which](path)
    message = str(caught.value)
    assert message.startswith(path.name + ": ")
    assert "\n" not in message
    assert len(message) < 400
    return message


def written(path: pathlib.Path, document: Any) -> pathlib.Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@pytest.mark.parametrize("which", FORMATS)
def test_what_the_bad_ones_are_made_of_is_good(
    which: str, tmp_path: pathlib.Path
) -> None:
    path = written(tmp_path / "t.json", GOOD[which])
    assert len(READ[which](path)) == NODES[which]


# --- files --------------------------------------------------------------------------


@pytest.mark.parametrize("which", FORMATS)
def test_json_that_is_cut_off_anywhere(which: str, tmp_path: pathlib.Path) -> None:
    text = json.dumps(GOOD[which])
    for share in (0.02, 0.25, 0.5, 0.75, 0.99):
        path = written(tmp_path / "t.json", text[: int(len(text) * share)])
        assert "JSON is cut off: " in refusal(which, path)


@pytest.mark.parametrize("which", FORMATS)
def test_gzip_that_is_cut_off_or_damaged(which: str, tmp_path: pathlib.Path) -> None:
    packed = gzip.compress(json.dumps(GOOD[which]).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed)
    assert len(READ[which](path)) == NODES[which]
    path.write_bytes(packed[: len(packed) // 2])
    assert "damaged or cut off gzip" in refusal(which, path)
    path.write_bytes(packed[:30] + bytes(20) + packed[50:])
    assert "damaged or cut off gzip" in refusal(which, path)


WRONG_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty; expected JSON"),
    "blank": (b" \n\t ", "is empty; expected JSON"),
    "not UTF-8": (b'{"a": "\xff"}', "byte 7 is not UTF-8; expected JSON"),
    "no JSON": (b"<html>", "no valid JSON: expecting value at line 1, column 1"),
    "two documents": (b"{} {}", ""),
    "NaN": (b'{"a": NaN}', "NaN found; expected finite numbers"),
    "infinity": (b'{"a": [-Infinity]}', "-Infinity found; expected finite numbers"),
    "digits": (b"[" + b"9" * 5000 + b"]", "no valid JSON: Exceeds the limit"),
    "depth": (b"[" * 200_000, "lists or tables nested too deeply"),
    "a number": (b"3", ""),
    "a text": (b'"abc"', ""),
    "null": (b"null", ""),
    "an empty table": (b"{}", ""),
    "an empty list": (b"[]", ""),
    "a line that never ends": (b'{"a": "b\n"}', "no valid JSON: invalid control char"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
@pytest.mark.parametrize("which", FORMATS)
def test_files_of_another_kind(which: str, case: str, tmp_path: pathlib.Path) -> None:
    content, message = WRONG_FILES[case]
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert message in refusal(which, path)


@pytest.mark.parametrize("which", FORMATS)
def test_paths_that_are_no_file(which: str, tmp_path: pathlib.Path) -> None:
    assert "cannot be read: No such file" in refusal(which, tmp_path / "no.json")
    folder = tmp_path / "folder.json"
    folder.mkdir()
    assert "expected a regular file" in refusal(which, folder)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert "expected a regular file" in refusal(which, pipe)


@pytest.mark.parametrize("which", FORMATS)
def test_sizes_are_capped_before_memory_is_taken(
    which: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps(GOOD[which]).encode() + b" " * 10**6))
    monkeypatch.setattr(tracefile, "MAX_BYTES", 5000)
    assert "more than 5,000 bytes" in refusal(which, path)
    monkeypatch.undo()
    monkeypatch.setattr(tracefile, "MAX_NODES", 1)
    assert "entries; at most 1" in refusal(which, path)


def test_an_archive_that_is_cut_off(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t.tar"
    content = json.dumps(GOOD["chakra"]).encode()
    with tarfile.open(path, "w") as archive:
        held = tarfile.TarInfo("a.json")
        held.size = len(content)
        archive.addfile(held, io.BytesIO(content))
    whole = path.read_bytes()
    path.write_bytes(whole[:600])
    assert "archive" in refusal("chakra", path)
    path.write_bytes(whole[:512])
    assert refusal("chakra", path)


# --- entries --------------------------------------------------------------------------

Change = Callable[[Any], None]


def at(*keys: Any, to: Any) -> Change:
    """Put something in some place of a document."""

    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = to

    return change


def without(*keys: Any) -> Change:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return change


def powered(power: float) -> Change:
    """State the mean power of every task of a workflow."""

    def change(document: Any) -> None:
        for task in document["workflow"]["execution"]["tasks"]:
            task["avgPowerInW"] = power

    return change


E = "traceEvents"
G = "workload_graph"
SPEC, RUN = ("workflow", "specification", "tasks"), ("workflow", "execution", "tasks")
T, D = ("task_graph", "tasks"), ("task_graph", "dependencies")
BAD: dict[str, dict[str, tuple[Change, str]]] = {
    "kineto": {
        "no events": (without(E), "'traceEvents' is missing"),
        "events as a table": (at(E, to={}), "traceEvents: {} found; expected a list"),
        "an event that is a number": (
            at(E, 1, to=3), "traceEvents[1]: 3 found; expected a table",
        ),
        "no time": (without(E, 2, "dur"), "traceEvents[2]: 'dur' is missing"),
        "no start": (without(E, 2, "ts"), "traceEvents[2]: 'ts' is missing"),
        "no name": (without(E, 2, "name"), "traceEvents[2]: 'name' is missing"),
        "a name that is a number": (
            at(E, 2, "name", to=4), "traceEvents[2].name: 4 found; expected a name",
        ),
        "negative time": (
            at(E, 2, "dur", to=-5),
            "traceEvents[2].dur: -5 found; expected microseconds >= 0",
        ),
        "time as a text": (
            at(E, 2, "dur", to="5"),
            "traceEvents[2].dur: '5' found; expected microseconds >= 0",
        ),
        "time as true": (
            at(E, 2, "dur", to=True), "traceEvents[2].dur: True found; expected micro",
        ),
        "a start of too many digits": (
            at(E, 2, "ts", to=10**400), "traceEvents[2].ts: 1000000000000000000000000",
        ),
        "null start": (
            at(E, 2, "ts", to=None), "traceEvents[2].ts: None found; expected micros",
        ),
        "a CPU call without time": (
            without(E, 3, "dur"), "traceEvents[3]: 'dur' is missing",
        ),
        "args as a list": (
            at(E, 2, "args", to=[]), "traceEvents[2].args: [] found; expected a table",
        ),
        "a stream that is a text": (
            at(E, 2, "args", "stream", to="7"),
            "traceEvents[2].args.stream: '7' found; expected a whole number",
        ),
        "a correlation that is a fraction": (
            at(E, 2, "args", "correlation", to=1.5),
            "traceEvents[2].args.correlation: 1.5 found; expected a whole number",
        ),
        "a thread that is a list": (
            at(E, 1, "tid", to=[1]), "traceEvents[1].tid: [1] found; expected a number",
        ),
        "a flow without a place in time": (
            without(E, 8, "ts"), "traceEvents[8].ts: None found; expected us",
        ),
    },
    "chakra": {
        "no id": (without(G, 1, "Id"), "workload_graph[1]: 'id' is missing"),
        "an id twice": (at(G, 1, "Id", to=1), "workload_graph[1]: node 1 is stated"),
        "an id that is a fraction": (
            at(G, 1, "Id", to=1.5), "workload_graph[1]: id: 1.5 found; expected a whol",
        ),
        "no name": (without(G, 1, "Name"), "workload_graph[1]: 'name' is missing"),
        "no time": (
            without(G, 1, "runtime"),
            "workload_graph[1] ('b'): no time, expected 'runtime' in us; missing=...",
        ),
        "negative time": (
            at(G, 1, "runtime", to=-1),
            "workload_graph[1]: time: -1 found; expected microseconds >= 0",
        ),
        "time as a table": (
            at(G, 1, "runtime", to={}), "workload_graph[1]: time: {} found; expected",
        ),
        "unknown predecessor": (
            at(G, 1, "data_deps", to=[1, 9]),
            "workload_graph[1]: data_deps[1]: no node 9; absent='omit' leaves out",
        ),
        "predecessors as a text": (
            at(G, 1, "data_deps", to="1"),
            "workload_graph[1]: data_deps: '1' found; expected a list",
        ),
        "a predecessor that is null": (
            at(G, 1, "ctrlDeps", to=[None]),
            "workload_graph[1]: ctrl_deps[0]: None found; expected a whole number",
        ),
        "a cycle": (
            at(G, 0, "data_deps", to=[2]), "nodes wait for each other: ",
        ),
        "its own predecessor": (
            at(G, 0, "data_deps", to=[1]), "nodes wait for each other: 1 -> 1",
        ),
        "a processor that is a number": (
            at(G, 1, "is_cpu_op", to=1),
            "workload_graph[1]: is_cpu_op: 1 found; expected true or false",
        ),
        "a type that is a list": (
            at(G, 1, "NodeType", to=[4]), "workload_graph[1]: type: [4] found; expect",
        ),
        "no nodes": (at(G, to=[]), "has no nodes, expected at least one"),
    },
    "wfformat": {
        "another version": (
            at("schemaVersion", to="1.3"), "schemaVersion: '1.3' found; expected 1.5",
        ),
        "no version": (without("schemaVersion"), "schemaVersion: None found; expected"),
        "no workflow": (without("workflow"), "'workflow' is missing"),
        "no execution": (
            without("workflow", "execution"), "workflow: 'execution' is missing",
        ),
        "no tasks": (at(*SPEC, to=[]), "no task 'a' in the specification"),
        "a task that was not executed": (
            without(*RUN, 1), "specification.tasks[1]: task 'b' has no time",
        ),
        "a task that was not specified": (
            at(*RUN, 1, "id", to="c"),
            "execution.tasks[1]: no task 'c' in the specification",
        ),
        "a task twice": (
            at(*SPEC, 1, "id", to="a"), "specification.tasks[1]: task 'a' is stated t",
        ),
        "no time": (
            without(*RUN, 1, "runtimeInSeconds"),
            "execution.tasks[1] ('b'): 'runtimeInSeconds' is missing",
        ),
        "negative time": (
            at(*RUN, 1, "runtimeInSeconds", to=-0.5),
            "execution.tasks[1].runtimeInSeconds: -0.5 found; expected seconds >= 0",
        ),
        "time as a text": (
            at(*RUN, 1, "runtimeInSeconds", to="1 s"),
            "execution.tasks[1].runtimeInSeconds: '1 s' found; expected seconds >= 0",
        ),
        "unknown parent": (
            at(*SPEC, 1, "parents", to=["aa"]),
            "specification.tasks[1]: parents[0]: no node 'aa'; did you mean 'a'?",
        ),
        "unknown child": (
            at(*SPEC, 1, "children", to=[7]),
            "specification.tasks[1]: children[0]: no node 7",
        ),
        "a parent that is a list": (
            at(*SPEC, 1, "parents", to=[[]]),
            "specification.tasks[1]: parents[0]: no node []",
        ),
        "parents as a text": (
            at(*SPEC, 1, "parents", to="a"),
            "specification.tasks[1]: parents: 'a' found; expected a list",
        ),
        "a cycle": (at(*SPEC, 1, "children", to=["a"]), "nodes wait for each other: "),
        "no machine": (
            at(*RUN, 1, "machines", to=[]),
            "execution.tasks[1]: task 'b' has no machine; device=... states where",
        ),
        "a machine that is null": (
            at(*RUN, 1, "machines", to=[None]),
            "execution.tasks[1].machines[0]: None found; expected a name",
        ),
        "an id of two lines": (
            at(*SPEC, 1, "id", to="b\nc"), "specification.tasks[1].id: 'b\\nc' found",
        ),
        "negative energy": (
            at(*RUN, 0, "energyInKWh", to=-1), "energyInKWh: -1 found; expected a numb",
        ),
        "energy of some": (
            at(*RUN, 0, "energyInKWh", to=1), "node 'b' has no energy, others have one",
        ),
        "less energy than static": (
            powered(50),
            "'a': energy is 125 J, less than its static energy 150 J",
        ),
    },
    "dagbench": {
        "no graph": (without("task_graph"), "'task_graph' is missing"),
        "no tasks": (without(*T), "'tasks' is missing"),
        "no cost": (without(*T, 1, "cost"), "tasks[1] ('b_0'): 'cost' is missing"),
        "negative cost": (
            at(*T, 1, "cost", to=-1), "tasks[1].cost: -1 found; expected milliseconds",
        ),
        "a name twice": (at(*T, 1, "name", to="a"), "tasks[1]: task 'a' is stated"),
        "unknown source": (
            at(*D, 0, "source", to="b_1"),
            "dependencies[0].source: no node 'b_1'; did you mean 'b_0'?",
        ),
        "no target": (without(*D, 0, "target"), "dependencies[0]: 'target' is missing"),
        "no size": (without(*D, 0, "size"), "dependencies[0]: 'size' is missing"),
        "negative size": (
            at(*D, 0, "size", to=-1.0), "dependencies[0].size: -1.0 found; expected un",
        ),
        "its own predecessor": (
            at(*D, 0, "target", to="a"), "nodes wait for each other: a -> a",
        ),
        "empty": (
            at("task_graph", to={"tasks": [], "dependencies": []}),
            "has no nodes, expected at least one",
        ),
    },
    "edgelist": {
        "no nodes": (without("nodes"), "'nodes' is missing"),
        "empty": (at("nodes", to=[]), "no node 'a'"),
        "unknown key": (at("edge", to=[]), "unknown key 'edge'; did you mean 'edges'?"),
        "no name": (without("nodes", 1, "name"), "nodes[1]: 'name' is missing"),
        "a name twice": (at("nodes", 1, "name", to="a"), "node 'a' is stated twice"),
        "a name that is a list": (
            at("nodes", 1, "name", to=[]), "nodes[1].name: [] found; expected a name",
        ),
        "no time": (without("nodes", 2, "time"), "nodes[2]: 'time' is missing"),
        "negative time": (
            at("nodes", 2, "time", to=-1), "nodes[2]: element 'c', time is -1 s, expe",
        ),
        "time of another dimension": (
            at("nodes", 2, "time", to="1 J"), "nodes[2].time: unit 'J' of '1 J' is not",
        ),
        "null time": (at("nodes", 2, "time", to=None), "nodes[2].time: "),
        "no device": (without("nodes", 2, "device"), "nodes[2]: give one of 'device'"),
        "unknown device": (
            at("nodes", 2, "device", to="gpu1"),
            "nodes[2]: unknown device 'gpu1'; did you mean 'gpu0'?",
        ),
        "a device without power": (
            at("devices", "gpu0", to={}), "devices.gpu0: 'static_power' is missing",
        ),
        "less energy than static": (
            at("nodes", 0, "energy", to="50 J"),
            "nodes[0].energy: '50 J' found; expected at least the static energy",
        ),
        "two energies": (
            at("nodes", 0, "dynamic_energy", to=1),
            "nodes[0].energy: 90 found; expected it beside a constant time, without",
        ),
        "labels": (
            at("nodes", 2, "labels", to={"step": []}),
            "nodes[2].labels: 'step' is []; expected a text or a number",
        ),
        "unknown source": (
            at("edges", 0, "source", to="aa"),
            "edges[0].source: no node 'aa'; did you mean 'a'?",
        ),
        "a source that is a table": (
            at("edges", 0, "source", to={}), "edges[0].source: no node {}",
        ),
        "no target": (without("edges", 0, "target"), "edges[0]: 'target' is missing"),
        "negative lag": (
            at("edges", 0, "lag", to=-1), "edges[0].lag: -1 found; expected zero or mo",
        ),
        "kind": (
            at("edges", 0, "kind", to="x"), "edges[0].kind: 'x' found; expected one of",
        ),
        "a weight": (
            at("edges", 0, "weight", to=3), "edges[0]: unknown key 'weight'; ",
        ),
        "a cycle": (
            at("edges", 1, to={"source": "b", "target": "a"}),
            "nodes wait for each other: ",
        ),
        "a name of the plan": (at("name", to="a\nb"), "name: 'a\\nb' found; expect"),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("which", "case"), [(which, case) for which in BAD for case in BAD[which]]
)
def test_bad_entries_are_one_clear_line(
    which: str, case: str, tmp_path: pathlib.Path
) -> None:
    change, message = BAD[which][case]
    document = copy.deepcopy(GOOD[which])
    change(document)
    assert message in refusal(which, written(tmp_path / "t.json", document))


@pytest.mark.parametrize("which", FORMATS)
def test_numbers_past_the_range_of_doubles(which: str, tmp_path: pathlib.Path) -> None:
    text = json.dumps(GOOD[which])
    keys = {
        "kineto": "dur", "chakra": "runtime", "dagbench": "cost",
        "wfformat": "runtimeInSeconds", "edgelist": "energy",
    }  # fmt: skip
    key = f'"{keys[which]}": '
    head, _, tail = text.partition(key)
    path = written(tmp_path / "t.json", f"{head}{key}1e999{tail.lstrip('0123456789.')}")
    assert "inf" in refusal(which, path)


def test_a_trace_without_work_on_a_gpu(tmp_path: pathlib.Path) -> None:
    events = [e for e in GOOD["kineto"][E] if e.get("cat") != "kernel"]
    path = written(tmp_path / "t.json", events)
    with pytest.raises(PlanError, match=r"t\.json: no work on a GPU; expected events"):
        read_kineto(path, static_power=60.0)
    assert len(READ["kineto"](path)) == 4


BAD_CSV: dict[str, tuple[str, str, str]] = {
    "no column": ("source\na", "", "e.csv: no column 'target'; found source"),
    "another column": ("source,target,weight\na,b,3", "", "unexpected column 'weight'"),
    "a column twice": ("source,target,lag,lag\na,b,3,3", "", "unexpected column 'lag'"),
    "cells missing": (
        "source,target,lag\na,b",
        "",
        "line 2 has another number of",
    ),
    "cells too many": (
        "source,target\na,b,c",
        "",
        "line 2 has another number of",
    ),
    "empty": ("", "", "e.csv: no column 'source'; found none"),
    "a quote that never ends": ('source,target\n"a,b', "", "e.csv: no valid CSV: "),
    "unknown target": (
        "source,target\na,c",
        "",
        "rows[0].target: no node 'c'; known",
    ),
    "no target": ("source,target\na,", "", "e.csv: rows[0]: 'target' is missing"),
    "a lag": ("source,target,lag\na,b,x", "", "e.csv: rows[0].lag: 'x' has no number"),
    "a lag that is no number": ("source,target,lag\na,b,nan", "", "nan is not finite"),
    "a cycle": ("source,target\na,b\nb,a", "", "nodes wait for each other: "),
    "no time": ("", "name,time,device\na,,d\nb,1,d", "rows[0]: 'time' is missing"),
    "no time column": (
        "",
        "name,device\na,d",
        "n.csv: no column 'time'; found name,",
    ),
    "negative time": (
        "",
        "name,time,device\na,-1,d",
        "element 'a', time is -1 s, exp",
    ),
    "a time twice": ("", "name,time,time,device\na,1,1,d", "unexpected column 'time'"),
    "zero bytes": ("", "name,time,device\na\0,1,d", "n.csv: "),
}


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv_is_one_clear_line(case: str, tmp_path: pathlib.Path) -> None:
    edges, nodes, message = BAD_CSV[case]
    (tmp_path / "e.csv").write_text(
        edges or ("" if case == "empty" else "source,target")
    )
    (tmp_path / "n.csv").write_text(nodes or "name,time,device\na,1,d\nb,1 ms,d\n")
    with pytest.raises(PlanError) as caught:
        read_edgelist(tmp_path / "e.csv", nodes=tmp_path / "n.csv", static_power=60.0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- fuzz: wrong things in files of the right shape -----------------------------------

VALUES = (
    None, True, 0, -1, 1.5, 1e308, 10**30, "", "a", "b", "1 s", "-1 J", "a\nb", [], {},
    [1], ["a"], {"name": "a"}, {"distribution": "gamma"}, "gpu0", 7, "\x00",
)  # fmt: skip


def places(document: Any) -> list[tuple[Any, Any]]:
    """All (container, key) of a document."""
    found: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        held = pending.pop()
        keys = list(held) if isinstance(held, dict) else range(len(held))
        for key in keys:
            found.append((held, key))
            if isinstance(held[key], dict | list):
                pending.append(held[key])
    return found


def mutated(document: Any, rng: random.Random) -> str:
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(places(document))
        action = rng.randrange(4)
        if action == 0:
            del container[key]
        elif action == 1 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif action == 2:
            other, place = rng.choice(places(document))
            container[key] = copy.deepcopy(other[place])
        else:
            container[key] = copy.deepcopy(rng.choice(VALUES))
        if not places(document):
            break
    text = json.dumps(document)
    if rng.random() < 0.1:
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice('{}[]",:0\x7f\n') + text[i + 1 :]
    return text


def outcome(read: Callable[[], Plan]) -> str | None:
    """Return the line of refusal; None where there is a plan."""
    try:
        plan = read()
    except InputError as error:
        return str(error)
    assert len(plan) > 0
    return None


@pytest.mark.parametrize("which", FORMATS)
def test_fuzzed_files_give_a_plan_or_one_clear_line(
    which: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "t.json"
    refused = 0
    for seed in range(250):
        path.write_text(mutated(GOOD[which], random.Random(seed)))
        message = outcome(lambda: READ[which](path))
        if message is not None:
            refused += 1
            assert "\n" not in message, seed
            assert message.startswith("t.json: "), seed
            assert len(message) < 1000, seed
    assert 25 < refused < 250


def test_fuzzed_csv_gives_a_plan_or_one_clear_line(tmp_path: pathlib.Path) -> None:
    edges, nodes = tmp_path / "e.csv", tmp_path / "n.csv"
    good = (
        "source,target,lag,kind\na,b,1,data\nb,c,2 ms,sync\n",
        "name,time,device,energy,step\na,1,d,70,1\nb,2,d,130,2\nc,0,d,0,\n",
    )
    refused = 0
    for seed in range(250):
        rng = random.Random(seed)
        for path, text in zip((edges, nodes), good, strict=True):
            for _ in range(rng.randint(0, 2)):
                i, cut = rng.randrange(len(text)), rng.randint(0, 2)
                text = text[:i] + rng.choice('",\n\0 a1-.é') + text[i + cut :]
            path.write_text(text)
        message = outcome(lambda: read_edgelist(edges, nodes=nodes, static_power=60.0))
        if message is not None:
            refused += 1
            assert "\n" not in message, seed
    assert 25 < refused < 250
