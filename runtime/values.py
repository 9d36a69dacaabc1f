"""Constexpr values: what a manifest can say, a bundle stores and a call passes. Compared by type and value.

``True``, ``1`` and ``1.0`` are three values. So are ``0.0`` and ``-0.0``, while a NaN equals itself.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from nojit.runtime.errors import shown
from nojit.runtime.record import Record
from nojit.runtime.strict import Json, fields, items, refuse, text

__all__ = ["DType", "FunctionRef", "Value", "decode_value", "encode_value", "identity", "spell"]

_INT_BITS_MAX = 64
# tuples in tuples; whoever walks a value may recurse
_DEPTH_MAX = 8


class DType(Record):
    """A Triton dtype as a constexpr, in Triton's spelling: ``fp16``."""

    name: str


class FunctionRef(Record):
    """A ``@triton.jit`` function as a constexpr: ``module:name``."""

    name: str


Value: TypeAlias = "int | float | bool | str | DType | FunctionRef | tuple[Value, ...] | None"


def identity(value: Any) -> tuple[Any, ...]:
    """Make a hashable key under which equal type and value, and nothing else, are equal."""
    if isinstance(value, tuple):
        return (tuple, *(identity(item) for item in value))
    if isinstance(value, float):
        return (float, struct.pack("<d", value))
    return (type(value), value)


def spell(value: Value) -> str:
    """Write a value the way messages and labels show it."""
    if isinstance(value, DType | FunctionRef):
        return value.name
    return shown(value)


def encode_value(value: Value) -> Json:
    """Turn a value into JSON without floats."""
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, FunctionRef):
        return {"function": value.name}
    if isinstance(value, tuple):
        return {"tuple": [encode_value(item) for item in value]}
    return value


def decode_value(value: Json, where: str, depth: int = 0) -> Value:
    """Read what `encode_value` wrote.

    Args:
        value: the JSON.
        where: for errors.
        depth: in how many tuples it lies.

    Raises:
        BundleFormatError: any other JSON, or tuples nested too deeply.
    """
    if isinstance(value, str):
        return text(value, where)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _INT_BITS_MAX:
            raise refuse(
                "size", f"expected an integer of at most {_INT_BITS_MAX} bits", got=value.bit_length(), where=where
            )
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise refuse("type", "expected a constexpr value", got=type(value).__name__, where=where)
    return _decode_tagged(value, where, depth)


def _decode_tagged(value: dict[str, Json], where: str, depth: int) -> Value:
    tag = next(iter(value))
    (body,) = fields(value, (tag,), where)
    if tag == "dtype":
        return DType(text(body, where))
    if tag == "function":
        return FunctionRef(text(body, where))
    if tag == "tuple":
        if depth == _DEPTH_MAX:
            raise refuse("json-depth", f"expected tuples nested at most {_DEPTH_MAX} deep", where=where)
        return tuple(decode_value(item, where, depth + 1) for item in items(body, 64, where))
    if tag != "float":
        raise refuse("type", "expected float, dtype, function or tuple", got=repr(tag), where=where)
    try:
        number = float.fromhex(text(body, where))
    except (ValueError, OverflowError):
        raise refuse("type", "expected a hexadecimal float", got=repr(body), where=where) from None
    if number.hex() != body:
        raise refuse("json-canonical", f"expected {number.hex()}", got=repr(body), where=where)
    return number
