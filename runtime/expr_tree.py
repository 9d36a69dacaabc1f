"""Expressions as trees: evaluated, folded and written back as text.

A tree is immutable, compares by structure (``true`` and ``1`` differ), and is at most `MAX_HEIGHT` levels high, so that
walking it never comes near Python's recursion limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from nojit.runtime import postfix
from nojit.runtime.expr_ops import MISSING, ExpressionError, Op, Value, identity
from nojit.runtime.record import Record

__all__ = [
    "BINARY",
    "FUNCTIONS",
    "MAX_HEIGHT",
    "Function",
    "Literal",
    "Logic",
    "Name",
    "Node",
    "Operation",
    "apply",
    "evaluate",
    "fold",
    "is_boolean",
    "render",
    "tree_of",
    "walk",
]

MAX_HEIGHT: Final = 64
"""Levels in a tree."""

BINARY: Final[dict[Op, tuple[str, int]]] = {
    Op.EQ: ("==", 4),
    Op.NE: ("!=", 4),
    Op.LT: ("<", 4),
    Op.LE: ("<=", 4),
    Op.GT: (">", 4),
    Op.GE: (">=", 4),
    Op.ADD: ("+", 5),
    Op.SUB: ("-", 5),
    Op.MUL: ("*", 6),
    Op.FLOORDIV: ("//", 6),
    Op.MOD: ("%", 6),
}
"""Each binary operation's spelling and how tightly it binds; ``or`` is 1, ``and`` 2, ``not`` 3, unary ``-`` 7."""

_OR, _AND, _NOT, _COMPARE, _NEG, _ATOM = 1, 2, 3, 4, 7, 8


class Function(Record):
    """A function of the language."""

    op: Op
    min_args: int
    max_args: int | None
    """None: as many as one likes."""


FUNCTIONS: Final[dict[str, Function]] = {
    "cdiv": Function(Op.CDIV, 2, 2),
    "min": Function(Op.MIN, 2, None),
    "max": Function(Op.MAX, 2, None),
    "next_pow2": Function(Op.NEXT_POW2, 1, 1),
    "aligned": Function(Op.ALIGNED, 2, 2),
    "has": Function(Op.HAS, 1, 1),
}
_OPERATIONS: Final = {word: op for op, word in postfix.WORDS.items()}
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "none": None}
_FUNCTION_NAMES: Final = {function.op: name for name, function in FUNCTIONS.items()}
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
    for word in postfix.words_of(words):
        op = _OPERATIONS.get(word)
        if op in postfix.UNARY:
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
    return postfix.evaluate(words, {**values, **literals} if literals else values)


def _words(node: Node, literals: dict[str, Value]) -> str:
    """Write a node in postfix; `literals` gets a name for each constant that has no word."""
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Literal):
        if node.value is None or isinstance(node.value, bool) or type(node.value) is int:
            return _render_value(node.value)
        # no name of the language begins so
        name = f"#{len(literals)}"
        literals[name] = node.value
        return name
    word = node.word if isinstance(node, Logic) else postfix.WORDS[node.op]
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
    are there is one. What would fail stays as it is: a failing part may never be reached.
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
    if isinstance(node, Literal):
        return _render_value(node.value)
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Logic):
        return f" {node.word} ".join(_wrap(operand, _binding(node) + 1) for operand in node.operands)
    if node.op in _FUNCTION_NAMES:
        return f"{_FUNCTION_NAMES[node.op]}({', '.join(map(render, node.operands))})"
    return _render_operator(node)


def _render_operator(node: Operation) -> str:
    first, *rest = node.operands
    if node.op is Op.NOT:
        return f"not {_wrap(first, _NOT)}"
    if node.op is Op.NEG:
        # `-(5)` is the negation of 5, `-5` a constant
        return f"-({render(first)})" if isinstance(first, Literal) else f"-{_wrap(first, _NEG)}"
    symbol, binding = BINARY[node.op]
    # comparisons do not chain; the others group to the left
    return f"{_wrap(first, binding + (binding == _COMPARE))} {symbol} {_wrap(rest[0], binding + 1)}"


def _render_value(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, str) and "'" not in value:
        return f"'{value}'"
    if isinstance(value, str) and '"' not in value:
        return f'"{value}"'
    return repr(value)


def _wrap(node: Node, binding: int) -> str:
    return render(node) if _binding(node) >= binding else f"({render(node)})"


def _binding(node: Node) -> int:
    if isinstance(node, Logic):
        return _OR if node.stop else _AND
    if isinstance(node, Operation):
        return BINARY[node.op][1] if node.op in BINARY else {Op.NOT: _NOT, Op.NEG: _NEG}.get(node.op, _ATOM)
    return _NEG if isinstance(node, Literal) and type(node.value) is int and node.value < 0 else _ATOM
