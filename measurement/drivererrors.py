"""NVML's error numbers as typed exceptions: the one map, for the driver and replays."""

from __future__ import annotations

from probcalc.measurement.faults import (
    DeviceLostError,
    DriverMissingError,
    InstrumentError,
    NoDeviceError,
    NoPermissionError,
    NotReadyError,
    NotSupportedError,
)

__all__ = ["driver_error"]

# NVML's error numbers (nvml.h): what is raised, what it means and what to do.
_ERRORS: dict[int, tuple[type[InstrumentError], str]] = {
    1: (InstrumentError, "NVML was shut down; open the meter again"),
    2: (InstrumentError, "NVML refused an argument"),
    3: (NotSupportedError, "the board does not answer this query"),
    4: (NoPermissionError, "no permission; run as root or ask the administrator"),
    6: (NoDeviceError, "not found"),
    9: (DriverMissingError, "the NVIDIA driver is not loaded; see nvidia-smi"),
    10: (NotReadyError, "timed out; try again"),
    12: (DriverMissingError, "libnvidia-ml.so.1 not found; install the NVIDIA driver"),
    13: (NotSupportedError, "this driver is too old for the query"),
    15: (DeviceLostError, "the board fell off the bus; see dmesg for an Xid"),
    16: (DeviceLostError, "the board needs a reset (nvidia-smi --gpu-reset)"),
    17: (NoPermissionError, "the operating system blocks it; check device cgroups"),
    18: (
        DriverMissingError,
        "library and driver versions do not fit; reboot or reload the driver",
    ),
    19: (NotReadyError, "the board is in use by another program; try again"),
    21: (NotReadyError, "no reading yet; try again"),
    25: (NotSupportedError, "this driver is too old for the query"),
    26: (NotSupportedError, "the driver has dropped this query"),
    27: (
        NotReadyError,
        "the driver is not ready; try later, other sources may answer",
    ),
    28: (NoDeviceError, "the board is not there"),
}


def driver_error(code: int, where: str) -> InstrumentError:
    """Return the exception for an NVML error number, with advice.

    Parameters
    ----------
    code : int
        As in nvml.h.
    where : str
        What was asked, and of which board.

    Examples
    --------
    >>> driver_error(3, "GPU-1: counter")
    NotSupportedError('GPU-1: counter: the board does not answer this query')
    """
    kind, meaning = _ERRORS.get(code, (InstrumentError, f"NVML error {code}"))
    return kind(f"{where}: {meaning}")
