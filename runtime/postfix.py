"""Grid expressions in postfix, as tables carry them beside the text: a program is made of them without parsing.

Words with one space between them, operands before their operation: ``cdiv(n, BLOCK * 2)`` is ``n BLOCK 2 * cdiv()``. A
word is a decimal int, a name, an operator, or a function with ``()`` behind it, as are ``neg()`` and ``not()``; each takes
two operands, or one as the language has it. What has no such form (``and``, ``or``, constants other than ints) has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from nojit.runtime.call import expression_value
from nojit.runtime.expr import parse
from nojit.runtime.expr_ops import INT64_MAX, INT64_MIN, Op, Value
from nojit.runtime.expr_program import INSTRUCTION, MAX_INSTRUCTIONS, MAX_STACK, UNARY, constant
from nojit.runtime.expr_tree import BINARY, FUNCTIONS, Literal, Name, Node, Operation
from nojit.runtime.values import Value as Constexpr

__all__ = ["assemble", "postfix"]

_WORDS: Final = (
    {op: symbol for op, (symbol, _) in BINARY.items()}
    | {function.op: f"{name}()" for name, function in FUNCTIONS.items()}
    | {Op.NEG: "neg()", Op.NOT: "not()"}
)
# the number of each, and how many operands it takes
_OPS: Final = {word: (int(op), 1 if op in UNARY else 2) for op, word in _WORDS.items()}


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
        words.append(str(node.value))
        return type(node.value) is int
    if not isinstance(node, Operation):
        return False
    for place, operand in enumerate(node.operands):
        if not _written(operand, words):
            return False
        if place or len(node.operands) == 1:
            words.append(_WORDS[node.op])
    return True


def assemble(
    text: str, values: Mapping[str, Constexpr], slots: Mapping[str, int], intern: Callable[[Value], int]
) -> bytes:
    """Make the program of an expression in postfix; empty if that is not possible.

    Args:
        text: as `postfix` writes it, though from a bundle that nobody trusts yet.
        values: what is constant.
        slots: the slot of each name that is not.
        intern: as `expr.compile` takes it.
    """
    code: list[tuple[int, int]] = []
    depth = 0
    for word in text.split(" "):
        known = _OPS.get(word)
        if known is None:
            depth += 1
            try:
                code.append(_pushed(word, values, slots, intern))
            except ValueError:
                return b""
        else:
            op, takes = known
            depth += 1 - takes
            code.append((op, 0))
        if not 0 < depth <= MAX_STACK:
            return b""
    whole = depth == 1 and len(code) <= MAX_INSTRUCTIONS
    return b"".join([INSTRUCTION.pack(op, operand) for op, operand in code]) if whole else b""


def _pushed(
    word: str, values: Mapping[str, Constexpr], slots: Mapping[str, int], intern: Callable[[Value], int]
) -> tuple[int, int]:
    if word in values:
        op, operand = constant(expression_value(values[word]), intern)
    elif word in slots:
        op, operand = Op.LOAD, slots[word]
    else:
        op, operand = Op.CONST_INT, int(word)
    if not INT64_MIN <= operand <= INT64_MAX:
        raise ValueError
    return op, operand
