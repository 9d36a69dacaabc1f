"""Programs made of postfix are those that the expressions compile to."""

from __future__ import annotations

import pytest
from nojit.runtime import expr
from nojit.runtime.postfix import assemble, postfix

SLOTS = {"n": 1, "m": 2, "x_ptr": 0}


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
        ("n and m", ""),
        ("n == 'a'", ""),
        ("n == none", ""),
        ("max(n, (n or m))", ""),
    ],
)
def test_an_expression_in_postfix(text: str, words: str) -> None:
    assert postfix(text) == words
    if words:
        assert assemble(words, {"BLOCK": 64}, SLOTS, no_id) == expr.compile(
            expr.parse(text.replace("BLOCK", "64")), SLOTS, no_id
        )


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
    ],
)
def test_what_is_no_postfix_makes_no_program(words: str) -> None:
    assert assemble(words, {"BIG": 1 << 64}, SLOTS, no_id) == b""
