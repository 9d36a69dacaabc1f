"""The facts of a call that select its variant, and whether an argument fits a slot or a hint. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from nojit.runtime.constant_types import constant_of, is_constant
from nojit.runtime.errors import shown, typed
from nojit.runtime.expr_ops import UNSEEN, Pointer
from nojit.runtime.expr_ops import Value as Operand
from nojit.runtime.record import Record
from nojit.runtime.type_names import NONE, descriptor_parts, is_descriptor, is_tuple, leaves, members
from nojit.runtime.values import DType, FunctionRef, Value, identity, spell

__all__ = [
    "NONE",
    "Argument",
    "CallFacts",
    "accepts",
    "are_addresses",
    "converted",
    "expression_value",
    "hint_holds",
    "leaf_of",
    "mismatch",
    "pointee",
    "slot_bits",
    "slot_kind",
    "untyped_leaves",
]

_NONE_GIVEN: Final[Mapping[str, Value]] = MappingProxyType({})
# for each type: its bits, least value, and greatest value plus one
_INTS: Final = {f"i{bits}": (bits, -(1 << bits - 1), 1 << bits - 1) for bits in (8, 16, 32, 64)} | {
    f"u{bits}": (bits, 0, 1 << bits) for bits in (8, 16, 32, 64)
}
_BOOLS: Final = frozenset({"i1", "u1"})
_FLOATS: Final = frozenset({"fp16", "bf16", "fp32", "fp64"})
_KINDS: Final = (
    {NONE: "none"} | dict.fromkeys(_BOOLS, "bool") | dict.fromkeys(_FLOATS, "float") | dict.fromkeys(_INTS, "int")
)
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
    """Return whether a slot of a type takes the argument without conversion."""
    # common types first: `mismatch` also words the reason, which takes longer
    if argument.kind == "pointer" and argument.dtype and slot_type.startswith("*"):
        return argument.dtype == pointee(slot_type)
    if argument.kind == "int" and slot_type in _INTS and isinstance(argument.value, int):
        _, low, high = _INTS[slot_type]
        return low <= argument.value < high
    return not mismatch(slot_type, argument)


def mismatch(slot_type: str, argument: Argument) -> str:
    """Return why a slot of a type does not take the argument; empty if it does."""
    kind = argument.kind
    if slot_type == NONE:
        fits = kind == "none"
    elif is_constant(slot_type):
        wanted = constant_of(slot_type)
        fits = kind in ("int", "float", "bool", "constant") and identity(argument.value) == identity(wanted)
        return "" if fits else f"expected the constant {spell(wanted)}, got {argument}"
    elif slot_type.startswith("*"):
        fits = kind == "pointer" and argument.dtype in ("", pointee(slot_type))
    elif slot_type in _BOOLS:
        fits = kind == "bool"
    elif slot_type in _FLOATS:
        if kind == "int":
            return f"expected {slot_type}, got {argument}; pass {shown(argument.value)}.0"
        fits = kind == "float"
    elif is_tuple(slot_type):
        return _tuple_mismatch(slot_type, argument)
    elif is_descriptor(slot_type):
        fits = kind == "descriptor" and _describes(slot_type, argument)
    else:
        return _int_mismatch(slot_type, argument)
    return "" if fits else f"expected {slot_type}, got {argument}"


def _describes(slot_type: str, argument: Argument) -> bool:
    element, block = descriptor_parts(slot_type)
    return element == argument.dtype and argument.value in (block, (0,) * len(block))


def _tuple_mismatch(slot_type: str, argument: Argument) -> str:
    kinds = members(slot_type)
    if argument.kind != "tuple":
        return f"expected {slot_type}, got {argument}"
    if len(kinds) != len(argument.items):
        return f"expected {len(kinds)} members in {slot_type}, got {len(argument.items)}"
    reasons = (mismatch(kind, item) for kind, item in zip(kinds, argument.items, strict=True))
    return next((f"member {place}: {reason}" for place, reason in enumerate(reasons) if reason), "")


def _int_mismatch(slot_type: str, argument: Argument) -> str:
    if slot_type not in _INTS:
        return f"{slot_type} is not supported by this runtime yet"
    if argument.kind != "int" or not isinstance(argument.value, int):
        return f"expected {slot_type}, got {argument}"
    _, low, high = _INTS[slot_type]
    return "" if low <= argument.value < high else f"expected {slot_type}, got {argument}, which does not fit"


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


def slot_bits(slot_type: str) -> int:
    """Return the bits of an int slot, summed over a tuple; 0 for other slots. Narrower slots have precedence."""
    if is_tuple(slot_type):
        return sum(slot_bits(leaf) for _, leaf in leaves(slot_type, ""))
    return _INTS[slot_type][0] if slot_type in _INTS else 0


def are_addresses(slot_types: Sequence[str]) -> bool:
    """Return whether slots of these types take only pointers and None, so that an int for them is an address."""
    for slot_type in slot_types:
        if slot_type != NONE and not slot_type.startswith("*"):
            return False
    return any(slot_type != NONE for slot_type in slot_types)


def converted(argument: Argument, slot_types: Sequence[str]) -> Argument:
    """Return a number as Triton converts it for a declared type: int or bool to float, bool to int, 0 or 1 to bool.

    Args:
        argument: any argument; one that some slot takes as it is, or that is not a number of 64 bits, is returned unchanged.
        slot_types: types of the param.
    """
    value = argument.value
    if argument.kind not in ("int", "bool") or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        return argument
    kinds = {slot_kind(slot_type) for slot_type in slot_types if not is_constant(slot_type)}
    if argument.kind in kinds or any(
        accepts(slot_type, argument) for slot_type in slot_types if is_constant(slot_type)
    ):
        return argument
    if "int" in kinds:
        return Argument("int", int(value))
    if "float" in kinds:
        return Argument("float", float(value))
    return Argument("bool", bool(value)) if "bool" in kinds and value in (0, 1) else argument


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


def hint_holds(argument: Argument, hint: int) -> bool:
    """Return whether a hint is true for an argument: 16 for divisible by 16, 1 for equal to 1."""
    if argument.kind not in ("pointer", "int") or not isinstance(argument.value, int):
        return False
    if hint == 1:
        return argument.kind == "int" and argument.value == 1
    return argument.value % hint == 0


def expression_value(value: Argument | Value) -> Operand:
    """Return the value of an argument or constexpr in expressions."""
    if isinstance(value, Argument):
        if value.kind == "pointer" and isinstance(value.value, int):
            return Pointer(value.value)
        unseen = isinstance(value.value, tuple) or value.kind in ("tuple", "constant")
        return UNSEEN if unseen else value.value
    return value.name if isinstance(value, DType | FunctionRef) else value
