"""Predictions beside measurements in ArviZ's structures, on either of its lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from probcalc.errors import InputError
from probcalc.measurement.arviz_door import grouped
from probcalc.validation.blocks import Blocked
from probcalc.validation.deviation import Predicted

__all__ = ["pit_values", "prediction_in_arviz", "save_pit_ecdf"]


def prediction_in_arviz(
    prediction: Predicted, measured: Blocked, *, draws: int = 1000, seed: int = 0
) -> Any:
    """Return predicted draws for every measured run, and the runs, for ArviZ's plots.

    Groups ``posterior_predictive`` (chain, draw, run) and ``observed_data`` (run);
    chains are resamples of the elements' runs, so that what is not known of the law is
    part of its draws. `arviz.plot_ppc`, `plot_loo_pit` and their kin take it.

    Parameters
    ----------
    draws : int
        For each run and chain.

    Returns
    -------
    InferenceData (ArviZ 0.x) or DataTree (1.x)
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise InputError(f"draws is {draws!r}, expected a whole number of at least 1")
    import xarray

    rng = np.random.default_rng(seed)
    laws = prediction.again[:4] or (prediction.draws,)
    values = np.stack(
        [rng.choice(law, (draws, len(measured)), replace=True) for law in laws]
    )
    unit = {"units": "J" if prediction.of == "energy" else "s"}
    coords = {"run": np.arange(len(measured))}
    groups: dict[str, Any] = {
        "posterior_predictive": xarray.Dataset(
            {prediction.of: (("chain", "draw", "run"), values, unit)},
            coords=coords | {"chain": np.arange(len(laws)), "draw": np.arange(draws)},
        ),
        "observed_data": xarray.Dataset(
            {
                prediction.of: (("run",), measured.values, unit),
                "block": (("run",), measured.block),
            },
            coords=coords,
        ),
    }
    return grouped(groups)


def pit_values(
    prediction: Predicted, measured: Blocked
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return P(predicted <= run) of every run; atoms take their middle.

    Uniform where the prediction is right and exact.
    """
    law = np.sort(prediction.draws)
    below = np.searchsorted(law, measured.values, side="left")
    at = np.searchsorted(law, measured.values, side="right")
    return 0.5 * (below + at) / law.size


def save_pit_ecdf(
    prediction: Predicted, measured: Blocked, file: str, *, level: float = 0.95
) -> None:
    """Draw the distribution of PIT values less the uniform, with a simultaneous band.

    The band is that of Dvoretzky, Kiefer, Wolfowitz and Massart for as many runs as
    the blocks are worth. A picture: the calibrated test is
    `probcalc.validation.deviation.law_deviation`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from probcalc.validation.quantiles import simultaneous_band

    u = np.sort(pit_values(prediction, measured))
    half = simultaneous_band(measured, level=level).half
    figure = Figure(figsize=(6, 4), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    if file.rpartition(".")[2].lower() not in canvas.get_supported_filetypes():
        raise InputError(f"{file!r} found; expected a .png, .svg or .pdf file")
    axes = figure.subplots()
    grid = np.concatenate([[0.0], u, [1.0]])
    shares = np.concatenate([[0.0], np.arange(1, u.size + 1) / u.size, [1.0]])
    axes.axhspan(-half, half, color="0.85", label=f"{level:.0%} band, all together")
    axes.step(grid, shares - grid, where="post", color="0.1", linewidth=1.2)
    axes.axhline(0.0, color="0.5", linewidth=0.8)
    axes.set(
        xlabel=f"predicted P({prediction.of} ≤ measured run)",
        ylabel="share of runs less that",
        xlim=(0.0, 1.0),
    )
    axes.legend(loc="lower center", fontsize="small", frameon=False)
    figure.savefig(file)
