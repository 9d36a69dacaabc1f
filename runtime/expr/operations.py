"""The values of the expression language, and the numbers of its operations, which the engine computes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from nojit.runtime.frozen_record import Record
from nojit.runtime.values import identity
from nojit.runtime.wording import typed

__all__ = [
    "INSTRUCTION",
    "INT64_MAX",
    "INT64_MIN",
    "MISSING",
    "UNSEEN",
    "ExpressionError",
    "Missing",
    "Op",
    "Pointer",
    "Tag",
    "Unseen",
    "Value",
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


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = 0


MISSING: Final = Missing.MISSING
"""A slot of a program that this call gives no value for."""


class Unseen(Enum):
    """The type of `UNSEEN`."""

    UNSEEN = 0


UNSEEN: Final = Unseen.UNSEEN
"""An argument whose value expressions do not see: a tuple, a descriptor, an int of more than 63 bits."""

Value: TypeAlias = int | bool | str | float | Pointer | Hashable | None
"""The value of a name. Expressions only compare for equality if it is not an int, a bool, None, a Pointer or `UNSEEN`."""


class Op(IntEnum):
    """The instructions of a program; ``runtime/engine/expr/machine.h`` says what each does, and must agree on the numbers."""

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
