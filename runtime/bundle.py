"""Open, verify and read one bundle file. No driver, no kernel launches: bytes and types only."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Self, TypeAlias

from nojit.runtime.errors import BundleFormatError, BundleIntegrityError, KernelNotFoundError, did_you_mean
from nojit.runtime.format import (
    HEADER_BYTES,
    BundleIndex,
    KernelEntry,
    Section,
    decode_header,
    decode_index,
)
from nojit.runtime.payload import Group, Groups, decode_groups
from nojit.runtime.strict import load_json, refuse
from nojit.runtime.table import KernelTable
from nojit.runtime.table_codec import check_table, decode_table
from nojit.runtime.zstd import decompress

__all__ = ["Accept", "BundleFile", "ImagePlace"]

Accept: TypeAlias = Callable[[str, str], None]
"""Raises if a bundle is not to be used, by its path and its digest."""

# the first that a process makes is slow to make
_HASHER = hashlib.sha256()


class ImagePlace:
    """Where one image lies: its group, and its bytes within the decompressed group."""

    __slots__ = ("end", "group", "start")

    def __init__(self, group: int, start: int, end: int) -> None:
        self.group = group
        self.start = start
        self.end = end


class BundleFile:
    """One opened bundle: its index now, tables and images when asked for.

    Opening reads and checks the header and the index only. Every other part is hashed before it is decompressed, and
    decompressed before it is parsed. The file stays open, so a rebuild that renames a new file over it does no harm.
    Safe to use from several threads.

    Attributes:
        path: the file, as it was given.

    Args:
        path: the bundle.
        accept: told of the path and the digest before anything of the index is parsed; raises to refuse the bundle.

    Raises:
        FileNotFoundError: there is no such file.
        BundleError: it is not a whole, unaltered bundle of a known format, or `accept` refuses it.
    """

    _fd = -1

    def __init__(self, path: str | os.PathLike[str], accept: Accept | None = None) -> None:
        self.path = os.fsdecode(path)
        # a finalizer that reads the bundle may run while this thread holds it
        self._lock = threading.RLock()
        # a pipe must not make the caller wait for its other end
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._tables: dict[str, KernelTable] = {}
        self._groups: Groups | None = None
        self._last_group: tuple[int, bytes] = (-1, b"")
        try:
            self._open(accept)
        except BaseException:
            self.close()
            raise

    def _open(self, accept: Accept | None) -> None:
        where = self.path
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise refuse("magic", "expected a regular file", got=stat.filemode(status.st_mode), where=where)
        size = status.st_size
        header = decode_header(self._read(0, min(size, HEADER_BYTES), where), where)
        packed = self._read(HEADER_BYTES, header.index_bytes, where, size)
        digest = _sha256(packed)
        if digest != header.index_sha256:
            raise BundleIntegrityError(
                f"expected an index with SHA-256 {header.index_sha256.hex()}", got=digest.hex(), where=where
            )
        self.digest = digest.hex()
        if accept is not None:
            accept(where, self.digest)
        raw = decompress(packed, header.index_raw_bytes, where)
        self.index: BundleIndex = decode_index(raw, f"{where} index")
        expected = self.index.file_bytes(header)
        if size != expected:
            raise BundleIntegrityError(f"expected a file of {expected} bytes", got=str(size), where=where)
        self._entries = {entry.name: entry for entry in self.index.kernels}
        self._header = header
        self._start = HEADER_BYTES + header.index_bytes

    @property
    def id(self) -> str:
        """The first twelve digits of the digest, which tell bundles apart in logs and errors."""
        return self.digest[:12]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, sorted."""
        return tuple(self._entries)

    def close(self) -> None:
        """Close the file; tables and images read before stay usable."""
        # only the caller that takes the number out closes it
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"BundleFile({self.path!r}, id={self.id!r})"

    def table(self, kernel: str) -> KernelTable:
        """Read the variant table of one kernel; a second call returns the same object.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
            BundleError: the section is not what the index pins, or breaks a rule.
        """
        with self._lock:
            table = self._tables.get(kernel)
            if table is None:
                table = self._tables[kernel] = self._read_table(self.entry(kernel))
        return table

    def entry(self, kernel: str) -> KernelEntry:
        """Return what the index says of one kernel.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
        """
        entry = self._entries.get(kernel)
        if entry is None:
            near = did_you_mean(kernel, self.kernels)
            raise KernelNotFoundError(
                f"expected one of {len(self._entries)} kernels", got=f"{kernel!r}{near}", where=self.path
            )
        return entry

    def _index_bytes(self) -> bytes:
        where = f"{self.path} index"
        packed = self._read(HEADER_BYTES, self._header.index_bytes, where)
        _check_digest(packed, self._header.index_sha256, where)
        return decompress(packed, self._header.index_raw_bytes, where)

    def _read_table(self, entry: KernelEntry) -> KernelTable:
        return decode_table(
            self._table_bytes(entry), entry.name, entry.variants, self.index.image_count, self._where(entry)
        )

    def _table_bytes(self, entry: KernelEntry) -> bytes:
        start = self._start
        for other in self.index.kernels:
            if other is entry:
                break
            start += other.table.stored_bytes
        return self._section(start, entry.table, self._where(entry))

    def _where(self, entry: KernelEntry) -> str:
        return f"{self.path} kernel {entry.name}"

    def image(self, number: int) -> bytes:
        """Read one image: a whole cubin.

        Args:
            number: as a table's ``image`` column gives it.

        Raises:
            IndexError: the bundle has no such image.
            BundleError: its group is not what the groups section pins.
        """
        place = self.place(number)
        return self._group(place.group)[place.start : place.end]

    def place(self, number: int) -> ImagePlace:
        """Say where an image lies."""
        return ImagePlace(*self.placement().place(number))

    def images(self) -> Iterator[bytes]:
        """Read every image in order, each group once."""
        for number in range(self.index.image_count):
            yield self.image(number)

    def groups(self) -> tuple[Group, ...]:
        """Return the groups in file order."""
        groups = self.placement()
        return tuple([groups.group(number) for number in range(len(groups))])

    def verify(self) -> None:
        """Check everything that the file holds, down to the last byte.

        The cross-check of each image against its index entry is `nojit.runtime.cubin`'s.

        Raises:
            BundleError: the first part that is wrong.
        """
        load_json(self._index_bytes(), f"{self.path} index")
        for entry in self.index.kernels:
            check_table(self._table_bytes(entry), self.table(entry.name), self._where(entry))
        used = {image for entry in self.index.kernels for image in self.table(entry.name).columns["image"]}
        if len(used) != self.index.image_count:
            raise refuse(
                "images",
                f"expected every one of {self.index.image_count} images in use",
                got=len(used),
                where=self.path,
            )
        for number in range(self.index.group_count):
            self._group(number)

    def placement(self) -> Groups:
        """Read where every image lies; a second call returns the same object.

        Raises:
            BundleError: a section is not what the index pins, or breaks a rule.
        """
        with self._lock:
            if self._groups is None:
                self._groups = self._read_groups()
            return self._groups

    def _read_groups(self) -> Groups:
        where, index = self.path, self.index
        start = self._start + sum([entry.table.stored_bytes for entry in index.kernels])
        images = self._section(start, index.images, f"{where} images")
        start += index.images.stored_bytes
        groups = decode_groups(images, self._section(start, index.groups, f"{where} groups"), index, where)
        self._payload_start = start + index.groups.stored_bytes
        return groups

    def _group(self, number: int) -> bytes:
        held, raw = self._last_group
        if held == number:
            return raw
        groups = self.placement()
        group = groups.group(number)
        where = f"{self.path} group {number}"
        packed = self._read(self._payload_start + groups.stored_starts[number], group.stored_bytes, where)
        _check_digest(packed, group.sha256, where)
        raw = decompress(packed, group.raw_bytes, where)
        # neighbours are often asked for one after the other; one group is an eighth of a megabyte
        self._last_group = (number, raw)
        return raw

    def _section(self, start: int, section: Section, where: str) -> bytes:
        packed = self._read(start, section.stored_bytes, where)
        _check_digest(packed, bytes.fromhex(section.sha256), where)
        return decompress(packed, section.raw_bytes, where)

    def _read(self, start: int, length: int, where: str, size: int | None = None) -> bytes:
        if self._fd < 0:
            raise ValueError(f"bundle is closed - at {where}")
        if size is not None and start + length > size:
            raise BundleFormatError(
                f"expected at least {start + length} bytes", got=str(size), where=where, rule="truncated"
            )
        data = os.pread(self._fd, length, start)
        if len(data) != length:
            raise BundleIntegrityError(f"expected {length} bytes at {start}", got=str(len(data)), where=where)
        return data


def _sha256(content: bytes) -> bytes:
    hasher = _HASHER.copy()
    hasher.update(content)
    return hasher.digest()


def _check_digest(packed: bytes, expected: bytes, where: str) -> None:
    digest = _sha256(packed)
    if digest != expected:
        raise BundleIntegrityError(f"expected SHA-256 {expected.hex()}", got=digest.hex(), where=where)
