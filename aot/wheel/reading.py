"""Reads wheels that anybody may have made: as zip archives that every reader reads alike, and no longer than they are.

Readers of zip archives differ in what they make of two entries of one name, of a local header that says something else than the
central directory, of bytes between entries. So whoever checks one reading can be deceived about another. What is read
here has one reading: entries lie one behind the other from the first byte on, then comes the central directory, then the end.

Sources: PKWARE's APPNOTE.TXT, "Local file header", "Central directory structure", "End of central directory record"; the packaging
specifications "Binary distribution format" and "Recording installed projects".
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn, Self

from nojit.aot.wheel.metadata import PROVENANCE
from nojit.runtime.errors import BundleError, BundleIntegrityError, few, worded
from nojit.runtime.format import SUFFIX
from nojit.runtime.installed import ENTRY_POINTS, normalized
from nojit.runtime.trust import signed_path

__all__ = ["Recorded", "WheelFile"]

_END: Final = struct.Struct("<4s4H2LH")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_EXTRA: Final = struct.Struct("<2H")
_END_SIGNATURE: Final = b"PK\x05\x06"
# stands right before the end of an archive of 64 bits, and leads some readers to another central directory
_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
_LOCATOR_BYTES: Final = 20
_LISTING_BYTES: Final = 46
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"

_ENTRIES_MAX: Final = 10_000
_EXPANSION: Final = 10
"""What all entries together may come to, as a multiple of the wheel's size. Bundles are compressed already."""
_SLACK_BYTES: Final = 1 << 20
_EXPANSION_OF_ONE: Final = 100
_SLACK_BYTES_OF_ONE: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 20
_TEXT_BYTES_MAX: Final = 4 << 20

_ENCRYPTED: Final = 1 << 0
_DESCRIBED_BEHIND: Final = 1 << 3
_PATCHED: Final = 1 << 5
_STRONGLY_ENCRYPTED: Final = 1 << 6
_UTF8: Final = 1 << 11
# with its signature, which may be left out
_DESCRIPTOR_BYTES: Final = 16
# times and owners, as common tools write them; not another name (0x7075), nor sizes of 64 bits
_HARMLESS_EXTRAS: Final = {0x000A, 0x5455, 0x5855, 0x7875}

_DIGESTS: Final = {"sha256", "sha384", "sha512"}
_NAME: Final = re.compile(r"(?P<stem>[^-]+-[^-]+)(-[^-]+){3,5}\.whl", re.IGNORECASE)
_STARTS_PYTHON: Final = {"sitecustomize", "usercustomize"}
_DOCSTRING: Final = re.compile(rb'"""[^"\\]*"""\n')
_OF_DIST_INFO: Final = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "variant.json", PROVENANCE}
_GROUP: Final = re.compile(r"^[ \t]*\[([^\]\n]*)\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the files of a wheel are, once they are what ``RECORD`` lists, and no other."""

    record: str
    """Path of ``RECORD`` in the wheel, which nothing vouches for."""
    bundles: tuple[str, ...]
    """And the signed statements beside them."""
    others: tuple[str, ...]
    """All other files."""
    unusual: tuple[str, ...]
    """Of these, the ones that `nojit wheel` never writes, code among them; and groups of entry points, other than bundles."""


class WheelFile:
    """A wheel, opened once. Everything is read through that one descriptor.

    Args:
        path: of the file.

    Raises:
        BundleError: it cannot be read, or is no zip archive.
        BundleIntegrityError: readers of zip archives could read it in several ways, it leads out of the folder that it is unpacked
            in, or would take much more room there than here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise BundleError("expected a wheel", got=worded(error), where=str(path)) from None
        try:
            self.size_bytes = os.fstat(self._file.fileno()).st_size
            start = self._start_of_directory()
            self._archive = zipfile.ZipFile(self._file)
            self._entries = {entry.orig_filename: entry for entry in self._archive.infolist()}
            # where the content of each entry starts
            self._contents: dict[str, int] = {}
            self._check(start)
        except (OSError, ValueError, RuntimeError, struct.error, zipfile.BadZipFile) as error:
            self.close()
            if isinstance(error, BundleError):
                raise
            raise BundleError("expected a wheel", got=worded(error), where=str(path)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of all files, as they lie in the wheel."""
        return tuple(self._entries)

    @property
    def bundles(self) -> tuple[str, ...]:
        """The paths of bundles."""
        return tuple(name for name in self._entries if name.endswith(SUFFIX))

    def stream(self, name: str) -> Iterator[bytes]:
        """Read a file of the wheel, in parts.

        Raises:
            BundleIntegrityError: it is damaged, or longer than the wheel says.
        """
        entry = self._entries[name]
        left, checksum = entry.file_size, 0
        try:
            for part in self._unpacked(entry):
                left -= len(part)
                if left < 0:
                    self._refuse(f"expected {entry.file_size} bytes", "more", name)
                checksum = zlib.crc32(part, checksum)
                yield part
        except (OSError, zlib.error) as error:
            where = f"{self.path}/{name}"
            raise BundleIntegrityError("expected a file that is whole", got=worded(error), where=where) from None
        if left:
            self._refuse(f"expected {entry.file_size} bytes", f"{left} fewer", name)
        if checksum != entry.CRC:
            self._refuse(f"expected checksum {entry.CRC:08x}", f"{checksum:08x}", name)

    def _unpacked(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """Decompress an entry, in parts. A reader that goes from file to file looks for the next where the stream of this one ends."""
        name, size = entry.orig_filename, entry.compress_size
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS) if entry.compress_type == zipfile.ZIP_DEFLATED else None
        for packed in self._packed(name, size):
            if unpacker is None:
                yield packed
                continue
            yield unpacker.decompress(packed, _CHUNK_BYTES)
            while unpacker.unconsumed_tail:
                yield unpacker.decompress(unpacker.unconsumed_tail, _CHUNK_BYTES)
            size -= len(packed)
            if unpacker.eof and (size or unpacker.unused_data):
                self._refuse(f"expected a deflated stream of {entry.compress_size} bytes", "a shorter one", name)
        # what is left of the last part
        while unpacker is not None and not unpacker.eof:
            part = unpacker.decompress(b"", _CHUNK_BYTES)
            if not part and not unpacker.eof:
                self._refuse(
                    f"expected a deflated stream of {entry.compress_size} bytes", "one that does not end", name
                )
            yield part

    def _packed(self, name: str, size: int) -> Iterator[bytes]:
        """Read what is stored of an entry, in parts."""
        start = self._contents[name]
        for at in range(start, start + size, _CHUNK_BYTES):
            part = os.pread(self._file.fileno(), min(_CHUNK_BYTES, start + size - at), at)
            if not part:
                self._refuse(f"expected {size} bytes stored", f"{at - start}", name)
            yield part

    def extract(self, name: str, folder: Path) -> Path:
        """Write a file of the wheel into a folder, under the last part of its path.

        Raises:
            BundleError: it is damaged, or cannot be written.
        """
        path = folder / name.rpartition("/")[2]
        try:
            with path.open("xb") as file:
                for part in self.stream(name):
                    file.write(part)
        except OSError as error:
            raise BundleError("expected to unpack a wheel", got=worded(error), where=str(path)) from None
        return path

    def check_record(self) -> Recorded:
        """Require that the wheel holds what its ``RECORD`` lists, no more and no less, and nothing that runs by being installed.

        Raises:
            BundleIntegrityError: it does not.
        """
        record = self._record()
        listed = self._listed(record)
        unlisted = [name for name in self._entries if name not in listed]
        if unlisted:
            self._refuse("expected no files but those that RECORD lists", f"also {few(unlisted, 5)}", record)
        for name, row in listed.items():
            if name != record:
                self._check_file(name, *row)
        self._check_nothing_starts()
        bundles = {*self.bundles, *map(signed_path, self.bundles)} & self._entries.keys()
        others = tuple(name for name in self._entries if name not in bundles and name != record)
        unusual = tuple(self._unusual(others, record.rpartition("/")[0]))
        return Recorded(record, tuple(name for name in self._entries if name in bundles), others, unusual)

    # -- the archive

    def _start_of_directory(self) -> int:
        """Read where the central directory starts; it and the end are the last of the file."""
        self._file.seek(max(0, self.size_bytes - _END.size - _LOCATOR_BYTES))
        before, raw = self._file.read(_LOCATOR_BYTES), self._file.read(_END.size)
        if not raw.startswith(_END_SIGNATURE):
            raise BundleError("expected a wheel", got="no zip archive that ends with the file", where=str(self.path))
        _, disk, first_disk, here, entries, length, start, comment = _END.unpack(raw)
        if disk or first_disk or here != entries or comment:
            self._refuse("expected a zip archive in one part, without a comment", "another")
        if before.startswith(_LOCATOR_SIGNATURE):
            self._refuse("expected a zip archive of 32 bits", "one of 64")
        if not entries <= _ENTRIES_MAX:
            self._refuse(f"expected at most {_ENTRIES_MAX} files", str(entries))
        if start + length + _END.size != self.size_bytes:
            self._refuse("expected the central directory right before the end", "bytes that belong to nothing")
        self._count = entries
        self._directory_bytes = length
        return int(start)

    def _check(self, start: int) -> None:
        entries = self._archive.infolist()
        if len(entries) != self._count:
            self._refuse(f"expected {self._count} files, as the end of the archive says", str(len(entries)))
        alike: dict[str, str] = {}
        for entry in entries:
            self._check_entry(entry)
            other = alike.setdefault(entry.orig_filename.casefold(), entry.orig_filename)
            if other != entry.orig_filename:
                self._refuse("expected names that differ in more than case", f"{other} too", entry.orig_filename)
        if len(self._entries) != len(entries):
            names = [entry.orig_filename for entry in entries]
            twice = next(name for name in self._entries if names.count(name) > 1)
            self._refuse("expected each file once", "several of this name", twice)
        listed = sum(_LISTING_BYTES + len(_spelled(entry)) + len(entry.extra) for entry in entries)
        if listed != self._directory_bytes:
            self._refuse(f"expected a central directory of {listed} bytes", str(self._directory_bytes))
        total = sum(entry.file_size for entry in entries)
        if total > _EXPANSION * self.size_bytes + _SLACK_BYTES:
            what = f"expected a wheel that unpacks to at most {_EXPANSION} times its {self.size_bytes} bytes"
            self._refuse(what, f"{total} bytes")
        end = 0
        for entry in sorted(entries, key=lambda each: each.header_offset):
            end = self._check_place(entry, end)
        if end != start:
            self._refuse(
                "expected the central directory right behind the last file", f"it at {start}, the end at {end}"
            )

    def _check_entry(self, entry: zipfile.ZipInfo) -> None:
        name, mode = entry.orig_filename, entry.external_attr >> 16
        parts = name.split("/")
        if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in parts):
            self._refuse("expected paths inside of the wheel, to files, without backslashes", ascii(name))
        if not name.isascii() and not entry.flag_bits & _UTF8:
            self._refuse("expected names in ASCII, or marked as UTF-8", ascii(name))
        if entry.comment:
            self._refuse("expected files without a comment", "one with", name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            self._refuse("expected regular files", stat.filemode(mode), name)
        if entry.flag_bits & (_ENCRYPTED | _PATCHED | _STRONGLY_ENCRYPTED):
            self._refuse("expected files that are not encrypted", "one that is", name)
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            self._refuse("expected files that are stored or deflated", f"method {entry.compress_type}", name)
        if entry.compress_type == zipfile.ZIP_STORED and entry.compress_size != entry.file_size:
            self._refuse(f"expected {entry.file_size} bytes stored", str(entry.compress_size), name)
        if entry.file_size > _EXPANSION_OF_ONE * entry.compress_size + _SLACK_BYTES_OF_ONE:
            what = f"expected a file that unpacks to at most {_EXPANSION_OF_ONE} times its {entry.compress_size} bytes"
            self._refuse(what, f"{entry.file_size} bytes", name)
        self._check_extra(entry.extra, name)

    def _check_extra(self, extra: bytes, name: str) -> None:
        while extra:
            kind, length = _EXTRA.unpack_from(extra)
            if kind not in _HARMLESS_EXTRAS or len(extra) < _EXTRA.size + length:
                self._refuse("expected no fields that give a file another name or size", f"field {kind:#06x}", name)
            extra = extra[_EXTRA.size + length :]

    def _check_place(self, entry: zipfile.ZipInfo, start: int) -> int:
        """Require an entry that begins where the one before ends, and whose local header says what the directory does; return its end."""
        name = entry.orig_filename
        if entry.header_offset != start:
            self._refuse("expected files one behind the other", f"it at {entry.header_offset}, not at {start}", name)
        self._file.seek(start)
        signature, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack(
            self._file.read(_LOCAL.size)
        )
        spelled, extra = self._file.read(name_bytes), self._file.read(extra_bytes)
        if signature != _LOCAL_SIGNATURE or spelled != _spelled(entry):
            self._refuse("expected a local header of the name in the central directory", ascii(spelled), name)
        said = (entry.flag_bits, entry.compress_type, entry.CRC, entry.compress_size, entry.file_size)
        behind = bool(flags & _DESCRIBED_BEHIND)
        if (flags, method, crc, packed, size) != said and not (
            behind and (flags, method, crc, packed, size) == (*said[:2], 0, 0, 0)
        ):
            self._refuse("expected a local header that says what the central directory does", "another", name)
        self._check_extra(extra, name)
        content: int = start + _LOCAL.size + name_bytes + extra_bytes
        self._contents[name] = content
        end = content + entry.compress_size
        return end + self._described(entry, end) if behind else end

    def _described(self, entry: zipfile.ZipInfo, start: int) -> int:
        """Return the length of the descriptor behind an entry."""
        facts = struct.pack("<3L", entry.CRC, entry.compress_size, entry.file_size)
        self._file.seek(start)
        raw = self._file.read(_DESCRIPTOR_BYTES)
        for expected in (facts, b"PK\x07\x08" + facts):
            if raw.startswith(expected):
                return len(expected)
        return self._refuse("expected its length and checksum behind the file", "something else", entry.orig_filename)

    # -- what RECORD says

    def _record(self) -> str:
        """Find ``RECORD``, in the one ``.dist-info`` folder that a wheel of this name has."""
        folders = {name.partition("/")[0] for name in self._entries if ".dist-info/" in name}
        named = _NAME.fullmatch(self.path.name)
        wanted = f"{named['stem']}.dist-info" if named else "*.dist-info"
        (folder, *more) = folders or {""}
        if not folder or more or (named and normalized(folder) != normalized(wanted)):
            self._refuse(f"expected one folder {wanted}", ", ".join(sorted(folders)) or "none")
        record = f"{folder}/RECORD"
        if record not in self._entries:
            self._refuse("expected RECORD, which lists the files of a wheel", "none", record)
        return record

    def _text(self, name: str) -> str:
        if self._entries[name].file_size > _TEXT_BYTES_MAX:
            self._refuse(f"expected at most {_TEXT_BYTES_MAX} bytes of text", str(self._entries[name].file_size), name)
        try:
            return b"".join(self.stream(name)).decode()
        except UnicodeDecodeError as error:
            self._refuse("expected text in UTF-8", worded(error), name)

    def _listed(self, record: str) -> dict[str, tuple[str, str, str]]:
        """Read ``RECORD``: for each path the name of a digest, the digest, and the length."""
        listed: dict[str, tuple[str, str, str]] = {}
        try:
            # row by row: it can be refused after one that is wrong, however many follow
            for row in csv.reader(io.StringIO(self._text(record)), strict=True):
                name, kind, digest, size = self._row(row, record)
                if name not in self._entries:
                    self._refuse("expected every file that RECORD lists", f"no {name}", record)
                if name in listed:
                    self._refuse("expected each file once", f"{name} again", record)
                listed[name] = (kind, digest, size)
        except csv.Error as error:
            self._refuse("expected lines of comma-separated values", worded(error), record)
        return listed

    def _row(self, row: list[str], record: str) -> tuple[str, str, str, str]:
        if len(row) != 3:
            self._refuse(
                "expected lines of a path, a digest and a length", ",".join(row)[:200] or "an empty one", record
            )
        kind, _, digest = row[1].partition("=")
        return row[0], kind, digest, row[2]

    def _check_file(self, name: str, kind: str, expected: str, size: str) -> None:
        if kind not in _DIGESTS:
            self._refuse(f"expected a digest in RECORD: {', '.join(sorted(_DIGESTS))}", kind or "none", name)
        hasher, length = hashlib.new(kind), 0
        for part in self.stream(name):
            hasher.update(part)
            length += len(part)
        digest = base64.urlsafe_b64encode(hasher.digest()).rstrip(b"=").decode()
        if digest != expected or size != str(length):
            what = f"expected {size} bytes with {kind} {expected}, as RECORD says"
            self._refuse(what, f"{length} with {digest}", name)

    def _check_nothing_starts(self) -> None:
        """Refuse what runs, or lands elsewhere, though nobody imports it: no wheel of bundles has any of it."""
        for name in self._entries:
            top, _, rest = name.partition("/")
            stem = top.partition(".")[0]
            if name.endswith((".pth", ".egg-link")):
                self._refuse("expected no file that runs at each start of Python", name)
            if rest and top.endswith(".data"):
                self._refuse("expected no files that are installed elsewhere (*.data)", name)
            if stem.casefold() in _STARTS_PYTHON:
                self._refuse("expected no module that runs at each start of Python", name)

    def _unusual(self, others: tuple[str, ...], about: str) -> Iterator[str]:
        for name in others:
            folder, _, last = name.rpartition("/")
            if folder == about or folder.startswith(f"{about}/licenses"):
                known = folder != about or last in _OF_DIST_INFO
            else:
                known = last == "__init__.py" and self._is_docstring(name)
            if not known:
                yield name
        points = f"{about}/entry_points.txt"
        if points in self._entries:
            groups = dict.fromkeys(group.strip() for group in _GROUP.findall(self._text(points)))
            yield from (f"entry points {group}" for group in groups if group != ENTRY_POINTS)

    def _is_docstring(self, name: str) -> bool:
        """Say whether a module consists of its docstring, as the package of a wheel of bundles does."""
        small = self._entries[name].file_size <= _CHUNK_BYTES
        return small and _DOCSTRING.fullmatch(b"".join(self.stream(name))) is not None

    def _refuse(self, what: str, got: str, name: str = "") -> NoReturn:
        raise BundleIntegrityError(what, got=got, where=f"{self.path}/{name}" if name else str(self.path))


def _spelled(entry: zipfile.ZipInfo) -> bytes:
    """Return a name as it stands in the archive: ASCII, or UTF-8 that is marked as such."""
    return entry.orig_filename.encode(errors="replace")
