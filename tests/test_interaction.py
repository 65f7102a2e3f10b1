"""The interaction graph: conditions, false edges among many pairs, and its use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.term import Term
from probcalc.validation.insensitivity import (
    history_insensitive,
    interference_insensitive,
)
from probcalc.validation.interaction import (
    Condition,
    Interaction,
    InteractionGraph,
    coarsened,
    conditions_of,
    interaction_of,
    unsafe_parts,
    with_tests,
)
from tests.measured_runs import ENERGY_SD, runs


def element(name: str, device: str = "gpu0") -> Element:
    return Element(name, time=1.0, static_power=50.0, device=device)


A, B, C = element("a"), element("b"), element("c")
PAIR = element("pair")


def after(element: str, *others: str) -> Condition:
    return Condition("history", element, others)


def beside(element: str, *others: str) -> Condition:
    return Condition("interference", element, others)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (A, set()),
        (A >> B, {after("b", "a")}),
        (A >> B >> C, {after("b", "a"), after("c", "b"), after("c", "a", "b")}),
        (A | B, {beside("a", "b"), beside("b", "a")}),
        (
            A >> (B | C),
            {after("b", "a"), after("c", "a"), beside("b", "c"), beside("c", "b")},
        ),
        (A**5, {after("a", "a")}),
        (
            A | B | C,
            {
                *(beside(x, y) for x in "abc" for y in "abc" if x != y),
                beside("a", "b", "c"),
                beside("b", "a", "c"),
                beside("c", "a", "b"),
            },
        ),
    ],
)
def test_conditions(term: Term, expected: set[Condition]) -> None:
    assert set(conditions_of(term)) == expected


def test_many_pairs_give_few_false_edges() -> None:
    """380 pairs, ten of them real: about five percent of the edges may be false."""
    rng = np.random.default_rng(1)
    tests = []
    plain = 0
    for i in range(380):
        null, other = (
            runs(rng, blocks=6),
            runs(rng, blocks=6, shift=12.0 if i < 10 else 0.0),
        )
        verdict = history_insensitive(null, other, margin=0.0, levels=(), tail=None)
        test = interaction_of(after(f"x{i}", "y"), null, other, verdict)
        tests.append(test)
        plain += i >= 10 and test.p <= 0.05
    graph = with_tests(InteractionGraph(), tests)
    names = {t.condition.element for t in graph.edges}
    assert names >= {f"x{i}" for i in range(10)}
    assert len(names) - 10 <= 4
    assert graph.nodes[-1] == "y"
    assert plain > 0  # uncorrected, there are false ones


def real(condition: Condition, rng: np.random.Generator, shift: float) -> Interaction:
    null, other = runs(rng, blocks=10), runs(rng, blocks=10, shift=shift)
    compared = (
        history_insensitive if condition.kind == "history" else interference_insensitive
    )
    return interaction_of(
        condition, null, other, compared(null, other, margin=2 * ENERGY_SD)
    )


def test_the_five_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    term = A >> B >> C
    assert set(unsafe_parts(InteractionGraph(), term).untested) == set(
        conditions_of(term)
    )
    graph = with_tests(
        InteractionGraph(),
        [
            real(after("b", "a"), rng, 20.0),
            real(after("c", "b"), rng, 0.0),
            real(after("c", "a", "b"), rng, 0.0),
            real(beside("a", "b"), rng, 0.0),
        ],
    )
    found = unsafe_parts(graph, term)
    assert [e.condition for e in found.edges] == [after("b", "a")]
    assert found.untested == ()
    assert found.edges[0].outcome == "refuted"
    # Characterise the pair as one element, and compose again.
    mended = coarsened(term, (A, B), PAIR)
    assert str(mended) == "pair >> c"
    assert unsafe_parts(graph, mended).edges == ()
    # And keep what was learnt.
    file = tmp_path / "graph.json"
    graph.save(file)
    again = InteractionGraph.load(file)
    assert again.edges[0].condition == after("b", "a")
    assert [t.p for t in again.tests] == [t.p for t in graph.tests]
    again.draw(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").stat().st_size > 1000


def test_a_newer_test_replaces_the_older() -> None:
    rng = np.random.default_rng(3)
    graph = with_tests(InteractionGraph(), [real(after("b", "a"), rng, 20.0)])
    assert len(graph.edges) == 1
    graph = with_tests(graph, [real(after("b", "a"), rng, 0.0)])
    assert len(graph.tests) == 1
    assert graph.edges == ()
    assert with_tests(InteractionGraph(), []).tests == ()


def test_coarsening() -> None:
    assert str(coarsened((A >> B) ** 3 >> C, A >> B, PAIR)) == "pair ** 3 >> c"
    both = element("both")
    assert str(coarsened(C >> (A | B), A | B, both)) == "c >> both"
    with pytest.raises(InputError, match="does not occur"):
        coarsened(A >> C, (A, B), PAIR)
    with pytest.raises(InputError, match="expected"):
        coarsened(A >> B, (A, B), element("pair", "gpu1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "expected an interaction graph"),
        ('{"version": 2}', "expected an interaction graph"),
        ('{"version": 1, "tests": [{}], "rate": 0.05}', "KeyError"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "graph.json"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        InteractionGraph.load(file)


def test_bad_conditions() -> None:
    with pytest.raises(InputError, match="no others"):
        Condition("history", "a", ())
    with pytest.raises(InputError, match="kind is 'nearby'"):
        Condition("nearby", "a", ("b",))  # type: ignore[arg-type]
