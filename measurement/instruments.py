"""Meters from plain data, so that another process opens the same one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probcalc.errors import InputError
from probcalc.measurement.meter import Meter

__all__ = ["meter_of", "nvml", "replay"]

_REPLAY = ("trace", "repeated", "period", "reading_window", "counter", "averaging")


def nvml(device: str) -> dict[str, Any]:
    """Name a board by its UUID, PCI id or index in the driver's own order."""
    return {"kind": "nvml", "device": device}


def replay(trace: str | Path, **sensor: Any) -> dict[str, Any]:
    """Name a recorded trace that stands in for a board, from its start in real time.

    Parameters
    ----------
    trace : str or Path
        CSV as `probcalc.measurement.recording.Recording.from_csv` reads it.
    **sensor
        ``period``, ``reading_window``, ``counter``, ``averaging`` as for
        `probcalc.measurement.replay.ReplayBoard`; ``repeated``, how often the trace is
        played.
    """
    unknown = set(sensor) - set(_REPLAY)
    if unknown:
        raise InputError(
            f"replay: {sorted(unknown)[0]!r} found; expected {', '.join(_REPLAY[1:])}"
        )
    return {"kind": "replay", "trace": str(Path(trace).resolve()), **sensor}


def meter_of(named: Mapping[str, Any]) -> Meter:
    """Open the meter that `nvml` or `replay` named.

    Raises
    ------
    InputError
        Another kind, or a trace that cannot be read.
    InstrumentError
        No driver, no such board.
    """
    kind = named.get("kind")
    if kind == "nvml":
        from probcalc.measurement.nvml import NvmlMeter

        return NvmlMeter(str(named["device"]))
    if kind == "replay":
        from probcalc.measurement.clock import HostClock
        from probcalc.measurement.recording import Recording
        from probcalc.measurement.replay import ReplayBoard, ReplayMeter

        sensor = {k: v for k, v in named.items() if k not in ("kind", "trace")}
        try:
            recording = Recording.from_csv(named["trace"])
        except OSError as error:
            raise InputError(
                f"replay: {named['trace']}: {error.strerror or error}"
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(f"replay: {named['trace']}: is not UTF-8 text") from error
        repeated = int(sensor.pop("repeated", 1))
        if repeated > 1:
            recording = recording.repeated(repeated)
        return ReplayMeter(ReplayBoard(recording, **sensor), HostClock())
    raise InputError(f"meter: kind is {kind!r}, expected 'nvml' or 'replay'")
