"""Plans of the published schedules of parallel training (section 3.3.4).

Every node is an independent draw of its element's law until the plan is `drawn` with
groups, made of the labels. Nodes are numbered by level, then device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.layout import Hosts, Layout, each, hosts_of, size
from probcalc.pipeline import pipeline
from probcalc.plan import Plan

__all__ = [
    "data_parallel",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "tensor_parallel",
    "zero_bubble",
]

IntArray = npt.NDArray[np.int64]
Elements = Element | Sequence[Element]
Devices = Sequence[str] | Sequence[Sequence[str]] | None


def gpipe(
    stages: int,
    microbatches: int,
    *,
    forward: Elements,
    backward: Elements,
    devices: Devices = None,
    transfer: float | Element = 0.0,
    load: Element | Mapping[int, Element] | None = None,
    optimiser: Elements | None = None,
    baselines: Mapping[str, float] | None = None,
    name: str = "gpipe",
) -> Plan:
    """GPipe: all forwards of a stage, then all its backwards; independent draws.

    With constant times F and B, alike on all stages, the makespan is
    ``(M + P - 1) (F + B)`` for P stages and M microbatches (Huang et al. 2019,
    arXiv 1811.06965, section 2.3: a bubble of P - 1 microbatches).

    Parameters
    ----------
    stages, microbatches : int
        P and M.
    forward, backward : Element or sequence of Element
        One for all stages, or one for each.
    devices : sequence of str, optional
        Of each stage; for elements that run on several devices a sequence of names
        for each stage. Without it gpu0, gpu1, ...
    transfer : float or Element
        What lies between stages on two devices: a time in s, or an element. One on a
        single device runs on a link such as "gpu0->gpu1", one transfer at a time in
        each direction; one on as many devices as two stages have runs on those.
    load : Element or mapping of int to Element, optional
        Runs on a stage before each of its forwards; an element alone on stage 0.
    optimiser : Element or sequence of Element, optional
        Runs on each stage after all else.
    baselines : mapping of str to float, optional
        As for `Plan.of`.
    name : str

    Returns
    -------
    Plan
        With labels "kind" ("forward", "backward", "transfer", "load", "optimiser"),
        "stage", "microbatch" and "chunk". Nodes are named such as ``F(stage,
        microbatch)`` without the blank.

    Raises
    ------
    InputError
        Counts below 1, elements or devices that do not fit; names the argument.
    CompositionError
        As `Plan.of`.

    Examples
    --------
    >>> f = Element("forward", time=1.0, static_power=60.0, device="gpu0")
    >>> b = Element("backward", time=2.0, static_power=60.0, device="gpu0")
    >>> gpipe(4, 8, forward=f, backward=b)
    <Plan 'gpipe': 64 nodes, 116 edges, 8 elements on 4 devices>
    """
    P, M = _counts(stages, microbatches)
    return pipeline(
        (P, M, 1), np.full(P, M), forward=forward, backward=backward, devices=devices,
        transfer=transfer, load=load, optimiser=optimiser, baselines=baselines,
        name=name,
    )  # fmt: skip


def one_f_one_b(
    stages: int,
    microbatches: int,
    *,
    forward: Elements,
    backward: Elements,
    devices: Devices = None,
    transfer: float | Element = 0.0,
    load: Element | Mapping[int, Element] | None = None,
    optimiser: Elements | None = None,
    baselines: Mapping[str, float] | None = None,
    name: str = "1f1b",
) -> Plan:
    """1F1B (PipeDream-flush): one forward, one backward in turn; independent draws.

    Stage s runs ``min(M, P - s - 1)`` forwards, then a forward and a backward in turn,
    then the backwards left (Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1).
    With constant times the makespan is that of `gpipe`, ``(M + P - 1) (F + B)``.

    Parameters, labels and errors as `gpipe`.

    Examples
    --------
    >>> f = Element("forward", time=1.0, static_power=60.0, device="gpu0")
    >>> b = Element("backward", time=2.0, static_power=60.0, device="gpu0")
    >>> one_f_one_b(2, 4, forward=f, backward=b).names[:5]
    ('F(0,0)', 'F(0,1)', 'F(1,0)', 'B(1,0)', 'B(0,0)')
    """
    P, M = _counts(stages, microbatches)
    return pipeline(
        (P, M, 1), np.minimum(M, P - 1 - np.arange(P)), forward=forward,
        backward=backward, devices=devices, transfer=transfer, load=load,
        optimiser=optimiser, baselines=baselines, name=name,
    )  # fmt: skip


def interleaved(
    stages: int,
    microbatches: int,
    chunks: int,
    *,
    forward: Elements,
    backward: Elements,
    devices: Devices = None,
    transfer: float | Element = 0.0,
    load: Element | Mapping[int, Element] | None = None,
    optimiser: Elements | None = None,
    baselines: Mapping[str, float] | None = None,
    name: str = "interleaved",
) -> Plan:
    """Interleaved 1F1B with several model chunks on each device; independent draws.

    Chunk v of device s is stage ``v P + s`` of the model. A device takes P
    microbatches through each chunk in turn, after ``2 (P - s - 1) + (V - 1) P``
    forwards of warm-up. With constant times F and B of one chunk the makespan is
    ``(M V + P - 1) (F + B)``: the bubble of `one_f_one_b` divided by V (Narayanan et
    al. 2021, arXiv 2104.04473, section 2.2.2).

    Other parameters, labels and errors as `gpipe`.

    Parameters
    ----------
    microbatches : int
        A multiple of `stages`.
    chunks : int
        V, chunks of the model on each device.
    forward, backward : Element or sequence of Element
        Of one chunk: one for all, one for each device, or one for each of the P V
        stages of the model.
    load : Element or mapping of int to Element, optional
        By stage of the model, 0 to P V - 1.

    Returns
    -------
    Plan
        Label "stage" is the device's number, "chunk" is v; nodes are named such as
        ``F(stage,microbatch,chunk)``.
    """
    P, M = _counts(stages, microbatches)
    V = size(chunks, "chunks", 2 * P * M)
    if M % P:
        raise InputError(f"microbatches is {M}, expected a multiple of {P} stages")
    warm = np.minimum(M * V, 2 * (P - 1 - np.arange(P)) + (V - 1) * P)
    return pipeline(
        (P, M, V), warm, forward=forward, backward=backward, devices=devices,
        transfer=transfer, load=load, optimiser=optimiser, baselines=baselines,
        name=name,
    )  # fmt: skip


def zero_bubble(
    stages: int,
    microbatches: int,
    *,
    forward: Elements,
    backward: Elements,
    weight: Elements,
    devices: Devices = None,
    transfer: float | Element = 0.0,
    load: Element | Mapping[int, Element] | None = None,
    optimiser: Elements | None = None,
    baselines: Mapping[str, float] | None = None,
    name: str = "zb-h1",
) -> Plan:
    """Zero bubble ZB-H1: the backward split in two; independent draws.

    As `one_f_one_b`, with the gradient of the weights W as a node of its own, s
    microbatches behind the gradient of the inputs B on stage s, the rest at the end.
    With constant times and ``M >= P`` the makespan is ``M (F + B + W) + (P - 1)
    (F + B - W)`` (Qi et al. 2023, arXiv 2401.10241, table 1), as long as W is no
    longer than F or B.

    Other parameters, labels and errors as `gpipe`.

    Parameters
    ----------
    backward : Element or sequence of Element
        Gradient of the inputs.
    weight : Element or sequence of Element
        Gradient of the weights, label "weight".
    """
    P, M = _counts(stages, microbatches)
    return pipeline(
        (P, M, 1), np.minimum(M, P - 1 - np.arange(P)), forward=forward,
        backward=backward, weight=each(weight, (P,), "weight"), devices=devices,
        transfer=transfer, load=load, optimiser=optimiser, baselines=baselines,
        name=name,
    )  # fmt: skip


def data_parallel(
    replicas: int,
    buckets: int,
    *,
    forward: Element,
    backward: Elements,
    all_reduce: Elements,
    optimiser: Element | None = None,
    devices: Devices = None,
    network: str = "network",
    baselines: Mapping[str, float] | None = None,
    name: str = "data-parallel",
) -> Plan:
    """A data-parallel step: all-reduces overlap the backward; independent draws.

    Each replica runs its forward and the backward of each bucket in turn. The
    all-reduce of a bucket starts when all replicas have its gradients and the
    all-reduce before it is done (Li et al. 2020, arXiv 2006.15704, section 3.2). With
    constant times F, B and A of K equal buckets the makespan is ``F + B + (K - 1)
    max(A, B) + A``, and the optimiser's time.

    Parameters
    ----------
    replicas, buckets : int
    forward : Element
        On each replica.
    backward, all_reduce : Element or sequence of Element
        One for all buckets, or one for each, in the order of the backward. An
        all-reduce that is an element on as many devices as all replicas have runs on
        those; one on a single device on `network`.
    optimiser : Element, optional
        On each replica, after the last all-reduce.
    devices : sequence of str, optional
        Of each replica, as for `gpipe`.
    network : str
        Device of an all-reduce that has one of its own.
    baselines, name
        As for `gpipe`.

    Returns
    -------
    Plan
        With labels "kind" ("forward", "backward", "all_reduce", "optimiser"),
        "replica" and "bucket".

    Raises
    ------
    InputError, CompositionError
        As `gpipe`.
    """
    R, K = size(replicas, "replicas"), size(buckets, "buckets")
    size(K, "buckets", R)
    forwards = each(forward, (1,), "forward")
    hosts = hosts_of(devices, R, len(forwards[0].devices))
    backwards = each(backward, (K,), "backward")
    reduces = [
        _collective(e, hosts, network, "all_reduce")
        for e in each(all_reduce, (K,), "all_reduce")
    ]
    held = Layout(("replica", "bucket"))
    r, k = np.arange(R), np.arange(K)
    grid = {"replica": np.repeat(r, K), "bucket": np.tile(k, R)}
    f = held.add("forward", "F", [(forwards[0], h) for h in hosts], r, {"replica": r})
    pairs = [(e, h) for h in hosts for e in backwards]
    b = held.add("backward", "B", pairs, np.arange(R * K), grid).reshape(R, K)
    a = held.add("all_reduce", "A", reduces, k, {"bucket": k})
    held.connect(f, b[:, 0])
    held.connect(b[:, :-1], b[:, 1:], kind="serial")
    held.connect(b, a[None, :], kind="sync")
    held.connect(a[:-1], a[1:], kind="serial")
    if optimiser is not None:
        (e,) = each(optimiser, (1,), "optimiser")
        o = held.add("optimiser", "O", [(e, h) for h in hosts], r, {"replica": r})
        held.connect(a[-1], o, kind="sync")
        held.connect(b[:, -1], o, kind="serial")
    return held.plan(name, baselines)


def tensor_parallel(
    ranks: int,
    *,
    attention: Element,
    mlp: Element,
    all_reduce: Element,
    attention_backward: Element | None = None,
    mlp_backward: Element | None = None,
    layers: int = 1,
    devices: Devices = None,
    network: str = "network",
    baselines: Mapping[str, float] | None = None,
    name: str = "tensor-parallel",
) -> Plan:
    """Transformer layers split over ranks, with all-reduces; independent draws.

    Attention and MLP each end in an all-reduce that waits for all ranks, in the
    forward and, where its elements are given, in the backward: four of a layer
    (Shoeybi et al. 2019, arXiv 1909.08053, section 3). With constant times a layer
    takes ``A + M + 2 R`` and as much again backwards.

    Parameters
    ----------
    ranks, layers : int
    attention, mlp, attention_backward, mlp_backward : Element
        On each rank.
    all_reduce : Element
        As for `data_parallel`.
    devices, network, baselines, name
        As for `data_parallel`.

    Returns
    -------
    Plan
        With labels "kind" ("attention", ..., "all_reduce"), "layer" and "rank".

    Raises
    ------
    InputError, CompositionError
        As `gpipe`.
    """
    R, L = size(ranks, "ranks"), size(layers, "layers")
    size(L, "layers", 4 * R)
    if (attention_backward is None) != (mlp_backward is None):
        raise InputError("attention_backward, mlp_backward: give both or neither")
    forth = [("attention", attention), ("mlp", mlp)]
    back = [("mlp_backward", mlp_backward), ("attention_backward", attention_backward)]
    given = forth + back * (mlp_backward is not None)
    parts = {part: each(e, (1,), part)[0] for part, e in given}
    walk = [(layer, part) for layer in range(L) for part, _ in forth]
    walk += [(n, part) for n in reversed(range(L)) for part in list(parts)[2:]]
    (reduce,) = each(all_reduce, (1,), "all_reduce")
    hosts = hosts_of(devices, R, len(parts["attention"].devices))
    common = _collective(reduce, hosts, network, "all_reduce")
    held = Layout(("layer", "rank"))
    r = np.arange(R)
    before: IntArray | None = None
    for count, (layer, part) in enumerate(walk):
        stem = "".join(word[0] for word in part.split("_")).upper()
        labels = {"layer": np.full(R, layer), "rank": r}
        placed = [(parts[part], h) for h in hosts]
        mine = held.add(part, stem, placed, r, labels)
        if before is not None:
            held.connect(before, mine, kind="sync")
        before = held.add("all_reduce", f"R{count}", [common], [0], {"layer": [layer]})
        held.connect(mine, before, kind="sync")
    return held.plan(name, baselines)


def _counts(stages: object, microbatches: object) -> tuple[int, int]:
    P = size(stages, "stages", 2)
    return P, size(microbatches, "microbatches", 2 * P)


def _collective(
    e: Element, hosts: Sequence[Hosts], network: str, where: str
) -> tuple[Element, Hosts]:
    """Place an element on the devices of all, or on a device of its own."""
    everything = tuple(d for h in hosts for d in h)
    if len(e.devices) == 1:
        if not isinstance(network, str) or not network.strip() or network in everything:
            raise InputError(f"network: {network!r} found, expected another device")
        return e, (network,)
    if len(e.devices) != len(everything):
        raise InputError(
            f"{where}: element {e.name!r} runs on {len(e.devices)} devices, expected 1 "
            f"or {len(everything)}"
        )
    return e, everything
