"""Translate a bound call, as the binding describes it, to the facts that selection needs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from nojit.runtime import _core
from nojit.runtime.call.call_facts import Argument, CallFacts
from nojit.runtime.call.constexprs import constexpr_value, resolved
from nojit.runtime.errors import ArgumentError
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import DType, FunctionRef, Value

__all__ = ["Facts", "call_facts", "is_dtype", "placeholder"]

Facts: TypeAlias = tuple[dict[str, tuple[str, str, Any]], dict[str, Any], dict[str, Any]]
"""Facts of the binding: (kind, dtype, value) of each argument, and the given constexprs and options by name."""

_PLAIN_KINDS: tuple[Literal["int", "float", "bool", "none"], ...] = ("int", "float", "bool", "none")


class _Typed:
    """Placeholder for a tensor: known dtype, allocator alignment."""

    def __init__(self, dtype: object) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        """Return an address for which every hint of divisibility is true."""
        return 0


def call_facts(facts: Facts, table: KernelTable, arch: int) -> CallFacts:
    """Return the facts of a call that selection needs.

    Args:
        facts: the binding's facts.
        table: the kernel's variants.
        arch: value of ``arch`` in expressions: 90.

    Raises:
        ArgumentError: no kernel can take the type of an argument or constexpr.
    """
    arguments, constexprs, options = facts
    types, kernel = table.param_types(), table.kernel
    return CallFacts(
        arguments={name: _argument(name, fact, types[name], kernel) for name, fact in arguments.items()},
        constexprs={name: _constexpr(name, value, table) for name, value in constexprs.items()},
        options={name: constexpr_value(value, name, kernel) for name, value in options.items()},
        arch=arch,
    )


def _constexpr(name: str, value: Any, table: KernelTable) -> Value:
    given = constexpr_value(value, name, table.kernel)
    return resolved(given, table.built_values(name)) if isinstance(given, str | tuple) else given


def _argument(
    name: str, fact: tuple[str, str, Any], types: Sequence[str], kernel: str, *, constants: bool = False
) -> Argument:
    """Translate an argument, or a member of one whose types include `constants`."""
    kind, dtype, value = fact
    constants = constants or any("=" in known for known in types)
    if kind == "pointer":
        return Argument("pointer", value, dtype)
    for known in _PLAIN_KINDS:
        if kind == known:
            return _coerced(Argument(known, value), types)
    if kind == "tuple":
        members = enumerate(value)
        items = (_argument(f"{name}.{place}", item, [], kernel, constants=constants) for place, item in members)
        return Argument("tuple", items=tuple(items))
    if kind == "other" and constants and (constant := _constant(value)) is not None:
        return constant
    if kind == "descriptor":
        return Argument("descriptor", value, dtype)
    raise ArgumentError(
        f"expected {' or '.join(types) or 'a tensor, a number, None or a tuple of them'}",
        got=type(value).__name__,
        where=f"argument {name} of kernel {kernel}",
        argument=name,
    )


def _coerced(argument: Argument, types: Sequence[str]) -> Argument:
    """Return what Triton makes of a number for a param of these types."""
    coerced = _core.coerced(tuple(types), argument) if argument.kind in ("int", "bool") else None
    return argument if coerced is None else Argument(*coerced)


def _constant(value: Any) -> Argument | None:
    """Translate a value that can be compiled in and is not a number; return None for others."""
    try:
        read = constexpr_value(value, "", "")
    except ArgumentError:
        return None
    return Argument("constant", read) if isinstance(read, str | DType | FunctionRef) else None


def placeholder(argument: Any) -> Any:
    """Return the placeholder for an argument of `Kernel.warmup`: a tensor for a dtype, else the argument itself."""
    return _Typed(argument) if is_dtype(argument) else argument


def is_dtype(argument: Any) -> bool:
    """Return whether an argument is a dtype: torch's or numpy's, or one of numpy's scalar classes."""
    return type(argument).__name__ == "dtype" or isinstance(argument, type)
