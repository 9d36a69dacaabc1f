"""Says which facts of a call can matter to a kernel, for the key of its plan cache. Pure."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from nojit.runtime import expr
from nojit.runtime.call import expression_value
from nojit.runtime.expr import Expression, parse, substitute
from nojit.runtime.record import Record
from nojit.runtime.table import Config, KernelTable, Missing
from nojit.runtime.values import Value

__all__ = ["Interests", "ParamInterest", "interests"]


class ParamInterest(Record):
    """What some variant asks about one runtime param."""

    name: str
    types: tuple[str, ...]
    """Its distinct slot types, in the order of the signatures."""
    hint_16: bool
    """Whether some variant was compiled for it to be divisible by 16."""
    hint_1: bool
    """Whether some variant was compiled for it to be 1."""


class Interests(Record):
    """The facts of a call that some variant asks about; no other can change which one serves it."""

    params: tuple[ParamInterest, ...]
    """In the order of the kernel's runtime params."""
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
    params = tuple(
        [
            ParamInterest(name, types, (name, 16) in asked, (name, 1) in asked)
            for name, types in table.param_types().items()
        ]
    )
    matrix = {axis.name for axis in table.axes}
    asking = [config for config in table.configs if config.requires or table.derived]
    folded = [(config, _constants(table, config, matrix, arch)) for config in asking]
    predicates = [substitute(parse(config.requires), known) for config, known in folded if config.requires]
    derived = [substitute(parse(item.expression), known) for item in table.derived for _, known in folded]
    runtime = table.param_types().keys()
    return Interests(params, _of_call(predicates, runtime), _of_call(derived, runtime))


def _constants(table: KernelTable, config: Config, matrix: set[str], arch: int | None) -> dict[str, expr.Value]:
    values: dict[str, Value] = {
        param.name: param.default
        for param in table.params
        if param.constexpr and param.name not in matrix and not isinstance(param.default, Missing)
    }
    values.update(config.constexprs)
    values.update(config.options)
    known = {name: expression_value(value) for name, value in values.items()}
    return known if arch is None else {**known, "arch": arch}


def _of_call(expressions: list[Expression], runtime: Collection[str]) -> tuple[Expression, ...]:
    """Keep what depends on an argument, once."""
    return tuple(dict.fromkeys([each for each in expressions if not each.names.isdisjoint(runtime)]))
