"""The images and groups sections of a bundle: how long each image is, and which images lie compressed together."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, chain
from operator import sub

from nojit.runtime.format import GROUP_BYTES_MAX, IMAGE_BYTES_MAX, BundleIndex
from nojit.runtime.record import Record
from nojit.runtime.strict import refuse

__all__ = ["Group", "Groups", "decode_groups", "decode_images", "encode_groups", "encode_images", "u32_array"]

_GROUP = struct.Struct("<III32s")


class Group(Record):
    """Images compressed together."""

    images: int
    """How many images it holds, in the order of the images section."""
    stored_bytes: int
    """Compressed length."""
    raw_bytes: int
    """Sum of its images' lengths."""
    sha256: bytes
    """SHA-256 of the compressed bytes."""


class Groups(Record):
    """The groups section, checked."""

    raw: bytes
    """As it was read: each group's record."""
    stored_bytes: array[int]
    """Of each group."""
    firsts: list[int]
    """The number of the first image of each group, then the count of all images."""
    image_starts: list[int]
    """Where each image starts if all groups lay one after the other, decompressed, then where the last ends."""

    def __len__(self) -> int:
        return len(self.stored_bytes)

    def group(self, number: int) -> Group:
        """Return one group."""
        return Group(*_GROUP.unpack_from(self.raw, number * _GROUP.size))

    def place(self, image: int) -> tuple[int, int, int]:
        """Return the group of an image, and where it starts and ends in it.

        Raises:
            IndexError: there is no such image.
        """
        if not 0 <= image < self.firsts[-1]:
            raise IndexError(f"expected an image below {self.firsts[-1]}, got {image}")
        group = bisect_right(self.firsts, image) - 1
        base = self.image_starts[self.firsts[group]]
        return group, self.image_starts[image] - base, self.image_starts[image + 1] - base


def encode_images(sizes: Iterable[int]) -> bytes:
    """Lay out the images section: each image's length, in the order of the groups."""
    lengths = array("I", sizes)
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths.tobytes()


def decode_images(raw: bytes, where: str) -> array[int]:
    """Read the images section.

    Raises:
        BundleFormatError: an image that is empty or past the limit.
    """
    lengths = u32_array(raw)
    if lengths and not 0 < min(lengths) <= max(lengths) <= IMAGE_BYTES_MAX:
        raise refuse(
            "size",
            f"expected images of 1 to {IMAGE_BYTES_MAX} bytes",
            got=f"{min(lengths)} to {max(lengths)}",
            where=where,
        )
    return lengths


def u32_array(raw: bytes | memoryview) -> array[int]:
    """Read little-endian unsigned 32-bit integers."""
    values = array("I")
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def encode_groups(groups: Iterable[Group]) -> bytes:
    """Lay out the groups section."""
    return b"".join(_GROUP.pack(group.images, group.stored_bytes, group.raw_bytes, group.sha256) for group in groups)


def decode_groups(raw: bytes, index: BundleIndex, sizes: array[int], where: str) -> Groups:
    """Read the groups section and check it against the index and the images' `sizes`.

    Raises:
        BundleFormatError: groups that do not hold exactly the images listed, or do not fill the file.
    """
    # the digests are left where they are: few groups are ever asked for
    words = u32_array(raw)
    counts, stored, raws = words[:: _GROUP.size // 4], words[1 :: _GROUP.size // 4], words[2 :: _GROUP.size // 4]
    firsts = list(accumulate(counts, initial=0))
    ends = list(accumulate(sizes, initial=0))
    if firsts[-1] != len(sizes) or 0 in counts:
        what = f"expected groups of at least one image each, {len(sizes)} in all"
        raise refuse("groups", what, got=firsts[-1], where=where)
    marks = [ends[first] for first in firsts]
    held = list(map(sub, marks[1:], marks))
    if held != raws.tolist() or max(chain(held, stored), default=0) > GROUP_BYTES_MAX:
        # something is wrong: go through them one by one, to name it
        for number, (said, holds, packed) in enumerate(zip(raws, held, stored, strict=True)):
            if said != holds or max(holds, packed) > GROUP_BYTES_MAX:
                what = f"expected {holds} raw bytes, neither they nor the stored ones above {GROUP_BYTES_MAX}"
                raise refuse("groups", what, got=f"{said} raw, {packed} stored", where=f"{where} group {number}")
    if (total := sum(stored)) != index.payload_bytes:
        raise refuse("groups", f"expected groups of {index.payload_bytes} bytes in all", got=total, where=where)
    return Groups(raw, stored, firsts, ends)
