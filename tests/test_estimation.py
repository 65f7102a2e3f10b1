"""Estimation error: bootstrap and bands, where they hold and where they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from probcalc.distribution import Empirical
from probcalc.element import Element
from probcalc.errors import CompositionError, InputError
from probcalc.estimation import uncertainty
from probcalc.prediction import predict


def runs(
    n: int, seed: int = 1, name: str = "r", blocks: int = 0, **fields: Any
) -> Element:
    rng = np.random.default_rng(seed)
    t = rng.uniform(1.0, 2.0, n)
    e = 80.0 * t + rng.uniform(0.0, 5.0, n)
    if blocks:
        fields["blocks"] = np.sort(rng.integers(0, blocks, n))
    given = {"device": "gpu0", "static_power": 60.0} | fields
    return Element.from_runs(name, time=t, energy=e, **given)


def known(**fields: Any) -> Element:
    given = {"time": 2.0, "static_power": 60.0, "device": "gpu0"} | fields
    return Element("known", **given)


# ---- bootstrap ------------------------------------------------------------------


def test_bootstrap_of_one_element_is_that_of_its_sample_quantile():
    e = runs(200)
    assert e.runs is not None
    found = uncertainty(e, 0.5, seed=3, resamples=400)
    rng = np.random.default_rng(4)
    drawn = [
        np.sort(rng.choice(e.runs.energy, 200))[math.ceil(0.5 * 200) - 1]
        for _ in range(4000)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    spread = float(np.std(drawn))
    # Percentiles of 400 resamples scatter by about a fifth of the spread.
    assert found.lower == pytest.approx(low, abs=spread)
    assert found.upper == pytest.approx(high, abs=spread)
    assert found.lower < found.value < found.upper
    assert found.kind == "confidence"
    assert found.value == pytest.approx(predict(e).energy.quantile(0.5).value)


def test_bootstrap_depends_on_its_seed_alone():
    e = runs(60)
    first = uncertainty(e, 0.5, of="time", seed=5, resamples=200)
    again = uncertainty(e, 0.5, of="time", seed=5, resamples=200)
    other = uncertainty(e, 0.5, of="time", seed=6, resamples=200)
    assert (first.lower, first.upper) == (again.lower, again.upper)
    assert (first.lower, first.upper) != (other.lower, other.upper)


def test_blocks_are_drawn_whole():
    # All the variation is between blocks: drawing runs one by one would see 200
    # independent values where there are 10.
    offsets = np.repeat(np.arange(10) / 10, 20)
    t = 1.0 + offsets
    fields: dict[str, Any] = {"static_power": 60.0, "device": "gpu0"}
    blocked = Element.from_runs(
        "b", time=t, energy=70 * t, blocks=np.repeat(np.arange(10), 20), **fields
    )
    single = Element.from_runs("s", time=t, energy=70 * t, **fields)
    wide = uncertainty(blocked, 0.5, of="time", seed=1, resamples=300)
    narrow = uncertainty(single, 0.5, of="time", seed=1, resamples=300)
    assert wide.upper - wide.lower > 2 * (narrow.upper - narrow.lower)


def test_one_element_used_twice_is_drawn_again_once():
    e = runs(100)
    once = uncertainty(e, 0.5, of="time", seed=2, resamples=200)
    many = uncertainty(e**4, 0.5, of="time", seed=2, resamples=200)
    # The error of the law is common to all four: it does not average out.
    ratio = (many.upper - many.lower) / (4 * (once.upper - once.lower))
    assert 0.3 < ratio < 2.0
    spread = 4 * np.std(e.time.samples) / math.sqrt(100) * 2 * 1.96  # type: ignore[attr-defined]
    assert many.upper - many.lower == pytest.approx(spread, rel=0.35)


def test_bootstrap_of_empirical_laws_and_known_ones():
    rng = np.random.default_rng(9)
    e = Element(
        "e",
        time=Empirical(rng.uniform(1, 2, 50)),
        dynamic_energy=Empirical(rng.integers(0, 8, 40) / 4),
        static_power=60.0,
        device="gpu0",
    )
    found = uncertainty(e >> known(), 0.5, seed=1, resamples=200)
    assert found.lower < found.value < found.upper
    alone = uncertainty(e >> known(), 0.5, of="time", seed=1, resamples=200)
    assert alone.upper - alone.lower < found.upper - found.lower
    assert any("taken as known: known" in line for line in found.assumptions)


@pytest.mark.parametrize(("n", "p", "needed"), [(71, 0.99, 1000), (19, 0.5, 20)])
def test_bootstrap_is_refused_with_the_runs_it_needs(n, p, needed):
    with pytest.raises(InputError, match=rf"{n} runs of 'r'.*{needed} runs") as caught:
        uncertainty(runs(n), p)
    assert "bands" in str(caught.value)


def test_bootstrap_of_one_block_is_refused():
    with pytest.raises(InputError, match="one block"):
        uncertainty(runs(40, blocks=1), 0.5)


# ---- bands ----------------------------------------------------------------------


def dkw(n: int, miss: float) -> float:
    return math.sqrt(math.log(2 / miss) / (2 * n))


def test_bands_of_one_element_are_those_of_dkw():
    e = runs(200)
    assert e.runs is not None
    eps = dkw(200, 0.05)
    energies = np.sort(e.runs.energy)
    found = uncertainty(e, 0.5, method="bands")
    assert found.upper == pytest.approx(energies[math.ceil((0.5 + eps) * 200) - 1])
    assert found.lower == pytest.approx(energies[math.ceil((0.5 - eps) * 200) - 1])
    assert found.kind == "confidence"


def test_bands_report_an_unbounded_side_as_open():
    found = uncertainty(runs(71), 0.99, method="bands")
    assert found.upper == math.inf
    assert found.kind == "open"
    assert math.isfinite(found.lower)


def test_bands_close_where_the_element_states_the_most():
    e = runs(71, time_max=5.0, energy_max=400.0)
    found = uncertainty(e, 0.99, method="bands")
    assert found.upper == pytest.approx(400.0)
    assert uncertainty(e, 0.99, of="time", method="bands").upper == pytest.approx(5.0)
    # Idle time of another device is paid for as long as the run can take.
    x = known(device="gpu1", time=0.0)
    both = uncertainty(e >> x, 0.99, method="bands")
    assert both.upper == pytest.approx(400.0 + 60.0 * 5.0)


def test_bands_open_sooner_the_more_is_drawn():
    e = runs(500)
    assert uncertainty(e, 0.9, method="bands").kind == "confidence"
    assert uncertainty(e**8, 0.9, method="bands").kind == "open"


def test_bands_count_the_unbounded_draws_of_a_sum():
    e = runs(400)
    assert e.runs is not None
    eps = dkw(400, 0.05)
    t = np.sort(e.runs.time)
    found = uncertainty(e**2, 0.5, of="time", method="bands")
    # By brute force: the upper law has mass eps at infinity.
    mass = np.diff(np.maximum(np.arange(401) / 400 - eps, 0.0))
    sums = (t[:, None] + t[None, :]).ravel()
    order = np.argsort(sums)
    cumulative = np.cumsum((mass[:, None] * mass[None, :]).ravel()[order])
    upper = sums[order][np.searchsorted(cumulative, 0.5)]
    assert found.upper == pytest.approx(upper, rel=2e-4)


def test_bands_of_several_elements_hold_jointly():
    a, b = runs(300, 1, "a"), runs(300, 2, "b", device="gpu1")
    alone = uncertainty(a, 0.5, of="time", method="bands")
    both = uncertainty(a & b, 0.5, of="time", method="bands")
    eps = dkw(300, 0.025)
    assert a.runs is not None
    assert b.runs is not None
    # The upper band of max(A, B) at t is (F_A - eps)(F_B - eps).
    grid = np.sort(np.append(a.runs.time, b.runs.time))
    fa = np.searchsorted(np.sort(a.runs.time), grid, side="right") / 300
    fb = np.searchsorted(np.sort(b.runs.time), grid, side="right") / 300
    upper = grid[np.argmax(np.maximum(fa - eps, 0) * np.maximum(fb - eps, 0) >= 0.5)]
    lower = grid[np.argmax(np.minimum(fa + eps, 1) * np.minimum(fb + eps, 1) >= 0.5)]
    assert both.upper == pytest.approx(upper, rel=1e-9)
    assert both.lower == pytest.approx(lower, rel=1e-9)
    assert alone.upper < both.upper


def test_bands_cover_the_true_quantile():
    # 200 data sets of 100 runs; a 95 % band misses at most 5 %, and 200 trials at 5 %
    # exceed 29 with probability 1e-7.
    misses = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        e = Element(
            "e",
            time=Empirical(rng.exponential(1.0, 100)),
            static_power=60.0,
            device="gpu0",
        )
        found = uncertainty(e, 0.5, of="time", method="bands")
        misses += not found.lower <= math.log(2) <= found.upper
    assert misses <= 29


def test_bands_refuse_pairs_that_wait():
    with pytest.raises(CompositionError, match=r"'r'.*measured together"):
        uncertainty(runs(100) | known(), 0.5, method="bands")
    # Their time alone is one measured quantity.
    found = uncertainty(runs(100) | known(time=1.5), 0.5, of="time", method="bands")
    assert found.lower <= found.value <= found.upper


def test_bands_refuse_energy_that_falls_with_time():
    e = Element(
        "slow",
        time=Empirical(np.linspace(1, 2, 50)),
        static_power=20.0,
        device="gpu0",
    )
    with pytest.raises(CompositionError, match="'slow' runs below the baseline"):
        uncertainty(e | known(), 0.5, method="bands", baselines={"gpu0": 60.0})


def test_bands_refuse_runs_of_one_block():
    with pytest.raises(InputError, match="within a block"):
        uncertainty(runs(100, blocks=5), 0.5, method="bands")


def test_kept_conflicts_leave_the_lower_side_open():
    e = runs(60, static_power=85.0, conflicts="keep")
    assert e.calibration_conflict
    found = uncertainty(e, 0.1, method="bands")
    assert found.lower == -math.inf
    assert found.kind == "open"


# ---- bad input ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: uncertainty(known(), 0.5), "no element has measured runs"),
        (lambda: uncertainty(runs(40), 1.0), "strictly between 0 and 1"),
        (lambda: uncertainty(runs(40)), "exactly one of p and sf"),
        (lambda: uncertainty(runs(40), 0.5, level=1.5), "level must be"),
        (lambda: uncertainty(runs(40), 0.5, resamples=20), "at least 200"),
        (lambda: uncertainty(runs(40), 0.5, of="power"), "'power'"),  # type: ignore[arg-type]
        (lambda: uncertainty(runs(40), 0.5, method="guess"), "'guess'"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_one_line(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
