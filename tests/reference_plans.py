"""Plans of the reference values, for several tests."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from probcalc.element import Element
from probcalc.lattice import Lattice
from probcalc.plan import Plan
from probcalc.schedules import one_f_one_b

POWER = 60.0


def cases(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """All cases by name."""
    listed = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return {case["name"]: case for case in listed}


def lattice(case: dict[str, Any], i: int) -> Lattice:
    """Law of one class of operations, in s."""
    found = case["classes"][i]
    return Lattice(found["offset"], case["tick"], np.array(found["pmf"]))


def plan_of(case: dict[str, Any], power: float = POWER, dynamic: Any = 0.0) -> Plan:
    """Plan of a case: every device at `power`, every class of one law."""
    laws = [lattice(case, i) for i in range(len(case["classes"]))]
    dag = case["dag"]
    if "preds" not in dag:
        stages, microbatches = (
            int(word.split("=")[1]) for word in dag["generator"].split()[1:]
        )
        ends = [
            Element(name, time=law, static_power=power, device="gpu0")
            for name, law in zip(("forward", "backward"), laws, strict=False)
        ]
        return one_f_one_b(
            stages=stages, microbatches=microbatches, forward=ends[0], backward=ends[1]
        )
    known: dict[tuple[int, int], int] = {}
    elements: list[Element] = []
    element_of = []
    for cls, device in zip(dag["node_class"], dag["device"], strict=True):
        if (cls, device) not in known:
            known[cls, device] = len(elements)
            elements.append(
                Element(
                    f"class{cls}",
                    time=laws[cls],
                    dynamic_energy=dynamic,
                    static_power=power,
                    device=f"gpu{device}",
                )
            )
        element_of.append(known[cls, device])
    edges = [(p, i) for i, before in enumerate(dag["preds"]) for p in before]
    return Plan.from_arrays(
        elements=elements,
        element_of=element_of,
        sources=[a for a, _ in edges],
        targets=[b for _, b in edges],
        name=case["name"],
    )
