"""Places that hold the entries of a cache: what each place can do, and folders. `store_urls` has those that fsspec reaches.

The names in a place have at most one slash. A reader sees a whole object or none.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from nojit.aot.base.files import read_regular, replace_file

__all__ = ["DeletedError", "Folder", "Store", "Stored", "UnfitError"]

# attempts to write an object while another process deletes the folder
_TRIES: Final = 100


class DeletedError(OSError):
    """Error: other processes deleted a folder again and again."""


class UnfitError(OSError):
    """Error: there is something under the name of an object that cannot be one, such as a link."""


class Stored(NamedTuple):
    """An object in a place."""

    name: str
    size_bytes: int
    written_s: float
    """Time of the last write, in seconds since 1970, by the clock of the place."""


class Store(Protocol):
    """A place that holds objects under names."""

    url: str

    def open(self) -> None:
        """Load the library that reaches the place. No time limit applies to that, as it uses no network."""

    def read(self, name: str, most: int) -> bytes:
        """Return the content of an object.

        `most`: maximum length, in bytes. A longer object is an error, or cut after one byte more.

        Raises:
            FileNotFoundError: there is no such object.
            Exception: it cannot be read.
        """

    def write(self, name: str, data: bytes) -> None:
        """Write an object; it replaces an existing one."""

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless it exists; return whether it was written. Of several writers, one succeeds."""

    def delete(self, name: str) -> None:
        """Delete an object if it exists."""

    def list(self, under: str = "") -> Iterator[Stored]:
        """Yield the objects, or those whose names start with `under` and a slash."""


class Folder:
    """A folder as a place for objects.

    Args:
        path: the folder; the first write creates it.
        mode: mode of new folders, before the umask. Files have the same mode without the execute bits.
    """

    def __init__(self, path: Path, mode: int = 0o777) -> None:
        self.path = path
        self.url = self._text = str(path)
        self._mode = mode

    def make(self) -> None:
        """Create the folder if it does not exist."""
        self.path.mkdir(mode=self._mode, parents=True, exist_ok=True)

    def open(self) -> None:
        """Do nothing."""

    def path_of(self, name: str) -> Path:
        """Return the path of an object."""
        return self.path / name

    def parts(self) -> frozenset[str]:
        """Return the first parts of the names of its objects, up to a slash; there may be others without an object.

        Raises:
            OSError: it cannot be read.
        """
        try:
            with os.scandir(self.path) as entries:
                return frozenset(entry.name for entry in entries)
        except FileNotFoundError:
            return frozenset()

    def read(self, name: str, most: int) -> bytes:
        """Return the content of an object; see `Store`.

        Raises:
            UnfitError: it is not a regular file, or is longer than `most` bytes.
            OSError: it does not exist or cannot be read.
        """
        try:
            # a text: a build looks up all of its variants before it compiles the first, and a path takes longer than the look
            return read_regular(f"{self._text}/{name}", most)
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from None
        except OSError as error:
            if error.errno is None:
                # not an error of the system
                raise UnfitError(*error.args) from None
            raise

    def write(self, name: str, data: bytes) -> None:
        """Write an object under another name and rename it.

        Raises:
            OSError: it cannot be written.
        """
        path = self.path / name
        for _ in range(_TRIES):
            # another process deleted the folder, or the temporary file before its rename
            with contextlib.suppress(FileNotFoundError):
                self._make_parent(path)
                replace_file(path, data, self._mode & 0o666)
                return
        raise DeletedError(f"one deleted {_TRIES} times")

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless it exists; see `Store`.

        Raises:
            OSError: it cannot be written.
        """
        path = self.path / name
        temporary = path.with_name(f".{secrets.token_hex(8)}")
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                self._make_parent(path)
                replace_file(temporary, data, self._mode & 0o666)
                try:
                    # unlike a rename, a link never replaces a file
                    path.hardlink_to(temporary)
                except FileExistsError:
                    return False
                finally:
                    temporary.unlink(missing_ok=True)
                return True
        raise DeletedError(f"one deleted {_TRIES} times")

    def delete(self, name: str) -> None:
        """Delete an object if it exists.

        Raises:
            OSError: it cannot be deleted.
        """
        (self.path / name).unlink(missing_ok=True)

    def list(self, under: str = "") -> Iterator[Stored]:
        """Yield the objects; see `Store`. Links, and files that a crashed writer left, are not among them.

        Raises:
            OSError: the folder cannot be read.
        """
        yield from self._files(under, 0 if under else 1)

    def _files(self, under: str, deeper: int) -> Iterator[Stored]:
        before = f"{under}/" if under else ""
        try:
            entries = sorted(os.scandir(self.path / under), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if deeper and entry.is_dir(follow_symlinks=False):
                yield from self._files(f"{before}{entry.name}", deeper - 1)
                continue
            # another process may delete it meanwhile
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield Stored(f"{before}{entry.name}", status.st_size, status.st_mtime)

    def _make_parent(self, path: Path) -> None:
        """Create the folder of an object.

        Raises:
            FileNotFoundError: another process deleted it; the next try can succeed.
        """
        try:
            path.parent.mkdir(mode=self._mode)
        except FileExistsError:
            # another process may have deleted it since; the next try creates it then
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(path.parent.stat().st_mode):
                    raise NotADirectoryError(f"{path.parent} is not a folder") from None
        except FileNotFoundError:
            self.make()
            # the next try creates the parents as well
            raise
