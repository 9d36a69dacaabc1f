"""Expressions in postfix, as tables carry them beside the text: the core makes programs of them without parsing.

Words with one space between them, operands before their operation: ``cdiv(n, BLOCK * 2)`` is ``n BLOCK 2 * cdiv()``. A
word is a decimal int, ``true``, ``false``, ``none``, a name, an operator, ``and`` and ``or`` included, or a function with
``()`` behind it, as are ``neg()`` and ``not()``; each takes two operands, or one as the language has it. Strings have no
such form.
"""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.expr_ops import ExpressionError

__all__ = ["postfix"]


def postfix(text: str) -> str:
    """Write an expression in postfix; empty if it has no such form.

    Raises:
        ExpressionError: `text` is no expression.
    """
    words = _core.postfix(text)
    if words is None:
        from nojit.runtime.expr_parser import parse_tree  # noqa: PLC0415 - only what is wrong is gone through to say why

        parse_tree(text)
        raise ExpressionError("no expression", text)
    return words
