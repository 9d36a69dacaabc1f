"""Type checker of the expression language. Pure.

The runtime evaluates expressions on values. This module checks expressions on types, before values exist. It checks an
expression for each *case*: one combination of types or constants of its names. Operations on constants of a case are
evaluated: in ``m != none and m > 3``, the second comparison is checked only where `m` is an int.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from nojit.aot.manifest.expression_tree import (
    Expression,
    Literal,
    Logic,
    Name,
    Node,
    Operation,
    apply,
    render,
)
from nojit.runtime.expr.operations import ExpressionError, Op, Value, describe
from nojit.runtime.expr.postfix import WORDS

__all__ = ["ANY", "BOOL", "INT", "Case", "Kind", "Known", "Term", "TypeMistake", "check", "kind_of", "kinds", "term_of"]


class Kind(Enum):
    """Types of values in expressions; each enum value is the wording for messages."""

    INT = "an int"
    BOOL = "a bool"
    STRING = "a string"
    FLOAT = "a float"
    NONE = "none"
    POINTER = "a pointer"
    TUPLE = "a tuple"
    """A constexpr that is a tuple; expressions can only compare it."""
    HIDDEN = "a tuple or tensor descriptor, which expressions do not see"


class Known:
    """A value that is known before the call, such as one value of a matrix axis."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


Term: TypeAlias = Known | frozenset[Kind]
"""Result of checking an expression in one case: its value if known, else the set of its possible types.

The set is `ANY` if the types are unknown.
"""
Case: TypeAlias = Mapping[str, Term]
"""Known value or possible types of each name in one combination that is checked."""

ANY: Final = frozenset(Kind)
INT: Final = frozenset({Kind.INT})
BOOL: Final = frozenset({Kind.BOOL})
_COMPARED: Final = ANY - {Kind.HIDDEN, Kind.POINTER}
_NULLABLE: Final = frozenset({Kind.POINTER, Kind.NONE})
_SYMBOLS: Final = {op: word.removesuffix("()") for op, word in WORDS.items()} | {Op.NEG: "-"}
_TESTS: Final = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})


class TypeMistake(Exception):  # noqa: N818 - it never leaves the build
    """A type error in an expression: an operand of a wrong type, or a comparison whose result is always the same.

    Attributes:
        what: the expected types, as text.
        got: the found types, as text.
    """

    def __init__(self, what: str, got: str) -> None:
        self.what = what
        self.got = got
        super().__init__(what, got)


def kind_of(value: Value) -> Kind:
    """Return the type of a known value."""
    if value is None:
        return Kind.NONE
    # `_PYTHON` lists bool before int, its base class
    found = next((kind for kind, python in _PYTHON if isinstance(value, python)), None)
    return Kind.TUPLE if found is None else found


_PYTHON: Final = ((Kind.BOOL, bool), (Kind.INT, int), (Kind.STRING, str), (Kind.FLOAT, float))


def kinds(term: Term) -> frozenset[Kind]:
    """Return the possible types of a term; a known value has one type."""
    return frozenset({kind_of(term.value)}) if isinstance(term, Known) else term


def term_of(types: frozenset[Kind]) -> Term:
    """Return the term of a name that has these possible types.

    If None is the only type, the term is the known value None.
    """
    return Known(None) if types == {Kind.NONE} else types


def check(expression: Expression, expected: frozenset[Kind], cases: Iterable[Case]) -> frozenset[Kind]:
    """Check the types of an expression in every case.

    Args:
        expression: the expression. Every case must have a term for each of its names.
        expected: the allowed types of the expression's value.
        cases: all combinations of terms that its names can have.

    Returns:
        The types that the expression's value can have.

    Raises:
        TypeMistake: in some case an operand or the value has a wrong type, or the two sides of a comparison have the
            same type in no case.
    """
    checker = _Checker()
    given: frozenset[Kind] = frozenset()
    for case in cases:
        try:
            term = checker.term(expression.root, case)
            _expect(expected, term, expression)
        except TypeMistake as mistake:
            raise TypeMistake(mistake.what, f"{mistake.got}{_where(case)}") from None
        given |= kinds(term)
    checker.refuse_comparisons_in_vain()
    return given


def _expect(expected: frozenset[Kind], term: Term, expression: Expression) -> None:
    if kinds(term) != ANY and not kinds(term) <= expected:
        raise TypeMistake(f"expected {_either(expected)}", f"{_term_words(term)} from {expression.text!r}")


def _where(case: Case) -> str:
    """Return the known values of a case as text for the end of an error message."""
    words = [f"{name} = {describe(term.value)}" for name, term in case.items() if isinstance(term, Known)]
    return f", where {', '.join(words)}" if words else ""


class _Checker:
    def __init__(self) -> None:
        # by comparison: whether both sides can have the same type in some case, and the found types in words
        self._compared: dict[int, tuple[bool, str]] = {}

    def term(self, node: Node, case: Case) -> Term:
        """Return the known value or the possible types of one node of an expression, after checking its operands."""
        if isinstance(node, Literal):
            return Known(node.value)
        if isinstance(node, Name):
            return case[node.name]
        if isinstance(node, Logic):
            return self._logic(node, case)
        terms = [self.term(operand, case) for operand in node.operands]
        if node.op in (Op.EQ, Op.NE):
            return self._equality(node, terms)
        result = _result(node, terms)
        return _folded(node.op, terms, result)

    def _logic(self, node: Logic, case: Case) -> Term:
        decided = True
        for operand in node.operands:
            term = self.term(operand, case)
            _require(node.word, operand, term, BOOL, "bools")
            if isinstance(term, Known):
                if term.value is node.stop:
                    return term
            else:
                decided = False
        return Known(not node.stop) if decided else BOOL

    def _equality(self, node: Operation, terms: Sequence[Term]) -> Term:
        for operand, term in zip(node.operands, terms, strict=True):
            what = f"ints, bools, strings and other constants; use has({render(operand)}) to ask whether it is present"
            _require(_SYMBOLS[node.op], operand, term, _COMPARED, what)
        left, right = map(kinds, terms)
        alike = bool(left & right)
        with_none = any(isinstance(operand, Literal) and operand.value is None for operand in node.operands)
        was, _ = self._compared.get(id(node), (False, ""))
        description = f"{_term_words(terms[0])} and {_term_words(terms[1])} in {render(node)!r}"
        # a comparison with none is allowed even if no case has none: an axis may have lost that value
        self._compared[id(node)] = (was or alike or with_none, description)
        if not alike:
            return Known(node.op is Op.NE)
        return _folded(node.op, terms, BOOL)

    def refuse_comparisons_in_vain(self) -> None:
        """Raise `TypeMistake` for a comparison whose two sides have the same type in no case."""
        for sensible, description in self._compared.values():
            if not sensible:
                raise TypeMistake("expected two sides of the same type", description)


def _result(node: Operation, terms: Sequence[Term]) -> frozenset[Kind]:
    """Check the operands of an operation, and return the types of its value.

    `terms`: value or possible types of each operand.
    """
    symbol, op = _SYMBOLS[node.op], node.op
    first, *others = zip(node.operands, terms, strict=True)
    if op is Op.HAS:
        return BOOL
    if op is Op.ALIGNED:
        _require(symbol, *first, _NULLABLE | INT, "a pointer or an int")
        _require(symbol, *others[0], INT, "a number of bytes")
        return BOOL
    if op is Op.NOT:
        _require(symbol, *first, BOOL, "a bool")
        return BOOL
    for operand, term in (first, *others):
        _require(symbol, operand, term, INT, "ints")
    return BOOL if op in _TESTS else INT


def _folded(op: Op, terms: Sequence[Term], result: frozenset[Kind]) -> Term:
    """Return the value of an operation if all its operands are known; otherwise its possible types.

    ``has(x)`` is known as soon as the types of `x` tell whether it is None.

    `terms`: value or possible types of each operand.
    """
    if op is Op.HAS and (Kind.NONE not in kinds(terms[0]) or len(kinds(terms[0])) == 1):
        return Known(Kind.NONE not in kinds(terms[0]))
    values = [term.value for term in terms if isinstance(term, Known)]
    if len(values) < len(terms):
        return result
    try:
        value = values[0] if len(values) > 1 else apply(op, values[0])
        for other in values[1:]:
            value = apply(op, value, other)
    except ExpressionError:
        # for example division by zero: the call may never evaluate it
        return result
    return Known(value)


def _require(symbol: str, operand: Node, term: Term, allowed: frozenset[Kind], what: str) -> None:
    given = kinds(term)
    if given <= allowed or given == ANY:
        return
    text = render(operand)
    shown = "" if isinstance(operand, Literal) else f" {text!r}"
    raise TypeMistake(f"{symbol} takes {what}", f"{_term_words(term)}{shown}")


def _term_words(term: Term) -> str:
    return describe(term.value) if isinstance(term, Known) else _either(term)


def _either(types: frozenset[Kind]) -> str:
    return " or ".join(kind.value for kind in Kind if kind in types)
