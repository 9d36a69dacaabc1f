"""Open, verify and read one bundle file, without a driver or a launch."""

from __future__ import annotations

import os
from _thread import RLock

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.wording import counted
from nojit.runtime.bundle.format import RECORDS, BundleIndex, Group, KernelEntry, Place
from nojit.runtime.bundle.zstd import decompress
from nojit.runtime.errors import BundleError, KernelNotFoundError
from nojit.runtime.table.reading import check_table, decode_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self, TypeAlias

    from nojit.runtime.table.table import KernelTable

__all__ = ["Accept", "Allow", "BundleFile", "Look", "no_attachment"]

Allow: TypeAlias = "Callable[[BundleIndex, Sequence[str]], None]"
"""A check that raises if a bundle may not be used; called with its index and the names that it may be used under, empty for any."""
Accept: TypeAlias = "Callable[[str, str], Allow]"
"""A check that raises if a bundle may not be used; called with its path and digest. It returns the check of the index."""

Look: TypeAlias = "Callable[[KernelTable, Callable[[int], bytes]], None]"
"""A check of one kernel, called with its table and a function that reads an image by its number."""

_CHUNK_BYTES = 1 << 20


class _KernelPart(Record):
    """The part of a kernel that was read: its table and the placement of its images."""

    table: KernelTable
    placement: _core.Placement


class BundleFile:
    """One open bundle: its index is read at once, tables and images on request.

    The engine reads and checks the header and the index when it opens the file, and a kernel's section (its table and the lengths
    of its images) before the first image. It hashes each part before it decompresses it, and decompresses it before it parses it.
    The file stays open, so a rebuild that renames a new file over it does no harm. Safe to use from several threads.

    Attributes:
        path: the file, as given.
        digest: SHA-256 of the index, in hex.
        index: the index of the bundle.
        size_bytes: length of the file.

    Args:
        path: the bundle.
        accept: called with the path and the digest before the index is parsed; its result is called with the parsed index. Both raise
            to refuse the bundle.

    Raises:
        FileNotFoundError: the file does not exist.
        BundleError: the file is not an intact bundle of a known format, or `accept` refuses it.
    """

    _allow: Allow | None = None

    def __init__(self, path: str | os.PathLike[str], accept: Accept | None = None) -> None:
        self.path = os.fsdecode(path)
        # reentrant: a finalizer may read the bundle while this thread holds the lock
        self._lock = RLock()
        self._parts: dict[str, _KernelPart] = {}
        allow: list[Allow | None] = []
        judge = None if accept is None else lambda digest: allow.append(accept(self.path, digest))
        opened = _core.Bundle(self.path, decompress, judge)
        self.digest, self.size_bytes = opened.digest, opened.size_bytes
        self.index: BundleIndex = opened.index(RECORDS)
        self._opened: _core.Bundle | None = opened
        for judge_index in filter(None, allow):
            self._allow_by(judge_index)

    def _allow_by(self, allow: Allow) -> None:
        allow(self.index, ())
        self._allow = allow

    def authorize(self, accept: Accept | None) -> None:
        """Check a bundle that was opened without a policy against one, as opening it with this policy would have.

        The check uses the digest of the index that was read, which pins every later read. So a bundle that was opened to read its name
        need not be opened a second time.

        Raises:
            BundleError: `accept` refuses the bundle.
        """
        if accept is not None and self._allow is None:
            self._allow_by(accept(self.path, self.digest))

    def expect(self, names: Sequence[str]) -> None:
        """Require that the bundle may be used under one of some names. Without a policy, every name is allowed.

        Raises:
            BundleError: the policy refuses these names.
        """
        if self._allow is not None:
            self._allow(self.index, names)

    def duplicate(self) -> BundleFile:
        """Return a second handle on the same open file; the caller closes it."""
        other = BundleFile.__new__(BundleFile)
        with self._lock:
            other.__dict__.update(vars(self), _opened=self._open(self.path), _lock=RLock(), _parts=dict(self._parts))
        return other

    def stream(self) -> Iterator[bytes]:
        """Yield the whole file from the first byte to the last, checking only its length.

        Raises:
            BundleIntegrityError: the file is shorter than when it was opened.
        """
        for start in range(0, self.size_bytes, _CHUNK_BYTES):
            yield self._open(self.path).read(start, min(_CHUNK_BYTES, self.size_bytes - start))

    @property
    def id(self) -> str:
        """The first twelve hex digits of the digest, which identify the bundle in logs and errors."""
        return self.digest[:12]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, sorted."""
        return tuple([entry.name for entry in self.index.kernels])

    def close(self) -> None:
        """Close the file; tables and images that were read stay usable."""
        self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"BundleFile({self.path!r}, id={self.id!r})"

    def table(self, kernel: str) -> KernelTable:
        """Read the variant table of one kernel; later calls return the same object.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
            BundleError: the section differs from the one that the index pins, or breaks a rule.
        """
        return self._part(kernel).table

    def entry(self, kernel: str) -> KernelEntry:
        """Return the index entry of one kernel.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
        """
        return self.index.kernels[self._number(kernel)]

    def _number(self, kernel: str) -> int:
        number = self._open(self._where(kernel)).find(kernel)
        if number < 0:
            from nojit.runtime.base.suggestions import nearest_or_few

            near = nearest_or_few(kernel, self.kernels)
            raise KernelNotFoundError(
                f"expected one of {counted(len(self.index.kernels), 'kernel')}",
                got=f"{kernel!r}{near}",
                where=self.path,
            )
        return number

    def _part(self, kernel: str) -> _KernelPart:
        with self._lock:
            part = self._parts.get(kernel)
            if part is None:
                part = self._parts[kernel] = self._read_part(self._number(kernel))
        return part

    def _read_part(self, number: int) -> _KernelPart:
        entry = self.index.kernels[number]
        where = self._where(entry.name)
        raw_table, raw_placement = self._open(where).section(number)
        table = decode_table(raw_table, entry.name, entry.variants, entry.images, where)
        return _KernelPart(table, _place_images(raw_placement, entry, where))

    def _where(self, kernel: str) -> str:
        return f"{self.path} kernel {kernel}"

    def image(self, kernel: str, number: int) -> bytes:
        """Read one image of a kernel: a whole cubin.

        Args:
            kernel: name of the kernel.
            number: number of the image, from the ``image`` column of the table.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
            IndexError: the kernel has no such image.
            BundleError: the image's group differs from the one that the kernel's section pins.
        """
        return self._image(self._number(kernel), self._part(kernel).placement, number)

    def _image(self, kernel: int, placement: _core.Placement, number: int) -> bytes:
        return self._open(self.path).image(kernel, placement, number)

    def load(self, kernel: str, number: int, row: _core.Row, device: int) -> tuple[_core.Function, bool]:
        """Load one image of a kernel into the driver; return its kernel, and whether the image was loaded now.

        Args:
            kernel: name of the kernel.
            number: number of the image, from the ``image`` column of the table.
            row: a row of the table; the engine checks the image against it.
            device: ordinal of a device that runs the image; its driver cross-checks the parameters.

        Raises:
            BundleError: the image's group differs from the one that the kernel's section pins, or the image from the row.
            DriverError: the driver is too old for the image, or refuses it.
        """
        place = self._number(kernel), self._part(kernel).placement, number
        return self._open(self.path).load(*place, row, device, f"{self._where(kernel)} image {number}")

    @property
    def attachments(self) -> tuple[str, ...]:
        """The names of the attachments, sorted."""
        return tuple([attachment.name for attachment in self.index.attachments])

    def attachment(self, name: str) -> bytes:
        """Read an attachment: bytes that the build put into the bundle under a name.

        Each call reads the file, so a caller keeps what it needs again.

        Raises:
            BundleError: the bundle has no attachment of this name, or the bytes differ from those that the index pins.
        """
        content = self._open(self.path).attachment(name)
        if content is None:
            raise no_attachment(name, self.attachments, self.path)
        return content

    def place(self, kernel: str, number: int) -> Place:
        """Return the position of an image of a kernel: its group, and its bytes in the group."""
        return Place(*self._part(kernel).placement.find(number))

    def images(self) -> Iterator[bytes]:
        """Yield every image in file order; each group is read once."""
        for entry in self.index.kernels:
            for number in range(entry.images):
                yield self.image(entry.name, number)

    def groups(self, kernel: str) -> tuple[Group, ...]:
        """Return the groups of a kernel in file order."""
        return tuple([Group(*fields) for fields in self._part(kernel).placement.groups()])

    def verify(self, look: Look | None = None) -> None:
        """Check every byte of the file.

        `nojit.aot.inspect.verification` also compares each image with its row in the table.

        Args:
            look: called with each kernel's table after its check, and with a function that reads the kernel's images. Nothing of a
                kernel is kept for the next one.

        Raises:
            BundleError: the first part that is wrong.
        """
        from functools import partial  # slow to import

        from nojit.runtime.base.strict_json import refuse

        self._open(self.path).check_index()
        for name in self.attachments:
            self.attachment(name)
        most = left = _core.EXPRESSION_CHARS_MAX + self.size_bytes // _core.EXPRESSION_SHARE
        for number, entry in enumerate(self.index.kernels):
            where = self._where(entry.name)
            raw_table, raw_placement = self._open(where).section(number)
            table = decode_table(raw_table, entry.name, entry.variants, entry.images, where)
            placement = _place_images(raw_placement, entry, where)
            left -= table.handle().expression_chars()
            if left < 0:
                what = f"expected expressions of at most {most} characters in a bundle of this length"
                raise refuse("size", what, got="more", where=where)
            check_table(table, where)
            used = len(set(table.columns["image"]))
            if used != entry.images:
                raise refuse("images", f"expected every one of {entry.images} images in use", got=used, where=where)
            first = 0
            for images, *_ in placement.groups():
                self._image(number, placement, first)
                first += images
            if look is not None:
                look(table, partial(self._image, number, placement))

    def _open(self, where: str) -> _core.Bundle:
        opened = self._opened
        if opened is None:
            raise ValueError(f"bundle is closed - at {where}")
        return opened


def no_attachment(name: str, known: tuple[str, ...], where: str) -> BundleError:
    """Return the error for an attachment that does not exist; it names those that do."""
    from nojit.runtime.base.suggestions import nearest_or_few

    near = nearest_or_few(name, known)
    return BundleError(f"expected one of {counted(len(known), 'attachment')}", got=f"{name!r}{near}", where=where)


def _place_images(raw: bytes, entry: KernelEntry, where: str) -> _core.Placement:
    return _core.Placement(raw, entry.images, entry.payload_bytes, where)
