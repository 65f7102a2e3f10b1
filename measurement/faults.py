"""Exceptions of instruments: each says why there is no reading, and what to do."""

from __future__ import annotations

from probcalc.errors import ProbcalcError

__all__ = [
    "ConflictError",
    "DeviceLostError",
    "DriverMissingError",
    "InstrumentError",
    "NoDeviceError",
    "NoPermissionError",
    "NoSourceError",
    "NotReadyError",
    "NotSupportedError",
    "OutOfRangeError",
]


class InstrumentError(ProbcalcError):
    """An instrument that gives no usable reading."""


class DriverMissingError(InstrumentError):
    """The NVML library or the driver is not there, or they do not fit together."""


class NoDeviceError(InstrumentError):
    """A device that was asked for does not exist or is not visible."""


class NotSupportedError(InstrumentError):
    """The board does not answer this query."""


class NoSourceError(InstrumentError):
    """No source of energy or power answers on the board."""


class NoPermissionError(InstrumentError):
    """The query needs rights that the user does not have."""


class NotReadyError(InstrumentError):
    """The driver is not ready for this query; others may still answer."""


class DeviceLostError(InstrumentError):
    """The board fell off the bus or needs a reset."""


class OutOfRangeError(InstrumentError):
    """A reading that cannot be true, such as power far above the limit."""


class ConflictError(InstrumentError):
    """Two instruments disagree over the same window by more than they may."""
