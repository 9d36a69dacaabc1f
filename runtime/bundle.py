"""Open, verify and read one bundle file. No driver, no kernel launches: bytes and types only."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self, TypeAlias

from nojit.runtime import _core
from nojit.runtime.errors import KernelNotFoundError, counted, nearest_or_few
from nojit.runtime.format import RECORDS, BundleIndex, KernelEntry
from nojit.runtime.payload import Group, Place
from nojit.runtime.record import Record
from nojit.runtime.strict import refuse
from nojit.runtime.table import KernelTable
from nojit.runtime.table_codec import check_table, decode_table
from nojit.runtime.zstd import decompress

if TYPE_CHECKING:
    from nojit.runtime.discovery.versions import Release

__all__ = ["Accept", "Allow", "BundleFile", "Look"]

Allow: TypeAlias = Callable[[BundleIndex, Sequence[str]], None]
"""Raises if a bundle is not to be used, by what it calls itself and by the names that it may be used under; no names are any."""
Accept: TypeAlias = Callable[[str, str], Allow]
"""Raises if a bundle is not to be used, by its path and its digest, and returns what judges its index."""

Look: TypeAlias = Callable[[KernelTable, Callable[[int], bytes]], None]
"""Checks a kernel by its table and by its images, which it reads by their number."""

_CHUNK_BYTES = 1 << 20


class _KernelPart(Record):
    """What was read of one kernel."""

    table: KernelTable
    placement: _core.Placement


class BundleFile:
    """One opened bundle: its index now, tables and images when asked for.

    The engine reads and checks: the header and the index when it opens the file; of a kernel, first its section with its table
    and where its images lie. It hashes each part before it decompresses it, and decompresses it before it parses it. The file
    stays open, so a rebuild that renames a new file over it does no harm. Safe to use from several threads.

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

    _allow: Allow | None = None

    def __init__(self, path: str | os.PathLike[str], accept: Accept | None = None) -> None:
        self.path = os.fsdecode(path)
        # a finalizer that reads the bundle may run while this thread holds it
        self._lock = threading.RLock()
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
            other.__dict__.update(
                vars(self), _opened=self._open(self.path), _lock=threading.RLock(), _parts=dict(self._parts)
            )
        return other

    def stream(self) -> Iterator[bytes]:
        """Read the whole file, first byte to last. Nothing of it is checked but its length.

        Raises:
            BundleIntegrityError: it is shorter than it was.
        """
        for start in range(0, self.size_bytes, _CHUNK_BYTES):
            yield self._open(self.path).read(start, min(_CHUNK_BYTES, self.size_bytes - start))

    @property
    def id(self) -> str:
        """The first twelve digits of the digest, which tell bundles apart in logs and errors."""
        return self.digest[:12]

    @property
    def release(self) -> Release:
        """What tells its versions apart."""
        from nojit.runtime.discovery.versions import Release  # noqa: PLC0415 - seldom asked for

        return Release(self.path, self.index.name, self.index.version, self.index.target.image_arch)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, sorted."""
        return tuple([entry.name for entry in self.index.kernels])

    def close(self) -> None:
        """Close the file; tables and images read before stay usable."""
        self._opened = None

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
        number = self._open(self._where(kernel)).find(kernel)
        if number < 0:
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
            kernel: its name.
            number: as the ``image`` column of its table gives it.

        Raises:
            KernelNotFoundError: the bundle has no such kernel.
            IndexError: the kernel has no such image.
            BundleError: its group is not what the kernel's section pins.
        """
        return self._image(self._number(kernel), self._part(kernel).placement, number)

    def _image(self, kernel: int, placement: _core.Placement, number: int) -> bytes:
        return self._open(self.path).image(kernel, placement, number)

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
        self._open(self.path).check_index()
        from nojit.runtime.table_work import EXPRESSION_CHARS_MAX, EXPRESSION_SHARE  # noqa: PLC0415 - to launch needs neither

        most = left = EXPRESSION_CHARS_MAX + self.size_bytes // EXPRESSION_SHARE
        for number, entry in enumerate(self.index.kernels):
            where = self._where(entry.name)
            raw_table, raw_placement = self._open(where).section(number)
            table = decode_table(raw_table, entry.name, entry.variants, entry.images, where)
            placement = _place_images(raw_placement, entry, where)
            left -= sum(map(len, table.expressions()))
            if left < 0:
                what = f"expected expressions of at most {most} characters in a bundle of this length"
                raise refuse("size", what, got="more", where=where)
            check_table(raw_table, table, where)
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


def _place_images(raw: bytes, entry: KernelEntry, where: str) -> _core.Placement:
    return _core.Placement(raw, entry.images, entry.payload_bytes, where)
