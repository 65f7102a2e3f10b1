"""What a mechanism states, and how several of them act together (section 3.4).

A mechanism is its cause, timescale, state variables, update rule, effect and
characterisation protocol, as values and functions of arrays: one entry per sample.
Operators and plans know nothing of any particular one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from probcalc.context import Context, StateVariable, Trace
from probcalc.errors import InputError
from probcalc.readonly import ReadOnly

__all__ = [
    "Effect",
    "Load",
    "Mechanism",
    "Mechanisms",
    "State",
    "no_effect",
    "unchanged",
]

FloatArray = npt.NDArray[np.float64]
#: Values of all state variables of one device, shape (samples,) each.
State = Mapping[str, FloatArray]


class Load(NamedTuple):
    """What runs on a device for a while; nothing at all when it is idle.

    Attributes
    ----------
    duration : ndarray, shape (samples,)
        In s.
    energy : ndarray, shape (samples,)
        Drawn beyond the device's baseline in that time, J.
    amounts : mapping of str to ndarray
        What the traces do in that time.
    trace : Trace or None
        Of the element; None where several run, or none.
    """

    duration: FloatArray
    energy: FloatArray
    amounts: Mapping[str, FloatArray] = ReadOnly({})
    trace: Trace | None = None

    @property
    def power(self) -> FloatArray:
        """Mean draw beyond the baseline, W; 0 over no time."""
        long = self.duration > 0.0
        return np.where(long, self.energy / np.where(long, self.duration, 1.0), 0.0)


class Effect(NamedTuple):
    """What context changes of one run: T (1 + a) + b and d (1 + c) + e.

    Attributes
    ----------
    time_scale, time : ndarray or float
        a, and b in s.
    energy_scale, energy : ndarray or float
        c, and e in J, of dynamic energy.
    """

    time_scale: Any = 0.0
    time: Any = 0.0
    energy_scale: Any = 0.0
    energy: Any = 0.0

    def plus(self, other: Effect) -> Effect:
        """Effects of both: they add."""
        return Effect(*(a + b for a, b in zip(self, other, strict=True)))


def unchanged(state: State, load: Load) -> State:
    """Leave the state as it is."""
    return state


def no_effect(state: State, load: Load) -> Effect:
    """Change nothing."""
    return Effect()


def no_energy(state: State, load: Load) -> FloatArray:
    """Draw nothing more."""
    return np.zeros_like(load.duration)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A channel through which one execution changes another one's cost.

    Attributes
    ----------
    name, cause, timescale, protocol : str
        What it is; the protocol says how it is characterised apart from others.
    variables : tuple of StateVariable
        What it carries from one execution to the next, per device.
    reads : tuple of str
        Variables of other mechanisms that its functions use. They are brought up to
        date first.
    run : callable
        ``(state, load) -> state`` after the load; idle time is a load of nothing. The
        state returned needs its own variables alone.
    effect : callable
        ``(state, load) -> Effect`` on a run that enters with the state; the load is
        what the run would be in the null context.
    static_energy : callable
        ``(state, load) -> J`` drawn beyond the baseline because of the state while the
        load lasts.
    follows : {"run", "trace"}
        Whether its state depends on realised times and energies, or on traces alone.
    needs : tuple of str
        Amounts of a trace without which an element takes no part.
    devices : tuple of str or None
        Devices that it acts on; all without.
    parameters : object
        What it was made from.

    Raises
    ------
    InputError
        No name, or an empty statement of cause, timescale or protocol.
    """

    name: str
    cause: str
    timescale: str
    protocol: str
    variables: tuple[StateVariable, ...] = ()
    reads: tuple[str, ...] = ()
    run: Callable[[State, Load], State] = unchanged
    effect: Callable[[State, Load], Effect] = no_effect
    static_energy: Callable[[State, Load], FloatArray] = no_energy
    follows: Literal["run", "trace"] = "run"
    needs: tuple[str, ...] = ()
    devices: tuple[str, ...] | None = None
    parameters: Any = None

    def __post_init__(self) -> None:
        for field in ("name", "cause", "timescale", "protocol"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise InputError(
                    f"mechanism {self.name!r}: {field} is {value!r}, expected a text"
                )

    def on(self, device: str) -> bool:
        """Whether it acts on a device."""
        return self.devices is None or device in self.devices


@dataclass(frozen=True, slots=True, eq=False)
class Mechanisms:
    """Mechanisms that act together; made by `of`.

    Attributes
    ----------
    entry : tuple of Mechanism
        Each after those whose variables it reads.
    runtime : object or None
        The contention of shared resources.
    variables : mapping of str to StateVariable
    """

    entry: tuple[Mechanism, ...]
    runtime: Any
    variables: Mapping[str, StateVariable]

    @classmethod
    def of(cls, mechanisms: Iterable[Any]) -> Self:
        """Put mechanisms together, checked.

        Raises
        ------
        InputError
            Two of one name or with one variable; a variable that is read and carried
            by none; mechanisms that read each other in a circle, naming them.
        """
        given = tuple(mechanisms)
        entry = [m for m in given if isinstance(m, Mechanism)]
        others = [m for m in given if not isinstance(m, Mechanism)]
        for other in others:
            if not hasattr(other, "resources"):
                raise InputError(
                    f"mechanisms: expected mechanisms, got {type(other).__name__} "
                    f"{other!r:.60}"
                )
        if len(others) > 1:
            raise InputError(
                f"mechanisms: {len(others)} contentions, expected one with all shared "
                "resources"
            )
        variables: dict[str, StateVariable] = {}
        owner: dict[str, Mechanism] = {}
        for i, m in enumerate(entry):
            for other in entry[:i]:
                _check_apart(other, m)
            for variable in m.variables:
                owner[variable.name] = m
                variables[variable.name] = variable
        for m in entry:
            for name in m.reads:
                if name not in owner:
                    held = ", ".join(map(repr, variables)) or "none"
                    raise InputError(
                        f"mechanism {m.name!r}: reads the variable {name!r}, which no "
                        f"mechanism carries; there are {held}"
                    )
        ordered = _ordered(entry, owner)
        return cls(ordered, next(iter(others), None), ReadOnly(variables))

    def state(self, context: Context, samples: int, where: str) -> dict[str, Any]:
        """State of a device in a context, shape (samples,) each.

        Raises
        ------
        InputError
            A variable that is needed and not stated, one that no mechanism carries, or
            a value that is not possible.
        """
        for name in context.values:
            if name not in self.variables:
                held = ", ".join(map(repr, self.variables)) or "none"
                raise InputError(
                    f"{where}: no mechanism carries the variable {name!r}; there are "
                    f"{held}"
                )
        return {
            name: np.full(samples, context.value(variable, where))
            for name, variable in self.variables.items()
        }

    def run(self, state: State, load: Load) -> tuple[State, FloatArray]:
        """State after a load, and static energy beyond the baseline drawn in it, J.

        Raises
        ------
        InputError
            A mechanism that does not return one of its variables, or one that is no
            number; names both.
        """
        energy = np.zeros_like(load.duration)
        after = dict(state)
        for m in self.entry:
            # A mechanism sees its own variables as they were and, of those that it
            # reads, as they have become: it is evaluated after them.
            energy = energy + m.static_energy(after, load)
            found = m.run(after, load)
            for variable in m.variables:
                value = found.get(variable.name)
                if value is None:
                    raise InputError(
                        f"mechanism {m.name!r}: its update rule does not return the "
                        f"variable {variable.name!r}"
                    )
                if np.isnan(value).any():
                    raise InputError(
                        f"mechanism {m.name!r}: its update rule makes variable "
                        f"{variable.name!r} NaN"
                    )
                after[variable.name] = np.broadcast_to(value, load.duration.shape)
        return after, energy

    def on(self, device: str) -> Mechanisms:
        """Return those that act on a device.

        Raises
        ------
        InputError
            One that reads a variable which none that acts there carries.
        """
        return Mechanisms.of(m for m in self.entry if m.on(device))

    def alone(self, load: Load) -> FloatArray:
        """Static energy beyond the baseline in a load from the null context, J.

        A signature measured from there has it already.
        """
        samples = load.duration.shape
        null = {n: np.full(samples, v.null) for n, v in self.variables.items()}
        return np.sum(
            [np.zeros(samples), *(m.static_energy(null, load) for m in self.entry)],
            axis=0,
        )

    @property
    def follow_traces(self) -> bool:
        """Whether all states follow from traces alone, whatever times come out."""
        return self.runtime is None and all(m.follows == "trace" for m in self.entry)


def _check_apart(a: Mechanism, b: Mechanism) -> None:
    """Refuse two that carry one variable, or have one name, on a common device."""
    if (
        a.devices is not None
        and b.devices is not None
        and not (set(a.devices) & set(b.devices))
    ):
        return
    if a.name == b.name:
        raise InputError(f"mechanism {a.name!r} is stated twice")
    both = {v.name for v in a.variables} & {v.name for v in b.variables}
    if both:
        raise InputError(
            f"mechanisms {a.name!r} and {b.name!r} both carry the variable "
            f"{min(both)!r}, expected one"
        )


def _ordered(
    entry: list[Mechanism], owner: Mapping[str, Mechanism]
) -> tuple[Mechanism, ...]:
    """Each mechanism after those that it reads, in the order given else."""
    done: list[Mechanism] = []
    waiting = list(entry)
    while waiting:
        ready = [
            m
            for m in waiting
            if all(owner[name] is m or owner[name] in done for name in m.reads)
        ]
        if not ready:
            walk = [waiting[0]]
            while True:
                reads = [owner[n] for n in walk[-1].reads if owner[n] in waiting]
                after = next(m for m in reads if m is not walk[-1])
                if after in walk:
                    break
                walk.append(after)
            loop = [m.name for m in (*walk[walk.index(after) :], after)]
            raise InputError(
                "mechanisms read each other's variables in a circle: "
                + " -> ".join(loop)
                + "; state them as one mechanism"
            )
        done.append(ready[0])
        waiting.remove(ready[0])
    return tuple(done)


def share(trace: Trace | None, mechanism: str) -> float:
    """How much of a mechanism's effect an element takes: all where it is not stated."""
    return 1.0 if trace is None else trace.sensitivity.get(mechanism, 1.0)
