"""How far context-independent composition can be off: the bound of section 4.2.

Each element's realised values are replaced by those of the null context (history) and
of isolation (interference). By the comonotone coupling every quantile of the composed
law moves by no more than the shifts of the elements make it move on every path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.plan import Plan
from probcalc.setting import resolve
from probcalc.term import (
    MultiParallel,
    Parallel,
    Repeat,
    Sequential,
    Term,
    executions,
    postorder,
)
from probcalc.validation.insensitivity import Shift
from probcalc.validation.verdict import HELD, Verdict

__all__ = [
    "Reducible",
    "Reduction",
    "Substitution",
    "can_reduce",
    "held_over_own",
    "multiplicities",
    "reduction_bound",
]


@dataclass(frozen=True, slots=True)
class Substitution:
    """How often an element's values are replaced in a composition.

    Attributes
    ----------
    history : int
        Executions that do not start at the null context.
    interference : int
        Executions that run beside others.
    """

    history: int
    interference: int

    @property
    def total(self) -> int:
        """m, summed over executions."""
        return self.history + self.interference


@dataclass(frozen=True, slots=True)
class Reduction:
    """The bound on the error of context-independent composition, at every quantile.

    Attributes
    ----------
    energy : float
        J: held power times the longest path of time shifts, plus all other shifts.
    time : float
        s: the longest path of time shifts.
    linear : float
        J: sum of m_i tau_i, with tau_i at the power that all held devices draw.
    shares : mapping of str to float
        What each element adds to `linear`, J.
    """

    energy: float
    time: float
    linear: float
    shares: Mapping[str, float]


def multiplicities(composed: Term | Plan) -> dict[str, Substitution]:
    """Count the substitutions of each element, by name (section 4.2).

    Elements that nothing precedes start at the null context and need none for history;
    elements that nothing runs beside need none for interference.
    """
    if isinstance(composed, Plan):
        return _of_plan(composed)
    counts: dict[str, list[int]] = {}
    # (term, executions, whether the first starts at the null context, co-running).
    stack: list[tuple[Term, int, bool, bool]] = [(composed, 1, True, False)]
    while stack:
        term, times, first, beside = stack.pop()
        if isinstance(term, Element):
            found = counts.setdefault(term.name, [0, 0])
            found[0] += times - int(first)
            found[1] += times if beside else 0
        elif isinstance(term, Repeat):
            stack.append((term.part, times * term.count, first, beside))
        elif isinstance(term, Sequential):
            for i, part in enumerate(term.parts):
                stack.append((part, times, first and i == 0, beside))
        else:
            assert isinstance(term, Parallel | MultiParallel)
            alone = len(term.parts) == 1
            stack += [(part, times, first, beside or not alone) for part in term.parts]
    return {name: Substitution(*found) for name, found in counts.items()}


def _of_plan(plan: Plan) -> dict[str, Substitution]:
    from probcalc.precedence import Precedence

    preceded = np.zeros(len(plan), dtype=bool)
    preceded[plan.targets] = True
    # Nodes of one chain never run beside each other.
    alone = Precedence.of(plan).chain(np.arange(len(plan)))
    counts: dict[str, list[int]] = {}
    for i, e in enumerate(plan.elements):
        nodes = plan.element_of == i
        found = counts.setdefault(e.name, [0, 0])
        found[0] += int(np.count_nonzero(nodes & preceded))
        found[1] += 0 if alone else int(np.count_nonzero(nodes))
    return {name: Substitution(*found) for name, found in counts.items()}


def reduction_bound(
    composed: Term | Plan,
    history: Mapping[str, Shift],
    interference: Mapping[str, Shift] | None = None,
) -> Reduction:
    """Bound the error of composing null-context values in isolation, at every quantile.

    Parameters
    ----------
    history, interference : mapping of str to Shift
        Largest shifts of each element, by name. Elements that need no substitution of
        a kind may be left out of it.

    Raises
    ------
    InputError
        An element whose shift is needed and not given; a negative shift.
    """
    plan = composed if isinstance(composed, Plan) else Plan.from_term(composed)
    power = math.fsum(plan.baselines.values())
    counted = multiplicities(composed)
    kinds = {"history": history, "interference": interference or {}}
    shifts: dict[tuple[str, str], Shift] = {}
    for name, m in counted.items():
        for kind, given in kinds.items():
            if getattr(m, kind):
                shifts[name, kind] = _given(name, kind, given)
    times = np.zeros(len(plan))
    others, linear = 0.0, 0.0
    shares = dict.fromkeys(counted, 0.0)
    preceded = np.zeros(len(plan), dtype=bool)
    preceded[plan.targets] = True
    longest_of = [float(e.time.support()[1]) for e in plan.elements]
    for i, e in enumerate(plan.elements):
        nodes = plan.element_of == i
        for kind, here in (
            ("history", nodes & preceded),
            ("interference", nodes & (counted[e.name].interference > 0)),
        ):
            count = int(np.count_nonzero(here))
            if not count:
                continue
            shift = shifts[e.name, kind]
            times[here] += shift.time
            static = 0.0
            if shift.static_power:
                # A change of static power costs it for as long as the element can run.
                static = shift.static_power * (longest_of[i] + 2.0 * shift.time)
            beyond = abs(math.fsum(plan.account.beyond(e).values())) * shift.time
            own = shift.dynamic_energy + static + beyond
            others += count * own
            shares[e.name] += count * (power * shift.time + own)
            linear += count * (power * shift.time + own)
    time = _longest(plan, times)
    return Reduction(power * time + others, time, linear, shares)


def _given(name: str, kind: str, given: Mapping[str, Shift]) -> Shift:
    if name not in given:
        raise InputError(
            f"element {name!r}: its shift by {kind} is not given, and the composition "
            "replaces it"
        )
    shift = given[name]
    for field in ("time", "dynamic_energy", "static_power"):
        value = getattr(shift, field)
        if not value >= 0.0:
            raise InputError(
                f"element {name!r}, {kind}: shift of {field} is {value!r}, "
                "expected >= 0"
            )
    return shift


def _longest(plan: Plan, times: np.ndarray) -> float:
    """Longest path of the nodes' shifts; lags and releases do not shift."""
    from probcalc.kernels import graph

    return float(
        graph.longest(
            len(plan),
            plan.sources,
            plan.targets,
            np.zeros(plan.sources.size),
            times,
            np.zeros(len(plan)),
        )
    )


@dataclass(frozen=True, slots=True)
class Reducible:
    """Whether context-independent composition is good enough, and where not.

    Attributes
    ----------
    enough : bool or None
        None where a verdict that it needs is not "held".
    bound : float
        J, from the declared margins of the verdicts that held.
    tolerance : float
    missing : tuple of str
        Elements without a verdict that holds, and of which kind.
    cut : str or None
        The part that, measured as one element, lowers the bound most.
    gain : float
        By how much, J, if the whole part is as sensitive as its first element.
    """

    enough: bool | None
    bound: float
    tolerance: float
    missing: tuple[str, ...]
    cut: str | None
    gain: float


def can_reduce(
    term: Term,
    history: Mapping[str, Verdict],
    interference: Mapping[str, Verdict] | None = None,
    *,
    tolerance: float,
) -> Reducible:
    """Whether context may be ignored in a term at its depth (section 4.2).

    The bound is the sum of m_i tau_i with the margins tau_i that the verdicts were
    about, at the power of all devices that are held: it grows with the number of
    elements, unlike noise.

    Parameters
    ----------
    history, interference : mapping of str to Verdict
        By name of the element.
    tolerance : float
        J that the composed energy may be off.

    Raises
    ------
    InputError
        A tolerance that is no number > 0; a verdict about another element or kind.
    """
    if not (math.isfinite(tolerance) and tolerance > 0.0):
        raise InputError(f"tolerance is {tolerance!r} J, expected a number > 0")
    margins: dict[tuple[str, str], float] = {}
    missing: list[str] = []
    counted = multiplicities(term)
    held = held_over_own(term)
    for kind, verdicts in (
        ("history", history),
        ("interference", interference or {}),
    ):
        for name, m in counted.items():
            if not getattr(m, kind):
                continue
            verdict = verdicts.get(name)
            if verdict is None or verdict.outcome is not HELD:
                missing.append(f"{name} ({kind})")
                continue
            if verdict.claim.subject != (kind, name):
                about = " of ".join(verdict.claim.subject) or verdict.claim.text
                raise InputError(
                    f"element {name!r}: the verdict given is about {about!r}, expected "
                    f"{kind} of {name!r}"
                )
            margins[name, kind] = verdict.claim.margin * held[name]

    def total(part: Term, first: bool) -> float:
        found = 0.0
        for name, m in multiplicities(part).items():
            n = m.history
            if not first:  # nothing in it starts at the null context
                n = _executions(part, name)
            found += n * margins.get((name, "history"), 0.0)
            found += m.interference * margins.get((name, "interference"), 0.0)
        return found

    bound = total(term, True)
    cut, gain = None, 0.0
    for part, first in _parts(term):
        names = _first_names(part)
        kept = 0.0
        if not first:
            kept = max((margins.get((n, "history"), 0.0) for n in names), default=0.0)
        saved = total(part, first) - kept
        if saved > gain:
            cut, gain = str(part), saved
    enough = None if missing else bound <= tolerance
    return Reducible(enough, bound, tolerance, tuple(missing), cut, gain)


def held_over_own(term: Term) -> dict[str, float]:
    """Power of all devices a term holds over that of each element's own, at least 1.

    A margin is tested at the element's own power; where other devices wait for it, its
    time costs theirs too: P dT + dd <= (P / s) (s dT + dd) for P >= s.
    """
    setting = resolve(term)
    power = math.fsum(setting.account.baselines.values())
    found: dict[str, float] = {}
    for e in setting.elements:
        own = math.fsum(e.powers.values())
        share = power / own if own > 0.0 else (math.inf if power > 0.0 else 1.0)
        found[e.name] = max(found.get(e.name, 1.0), share, 1.0)
    return found


def _executions(part: Term, name: str) -> int:
    counts = executions(part)
    return sum(
        counts[id(e)]
        for e in postorder(part)
        if isinstance(e, Element) and e.name == name
    )


def _parts(term: Term) -> list[tuple[Term, bool]]:
    """Parts that could be measured as one: neighbours in a sequence, what co-runs."""
    found: list[tuple[Term, bool]] = []
    stack = [(term, True)]
    while stack:
        part, first = stack.pop()
        if isinstance(part, Element):
            continue
        if isinstance(part, Repeat):
            found.append((part, first))
            stack.append((part.part, first))
        elif isinstance(part, Sequential):
            for i in range(len(part.parts) - 1):
                pair = Sequential(part.parts[i : i + 2])
                found.append((pair, first and i == 0))
            stack += [(p, first and i == 0) for i, p in enumerate(part.parts)]
        else:
            found.append((part, first))
            stack += [(p, first) for p in part.parts]
    return [(p, f) for p, f in found if p != term]


def _first_names(part: Term) -> list[str]:
    if isinstance(part, Element):
        return [part.name]
    if isinstance(part, Repeat):
        return _first_names(part.part)
    if isinstance(part, Sequential):
        return _first_names(part.parts[0])
    return [name for p in part.parts for name in _first_names(p)]
