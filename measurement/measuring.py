"""From workloads to signatures in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from probcalc.measurement.campaign import Campaign, run
from probcalc.measurement.collected import written
from probcalc.measurement.settings import Settings
from probcalc.measurement.signature import Signature
from probcalc.measurement.store import load
from probcalc.measurement.workload import Workload

__all__ = ["measure"]


def measure(
    workload: Workload | Sequence[Workload],
    folder: str | Path,
    *,
    meter: Mapping[str, Any],
    blocks: int = 10,
    seed: int = 0,
    equal_work: str | None = None,
    settings: Settings | None = None,
    context: Mapping[str, str] | None = None,
    device: str | None = None,
    progress: Callable[[int, int, Mapping[str, Any]], None] | None = None,
) -> tuple[Signature, ...]:
    """Measure workloads in fresh-process blocks and write their signatures.

    Blocks that the folder has are not run again, so that a measurement that was
    interrupted goes on.

    Parameters
    ----------
    workload : Workload or sequence of Workload
        One arm each; arms are interleaved.
    folder : str or Path
        Keeps the blocks, and ``signatures``.
    meter : mapping
        As `probcalc.measurement.instruments.nvml` or ``replay`` names it.
    device : str, optional
        Name of the board in expressions; its UUID without.
    blocks, seed, equal_work, settings, context, progress
        As for `probcalc.measurement.campaign.Campaign` and ``run``.

    Raises
    ------
    InputError, CampaignError
        As ``run``.
    """
    campaign = Campaign(
        (workload,) if isinstance(workload, Workload) else tuple(workload),
        meter,
        blocks=blocks,
        seed=seed,
        equal_work=equal_work,
        settings=settings or Settings(),
        context=context or {},
    )
    run(campaign, folder, progress=progress)
    return tuple(load(path) for _, path in written(campaign, folder, device))
