"""Exact laws of plans: equal to enumeration, series-parallel or narrow; refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.draws import DrawFactor
from probcalc.element import Element
from probcalc.eliminate import eliminated, sequence
from probcalc.errors import CompositionError, InputError, ToleranceError
from probcalc.kernels import elimination
from probcalc.lattice import Lattice
from probcalc.montecarlo import simulate
from probcalc.plan import Plan, PlanNode
from probcalc.plan_exact import exact_laws
from probcalc.schedules import gpipe, one_f_one_b
from probcalc.seriesparallel import reduced
from probcalc.shared import Shared
from probcalc.solve import LatticeSurvival
from tests.reference_plans import POWER, cases, plan_of

#: Standard errors of a simulated mean or share that a check allows; seeds are fixed.
SIGMAS = 5.0


def on(name: str, time: Any, device: str = "gpu0", **fields: Any) -> Element:
    return Element(name, time=time, static_power=POWER, device=device, **fields)


def random_plan(seed: int, nodes: int) -> Plan:
    """A random DAG with lags and releases, and durations of two or three values."""
    rng = np.random.default_rng(seed)
    elements = []
    for i in range(nodes):
        mass = rng.dirichlet(np.ones(int(rng.integers(1, 4))))
        law = Lattice(int(rng.integers(0, 4)), 1.0, mass)
        elements.append(on(f"e{i}", law, device=f"gpu{i % 2}"))
    a, b = np.triu_indices(nodes, 1)
    kept = rng.random(a.size) < rng.uniform(0.2, 0.8)
    return Plan.from_arrays(
        elements=elements,
        element_of=list(range(nodes)),
        sources=a[kept],
        targets=b[kept],
        lags=rng.integers(0, 2, int(kept.sum())).astype(float),
        releases=np.where(rng.random(nodes) < 0.3, 2.0, 0.0),
    )


def outcomes(plan: Plan) -> Iterator[tuple[float, np.ndarray]]:
    """Probability and durations of every outcome of a plan of lattice laws."""
    laws = [plan.elements[e].time for e in plan.element_of]
    atoms = [list(zip(law.points, law.mass, strict=True)) for law in laws]  # type: ignore[attr-defined]
    for outcome in itertools.product(*atoms):
        yield math.prod(p for _, p in outcome), np.array([t for t, _ in outcome])


def makespan(plan: Plan, durations: np.ndarray) -> float:
    finish = np.zeros(len(plan))
    for i in plan.order:
        into = plan.targets == i
        ready = finish[plan.sources[into]] + plan.lags[into]
        finish[i] = max([plan.releases[i], *ready]) + durations[i]
    return float(finish.max())


def enumerated(plan: Plan) -> dict[float, float]:
    masses: dict[float, float] = {}
    for p, durations in outcomes(plan):
        end = makespan(plan, durations)
        masses[end] = masses.get(end, 0.0) + p
    return masses


def assert_law_is(law: Any, masses: dict[float, float], rtol: float = 1e-9) -> None:
    for value in masses:
        above = math.fsum(p for v, p in masses.items() if v > value)
        found = law.probability_above(value + 1e-3)
        assert found.lower <= above * (1 + rtol) + 1e-15
        assert above <= found.upper * (1 + rtol) + 1e-15
        assert found.upper - found.lower <= 2 * rtol
    mean = math.fsum(v * p for v, p in masses.items())
    assert law.mean() == pytest.approx(mean, rel=rtol, abs=1e-12)
    spread = math.fsum((v - mean) ** 2 * p for v, p in masses.items())
    assert law.variance() == pytest.approx(spread, rel=1e-7, abs=1e-9)


def test_random_plans_equal_enumeration() -> None:
    shapes = []
    for seed in range(60):
        plan = random_plan(seed, nodes=3 + seed % 5)
        reduction = reduced(plan)
        if not reduction.whole and sequence(reduction) is None:
            continue  # not narrow
        time, energy, static, dynamic = exact_laws(plan)
        masses = enumerated(plan)
        assert_law_is(time, masses)
        power = math.fsum(plan.baselines.values())
        assert_law_is(static, {power * t: p for t, p in masses.items()})
        assert energy.mean() == pytest.approx(static.mean(), rel=1e-12)
        assert dynamic.mean() == 0.0
        shapes.append(reduction.whole)
    # Both ways of working it out were taken, and few plans were too wide.
    assert 10 < sum(shapes) < len(shapes) - 10


def wheatstone(laws: dict[str, Any], **fields: Any) -> Plan:
    """a before c; a and b before d; c and d before e: not series-parallel."""
    before = {"a": [], "b": [], "c": ["a"], "d": ["a", "b"], "e": ["c", "d"]}
    return Plan.of(
        [
            PlanNode(
                name, on(name, laws[name], f"gpu{int(name in 'bd')}", **fields), after
            )
            for name, after in before.items()
        ]
    )


def test_energy_of_a_narrow_plan_equals_enumeration() -> None:
    laws = {name: Lattice(1, 1.0, [0.5, 0.25, 0.25]) for name in "abcde"}
    dynamic = Lattice(2, 5.0, [0.75, 0.0, 0.25])
    plan = wheatstone(laws, dynamic_energy=dynamic)
    assert not reduced(plan).whole
    _, energy, _, spent = exact_laws(plan)
    sums = {
        10.0 * k + 50.0: math.comb(5, k) * 0.25**k * 0.75 ** (5 - k) for k in range(6)
    }
    assert_law_is(spent, sums)
    total: dict[float, float] = {}
    for (t, p), (d, q) in itertools.product(enumerated(plan).items(), sums.items()):
        value = 2.0 * POWER * t + d
        total[value] = total.get(value, 0.0) + p * q
    assert_law_is(energy, total)


def test_measured_pairs_stay_together_in_series_parallel_plans() -> None:
    t, e = [1.0, 2.0, 4.0], [70.0, 150.0, 245.0]
    first = Element.from_runs(
        "first", time=t, energy=e, static_power=60.0, device="gpu0"
    )
    other = on("other", Lattice(1, 1.0, [0.5, 0.0, 0.5]), "gpu1")
    plan = Plan.of(
        [
            PlanNode("a", first),
            PlanNode("b", other),
            PlanNode("c", first, after=["a", "b"]),
        ]
    )
    masses: dict[float, float] = {}
    d = [10.0, 30.0, 5.0]  # E - s T
    for i, j, u in itertools.product(range(3), range(3), (1.0, 3.0)):
        end = max(t[i], u) + t[j]
        value = 120.0 * end + d[i] + d[j]
        masses[value] = masses.get(value, 0.0) + 1.0 / 18.0
    energy = exact_laws(plan)[1]
    mean = math.fsum(v * p for v, p in masses.items())
    assert energy.mean() == pytest.approx(mean, rel=1e-4)
    for level in (0.1, 0.5, 0.9):
        found = energy.quantile(level)
        values = sorted(masses)
        shares = np.cumsum([masses[v] for v in values])
        value = values[int(np.argmax(shares >= level - 1e-12))]
        assert found.lower <= value * (1 + 1e-9)
        assert value <= found.upper * (1 + 1e-9)


REFERENCE = [
    "chain3",
    "forkjoin3",
    "shared_prefix",
    "wheatstone",
    "1f1b_2x4_cv0.1",
    "1f1b_2x8_cv0.1",
    "1f1b_2x32_cv0.1",
    "1f1b_2x128_cv0.1",
    "1f1b_3x4_cv0.1",
    "1f1b_2x8_cv0.3",
    "1f1b_2x32_cv0.3",
]


@pytest.mark.parametrize("name", REFERENCE)
def test_masses_of_the_reference(name: str, shared_data: Callable[[str], Any]) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    right = case["makespan"]
    law = exact_laws(plan_of(case))[0]
    for end in (law.lower, law.upper) if hasattr(law, "lower") else (law,):
        found = end.lattice()
        assert found.step == case["tick"]
        first = min(found.offset, right["offset"])
        size = max(found.offset + found.mass.size, right["offset"] + len(right["pmf"]))
        masses = np.zeros((2, size - first))
        masses[0, found.offset - first :][: found.mass.size] = found.mass
        masses[1, right["offset"] - first :][: len(right["pmf"])] = right["pmf"]
        assert np.abs(masses[0] - masses[1]).max() < 1e-9


@pytest.mark.parametrize("name", [n for n in REFERENCE if "2x128" not in n])
def test_quantiles_of_the_reference(
    name: str, shared_data: Callable[[str], Any]
) -> None:
    case = cases(shared_data("reference/plans.json"))[name]
    law = exact_laws(plan_of(case))[0]
    for p, ticks in case["makespan"]["quantile_ticks"].items():
        found = law.quantile(float(p))
        assert found.kind == "certified"
        assert found.value == pytest.approx(ticks * case["tick"], rel=1e-9)
        assert found.lower == pytest.approx(ticks * case["tick"], rel=1e-9)
        if float(p) != 0.9:  # reached exactly by some of the laws: a tie
            assert found.upper == pytest.approx(ticks * case["tick"], rel=1e-9)


def pipeline(stages: int, microbatches: int, forward: Any, backward: Any) -> Plan:
    return one_f_one_b(
        stages=stages,
        microbatches=microbatches,
        forward=on("forward", forward),
        backward=on("backward", backward),
    )


@pytest.mark.parametrize("microbatches", [1, 2, 7, 100])
def test_two_stage_pipelines_are_series_parallel(microbatches: int) -> None:
    law = stats.gamma(9.0)
    assert reduced(pipeline(2, microbatches, law, law)).whole
    if microbatches > 1:
        assert not reduced(pipeline(3, microbatches, law, law)).whole


def test_long_three_stage_pipeline_agrees_with_simulation() -> None:
    plan = pipeline(
        3, 48, Lattice(14, 1 / 16, [0.25, 0.5, 0.25]), Lattice(30, 1 / 16, [0.1] * 10)
    )
    law = exact_laws(plan)[0]
    found = simulate(plan, samples=20_000, seed=5).time
    error = found.standard_deviation() / math.sqrt(found.samples)
    assert abs(found.mean() - law.mean()) < SIGMAS * error
    for p in (0.1, 0.5, 0.9, 0.99):
        at = law.quantile(p)
        assert at.lower == at.upper
        error = SIGMAS * math.sqrt(p * (1 - p) / found.samples)
        assert found.cdf(at.value) > p - error
        assert found.cdf(at.value - 0.03) < p + error
    assert law.quantile(sf=1e-9).value > law.quantile(sf=1e-6).value


@pytest.mark.slow
def test_narrow_plan_of_continuous_laws_is_bracketed() -> None:
    plan = pipeline(
        3, 4, stats.gamma(100.0, scale=0.01), stats.gamma(100.0, scale=0.02)
    )
    time, energy, static, _ = exact_laws(plan)
    found = simulate(plan, samples=100_000, seed=3)
    for law, drawn in ((time, found.time), (energy, found.energy)):
        error = drawn.standard_deviation() / math.sqrt(drawn.samples)
        mean = law.mean_bounds()
        assert mean.kind == "certified"
        assert mean.lower - SIGMAS * error < drawn.mean() < mean.upper + SIGMAS * error
        assert mean.upper - mean.lower < 1e-3 * mean.value
        for p in (0.1, 0.5, 0.9, 0.99):
            at = law.quantile(p)
            assert at.kind == "certified"
            assert at.upper - at.lower < 8e-3 * at.value
            error_p = SIGMAS * math.sqrt(p * (1 - p) / drawn.samples)
            assert drawn.cdf(at.upper) > p - error_p
            assert drawn.cdf(at.lower) < p + error_p
    assert static.quantile(0.5).value == pytest.approx(
        3 * POWER * time.quantile(0.5).value, rel=1e-2
    )


def test_coarse_brackets_of_continuous_laws_hold_simulated_shares() -> None:
    plan = wheatstone({name: stats.expon() for name in "abcde"})
    law = eliminated(reduced(plan), sequence(reduced(plan)) or ())
    drawn = np.random.default_rng(8).exponential(size=(5, 400_000))
    a, b, c, d, e = drawn
    end = np.maximum(a + c, np.maximum(a, b) + d) + e
    table = law.survival(0.02, "convex", 1e-3)
    low, high = table.bounds(np.array([2.0, 3.0, 5.0, 8.0]))
    for x, lower, upper in zip((2.0, 3.0, 5.0, 8.0), low, high, strict=True):
        share = float((end > x).mean())
        error = SIGMAS * math.sqrt(share * (1 - share) / end.size)
        assert lower - error < share < upper + error
        assert upper - lower < 0.1 * upper
    bounds = table.means()
    assert bounds[0] - 0.02 < end.mean() < bounds[1] + 0.02


def test_points_that_do_not_fit_are_said() -> None:
    law = Lattice(100, 1e-3, np.full(200, 1 / 200))
    plan = pipeline(3, 8, law, law)
    makespan_law = eliminated(reduced(plan), sequence(reduced(plan)) or ())
    with pytest.raises(ToleranceError, match=r"finishes: .* points needed, more than"):
        makespan_law.survival(1e-3, "first", 1e-6, memory=2**24)


def test_plans_that_are_neither_are_refused() -> None:
    law = Lattice(1, 1.0, [0.5, 0.5])
    plan = gpipe(stages=8, microbatches=8, forward=on("f", law), backward=on("b", law))
    with pytest.raises(CompositionError, match=r"neither .* nor narrow"):
        exact_laws(plan)


def test_narrow_plans_whose_energy_goes_with_time_are_refused() -> None:
    laws = {name: Lattice(1, 1.0, [0.5, 0.5]) for name in "abcde"}
    plan = wheatstone(laws)
    other = Plan.from_arrays(
        elements=plan.elements,
        element_of=plan.element_of,
        sources=plan.sources,
        targets=plan.targets,
        baselines={"gpu0": 20.0},
    )
    with pytest.raises(CompositionError, match="'a' draws 40 W beyond its devices'"):
        exact_laws(other)
    labels = {"rank": [0] * 5}
    grouped = Plan.from_arrays(
        elements=plan.elements,
        element_of=plan.element_of,
        sources=plan.sources,
        targets=plan.targets,
        labels=labels,
    ).drawn(factors=[DrawFactor("pace", stats.lognorm(0.1), by="rank")])
    with pytest.raises(InputError, match="expected method 'monte-carlo'"):
        exact_laws(grouped)
    gain = Shared("gain", stats.lognorm(0.1), acts_on="energy")
    shared = wheatstone(laws, dynamic_energy=1.0, shared=(gain,))
    with pytest.raises(InputError, match="shared factor 'gain'"):
        exact_laws(shared)


def test_a_cut_is_accounted() -> None:
    rng = np.random.default_rng(2)
    law = Lattice(20, 1.0, rng.dirichlet(np.ones(40)))
    plan = pipeline(3, 6, law, law)
    makespan_law = eliminated(reduced(plan), sequence(reduced(plan)) or ())
    # A "level" of 1e6 cuts 1e-3 off, far more than any question does.
    rough, fine = (
        LatticeSurvival(makespan_law.evaluate(1.0, "first", level, 2**30), False, 1.0)
        for level in (1e6, 1e-12)
    )
    at = np.arange(400.5, 1000.0, 25.0)  # between points, where nothing is ambiguous
    low, high = rough.bounds(at)
    inner_low, inner_high = fine.bounds(at)
    assert (low <= inner_low * (1 + 1e-9)).all()
    assert (inner_high <= high * (1 + 1e-9)).all()
    assert 1e-5 < (high - low).max() < 2e-3
    assert (inner_high - inner_low).max() < 1e-11


# ---- operations on joint masses ----


def random_mass(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).random(shape)


def test_moved_and_branched_masses() -> None:
    mass, duration = random_mass(3, 5), np.array([0.2, 0.0, 0.8])
    moved = elimination.convolved(mass, duration)
    branched = elimination.branched(mass, duration)
    for r, j, k in itertools.product(range(3), range(5), range(3)):
        assert branched[r, j, j + k] == mass[r, j] * duration[k]
    assert branched.sum() == pytest.approx(mass.sum())
    assert moved == pytest.approx(branched.sum(axis=1))


@pytest.mark.parametrize("shift", [-9, -3, 0, 2, 8])
@pytest.mark.parametrize("keep", [True, False])
def test_met_masses(shift: int, keep: bool) -> None:
    mass, duration = random_mass(2, 4, 6), np.array([0.5, 0.2, 0.3])
    found, low = elimination.met(mass, duration, shift, keep)
    right: dict[tuple[int, int, int], float] = {}
    for r, i, z, k in itertools.product(*map(range, mass.shape), range(3)):
        key = r, i if keep else 0, max(z, i + k + shift)
        right[key] = right.get(key, 0.0) + mass[r, i, z] * duration[k]
    for (r, i, y), p in right.items():
        assert found[r, i, y - low] == pytest.approx(p, rel=1e-13)
    assert found.sum() == pytest.approx(mass.sum(), rel=1e-13)


@pytest.mark.parametrize("others", [(), (3,), (3, 2)])
def test_rebased_masses(others: tuple[int, ...]) -> None:
    mass = random_mass(4, *others, 5)
    found = elimination.rebased(mass)
    n = mass.shape[-1]
    for index in itertools.product(*map(range, mass.shape)):
        first, *middle, d = index
        back = n - 1 - d
        assert found[(first + d, *(m + back for m in middle), back)] == mass[index]
    assert found.sum() == pytest.approx(mass.sum())
