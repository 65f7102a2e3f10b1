"""The expression parser: precedence, positions, caps; typed error or result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probcalc.element import Element
from probcalc.errors import CompositionError, InputError, PlanError
from probcalc.expression import Size, Tree, names_in, parse, parse_all, parse_tree, size
from probcalc.term import Term

A, B, C, D = (
    Element(name, time=1.0, static_power=60.0, device="gpu0") for name in "abcd"
)
ON_ONE = {"a": A, "b": B, "c": C, "d": D}
E, F = (
    Element(f"far{i}", time=1.0, static_power=60.0, device=f"gpu{i}") for i in (1, 2)
)
NAMES = {**ON_ONE, "far1": E, "far2": F}


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a", A),
        ("a >> b", A >> B),
        ("a>>b>>c", A >> B >> C),
        ("a >> (b >> c)", A >> (B >> C)),
        ("a | b >> c", A | (B >> C)),
        ("(a | b) >> c", (A | B) >> C),
        ("a ** 3 >> b", (A**3) >> B),
        ("a >> b ** 3", A >> (B**3)),
        ("(a >> b) ** 3", (A >> B) ** 3),
        ("(a ** 2) ** 3", A**6),
        ("a & far1", A & E),
        ("a >> b & far1 >> far1", (A >> B) & (E >> E)),
        ("a & far1 | b & far1", (A & E) | (B & E)),
        ("\n  a\n  >> b\t", A >> B),
        ("((((a))))", A),
        ("a ** 1", A),
    ],
)
def test_builds_what_python_builds(text: str, term: Term) -> None:
    assert parse(text, NAMES) == term


# Whole numbers have the same four operators and Python's own precedence.
_expressions = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" >> ", " & ", " | ", ">>", "|"]), inner).map(
            "".join
        ),
        inner.map(lambda text: f"({text})"),
        st.sampled_from("abc").map(lambda name: f"{name} ** 2"),
    ),
    max_leaves=12,
)


@given(_expressions, st.tuples(*[st.integers(0, 20)] * 3))
def test_precedence_is_pythons(text: str, values: tuple[int, int, int]) -> None:
    names = dict(zip("abc", values, strict=True))
    code = compile(text, "expression", "eval")
    assert parse(text, names) == eval(code, {"__builtins__": {}}, names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "character 1: the expression ends; expected a name or '('"),
        ("a >>", "character 5: the expression ends; expected a name or '('"),
        ("a > b", "character 3: unexpected '>'; expected a name, '>>'"),
        ("a >> >> b", "character 6: unexpected '>>'; expected a name or '('"),
        ("(a >> b", "character 8: the expression ends; expected ')' to match '(' at"),
        ("a >> b)", "character 7: unexpected ')'; expected '>>', '&', '|', '**' or"),
        ("a b", "character 3: unexpected 'b'"),
        ("a + b", "character 3: unexpected '+'"),
        ("a ** b", "character 6: unexpected 'b'; expected a whole number of runs"),
        ("a ** 2.5", "character 7: unexpected '.'"),
        ("a ** -1", "character 6: unexpected '-'"),
        ("a ** 0", "character 6: 0 runs asked for; expected at least 1"),
        ("a ** 99999999999999", "runs asked for; at most 1,000,000,000 allowed"),
        ("a ** 2 ** 3", "character 8: unexpected '**'; expected parentheses"),
        ("a()", "character 2: unexpected '('"),
        ("__import__('os')", "character 12: unexpected"),
        ("a >> fra1", "character 6: unknown element 'fra1'; did you mean 'far1'?"),
        ("a >> linear", "character 6: unknown element 'linear'; known: a, b, c"),
        ("2 >> a", "character 1: unexpected '2'"),
        ("a\x00", r"character 2: unexpected '\x00'"),
    ],
)
def test_an_error_says_where(text: str, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text, NAMES, where="plan.toml: expression")
    found = str(caught.value)
    assert found.startswith("plan.toml: expression, character ")
    assert message in found
    assert "\n" not in found


def test_a_device_rule_is_named_with_its_place() -> None:
    with pytest.raises(
        CompositionError, match=r"^expression, '\|' at character 3: \| composes"
    ):
        parse("a | far1", NAMES)


def test_caps_come_before_memory() -> None:
    for text, words in (
        ("a" * 100_001, "100,001 characters; at most 100,000 allowed"),
        ("(" * 65 + "a" + ")" * 65, "more than 64 nested parentheses"),
        (">>".join("a" * 20_001), "more than 20,000 elements"),
        ("((a ** 999999999) >> b) ** 999999999", "more than 1,000,000,000 runs"),
    ):
        with pytest.raises(PlanError, match=words):
            parse(text, ON_ONE)
    assert parse("(" * 64 + "a" + ")" * 64, ON_ONE) is A


def test_a_tower_of_terms_is_counted_not_built() -> None:
    """Each term names the one before twice: 2^60 elements in 60 short lines."""
    texts = {"t0": "a >> a"} | {f"t{i}": f"t{i - 1} >> t{i - 1}" for i in range(1, 60)}
    texts[""] = "t59"
    with pytest.raises(PlanError, match=r"^t14: more than 20,000 elements"):
        parse_all(texts, ON_ONE, places={key: key for key in texts})


def test_terms_are_read_in_the_order_of_their_need() -> None:
    texts = {"": "layer ** 2", "layer": "half >> c", "half": "a >> b"}
    built = parse_all(texts, ON_ONE, places={key: key for key in texts})
    assert built[""] == (A >> B >> C) ** 2
    assert built["half"] == A >> B


@pytest.mark.parametrize(
    ("texts", "cycle"),
    [
        ({"x": "x"}, "x: refers to itself: x -> x"),
        ({"x": "a >> y", "y": "b >> z", "z": "x"}, "x -> y -> z -> x"),
    ],
)
def test_a_cycle_is_named(texts: dict[str, str], cycle: str) -> None:
    with pytest.raises(PlanError, match=cycle):
        parse_all(texts, ON_ONE, places={key: key for key in texts})


def test_a_chain_of_terms_has_a_limit_of_nesting() -> None:
    """Alternating operators cannot be flattened: each term is one level deeper."""
    texts = {"t0": "a"}
    for i in range(1, 1200):
        texts[f"t{i}"] = f"t{i - 1} {'>>' if i % 2 else '|'} b"
    with pytest.raises(PlanError, match="more than 200 operators inside each other"):
        parse_all(texts, ON_ONE, places={key: key for key in texts})


def test_the_size_of_a_tree() -> None:
    tree = parse_tree("((a >> b) ** 10 | layer) ** 3")
    assert size(tree, {"layer": Size(5, 7, 2)}) == Size(leaves=7, runs=81, depth=5)
    assert names_in(tree) == {"a": 3, "b": 8, "layer": 19}
    assert tree.parts[0].kind == "|"
    assert isinstance(tree.parts[0].parts[0], Tree)


def test_not_a_text() -> None:
    with pytest.raises(PlanError, match="int found; expected a text"):
        parse_tree(3)  # type: ignore[arg-type]


@given(
    st.one_of(
        st.text(max_size=40),
        st.lists(
            st.sampled_from(
                ["a", "b", "far1", "nix", ">>", "&", "|", "**", "(", ")", "2", "0", "-"]
            ),
            max_size=15,
        ).map(" ".join),
    )
)
def test_any_text_is_a_term_or_a_typed_error(text: str) -> None:
    message = "expression, "
    try:
        assert isinstance(parse(text, NAMES), Term)
    except InputError as error:
        message = str(error)
    assert message.startswith("expression, ")
