"""Select the config with which Triton's JIT runs a call without a matching variant. Pure.

It is the config that was built for the most similar calls: first by case, then by the caller's own settings, then by types, then by
the order of the table. Its ``requires`` must be true.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.call.call_facts import Argument, CallFacts, accepts, expression_value, natural_type, pointee
from nojit.runtime.expr import expression as expr
from nojit.runtime.fallback.jit_functions import UnavailableError
from nojit.runtime.table.parts import Config, Missing
from nojit.runtime.table.table import KernelTable
from nojit.runtime.types.names import NONE, descriptor_parts, is_descriptor
from nojit.runtime.values import Value, identity

__all__ = [
    "BuiltConfig",
    "defaults_of",
    "first_runnable",
    "nearest_configs",
    "specialization_of",
    "value_of",
]


class BuiltConfig(Record):
    """A config with a case that it was built for."""

    config: Config
    types: Mapping[str, str]
    """Type of each runtime param in the case."""
    axes: Mapping[str, Value]
    """The case's matrix values, with dtypes as the call spells them."""
    flags: Mapping[str, Value]
    """Launch options that belong to no config."""
    has_constexprs: bool
    """Whether the constexprs of the case are those of the call."""


def specialization_of(call: CallFacts) -> Hashable:
    """Return the specialization of a call: its types, constexprs and options."""
    return (
        call.arch,
        tuple((name, _type_of(argument)) for name, argument in call.arguments.items()),
        tuple((name, identity(value)) for given in (call.constexprs, call.options) for name, value in given.items()),
    )


def _type_of(argument: Argument) -> Hashable:
    if argument.kind == "descriptor":
        return argument.dtype, argument.value
    if argument.kind == "tuple":
        return tuple(map(_type_of, argument.items))
    return argument.kind, argument.dtype, natural_type(argument)


def nearest_configs(table: KernelTable, call: CallFacts) -> tuple[BuiltConfig, ...]:
    """Return all configs, each with its case that is most similar to the call; the most similar first."""
    wanted = {**defaults_of(table), **call.constexprs}
    nearest: dict[int, tuple[tuple[int, int, int, int], int]] = {}
    distances: dict[int, tuple[int, int]] = {}
    for row, (case, config) in enumerate(zip(table.columns["case"], table.columns["config"], strict=True)):
        if case not in distances:
            distances[case] = _distance(table, case, wanted, call)
        matrix, types = distances[case]
        far = (matrix, _differences(table.configs[config], call), types, config)
        if config not in nearest or far < nearest[config][0]:
            nearest[config] = (far, row)
    spelled = _spelled_axes(table, call)
    return tuple(_built_config(table, row, spelled, has_constexprs=not far[0]) for far, row in sorted(nearest.values()))


def defaults_of(table: KernelTable) -> dict[str, Value]:
    """Return the function's defaults of constexprs that nobody passed."""
    constexprs = (param for param in table.params if param.constexpr)
    return {param.name: param.default for param in constexprs if not isinstance(param.default, Missing)}


def _distance(table: KernelTable, case: int, wanted: Mapping[str, object], call: CallFacts) -> tuple[int, int]:
    """Count the constexprs, and the types, in which a case differs from a call."""
    types = zip(table.runtime_params(), table.signatures[table.cases[case].signature], strict=True)
    values = table.axis_values(case)
    spelled = {axis.name for axis in table.axes if axis.is_type}
    matrix = sum(
        identity(value) != identity(wanted[name])
        for name, value in values.items()
        if name not in spelled and name in wanted
    )
    return matrix, sum(not accepts(kind, call.arguments[name]) for name, kind in types)


def _differences(config: Config, call: CallFacts) -> int:
    """Count the settings of a config that differ from the caller's."""
    asked = {**call.constexprs, **call.options}
    built = config.constexprs + config.options
    return sum(name in asked and identity(asked[name]) != identity(value) for name, value in built)


def _built_config(table: KernelTable, row: int, spelled: Mapping[str, Value], *, has_constexprs: bool) -> BuiltConfig:
    case, config, _, _ = table.key(row)
    flags: dict[str, Value] = {}
    if table.launches:
        launch = table.launches[table.columns["launch"][row]]
        flags |= {"launch_cooperative_grid": True} if launch.cooperative else {}
        flags |= {"launch_pdl": True} if launch.pdl else {}
    types = zip(table.runtime_params(), table.signatures[table.cases[case].signature], strict=True)
    return BuiltConfig(
        table.configs[config], dict(types), {**table.axis_values(case), **spelled}, flags, has_constexprs
    )


def first_runnable(
    configs: tuple[BuiltConfig, ...], table: KernelTable, call: CallFacts
) -> tuple[BuiltConfig, dict[str, expr.Value], dict[str, Value]]:
    """Return the first config that may run, the values of names in its expressions, and its derived constexprs."""
    for built in configs:
        names = _names(built, table, call)
        derived = {item.name: value_of(item.expression, names) for item in table.derived}
        names |= {name: value for name, value in derived.items() if value is not expr.MISSING}
        if not built.config.requires or value_of(built.config.requires, names) is True:
            return built, names, {name: _constexpr(name, value) for name, value in derived.items()}
    raise UnavailableError("the call violates `requires` of every config: add a config without it and build again")


def value_of(text: str, names: Mapping[str, expr.Value]) -> expr.Value:
    """Evaluate an expression; return `expr.MISSING` if that fails."""
    try:
        return expr.parse(text).evaluate(names)
    except expr.ExpressionError:
        return expr.MISSING


def _constexpr(name: str, value: expr.Value) -> Value:
    if isinstance(value, int | float | str | None):
        return value
    raise UnavailableError(f"derived constexpr {name} cannot be evaluated for this call: build a variant for it")


def _names(built: BuiltConfig, table: KernelTable, call: CallFacts) -> dict[str, expr.Value]:
    """Return the values of all names in expressions that have one."""
    settings = dict(built.config.constexprs + built.config.options)
    values: dict[str, Argument | Value] = {**defaults_of(table), **built.axes, **settings}
    values |= {**call.constexprs, **call.options, **call.arguments, "arch": call.arch}
    return {name: expression_value(value) for name, value in values.items()}


def _spelled_axes(table: KernelTable, call: CallFacts) -> dict[str, Value]:
    """Return the axes of dtypes with the dtypes of the call's own pointers and descriptors, which may not have been built."""
    found: dict[str, Value] = {}
    for number, axis in enumerate(table.axes):
        for place, name in enumerate(table.runtime_params()) if axis.is_type else ():
            if call.arguments[name].dtype and all(
                _element(table.signatures[case.signature][place]) in ("", axis.values[case.values[number]])
                for case in table.cases
            ):
                found[axis.name] = call.arguments[name].dtype
    return found


def _element(kind: str) -> str:
    """Return the element type of a pointer or descriptor; empty for None, and any other type itself."""
    if is_descriptor(kind):
        return descriptor_parts(kind)[0]
    return "" if kind == NONE else pointee(kind) if kind.startswith("*") else kind
