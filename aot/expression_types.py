"""Types of the expression language: what an expression gives, and whether it can fail for a type's sake. Pure.

`nojit.runtime.expr_ops` says what each operation takes; this module says so of types, before there are values. An expression
is checked for every *case* of its names: what is a constant in a case folds, so that in ``m != none and m > 3`` the comparison
that follows is looked at only where `m` is an int.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from nojit.runtime.expr import Expression, ExpressionError
from nojit.runtime.expr_ops import Op, Value, apply, describe
from nojit.runtime.expr_tree import BINARY, FUNCTIONS, Literal, Logic, Name, Node, Operation, render

__all__ = ["ANY", "BOOL", "INT", "Case", "Kind", "Known", "Term", "TypeMistake", "check", "kind_of", "kinds", "term_of"]


class Kind(Enum):
    """The type of a value, in the words of messages."""

    INT = "an int"
    BOOL = "a bool"
    STRING = "a string"
    FLOAT = "a float"
    NONE = "none"
    POINTER = "a pointer"
    TUPLE = "a tuple"
    """A constexpr that is one: it only compares."""
    HIDDEN = "a tuple or tensor descriptor, which expressions do not see"


class Known:
    """A value that is the same throughout a case."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


Term: TypeAlias = Known | frozenset[Kind]
"""What an expression gives in a case: a value, or one of some types; `ANY` where nothing is known."""
Case: TypeAlias = Mapping[str, Term]
"""What each name stands for."""

ANY: Final = frozenset(Kind)
INT: Final = frozenset({Kind.INT})
BOOL: Final = frozenset({Kind.BOOL})
_COMPARED: Final = ANY - {Kind.HIDDEN, Kind.POINTER}
_NULLABLE: Final = frozenset({Kind.POINTER, Kind.NONE})
_SYMBOLS: Final = (
    {op: symbol for op, (symbol, _) in BINARY.items()}
    | {function.op: name for name, function in FUNCTIONS.items()}
    | {Op.NEG: "-", Op.NOT: "not"}
)
_TESTS: Final = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})


class TypeMistake(Exception):  # noqa: N818 - it never leaves the build
    """An expression that can fail for a type's sake, or that compares in vain.

    Attributes:
        what: what was expected.
        got: what was found.
    """

    def __init__(self, what: str, got: str) -> None:
        self.what = what
        self.got = got
        super().__init__(what, got)


def kind_of(value: Value) -> Kind:
    """Return the type of a value that is no param."""
    if value is None:
        return Kind.NONE
    # a bool is an int to Python
    found = next((kind for kind, python in _PYTHON if isinstance(value, python)), None)
    return Kind.TUPLE if found is None else found


_PYTHON: Final = ((Kind.BOOL, bool), (Kind.INT, int), (Kind.STRING, str), (Kind.FLOAT, float))


def kinds(term: Term) -> frozenset[Kind]:
    """Return the types of a term."""
    return frozenset({kind_of(term.value)}) if isinstance(term, Known) else term


def term_of(types: frozenset[Kind]) -> Term:
    """Return the term for a name of these types: of none there is but one."""
    return Known(None) if types == {Kind.NONE} else types


def check(expression: Expression, expected: frozenset[Kind], cases: Iterable[Case]) -> frozenset[Kind]:
    """Find a type mistake.

    Args:
        expression: its names are all in each case.
        expected: the types of which its value has to be.
        cases: everything that its names can stand for.

    Returns:
        The types that it gives.

    Raises:
        TypeMistake: an operation may get what it does not take, the expression may give what is not expected, or two sides of
            a comparison never have one type.
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
        raise TypeMistake(f"expected {_either(expected)}", f"{_told(term)} from {expression.text!r}")


def _where(case: Case) -> str:
    """Name the values that make a case, at the end of a message."""
    words = [f"{name} = {describe(term.value)}" for name, term in case.items() if isinstance(term, Known)]
    return f", where {', '.join(words)}" if words else ""


class _Checker:
    def __init__(self) -> None:
        # of comparisons that were looked at, whether both sides could have one type in some case, and what was found
        self._compared: dict[int, tuple[bool, str]] = {}

    def term(self, node: Node, case: Case) -> Term:
        """Say what a node gives."""
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
            what = f"ints, bools, strings and the like (has({render(operand)}) asks whether it is there)"
            _require(_SYMBOLS[node.op], operand, term, _COMPARED, what)
        left, right = map(kinds, terms)
        alike = bool(left & right)
        with_none = any(isinstance(operand, Literal) and operand.value is None for operand in node.operands)
        was, _ = self._compared.get(id(node), (False, ""))
        said = f"{_told(terms[0])} and {_told(terms[1])} in {render(node)!r}"
        # what is none somewhere may be so nowhere: a value was taken off an axis
        self._compared[id(node)] = (was or alike or with_none, said)
        if not alike:
            return Known(node.op is Op.NE)
        return _folded(node.op, terms, BOOL)

    def refuse_comparisons_in_vain(self) -> None:
        """Refuse comparisons whose sides have one type in no case."""
        for sensible, said in self._compared.values():
            if not sensible:
                raise TypeMistake("expected two sides of one type", said)


def _result(node: Operation, terms: Sequence[Term]) -> frozenset[Kind]:
    """Check the operands of an operation, and say of which type its value is."""
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
    """Compute an operation whose operands are known; of `has`, their types are enough."""
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
        # it may never be reached; its type is what was asked for
        return result
    return Known(value)


def _require(symbol: str, operand: Node, term: Term, allowed: frozenset[Kind], what: str) -> None:
    given = kinds(term)
    if given <= allowed or given == ANY:
        return
    text = render(operand)
    shown = "" if isinstance(operand, Literal) else f" {text!r}"
    raise TypeMistake(f"{symbol} takes {what}", f"{_told(term)}{shown}")


def _told(term: Term) -> str:
    return describe(term.value) if isinstance(term, Known) else _either(term)


def _either(types: frozenset[Kind]) -> str:
    return " or ".join(kind.value for kind in Kind if kind in types)
