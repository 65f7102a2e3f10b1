"""Signatures: what was measured of one element under one context, by block and run.

The unit is the block, a fresh process. Blocks may have made different numbers of runs:
arrays are padded with NaN up to the longest, and `runs` says how many each block made.
A run that is missing within its block is NaN as well; its window says why. Nothing
missing is ever zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.measurement import signature_checks as checks
from probcalc.measurement.documents import as_json, frozen
from probcalc.measurement.window_record import Window
from probcalc.readonly import reduced
from probcalc.shared import Shared

if TYPE_CHECKING:
    from probcalc.element import Element

__all__ = ["Signature", "Window"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_DOCUMENTS = (
    "context",
    "workload",
    "implementation",
    "operating_point",
    "device_facts",
    "probe",
    "calibration",
    "metadata",
)
#: What all blocks of a signature have in common; to differ in it is another signature.
COMMON = (
    "grain",
    "devices",
    "scope",
    "static_power",
    "static_power_error",
    "workload",
    "implementation",
    "operating_point",
    "device_facts",
    "calibration",
)


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """Times and energies of one element under one context, as measured.

    Parameters
    ----------
    element : str
        One line.
    context : mapping
        Under which it was measured: plain data (texts, numbers, lists, mappings).
    time, energy : FloatArray, shape (blocks, runs)
        In s and J per execution; means over `grain` executions where that is above 1.
        NaN where missing.
    runs : IntArray, shape (blocks,)
        How many runs each block made, missing ones included; beyond them NaN.
    block_names : tuple of str
        Distinct; without them "0", "1" and so on.
    grain : int
        1 for laws of single executions, k for means over k of them.
    devices : tuple of str
        Where the element ran.
    static_power, static_power_error : mapping of str to float, optional
        By device in W: ready idle, and its standard error.
    run_time : FloatArray, shape (blocks, executions), optional
        Times in s of single executions where the grain is above 1.
    executions : IntArray, shape (blocks,), optional
        How many of them each block made.
    scope : str
        What the energy covers: "board", "module" and so on; never mixed.
    windows : tuple of Window
        Of energy, invalid ones with their reasons.
    workload, implementation, operating_point : optional
        The paper's theta, kappa and omega, as plain data.
    device_facts, probe, calibration, metadata : mapping, optional
        The boards and their driver; what their instruments are worth; how static
        power was found; all else.
    block_details : tuple of mapping, optional
        What is known of each block: temperatures, process, versions.

    Raises
    ------
    InputError
        Shapes that do not fit, values negative, zero or infinite, values beyond the
        runs of a block, a window that contradicts the arrays.

    Examples
    --------
    >>> s = Signature.from_blocks("rms", [[1.0, 1.1], [1.2]], [[90.0, 99.0], [108.0]])
    >>> s.energy
    array([[ 90.,  99.],
           [108.,  nan]])
    >>> s.runs
    array([2, 1])
    """

    element: str
    time: FloatArray
    energy: FloatArray
    runs: IntArray
    context: Mapping[str, Any] = field(default_factory=dict)
    block_names: tuple[str, ...] = ()
    grain: int = 1
    devices: tuple[str, ...] = ("gpu0",)
    static_power: Mapping[str, float] | None = None
    static_power_error: Mapping[str, float] | None = None
    run_time: FloatArray | None = None
    executions: IntArray | None = None
    scope: str = "board"
    windows: tuple[Window, ...] = ()
    workload: Any = None
    implementation: Any = None
    operating_point: Any = None
    device_facts: Mapping[str, Any] = field(default_factory=dict)
    probe: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    block_details: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Check and freeze all that is given."""
        where = checks.named(self.element)
        runs = checks.counts(self.runs, f"{where}, runs")
        blocks = runs.size
        fill = {"runs": runs, "grain": checks.whole(self.grain, f"{where}, grain")}
        for name, unit in (("time", "s"), ("energy", "J")):
            fill[name] = checks.table(
                getattr(self, name), runs, f"{where}, {name}", unit
            )
        if fill["time"].shape != fill["energy"].shape:
            raise InputError(
                f"{where}: time has shape {fill['time'].shape} and energy "
                f"{fill['energy'].shape}, expected the same"
            )
        fill["run_time"], fill["executions"] = checks.singles(
            self.run_time, self.executions, blocks, self.grain, where
        )
        fill["block_names"] = checks.labels(self.block_names, blocks, where)
        fill["devices"] = checks.devices(self.devices, where)
        fill["scope"] = checks.text(self.scope, f"{where}, scope")
        for name in ("static_power", "static_power_error"):
            fill[name] = checks.watts_of(
                getattr(self, name), fill["devices"], f"{where}, {name}"
            )
        for name in _DOCUMENTS:
            fill[name] = frozen(getattr(self, name), f"{where}, {name}")
        for name in ("context", "device_facts", "probe", "calibration", "metadata"):
            if not isinstance(fill[name], Mapping):
                raise InputError(f"{where}, {name}: expected a mapping")
        fill["block_details"] = checks.details(self.block_details, blocks, where)
        fill["windows"] = checks.windows(
            self.windows, fill["energy"], runs, fill["scope"], where
        )
        for name, value in fill.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with arrays that stay read-only."""
        return reduced(self)

    def __repr__(self) -> str:
        """Name, blocks, runs and grain."""
        return (
            f"<Signature {self.element!r}: {self.runs.size} blocks, "
            f"{int(self.runs.sum())} runs, grain {self.grain}>"
        )

    @classmethod
    def from_blocks(
        cls,
        element: str,
        time: Sequence[npt.ArrayLike],
        energy: Sequence[npt.ArrayLike],
        *,
        run_time: Sequence[npt.ArrayLike] | None = None,
        **fields: Any,
    ) -> Signature:
        """Make a signature of blocks that may have different numbers of runs.

        Parameters
        ----------
        time, energy : sequence of array_like, shape (runs of the block,)
            One for each block, in s and J; NaN where missing.
        run_time : sequence of array_like, optional
            Times of single executions, one array for each block.
        **fields
            As for `Signature`.
        """
        where = checks.named(element)
        times, runs = checks.padded(time, f"{where}, time")
        energies, also = checks.padded(energy, f"{where}, energy")
        if runs.tolist() != also.tolist():
            raise InputError(
                f"{where}: blocks have {runs.tolist()} times and {also.tolist()} "
                "energies, expected one of each for every run"
            )
        if run_time is not None:
            single, count = checks.padded(run_time, f"{where}, run_time")
            fields |= {"run_time": single, "executions": count}
        return cls(element, times, energies, runs, **fields)

    @property
    def made(self) -> npt.NDArray[np.bool_]:
        """Which cells are runs that were made, shape (blocks, runs)."""
        return np.arange(self.time.shape[1])[None, :] < self.runs[:, None]

    @property
    def complete(self) -> npt.NDArray[np.bool_]:
        """Which cells have both a time and an energy, shape (blocks, runs)."""
        return np.isfinite(self.time) & np.isfinite(self.energy)

    @property
    def key(self) -> str:
        """What makes it this signature and no other: element and context, as JSON."""
        return as_json([self.element, self.context])

    def to_element(
        self,
        *,
        name: str | None = None,
        static_power: float | Mapping[str, float] | None = None,
        shared: Shared | Sequence[Shared] | None = None,
        conflicts: Literal["raise", "keep"] = "raise",
    ) -> Element:
        """Return the element whose law is the measured runs, blocks kept.

        Runs without a time or an energy are left out and counted in the element's
        metadata, "runs_missing". A grain above 1 stays with the element, so that it
        cannot be composed as if it were per run.

        Parameters
        ----------
        name : str, optional
            Another name.
        static_power : float or mapping, optional
            In W, instead of the stored one.
        shared : Shared or sequence, optional
            Without it the error of the static power, where one is stored.
        conflicts : {"raise", "keep"}
            As for `Element.from_runs`.

        Raises
        ------
        InputError
            No run with both a time and an energy; no static power; as for
            `Element.from_runs`.
        """
        from probcalc.element import Element

        where = f"signature {self.element!r}"
        kept = self.complete
        if not kept.any():
            raise InputError(f"{where}: no run has both a time and an energy")
        power = self.static_power if static_power is None else static_power
        if power is None:
            raise InputError(
                f"{where}: no static power was measured; state static_power in W"
            )
        if shared is None:
            shared = () if static_power is not None else self.static_power_factors()
        block, _ = np.nonzero(kept)
        return Element.from_runs(
            self.element if name is None else name,
            time=self.time[kept],
            energy=self.energy[kept],
            blocks=[self.block_names[i] for i in block],
            static_power=power,
            devices=self.devices,
            grain=self.grain,
            conflicts=conflicts,
            shared=shared,
            workload=self.workload,
            implementation=self.implementation,
            operating_point=self.operating_point,
            metadata={
                **self.metadata,
                "context": self.context,
                "device_facts": self.device_facts,
                "scope": self.scope,
                "runs_missing": int(self.made.sum() - kept.sum()),
            },
        )

    def static_power_factors(self) -> tuple[Shared, ...]:
        """Return the error of the static power, shared by all elements of the board.

        A normal around 1, cut at 0, called by the calibration's "name" or
        "calibration:" and the device.

        Raises
        ------
        InputError
            Several devices: a factor scales what they draw together.
        """
        if not self.static_power_error or not self.static_power:
            return ()
        if len(self.devices) > 1:
            raise InputError(
                f"signature {self.element!r}: errors of static power on "
                f"{len(self.devices)} devices; state shared=..., or shared=() to leave "
                "them out"
            )
        device = next(iter(self.devices))
        if not self.static_power_error[device]:
            return ()
        from scipy import stats

        sd = self.static_power_error[device] / self.static_power[device]
        law = stats.truncnorm(-1.0 / sd, np.inf, loc=1.0, scale=sd)
        name = str(self.calibration.get("name", f"calibration:{device}"))
        return (Shared(name, law, acts_on="static_power"),)

    def to_arviz(self, *, ragged: Literal["keep", "cut"] = "keep") -> Any:
        """Return times and energies for ArviZ: chain is the block, draw the run.

        Parameters
        ----------
        ragged : {"keep", "cut"}
            Cells without a value stay NaN, which most diagnostics answer with NaN;
            or all blocks are cut after the last run before any that is missing, and
            how many runs that leaves out is told in the attribute "runs_left_out".

        Returns
        -------
        InferenceData or DataTree
            By what the installed ArviZ uses; the values are in its group posterior.
        """
        from probcalc.measurement.arviz_door import inference_data

        return inference_data(self, ragged)

    def extended(self, other: Signature) -> Signature:
        """Return this signature with the blocks of another one after its own.

        Blocks that both have, equal in all values, are kept once. Where probe or
        metadata differ, those of the other one go with its blocks.

        Raises
        ------
        InputError
            What blocks must have in common differs; a block of the same name with
            other values.
        """
        from probcalc.measurement.signature_blocks import extended

        return extended(self, other)

    def same_as(self, other: Signature) -> bool:
        """Whether all that it holds is equal, values bit for bit."""
        for each in fields(self):
            a, b = getattr(self, each.name), getattr(other, each.name)
            if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
                if a is None or b is None or not np.array_equal(a, b, equal_nan=True):
                    return False
            elif as_json(_plainly(a)) != as_json(_plainly(b)):
                return False
        return True


def _plainly(value: Any) -> Any:
    """Return a field that is no array as plain data."""
    is_windows = isinstance(value, tuple) and value and isinstance(value[0], Window)
    return [w.as_dict() for w in value] if is_windows else value
