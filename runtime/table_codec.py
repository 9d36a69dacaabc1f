"""Encode and decode the variant table of one kernel, a section of a bundle. Every rule is checked on the way in."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import lt
from typing import Any

from nojit.runtime import expr
from nojit.runtime.format import u32_array
from nojit.runtime.strict import Json, canonical_json, count, fields, items, line, lines, load_json, name, refuse, text
from nojit.runtime.table import (
    COLUMNS,
    KEY_COLUMNS,
    MISSING,
    Axis,
    Config,
    Derived,
    KernelTable,
    Launch,
    Meaning,
    Missing,
    Param,
    Slot,
    TensorMap,
    Tuning,
    config_json,
)
from nojit.runtime.table_rules import check_names
from nojit.runtime.type_names import RANK_MAX
from nojit.runtime.values import Value, decode_value, encode_value

__all__ = ["decode_table", "encode_table"]

_POOL_MAX = 1_000_000
_SMALL_MAX = 1024


def encode_table(table: KernelTable) -> bytes:
    """Lay out a table: length of the JSON, the JSON padded to four bytes, the columns."""
    layouts = sorted(
        {launch.layout for launch in table.launches}, key=lambda layout: [(s.source, s.type) for s in layout]
    )
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
            "layouts": [[[slot.source, slot.type] for slot in layout] for layout in layouts],
            "launches": [_launch_json(launch, layouts.index(launch.layout)) for launch in table.launches],
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


# the least and the greatest of each
_LAUNCH_NUMBERS = (
    ("num_warps", 1, 64),
    ("num_ctas", 1, 16),
    ("shared_bytes", 0, 1 << 20),
    ("global_scratch_bytes", 0, 1 << 30),
    ("global_scratch_align", 1, 1 << 20),
    ("profile_scratch_bytes", 0, 1 << 30),
    ("profile_scratch_align", 1, 1 << 20),
)


def _launch_json(launch: Launch, layout: int) -> Json:
    numbers: dict[str, Json] = {field: getattr(launch, field) for field, *_ in _LAUNCH_NUMBERS}
    return numbers | {
        "symbol": launch.symbol,
        "layout": layout,
        "cooperative": launch.cooperative,
        "pdl": launch.pdl,
        "tensor_maps": [_tensor_map_json(tensor_map) for tensor_map in launch.tensor_maps],
    }


def _tensor_map_json(tensor_map: TensorMap) -> Json:
    return {
        "source": tensor_map.source,
        "swizzle": tensor_map.swizzle,
        "element_bytes": tensor_map.element_bytes,
        "element_type": tensor_map.element_type,
        "block": list(tensor_map.block),
        "fp4_padded": tensor_map.fp4_padded,
    }


_LAUNCH_FIELDS = ("symbol", "layout", "cooperative", "pdl", "tensor_maps", *(field for field, *_ in _LAUNCH_NUMBERS))
_TENSOR_MAP_FIELDS = ("source", "swizzle", "element_bytes", "element_type", "block", "fp4_padded")
# the enums of cuda.h have fewer values; a driver that does not know one says so
_ENUM_MAX = 31
_BOX_MAX = 256
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
    """Read a variant table and check every rule that it can break.

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
        fields(load_json(header, where), _HEADER_FIELDS, where)
    )
    known_layouts = [_decode_layout(value, where) for value in items(layouts, _POOL_MAX, where)]
    table = KernelTable(
        kernel=kernel,
        params=tuple(_decode_param(value, where) for value in items(params, _SMALL_MAX, where)),
        grid=tuple(_expression(value, where) for value in items(grid, 3, where)),
        tuning=_decode_tuning(tuning, where),
        axes=tuple(_decode_axis(value, where) for value in items(axes, 64, where)),
        derived=tuple(_decode_derived(value, where) for value in items(derived, 64, where)),
        signatures=tuple(
            lines(items(value, _SMALL_MAX, where), where) for value in items(signatures, _POOL_MAX, where)
        ),
        meanings=tuple(_decode_meaning(value, where) for value in items(meanings, _POOL_MAX, where)),
        configs=tuple(_decode_config(value, where) for value in items(configs, _POOL_MAX, where)),
        hint_sets=tuple(_decode_hints(value, where) for value in items(hint_sets, _POOL_MAX, where)),
        derived_values=tuple(
            tuple(decode_value(v, where) for v in items(value, 64, where))
            for value in items(derived_values, _POOL_MAX, where)
        ),
        launches=tuple(_decode_launch(value, known_layouts, where) for value in items(launches, _POOL_MAX, where)),
        columns=columns,
    )
    check_names(table, where)
    _check_pools(table, where)
    _check_columns(table, image_count, where)
    return table


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
    view = memoryview(raw)[start:]
    width = 4 * rows
    columns = {column: u32_array(view[i * width : (i + 1) * width]) for i, column in enumerate(COLUMNS)}
    return raw[4 : 4 + length], columns


def _expression(value: Json, where: str) -> str:
    checked = text(value, where)
    try:
        expr.parse(checked)
    except expr.ExpressionError as error:
        raise refuse("expression", str(error), where=where) from None
    return checked


def _decode_param(value: Json, where: str) -> Param:
    param, constexpr, default = fields(value, ("name", "constexpr", "default"), where)
    given = items(default, 1, where)
    checked = name(param, where)
    if "." in checked:
        # a dot parts a param from its member
        raise refuse("name", "expected a param without dots", got=repr(checked), where=where)
    return Param(checked, _flag(constexpr, where), decode_value(given[0], where) if given else MISSING)


def _flag(value: Json, where: str) -> bool:
    if not isinstance(value, bool):
        raise refuse("type", "expected true or false", got=type(value).__name__, where=where)
    return value


def _decode_tuning(value: Json, where: str) -> Tuning | None:
    if value is None:
        return None
    key, bucket = fields(value, ("key", "bucket"), where)
    return Tuning(tuple(name(item, where) for item in items(key, 8, where)), line(bucket, where))


def _decode_axis(value: Json, where: str) -> Axis:
    axis, is_type, values = fields(value, ("name", "is_type", "values"), where)
    return Axis(
        name(axis, where),
        _flag(is_type, where),
        tuple(decode_value(item, where) for item in items(values, _POOL_MAX, where)),
    )


def _decode_derived(value: Json, where: str) -> Derived:
    derived, expression = fields(value, ("name", "expression"), where)
    return Derived(name(derived, where), _expression(expression, where))


def _decode_meaning(value: Json, where: str) -> Meaning:
    numbers = [count(item, _POOL_MAX, where) for item in items(value, 65, where)]
    if not numbers:
        raise refuse("size", "expected a meaning to name its signature", where=where)
    return Meaning(numbers[0], tuple(numbers[1:]))


def _decode_config(value: Json, where: str) -> Config:
    constexprs, options, requires = fields(value, ("constexprs", "options", "requires"), where)
    return Config(
        _decode_pairs(constexprs, where),
        _decode_pairs(options, where),
        _expression(requires, where) if requires else text(requires, where),
    )


def _decode_pairs(value: Json, where: str) -> tuple[tuple[str, Value], ...]:
    pairs = [_pair(item, where) for item in items(value, 64, where)]
    return tuple((name(key, where), decode_value(item, where)) for key, item in pairs)


def _pair(value: Json, where: str) -> tuple[Json, Json]:
    pair = items(value, 2, where)
    if len(pair) != 2:
        raise refuse("size", "expected a pair", got=f"{len(pair)} items", where=where)
    return pair[0], pair[1]


def _decode_hints(value: Json, where: str) -> tuple[tuple[str, int], ...]:
    hints = []
    for item in items(value, _SMALL_MAX, where):
        param, hint = _pair(item, where)
        checked = count(hint, 16, where)
        if checked not in (1, 16):
            raise refuse("hint", "expected a hint of 16 or 1", got=checked, where=where)
        hints.append((name(param, where), checked))
    return tuple(hints)


def _decode_layout(value: Json, where: str) -> tuple[Slot, ...]:
    words = lines([word for item in items(value, _SMALL_MAX, where) for word in _pair(item, where)], where)
    return tuple(map(Slot, words[::2], words[1::2]))


def _decode_launch(value: Json, layouts: Sequence[tuple[Slot, ...]], where: str) -> Launch:
    symbol, layout, cooperative, pdl, tensor_maps, *numbers = fields(value, _LAUNCH_FIELDS, where)
    index = count(layout, _POOL_MAX, where)
    if index >= len(layouts):
        raise refuse("pool", f"expected one of {len(layouts)} layouts", got=index, where=where)
    return Launch(
        symbol=line(symbol, where),
        layout=layouts[index],
        cooperative=_flag(cooperative, where),
        pdl=_flag(pdl, where),
        tensor_maps=tuple(_decode_tensor_map(item, where) for item in items(tensor_maps, _SMALL_MAX, where)),
        **_decode_launch_numbers(numbers, where),
    )


def _decode_tensor_map(value: Json, where: str) -> TensorMap:
    source, swizzle, element_bytes, element_type, block, fp4_padded = fields(value, _TENSOR_MAP_FIELDS, where)
    return TensorMap(
        line(source, where),
        count(swizzle, _ENUM_MAX, f"{where} swizzle"),
        count(element_bytes, 8, f"{where} element_bytes", 1),
        count(element_type, _ENUM_MAX, f"{where} element_type"),
        tuple(count(size, _BOX_MAX, f"{where} block", 1) for size in items(block, RANK_MAX, where)),
        _flag(fp4_padded, where),
    )


def _decode_launch_numbers(values: list[Json], where: str) -> dict[str, Any]:
    numbers = {field: value for (field, *_), value in zip(_LAUNCH_NUMBERS, values, strict=True) if type(value) is int}
    if len(numbers) != len(values) or not all(
        least <= numbers[field] <= limit for field, least, limit in _LAUNCH_NUMBERS
    ):
        # something is wrong: go through them one by one, to name it
        for (field, least, limit), value in zip(_LAUNCH_NUMBERS, values, strict=True):
            count(value, limit, f"{where} {field}", least)
    for field in ("global_scratch_align", "profile_scratch_align"):
        if numbers[field] & (numbers[field] - 1):
            raise refuse(
                "size", "expected an alignment that is a power of two", got=numbers[field], where=f"{where} {field}"
            )
    return numbers


def _check_pools(table: KernelTable, where: str) -> None:
    runtime = table.runtime_params()
    for signature in table.signatures:
        if len(signature) != len(runtime):
            raise refuse("size", f"expected {len(runtime)} types in a signature", got=len(signature), where=where)
    limits = [len(table.signatures), *(len(axis.values) for axis in table.axes)]
    for meaning in table.meanings:
        numbers = (meaning.signature, *meaning.values)
        if len(numbers) != len(limits) or any(n >= limit for n, limit in zip(numbers, limits, strict=True)):
            raise refuse("pool", "expected a meaning within its signatures and axes", got=numbers, where=where)
    if any(len(values) != len(table.derived) for values in table.derived_values):
        raise refuse("size", f"expected {len(table.derived)} derived values", where=where)


def _check_columns(table: KernelTable, image_count: int, where: str) -> None:
    pools: Iterable[tuple[str, int]] = (
        ("meaning", len(table.meanings)),
        ("config", len(table.configs)),
        ("hints", len(table.hint_sets)),
        ("derived", len(table.derived_values)),
        ("launch", len(table.launches)),
        ("image", image_count),
    )
    for column, size in pools:
        if table.columns[column] and max(table.columns[column]) >= size:
            raise refuse("pool", f"expected column {column} below {size}", got=max(table.columns[column]), where=where)
    keys = list(zip(*(table.columns[column] for column in KEY_COLUMNS), strict=True))
    # mapped, not looped over: ten thousand rows are checked before a first launch
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise refuse("order", "expected rows sorted by meaning, config, hints and derived, each once", where=where)
