"""How every block of a campaign measures."""

from __future__ import annotations

from dataclasses import dataclass

from probcalc.errors import InputError

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How every block measures.

    Parameters
    ----------
    windows : int
        Windows of energy in a block (callables); runs of a command.
    seconds : float or None
        Length of a window in s; without it 12 update periods of the source, 2 s at
        least.
    idle : float
        Seconds of ready idle measured before and after the windows.
    timer : str
        As `probcalc.measurement.timers.timer_of`.
    dephase : bool or None
        Random idle gaps between repetitions; without it where the sensor needs them.
    settle : float
        Seconds let pass before idle power is measured, for power that is averaged.
    interval : float
        Seconds between polls, as asked.
    warm_limit : float
        Longest warm-up in s.
    thermal_limit : float
        Longest time in s to wait for the start temperature of the first block; 0 does
        not wait.
    """

    windows: int = 5
    seconds: float | None = None
    idle: float = 3.0
    timer: str = "auto"
    dephase: bool | None = None
    settle: float = 1.5
    interval: float = 0.01
    warm_limit: float = 60.0
    thermal_limit: float = 0.0

    def __post_init__(self) -> None:
        """Check ranges."""
        if isinstance(self.windows, bool) or not isinstance(self.windows, int):
            raise InputError(f"windows is {self.windows!r}, expected a whole number")
        if self.windows < 1:
            raise InputError(f"windows is {self.windows}, expected at least 1")
        for name in (
            "seconds",
            "idle",
            "settle",
            "interval",
            "warm_limit",
            "thermal_limit",
        ):
            value = getattr(self, name)
            if value is None and name == "seconds":
                continue
            least = 0.0 if name in ("thermal_limit", "settle") else 1e-3
            if not (isinstance(value, float | int) and least <= value < 1e6):
                raise InputError(
                    f"{name} is {value!r}, expected seconds from {least:g} to 1e6"
                )
