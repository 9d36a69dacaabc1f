"""Lengths and grouping of a kernel's images, at the end of the kernel's section.

The engine reads and checks them: `nojit.runtime._core.Placement`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable

from nojit.runtime.record import Record

__all__ = ["Group", "Place", "encode_groups", "encode_images"]

_GROUP = struct.Struct("<III32s")


class Group(Record):
    """Images that are compressed together."""

    images: int
    """Number of its images, which are consecutive."""
    stored_bytes: int
    """Compressed length."""
    raw_bytes: int
    """Sum of the lengths of its images."""
    sha256: bytes
    """SHA-256 of the compressed bytes."""


class Place(Record):
    """Position of one image: its group, which is read and checked as a whole, and its bytes in the decompressed group."""

    group: int
    """Number of the group."""
    stored_start: int
    """Offset of the group in the kernel's part of the payload."""
    stored_bytes: int
    """Compressed length of the group."""
    raw_bytes: int
    """Decompressed length of the group."""
    sha256: bytes
    """SHA-256 of the group's compressed bytes."""
    start: int
    """First byte of the image in the decompressed group."""
    end: int
    """End of the image in the decompressed group."""


def encode_images(sizes: Iterable[int]) -> bytes:
    """Encode the lengths of images, in the order of the groups."""
    lengths = array("I", sizes)
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths.tobytes()


def encode_groups(groups: Iterable[Group]) -> bytes:
    """Encode the records of groups, which follow the lengths of images."""
    return b"".join(_GROUP.pack(group.images, group.stored_bytes, group.raw_bytes, group.sha256) for group in groups)
