"""Where the images of a kernel lie: how long each is, and which are compressed together. It ends the kernel's section.

The engine reads and checks it: `nojit.runtime._core.Placement`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable

from nojit.runtime.record import Record

__all__ = ["Group", "Place", "encode_groups", "encode_images", "u32_array"]

_GROUP = struct.Struct("<III32s")


class Group(Record):
    """Images compressed together."""

    images: int
    """How many images it holds, in their order."""
    stored_bytes: int
    """Compressed length."""
    raw_bytes: int
    """Sum of its images' lengths."""
    sha256: bytes
    """SHA-256 of the compressed bytes."""


class Place(Record):
    """Where one image lies: its group, which it is read and checked with, and its bytes within that, decompressed."""

    group: int
    """The number of the group."""
    stored_start: int
    """Where the group starts in the kernel's part of the payload."""
    stored_bytes: int
    """Compressed length of the group."""
    raw_bytes: int
    """Decompressed length of the group."""
    sha256: bytes
    """SHA-256 of the group's compressed bytes."""
    start: int
    """Where the image starts in the decompressed group."""
    end: int
    """Where it ends there."""


def encode_images(sizes: Iterable[int]) -> bytes:
    """Lay out each image's length, in the order of the groups."""
    lengths = array("I", sizes)
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths.tobytes()


def u32_array(raw: bytes | memoryview) -> array[int]:
    """Read little-endian unsigned 32-bit integers."""
    values = array("I")
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def encode_groups(groups: Iterable[Group]) -> bytes:
    """Lay out the records of groups, which come behind the lengths of images."""
    return b"".join(_GROUP.pack(group.images, group.stored_bytes, group.raw_bytes, group.sha256) for group in groups)
