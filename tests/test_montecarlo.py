"""Simulation of plans: reference values, the same bits however it is run, intervals."""

from __future__ import annotations

import concurrent.futures
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.distribution import Empirical
from probcalc.draws import DrawFactor
from probcalc.element import Element, idle
from probcalc.errors import CompositionError, InputError, ToleranceError
from probcalc.lattice import Lattice
from probcalc.montecarlo import simulate
from probcalc.plan import Edge, Plan, PlanNode
from probcalc.shared import Shared
from tests.reference_plans import cases, plan_of

# Chance that one check below fails although all is right; seeds are fixed.
SIGMAS = 4.0


def on(name: str, time: Any, device: str = "gpu0", **fields: Any) -> Element:
    return Element(name, time=time, static_power=60.0, device=device, **fields)


def pair(first: Any, second: Any) -> Plan:
    """Two nodes at once, on two devices."""
    return Plan.of(
        [PlanNode("a", on("a", first)), PlanNode("b", on("b", second, "gpu1"))]
    )


SMALL = [
    "chain3",
    "forkjoin3",
    "shared_prefix",
    "wheatstone",
    "1f1b_2x8_cv0.1",
    "1f1b_3x4_cv0.1",
    "1f1b_2x32_cv0.3",
    "1f1b_4x8_cv0.1",
    "gpipe_8x32_cv0.1",
    "zbh1_4x16_cv0.1",
    "1f1b_8x32_slowstage",
]


@pytest.mark.parametrize("name", [*SMALL, "1f1b_16x128_cv0.05"])
def test_reference_makespans(name: str, shared_data: Callable[[str], Any]) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    right = case["makespan"]
    found = simulate(plan_of(case), samples=20_000, seed=11).time
    assert found.unit == case["tick"]  # drawn on the reference's own lattice
    mean, sd = right["mean_ticks"] * case["tick"], right["sd_ticks"] * case["tick"]
    error = sd / math.sqrt(found.samples)
    assert abs(found.mean() - mean) < SIGMAS * error + right.get("mean_se", 0.0)
    assert found.standard_deviation() == pytest.approx(sd, rel=0.05)
    for p, ticks in right["quantile_ticks"].items():
        if not 0.001 < float(p) < 0.9999:
            continue
        low, high = (
            (ticks["lo95"], ticks["hi95"])
            if isinstance(ticks, dict)
            else (ticks, ticks)
        )
        wide = found.__class__(found.summary, found.unit, level=1.0 - 1e-6)
        q = wide.quantile(float(p))
        assert q.kind == "confidence"
        assert q.lower <= high * case["tick"]
        assert low * case["tick"] <= q.upper


def test_energy_that_grows_with_time(shared_data: Callable[[str], Any]) -> None:
    case = cases(shared_data("reference/plans.json"))["1f1b_4x8_cv0.3_energy"]
    right = case["energy"]
    # Atoms of energy are linear in the atoms of time: a + b T, so that b is static
    # power beyond the baseline, drawn while the node runs.
    unit, tick = right["tick_J"], case["tick"]
    slopes, starts = [], []
    for atoms, cls in zip(
        right["class_atom_energy_ticks"], case["classes"], strict=True
    ):
        step = {b - a for a, b in itertools.pairwise(atoms)}
        assert len(step) == 1
        slopes.append(step.pop())
        starts.append(atoms[0] - slopes[-1] * cls["offset"])
    assert len(set(slopes)) == 1
    devices = case["dag"]["devices"]
    base = right["static_energy_ticks_per_makespan_tick"] / devices
    plan = plan_of(case)
    elements = [
        Element(
            e.name,
            time=e.time,
            dynamic_energy=starts[int(e.name[-1])] * unit,
            static_power=(base + slopes[0]) * unit / tick,
            device=e.devices,
        )
        for e in plan.elements
    ]
    plan = Plan.from_arrays(
        elements=elements,
        element_of=plan.element_of,
        sources=plan.sources,
        targets=plan.targets,
        baselines={d: base * unit / tick for d in plan.devices},
    )
    found = simulate(plan, samples=20_000, seed=3)
    mean = (
        right["static_energy_ticks_per_makespan_tick"] * case["makespan"]["mean_ticks"]
    )
    mean = (mean + right["mean_dynamic_ticks"]) * unit
    assert abs(found.energy.mean() - mean) < SIGMAS * found.energy.standard_error * 1.1
    # The sum varies more than its parts: they grow together.
    parts = (
        base * devices * unit / tick * found.time.standard_deviation(),
        right["sd_dynamic_ticks"] * unit,
    )
    cross = 2.0 * right["corr_makespan_dynamic"] * parts[0] * parts[1]
    sd = math.sqrt(parts[0] ** 2 + parts[1] ** 2 + cross)
    assert found.energy.standard_deviation() == pytest.approx(sd, rel=0.05)


# -- the same samples however they are worked out


def mixed() -> Plan:
    rng = np.random.default_rng(1)
    times = rng.gamma(4.0, 1.0, 40)
    f = Element.from_runs(
        "f", time=times, energy=65.0 * times + 3.0, static_power=60.0, device="gpu0"
    )
    g = on("g", stats.lognorm(0.3), "gpu1", dynamic_energy=stats.expon(scale=5.0))
    nodes = [PlanNode(f"f{m}", f, labels={"microbatch": m}) for m in range(5)]
    nodes += [
        PlanNode(f"g{m}", g, [Edge(f"f{m}", lag=0.25)], labels={"microbatch": m})
        for m in range(5)
    ]
    order = {
        "gpu0": [f"f{m}" for m in range(5)],
        "gpu1": [f"g{m}" for m in range(5)],
    }
    factor = DrawFactor("pace", stats.lognorm(0.1), by="microbatch", acts_on="both")
    return Plan.of(nodes, orders=order).drawn(factors=[factor])


def test_chunks_do_not_matter() -> None:
    plan = mixed()
    whole = simulate(plan, samples=3000, seed=5)
    assert {simulate(plan, samples=3000, seed=5, chunk=c).digest for c in (300, 1024, 5000)} == {whole.digest}  # fmt: skip  # noqa: E501
    assert simulate(plan, samples=3000, seed=6).digest != whole.digest


def test_the_first_samples_are_those_of_a_longer_run() -> None:
    from probcalc.chunks import Work, compiled, samples_of
    from probcalc.lowering import lowered

    work = Work(lowered(mixed()), 1.0, 9)
    run = compiled(work, 256, None)
    few, few_sums = samples_of(work, 0, 20, run)
    many, many_sums = samples_of(work, 0, 200, run)
    late, _ = samples_of(work, 100, 100, run)
    assert (few == many[:20]).all()
    assert (few_sums == many_sums[:, :20]).all()
    assert (late == many[100:]).all()


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_workers_do_not_matter(workers: int) -> None:
    plan = mixed()
    whole = simulate(plan, samples=2000, seed=5)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        found = simulate(plan, samples=2000, seed=5, chunk=256, executor=pool)
    assert found.digest == whole.digest


@pytest.mark.slow
def test_processes_do_not_matter() -> None:
    import multiprocessing

    plan = mixed()
    whole = simulate(plan, samples=2000, seed=5)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        found = simulate(plan, samples=2000, seed=5, chunk=512, executor=pool)
    assert found.digest == whole.digest


def test_devices_do_not_matter() -> None:
    code = (
        "import jax, tests.test_montecarlo as t\n"
        "plan = t.mixed()\n"
        "found = t.simulate(plan, samples=2000, seed=5, devices=jax.devices())\n"
        "assert len(jax.devices()) == 2\n"
        "print(found.digest)"
    )
    env = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=env,
        cwd=os.path.dirname(os.path.dirname(__file__)),
    )
    whole = simulate(mixed(), samples=2000, seed=5)
    assert done.stdout.split()[-1] == whole.digest


# -- draw groups


def test_rows_of_a_group_are_drawn_together() -> None:
    f = Element.from_runs(
        "f", time=[1.0, 2.0], energy=[60.0, 130.0], static_power=60.0, device="gpu0"
    )
    g = Element.from_runs(
        "g", time=[10.0, 20.0], energy=[700.0, 1400.0], static_power=60.0, device="gpu1"
    )
    nodes = [
        PlanNode("f", f, labels={"microbatch": 0}),
        PlanNode("g", g, ["f"], labels={"microbatch": 0}),
    ]
    plan = Plan.of(nodes)
    apart = simulate(plan, samples=4096).time
    together = simulate(plan.drawn(rows="microbatch"), samples=4096)
    assert set(np.round(apart.icdf([0.1, 0.3, 0.6, 0.9]), 9)) == {
        11.0,
        12.0,
        21.0,
        22.0,
    }
    assert set(np.round(together.time.icdf(np.linspace(0.01, 1, 50)), 9)) == {
        11.0,
        22.0,
    }
    # Energy follows the same rows: 60 + 60 W x 2 devices while held.
    assert set(np.round(together.dynamic_energy.icdf([0.2, 0.8]), 3)) == {100.0, 210.0}


def test_a_factor_is_one_draw_for_its_group() -> None:
    nodes = [PlanNode(f"n{i}", on("n", 1.0), labels={"rank": i % 2}) for i in range(4)]
    plan = Plan.of(nodes, orders={"gpu0": [f"n{i}" for i in range(4)]})
    factor = DrawFactor("rank", Empirical([1.0, 2.0]), by="rank")
    law = simulate(plan.drawn(factors=[factor]), samples=8000, seed=1).time
    assert law.icdf([0.1, 0.5, 0.9]) == pytest.approx([4.0, 6.0, 8.0], rel=1e-4)
    assert law.cdf(5.0) == pytest.approx(0.25, abs=0.02)


def test_factors_draw_the_same_in_another_plan() -> None:
    """Common random numbers: keyed by the factor's name and the group."""
    factor = DrawFactor("rank", stats.lognorm(0.5), by="rank")
    one = Plan.of([PlanNode("n", on("n", 1.0), labels={"rank": 0})])
    two = Plan.of(
        [
            PlanNode("other", on("o", 0.0), labels={"rank": 7}),
            PlanNode("n", on("n", 1.0), labels={"rank": 0}),
        ]
    )
    a, b = (
        simulate(p.drawn(factors=[factor]), samples=500, seed=2).time
        for p in (one, two)
    )
    assert a.mean() == pytest.approx(b.mean(), rel=0.2)


# -- against exact laws of terms


def test_a_gain_agrees_with_the_exact_law() -> None:
    from probcalc.prediction import predict

    gain = Shared("gain", stats.uniform(0.9, 0.2))
    a = on("a", stats.gamma(4.0), dynamic_energy=stats.expon(scale=9.0), shared=[gain])
    b = on("b", stats.lognorm(0.5), dynamic_energy=3.0, shared=[gain])
    term = a >> b >> a
    exact = predict(term)
    found = simulate(Plan.from_term(term), samples=30_000, seed=4)
    for name in ("time", "energy"):
        law, right = getattr(found, name), getattr(exact, name)
        assert abs(law.mean() - right.mean()) < SIGMAS * law.standard_error, name
        for p in (0.1, 0.9):
            wide = law.__class__(law.summary, law.unit, level=1.0 - 1e-6)
            q, r = wide.quantile(p), right.quantile(p, rtol=1e-2)
            assert q.lower <= r.upper, (name, p)
            assert r.lower <= q.upper, (name, p)


def test_paces_multiply_the_times_of_those_that_name_them() -> None:
    pace = Shared("pace", Empirical([1.0, 3.0]), acts_on="time")
    both = [on("a", 2.0, shared=[pace]), on("b", 5.0, shared=[pace])]
    one = [on("a", 2.0, shared=[pace]), on("b", 5.0)]
    laws = [simulate(Plan.from_term(x >> y), samples=4000).time for x, y in (both, one)]
    assert laws[0].icdf([0.2, 0.8]) == pytest.approx([7.0, 21.0], rel=1e-4)
    assert laws[1].icdf([0.2, 0.8]) == pytest.approx([7.0, 11.0], rel=1e-4)


def test_static_power_beyond_the_baseline_is_charged_while_busy() -> None:
    a = Element("a", time=2.0, static_power=100.0, device="gpu0")
    b = Element("b", time=3.0, static_power=60.0, device="gpu1")
    plan = Plan.of(
        [PlanNode("a", a), PlanNode("b", b)], baselines={"gpu0": 40.0, "gpu1": 60.0}
    )
    found = simulate(plan, samples=256)
    # gpu0: 100 W for 2 s, 40 W for 1 s; gpu1: 60 W for 3 s.
    assert found.energy.mean() == pytest.approx(100 * 2 + 40 + 180, rel=1e-9)


# -- the reading of intervals


def test_intervals_cover_as_often_as_they_say() -> None:
    law = Lattice(0, 1.0, np.full(64, 1 / 64))
    plan = pair(law, law)
    # P(max <= k) = ((k + 1) / 64)^2, so that the quantiles are known.
    levels = (0.1, 0.5, 0.9, 0.99)
    right = [math.ceil(64 * math.sqrt(p)) - 1 for p in levels]
    missed = np.zeros(len(levels))
    seeds = 250
    for seed in range(seeds):
        found = simulate(plan, samples=1024, seed=seed).time
        for i, p in enumerate(levels):
            q = found.quantile(p)
            missed[i] += not q.lower <= right[i] <= q.upper
    # At 5 % each, more than 28 of 250 has a chance below 1e-4.
    assert missed.max() <= stats.binom(seeds, 0.05).isf(1e-4)


def test_far_levels_are_refused_with_the_samples_they_need() -> None:
    law = simulate(pair(stats.expon(), 1.0), samples=1000).time
    with pytest.raises(ToleranceError, match="at least 36,887 needed"):
        law.quantile(sf=1e-4)
    assert law.quantile(sf=0.01).upper < math.inf


def test_a_precision_is_reached_or_refused() -> None:
    plan = pair(stats.expon(), stats.gamma(3.0))
    found = simulate(plan, rtol=0.02, seed=3)
    q = found.time.quantile(0.99)
    assert q.upper - q.lower <= 0.02 * q.value
    assert found.samples > 8192
    again = simulate(plan, rtol=0.02, seed=3, chunk=777)
    assert again.digest == found.digest
    with pytest.raises(ToleranceError, match="samples needed"):
        simulate(plan, rtol=1e-4, samples=10_000)


def test_a_plan_without_duration_takes_none() -> None:
    plan = Plan.of([PlanNode("n", idle(0.0, device="gpu0", static_power=60.0))])
    found = simulate(plan, samples=300)
    q = found.time.quantile(0.99)
    assert (q.lower, q.value, q.upper) == (0.0, 0.0, 0.0)
    assert found.energy.mean() == 0.0


def test_one_sample_tells_a_constant_alone() -> None:
    fixed = Element("fixed", time=2.0, static_power=50.0, device="gpu0")
    q = simulate(Plan.of([PlanNode("n", fixed)]), samples=1).time.quantile(0.99)
    assert (q.lower, q.upper) == (2.0, 2.0)
    rare = Element(
        "rare",
        time=Empirical([1.0] * 99 + [5.0]),
        static_power=50.0,
        device="gpu0",
    )
    found = simulate(Plan.of([PlanNode("n", rare)]), samples=3, seed=1)
    assert found.time.support() == (1.0, 1.0)  # all alike, and yet not known
    with pytest.raises(ToleranceError, match="3 samples give no 95% interval"):
        found.time.quantile(0.9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples"),
        ({"samples": -5}, "samples"),
        ({"samples": True}, "samples"),
        ({"samples": 1.5}, "samples"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 64}, "seed is"),
        ({"rtol": 0.0}, "rtol is 0.0"),
        ({"level": 1.0}, "level is 1.0"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_what_is_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(pair(1.0, 2.0), **options)


def test_memory_that_is_too_small_is_refused() -> None:
    with pytest.raises(ToleranceError, match="one block of 256 samples takes"):
        simulate(pair(1.0, 2.0), samples=100, memory=1000)


def test_overlap_at_another_power_than_the_baseline_is_refused() -> None:
    a = Element("a", time=2.0, static_power=100.0, device="gpu0")
    plan = Plan.of([PlanNode("x", a), PlanNode("y", a)], baselines={"gpu0": 60.0})
    with pytest.raises(CompositionError, match="nodes there can overlap"):
        simulate(plan, samples=10)


def test_times_that_no_tick_resolves_are_refused() -> None:
    with pytest.raises(InputError, match="the finest of 32 bits"):
        simulate(pair(stats.lomax(1.05), stats.lomax(1.05)), samples=10)
