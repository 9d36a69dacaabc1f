"""Where the images of a kernel lie: how long each is, and which are compressed together. It ends the kernel's section."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from nojit.runtime import _core
from nojit.runtime._core import (
    FREE_BYTES,
    GROUP_BYTES_MAX,
    IMAGE_BYTES_MAX,
    PAYLOAD_RATIO_MAX,
    SECTION_RATIO_MAX,
)
from nojit.runtime.format import GROUP_RECORD_BYTES, KernelEntry
from nojit.runtime.record import Record
from nojit.runtime.strict import refuse

__all__ = [
    "Group",
    "Place",
    "Placement",
    "check_section_size",
    "decode_placement",
    "encode_groups",
    "encode_images",
    "split_section",
    "u32_array",
]

_GROUP = struct.Struct("<III32s")
_LENGTH_BYTES = 4


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


class Placement(Record):
    """The images and groups of one kernel, checked."""

    raw: bytes
    """As it was read: the length of each image, then each group's record."""
    images: int
    """How many images there are."""

    __slots__ = ("_asked", "_starts")

    def groups(self) -> tuple[Group, ...]:
        """Return the groups in file order."""
        return tuple([Group(*fields) for fields in _GROUP.iter_unpack(self.raw[_LENGTH_BYTES * self.images :])])

    def find(self, image: int) -> tuple[int, int, int, int, bytes, int, int]:
        """Return the fields of an image's `Place`.

        Raises:
            IndexError: there is no such image.
        """
        if not hasattr(self, "_asked"):
            # of most kernels one image is asked for: to go through the groups for it takes less than to note where all start
            object.__setattr__(self, "_asked", True)
            return _core.find_image(self.raw, self.images, image)
        if not 0 <= image < self.images:
            raise IndexError(f"expected an image below {self.images}, got {image}")
        starts: _Starts | None = getattr(self, "_starts", None)
        if starts is None:
            starts = _starts_of(self)
            object.__setattr__(self, "_starts", starts)
        number = bisect_right(starts.firsts, image) - 1
        _, stored_bytes, raw_bytes, sha256 = _GROUP.unpack_from(
            self.raw, _LENGTH_BYTES * self.images + _GROUP.size * number
        )
        before = starts.images[starts.firsts[number]]
        start, end = starts.images[image] - before, starts.images[image + 1] - before
        return number, starts.stored[number], stored_bytes, raw_bytes, sha256, start, end


class _Starts(Record):
    """Where images and groups start, to find many."""

    images: array[int]
    """Of each image, how many bytes those before it have, and one more for all."""
    firsts: array[int]
    """Of each group the number of its first image."""
    stored: array[int]
    """Of each group, how many bytes those before it have as stored."""


def _starts_of(placement: Placement) -> _Starts:
    lengths = u32_array(placement.raw[: _LENGTH_BYTES * placement.images])
    words = u32_array(placement.raw[_LENGTH_BYTES * placement.images :])
    step = _GROUP.size // _LENGTH_BYTES
    return _Starts(
        array("Q", accumulate(lengths, initial=0)),
        array("Q", [*accumulate(words[::step], initial=0)][:-1]),
        array("Q", [*accumulate(words[1::step], initial=0)][:-1]),
    )


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


def check_section_size(entry: KernelEntry, where: str) -> None:
    """Check that a kernel's section is worth to decompress: a table compresses well, but not as well as one that repeats itself.

    Raises:
        BundleFormatError: it is not.
    """
    most = FREE_BYTES + SECTION_RATIO_MAX * entry.table.stored_bytes
    if entry.table.raw_bytes > most:
        what = f"expected a section that decompresses to at most {most} bytes, {SECTION_RATIO_MAX} times what is stored"
        raise refuse("size", what, got=entry.table.raw_bytes, where=where)


def split_section(raw: bytes, entry: KernelEntry, where: str) -> tuple[bytes, bytes]:
    """Part a kernel's section: its variant table, and where its images lie.

    Raises:
        BundleFormatError: it is too short for the images and groups that the index promises.
    """
    start = len(raw) - _LENGTH_BYTES * entry.images - GROUP_RECORD_BYTES * entry.groups
    if start < 0:
        what = f"expected a section with a table, {entry.images} images and {entry.groups} groups"
        raise refuse("truncated", what, got=f"{len(raw)} bytes", where=where)
    return raw[:start], raw[start:]


def decode_placement(raw: bytes, entry: KernelEntry, where: str) -> Placement:
    """Read lengths and records, and check them against one another and the index.

    Args:
        raw: the second part of a section, as `split_section` gives it.
        entry: the kernel.
        where: the bundle and kernel, for errors.

    Raises:
        BundleFormatError: an image that is empty or past the limit, or groups that do not hold exactly the images there
            are or do not fill the kernel's part of the payload.
    """
    if not _core.check_groups(raw, entry.images, entry.payload_bytes):
        _refuse_groups(raw, entry, where)
        raise refuse("groups", "expected whole images and groups", where=where)
    return Placement(raw, entry.images)


def _refuse_groups(raw: bytes, entry: KernelEntry, where: str) -> None:
    """Go through images and groups one by one, to name what is wrong.

    Raises:
        BundleFormatError: what is wrong.
    """
    words = u32_array(raw)
    sizes, words = words[: entry.images], words[entry.images :]
    if sizes and not 0 < min(sizes) <= max(sizes) <= IMAGE_BYTES_MAX:
        what, got = f"expected images of 1 to {IMAGE_BYTES_MAX} bytes", f"{min(sizes)} to {max(sizes)}"
        raise refuse("size", what, got=got, where=where)
    counts, stored, raws = words[:: _GROUP.size // 4], words[1 :: _GROUP.size // 4], words[2 :: _GROUP.size // 4]
    if sum(counts) != len(sizes) or 0 in counts:
        what = f"expected groups of at least one image each, {len(sizes)} in all"
        raise refuse("groups", what, got=sum(counts), where=where)
    ends = [0, *accumulate(sizes)]
    for number, (first, count, said, packed) in enumerate(
        zip(accumulate(counts, initial=0), counts, raws, stored, strict=False)
    ):
        holds = ends[first + count] - ends[first]
        if said != holds or max(holds, packed) > GROUP_BYTES_MAX:
            what = f"expected a group of {holds} raw bytes, and at most {GROUP_BYTES_MAX} bytes raw and stored"
            raise refuse("groups", what, got=f"{said} raw, {packed} stored", where=f"{where} group {number}")
    if sum(stored) != entry.payload_bytes:
        what = f"expected groups of {entry.payload_bytes} bytes in all"
        raise refuse("groups", what, got=sum(stored), where=where)
    if sum(raws) > (most := FREE_BYTES + PAYLOAD_RATIO_MAX * sum(stored)):
        what = f"expected groups that decompress to at most {most} bytes, {PAYLOAD_RATIO_MAX} times what is stored"
        raise refuse("size", what, got=sum(raws), where=where)
