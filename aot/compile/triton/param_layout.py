"""Mapping from the params of a kernel function to the params of the compiled kernel. Pure."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nojit.aot.manifest.types import members_of, plain
from nojit.aot.variants.variant import Variant
from nojit.runtime.bundle.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.table.parts import Slot, TensorMap
from nojit.runtime.types.names import TENSOR_MAP, descriptor_parts, is_compiled_in, is_descriptor, is_tuple, leaves

__all__ = ["Leaf", "Place", "layout_of", "leaves_of", "nested", "passed_of", "place_in", "tensor_maps_of"]

Leaf = tuple[str, str]
"""An argument or a member of a tuple argument that is no tuple itself: its path, ``x`` or ``x.1.0``, and its type."""
Place = tuple[int, ...]
"""Path in Triton's form: index of the param, then the index of each nested member."""

# Triton's metadata number element types like device-side tensor maps; `CUtensorMapDataType` permutes three numbers
_ELEMENT_TYPES = {8: 10, 9: 8, 10: 9}


def leaves_of(variant: Variant) -> Iterator[Leaf]:
    """Yield the path and type of every argument and tuple member of a variant's runtime params, also if it is None."""
    return (leaf for name, kind in variant.signature for leaf in leaves(plain(kind), name))


def passed_of(order: Sequence[str], variant: Variant) -> list[Leaf]:
    """Return the path and type of each argument that is passed to the compiled kernel: no tuples and no constants.

    Args:
        order: names of the function's params, in its order.
        variant: the variant, with types and constants of the params.
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
    """Return the path ``x.1.0`` of an argument or tuple member in Triton's form: the indices of param and members.

    `order`: the function's params, in order.
    """
    name, *places = path.split(".")
    return (order.index(name), *map(int, places))


def nested(kind: str, place: Place, constants: Mapping[Place, Any]) -> Any:
    """Return a type in Triton's form: a tuple of types for a tuple, and ``constexpr`` for a constant."""
    if place in constants:
        return "constexpr"
    if not is_tuple(kind):
        return kind
    names, kinds = members_of(kind)
    members = [nested(member, (*place, number), constants) for number, member in enumerate(kinds)]
    # a class of its own: Triton reads the field names from the class
    return namedtuple("Members", names)(*members) if names else tuple(members)  # noqa: PYI024


def layout_of(passed: Sequence[Leaf], *, tensor_maps: bool, rounds_tf32: bool) -> tuple[Slot, ...]:
    """Return the compiled kernel's params: the passed leaves in the function's order, then the two scratch pointers.

    Args:
        passed: path and type of each argument or tuple member that is not a compiled-in constant.
        tensor_maps: whether descriptors are passed as tensor maps; otherwise as pointer, shape and strides.
        rounds_tf32: whether Triton passes the flag `round_f32_to_tf32` of a descriptor without tensor map.
    """
    slots: list[Slot] = []
    for path, kind in passed:
        if is_descriptor(kind):
            element, block = descriptor_parts(kind)
            slots += _of_map(path, len(block)) if tensor_maps else _without_map(path, element, len(block), rounds_tf32)
        else:
            slots.append(Slot(path, kind))
    return (*slots, Slot(GLOBAL_SCRATCH, "*i8"), Slot(PROFILE_SCRATCH, "*i8"))


def _of_map(path: str, rank: int) -> Iterator[Slot]:
    yield Slot(f"{path}.map", TENSOR_MAP)
    yield from _shape(path, rank, "i32")
    yield from _strides(path, rank)


def _without_map(path: str, element: str, rank: int, rounds_tf32: bool) -> Iterator[Slot]:
    yield Slot(f"{path}.base", f"*{element}")
    yield from _shape(path, rank, "i64")
    yield from _strides(path, rank)
    yield Slot(f"{path}.pads_nan", "i1")
    if rounds_tf32:
        yield Slot(f"{path}.rounds_tf32", "i1")
    # the kernel reads these as `descriptor.shape` and `descriptor.strides`
    yield from _shape(path, rank, "i32")
    yield from _strides(path, rank)


def _shape(path: str, rank: int, kind: str) -> Iterator[Slot]:
    return (Slot(f"{path}.shape.{place}", kind) for place in range(rank))


def _strides(path: str, rank: int) -> Iterator[Slot]:
    return (Slot(f"{path}.stride.{place}", "i64") for place in range(rank))


def tensor_maps_of(passed: Sequence[Leaf], metadata: Sequence[Mapping[str, Any]]) -> tuple[TensorMap, ...]:
    """Return the encoding of each descriptor's tensor map.

    Args:
        passed: path and type of each argument or tuple member that is not a compiled-in constant.
        metadata: Triton's ``tensordesc_meta``: one entry per descriptor, in order.

    Raises:
        ValueError: the number of entries differs from that of the descriptors, or an entry is for im2col.
    """
    paths = [path for path, kind in passed if is_descriptor(kind)]
    if len(paths) != len(metadata):
        raise ValueError(f"expected {len(paths)} tensor maps, got {len(metadata)}")
    if any(entry.get("is_im2col") for entry in metadata):
        raise ValueError("expected tiled tensor maps, got one for im2col, which nojit does not support")
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
