"""Says which facts of a call can matter to a kernel, for the key of its plan cache. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any

from nojit.runtime.call import expression_value
from nojit.runtime.expr import Expression, parse, substitute
from nojit.runtime.record import Record
from nojit.runtime.table import Config, KernelTable, Missing
from nojit.runtime.values import Value, identity

__all__ = ["Interests", "interests"]


class Interests(Record):
    """The facts of a call that some variant asks about; no other can change which one serves it."""

    params: dict[str, tuple[tuple[str, ...], bool, bool]]
    """Of each runtime param: its distinct slot types, in the order of the signatures; whether some variant was compiled for it
    to be divisible by 16; whether for it to be 1."""
    predicates: tuple[Expression, ...]
    """The distinct ``requires`` that depend on arguments, each with its config's values in place."""
    derived: tuple[Expression, ...]
    """The distinct derived constexprs that depend on arguments, likewise."""


def interests(table: KernelTable, arch: int | None = None) -> Interests:
    """List what the variants of a kernel ask about a call.

    Names of the matrix stay in the expressions: their values are in the key anyway.

    Args:
        table: the kernel's variants.
        arch: what ``arch`` stands for in expressions: 90.
    """
    asked = set(chain.from_iterable(table.hint_sets))
    types = table.param_types()
    params = {name: (kinds, (name, 16) in asked, (name, 1) in asked) for name, kinds in types.items()}
    asking = [config for config in table.configs if config.requires or table.derived]
    if not asking:
        return Interests(params, (), ())
    known = _defaults(table), {} if arch is None else {"arch": arch}
    predicates = [(config.requires, config) for config in asking if config.requires]
    derived = [(item.expression, config) for item in table.derived for config in asking]
    return Interests(params, _grounded(predicates, *known, types), _grounded(derived, *known, types))


def _defaults(table: KernelTable) -> dict[str, Value]:
    matrix = {axis.name for axis in table.axes}
    return {
        param.name: param.default
        for param in table.params
        if param.constexpr and param.name not in matrix and not isinstance(param.default, Missing)
    }


def _grounded(
    asked: list[tuple[str, Config]],
    defaults: Mapping[str, Value],
    arch: Mapping[str, Value],
    runtime: Collection[str],
) -> tuple[Expression, ...]:
    """Put each config's values into an expression; keep what depends on an argument, once."""
    expressions: dict[Expression, None] = {}
    known: set[tuple[Any, ...]] = set()
    for text, config in asked:
        expression = parse(text)
        names = expression.names
        if names.isdisjoint(runtime):
            continue
        values = {**defaults, **dict(config.constexprs + config.options), **arch}
        given = {name: expression_value(values[name]) for name in names if name in values}
        # configs that differ in nothing that the expression asks for give the same
        key = (text, *[(name, identity(value)) for name, value in given.items()])
        if key not in known:
            known.add(key)
            expressions[substitute(expression, given) if given else expression] = None
    return tuple([each for each in expressions if not each.names.isdisjoint(runtime)])
