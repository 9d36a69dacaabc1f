"""Encode and decode the variant table of one kernel, a section of a bundle.

What selection reads is decoded and checked at once, everything of a kind together: a first launch waits for it. Launches
are decoded when they are asked for (`nojit.runtime.launch_codec`), and `check_table` checks the rest: grids, too, of which a
launch reads the programs alone.
"""

from __future__ import annotations

import struct
from array import array
from itertools import chain, islice
from operator import itemgetter, lt
from types import ModuleType
from typing import Any

from nojit.runtime.expr import parse
from nojit.runtime.launch_codec import Launches, encode_launches
from nojit.runtime.payload import u32_array
from nojit.runtime.strict import (
    POOL_MAX,
    Json,
    are_counts,
    are_lines,
    are_names,
    are_texts,
    canonical_json,
    load_json,
    need,
    parse_json,
    refuse,
)
from nojit.runtime.table import (
    COLUMNS,
    KEY_COLUMNS,
    MISSING,
    TABLE_FIELDS,
    Axis,
    Config,
    Derived,
    KernelTable,
    Meaning,
    Missing,
    Param,
    config_json,
)
from nojit.runtime.table_rules import check_grid, check_rows
from nojit.runtime.type_names import is_type
from nojit.runtime.values import Value, decode_value, encode_value

__all__ = ["check_table", "decode_table", "encode_table"]

SMALL_MAX = 1024
_TABLE, _PARAM = itemgetter(*TABLE_FIELDS), itemgetter("name", "constexpr", "default")
_AXIS, _DERIVED = itemgetter("name", "is_type", "values"), itemgetter("name", "expression")
_CONFIG = itemgetter("constexprs", "options", "requires")


def encode_table(table: KernelTable) -> bytes:
    """Lay out a table: length of the JSON, the JSON padded to four bytes, the columns."""
    launches, layouts = encode_launches(table.launches)
    header = canonical_json(
        {
            "params": [_param_json(param) for param in table.params],
            "grid": list(table.grid),
            "tuning": _tuning_codec().encode_tuning(table.tuning),
            "axes": [
                {"name": axis.name, "is_type": axis.is_type, "values": [encode_value(v) for v in axis.values]}
                for axis in table.axes
            ],
            "derived": [{"name": derived.name, "expression": derived.expression} for derived in table.derived],
            "signatures": [list(signature) for signature in table.signatures],
            "meanings": [[meaning.signature, *meaning.values] for meaning in table.meanings],
            "configs": [config_json(config) for config in table.configs],
            "hint_sets": [[[param, hint] for param, hint in hints] for hints in table.hint_sets],
            "derived_values": [[encode_value(v) for v in values] for values in table.derived_values],
            "layouts": layouts,
            "launches": launches,
            "programs": list(table.programs),
        }
    )
    padding = -len(header) % 4
    columns = b"".join(_column_bytes(table.columns[column]) for column in COLUMNS)
    return struct.pack("<I", len(header)) + header + b" " * padding + columns


def _column_bytes(column: array[int]) -> bytes:
    return struct.pack(f"<{len(column)}I", *column)


def _param_json(param: Param) -> Json:
    default: list[Json] = [] if isinstance(param.default, Missing) else [encode_value(param.default)]
    return {"name": param.name, "constexpr": param.constexpr, "default": default}


def decode_table(raw: bytes, kernel: str, rows: int, image_count: int, where: str) -> KernelTable:
    """Read a variant table and check its rules; those of a launch when it is asked for.

    Args:
        raw: the decompressed section.
        kernel: the name that the index gives it.
        rows: how many variants the index promises.
        image_count: how many images the bundle has.
        where: the bundle and kernel, for errors.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    header, columns = _split(raw, rows, where)
    value = parse_json(header, where)
    try:
        return _whole_table(value, kernel, columns, image_count, where)
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    # something is wrong: go through it one by one, to name it
    from nojit.runtime.table_reader import read_table  # noqa: PLC0415 - few tables are

    return read_table(value, kernel, columns, image_count, where)


# What follows reads a table that keeps every rule, everything of a kind at once. For any other it raises one of the
# errors above, which say nothing: `nojit.runtime.table_reader` finds the rule.


def _whole_table(value: Any, kernel: str, columns: dict[str, array[int]], image_count: int, where: str) -> KernelTable:
    params, grid, tuning, axes, derived, signatures, meanings, configs, *rest = _TABLE(value)
    hint_sets, derived_values, layouts, launches, programs = rest
    need(len(value) == len(TABLE_FIELDS) and type(layouts) is type(launches) is list)
    need(max(len(layouts), len(launches)) <= POOL_MAX)
    need(type(grid) is type(programs) is list and len(grid) == len(programs) <= 3 and are_texts((*grid, *programs)))
    known = _whole_params(params)
    runtime = [param.name for param in known if not param.constexpr]
    table = KernelTable(
        kernel,
        known,
        tuple(grid),
        None if tuning is None else _tuning_codec().whole_tuning(tuning, (runtime, len(meanings), len(configs))),
        _whole_axes(axes),
        _whole_derived(derived),
        _whole_signatures(signatures, len(runtime)),
        tuple([Meaning(signature, tuple(point)) for signature, *point in _each_list(meanings)]),
        tuple(map(_whole_config, _each(configs))),
        _whole_hint_sets(hint_sets, runtime),
        tuple([_whole_values(values) for values in _each_list(derived_values)]),
        Launches(launches, layouts, where),
        tuple(programs),
        columns,
    )
    _need_pools(table, meanings, image_count)
    _need_constexprs(table)
    return table


def _tuning_codec() -> ModuleType:
    """Return what reads and writes tunings: few tables that are launched from have one."""
    from nojit.runtime import tuning_codec  # noqa: PLC0415 - see above

    return tuning_codec


def _each(values: Any) -> list[Any]:
    need(type(values) is list and len(values) <= POOL_MAX)
    return values  # type: ignore[no-any-return] # its type was just compared


def _each_list(values: Any) -> list[list[Any]]:
    need(type(values) is list and len(values) <= POOL_MAX and {*map(type, values)} <= {list})
    return values  # type: ignore[no-any-return] # likewise


def _parsed(text: Any) -> str:
    need(type(text) is str)
    parse(text)
    return text  # type: ignore[no-any-return] # likewise


def _whole_params(params: Any) -> tuple[Param, ...]:
    names, flags, defaults = zip(*map(_PARAM, params), strict=True)
    need({*map(len, params)} == {3} and len(params) <= SMALL_MAX)
    # a dot parts a param from its member
    need(are_names(names) and "." not in "".join(names) and len({*names}) == len(names))
    need({*map(type, flags)} == {bool} and {*map(type, defaults)} == {list} and max(map(len, defaults)) <= 1)
    return tuple(map(Param, names, flags, [decode_value(given[0], "") if given else MISSING for given in defaults]))


def _whole_axes(axes: Any) -> tuple[Axis, ...]:
    if not _each(axes):
        return ()
    names, flags, values = zip(*map(_AXIS, axes), strict=True)
    need({*map(len, axes)} == {3} and len(axes) <= 64 and are_names(names) and len({*names}) == len(names))
    need({*map(type, flags)} == {bool})
    return tuple(map(Axis, names, flags, map(_whole_values, _each_list([*values]))))


def _whole_derived(derived: Any) -> tuple[Derived, ...]:
    if not _each(derived):
        return ()
    names, expressions = zip(*map(_DERIVED, derived), strict=True)
    need({*map(len, derived)} == {2} and len(derived) <= 64 and are_names(names))
    return tuple(map(Derived, names, map(_parsed, expressions)))


def _whole_values(values: list[Any]) -> tuple[Value, ...]:
    need(len(values) <= POOL_MAX)
    if {*map(type, values)} <= {str}:
        need(are_texts(values))
        return tuple(values)
    return tuple([decode_value(value, "") for value in values])


def _whole_signatures(signatures: Any, length: int) -> tuple[tuple[str, ...], ...]:
    types = [*{*chain.from_iterable(_each_list(signatures))}]
    need({*map(len, signatures)} <= {length} and are_lines(types) and all(map(is_type, types)))
    return tuple(map(tuple, signatures))


def _whole_config(config: Any) -> Config:
    constexprs, options, requires = _CONFIG(config)
    need(len(config) == 3 and type(requires) is str)
    if requires:
        parse(requires)
    given = _whole_pairs(options)
    need(len(dict(given)) == len(given))
    return Config(_whole_pairs(constexprs), given, requires)


def _whole_pairs(pairs: Any) -> tuple[tuple[str, Value], ...]:
    need(len(_each_list(pairs)) <= 64 and {*map(len, pairs)} <= {2} and are_names([key for key, _ in pairs]))
    return tuple([(key, decode_value(value, "")) for key, value in pairs])


def _whole_hint_sets(hint_sets: Any, runtime: list[str]) -> tuple[tuple[tuple[str, int], ...], ...]:
    pairs = _each_list([*chain.from_iterable(_each_list(hint_sets))])
    need({*map(len, pairs)} <= {2} and max(map(len, hint_sets), default=0) <= SMALL_MAX)
    leaves = [*{leaf for leaf, _ in pairs}]
    hints = {hint for _, hint in pairs}
    need(are_names(leaves) and {leaf.partition(".")[0] for leaf in leaves} <= {*runtime})
    need({type(hint) for _, hint in pairs} <= {int} and hints <= {1, 16})
    need([*map(len, map(dict, hint_sets))] == [*map(len, hint_sets)])
    return tuple([tuple([(leaf, hint) for leaf, hint in hint_set]) for hint_set in hint_sets])


def _need_pools(table: KernelTable, meanings: list[list[Any]], image_count: int) -> None:
    limits = [len(table.signatures), *[len(axis.values) for axis in table.axes]]
    need({*map(len, meanings)} <= {len(limits)} and are_counts([*chain.from_iterable(meanings)], POOL_MAX))
    need(all(map(lt, map(max, zip(*meanings, strict=True)), limits)))
    need({*map(len, table.derived_values)} <= {len(table.derived)})
    pools = (table.meanings, table.configs, table.hint_sets, table.derived_values, table.launches)
    if len(table):
        # `COLUMNS` starts with those that point into pools, in this order, and `KEY_COLUMNS`
        columns = [*table.columns.values()]
        need(all(map(lt, map(max, columns), [*map(len, pools), image_count])))
        keys = [*zip(*columns[: len(KEY_COLUMNS)], strict=True)]
        # mapped, not looped over: ten thousand rows are checked before a first launch
        need(all(map(lt, keys, islice(keys, 1, None))))


def _need_constexprs(table: KernelTable) -> None:
    """Need each constexpr to get one value, from the meaning, the config, an expression or its default."""
    known = {param.name for param in table.params if param.constexpr}
    defaulted = {param.name for param in table.params if param.default is not MISSING}
    fixed = [axis.name for axis in table.axes if not axis.is_type] + [derived.name for derived in table.derived]
    for names in {tuple([name for name, _ in config.constexprs]) for config in table.configs} or {()}:
        valued = {*fixed, *names}
        need(len(valued) == len(fixed) + len(names) and known - defaulted <= valued <= known)


def check_table(raw: bytes, table: KernelTable, where: str) -> None:
    """Check what `decode_table` leaves for later: the one spelling, every launch, every row.

    Raises:
        BundleFormatError: a broken rule.
    """
    load_json(_split(raw, len(table), where)[0], where)
    if isinstance(table.launches, Launches):
        table.launches.check()
    check_grid(table, where)
    check_rows(table, where)


def _split(raw: bytes, rows: int, where: str) -> tuple[bytes, dict[str, array[int]]]:
    if len(raw) < 4:
        raise refuse("truncated", "expected a variant table", got=f"{len(raw)} bytes", where=where)
    length = int.from_bytes(raw[:4], "little")
    start = 4 + length + -length % 4
    expected = start + 4 * rows * len(COLUMNS)
    if len(raw) != expected:
        raise refuse("size", f"expected a table of {expected} bytes for {rows} variants", got=len(raw), where=where)
    if raw[4 + length : start].strip(b" "):
        raise refuse("padding", "expected spaces after the table's JSON", where=where)
    numbers = u32_array(memoryview(raw)[start:])
    columns = {column: numbers[i * rows : (i + 1) * rows] for i, column in enumerate(COLUMNS)}
    return raw[4 : 4 + length], columns
