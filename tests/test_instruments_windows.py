"""Energy of windows from traces that the real pynvml gave: what must come out right."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from probcalc.measurement.crosscheck import cross_check
from probcalc.measurement.meter import Missing, Trace
from probcalc.measurement.windows import window_energy
from tests import standin_reads as reads
from tests.standin import ENERGY, Standin, built, record


@pytest.fixture
def standin(
    tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Standin:
    return Standin(built(tmp_path_factory.getbasetemp() / "standin"), tmp_path)


def read(shown: dict[str, Any]) -> Trace:
    """A trace as another process has shown it."""
    missing = tuple(Missing(*m) for m in shown["missing"])
    return Trace(
        np.array(shown["before"]),
        np.array(shown["value"]),
        np.array(shown["after"]),
        shown["source"],
        shown["scope"],
        missing,
        shown["interval"],
    )


def traces(standin: Standin, *records: str) -> tuple[Trace, Trace]:
    """Counter and instant power of 10 s of one board."""
    found = standin.run(reads.through_ten_seconds, records)
    return read(found["counter"]), read(found["power"])


def test_a_window_shorter_than_the_update_period_is_no_zero(standin: Standin) -> None:
    counter, _ = traces(standin, record("device", trace=standin.constant(200)))
    short = window_energy(counter, 5.02, 5.05, method="naive", period=0.1)
    assert not short.valid
    assert short.energy is None
    assert any("window shorter than update period" in r for r in short.reasons)
    long = window_energy(counter, 1.0, 9.0, period=0.1)
    assert long.energy == pytest.approx(1600.0, rel=0.02)


def test_power_stands_in_for_a_counter_that_is_not_there(standin: Standin) -> None:
    board = record("device", trace=standin.constant(250), counter="none")
    counter, power = traces(standin, board)
    assert len(counter) == 0
    assert len(counter.missing) == 201
    assert "does not answer" in counter.missing[0].reason
    found = window_energy(power, 0.0, 10.0, period=0.1, averaging=0.0)
    assert found.energy == pytest.approx(2500.0)
    assert found.method == "polled"


def test_a_counter_that_never_answered_gives_no_energy(standin: Standin) -> None:
    board = record("device", trace=standin.constant(250), counter="none")
    counter, _ = traces(standin, board)
    absent = window_energy(counter, 0.0, 10.0, period=0.1)
    assert (absent.valid, absent.energy) == (False, None)


def test_a_counter_and_power_that_disagree_give_no_verdict(standin: Standin) -> None:
    # The figures of a public record: 187.443 J and 326.883 J over the same 5.0045 s.
    counted, drawn = 187.443 / 5.0045, 326.883 / 5.0045
    board = record("device", trace=standin.constant(counted))
    high = record("fault", kind="scale", call="field:186", value=drawn / counted)
    counter, power = traces(standin, board, high)
    first = window_energy(counter, 2.0, 7.0045, period=0.1)
    second = window_energy(power, 2.0, 7.0045, period=0.1, averaging=0.0)
    assert first.energy == pytest.approx(187.443, rel=0.01)
    assert second.energy == pytest.approx(326.883, rel=1e-4)
    assert cross_check(first, second).status == "conflict"
    assert cross_check(second, second).status != "conflict"


def test_a_reset_of_the_counter_makes_the_window_invalid(standin: Standin) -> None:
    board = record("device", trace=standin.constant(200), counter0_mj=5_000_000)
    reset = record("fault", kind="reset", call=ENERGY, t0_s=5.0, value=90_763)
    counter, _ = traces(standin, board, reset)
    found = window_energy(counter, 1.0, 9.0, period=0.1)
    assert not found.valid
    assert found.energy is None
    assert any("reset" in r for r in found.reasons)


def test_readings_out_of_range_make_the_window_invalid(standin: Standin) -> None:
    board = record("device", trace=standin.constant(250))
    high = record(
        "fault", kind="set", call="field:186", value=3_700_000, t0_s=4.0, t1_s=5.0
    )
    _, power = traces(standin, board, high)
    assert len(power.missing) == 20
    found = window_energy(power, 1.0, 9.0, period=0.1, averaging=0.0)
    assert not found.valid
    assert any("3700 W" in r for r in found.reasons)
    # A window that they do not touch stands.
    assert window_energy(power, 6.0, 9.0, period=0.1, averaging=0.0).valid


def test_a_window_with_a_lost_board_is_invalid(standin: Standin) -> None:
    board = record("device", trace=standin.constant(200))
    lost = record("fault", kind="lost", t0_s=8.0, t1_s=8.5)
    counter, _ = traces(standin, board, lost)
    found = window_energy(counter, 2.0, 9.5, period=0.1)
    assert not found.valid
    assert any("fell off the bus" in r for r in found.reasons)
    assert counter.time[-1] > 9.0


def test_a_failed_poll_is_a_gap_and_not_a_zero(standin: Standin) -> None:
    board = record("device", trace=standin.constant(200))
    once = record(
        "fault", kind="error", call="field:186", value=999, t0_s=4.99, t1_s=5.04
    )
    _, power = traces(standin, board, once)
    assert len(power.missing) == 1
    assert power.value.min() == 200.0
    assert power.largest_gap == pytest.approx(0.1)
    found = window_energy(power, 1.0, 9.0, period=0.1, averaging=0.0)
    assert found.energy == pytest.approx(1600.0)
    assert found.largest_gap == pytest.approx(0.1)


def test_a_counter_that_stands_still_under_load_does_not_move(
    standin: Standin,
) -> None:
    board = record("device", trace=standin.constant(200))
    frozen = record("fault", kind="freeze", call=ENERGY, t0_s=0.0)
    counter, power = traces(standin, board, frozen)
    found = window_energy(counter, 1.0, 9.0, period=0.1)
    assert not found.valid
    assert found.energy is None
    assert any("source does not move" in r for r in found.reasons)
    assert window_energy(power, 1.0, 9.0, period=0.1, averaging=0.0).valid
