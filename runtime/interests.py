"""Says which facts of a call can matter to a kernel, for the key of its plan cache. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain, product
from typing import Any

from nojit.runtime.expr import parse
from nojit.runtime.record import Record
from nojit.runtime.table import KernelTable, Missing
from nojit.runtime.values import Value, identity

__all__ = ["Grounded", "Interests", "interests"]


class Grounded(Record):
    """An expression over arguments, and what else it asks for."""

    text: str
    values: dict[str, Value]
    """Of a config, of the types that a meaning spells, and what is the same for all."""


class Interests(Record):
    """The facts of a call that some variant asks about; no other can change which one serves it."""

    params: dict[str, tuple[tuple[str, ...], bool, bool]]
    """Of each runtime param: its distinct slot types, in the order of the signatures; whether some variant was compiled for it
    to be divisible by 16; whether for it to be 1."""
    expressions: tuple[Grounded, ...]
    """The distinct ``requires`` and derived constexprs that depend on arguments."""


def interests(table: KernelTable, arch: int | None = None) -> Interests:
    """List what the variants of a kernel ask about a call.

    Constexprs of the matrix stay names in the expressions: their values are in the key anyway.

    Args:
        table: the kernel's variants.
        arch: what ``arch`` stands for in expressions: 90.

    Raises:
        ExpressionError: an expression without a program that is none.
    """
    asked = set(chain.from_iterable(table.hint_sets))
    types = table.param_types()
    params = {name: (kinds, (name, 16) in asked, (name, 1) in asked) for name, kinds in types.items()}
    given: dict[str, Value] = {} if arch is None else {"arch": arch}
    # most kernels ask for nothing that would have to be computed
    asks = table.derived or {config.requires for config in table.configs} != {""}
    return Interests(params, tuple(_grounded(table, types, given)) if asks else ())


def _grounded(table: KernelTable, runtime: Collection[str], given: Mapping[str, Value]) -> Iterator[Grounded]:
    """Ground each expression for each config, once for all that differ in nothing that it asks for."""
    programs, defaults = table.programs_by_expression(), _defaults(table)
    derived = [item.expression for item in table.derived]
    names: dict[str, frozenset[str]] = {}
    known: set[tuple[Any, ...]] = set()
    for config in table.configs:
        for text in (config.requires, *derived) if config.requires else derived:
            if text not in names:
                names[text] = frozenset(programs.get(text, "").split(" ")) if programs.get(text) else parse(text).names
            if names[text].isdisjoint(runtime):
                continue
            values = {**defaults, **dict(config.constexprs + config.options), **given}
            asked = {name: values[name] for name in names[text] if name in values}
            key = (text, *[(name, identity(value)) for name, value in asked.items()])
            if key not in known:
                known.add(key)
                for point in _type_points(table, names[text]):
                    # a config's own value comes before that of an axis of the same name
                    yield Grounded(text, point | asked)


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
