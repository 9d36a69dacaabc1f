"""Expressions in postfix, as tables carry them beside the text: programs are made of them without parsing.

Words with one space between them, operands before their operation: ``cdiv(n, BLOCK * 2)`` is ``n BLOCK 2 * cdiv()``. A
word is a decimal int, ``true``, ``false``, ``none``, a name, an operator, ``and`` and ``or`` included, or a function with
``()`` behind it, as are ``neg()`` and ``not()``; each takes two operands, or one as the language has it. Strings have no
such form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from nojit.runtime.call import expression_value
from nojit.runtime.expr import parse
from nojit.runtime.expr_ops import INT64_MAX, INT64_MIN, ExpressionError, Op, Value, apply
from nojit.runtime.expr_program import INSTRUCTION, MAX_INSTRUCTIONS, MAX_STACK, UNARY, constant
from nojit.runtime.expr_tree import BINARY, BOOLEAN_OPS, FUNCTIONS, Literal, Logic, Name, Node
from nojit.runtime.values import Value as Constexpr

__all__ = ["assemble", "postfix"]

_Code: TypeAlias = list[tuple[int, int]]
_Operand: TypeAlias = tuple[Value] | _Code
"""A constant, or the code that computes something else."""

_WORDS: Final = (
    {op: symbol for op, (symbol, _) in BINARY.items()}
    | {function.op: f"{name}()" for name, function in FUNCTIONS.items()}
    | {Op.NEG: "neg()", Op.NOT: "not()"}
)
# the number of each, and how many operands it takes
_OPS: Final = {word: (op, 1 if op in UNARY else 2) for op, word in _WORDS.items()}
# the value that decides without the right operand, and the instruction that skips it then
_LOGIC: Final = {"and": (False, Op.JUMP_IF_FALSE_KEEP), "or": (True, Op.JUMP_IF_TRUE_KEEP)}
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "none": None}
_GIVES_BOOL: Final = BOOLEAN_OPS | {Op.CHECK_BOOL}


def postfix(text: str) -> str:
    """Write an expression in postfix; empty if it has no such form.

    Raises:
        ExpressionError: `text` is no expression.
    """
    words: list[str] = []
    return " ".join(words) if _written(parse(text).root, words) else ""


def _written(node: Node, words: list[str]) -> bool:
    if isinstance(node, Name):
        words.append(node.name)
        return True
    if isinstance(node, Literal):
        words.append(str(node.value).lower())
        return not isinstance(node.value, str)
    for place, operand in enumerate(node.operands):
        if not _written(operand, words):
            return False
        if place or len(node.operands) == 1:
            words.append(node.word if isinstance(node, Logic) else _WORDS[node.op])
    return True


def assemble(
    text: str, values: Mapping[str, Constexpr], slots: Mapping[str, int], intern: Callable[[Value], int]
) -> bytes:
    """Make the program of an expression in postfix, and compute what is constant; empty if that is not possible.

    Args:
        text: as `postfix` writes it, though from a bundle that nobody trusts yet.
        values: what is constant.
        slots: the slot of each name that is not.
        intern: as `expr.compile` takes it.
    """
    operands: list[_Operand] = []
    try:
        for word in text.split(" "):
            if word in _OPS:
                op, takes = _OPS[word]
                operands[-takes:] = [_operation(op, operands[-takes:], takes, intern)]
            elif word in _LOGIC:
                operands[-2:] = [_logic(word, operands[-2], operands[-1], intern)]
            elif len(operands) < MAX_STACK:
                operands.append(_pushed(word, values, slots))
            else:
                return b""
        (whole,) = operands
    except (ValueError, IndexError):
        return b""
    code = _code(whole, intern)
    return b"".join([INSTRUCTION.pack(*each) for each in code]) if len(code) <= MAX_INSTRUCTIONS else b""


def _pushed(word: str, values: Mapping[str, Constexpr], slots: Mapping[str, int]) -> _Operand:
    if word in _CONSTANTS:
        return (_CONSTANTS[word],)
    if word not in values and word in slots:
        return [(Op.LOAD, slots[word])]
    value = expression_value(values[word]) if word in values else int(word)
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        raise ValueError
    return (value,)


def _code(operand: _Operand, intern: Callable[[Value], int]) -> _Code:
    return [constant(operand[0], intern)] if isinstance(operand, tuple) else operand


def _operation(op: Op, operands: list[_Operand], takes: int, intern: Callable[[Value], int]) -> _Operand:
    if len(operands) < takes:
        raise ValueError
    known = [operand[0] for operand in operands if isinstance(operand, tuple)]
    if len(known) == takes:
        try:
            return (apply(op, *known),)
        except ExpressionError:
            # it may never be reached
            pass
    return [*[each for operand in operands for each in _code(operand, intern)], (op, 0)]


def _logic(word: str, left: _Operand, right: _Operand, intern: Callable[[Value], int]) -> _Operand:
    stop, skip = _LOGIC[word]
    if isinstance(left, tuple) and left[0] is stop:
        return left
    rest = _code(right, intern)
    if rest[-1][0] not in _GIVES_BOOL:
        rest = [*rest, (Op.CHECK_BOOL, 0)]
    if isinstance(left, tuple) and left[0] is (not stop):
        return right if isinstance(right, tuple) and isinstance(right[0], bool) else rest
    first = _code(left, intern)
    if isinstance(right, tuple) and right[0] is (not stop) and first[-1][0] in _GIVES_BOOL:
        return first
    return [*first, (skip, len(rest)), *rest]
