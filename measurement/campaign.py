"""Campaigns: fresh-process blocks, arms interleaved, resumed without loss or doubling.

A block is one process that runs one arm. Every finished block is one file that appears
whole or not at all; what is there is never run again. One process at a time works on a
folder: the block that runs inherits the lock, so that a campaign that is taken up
again waits until a block left over from a killed one has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from probcalc.errors import InputError, ProbcalcError
from probcalc.measurement.atomic import locked, write_atomic
from probcalc.measurement.settings import Settings
from probcalc.measurement.workload import Workload

__all__ = [
    "Campaign",
    "CampaignError",
    "Settings",
    "failures_of",
    "is_begun",
    "order_of",
    "read_blocks",
    "run",
]

VERSION = 1
#: Failures of one arm in a row after which a campaign stops.
MOST_FAILURES = 3


class CampaignError(ProbcalcError):
    """A campaign that cannot be begun, taken up again, or finished."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is declared before the first block; stored, and compared when taken up.

    Parameters
    ----------
    workloads : sequence of Workload
        One arm each, names distinct.
    meter : mapping
        As `probcalc.measurement.instruments.meter_of`.
    blocks : int
        Fresh processes per arm; ten or more for a verdict.
    seed : int
        Of the order of arms within each block, and of dephasing.
    equal_work : str or None
        As `probcalc.measurement.equalwork.predicate_of`; None where arms need not do
        the same work.
    context : mapping
        What the elements are measured under, kept with them.
    """

    workloads: tuple[Workload, ...]
    meter: Mapping[str, Any]
    blocks: int = 10
    seed: int = 0
    equal_work: str | None = None
    settings: Settings = field(default_factory=Settings)
    context: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what is declared."""
        object.__setattr__(self, "workloads", tuple(self.workloads))
        if not self.workloads:
            raise InputError("campaign: no workloads, expected at least one")
        names = [w.name for w in self.workloads]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"campaign: two workloads are named {name!r}")
        for what, value, least in (("blocks", self.blocks, 1), ("seed", self.seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"campaign: {what} is {value!r}, expected a whole number >= {least}"
                )
        if self.equal_work is not None:
            from probcalc.measurement.equalwork import predicate_of

            rule = predicate_of(self.equal_work)
            commands = [w.name for w in self.workloads if w.is_command]
            if commands and rule.custom is None and (rule.rtol or rule.atol):
                raise InputError(
                    f"campaign: equal work is {self.equal_work!r}, and the output of "
                    f"command {commands[0]!r} is bytes, not numbers; expected 'bytes' "
                    "or 'module:function'"
                )

    def declared(self) -> dict[str, Any]:
        """Return it as plain data, for its file."""
        return {
            "version": VERSION,
            "workloads": [asdict(w) for w in self.workloads],
            "meter": dict(self.meter),
            "blocks": self.blocks,
            "seed": self.seed,
            "equal_work": self.equal_work,
            "settings": asdict(self.settings),
            "context": dict(self.context),
        }


def order_of(campaign: Campaign) -> Iterator[tuple[int, int]]:
    """Block and arm in the order they are run: arms shuffled within every block."""
    for block in range(campaign.blocks):
        rng = np.random.default_rng([campaign.seed, block])
        for arm in rng.permutation(len(campaign.workloads)).tolist():
            yield block, arm


def run(
    campaign: Campaign,
    folder: str | Path,
    *,
    progress: Callable[[int, int, Mapping[str, Any]], None] | None = None,
) -> int:
    """Run the blocks that are not there yet; return how many were run.

    Parameters
    ----------
    folder : str or Path
        Made if it is not there. What it holds of the same campaign is kept.
    progress : callable, optional
        Takes the number of finished blocks, of all, and the one just done.

    Raises
    ------
    CampaignError
        The folder holds another campaign; an arm fails three times in a row.
    """
    folder = Path(folder)
    (folder / "blocks").mkdir(parents=True, exist_ok=True)
    with locked(folder / "campaign.lock") as lock:
        _declare(campaign, folder)
        meter = _probed(campaign.meter, folder)
        done = read_blocks(folder, campaign)
        total = campaign.blocks * len(campaign.workloads)
        started = len(done)
        failures = [0] * len(campaign.workloads)
        for block, arm in order_of(campaign):
            if (block, arm) in done:
                continue
            asked = _asked(campaign, meter, folder, block, arm, done)
            found = _block(asked, folder, lock)
            if "failure" in found:
                failures[arm] += 1
                if failures[arm] == MOST_FAILURES or not done:
                    raise CampaignError(
                        f"arm {campaign.workloads[arm].name!r}, block {block}: "
                        f"{found['failure']}"
                    )
                continue
            failures[arm] = 0
            done[block, arm] = found
            if progress is not None:
                progress(len(done), total, found)
        return len(done) - started


def _declare(campaign: Campaign, folder: Path) -> None:
    """Write what is declared, or compare it with what the folder was begun with."""
    path = folder / "campaign.json"
    declared = json.loads(json.dumps(campaign.declared()))
    begun = any((folder / "blocks").glob("[0-9]*.json"))
    if not path.exists() or not begun:  # nothing measured, nothing to keep to
        write_atomic(path, json.dumps(declared, indent=1).encode())
        return
    there = _declared_in(folder)
    if isinstance(there.get("blocks"), int) and there["blocks"] > campaign.blocks:
        raise CampaignError(
            f"{path}: blocks was {there['blocks']} and is now {campaign.blocks}; "
            "expected as many or more"
        )
    for key in _changed(declared, there):
        raise CampaignError(
            f"{path}: {key} was {json.dumps(there.get(key))} and is now "
            f"{json.dumps(declared[key])}; expected the same, or another folder"
        )
    if there.get("blocks") != campaign.blocks:
        write_atomic(path, json.dumps(declared, indent=1).encode())


def _declared_in(folder: Path) -> dict[str, Any]:
    """Return what a folder was begun with."""
    path = folder / "campaign.json"
    try:
        there = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CampaignError(f"{path}: cannot be read: {error}") from error
    if not isinstance(there, dict):
        raise CampaignError(f"{path}: no campaign is declared in it")
    return there


def _changed(declared: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Return what is declared otherwise.

    More blocks may be asked for later; the order of the first stays the same.
    """
    return [k for k in declared if k != "blocks" and there.get(k) != declared[k]]


def is_begun(campaign: Campaign, folder: str | Path) -> bool:
    """Whether a folder holds finished blocks of this campaign and no other."""
    folder = Path(folder)
    try:
        declared = json.loads(json.dumps(campaign.declared()))
        same = not _changed(declared, _declared_in(folder))
        return same and bool(read_blocks(folder, campaign))
    except CampaignError:
        return False


def _path(folder: Path, block: int, arm: int) -> Path:
    return folder / "blocks" / f"{block:04d}-{arm:03d}.json"


def read_blocks(
    folder: str | Path, campaign: Campaign
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the finished blocks of a folder, by block and arm.

    Raises
    ------
    CampaignError
        A file of a block that cannot be read, by name.
    """
    found = {}
    for block, arm in order_of(campaign):
        path = _path(Path(folder), block, arm)
        if path.exists():
            try:
                found[block, arm] = json.loads(path.read_bytes())
            except ValueError as error:
                raise CampaignError(
                    f"{path}: cannot be read: {error}; remove it to run the block again"
                ) from error
            _complete(found[block, arm], path)
    return found


def _complete(record: Any, path: Path) -> None:
    """Refuse a file that is not a whole block."""
    needed = ("grain", "windows", "idle", "output", "device", "name")
    lacking = [n for n in needed if not isinstance(record, dict) or n not in record]
    if lacking:
        raise CampaignError(
            f"{path}: is no finished block, {lacking[0]!r} is missing; remove it to "
            "run the block again"
        )


def failures_of(folder: str | Path) -> tuple[dict[str, Any], ...]:
    """Return the blocks that failed: number, arm, and why."""
    path = Path(folder) / "failed.jsonl"
    if not path.exists():
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines if line.strip())


def _probed(meter: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the meter with the update period and reading window of its counter.

    They are found once, by a probe that is kept beside the blocks.
    """
    if "period" in meter:
        return dict(meter)
    path = folder / "probe.json"
    if not path.exists():
        from probcalc.measurement.instruments import meter_of
        from probcalc.measurement.probe import probe

        opened = meter_of(meter)
        try:
            found = probe(opened).as_dict()
        finally:
            opened.close()
        write_atomic(path, json.dumps(found, indent=1, default=str).encode())
    sources = json.loads(path.read_bytes())["sources"]
    best = next((s for s in sources if s["source"] == "counter" and s["answers"]), {})
    return dict(meter) | {
        name: best[name]
        for name in ("period", "reading_window")
        if best.get(name) is not None
    }


def _asked(
    campaign: Campaign,
    meter: Mapping[str, Any],
    folder: Path,
    block: int,
    arm: int,
    done: Mapping[tuple[int, int], Mapping[str, Any]],
) -> dict[str, Any]:
    """Say what a block is told.

    All keep to the temperature of the first block, and to the repetitions of the first
    one of their arm.
    """
    mine = [key for key in done if key[1] == arm]
    return {
        "block": block,
        "arm": arm,
        "workload": asdict(campaign.workloads[arm]),
        "meter": dict(meter),
        "seed": [campaign.seed, block, arm],
        "settings": asdict(campaign.settings),
        "keep_output": campaign.equal_work is not None,
        "reference": done[min(done)].get("temperature") if done else None,
        "repetitions": done[min(mine)]["grain"] if mine else None,
        "file": str(_path(folder, block, arm).resolve()),
    }


def _block(asked: Mapping[str, Any], folder: Path, lock: IO[bytes]) -> dict[str, Any]:
    """Run one block in a process of its own; return what it wrote, or its failure."""
    path = Path(asked["file"])
    with _process(lock) as process:
        _, said = process.communicate(json.dumps(asked).encode())
    if process.returncode == 0 and path.exists():
        return json.loads(path.read_bytes())
    last = said.decode(errors="replace").strip().splitlines()[-1:] or [
        f"its process ended with status {process.returncode}"
    ]
    failed = {"block": asked["block"], "arm": asked["arm"], "failure": last[0]}
    with (folder / "failed.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(failed) + "\n")
    return failed


@contextmanager
def _process(lock: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a block; whatever happens, it does not outlive the `with`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "probcalc.measurement.block"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[lock.fileno()],
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
