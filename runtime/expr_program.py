"""Expressions as programs for a stack machine: the form that the C core runs at every launch.

A program is a run of 16-byte instructions, ``<B7xq``: an `Op` and its operand. The machine has a stack of at most
`MAX_STACK` values and an array of slots, one for each name that the program may load; a value is a `Tag` and 64 bits.
Each instruction does to the stack:

- CONST_INT, CONST_BOOL, CONST_NONE, CONST_OPAQUE push a constant: the operand, the operand as 0 or 1, none, and the
  string or float whose interned id is the operand.
- LOAD pushes the slot of that number; a MISSING slot is an error. Of an UNSEEN slot HAS alone can be asked.
- NEG, NOT, NEXT_POW2, HAS replace the top by their result; ADD to GE, CDIV, MIN, MAX and ALIGNED replace the top two,
  the left operand below. Two OPAQUEs are equal if their ids are; addresses are unsigned.
- JUMP_IF_FALSE_KEEP and JUMP_IF_TRUE_KEEP check that the top is a bool. If it is false (or true), they skip as many
  instructions as the operand says and keep it; else they pop it. Jumps only go forward, at most to the end.
- CHECK_BOOL checks that the top is a bool.

The one value left at the end is the result; a pointer is an error. `run` is the executable form of this text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from nojit.runtime.expr_ops import (
    INSTRUCTION,
    INT64_MAX,
    INT64_MIN,
    MISSING,
    UNSEEN,
    ExpressionError,
    Op,
    Opaque,
    Pointer,
    Value,
    apply,
    constant,
    describe,
)
from nojit.runtime.expr_tree import Literal, Logic, Name, Node, Operation, is_boolean

if TYPE_CHECKING:
    from nojit.runtime.expr import Expression

__all__ = ["INSTRUCTION_BYTES", "MAX_INSTRUCTIONS", "MAX_STACK", "UNARY", "compile", "run"]

INSTRUCTION_BYTES: Final = INSTRUCTION.size
MAX_INSTRUCTIONS: Final = 256
MAX_STACK: Final = 32
UNARY: Final = frozenset({Op.NEG, Op.NOT, Op.NEXT_POW2, Op.HAS})
_BINARY: Final = frozenset({*range(Op.ADD, Op.MAX + 1), Op.ALIGNED})


def compile(  # noqa: A001 - the verb that fits, always used as expr.compile
    expression: Expression, slots: Mapping[str, int], intern: Callable[[Value], int]
) -> bytes:
    """Translate an expression into a program.

    Args:
        expression: what to compute.
        slots: the slot of each name.
        intern: gives equal ids to the same strings or floats (as `identity` tells them), and else different ones.

    Raises:
        ExpressionError: a name without a slot, a program beyond `MAX_INSTRUCTIONS` or `MAX_STACK`.
    """
    emitter = _Emitter(slots, intern)
    try:
        emitter.emit(expression.root, 0)
    except ExpressionError as error:
        raise ExpressionError(error.message, expression.text) from None
    if len(emitter.code) > MAX_INSTRUCTIONS:
        raise ExpressionError(f"more than {MAX_INSTRUCTIONS} instructions", expression.text)
    return b"".join(INSTRUCTION.pack(op, operand) for op, operand in emitter.code)


class _Emitter:
    def __init__(self, slots: Mapping[str, int], intern: Callable[[Value], int]) -> None:
        self.slots = slots
        self.intern = intern
        self.code: list[tuple[Op, int]] = []

    def emit(self, node: Node, depth: int) -> None:
        """Append the code that pushes `node`'s value on a stack of `depth` values."""
        if depth >= MAX_STACK:
            raise ExpressionError(f"expected at most {MAX_STACK} levels of nested operations")
        match node:
            case Literal(value):
                self.code.append(constant(value, self.intern))
            case Name(name):
                if name not in self.slots:
                    raise ExpressionError(f"no slot for name {name!r}")
                self.code.append((Op.LOAD, self.slots[name]))
            case Logic():
                self._logic(node, depth)
            case Operation(op, operands):
                for index, operand in enumerate(operands):
                    self.emit(operand, depth + min(index, 1))
                    if index or len(operands) == 1:
                        self.code.append((op, 0))

    def _logic(self, node: Logic, depth: int) -> None:
        *firsts, last = node.operands
        jump = Op.JUMP_IF_TRUE_KEEP if node.stop else Op.JUMP_IF_FALSE_KEEP
        jumps = []
        for operand in firsts:
            self.emit(operand, depth)
            jumps.append(len(self.code))
            self.code.append((jump, 0))
        self.emit(last, depth)
        if not is_boolean(last):
            self.code.append((Op.CHECK_BOOL, 0))
        for at in jumps:
            self.code[at] = (jump, len(self.code) - at - 1)


def run(program: bytes, slot_values: Sequence[Value]) -> Value:
    """Run a program, as the C core does.

    Args:
        program: what `compile` gave.
        slot_values: the value of each slot: int, bool, None, `Pointer`, `Opaque`, `UNSEEN` or `MISSING`.

    Raises:
        ExpressionError: an operation failed, or the program is none that `compile` makes.
    """
    if len(program) % INSTRUCTION_BYTES or not 0 < len(program) <= MAX_INSTRUCTIONS * INSTRUCTION_BYTES:
        raise ExpressionError(f"a program of {len(program)} bytes")
    code = list(INSTRUCTION.iter_unpack(program))
    stack: list[Value] = []
    at = 0
    while at < len(code):
        op, operand = code[at]
        at += 1 + _step(op, operand, stack, slot_values)
    if at != len(code) or len(stack) != 1 or isinstance(stack[0], Pointer) or stack[0] is UNSEEN:
        raise ExpressionError("a program that does not leave one value that is no pointer")
    return stack[0]


def _step(op: int, operand: int, stack: list[Value], slot_values: Sequence[Value]) -> int:
    """Do one instruction, and say how many to skip after it."""
    if op <= Op.LOAD:
        if len(stack) >= MAX_STACK:
            raise ExpressionError(f"more than {MAX_STACK} values on the stack")
        stack.append(_push(op, operand, slot_values))
        return 0
    if len(stack) < (2 if op in _BINARY else 1):
        raise ExpressionError(f"instruction {op} on a stack of {len(stack)}")
    if op in _BINARY:
        right = stack.pop()
        stack[-1] = apply(Op(op), stack[-1], right)
        return 0
    if op in UNARY:
        stack[-1] = apply(Op(op), stack[-1])
        return 0
    if op not in (Op.JUMP_IF_FALSE_KEEP, Op.JUMP_IF_TRUE_KEEP, Op.CHECK_BOOL) or operand < 0:
        raise ExpressionError(f"no instruction {op} with operand {operand}")
    if not isinstance(stack[-1], bool):
        raise ExpressionError(f"`and` and `or` take bools, got {describe(stack[-1])}")
    if op == Op.CHECK_BOOL:
        return 0
    if stack[-1] is (op == Op.JUMP_IF_TRUE_KEEP):
        return operand
    stack.pop()
    return 0


def _push(op: int, operand: int, slot_values: Sequence[Value]) -> Value:
    if op == Op.CONST_INT:
        return operand
    if op == Op.CONST_BOOL:
        return bool(operand)
    if op == Op.CONST_NONE:
        return None
    if op == Op.CONST_OPAQUE:
        return Opaque(operand)
    if op != Op.LOAD or not 0 <= operand < len(slot_values):
        raise ExpressionError(f"no instruction {op} with operand {operand}")
    value = slot_values[operand]
    if value is MISSING:
        raise ExpressionError(f"slot {operand} has no value")
    if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
        return UNSEEN
    if not (value is None or value is UNSEEN or isinstance(value, (bool, int, Pointer, Opaque))):
        raise ExpressionError(f"slot {operand} holds a {type(value).__name__}; intern it")
    return value
