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
from enum import Enum
from functools import lru_cache
from typing import Final

from nojit.runtime.expr_ops import (
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
from nojit.runtime.expr_tree import (
    FUNCTIONS,
    Literal,
    Logic,
    Name,
    Node,
    Operation,
    evaluate,
    fold,
    is_boolean,
    render,
    tree_of,
    walk,
)
from nojit.runtime.postfix import postfix
from nojit.runtime.record import Record

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "MAX_LENGTH",
    "MISSING",
    "NOT_CONSTANT",
    "UNSEEN",
    "Expression",
    "ExpressionError",
    "Missing",
    "NotConstant",
    "Op",
    "Pointer",
    "Tag",
    "Unseen",
    "Value",
    "identity",
    "implied_hint",
    "parse",
    "same",
    "settled",
    "substitute",
]


MAX_LENGTH: Final = 4096
"""Characters in an expression: text can come from a bundle that nobody trusts yet."""


class NotConstant(Enum):
    """The type of `NOT_CONSTANT`."""

    NOT_CONSTANT = 0


NOT_CONSTANT: Final = NotConstant.NOT_CONSTANT
"""What `Expression.constant` gives for an expression that still depends on a name, or fails."""


class Expression(Record):
    """A parsed expression; two are equal if their trees are, however they were written."""

    root: Node

    __slots__ = ("_names",)

    @property
    def text(self) -> str:
        """The expression, written with one space around operators and no needless parentheses."""
        return render(self.root)

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> frozenset[str]:
        """The names that it may ask for, functions apart."""
        known: frozenset[str] | None = getattr(self, "_names", None)
        if known is None:
            known = frozenset([node.name for node in walk(self.root) if isinstance(node, Name)])
            object.__setattr__(self, "_names", known)
        return known

    @property
    def calls(self) -> frozenset[str]:
        """The functions that it calls."""
        used = {node.op for node in walk(self.root) if isinstance(node, Operation)}
        return frozenset(name for name, function in FUNCTIONS.items() if function.op in used)

    @property
    def is_boolean(self) -> bool:
        """Whether it can only give a bool, or fail; a bare name is not known to."""
        return is_boolean(self.root)

    def evaluate(self, values: Mapping[str, Value]) -> Value:
        """Compute the value for `values`, from name to value.

        Raises:
            ExpressionError: a name without a value, a type or a number that an operation cannot take, a result that
                is a pointer.
        """
        try:
            return evaluate(self.root, values)
        except ExpressionError as error:
            raise ExpressionError(error.message, self.text) from None

    def conjuncts(self) -> tuple[Expression, ...]:
        """Split at the outermost ``and``; an expression without one is its only conjunct."""
        if isinstance(self.root, Logic) and not self.root.stop:
            return tuple(Expression(operand) for operand in self.root.operands)
        return (self,)

    def constant(self) -> Value | NotConstant:
        """Give the value if it is a constant, else `NOT_CONSTANT`."""
        return self.root.value if isinstance(self.root, Literal) else NOT_CONSTANT


def substitute(expression: Expression, values: Mapping[str, Value]) -> Expression:
    """Put constants for the names in `values`, and fold what then is constant; pointers stay names, but ``has`` of one is true.

    The result evaluates to what `expression` would with `values` added, errors included.
    """
    return Expression(fold(expression.root, values))


def settled(expression: Expression) -> Value | NotConstant:
    """Give the one value that an expression can have where it does not fail: ``n > 4 and false`` is false; else `NOT_CONSTANT`."""
    return _settled(expression.root)


def _settled(node: Node) -> Value | NotConstant:
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Logic):
        values = [_settled(operand) for operand in node.operands]
        if node.stop in [value for value in values if isinstance(value, bool)]:
            return node.stop
        return (not node.stop) if all(value is (not node.stop) for value in values) else NOT_CONSTANT
    if isinstance(node, Operation) and node.op is Op.NOT:
        value = _settled(node.operands[0])
        return (not value) if isinstance(value, bool) else NOT_CONSTANT
    return NOT_CONSTANT


def implied_hint(expression: Expression) -> tuple[str, int] | None:
    """Give the hint that holds wherever `expression` does: ``(param, 16)`` or ``(param, 1)``; None if there is none."""
    match expression.root:
        case Operation(Op.ALIGNED, (Name(name), Literal(int(alignment)))) if _is_multiple_of_16(alignment):
            return name, 16
        case Operation(Op.EQ, (Operation(Op.MOD, (Name(name), Literal(int(divisor)))), Literal(int(rest)))) if same(
            rest, 0
        ) and _is_multiple_of_16(divisor):
            return name, 16
        case Operation(Op.EQ, (Name(name), Literal(value))) if same(value, 1):
            return name, 1
        case _:
            return None


def _is_multiple_of_16(value: int) -> bool:
    return type(value) is int and value > 0 and value % 16 == 0


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: `text` is no expression; says what was expected, and where.
    """
    return Expression(tree_of(postfix(text)))
