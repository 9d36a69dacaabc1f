"""Trees of expressions: what folds, what is settled, what an expression implies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nojit.aot.manifest import expression_tree
from nojit.aot.manifest.expression_tree import NOT_CONSTANT, parse
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.expression import UNSEEN, ExpressionError, Pointer

from tests.reference import expressions as reference
from tests.support.expressions import ANY_TEXT, VALUES


def outcome(compute):
    return reference.outcome(compute, ExpressionError)


def test_true_and_one_are_different_expressions():
    assert parse("true") != parse("1")
    assert len({parse("n == 1"), parse("n == true"), parse("(n) ==  1")}) == 2


@pytest.mark.parametrize(
    ("text", "boolean"),
    [
        ("a == 1", True),
        ("not a", True),
        ("a and b", True),
        ("has(a)", True),
        ("false", True),
        ("a", False),
        ("1", False),
    ],
)
def test_is_boolean(text, boolean):
    assert parse(text).is_boolean is boolean


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("K % BLOCK == 0", {"BLOCK": 64}, "K % 64 == 0"),
        ("K % BLOCK == 0", {"BLOCK": 64, "K": 128}, "true"),
        ("A and k == 1", {"A": True}, "k == 1"),
        ("A and k == 1", {"A": False}, "false"),
        ("k == 1 or A", {"A": True}, "k == 1 or true"),
        ("k == 1 and A", {"A": True}, "k == 1"),
        ("k and A", {"A": True}, "true and k"),
        ("k and A and j", {"A": False}, "k and false"),
        ("A and B", {"A": True, "B": True}, "true"),
        ("A or B", {"A": False, "B": False}, "false"),
        ("(A or k and j) and i", {"A": False}, "k and j and i"),
        ("A // 0 == k", {"A": 1}, "1 // 0 == k"),
        ("has(p) and aligned(p, N)", {"p": Pointer(16), "N": 16}, "aligned(p, 16)"),
        ("has(pair) and pair == none", {"pair": UNSEEN}, "pair == none"),
        ("not has(n)", {"n": 5}, "false"),
        ("has(p)", {"p": None}, "false"),
        ("name == 'relu'", {"name": "relu"}, "true"),
        ("u + 1", {"u": 1 << 64}, "u + 1"),
        ("-A", {"A": 5}, "-5"),
    ],
)
def test_substitute(text, values, result):
    assert expression_tree.substitute(parse(text), values) == parse(result)


def test_constant():
    assert parse("64").constant() == 64
    assert expression_tree.substitute(parse("a"), {"a": None}).constant() is None
    assert parse("a").constant() is NOT_CONSTANT
    assert parse("1 + 2").constant() is NOT_CONSTANT
    assert expression_tree.substitute(parse("1 + 2"), {}).constant() == 3


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("aligned(p, 16)", ("p", 16)),
        ("aligned(p, 128)", ("p", 16)),
        ("aligned(p, 8)", None),
        ("aligned(p, 24)", None),
        ("aligned(p, 0)", None),
        ("aligned(p, n)", None),
        ("aligned(16, p)", None),
        ("x % 16 == 0", ("x", 16)),
        ("x % 64 == 0", ("x", 16)),
        ("x % 8 == 0", None),
        ("x % -16 == 0", None),
        ("x % 16 == 1", None),
        ("x % 16 == false", None),
        ("x % 16 != 0", None),
        ("x == 1", ("x", 1)),
        ("x == true", None),
        ("x == 2", None),
        ("x >= 1", None),
        ("x == 1 and y == 1", None),
    ],
)
def test_implied_hint(text, hint):
    assert expression_tree.implied_hint(parse(text)) == hint


@settings(deadline=None)
@given(ANY_TEXT, st.sets(st.sampled_from(sorted(VALUES))))
def test_substitution_keeps_value_and_errors(text, names):
    expression = parse(text)
    partial = expression_tree.substitute(expression, {name: VALUES[name] for name in names})
    assert partial.names <= expression.names
    assert outcome(lambda: partial.evaluate(VALUES)) == outcome(lambda: expression.evaluate(VALUES))


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_tree_is_the_expression_that_was_read(text):
    assert parse(text).text == expr.parse(text).text
    assert parse(parse(text).text) == parse(text)
    assert parse(text).names == expr.parse(text).names
    assert [conjunct.text for conjunct in parse(text).conjuncts()] == [
        each.text for each in expr.parse(text).conjuncts()
    ]
    assert outcome(lambda: parse(text).evaluate(VALUES)) == outcome(lambda: expr.parse(text).evaluate(VALUES))
