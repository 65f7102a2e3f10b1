"""Made-up truths that depend on context, to test the reduction bound on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.plan import Plan, PlanNode
from probcalc.term import MultiParallel, Parallel, Repeat, Sequential, Term
from probcalc.validation.insensitivity import Shift
from probcalc.validation.reduction import multiplicities

__all__ = ["Case", "Off", "random_case", "worst_deviation"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A plan, and how far context may move each of its elements."""

    plan: Plan
    history: Mapping[str, Shift]
    interference: Mapping[str, Shift]


class Off(NamedTuple):
    """Largest difference of quantiles, contextual less reduced, of energy and time."""

    energy: float
    time: float


def random_case(seed: int) -> Case:
    """Return a random term or DAG of some twelve nodes on up to three devices."""
    rng = np.random.default_rng(seed)
    plan = _dag(rng) if seed % 2 else Plan.from_term(_term(rng, 0, "gpu0"))
    names = {e.name for e in plan.elements}

    def shifts() -> dict[str, Shift]:
        return {
            name: Shift(*(rng.exponential(0.02, 2) * rng.integers(0, 2, 2)).tolist())
            for name in sorted(names)
        }

    return Case(plan, shifts(), shifts())


def _element(rng: np.random.Generator, device: str) -> Element:
    return Element(
        f"e{int(rng.integers(1 << 40))}",
        time=float(rng.uniform(0.1, 1.0)),
        dynamic_energy=float(rng.uniform(1.0, 5.0)),
        static_power={"gpu0": 50.0, "gpu1": 70.0, "gpu2": 20.0}[device],
        device=device,
    )


def _term(rng: np.random.Generator, depth: int, device: str) -> Term:
    kind = "leaf" if depth >= 3 else rng.choice(["leaf", "seq", "par", "multi", "rep"])
    if depth == 0 and kind == "leaf":
        kind = "seq"
    if kind == "leaf":
        return _element(rng, device)
    if kind == "rep":
        return Repeat(_term(rng, depth + 1, device), int(rng.integers(2, 4)))
    count = int(rng.integers(2, 4))
    if kind == "multi" and depth == 0:
        parts = [_term(rng, depth + 1, f"gpu{i}") for i in range(count)]
        return MultiParallel(parts)
    parts = [_term(rng, depth + 1, device) for _ in range(count)]
    return Parallel(parts) if kind == "par" else Sequential(parts)


def _dag(rng: np.random.Generator) -> Plan:
    count = int(rng.integers(3, 12))
    kinds = [
        _element(rng, f"gpu{int(rng.integers(3))}") for _ in range(max(count // 2, 1))
    ]
    nodes = []
    for i in range(count):
        before = [f"n{j}" for j in range(i) if rng.random() < 0.35]
        nodes.append(PlanNode(f"n{i}", kinds[int(rng.integers(len(kinds)))], before))
    return Plan.of(nodes)


def worst_deviation(
    case: Case, *, seed: int, samples: int = 200, beyond: float = 1.0
) -> Off:
    """Compare the contextual truth with its reduction, at all quantiles.

    Every node's T and d are drawn; in the contextual truth each is moved by a function
    of its own draw and of the node's place, within the shifts (times `beyond`).
    """
    rng = np.random.default_rng([seed, 1])
    plan = case.plan
    nodes = len(plan)
    means = np.array(
        [[float(e.time.mean()), float(e.dynamic_energy.mean())] for e in plan.elements]
    )[plan.element_of]
    noise = rng.gamma(20.0, 1.0 / 20.0, (2, nodes, samples))
    time, dynamic = means.T[:, :, None] * noise
    counted = multiplicities(plan)
    preceded = np.zeros(nodes, dtype=bool)
    preceded[plan.targets] = True
    limits = np.zeros((2, nodes))
    for i, e in enumerate(plan.elements):
        here = plan.element_of == i
        for given, acts in (
            (case.history[e.name], preceded),
            (case.interference[e.name], counted[e.name].interference > 0),
        ):
            limits[:, here & acts] += beyond * np.array(
                [[given.time], [given.dynamic_energy]]
            )
    # Half of all places go to their limit, one way for all draws: that is the worst.
    side = rng.choice([-1.0, 0.3, 1.0], (2, nodes, 1))
    moved = (
        side
        * limits[:, :, None]
        * np.where(rng.random((2, nodes, 1)) < 0.5, 1.0, noise / noise.max())
    )
    power = math.fsum(plan.baselines.values())
    found = []
    for t, d in ((time, dynamic), (time + moved[0], dynamic + moved[1])):
        spans = _makespans(plan, np.maximum(t, 0.0))
        found.append((spans, power * spans + d.sum(axis=0)))
    (t0, e0), (t1, e1) = found
    return Off(
        float(np.abs(np.sort(e1) - np.sort(e0)).max()),
        float(np.abs(np.sort(t1) - np.sort(t0)).max()),
    )


def _makespans(plan: Plan, times: FloatArray) -> FloatArray:
    finish = np.zeros_like(times)
    order = plan.order.tolist()
    into: dict[int, list[tuple[int, float]]] = {}
    for a, b, lag in zip(
        plan.sources.tolist(), plan.targets.tolist(), plan.lags.tolist(), strict=True
    ):
        into.setdefault(b, []).append((a, lag))
    for i in order:
        start = np.full(times.shape[1], plan.releases[i])
        for a, lag in into.get(i, ()):
            start = np.maximum(start, finish[a] + lag)
        finish[i] = start + times[i]
    return finish.max(axis=0)
