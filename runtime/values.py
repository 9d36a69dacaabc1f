"""Constexpr values: what a manifest can say, a bundle stores and a call passes. Compared by type and value.

``True``, ``1`` and ``1.0`` are three values. So are ``0.0`` and ``-0.0``, while a NaN equals itself.
"""

from __future__ import annotations

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from nojit.runtime.base.strict_json import Json

__all__ = ["LAYOUTS", "DType", "FunctionRef", "Value", "decode_value", "encode_value", "identity", "module_of", "spell"]


class DType(Record):
    """A Triton dtype as a constexpr, in Triton's spelling: ``fp16``."""

    name: str


class FunctionRef(Record):
    """A ``@triton.jit`` function as a constexpr: ``module:name``.

    So are objects of other classes that a bundle cannot hold and that their name and module make again: members of enums, and Gluon's
    layouts, whose name is their ``repr``.
    """

    name: str


LAYOUTS = "triton.experimental.gluon.language:"
"""Start of the `FunctionRef` of a layout of Gluon; its ``repr`` follows."""


# values that JSON spells as they are
_PLAIN = (int, str, bool, type(None))

Value: TypeAlias = "int | float | bool | str | DType | FunctionRef | tuple[Value, ...] | None"


def module_of(value: Any) -> str:
    """Return the name of the module that a function or class is from. A program's own is ``__main__`` in each of its processes."""
    module = str(value.__module__)
    # what multiprocessing calls it in a child that it spawns
    return "__main__" if module == "__mp_main__" else module


def identity(value: Any) -> tuple[Any, ...]:
    """Make a hashable key under which equal type and value, and nothing else, are equal."""
    if isinstance(value, tuple):
        return (tuple, *(identity(item) for item in value))
    if isinstance(value, float):
        # a NaN has one spelling, and so has each other float
        return (float, value.hex())
    return (type(value), value)


def spell(value: Value) -> str:
    """Write a value the way messages and labels show it."""
    if isinstance(value, DType | FunctionRef):
        return value.name
    return shown(value)


def encode_value(value: Value) -> Json:
    """Turn a value into JSON without floats."""
    if type(value) in _PLAIN:
        return value  # type: ignore[return-value] # what `_PLAIN` says
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, FunctionRef):
        return {"function": value.name}
    if isinstance(value, tuple):
        return {"tuple": [encode_value(item) for item in value]}
    return value


def decode_value(value: Json, where: str) -> Value:
    """Read what `encode_value` wrote.

    Args:
        value: the JSON.
        where: for errors.

    Raises:
        BundleFormatError: any other JSON, or tuples nested too deeply.
    """
    from nojit.runtime import _core  # which imports tables, and tables this
    from nojit.runtime.base.strict_json import canonical_json

    return _core.read_value(canonical_json(value), where)
