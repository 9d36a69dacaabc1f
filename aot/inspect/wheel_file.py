"""Strict reading of untrusted wheels: accepts only zip archives that every reader interprets alike, and limits unpacked sizes.

Zip readers differ on two entries of one name, on a local header that contradicts the central directory, and on bytes between
entries. A check with one reader can therefore miss the files that another reader installs. This module accepts one layout
only: entries follow one another from the first byte on, then the central directory, then its end record.

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

from nojit.runtime.base.wording import few, worded
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.discovery.installed import ENTRY_POINTS, normalized
from nojit.runtime.errors import BundleError, BundleIntegrityError
from nojit.runtime.trust.envelope import signed_path

__all__ = ["PROVENANCE", "Recorded", "WheelFile"]

PROVENANCE: Final = "nojit.json"
"""Name of the provenance file in a wheel. A wheel with this file is a wheel of bundles."""

_END: Final = struct.Struct("<4s4H2LH")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_EXTRA: Final = struct.Struct("<2H")
_END_SIGNATURE: Final = b"PK\x05\x06"
# precedes the end record of a 64-bit archive, and points some readers to another central directory
_LOCATOR_SIGNATURE: Final = b"PK\x06\x07"
_LOCATOR_BYTES: Final = 20
_LISTING_BYTES: Final = 46
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"

_ENTRIES_MAX: Final = 10_000
_EXPANSION: Final = 10
"""Maximum ratio of the unpacked size to the wheel's size. Bundles are compressed already."""
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
# with its signature, which is optional
_DESCRIPTOR_BYTES: Final = 16
# times and owners, as common tools write them; neither another name (0x7075) nor 64-bit sizes
_HARMLESS_EXTRAS: Final = {0x000A, 0x5455, 0x5855, 0x7875}

_DIGESTS: Final = {"sha256", "sha384", "sha512"}
_NAME: Final = re.compile(r"(?P<stem>[^-]+-[^-]+)(-[^-]+){3,5}\.whl", re.IGNORECASE)
_STARTS_PYTHON: Final = {"sitecustomize", "usercustomize"}
_DOCSTRING: Final = re.compile(rb'"""[^"\\]*"""\n')
_OF_DIST_INFO: Final = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "variant.json", PROVENANCE}
_GROUP: Final = re.compile(r"^[ \t]*\[([^\]\n]*)\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Paths of the files of a wheel that match its ``RECORD``, by kind of file."""

    record: str
    """Path of ``RECORD`` in the wheel. No digest covers this file."""
    bundles: tuple[str, ...]
    """Paths of bundles and their signed statements."""
    others: tuple[str, ...]
    """Paths of all other files."""
    unusual: tuple[str, ...]
    """Other files that `nojit wheel` never writes, such as code; and entry-point groups other than that of bundles."""


class WheelFile:
    """An open wheel. All reads use one file descriptor.

    Args:
        path: the wheel file.

    Raises:
        BundleError: the file cannot be read, or is not a zip archive.
        BundleIntegrityError: zip readers could interpret the archive in several ways, a path leads out of the folder to unpack
            into, or the unpacked size exceeds the limit.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise BundleError("expected a wheel: name a *.whl file", got=worded(error), where=str(path)) from None
        try:
            self.size_bytes = os.fstat(self._file.fileno()).st_size
            start = self._start_of_directory()
            self._archive = zipfile.ZipFile(self._file)
            self._entries = {entry.orig_filename: entry for entry in self._archive.infolist()}
            # offset of each entry's content
            self._contents: dict[str, int] = {}
            self._check(start)
        except (OSError, ValueError, RuntimeError, struct.error, zipfile.BadZipFile) as error:
            self.close()
            if isinstance(error, BundleError):
                raise
            raise BundleError("expected a wheel: name a *.whl file", got=worded(error), where=str(path)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of all files, in the wheel's order."""
        return tuple(self._entries)

    @property
    def bundles(self) -> tuple[str, ...]:
        """The paths of the bundles."""
        return tuple(name for name in self._entries if name.endswith(SUFFIX))

    @property
    def is_thin(self) -> bool:
        """Whether it is a wheel of bundles that holds none: its extras require the wheels that do."""
        return not self.bundles and any(name.endswith(f".dist-info/{PROVENANCE}") for name in self._entries)

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file of the wheel in chunks.

        Raises:
            BundleIntegrityError: the file is damaged, or its size differs from the wheel's directory.
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
            raise BundleIntegrityError(
                "expected an undamaged file: download or build the wheel again", got=worded(error), where=where
            ) from None
        if left:
            self._refuse(f"expected {entry.file_size} bytes", f"{left} fewer", name)
        if checksum != entry.CRC:
            self._refuse(f"expected checksum {entry.CRC:08x}", f"{checksum:08x}", name)

    def _unpacked(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield an entry's decompressed content in chunks.

        The deflated stream must end exactly where the entry does: sequential readers look for the next entry at its end.
        """
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
        # flush the rest of the last chunk
        while unpacker is not None and not unpacker.eof:
            part = unpacker.decompress(b"", _CHUNK_BYTES)
            if not part and not unpacker.eof:
                self._refuse(
                    f"expected a deflated stream of {entry.compress_size} bytes", "one that does not end", name
                )
            yield part

    def _packed(self, name: str, size: int) -> Iterator[bytes]:
        """Yield an entry's stored bytes in chunks."""
        start = self._contents[name]
        for at in range(start, start + size, _CHUNK_BYTES):
            part = os.pread(self._file.fileno(), min(_CHUNK_BYTES, start + size - at), at)
            if not part:
                self._refuse(f"expected {size} bytes stored", f"{at - start}", name)
            yield part

    def extract(self, name: str, folder: Path) -> Path:
        """Write a file of the wheel into a folder, under its base name; return its path.

        Raises:
            BundleError: the file is damaged, or cannot be written.
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
        """Check that the wheel holds exactly the files of its ``RECORD``, and none that runs without being imported.

        Raises:
            BundleIntegrityError: a file is missing, altered, not listed, or would run at each start of Python.
        """
        record = self._record()
        listed = self._listed(record)
        unlisted = [name for name in self._entries if name not in listed]
        if unlisted:
            self._refuse("expected only files that RECORD lists", f"also {few(unlisted, 5)}", record)
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
        """Return the offset in bytes of the central directory; raise unless it and its end record end the file."""
        self._file.seek(max(0, self.size_bytes - _END.size - _LOCATOR_BYTES))
        before, raw = self._file.read(_LOCATOR_BYTES), self._file.read(_END.size)
        if not raw.startswith(_END_SIGNATURE):
            raise BundleError("expected a wheel", got="a file that does not end as a zip archive", where=str(self.path))
        _, disk, first_disk, here, entries, length, start, comment = _END.unpack(raw)
        if disk or first_disk or here != entries or comment:
            self._refuse("expected a zip archive in one part, without a comment", "another")
        if before.startswith(_LOCATOR_SIGNATURE):
            self._refuse("expected a 32-bit zip archive", "a 64-bit one (zip64)")
        if not entries <= _ENTRIES_MAX:
            self._refuse(f"expected at most {_ENTRIES_MAX} files", str(entries))
        if start + length + _END.size != self.size_bytes:
            self._refuse("expected the end record right after the central directory", "other bytes between them")
        self._count = entries
        self._directory_bytes = length
        return int(start)

    def _check(self, start: int) -> None:
        entries = self._archive.infolist()
        if len(entries) != self._count:
            self._refuse(f"expected {self._count} files, as the end record says", str(len(entries)))
        alike: dict[str, str] = {}
        for entry in entries:
            self._check_entry(entry)
            other = alike.setdefault(entry.orig_filename.casefold(), entry.orig_filename)
            if other != entry.orig_filename:
                self._refuse("expected names that differ in more than case", f"{other} too", entry.orig_filename)
        if len(self._entries) != len(entries):
            names = [entry.orig_filename for entry in entries]
            twice = next(name for name in self._entries if names.count(name) > 1)
            self._refuse("expected each file once", "several files of this name", twice)
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
            self._refuse(f"expected the central directory at {end}, where the last file ends", f"it at offset {start}")

    def _check_entry(self, entry: zipfile.ZipInfo) -> None:
        name, mode = entry.orig_filename, entry.external_attr >> 16
        parts = name.split("/")
        if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in parts):
            self._refuse("expected paths of files inside the wheel, without backslashes", ascii(name))
        if not name.isascii() and not entry.flag_bits & _UTF8:
            self._refuse("expected ASCII names, or names marked as UTF-8", ascii(name))
        if entry.comment:
            self._refuse("expected a file without a comment", "one with a comment", name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            self._refuse("expected regular files", stat.filemode(mode), name)
        if entry.flag_bits & (_ENCRYPTED | _PATCHED | _STRONGLY_ENCRYPTED):
            self._refuse("expected a file that is not encrypted", "an encrypted one", name)
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
                self._refuse("expected no extra field that could change a name or size", f"field {kind:#06x}", name)
            extra = extra[_EXTRA.size + length :]

    def _check_place(self, entry: zipfile.ZipInfo, start: int) -> int:
        """Check that an entry starts at `start` and that its local header equals the central directory; return its end."""
        name = entry.orig_filename
        if entry.header_offset != start:
            self._refuse(
                f"expected the file at offset {start}, where the previous one ends", str(entry.header_offset), name
            )
        self._file.seek(start)
        signature, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL.unpack(
            self._file.read(_LOCAL.size)
        )
        spelled, extra = self._file.read(name_bytes), self._file.read(extra_bytes)
        if signature != _LOCAL_SIGNATURE or spelled != _spelled(entry):
            self._refuse("expected a local header with the name in the central directory", ascii(spelled), name)
        central = (entry.flag_bits, entry.compress_type, entry.CRC, entry.compress_size, entry.file_size)
        behind = bool(flags & _DESCRIBED_BEHIND)
        if (flags, method, crc, packed, size) != central and not (
            behind and (flags, method, crc, packed, size) == (*central[:2], 0, 0, 0)
        ):
            self._refuse("expected a local header that equals the central directory", "a different one", name)
        self._check_extra(extra, name)
        content: int = start + _LOCAL.size + name_bytes + extra_bytes
        self._contents[name] = content
        end = content + entry.compress_size
        return end + self._described(entry, end) if behind else end

    def _described(self, entry: zipfile.ZipInfo, start: int) -> int:
        """Return the length in bytes of the data descriptor that follows an entry."""
        facts = struct.pack("<3L", entry.CRC, entry.compress_size, entry.file_size)
        self._file.seek(start)
        raw = self._file.read(_DESCRIPTOR_BYTES)
        for expected in (facts, b"PK\x07\x08" + facts):
            if raw.startswith(expected):
                return len(expected)
        return self._refuse("expected a data descriptor after the file", "other bytes", entry.orig_filename)

    # -- RECORD

    def _record(self) -> str:
        """Return the path of ``RECORD``; the wheel must have one ``.dist-info`` folder, named after the wheel."""
        folders = {name.partition("/")[0] for name in self._entries if ".dist-info/" in name}
        named = _NAME.fullmatch(self.path.name)
        wanted = f"{named['stem']}.dist-info" if named else "*.dist-info"
        (folder, *more) = folders or {""}
        if not folder or more or (named and normalized(folder) != normalized(wanted)):
            self._refuse(f"expected one folder {wanted}", ", ".join(sorted(folders)) or "none")
        record = f"{folder}/RECORD"
        if record not in self._entries:
            self._refuse("expected RECORD, the wheel's list of files", "none", record)
        return record

    def _text(self, name: str) -> str:
        if self._entries[name].file_size > _TEXT_BYTES_MAX:
            self._refuse(f"expected at most {_TEXT_BYTES_MAX} bytes of text", str(self._entries[name].file_size), name)
        try:
            return b"".join(self.stream(name)).decode()
        except UnicodeDecodeError as error:
            self._refuse("expected text in UTF-8", worded(error), name)

    def _listed(self, record: str) -> dict[str, tuple[str, str, str]]:
        """Read ``RECORD``; return name of the digest, digest, and length for each path."""
        listed: dict[str, tuple[str, str, str]] = {}
        try:
            # row by row, so that a wrong row ends the reading of a long file
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
        """Refuse files that run without being imported, or are installed elsewhere: wheels of bundles have none."""
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
        """Return whether a module holds only a docstring, as the package of a wheel of bundles does."""
        small = self._entries[name].file_size <= _CHUNK_BYTES
        return small and _DOCSTRING.fullmatch(b"".join(self.stream(name))) is not None

    def _refuse(self, what: str, got: str, name: str = "") -> NoReturn:
        raise BundleIntegrityError(what, got=got, where=f"{self.path}/{name}" if name else str(self.path))


def _spelled(entry: zipfile.ZipInfo) -> bytes:
    """Return a name as the archive encodes it: ASCII, or UTF-8 with its flag set."""
    return entry.orig_filename.encode(errors="replace")
