"""Quantities with units: read exactly, or refused by name."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probcalc.errors import InputError, UnitError
from probcalc.units import DIMENSIONS, quantity, shown, unit_factor


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("1.55 ms", "time", 0.00155),
        ("1.55ms", "time", 0.00155),
        ("2 us", "time", 2e-6),
        ("2 µs", "time", 2e-6),
        ("3 min", "time", 180.0),
        ("-2 ms", "time", -0.002),
        ("3 J + 2 kJ", "energy", 2003.0),
        ("3 kJ - 1 J", "energy", 2999.0),
        ("1 kWh", "energy", 3.6e6),
        ("1 kW h", "energy", 3.6e6),
        ("2 W*s", "energy", 2.0),
        ("1e3 mJ", "energy", 1.0),
        ("60 W", "power", 60.0),
        ("60 J/s", "power", 60.0),
        ("1410 MHz", "frequency", 1.41e9),
        ("5 %", "number", 0.05),
        ("0.95", "number", 0.95),
        (7, "time", 7.0),
        (0.1, "energy", 0.1),
    ],
)
def test_reads_the_nearest_double(
    text: str | float, dimension: str, value: float
) -> None:
    assert quantity(text, dimension=dimension, where="x") == value


@pytest.mark.parametrize(
    ("text", "dimension", "error", "words"),
    [
        ("J + s", "energy", UnitError, "has no number"),
        ("3 J + 2 s", "energy", UnitError, "unit 's' of '3 J + 2 s' is not a unit of"),
        ("60 W", "time", UnitError, "expected a time such as '1.55 ms'"),
        ("3 m", "time", UnitError, "'m'"),
        ("20 degC", "time", UnitError, "'degC'"),
        ("3 (-1/+4)", "energy", InputError, "uncertain but states no law"),
        ("3 ± 1 J", "energy", InputError, "states no law"),
        ("3 +/- 1 J", "energy", InputError, "states no law"),
        ("1.55(2) ms", "time", InputError, "states no law"),
        ("3", "time", UnitError, "has no unit"),
        ("3 J", "number", UnitError, "expected a number without a unit"),
        ("5 %", "time", UnitError, "share of something"),
        ("", "time", UnitError, "has no number"),
        ("nan s", "time", UnitError, "has no number"),
        ("1e400 s", "time", InputError, "not finite"),
        ("1e999999 s", "time", InputError, "not finite"),
        ("5 furlongish", "time", UnitError, "no known unit"),
        ("9**9**9 s", "time", UnitError, "is no unit"),
        ("__import__('os')", "time", InputError, "states no law"),
        ("1" * 300 + " s", "time", InputError, "302 characters"),
        (math.nan, "time", InputError, "not finite"),
        (math.inf, "power", InputError, "not finite"),
        (10**400, "time", InputError, "not finite"),
        (True, "time", InputError, "no quantity"),
        (None, "time", InputError, "no quantity"),
        ([1], "time", InputError, "no quantity"),
    ],
)
def test_refuses_by_name(
    text: object, dimension: str, error: type[InputError], words: str
) -> None:
    with pytest.raises(error) as caught:
        quantity(text, dimension=dimension, where="element 'rms', time")  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith("element 'rms', time: ")
    assert words in message
    assert "\n" not in message


def test_unit_of_a_column() -> None:
    assert unit_factor("ms", dimension="time", where="x") == 0.001
    assert unit_factor("kJ", dimension="energy", where="x") == 1000.0
    with pytest.raises(UnitError, match=r"'J' is not a unit of time; expected"):
        unit_factor("J", dimension="time", where="x")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_in_its_own_unit_is_itself(value: float) -> None:
    assert quantity(f"{value!r} s", dimension="time", where="x") == value


@given(st.text(max_size=30), st.sampled_from(sorted(DIMENSIONS)))
def test_any_text_is_a_finite_number_or_refused(text: str, dimension: str) -> None:
    value, message = 0.0, "x: "
    try:
        value = quantity(text, dimension=dimension, where="x")
    except InputError as error:
        message = str(error)
    assert math.isfinite(value)
    assert message.startswith("x: ")


def test_what_a_message_shows_is_short() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) == 60
    assert shown(16**5000) == "a number of thousands of digits"
