"""Which boards a CUDA program sees: CUDA_VISIBLE_DEVICES, told by UUID.

The driver counts all boards in PCI order and knows nothing of the variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from probcalc.measurement.faults import NoDeviceError
from probcalc.measurement.meter import Device

__all__ = ["selected", "visible_devices"]

VARIABLE = "CUDA_VISIBLE_DEVICES"
# What hides every board from here on, as CUDA and batch systems write it.
_NOTHING = ("-1", "NoDevFiles")


def visible_devices(environment: Mapping[str, str] | None = None) -> tuple[Device, ...]:
    """Return the boards that CUDA programs see, in the order of the variable.

    MIG instances stand for their parent board, once: what is measured is the board,
    with all that runs on its other instances.

    Parameters
    ----------
    environment : mapping, optional
        The process's own unless given.

    Raises
    ------
    NoDeviceError
        An entry that names no board, or more than one.
    InstrumentError
        Where the driver does not answer.
    """
    from probcalc.measurement import nvml

    environment = os.environ if environment is None else environment
    text = environment.get(VARIABLE)
    if text is not None and not _entries(text):
        return ()
    instances = nvml.mig_instances() if text and "MIG-" in text else {}
    order = environment.get("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    return selected(text, nvml.devices(), instances, order)


def selected(
    text: str | None,
    boards: Sequence[Device],
    instances: Mapping[str, str] | None = None,
    order: str = "FASTEST_FIRST",
) -> tuple[Device, ...]:
    """Return the boards that a value of CUDA_VISIBLE_DEVICES selects.

    Parameters
    ----------
    text : str or None
        Ordinals, UUIDs, parts of UUIDs that only one begins with, and MIG instances,
        separated by commas. None where the variable is not set: all boards; an empty
        one hides them all, "-1" all from there on.
    boards : sequence of Device
        All boards in the driver's order.
    instances : mapping, optional
        UUID of each MIG instance and that of its board.
    order : str
        CUDA_DEVICE_ORDER. Ordinals count boards by speed unless it is PCI_BUS_ID.

    Returns
    -------
    tuple of Device
        Each board once.

    Raises
    ------
    NoDeviceError
        An entry that names no board, or several, or one named before; ordinals of
        boards of different kinds that are not counted in PCI order.

    Examples
    --------
    >>> boards = [Device(f"GPU-{c}0", "", "A100", i, "") for i, c in enumerate("abcd")]
    >>> [board.uuid for board in selected("2,GPU-a", boards)]
    ['GPU-c0', 'GPU-a0']
    """
    if text is None:
        return tuple(boards)
    chosen: dict[str, Device] = {}
    named: set[str] = set()
    for entry in _entries(text):
        board, name = _board(entry, text, boards, instances or {}, order)
        if name in named:
            raise NoDeviceError(f"{VARIABLE}={text}: {entry!r} names a board again")
        named.add(name)
        chosen.setdefault(board.uuid, board)
    return tuple(chosen.values())


def _entries(text: str) -> list[str]:
    """Return the entries up to the first that hides the rest."""
    kept = []
    for entry in text.split(","):
        entry = entry.strip()
        if entry in _NOTHING:
            break
        kept.append(entry)
    return [] if kept == [""] else kept


def _board(
    entry: str,
    text: str,
    boards: Sequence[Device],
    instances: Mapping[str, str],
    order: str,
) -> tuple[Device, str]:
    """Return the board that an entry means, and the full name of what it means."""
    where = f"{VARIABLE}={text}: {entry!r}"
    if entry.isdecimal():
        return _by_ordinal(int(entry), where, boards, order)
    by_uuid = {board.uuid: board for board in boards}
    if entry.startswith("MIG-GPU-"):  # MIG-GPU-<uuid of the board>/<part>/<part>
        uuid = entry.removeprefix("MIG-").split("/", maxsplit=1)[0]
        return by_uuid[_unique(uuid, by_uuid, where, "board")], entry
    if entry.startswith("MIG-"):
        instance = _unique(entry, instances, where, "MIG instance")
        if instances[instance] not in by_uuid:
            raise NoDeviceError(f"{where} is on a board that does not answer")
        return by_uuid[instances[instance]], instance
    if entry.startswith("GPU-"):
        uuid = _unique(entry, by_uuid, where, "board")
        return by_uuid[uuid], uuid
    raise NoDeviceError(f"{where} is no ordinal and no UUID (GPU-..., MIG-...)")


def _by_ordinal(
    i: int, where: str, boards: Sequence[Device], order: str
) -> tuple[Device, str]:
    if i >= len(boards):
        raise NoDeviceError(f"{where} is not there: there are {len(boards)} boards")
    if order != "PCI_BUS_ID" and len({board.name for board in boards}) > 1:
        raise NoDeviceError(
            f"{where} depends on which kind of board CUDA takes for the faster; set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID or name the board by UUID"
        )
    return boards[i], boards[i].uuid


def _unique(prefix: str, names: Mapping[str, object], where: str, kind: str) -> str:
    """Return the one name that begins so."""
    if prefix in names:
        return prefix
    found = [name for name in names if name.lower().startswith(prefix.lower())]
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(names) or "none"
        raise NoDeviceError(f"{where} names no {kind}; there are: {known}")
    raise NoDeviceError(f"{where} names more than one {kind}: {', '.join(found)}")
