"""The facts of a call that decide which variant serves it, and how an argument fits a slot or a hint. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from nojit.runtime import expr
from nojit.runtime.values import DType, FunctionRef, Value

__all__ = [
    "NONE",
    "Argument",
    "CallFacts",
    "accepts",
    "expression_value",
    "hint_holds",
    "mismatch",
    "slot_bits",
    "slot_kind",
]

NONE: Final = "none"
"""The slot type of a param for which None was compiled in."""

_INT_TYPE: Final = re.compile(r"([iu])(8|16|32|64)\Z")
_BOOLS: Final = frozenset({"i1", "u1"})
_FLOATS: Final = frozenset({"fp16", "bf16", "fp32", "fp64"})


@dataclass(frozen=True, slots=True)
class Argument:
    """What a call passes for one runtime param."""

    kind: Literal["pointer", "int", "float", "bool", "none", "descriptor"]
    value: int | float | bool | None = None
    """The address in bytes, the number, the bool; None for none and for a descriptor."""
    dtype: str = ""
    """What a pointer points to, in Triton's spelling (``fp16``); empty for an address that does not say."""

    def __str__(self) -> str:
        if self.kind == "pointer":
            return f"a pointer to {self.dtype}" if self.dtype else "an untyped address"
        if self.kind in ("none", "descriptor"):
            return {"none": "None", "descriptor": "a tensor descriptor"}[self.kind]
        return f"{self.kind} {self.value!r}"


@dataclass(frozen=True, slots=True)
class CallFacts:
    """A call, as far as it decides the variant."""

    arguments: Mapping[str, Argument]
    """By runtime param."""
    constexprs: Mapping[str, Value] = field(default_factory=dict)
    """Those that the caller gave: of the matrix, and of configs where the caller chooses."""
    options: Mapping[str, Value] = field(default_factory=dict)
    """Those that the caller gave: ``num_warps`` and its like."""
    arch: int | None = None
    """The arch of the table: 90; what ``arch`` stands for in expressions."""


def accepts(slot_type: str, argument: Argument) -> bool:
    """Say whether a slot of that type takes the argument as it is: nothing is converted or truncated."""
    return not mismatch(slot_type, argument)


def mismatch(slot_type: str, argument: Argument) -> str:
    """Say why a slot of that type does not take the argument; empty if it does."""
    if slot_type.startswith(("(", "tensordesc")):
        return f"{slot_type} is not supported by this runtime yet"
    kind = argument.kind
    if slot_type == NONE:
        fits = kind == "none"
    elif slot_type.startswith("*"):
        fits = kind == "pointer" and argument.dtype in ("", slot_type[1:])
    elif slot_type in _BOOLS:
        fits = kind == "bool"
    elif slot_type in _FLOATS:
        if kind == "int":
            return f"expected {slot_type}, got {argument}; pass {argument.value}.0"
        fits = kind == "float"
    else:
        return _int_mismatch(slot_type, argument)
    return "" if fits else f"expected {slot_type}, got {argument}"


def _int_mismatch(slot_type: str, argument: Argument) -> str:
    match = _INT_TYPE.match(slot_type)
    if match is None:
        return f"{slot_type} is not supported by this runtime yet"
    if argument.kind != "int" or not isinstance(argument.value, int):
        return f"expected {slot_type}, got {argument}"
    bits = int(match[2])
    low, high = (0, 1 << bits) if match[1] == "u" else (-(1 << bits - 1), 1 << bits - 1)
    return "" if low <= argument.value < high else f"expected {slot_type}, got {argument}, which does not fit"


def slot_kind(slot_type: str) -> str:
    """Name the kind of argument that a slot takes; empty if this runtime can fill none."""
    if slot_type == NONE:
        return "none"
    if slot_type.startswith("*"):
        return "pointer"
    if slot_type in _BOOLS:
        return "bool"
    if slot_type in _FLOATS:
        return "float"
    return "int" if _INT_TYPE.match(slot_type) else ""


def slot_bits(slot_type: str) -> int:
    """Return the width of an int slot; 0 for any other. Narrower slots win."""
    match = _INT_TYPE.match(slot_type)
    return int(match[2]) if match else 0


def hint_holds(argument: Argument, hint: int) -> bool:
    """Say whether an argument is what a hint promised: 16 divisible by 16, 1 equal to 1."""
    if argument.kind not in ("pointer", "int") or not isinstance(argument.value, int):
        return False
    if hint == 1:
        return argument.kind == "int" and argument.value == 1
    return argument.value % hint == 0


def expression_value(value: Argument | Value) -> expr.Value:
    """Turn an argument or a constexpr into what a name stands for in an expression."""
    if isinstance(value, Argument):
        if value.kind == "pointer" and isinstance(value.value, int):
            return expr.Pointer(value.value)
        return expr.MISSING if value.kind == "descriptor" else value.value
    return value.name if isinstance(value, DType | FunctionRef) else value
