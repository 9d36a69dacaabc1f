"""Encode the variant table of one kernel, the first part of its section, and have the engine read it.

Launches are decoded when they are asked for (`nojit.runtime.table.launches`), and `check_table` checks all of them.
"""

from __future__ import annotations

import struct
from array import array

from nojit.runtime import _core
from nojit.runtime.strict import Json, canonical_json
from nojit.runtime.table import tuning_codec
from nojit.runtime.table.launches import Launches, encode_launches
from nojit.runtime.table.table import (
    COLUMNS,
    KernelTable,
    Missing,
    Param,
    config_json,
)
from nojit.runtime.values import encode_value

__all__ = ["check_table", "decode_table", "encode_table", "table_handle"]


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
            "cases": [[case.signature, *case.values] for case in table.cases],
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
    handle = _core.read_table(raw, rows, image_count, where)
    return KernelTable.of(kernel, handle, Launches(handle, where))


def check_table(table: KernelTable, where: str) -> None:
    """Check what `decode_table` leaves for later: every launch, every row.

    Raises:
        BundleFormatError: a broken rule.
    """
    table.handle().check(where)


def table_handle(table: KernelTable) -> _core.Table:
    """Have the engine read a table that was made by hand.

    Raises:
        BundleFormatError: it breaks a rule.
    """
    images = max(table.columns["image"], default=-1) + 1
    return _core.read_table(encode_table(table), len(table), images, f"kernel {table.kernel}")
