"""The values of the expression language, and its operations, which the engine lists and computes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import typed
from nojit.runtime.values import identity

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "MISSING",
    "OPERATIONS",
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


class _Operation(NamedTuple):
    """A row of the engine's table of instructions."""

    name: str
    number: int
    word: str
    """In postfix; empty for an instruction that only programs have."""
    operands: int
    """Of the word."""
    binding: int
    """How tightly the word binds its operands."""


OPERATIONS: Final = {row.name: row for row in (_Operation(*each) for each in _core.operations())}
"""The engine's instructions by name; ``runtime/engine/expr/machine.h`` says what each does."""


class Op(IntEnum):
    """The instructions of a program."""

    CONST_INT = OPERATIONS["CONST_INT"].number
    CONST_BOOL = OPERATIONS["CONST_BOOL"].number
    CONST_NONE = OPERATIONS["CONST_NONE"].number
    CONST_OPAQUE = OPERATIONS["CONST_OPAQUE"].number
    LOAD = OPERATIONS["LOAD"].number
    NEG = OPERATIONS["NEG"].number
    NOT = OPERATIONS["NOT"].number
    ADD = OPERATIONS["ADD"].number
    SUB = OPERATIONS["SUB"].number
    MUL = OPERATIONS["MUL"].number
    FLOORDIV = OPERATIONS["FLOORDIV"].number
    MOD = OPERATIONS["MOD"].number
    EQ = OPERATIONS["EQ"].number
    NE = OPERATIONS["NE"].number
    LT = OPERATIONS["LT"].number
    LE = OPERATIONS["LE"].number
    GT = OPERATIONS["GT"].number
    GE = OPERATIONS["GE"].number
    CDIV = OPERATIONS["CDIV"].number
    MIN = OPERATIONS["MIN"].number
    MAX = OPERATIONS["MAX"].number
    NEXT_POW2 = OPERATIONS["NEXT_POW2"].number
    ALIGNED = OPERATIONS["ALIGNED"].number
    HAS = OPERATIONS["HAS"].number
    JUMP_IF_FALSE_KEEP = OPERATIONS["JUMP_IF_FALSE_KEEP"].number
    JUMP_IF_TRUE_KEEP = OPERATIONS["JUMP_IF_TRUE_KEEP"].number
    CHECK_BOOL = OPERATIONS["CHECK_BOOL"].number


class Tag(IntEnum):
    """The tag beside the 64-bit payload of a value in the engine; a zeroed slot is MISSING."""

    MISSING = _core.TAG_MISSING
    NONE = _core.TAG_NONE
    BOOL = _core.TAG_BOOL
    INT = _core.TAG_INT
    OPAQUE = _core.TAG_OPAQUE
    POINTER = _core.TAG_POINTER
    UINT = _core.TAG_UINT
    """An int that does not fit in 64 bits."""
    TUPLE = _core.TAG_TUPLE
    """A tuple or a descriptor: expressions can only ask whether it is there."""


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
