"""Kernels of the simulation: random words, alias tables, lanes, the scan bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from probcalc.draws import DrawFactor
from probcalc.element import Element
from probcalc.factors import rows_of
from probcalc.kernels import alias, lanes, philox
from probcalc.kernels.graph import levels
from probcalc.lattice import Lattice
from probcalc.lowering import Lowered, lowered
from probcalc.plan import Plan

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# -- random words

#: Known-answer vectors of Random123 for philox2x32-10: counters, key, words.
KNOWN = [
    ((0x00000000, 0x00000000), 0x00000000, (0xFF1DAE59, 0x6CD10DF2)),
    ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
    ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
]
WORD = st.integers(0, 2**32 - 1)


def scanned(c0: list[int], c1: list[int], key: int, limbs: bool) -> tuple[Any, Any]:
    """Words as the scan draws them, for every pair of counters."""
    import jax.numpy as jnp

    from probcalc.kernels.levelscan import words

    first, second = words(
        jnp.asarray(np.array(c0, dtype=np.uint32)),
        jnp.asarray(np.array(c1, dtype=np.uint32)),
        jnp.uint32(key),
        limbs,
    )
    return np.asarray(first).T, np.asarray(second).T


@pytest.mark.parametrize(("counters", "key", "right"), KNOWN)
def test_words_are_those_of_random123(
    counters: tuple[int, int], key: int, right: tuple[int, int]
) -> None:
    assert philox.philox_one(*counters, key) == right
    assert tuple(int(w) for w in philox.philox(*counters, key)) == right
    for limbs in (False, True):
        found = scanned([counters[0]], [counters[1]], key, limbs)
        assert tuple(int(w[0, 0]) for w in found) == right


@settings(max_examples=25, deadline=None)
@given(st.tuples(WORD, WORD, WORD), st.tuples(WORD, WORD, WORD), WORD)
def test_all_forms_of_a_word_are_equal(
    c0: tuple[int, ...], c1: tuple[int, ...], key: int
) -> None:
    right = philox.philox(np.array(c0)[:, None], np.array(c1)[None, :], key)
    for limbs in (False, True):
        found = scanned(list(c0), list(c1), key, limbs)
        assert all((a == b).all() for a, b in zip(found, right, strict=True))
    one = philox.philox_one(c0[1], c1[2], key)
    assert one == (int(right[0][1, 2]), int(right[1][1, 2]))


def test_streams_of_a_seed_have_keys_of_their_own() -> None:
    keys = {philox.key_of(seed, stream) for seed in range(50) for stream in range(50)}
    assert len(keys) == 2500
    assert all(0 <= key < 2**32 for key in keys)


# -- alias tables

MASSES = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-12, 1.0)), min_size=1, max_size=70
).filter(lambda mass: sum(mass) > 0.0)


@settings(deadline=None)
@given(MASSES, st.integers(0, 3))
def test_a_table_gives_every_atom_its_mass_to_a_word(
    mass: list[float], spare: int
) -> None:
    share = np.array(mass) / np.sum(mass)
    table = alias.alias_table(np.array(mass), alias.bits_for(len(mass)) + spare)
    found = alias.mass_of_table(*table)
    assert found.sum() == 1.0
    off = np.abs(found[: share.size] - share) * 2.0**32
    largest = int(np.argmax(share))
    # Rounding goes to the largest: at most half a unit of each other atom.
    assert off[largest] <= 0.5 * share.size + 1.0
    assert np.delete(off, largest).max(initial=0.0) <= 0.5 + 1e-3
    assert (found[share.size :] == 0.0).all()


@settings(deadline=None)
@given(MASSES)
def test_words_on_both_sides_of_every_limit(mass: list[float]) -> None:
    bits = alias.bits_for(len(mass))
    limits, atoms = alias.alias_table(np.array(mass), bits)
    cell = np.arange(1 << bits, dtype=np.uint32)
    start = cell << np.uint32(32 - bits)
    end = start + np.uint32((1 << (32 - bits)) - 1)
    assert ((start <= limits) & (limits <= end)).all()
    some = limits > start
    for words, side, held in (
        (limits, 1, np.ones(limits.size, dtype=bool)),
        (end, 1, np.ones(limits.size, dtype=bool)),
        (start, 0, some),
        (limits - np.uint32(1), 0, some),
    ):
        found, place = alias.drawn(words[held], limits, atoms)
        assert (found == atoms[held, side]).all()
        assert ((place >= 0.0) & (place < 1.0)).all()
    assert (alias.drawn(limits, limits, atoms)[1] == 0.0).all()
    assert (alias.drawn(start[some], limits, atoms)[1] == 0.0).all()


def test_a_law_of_one_atom_draws_it() -> None:
    words = np.array([0, 1, 2**31, 2**32 - 1], dtype=np.uint32)
    for bits in (0, 1, 3):
        table = alias.alias_table(np.ones(1), bits)
        assert (alias.drawn(words, *table)[0] == 0).all()


# -- lanes

GRAPHS = st.builds(
    lambda n, dense, seed: random_edges(n, dense, np.random.default_rng(seed)),
    st.integers(1, 40),
    st.floats(0.0, 0.6),
    st.integers(0, 2**32 - 1),
)


def random_edges(
    n: int, dense: float, rng: np.random.Generator
) -> tuple[int, IntArray, IntArray]:
    upper = np.triu(rng.random((n, n)) < dense, 1)
    sources, targets = np.nonzero(upper)
    names = rng.permutation(n)  # not numbered in topological order
    return n, names[sources].astype(np.int64), names[targets].astype(np.int64)


def finish_times(
    n: int, sources: IntArray, targets: IntArray, durations: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Finish of every vertex, vertex by vertex; durations of shape (n, ...)."""
    order = np.argsort(levels(n, sources, targets), kind="stable")
    finish = np.zeros_like(durations)
    for v in order:
        before = sources[targets == v]
        start = finish[before].max(axis=0) if before.size else 0
        finish[v] = start + durations[v]
    return finish


@settings(deadline=None)
@given(GRAPHS)
def test_joins_leave_the_longest_path(graph: tuple[int, IntArray, IntArray]) -> None:
    n, sources, targets = graph
    found = lanes.joined(n, sources, targets)
    assert np.bincount(found.targets, minlength=found.vertices).max() <= lanes.READS
    ends = np.bincount(found.sources, minlength=found.vertices) == 0
    assert ends.sum() == 1
    durations = np.zeros(found.vertices, dtype=np.int64)
    durations[:n] = np.random.default_rng(n).integers(0, 9, n)
    right = finish_times(n, sources, targets, durations[:n])
    joined = finish_times(*found, durations)
    assert (joined[:n] == right).all()
    assert joined[ends] == right.max()


@settings(deadline=None)
@given(GRAPHS)
def test_slots_hold_what_is_still_to_be_read(
    graph: tuple[int, IntArray, IntArray],
) -> None:
    n, sources, targets = graph
    found = lanes.joined(n, sources, targets)
    laid = lanes.laid_out(found)
    placed = laid.vertex[laid.vertex >= 0]
    assert np.sort(placed).tolist() == list(range(found.vertices))
    durations = np.zeros(found.vertices, dtype=np.int64)
    durations[:n] = np.random.default_rng(n).integers(0, 9, n)
    values = np.zeros(laid.slots + 2, dtype=np.int64)
    for vertex, reads, writes in zip(laid.vertex, laid.reads, laid.writes, strict=True):
        finish = values[reads].max(axis=1) + durations[np.maximum(vertex, 0)]
        values[writes] = np.where(vertex >= 0, finish, -1)
        assert values[laid.slots] == 0
    right = finish_times(n, sources, targets, durations[:n]).max()
    assert values[laid.last] == right


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 16), (16, 128), (64, 256)])
def test_pipelines_waste_few_lanes_and_keep_few_values(
    stages: int, microbatches: int
) -> None:
    from probcalc.schedules import one_f_one_b

    one = Element("op", time=1.0, static_power=60.0, device="gpu0")
    plan = one_f_one_b(
        stages=stages, microbatches=microbatches, forward=one, backward=one
    )
    laid = lanes.laid_out(lanes.joined(len(plan), plan.sources, plan.targets))
    assert laid.vertex.size <= 1.7 * len(plan)
    assert laid.slots <= 4 * stages


def test_work_grows_linearly_with_nodes() -> None:
    """Lanes worked on, and thereby draws, maxima and additions of one sample."""
    from probcalc.schedules import one_f_one_b

    one = Element("op", time=1.0, static_power=60.0, device="gpu0")
    nodes, work = [], []
    for microbatches in (32, 128, 512, 2048):
        plan = one_f_one_b(
            stages=8, microbatches=microbatches, forward=one, backward=one
        )
        laid = lanes.laid_out(lanes.joined(len(plan), plan.sources, plan.targets))
        nodes.append(len(plan))
        work.append(laid.vertex.size)
    slope = np.polyfit(np.log(nodes), np.log(work), 1)[0]
    assert 0.9 < slope < 1.02


# -- the scan, its oracle and a loop over nodes

LATTICES = [
    Lattice(1, 0.5, np.array([0.2, 0.3, 0.1, 0.4])),
    Lattice(0, 0.5, np.full(37, 1 / 37)),
    Lattice(3, 0.5, np.array([1.0])),
]
DENSITIES = [stats.gamma(2.0), stats.lognorm(1.0), LATTICES[1]]


def random_plan(seed: int, *, energies: bool = False) -> Plan:
    rng = np.random.default_rng(seed)
    n, sources, targets = random_edges(int(rng.integers(1, 60)), rng.random() / 4, rng)
    runs = rng.integers(1, 40, 30) * 0.5
    more = rng.gamma(2.0, 1.0, 30)
    elements = [
        Element(f"t{i}", time=law, static_power=60.0, device=f"gpu{i}")
        for i, law in enumerate(DENSITIES if seed % 2 else LATTICES)
    ]
    if energies:
        elements = [
            Element.from_runs(
                "paired",
                time=runs,
                energy=60.0 * runs + more,
                static_power=60.0,
                device="gpu0",
            ),
            Element(
                "apart",
                time=DENSITIES[seed % 3],
                dynamic_energy=stats.gamma(3.0),
                static_power=60.0,
                device="gpu1",
            ),
            Element(
                "constant",
                time=LATTICES[1],
                dynamic_energy=2.5,
                static_power=60.0,
                device="gpu2",
            ),
        ]
    late = rng.random(sources.size) < 0.2
    return Plan.from_arrays(
        elements=elements,
        element_of=rng.integers(0, len(elements), n),
        sources=sources,
        targets=targets,
        lags=np.where(late, rng.integers(1, 5, sources.size) * 0.5, 0.0),
        releases=np.where(rng.random(n) < 0.1, 2.5, 0.0),
        labels={"group": rng.integers(0, 5, n).tolist()},
    )


def by_scan(low: Lowered, seed: int, count: int, **options: Any) -> tuple[Any, Any]:
    from probcalc.chunks import Work, compiled, samples_of

    work = Work(low, 1.0, seed)
    run = compiled(work, -(-count // 256) * 256, options.get("devices"))
    return samples_of(work, 0, count, run)


def by_oracle(low: Lowered, seed: int, count: int) -> npt.NDArray[np.int32]:
    from probcalc.kernels.levelscan_oracle import makespans

    a = low.arrays
    out = np.empty(count, dtype=np.int32)
    names = ("reads", "writes", "kind", "draw", "shift", "first", "limits")
    arrays: list[Any] = [a[name] for name in (*names, "values")]
    arrays.append(a["slopes"] if a["slopes"].any() else a["slopes"][:0])
    ends: list[Any] = [low.slots, low.last, philox.key_of(seed, 0), 0, out]
    makespans(low.vertex, *arrays, *ends)
    return out


def by_nodes(plan: Plan, low: Lowered, seed: int, count: int) -> tuple[Any, Any]:
    """Makespans and energies of samples, node by node, without lanes and slots."""
    a = low.arrays
    samples = np.arange(count, dtype=np.int64)
    factors = rows_of(low.factors, seed, samples)
    kind = np.zeros(low.vertices, dtype=np.int64)
    used = low.vertex >= 0
    kind[low.vertex[used]] = a["kind"][used]
    ticks = np.zeros((low.vertices, count), dtype=np.int64)
    energy = np.zeros((len(low.amounts.energy_keys), count), dtype=np.int64)

    def drawn(words: Any, shift: int, first: int) -> tuple[IntArray, IntArray]:
        own = words.astype(np.int64) >> shift
        limit = a["limits"][first + own].astype(np.int64)
        above = words >= limit
        row = 2 * (first + own) + above
        over = words - np.where(above, limit, own << shift)
        more = over.astype(np.float32) * a["slopes"][row]
        return row, a["values"][row] + more.astype(np.int64)

    for v in range(low.vertices):
        k = kind[v]
        node = v if v < low.nodes else -1
        draw = int(plan.draws.rows[node]) if node >= 0 else 0
        one, two = philox.philox(samples, draw, philox.key_of(seed, 0))
        row, time = drawn(one, int(a["shift"][k]), int(a["first"][k]))
        _, own = drawn(two, int(a["own_shift"][k]), int(a["own_first"][k]))
        scale = factors[low.factors.time[node]] if node >= 0 else 1.0
        ticks[v] = np.rint(time * scale)
        quanta = a["pairs"][row + a["pair_first"][k]] + own
        scale = factors[low.factors.energy[node]] if node >= 0 else 1.0
        for e, member in enumerate(a["member"][:, k]):
            energy[e] += member * np.rint(quanta * scale).astype(np.int64)
    finish = finish_times(low.vertices, low.sources, low.targets, ticks)
    return finish.max(axis=0), energy


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**16), st.integers(0, 2**40))
def test_scan_oracle_and_loop_agree_in_every_bit(which: int, seed: int) -> None:
    plan = random_plan(which)
    low = lowered(plan, energy=False)
    ticks, _ = by_scan(low, seed, 300)
    assert (ticks == by_oracle(low, seed, 300)).all()
    right, _ = by_nodes(plan, low, seed, 300)
    assert (ticks == right).all()


@pytest.mark.parametrize("which", range(4))
def test_energies_and_factors_agree_in_every_bit(which: int) -> None:
    plan = random_plan(which, energies=True)
    factors = [
        DrawFactor("pace", stats.lognorm(0.2), by="group", acts_on="both"),
        DrawFactor("heat", stats.uniform(0.9, 0.2), by="group", acts_on="energy"),
    ]
    if which % 2:
        plan = plan.drawn(factors=factors)
    low = lowered(plan)
    ticks, sums = by_scan(low, 3, 300)
    right, energy = by_nodes(plan, low, 3, 300)
    assert (ticks == right).all()
    assert (sums[len(low.amounts.charge_keys) :] == energy).all()


def test_limbs_draw_the_same() -> None:
    import jax
    import jax.numpy as jnp

    from probcalc.chunks import program_of
    from probcalc.kernels.levelscan import BLOCK, forward

    low = lowered(random_plan(5))
    samples = np.arange(BLOCK, dtype=np.uint32)[None]
    factors = np.ones((1, len(low.factors.rows), BLOCK))
    found = []
    for limbs in (False, True):
        shape, program = program_of(low, 1, limbs=limbs)
        with jax.enable_x64(True):
            ticks, _ = forward(shape)(
                program, jnp.asarray(samples), jnp.asarray(factors)
            )
        found.append(np.asarray(ticks))
    assert (found[0] == found[1]).all()


def test_compiled_code_does_not_grow_with_the_plan() -> None:
    """Plans are arguments: the program of a longer one has as many operations."""
    import jax
    import jax.numpy as jnp

    from probcalc.chunks import program_of
    from probcalc.kernels.levelscan import BLOCK, forward
    from probcalc.schedules import one_f_one_b

    op = Element("op", time=LATTICES[1], static_power=60.0, device="gpu0")
    sizes = []
    for microbatches in (8, 64, 512):
        plan = one_f_one_b(stages=4, microbatches=microbatches, forward=op, backward=op)
        low = lowered(plan)
        shape, program = program_of(low, 0)
        with jax.enable_x64(True):
            scan: Any = forward(shape)
            traced = scan.trace(
                program,
                jnp.zeros((1, BLOCK), jnp.uint32),
                jnp.ones((1, 1, BLOCK)),
            )
        sizes.append(str(traced.jaxpr).count("="))
    assert max(sizes) == min(sizes)
