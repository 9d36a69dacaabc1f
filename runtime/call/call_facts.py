"""The facts of a call that select its variant, and whether an argument fits a slot or a hint. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import shown, typed
from nojit.runtime.types.constants import constant_of, is_constant
from nojit.runtime.types.names import NONE, is_tuple, members
from nojit.runtime.values import DType, FunctionRef, Value, spell

if TYPE_CHECKING:
    from nojit.runtime.expr.operations import Value as Operand

__all__ = [
    "NONE",
    "Argument",
    "CallFacts",
    "accepts",
    "expression_value",
    "leaf_of",
    "mismatch",
    "natural_type",
    "pointee",
    "slot_kind",
    "untyped_leaves",
]

_NONE_GIVEN: Final[Mapping[str, Value]] = MappingProxyType({})
_KINDS: Final = {NONE: "none"} | {name: kind for name, kind, _, is_scalar in _core.dtypes() if is_scalar}
_CONSTANT_KINDS: Final[dict[type, str]] = {bool: "bool", int: "int", float: "float"}
_STARTS: Final = (("*", "pointer"), ("(", "tuple"), ("tensordesc<", "descriptor"))


class Argument(Record):
    """The argument of a call for one runtime param, or for a member of a tuple."""

    kind: Literal["pointer", "int", "float", "bool", "none", "descriptor", "tuple", "constant"]
    value: Value = None
    """The address in bytes, number, bool, or block of a descriptor (zeros if the config chooses it); None for None and for a tuple. A
    string, dtype or function is a constant.
    """
    dtype: str = ""
    """Element type of a pointer or descriptor in Triton's spelling (``fp16``); empty for an address without a type."""
    items: tuple[Argument, ...] = ()
    """The members of a tuple."""

    def __str__(self) -> str:
        if self.kind == "pointer":
            return f"a pointer to {self.dtype}" if self.dtype else "an untyped address"
        if self.kind == "tuple":
            return f"a tuple ({', '.join(map(str, self.items))})"
        if self.kind == "descriptor":
            shape = self.value if isinstance(self.value, tuple) else ()
            return f"a tensor descriptor of {self.dtype}[{','.join(str(size or 'any') for size in shape)}]"
        if self.kind == "constant":
            return f"the constant {spell(self.value)}"
        return "None" if self.kind == "none" else typed(self.value)


class CallFacts(Record):
    """A call, reduced to what selects its variant."""

    arguments: Mapping[str, Argument]
    """Arguments by runtime param."""
    constexprs: Mapping[str, Value] = _NONE_GIVEN
    """Constexprs that the caller passed: of the matrix, and of configs if the caller chooses."""
    options: Mapping[str, Value] = _NONE_GIVEN
    """Options that the caller passed, such as ``num_warps``."""
    arch: int | None = None
    """The arch of the table, 90: the value of ``arch`` in expressions."""


def accepts(slot_type: str, argument: Argument) -> bool:
    """Say whether a slot of that type takes the argument as it is: nothing is converted or truncated."""
    return _core.takes(slot_type, argument)


def natural_type(argument: Argument) -> str:
    """Return the type that Triton gives a number or a bool; empty for other values, and for ints that no type holds."""
    if argument.kind == "int":
        return next((kind for kind in ("i32", "i64", "u64") if accepts(kind, argument)), "")
    return {"float": "fp32", "bool": "u1"}.get(argument.kind, "")


def mismatch(slot_type: str, argument: Argument) -> str:
    """Say why a slot of that type does not take an argument which it does not take."""
    if is_constant(slot_type):
        return f"expected the constant {spell(constant_of(slot_type))}, got {argument}"
    kind = _KINDS.get(slot_type, "")
    if kind == "float" and argument.kind == "int":
        return f"expected {slot_type}, got {argument}; pass {shown(argument.value)}.0"
    if kind == "int" and argument.kind == "int":
        return f"expected {slot_type}, got {argument}, which does not fit"
    if is_tuple(slot_type) and argument.kind == "tuple":
        return _tuple_mismatch(slot_type, argument)
    return f"expected {slot_type}, got {argument}"


def _tuple_mismatch(slot_type: str, argument: Argument) -> str:
    kinds = members(slot_type)
    if len(kinds) != len(argument.items):
        return f"expected {len(kinds)} members in {slot_type}, got {len(argument.items)}"
    pairs = enumerate(zip(kinds, argument.items, strict=True))
    wrong = ((place, kind, item) for place, (kind, item) in pairs if not accepts(kind, item))
    return next(f"member {place}: {mismatch(kind, item)}" for place, kind, item in wrong)


def slot_kind(slot_type: str) -> str:
    """Return the kind of argument that a slot takes; empty if this runtime knows none."""
    if slot_type in _KINDS:
        return _KINDS[slot_type]
    if is_constant(slot_type):
        return _CONSTANT_KINDS.get(type(constant_of(slot_type)), "constant")
    for start, kind in _STARTS:
        if slot_type.startswith(start):
            return kind
    return ""


def pointee(slot_type: str) -> str:
    """Return the element type of a pointer type: ``fp16`` for ``*fp16`` and for ``*kfp16``, a pointer to constants.

    A bool is ``i1``, although Triton also spells it ``u1``.
    """
    element = slot_type[1:].removeprefix("k")
    return "i1" if element == "u1" else element


def leaf_of(arguments: Mapping[str, Argument], path: str) -> Argument | None:
    """Return the argument at a leaf path, ``x`` or ``x.1.0``; None if the call's tuples have no such leaf."""
    name, *places = path.split(".")
    argument = arguments.get(name)
    for place in places:
        if argument is None or int(place) >= len(argument.items):
            return None
        argument = argument.items[int(place)]
    return argument


def untyped_leaves(path: str, argument: Argument) -> Iterator[str]:
    """List the leaf paths with an address that has no element type."""
    if argument.kind == "pointer" and not argument.dtype:
        yield path
    for place, item in enumerate(argument.items):
        yield from untyped_leaves(f"{path}.{place}", item)


def expression_value(value: Argument | Value) -> Operand:
    """Return the value of an argument or constexpr in expressions."""
    from nojit.runtime.expr.operations import UNSEEN, Pointer

    if isinstance(value, Argument):
        if value.kind == "pointer" and isinstance(value.value, int):
            return Pointer(value.value)
        unseen = isinstance(value.value, tuple) or value.kind in ("tuple", "constant")
        return UNSEEN if unseen else value.value
    return value.name if isinstance(value, DType | FunctionRef) else value
