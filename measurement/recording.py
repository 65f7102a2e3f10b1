"""Recorded or made-up power over time: the truth that a replay is read from."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.readonly import reduced

__all__ = ["COLUMNS", "Recording"]

FloatArray = npt.NDArray[np.float64]

COLUMNS = ("t_s", "power_w", "temp_c", "sm_mhz")
# Where a recording does not tell them: degree Celsius, MHz.
_TEMPERATURE, _SM_CLOCK = 40.0, 1410.0


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """True power of a board over time, linear between rows and constant outside.

    Parameters
    ----------
    time : FloatArray, shape (rows,)
        In s, ascending.
    power : FloatArray, shape (rows,)
        In W.
    temperature : FloatArray, shape (rows,), optional
        In degree Celsius, held until the next row; 40 where not given.
    sm_clock_mhz : FloatArray, shape (rows,), optional
        Held likewise; 1410 where not given.

    Raises
    ------
    InputError
        Empty, of different lengths, not finite, times not ascending, power below 0.

    Examples
    --------
    >>> time = np.array([0.0, 1.0, 1.001, 3.0])
    >>> step = Recording(time, np.array([60.0, 60.0, 300.0, 300.0]))
    >>> float(step.energy(3.0))
    659.88
    """

    time: FloatArray
    power: FloatArray
    temperature: FloatArray | None = None
    sm_clock_mhz: FloatArray | None = None
    _joules: FloatArray | None = None

    def __post_init__(self) -> None:
        """Check and freeze the columns, and integrate power."""
        size = np.size(self.time)
        for name, given, otherwise in (
            ("time", self.time, None),
            ("power", self.power, None),
            ("temperature", self.temperature, _TEMPERATURE),
            ("sm_clock_mhz", self.sm_clock_mhz, _SM_CLOCK),
        ):
            column = np.full(size, otherwise) if given is None else given
            _keep(self, name, _column(column, name, size))
        late = np.flatnonzero(np.diff(self.time) <= 0.0)
        if late.size:
            i = int(late[0]) + 1
            raise InputError(
                f"recording: time[{i}] is {self.time[i]:g} s, expected more than the "
                f"{self.time[i - 1]:g} s before it"
            )
        if self.power.min() < 0.0:
            i = int(np.argmin(self.power))
            raise InputError(
                f"recording: power[{i}] is {self.power[i]:g} W, expected a number >= 0"
            )
        steps = 0.5 * (self.power[1:] + self.power[:-1]) * np.diff(self.time)
        _keep(self, "_joules", np.concatenate([[0.0], np.cumsum(steps)]))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    @classmethod
    def from_csv(cls, path: str | Path) -> Recording:
        """Read a file with the columns t_s, power_w and perhaps temp_c and sm_mhz.

        Raises
        ------
        InputError
            A column missing or a value that is no number; names file and line.
        """
        path = Path(path)
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            header = [name.strip() for name in next(rows, [])]
            if not {"t_s", "power_w"} <= set(header):
                raise InputError(
                    f"{path}: columns are {', '.join(header) or 'none'}, expected "
                    "t_s, power_w[, temp_c[, sm_mhz]]"
                )
            columns: dict[str, list[float]] = {n: [] for n in COLUMNS if n in header}
            for row in rows:
                for name, values in columns.items():
                    values.append(_number(row, header.index(name), name, path, rows))
        arrays = {name: np.array(values) for name, values in columns.items()}
        return cls(
            arrays["t_s"], arrays["power_w"], arrays.get("temp_c"), arrays.get("sm_mhz")
        )

    def repeated(self, times: int) -> Recording:
        """Return the recording that many times in a row, a mean step between them."""
        step = float(np.diff(self.time).mean()) if self.time.size > 1 else 1.0
        span = float(self.time[-1] - self.time[0]) + step
        shifts = np.repeat(span * np.arange(times), self.time.size)
        return Recording(
            np.tile(self.time, times) + shifts,
            np.tile(self.power, times),
            np.tile(self._given(self.temperature), times),
            np.tile(self._given(self.sm_clock_mhz), times),
        )

    def energy(self, t: npt.ArrayLike) -> FloatArray:
        """Return the integral of power in J from the first row to times in s."""
        t = np.asarray(t, dtype=float)
        i = np.clip(
            np.searchsorted(self.time, t, side="right") - 1, 0, self.time.size - 1
        )
        there = np.interp(t, self.time, self.power)
        part = 0.5 * (self.power[i] + there) * (t - self.time[i])
        return self._given(self._joules)[i] + part

    def mean(self, end: npt.ArrayLike, width: float) -> FloatArray:
        """Return the mean power in W over the `width` s before times in s."""
        end = np.asarray(end, dtype=float)
        if width <= 0.0:
            return np.interp(end, self.time, self.power)
        start = end - width
        return (self.energy(end) - self.energy(start)) / (end - start)

    def temperature_at(self, t: float) -> float:
        """Return the temperature in degree Celsius of the last row at or before t."""
        return float(self._given(self.temperature)[self._row(t)])

    def sm_clock_mhz_at(self, t: float) -> float:
        """Return the clock in MHz of the last row at or before t in s."""
        return float(self._given(self.sm_clock_mhz)[self._row(t)])

    def _row(self, t: float) -> int:
        return max(int(np.searchsorted(self.time, t, side="right")) - 1, 0)

    @staticmethod
    def _given(column: FloatArray | None) -> FloatArray:
        assert column is not None  # filled in when the recording was made
        return column


def _keep(recording: Recording, name: str, column: FloatArray) -> None:
    column.setflags(write=False)
    object.__setattr__(recording, name, column)


def _column(values: npt.ArrayLike, name: str, size: int) -> FloatArray:
    column = np.array(values, dtype=float)
    if column.shape != (size,) or not size:
        raise InputError(
            f"recording: {name} has shape {column.shape}, expected one value for each "
            f"of {size} rows, at least one"
        )
    bad = np.flatnonzero(~np.isfinite(column))
    if bad.size:
        raise InputError(
            f"recording: {name}[{bad[0]}] is {column[bad[0]]}, expected a finite number"
        )
    return column


def _number(row: list[str], i: int, name: str, path: Path, rows: Any) -> float:
    try:
        return float(row[i])
    except (IndexError, ValueError):
        found = row[i].strip() if i < len(row) else "nothing"
        raise InputError(
            f"{path}, line {rows.line_num}: {name} is {found!r}, expected a number"
        ) from None
