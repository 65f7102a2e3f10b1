"""Quantities with units, read at the door and turned into SI numbers.

Inside the package everything is seconds, joules, watts and hertz; a text with a
unit exists only in plan files and on the command line, and is read here.
"""

from __future__ import annotations

import functools
import math
import re
from decimal import Decimal
from typing import Any

from probcalc.errors import InputError, UnitError

__all__ = ["DIMENSIONS", "quantity", "shown", "unit_factor"]

DIMENSIONS = {
    "time": "s",
    "energy": "J",
    "power": "W",
    "frequency": "Hz",
    "number": "",
}
"""Name of every dimension read at the door, and its SI unit."""

_EXAMPLES = {
    "time": "1.55 ms",
    "energy": "3.4 J",
    "power": "60 W",
    "frequency": "1410 MHz",
    "number": "0.95",
}
_MAX_LENGTH = 200
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
# Letters joined by products and quotients, each with at most a small power: all
# that a unit needs, and nothing that a general expression parser could choke on.
_FACTOR = r"(?:[A-Za-zµμΩ]+(?:(?:\^|\*\*)-?[0-9])?)"
_UNIT = re.compile(rf"%|{_FACTOR}(?:(?: *[*/·] *| +){_FACTOR}){{0,5}}")
_UNCERTAIN = re.compile(r"[±(]|\+/-|\+-")


@functools.cache
def _registry() -> Any:
    """Pint's registry, with decimal numbers so that 1.55 ms is 0.00155 s exactly."""
    import pint

    registry: Any = pint.UnitRegistry
    return registry(non_int_type=Decimal)


@functools.lru_cache(maxsize=256)
def _to_si(unit: str, dimension: str) -> Decimal | str:
    """Factor to SI, or the text that says why there is none."""
    if unit == "%":
        return Decimal("0.01") if dimension == "number" else "is a share of something"
    if unit == "":
        return Decimal(1) if dimension == "number" else "has no unit"
    if dimension == "number":
        return "is not wanted"
    if _UNIT.fullmatch(unit) is None:
        return "is no unit"
    import pint

    try:
        one = _registry().Quantity(Decimal(1), unit.replace("·", "*"))
        return Decimal(one.to(DIMENSIONS[dimension]).magnitude)
    except pint.DimensionalityError:
        return f"is not a unit of {dimension}"
    # Pint raises what its own grammar and its offset units come to.
    except (pint.PintError, AttributeError, ValueError, ArithmeticError, TypeError):
        return "is no known unit"


def _expected(dimension: str) -> str:
    if dimension == "number":
        return f"expected a number without a unit such as {_EXAMPLES[dimension]!r}"
    article = "an" if dimension == "energy" else "a"
    return f"expected {article} {dimension} such as {_EXAMPLES[dimension]!r}"


def unit_factor(unit: str, *, dimension: str, where: str) -> float:
    """Size of one `unit` in the SI unit of `dimension`.

    Parameters
    ----------
    unit : str
        Such as ``"ms"`` or ``"kWh"``; empty for a dimensionless number.
    dimension : str
        A key of `DIMENSIONS`.
    where : str
        What the unit belongs to, for the message.

    Raises
    ------
    UnitError
        Unknown unit, or one of another dimension.

    Examples
    --------
    >>> unit_factor("ms", dimension="time", where="element 'rms', time")
    0.001
    """
    found = _to_si(unit.strip()[:_MAX_LENGTH], dimension)
    if isinstance(found, str):
        expected = f"a unit of {dimension} such as {DIMENSIONS[dimension]!r}"
        raise UnitError(f"{where}: {unit[:60]!r} {found}; expected {expected}")
    return float(found)


def quantity(value: str | float, *, dimension: str, where: str) -> float:
    """SI value of a number with a unit, or of a sum of such numbers.

    Parameters
    ----------
    value : str or float
        ``"1.55 ms"``, ``"3 J + 2 kJ"``, or a plain number, taken to be in the SI
        unit of `dimension`.
    dimension : str
        A key of `DIMENSIONS`: what the value must be.
    where : str
        What the value belongs to, for the message.

    Returns
    -------
    float
        Correctly rounded value in s, J, W, Hz or 1; finite.

    Raises
    ------
    UnitError
        No unit, an unknown one, or one of another dimension.
    InputError
        Not a number, not finite, or an uncertain number such as ``3 (-1/+4)``,
        which stands for no distribution until one is stated.

    Examples
    --------
    >>> quantity("1.55 ms", dimension="time", where="element 'rms', time")
    0.00155
    >>> quantity("3 J + 2 kJ", dimension="energy", where="limit")
    2003.0
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(
            f"{where}: {shown(value)} is no quantity; {_expected(dimension)}"
        )
    if not isinstance(value, str):
        return _finite(value, value, dimension, where)
    if len(value) > _MAX_LENGTH:
        raise InputError(
            f"{where}: text of {len(value)} characters is no quantity;"
            f" {_expected(dimension)}"
        )
    text = value.strip()
    if _UNCERTAIN.search(text):
        raise InputError(
            f"{where}: {value!r} is uncertain but states no law; give a distribution,"
            " for example { distribution = 'lognormal', mean = '3 J', cv = 0.1 }"
        )
    total = Decimal(0)
    for sign, term in _terms(text):
        number = _NUMBER.match(term)
        if number is None:
            raise UnitError(f"{where}: {value!r} has no number; {_expected(dimension)}")
        unit = term[number.end() :].strip()
        factor = _to_si(unit, dimension)
        if isinstance(factor, str):
            what = f"unit {unit!r} of {value!r}" if unit else f"{value!r}"
            raise UnitError(f"{where}: {what} {factor}; {_expected(dimension)}")
        try:
            total += sign * Decimal(number[0]) * factor
        except ArithmeticError:
            raise InputError(
                f"{where}: {value!r} is out of range; {_expected(dimension)}"
            ) from None
    return _finite(total, value, dimension, where)


def _terms(text: str) -> list[tuple[int, str]]:
    """Split a sum ``3 J + 2 kJ`` into signed terms; a sign of a number stays."""
    parts = re.split(r"\s+([+-])\s+", text)
    terms = [(1, parts[0])]
    for sign, part in zip(parts[1::2], parts[2::2], strict=True):
        terms.append((1 if sign == "+" else -1, part))
    return terms


def _finite(
    value: float | Decimal, found_in: object, dimension: str, where: str
) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InputError(
            f"{where}: {shown(found_in)} is not finite; {_expected(dimension)}"
        )
    return found


def shown(value: object) -> str:
    """Text of a value for a message: one line, at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
