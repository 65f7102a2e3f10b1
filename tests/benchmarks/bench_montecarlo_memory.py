"""Memory: 131,072 nodes by 10^6 samples within 2 GiB.

Each figure is the peak resident size of a process of its own. Without ``--full`` two
smaller numbers of samples are drawn, and the size at 10^6 is extrapolated from both;
``--full`` draws them all (some twenty minutes on one core).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.benchmarks.harness import Report, Timing, run

TITLE = "Monte Carlo: 131,072 nodes by 10^6 samples within 2 GiB"
LIMIT = 2 << 30
WHOLE = 1_000_000

CODE = """
import json, resource, sys, time
from probcalc.montecarlo import simulate
from tests.benchmarks.bench_montecarlo_node_samples import pipeline
stages, microbatches, samples = map(int, sys.argv[1:])
plan = pipeline(stages, microbatches, 'density')
simulate(plan, samples=256)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin, cpu = time.perf_counter(), time.process_time()
found = simulate(plan, samples=samples, memory=1 << 29)
print(json.dumps({
    "wall": time.perf_counter() - begin,
    "cpu": time.process_time() - cpu,
    "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    "before": 1024 * before,
    "nodes": len(plan),
    "p99": found.time.quantile(0.99).value,
}))
"""


def peak(stages: int, microbatches: int, samples: int) -> dict[str, Any]:
    """Peak resident size in bytes of a simulation, in a process of its own."""
    words = [sys.executable, "-c", CODE, *map(str, (stages, microbatches, samples))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def build(report: Report, repeats: int, mode: str = "") -> None:
    """Peak sizes; one call each, `repeats` is not used."""
    del repeats
    stages, microbatches = (4, 16) if mode == "--small" else (64, 1024)
    few = 2048 if mode == "--small" else 4096
    counts = [WHOLE] if mode == "--full" else [few, 2 * few]
    found = []
    for samples in counts:
        one = peak(stages, microbatches, samples)
        found.append(one)
        spent = one["wall"]
        ns = 1e9 * one["cpu"] / (one["nodes"] * samples)
        report.add(
            "probcalc",
            f"{one['nodes']:,} nodes",
            f"{samples:,} samples",
            timing=Timing(spent, spent, spent, one["cpu"], 1),
            target="<= 2 GiB at 10^6",
            note=f"peak {one['peak'] / 2**20:.0f} MiB, {one['before'] / 2**20:.0f} MiB "
            f"before the samples, {ns:.2f} ns of processor a node-sample",
        )
    if len(found) == 2:
        grown = max(found[1]["peak"] - found[0]["peak"], 0) / few
        # Each sample adds at most one bin to each of four summaries (16 bytes each),
        # held twice and sorted while they merge.
        most = found[1]["peak"] + max(grown, 4 * 16 * 4) * (WHOLE - 2 * few)
        seconds = found[1]["wall"] * WHOLE / (2 * few)
        report.add(
            "probcalc",
            f"{found[0]['nodes']:,} nodes",
            f"{WHOLE:,} samples, extrapolated",
            target="<= 2 GiB",
            note=f"at most {most / 2**20:.0f} MiB"
            f"{'' if most <= LIMIT else ': too much'}, about {seconds:.0f} s",
        )


def main(argv: list[str] | None = None) -> Report:
    """Run from the command line or a test; ``--small`` for a trial, or ``--full``."""
    given = sys.argv[1:] if argv is None else list(argv)
    modes = [word for word in given if word in ("--small", "--full")]
    given = [word for word in given if word not in modes]
    return run(TITLE, lambda r, n: build(r, n, modes[0] if modes else ""), given)


if __name__ == "__main__":
    main()
