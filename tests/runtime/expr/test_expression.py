import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.runtime import _core
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.expression import (
    INT64_MAX,
    INT64_MIN,
    ExpressionError,
    Op,
    Pointer,
    parse,
)
from nojit.runtime.expr.postfix import names_of, postfix

from tests.reference import expressions as reference
from tests.support.expressions import ANY_TEXT, TYPED, VALUES

EVALUATED = [
    ("1 + 2 * 3", 7),
    ("(1 + 2) * 3", 9),
    ("10 - 4 - 3", 3),
    ("100 // 7 // 2", 7),
    ("7 // 2 * 2 % 4", 2),
    ("-7 // 2", -4),
    ("-7 % 3", 2),
    ("7 % -3", -2),
    ("-n + 1", -99),
    ("- - n", 100),
    ("-9223372036854775808", INT64_MIN),
    ("0xff", 255),
    ("0X7fffffffffffffff", INT64_MAX),
    ("low % -1", 0),
    ("cdiv(n, 16)", 7),
    ("cdiv(-n, 16)", -6),
    ("cdiv(big, 1)", INT64_MAX),
    ("cdiv(low, 2)", -(1 << 62)),
    ("min(n, 3, 7)", 3),
    ("max(n, 3, 700)", 700),
    ("next_pow2(n)", 128),
    ("next_pow2(128)", 128),
    ("next_pow2(zero)", 1),
    ("next_pow2(low)", 1),
    ("next_pow2(1 + 4611686018427387903)", 1 << 62),
    ("n == 100", True),
    ("n != 100", False),
    ("1 == true", False),
    ("1 != true", True),
    ("absent == none", True),
    ("name == 'relu'", True),
    ('name == "gelu"', False),
    ("name != 1", True),
    ("half == half", True),
    ("half == 0", False),
    ("1 < 2", True),
    ("2 <= 1", False),
    ("2 > 1", True),
    ("1 >= 2", False),
    ("not n == 100", False),
    ("not not flag", True),
    ("not flag or flag", True),
    ("not (flag or flag)", False),
    ("true or false and false", True),
    ("(true or false) and false", False),
    ("false and 1 // zero == 1", False),
    ("true or n", True),
    ("flag and n == 100 and flag", True),
    ("aligned(p, 16)", True),
    ("aligned(odd, 16)", False),
    ("aligned(odd, 2)", True),
    ("aligned(n, 4)", True),
    ("aligned(n, 16)", False),
    ("aligned(absent, 16)", False),
    ("has(p)", True),
    ("has(absent)", False),
    ("has(none)", False),
    ("has(n)", True),
    ("has(zero) and has(flag) and has(half) and has(name)", True),
    ("has(u64)", True),
    ("has(pair)", True),
    ("not has(pair) or has(p)", True),
    ("flag", True),
    ("none", None),
    ("'a b'", "a b"),
    ("n\n ==\t100", True),
]

FAILS_TO_EVALUATE = [
    ("nn + 1", "unknown name 'nn'; did you mean 'n'?"),
    ("big + 1", "+ of 9223372036854775807, 1 does not fit in 64 bits"),
    ("low - 1", "- of -9223372036854775808, 1 does not fit"),
    ("big * 2", "* of"),
    ("-low", "- of -9223372036854775808 does not fit"),
    ("low // -1", "// of -9223372036854775808, -1 does not fit"),
    ("n // zero", "division by zero: 100 // 0"),
    ("n % zero", "division by zero: 100 % 0"),
    ("cdiv(n, zero)", "cdiv needs a positive divisor, got 0"),
    ("cdiv(n, -1)", "cdiv needs a positive divisor, got -1"),
    ("next_pow2(big)", "next_pow2 of 9223372036854775807 does not fit"),
    ("n + flag", "+ takes ints, got bool true"),
    ("flag < 2", "< takes ints, got bool true"),
    ("'a' < 'b'", "< takes ints, got str 'a'"),
    ("-flag", "- takes ints, got bool true"),
    ("not n", "not takes a bool, got int 100"),
    ("n and flag", "and takes bools, got int 100"),
    ("flag and n", "and takes bools, got int 100"),
    ("n or flag", "or takes bools"),
    ("not absent", "not takes a bool, got none"),
    ("p + 1", "+ takes ints, got pointer"),
    ("p == p", "a pointer does not compare"),
    ("absent != p", "a pointer does not compare"),
    ("p", "the value is a pointer"),
    ("aligned(p, zero)", "aligned needs a positive number of bytes"),
    ("aligned(p, flag)", "aligned needs a positive number of bytes"),
    ("aligned(flag, 16)", "aligned takes a pointer or an int, got bool true"),
    ("has(nn)", "unknown name 'nn'"),
    ("pair", "the value is a tuple or a descriptor; use has"),
    ("pair == none", "does not compare; use has"),
    ("pair != pair", "does not compare; use has"),
    ("pair and flag", "and takes bools, got a tuple, a descriptor"),
    ("min(pair, 1)", "min takes ints, got a tuple, a descriptor"),
    ("aligned(pair, 16)", "aligned takes a pointer or an int, got a tuple, a descriptor"),
    ("u64 % 16 == 0", "u64 = 9223372036854775808 does not fit in 64 bits signed"),
    ("half + 1", "+ takes ints, got float 0.5"),
]

FAILS_TO_PARSE = [
    ("cdiv(n, 4", "expected ')'", 9),
    ("", "expected a value", 0),
    ("   ", "expected a value", 3),
    ("1 +", "expected a value", 3),
    ("a b", "expected an operator or the end", 2),
    ("a < b < c", "comparisons do not chain", 6),
    ("a == b != c", "comparisons do not chain", 7),
    ("a == not b", "put parentheses around 'not'", 5),
    ("1 + not b", "put parentheses around 'not'", 4),
    ("cdivv(n, 4)", "unknown function 'cdivv'; did you mean 'cdiv'?", 0),
    ("1 + __import__('os')", "unknown function '__import__'", 4),
    ("cdiv(n)", "cdiv takes 2 arguments, got 1", 0),
    ("cdiv(n, 1, 2)", "cdiv takes 2 arguments, got 3", 0),
    ("min(n)", "min takes at least 2 arguments, got 1", 0),
    ("has()", "expected a value", 4),
    ("min(1, )", "expected a value", 7),
    ("True", "'True' is spelled 'true'", 0),
    ("a and None", "'None' is spelled 'none'", 6),
    ("a && b", "'&&' is spelled 'and'", 2),
    ("a || b", "'||' is spelled 'or'", 2),
    ("!a", "'!' is spelled 'not'", 0),
    ("a / b", "'/' is spelled '//'", 2),
    ("a = b", "'=' is spelled '=='", 2),
    ("a ** b", "expected a value", 3),
    ("9223372036854775808", "does not fit in 64 bits", 0),
    ("-9223372036854775809", "does not fit in 64 bits", 1),
    ("-(9223372036854775808)", "does not fit in 64 bits", 2),
    ("0x1ffffffffffffffff", "does not fit in 64 bits", 0),
    ("9" * 4000, "does not fit in 64 bits", 0),
    ("1.5", "expected an integer", 0),
    ("1e3", "expected an integer", 0),
    ("007", "expected an integer", 0),
    ("0x", "expected an integer", 0),
    ("a == 'b", "expected the string to end", 5),
    ("'a\nb'", "expected the string to end", 0),
    ("a.b", "unexpected '.'", 1),
    ("a[0]", "unexpected '['", 1),
    ("a\u00a0", "unexpected '\\xa0'", 1),
    ("\u00e9", "unexpected '\u00e9'", 0),
    ("a \x00", "unexpected '\\x00'", 2),
    ("not", "expected a value", 3),
    ("and", "expected a value", 0),
    ("a or", "expected a value", 4),
    (")", "expected a value", 0),
    ("(1", "expected ')'", 2),
    ("'\u00e9' == \u00e9", "unexpected '\u00e9'", 7),
    ("a == '\ud800'", "unexpected", 6),
    ("x" * 4097, "more than 4096 characters", 4096),
]


@pytest.mark.parametrize(("text", "value"), EVALUATED)
def test_evaluates_to(text, value):
    assert expr.same(parse(text).evaluate(VALUES), value)


@pytest.mark.parametrize(("text", "message"), FAILS_TO_EVALUATE)
def test_refuses_to_evaluate(text, message):
    with pytest.raises(ExpressionError) as caught:
        parse(text).evaluate(VALUES)
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(("text", "message", "column"), FAILS_TO_PARSE)
def test_refuses_to_parse(text, message, column):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.column == column
    assert caught.value.text == text


def test_parse_error_reads_as_one_line():
    with pytest.raises(ExpressionError) as caught:
        parse("cdiv(n, 4")
    assert str(caught.value) == "expected ')' at column 9 of 'cdiv(n, 4'"


def test_errors_survive_pickling():
    with pytest.raises(ExpressionError) as caught:
        parse("cdiv(n, 4")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.text, copy.column) == (str(caught.value), "cdiv(n, 4", 9)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 129 + "1" + ")" * 129,
        "-" * 65 + "n",
        "-" * 2000 + "n",
        "not " * 65 + "flag",
        "+".join(["1"] * 65),
        "cdiv(" * 65 + "1" + ", 2)" * 65,
        "(" * 2048,
        "a and (b or " * 300,
        "*".join(["n"] * 2000),
    ],
)
def test_refuses_deep_nesting(text):
    with pytest.raises(ExpressionError, match="more than 64 levels"):
        parse(text)


def test_long_and_chains_are_flat():
    assert len(parse(" and ".join(["n == 1"] * 300)).conjuncts()) == 300


def test_true_and_one_are_different_expressions():
    assert parse("true") != parse("1")
    assert len({parse("n == 1"), parse("n == true"), parse("(n) ==  1")}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "a - (b - c)",
        "a - b - c",
        "a // (b * c) % d",
        "(a + b) * c",
        "(a == b) == c",
        "a == (b != c)",
        "(a < b) + 1",
        "(a or b) and c",
        "not (a and b)",
        "(not a) == b",
        "-(a + b)",
        "-a * -b",
        "-(-a)",
        "-(5)",
        "-5 - -5",
        "min(a, -1, b or c)",
        'a == "it\'s"',
        "aligned(p, 16) and has(q)",
    ],
)
def test_text_keeps_the_parentheses_that_matter(text):
    assert parse(text).text == text.replace("-(-a)", "--a")
    assert parse(parse(text).text) == parse(text)


def test_names():
    assert parse("cdiv(n, BLOCK) * min(a, b) == 4 and aligned(min, 16)").names == {"n", "BLOCK", "a", "b", "min"}
    assert parse("a == 'b c' or \"d\" == e").names == {"a", "e"}


def test_conjuncts_split_only_the_outer_and():
    texts = [conjunct.text for conjunct in parse("a == 1 and (b and c) and (d or e and f)").conjuncts()]
    assert texts == ["a == 1", "b", "c", "d or e and f"]
    assert parse("a or b").conjuncts() == (parse("a or b"),)
    assert parse("not (a and b)").conjuncts() == (parse("not (a and b)"),)
    assert [conjunct.text for conjunct in parse("a == 'x and y' and -b == min(c, d, 2)").conjuncts()] == [
        "a == 'x and y'",
        "-b == min(c, d, 2)",
    ]


# --- programs


def outcome(compute):
    return reference.outcome(compute, ExpressionError)


def assemble(text):
    """Make a program over names that stand in alphabetical order, and number its strings and floats."""
    words = postfix(text)
    slots = {name: place for place, name in enumerate(sorted(names_of(words)))}
    opaques = {}
    return _core.assemble(words, {}, slots, lambda value: (Op.CONST_OPAQUE, opaques.setdefault(value, len(opaques))))


def test_program_bytes():
    assert list(struct.iter_unpack("<B7sq", assemble("flag and min(n, 5, -3) == x"))) == [
        (op, bytes(7), operand)
        for op, operand in [
            (Op.LOAD, 0),
            (Op.JUMP_IF_FALSE_KEEP, 7),
            (Op.LOAD, 1),
            (Op.CONST_INT, 5),
            (Op.MIN, 0),
            (Op.CONST_INT, -3),
            (Op.MIN, 0),
            (Op.LOAD, 2),
            (Op.EQ, 0),
        ]
    ]


def test_a_chain_that_ends_in_a_name_checks_it():
    assert [op for op, _ in struct.iter_unpack("<B7xq", assemble("a or b"))] == [
        Op.LOAD,
        Op.JUMP_IF_TRUE_KEEP,
        Op.LOAD,
        Op.CHECK_BOOL,
    ]


def test_equal_strings_share_an_id():
    program = assemble("a == 'x y' or a == 'y' or b == \"x y\"")
    ids = [operand for op, operand in struct.iter_unpack("<B7xq", program) if op == Op.CONST_OPAQUE]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize("text", ["(a + " * 33 + "a" + ")" * 33, " or ".join(["a == 1"] * 100)])
def test_what_is_too_long_has_no_program(text):
    assert assemble(text) == b""
    with pytest.raises(ExpressionError, match="more than 32 levels of nested operations, or than 256 operations"):
        parse(text).evaluate({"a": Pointer(0)})


def test_a_program_may_use_the_whole_stack():
    assert _core.run_program(assemble("(a + " * 31 + "a" + ")" * 31), ((expr.Tag.INT, 1),)) == (expr.Tag.INT, 32)


def instruction(op, operand=0):
    return struct.pack("<B7xq", op, operand)


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b"\x01",
        instruction(0),
        instruction(28),
        instruction(Op.LOAD, 1),
        instruction(Op.LOAD, -1),
        instruction(Op.ADD),
        instruction(Op.CONST_INT) + instruction(Op.ADD),
        instruction(Op.NOT),
        instruction(Op.CONST_INT) * 2,
        instruction(Op.CONST_INT) * 33,
        instruction(Op.CONST_INT) * 257,
        instruction(Op.CONST_BOOL, 1) + instruction(Op.JUMP_IF_TRUE_KEEP, 1),
        instruction(Op.CONST_BOOL, 1) + instruction(Op.JUMP_IF_TRUE_KEEP, -2),
        instruction(Op.CONST_BOOL, 0) + instruction(Op.JUMP_IF_TRUE_KEEP, 0),
        instruction(Op.CONST_BOOL, 0) + instruction(28),
    ],
)
def test_the_machine_refuses_what_no_expression_makes(program):
    with pytest.raises(ValueError, match="program"):
        _core.run_program(program, ((expr.Tag.INT, 0),))


def test_the_machine_says_what_failed():
    program = assemble("a // b")
    assert _core.run_program(program, ((expr.Tag.INT, 7), (expr.Tag.INT, 0))) == (Op.FLOORDIV, (3, 7), (3, 0))
    assert _core.run_program(program, ((expr.Tag.INT, 7), (expr.Tag.MISSING, 0))) == (Op.LOAD, (0, 0), (3, 1))
    assert _core.run_program(assemble("a"), ((expr.Tag.POINTER, 16),)) == (0, (5, 16), (0, 0))


# --- properties


@settings(deadline=None)
@given(ANY_TEXT)
def test_computes_what_the_language_says(text):
    assert outcome(lambda: parse(text).evaluate(VALUES)) == reference.outcome(lambda: reference.evaluate(text, VALUES))


@settings(deadline=None)
@given(TYPED)
def test_well_typed_text_fails_for_its_numbers_alone(text):
    try:
        parse(text).evaluate(VALUES)
    except ExpressionError as error:
        assert any(word in str(error) for word in ("division by zero", "positive divisor", "64 bits"))  # noqa: PT017 - not every text fails


@settings(deadline=None)
@given(ANY_TEXT)
def test_text_reads_back_as_an_equal_expression(text):
    expression = parse(text)
    assert parse(expression.text) == expression


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="ab01 +-*/%()<>=!'\",._\nxandortue", max_size=40))
def test_parse_accepts_or_refuses_any_text(text):
    try:
        parse(text)
    except ExpressionError as error:
        assert error.text == text  # noqa: PT017 - either outcome is right
