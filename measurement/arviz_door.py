"""Signatures in ArviZ, whichever of its two lines is installed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from probcalc.errors import InputError

if TYPE_CHECKING:
    from probcalc.measurement.signature import Signature

__all__ = ["inference_data"]


def inference_data(
    signature: Signature, ragged: Literal["keep", "cut"] = "keep"
) -> Any:
    """Return a signature as InferenceData or DataTree; see `Signature.to_arviz`."""
    if ragged not in ("keep", "cut"):
        raise InputError(f"ragged is {ragged!r}, expected 'keep' or 'cut'")
    width = signature.time.shape[1]
    if ragged == "cut":
        whole = signature.complete.all(axis=0)
        width = int(whole.argmin()) if not whole.all() else width
        if not width:
            raise InputError(
                f"signature {signature.element!r}: run 0 is missing in a block; "
                "nothing is left to cut to"
            )
    values = {"time": signature.time, "energy": signature.energy}
    posterior = {name: np.array(table[:, :width]) for name, table in values.items()}
    import arviz

    coords = {"chain": list(signature.block_names), "draw": np.arange(width)}
    # Up to 0.23 each group is an argument; from 1.0 they come as one mapping.
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        found = arviz.from_dict(posterior=posterior, coords=coords)
    else:
        found = arviz.from_dict({"posterior": posterior}, coords=coords)
    group = found["posterior"]
    for name, unit in (("time", "s"), ("energy", "J")):
        group[name].attrs["units"] = unit
    group.attrs["element"] = signature.element
    group.attrs["grain"] = signature.grain
    group.attrs["runs_left_out"] = int((signature.runs - width).clip(0).sum())
    return found
