"""Says why variants do not serve a call, and what in the manifest would build one that does. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from nojit.runtime.call import NONE, Argument, accepts, expression_value, mismatch
from nojit.runtime.constant_types import constant_type
from nojit.runtime.errors import NoMatchingVariantError, shown
from nojit.runtime.expr import ExpressionError
from nojit.runtime.hint_misses import failing
from nojit.runtime.record import Record
from nojit.runtime.selection import Selection
from nojit.runtime.table import Axis
from nojit.runtime.type_names import descriptor_parts, is_descriptor, is_tuple, members
from nojit.runtime.values import DType, FunctionRef, Value, identity, spell

__all__ = ["Rejection", "no_match", "rejections"]

_REASONS_MAX: Final = 8

# how far a variant got, in the order of the rules
_TYPES, _MATRIX, _SETTINGS, _REQUIRES, _DERIVED, _HINTS, _SERVES = range(7)


class Rejection(Record):
    """Why one row does not serve, or is not the one that does."""

    row: int
    stage: int
    """The first rule that it breaks."""
    faults: tuple[str, ...]

    @property
    def reason(self) -> str:
        """All of them, in words."""
        return "; ".join(self.faults)

    @property
    def distance(self) -> tuple[int, int, int]:
        """How far the row is from serving the call; the nearest sorts first."""
        return -self.stage, len(self.faults), self.row


def rejections(selection: Selection, best: int | None) -> list[Rejection]:
    """Say why each row but the `best` is not the one that serves the call, the nearest first."""
    rows = (row for row in range(len(selection.table)) if row != best)
    return sorted((_reject(selection, row, best) for row in rows), key=lambda rejection: rejection.distance)


def no_match(selection: Selection, *, explained: bool = True) -> NoMatchingVariantError:
    """Make the error for a call that no variant serves, with the reasons if it is to be explained."""
    table = selection.table
    misses = rejections(selection, None) if explained else []
    distinct: dict[str, Rejection] = {}
    for miss in misses:
        distinct.setdefault(miss.reason, miss)
    reasons = tuple((table.label(miss.row), miss.reason) for miss in list(distinct.values())[:_REASONS_MAX])
    what = "no variant serves this call"
    if misses:
        what += f"; its manifest needs {_remedy(selection, misses[0])}"
    return NoMatchingVariantError(what, where=selection.where, reasons=reasons)


def _reject(selection: Selection, row: int, best: int | None) -> Rejection:
    return next(Rejection(row, stage, tuple(faults)) for stage, faults in _rules(selection, row, best) if faults)


def _rules(selection: Selection, row: int, best: int | None) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield each rule in order, with how the row breaks it."""
    meaning, config, hints, derived = selection.table.key(row)
    types = _type_faults(selection, selection.table.meanings[meaning].signature)
    matrix = selection.axis_faults(meaning)
    yield _TYPES, [*(f"{name}: {reason}" for name, reason in types), *matrix] if types else []
    yield _MATRIX, matrix
    yield _SETTINGS, selection.setting_faults[config]
    yield _REQUIRES, list(filter(None, [selection.requires_fault(meaning, config)]))
    yield _DERIVED, _derived_faults(selection, meaning, config, derived)
    yield _HINTS, _hint_faults(selection, selection.table.hint_sets[hints])
    yield _SERVES, [_outranked(selection, row, best)]


def _type_faults(selection: Selection, signature: int) -> list[tuple[str, str]]:
    """List the params that a signature types otherwise than the call, with the reason."""
    reasons = [
        (name, mismatch(kind, selection.facts.arguments[name]))
        for name, kind in zip(selection.runtime, selection.table.signatures[signature], strict=True)
    ]
    return [(name, reason) for name, reason in reasons if reason]


def _hint_faults(selection: Selection, hints: tuple[tuple[str, int], ...]) -> list[str]:
    """Say which hints of a set do not hold."""
    return [
        f"expects {name} {'equal to 1' if hint == 1 else f'divisible by {hint}'}, got {got}"
        for name, hint, got in failing(hints, selection.facts.arguments)
    ]


def _derived_faults(selection: Selection, meaning: int, config: int, derived: int) -> list[str]:
    faults = []
    for number, (item, built) in enumerate(
        zip(selection.table.derived, selection.table.derived_values[derived], strict=True)
    ):
        value = selection.derived_value(meaning, config, number)
        if isinstance(value, ExpressionError):
            faults.append(f"{item.name} is {item.expression!r}, which cannot be evaluated: {value.message}")
        elif identity(value) != identity(expression_value(built)):
            faults.append(f"{item.name} is {spell(built)}, {item.expression!r} gives {shown(value)}")
    return faults


def _outranked(selection: Selection, row: int, best: int | None) -> str:
    if best is None:
        return "serves the call"
    words = ("narrower ints win", "another config comes first", "more hints win", "the first of equals wins")
    pairs = zip(selection.key(row), selection.key(best), words, strict=True)
    return "serves too, but " + next(reason for mine, others, reason in pairs if mine != others)


def _remedy(selection: Selection, miss: Rejection) -> str:
    """Say what in the manifest would have built a variant for the call."""
    meaning, config, _, _ = selection.table.key(miss.row)
    if miss.stage == _TYPES:
        signature = selection.table.meanings[meaning].signature
        return " and ".join(
            dict.fromkeys(_type_remedy(selection, name) for name, _ in _type_faults(selection, signature))
        )
    if miss.stage == _MATRIX:
        return _matrix_remedy(selection)
    if miss.stage == _SETTINGS:
        asked = {**selection.facts.constexprs, **selection.facts.options}
        axes = {axis.name for axis in selection.table.axes}
        lines = [f"{name} = {_toml(value)}" for name, value in asked.items() if name not in axes]
        return f"[[kernel.configs]] with {', '.join(lines)}"
    if miss.stage == _REQUIRES:
        return "a config without `requires`"
    if miss.stage == _DERIVED:
        return _derived_remedy(selection, meaning, config)
    return "the variants without hints, which `aligned_only` leaves out"


def _type_remedy(selection: Selection, name: str) -> str:
    argument = selection.facts.arguments[name]
    types = [signature[selection.runtime.index(name)] for signature in selection.table.signatures]
    axis = _type_axis(selection, name)
    if argument.kind == "none":
        return f'{name} = "*{{{axis.name}}}?"' if axis else f'{name} = "{types[0]}?"'
    if argument.kind == "int":
        wide = next((kind for kind in ("i64", "u64") if accepts(kind, argument)), None)
        if wide is None:
            return f"an int type for {name} that holds {shown(argument.value)}, and there is none"
        return f'{name} = "{wide}"'
    if argument.kind == "pointer" and axis and argument.dtype not in axis.values:
        return f"{axis.name} = [{', '.join(map(_toml, (*axis.values, argument.dtype)))}]"
    return f'{name} = "{_spelling(argument, types[0])}"'


def _spelling(argument: Argument, built: str) -> str:
    """Spell a type that takes the argument: the one that was built, as far as that does."""
    if accepts(built, argument):
        return built
    if argument.kind == "tuple":
        kinds = members(built) if is_tuple(built) else []
        kinds += [NONE] * (len(argument.items) - len(kinds))
        return f"({','.join(map(_spelling, argument.items, kinds))})"
    if argument.kind == "int":
        return next((kind for kind in ("i32", "i64", "u64") if accepts(kind, argument)), "i64")
    if argument.kind == "constant":
        return constant_type(argument.value)
    return {
        "pointer": f"*{argument.dtype}",
        "descriptor": f"tensordesc<{argument.dtype}[{','.join(_block(argument, built))}]>",
        "float": "fp32",
        "bool": "i1",
    }.get(argument.kind, NONE)


def _block(argument: Argument, built: str) -> list[str]:
    """Spell a descriptor's block: where the call leaves it to the config, that of `built` if it has as many sizes."""
    sizes = argument.value if isinstance(argument.value, tuple) else ()
    if is_descriptor(built) and not any(sizes):
        block = descriptor_parts(built)[1]
        sizes = block if len(block) == len(sizes) else sizes
    return [str(size or "...") for size in sizes]


def _type_axis(selection: Selection, name: str) -> Axis | None:
    """Find the matrix axis that spells what a pointer points to; None if the type is fixed."""
    place = selection.runtime.index(name)
    for number, axis in enumerate(selection.table.axes):
        spelled = {
            (selection.table.signatures[meaning.signature][place], f"*{axis.values[meaning.values[number]]}")
            for meaning in selection.table.meanings
        }
        if axis.is_type and all(kind in (expected, NONE) for kind, expected in spelled):
            return axis
    return None


def _matrix_remedy(selection: Selection) -> str:
    lines = []
    for place, (number, value) in selection.wanted.items():
        axis = selection.table.axes[place]
        if number is None:
            lines.append(f"{axis.name} = [{', '.join(map(_toml, (*axis.values, value)))}]")
    if lines:
        return " and ".join(lines)
    point = [f"{selection.table.axes[place].name} = {_toml(value)}" for place, (_, value) in selection.wanted.items()]
    return f"the combination of {', '.join(point)}, which an `exclude`, the list of points or the profile leaves out"


def _derived_remedy(selection: Selection, meaning: int, config: int) -> str:
    lines = []
    for number, item in enumerate(selection.table.derived):
        value = selection.derived_value(meaning, config, number)
        built = [values[number] for values in selection.table.derived_values]
        if isinstance(value, ExpressionError):
            return f"a value for {item.name} that this call gives: {value}"
        if identity(value) not in {identity(expression_value(other)) for other in built}:
            lines.append(f"{item.name} with {shown(value)} among its values")
    return " and ".join(lines) or "the derived values that this call gives, which an `exclude` leaves out"


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "{ none = true }"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, DType | FunctionRef):
        return f'{{ {"dtype" if isinstance(value, DType) else "function"} = "{value.name}" }}'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return spell(value)
