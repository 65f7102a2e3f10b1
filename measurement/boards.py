"""What a board tells of itself: names, limits, modes, MIG instances, scopes.

Every function takes `ask`, which calls the driver; nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probcalc.measurement.drivererrors import driver_error
from probcalc.measurement.faults import (
    InstrumentError,
    NoDeviceError,
    NoPermissionError,
    NoSourceError,
    NotReadyError,
    NotSupportedError,
)
from probcalc.measurement.meter import Device

__all__ = [
    "AVERAGE",
    "ENERGY",
    "INSTANT",
    "SCOPES",
    "Ask",
    "described",
    "field_value",
    "instances",
]

# Called with who is asked (for messages), a function of the driver, its arguments.
Ask = Callable[..., Any]

# Fields of nvmlDeviceGetFieldValues: energy, mean and instant power, limit.
ENERGY, AVERAGE, INSTANT, LIMIT = 83, 185, 186, 190
# Scopes of the power fields. On an ordinary board the first is all of it.
SCOPES: dict[str, int] = {"board": 0, "gpu": 0, "module": 1, "memory": 2}
# Where a field's value lies, by its type.
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
}


def _architecture(number: int) -> str:
    return _ARCHITECTURES.get(number, str(number))


# What else a board tells: fact, function, arguments, how its answer is kept.
_FACTS: tuple[tuple[str, str, tuple[int, ...], Callable[[Any], Any]], ...] = (
    ("vbios", "nvmlDeviceGetVbiosVersion", (), str),
    ("architecture", "nvmlDeviceGetArchitecture", (), _architecture),
    (
        "compute_capability",
        "nvmlDeviceGetCudaComputeCapability",
        (),
        lambda v: f"{v[0]}.{v[1]}",
    ),
    ("mig", "nvmlDeviceGetMigMode", (), lambda v: bool(v[0])),
    ("ecc", "nvmlDeviceGetEccMode", (), lambda v: bool(v[0])),
    ("persistence", "nvmlDeviceGetPersistenceMode", (), bool),
    ("sm_clock_mhz", "nvmlDeviceGetClockInfo", (1,), int),
    ("memory_clock_mhz", "nvmlDeviceGetClockInfo", (2,), int),
    ("largest_sm_clock_mhz", "nvmlDeviceGetMaxClockInfo", (1,), int),
    ("largest_memory_clock_mhz", "nvmlDeviceGetMaxClockInfo", (2,), int),
    (
        "default_power_limit",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        (),
        lambda limit_mw: limit_mw * 1e-3,
    ),
    (
        "power_limit_range",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        (),
        lambda limits_mw: [limit_mw * 1e-3 for limit_mw in limits_mw],
    ),
)


def described(ask: Ask, handle: Any, where: str) -> Device:
    """Return what a board tells of itself; what it does not answer is left out.

    Raises
    ------
    NoSourceError
        A board that does not even tell its name.
    """
    try:
        uuid = ask(where, "nvmlDeviceGetUUID", handle)
        pci = ask(where, "nvmlDeviceGetPciInfo", handle).busId
        name = ask(where, "nvmlDeviceGetName", handle)
    except NotSupportedError as error:
        raise NoSourceError(
            f"{where}: no energy source, the board does not even tell its name (an "
            "integrated GPU?); use the sensors of its own system"
        ) from error
    limit_mw = _optional(ask, where, "nvmlDeviceGetEnforcedPowerLimit", handle)
    facts = {
        fact: keep(value)
        for fact, function, arguments, keep in _FACTS
        if (value := _optional(ask, where, function, handle, *arguments)) is not None
    }
    return Device(
        uuid=uuid,
        pci_bus_id=pci.decode() if isinstance(pci, bytes) else pci,
        name=name,
        index=ask(where, "nvmlDeviceGetIndex", handle),
        driver=ask(where, "nvmlSystemGetDriverVersion"),
        power_limit=None if limit_mw is None else limit_mw * 1e-3,
        facts={**facts, **_module(ask, handle, where)},
    )


def instances(ask: Ask, board: Any, where: str) -> dict[str, str]:
    """Return the MIG instances of a board by UUID, each with the board's UUID."""
    mode = _optional(ask, where, "nvmlDeviceGetMigMode", board)
    if mode is None or not mode[0]:
        return {}
    parent = ask(where, "nvmlDeviceGetUUID", board)
    found = {}
    for i in range(ask(where, "nvmlDeviceGetMaxMigDeviceCount", board)):
        try:
            part = ask(where, "nvmlDeviceGetMigDeviceHandleByIndex", board, i)
        except NoDeviceError:  # a place that no instance takes
            continue
        found[ask(where, "nvmlDeviceGetUUID", part)] = parent
    return found


def field_value(value: Any, where: str) -> float | InstrumentError:
    """Return the value of one field, or why there is none.

    The call succeeds where any of its fields does, so that each is looked at.
    """
    if value.nvmlReturn:
        place = f"{where}: field {value.fieldId}, scope {value.scopeId}"
        return driver_error(int(value.nvmlReturn), place)
    if not 0 <= value.valueType < len(_VALUES):
        return InstrumentError(
            f"{where}: field {value.fieldId} is of type {value.valueType}, expected "
            f"0 to {len(_VALUES) - 1}"
        )
    return float(getattr(value.value, _VALUES[value.valueType]))


def _optional(ask: Ask, where: str, function: str, *arguments: Any) -> Any:
    """Return what a query answers, or None where it is not answered here."""
    try:
        return ask(where, function, *arguments)
    except (NotSupportedError, NoPermissionError, NotReadyError):
        return None


def _module(ask: Ask, handle: Any, where: str) -> dict[str, Any]:
    """Tell whether the board is a module with a CPU, and what `usage` then covers."""
    asked = [(INSTANT, 1), (AVERAGE, 0), (AVERAGE, 1), (LIMIT, 1)]
    answers = _optional(ask, where, "nvmlDeviceGetFieldValues", handle, asked)
    if answers is None:
        return {"module": False}
    power, gpu_mw, module_mw, limit_mw = (field_value(v, where) for v in answers)
    if isinstance(power, InstrumentError):
        return {"module": False}
    facts: dict[str, Any] = {"module": True, "usage_scope": "module"}
    if not isinstance(limit_mw, InstrumentError):
        facts["module_power_limit"] = limit_mw * 1e-3
    usage_mw = _optional(ask, where, "nvmlDeviceGetPowerUsage", handle)
    # The driver does not say which of the two this is: whichever it is nearer to.
    if usage_mw is None or isinstance(gpu_mw, InstrumentError):
        return facts
    if not isinstance(module_mw, InstrumentError):
        gpu = abs(usage_mw - gpu_mw) < abs(usage_mw - module_mw)
        facts["usage_scope"] = "gpu" if gpu else "module"
    return facts
