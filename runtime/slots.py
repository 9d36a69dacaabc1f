"""Where each parameter of a compiled kernel comes from, as the C core takes it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from nojit.runtime.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.record import Record
from nojit.runtime.table import KernelTable, Launch, Slot, TensorMap
from nojit.runtime.type_names import is_tuple, members

__all__ = ["CoreMap", "CoreSlot", "Packing", "core_maps", "core_slots", "packing_of", "places_of"]

Place: TypeAlias = tuple[int, int]
"""An argument of a call by number, and which entry of its tuple; -1: the argument itself."""
CoreSlot: TypeAlias = tuple[int, int, int, int, str]
"""Argument, entry, part, index of the part, type."""
CoreMap: TypeAlias = tuple[int, int, int, int, int, tuple[int, ...], bool]
"""Argument, entry, swizzle, bytes and type of an element, block, whether 4-bit values are padded."""

_SCRATCH: dict[str, CoreSlot] = {GLOBAL_SCRATCH: (-1, -1, 0, 0, "*i8"), PROFILE_SCRATCH: (-2, -1, 0, 0, "*i8")}
# the numbers are those of nj_part in _core/plan.h
_VALUE, _MAP = 0, 1
_PARTS = {"map": _MAP, "base": 2, "shape": 3, "stride": 4, "pads_nan": 5, "rounds_tf32": 6}


class Packing(Record):
    """How a row's parameters are packed."""

    slots: tuple[CoreSlot, ...]
    maps: tuple[CoreMap, ...]


def packing_of(table: KernelTable, row: int, arguments: Mapping[str, int], where: str) -> Packing:
    """Check what a row packs, and say where each of its parameters comes from.

    Args:
        table: the kernel's variants.
        row: one of them.
        arguments: the number of each param among a call's arguments.
        where: the bundle and kernel, for errors.

    Raises:
        BundleFormatError: as `nojit.runtime.table.KernelTable.check_row`.
    """
    table.check_row(row, where)
    launch = table.launches[table.columns["launch"][row]]
    types = table.signatures[table.meanings[table.columns["meaning"][row]].signature]
    places = places_of(arguments, dict(zip(table.runtime_params(), types, strict=True)))
    return Packing(core_slots(launch, places), core_maps(launch.tensor_maps, places))


def places_of(arguments: Mapping[str, int], types: Mapping[str, str]) -> dict[str, Place]:
    """Number the params and the leaves of tuples as the core lays a call out: a tuple in a tuple before its members.

    Args:
        arguments: the number of each param among a call's arguments.
        types: the type of each runtime param.

    Returns:
        The place of each param and leaf, by its path: ``x``, ``x.1.0``.
    """
    places: dict[str, Place] = {}
    for name, kind in types.items():
        places[name] = (arguments[name], -1)
        entries = _entries(kind, name) if is_tuple(kind) else ()
        places.update((path, (arguments[name], number)) for number, path in enumerate(entries))
    return places


def _entries(kind: str, path: str) -> Iterator[str]:
    for number, member in enumerate(members(kind)):
        yield f"{path}.{number}"
        if is_tuple(member):
            yield from _entries(member, f"{path}.{number}")


def core_slots(launch: Launch, places: Mapping[str, Place]) -> tuple[CoreSlot, ...]:
    """Say where each parameter comes from.

    Args:
        launch: of a row that `nojit.runtime.table.KernelTable.check_row` has passed.
        places: as `places_of` gives them.
    """
    maps = {tensor_map.source: number for number, tensor_map in enumerate(launch.tensor_maps)}
    return tuple(_core_slot(slot, places, maps) for slot in launch.layout)


def _core_slot(slot: Slot, places: Mapping[str, Place], maps: Mapping[str, int]) -> CoreSlot:
    if slot.source in _SCRATCH:
        return _SCRATCH[slot.source]
    if slot.source in places:
        return (*places[slot.source], _VALUE, 0, slot.type)
    # a part of a descriptor: its leaf, the part's name, perhaps a dimension
    path, _, last = slot.source.rpartition(".")
    index = 0
    if last.isdigit():
        index = int(last)
        path, _, last = path.rpartition(".")
    part = _PARTS[last]
    return (*places[path], part, maps[path] if part == _MAP else index, slot.type)


def core_maps(tensor_maps: Sequence[TensorMap], places: Mapping[str, Place]) -> tuple[CoreMap, ...]:
    """Say how each tensor map is encoded."""
    return tuple(
        (
            *places[tensor_map.source],
            tensor_map.swizzle,
            tensor_map.element_bytes,
            tensor_map.element_type,
            tensor_map.block,
            tensor_map.fp4_padded,
        )
        for tensor_map in tensor_maps
    )
