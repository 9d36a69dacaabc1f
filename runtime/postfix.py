"""Expressions in postfix, as tables carry them beside the text: the core makes programs of them without parsing.

Words with one space between them, operands before their operation: ``cdiv(n, BLOCK * 2)`` is ``n BLOCK 2 * cdiv()``. A
word is a decimal int, ``true``, ``false``, ``none``, a name, an operator, ``and`` and ``or`` included, or a function with
``()`` behind it, as are ``neg()`` and ``not()``; each takes two operands, or one as the language has it. Strings have no
such form.
"""

from __future__ import annotations

from typing import Final

from nojit.runtime.expr import parse
from nojit.runtime.expr_ops import Op
from nojit.runtime.expr_tree import BINARY, FUNCTIONS, Literal, Logic, Name, Node

__all__ = ["postfix"]

_WORDS: Final = (
    {op: symbol for op, (symbol, _) in BINARY.items()}
    | {function.op: f"{name}()" for name, function in FUNCTIONS.items()}
    | {Op.NEG: "neg()", Op.NOT: "not()"}
)


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
