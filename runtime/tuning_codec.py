"""Encode and decode the tuning of a variant table: everything of a kind at once, or rule by rule to name what is broken."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from operator import attrgetter, eq, itemgetter, lt
from typing import Any

from nojit.runtime.expr import ExpressionError, parse
from nojit.runtime.strict import (
    POOL_MAX,
    Json,
    are_counts,
    are_lines,
    are_names,
    count,
    fields,
    items,
    line,
    name,
    need,
    refuse,
    text,
)
from nojit.runtime.tuning_table import BUCKETS, TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable

__all__ = ["Pools", "encode_tuning", "read_tuning", "whole_tuning"]

KEYS_MAX = 8
TABLES_MAX = 64
_INT_MAX = (1 << 63) - 1
_FIELDS, _TABLE_FIELDS, _BLOCK_FIELDS = ("key", "bucket", "tables"), ("device", "blocks"), ("meanings", "rows")
_DEVICE_FIELDS = ("name", "arch", "multiprocessors", "memory_bytes")
_TUNING, _TABLE = itemgetter(*_FIELDS), itemgetter(*_TABLE_FIELDS)
_BLOCK, _DEVICE = itemgetter(*_BLOCK_FIELDS), itemgetter(*_DEVICE_FIELDS)
_DEVICE_FACTS = attrgetter(*_DEVICE_FIELDS)

Pools = tuple[Sequence[str], int, int]
"""What a tuning points into: the runtime params, how many meanings and how many configs there are."""


def encode_tuning(tuning: Tuning | None) -> Json:
    """Spell a tuning as a table stores it."""
    if tuning is None:
        return None
    tables: list[Json] = [
        {
            "device": dict(zip(_DEVICE_FIELDS, _DEVICE_FACTS(table.device), strict=True)),
            "blocks": [
                {"meanings": [*block.meanings], "rows": [[[*row.at], [*row.use]] for row in block.rows]}
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
    need(are_counts(numbers, _INT_MAX) and min(numbers) > 0 and type(blocks) is list)
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
    need(are_counts([*chain.from_iterable(at)], _INT_MAX) and _ascend(at))
    need(are_counts([*chain.from_iterable(use)], pools[2] - 1) and all(map(eq, map(len, map(set, use)), map(len, use))))
    return TuningBlock(tuple(meanings), tuple(map(TuningRow, map(tuple, at), map(tuple, use))))


def _ascend(values: Sequence[Any]) -> bool:
    return all(map(lt, values, islice(values, 1, None)))


def read_tuning(value: Json, pools: Pools, where: str) -> Tuning | None:
    """Read a tuning rule by rule.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    if value is None:
        return None
    key, bucket, tables = fields(value, _FIELDS, where)
    texts = [_read_key(item, pools, where) for item in _some(key, KEYS_MAX, where)]
    if bucket not in BUCKETS:
        raise refuse("bucket", f"expected one of {', '.join(BUCKETS)}", got=repr(bucket), where=where)
    read = [_read_table(table, len(texts), pools, where) for table in items(tables, TABLES_MAX, where)]
    if len({table.device for table in read}) < len(read):
        raise refuse("duplicate", "expected each device of a tuning once", where=where)
    return Tuning(tuple(texts), str(bucket), tuple(read))


def _read_key(value: Json, pools: Pools, where: str) -> str:
    checked = text(value, where)
    try:
        names = parse(checked).names
    except ExpressionError as error:
        raise refuse("expression", str(error), where=where) from None
    if strangers := names.difference(pools[0]):
        raise refuse("param", "expected a key of this kernel's runtime params", got=sorted(strangers), where=where)
    return checked


def _read_table(value: Json, keys: int, pools: Pools, where: str) -> TuningTable:
    device, blocks = fields(value, _TABLE_FIELDS, where)
    device_name, arch, multiprocessors, memory_bytes = fields(device, _DEVICE_FIELDS, where)
    facts = TunedDevice(
        line(device_name, where),
        name(arch, where),
        count(multiprocessors, _INT_MAX, where, least=1),
        count(memory_bytes, _INT_MAX, where, least=1),
    )
    read = [_read_block(block, keys, pools, where) for block in items(blocks, POOL_MAX, where)]
    meanings = [*chain.from_iterable([block.meanings for block in read])]
    if len({*meanings}) < len(meanings):
        raise refuse("duplicate", "expected each meaning in one block", where=where)
    return TuningTable(facts, tuple(read))


def _read_block(value: Json, keys: int, pools: Pools, where: str) -> TuningBlock:
    meanings, rows = fields(value, _BLOCK_FIELDS, where)
    known = [_index(item, pools[1], "meaning", where) for item in _some(meanings, POOL_MAX, where)]
    read = [_read_row(row, keys, pools, where) for row in _some(rows, POOL_MAX, where)]
    if not _ascend(known) or not _ascend([row.at for row in read]):
        raise refuse("order", "expected meanings and rows that ascend, each once", where=where)
    return TuningBlock(tuple(known), tuple(read))


def _read_row(value: Json, keys: int, pools: Pools, where: str) -> TuningRow:
    pair = items(value, 2, where)
    if len(pair) != 2:
        raise refuse("size", "expected a pair", got=f"{len(pair)} items", where=where)
    at = [count(number, _INT_MAX, where) for number in items(pair[0], KEYS_MAX, where)]
    if len(at) != keys:
        raise refuse("size", f"expected {keys} key values", got=len(at), where=where)
    use = [_index(number, pools[2], "config", where) for number in _some(pair[1], POOL_MAX, where)]
    if len(set(use)) < len(use):
        raise refuse("duplicate", "expected each config of a row once", got=use, where=where)
    return TuningRow(tuple(at), tuple(use))


def _index(value: Json, size: int, what: str, where: str) -> int:
    number = count(value, POOL_MAX, where)
    if number >= size:
        raise refuse("pool", f"expected a {what} below {size}", got=number, where=where)
    return number


def _some(value: Json, limit: int, where: str) -> list[Json]:
    """Take an array that is not empty."""
    listed = items(value, limit, where)
    if not listed:
        raise refuse("size", f"expected 1 to {limit} items", got=0, where=where)
    return listed
