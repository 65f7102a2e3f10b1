"""From the blocks of a campaign to arrays: what is used, what is not, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement.campaign import Campaign, read_blocks
from probcalc.measurement.equalwork import Output, predicate_of, same_work
from probcalc.measurement.signature import Signature, Window
from probcalc.measurement.store import save

__all__ = ["Arm", "Excluded", "collected", "signature_of", "written"]

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Excluded:
    """A window or a block that is kept and not used.

    Attributes
    ----------
    block : int
    window : int or None
        None for the whole block.
    reasons : tuple of str
    """

    block: int
    window: int | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """What a campaign found of one workload.

    Attributes
    ----------
    name : str
    grain : int
        Runs that each time and energy is the mean of; 1 for single runs.
    time, energy : FloatArray, shape (blocks, windows)
        Mean time in s and mean energy in J of a run, by window; NaN where a window is
        not used (`excluded` says why) or a block has fewer.
    run_time : tuple of FloatArray
        Times of single runs in s, one array for each block.
    blocks : tuple of int
        Numbers of the blocks that are there.
    idle_power, idle_temperature : FloatArray, shape (idle windows,)
        Ready idle: mean power in W and temperature in degree Celsius.
    excluded : tuple of Excluded
    records : tuple of mapping
        The blocks as they were written.
    """

    name: str
    grain: int
    time: FloatArray
    energy: FloatArray
    run_time: tuple[FloatArray, ...]
    blocks: tuple[int, ...]
    idle_power: FloatArray
    idle_temperature: FloatArray
    excluded: tuple[Excluded, ...]
    records: tuple[Mapping[str, Any], ...]

    @property
    def sources(self) -> list[str]:
        """Sources that the energy of the valid windows came from, sorted."""
        found = (w for record in self.records for w in record["windows"])
        return sorted({str(w["source"]) for w in found if w["valid"]})

    @property
    def static_power(self) -> float:
        """Mean ready idle power in W.

        Raises
        ------
        InputError
            No idle window is valid.
        """
        if not self.idle_power.size:
            raise InputError(
                f"arm {self.name!r}: no idle window is valid; expected at least one"
            )
        return float(self.idle_power.mean())


def collected(campaign: Campaign, folder: str | Path) -> tuple[Arm, ...]:
    """Gather the finished blocks of a campaign, one arm for each workload.

    Blocks whose instruments conflict, or whose output differs from that of the first
    arm in the same block (where equal work is declared), are excluded as a whole.

    Raises
    ------
    InputError
        Blocks of one arm with different grains.
    CampaignError
        A block that cannot be read.
    """
    found = read_blocks(folder, campaign)
    unequal = _unequal(campaign, Path(folder), found)
    return tuple(
        _arm(campaign, arm, found, unequal)
        for arm in range(len(campaign.workloads))
        if any(a == arm for _, a in found)
    )


def _arm(
    campaign: Campaign,
    arm: int,
    found: Mapping[tuple[int, int], dict[str, Any]],
    unequal: Mapping[tuple[int, int], str],
) -> Arm:
    name = campaign.workloads[arm].name
    blocks = sorted(block for block, a in found if a == arm)
    records = [found[block, arm] for block in blocks]
    grains = {record["grain"] for record in records}
    if len(grains) > 1:
        raise InputError(
            f"arm {name!r}: blocks with {sorted(grains)} runs in a window, expected "
            "one grain"
        )
    widest = max(len(record["windows"]) for record in records)
    time = np.full((len(blocks), widest), np.nan)
    energy = np.full_like(time, np.nan)
    excluded: list[Excluded] = []
    for row, (block, record) in enumerate(zip(blocks, records, strict=True)):
        whole = _whole_block(record, unequal.get((block, arm)))
        if whole:
            excluded.append(Excluded(block, None, whole))
            continue
        for column, window in enumerate(record["windows"]):
            if window["valid"]:
                runs = window["repetitions"]
                time[row, column] = _mean_time(window)
                energy[row, column] = window["energy"] / runs
            else:
                excluded.append(Excluded(block, column, tuple(window["reasons"])))
    unused = {e.block for e in excluded if e.window is None}
    idle = [
        (rest["power"], rest["temperature"])
        for block, record in zip(blocks, records, strict=True)
        for rest in record["idle"]
        if rest["power"] is not None and block not in unused
    ]
    return Arm(
        name,
        grains.pop(),
        time,
        energy,
        tuple(
            np.concatenate([np.asarray(w["run_time"]) for w in record["windows"]])
            for record in records
        ),
        tuple(blocks),
        np.array([power for power, _ in idle], dtype=float),
        np.array([np.nan if t is None else t for _, t in idle], dtype=float),
        tuple(excluded),
        tuple(records),
    )


def _mean_time(window: Mapping[str, Any]) -> float:
    """Mean time of a run: of the window, less what was idle on purpose."""
    spent = window["end"] - window["start"] - window["gaps"]
    return spent / window["repetitions"]


def _whole_block(record: Mapping[str, Any], unequal: str | None) -> tuple[str, ...]:
    """Reasons why nothing of a block is used."""
    reasons = []
    check = record.get("cross_check")
    if check is not None and check["status"] == "conflict":
        reasons.append(f"instrument conflict: {check['reason']}")
    if unequal:
        reasons.append(f"unequal work: {unequal}")
    if record["other_processes"]:
        ids = ", ".join(map(str, record["other_processes"][:4]))
        reasons.append(f"other processes on the board: {ids}")
    if any((window["throttled"] or 0.0) > 0.0 for window in record["windows"]):
        reasons.append("clocks were held down")
    return tuple(reasons)


def _unequal(
    campaign: Campaign, folder: Path, found: Mapping[tuple[int, int], dict[str, Any]]
) -> dict[tuple[int, int], str]:
    """Blocks whose output is not that of the first arm in the same block, and why."""
    if campaign.equal_work is None:
        return {}
    predicate = predicate_of(campaign.equal_work)
    wrong = {}
    for (block, arm), record in found.items():
        if arm == 0:
            continue
        if (block, 0) not in found:
            wrong[block, arm] = (
                "nothing to compare with: the first arm's block is not there"
            )
            continue
        first = _output(folder, block, 0, found[block, 0])
        agreed = same_work(first, _output(folder, block, arm, record), predicate)
        if not agreed.same:
            wrong[block, arm] = agreed.reason
    return wrong


def _output(folder: Path, block: int, arm: int, record: Mapping[str, Any]) -> Output:
    file = folder / "blocks" / f"{block:04d}-{arm:03d}.npy"
    values = np.load(file, allow_pickle=False) if file.exists() else None
    kept = record["output"]
    return Output(
        kept["digest"],
        values,
        kept["described"],
        kept.get("shape", ""),
        kept.get("rest", ""),
    )


def signature_of(campaign: Campaign, arm: Arm, device: str | None = None) -> Signature:
    """Return the signature of an arm, invalid and excluded windows with their reasons.

    Parameters
    ----------
    device : str, optional
        Name of the device in expressions; the board's UUID without.
    """
    board = arm.records[0]["device"]
    host = device or str(board["uuid"])
    whole = {e.block: e.reasons for e in arm.excluded if e.window is None}
    size = arm.idle_power.size
    error = float(np.std(arm.idle_power, ddof=1)) / size**0.5 if size > 1 else None
    return Signature.from_blocks(
        arm.name,
        [
            row[: len(r["windows"])]
            for row, r in zip(arm.time, arm.records, strict=True)
        ],
        [
            row[: len(r["windows"])]
            for row, r in zip(arm.energy, arm.records, strict=True)
        ],
        run_time=arm.run_time if arm.grain > 1 else None,
        context=dict(campaign.context),
        block_names=tuple(map(str, arm.blocks)),
        grain=arm.grain,
        devices=(host,),
        static_power={host: arm.static_power} if size else None,
        static_power_error={host: error} if error is not None else None,
        scope=str(arm.records[0]["windows"][0]["scope"]),
        windows=tuple(_windows(arm, whole)),
        workload=_workload(campaign, arm.name),
        device_facts=board,
        calibration={
            "idle_power_w": arm.idle_power.tolist(),
            "idle_temperature_c": [
                None if np.isnan(t) else float(t) for t in arm.idle_temperature
            ],
        },
        metadata={
            "timer": arm.records[0]["timer"],
            "host": arm.records[0]["host"],
            "version": arm.records[0]["version"],
            "seed": campaign.seed,
            "settings": campaign.declared()["settings"],
            "meter": dict(campaign.meter),
        },
        block_details=tuple(
            {
                name: record[name]
                for name in ("process", "ended", "temperature", "cross_check", "output")
            }
            for record in arm.records
        ),
    )


def _workload(campaign: Campaign, name: str) -> dict[str, Any]:
    (found,) = (w for w in campaign.workloads if w.name == name)
    return asdict(found)


def _windows(arm: Arm, whole: Mapping[int, tuple[str, ...]]) -> Iterator[Window]:
    for row, (block, record) in enumerate(zip(arm.blocks, arm.records, strict=True)):
        for column, found in enumerate(record["windows"]):
            reasons = (*found["reasons"], *whole.get(block, ()))
            valid = not reasons
            yield Window(
                row,
                column,
                valid,
                reasons,
                found["start"],
                found["end"],
                found["energy"] if valid else None,
                found["lower"],
                found["upper"],
                found["estimate"],
                found["repetitions"],
                found["kind"],
                found["method"],
                found["source"],
                found["scope"],
                tuple(found["notes"]),
                {
                    name: found[name]
                    for name in ("gaps", "temperature", "throttled", "throttle_note")
                },
            )
        for rest in record["idle"]:
            idle = rest["window"]
            yield Window(
                row,
                None,
                bool(idle["valid"]),
                tuple(idle["reasons"]),
                rest["start"],
                rest["end"],
                idle["energy"],
                kind=idle["kind"],
                method=idle["method"],
                source=idle["source"],
                scope=idle["scope"],
                details={"idle": True, "temperature": rest["temperature"]},
            )


def written(
    campaign: Campaign, folder: str | Path, device: str | None = None
) -> tuple[tuple[Arm, Path], ...]:
    """Write the signature of every arm to the folder's ``signatures``.

    Returns
    -------
    tuple of (Arm, Path)
        What each arm is, and its file; what was there of the campaign is replaced.
    """
    place = Path(folder) / "signatures"
    return tuple(
        (arm, save(signature_of(campaign, arm, device), place, existing="replace"))
        for arm in collected(campaign, folder)
    )
