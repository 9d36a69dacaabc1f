"""Expressions in postfix, and programs made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.call.call_facts import expression_value
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.operations import constant
from nojit.runtime.expr.postfix import postfix, words_of

from tests.reference import expressions as reference

SLOTS = {"n": 1, "m": 2, "x_ptr": 0}
EXPRESSIONS = st.recursive(
    st.sampled_from(["n", "m", "BLOCK", "0", "1", "true", "false", "none"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "//", "%", "<", "==", "and", "or"]), inner).map(
            "({0[0]} {0[1]} {0[2]})".format
        ),
        inner.map("(not {})".format),
        inner.map("(-{})".format),
    ),
    max_leaves=8,
)


def assemble(text: str, values: dict[str, Any], slots: dict[str, int], intern: Callable[[expr.Value], int]) -> bytes:
    return _core.assemble(text, values, slots, lambda value: constant(expression_value(value), intern))


def no_id(_: expr.Value) -> int:
    raise AssertionError("nothing to intern")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cdiv(n, BLOCK)", "n BLOCK cdiv()"),
        ("cdiv(n, BLOCK * 2)", "n BLOCK 2 * cdiv()"),
        ("n - m - -3", "n m - -3 -"),
        ("n - (m - 0x10)", "n m 16 - -"),
        ("-n", "n neg()"),
        ("min(n, m, 65535)", "n m min() 65535 min()"),
        ("next_pow2(n) // 8 % 3", "n next_pow2() 8 // 3 %"),
        ("not n < m", "n m < not()"),
        ("aligned(x_ptr, 16)", "x_ptr 16 aligned()"),
        ("n == 'a'", "n 'a' =="),
        ('n > 1 and m == "a b"', "n 1 > m 'a b' == and"),
        ('m == "it\'s"', 'm "it\'s" =='),
        ("n == none", "n none =="),
        ("true == (n < m)", "true n m < =="),
        ("n < m and m < 7", "n m < m 7 < and"),
        ("n and m", "n m and"),
        ("n or m == 2", "n m 2 == or"),
        ("BLOCK > 32 and n < m", "BLOCK 32 > n m < and"),
        ("BLOCK < 32 and n < m", "BLOCK 32 < n m < and"),
        ("n < m or BLOCK > 32", "n m < BLOCK 32 > or"),
        ("BLOCK * 2 + n", "BLOCK 2 * n +"),
        ("BLOCK // 0 + n", "BLOCK 0 // n +"),
        ("BLOCK == 64", "BLOCK 64 =="),
    ],
)
def test_an_expression_in_postfix(text: str, words: str) -> None:
    assert postfix(text) == words


@pytest.mark.parametrize(
    ("words", "instructions"),
    [
        ("BLOCK 2 * 3 + n +", 3),
        ("BLOCK 32 > n m < and", 3),
        ("n m < BLOCK 32 > and", 3),
        ("BLOCK 32 < n m < and", 1),
        ("n m < m 7 < and", 7),
        ("BLOCK 64 == BLOCK 32 == or", 1),
    ],
)
def test_what_is_constant_is_computed_once(words: str, instructions: int) -> None:
    assert len(assemble(words, {"BLOCK": 64}, SLOTS, no_id)) == instructions * 16


BOUND = [0, 7, 64, -3, True, False, None, expr.Pointer(32)]


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, st.sets(st.sampled_from(["n", "m", "BLOCK"])), st.sampled_from(BOUND), st.sampled_from(BOUND))
def test_constants_in_place_change_no_result(text: str, constant: set[str], n: expr.Value, m: expr.Value) -> None:
    values = {"n": n, "m": m, "BLOCK": 64}
    put = {name: values[name] for name in constant if not isinstance(values[name], expr.Pointer)}
    slots = [name for name in values if name not in put]
    program = assemble(postfix(text), put, {name: place for place, name in enumerate(slots)}, no_id)
    found = _core.run_program(program, tuple([pair(values[name]) for name in slots]))
    expected = reference.outcome(lambda: reference.evaluate(text, values))
    assert (found if len(found) == 2 else None) == (None if expected[0] == reference.FAILS else pair(expected[1]))


def pair(value: expr.Value) -> tuple[int, int]:
    """Return a value as the machine has it."""
    if isinstance(value, expr.Pointer):
        return expr.Tag.POINTER, value.address
    tag = expr.Tag.NONE if value is None else expr.Tag.BOOL if isinstance(value, bool) else expr.Tag.INT
    return tag, int(value or 0)  # type: ignore[call-overload] # an int, a bool or None


PIECES = st.sampled_from(
    ["n", "m", "0", "1", "-3", "0x1F", "007", "1.5", "9223372036854775808", "0x8000000000000000", "99999999999999999999",
     "true", "none", "True", "and", "or", "not", "(", ")", "+", "-", "*", "//", "/", "%", "<", "<=", "==", "=", ",", "cdiv(",
     "min(", "max(", "has(", "aligned(", "next_pow2(", "cdiv", " ", "\t", "'a'", '"', "é", "'é'", "n.x", "\x7f", "\0"],
)  # fmt: skip
GROWN = st.recursive(
    st.sampled_from(["n", "m", "1", "-3", "0x10", "'a'", "none"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" and ", " or ", "+", " - ", "*", "//", "==", "<="]), inner).map("".join),
        st.lists(inner, min_size=2, max_size=4).map(lambda each: f"max({', '.join(each)})"),
        inner.map("({})".format),
        inner.map("not {}".format),
        inner.map("-{}".format),
    ),
    max_leaves=20,
)


@settings(max_examples=1000)
@given(GROWN)
def test_words_are_those_of_the_text_and_there_are_none_of_no_expression(text: str) -> None:
    expected = reference.postfix(text)
    if expected is None:
        with pytest.raises(expr.ExpressionError):
            postfix(text)
    else:
        assert postfix(text) == " ".join(expected)
        assert words_of(postfix(text)) == expected


@settings(max_examples=1000)
@given(st.one_of(st.lists(PIECES, max_size=12).map("".join), st.tuples(GROWN, PIECES, GROWN).map("".join)))
def test_any_text_is_refused_or_reads_back(text: str) -> None:
    try:
        expression = expr.parse(text)
    except expr.ExpressionError as error:
        assert 0 <= (error.column or 0) <= len(text)  # noqa: PT017 - either outcome is right
    else:
        assert postfix(expression.text) == postfix(text)


@pytest.mark.parametrize(
    "nested",
    ["({})", "-({})", "not ({})", "n + ({})", "n and (m or {})", "max(n, {})", "n and ({})", "-{}", "not {}", "n+{}"],
)
def test_what_is_nested_too_deep_has_no_postfix(nested: str) -> None:
    text = "n"
    for _ in range(30):
        text = nested.format(text)
        assert postfix(text).split(" ").count("n") >= 1
    for _ in range(170):
        text = nested.format(text)
    with pytest.raises(expr.ExpressionError, match="more than 64 levels"):
        postfix(text)


def test_a_constant_goes_before_a_slot() -> None:
    program = assemble("n m +", {"n": 5}, SLOTS, no_id)
    assert _core.run_program(program, ((0, 0), (0, 0), (3, 2))) == (expr.Tag.INT, 7)


def test_strings_and_floats_are_interned() -> None:
    program = assemble("n MODE ==", {"MODE": "fast"}, SLOTS, {"fast": 7}.__getitem__)
    assert _core.run_program(program, ((0, 0), (expr.Tag.OPAQUE, 7))) == (expr.Tag.BOOL, 1)


@pytest.mark.parametrize(
    "words",
    [
        "",
        " ",
        "+",
        "n +",
        "n m",
        "neg()",
        "n cdiv()",
        "unknown",
        "n 1.5 +",
        "n cdiv",
        str(1 << 63),
        "-0",
        "007",
        "'a",
        "'",
        "BIG",
        " ".join(["n"] * 40 + ["+"] * 39),
        "n " + "m + " * 128 + "n +",
        "1" * 5000,
        "n and",
        "and",
        "n m and or",
    ],
)
def test_what_is_no_postfix_makes_no_program(words: str) -> None:
    assert assemble(words, {"BIG": 1 << 64}, SLOTS, no_id) == b""
