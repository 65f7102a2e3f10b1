"""Workloads of the campaign tests, named by module and function."""

from __future__ import annotations

import numpy as np

from tests.measured_runs import FloatArray


def matrices() -> FloatArray:
    return np.random.default_rng(0).normal(size=(60, 60))


def product(a: FloatArray) -> FloatArray:
    return a @ a


def product_by_rows(a: FloatArray) -> FloatArray:
    return np.stack([row @ a for row in a])


def other(a: FloatArray) -> FloatArray:
    return a + a


def quick() -> bytes:
    return b"done"


def broken() -> None:
    raise ValueError("it does not work")


def no_matrices() -> None:
    raise RuntimeError("no data")
