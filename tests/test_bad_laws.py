"""Bad input to laws and operators: a typed error of one line that says what and why."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.composed import (
    Variable,
    expected_shortfall,
    maximum,
    minimum,
    mixture,
    probability_above,
    product,
    quantile,
    repeat,
    scale,
    shift,
    sum_of,
)
from probcalc.distribution import Constant, Empirical, as_law
from probcalc.errors import InputError, ProbcalcError
from probcalc.lattice import Lattice

NAN, INF = math.nan, math.inf


def untyped(value: Any) -> Any:
    """Return a value that a type checker would not let through."""
    return value


TWO = Empirical([1.0, 2.0])
LAW = sum_of(TWO, TWO)

#: what is wrong -> (call, words that the message must have)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    # Measured runs.
    "empty samples": (lambda: Empirical([]), r"no samples.*at least one"),
    "NaN sample": (lambda: Empirical([1.0, NAN]), r"sample 1 .*NaN"),
    "only NaN samples": (
        lambda: Empirical([NAN], nan="omit"),
        r"no samples.*at least one",
    ),
    "infinite sample": (lambda: Empirical([1.0, 2.0, INF]), r"sample 2 .*finite"),
    "minus infinite sample": (lambda: Empirical([-INF]), r"sample 0 .*finite"),
    "matrix of samples": (lambda: Empirical(np.ones((2, 2))), r"one-dimensional.*2, 2"),
    "scalar sample": (lambda: Empirical(3.0), r"one-dimensional"),
    "words as samples": (lambda: Empirical(["fast", "slow"]), r"must be numbers"),
    "numbers as text": (lambda: Empirical(["1.5", "2"]), r"must be numbers"),
    "complex samples": (lambda: Empirical([1j, 2.0]), r"must be numbers"),
    "ragged samples": (lambda: Empirical([[1.0], [1.0, 2.0]]), r"must be numbers"),
    "unknown nan rule": (lambda: Empirical([1.0], nan=untyped("zero")), r"nan.*'zero'"),
    # Weights.
    "weights too short": (
        lambda: Empirical([1.0, 2.0], weights=[1.0]),
        r"weights.*2 runs",
    ),
    "negative weight": (
        lambda: Empirical([1.0, 2.0], weights=[2.0, -1.0]),
        r"weight 1 .*-1",
    ),
    "NaN weight": (
        lambda: Empirical([1.0, 2.0], weights=[NAN, 1.0]),
        r"weight 0 .*nan",
    ),
    "infinite weight": (
        lambda: Empirical([1.0, 2.0], weights=[1.0, INF]),
        r"weight 1 .*inf",
    ),
    "zero mass": (lambda: Empirical([1.0, 2.0], weights=[0, 0]), r"sum to zero"),
    "words as weights": (
        lambda: Empirical([1.0, 2.0], weights=["a", "b"]),
        r"weight",
    ),
    # Blocks.
    "blocks too short": (
        lambda: Empirical([1.0, 2.0], blocks=[0]),
        r"1 block labels? for 2 runs",
    ),
    "blocks of unequal kind": (
        lambda: Empirical([1.0, 2.0], blocks=[0, "a"]),
        r"kinds.*int.*str",
    ),
    "unhashable block label": (
        lambda: Empirical([1.0, 2.0], blocks=untyped([[0], [1]])),
        r"block label",
    ),
    # Lattices.
    "step zero": (lambda: Lattice(0, 0.0, [1.0]), r"step.*positive"),
    "step NaN": (lambda: Lattice(0, NAN, [1.0]), r"step.*positive"),
    "offset not whole": (lambda: Lattice(untyped(0.5), 1.0, [1.0]), r"offset.*integer"),
    "offset NaN": (lambda: Lattice(untyped(NAN), 1.0, [1.0]), r"offset.*integer"),
    "no lattice mass": (lambda: Lattice(0, 1.0, []), r"non-empty"),
    "negative lattice mass": (lambda: Lattice(0, 1.0, [2.0, -1.0]), r"mass 1 .*-1"),
    "zero lattice mass": (lambda: Lattice(0, 1.0, [0.0, 0.0]), r"zero"),
    "lattice mass of two": (lambda: Lattice(0, 1.0, [1.0, 1.0]), r"sum to 2"),
    "negative lost mass": (
        lambda: Lattice(0, 1.0, [1.0], lost_above=-0.1),
        r"lost.*>= 0",
    ),
    "unknown rounding": (
        lambda: Lattice(0, 1.0, [1.0], rounding=untyped("even")),
        r"rounding.*'even'",
    ),
    # What is no law.
    "text for a law": (lambda: sum_of(TWO, "3 J"), r"'3 J'"),
    "None for a law": (lambda: maximum(TWO, None), r"None"),
    "list for a law": (lambda: sum_of([1.0, 2.0]), r"Empirical"),
    "array for a law": (lambda: sum_of(np.array([1.0, 2.0]), TWO), r"Empirical"),
    "bool for a law": (lambda: as_law(True), r"True"),
    "complex for a law": (lambda: as_law(1j), r"1j"),
    "NaN for a law": (lambda: sum_of(TWO, NAN), r"finite.*nan"),
    "infinity for a law": (lambda: maximum(TWO, INF), r"finite.*inf"),
    "NaN constant": (lambda: Constant(NAN), r"finite.*nan"),
    "SciPy law not frozen": (lambda: sum_of(stats.norm), r"norm"),
    "SciPy law of bad parameters": (lambda: sum_of(stats.norm(0, -1)), r"norm.*-1"),
    "SciPy law of NaN parameters": (lambda: sum_of(stats.norm(NAN, 1)), r"norm.*nan"),
    "SciPy law of array parameters": (
        lambda: sum_of(stats.norm([0, 1], 1)),
        r"norm.*array",
    ),
    "multivariate SciPy law": (
        lambda: sum_of(stats.multivariate_normal([0, 0])),
        r"multivariate",
    ),
    # Operators.
    "sum of nothing": (lambda: sum_of(), r"sum_of.*at least one"),
    "maximum of nothing": (lambda: maximum(), r"maximum.*at least one"),
    "minimum of nothing": (lambda: minimum(), r"minimum.*at least one"),
    "repeat 0 times": (lambda: repeat(TWO, 0), r"repeat.*0"),
    "repeat a negative number": (lambda: repeat(TWO, -3), r"repeat.*-3"),
    "repeat 2.5 times": (lambda: repeat(TWO, untyped(2.5)), r"repeat.*2\.5"),
    "repeat NaN times": (lambda: repeat(TWO, untyped(NAN)), r"repeat.*nan"),
    "repeat True times": (lambda: repeat(TWO, True), r"repeat.*True"),
    "repeat '3' times": (lambda: repeat(TWO, untyped("3")), r"repeat.*'3'"),
    "negative factor": (lambda: scale(TWO, -1.0), r"factor.*-1"),
    "NaN factor": (lambda: scale(TWO, NAN), r"factor.*nan"),
    "infinite factor": (lambda: scale(TWO, INF), r"factor.*inf"),
    "text factor": (lambda: scale(TWO, untyped("2")), r"factor.*'2'"),
    "NaN offset": (lambda: shift(TWO, NAN), r"offset.*nan"),
    "infinite offset": (lambda: shift(TWO, -INF), r"offset.*inf"),
    "mixture of nothing": (lambda: mixture([], []), r"mixture.*at least one"),
    "mixture of unequal lengths": (
        lambda: mixture([0.5, 0.5], [TWO]),
        r"2 weights.*1 law",
    ),
    "mixture weights not one": (lambda: mixture([0.5, 0.2], [1, 2]), r"0\.7"),
    "mixture weight negative": (lambda: mixture([1.5, -0.5], [1, 2]), r"-0\.5"),
    "mixture weight NaN": (lambda: mixture([NAN, 1.0], [1, 2]), r"nan"),
    "mixture of no mass": (lambda: mixture([0.0, 0.0], [1, 2]), r"weight"),
    "factor law not positive": (
        lambda: product(Empirical([-1.0, 1.0]), TWO),
        r"factor.*must not be negative.*-1\.0",
    ),
    "variable without a name": (lambda: Variable("", TWO), r"name"),
    "variable of no law": (lambda: Variable("A", "law"), r"'law'"),
    "one name, two laws": (
        lambda: sum_of(Variable("A", 1.0), Variable("A", 2.0)).quantile(0.5),
        r"'A'.*(two|differ)",
    ),
    # Questions.
    "p = 0": (lambda: LAW.quantile(0.0), r"p .*between 0 and 1.*0\.0"),
    "p = 1": (lambda: LAW.quantile(1.0), r"p .*between 0 and 1.*1\.0"),
    "p = 2": (lambda: LAW.quantile(2), r"p .*between 0 and 1.*2"),
    "p negative": (lambda: quantile(TWO, -0.1), r"p .*between 0 and 1.*-0\.1"),
    "p NaN": (lambda: quantile(TWO, NAN), r"p .*between 0 and 1.*nan"),
    "p text": (lambda: LAW.quantile(untyped("0.5")), r"p .*'0\.5'"),
    "p array": (lambda: LAW.quantile(untyped([0.5, 0.9])), r"p .*\[0\.5, 0\.9\]"),
    "sf = 0": (lambda: LAW.quantile(sf=0.0), r"sf .*between 0 and 1.*0\.0"),
    "sf = 1": (lambda: quantile(TWO, sf=1.0), r"sf .*between 0 and 1.*1\.0"),
    "both p and sf": (lambda: LAW.quantile(0.5, sf=0.5), r"exactly one of p and sf"),
    "neither p nor sf": (lambda: LAW.quantile(), r"exactly one of p and sf"),
    "shortfall at p = 1": (lambda: LAW.expected_shortfall(1.0), r"p .*between 0 and 1"),
    "shortfall without level": (
        lambda: expected_shortfall(TWO),
        r"exactly one of p and sf",
    ),
    "rtol = 0": (lambda: LAW.quantile(0.5, rtol=0.0), r"rtol.*positive.*0\.0"),
    "rtol negative": (lambda: LAW.quantile(0.5, rtol=-1e-4), r"rtol.*-0\.0001"),
    "rtol NaN": (lambda: LAW.quantile(0.5, rtol=NAN), r"rtol.*nan"),
    "memory = 0": (lambda: LAW.quantile(0.5, memory=0), r"memory.*0"),
    "limit NaN": (lambda: LAW.probability_above(NAN), r"limit.*NaN"),
    "limit text": (lambda: probability_above(TWO, untyped("3 J")), r"limit.*'3 J'"),
    "text for a law in a question": (lambda: quantile("law", 0.5), r"'law'"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_refused_in_one_clear_line(kind: str) -> None:
    call, words = BAD[kind]
    with pytest.raises(InputError) as refusal:
        call()
    message = str(refusal.value)
    assert "\n" not in message
    assert re.search(words, message), message
    assert len(message) <= 240, message
    assert isinstance(refusal.value, ProbcalcError)
    assert isinstance(refusal.value, ValueError)


def test_there_are_enough_kinds() -> None:
    assert len(BAD) >= 25
