"""Cache of compiled variants, which any number of builds share.

Each key has one file. A writer writes a temporary file in the same folder and renames it, so a reader sees a whole
entry or none. An entry starts with lines of text: the format with its version, the key, and the SHA-256 over key and
content. The content follows. If an entry is damaged, or was stored under another key, the cache records it and treats
the lookup as a miss. nojit removes no entries; a user may delete entries while builds run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nojit.aot.files import kind_of, read_regular, replace_file
from nojit.runtime._core import IMAGE_BYTES_MAX
from nojit.runtime.errors import PackageError, worded

__all__ = [
    "Cache",
    "Misfit",
    "as_default",
    "check_cache_folder",
    "default_cache_folder",
]

_MAGIC: Final = b"nojit-cache 2\n"
_KEY: Final = re.compile(r"[0-9a-f]{64}\Z")
# the key and the checksum in hex, each with a line end
_LINES_BYTES: Final = 2 * 65
# an image and its metadata
_ENTRY_BYTES_MAX: Final = IMAGE_BYTES_MAX + (1 << 20)
# attempts to write an entry while another process deletes the folder
_TRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Misfit:
    """A cache entry that could not be used, so that its variant was compiled again."""

    path: str
    reason: str


def default_cache_folder() -> Path:
    """Return the default cache folder: ``NOJIT_CACHE_DIR``, else ``nojit`` in the user's cache folder."""
    if chosen := os.environ.get("NOJIT_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nojit"


@contextlib.contextmanager
def as_default(folder: Path) -> Iterator[None]:
    """Make a folder the default cache folder of this process and its children until the ``with`` block ends."""
    before = os.environ.get("NOJIT_CACHE_DIR")
    os.environ["NOJIT_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["NOJIT_CACHE_DIR"]
        else:
            os.environ["NOJIT_CACHE_DIR"] = before


def check_cache_folder(folder: Path) -> None:
    """Check that only this user can write to a cache folder.

    Raises:
        PackageError: the folder is a symbolic link, belongs to another user, is writable by others, or this user cannot
            read and write it.
        FileNotFoundError: the folder does not exist, or was deleted meanwhile.
    """
    try:
        status = folder.lstat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _folder_error("", worded(error), folder) from None
    if not stat.S_ISDIR(status.st_mode):
        raise _folder_error("", kind_of(status.st_mode), folder)
    if status.st_uid != os.geteuid():
        raise _folder_error(f" of user {os.geteuid()}", f"one of user {status.st_uid}", folder)
    if status.st_mode & 0o022:
        got = f"mode {stat.S_IMODE(status.st_mode):o}"
        shared = PackageError("expected a cache folder that only its user can write", got=got, where=str(folder))
        raise shared.advise(f"chmod go-w {folder}")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        if not os.path.samestat(folder.lstat(), status):
            raise FileNotFoundError(folder)
        raise _folder_error(" to read and write", "no permission", folder)


def _folder_error(kind: str, got: str, folder: Path) -> PackageError:
    error = PackageError(f"expected a cache folder{kind}", got=got, where=str(folder))
    return error.advise("choose another folder with --cache-dir")


class Cache:
    """Cache of compiled variants in one folder.

    Args:
        folder: created with mode 0700 if it does not exist.

    Raises:
        PackageError: the folder cannot be created or used, is a symbolic link, belongs to another user, or is writable
            by others.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._misfits: dict[str, str] = {}
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                self._make()
                return
        raise self._deleted_error()

    def get(self, key: str) -> bytes | None:
        """Return the data that is stored under `key`; None if there is no intact entry."""
        path = self._path(key)
        try:
            stored = read_regular(path, _ENTRY_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.refuse(key, worded(error))
            return None
        if not stored.startswith(_MAGIC):
            self.refuse(key, "expected an entry of cache format 2")
            return None
        own, checksum, data = _split_entry(stored)
        if checksum != _checksum(own, data):
            self.refuse(key, "damaged: expected content that matches its checksum")
        elif own != key.encode():
            # a file renamed to another key has a valid checksum
            self.refuse(key, f"expected the entry of this key, got that of {own.decode(errors='replace')!a}")
        else:
            return data
        return None

    def put(self, key: str, data: bytes) -> None:
        """Store `data` under `key`. The last of several writers wins; readers see a whole entry.

        If a folder or other non-file is at the entry's path, nothing is stored, and the cache records the entry as
        unusable.

        Raises:
            PackageError: the entry cannot be written, for example because the disk is full.
        """
        path, own = self._path(key), key.encode()
        entry = b"".join((_MAGIC, own, b"\n", _checksum(own, data), b"\n", data))
        for _ in range(_TRIES):
            try:
                self._make_parent(path)
                replace_file(path, entry)
            except FileNotFoundError:
                # another process deleted the folder, or the temporary file before its rename
                continue
            except (IsADirectoryError, NotADirectoryError) as error:
                self.refuse(key, f"cannot be replaced: {worded(error)}")
            except OSError as error:
                failed = PackageError("expected to write a cache entry", got=worded(error), where=str(path))
                raise failed.advise("free some space, or choose another folder with --cache-dir") from None
            return
        raise self._deleted_error()

    def refuse(self, key: str, reason: str) -> None:
        """Record that the entry of `key` cannot be used, with the reason, for `misfits`."""
        self._misfits[str(self._path(key))] = reason

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """The entries that could not be used since this cache was opened."""
        return tuple(Misfit(path, reason) for path, reason in self._misfits.items())

    def _make_parent(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700)
        except FileExistsError:
            # another process may have deleted it since; the next try creates it then
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(path.parent.stat().st_mode):
                    raise NotADirectoryError(f"{path.parent} is not a folder") from None
        except FileNotFoundError:
            self._make()
            # the next try creates the parents as well
            raise

    def _make(self) -> None:
        """Create the folder if it does not exist.

        Raises:
            PackageError: the folder cannot be created or used.
            FileNotFoundError: another process deleted it again.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileNotFoundError:
            raise
        except OSError as error:
            if isinstance(error, FileExistsError) and not os.path.lexists(self.folder):
                raise FileNotFoundError(self.folder) from None
            blocked = isinstance(error, FileExistsError | NotADirectoryError)
            got = "a file, or a path through one" if blocked else worded(error)
            raise _folder_error("", got, self.folder) from None
        check_cache_folder(self.folder)

    def _deleted_error(self) -> PackageError:
        got = f"one deleted {_TRIES} times"
        error = PackageError(
            "expected a cache folder that other processes leave alone", got=got, where=str(self.folder)
        )
        return error.advise("build again")

    def _path(self, key: str) -> Path:
        if not _KEY.match(key):
            raise ValueError(f"expected a SHA-256 in hex as key, got {key!r}")
        return self.folder / key[:2] / key[2:]


def _split_entry(stored: bytes) -> tuple[bytes, bytes, bytes]:
    """Split the bytes of an entry into key, checksum and content.

    A truncated entry gives wrong parts, which the comparison with the checksum then reveals.
    """
    start = len(_MAGIC)
    lines = stored[start : start + _LINES_BYTES]
    if len(lines) < _LINES_BYTES or lines[64:65] != b"\n" or lines[129:] != b"\n":
        return b"", b"", b""
    return lines[:64], lines[65:129], stored[start + _LINES_BYTES :]


def _checksum(key: bytes, data: bytes) -> bytes:
    checksum = hashlib.sha256(key + b"\n")
    checksum.update(data)
    return checksum.hexdigest().encode()
