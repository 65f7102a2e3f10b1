"""Verdicts: error rates of insensitivity, and what the data cannot decide."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.validation.insensitivity import (
    history_insensitive,
    interference_insensitive,
    mutually_insensitive,
    p_value,
    paper_margin,
    plain_rule,
    split_budget,
)
from probcalc.validation.verdict import (
    HELD,
    REFUTED,
    UNDECIDED,
    Claim,
    as_table,
    decided,
    intersection,
)
from tests.measured_runs import ENERGY_SD, most, runs

MARGIN = 1.96 * ENERGY_SD
MEANS: dict[str, Any] = {"margin": MARGIN, "levels": (), "tail": None}


#: Normal and skewed runs, few and more blocks, processes that differ, neighbours alike.
runs_of_all_kinds = pytest.mark.parametrize(
    "how",
    [
        {"blocks": 3},
        {"blocks": 10},
        {"blocks": 5, "shape": "lognormal"},
        {"blocks": 10, "each": 10, "offset": 1.0},
        {"blocks": 10, "each": 10, "correlation": 0.9},
    ],
    ids=str,
)


def outcomes(repeats: int, seed: int, **options: Any) -> dict[Any, int]:
    rng = np.random.default_rng(seed)
    found = {HELD: 0, REFUTED: 0, UNDECIDED: 0}
    shift = options.pop("shift")
    asked = options.pop("asked", MEANS)
    moved = {k: options.pop(k) for k in ("slow",) if k in options}
    for _ in range(repeats):
        a = runs(rng, **options)
        b = runs(rng, shift=shift, **options, **moved)
        found[history_insensitive(a, b, **asked).outcome] += 1
    return found


@pytest.mark.parametrize("shift", [2.2, 2.5, 4.0])
@runs_of_all_kinds
def test_never_held_too_often_beyond_the_margin(
    how: dict[str, Any], shift: float
) -> None:
    found = outcomes(150, 1, shift=shift, **how)
    assert found[HELD] <= most(150)


@pytest.mark.parametrize("shift", [0.0, 1.0, 1.8])
@runs_of_all_kinds
def test_never_refuted_too_often_within_the_margin(
    how: dict[str, Any], shift: float
) -> None:
    found = outcomes(150, 2, shift=shift, **how)
    assert found[REFUTED] <= most(150)


def test_enough_blocks_decide() -> None:
    assert outcomes(50, 3, shift=0.0, blocks=30)[HELD] >= 48
    assert outcomes(50, 4, shift=4.0, blocks=30)[REFUTED] >= 48


def test_a_rare_slow_mode_is_no_insensitivity() -> None:
    """Two runs in a hundred that take half as long again, among 1000."""
    asked = {"margin": MARGIN, "levels": (0.5, 0.9), "tail": 0.005}
    found = outcomes(20, 5, shift=0.0, blocks=20, each=50, slow=0.02, asked=asked)
    assert found[HELD] == 0
    assert found[REFUTED] >= 15
    # Where nothing is slow the same claim holds.
    clean = outcomes(20, 6, shift=0.0, blocks=20, each=50, asked=asked)
    assert clean[HELD] >= 18


def test_one_process_decides_nothing() -> None:
    rng = np.random.default_rng(7)
    a = runs(rng, blocks=1, each=1000)
    b = runs(rng, blocks=1, each=1000)
    found = history_insensitive(a, b, margin=MARGIN)
    assert found.outcome is UNDECIDED
    assert "one process only" in found.parts[0].reason


def test_runs_that_do_not_vary_need_a_resolution() -> None:
    def still(energy: float) -> Element:
        return Element.from_runs(
            "still",
            time=[0.01] * 6,
            energy=[energy] * 6,
            static_power=60.0,
            device="gpu0",
            blocks=range(6),
        )

    found = history_insensitive(
        still(2.0), still(2.0), margin=0.01, levels=(), tail=None
    )
    assert found.outcome is UNDECIDED
    assert "resolution" in found.parts[0].reason
    stated = history_insensitive(
        still(2.0), still(2.0), margin=0.01, levels=(), tail=None, resolution=1e-3
    )
    assert stated.outcome is HELD
    other = history_insensitive(
        still(2.0), still(2.1), margin=0.01, levels=(), tail=None, resolution=1e-3
    )
    assert other.outcome is REFUTED


def test_a_change_of_static_power_counts() -> None:
    rng = np.random.default_rng(8)
    a = runs(rng, blocks=20)
    assert a.runs is not None
    hot = Element.from_runs(
        "kernel",
        time=a.runs.time,
        energy=a.runs.dynamic_energy + 70.0 * a.runs.time,
        static_power=70.0,  # leakage: 10 W for 10 ms are 0.1 J
        device="gpu0",
        blocks=a.runs.blocks,
    )
    found = history_insensitive(a, hot, margin=0.05, levels=(), tail=None)
    assert found.outcome is REFUTED
    assert found.parts[0].value == pytest.approx(0.1, rel=0.02)


def test_further_blocks_are_about_those_that_decide() -> None:
    rng = np.random.default_rng(9)
    more = []
    for _ in range(40):
        found = history_insensitive(
            runs(rng, blocks=5), runs(rng, blocks=5, shift=1.0), **MEANS
        )
        if found.outcome is UNDECIDED and found.further is not None:
            more.append(found.further)
    assert more
    needed = 5 + int(np.median(more))
    held = outcomes(60, 10, shift=1.0, blocks=needed)
    assert held[HELD] > 20  # about half of the time, not hardly ever


def test_margins() -> None:
    rng = np.random.default_rng(11)
    a = runs(rng, blocks=400)
    assert paper_margin(a) == pytest.approx(1.96 * ENERGY_SD, rel=0.2)
    b = runs(rng, blocks=10)
    share = history_insensitive(a, b, margin="2 %")
    assert share.claim.margin == pytest.approx(0.02 * 1.6, rel=0.01)
    assert split_budget(6.0, {"a": 1, "b": 2, "c": 0}) == {"a": 2.0, "b": 2.0}
    for bad in ("2", "x %", "-1 %", "nan %"):
        with pytest.raises(InputError, match="margin is"):
            history_insensitive(a, b, margin=bad)
    with pytest.raises(InputError, match="margin is -1"):
        history_insensitive(a, b, margin=-1.0)
    with pytest.raises(InputError, match="error budget"):
        split_budget(0.0, {"a": 1})


def test_the_plain_rule_is_wrong_as_often_as_the_study_says() -> None:
    """Shift 2.5 sd, three normal runs: wrongly insensitive a quarter of the time."""
    rng = np.random.default_rng(12)
    wrong = sum(
        plain_rule(runs(rng, blocks=3), runs(rng, blocks=3, shift=2.5)).insensitive
        for _ in range(400)
    )
    assert 0.15 < wrong / 400 < 0.35


def test_mutual_needs_all() -> None:
    rng = np.random.default_rng(13)
    near = [runs(rng, blocks=30) for _ in range(3)]
    far = runs(rng, blocks=30, shift=6.0)
    held = [history_insensitive(near[0], near[1], **MEANS)]
    held.append(interference_insensitive(near[0], near[2], **MEANS))
    assert mutually_insensitive(held).outcome is HELD
    refuted = history_insensitive(near[0], far, **MEANS)
    assert mutually_insensitive([*held, refuted]).outcome is REFUTED


def test_p_values_are_not_small_too_often() -> None:
    rng = np.random.default_rng(14)
    found = [
        p_value(runs(rng, blocks=8), runs(rng, blocks=8), margin=0.0)
        for _ in range(300)
    ]
    assert np.count_nonzero(np.array(found) <= 0.05) <= most(300)
    assert p_value(runs(rng, blocks=8), runs(rng, blocks=8, shift=6), margin=0.0) < 1e-3


def test_no_truth_value_by_accident() -> None:
    claim = Claim("x is small", 1.0, "J")
    part = decided("x", 0.5, 0.2, 1.5, claim, blocks=5)
    verdict = intersection(claim, [part], [("blocks", 5)])
    for thing in (verdict, verdict.outcome):
        with pytest.raises(TypeError, match="no truth value"):
            bool(thing)
    assert "margin 1 J at 95%" in as_table([verdict])
    plain = Claim("x is small", 0.0, "")
    line = as_table([intersection(plain, [part], [("blocks", 5)])])
    assert "margin 0 at 95%" in line  # and no gap where there is no unit
    assert verdict.further == 15  # half-width 1 over room 0.5, squared, less the five


def test_to_dict_is_json_and_the_table_tells_all() -> None:
    rng = np.random.default_rng(15)
    found = history_insensitive(runs(rng, blocks=3), runs(rng, blocks=3), margin=MARGIN)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["outcome"] == found.outcome.value
    assert [p["name"] for p in again["parts"]] == [p.name for p in found.parts]
    table = as_table([found])
    assert "quantile 0.9" in table
    assert "open" in table  # three runs do not bound it
    assert "0.95" in json.dumps(again)


@pytest.mark.parametrize(
    ("margin", "level", "message"),
    [
        (float("nan"), 0.95, "margin is nan"),
        (-1.0, 0.95, "margin is -1"),
        (1.0, 1.0, "level is 1"),
        (1.0, 0.2, "level is 0.2"),
    ],
)
def test_claims_are_checked(margin: float, level: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Claim("x", margin, "J", level)


def test_elements_are_checked() -> None:
    modelled = Element("m", time=1.0, static_power=1.0, device="gpu0")
    rng = np.random.default_rng(16)
    with pytest.raises(InputError, match="no measured runs"):
        history_insensitive(modelled, modelled, margin=1.0)
    with pytest.raises(InputError, match="expected the same devices"):
        history_insensitive(
            runs(rng, blocks=3), runs(rng, blocks=3).on("gpu1"), margin=1.0
        )
    with pytest.raises(InputError, match="no verdicts"):
        mutually_insensitive([])


def test_whole_processes_that_are_slow_are_not_ignored() -> None:
    """One process in three costs more: twenty of them are told from none."""
    rng = np.random.default_rng(17)
    held = 0
    for _ in range(60):
        a = runs(rng, blocks=20, each=50)
        b = runs(rng, blocks=20, each=50)
        assert b.runs is not None
        slow = np.repeat(rng.random(20) < 0.3, 50)
        moved = Element.from_runs(
            "kernel",
            time=b.runs.time,
            energy=b.runs.energy + 2.0 * slow,
            static_power=60.0,
            device="gpu0",
            blocks=b.runs.blocks,
        )
        found = history_insensitive(a, moved, margin=0.5, tail=0.02)
        held += found.outcome is HELD
    assert held <= most(60)


def test_p_values_count_processes() -> None:
    rng = np.random.default_rng(18)
    found = np.array(
        [
            p_value(
                *(runs(rng, blocks=10, each=50, offset=20.0) for _ in "ab"),
                margin=1e-3,
            )
            for _ in range(200)
        ]
    )
    assert np.count_nonzero(found < 0.05) <= most(200)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": None}, "margin is None"),
        ({"margin": True}, "margin is True"),
        ({"margin": 1.0, "tail": -1.0}, "tail is -1"),
        ({"margin": 1.0, "tail": float("nan")}, "tail is nan"),
        ({"margin": 1.0, "processes": 2.0}, "processes is 2"),
        ({"margin": 1.0, "resolution": float("nan")}, "resolution is nan"),
        ({"margin": 1.0, "resolution": -5.0}, "resolution is -5"),
        ({"margin": 1.0, "level": 1.0}, "level is 1"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(19)
    with pytest.raises(InputError, match=message):
        history_insensitive(runs(rng, blocks=3), runs(rng, blocks=3), **options)


def test_grains_must_agree() -> None:
    rng = np.random.default_rng(20)
    a = runs(rng, blocks=5)
    assert a.runs is not None
    mean = Element.from_runs(
        "kernel",
        time=a.runs.time,
        energy=a.runs.energy,
        static_power=60.0,
        device="gpu0",
        grain=100,
    )
    with pytest.raises(InputError, match="means of 1 runs and of 100"):
        history_insensitive(a, mean, margin=1.0)
