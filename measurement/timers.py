"""Times of single repetitions: by CUDA events where there are any, else the host clock.

Torch, JAX and CuPy are used where the workload has imported them; none is required.
JAX returns before its work is done: the host clock waits for its outputs. Events lie on
the current stream: a workload that uses others must join them to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError

__all__ = ["TIMERS", "Timed", "Timer", "timer_of"]

FloatArray = npt.NDArray[np.float64]
TIMERS = ("auto", "torch", "cupy", "jax", "host")


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """Repetitions that were run.

    Attributes
    ----------
    duration : FloatArray, shape (repetitions,)
        Of each one in s.
    done : FloatArray, shape (repetitions,)
        Host time in s (monotonic) at which each one was complete.
    start, end : float
        Host time in s around them all, work on the device included.
    output : object
        What the last one returned.
    """

    duration: FloatArray
    done: FloatArray
    start: float
    end: float
    output: Any


@dataclass(frozen=True, slots=True, eq=False)
class Timer:
    """How repetitions are timed.

    Attributes
    ----------
    name : str
        Kept with the signature.
    mark : callable
        Returns a mark of this moment on the device, or None on the host.
    between : callable
        Seconds between two marks.
    wait : callable
        Waits until the device has done an output and all before it.
    """

    name: str
    mark: Callable[[], Any]
    between: Callable[[Any, Any], float]
    wait: Callable[[Any], Any]

    @property
    def on_host(self) -> bool:
        """Whether marks are of the host's clock, which has to wait for outputs."""
        return self.name in ("host", "jax")

    def run(
        self,
        repetition: Callable[[], Any],
        count: int,
        *,
        gaps: FloatArray | None = None,
    ) -> Timed:
        """Run `count` repetitions, idle for `gaps` s in front of each where given."""
        if count < 1:
            raise InputError(f"repetitions is {count}, expected at least 1")
        marks: list[tuple[Any, Any]] = []
        output = None
        self.wait(None)
        start = time.monotonic()
        for i in range(count):
            if gaps is not None:
                self.wait(output)
                time.sleep(float(gaps[i]))
            before = self.mark()
            output = repetition()
            if self.on_host:
                self.wait(output)
            marks.append((before, self.mark()))
        self.wait(output)
        end = time.monotonic()
        duration = np.array([self.between(a, b) for a, b in marks])
        if self.on_host:
            done = np.array([b for _, b in marks])
        else:
            # Events share the device's clock: the last one is complete at the end.
            last = marks[-1][1]
            done = end - np.array([self.between(b, last) for _, b in marks])
        return Timed(duration, done, start, end, output)


def _host() -> Timer:
    return Timer("host", time.monotonic, lambda a, b: b - a, lambda _: None)


def _jax() -> Timer:
    import jax

    def wait(output: Any) -> None:
        if output is not None:
            jax.block_until_ready(output)

    return Timer("jax", time.monotonic, lambda a, b: b - a, wait)


def _torch() -> Timer:
    import torch  # type: ignore[import-not-found]

    def mark() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    return Timer(
        "torch",
        mark,
        lambda a, b: a.elapsed_time(b) * 1e-3,
        lambda _: torch.cuda.synchronize(),
    )


def _cupy() -> Timer:
    import cupy  # type: ignore[import-not-found]

    def mark() -> Any:
        event = cupy.cuda.Event()
        event.record()
        return event

    return Timer(
        "cupy",
        mark,
        lambda a, b: cupy.cuda.get_elapsed_time(a, b) * 1e-3,
        lambda _: cupy.cuda.get_current_stream().synchronize(),
    )


def timer_of(name: str = "auto") -> Timer:
    """Return a timer; ``auto`` takes that of what has been imported.

    Raises
    ------
    InputError
        An unknown name, or one whose package or CUDA device is not there.
    """
    if name == "auto":
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
            return _torch()
        if "cupy" in sys.modules and sys.modules["cupy"].cuda.is_available():
            return _cupy()
        return _jax() if "jax" in sys.modules else _host()
    made = {"torch": _torch, "cupy": _cupy, "jax": _jax, "host": _host}
    if name not in made:
        raise InputError(f"timer is {name!r}, expected one of {', '.join(TIMERS)}")
    try:
        return made[name]()
    except ImportError as error:
        raise InputError(f"timer {name!r}: {error}") from error
