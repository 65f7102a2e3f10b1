"""Signatures in ArviZ, whichever of its two lines is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from probcalc.errors import InputError

if TYPE_CHECKING:
    from probcalc.measurement.signature import Signature

__all__ = ["grouped", "inference_data"]


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
    import xarray

    posterior = xarray.Dataset(
        {
            name: (("chain", "draw"), table[:, :width], {"units": unit})
            for name, table, unit in (
                ("time", signature.time, "s"),
                ("energy", signature.energy, "J"),
            )
        },
        coords={"chain": list(signature.block_names), "draw": np.arange(width)},
        attrs={
            "element": signature.element,
            "grain": signature.grain,
            "runs_left_out": int((signature.runs - width).clip(0).sum()),
        },
    )
    return grouped({"posterior": posterior})


def grouped(groups: Mapping[str, Any]) -> Any:
    """Return datasets as groups of InferenceData (ArviZ 0.x) or DataTree (1.x)."""
    import arviz
    import xarray

    # Up to 0.23 ArviZ has a class of its own, from 1.0 on it takes xarray's and warns
    # whoever asks for the former.
    if "InferenceData" in vars(arviz):
        return vars(arviz)["InferenceData"](**groups)
    return xarray.DataTree.from_dict(dict(groups))
