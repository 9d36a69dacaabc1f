"""Says which expressions over a call can matter to a kernel, for the key of its plan cache. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice, product
from typing import Any, Final

from nojit.runtime.record import Record
from nojit.runtime.strict import refuse
from nojit.runtime.table import KernelTable, Missing
from nojit.runtime.values import Value, identity

__all__ = ["INTERESTS_MAX", "Grounded", "interests"]

INTERESTS_MAX: Final = 4096
"""More than the core takes: with the values of axes and configs in their place there could be any number."""


class Grounded(Record):
    """An expression over arguments, and what else it asks for."""

    text: str
    values: dict[str, Value]
    """Of a config, of the types that a meaning spells, and what is the same for all."""


def interests(table: KernelTable, arch: int | None = None) -> tuple[Grounded, ...]:
    """List the distinct ``requires`` and derived constexprs of a kernel's configs that depend on a call's arguments.

    Constexprs of the matrix stay names in the expressions: their values are in the key anyway.

    Args:
        table: the kernel's variants.
        arch: what ``arch`` stands for in expressions: 90.

    Raises:
        ExpressionError: an expression without a program that is none.
        BundleFormatError: there are more than `INTERESTS_MAX`.
    """
    given: dict[str, Value] = {} if arch is None else {"arch": arch}
    found = tuple(islice(_grounded(table, table.param_types(), given), INTERESTS_MAX + 1))
    if len(found) > INTERESTS_MAX:
        what = f"expected at most {INTERESTS_MAX} expressions over arguments that choose a variant"
        raise refuse("size", what, got="more", where=f"kernel {table.kernel}")
    return found


def _grounded(table: KernelTable, runtime: Collection[str], given: Mapping[str, Value]) -> Iterator[Grounded]:
    """Ground each expression for each config, once for all that differ in nothing that it asks for."""
    programs, defaults = table.programs_by_expression(), _defaults(table)
    derived = [item.expression for item in table.derived]
    # operations and numbers are among the names of each, too: to leave them out takes longer
    names: dict[str, frozenset[str]] = {}
    known: set[tuple[Any, ...]] = set()
    for config in table.configs:
        values: dict[str, Value] | None = None
        for text in (config.requires, *derived) if config.requires else derived:
            if text not in names:
                names[text] = frozenset((programs.get(text) or _program_of(text)).split(" "))
            if names[text].isdisjoint(runtime):
                continue
            values = values or {**defaults, **dict(config.constexprs + config.options), **given}
            asked = {name: values[name] for name in names[text] if name in values}
            key = (text, *[(name, identity(value)) for name, value in asked.items()])
            if key not in known:
                known.add(key)
                for point in _type_points(table, names[text]):
                    # a config's own value comes before that of an axis of the same name
                    yield Grounded(text, point | asked)


def _program_of(text: str) -> str:
    from nojit.runtime.postfix import postfix  # noqa: PLC0415 - expressions of bundles have a program

    return postfix(text)


def _defaults(table: KernelTable) -> dict[str, Value]:
    matrix = {axis.name for axis in table.axes}
    return {
        param.name: param.default
        for param in table.params
        if param.constexpr and param.name not in matrix and not isinstance(param.default, Missing)
    }


def _type_points(table: KernelTable, names: Collection[str]) -> Iterator[dict[str, Value]]:
    """Go through the values of the axes among `names` that only spell types: a call has none for such a name."""
    axes = [axis for axis in table.axes if axis.is_type and axis.name in names]
    for point in product(*(axis.values for axis in axes)):
        yield {axis.name: value for axis, value in zip(axes, point, strict=True)}
