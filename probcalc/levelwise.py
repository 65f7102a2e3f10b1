"""Answers at several levels from a law that answers at one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Quantile, levels
from probcalc.errors import InputError

__all__ = ["each", "levels_of", "quantiles"]


def levels_of(
    p: Iterable[float] | None, sf: Iterable[float] | None
) -> list[tuple[float, float]]:
    """Levels as pairs of P(X <= x) and P(X > x), checked.

    Raises
    ------
    InputError
        Both or neither of the two; a level outside (0, 1).
    """
    name, given = _given(p, sf)
    return [levels(**{"p": None, "sf": None, name: x}) for x in given]


def quantiles(
    law: Any,
    p: Iterable[float] | None,
    sf: Iterable[float] | None,
    **options: Any,
) -> tuple[Quantile, ...]:
    """Quantiles of a law at several levels, one after the other."""
    name, given = _given(p, sf)
    return tuple(law.quantile(**{name: x}, **options) for x in given)


def _given(
    p: Iterable[float] | None, sf: Iterable[float] | None
) -> tuple[str, Iterable[float]]:
    """Return which of the two was given, and its levels."""
    if p is not None and sf is None:
        return "p", p
    if sf is not None and p is None:
        return "sf", sf
    raise InputError("quantiles: give exactly one of p and sf")


def each(asked: npt.ArrayLike, answer: Callable[[float], float]) -> Any:
    """Array of answers, shaped as what was asked; NaN where NaN was asked."""
    values = np.asarray(asked, dtype=float)
    found = [math.nan if math.isnan(v) else answer(v) for v in values.ravel().tolist()]
    return found[0] if values.ndim == 0 else np.array(found).reshape(values.shape)
