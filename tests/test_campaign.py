"""Campaigns: blocks in fresh processes, resumed after a crash, equal work judged."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.measurement.block import _others
from probcalc.measurement.campaign import (
    Campaign,
    CampaignError,
    order_of,
    read_blocks,
    run,
)
from probcalc.measurement.equalwork import (
    Output,
    Predicate,
    output_of,
    predicate_of,
    same_work,
)
from probcalc.measurement.instruments import meter_of, nvml, replay
from probcalc.measurement.measuring import measure
from probcalc.measurement.settings import Settings
from probcalc.measurement.store import load_all
from probcalc.measurement.timers import timer_of
from probcalc.measurement.workload import Workload, WorkloadError, imported, job_of

ROOT = Path(__file__).resolve().parent.parent
QUICK = Settings(windows=2, seconds=0.15, idle=0.1, settle=0.0, interval=0.004)
PRODUCT = Workload(
    "product",
    function="tests.campaign_work:product",
    setup="tests.campaign_work:matrices",
)
COMMAND = Workload("command", command="echo done")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two minutes of some 200 W that go up and down."""
    file = tmp_path / "trace.csv"
    t = np.arange(0.0, 120.0, 0.01)
    rows = np.stack([t, 200.0 + 20.0 * np.sin(37.0 * t), 45.0 + 0.01 * t], axis=1)
    lines = "\n".join(",".join(f"{x:.4f}" for x in row) for row in rows)
    file.write_text("t_s,power_w,temp_c\n" + lines + "\n")
    return file


def campaign(trace: Path, *workloads: Workload, blocks: int = 2) -> Campaign:
    meter = replay(trace, period=0.01, reading_window=0.01)
    return Campaign(workloads or (PRODUCT,), meter, blocks=blocks, settings=QUICK)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks find the workloads of the tests, and the package, as this process does."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))


def test_blocks_are_measured_in_processes_of_their_own(
    trace: Path, tmp_path: Path
) -> None:
    asked = campaign(trace, PRODUCT, COMMAND)
    seen: list[tuple[int, int]] = []
    done = run(
        asked, tmp_path / "out", progress=lambda n, all_, _: seen.append((n, all_))
    )
    assert done == 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    found = read_blocks(tmp_path / "out", asked)
    assert set(found) == {(b, a) for b in range(2) for a in range(2)}
    assert len({f["process"] for f in found.values()}) == 4
    for (_, arm), block in found.items():
        assert block["name"] == asked.workloads[arm].name
        assert block["device"]["name"] == "Replayed board"
        assert len(block["windows"]) == 2
        for rest in block["idle"]:
            assert rest["power"] == pytest.approx(200.0, rel=0.15)
        for window in block["windows"]:
            # One figure for every run, and joules that fit the replayed board.
            assert len(window["run_time"]) == block["grain"]
            if arm == 0:
                assert window["valid"], window["reasons"]
                power = window["energy"] / (window["end"] - window["start"])
                assert window["method"] == "regression"
                assert 100.0 < power < 300.0
            else:
                # A command of a few ms is shorter than the counter can tell.
                assert block["grain"] == 1
                assert not window["valid"]
                assert window["energy"] is None
                assert window["reasons"]
    # Nothing is run twice.
    assert run(asked, tmp_path / "out") == 0


def test_one_call_measures_and_writes(trace: Path, tmp_path: Path) -> None:
    meter = replay(trace, period=0.01, reading_window=0.01)
    asked = {"meter": meter, "blocks": 1, "settings": QUICK, "device": "gpu0"}
    (found,) = measure(PRODUCT, tmp_path / "out", **asked)
    assert (found.element, found.devices) == ("product", ("gpu0",))
    (stored,) = load_all(tmp_path / "out" / "signatures").signatures
    assert stored.same_as(found)


def test_arms_are_interleaved_in_an_order_that_the_seed_tells() -> None:
    asked = Campaign(
        (PRODUCT, COMMAND, Workload("third", command="true")),
        nvml("0"),
        blocks=8,
        seed=3,
    )
    order = list(order_of(asked))
    assert order == list(order_of(asked))
    by_block = [[arm for b, arm in order if b == block] for block in range(8)]
    assert all(sorted(arms) == [0, 1, 2] for arms in by_block)
    assert len({tuple(arms) for arms in by_block}) > 2


def _launch(trace: Path, folder: Path, blocks: int) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.test_campaign import campaign, run\n"
        "run(campaign(Path(sys.argv[1]), blocks=int(sys.argv[3])), sys.argv[2])\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(trace), str(folder), str(blocks)], cwd=ROOT
    )


def _killed_and_resumed(
    trace: Path, folder: Path, kills: int, blocks: int, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(kills):
        process = _launch(trace, folder, blocks)
        try:
            process.wait(chance.uniform(0.3, 4.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    asked = campaign(trace, blocks=blocks)
    run(asked, folder)
    found = read_blocks(folder, asked)
    assert sorted(found) == [(b, 0) for b in range(blocks)]
    # Each block is there once, whole, from a process of its own.
    files = sorted(p.name for p in (folder / "blocks").iterdir() if p.suffix == ".json")
    whole = [name for name in files if not name.startswith(".")]
    assert whole == [f"{b:04d}-000.json" for b in range(blocks)]
    assert len({f["process"] for f in found.values()}) == blocks
    ends = [found[b, 0]["ended"] for b in range(blocks)]
    assert ends == sorted(ends)  # one after the other: never two at a time
    starts = [found[b, 0]["windows"][0]["start"] for b in range(blocks)]
    lasts = [found[b, 0]["windows"][-1]["end"] for b in range(blocks)]
    assert all(s > e for s, e in zip(starts[1:], lasts[:-1], strict=True))


def test_a_killed_campaign_is_taken_up_again(trace: Path, tmp_path: Path) -> None:
    _killed_and_resumed(trace, tmp_path / "out", kills=3, blocks=3, seed=1)


@pytest.mark.slow
def test_twenty_kills_lose_and_double_nothing(trace: Path, tmp_path: Path) -> None:
    _killed_and_resumed(trace, tmp_path / "out", kills=20, blocks=8, seed=2)


def test_another_campaign_does_not_get_in(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    run(campaign(trace, blocks=1), folder)
    with pytest.raises(CampaignError, match="workloads was"):
        run(campaign(trace, COMMAND, blocks=1), folder)
    # More blocks of the same are welcome, fewer are not.
    assert run(campaign(trace, blocks=2), folder) == 1
    with pytest.raises(CampaignError, match="blocks was 2 and is now 1"):
        run(campaign(trace, blocks=1), folder)


def test_a_mistake_before_the_first_block_can_be_mended(
    trace: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    typo = Workload("product", function="tests.campaign_work:no_such_function")
    with pytest.raises(CampaignError, match="no_such_function"):
        run(campaign(trace, typo, blocks=1), folder)
    assert run(campaign(trace, blocks=1), folder) == 1


def test_a_failing_workload_is_named(trace: Path, tmp_path: Path) -> None:
    broken = Workload("broken", function="tests.campaign_work:broken")
    with pytest.raises(CampaignError, match=r"arm 'broken', block 0: .*not work"):
        run(campaign(trace, broken), tmp_path / "out")
    line = json.loads((tmp_path / "out" / "failed.jsonl").read_text().splitlines()[0])
    assert line["arm"] == 0
    exits = Workload("exits", command="echo wrong >&2; exit 3")
    with pytest.raises(CampaignError, match="status 3: wrong"):
        run(campaign(trace, exits), tmp_path / "other")


def test_a_damaged_block_is_named(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "blocks").mkdir(parents=True)
    (folder / "blocks" / "0000-000.json").write_text("{")
    with pytest.raises(CampaignError, match=r"0000-000\.json: cannot be read"):
        read_blocks(folder, campaign(trace))
    (folder / "blocks" / "0000-000.json").write_text("{}")
    with pytest.raises(CampaignError, match="is no finished block, 'grain'"):
        read_blocks(folder, campaign(trace))


def test_whose_processes_are_on_the_board() -> None:
    own = os.getpid()
    assert _others({7}, {7, own}) == [7]
    assert _others(set(), {own}) == []
    # By another number, as in a container: the one that came with the workload.
    assert _others({7}, {7, 90}) == [7]
    assert _others(set(), {90, 91}) == [90, 91]


# --- workloads and timers ------------------------------------------------------------


def test_workloads() -> None:
    job = job_of(PRODUCT)
    assert np.asarray(job.run()).shape == (60, 60)
    assert job_of(COMMAND).run() == b"done\n"
    timed = timer_of("host").run(job.run, 5)
    assert timed.duration.shape == timed.done.shape == (5,)
    assert timed.start <= timed.done[0] <= timed.done[-1] <= timed.end
    assert np.all(timed.duration > 0.0)
    gaps = np.array([0.01, 0.02])
    spaced = timer_of("host").run(job.run, 2, gaps=gaps)
    assert spaced.end - spaced.start >= 0.03 + spaced.duration.sum()


def test_jax_is_waited_for() -> None:
    import jax.numpy as jnp

    timed = timer_of("jax").run(lambda: jnp.ones(1000).sum(), 3)
    assert float(timed.output) == 1000.0
    assert timer_of("auto").name in ("jax", "torch", "cupy")  # it is imported now


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Workload("x"), "exactly one of function and command"),
        (lambda: Workload("x", function="a:b", command="c"), "exactly one"),
        (lambda: Workload("", command="c"), "expected a name"),
        (lambda: Workload("x", command=" "), "command is empty"),
        (lambda: Workload("x", command="c", setup="a:b"), "takes no set-up"),
        (lambda: Workload("x", function="no colon"), "expected module:function"),
        (lambda: Workload("x", function="a:b;c"), "expected module:function"),
        (lambda: imported("no_such_module:f", "w"), "module 'no_such_module'"),
        (lambda: imported("os:no_such", "w"), "has no 'no_such'"),
        (lambda: imported("os:sep", "w"), "cannot be called"),
        (lambda: timer_of("sundial"), "timer is 'sundial'"),
        (lambda: timer_of("cupy"), "timer 'cupy'"),
        (lambda: Campaign((), nvml("0")), "no workloads"),
        (lambda: Campaign((COMMAND, COMMAND), nvml("0")), "two workloads"),
        (lambda: Campaign((COMMAND,), nvml("0"), blocks=0), "blocks is 0"),
        (lambda: Campaign((COMMAND,), nvml("0"), seed=-1), "seed is -1"),
        (lambda: Campaign((COMMAND,), nvml("0"), equal_work="x"), "equal work: 'x'"),
        (
            lambda: Campaign((COMMAND,), nvml("0"), equal_work="rtol=1e-3"),
            "output of command 'command' is bytes",
        ),
        (lambda: predicate_of("rtol=1e-3,rtol=5"), "'rtol' is given twice"),
        (lambda: Settings(windows=0), "windows is 0"),
        (lambda: Settings(idle=0.0), "idle is 0.0"),
        (lambda: Settings(seconds=float("nan")), "seconds is nan"),
        (lambda: meter_of({"kind": "sundial"}), "kind is 'sundial'"),
        (lambda: replay("x.csv", colour=1), "'colour' found"),
        (lambda: meter_of(replay("/no/such.csv")), "such.csv"),
    ],
)
def test_bad_input(made: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made()  # type: ignore[operator]


def test_a_set_up_that_fails() -> None:
    with pytest.raises(WorkloadError, match=r"set-up .*no_matrices failed: Run"):
        job_of(
            Workload(
                "x",
                function="tests.campaign_work:product",
                setup="tests.campaign_work:no_matrices",
            )
        )


# --- equal work ----------------------------------------------------------------------


def test_the_same_product_in_two_ways() -> None:
    from tests import campaign_work as work

    a = work.matrices()
    one, two = output_of(work.product(a)), output_of(work.product_by_rows(a))
    three = output_of(work.other(a))
    close = predicate_of("rtol=1e-9,atol=1e-9")
    assert same_work(one, one, predicate_of("bytes")).same
    assert same_work(one, two, close).same
    wrong = same_work(one, three, close)
    assert not wrong.same
    assert "of 3600 numbers differ" in wrong.reason
    assert not same_work(one, output_of(a[:10]), close).same
    assert "numbers" in same_work(one, output_of(a[:10]), close).reason


def test_bytes_shapes_and_nan() -> None:
    bytes_ = Predicate()
    assert same_work(output_of(b"x"), output_of(b"x"), bytes_).same
    assert not same_work(output_of(b"x"), output_of("x"), bytes_).same
    assert not same_work(output_of([1, 2]), output_of([[1], [2]]), bytes_).same
    # Same bytes of another shape or type are another output.
    assert not same_work(
        output_of(np.zeros((2, 3))), output_of(np.zeros((3, 2))), bytes_
    ).same
    nested = {"a": np.ones(3), "b": [np.zeros(2), 1.0]}
    assert same_work(output_of(nested), output_of(dict(nested)), bytes_).same
    close = predicate_of("rtol=0.1")
    nan = output_of([np.nan, 1.0])
    assert same_work(nan, output_of([np.nan, 1.01]), close).same
    assert not same_work(nan, output_of([0.0, 1.0]), close).same
    assert not same_work(output_of([np.inf]), output_of([1.0]), close).same
    assert not same_work(output_of(b"x"), output_of(b"y"), close).same
    # With a tolerance, structure and all that is no number must agree.
    assert not same_work(
        output_of(["error", 1.0]), output_of(["fine", 1.0]), close
    ).same
    assert not same_work(output_of({"a": 1.0}), output_of([1.0]), close).same
    assert not same_work(
        output_of(np.zeros((2, 3))), output_of(np.ones((3, 2))), close
    ).same
    # Lengths are part of what is compared, and no rounding to floats.
    assert output_of([b"abytes;", b""]).digest != output_of([b"a", b"bytes;"]).digest
    exact = predicate_of("atol=0")
    assert not same_work(output_of(2**62), output_of(2**62 + 1), exact).same
    with pytest.raises(InputError, match="expected arrays"):
        output_of(object())


def agreed(a: Output, b: Output) -> bool:
    return a.described == b.described


def test_a_predicate_of_the_users_own() -> None:
    own = predicate_of("tests.test_campaign:agreed")
    assert same_work(output_of([1.0]), output_of([2.0]), own).same
    assert not same_work(output_of([1.0]), output_of([2.0, 3.0]), own).same


def test_time_is_monotonic_across_processes() -> None:
    """Blocks and their sampler share one clock."""
    before = time.monotonic()
    said = subprocess.run(
        [sys.executable, "-c", "import time; print(time.monotonic())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert before < float(said.stdout) < time.monotonic()
