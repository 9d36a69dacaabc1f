"""Read the tuning of a variant table rule by rule, to name the one that it breaks."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

from nojit.runtime.strict import POOL_MAX, Json, count, fields, items, line, name, refuse, text
from nojit.runtime.tuning_codec import (
    BLOCK_FIELDS,
    COSTS_FIELD,
    DEVICE_FIELDS,
    FIELDS,
    INT_MAX,
    KEYS_MAX,
    TABLE_FIELDS,
    TABLES_MAX,
    Pools,
)
from nojit.runtime.tuning_table import (
    BEHIND_MAX,
    BUCKETS,
    COSTS_MAX,
    TunedDevice,
    Tuning,
    TuningBlock,
    TuningRow,
    TuningTable,
)

__all__ = ["read_tuning"]


def read_tuning(value: Json, pools: Pools, where: str) -> Tuning | None:
    """Read a tuning rule by rule.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    if value is None:
        return None
    key, bucket, tables = fields(value, FIELDS, where)
    texts = [text(item, where) for item in _some(key, KEYS_MAX, where)]
    if bucket not in BUCKETS:
        raise refuse("bucket", f"expected one of {', '.join(BUCKETS)}", got=repr(bucket), where=where)
    read = [_read_table(table, len(texts), pools, where) for table in items(tables, TABLES_MAX, where)]
    if len({table.device for table in read}) < len(read):
        raise refuse("duplicate", "expected each device of a tuning once", where=where)
    return Tuning(tuple(texts), str(bucket), tuple(read))


def _read_table(value: Json, keys: int, pools: Pools, where: str) -> TuningTable:
    device, blocks = fields(value, TABLE_FIELDS, where)
    device_name, arch, multiprocessors, memory_bytes = fields(device, DEVICE_FIELDS, where)
    facts = TunedDevice(
        line(device_name, where),
        name(arch, where),
        count(multiprocessors, INT_MAX, where, least=1),
        count(memory_bytes, INT_MAX, where, least=1),
    )
    read = [_read_block(block, keys, pools, where) for block in items(blocks, POOL_MAX, where)]
    meanings = [*chain.from_iterable([block.meanings for block in read])]
    if len({*meanings}) < len(meanings):
        raise refuse("duplicate", "expected each meaning in one block", where=where)
    return TuningTable(facts, tuple(read))


def _read_block(value: Json, keys: int, pools: Pools, where: str) -> TuningBlock:
    estimated = isinstance(value, dict) and COSTS_FIELD in value
    meanings, rows, *costs = fields(value, (*BLOCK_FIELDS, COSTS_FIELD) if estimated else BLOCK_FIELDS, where)
    known = [_index(item, pools[0], "meaning", where) for item in _some(meanings, POOL_MAX, where)]
    read = [_read_row(row, keys, pools, where) for row in _some(rows, POOL_MAX, where)]
    if not _ascend(known) or not _ascend([row.at for row in read]):
        raise refuse("order", "expected meanings and rows that ascend, each once", where=where)
    return TuningBlock.of(known, read, _read_costs(costs[0], pools, where) if estimated else ())


def _read_costs(value: Json, pools: Pools, where: str) -> list[tuple[int, str]]:
    costs = []
    for item in _some(value, COSTS_MAX, where):
        pair = items(item, 2, where)
        if len(pair) != 2:
            raise refuse("size", "expected a config and an expression", got=f"{len(pair)} items", where=where)
        costs.append((_index(pair[0], pools[1], "config", where), text(pair[1], where)))
    if len({config for config, _ in costs}) < len(costs):
        raise refuse("duplicate", "expected one cost for each config", where=where)
    return costs


def _read_row(value: Json, keys: int, pools: Pools, where: str) -> TuningRow:
    lists = items(value, 3, where)
    if len(lists) != 3:
        raise refuse("size", "expected 3 arrays", got=f"{len(lists)} items", where=where)
    at = [count(number, INT_MAX, where) for number in items(lists[0], KEYS_MAX, where)]
    if len(at) != keys:
        raise refuse("size", f"expected {keys} key values", got=len(at), where=where)
    use = [_index(number, pools[1], "config", where) for number in _some(lists[1], POOL_MAX, where)]
    if len(set(use)) < len(use):
        raise refuse("duplicate", "expected each config of a row once", got=use, where=where)
    behind = [count(number, BEHIND_MAX, where) for number in items(lists[2], POOL_MAX, where)]
    if len(behind) != len(use):
        raise refuse("size", f"expected {len(use)} numbers, one for each config", got=len(behind), where=where)
    return TuningRow(tuple(at), tuple(use), tuple(behind))


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


def _ascend(values: list[Any]) -> bool:
    return all(first < second for first, second in pairwise(values))
