"""Running sums that keep what each addition rounds off (Kahan, Neumaier)."""

from __future__ import annotations

import numba as nb

__all__ = ["add"]


@nb.njit(cache=True)
def add(total: float, rest: float, x: float) -> tuple[float, float]:
    """Add x to a sum held as ``total + rest``.

    ``total + rest`` is off by about 2^-52 of the sum of the sizes of all terms, however
    many there are: ``rest`` gathers exactly what each addition to ``total`` lost.
    """
    t = total + x
    if abs(total) >= abs(x):
        return t, rest + ((total - t) + x)
    return t, rest + ((x - t) + total)
