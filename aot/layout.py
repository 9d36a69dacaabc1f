"""From a function's params to those of the compiled kernel: what Triton is told, and what comes of it. Pure."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nojit.aot.types import members_of, plain
from nojit.aot.variant import Variant
from nojit.runtime.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.table import Slot, TensorMap
from nojit.runtime.type_names import TENSOR_MAP, descriptor_parts, is_compiled_in, is_descriptor, is_tuple, leaves

__all__ = ["Leaf", "Place", "layout_of", "leaves_of", "nested", "passed_of", "place_in", "tensor_maps_of"]

Leaf = tuple[str, str]
"""The path of what is passed, ``x`` or ``x.1.0``, and its type."""
Place = tuple[int, ...]
"""A path as Triton has it: the place of the param, then of each member."""

# Triton's metadata number element types as tensor maps made on the device do; `CUtensorMapDataType` swaps three
_ELEMENT_TYPES = {8: 10, 9: 8, 10: 9}


def leaves_of(variant: Variant) -> Iterator[Leaf]:
    """List every leaf of a variant's runtime params, None included."""
    return (leaf for name, kind in variant.signature for leaf in leaves(plain(kind), name))


def passed_of(order: Sequence[str], variant: Variant) -> list[Leaf]:
    """List what is passed to the compiled kernel: tuples taken apart, constants dropped.

    Args:
        order: the function's params.
        variant: says their types, and which of them are constants.
    """
    types = dict(variant.signature)
    ones = {path for path, hint in variant.hints if hint == 1}
    return [
        (path, kind)
        for name in order
        if name in types
        for path, kind in leaves(plain(types[name]), name)
        if path not in ones and not is_compiled_in(kind)
    ]


def place_in(path: str, order: Sequence[str]) -> Place:
    """Say where a leaf is, as Triton does."""
    name, *places = path.split(".")
    return (order.index(name), *map(int, places))


def nested(kind: str, place: Place, constants: Mapping[Place, Any]) -> Any:
    """Spell a type as Triton does: a tuple of types for a tuple, and ``constexpr`` for a constant."""
    if place in constants:
        return "constexpr"
    if not is_tuple(kind):
        return kind
    names, kinds = members_of(kind)
    members = [nested(member, (*place, number), constants) for number, member in enumerate(kinds)]
    # Triton looks for the fields on the class; they are known only now
    return namedtuple("Members", names)(*members) if names else tuple(members)  # noqa: PYI024


def layout_of(passed: Sequence[Leaf], *, tensor_maps: bool, rounds_tf32: bool) -> tuple[Slot, ...]:
    """List the compiled kernel's params: what is passed, in the function's order, then the two scratch pointers.

    Args:
        passed: every leaf that is no constant of the compiled kernel.
        tensor_maps: whether descriptors are passed as tensor maps; otherwise they come apart.
        rounds_tf32: whether Triton passes that flag of a descriptor that comes apart.
    """
    slots: list[Slot] = []
    for path, kind in passed:
        if is_descriptor(kind):
            element, block = descriptor_parts(kind)
            slots += _of_map(path, len(block)) if tensor_maps else _apart(path, element, len(block), rounds_tf32)
        else:
            slots.append(Slot(path, kind))
    return (*slots, Slot(GLOBAL_SCRATCH, "*i8"), Slot(PROFILE_SCRATCH, "*i8"))


def _of_map(path: str, rank: int) -> Iterator[Slot]:
    yield Slot(f"{path}.map", TENSOR_MAP)
    yield from _shape(path, rank, "i32")
    yield from _strides(path, rank)


def _apart(path: str, element: str, rank: int, rounds_tf32: bool) -> Iterator[Slot]:
    yield Slot(f"{path}.base", f"*{element}")
    yield from _shape(path, rank, "i64")
    yield from _strides(path, rank)
    yield Slot(f"{path}.pads_nan", "i1")
    if rounds_tf32:
        yield Slot(f"{path}.rounds_tf32", "i1")
    # what the kernel reads as `descriptor.shape` and `descriptor.strides`
    yield from _shape(path, rank, "i32")
    yield from _strides(path, rank)


def _shape(path: str, rank: int, kind: str) -> Iterator[Slot]:
    return (Slot(f"{path}.shape.{place}", kind) for place in range(rank))


def _strides(path: str, rank: int) -> Iterator[Slot]:
    return (Slot(f"{path}.stride.{place}", "i64") for place in range(rank))


def tensor_maps_of(passed: Sequence[Leaf], metadata: Sequence[Mapping[str, Any]]) -> tuple[TensorMap, ...]:
    """Say how the tensor map of each descriptor is encoded.

    Args:
        passed: as for `layout_of`.
        metadata: Triton's ``tensordesc_meta``: one entry per descriptor, in order.

    Raises:
        ValueError: there are more or fewer entries than descriptors, or one is of a kind that is not supported.
    """
    paths = [path for path, kind in passed if is_descriptor(kind)]
    if len(paths) != len(metadata):
        raise ValueError(f"expected {len(paths)} tensor maps, got {len(metadata)}")
    if any(entry.get("is_im2col") for entry in metadata):
        raise ValueError("expected tiled tensor maps, got one for im2col, which is not supported")
    return tuple(
        TensorMap(
            source=path,
            swizzle=entry["swizzle"],
            element_bytes=entry["elem_size"],
            element_type=_ELEMENT_TYPES.get(entry["elem_type"], entry["elem_type"]),
            block=tuple(entry["block_size"]),
            fp4_padded=entry["fp4_padded"],
        )
        for path, entry in zip(paths, metadata, strict=True)
    )
