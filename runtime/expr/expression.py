"""The expression language of manifests: grids, ``requires``, ``derived`` and ``when``.

The grammar, loosest first (text never reaches ``eval``)::

    or:          and ("or" and)*
    and:         not ("and" not)*
    not:         "not" not | comparison
    comparison:  sum (("==" | "!=" | "<" | "<=" | ">" | ">=") sum)?      no chaining
    sum:         product (("+" | "-") product)*
    product:     unary (("*" | "//" | "%") unary)*
    unary:       "-" unary | atom
    atom:        INT | STRING | "true" | "false" | "none" | NAME | NAME "(" or ("," or)* ")" | "(" or ")"

INT is decimal or ``0x``; STRING stands in single or double quotes and has no escapes; NAME is ``[A-Za-z_][A-Za-z0-9_]*``.
The functions are ``cdiv(a, b)``, ``min(a, b, ...)``, ``max(a, b, ...)``, ``next_pow2(a)`` (the smallest power of two
that is at least a and 1), ``aligned(pointer_or_int, bytes)`` and ``has(param)``, which is false for None alone.

Ints are 64-bit signed and never wrap: an overflow is an error. ``//`` and ``%`` floor, as in Python. Bools are no ints.
``==`` and ``!=`` compare type and value. A pointer stands only in ``aligned`` and ``has``; its address is unsigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.expr.operations import (
    INT64_MAX,
    INT64_MIN,
    MISSING,
    UNSEEN,
    ExpressionError,
    Missing,
    Op,
    Pointer,
    Tag,
    Unseen,
    Value,
    identity,
    same,
)
from nojit.runtime.expr.postfix import conjuncts, evaluate, infix, names_of, postfix

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "MAX_LENGTH",
    "MISSING",
    "UNSEEN",
    "Expression",
    "ExpressionError",
    "Missing",
    "Op",
    "Pointer",
    "Tag",
    "Unseen",
    "Value",
    "identity",
    "parse",
    "same",
]

MAX_LENGTH: Final = _core.EXPRESSION_LENGTH_MAX
"""Characters in an expression: text can come from a bundle that nobody trusts yet."""


class Expression(Record):
    """An expression that was read; two are equal if they mean the same operations, however they were written."""

    words: str
    """In postfix."""

    @property
    def text(self) -> str:
        """The expression, written with one space around operators and no needless parentheses."""
        return infix(self.words)

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> frozenset[str]:
        """The names that it may ask for, functions apart."""
        return names_of(self.words)

    def evaluate(self, values: Mapping[str, Value]) -> Value:
        """Compute the value for `values`, from name to value.

        Raises:
            ExpressionError: a name without a value, a type or a number that an operation cannot take, a result that
                is a pointer.
        """
        try:
            return evaluate(self.words, values)
        except ExpressionError as error:
            raise ExpressionError(error.message, self.text) from None

    def conjuncts(self) -> tuple[Expression, ...]:
        """Split at the outermost ``and``; an expression without one is its only conjunct."""
        return tuple(map(Expression, conjuncts(self.words)))


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: `text` is no expression; says what was expected, and where.
    """
    return Expression(postfix(text))
