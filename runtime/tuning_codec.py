"""Encode the tuning of a variant table. C reads it, or `nojit.runtime.tuning_reader`, which names a rule that is broken."""

from __future__ import annotations

from operator import attrgetter

from nojit.runtime.strict import Json, parse_json
from nojit.runtime.tuning_table import Tuning

__all__ = [
    "BLOCK_FIELDS",
    "COSTS_FIELD",
    "DEVICE_FIELDS",
    "FIELDS",
    "INT_MAX",
    "KEYS_MAX",
    "TABLES_MAX",
    "TABLE_FIELDS",
    "Pools",
    "encode_tuning",
]

KEYS_MAX = 8
TABLES_MAX = 64
INT_MAX = (1 << 63) - 1
FIELDS, TABLE_FIELDS, BLOCK_FIELDS = ("key", "bucket", "tables"), ("device", "blocks"), ("meanings", "rows")
COSTS_FIELD = "costs"
"""Of a block where estimates decide."""
DEVICE_FIELDS = ("name", "arch", "multiprocessors", "memory_bytes")
_DEVICE_FACTS = attrgetter(*DEVICE_FIELDS)

Pools = tuple[int, int]
"""What a tuning points into: how many meanings and how many configs there are."""


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
                    "rows": parse_json(block.text, ""),
                    **({COSTS_FIELD: parse_json(block.costs, "")} if block.costs else {}),
                }
                for block in table.blocks
            ],
        }
        for table in tuning.tables
    ]
    return {"key": [*tuning.key], "bucket": tuning.bucket, "tables": tables}
