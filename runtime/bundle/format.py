"""Bundle format 2: the header and the index as records, and their encoding. The engine reads and checks them.

The bytes of a bundle, in order (``docs/bundle-format.md`` is the spec)::

    header | index | section of each kernel | attachments | groups of each kernel

Only lengths are stored, never offsets: a part starts where the part before it ends, so overlaps and holes cannot be
expressed. The header pins the SHA-256 of the index, the index pins the sections and the attachments, and a kernel's section
pins its groups.
This module turns records into raw bytes and back, but for sections: tables are `nojit.runtime.table.table_codec`'s, the placement
behind them is `nojit.runtime.bundle.payload`'s. Compression and files are `nojit.runtime.bundle.file`'s.
"""

from __future__ import annotations

import struct

from nojit.runtime import _core
from nojit.runtime.record import Record
from nojit.runtime.strict import Json, canonical_json

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
    "Header",
    "KernelEntry",
    "Section",
    "TargetInfo",
    "decode_index",
    "encode_header",
    "encode_index",
]

MAGIC = b"nojit\r\n\x1a"
FORMAT_VERSION = _core.FORMAT_VERSION
SUFFIX = ".nojit"

_HEADER = struct.Struct("<8sIIQQ32s")
HEADER_BYTES = _core.HEADER_BYTES

# the two pointers that Triton appends to every kernel's parameters
GLOBAL_SCRATCH = "$global_scratch"
PROFILE_SCRATCH = "$profile_scratch"


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
    """What the images of a bundle were built for."""

    backend: str
    """Triton's backend; ``cuda``."""
    arch: str
    """Triton's target, ``sm_90``."""
    image_arch: str
    """What ptxas made of it, ``sm_90a``."""
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
    """What a bundle holds, without the variants' details."""

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


RECORDS = (BundleIndex, TargetInfo, KernelEntry, Section, Attachment)
"""The classes of records that an index is made of, in the order in which the engine's binding takes them."""


def encode_header(header: Header) -> bytes:
    """Lay out the first 64 bytes."""
    return _HEADER.pack(MAGIC, FORMAT_VERSION, 0, header.index_bytes, header.index_raw_bytes, header.index_sha256)


def encode_index(index: BundleIndex) -> bytes:
    """Lay out the index as canonical JSON."""
    target = index.target
    return canonical_json(
        {
            "name": index.name,
            "version": index.version,
            "target": {
                "backend": target.backend,
                "arch": target.arch,
                "image_arch": target.image_arch,
                "warp_size": target.warp_size,
            },
            "toolchain": [[tool, version] for tool, version in index.toolchain],
            "min_driver": index.min_driver,
            "inputs": index.inputs,
            "kernels": [_entry_json(entry) for entry in index.kernels],
            "attachments": [
                {"name": attachment.name, "section": _section_json(attachment.section)}
                for attachment in index.attachments
            ],
        }
    )


def _entry_json(entry: KernelEntry) -> Json:
    return {
        "name": entry.name,
        "variants": entry.variants,
        "images": entry.images,
        "groups": entry.groups,
        "payload_bytes": entry.payload_bytes,
        "table": _section_json(entry.table),
    }


def _section_json(section: Section) -> Json:
    return {"stored_bytes": section.stored_bytes, "raw_bytes": section.raw_bytes, "sha256": section.sha256}


def decode_index(raw: bytes, where: str) -> BundleIndex:
    """Read the index, and check every rule that it can break by itself.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    return _core.read_index(raw, where, RECORDS)
