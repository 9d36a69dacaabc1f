"""Bundle format 2: the header, the index and the places of images as records. The engine reads and checks them.

The bytes of a bundle, in order (``docs/bundle-format.md`` is the spec)::

    header | index | section of each kernel | attachments | groups of each kernel

Only lengths are stored, never offsets: a part starts where the part before it ends, so overlaps and holes cannot be
expressed. The header pins the SHA-256 of the index, the index pins the sections and the attachments, and a kernel's section
pins its groups.
`nojit.aot.pack` writes bundles.
"""

from __future__ import annotations

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record

__all__ = [
    "FORMAT_VERSION",
    "GLOBAL_SCRATCH",
    "HEADER_BYTES",
    "MAGIC",
    "PROFILE_SCRATCH",
    "RECORDS",
    "SUFFIX",
    "Attachment",
    "BundleIndex",
    "Group",
    "Header",
    "KernelEntry",
    "Place",
    "Section",
    "TargetInfo",
    "decode_index",
]

MAGIC = _core.MAGIC
FORMAT_VERSION = _core.FORMAT_VERSION
SUFFIX = _core.SUFFIX

HEADER_BYTES = _core.HEADER_BYTES

# the two pointers that Triton appends to every kernel's parameters
GLOBAL_SCRATCH = _core.GLOBAL_SCRATCH
PROFILE_SCRATCH = _core.PROFILE_SCRATCH


class Header(Record):
    """The first 64 bytes."""

    index_bytes: int
    """Length of the compressed index, which follows the header."""
    index_raw_bytes: int
    """Length of the index once decompressed."""
    index_sha256: bytes
    """SHA-256 of the compressed index: the digest of the whole bundle, since the index pins the rest."""


class Section(Record):
    """A compressed part of the file whose place follows from the parts before it."""

    stored_bytes: int
    """Compressed length."""
    raw_bytes: int
    """Length once decompressed."""
    sha256: str
    """SHA-256 of the compressed bytes, in hex."""


class TargetInfo(Record):
    """The target of a bundle's images."""

    backend: str
    """Triton's backend; ``cuda``."""
    arch: str
    """Triton's target, ``sm_90``."""
    image_arch: str
    """The architecture of its images, ``sm_90a``."""
    warp_size: int
    """Threads of a warp."""


class KernelEntry(Record):
    """One kernel, as the index lists it."""

    name: str
    variants: int
    """How many rows its variant table has."""
    images: int
    groups: int
    payload_bytes: int
    """Length of its groups together, as stored."""
    table: Section
    """Its variant table, and where its images lie."""


class Attachment(Record):
    """Bytes that the build put into the bundle under a name."""

    name: str
    section: Section


class BundleIndex(Record):
    """The index of a bundle: its contents, without the variants' details."""

    name: str
    version: str
    target: TargetInfo
    toolchain: tuple[tuple[str, str], ...]
    """Name and version of each tool that shaped the bytes, sorted by name."""
    min_driver: int
    """The least CUDA version, as ``cuDriverGetVersion`` says it (13000 for 13.0), that loads every image."""
    inputs: str
    """SHA-256 over everything that the bundle is a function of, in hex: equal inputs, equal bundle."""
    kernels: tuple[KernelEntry, ...]
    """Sorted by name, each name once."""
    attachments: tuple[Attachment, ...] = ()
    """Sorted by name, each name once."""


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


RECORDS = (BundleIndex, TargetInfo, KernelEntry, Section, Attachment)
"""The classes of records that an index is made of, in the order in which the engine's binding takes them."""


def decode_index(raw: bytes, where: str) -> BundleIndex:
    """Read the index, and check every rule of it that needs no other part of the file.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    return _core.read_index(raw, where, RECORDS)
