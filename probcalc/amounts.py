"""What the nodes of a plan add to the sums of a sample: power times time, energies.

Elements that differ in nothing but their device are one kind, so that tables stay
small however many devices there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from probcalc.distribution import Constant
from probcalc.drawtable import LawTables
from probcalc.element import Element
from probcalc.factors import Factors
from probcalc.plan import Plan
from probcalc.precedence import check_serial
from probcalc.setting import key_of

__all__ = ["Amounts", "Kind", "Worth", "amounts_of", "kinds_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Key = tuple[str, ...]

#: Quanta of the largest atom of energy.
MOST_QUANTA = 1 << 30
#: Bits of the sums that grow with times, of the power in them at most.
SUM_BITS = 61
POWER_BITS = 40


class Kind(NamedTuple):
    """What a node does, without where.

    Attributes
    ----------
    time, own : int
        Tables of T, and of d where it has a draw of its own (else 0).
    pair : bytes
        d of each run, where it goes with T (else empty).
    key : tuple of str
        Shared factors that d stands under.
    beyond : tuple of (tuple of str, float)
        Power in W beyond the baselines, by shared factors.
    constant : float
        d in J where it is the same in every run and nothing scales it, else 0.
    """

    time: int
    own: int = 0
    pair: bytes = b""
    key: Key = ()
    beyond: tuple[tuple[Key, float], ...] = ()
    constant: float = 0.0


class Worth(NamedTuple):
    """Atoms as whole numbers from `least` on, uniform up to less than a width more.

    Attributes
    ----------
    least, widths : ndarray, shape (atoms,)
        Ticks or quanta; a width is 0 or at least 1.
    """

    least: FloatArray
    widths: FloatArray

    @classmethod
    def of(cls, middles: FloatArray, widths: FloatArray, unit: float) -> Self:
        """Turn middles and widths of intervals into units, before they are rounded."""
        wide = widths / unit
        wide = np.where(wide < 1.0, 0.0, wide)
        # The mean of floor(u w) with u uniform: n (n - 1) / 2 + n f over w = n + f.
        n = np.floor(wide)
        mean = (0.5 * n * (n - 1.0) + n * (wide - n)) / np.maximum(wide, 1.0)
        return cls(middles / unit - mean, wide)

    @property
    def most(self) -> float:
        """Largest number."""
        return float((self.least + self.widths).max())


@dataclass(frozen=True, slots=True, eq=False)
class Amounts:
    """What the sums of a sample stand for.

    Attributes
    ----------
    charge_keys, energy_keys : tuple of tuple of str
        Shared factors under which each sum stands.
    charge_units : tuple of float
        Joules of one in each sum that grows with times.
    quantum : float
        Joules of one in the sums of energies.
    constants : tuple of (tuple of str, float)
        Energy in J that is the same in every sample, by shared factors.
    paired, apart : bool
        Whether energies go with times, or have draws of their own.
    most_charge, most_energy : float
        Bounds in J of all sums that grow with times, and of all energies.
    """

    charge_keys: tuple[Key, ...] = ()
    energy_keys: tuple[Key, ...] = ()
    charge_units: tuple[float, ...] = ()
    quantum: float = 1.0
    constants: tuple[tuple[Key, float], ...] = ()
    paired: bool = False
    apart: bool = False
    most_charge: float = 0.0
    most_energy: float = 0.0

    @property
    def sums(self) -> int:
        """Sums of a sample."""
        return len(self.charge_keys) + len(self.energy_keys)


def kinds_of(
    plan: Plan, laws: LawTables, factors: Factors, *, energy: bool
) -> tuple[list[Kind], IntArray]:
    """Kinds of nodes, the first for lanes without one, and the kind of each node.

    Raises
    ------
    InputError
        A law that cannot be drawn from a table.
    CompositionError
        Nodes that can overlap on a device and draw another power than its baseline.
    """
    scaled = bool(factors.energy.any())
    known: dict[Kind, int] = {Kind(0): 0}
    numbers = []
    for e in plan.elements:
        kind = Kind(laws.add(e.time, f"element {e.name!r}, time"))
        if energy:
            beyond = plan.account.beyond(e)
            check_serial(plan, e)
            own, pair, constant = _energy(e, laws, scaled)
            charged = tuple(sorted(beyond.items()))
            kind = Kind(kind.time, own, pair, key_of(e, "energy"), charged, constant)
        numbers.append(known.setdefault(kind, len(known)))
    return list(known), np.array(numbers, dtype=np.int64)[plan.element_of]


def _energy(e: Element, laws: LawTables, scaled: bool) -> tuple[int, bytes, float]:
    """Table of a draw of its own, runs that go with T, or a constant."""
    law = e.dynamic_energy
    if e.runs is not None:
        joules = e.runs.dynamic_energy
        if scaled or np.ptp(joules) > 0.0:
            return 0, joules.tobytes(), 0.0
        return 0, b"", float(joules[0])
    if isinstance(law, Constant):
        if scaled and law.value > 0.0:
            return laws.constant(law.value), b"", 0.0
        return 0, b"", law.value
    return laws.add(law, f"element {e.name!r}, dynamic energy"), b"", 0.0


def amounts_of(
    plan: Plan,
    laws: LawTables,
    kinds: Sequence[Kind],
    kind_of: IntArray,
    factors: Factors,
    ticks: Sequence[Worth],
    tick: float,
) -> tuple[Amounts, dict[str, npt.NDArray[Any]]]:
    """Tables of all kinds, as fields of `probcalc.kernels.levelscan.Program`.

    Parameters
    ----------
    kind_of : ndarray of int64, shape (nodes,)
    ticks : sequence of Worth
        Of the atoms of each kind's time.
    tick : float
        In s.
    """
    runs = np.bincount(kind_of, minlength=len(kinds)).astype(float)
    most = float(factors.most.max())
    drawn = [(i, k) for i, k in enumerate(kinds) if k.own or k.pair]
    highest = np.zeros(len(kinds))
    for i, kind in drawn:
        joules = np.frombuffer(kind.pair) if kind.pair else laws.tables[kind.own].ends
        highest[i] = float(np.abs(joules).max())
    top = float(highest.max(initial=0.0)) * most
    quantum = 2.0 ** math.ceil(math.log2(top / MOST_QUANTA)) if top > 0.0 else 1.0
    keys = tuple(sorted({kind.key for _, kind in drawn}))
    constants: dict[Key, float] = {}
    for kind, count in zip(kinds, runs.tolist(), strict=True):
        if kind.constant and count:
            joules = constants.get(kind.key, 0.0)
            constants[kind.key] = joules + kind.constant * count
    member = np.zeros((len(keys), len(kinds)), dtype=np.int64)
    for i, kind in drawn:
        member[keys.index(kind.key), i] = 1
    tables = _tables(laws, kinds, ticks, quantum)
    charge_keys, units, coefficient, charged = _charges(
        kinds, runs, factors, ticks, tick
    )
    return Amounts(
        charge_keys,
        keys,
        units,
        quantum,
        tuple(sorted(constants.items())),
        paired=any(kind.pair for kind in kinds),
        apart=any(kind.own for kind in kinds),
        most_charge=charged,
        most_energy=float(highest @ runs) * most
        + sum(abs(joules) for joules in constants.values()),
    ), tables | {"member": member, "coefficient": coefficient}


def _charges(
    kinds: Sequence[Kind],
    runs: FloatArray,
    factors: Factors,
    ticks: Sequence[Worth],
    tick: float,
) -> tuple[tuple[Key, ...], tuple[float, ...], IntArray, float]:
    """Keys, joules of one, what a tick adds to each, and a bound of all in J."""
    keys = tuple(sorted({key for kind in kinds for key, _ in kind.beyond}))
    power = np.zeros((len(keys), len(kinds)))
    for i, kind in enumerate(kinds):
        for key, watts in kind.beyond:
            power[keys.index(key), i] = watts
    longest = np.array([t.most for t in ticks]) * runs
    most = float(factors.most.max())
    units, coefficients, bound = [], [], 0.0
    for row in power:
        busy = max(float((longest * (row != 0.0)).sum()) * most, 1.0)
        bits = min(SUM_BITS - math.ceil(math.log2(busy)), POWER_BITS)
        unit = 2.0 ** math.ceil(math.log2(float(np.abs(row).max())) - bits)
        units.append(unit * tick)
        coefficients.append(np.rint(row / unit))
        bound += float(np.abs(row) @ longest) * most * tick
    coefficient = np.array(coefficients, dtype=np.int64).reshape(power.shape)
    return keys, tuple(units), coefficient, bound


def _tables(
    laws: LawTables, kinds: Sequence[Kind], ticks: Sequence[Worth], quantum: float
) -> dict[str, npt.NDArray[Any]]:
    """Alias tables of all laws with what their rows are worth."""
    from probcalc.kernels.alias import lengths

    worth = {kind.time: whole for kind, whole in zip(kinds, ticks, strict=True)}
    # A law of times that is one of energies too has a table for each.
    places = [(kind.time, False) for kind in kinds] + [(k.own, True) for k in kinds]
    places = list(dict.fromkeys(places))
    first: dict[tuple[int, bool], int] = {}
    limits, values, slopes, cells = [], [], [], 0
    for law, of_energy in places:
        table = laws.alias(law)
        amount = worth.get(law)
        if of_energy or amount is None:
            middles, _, widths, _ = laws.tables[law]
            amount = Worth.of(middles, widths, quantum)
        first[law, of_energy] = cells
        limits.append(table[0])
        values.append(np.rint(_by_row(amount.least, table[1])).ravel())
        each = _by_row(amount.widths, table[1]) / np.maximum(lengths(table[0]), 1)
        # A little less, so that the last word stays below the width.
        slopes.append(np.nextafter(each.astype(np.float32), np.float32(0.0)).ravel())
        cells += table[0].size
    # Rows of a kind without pairs lie among zeros.
    zeros = max(2 * laws.alias(k.time)[0].size for k in kinds if not k.pair)
    pairs, length = [np.zeros(zeros)], zeros
    known: dict[tuple[int, bytes], int] = {}
    pair_first = []
    for kind in kinds:
        at = 0
        if kind.pair:
            at = known.setdefault((kind.time, kind.pair), length)
            if at == length:
                atoms = laws.alias(kind.time)[1]
                quanta = np.rint(np.frombuffer(kind.pair) / quantum)
                pairs.append(_by_row(quanta, atoms).ravel())
                length += atoms.size
        pair_first.append(at - 2 * first[kind.time, False])
    bits = {law: laws.alias(law)[0].size.bit_length() - 1 for law, _ in places}
    return {
        "shift": np.array([32 - bits[k.time] for k in kinds], dtype=np.uint32),
        "own_shift": np.array([32 - bits[k.own] for k in kinds], dtype=np.uint32),
        "first": np.array([first[k.time, False] for k in kinds], dtype=np.int32),
        "own_first": np.array([first[k.own, True] for k in kinds], dtype=np.int32),
        "limits": np.concatenate(limits),
        "values": np.concatenate(values).astype(np.int32),
        "slopes": np.concatenate(slopes),
        "pair_first": np.array(pair_first, dtype=np.int32),
        "pairs": np.concatenate(pairs).astype(np.int32),
    }


def _by_row(amounts: FloatArray, atoms: npt.NDArray[np.int32]) -> FloatArray:
    """Amounts of atoms by the rows of an alias table; none for padding."""
    padded = np.zeros(atoms.shape[0])
    padded[: amounts.size] = amounts
    return padded[atoms]
