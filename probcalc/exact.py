"""Laws of time and energy of a term, as expressions that nothing approximates.

Section 2 of the calculus, one algebra: with b the baseline of an element's devices and
x = (s - b) T + d, ``>>`` adds T and x, ``|`` and ``&`` take the longest T and add x,
and the whole costs

    E = B T + sum of x,        B the baselines of all devices the term holds.

Dynamic energy that is independent of time is a plain summand wherever it stands, so
that only what depends on time needs more: under ``>>`` alone each execution adds
(B + s - b) T + d, one quantity; under ``|`` and ``&`` the joint law of (T, x).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from probcalc.composed import (
    Composed,
    Variable,
    maximum,
    product,
    repeat,
    scale,
    sum_of,
)
from probcalc.distribution import Constant, Distribution, Empirical
from probcalc.element import Element
from probcalc.errors import CompositionError
from probcalc.nodes import constant_of
from probcalc.setting import Setting, Weight, add, factors, key_of
from probcalc.term import Repeat, Sequential, Term, postorder

__all__ = ["LeafLaw", "dynamic_energy_law", "energy_law", "time_law"]

# Called with every law that is read off an element, the element, and the number of
# its executions (0 for a joint law, of which only T is passed). Estimation error
# replaces laws by their confidence bands here.
LeafLaw = Callable[[Distribution, Element, int], Any]


def as_stated(law: Distribution, element: Element, count: int) -> Distribution:
    """Return the law of an element as the element states it."""
    if isinstance(law, Empirical) and law.atoms.size == 1:
        return Constant(float(law.atoms[0]))
    return law


def time_law(setting: Setting, leaf: LeafLaw = as_stated) -> Composed:
    """Law of the makespan in s; elements independent but for shared factors."""
    work = _Work(setting, dynamic=False, leaf=leaf)
    work.need_time(setting.term)
    return sum_of(work.factor(setting.paces, work.times()[id(setting.term)]))


def energy_law(
    setting: Setting, *, dynamic: bool = True, leaf: LeafLaw = as_stated
) -> Composed:
    """Law of the total energy in J, or without `dynamic` of the static energy alone.

    Independent but for shared factors and for time and energy of one measured run.

    Raises
    ------
    CompositionError
        Factors that act differently on time and energy that depend on each other.
    """
    work = _Work(setting, dynamic=dynamic, leaf=leaf)
    core = work.core()
    if dynamic:
        core += work.outside(coupled=False)
    total = work.factor(setting.gains, sum_of(*core, 0.0))
    return sum_of(total, *(_shifts(setting) if dynamic else ()))


def dynamic_energy_law(setting: Setting, leaf: LeafLaw = as_stated) -> Composed:
    """Law of the dynamic energy in J; elements independent but for shared factors."""
    work = _Work(setting, dynamic=True, leaf=leaf)
    total = sum_of(*work.outside(coupled=True), 0.0)
    return sum_of(work.factor(setting.gains, total), *_shifts(setting))


def _shifts(setting: Setting) -> list[Composed]:
    """Energy shifts: one draw, added in every execution of an element naming it."""
    counts: Counter[str] = Counter()
    for e in setting.elements:
        for shift in factors(e, "energy", "shift"):
            counts[shift.name] += setting.counts[id(e)]
    return [
        scale(Variable(name, setting.shared[name].law), count)
        for name, count in counts.items()
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """One composition: how each node is worked out, then what it is.

    Nodes are known by id. A *plain* node costs static power at the baselines for its
    time, and nothing else that depends on time. `timed` nodes need the law of T,
    `weighed` ones that of B T + x, `joined` ones the joint law of (T, x).
    """

    setting: Setting
    dynamic: bool
    leaf: LeafLaw
    deltas: dict[int, Weight] = field(default_factory=dict)
    plain: set[int] = field(default_factory=set)
    timed: set[int] = field(default_factory=set)
    weighed: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)

    def factor(self, key: Iterable[str], law: Any) -> Any:
        """Multiply a law by shared factors."""
        for name in key:
            law = product(Variable(name, self.setting.shared[name].law), law)
        return law

    def coupled(self, element: Element) -> bool:
        """Whether an element's dynamic energy goes with its time here."""
        return self.dynamic and element.coupled

    # ---- how ----------------------------------------------------------------------

    def need_time(self, root: Term) -> None:
        """Mark a node, and all that it is made of, as needing its time."""
        pending = [root]
        while pending:
            node = pending.pop()
            if id(node) not in self.timed:
                self.timed.add(id(node))
                pending.extend(node.parts)

    def mark(self, base: Weight) -> list[Any]:
        """Mark how each node is worked out; return the (s - b) T that are constant."""
        constants: list[Any] = []
        for node in self.setting.order:
            if isinstance(node, Element):
                delta = self.setting.beyond(node)
                fixed, delta = self._split(node, delta)
                constants += fixed
                self.deltas[id(node)] = self.setting.effective(delta)
                if not delta and not self.coupled(node):
                    self.plain.add(id(node))
            elif all(id(part) in self.plain for part in node.parts):
                self.plain.add(id(node))
        self.weighed.add(id(self.setting.term))
        for node in reversed(self.setting.order):
            weighed, joined = id(node) in self.weighed, id(node) in self.joined
            if not (weighed or joined):
                continue
            if id(node) in self.plain:
                self.need_time(node)
            elif isinstance(node, Element):
                if not self.coupled(node):
                    self.need_time(node)
            elif joined:
                self.joined.update(map(id, node.parts))
            if weighed and id(node) not in self.plain:
                # Nothing to pay for waiting: energies add, whatever runs beside what.
                if isinstance(node, Sequential | Repeat) or not base:
                    self.weighed.update(map(id, node.parts))
                elif node.parts:
                    self.joined.update([id(node), *map(id, node.parts)])
        return constants

    def _split(self, e: Element, delta: Weight) -> tuple[list[Any], Weight]:
        """Take (s - b) T out as a summand where T is constant."""
        if not isinstance(e.time, Constant) or any(
            f.acts_on == "time" for f in e.shared
        ):
            return [], delta
        spent = e.time.value * self.setting.counts[id(e)]
        fixed: list[Any] = []
        for key, power in self.setting.effective(delta).items():
            if not key:
                fixed.append(Constant(power * spent))
            elif power > 0.0:
                fixed.append(self.factor(key, power * spent))
            else:
                return [], delta
        return fixed, {}

    # ---- time ---------------------------------------------------------------------

    def times(self) -> dict[int, Any]:
        """Laws of time of the timed nodes, without the factors common to all."""
        known: dict[int, Any] = {}
        for node in self.setting.order:
            if id(node) not in self.timed:
                continue
            if isinstance(node, Element):
                known[id(node)] = self._leaf_time(node)
            elif isinstance(node, Repeat):
                known[id(node)] = repeat(known[id(node.part)], node.count)
            elif isinstance(node, Sequential):
                parts = ((known[id(p)], n) for p, n in _counted(node))
                known[id(node)] = sum_of(*(repeat(law, n) for law, n in parts))
            else:
                known[id(node)] = maximum(*(known[id(p)] for p in node.parts))
        return known

    def _leaf_time(self, e: Element) -> Any:
        law = self.leaf(e.time, e, self.setting.counts[id(e)])
        own = [name for name in key_of(e, "time") if name not in self.setting.paces]
        shifts = [Variable(f.name, f.law) for f in factors(e, "time", "shift")]
        law = self.factor(own, law)
        return sum_of(law, *shifts) if shifts else law

    # ---- energy -------------------------------------------------------------------

    def outside(self, *, coupled: bool) -> list[Any]:
        """Dynamic energy that is independent of time, or all of it: summands."""
        found: list[Any] = []
        for e in self.setting.elements:
            law = e.dynamic_energy
            nothing = isinstance(law, Constant) and law.value == 0.0
            if nothing or (self.coupled(e) and not coupled):
                continue
            count = self.setting.counts[id(e)]
            gain = self.setting.stripped(key_of(e, "energy"))
            found.append(self.factor(gain, repeat(self.leaf(law, e, count), count)))
        return found

    def core(self) -> list[Any]:
        """Summands of B T + sum of x, less what `outside` holds."""
        setting = self.setting
        base = setting.effective(setting.base)
        found = self.mark(base)
        times = self.times()
        joints = _joints(self, times) if self.joined else {}
        known: dict[int, list[Any]] = {}
        for node in setting.order:
            if id(node) not in self.weighed:
                continue
            if id(node) in self.plain:
                known[id(node)] = self._paid(base, times[id(node)], node)
            elif isinstance(node, Element):
                known[id(node)] = self._leaf_energy(node, base, times)
            elif isinstance(node, Sequential | Repeat) or not base:
                known[id(node)] = self._series(node, times, base, known)
            else:
                known[id(node)] = [self._waiting(node, base, joints[id(node)])]
        return found + known[id(setting.term)]

    def _paid(self, power: Weight, time: Any, node: Term) -> list[Any]:
        """Return the summands of a power, possibly random, times one time."""
        if len(power) > 1 and constant_of(sum_of(time).node) is None:
            # One draw of the time under several factors.
            if self.setting.counts[id(node)] > 1:
                raise CompositionError(
                    f"{node.label!r} is executed more than once and draws power under "
                    f"different shared factors ({_names(power)}), which no exact "
                    "method takes; name one factor in every element, or use "
                    "method='moments'"
                )
            time = Variable(f"time of {node.label} ({id(node):x})", sum_of(time))
        return [self.factor(key, scale(time, c)) for key, c in power.items()]

    def _series(
        self,
        node: Term,
        times: Mapping[int, Any],
        base: Weight,
        known: Mapping[int, list[Any]],
    ) -> list[Any]:
        if isinstance(node, Repeat):
            return [repeat(sum_of(*known[id(node.part)], 0.0), node.count)]
        parts = _counted(node)
        plain = [(times[id(p)], n) for p, n in parts if id(p) in self.plain]
        found: list[Any] = []
        if plain:
            together = sum_of(*(repeat(law, n) for law, n in plain))
            found += self._paid(base, together, node)
        for part, n in parts:
            if id(part) not in self.plain:
                found.append(repeat(sum_of(*known[id(part)], 0.0), n))
        return found

    def _leaf_energy(
        self, e: Element, base: Weight, times: Mapping[int, Any]
    ) -> list[Any]:
        """(B + s - b) T + d of one execution, d only if it goes with T."""
        power = add(base, self.deltas[id(e)])
        if not self.coupled(e):
            return self._paid(power, times[id(e)], e)
        gain = self.setting.stripped(key_of(e, "energy"))
        if set(power) - {gain} or self.setting.own_paces(e):
            raise _entangled([e])
        assert e.runs is not None
        # One run draws T and d together: w T + d is itself a measured quantity.
        energy = power.get(gain, 0.0) * e.runs.time + e.runs.dynamic_energy
        law = Empirical(energy, blocks=e.runs.blocks)
        return [self.factor(gain, self.leaf(law, e, self.setting.counts[id(e)]))]

    def _waiting(self, node: Term, base: Weight, joint: Any) -> Any:
        """B T + x of a joint law, which stands under one set of factors."""
        from probcalc.joint import weighted

        inside = [part for part in postorder(node) if isinstance(part, Element)]
        keys = set(base)
        for e in inside:
            keys |= set(self.deltas[id(e)])
            if self.coupled(e):
                keys.add(self.setting.stripped(key_of(e, "energy")))
        if len(keys) > 1 or any(self.setting.own_paces(e) for e in inside):
            raise _entangled(inside)
        (key,) = keys
        return self.factor(key, weighted(joint, base[key]))


def _joints(work: _Work, times: Mapping[int, Any]) -> dict[int, Any]:
    """Joint laws of (T, x) of the joined nodes."""
    from probcalc.joint import (
        JointAffine,
        JointIndependent,
        JointRuns,
        joint_maximum,
        joint_repeat,
        joint_sum,
    )

    known: dict[int, Any] = {}
    for node in work.setting.order:
        if id(node) not in work.joined:
            continue
        if id(node) in work.plain:
            known[id(node)] = JointIndependent(times[id(node)], Constant(0.0))
        elif isinstance(node, Element):
            slope = sum(work.deltas[id(node)].values())
            if work.coupled(node):
                work.leaf(node.time, node, 0)
                assert node.runs is not None
                t, d = node.runs.time, node.runs.dynamic_energy
                known[id(node)] = JointRuns(t, slope * t + d)
            else:
                known[id(node)] = JointAffine(times[id(node)], slope, Constant(0.0))
        elif isinstance(node, Repeat):
            known[id(node)] = joint_repeat(known[id(node.part)], node.count)
        elif isinstance(node, Sequential):
            parts = ((known[id(p)], n) for p, n in _counted(node))
            several = (joint_repeat(law, n) if n > 1 else law for law, n in parts)
            known[id(node)] = joint_sum(*several)
        else:
            known[id(node)] = joint_maximum(*(known[id(p)] for p in node.parts))
    return known


def _counted(node: Term) -> list[tuple[Term, int]]:
    """Distinct parts with the number of times each stands there."""
    counts = Counter(map(id, node.parts))
    return [(p, counts[id(p)]) for p in {id(p): p for p in node.parts}.values()]


def _names(power: Weight) -> str:
    return ", ".join(sorted({repr(name) for key in power for name in key}))


def _entangled(inside: list[Element]) -> CompositionError:
    names = sorted({f.name for e in inside for f in e.shared})
    elements = ", ".join(repr(e.name) for e in inside[:3])
    return CompositionError(
        f"shared factors {', '.join(map(repr, names))} do not act alike on time and "
        f"energy of {elements}, which depend on each other: no exact method takes "
        "that; name one energy factor in every element, or use method='moments'"
    )
