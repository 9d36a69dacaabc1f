"""Encode and decode the variant table of one kernel, a section of a bundle.

What selection reads is decoded and checked at once, everything of a kind together: a first launch waits for it. Launches
are decoded when they are asked for (`nojit.runtime.launch_codec`), and `check_table` checks the rest.
"""

from __future__ import annotations

import struct
from array import array
from itertools import chain
from typing import Any

from nojit.runtime import expr
from nojit.runtime.launch_codec import Launches, encode_launches
from nojit.runtime.payload import u32_array
from nojit.runtime.strict import (
    POOL_MAX,
    Json,
    canonical_json,
    count,
    fields,
    flag,
    items,
    line,
    lines,
    load_json,
    name,
    name_list,
    object_rows,
    parse_json,
    refuse,
    text,
)
from nojit.runtime.table import (
    COLUMNS,
    MISSING,
    Axis,
    Config,
    Derived,
    KernelTable,
    Meaning,
    Missing,
    Param,
    Tuning,
    config_json,
)
from nojit.runtime.table_rules import check_names, check_pools, check_rows
from nojit.runtime.values import Value, decode_value, encode_value

__all__ = ["check_table", "decode_table", "encode_table"]

_SMALL_MAX = 1024


def encode_table(table: KernelTable) -> bytes:
    """Lay out a table: length of the JSON, the JSON padded to four bytes, the columns."""
    launches, layouts = encode_launches(table.launches)
    header = canonical_json(
        {
            "params": [_param_json(param) for param in table.params],
            "grid": list(table.grid),
            "tuning": None if table.tuning is None else {"key": list(table.tuning.key), "bucket": table.tuning.bucket},
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


_HEADER_FIELDS = (
    "params",
    "grid",
    "tuning",
    "axes",
    "derived",
    "signatures",
    "meanings",
    "configs",
    "hint_sets",
    "derived_values",
    "layouts",
    "launches",
)


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
    params, grid, tuning, axes, derived, signatures, meanings, configs, hint_sets, derived_values, layouts, launches = (
        fields(parse_json(header, where), _HEADER_FIELDS, where)
    )
    table = KernelTable(
        kernel,
        _decode_params(params, where),
        tuple([_expression(value, where) for value in items(grid, 3, where)]),
        _decode_tuning(tuning, where),
        tuple([_decode_axis(value, where) for value in items(axes, 64, where)]),
        tuple([_decode_derived(value, where) for value in items(derived, 64, where)]),
        tuple([lines(items(value, _SMALL_MAX, where), where) for value in items(signatures, POOL_MAX, where)]),
        _decode_meanings(meanings, where),
        tuple([_decode_config(value, where) for value in items(configs, POOL_MAX, where)]),
        _decode_hint_sets(hint_sets, where),
        tuple([_decode_derived_values(value, where) for value in items(derived_values, POOL_MAX, where)]),
        Launches(items(launches, POOL_MAX, where), items(layouts, POOL_MAX, where), where),
        columns,
    )
    check_names(table, where)
    check_pools(table, image_count, where)
    return table


def check_table(raw: bytes, table: KernelTable, where: str) -> None:
    """Check what `decode_table` leaves for later: the one spelling, every launch, every row.

    Raises:
        BundleFormatError: a broken rule.
    """
    load_json(_split(raw, len(table), where)[0], where)
    if isinstance(table.launches, Launches):
        table.launches.check()
    check_rows(table, where)


def _split(raw: bytes, rows: int, where: str) -> tuple[bytes, dict[str, array[int]]]:
    if len(raw) < 4:
        raise refuse("truncated", "expected a variant table", got=f"{len(raw)} bytes", where=where)
    (length,) = struct.unpack_from("<I", raw)
    start = 4 + length + -length % 4
    expected = start + 4 * rows * len(COLUMNS)
    if len(raw) != expected:
        raise refuse("size", f"expected a table of {expected} bytes for {rows} variants", got=len(raw), where=where)
    if raw[4 + length : start].strip(b" "):
        raise refuse("padding", "expected spaces after the table's JSON", where=where)
    numbers = u32_array(memoryview(raw)[start:])
    columns = {column: numbers[i * rows : (i + 1) * rows] for i, column in enumerate(COLUMNS)}
    return raw[4 : 4 + length], columns


def _expression(value: Json, where: str) -> str:
    checked = text(value, where)
    try:
        expr.parse(checked)
    except expr.ExpressionError as error:
        raise refuse("expression", str(error), where=where) from None
    return checked


def _decode_params(value: Json, where: str) -> tuple[Param, ...]:
    rows = object_rows(value, ("name", "constexpr", "default"), _SMALL_MAX, where)
    known = name_list([row[0] for row in rows], where)
    if dotted := [param for param in known if "." in param]:
        # a dot parts a param from its member
        raise refuse("name", "expected params without dots", got=repr(dotted), where=where)
    flags = [flag(constexpr, where) for _, constexpr, _ in rows]
    # most have none: an empty array
    defaults = [MISSING if default == [] else _default(default, where) for *_, default in rows]
    return tuple(map(Param, known, flags, defaults))


def _default(value: Json, where: str) -> Value | Missing:
    given = items(value, 1, where)
    return decode_value(given[0], where) if given else MISSING


def _decode_tuning(value: Json, where: str) -> Tuning | None:
    if value is None:
        return None
    key, bucket = fields(value, ("key", "bucket"), where)
    return Tuning(name_list(items(key, 8, where), where), line(bucket, where))


def _decode_axis(value: Json, where: str) -> Axis:
    axis, is_type, values = fields(value, ("name", "is_type", "values"), where)
    decoded = tuple([decode_value(item, where) for item in items(values, POOL_MAX, where)])
    return Axis(name(axis, where), flag(is_type, where), decoded)


def _decode_derived(value: Json, where: str) -> Derived:
    derived, expression = fields(value, ("name", "expression"), where)
    return Derived(name(derived, where), _expression(expression, where))


def _decode_derived_values(value: Json, where: str) -> tuple[Value, ...]:
    return tuple([decode_value(item, where) for item in items(value, 64, where)])


def _decode_meanings(value: Json, where: str) -> tuple[Meaning, ...]:
    rows = [items(meaning, 65, where) for meaning in items(value, POOL_MAX, where)]
    # all at once; if something is wrong, one by one, to name it
    if not set(map(type, chain.from_iterable(rows))) <= {int}:
        for number in chain.from_iterable(rows):
            count(number, POOL_MAX, where)
    numbers: list[Any] = rows
    if not all(numbers):
        raise refuse("size", "expected a meaning to name its signature", where=where)
    if min(map(min, numbers), default=0) < 0:
        raise refuse("size", "expected indices from 0", got=min(map(min, numbers)), where=where)
    return tuple([Meaning(signature, tuple(point)) for signature, *point in numbers])


def _decode_config(value: Json, where: str) -> Config:
    constexprs, options, requires = fields(value, ("constexprs", "options", "requires"), where)
    return Config(
        _decode_pairs(constexprs, where),
        _decode_pairs(options, where),
        _expression(requires, where) if requires else text(requires, where),
    )


def _decode_pairs(value: Json, where: str) -> tuple[tuple[str, Value], ...]:
    pairs = [_pair(item, where) for item in items(value, 64, where)]
    keys = name_list([key for key, _ in pairs], where)
    return tuple([(key, decode_value(item, where)) for key, (_, item) in zip(keys, pairs, strict=True)])


def _pair(value: Json, where: str) -> list[Json]:
    pair = items(value, 2, where)
    if len(pair) != 2:
        raise refuse("size", "expected a pair", got=f"{len(pair)} items", where=where)
    return pair


def _decode_hint_sets(value: Json, where: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    sets: list[Any] = [items(hints, _SMALL_MAX, where) for hints in items(value, POOL_MAX, where)]
    pairs = list(chain.from_iterable(sets))
    if not set(map(type, pairs)) <= {list} or not set(map(len, pairs)) <= {2}:
        for pair in pairs:
            _pair(pair, where)
    hints = [hint for _, hint in pairs]
    if not set(map(type, hints)) <= {int} or not set(hints) <= {1, 16}:
        for hint in hints:
            if count(hint, 16, where) not in (1, 16):
                raise refuse("hint", "expected a hint of 16 or 1", got=hint, where=where)
    if not set(map(type, [leaf for leaf, _ in pairs])) <= {str}:
        name_list([leaf for leaf, _ in pairs], where)
    name_list(list({leaf for leaf, _ in pairs}), where)
    return tuple([tuple([(leaf, hint) for leaf, hint in hint_set]) for hint_set in sets])
