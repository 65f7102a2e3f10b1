"""Kernels of joint masses against brute force and high precision."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probcalc.kernels import joint as k
from probcalc.kernels import joint_reading as reading
from probcalc.kernels import joint_spectra as spectra

FloatArray = npt.NDArray[Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

BINS = 30  # 2 * 3 * 5: no power of two


# ---------------------------------------------------------------- brute force
Atoms = dict[tuple[int, int], float]


def combined(kind: str, a: Atoms, b: Atoms) -> Atoms:
    out: Atoms = defaultdict(float)
    for ((i, x), p), ((j, y), q) in itertools.product(a.items(), b.items()):
        row = max(i, j) if kind == k.MAX else i + j
        out[row, (x + y) % BINS] += p * q
    return out


def brute(nodes: Any, leaves: dict[int, Atoms]) -> Atoms:
    done: list[Atoms] = []
    for number, (kind, operands) in enumerate(nodes):
        if kind == k.LEAF:
            done.append(leaves[number])
            continue
        result: Atoms | None = None
        for i, count in operands:
            for _ in range(count):
                result = done[i] if result is None else combined(kind, result, done[i])
        assert result is not None
        done.append(result)
    return done[-1]


def leaf_profile(atoms: Atoms) -> k.Profile:
    first = min(i for i, _ in atoms)
    mass = np.zeros(max(i for i, _ in atoms) - first + 1)
    for (i, _), p in atoms.items():
        mass[i - first] += p
    return k.Profile(first, mass, 0, spectra.PHASE_ERROR, 0.0, 0.0)


def leaf_spectrum(atoms: Atoms) -> spectra.Spectrum:
    own = leaf_profile(atoms)
    keys = list(atoms)
    return spectra.circle_spectra(
        np.array([i - own.first for i, _ in keys]),
        np.zeros(len(keys)),
        np.array([atoms[key] for key in keys]),
        np.array([x for _, x in keys]),
        BINS,
        own.mass.size,
        BINS // 2 + 1,
    )


def result(
    nodes: Any, leaves: dict[int, Atoms], log_tail: float = math.log(1e-30)
) -> tuple[FloatArray, k.Profile, float]:
    found = k.profile(
        nodes,
        {i: leaf_profile(a) for i, a in leaves.items()},
        [log_tail] * len(nodes),
    )
    spectrum = k.compose(nodes, found, lambda i: leaf_spectrum(leaves[i]))
    mass, error = reading.unfold(spectrum, BINS, None)
    return mass, found[-1], error + reading.tail_error(found[-1].error, BINS)


@st.composite
def programs(draw: Draw) -> tuple[Any, dict[int, Atoms]]:
    """Two to four leaves, then nodes over anything before, the last used up."""
    nodes: list[tuple[str, list[tuple[int, int]]]] = []
    leaves: dict[int, Atoms] = {}
    for i in range(draw(st.integers(2, 4))):
        count = draw(st.integers(1, 3))
        weights = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
        atoms: Atoms = defaultdict(float)
        for w in weights:
            key = (draw(st.integers(0, 12)), draw(st.integers(0, BINS - 1)))
            atoms[key] += w / sum(weights)
        leaves[i] = dict(atoms)
        nodes.append((k.LEAF, []))
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from([k.SUM, k.MAX]))
        chosen = draw(
            st.lists(
                st.integers(0, len(nodes) - 1), min_size=1, max_size=3, unique=True
            )
        )
        nodes.append((kind, [(i, draw(st.integers(1, 2))) for i in chosen]))
    return nodes, leaves


# ---------------------------------------------------------------- compositions
@settings(max_examples=60, deadline=None)
@given(programs())
def test_compose_is_enumeration(program: tuple[Any, dict[int, Atoms]]) -> None:
    mass, root, error = result(*program)
    expected = brute(*program)
    dense = np.zeros_like(mass)
    for (i, x), p in expected.items():
        if p > 1e-25:
            dense[i - root.first, x] += p
    assert (mass >= 0.0).all()
    # Ends of rows are within the stated error, so single bins within twice of it.
    np.testing.assert_allclose(np.cumsum(mass, 1), np.cumsum(dense, 1), atol=error)
    assert error < 1e-11
    assert abs(mass.sum() - 1.0) < error
    np.testing.assert_allclose(mass.sum(axis=1), root.mass, atol=error)


@settings(max_examples=30, deadline=None)
@given(programs())
def test_operands_in_any_order(program: tuple[Any, dict[int, Atoms]]) -> None:
    nodes, leaves = program
    turned = [(kind, list(reversed(operands))) for kind, operands in nodes]
    one, first, error = result(nodes, leaves)
    other, second, _ = result(turned, leaves)
    assert first.first == second.first
    np.testing.assert_allclose(one, other, atol=2.0 * error)


def test_parallel_rows_that_do_not_meet() -> None:
    a = np.array([[0.25], [0.75]])
    b = np.array([[0.5], [0.0], [0.5]])
    # a on rows 0, 1; b on rows 5 to 7: the maximum is b.
    out, first = k.parallel(a, 0, b, 5)
    assert first == 5
    np.testing.assert_array_equal(out, b)
    out, first = k.parallel(b, 5, a, 0)
    np.testing.assert_array_equal(out, b)


def test_long_maximum_keeps_every_bin_positive() -> None:
    r = np.random.default_rng(0)
    p = r.random((300, 1)) * np.exp(-(np.linspace(-6, 6, 300)[:, None] ** 2))
    p /= p.sum()
    out, _ = k.parallel(p, 0, p, 0)
    assert (out > 0.0).all()
    np.testing.assert_allclose(
        np.cumsum(out), np.cumsum(p) ** 2, rtol=200 * spectra.UNIT, atol=0
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_counts_are_copies(count: int) -> None:
    r = np.random.default_rng(count)
    atoms = {
        (int(i), int(x)): 0.2
        for i, x in zip(range(5), r.integers(0, BINS, 5), strict=True)
    }
    for kind in (k.SUM, k.MAX):
        many = [(k.LEAF, [])] * count + [(kind, [(i, 1) for i in range(count)])]
        once = [(k.LEAF, []), (kind, [(0, count)])]
        one, p, error = result(once, {0: atoms})
        other, q, more = result(many, dict.fromkeys(range(count), atoms))
        assert p.first == q.first
        np.testing.assert_allclose(one, other, atol=error + more)


def test_windows_leave_out_what_they_say() -> None:
    # 60 draws of a skewed mass: the window of a sum at 1e-9, and what is outside.
    p = np.array([0.7, 0.2, 0.05, 0.05])
    full = np.ones(1)
    for _ in range(60):
        full = np.convolve(full, p)
    for log_tail in np.log([1e-3, 1e-9, 1e-12]):
        low, high = k.window([p], [60], [0.0], float(log_tail))
        assert full[:low].sum() <= np.exp(log_tail)
        assert full[high + 1 :].sum() <= np.exp(log_tail)
        assert high - low < full.size
        wide_low, wide_high = k.window([p], [60], [1e-6], float(log_tail))
        assert wide_low <= low
        assert wide_high >= high


def test_cyclic_sum_accounts_for_what_wraps() -> None:
    p = np.array([0.7, 0.2, 0.05, 0.05])
    leaf = k.Profile(2, p, 0, 0.0, 0.0, 0.0)
    nodes = [(k.LEAF, []), (k.SUM, [(0, 60)])]
    tail = 1e-4
    _, root = k.profile(nodes, {0: leaf}, [math.log(tail)] * 2)
    full = np.ones(1)
    for _ in range(60):
        full = np.convolve(full, p)
    assert root.mass.size < full.size
    inside = full[root.first - 120 :][: root.mass.size]
    assert np.abs(inside - root.mass).sum() <= root.missing + root.extra + root.error
    assert 1.0 - inside.sum() <= root.missing
    assert 0.0 < root.missing < 10 * tail


# ---------------------------------------------------------------- transforms
def test_circle_spectra_is_the_transform() -> None:
    r = np.random.default_rng(1)
    atoms, bins, height = 40, 400, 6
    row = r.integers(0, height - 1, atoms)
    part = r.choice([0.0, 0.25, 0.6], atoms)
    mass = r.random(atoms)
    mass /= mass.sum()
    place = r.integers(-(2**44), 2**44, atoms)
    found = spectra.circle_spectra(
        row, part, mass, place, spectra.DYADIC, height, bins // 2 + 1
    )
    # The same in extended precision, phases reduced in integers.
    f = np.arange(bins // 2 + 1)
    turns = np.array(
        [[(int(a) * int(g)) % spectra.DYADIC for g in f] for a in place],
        dtype=np.longdouble,
    )
    angle = (
        -2
        * np.longdouble("3.14159265358979323846264338327950288")
        * (turns / np.longdouble(spectra.DYADIC))
    )
    expected = np.zeros((height, f.size), np.clongdouble)
    for i in range(atoms):
        z = np.cos(angle[i]) + 1j * np.sin(angle[i])
        expected[row[i]] += (1 - np.longdouble(part[i])) * mass[i] * z
        expected[row[i] + 1] += np.longdouble(part[i]) * mass[i] * z
    error = np.abs(found - expected).sum(axis=0).max()
    assert float(error) < spectra.PHASE_ERROR


@pytest.mark.parametrize("lists", [1, 2, 4])
def test_ordered_spectrum_is_enumeration(lists: int) -> None:
    r = np.random.default_rng(lists)
    count, bins = 4 * lists, 75
    operand = np.arange(count) % lists
    time = r.integers(0, 6, count).astype(float)  # ties
    place = r.integers(0, bins, (2, count))
    mass = np.full(count, 0.25)
    order = np.argsort(time, kind="stable")
    found = spectra.ordered_spectrum(
        operand[order],
        mass[order],
        place[0][order],
        place[1][order],
        bins,
        lists,
        bins // 2 + 1,
    )
    expected = np.zeros(bins)
    rank = np.empty(count, int)
    rank[order] = np.arange(count)
    for chosen in itertools.product(
        *(np.flatnonzero(operand == m) for m in range(lists))
    ):
        last = max(chosen, key=lambda e: rank[e])
        at = place[0][last] + sum(place[1][e] for e in chosen if e != last)
        expected[at % bins] += 0.25**lists
    mass_found, error = reading.unfold(found, bins, None)
    error += reading.tail_error(
        (lists + 1) * (spectra.LONG_PHASE_ERROR + count * spectra.UNIT), bins
    )
    np.testing.assert_allclose(mass_found[0], expected, atol=error)
    assert error < 1e-11


@pytest.mark.parametrize("length", [64, 75, 240, 1000])
def test_transform_error_holds(length: int) -> None:
    r = np.random.default_rng(length)
    p = r.random(length)
    p /= p.sum()
    n = np.arange(length)
    turns = np.multiply.outer(n, n) % length
    angle = (
        2
        * np.longdouble("3.14159265358979323846264338327950288")
        * (turns.astype(np.longdouble) / length)
    )
    exact = (np.cos(angle) - 1j * np.sin(angle)) @ p.astype(np.longdouble)
    found = np.fft.fft(p)
    assert float(np.abs(found - exact).max()) < spectra.transform_error(length)
    norm = float(np.sqrt((np.abs(exact) ** 2).sum()))
    off = float(np.sqrt((np.abs(found - exact) ** 2).sum()))
    assert off < spectra.transform_error(length) * norm


def test_line_spectrum_folds() -> None:
    r = np.random.default_rng(3)
    p = r.random(50)
    n = np.arange(50)
    expected = [(p * np.exp(-2j * np.pi * f * n / 20)).sum() for f in range(6)]
    np.testing.assert_allclose(spectra.line_spectrum(p, 20, 6), expected, atol=1e-13)


# ---------------------------------------------------------------- smearing
@pytest.mark.parametrize("bins", [100, 162, 512, 540])
def test_smear_is_a_law_of_few_frequencies(bins: int) -> None:
    kernel = reading.smear(bins)
    fine = 16
    padded = np.zeros(bins * fine // 2 + 1)
    padded[: kernel.transform.size] = kernel.transform
    density = np.fft.irfft(padded, bins * fine)
    assert kernel.transform[-1] == 0.0
    assert density.min() > -1e-17
    assert density.sum() == pytest.approx(1.0, rel=1e-12)
    y = np.arange(bins * fine) / fine
    y = np.where(y > bins / 2, y - bins, y)
    assert kernel.variance == pytest.approx(float(density @ y**2), rel=1e-6)
    for s in (0.05, 0.3, 0.5):
        inside = np.abs(y) <= reading.REACH
        moment = float(density[inside] @ np.exp(s * y[inside]))
        assert kernel.log_moment(np.array([s]))[0] == pytest.approx(
            math.log(moment), rel=1e-4
        )
        assert kernel.log_moment(np.array([s]))[0] >= math.log(moment)
    for at in (-5.0, -1.3, 0.0, 0.7, 2.0, 6.0, 11.0):
        truth = float(density[y > at + 1e-9].sum())
        assert kernel.tail(np.array([at]))[0] >= truth * (1 - 0.05 / fine)
        assert kernel.tail(np.array([at - 0.2]))[0] >= truth
    assert kernel.outside < 2e-13


def test_smeared_spectrum_is_read_without_aliasing() -> None:
    # One atom between two bins: the masses are the kernel's, split onto the bins.
    bins, place = 128, 40.3
    kernel = reading.smear(bins)
    spectrum = spectra.circle_spectra(
        np.zeros(1, np.int64),
        np.zeros(1),
        np.ones(1),
        np.array([round(place / bins * spectra.DYADIC)]),
        spectra.DYADIC,
        1,
        bins // 2 + 1,
    )
    mass, error = reading.unfold(spectrum, bins, kernel.transform)
    assert (mass >= 0.0).all()
    assert mass.sum() == pytest.approx(1.0, abs=error)
    n = np.arange(bins)
    assert float(mass[0] @ n) == pytest.approx(place, abs=1e-9)
    split = 1.0 / 6.0  # variance of the split, averaged over places between bins
    spread = float(mass[0] @ (n - place) ** 2)
    assert spread == pytest.approx(kernel.variance + split, rel=1e-6)


# ---------------------------------------------------------------- reading
def test_fold_keeps_mass_and_mean() -> None:
    r = np.random.default_rng(5)
    mass = r.random((7, 11))
    mass /= mass.sum()
    out = reading.fold(mass, 2.3, 1.7, 4, 40)
    i, j = np.indices(mass.shape)
    place = 2.3 * i + 1.7 * ((j - 4) % 11)
    assert out.sum() == pytest.approx(1.0, abs=1e-14)
    assert float(out @ np.arange(40)) == pytest.approx(float((mass * place).sum()))
    exact = reading.fold(mass, 2.0, 1.0, 4, 40)
    expected = np.bincount(
        (2 * i + (j - 4) % 11).ravel(), weights=mass.ravel(), minlength=40
    )
    np.testing.assert_allclose(exact, expected, atol=1e-15)


def fair(n: int) -> tuple[FloatArray, FloatArray]:
    """Sum of n fair signs: values and masses."""
    mass = np.array([math.comb(n, j) / 2.0**n for j in range(n + 1)])
    return np.arange(-n, n + 1, 2).astype(float), mass


def test_noise_tail_bounds_signs_and_what_is_added() -> None:
    values, mass = fair(24)
    rates = np.geomspace(0.03, 60, 64) / math.sqrt(4 * 24)
    logs = rates**2 * (4 * 24) / 8  # range 2 each
    c = np.linspace(0, 24, 49)
    alone = reading.noise_tail(rates, logs, None, 0.0)(c)
    truth = np.array([mass[values > v].sum() for v in c])
    assert (alone >= truth).all()
    assert alone[-1] < 1e-4
    # plus an independent uniform on {-3, ..., 3}
    both = reading.noise_tail(
        rates,
        logs,
        lambda y: np.clip(np.floor(3.0 - y + 1e-9), 0, 7) / 7 * (y < 3) + (y < -3),
        2.0,
    )(c)
    added = np.add.outer(values, np.arange(-3.0, 4.0))
    masses = np.repeat(mass[:, None] / 7, 7, axis=1)
    truth = np.array([masses[added > v].sum() for v in c])
    assert (both >= truth).all()


@pytest.mark.parametrize("paths", [1, 5])
def test_bracket_contains_the_law_without_noise(paths: int) -> None:
    # E = max over paths of a common lattice variable; each path has noise of its own,
    # twelve signs of half a step, so that E' is on half steps; all worked out exactly.
    size = 200
    p = np.exp(-(np.linspace(-7, 5, size) ** 2) / 2)
    p /= p.sum()
    _, mass = fair(12)
    most = np.cumsum(mass) ** paths
    mass = np.diff(most, prepend=0.0)
    # one point is one unit; a sign moves by 1: range 2
    noisy = np.convolve(p, np.insert(mass, np.arange(1, mass.size), 0.0))
    survival = np.append(1.0, 1.0 - np.cumsum(noisy))
    survival = np.append(np.cumsum(noisy[::-1])[::-1], 0.0)
    lower, upper, pad = reading.bracket(
        survival,
        survival,
        math.sqrt(12 * 4),
        lambda s: s * s * 12 * 4 / 8,
        lambda s: math.log(paths) + s * s * 12 * 4 / 8,
        None,
        0.0,
    )
    # point j of `survival` is value j - 13: one before the least, -12
    truth = np.append(np.cumsum(p[::-1])[::-1], 0.0)
    place = np.arange(lower.size) - pad - 13
    exact = truth[np.clip(place + 1, 0, size)]
    assert (lower <= exact + 1e-12).all()
    assert (upper >= exact - 1e-12).all()
    # and it says something: within twelve units and a little, whatever the paths
    for level in (0.5, 1e-2, 1e-5):
        high = int(np.flatnonzero(upper <= level)[0])
        low = int(np.flatnonzero(lower <= level)[0])
        assert high - low <= 26
