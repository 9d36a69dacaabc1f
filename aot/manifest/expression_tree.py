"""Expressions as trees, for the build: checked, folded, and searched for what they imply.

A tree is immutable, compares by structure (``true`` and ``1`` differ), and is at most `MAX_HEIGHT` levels high, so that
walking it never comes near Python's recursion limit. The engine reads text and computes values; `nojit.runtime.expr.expression` is what
launches need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.expr.operations import MISSING, ExpressionError, Op, Value, identity, same
from nojit.runtime.expr.postfix import UNARY, WORDS, infix, postfix, words_of
from nojit.runtime.expr.postfix import evaluate as compute

__all__ = [
    "MAX_HEIGHT",
    "NOT_CONSTANT",
    "Expression",
    "Literal",
    "Logic",
    "Name",
    "Node",
    "NotConstant",
    "Operation",
    "apply",
    "evaluate",
    "fold",
    "implied_hint",
    "is_boolean",
    "parse",
    "render",
    "settled",
    "substitute",
    "tree_of",
    "walk",
]

MAX_HEIGHT: Final = _core.EXPRESSION_HEIGHT_MAX
"""Levels in a tree."""

_OPERATIONS: Final = {word: op for op, word in WORDS.items()}
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "none": None}
_BOOLEAN_OPS: Final = frozenset({Op.NOT, Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.ALIGNED, Op.HAS})


class Literal(Record):
    """A constant; ``true`` and ``1`` are two."""

    value: Value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and identity(self.value) == identity(other.value)

    def __hash__(self) -> int:
        return hash(identity(self.value))


class Name(Record):
    """A param, a constexpr, an axis or ``arch``."""

    name: str


class Operation(Record):
    """An operation that computes all its operands first; min and max take two or more, the others one or two."""

    op: Op
    operands: tuple[Node, ...]
    height: int
    """Levels, itself included; a leaf has 1."""

    def __init__(self, op: Op, operands: tuple[Node, ...]) -> None:
        super().__init__(op, operands, _height(operands))

    def __reduce__(self) -> tuple[Any, ...]:
        return Operation, (self.op, self.operands)


class Logic(Record):
    """``and`` or ``or`` over two or more operands: left to right, no further than it must, bools only."""

    stop: bool
    """The value that ends it: false for ``and``, true for ``or``."""
    operands: tuple[Node, ...]
    height: int
    """As of `Operation`."""

    def __init__(self, stop: bool, operands: tuple[Node, ...]) -> None:
        super().__init__(stop, operands, _height(operands))

    def __reduce__(self) -> tuple[Any, ...]:
        return Logic, (self.stop, self.operands)

    @property
    def word(self) -> str:
        """``and`` or ``or``."""
        return "or" if self.stop else "and"


Node: TypeAlias = Literal | Name | Operation | Logic


def tree_of(words: str) -> Node:
    """Make the tree of an expression in postfix."""
    made: list[Node] = []
    for word in words_of(words):
        op = _OPERATIONS.get(word)
        if op in UNARY:
            made[-1] = Operation(op, (made[-1],))
        elif op is not None or word in ("and", "or"):
            right = made.pop()
            made[-1] = _joined(op, made[-1], right) if op else _either(word == "or", made[-1], right)
        else:
            made.append(_leaf(word))
    return made[0]


def _joined(op: Op, left: Node, right: Node) -> Operation:
    """Make an operation of two; what min and max join to the same is one operation of more."""
    chained = op in (Op.MIN, Op.MAX) and isinstance(left, Operation) and left.op is op
    return Operation(op, (*left.operands, right) if chained else (left, right))  # type: ignore[union-attr] # it is one


def _either(stop: bool, left: Node, right: Node) -> Logic:
    chained = isinstance(left, Logic) and left.stop is stop
    return Logic(stop, (*left.operands, right) if chained else (left, right))  # type: ignore[union-attr] # it is one


def _leaf(word: str) -> Node:
    if word in _CONSTANTS:
        return Literal(_CONSTANTS[word])
    if word[0] in "'\"":
        return Literal(word[1:-1])
    return Literal(int(word)) if word[0] in "-0123456789" else Name(word)


def _height(operands: tuple[Node, ...]) -> int:
    height = 1 + max([operand.height if isinstance(operand, (Operation, Logic)) else 1 for operand in operands])
    if height > MAX_HEIGHT:
        raise ExpressionError(f"more than {MAX_HEIGHT} levels of operations")
    return height


def walk(node: Node) -> Iterator[Node]:
    """Visit a node and everything below it."""
    yield node
    if isinstance(node, (Operation, Logic)):
        for operand in node.operands:
            yield from walk(operand)


def is_boolean(node: Node) -> bool:
    """Tell whether a node can only give a bool, or fail."""
    if isinstance(node, Literal):
        return isinstance(node.value, bool)
    return isinstance(node, Logic) or (isinstance(node, Operation) and node.op in _BOOLEAN_OPS)


def evaluate(node: Node, values: Mapping[str, Value]) -> Value:
    """Compute a node's value.

    Raises:
        ExpressionError: a name without a value, or an operation that fails.
    """
    literals: dict[str, Value] = {}
    words = _words(node, literals)
    return compute(words, {**values, **literals} if literals else values)


def _words(node: Node, literals: dict[str, Value]) -> str:
    """Write a node in postfix; `literals` gets a name for each constant that has no word."""
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Literal):
        if node.value is None or isinstance(node.value, bool) or type(node.value) is int:
            return str(node.value).lower()
        if isinstance(node.value, str) and not ("'" in node.value and '"' in node.value):
            return f'"{node.value}"' if "'" in node.value else f"'{node.value}'"
        # no name of the language begins so
        name = f"#{len(literals)}#"
        literals[name] = node.value
        return name
    word = node.word if isinstance(node, Logic) else WORDS[node.op]
    first, *others = [_words(operand, literals) for operand in node.operands]
    return " ".join([first, *[part for other in others for part in (other, word)]] if others else [first, word])


def apply(op: Op, *operands: Value) -> Value:
    """Compute one operation (NEG to HAS).

    Raises:
        ExpressionError: an operand of a type that the operation does not take, an overflow, a division by zero.
    """
    return evaluate(Operation(op, tuple(map(Literal, operands))), {})


def _is_there(node: Operation, values: Mapping[str, Value]) -> bool:
    """Say whether a node is ``has`` of a value that may be none that can be put for the name."""
    (operand, *_) = node.operands
    return node.op is Op.HAS and isinstance(operand, Name) and values.get(operand.name, MISSING) not in (None, MISSING)


def fold(node: Node, values: Mapping[str, Value]) -> Node:
    """Put constants for the names in `values`, and compute what then is constant.

    Pointers, and what expressions cannot see, stay names: an address is a fact of one call, never a constant; but that they
    are there is one. A part that would fail stays as it is: it may never be reached.
    """
    if isinstance(node, Literal):
        return node
    if isinstance(node, Logic):
        return _fold_logic(node, values)
    if isinstance(node, Operation):
        if _is_there(node, values):
            return Literal(value=True)
        node = Operation(node.op, tuple(fold(operand, values) for operand in node.operands))
        constant = all(isinstance(operand, Literal) for operand in node.operands)
    else:
        constant = node.name in values
    if not constant:
        return node
    try:
        return Literal(evaluate(node, values))
    except ExpressionError:
        return node


def _fold_logic(node: Logic, values: Mapping[str, Value]) -> Node:
    kept: list[Node] = []
    for operand in node.operands:
        folded = fold(operand, values)
        constant = folded.value if isinstance(folded, Literal) else None
        if constant is (not node.stop):
            continue
        kept += folded.operands if isinstance(folded, Logic) and folded.stop is node.stop else (folded,)
        if constant is node.stop:
            break
    neutral = Literal(not node.stop)
    if not kept:
        return neutral
    if len(kept) > 1:
        return Logic(node.stop, tuple(kept))
    # beside an operand that might not be a bool the neutral one stays: the error must stay too
    return kept[0] if is_boolean(kept[0]) else Logic(node.stop, (neutral, kept[0]))


def render(node: Node) -> str:
    """Write a node as text, with no more parentheses than it needs; `parse` reads it back as an equal tree.

    (Not so constants that the language cannot spell: floats, strings with both kinds of quotes.)
    """
    literals: dict[str, Value] = {}
    text = infix(_words(node, literals))
    for name, value in literals.items():
        text = text.replace(name, repr(value))
    return text


class NotConstant(Enum):
    """The type of `NOT_CONSTANT`."""

    NOT_CONSTANT = 0


NOT_CONSTANT: Final = NotConstant.NOT_CONSTANT
"""The result of `Expression.constant` for an expression that still depends on a name, or fails."""


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
