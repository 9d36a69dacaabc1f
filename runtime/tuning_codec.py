"""Encode and decode the tuning of a variant table, everything of a kind at once.

`nojit.runtime.tuning_reader` goes rule by rule, and names the one that is broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from operator import attrgetter, eq, itemgetter, lt
from typing import Any

from nojit.runtime.expr import parse
from nojit.runtime.strict import Json, are_counts, are_lines, are_names, need
from nojit.runtime.tuning_table import BUCKETS, TunedDevice, Tuning, TuningBlock, TuningTable

__all__ = [
    "BLOCK_FIELDS",
    "DEVICE_FIELDS",
    "FIELDS",
    "INT_MAX",
    "KEYS_MAX",
    "TABLES_MAX",
    "TABLE_FIELDS",
    "Pools",
    "encode_tuning",
    "whole_tuning",
]

KEYS_MAX = 8
TABLES_MAX = 64
INT_MAX = (1 << 63) - 1
FIELDS, TABLE_FIELDS, BLOCK_FIELDS = ("key", "bucket", "tables"), ("device", "blocks"), ("meanings", "rows")
DEVICE_FIELDS = ("name", "arch", "multiprocessors", "memory_bytes")
_TUNING, _TABLE = itemgetter(*FIELDS), itemgetter(*TABLE_FIELDS)
_BLOCK, _DEVICE = itemgetter(*BLOCK_FIELDS), itemgetter(*DEVICE_FIELDS)
_DEVICE_FACTS = attrgetter(*DEVICE_FIELDS)

Pools = tuple[Sequence[str], int, int]
"""What a tuning points into: the runtime params, how many meanings and how many configs there are."""


def encode_tuning(tuning: Tuning | None) -> Json:
    """Spell a tuning as a table stores it."""
    if tuning is None:
        return None
    tables: list[Json] = [
        {
            "device": dict(zip(DEVICE_FIELDS, _DEVICE_FACTS(table.device), strict=True)),
            "blocks": [
                {
                    "meanings": [*block.meanings],
                    "rows": [[[*at], [*use]] for at, use in zip(block.at, block.use, strict=True)],
                }
                for block in table.blocks
            ],
        }
        for table in tuning.tables
    ]
    return {"key": [*tuning.key], "bucket": tuning.bucket, "tables": tables}


# What follows reads a tuning that keeps every rule. For any other it raises one of the errors that
# `nojit.runtime.table_codec` takes for a broken rule, which say nothing.


def whole_tuning(value: Any, pools: Pools) -> Tuning:
    """Read a tuning that keeps every rule."""
    key, bucket, tables = _TUNING(value)
    need(len(value) == 3 and type(key) is type(tables) is list)
    need(1 <= len(key) <= KEYS_MAX and len(tables) <= TABLES_MAX and bucket in BUCKETS)
    need({*map(type, key)} <= {str} and all(parse(text).names <= {*pools[0]} for text in key))
    read = tuple([_whole_table(table, len(key), pools) for table in tables])
    need(len({table.device for table in read}) == len(read))
    return Tuning(tuple(key), bucket, read)


def _whole_table(value: Any, keys: int, pools: Pools) -> TuningTable:
    device, blocks = _TABLE(value)
    device_name, arch, *numbers = _DEVICE(device)
    need(len(value) == 2 and len(device) == 4 and are_lines((device_name,)) and are_names((arch,)))
    need(are_counts(numbers, INT_MAX) and min(numbers) > 0 and type(blocks) is list)
    read = tuple([_whole_block(block, keys, pools) for block in blocks])
    meanings = [*chain.from_iterable([block.meanings for block in read])]
    need(len({*meanings}) == len(meanings))
    return TuningTable(TunedDevice(device_name, arch, *numbers), read)


def _whole_block(value: Any, keys: int, pools: Pools) -> TuningBlock:
    meanings, rows = _BLOCK(value)
    need(len(value) == 2 and type(meanings) is type(rows) is list and {*map(type, rows)} == {list})
    need(are_counts(meanings, pools[1] - 1) and _ascend(meanings) and len(meanings) > 0)
    at, use = zip(*rows, strict=True)
    need({*map(type, at)} == {*map(type, use)} == {list} and {*map(len, at)} == {keys} and min(map(len, use)) > 0)
    need(are_counts([*chain.from_iterable(at)], INT_MAX) and _ascend(at))
    need(are_counts([*chain.from_iterable(use)], pools[2] - 1) and all(map(eq, map(len, map(set, use)), map(len, use))))
    return TuningBlock(tuple(meanings), tuple(map(tuple, at)), tuple(map(tuple, use)))


def _ascend(values: Sequence[Any]) -> bool:
    return all(map(lt, values, islice(values, 1, None)))
