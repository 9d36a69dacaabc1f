"""Selection as docs/bundle-format.md (chapter 7) and docs/manifest.md say it: every rule for every row, slow and plain."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from nojit.runtime.call.call_facts import Argument, CallFacts
from nojit.runtime.expr.expression import UNSEEN, Pointer
from nojit.runtime.table.parts import Missing
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import DType, FunctionRef

from tests.reference import expressions

__all__ = ["rank", "serving", "takes"]

INTS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
# numbers of measured problems that differ by less are a tie
DISTANCE_STEPS, SUM_STEPS = 1e9, 1e6
REACH, ABSENT = 0.3, 1000


def same(one: Any, other: Any) -> bool:
    """Say whether two constexprs are the same: by type and value, floats by their bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def split(kind: str) -> list[str]:
    """Take the type of a tuple apart, one level deep."""
    depth, parts = 0, [""]
    for char in kind[1:-1]:
        depth += (char in "(<[") - (char in ")>]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts if kind != "()" else []


def takes(kind: str, argument: Argument) -> bool:  # noqa: PLR0911 - one return for each kind of type
    """Say whether a type takes an argument: nothing is converted, and no int wraps."""
    value = argument.value
    if kind == "none":
        return argument.kind == "none"
    if kind in INTS:
        low, high = (0, 1 << INTS[kind]) if kind[0] == "u" else (-(1 << INTS[kind] - 1), 1 << INTS[kind] - 1)
        return argument.kind == "int" and low <= value < high  # type: ignore[operator] # an int's value
    if kind in ("i1", "u1"):
        return argument.kind == "bool"
    if kind in ("fp16", "bf16", "fp32", "fp64"):
        return argument.kind == "float"
    if kind.startswith("*"):
        element = {"u1": "i1"}.get(kind[1:].removeprefix("k"), kind[1:].removeprefix("k"))
        return argument.kind == "pointer" and argument.dtype in ("", element)
    if kind.startswith("("):
        kinds = split(kind)
        return argument.kind == "tuple" and len(kinds) == len(argument.items) and all(map(takes, kinds, argument.items))
    if kind.startswith("="):
        return argument.kind in ("int", "float", "bool", "constant") and same(value, _constant(kind[1:]))
    found = re.fullmatch(r"tensordesc<(\w+)\[([\d,]+)\]>", kind)
    assert found
    block = tuple(map(int, found[2].split(",")))
    return (argument.kind, argument.dtype) == ("descriptor", found[1]) and value in (block, (0,) * len(block))


def _constant(text: str) -> Any:
    if text.startswith("'"):
        return text[1:-1]
    for mark, kind in (("dtype:", DType), ("function:", FunctionRef)):
        if text.startswith(mark):
            return kind(text.removeprefix(mark))
    return {"true": True, "false": False}.get(text) if text in ("true", "false") else _number(text)


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _seen(value: Any) -> Any:
    """What an expression sees of a constexpr."""
    return value.name if isinstance(value, DType | FunctionRef) else value


def _argument(argument: Argument) -> Any:
    """What an expression sees of an argument."""
    if argument.kind == "pointer":
        return Pointer(argument.value)  # type: ignore[arg-type] # an address
    unseen = argument.kind in ("tuple", "descriptor", "constant")
    return UNSEEN if unseen else argument.value


def _defaults(table: KernelTable) -> dict[str, Any]:
    return {p.name: p.default for p in table.params if p.constexpr and not isinstance(p.default, Missing)}


def _leaf(arguments: Mapping[str, Argument], path: str) -> Argument | None:
    name, *places = path.split(".")
    found: Argument | None = arguments.get(name)
    for place in map(int, places):
        found = found.items[place] if found is not None and place < len(found.items) else None
    return found


def _holds(argument: Argument | None, hint: int) -> bool:
    if argument is None or argument.kind not in ("int", "pointer"):
        return False
    value: Any = argument.value
    return value % 16 == 0 if hint == 16 else argument.kind == "int" and value == 1


def _serves(table: KernelTable, row: int, call: CallFacts) -> bool:  # noqa: PLR0911 - one return for each rule
    case_number, config_number, hints, derived = table.key(row)
    case, config = table.cases[case_number], table.configs[config_number]
    runtime = [param.name for param in table.params if not param.constexpr]
    if not all(map(takes, table.signatures[case.signature], [call.arguments[name] for name in runtime])):
        return False
    point = {axis.name: axis.values[place] for axis, place in zip(table.axes, case.values, strict=True)}
    for axis in table.axes:
        if not axis.is_type and not same({**_defaults(table), **call.constexprs}[axis.name], point[axis.name]):
            return False
    settings = {**_defaults(table), **dict(config.constexprs), **dict(config.options)}
    asked = {name: value for name, value in call.constexprs.items() if name not in point} | {**call.options}
    if not all(name in settings and same(settings[name], value) for name, value in asked.items()):
        return False
    names = {name: _seen(value) for name, value in _defaults(table).items()}
    names |= {name: _argument(call.arguments[name]) for name in runtime}
    names |= {name: _seen(value) for name, value in point.items()}
    names |= {name: _seen(value) for name, value in (*config.constexprs, *config.options)}
    names |= {} if call.arch is None else {"arch": call.arch}
    try:
        if config.requires and expressions.evaluate(config.requires, names) is not True:
            return False
        computed = [expressions.evaluate(item.expression, names) for item in table.derived]
    except expressions.NoValueError:
        return False
    if not all(map(same, computed, map(_seen, table.derived_values[derived]))):
        return False
    return all(_holds(_leaf(call.arguments, path), hint) for path, hint in table.hint_sets[hints])


def _width(kind: str) -> int:
    return sum(map(_width, split(kind))) if kind.startswith("(") else INTS.get(kind, 0)


def serving(table: KernelTable, call: CallFacts, orders: Mapping[int, Sequence[int]] | None = None) -> list[int]:
    """List the rows that serve a call which the kernel can take, the best first.

    Args:
        table: the variants.
        call: each matrix constexpr has a value.
        orders: the configs of cases, the best first; the others follow in the table's order.
    """

    def worth(row: int) -> tuple[Any, ...]:
        case, config, hints, _ = table.key(row)
        order = [*(orders or {}).get(case, ())]
        order += [number for number in range(len(table.configs)) if number not in order]
        width = sum(map(_width, table.signatures[table.cases[case].signature]))
        return width, order.index(config), -len(table.hint_sets[hints]), row

    return sorted([row for row in range(len(table)) if _serves(table, row, call)], key=worth)


def _distance(point: Sequence[int], key: Sequence[int]) -> float:
    total = sum(abs(math.log2(a or 0.5) - math.log2(b or 0.5)) for a, b in zip(point, key, strict=True))
    return math.floor(total * DISTANCE_STEPS + 0.5) / DISTANCE_STEPS


def rank(
    problems: Sequence[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]],
    costs: Sequence[tuple[int, int | None]],
    key: tuple[int, ...],
) -> tuple[int, ...]:
    """Order the configs of a tuning block for a key.

    Args:
        problems: of each its key values, its configs, and how far each of these is behind.
        costs: what configs are estimated to take, None where that cannot be computed.
        key: the call's.
    """
    for at, use, _ in problems:
        if at == key:
            return use
    if costs:
        return tuple(
            [config for config, cost in sorted(costs, key=lambda each: math.inf if each[1] is None else each[1])]
        )
    least = min(_distance(at, key) for at, _, _ in problems)
    near = [
        (_distance(at, key) - least, use, behind)
        for at, use, behind in problems
        if _distance(at, key) - least < 4 * REACH
    ]
    first = next(use for at, use, _ in problems if _distance(at, key) == least)
    if len(near) == 1:
        return first
    met = dict.fromkeys([*first, *[config for _, use, _ in near for config in use]])
    sums = {}
    for config in met:
        words = [
            (math.exp(-far / REACH), dict(zip(use, behind, strict=True)).get(config), max(behind) + ABSENT)
            for far, use, behind in near
        ]
        # in this order, since the last bit of a sum depends on it
        nowhere = sum([weight * absent for weight, _, absent in words], 0.0)
        less = sum([weight * (behind - absent) for weight, behind, absent in words if behind is not None], 0.0)
        sums[config] = math.floor((nowhere + less) * SUM_STEPS + 0.5)
    return tuple(sorted(met, key=lambda config: sums[config]))
