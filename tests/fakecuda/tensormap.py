"""Read back what the fake's ``cuTensorMapEncodeTiled`` stored in a tensor map."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["TensorMap", "read_tensor_map"]

_MAGIC = 0x70616D74
# struct fake_tensor_map of tensormap.c
_LAYOUT = struct.Struct("<I4B8xQ4Q5I5I5B2B5x16xI")


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The arguments of ``cuTensorMapEncodeTiled``, innermost dimension first as there."""

    element_type: int
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes, of each dimension but the innermost."""
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int
    swizzle: int
    promotion: int
    fill: int


def read_tensor_map(content: bytes) -> TensorMap:
    """Decode the 128 bytes of a map.

    Raises:
        ValueError: the fake did not make it.
    """
    if len(content) != _LAYOUT.size:
        raise ValueError(f"expected {_LAYOUT.size} bytes of a tensor map, got {len(content)}")
    magic, kind, rank, swizzle, fill, address, *rest = _LAYOUT.unpack(content)
    if magic != _MAGIC:
        raise ValueError("expected a tensor map that the fake driver made")
    strides, dims, box, steps, (interleave, promotion) = (
        tuple(rest[a:b]) for a, b in ((0, 4), (4, 9), (9, 14), (14, 19), (19, 21))
    )
    return TensorMap(
        element_type=kind,
        address=address,
        dims=tuple(dim or 1 << 32 for dim in dims[:rank]),
        strides=strides[: rank - 1],
        box=box[:rank],
        steps=steps[:rank],
        interleave=interleave,
        swizzle=swizzle,
        promotion=promotion,
        fill=fill,
    )
