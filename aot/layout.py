"""The params of a compiled kernel: what of the function's params reaches it, and as what. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nojit.runtime.format import GLOBAL_SCRATCH, PROFILE_SCRATCH
from nojit.runtime.table import Slot, TensorMap
from nojit.runtime.type_names import TENSOR_MAP, descriptor_parts, is_descriptor

__all__ = ["Leaf", "layout_of", "tensor_maps_of"]

Leaf = tuple[str, str]
"""The path of what is passed, ``x`` or ``x.1.0``, and its type."""

# Triton's metadata number element types as tensor maps made on the device do; `CUtensorMapDataType` swaps three
_ELEMENT_TYPES = {8: 10, 9: 8, 10: 9}


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
