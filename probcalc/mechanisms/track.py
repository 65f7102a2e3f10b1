"""The state of one device along a plan: idle gaps, runs, and runs that overlap.

Runs that may overlap on a device are taken together: their loads add up between the
moments at which one of them starts or ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.context import Trace
from probcalc.mechanisms.registry import Load, Mechanisms, State

__all__ = ["Track"]

FloatArray = npt.NDArray[np.float64]


class _Member(NamedTuple):
    """A run on the device, with what it draws beyond the baseline and does there."""

    node: int
    start: FloatArray
    finish: FloatArray
    energy: FloatArray
    amounts: Mapping[str, float]
    entry: State


class Track:
    """State of a device as the nodes of a plan are gone through, sample by sample.

    Parameters
    ----------
    mechanisms : Mechanisms
        Those that act on the device.
    state : State
        At time 0, shape (samples,) each.
    samples : int
    """

    def __init__(self, mechanisms: Mechanisms, state: State, samples: int) -> None:
        self.mechanisms = mechanisms
        self.state = state
        self.time = np.zeros(samples)
        #: Static energy beyond that of all runs from the null context, J: while
        #: something runs, and in between.
        self.busy = np.zeros(samples)
        self.idle = np.zeros(samples)
        #: The same of each node, J: by the state it entered with, and by what ran
        #: beside it.
        self.charged: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._met: State = state
        self._open: list[_Member] = []

    def enter(self, start: FloatArray, *, alone: bool) -> State:
        """State that a run which starts then enters with.

        Parameters
        ----------
        alone : bool
            Whether nothing can overlap it, so that the gap before it is over.
        """
        if self._open:
            self._met = self._advanced(until=start)[0]
            return self._met
        self._met, leaked = self.mechanisms.run(self.state, _idle(start - self.time))
        if alone:
            self.state, self.time = self._met, start
            self.idle = self.idle + leaked
        return self._met

    def leave(
        self,
        node: int,
        start: FloatArray,
        finish: FloatArray,
        energy: FloatArray,
        trace: Trace | None,
    ) -> None:
        """Note a run, with what it draws beyond the baseline in J."""
        amounts = {} if trace is None else trace.amounts
        self._open.append(_Member(node, start, finish, energy, amounts, self._met))

    def close(self) -> None:
        """Go on to the latest finish: whatever comes next waits for all runs noted."""
        if not self._open:
            return
        self.state, busy, idle, charged = self._advanced()
        self.idle = self.idle + idle
        for m in self._open:
            load = Load(m.finish - m.start, m.energy, _spread(m))
            own = self.mechanisms.alone(load)
            inherited = self.mechanisms.run(m.entry, load)[1] - own
            busy = busy - own
            beside = charged[m.node] - own - inherited
            self.charged[m.node] = inherited, beside
        self.busy = self.busy + busy
        self.time = np.max([m.finish for m in self._open], axis=0)
        self._open = []

    def rest(self, end: FloatArray) -> None:
        """Stay idle until the end of the plan."""
        self.close()
        self.state, leaked = self.mechanisms.run(self.state, _idle(end - self.time))
        self.idle = self.idle + leaked
        self.time = end

    def _advanced(
        self, until: FloatArray | None = None
    ) -> tuple[State, FloatArray, FloatArray, dict[int, FloatArray]]:
        """State after all runs noted, or at a time, and energies on the way."""
        members = self._open
        if len(members) == 1 and until is None:
            return self._alone(members[0])
        g = len(members)
        starts = np.array([m.start for m in members])
        finishes = np.array([m.finish for m in members])
        times = np.concatenate([self.time[None], starts, finishes])
        order = np.argsort(times, axis=0, kind="stable")
        place = np.argsort(order, axis=0, kind="stable")
        times = np.take_along_axis(times, order, axis=0)
        if until is not None:
            times = np.minimum(times, until)
        state: State = self.state
        busy, idle = np.zeros_like(self.time), np.zeros_like(self.time)
        charged = {m.node: np.zeros_like(self.time) for m in members}
        steps = np.diff(times, axis=0)
        if until is not None:
            steps = np.concatenate([steps, (until - times[-1])[None]])
        for k, step in enumerate(steps):
            energy = np.zeros_like(step)
            amounts: dict[str, FloatArray] = {}
            runs = np.zeros(step.shape, dtype=bool)
            for i, m in enumerate(members):
                active = (place[1 + i] <= k) & (k < place[1 + g + i])
                length = m.finish - m.start
                part = np.where(
                    length > 0.0, step / np.where(length > 0.0, length, 1.0), 1.0
                )
                # What takes no time is done where it starts.
                part = np.where((length > 0.0) | (place[1 + i] == k), part, 0.0)
                if until is not None:
                    part = np.where((length == 0.0) & (m.start >= until), 0.0, part)
                part = np.where(active, part, 0.0)
                runs |= active
                energy += part * m.energy
                for name, amount in m.amounts.items():
                    amounts[name] = amounts.get(name, 0.0) + part * amount
            state, leaked = self.mechanisms.run(state, Load(step, energy, amounts))
            busy += np.where(runs, leaked, 0.0)
            idle += np.where(runs, 0.0, leaked)
            for i, m in enumerate(members):
                active = (place[1 + i] <= k) & (k < place[1 + g + i])
                charged[m.node] += np.where(active, leaked, 0.0)
        return state, busy, idle, charged

    def _alone(self, m: _Member) -> Any:
        state, idle = self.mechanisms.run(self.state, _idle(m.start - self.time))
        load = Load(m.finish - m.start, m.energy, _spread(m))
        state, busy = self.mechanisms.run(state, load)
        return state, busy, idle, {m.node: busy}


def _idle(gap: FloatArray) -> Load:
    return Load(gap, np.zeros_like(gap))


def _spread(member: _Member) -> dict[str, FloatArray]:
    return {n: np.full(member.start.shape, x) for n, x in member.amounts.items()}
