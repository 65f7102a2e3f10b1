"""Joint mass of the few events of a plan that are live at once.

The first event's time, and the distances of the others from it: those stay within a
few durations however long the plan is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from probcalc.discretise import UNIT, Measure
from probcalc.errors import ToleranceError

__all__ = ["WIDTH", "WORK", "Known", "LiveBox", "Step", "thinned"]

FloatArray = npt.NDArray[np.float64]

#: Events that may be live at once.
WIDTH = 4
#: Multiplications that one answer may take: about a minute.
WORK = 1e11


class Step(NamedTuple):
    """One arc: from a complete event to one that is met or new.

    Attributes
    ----------
    source, target : int
        Events.
    part : int
        Of the reduction; -1 takes no time.
    last : bool
        Whether the source has no further arc.
    new : bool
        Whether the target has no earlier arc.
    """

    source: int
    target: int
    part: int
    last: bool
    new: bool


class Known(NamedTuple):
    """A mass on the grid, what was cut off it, its relative rounding error."""

    measure: Measure
    lost: float
    rounding: float


def thinned(mass: FloatArray, share: float) -> tuple[FloatArray, int, float]:
    """Take thin ends off; return how many points at the bottom, and what was lost."""
    from probcalc.kernels.elimination import thin_ends

    low, high = thin_ends(mass, share)
    kept = mass[low : mass.size - high]
    lost = math.fsum(mass[:low]) + math.fsum(mass[mass.size - high :])
    return kept, low, lost


@dataclass(slots=True, eq=False)
class LiveBox:
    """Joint mass of the live events: the first's time, and distances from it."""

    live: list[int]
    share: float
    memory: int
    mass: FloatArray
    offsets: list[int]
    lost: float
    rounding: float
    work: float

    def __init__(self, first: int, share: float, memory: int) -> None:
        self.live, self.share, self.memory = [first], share, memory
        self.mass, self.offsets = np.ones(1), [0]
        self.lost = self.rounding = self.work = 0.0

    def follow(self, step: Step, part: Known) -> None:
        """Follow one arc."""
        self.lost += part.lost
        several = len(self.live) > 1
        if step.new and step.last:
            # What moves away cannot stay the one that distances are taken from.
            if several and self.live[0] == step.source:
                self._rebase()
            self._move(step, part)
        elif step.new:
            self._branch(step, part)
        else:
            if self.live[0] == step.target:
                self._rebase(avoid=step.target)
            self._meet(step, part)
        self._thin()
        self.rounding += part.rounding + (part.measure.mass.size + 4) * UNIT

    def _move(self, step: Step, part: Known) -> None:
        from probcalc.kernels.elimination import convolved

        axis = self.live.index(step.source)
        rows = self._rows((axis,), part, self.mass.shape[axis] + part.measure.mass.size)
        shape = rows.shape[:-1]
        out = convolved(rows.reshape(-1, rows.shape[-1]), part.measure.mass)
        self.mass = np.moveaxis(out.reshape(*shape, -1), -1, axis)
        self.offsets[axis] += part.measure.first
        self.live[axis] = step.target

    def _branch(self, step: Step, part: Known) -> None:
        from probcalc.kernels.elimination import branched

        axis = self.live.index(step.source)
        first, duration = part.measure.first, part.measure.mass
        if axis == 0:
            self._check(self.mass.size * duration.size)
            self.mass = self.mass[..., None] * duration
            self.offsets.append(first)
        else:
            n = self.mass.shape[axis]
            rows = self._rows((axis,), part, n * (n + duration.size))
            shape = rows.shape[:-1]
            out = branched(rows.reshape(-1, n), duration)
            out = out.reshape(*shape, n, -1)
            self.mass = np.moveaxis(out, -2, axis)
            self.offsets.append(self.offsets[axis] + first)
        self.live.append(step.target)

    def _meet(self, step: Step, part: Known) -> None:
        from probcalc.kernels.elimination import met

        a, z = self.live.index(step.source), self.live.index(step.target)
        points, first = self.mass.shape[z], part.measure.first
        start = first - self.offsets[z] + (self.offsets[a] if a else 0)
        # The source's own distance is nought where distances are taken from it.
        n, axes = (self.mass.shape[a], (a, z)) if a else (1, (z,))
        keep = not step.last or a == 0
        size = points + abs(start) + n + part.measure.mass.size
        rows = self._rows(axes, part, (n if keep else 1) * size)
        shape = rows.shape[: -len(axes)]
        out, low = met(rows.reshape(-1, n, points), part.measure.mass, start, keep)
        self.offsets[z] += low
        self.rounding += (points + n) * UNIT
        if keep and a:
            self.mass = np.moveaxis(out.reshape(*shape, n, -1), (-2, -1), (a, z))
            return
        self.mass = np.moveaxis(out.reshape(*shape, -1), -1, z - (0 < a < z))
        if step.last and a == 0:
            self._thin()
            self._rebase()
            a = len(self.live) - 1
            self.rounding += self.mass.shape[-1] * UNIT
            self.mass = self.mass.sum(axis=-1)
        if step.last:
            del self.live[a], self.offsets[a]

    def _rebase(self, avoid: int = -1) -> None:
        """Take distances from another event: the nearest at hand."""
        from probcalc.kernels.elimination import rebased

        axes = [k for k in range(1, len(self.live)) if self.live[k] != avoid]
        axis = min(axes, key=lambda k: self.mass.shape[k])
        n = self.mass.shape[axis]
        shape = [s + n for s in self.mass.shape]
        self._check(math.prod(shape) / (shape[axis] / n))
        self.mass = rebased(np.moveaxis(self.mass, axis, -1))
        gap = self.offsets[axis]
        others = [k for k in range(1, len(self.live)) if k != axis]
        order = [axis, *others, 0]
        # Distances from the new first are smaller by its own, at most gap + n - 1.
        self.offsets = [
            self.offsets[0] + gap,
            *(self.offsets[k] - gap - n + 1 for k in others),
            -gap - n + 1,
        ]
        self.live = [self.live[k] for k in order]
        self._thin()

    def _rows(self, axes: tuple[int, ...], part: Known, after: float) -> FloatArray:
        """Joint mass with some axes last, once the result is known to fit."""
        last = math.prod(self.mass.shape[k] for k in axes)
        self._check(self.mass.size / last * after)
        self.work += float(self.mass.size) * part.measure.mass.size
        if self.work > WORK:
            raise ToleranceError(
                f"joint law of {len(self.live)} finishes: more than {WORK:.0e} products"
            )
        ends = tuple(range(-len(axes), 0))
        return np.ascontiguousarray(np.moveaxis(self.mass, axes, ends))

    def _check(self, points: float) -> None:
        # Before and after an operation, each with a copy in another order.
        if 16.0 * (points + self.mass.size) > self.memory:
            raise ToleranceError(
                f"joint law of {len(self.live)} finishes: {points:.3g} points needed, "
                f"more than {self.memory} bytes hold"
            )

    def _thin(self) -> None:
        """Take thin ends off every axis."""
        from probcalc.kernels.elimination import thin_ends

        for axis in range(self.mass.ndim):
            others = tuple(k for k in range(self.mass.ndim) if k != axis)
            marginal = self.mass.sum(axis=others)
            low, high = thin_ends(marginal, self.share)
            if low or high:
                self.lost += math.fsum(marginal[:low])
                self.lost += math.fsum(marginal[marginal.size - high :])
                cuts = [slice(None)] * self.mass.ndim
                cuts[axis] = slice(low, marginal.size - high)
                self.mass = self.mass[tuple(cuts)]
                self.offsets[axis] += low
        # A view would keep what was cut off.
        self.mass = np.ascontiguousarray(self.mass)
