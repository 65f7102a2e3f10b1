"""Results as plain data, for JSON."""

from __future__ import annotations

import math

__all__ = ["finite"]


def finite(value: float) -> float | None:
    """Return a number, or None for what JSON has not: infinite (an open side), NaN."""
    return float(value) if math.isfinite(value) else None
