"""Predictions in context: composition with propagation of state (sections 3.3, 3.4).

One execution hands its exit context to the next; executions that start together share
an entry context; idle devices cool and decay. The operators are those of the
context-independent algebra: what changes is where each signature is read off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from probcalc.context import Context
from probcalc.contextexact import realised
from probcalc.contextfast import (
    Block,
    constants_of,
    drawn_blocks,
    node_values,
    scan_of,
    sure,
)
from probcalc.contextplan import Pass, in_context, plain
from probcalc.contextprediction import ContextPrediction, RealisedShift, Shifts
from probcalc.contextsetup import Setup, set_up
from probcalc.distribution import Constant
from probcalc.errors import InputError
from probcalc.lowering import lowered
from probcalc.mechanisms.registry import Mechanisms
from probcalc.plan import Plan
from probcalc.prediction import Prediction, predict
from probcalc.readonly import ReadOnly
from probcalc.runs import whole
from probcalc.sampled import Sampled
from probcalc.summary import Summary
from probcalc.term import Term

__all__ = [
    "ContextPrediction",
    "RealisedShift",
    "Shifts",
    "predict_in_context",
]

FloatArray = npt.NDArray[np.float64]
Method = Literal["auto", "exact", "monte-carlo"]
Engine = Literal["auto", "scan", "general"]
SAMPLES = 10_000


def predict_in_context(
    term: Term | Plan,
    *,
    mechanisms: Iterable[Any],
    contexts: Mapping[str, Context] | None = None,
    method: Method = "auto",
    samples: int | None = None,
    seed: int = 0,
    level: float = 0.95,
    baselines: Mapping[str, float] | None = None,
    engine: Engine = "auto",
) -> ContextPrediction:
    """Predict a term or a plan whose elements depend on context; independent draws.

    Parameters
    ----------
    term : Term or Plan
    mechanisms : iterable of Mechanism or Contention
    contexts : mapping of str to Context, optional
        Of devices at time 0; the null context without.
    method : {"auto", "exact", "monte-carlo"}
        ``exact``: where contexts are deterministic, because nothing is random or
        because all states follow from traces alone. ``auto`` is that where it can be.
    samples : int, optional
        10,000 without.
    seed : int
        The draws are those of `probcalc.montecarlo.simulate` for the seed.
    level : float
        Confidence of intervals.
    baselines : mapping of str to float, optional
        As for `predict`; a plan states its own.
    engine : {"auto", "scan", "general"}
        How samples are worked out. The scan takes thermal states and contention for
        time alone, in single floats and whole ticks, and is much the faster one;
        ``general`` takes every mechanism.

    Raises
    ------
    InputError
        A context outside what an element was characterised for, with a variable
        missing or unknown; mechanisms that do not go together; contexts that are random
        for ``exact``.
    CompositionError
        As `predict`; too many nodes that can overlap on one device.

    Notes
    -----
    A node on several devices waits for the slowest of them. Nodes that can overlap on
    one device meet the state left by those before them in the plan's order. Effects of
    several mechanisms add.
    """
    for name, given, choices in (
        ("method", method, get_args(Method)),
        ("engine", engine, get_args(Engine)),
    ):
        if given not in choices:
            raise InputError(
                f"predict_in_context: {name} is {given!r}, expected one of "
                f"{', '.join(map(repr, choices))}"
            )
    if isinstance(term, Plan) and baselines is not None:
        raise InputError(
            f"baselines given for plan {term.name!r}, which states its own"
        )
    plan = term if isinstance(term, Plan) else Plan.from_term(term, baselines=baselines)
    setup = set_up(plan, Mechanisms.of(mechanisms), contexts)
    if method == "auto":
        if samples is None and sure(plan):
            return _certain(setup)
        found = _by_traces(setup) if samples is None else None
        if found is not None:
            return found
        method = "monte-carlo"
    if method == "exact":
        if sure(plan):
            return _certain(setup)
        found = _by_traces(setup)
        if found is not None:
            return found
        raise InputError(
            f"plan {plan.name!r}: its elements are random, and with them the contexts "
            "that mechanisms make of realised times; expected method 'monte-carlo'"
        )
    count = SAMPLES if samples is None else whole(samples, "samples")
    return _simulated(setup, count, seed, level, engine)


def _certain(setup: Setup) -> ContextPrediction:
    """Everything constant: one sample tells all."""
    plan = setup.plan
    values = np.array(
        [[float(e.time.mean()), float(e.dynamic_energy.mean())] for e in plan.elements]
    )[plan.element_of]
    found, change = in_context(setup, values[:, :1], values[:, 1:])
    block = _block_of(setup, found, change, values[:, :1], values[:, 1:])
    held = math.fsum(plan.baselines.values())
    static = held * block.time + block.static
    laws = [
        Constant(float(x[0]))
        for x in (block.time, static + block.dynamic, static, block.dynamic)
    ]
    before = held * block.plain_time + block.plain_static
    plain_laws = [
        Constant(float(x[0]))
        for x in (
            block.plain_time,
            before + block.plain_dynamic,
            before,
            block.plain_dynamic,
        )
    ]
    reduced = Prediction(
        *plain_laws,
        method="exact",
        assumptions=("no context", "nothing is random"),
        term=plan,
        baselines=plan.baselines,
    )
    before = before + block.plain_dynamic
    extra = Constant(float((static + block.dynamic - before)[0]))
    later = Constant(float((block.time - block.plain_time)[0]))
    return _put(
        setup, laws, reduced, (extra, later), "exact", [block],
        ["nothing is random"], trace=found,
    )  # fmt: skip


def _by_traces(setup: Setup) -> ContextPrediction | None:
    """Contexts that follow from traces: exact laws, where they are to hand."""
    if not setup.mechanisms.follow_traces or setup.uses:
        return None
    made = realised(setup)
    if made is None:
        return None
    moved, found = made
    laws, reduced = predict(moved), predict(setup.plan)
    if "exact" not in (laws.method, reduced.method) or laws.method != reduced.method:
        return None
    means = np.array(
        [[float(e.time.mean()), float(e.dynamic_energy.mean())]
         for e in setup.plan.elements]
    )[setup.plan.element_of]  # fmt: skip
    block = _block_of(setup, found, np.zeros(2), means[:, :1], means[:, 1:])
    return _put(
        setup,
        [laws.time, laws.energy, laws.static_energy, laws.dynamic_energy],
        reduced,
        (
            Constant(float(laws.energy.mean()) - float(reduced.energy.mean())),
            Constant(float(laws.time.mean()) - float(reduced.time.mean())),
        ),
        "exact",
        [block],
        ["contexts follow from traces alone"],
        trace=found,
    )


def _block_of(
    setup: Setup, found: Pass, change: FloatArray, time: FloatArray, energy: FloatArray
) -> Block:
    """Sums and largest changes of what the general engine found."""
    slow = found.full - found.own
    beyond = setup.beyond[setup.plan.element_of][:, None]
    changes = [
        [np.abs(x).max(axis=1) for x in triple]
        for triple in (
            (found.own - time, found.alone - energy, found.power),
            (slow, found.dynamic - found.alone, found.beside),
        )
    ]
    return Block(
        found.end,
        plain(setup.plan, time)[0],
        (beyond * found.full).sum(axis=0) + found.busy + found.idle,
        found.dynamic.sum(axis=0),
        (beyond * time).sum(axis=0),
        energy.sum(axis=0),
        found.idle,
        np.stack(changes[0], axis=1),
        np.stack(changes[1], axis=1),
        float(change.max()),
        found.met,
    )


def _blocks(
    setup: Setup, samples: int, seed: int, engine: str
) -> tuple[Iterator[Block], str]:
    scan = None if engine == "general" else scan_of(setup)
    if scan is None and engine == "scan":
        raise InputError(
            f"plan {setup.plan.name!r}: engine 'scan' takes thermal states of devices "
            "that run one node at a time, and resources that cost time alone; expected "
            "engine 'general'"
        )
    if scan is not None:
        chosen = scan
        return (
            chosen.block(drawn, count)
            for count, drawn in drawn_blocks(scan.low, seed, samples)
        ), "scan"
    return _general(setup, samples, seed), "general"


def _general(setup: Setup, samples: int, seed: int) -> Iterator[Block]:
    low = lowered(setup.plan)
    constants = constants_of(setup.plan)
    for count, drawn in drawn_blocks(low, seed, samples):
        time, energy = node_values(low, constants, drawn, count)
        found, change = in_context(setup, time, energy)
        yield _block_of(setup, found, change, time, energy)


def _simulated(
    setup: Setup, samples: int, seed: int, level: float, engine: str
) -> ContextPrediction:
    plan = setup.plan
    held = math.fsum(plan.baselines.values())
    made, used = _blocks(setup, samples, seed, engine)
    blocks = list(made)
    time, first, static, dynamic, static0, dynamic0 = (
        np.concatenate([getattr(b, name) for b in blocks]) for name in Block._fields[:6]
    )
    static, static0 = static + held * time, static0 + held * first
    energy, energy0 = static + dynamic, static0 + dynamic0
    laws, plain_laws, more = (
        [_sampled(x, level) for x in group]
        for group in (
            (time, energy, static, dynamic),
            (first, energy0, static0, dynamic0),
            (energy - energy0, time - first),
        )
    )
    reduced = Prediction(
        *plain_laws,
        method="monte-carlo",
        assumptions=("no context", "the same draws as in context"),
        term=plan,
        baselines=plan.baselines,
    )
    notes = [f"simulated: {samples:,} samples, seed {seed}, {used} engine"]
    return _put(
        setup, laws, reduced, (more[0], more[1]), "monte-carlo", blocks, notes,
        samples=samples, seed=seed,
    )  # fmt: skip


def _sampled(values: FloatArray, level: float) -> Sampled:
    size = float(np.abs(values).max())
    unit = 2.0 ** math.ceil(math.log2(size) - 46) if size > 0.0 else 1.0
    return Sampled(Summary.of(np.rint(values / unit).astype(np.int64)), unit, level)


def _put(
    setup: Setup,
    laws: Sequence[Any],
    reduced: Prediction,
    more: tuple[Any, Any],
    method: str,
    blocks: list[Block],
    notes: list[str],
    **fields: Any,
) -> ContextPrediction:
    plan = setup.plan
    before = np.max([b.before for b in blocks], axis=0)
    beside = np.max([b.beside for b in blocks], axis=0)
    shifts: dict[str, Shifts] = {}
    for i, e in enumerate(plan.elements):
        mine = plan.element_of == i
        pair = [
            RealisedShift(*(float(x) for x in changes[mine].max(axis=0)))
            for changes in (before, beside)
        ]
        if e.name in shifts:  # one name on several devices
            pair = [
                RealisedShift(*map(max, a, b))
                for a, b in zip(pair, shifts[e.name], strict=True)
            ]
        shifts[e.name] = Shifts(*pair)
    met: dict[str, tuple[float, float]] = {}
    for block in blocks:
        for name, (low, high) in block.met.items():
            a, b = met.get(name, (low, high))
            met[name] = min(a, low), max(b, high)
    return ContextPrediction(
        *laws,
        reduced=reduced,
        context_energy=more[0],
        context_time=more[1],
        method=method,
        assumptions=(*notes, *_notes(setup)),
        plan=plan,
        shifts=ReadOnly(shifts),
        idle_energy=float(max(np.abs(b.idle).max() for b in blocks)),
        interpolation=_interpolation(setup),
        change=max(b.change for b in blocks),
        met=ReadOnly(met),
        **fields,
    )


def _interpolation(setup: Setup) -> tuple[float, float]:
    """What interpolated signatures can be off by, over all nodes: s and J."""
    plan = setup.plan
    held = math.fsum(plan.baselines.values())
    counts = np.bincount(plan.element_of, minlength=len(plan.elements))
    time = energy = 0.0
    for signature, count in zip(setup.signatures, counts.tolist(), strict=True):
        if signature is None:
            continue
        gap = signature.gap
        longest = max(float(x.time.support()[1]) for x in signature.elements)
        time += count * gap.time
        energy += count * (held * gap.time + gap.dynamic_energy)
        if gap.static_power:
            energy += count * gap.static_power * (longest + gap.time)
    return time, energy


def _notes(setup: Setup) -> list[str]:
    plan, found = setup.plan, []
    names = [m.name for m in setup.mechanisms.entry]
    if setup.mechanisms.runtime:
        resources = ", ".join(setup.mechanisms.runtime.resources)
        names.append(f"contention for {resources} in {setup.passes} passes")
    found.append("mechanisms: " + (", ".join(names) or "none"))
    found.append(f"draw groups: {plan.draws.sentence}")
    for m in setup.mechanisms.entry:
        out = [
            e.name
            for e, trace in zip(plan.elements, setup.traces, strict=True)
            if any(n not in (trace.amounts if trace else {}) for n in m.needs)
        ]
        if out:
            shown = ", ".join(dict.fromkeys(out))
            found.append(f"{m.name} leaves out elements that state no trace: {shown}")
    if any(setup.signatures):
        found.append(
            "contextual signatures are interpolated linearly, quantile by quantile"
        )
    return found
