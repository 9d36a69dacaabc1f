"""The expression language as docs/manifest.md says it, slow and plain: Python reads the text, whose grammar it shares."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from nojit.runtime.expr.expression import MISSING, UNSEEN, Pointer

__all__ = ["FAILS", "NoValueError", "evaluate", "outcome", "postfix"]

LEAST, MOST = -(2**63), 2**63 - 1
FAILS = "fails"
"""The outcome of an expression that cannot be evaluated."""


class NoValueError(Exception):
    """Says that an expression has no value for the values at hand."""


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Compute an expression.

    Raises:
        NoValueError: it has no value.
    """
    result = _compute(ast.parse(text, mode="eval").body, values)
    if isinstance(result, Pointer) or result is UNSEEN:
        raise NoValueError("neither a pointer nor a tuple is a result")
    return result


def outcome(compute: Callable[[], Any], failure: type[Exception] = NoValueError) -> tuple[str, Any]:
    """Return the type and the value that a computation gives, `FAILS` where it gives none."""
    try:
        value = compute()
    except failure:
        return FAILS, None
    return type(value).__name__, value.hex() if isinstance(value, float) else value


def postfix(text: str) -> list[str] | None:
    """Write an expression in postfix as docs/bundle-format.md says; None if it is none."""
    try:
        return _words(ast.parse(text, mode="eval").body, text)
    except SyntaxError:
        return None


def _words(node: ast.expr, text: str) -> list[str]:
    match node:
        case ast.Constant(str()):
            words = [repr(node.value)]
        case ast.Constant(int()) | ast.Name():
            words = [str(_compute(node, {})) if isinstance(node, ast.Constant) else node.id]
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))) if (
            "(" not in text[node.col_offset : node.operand.col_offset]
        ):
            words = [str(-value)]
        case ast.UnaryOp(op, operand):
            words = [*_words(operand, text), "not()" if isinstance(op, ast.Not) else "neg()"]
        case ast.BoolOp(op, operands):
            words = _joined(
                "or" if isinstance(op, ast.Or) else "and", [_words(each, text) for each in _flat(op, operands)]
            )
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            words = [*_words(left, text), *_words(right, text), _SYMBOLS[type(op)]]
        case ast.Call(ast.Name(name), operands):
            words = _joined(f"{name}()", [_words(each, text) for each in operands])
        case _:
            raise SyntaxError("comparisons do not chain")
    return words


def _joined(word: str, operands: list[list[str]]) -> list[str]:
    first, *others = operands
    return first + [part for other in others for part in (*other, word)] if others else [*first, word]


def _flat(op: ast.boolop, operands: list[ast.expr]) -> list[ast.expr]:
    flat: list[ast.expr] = []
    for each in operands:
        flat += _flat(op, each.values) if isinstance(each, ast.BoolOp) and type(each.op) is type(op) else [each]
    return flat


def _compute(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.BoolOp):
        return _logic(isinstance(node.op, ast.Or), node.values, values)
    if isinstance(node, ast.Call):
        return _call(node, values)
    match node:
        case ast.Constant(value):
            result = value
        case ast.Name(name):
            result = _named(name, values)
        case ast.UnaryOp(ast.Not(), operand):
            result = not _bool(_compute(operand, values))
        case ast.UnaryOp(ast.USub(), operand):
            # the least int is a constant, though its opposite is none
            result = -_int(operand.value if isinstance(operand, ast.Constant) else _compute(operand, values))
        case ast.BinOp(left, op, right):
            result = _arithmetic(op, _compute(left, values), _compute(right, values))
        case ast.Compare(left, [op], [right]):
            result = _comparison(op, _compute(left, values), _compute(right, values))
        case _:
            raise AssertionError(ast.dump(node))
    return _fitting(result) if type(result) is int else result


def _call(node: ast.Call, values: Mapping[str, Any]) -> Any:
    name = ast.unparse(node.func)
    (first, *_) = node.args
    if name == "has" and isinstance(first, ast.Name) and values.get(first.id, MISSING) is not MISSING:
        # an int that is too large for anything else is there
        return values[first.id] is not None
    result = _FUNCTIONS[name](*[_compute(operand, values) for operand in node.args])
    return _fitting(result) if type(result) is int else result


def _named(name: str, values: Mapping[str, Any]) -> Any:
    constants = {"true": True, "false": False, "none": None}
    if name in constants:
        return constants[name]
    if values.get(name, MISSING) is MISSING:
        raise NoValueError(name)
    return values[name]


def _logic(stop: bool, operands: list[ast.expr], values: Mapping[str, Any]) -> bool:
    for operand in operands:
        if _bool(_compute(operand, values)) is stop:
            return stop
    return not stop


def _fitting(value: int) -> int:
    if not LEAST <= value <= MOST:
        raise NoValueError("ints have 64 bits, with a sign")
    return value


def _int(value: Any) -> int:
    if type(value) is not int:
        raise NoValueError("bools, strings, floats and None are no ints")
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise NoValueError("and, or and not take bools alone")
    return value


def _arithmetic(op: ast.operator, left: Any, right: Any) -> int:
    compute = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }[type(op)]
    try:
        return compute(_int(left), _int(right))
    except ZeroDivisionError:
        raise NoValueError("division by zero") from None


def _comparison(op: ast.cmpop, left: Any, right: Any) -> bool:
    if isinstance(op, (ast.Eq, ast.NotEq)):
        for value in (left, right):
            if isinstance(value, Pointer) or value is UNSEEN:
                raise NoValueError("neither pointers nor tuples compare")
        alike = outcome(lambda: left) == outcome(lambda: right)
        return alike is isinstance(op, ast.Eq)
    compare = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}[type(op)]
    return bool(compare(_int(left), _int(right)))


def _cdiv(a: Any, b: Any) -> int:
    if _int(b) <= 0 or type(a) is not int:
        raise NoValueError("cdiv takes ints, and a positive divisor")
    return -(-a // b)


def _next_pow2(a: Any) -> int:
    power = 1
    while power < _int(a):
        power *= 2
    return power


def _aligned(value: Any, count: Any) -> bool:
    if _int(count) <= 0:
        raise NoValueError("aligned takes a positive number of bytes")
    if isinstance(value, Pointer):
        return value.address % count == 0
    return value is not None and _int(value) % count == 0


_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cdiv": _cdiv,
    "min": lambda *operands: min(map(_int, operands)),
    "max": lambda *operands: max(map(_int, operands)),
    "next_pow2": _next_pow2,
    "aligned": _aligned,
    "has": lambda value: value is not None,
}
