"""Encoding of a kernel's section: its variant table, the lengths of its images, the records of its groups."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable

from nojit.aot.variants.table_json import encode_definition, encode_launches
from nojit.runtime import _core
from nojit.runtime.base.strict_json import Json, canonical_json
from nojit.runtime.bundle.format import Group
from nojit.runtime.table.parts import Missing, Param
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import encode_value

__all__ = ["encode_groups", "encode_images", "encode_table"]

_GROUP = struct.Struct("<III32s")


def encode_table(table: KernelTable) -> bytes:
    """Lay out a table: length of the JSON, the JSON padded to four bytes, the columns."""
    launches, layouts = encode_launches(table.launches)
    header = canonical_json(
        {
            **encode_definition(table),
            "params": [_param_json(param) for param in table.params],
            "cases": [[case.signature, *case.values] for case in table.cases],
            "hint_sets": [[[param, hint] for param, hint in hints] for hints in table.hint_sets],
            "derived_values": [[encode_value(v) for v in values] for values in table.derived_values],
            "layouts": layouts,
            "launches": launches,
            "programs": list(table.programs),
        }
    )
    padding = -len(header) % 4
    columns = b"".join(_column_bytes(table.columns[column]) for column in _core.COLUMNS)
    return struct.pack("<I", len(header)) + header + b" " * padding + columns


def _column_bytes(column: array[int]) -> bytes:
    return struct.pack(f"<{len(column)}I", *column)


def _param_json(param: Param) -> Json:
    default: list[Json] = [] if isinstance(param.default, Missing) else [encode_value(param.default)]
    return {"name": param.name, "constexpr": param.constexpr, "default": default}


def encode_images(sizes: Iterable[int]) -> bytes:
    """Encode the lengths of images, in the order of the groups."""
    lengths = array("I", sizes)
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths.tobytes()


def encode_groups(groups: Iterable[Group]) -> bytes:
    """Encode the records of groups, which follow the lengths of images."""
    return b"".join(_GROUP.pack(group.images, group.stored_bytes, group.raw_bytes, group.sha256) for group in groups)
