"""A 100-node series-parallel expression with T-x dependence, on a 512 x 512 grid.

Claim: about 1 s on one core, brackets included. Run as a script; prints seconds, and
multiples of one rfft2 + irfft2 pair of the grid in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
from scipy import stats

from probcalc.joint import (
    Joint,
    JointAffine,
    JointRuns,
    Weighted,
    joint_maximum,
    joint_sum,
)

GRID = 512
LEAVES = 50  # and 49 nodes that compose them, and a maximum at the root
WEIGHT = 60.0


def leaf(number: int) -> Joint:
    """One element: measured runs, or a line in T of either sign; all different."""
    r = np.random.default_rng(number)
    size = r.uniform(0.5, 1.5)
    if number % 2:
        t = size * r.gamma(100.0, 0.01, 400)
        x = 30.0 * t * r.uniform(-0.2, 0.5) + size * r.gamma(9.0, 2.0, 400)
        return JointRuns(t, x)
    return JointAffine(
        stats.lognorm(0.1, scale=size),
        r.uniform(-20.0, 30.0),
        stats.gamma(9.0, scale=2.0 * size),
    )


def expression(leaves: int, seed: int = 0) -> Joint:
    """Neighbours combined at random until one node is left."""
    r = np.random.default_rng(seed)
    parts = [leaf(i) for i in range(leaves)]
    count = 0
    while len(parts) > 1:
        i = int(r.integers(len(parts) - 1))
        combine = joint_sum if count % 2 else joint_maximum
        parts[i : i + 2] = [combine(parts[i], parts[i + 1])]
        count += 1
    return joint_maximum(parts[0], leaf(leaves))


def timed(function: Callable[[], Any], repetitions: int) -> tuple[float, float, float]:
    """Median and spread of wall seconds, and the least processor seconds."""
    wall, processor = [], []
    for _ in range(repetitions):
        start, used = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    return statistics.median(wall), max(wall) - min(wall), min(processor)


def main() -> None:
    """Print the figures."""
    x = np.random.default_rng(0).random((GRID, GRID))
    floor, _, least = timed(
        lambda: scipy.fft.irfft2(scipy.fft.rfft2(x, workers=1), x.shape, workers=1), 9
    )
    print(
        f"rfft2 + irfft2 of {GRID}x{GRID}: {floor * 1e3:.2f} ms, cpu {least * 1e3:.2f}"
    )
    whole = expression(LEAVES)
    Weighted(whole, WEIGHT, 64).quantile(sf=0.01, memory=2**18)  # compiles
    median, spread, used = timed(
        lambda: Weighted(whole, WEIGHT, GRID).quantile(sf=1e-3, memory=64 * GRID**2), 5
    )
    print(
        f"{2 * LEAVES} nodes, {GRID}x{GRID}: {median:.3f} s (spread {spread:.3f} s), "
        f"{median / floor:.0f} pairs; cpu {used:.3f} s, {used / least:.0f} pairs"
    )
    law = Weighted(whole, WEIGHT, GRID)
    memory = 64 * GRID * GRID
    draws = law.sample(200_000, rng=1)
    for sf in (0.5, 0.01, 1e-3, 1e-6):
        q = law.quantile(sf=sf, memory=memory)
        simulated = float(np.quantile(draws, 1.0 - sf)) if sf >= 1e-3 else float("nan")
        print(
            f"sf {sf:g}: {q.value:.3f} in [{q.lower:.3f}, {q.upper:.3f}], relative "
            f"width {q.relative_width:.2e}; 2e5 draws {simulated:.3f}; {q.limited_by}"
        )


if __name__ == "__main__":
    main()
