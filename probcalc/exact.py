"""Laws of time and energy of a term, as expressions that nothing approximates.

Section 2 of the calculus, one algebra: with b the baseline of an element's devices and
x = (s - b) T + d, ``>>`` adds T and x, ``|`` and ``&`` take the longest T and add x,
and the whole costs

    E = B T + sum of x,        B the baselines of all devices the term holds.

Dynamic energy that is independent of time is a plain summand wherever it stands, so
that only what depends on time needs more: under ``>>`` alone each execution adds
(B + s - b) T + d, one quantity; under ``|`` and ``&`` the joint law of (T, x). The
total is a sum of such *draws*, each with its number of executions and the shared
factors it stands under.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from probcalc.composed import (
    Composed,
    Variable,
    maximum,
    product,
    repeat,
    scale,
    sum_of,
)
from probcalc.distribution import Constant, Distribution, Empirical, as_law
from probcalc.element import Element
from probcalc.errors import CompositionError
from probcalc.nodes import Leaf, Shared, constant_of
from probcalc.nodes import postorder as postorder_of
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
    return sum_of(work.factor(setting.account.paces, work.times()[id(setting.term)]))


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
    draws = work.core()
    if dynamic:
        draws += work.outside(coupled=False)
    total = work.factor(setting.account.gains, work.total(draws))
    return sum_of(total, *(_shifts(setting) if dynamic else ()))


def dynamic_energy_law(setting: Setting, leaf: LeafLaw = as_stated) -> Composed:
    """Law of the dynamic energy in J; elements independent but for shared factors."""
    work = _Work(setting, dynamic=True, leaf=leaf)
    total = work.total(work.outside(coupled=True))
    return sum_of(work.factor(setting.account.gains, total), *_shifts(setting))


def _shifts(setting: Setting) -> list[Composed]:
    """Energy shifts: one draw, added in every execution of an element naming it."""
    counts: Counter[str] = Counter()
    for e in setting.elements:
        for shift in factors(e, "energy", "shift"):
            counts[shift.name] += setting.counts[id(e)]
    return [
        scale(Variable(name, setting.account.shared[name].law), count)
        for name, count in counts.items()
    ]


class Draw(NamedTuple):
    """Executions of one summand of the energy, under shared factors."""

    key: tuple[str, ...]
    law: Any  # of one dimension, or a joint law
    copies: int = 1


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
            law = product(Variable(name, self.setting.account.shared[name].law), law)
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

    def mark(self, base: Weight) -> list[Draw]:
        """Mark how each node is worked out; return the (s - b) T that are constant."""
        constants: list[Draw] = []
        for node in self.setting.order:
            if isinstance(node, Element):
                delta = self.setting.account.beyond(node)
                fixed, delta = self._split(node, delta)
                constants += fixed
                self.deltas[id(node)] = self.setting.account.effective(delta)
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
                if self._in_series(node, base):
                    self.weighed.update(map(id, node.parts))
                elif node.parts:
                    self.joined.update([id(node), *map(id, node.parts)])
        return constants

    def _split(self, e: Element, delta: Weight) -> tuple[list[Draw], Weight]:
        """Take (s - b) T out as a summand where T is constant."""
        if not isinstance(e.time, Constant) or any(
            f.acts_on == "time" for f in e.shared
        ):
            return [], delta
        spent = e.time.value * self.setting.counts[id(e)]
        powers = self.setting.account.effective(delta)
        if any(key and power < 0.0 for key, power in powers.items()):
            return [], delta
        return [Draw(key, Constant(c * spent)) for key, c in powers.items()], {}

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
        own = [
            name for name in key_of(e, "time") if name not in self.setting.account.paces
        ]
        shifts = [Variable(f.name, f.law) for f in factors(e, "time", "shift")]
        law = self.factor(own, law)
        return sum_of(law, *shifts) if shifts else law

    # ---- energy -------------------------------------------------------------------

    def outside(self, *, coupled: bool) -> list[Draw]:
        """Dynamic energy that is independent of time, or all of it."""
        found: list[Draw] = []
        for e in self.setting.elements:
            law = e.dynamic_energy
            nothing = isinstance(law, Constant) and law.value == 0.0
            if nothing or (self.coupled(e) and not coupled):
                continue
            count = self.setting.counts[id(e)]
            gain = self.setting.account.stripped(key_of(e, "energy"))
            found.append(Draw(gain, self.leaf(law, e, count), count))
        return found

    def core(self) -> list[Draw]:
        """B T + sum of x, less what `outside` holds."""
        setting = self.setting
        base = setting.account.effective(setting.account.base)
        found = self.mark(base)
        times = self.times()
        joints = _joints(self, times) if self.joined else {}
        counts = dict.fromkeys(self.weighed, 0)
        counts[id(setting.term)] = 1
        waiting: list[Any] = []
        for node in reversed(setting.order):
            if id(node) not in self.weighed:
                continue
            n = counts[id(node)]
            if id(node) in self.plain:
                waiting.append(repeat(times[id(node)], n))
            elif isinstance(node, Element):
                found += self._leaf_energy(node, n, base, times)
            elif self._in_series(node, base):
                for part, times_there in _counted(node):
                    again = node.count if isinstance(node, Repeat) else times_there
                    counts[id(part)] += n * again
            else:
                found.append(Draw(self._one_key(node, base), joints[id(node)], n))
        if waiting:
            found += self._paid(base, sum_of(*waiting), "time")
        return found

    def _in_series(self, node: Term, base: Weight) -> bool:
        """Whether energies of the parts add: also where waiting costs nothing."""
        return isinstance(node, Sequential | Repeat) or not base

    def _paid(self, power: Weight, time: Any, name: str) -> list[Draw]:
        """Power, possibly under several shared factors, times the sum of some times."""
        whole = sum_of(time)
        if len(power) > 1 and constant_of(whole.node) is None:
            # One draw of the times under several factors.
            node = whole.node
            time = Variable(name, node.law if isinstance(node, Leaf) else whole)
        return [Draw(key, scale(time, c)) for key, c in power.items()]

    def _leaf_energy(
        self, e: Element, n: int, base: Weight, times: Mapping[int, Any]
    ) -> list[Draw]:
        """(B + s - b) T + d of n executions, d only if it goes with T."""
        power = add(base, self.deltas[id(e)])
        if not self.coupled(e):
            return self._paid(power, repeat(times[id(e)], n), f"time of {id(e):x}")
        gain = self.setting.account.stripped(key_of(e, "energy"))
        if set(power) - {gain} or self.setting.account.own_paces(e):
            raise _entangled([e])
        assert e.runs is not None
        # One run draws T and d together: w T + d is itself a measured quantity.
        energy = power.get(gain, 0.0) * e.runs.time + e.runs.dynamic_energy
        law = Empirical(energy, blocks=e.runs.blocks)
        return [Draw(gain, self.leaf(law, e, self.setting.counts[id(e)]), n)]

    def _one_key(self, node: Term, base: Weight) -> tuple[str, ...]:
        """Return the factors, one set for all, under which a joint law stands."""
        inside = [part for part in postorder(node) if isinstance(part, Element)]
        keys = set(base)
        for e in inside:
            keys |= set(self.deltas[id(e)])
            if self.coupled(e):
                keys.add(self.setting.account.stripped(key_of(e, "energy")))
        if len(keys) > 1 or any(self.setting.account.own_paces(e) for e in inside):
            raise _entangled(inside)
        return keys.pop()

    def total(self, draws: list[Draw]) -> Composed:
        """Sum of independent draws."""
        found: list[Any] = [0.0]
        groups: dict[tuple[str, ...], list[Draw]] = {}
        for draw in draws:
            groups.setdefault(draw.key, []).append(draw)
        for key, group in groups.items():
            together = [draw for draw in group if is_joint(draw.law)]
            if together:
                # What is independent of time joins in: one answer for the whole sum is
                # narrower than the sum of answers.
                plain = [d for d in group if not is_joint(d.law) and _free(d.law)]
                group = [d for d in group if not is_joint(d.law) and not _free(d.law)]
                power = self.setting.account.effective(self.setting.account.base)[key]
                found.append(self.factor(key, _summed(together, plain, power)))
            parts = [repeat(draw.law, draw.copies) for draw in group]
            if parts:
                found.append(self.factor(key, sum_of(*parts)))
        return sum_of(*found)


def is_joint(law: Any) -> bool:
    """Whether a law is one of time and energy together."""
    return not hasattr(law, "cdf") and not isinstance(law, Variable)


def _free(law: Any) -> bool:
    """Whether no shared draw is part of a law."""
    if isinstance(law, Variable):
        return False
    nodes = postorder_of(law.node) if isinstance(law, Composed) else ()
    return not any(isinstance(node, Shared) for node in nodes)


def _summed(together: list[Draw], plain: list[Draw], power: float) -> Any:
    """B T + x of joint draws one after the other, and of draws that take no time."""
    from probcalc.joint import JointIndependent, joint_repeat, joint_sum, weighted

    still = [JointIndependent(Constant(0.0), as_law(draw.law)) for draw in plain]
    laws = [draw.law for draw in together] + still
    parts = zip(laws, (draw.copies for draw in together + plain), strict=True)
    return weighted(joint_sum(*(joint_repeat(law, n) for law, n in parts)), power)


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


def _entangled(inside: list[Element]) -> CompositionError:
    names = sorted({f.name for e in inside for f in e.shared})
    elements = ", ".join(repr(e.name) for e in inside[:3])
    return CompositionError(
        f"shared factors {', '.join(map(repr, names))} do not act alike on time and "
        f"energy of {elements}, which depend on each other: no exact method takes "
        "that; name one energy factor in every element, or use method='moments'"
    )
