"""Runs of measured signatures in their blocks."""

from __future__ import annotations

from typing import Literal

import numpy as np

from probcalc.measurement.signature import Signature
from probcalc.validation.blocks import Blocked

__all__ = ["runs_of"]


def runs_of(
    signature: Signature, of: Literal["energy", "time"], *, name: str | None = None
) -> Blocked:
    """Return times or energies of a signature by block, in s or J.

    Runs without both a time and an energy are left out, as `Signature.to_element` does.
    """
    good = signature.complete
    values = (signature.energy if of == "energy" else signature.time)[good]
    labels = np.array(signature.block_names, dtype=object)[:, None]
    blocks = np.broadcast_to(labels, good.shape)[good].tolist()
    return Blocked.of(values, blocks, name=signature.element if name is None else name)
