"""A matrix product and a memory-bound kernel, alone, in sequence and overlapped.

On Torch or CuPy where they see a GPU. Without one they run on NumPy, where "overlapped"
means two threads, so that the script itself can be tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Kernels", "kernels", "overlap", "product", "sequence", "stream"]

#: Launches of each kernel in one repetition, and sizes on a GPU and on the host.
LAUNCHES = 8
SIDE, WORDS = 4096, 1 << 26
SMALL_SIDE, SMALL_WORDS = 192, 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """Both kernels of a backend.

    Attributes
    ----------
    backend : {"torch", "cupy", "numpy"}
    product, stream : callable
        Launch one kernel on the current stream; return its output.
    overlapped : callable
        Launch both, on two streams that the current one waits for.
    """

    backend: str
    product: Callable[[], Any]
    stream: Callable[[], Any]
    overlapped: Callable[[], tuple[Any, Any]]


def kernels() -> Kernels:
    """Make the kernels of the first backend that sees a GPU, else of NumPy."""
    for made in (_torch, _cupy):
        found = made()
        if found is not None:
            return found
    return _numpy()


def _torch() -> Kernels | None:
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.manual_seed(0)
    a = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16)
    x = torch.ones(WORDS, device="cuda", dtype=torch.float32)
    c, y = torch.empty_like(a), torch.empty_like(x)
    streams = [torch.cuda.Stream() for _ in range(2)]

    def multiply() -> Any:
        for _ in range(LAUNCHES):
            torch.mm(a, a, out=c)
        return c[:4, :4]

    def scale() -> Any:
        for _ in range(LAUNCHES):
            torch.mul(x, 1.0001, out=y)
        return y[:4]

    def overlapped() -> tuple[Any, Any]:
        current = torch.cuda.current_stream()
        found = []
        for one, launch in zip(streams, (multiply, scale), strict=True):
            one.wait_stream(current)
            with torch.cuda.stream(one):
                found.append(launch())
        for one in streams:
            current.wait_stream(one)
        return found[0], found[1]

    return Kernels("torch", multiply, scale, overlapped)


def _cupy() -> Kernels | None:
    try:
        import cupy  # type: ignore[import-not-found]
    except ImportError:
        return None
    if not cupy.cuda.is_available():
        return None
    a = cupy.random.default_rng(0).standard_normal((SIDE, SIDE)).astype(cupy.float16)
    x = cupy.ones(WORDS, dtype=cupy.float32)
    c, y = cupy.empty_like(a), cupy.empty_like(x)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

    def multiply() -> Any:
        for _ in range(LAUNCHES):
            cupy.matmul(a, a, out=c)
        return c[:4, :4]

    def scale() -> Any:
        for _ in range(LAUNCHES):
            cupy.multiply(x, cupy.float32(1.0001), out=y)
        return y[:4]

    def overlapped() -> tuple[Any, Any]:
        current = cupy.cuda.get_current_stream()
        begun = current.record()
        found = []
        for one, launch in zip(streams, (multiply, scale), strict=True):
            one.wait_event(begun)
            with one:
                found.append(launch())
            current.wait_event(one.record())
        return found[0], found[1]

    return Kernels("cupy", multiply, scale, overlapped)


def _numpy() -> Kernels:
    from concurrent.futures import ThreadPoolExecutor

    a = np.random.default_rng(0).normal(size=(SMALL_SIDE, SMALL_SIDE))
    x, c, y = np.ones(SMALL_WORDS), np.empty_like(a), np.empty(SMALL_WORDS)
    pool = ThreadPoolExecutor(2)

    def multiply() -> Any:
        np.matmul(a, a, out=c)
        return c[:4, :4]

    def scale() -> Any:
        np.multiply(x, 1.0001, out=y)
        return y[:4]

    def overlapped() -> tuple[Any, Any]:
        first, second = pool.submit(multiply), pool.submit(scale)
        return first.result(), second.result()

    return Kernels("numpy", multiply, scale, overlapped)


def product(made: Kernels) -> Any:
    """Compute-bound: a matrix product."""
    return made.product()


def stream(made: Kernels) -> Any:
    """Memory-bound: one pass over an array."""
    return made.stream()


def sequence(made: Kernels) -> tuple[Any, Any]:
    """Run the one and then the other."""
    return made.product(), made.stream()


def overlap(made: Kernels) -> tuple[Any, Any]:
    """Run both at once, on two streams."""
    return made.overlapped()
