"""Is variant A cheaper than B, on the public overlap sweep of Kareus?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from probcalc.measurement.readers.kareus import Setting, read_sweep
from probcalc.validation.blocks import Blocked
from probcalc.validation.comparison import compare
from probcalc.validation.verdict import HELD, REFUTED, UNDECIDED


def energy(setting: Setting, name: str) -> Blocked:
    return Blocked.of(setting.energy, name=name)


def test_overlap_against_one_after_the_other(
    shared_data: Callable[[str], Path],
) -> None:
    file = shared_data("energy/kareus/attention_overlap_sweep_default.csv")
    settings = read_sweep(file).settings
    apart = [s for s in settings if s.options["overlap_start"] == -1]
    together = [s for s in settings if s.options["overlap_start"] >= 0]
    assert apart
    assert len(together) > 100
    sequential = energy(apart[0], "one after the other")
    order = sorted(together, key=lambda s: float(s.energy.mean()))
    best, worst = energy(order[0], "best overlap"), energy(order[-1], "worst overlap")
    # Three repeats tell the best from the sequence, with an interval beside it.
    found = compare(best, sequential)
    assert found.cheaper.outcome is HELD
    assert found.difference[2] < 0.0
    assert found.ratio < 1.0
    assert compare(worst, best).cheaper.outcome is REFUTED
    # Neighbours in the order of means are not told apart by three repeats; the
    # verdict says so, and how many blocks would.
    undecided = 0
    for a, b in zip(order[:40:2], order[1:40:2], strict=True):
        near = compare(energy(a, "a"), energy(b, "b"))
        if near.cheaper.outcome is UNDECIDED:
            undecided += 1
            assert near.cheaper.further is None or near.cheaper.further >= 1
    assert undecided >= 15
