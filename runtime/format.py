"""Bundle format 1: constants, limits, index types, encode and decode. The single owner of field names.

The bytes of a bundle, in order (``docs/bundle-format.md`` is the spec)::

    header | index | variant table of each kernel | images section | groups section | groups

Only lengths are stored, never offsets: a part starts where the part before it ends, so overlaps and holes cannot be
expressed. The header pins the SHA-256 of the index, the index pins the sections, the groups section pins the groups.
This module turns types into raw bytes and back, but for the images and groups sections (`nojit.runtime.payload`) and
tables (`nojit.runtime.table_codec`); compression and files are `nojit.runtime.bundle`'s.
"""

from __future__ import annotations

import re
import struct
from itertools import islice
from operator import ge

from nojit.runtime.record import Record
from nojit.runtime.strict import (
    Json,
    canonical_json,
    count,
    fields,
    items,
    line,
    name,
    name_list,
    object_rows,
    parse_json,
    refuse,
    text,
)
from nojit.runtime.target import arch_number, parse_image_arch

__all__ = [
    "FORMAT_VERSION",
    "GLOBAL_SCRATCH",
    "GROUP_BYTES_MAX",
    "GROUP_RECORD_BYTES",
    "HEADER_BYTES",
    "IMAGE_BYTES_MAX",
    "INDEX_RAW_BYTES_MAX",
    "MAGIC",
    "PROFILE_SCRATCH",
    "SECTION_RAW_BYTES_MAX",
    "SUFFIX",
    "WINDOW_LOG_MAX",
    "BundleIndex",
    "Header",
    "KernelEntry",
    "Section",
    "TargetInfo",
    "decode_header",
    "decode_index",
    "encode_header",
    "encode_index",
]

MAGIC = b"nojit\r\n\x1a"
FORMAT_VERSION = 1
SUFFIX = ".nojit"

_HEADER = struct.Struct("<8sIIQQ32s")
HEADER_BYTES = _HEADER.size
# of the groups section, for each group (`nojit.runtime.payload`)
GROUP_RECORD_BYTES = 44

MIB = 1 << 20
INDEX_BYTES_MAX = 16 * MIB
INDEX_RAW_BYTES_MAX = 16 * MIB
SECTION_RAW_BYTES_MAX = 64 * MIB
GROUP_BYTES_MAX = 64 * MIB
IMAGE_BYTES_MAX = 64 * MIB
KERNELS_MAX = 65_536
VARIANTS_MAX = 1_000_000
# the largest zstd window a reader agrees to allocate
WINDOW_LOG_MAX = 27

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")

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
    table: Section


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
    images: Section
    image_count: int
    groups: Section
    group_count: int
    payload_bytes: int
    """Length of all groups together, which end the file."""

    def file_bytes(self, header: Header) -> int:
        """Return the length that the file must have."""
        tables = sum(entry.table.stored_bytes for entry in self.kernels)
        return (
            HEADER_BYTES
            + header.index_bytes
            + tables
            + self.images.stored_bytes
            + self.groups.stored_bytes
            + self.payload_bytes
        )


def encode_header(header: Header) -> bytes:
    """Lay out the first 64 bytes."""
    return _HEADER.pack(MAGIC, FORMAT_VERSION, 0, header.index_bytes, header.index_raw_bytes, header.index_sha256)


def decode_header(raw: bytes, where: str) -> Header:
    """Read the first 64 bytes.

    Raises:
        BundleFormatError: too short, not a bundle, another version, or lengths past the limits.
    """
    if len(raw) < HEADER_BYTES:
        raise refuse("truncated", f"expected a header of {HEADER_BYTES} bytes", got=len(raw), where=where)
    magic, version, reserved, index_bytes, index_raw_bytes, digest = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise refuse("magic", f"expected a nojit bundle, which starts with {MAGIC!r}", got=repr(magic), where=where)
    if version != FORMAT_VERSION:
        raise refuse("version", f"expected bundle format {FORMAT_VERSION}", got=version, where=where)
    if reserved:
        raise refuse("reserved", "expected zero in the reserved field", got=reserved, where=where)
    if index_bytes > INDEX_BYTES_MAX or index_raw_bytes > INDEX_RAW_BYTES_MAX:
        raise refuse(
            "size",
            f"expected an index of at most {INDEX_RAW_BYTES_MAX} bytes",
            got=f"{index_bytes} compressed, {index_raw_bytes} raw",
            where=where,
        )
    return Header(index_bytes, index_raw_bytes, digest)


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
            "kernels": [
                {"name": entry.name, "variants": entry.variants, "table": _section_json(entry.table)}
                for entry in index.kernels
            ],
            "images": _section_json(index.images),
            "image_count": index.image_count,
            "groups": _section_json(index.groups),
            "group_count": index.group_count,
            "payload_bytes": index.payload_bytes,
        }
    )


def decode_index(raw: bytes, where: str) -> BundleIndex:
    """Read the index and check every rule that it can break by itself, its one spelling apart.

    Raises:
        BundleFormatError: a broken rule, named by its ``rule`` attribute.
    """
    values = fields(parse_json(raw, where), _INDEX_FIELDS, where)
    bundle, version, target, toolchain, min_driver, inputs = values[:6]
    kernels, images, image_count, groups, group_count, payload_bytes = values[6:]
    entries = _decode_entries(kernels, f"{where} kernels")
    index = BundleIndex(
        name=name(bundle, f"{where} name"),
        version=line(version, f"{where} version"),
        target=_decode_target(target, f"{where} target"),
        toolchain=_decode_toolchain(toolchain, f"{where} toolchain"),
        min_driver=count(min_driver, 1_000_000, f"{where} min_driver"),
        inputs=_digest(inputs, f"{where} inputs"),
        kernels=entries,
        images=_decode_section(images, f"{where} images"),
        image_count=count(image_count, VARIANTS_MAX, f"{where} image_count"),
        groups=_decode_section(groups, f"{where} groups"),
        group_count=count(group_count, VARIANTS_MAX, f"{where} group_count"),
        payload_bytes=count(payload_bytes, 1 << 40, f"{where} payload_bytes"),
    )
    if (
        index.images.raw_bytes != 4 * index.image_count
        or index.groups.raw_bytes != GROUP_RECORD_BYTES * index.group_count
    ):
        raise refuse("size", "expected section lengths that follow from their counts", where=where)
    return index


_INDEX_FIELDS = (
    "name",
    "version",
    "target",
    "toolchain",
    "min_driver",
    "inputs",
    "kernels",
    "images",
    "image_count",
    "groups",
    "group_count",
    "payload_bytes",
)


def _section_json(section: Section) -> Json:
    return {"stored_bytes": section.stored_bytes, "raw_bytes": section.raw_bytes, "sha256": section.sha256}


def _decode_section(value: Json, where: str) -> Section:
    stored, raw_bytes, digest = fields(value, ("stored_bytes", "raw_bytes", "sha256"), where)
    return Section(
        count(stored, SECTION_RAW_BYTES_MAX, where),
        count(raw_bytes, SECTION_RAW_BYTES_MAX, where),
        _digest(digest, where),
    )


def _decode_entries(value: Json, where: str) -> tuple[KernelEntry, ...]:
    rows = object_rows(value, ("name", "variants", "table"), KERNELS_MAX, where)
    known = name_list([kernel for kernel, *_ in rows], where)
    if any(map(ge, known, islice(known, 1, None))):
        raise refuse("order", "expected kernels sorted by name, each once", where=where)
    return tuple(
        [
            KernelEntry(kernel, count(variants, VARIANTS_MAX, where), _decode_section(table, where))
            for kernel, (_, variants, table) in zip(known, rows, strict=True)
        ]
    )


def _decode_target(value: Json, where: str) -> TargetInfo:
    backend, arch, image_arch, warp_size = fields(value, ("backend", "arch", "image_arch", "warp_size"), where)
    target = TargetInfo(
        name(backend, where), name(arch, where), name(image_arch, where), count(warp_size, 64, f"{where} warp_size")
    )
    try:
        arch_number(target.arch)
        parse_image_arch(target.image_arch)
    except ValueError as error:
        raise refuse("target", str(error), where=where) from None
    return target


def _decode_toolchain(value: Json, where: str) -> tuple[tuple[str, str], ...]:
    tools = []
    for pair in items(value, 64, where):
        tool, version = items(pair, 2, where) if isinstance(pair, list) and len(pair) == 2 else (None, None)
        tools.append((line(tool, where), line(version, where)))
    if sorted(dict(tools)) != [tool for tool, _ in tools]:
        raise refuse("order", "expected tools sorted by name, each once", where=where)
    return tuple(tools)


def _digest(value: Json, where: str) -> str:
    checked = text(value, where)
    if not _SHA256.match(checked):
        raise refuse("digest", "expected 64 lower-case hex digits", got=repr(checked), where=where)
    return checked
