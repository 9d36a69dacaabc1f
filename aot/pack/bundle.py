"""Packer of bundles: it orders, groups and compresses images. Equal content gives equal bytes on every machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from nojit.aot.pack.compression import compress, compress_attachment, compress_group
from nojit.aot.pack.distinct_images import distinct_images
from nojit.aot.pack.grouping import group_alike
from nojit.aot.pack.index import encode_header, encode_index
from nojit.aot.pack.sections import encode_groups, encode_images, encode_table
from nojit.aot.pack.tables import KernelContent, build_table
from nojit.runtime import _core
from nojit.runtime.bundle.format import (
    Attachment,
    BundleIndex,
    Group,
    Header,
    KernelEntry,
    Section,
    TargetInfo,
    decode_index,
)
from nojit.runtime.errors import BundleFormatError, PackageError
from nojit.runtime.table.reading import check_table, decode_table

__all__ = [
    "GROUP_RAW_BYTES",
    "PACKING",
    "BundleContent",
    "PackedBundle",
    "pack",
]

# to load one image, the runtime reads, hashes and decompresses its whole group, and pays a page fault for each of its pages. A first
# launch waits for all that, so an image of more than half of this has a group of its own
GROUP_RAW_BYTES = 64 * 1024
# groups of small images hold only two or three: their kernels are fast, and the larger file matters little next to large images
_SMALL_IMAGE_BYTES = 16 * 1024
_SMALL_GROUP_IMAGES = 2
# raise it when the layout of the same content changes
PACKING = 12


@dataclass(frozen=True, slots=True)
class BundleContent:
    """Everything that determines the bytes of a bundle, after compilation."""

    name: str
    version: str
    target: TargetInfo
    toolchain: tuple[tuple[str, str], ...]
    min_driver: int
    inputs: str
    kernels: tuple[KernelContent, ...]
    attachments: tuple[tuple[str, bytes], ...] = ()
    """Name and bytes of each attachment, in any order."""


@dataclass(frozen=True, slots=True)
class PackedBundle:
    """The bytes of a bundle, with their sizes."""

    data: bytes
    digest: str
    """SHA-256 of the index, which identifies the bundle."""
    images: int
    """Number of distinct images, counted for each kernel and summed."""
    image_bytes: int
    """Size of these images before compression, in bytes."""
    payload_bytes: int
    """Size of these images after compression, in bytes."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """The packed part of a bundle that belongs to one kernel."""

    entry: KernelEntry
    raw: bytes
    """The bytes of the kernel's section before compression."""
    section: bytes
    payload: tuple[bytes, ...]
    image_bytes: int


def pack(content: BundleContent) -> PackedBundle:
    """Return the bytes of a bundle with the given content.

    Raises:
        PackageError: the content breaks a rule of the format, so that readers would refuse the bundle.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as executor:
        kernels = _pack_kernels(sorted(content.kernels, key=lambda kernel: kernel.name), executor)
        attachments = _pack_attachments(sorted(content.attachments), executor)
    raw_index = encode_index(
        BundleIndex(
            name=content.name,
            version=content.version,
            target=content.target,
            toolchain=content.toolchain,
            min_driver=content.min_driver,
            inputs=content.inputs,
            kernels=tuple(kernel.entry for kernel in kernels),
            attachments=tuple(entry for entry, _ in attachments),
        )
    )
    _check_readable(content, raw_index, kernels)
    index = compress(raw_index)
    header = Header(len(index), len(raw_index), hashlib.sha256(index).digest())
    sections = [*[kernel.section for kernel in kernels], *[stored for _, stored in attachments]]
    payload = [group for kernel in kernels for group in kernel.payload]
    return PackedBundle(
        data=b"".join([encode_header(header), index, *sections, *payload]),
        digest=header.index_sha256.hex(),
        images=sum(kernel.entry.images for kernel in kernels),
        image_bytes=sum(kernel.image_bytes for kernel in kernels),
        payload_bytes=sum(map(len, payload)),
    )


def _groups_of(images: Sequence[bytes]) -> Iterator[list[bytes]]:
    mean_bytes = sum(map(len, images)) // max(len(images), 1)
    if mean_bytes <= _SMALL_IMAGE_BYTES:
        return group_alike(images, max(_SMALL_GROUP_IMAGES * mean_bytes, _SMALL_IMAGE_BYTES))
    return group_alike(images, GROUP_RAW_BYTES)


def _pack_kernels(kernels: Sequence[KernelContent], executor: Executor) -> list[_Packed]:
    grouped = [list(_groups_of(distinct_images(kernel))) for kernel in kernels]
    compressing = [[executor.submit(compress_group, b"".join(group)) for group in groups] for groups in grouped]
    # a section holds the digests of its groups, so groups are compressed first
    payloads = [tuple(group.result() for group in groups) for groups in compressing]
    raws = list(map(_raw_section, kernels, grouped, payloads))
    sections = list(executor.map(compress, raws))
    return list(map(_packed, kernels, grouped, payloads, raws, sections))


def _pack_attachments(attachments: Sequence[tuple[str, bytes]], executor: Executor) -> list[tuple[Attachment, bytes]]:
    """Compress attachments; return the entry in the index and the stored bytes of each."""
    packed = executor.map(compress_attachment, [raw for _, raw in attachments])
    return [
        (Attachment(name, _pin(raw, stored)), stored) for (name, raw), stored in zip(attachments, packed, strict=True)
    ]


def _pin(raw: bytes, stored: bytes) -> Section:
    return Section(len(stored), len(raw), hashlib.sha256(stored).hexdigest())


def _raw_section(kernel: KernelContent, grouped: Sequence[Sequence[bytes]], payload: Sequence[bytes]) -> bytes:
    images = [image for members in grouped for image in members]
    groups = [
        Group(len(members), len(packed), sum(map(len, members)), hashlib.sha256(packed).digest())
        for members, packed in zip(grouped, payload, strict=True)
    ]
    table = build_table(kernel, {image: number for number, image in enumerate(images)})
    return encode_table(table) + encode_images(map(len, images)) + encode_groups(groups)


def _packed(
    kernel: KernelContent, grouped: Sequence[Sequence[bytes]], payload: tuple[bytes, ...], raw: bytes, section: bytes
) -> _Packed:
    images, payload_bytes = sum(map(len, grouped)), sum(map(len, payload))
    entry = KernelEntry(kernel.name, len(kernel.variants), images, len(payload), payload_bytes, _pin(raw, section))
    return _Packed(entry, raw, section, payload, sum(len(image) for members in grouped for image in members))


def _check_readable(content: BundleContent, raw_index: bytes, kernels: Sequence[_Packed]) -> None:
    """Decode the index and sections again, so that an unreadable bundle makes the build fail."""
    try:
        decode_index(raw_index, f"bundle {content.name}")
        for kernel in kernels:
            entry, where = kernel.entry, f"kernel {kernel.entry.name}"
            _core.check_section(entry.table.stored_bytes, entry.table.raw_bytes, where)
            table, placement = _core.split_section(kernel.raw, entry.images, entry.groups, where)
            check_table(decode_table(table, entry.name, entry.variants, entry.images, where), where)
            _core.Placement(placement, entry.images, entry.payload_bytes, where)
    except BundleFormatError as error:
        raise PackageError("expected content that the bundle format can hold", got=error.finding()) from error
