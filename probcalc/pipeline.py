"""Pipelines that warm up and then alternate: the common layout of their schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.draws import positive
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.layout import Hosts, Layout, each, hosts_of
from probcalc.plan import Plan

__all__ = ["pipeline"]

IntArray = npt.NDArray[np.int64]


def pipeline(
    counts: tuple[int, int, int],
    warm: IntArray,
    *,
    forward: Any,
    backward: Any,
    weight: Any = None,
    devices: Any,
    transfer: Any,
    load: Any,
    optimiser: Any,
    baselines: Mapping[str, float] | None,
    name: str,
) -> Plan:
    """Lay out a pipeline whose devices warm up and then alternate.

    Other parameters as the generators of `schedules` have them.

    Parameters
    ----------
    counts : (P, M, V)
        Devices, microbatches, chunks of the model on each device.
    warm : ndarray, shape (P,)
        Forwards of each device before the first backward.
    """
    P, M, V = counts
    S = P * V
    places = (S, P) if V > 1 else (S,)
    forwards = each(forward, places, "forward")
    hosts = hosts_of(devices, P, len(forwards[0].devices))
    held = Layout(("stage", "microbatch", "chunk"))
    model, mb = np.repeat(np.arange(S), M), np.tile(np.arange(M), S)
    device, chunk = model % P, model // P
    labels = {"stage": device, "microbatch": mb, "chunk": chunk}
    named = ("stage", "microbatch", "chunk")[: 3 if V > 1 else 2]

    def block(kind: str, stem: str, elements: list[Element]) -> IntArray:
        placed = [(e, hosts[s % P]) for s, e in enumerate(elements)]
        return held.add(kind, stem, placed, model, labels, named).reshape(S, M)

    f = block("forward", "F", forwards)
    b = block("backward", "B", each(backward, places, "backward"))
    # A device takes P microbatches through one chunk, then through the next; the i-th
    # forward of a device stands in round i - warm of its order and the i-th backward
    # in round i, after the forward. With V = 1 that is i = m.
    group = (mb // P) * (P * V) + mb % P
    forth = group + chunk * P - warm[device]
    back = group + (V - 1 - chunk) * P
    nodes, lanes = [f.ravel(), b.ravel()], [device, device]
    keys = [4 * forth + 1, 4 * back + 2]
    if weight is not None:
        w = block("weight", "W", each(weight, places, "weight"))
        held.connect(b, w)
        # On stage s, W(s, m) follows B(s, m + s): what is held longer would need more
        # memory than 1F1B does.
        nodes.append(w.ravel())
        lanes.append(device)
        keys.append(4 * (back + model) + 3)
    held.connect(f[-1], b[-1])
    _transfer(held, transfer, hosts, (f, b), (keys[0], keys[1]), labels, named)
    for s, e in sorted(_loads(load, S).items()):
        row = np.arange(s * M, (s + 1) * M)
        mine = {key: column[row] for key, column in labels.items()}
        n = held.add("load", "L", [(e, hosts[s % P])], np.zeros(M, int), mine, named)
        held.connect(n, f[s])
        nodes.append(n)
        lanes.append(device[row])
        keys.append(4 * forth[row])
    if optimiser is not None:
        placed = list(zip(each(optimiser, (P,), "optimiser"), hosts, strict=True))
        s = np.arange(P)
        nodes.append(held.add("optimiser", "O", placed, s, {"stage": s}))
        lanes.append(s)
        keys.append(np.full(P, np.iinfo(np.int64).max))
    held.serialise(*(np.concatenate(part) for part in (nodes, lanes, keys)))
    return held.plan(name, baselines)


def _transfer(
    held: Layout,
    transfer: Any,
    hosts: Sequence[Hosts],
    nodes: tuple[IntArray, IntArray],
    keys: tuple[IntArray, IntArray],
    labels: Mapping[str, IntArray],
    named: Sequence[str],
) -> None:
    """Connect the stages of the model, by a lag or by nodes of their own.

    Parameters
    ----------
    nodes, keys : (forward, backward)
        Nodes, shape (S, M), and their keys in the order of their devices.
    """
    P = len(hosts)
    lag = 0.0 if isinstance(transfer, Element) else positive(transfer, "transfer")
    S, M = nodes[0].shape
    everything = np.arange(S * M).reshape(S, M)
    links: list[tuple[IntArray, IntArray, IntArray]] = []
    for ops, key, stem in zip(nodes, keys, ("SF", "SB"), strict=True):
        # Forwards go up the stages of the model, backwards down.
        up = stem == "SF"
        out = everything[:-1] if up else everything[1:]
        sources, targets = (ops[:-1], ops[1:]) if up else (ops[1:], ops[:-1])
        if not isinstance(transfer, Element) or P == 1:
            # Between chunks of one device there is nothing to transfer.
            held.connect(sources, targets, lag if P > 1 else 0.0)
            continue
        a = out[:, 0] // M % P
        b = (a + (1 if up else -1)) % P
        own = len(transfer.devices) == 1
        placed = [
            (
                transfer,
                (f"{hosts[i][0]}->{hosts[j][0]}",) if own else hosts[i] + hosts[j],
            )
            for i, j in zip(a, b, strict=True)
        ]
        mine = {name: column[out.ravel()] for name, column in labels.items()}
        row = np.repeat(np.arange(S - 1), M)
        sent = held.add("transfer", stem, placed, row, mine, named)
        held.connect(sources.ravel(), sent)
        held.connect(sent, targets.ravel())
        links.append((sent, np.repeat(a * P + b, M), key[out.ravel()]))
    if links and isinstance(transfer, Element) and len(transfer.devices) == 1:
        # One at a time on a link, in the order in which its device produces them.
        held.serialise(*(np.concatenate(part) for part in zip(*links, strict=True)))


def _loads(load: Any, stages: int) -> dict[int, Element]:
    given = {0: load} if isinstance(load, Element) else load
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"load: expected an Element or a mapping, got {given!r:.60}")
    for s, e in given.items():
        if isinstance(s, bool) or not isinstance(s, int) or not 0 <= s < stages:
            raise InputError(f"load: stage {s!r} found, expected 0 to {stages - 1}")
        each(e, (1,), f"load of stage {s}")
    return dict(given)
