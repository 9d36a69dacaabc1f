"""Constexprs as callers pass them, and what names in expressions stand for with a row of a table."""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.errors import ArgumentError
from nojit.runtime.values import LAYOUTS, DType, FunctionRef, module_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeAlias

    from nojit.runtime.table.table import KernelTable
    from nojit.runtime.values import Value

__all__ = [
    "UNKNOWN",
    "UNKNOWN_CONSTANT",
    "constexpr_value",
    "resolved",
    "row_constexprs",
    "row_names",
]

Key: TypeAlias = tuple[int, int]
"""A value as C sees it: its tag and 64 bits."""

# beyond `Tag`, as engine/expr/value.h numbers it: a value that no variant and no expression knows
UNKNOWN: Key = (7, 0)
UNKNOWN_CONSTANT: Key = (7, 2)
"""A string, a dtype or a function that none knows."""


def constexpr_value(value: Any, name: str, kernel: str) -> Value:
    """Turn what a caller passes for a constexpr into the value that a bundle stores.

    Numbers of numpy become Python's, a ``@triton.jit`` function, a member of an enum and a layout of Gluon become `FunctionRef`, and
    a dtype of Triton's, torch's or numpy's `DType`. A string may yet stand for a dtype: see `resolved`.

    Raises:
        ArgumentError: nothing that a constexpr can be.
    """
    if value is None or type(value) in (bool, int, float, str, DType, FunctionRef):
        return value  # type: ignore[no-any-return] # its type was just compared
    if isinstance(value, str):
        # what it holds: `str` of a member of an enum is its name
        return str.__str__(value)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, tuple | list):
        return tuple(constexpr_value(item, name, kernel) for item in value)
    where = f"constexpr {name} of kernel {kernel}"
    found = _of_triton(value) or _of_dtype(value, name, where) or _of_numpy(value) or _of_enum(value)
    if found is None:
        what = "expected int, float, bool, str, None, a tuple, a dtype, a jit function, a layout or a member of an enum"
        raise ArgumentError(what, got=type(value).__name__, where=where, argument=name)
    return found[0]


def resolved(value: Value, known: Iterable[Value]) -> Value:
    """Return what a string stands for where only dtypes are known for a constexpr: ``bfloat16`` for ``tl.bfloat16``.

    Args:
        value: what a caller passes, as `constexpr_value` has it; what is no string stays as it is.
        known: the values that were built.
    """
    return _core.resolved(value, tuple(known))


def _of_dtype(value: Any, name: str, where: str) -> tuple[Value] | None:
    """Know a dtype of torch's or numpy's, and numpy's scalar classes, by its class's name: neither may be there."""
    if isinstance(value, type):
        spelled = value.__name__.rstrip("_") if value.__module__ in ("numpy", "ml_dtypes") else ""
    else:
        spelled = str(value) if any(kind.__name__ == "dtype" for kind in type(value).__mro__) else ""
    if not spelled:
        return None
    dtype = _core.dtype_name(spelled)
    if dtype is None:
        raise ArgumentError("expected a dtype that Triton has", got=spelled, where=where, argument=name)
    return (DType(dtype),)


def _of_triton(value: Any) -> tuple[Value] | None:
    """Know Triton's own objects by their class's name: Triton itself may not be there."""
    kind = type(value)
    if not kind.__module__.startswith("triton."):
        return None
    if kind.__name__ == "constexpr":
        return (constexpr_value(value.value, "", ""),)
    if kind.__name__ == "dtype":
        return (DType(str(value.name)),)
    if kind.__name__ in ("JITFunction", "GluonJITFunction"):
        return (FunctionRef(f"{module_of(value)}:{value.__name__}"),)
    if kind.__module__.startswith("triton.experimental.gluon.") and kind.__name__.endswith("Layout"):
        return (FunctionRef(f"{LAYOUTS}{value!r}"),)
    return None


def _of_enum(value: Any) -> tuple[Value] | None:
    """Know a member of an enum; those that are ints or strings count as such."""
    kind = type(value)
    if not any((each.__module__, each.__name__) == ("enum", "Enum") for each in kind.__mro__):
        return None
    return (FunctionRef(f"{module_of(kind)}:{kind.__qualname__}.{value.name}"),)


def _of_numpy(value: Any) -> tuple[Value] | None:
    if type(value).__module__ != "numpy":
        return None
    if type(value).__name__.startswith("bool"):
        return (bool(value),)
    try:
        return (value.__index__(),)
    except (AttributeError, TypeError):
        pass
    try:
        return (float(value),)
    except (TypeError, ValueError):
        return None


def row_constexprs(table: KernelTable, row: int) -> dict[str, Value]:
    """Return what each constexpr and option is for one row: what a callable grid sees of it."""
    return _core.row_constexprs(table.handle(), row)


def row_names(table: KernelTable, row: int) -> dict[str, Value]:
    """Return what each constexpr, option and axis is for one row."""
    return {**table.axis_values(table.columns["case"][row]), **row_constexprs(table, row)}
