"""Right quantiles of sums and maxima, known to twenty digits and more.

The reference values were computed outside the project, in ball or 40-digit
arithmetic or in closed form (file ``reference/laws.json`` beside the checkout,
where it is present). Those short enough to quote stand here as well, so that the
same checks run everywhere; where the file is present the two must agree.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.composed import (
    Variable,
    maximum,
    mixture,
    repeat,
    sum_of,
)
from probcalc.distribution import Constant, Empirical, Quantile
from probcalc.errors import ToleranceError

LEVELS = ("0.5", "0.01", "0.001", "1e-6", "1e-9")
WIDTH = 1e-4

#: case -> the quantiles at the five LEVELS
KNOWN: dict[str, tuple[str, ...]] = {
    # Sum of n iid lognormal(0, 0.5).
    "a2": (
        "2.118740544441676616684228157",
        "4.970638426250541418273272015",
        "6.638183960070987855766211558",
        "12.96247923502824353600603499",
        "22.50824537428112212965486647",
    ),
    "a16": (
        "17.96040076965552846817197471",
        "24.53545543789581294972127067",
        "27.26740657413901056868737267",
        "34.83835300577449567325106941",
        "44.1537926888369289289107926",
    ),
    "a128": (
        "144.8677790575196209549445982",
        "161.7237673234923038089702401",
        "167.7296956165240905608001897",
        "181.7322970229422892929778792",
        "193.1965870505439870807681154",
    ),
    # Sum of 64 gammas of shape 1/2 + (i mod 16)/4: Gamma(152).
    "b1": (
        "151.666796933495784255080651008",
        "182.142595981234126466729662419",
        "192.964020060479914237596048469",
        "217.95656778084268698298338196",
        "237.963620633767331452965047813",
    ),
    # Largest of 8 iid lognormal(0, 0.5).
    "c1": (
        "1.99890399984832746136102142175",
        "4.53128686282459230961416166024",
        "6.24058494936019481434346621371",
        "13.1819782826489927743011055969",
        "23.6530429668406862408475078418",
    ),
    # max(A + B, C + D), all independent.
    "d": (
        "2.728133462609545028576",
        "5.501986226463650764033",
        "6.921317777586212478224",
        "12.24387094232534068249",
        "21.28125962094084999757",
    ),
    # max(A + B, A + C) with ONE draw of A: the shared ancestor.
    "f": (
        "2.531720545339581872876",
        "5.353592388034028558858",
        "6.89533671270113174419",
        "12.63631864874036096429",
        "21.7638063067461457539",
    ),
    # The same where A is (wrongly) drawn once for each operand.
    "f_resampled": (
        "2.658183752905140758041",
        "5.447421067568854340068",
        "7.010433640645990991183",
        "13.01239394097438686641",
        "22.54111643075528131243",
    ),
    # Sum of 64 iid: 0 with probability 0.9, else Exp(1).
    "h": (
        "5.918231522933209344494397",
        "16.47837074281802942816723",
        "21.07729817884426490390223",
        "33.02291353243491569438768",
        "43.69240459442851172216939",
    ),
    # Sum of 4 iid Levy(0, 1): Levy(0, 16).
    "g2": (
        "35.16974941308371846399485",
        "101853.8301616996995885497",
        "10185911.02454713039741651",
        "10185916357875.96815587523",
        "10185916357881301483.87523",
    ),
    # Sum of 2 and of 16 iid Pareto(1, 1.5): infinite variance. Talbot inversion of
    # (1 - (1.5 p^1.5 Gamma(-1.5, p))^n)/p at 50 digits, two degrees agreeing.
    "pareto2": (
        "3.665091009538910838846",
        "36.83878644536843904104",
        "161.6499716506093984634",
        "15877.00957520391149967",
        "1587404.051958750113225",
    ),
    "pareto16": (
        "38.46894974500692575951",
        "180.0877640651885775714",
        "679.6013633235409430339",
        "63541.03853468004886674",
        "6349649.20783736256782",
    ),
}
HEAVY = ("g2", "pareto2", "pareto16")


def _lognormal(mu: float, sigma: float) -> Any:
    return stats.lognorm(sigma, scale=math.exp(mu))


def _expression(case: str) -> Any:
    a, c = _lognormal(0.0, 0.5), _lognormal(0.2, 0.4)
    b, d = stats.gamma(2, scale=0.5), stats.gamma(3, scale=0.4)
    match case:
        case "a2" | "a16" | "a128":
            return repeat(a, int(case[1:]))
        case "b1":
            return sum_of(*[stats.gamma(0.5 + (i % 16) / 4) for i in range(64)])
        case "c1":
            return maximum(*[a] * 8)
        case "d":
            return maximum(sum_of(a, b), sum_of(c, d))
        case "f":
            shared = Variable("A", a)
            return maximum(sum_of(shared, b), sum_of(shared, c))
        case "f_resampled":
            return maximum(sum_of(a, b), sum_of(a, c))
        case "h":
            return repeat(mixture([0.9, 0.1], [Constant(0.0), stats.expon()]), 64)
        case "g2":
            return repeat(stats.levy(), 4)
        case "pareto2" | "pareto16":
            return repeat(stats.pareto(1.5), int(case[6:]))
    raise ValueError(case)


def _assert_right(found: Quantile, truth: str, width: float = WIDTH) -> None:
    right = Fraction(truth)
    assert found.kind == "certified"
    assert Fraction(found.lower) <= right <= Fraction(found.upper), (found, truth)
    assert found.lower <= found.value <= found.upper
    assert found.upper - found.lower <= width * abs(found.value), found


CASES = [
    (case, sf, truth)
    for case, values in KNOWN.items()
    for sf, truth in zip(LEVELS, values, strict=True)
]


@pytest.mark.parametrize(
    ("case", "sf", "truth"), [row for row in CASES if row[0] not in HEAVY]
)
def test_quantile_inside_narrow_certified_bracket(
    case: str, sf: str, truth: str
) -> None:
    _assert_right(_expression(case).quantile(sf=float(sf), rtol=WIDTH), truth)


@pytest.mark.parametrize(
    ("case", "sf", "truth"), [row for row in CASES if row[0] in HEAVY]
)
def test_heavy_tail_is_right_or_refused(case: str, sf: str, truth: str) -> None:
    answer = _answer(_expression(case), float(sf))
    if isinstance(answer, Quantile):
        _assert_right(answer, truth)
        return
    assert "\n" not in str(answer)
    if answer.best is not None:
        right = Fraction(truth)
        assert Fraction(answer.best.lower) <= right
        assert math.isinf(answer.best.upper) or right <= Fraction(answer.best.upper)


def _answer(law: Any, sf: float) -> Quantile | ToleranceError:
    try:
        return law.quantile(sf=sf, rtol=WIDTH)
    except ToleranceError as refusal:
        return refusal


def test_shared_ancestor_is_drawn_once() -> None:
    once = _expression("f").quantile(sf=0.5)
    twice = _expression("f_resampled").quantile(sf=0.5)
    assert once.lower <= 2.531720545339582 <= once.upper
    assert twice.lower <= 2.658183752905141 <= twice.upper
    # The brackets are disjoint: the two models are told apart with certainty.
    assert once.upper < twice.lower


def test_shared_leaf_found_through_separately_built_operands() -> None:
    """Name and law identify a variable, not the identity of the Python object."""

    def operand(other: Any) -> Any:
        return sum_of(Variable("A", _lognormal(0.0, 0.5)), other)

    law = maximum(operand(stats.gamma(2, scale=0.5)), operand(_lognormal(0.2, 0.4)))
    _assert_right(law.quantile(sf=0.001), KNOWN["f"][2])


def test_tail_probability_agrees_with_the_quantiles() -> None:
    """``ccdf`` at the reference quantile is the level, to the density's rounding."""
    for case in ("a16", "b1", "d", "f", "h"):
        law = _expression(case)
        for sf, truth in zip(LEVELS, KNOWN[case], strict=True):
            found = law.probability_above(float(truth))
            # The truth is rounded to a double: at most 1e-12 relative in sf here.
            level = float(sf)
            assert found.lower <= level * (1 + 1e-12), (case, sf, found)
            assert level * (1 - 1e-12) <= found.upper, (case, sf, found)


# ---- the same from the file, where it is ---------------------------------------


@pytest.fixture
def reference(shared_data: Any) -> dict[str, Any]:
    path = shared_data("reference/laws.json")
    return json.loads(path.read_text(encoding="utf-8"))["cases"]


def test_quoted_values_are_those_of_the_file(reference: dict[str, Any]) -> None:
    rows = {case: body["x"] for case, body in reference.items() if "x" in body}
    rows |= {f"a{n}": body["x"] for n, body in reference["a"]["n"].items()}
    rows["f_resampled"] = reference["f"]["x_if_A_is_wrongly_resampled"]
    quoted = set(KNOWN) - {"pareto2", "pareto16"}
    assert quoted | {"e1"} == set(rows)
    for case in quoted:
        assert tuple(rows[case][sf] for sf in LEVELS) == KNOWN[case], case


@pytest.mark.parametrize("sf", LEVELS)
def test_sum_of_32_empirical_laws_is_exact(
    sf: str, reference: dict[str, Any], shared_data: Any
) -> None:
    """Case e1: thirty-two laws of 1,000 points, all multiples of 1/1024."""
    with np.load(shared_data("reference/e_samples.npz")) as archive:
        rows = archive["ints"] / 1024.0
    found = sum_of(*[Empirical(row) for row in rows]).quantile(sf=float(sf))
    right = reference["e1"]["x_times_1024"][sf] / 1024
    assert found.kind == "certified"
    # Integer inputs on one quantum: the answer is a lattice point, with no width.
    assert found.lower == found.value == found.upper == right


def test_sum_of_32_empirical_laws_off_the_lattice(shared_data: Any) -> None:
    """The measured floats themselves: a bracket around the rounded laws' answer.

    ``ints`` is ``raws`` times 1024 rounded to nearest, so that each of the 32
    terms moves by at most 1/2048 and the quantile by at most 32/2048.
    """
    with np.load(shared_data("reference/e_samples.npz")) as archive:
        ints, raws = archive["ints"], archive["raws"]
    shift = float(np.abs(raws - ints / 1024).max()) * 32
    assert shift <= 32 / 2048 + 1e-12
    law = sum_of(*[Empirical(row) for row in raws])
    for sf, near in (("0.5", 47.552734375), ("1e-6", 122.8671875)):
        found = law.quantile(sf=float(sf))
        assert found.lower <= near + shift
        assert found.upper >= near - shift
        assert found.upper - found.lower <= WIDTH * found.value
