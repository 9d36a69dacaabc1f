"""Open, verify and read one bundle file. No driver, no kernel launches: bytes and types only."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Self, TypeAlias

from nojit.runtime import _core
from nojit.runtime.errors import BundleFormatError, BundleIntegrityError, KernelNotFoundError, counted, nearest_or_few
from nojit.runtime.format import (
    HEADER_BYTES,
    BundleIndex,
    KernelEntry,
    decode_header,
    decode_index,
)
from nojit.runtime.payload import Group, Place
from nojit.runtime.record import Record
from nojit.runtime.strict import refuse
from nojit.runtime.table import KernelTable
from nojit.runtime.table_codec import check_table, decode_table
from nojit.runtime.zstd import decompress

if TYPE_CHECKING:
    from nojit.runtime.versions import Release

__all__ = ["Accept", "Allow", "BundleFile", "Look"]

Allow: TypeAlias = Callable[[BundleIndex, Sequence[str]], None]
"""Raises if a bundle is not to be used, by what it calls itself and by the names that it may be used under; no names are any."""
Accept: TypeAlias = Callable[[str, str], Allow]
"""Raises if a bundle is not to be used, by its path and its digest, and returns what judges its index."""

Look: TypeAlias = Callable[[KernelTable, Callable[[int], bytes]], None]
"""Checks a kernel by its table and by its images, which it reads by their number."""

_CHUNK_BYTES = 1 << 20

# the first that a process makes is slow to make
_HASHER = hashlib.sha256()


class _KernelPart(Record):
    """What was read of one kernel."""

    table: KernelTable
    placement: _core.Placement
    payload_start: int
    """Where its groups start in the file."""


class BundleFile:
    """One opened bundle: its index now, tables and images when asked for.

    Opening reads and checks the header and the index only. Of a kernel, its section is read first: its table, and where its
    images lie. Every part is hashed before it is decompressed, and decompressed before it is parsed. The file stays open, so
    a rebuild that renames a new file over it does no harm. Safe to use from several threads.

    Attributes:
        path: the file, as it was given.
        digest: SHA-256 of the index, in hex.
        index: what the bundle says of itself.
        size_bytes: length of the file.

    Args:
        path: the bundle.
        accept: told of the path and the digest before anything of the index is parsed, and of the index once it is; raises to
            refuse the bundle.

    Raises:
        FileNotFoundError: there is no such file.
        BundleError: it is not a whole, unaltered bundle of a known format, or `accept` refuses it.
    """

    _fd = -1
    _allow: Allow | None = None

    def __init__(self, path: str | os.PathLike[str], accept: Accept | None = None) -> None:
        self.path = os.fsdecode(path)
        # a finalizer that reads the bundle may run while this thread holds it
        self._lock = threading.RLock()
        # a pipe must not make the caller wait for its other end
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._parts: dict[str, _KernelPart] = {}
        self._last_group: tuple[str, int, bytes] = ("", -1, b"")
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
        _check_digest(packed, header.index_sha256, f"{where} index")
        self.digest = header.index_sha256.hex()
        allow = None if accept is None else accept(where, self.digest)
        raw = decompress(packed, header.index_raw_bytes, where)
        self.index: BundleIndex = decode_index(raw, f"{where} index")
        if allow is not None:
            self._allow_by(allow)
        self._header = header
        self._place_kernels(size)

    def _allow_by(self, allow: Allow) -> None:
        allow(self.index, ())
        self._allow = allow

    def authorize(self, accept: Accept | None) -> None:
        """Refuse a bundle that was opened without a policy, as opening it under this one would have.

        The digest that is judged is that of the index which was read, and pins all that is read later. So nothing is opened a
        second time between a look-up and the use of what it found.

        Raises:
            BundleError: `accept` refuses it.
        """
        if accept is not None and self._allow is None:
            self._allow_by(accept(self.path, self.digest))

    def expect(self, names: Sequence[str]) -> None:
        """Require that the bundle may be used under one of some names. Without a policy it may be under any.

        Raises:
            BundleError: the policy that it was opened under refuses that.
        """
        if self._allow is not None:
            self._allow(self.index, names)

    def duplicate(self) -> BundleFile:
        """Return another handle on the same open file, to be closed by itself."""
        other = BundleFile.__new__(BundleFile)
        with self._lock:
            facts = dict(vars(self))
            facts["_fd"] = os.dup(self._open_fd(self.path))
        other.__dict__.update(facts, _lock=threading.RLock(), _parts=dict(self._parts))
        return other

    def stream(self) -> Iterator[bytes]:
        """Read the whole file, first byte to last. Nothing of it is checked but its length.

        Raises:
            BundleIntegrityError: it is shorter than it was.
        """
        for start in range(0, self.size_bytes, _CHUNK_BYTES):
            yield self._read(start, min(_CHUNK_BYTES, self.size_bytes - start), self.path)

    def _place_kernels(self, size: int) -> None:
        kernels, start = self.index.kernels, HEADER_BYTES + self._header.index_bytes
        # in lists: what the garbage collector counts is few before a first launch
        self._section_starts = [*accumulate([entry.table.stored_bytes for entry in kernels], initial=start)]
        start = self._section_starts[-1]
        self._payload_starts = [*accumulate([entry.payload_bytes for entry in kernels], initial=start)]
        expected = self._payload_starts[-1]
        if size != expected:
            raise BundleIntegrityError(f"expected a file of {expected} bytes", got=str(size), where=self.path)
        self.size_bytes = size
        self._numbers = {entry.name: number for number, entry in enumerate(kernels)}

    @property
    def id(self) -> str:
        """The first twelve digits of the digest, which tell bundles apart in logs and errors."""
        return self.digest[:12]

    @property
    def release(self) -> Release:
        """What tells its versions apart."""
        from nojit.runtime.versions import Release  # noqa: PLC0415 - seldom asked for

        return Release(self.path, self.index.name, self.index.version, self.index.target.image_arch)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, sorted."""
        return tuple(self._numbers)

    def close(self) -> None:
        """Close the file; tables and images read before stay usable."""
        # only the caller that takes the number out closes it
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # at the end of a process its modules may be gone before this is
        if self._fd >= 0:
            close(self._fd)

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
        return self._part(kernel).table

    def entry(self, kernel: str) -> KernelEntry:
        """Return what the index says of one kernel.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
        """
        return self.index.kernels[self._number(kernel)]

    def _number(self, kernel: str) -> int:
        number = self._numbers.get(kernel)
        if number is None:
            near = nearest_or_few(kernel, self.kernels)
            raise KernelNotFoundError(
                f"expected one of {counted(len(self._numbers), 'kernel')}", got=f"{kernel!r}{near}", where=self.path
            )
        return number

    def _index_bytes(self) -> bytes:
        where = f"{self.path} index"
        packed = self._read(HEADER_BYTES, self._header.index_bytes, where)
        _check_digest(packed, self._header.index_sha256, where)
        return decompress(packed, self._header.index_raw_bytes, where)

    def _part(self, kernel: str) -> _KernelPart:
        with self._lock:
            part = self._parts.get(kernel)
            if part is None:
                part = self._parts[kernel] = self._read_part(self._number(kernel))
        return part

    def _read_part(self, number: int) -> _KernelPart:
        entry = self.index.kernels[number]
        where = self._where(entry.name)
        raw_table, raw_placement = self._section(number, where)
        table = decode_table(raw_table, entry.name, entry.variants, entry.images, where)
        return _KernelPart(table, _place_images(raw_placement, entry, where), self._payload_starts[number])

    def _section(self, number: int, where: str) -> tuple[bytes, bytes]:
        """Read the section of a kernel: its variant table, and where its images lie."""
        entry = self.index.kernels[number]
        _core.check_section(entry.table.stored_bytes, entry.table.raw_bytes, where)
        packed = self._read(self._section_starts[number], entry.table.stored_bytes, where)
        _check_digest(packed, bytes.fromhex(entry.table.sha256), where)
        raw = decompress(packed, entry.table.raw_bytes, where)
        return _core.split_section(raw, entry.images, entry.groups, where)

    def _where(self, kernel: str) -> str:
        return f"{self.path} kernel {kernel}"

    def image(self, kernel: str, number: int) -> bytes:
        """Read one image of a kernel: a whole cubin.

        Args:
            kernel: its name.
            number: as the ``image`` column of its table gives it.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
            IndexError: the kernel has no such image.
            BundleError: its group is not what the kernel's section pins.
        """
        return self._image(kernel, self._part(kernel), number)

    def _image(self, kernel: str, part: _KernelPart, number: int) -> bytes:
        place = part.placement.find(number)
        return self._group(kernel, part, place)[place[5] : place[6]]

    def place(self, kernel: str, number: int) -> Place:
        """Say where an image of a kernel lies."""
        return Place(*self._part(kernel).placement.find(number))

    def images(self) -> Iterator[bytes]:
        """Read every image in file order, each group once."""
        for entry in self.index.kernels:
            for number in range(entry.images):
                yield self.image(entry.name, number)

    def groups(self, kernel: str) -> tuple[Group, ...]:
        """Return the groups of a kernel in file order."""
        return tuple([Group(*fields) for fields in self._part(kernel).placement.groups()])

    def verify(self, look: Look | None = None) -> None:
        """Check everything that the file holds, down to the last byte.

        The cross-check of each image against its index entry is `nojit.aot.inspect.verification`'s.

        Args:
            look: is shown each kernel's table once that is checked, and reads its images. Nothing of a kernel is kept for the next.

        Raises:
            BundleError: the first part that is wrong.
        """
        self._index_bytes()
        from nojit.runtime.table_work import EXPRESSION_CHARS_MAX, EXPRESSION_SHARE  # noqa: PLC0415 - to launch needs neither

        most = left = EXPRESSION_CHARS_MAX + self.size_bytes // EXPRESSION_SHARE
        for number, entry in enumerate(self.index.kernels):
            where = self._where(entry.name)
            raw_table, raw_placement = self._section(number, where)
            table = decode_table(raw_table, entry.name, entry.variants, entry.images, where)
            part = _KernelPart(table, _place_images(raw_placement, entry, where), self._payload_starts[number])
            left -= sum(map(len, table.expressions()))
            if left < 0:
                what = f"expected expressions of at most {most} characters in a bundle of this length"
                raise refuse("size", what, got="more", where=where)
            check_table(raw_table, table, where)
            used = len(set(table.columns["image"]))
            if used != entry.images:
                raise refuse("images", f"expected every one of {entry.images} images in use", got=used, where=where)
            first = 0
            for images, *_ in part.placement.groups():
                self._group(entry.name, part, part.placement.find(first))
                first += images
            if look is not None:
                look(table, partial(self._image, entry.name, part))

    def _group(self, kernel: str, part: _KernelPart, place: tuple[int, int, int, int, bytes, int, int]) -> bytes:
        number, stored_start, stored_bytes, raw_bytes, sha256, _, _ = place
        held, held_number, raw = self._last_group
        if held_number == number and held == kernel:
            return raw
        where = f"{self._where(kernel)} group {number}"
        packed = self._read(part.payload_start + stored_start, stored_bytes, where)
        _check_digest(packed, sha256, where)
        raw = decompress(packed, raw_bytes, where)
        # neighbours are often asked for one after the other; a group is small
        self._last_group = (kernel, number, raw)
        return raw

    def _read(self, start: int, length: int, where: str, size: int | None = None) -> bytes:
        descriptor = self._open_fd(where)
        if size is not None and start + length > size:
            raise BundleFormatError(
                f"expected at least {start + length} bytes", got=str(size), where=where, rule="truncated"
            )
        data = os.pread(descriptor, length, start)
        if len(data) != length:
            raise BundleIntegrityError(f"expected {length} bytes at {start}", got=str(len(data)), where=where)
        return data

    def _open_fd(self, where: str) -> int:
        if self._fd < 0:
            raise ValueError(f"bundle is closed - at {where}")
        return self._fd


def _place_images(raw: bytes, entry: KernelEntry, where: str) -> _core.Placement:
    return _core.Placement(raw, entry.images, entry.payload_bytes, where)


def _check_digest(packed: bytes, expected: bytes, where: str) -> None:
    hasher = _HASHER.copy()
    hasher.update(packed)
    digest = hasher.digest()
    if digest != expected:
        raise BundleIntegrityError(f"expected SHA-256 {expected.hex()}", got=digest.hex(), where=where)
