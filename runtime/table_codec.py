"""Encode and decode the variant table of one kernel, the first part of its section.

What selection reads is decoded and checked at once, in C: a first launch waits for it. Launches are decoded when they are
asked for (`nojit.runtime.launch_codec`), and `check_table` checks the rest: expressions, too, of which a launch reads
the programs alone.
"""

from __future__ import annotations

import struct
from array import array

from nojit.runtime import _core, tuning_codec
from nojit.runtime.launch_codec import Launches, encode_launches
from nojit.runtime.payload import u32_array
from nojit.runtime.strict import Json, canonical_json, parse_json, refuse
from nojit.runtime.table import (
    COLUMNS,
    KernelTable,
    Missing,
    Param,
    config_json,
)
from nojit.runtime.type_names import is_type
from nojit.runtime.values import Value, decode_value, encode_value

__all__ = ["check_table", "decode_table", "encode_table"]

SMALL_MAX = 1024
# what stands in programs beside names, numbers and functions
_WORDS = ("and", "or", "true", "false", "none")
# what is so small is within each limit of `nojit.runtime.table_work`
SMALL_WORK = 65_536


def encode_table(table: KernelTable) -> bytes:
    """Lay out a table: length of the JSON, the JSON padded to four bytes, the columns."""
    launches, layouts = encode_launches(table.launches)
    header = canonical_json(
        {
            "params": [_param_json(param) for param in table.params],
            "grid": list(table.grid),
            "tuning": tuning_codec.encode_tuning(table.tuning),
            "batch": list(table.batch),
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
        raw: the table, without what stands behind it in its section.
        kernel: the name that the index gives it.
        rows: how many variants the index promises.
        image_count: how many images the index promises.
        where: the bundle and kernel, for errors.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    table = _whole_table(raw, kernel, rows, image_count, where)
    if table is None:
        # something is wrong, or rarely seen: go through it one by one, to name it
        from nojit.runtime.table_reader import read_table  # noqa: PLC0415 - few tables are

        header, columns = _split(raw, rows, where)
        table = read_table(parse_json(header, where), kernel, columns, image_count, where)
    if table.tuning is not None:
        _check_key(table, where)
    # what a small table asks for is within each limit
    if len(raw) > SMALL_WORK or max(rows, len(table.configs)) * len(raw) > SMALL_WORK:
        from nojit.runtime.table_work import check_work  # noqa: PLC0415 - few tables are so large

        check_work(table, where)
    return table


def _whole_table(raw: bytes, kernel: str, rows: int, image_count: int, where: str) -> KernelTable | None:
    """Read a table that keeps every rule; None for any other, and for some that are spelled in a way that no build does."""
    fields = _core.read_table(raw, rows, image_count, is_type, _tagged_value)
    if fields is None:
        return None
    *facts, programs, columns, batch, launches, layouts, types, by_expression = fields
    table = KernelTable(*(kernel, *facts, Launches(launches, layouts, where), programs, columns, batch))
    table.know_param_types(types)
    table.know_programs(by_expression)
    return table


def _check_key(table: KernelTable, where: str) -> None:
    """Check that the tuning key names runtime params alone."""
    if table.tuning is None:
        return
    programs, runtime = table.programs_by_expression(), table.runtime_params()
    words = {word for text in table.tuning.key for word in programs[text].split(" ") if word.isidentifier()}
    if words.issubset((*runtime, *_WORDS)):
        return
    # they may stand in a string
    from nojit.runtime.postfix import names_of  # noqa: PLC0415 - keys of bundles are right

    strangers = {name for text in table.tuning.key for name in names_of(programs[text])}.difference(runtime)
    if strangers:
        raise refuse("param", "expected a tuning key of runtime params alone", got=sorted(strangers), where=where)


def _tagged_value(raw: bytes) -> Value:
    """Read a constexpr value that JSON spells as an object."""
    return decode_value(parse_json(raw, ""), "")


def check_table(raw: bytes, table: KernelTable, where: str) -> None:
    """Check what `decode_table` leaves for later: the one spelling, every launch, every row.

    Raises:
        BundleFormatError: a broken rule.
    """
    from nojit.runtime.table_rules import check_costs, check_programs, check_rows  # noqa: PLC0415 - to launch checks no more

    _core.check_json(_split(raw, len(table), where)[0], where)
    if isinstance(table.launches, Launches):
        table.launches.check()
    check_programs(table, where)
    check_costs(table, where)
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
        raise refuse("padding", "expected only spaces as padding after the table's JSON", where=where)
    return raw[4 : 4 + length], _columns(memoryview(raw)[start:], rows)


def _columns(raw: memoryview, rows: int) -> dict[str, array[int]]:
    numbers = u32_array(raw)
    return {column: numbers[i * rows : (i + 1) * rows] for i, column in enumerate(COLUMNS)}
