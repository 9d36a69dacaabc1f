"""What the expression language computes: its values, its operations and their numbers.

The tree (`nojit.runtime.expr_tree`) and the program (`nojit.runtime.expr_program`) share these operations, and the C
core computes the same: 64-bit signed integers with Python's floor meaning, and an error instead of a wrong number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from nojit.runtime.errors import typed
from nojit.runtime.record import Record
from nojit.runtime.values import identity

__all__ = [
    "INSTRUCTION",
    "INT64_MAX",
    "INT64_MIN",
    "MISSING",
    "UNSEEN",
    "ExpressionError",
    "Missing",
    "Op",
    "Opaque",
    "Pointer",
    "Tag",
    "Unseen",
    "Value",
    "apply",
    "constant",
    "describe",
    "identity",
    "same",
]

INSTRUCTION: Final = struct.Struct("<B7xq")
"""An `Op` and its operand."""
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


class ExpressionError(ValueError):
    """An expression that cannot be read, or cannot be evaluated for the values at hand.

    Attributes:
        message: what is wrong, without the place.
        text: the expression; empty if it is not known.
        column: the offset in `text`, from 0, where reading failed; None for an error of evaluation.
    """

    def __init__(self, message: str, text: str = "", column: int | None = None) -> None:
        self.message = message
        self.text = text
        self.column = column
        super().__init__(message, text, column)

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 200 else self.text[:197] + "..."
        if self.column is not None:
            return f"{self.message} at column {self.column} of {shown!r}"
        return f"{self.message} in {shown!r}" if self.text else self.message


class Pointer(Record):
    """An argument that is a device address: only ``aligned`` and ``has`` look at it."""

    address: int
    """Unsigned, in bytes."""


class Opaque(Record):
    """A value as programs see it that is neither int, bool, None nor pointer: strings and floats, by interned id."""

    id: int


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = 0


MISSING: Final = Missing.MISSING
"""A slot of a program that this call gives no value for."""


class Unseen(Enum):
    """The type of `UNSEEN`."""

    UNSEEN = 0


UNSEEN: Final = Unseen.UNSEEN
"""An argument of which expressions see only that it is there: a tuple, a descriptor, an int of more than 63 bits."""

Value: TypeAlias = int | bool | str | float | Pointer | Hashable | None
"""What a name can stand for; whatever is not an int, a bool, None, a Pointer or `UNSEEN` only compares for equality."""


class Op(IntEnum):
    """The instructions of a program; `nojit.runtime.expr_program` says what each does to the stack.

    The numbers are a contract with C: ``runtime/engine/expr/machine.h`` must agree.
    """

    CONST_INT = 1
    CONST_BOOL = 2
    CONST_NONE = 3
    CONST_OPAQUE = 4
    LOAD = 5
    NEG = 6
    NOT = 7
    ADD = 8
    SUB = 9
    MUL = 10
    FLOORDIV = 11
    MOD = 12
    EQ = 13
    NE = 14
    LT = 15
    LE = 16
    GT = 17
    GE = 18
    CDIV = 19
    MIN = 20
    MAX = 21
    NEXT_POW2 = 22
    ALIGNED = 23
    HAS = 24
    JUMP_IF_FALSE_KEEP = 25
    JUMP_IF_TRUE_KEEP = 26
    CHECK_BOOL = 27


class Tag(IntEnum):
    """The tag beside the 64-bit payload of a value in C; a zeroed slot is MISSING.

    The numbers are a contract with C: ``runtime/engine/expr/machine.h`` must agree.
    """

    MISSING = 0
    NONE = 1
    BOOL = 2
    INT = 3
    OPAQUE = 4
    POINTER = 5


def constant(value: Value, intern: Callable[[Value], int]) -> tuple[Op, int]:
    """Return the instruction that pushes a constant, which is no pointer."""
    if isinstance(value, bool):
        return Op.CONST_BOOL, int(value)
    if type(value) is int:
        return Op.CONST_INT, value
    if value is None:
        return Op.CONST_NONE, 0
    return Op.CONST_OPAQUE, intern(value)


def describe(value: Value) -> str:
    """Say what `value` is, for a message: ``int 3``, ``pointer``, ``none``."""
    if isinstance(value, Pointer):
        return "pointer"
    if value is None:
        return "none"
    if value is UNSEEN:
        return "a tuple, a descriptor or an int of more than 63 bits"
    if isinstance(value, bool):
        return f"bool {str(value).lower()}"
    return typed(value)


def same(left: Value, right: Value) -> bool:
    """Tell whether two values have the same type and value: ``True``, ``1`` and ``1.0`` all differ."""
    return identity(left) == identity(right)


def apply(op: Op, *operands: Value) -> Value:
    """Compute one operation (NEG to HAS).

    Raises:
        ExpressionError: an operand of a type that the operation does not take, an overflow, a division by zero.
    """
    return _FUNCTIONS[op](*operands)


def _ints(symbol: str, *operands: Value) -> tuple[int, ...]:
    for operand in operands:
        if type(operand) is not int:
            raise ExpressionError(f"{symbol} takes ints, got {describe(operand)}")
    return operands  # type: ignore[return-value] # the loop has proved it


def _fit(symbol: str, result: int, *operands: int) -> int:
    if not INT64_MIN <= result <= INT64_MAX:
        shown = ", ".join(map(str, operands))
        raise ExpressionError(f"{symbol} of {shown} does not fit in 64 bits")
    return result


def _arithmetic(symbol: str, compute: Callable[[int, int], int]) -> Callable[..., Value]:
    def operation(left: Value, right: Value) -> Value:
        a, b = _ints(symbol, left, right)
        return _fit(symbol, compute(a, b), a, b)

    return operation


def _division(symbol: str, compute: Callable[[int, int], int]) -> Callable[..., Value]:
    def operation(left: Value, right: Value) -> Value:
        a, b = _ints(symbol, left, right)
        if b == 0:
            raise ExpressionError(f"division by zero: {a} {symbol} 0")
        return _fit(symbol, compute(a, b), a, b)

    return operation


def _ordering(symbol: str, compute: Callable[[int, int], bool]) -> Callable[..., Value]:
    def operation(left: Value, right: Value) -> Value:
        return compute(*_ints(symbol, left, right))

    return operation


def _equal(left: Value, right: Value) -> bool:
    if isinstance(left, Pointer) or isinstance(right, Pointer):
        raise ExpressionError("a pointer does not compare; use has(...) or aligned(..., bytes)")
    if left is UNSEEN or right is UNSEEN:
        raise ExpressionError("a tuple, a descriptor or an int of more than 63 bits does not compare; use has(...)")
    return same(left, right)


def _not_equal(left: Value, right: Value) -> bool:
    return not _equal(left, right)


def _negate(operand: Value) -> int:
    (a,) = _ints("-", operand)
    return _fit("-", -a, a)


def _not(operand: Value) -> bool:
    if not isinstance(operand, bool):
        raise ExpressionError(f"not takes a bool, got {describe(operand)}")
    return not operand


def _cdiv(left: Value, right: Value) -> int:
    a, b = _ints("cdiv", left, right)
    if b <= 0:
        raise ExpressionError(f"cdiv needs a positive divisor, got {b}")
    return -(-a // b)


def _next_pow2(operand: Value) -> int:
    (a,) = _ints("next_pow2", operand)
    return _fit("next_pow2", 1 << (max(a, 1) - 1).bit_length(), a)


def _aligned(operand: Value, alignment: Value) -> bool:
    if type(alignment) is not int or alignment <= 0:
        raise ExpressionError(f"aligned needs a positive number of bytes, got {describe(alignment)}")
    if operand is None:
        return False
    if isinstance(operand, Pointer):
        return operand.address % alignment == 0
    if type(operand) is int:
        return operand % alignment == 0
    raise ExpressionError(f"aligned takes a pointer or an int, got {describe(operand)}")


def _has(operand: Value) -> bool:
    return operand is not None


_FUNCTIONS: Final[dict[Op, Callable[..., Value]]] = {
    Op.NEG: _negate,
    Op.NOT: _not,
    Op.ADD: _arithmetic("+", lambda a, b: a + b),
    Op.SUB: _arithmetic("-", lambda a, b: a - b),
    Op.MUL: _arithmetic("*", lambda a, b: a * b),
    Op.FLOORDIV: _division("//", lambda a, b: a // b),
    Op.MOD: _division("%", lambda a, b: a % b),
    Op.EQ: _equal,
    Op.NE: _not_equal,
    Op.LT: _ordering("<", lambda a, b: a < b),
    Op.LE: _ordering("<=", lambda a, b: a <= b),
    Op.GT: _ordering(">", lambda a, b: a > b),
    Op.GE: _ordering(">=", lambda a, b: a >= b),
    Op.CDIV: _cdiv,
    Op.MIN: _arithmetic("min", min),
    Op.MAX: _arithmetic("max", max),
    Op.NEXT_POW2: _next_pow2,
    Op.ALIGNED: _aligned,
    Op.HAS: _has,
}
