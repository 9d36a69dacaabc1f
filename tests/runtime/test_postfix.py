"""Programs made of postfix are those that the expressions compile to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core, expr
from nojit.runtime.call import expression_value
from nojit.runtime.expr_ops import Op, constant
from nojit.runtime.expr_program import INSTRUCTION_BYTES
from nojit.runtime.expr_tree import BINARY, FUNCTIONS, Literal, Logic, Name, Node
from nojit.runtime.postfix import postfix

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
        ("n == 'a'", ""),
        ("n > 1 and BLOCK > 1 and m == 'a'", ""),
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
    if words:
        expression = expr.substitute(expr.parse(text), {"BLOCK": 64})
        assert behaviour(assemble(words, {"BLOCK": 64}, SLOTS, no_id)) == behaviour(
            expr.compile(expression, SLOTS, no_id)
        )


def behaviour(program: bytes) -> list[object]:
    """What a program gives for numbers, bools and None; which it can fail for."""
    found: list[object] = []
    for n, m in itertools.product((0, 7, 64, -3, True, False, None), repeat=2):
        try:
            found.append(expr.identity(expr.run(program, [expr.Pointer(32), n, m])))
        except expr.ExpressionError:
            found.append("fails")
    return found


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
    assert len(assemble(words, {"BLOCK": 64}, SLOTS, no_id)) == instructions * INSTRUCTION_BYTES


@given(st.data())
def test_programs_of_postfix_and_of_text_behave_alike(data: st.DataObject) -> None:
    text = data.draw(EXPRESSIONS)
    words = postfix(text)
    compiled = expr.compile(expr.substitute(expr.parse(text), {"BLOCK": 64}), SLOTS, no_id)
    assert behaviour(assemble(words, {"BLOCK": 64}, SLOTS, no_id)) == behaviour(compiled)


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


def written(node: Node) -> list[str]:
    """Write a tree in postfix, as the page of the format says; a string has no words."""
    if isinstance(node, Name):
        return [node.name]
    if isinstance(node, Literal):
        return [str(node.value).lower() if not isinstance(node.value, str) else "STRING"]
    words = {op: symbol for op, (symbol, _) in BINARY.items()} | {Op.NEG: "neg()", Op.NOT: "not()"}
    words |= {function.op: f"{name}()" for name, function in FUNCTIONS.items()}
    word = node.word if isinstance(node, Logic) else words[node.op]
    first, *others = map(written, node.operands)
    return sum(([*other, word] for other in others), first if others else [*first, word])


@settings(max_examples=1000)
@given(st.one_of(GROWN, st.lists(PIECES, max_size=12).map("".join), st.tuples(GROWN, PIECES, GROWN).map("".join)))
def test_postfix_is_that_of_the_tree_and_there_is_none_without_a_tree(text: str) -> None:
    try:
        words = written(expr.parse(text).root)
    except expr.ExpressionError:
        with pytest.raises(expr.ExpressionError):
            postfix(text)
    else:
        assert postfix(text) == ("" if "STRING" in words else " ".join(words))


@pytest.mark.parametrize(
    "nested",
    ["({})", "-({})", "not ({})", "n + ({})", "n and (m or {})", "max(n, {})", "n and ({})", "-{}", "not {}", "n+{}"],
)
def test_what_is_nested_too_deep_has_no_postfix(nested: str) -> None:
    text, made = "n", 0
    while made < 200:
        text, made = nested.format(text), made + 1
        try:
            words = written(expr.parse(text).root)
        except expr.ExpressionError:
            with pytest.raises(expr.ExpressionError):
                postfix(text)
        else:
            assert postfix(text) == " ".join(words)


def test_a_constant_goes_before_a_slot() -> None:
    program = assemble("n m +", {"n": 5}, SLOTS, no_id)
    assert expr.run(program, [expr.MISSING, expr.MISSING, 2]) == 7


def test_strings_and_floats_are_interned() -> None:
    program = assemble("n MODE ==", {"MODE": "fast"}, SLOTS, {"fast": 7}.__getitem__)
    assert expr.run(program, [None, expr.Opaque(7)]) is True


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
