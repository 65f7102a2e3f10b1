"""Node-samples: one duration drawn, the later of two predecessors, one addition.

Compared on one core, in one run, with what NumPy takes to draw one uniform (the floor),
with a NumPy loop over nodes vectorised over samples, and with our Numba loops. Compile
times stand apart. Target: the scan at most 2.5 times the Numba loops, these below the
floor.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from probcalc.chunks import Work, compiled, samples_of
from probcalc.element import Element
from probcalc.lattice import Lattice
from probcalc.lowering import Lowered, lowered
from probcalc.plan import Plan
from probcalc.schedules import one_f_one_b
from tests.benchmarks.harness import Report, Timing, measure, run

TITLE = "Monte Carlo: a node-sample within a few uniforms of NumPy"
SEED = 1


class Case(NamedTuple):
    """A plan, and how many samples of it are drawn."""

    name: str
    plan: Callable[..., Plan]
    samples: int


Laws = Literal["lattice", "density", "measured"]


def operation(name: str, mean: float, laws: Laws) -> Element:
    """Build an operation of lognormal time, of a tenth of its mean in spread.

    Either on a lattice of a 64th of a second, without energy; or by its density with an
    independent energy; or by 1,000 runs with their energies.
    """
    law = stats.lognorm(0.1, scale=mean)
    energy: Any = 0.0
    if laws == "measured":
        times = law.ppf((np.arange(1000) + 0.5) / 1000)
        joules = 60.0 * times + 5.0 * times**2
        return Element.from_runs(
            name, time=times, energy=joules, static_power=60.0, device="gpu0"
        )
    time: Any = law
    if laws == "lattice":
        ends = (np.arange(257) + 0.5) / 64.0
        time = Lattice(1, 1.0 / 64.0, np.diff(law.cdf(ends)) / law.cdf(ends[-1]))
    else:
        energy = stats.lognorm(0.2, scale=5.0 * mean)
    return Element(
        name, time=time, dynamic_energy=energy, static_power=60.0, device="gpu0"
    )


def pipeline(stages: int, microbatches: int, laws: Laws = "lattice") -> Plan:
    """1F1B, backward twice as long as forward."""
    ends = [operation(n, m, laws) for n, m in (("F", 1.0), ("B", 2.0))]
    return one_f_one_b(
        stages=stages, microbatches=microbatches, forward=ends[0], backward=ends[1]
    )


def layered(layers: int, width: int, laws: Laws = "lattice") -> Plan:
    """Layers of nodes, each after two random nodes of the layer before."""
    rng = np.random.default_rng(SEED)
    targets = np.repeat(np.arange(width, layers * width), 2)
    sources = (targets // width - 1) * width + rng.integers(0, width, targets.size)
    return Plan.from_arrays(
        elements=[
            operation("x", 1.0, laws),
            operation("y", 2.0, laws).on("gpu1"),
        ],
        element_of=rng.integers(0, 2, layers * width),
        sources=sources,
        targets=targets,
    )


FULL = (
    Case("1F1B 16x128", functools.partial(pipeline, 16, 128), 16_384),
    Case("1F1B 64x1024", functools.partial(pipeline, 64, 1024), 1024),
    Case("layered 1e6", functools.partial(layered, 1000, 1000), 256),
)
SMALL = (
    Case("1F1B 4x16", functools.partial(pipeline, 4, 16), 2048),
    Case("layered 2500", functools.partial(layered, 50, 50), 512),
)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep the whole process on one core: XLA's own flags do not."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def uniforms(count: int) -> Callable[[], Any]:
    """Draw so many float32 uniforms with SFC64, into a buffer that stays in cache."""
    rng = np.random.Generator(np.random.SFC64(SEED))
    buffer = np.empty(1 << 14, dtype=np.float32)

    def draw() -> Any:
        for _ in range(-(-count // buffer.size)):
            rng.random(dtype=np.float32, out=buffer)
        return buffer

    return draw


def numpy_loop(low: Lowered, samples: int, vertices: int) -> Callable[[], Any]:
    """Run the first vertices one by one, all samples at a time, on the same tables."""
    a = low.arrays
    kind = np.zeros(low.vertices, dtype=np.int64)
    used = low.vertex >= 0
    kind[low.vertex[used]] = a["kind"][used]
    before: list[list[int]] = [[] for _ in range(low.vertices)]
    for p, v in zip(low.sources.tolist(), low.targets.tolist(), strict=True):
        before[v].append(p)
    order = low.vertex[used].tolist()[:vertices]

    def loop() -> Any:
        rng = np.random.Generator(np.random.SFC64(SEED))
        finish: dict[int, Any] = {}
        left = np.bincount(low.sources, minlength=low.vertices).tolist()
        end = np.zeros(samples, dtype=np.int32)
        for v in order:
            k = kind[v]
            words = rng.integers(0, 1 << 32, samples, dtype=np.uint32)
            cell = (words >> a["shift"][k]).astype(np.int32) + a["first"][k]
            row = 2 * cell + (words >= a["limits"][cell])
            over = (words & ((1 << int(a["shift"][k])) - 1)).astype(np.float32)
            ticks = a["values"][row] + (over * a["slopes"][row]).astype(np.int32)
            ready = [finish[p] for p in before[v]]
            for other in ready[1:]:
                ready[0] = np.maximum(ready[0], other)
            finish[v] = end = ticks + ready[0] if ready else ticks
            for p in before[v]:  # forget what nobody waits for any more
                left[p] -= 1
                if not left[p]:
                    del finish[p]
        return end

    return loop


def oracle(low: Lowered, samples: int) -> Callable[[], Any]:
    """Run our Numba loops."""
    from probcalc.kernels.levelscan_oracle import makespans
    from probcalc.kernels.philox import key_of

    a = low.arrays
    names = ("reads", "writes", "kind", "draw", "shift", "first", "limits")
    arrays: list[Any] = [low.vertex]
    arrays += [a[name] for name in (*names, "values")]
    arrays.append(a["slopes"] if a["slopes"].any() else a["slopes"][:0])
    out = np.empty(samples, dtype=np.int32)
    ends: list[Any] = [low.slots, low.last, key_of(SEED, 0), 0, out]

    def loop() -> Any:
        makespans(*arrays, *ends)
        return out

    return loop


def scan(low: Lowered, samples: int) -> tuple[Callable[[], Any], float]:
    """Run our scan; also the seconds of its first call, which compiles."""
    work = Work(low, 1.0, SEED)
    compiled_ = compiled(work, samples, None)

    def draw() -> Any:
        return samples_of(work, 0, samples, compiled_)[0]

    begin = time.perf_counter()
    draw()
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    draw()
    return draw, max(first - (time.perf_counter() - begin), 0.0)


def build(report: Report, repeats: int, cases: Sequence[Case] = FULL) -> None:
    """Every case: the floor, ours twice, with energies, and NumPy's loop."""
    with one_core():
        for case in cases:
            _case(report, case, min(repeats, 5))


def _case(report: Report, case: Case, repeats: int) -> None:
    begin = time.perf_counter()
    plan = case.plan()
    built = time.perf_counter() - begin
    begin = time.perf_counter()
    low = lowered(plan, energy=False)
    laid = time.perf_counter() - begin
    count = len(plan) * case.samples
    _, floor = measure(uniforms(count), repeats=repeats)

    def add(who: str, timing: Timing, **fields: Any) -> None:
        ns = 1e9 * timing.median / count
        fields["note"] = f"{ns:.2f} ns per node-sample; {fields.get('note', '')}"
        report.add(who, case.name, "", timing=timing, floor=floor, **fields)

    add("NumPy SFC64 uniforms", floor, note="float32, the floor")
    right, timing = measure(oracle(low, case.samples), repeats=repeats)
    mean = float(right.astype(float).mean())
    add("Numba loops", timing, target="< 1 floor")
    draw, compiling = scan(low, case.samples)
    found, ours = measure(draw, repeats=repeats)
    value = float(found.astype(float).mean()) if (found == right).all() else 0.0
    add(
        "probcalc",
        ours,
        truth=mean,
        value=value,
        lower=value,
        upper=value,
        target="<= 2.5 Numba",
        note=f"{ours.median / timing.median:.2f} of Numba, equal in every bit; "
        f"compiled in {compiling:.2f} s, plan built in {built:.2f} s, laid out in "
        f"{laid:.2f} s, {low.vertex.size / len(plan):.2f} lanes a node, {low.slots} "
        "slots",
    )
    dense, measured = case.plan(laws="density"), case.plan(laws="measured")
    for what, other, energy in (
        ("densities", dense, False),
        ("densities, energy of its own", dense, True),
        ("runs with their energies", measured, True),
    ):
        whole, compiling = scan(lowered(other, energy=energy), case.samples)
        _, timing = measure(whole, repeats=repeats)
        add(f"probcalc, {what}", timing, note=f"compiled in {compiling:.2f} s")
    fewer, vertices = min(case.samples, 4096), min(low.vertices, 20_000)
    begin = time.perf_counter()
    numpy_loop(low, fewer, vertices)()
    spent = time.perf_counter() - begin
    spent *= case.samples / fewer * low.vertices / vertices
    add(
        "NumPy loop over nodes",
        Timing(spent, spent, spent, spent, 1),
        note=f"from {fewer:,} samples of {vertices:,} nodes",
    )


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test; ``--small`` for a trial."""
    given = sys.argv[1:] if argv is None else list(argv)
    small = "--small" in given
    given = [word for word in given if word != "--small"]

    def chosen(report: Report, repeats: int) -> None:
        build(report, repeats, SMALL if small else FULL)

    return run(TITLE, chosen, given)


if __name__ == "__main__":
    main()
