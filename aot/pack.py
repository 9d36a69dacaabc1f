"""Order, group, compress and write a bundle. The same content gives the same bytes, whoever packs it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import zstandard
from nojit.aot.likeness import group_alike
from nojit.aot.tables import KernelContent, build_table
from nojit.aot.variant import CompiledVariant, Variant
from nojit.runtime.errors import BundleFormatError, PackageError, worded
from nojit.runtime.format import (
    BundleIndex,
    Header,
    KernelEntry,
    Section,
    TargetInfo,
    decode_index,
    encode_header,
    encode_index,
)
from nojit.runtime.payload import (
    Group,
    check_section_size,
    decode_placement,
    encode_groups,
    encode_images,
    split_section,
)
from nojit.runtime.strict import load_json
from nojit.runtime.table_codec import check_table, decode_table, encode_table

__all__ = [
    "GROUP_RAW_BYTES",
    "PACKING",
    "BundleContent",
    "PackedBundle",
    "check_folder",
    "pack",
    "packer_version",
    "write_file",
]

# one image costs a read, a hash and a decompression of its group: a group this long stays well under a millisecond
GROUP_RAW_BYTES = 192 * 1024
# a few images show what look-alikes share. A first launch decompresses a whole group: small images, of kernels whose launch
# is worth no more than that, are two or three to a group, and what that costs in length is little beside large ones
_GROUP_IMAGES = 6
_SMALL_IMAGE_BYTES = 16 * 1024
_SMALL_GROUP_IMAGES = 2
_LEVEL = 22
# raise it when the same content starts to be laid out differently
PACKING = 8


def packer_version() -> str:
    """Name the tool that shapes the compressed bytes; its versions differ in what they write."""
    return f"{zstandard.__version__}"


@dataclass(frozen=True, slots=True)
class BundleContent:
    """Everything that a bundle is a function of, once compiled."""

    name: str
    version: str
    target: TargetInfo
    toolchain: tuple[tuple[str, str], ...]
    min_driver: int
    inputs: str
    kernels: tuple[KernelContent, ...]


@dataclass(frozen=True, slots=True)
class PackedBundle:
    """A bundle's bytes and how they came about."""

    data: bytes
    digest: str
    """SHA-256 of the index: the bundle's identity."""
    images: int
    """Distinct images of each kernel, after its variants with the same machine code were joined."""
    image_bytes: int
    """Their length before compression."""
    payload_bytes: int
    """Their length after it."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """One kernel's part of a bundle."""

    entry: KernelEntry
    raw: bytes
    """Its section."""
    section: bytes
    payload: tuple[bytes, ...]
    image_bytes: int


def pack(content: BundleContent) -> PackedBundle:
    """Lay out a bundle.

    Raises:
        PackageError: the content breaks a rule of the format, so that no reader would take the bundle.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as executor:
        kernels = _pack_kernels(sorted(content.kernels, key=lambda kernel: kernel.name), executor)
    raw_index = encode_index(
        BundleIndex(
            name=content.name,
            version=content.version,
            target=content.target,
            toolchain=content.toolchain,
            min_driver=content.min_driver,
            inputs=content.inputs,
            kernels=tuple(kernel.entry for kernel in kernels),
        )
    )
    _check_readable(content, raw_index, kernels)
    index = _compress(raw_index)
    header = Header(len(index), len(raw_index), hashlib.sha256(index).digest())
    payload = [group for kernel in kernels for group in kernel.payload]
    return PackedBundle(
        data=b"".join([encode_header(header), index, *[kernel.section for kernel in kernels], *payload]),
        digest=header.index_sha256.hex(),
        images=sum(kernel.entry.images for kernel in kernels),
        image_bytes=sum(kernel.image_bytes for kernel in kernels),
        payload_bytes=sum(map(len, payload)),
    )


def _groups_of(images: Sequence[bytes]) -> Iterator[list[bytes]]:
    mean_bytes = sum(map(len, images)) // max(len(images), 1)
    if mean_bytes <= _SMALL_IMAGE_BYTES:
        return group_alike(images, max(_SMALL_GROUP_IMAGES * mean_bytes, _SMALL_IMAGE_BYTES))
    return group_alike(images, min(_GROUP_IMAGES * mean_bytes, GROUP_RAW_BYTES))


def _pack_kernels(kernels: Sequence[KernelContent], executor: Executor) -> list[_Packed]:
    grouped = [list(_groups_of(_distinct_images(kernel))) for kernel in kernels]
    compressing = [[executor.submit(_compress, b"".join(group)) for group in groups] for groups in grouped]
    # a section pins its groups
    payloads = [tuple(group.result() for group in groups) for groups in compressing]
    raws = list(map(_raw_section, kernels, grouped, payloads))
    sections = list(executor.map(_compress, raws))
    return list(map(_packed, kernels, grouped, payloads, raws, sections))


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
    table = Section(len(section), len(raw), hashlib.sha256(section).hexdigest())
    entry = KernelEntry(kernel.name, len(kernel.variants), images, len(payload), payload_bytes, table)
    return _Packed(entry, raw, section, payload, sum(len(image) for members in grouped for image in members))


def _check_readable(content: BundleContent, raw_index: bytes, kernels: Sequence[_Packed]) -> None:
    """Read back what is about to be written: better no bundle than one that fails where it is used."""
    try:
        decode_index(raw_index, f"bundle {content.name}")
        load_json(raw_index, f"bundle {content.name}")
        for kernel in kernels:
            entry, where = kernel.entry, f"kernel {kernel.entry.name}"
            check_section_size(entry, where)
            table, placement = split_section(kernel.raw, entry, where)
            check_table(table, decode_table(table, entry.name, entry.variants, entry.images, where), where)
            decode_placement(placement, entry, where)
    except BundleFormatError as error:
        raise PackageError("expected content that a bundle can carry", got=str(error)) from error


def write_file(path: Path, data: bytes) -> None:
    """Put `data` in place of `path` in one step: written beside it, synced, renamed.

    Raises:
        PackageError: it cannot be written; what stood at `path` stands there still, and nothing is left beside it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            check_folder(path.parent)
        # the error's own words name the temporary file
        got = worded(error)
        raise PackageError("expected to write a file", got=got, where=str(path)) from None


def check_folder(folder: Path) -> None:
    """Refuse a folder that files cannot be put into, ahead of the work that makes them. Leaves nothing there.

    Raises:
        PackageError: it, or what it would be made in, is no folder, or may not be written to.
    """
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    got = "a file" if there.is_file() else "something else" if not there.is_dir() else ""
    if not got and not (os.access(there, os.W_OK | os.X_OK) and _takes_entries(there)):
        got = "one that cannot be written to"
    if got:
        at = "" if there == folder else f" at {there}"
        raise PackageError("expected a folder to write to", got=f"{got}{at}", where=str(folder))


def _takes_entries(folder: Path) -> bool:
    """Try it: permissions say nothing to root, nor of file systems like that of /proc."""
    try:
        Path(tempfile.mkdtemp(prefix=".", dir=folder)).rmdir()
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compress(raw: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, source_size=len(raw), write_content_size=True, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(raw)


def _distinct_images(kernel: KernelContent) -> list[bytes]:
    """List the distinct images of a kernel by config, then by what differs least."""
    return list(dict.fromkeys(compiled.image for _, compiled in sorted(kernel.variants, key=_origin)))


def _origin(pair: tuple[Variant, CompiledVariant]) -> tuple[object, ...]:
    variant, _ = pair
    return (
        repr(variant.config.constexprs),
        repr(variant.options),
        repr([value for value in variant.constexprs if value not in variant.derived]),
        variant.signature,
        repr(variant.derived),
        variant.hints,
    )
