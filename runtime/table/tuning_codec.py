"""Encode the tuning of a variant table."""

from __future__ import annotations

from operator import attrgetter

from nojit.runtime.strict import Json, parse_json
from nojit.runtime.table.tuning import Tuning

__all__ = ["encode_tuning"]

_DEVICE_FIELDS = ("name", "arch", "multiprocessors", "memory_bytes")
_DEVICE_FACTS = attrgetter(*_DEVICE_FIELDS)


def encode_tuning(tuning: Tuning | None) -> Json:
    """Spell a tuning as a table stores it."""
    if tuning is None:
        return None
    tables: list[Json] = [
        {
            "device": dict(zip(_DEVICE_FIELDS, _DEVICE_FACTS(table.device), strict=True)),
            "blocks": [
                {
                    "cases": [*block.cases],
                    "rows": parse_json(block.text, ""),
                    "costs": parse_json(block.costs, "") if block.costs else [],
                }
                for block in table.blocks
            ],
        }
        for table in tuning.tables
    ]
    return {"key": [*tuning.key], "bucket": tuning.bucket, "tables": tables}
