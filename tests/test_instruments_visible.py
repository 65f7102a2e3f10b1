"""CUDA_VISIBLE_DEVICES to boards, by itself and with the real pynvml."""

from __future__ import annotations

import pathlib

import pytest

from probcalc.measurement.faults import NoDeviceError
from probcalc.measurement.meter import Device
from probcalc.measurement.visible import selected
from tests import standin_reads as reads
from tests.standin import Standin, built, record

UUIDS = ("GPU-af7b61d8-1", "GPU-af7bcccc-2", "GPU-0d0d0d0d-3", "GPU-0e0e0e0e-4")
BOARDS = tuple(
    Device(uuid, f"00000000:0{i}:00.0", "A100", i, "1") for i, uuid in enumerate(UUIDS)
)
MIG = {
    "MIG-11111111": UUIDS[0],
    "MIG-12222222": UUIDS[0],
    "MIG-33333333": UUIDS[2],
}


@pytest.fixture
def standin(
    tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Standin:
    return Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,3", [2, 3]),
        (" 3 , 0 ", [3, 0]),
        ("1,-1,2", [1]),
        ("GPU-af7b61d8", [0]),
        ("GPU-0E", [3]),
        ("GPU-0d0d0d0d-3,0", [2, 0]),
        ("MIG-3", [2]),
        ("MIG-11111111,MIG-12222222", [0]),
        ("MIG-33333333,MIG-11111111", [2, 0]),
        ("MIG-GPU-0d0d0d0d-3/1/0", [2]),
        ("MIG-GPU-0d0d0d0d-3/1/0,MIG-GPU-0d0d0d0d-3/2/0", [2]),
    ],
)
def test_what_cuda_sees(text: str | None, expected: list[int]) -> None:
    assert [board.index for board in selected(text, BOARDS, MIG)] == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4", "there are 4 boards"),
        ("0,1,0", "'0' names a board again"),
        ("0,GPU-af7b61d8", "names a board again"),
        ("MIG-11111111,MIG-11", "names a board again"),
        ("GPU-af7b", "names more than one board"),
        ("GPU-ffff", "names no board; there are: GPU-af7b61d8-1"),
        ("MIG-1", "names more than one MIG instance"),
        ("MIG-9", "names no MIG instance"),
        ("cuda:0", "no ordinal and no UUID"),
        ("0,,1", "'' is no ordinal"),
        ("1.5", "no ordinal"),
    ],
)
def test_what_names_no_board_is_refused(text: str, says: str) -> None:
    with pytest.raises(NoDeviceError) as caught:
        selected(text, BOARDS, MIG)
    assert says in str(caught.value)
    assert text in str(caught.value)


def test_ordinals_of_boards_of_two_kinds_need_an_order() -> None:
    boards = (BOARDS[0], Device("GPU-x", "", "H100", 1, "1"))
    with pytest.raises(NoDeviceError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        selected("1", boards)
    assert selected("1", boards, order="PCI_BUS_ID") == (boards[1],)
    assert selected("GPU-x", boards) == (boards[1],)
    assert selected(None, boards) == boards


def test_a_whole_uuid_that_another_begins_with_is_itself() -> None:
    boards = [
        Device(uuid, "", "A100", i, "1") for i, uuid in enumerate(["GPU-a", "GPU-ab"])
    ]
    assert selected("GPU-a", boards) == (boards[0],)


def test_an_instance_on_a_board_that_does_not_answer_is_refused() -> None:
    with pytest.raises(NoDeviceError, match="on a board that does not answer"):
        selected("MIG-33333333", BOARDS[:2], MIG)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2,3", [30.0, 40.0]),
        ("GPU-0d0d0d0d,GPU-af7b61d8", [30.0, 10.0]),
        ("", []),
        ("MIG-1", [20.0]),
    ],
)
def test_power_is_that_of_the_boards_that_cuda_sees(
    standin: Standin, text: str, expected: list[float]
) -> None:
    mig = {1: {"mig": 1, "instances": "MIG-1,MIG-2"}}
    boards = [
        record(
            "device", uuid=u, trace=standin.constant(10.0 * (i + 1)), **mig.get(i, {})
        )
        for i, u in enumerate(UUIDS)
    ]
    environment = {"CUDA_VISIBLE_DEVICES": text}
    found = standin.run(reads.visible_power, boards, environment=environment)
    assert found == expected


def test_four_mig_instances_are_one_board_counted_once(standin: Standin) -> None:
    rows = ",".join(f"MIG-{k}" for k in range(4))
    board = record(
        "device", uuid="GPU-a", trace=standin.constant(200), mig=1, instances=rows
    )
    environment = {"CUDA_VISIBLE_DEVICES": rows}
    found = standin.run(reads.mig_energy, [board], environment=environment)
    assert found["energy"] == [pytest.approx(1000.0, abs=2e-3)]
    assert found["scopes"] == ["board"]
    assert found["rows"] == ["GPU-a"]
    assert found["sampled"] == 1
    assert found["mig"] == [True]
