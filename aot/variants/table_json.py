"""JSON of the parts of a variant table, as bundles, cache entries and `nojit inspect` spell them."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from nojit.runtime import _core
from nojit.runtime.base.strict_json import Json, parse_json
from nojit.runtime.table.parts import Launch, Slot, TensorMap, config_json
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import Tuning
from nojit.runtime.values import encode_value

__all__ = ["encode_definition", "encode_launches", "encode_tuning"]

_DEVICE_FIELDS = ("name", "arch", "multiprocessors", "memory_bytes")
_DEVICE_FACTS = attrgetter(*_DEVICE_FIELDS)


def encode_definition(table: KernelTable) -> dict[str, Json]:
    """Return a kernel's definition as JSON, without its params and rows: signatures, grid, tuning, axes, derived constexprs, configs."""
    return {
        "signatures": [list(signature) for signature in table.signatures],
        "grid": list(table.grid),
        "tuning": encode_tuning(table.tuning),
        "batch": list(table.batch),
        "axes": [
            {"name": axis.name, "is_type": axis.is_type, "values": [encode_value(value) for value in axis.values]}
            for axis in table.axes
        ],
        "derived": [{"name": derived.name, "expression": derived.expression} for derived in table.derived],
        "configs": [config_json(config) for config in table.configs],
    }


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


def encode_launches(launches: Iterable[Launch]) -> tuple[list[Json], list[Json]]:
    """Lay out launches: the JSON of each, and of the layouts that they point into."""
    launches = list(launches)
    layouts = sorted({_spelled(launch.layout) for launch in launches})
    places = {layout: place for place, layout in enumerate(layouts)}
    encoded: list[Json] = []
    for launch in launches:
        facts: dict[str, Json] = {field: getattr(launch, field) for field in _core.LAUNCH_FIELDS}
        maps: list[Json] = [_tensor_map_json(tensor_map) for tensor_map in launch.tensor_maps]
        encoded.append(facts | {"layout": places[_spelled(launch.layout)], "tensor_maps": maps})
    return encoded, [*layouts]


def _spelled(layout: Iterable[Slot]) -> str:
    return " ".join([f"{slot.source}:{slot.type}" for slot in layout])


def _tensor_map_json(tensor_map: TensorMap) -> Json:
    facts: dict[str, Any] = {field: getattr(tensor_map, field) for field in _core.TENSOR_MAP_FIELDS}
    return facts | {"block": list(tensor_map.block)}
