"""Local folder of the cache: where it is, and who may write to it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nojit.aot.cache.store import DeletedError, Folder
from nojit.runtime.base.environment import CACHE_DIR
from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import PackageError

__all__ = ["PrivateFolder", "as_default", "check_cache_folder", "default_cache_folder"]

# attempts to create the folder while another process deletes it
_TRIES: Final = 100


def default_cache_folder() -> Path:
    """Return the default cache folder: ``NOJIT_CACHE_DIR``, else ``nojit`` in the user's cache folder."""
    if chosen := os.environ.get(CACHE_DIR):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nojit"


@contextlib.contextmanager
def as_default(folder: Path) -> Iterator[None]:
    """Make a folder the default cache folder of this process and its children until the ``with`` block ends."""
    before = os.environ.get(CACHE_DIR)
    os.environ[CACHE_DIR] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[CACHE_DIR]
        else:
            os.environ[CACHE_DIR] = before


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
        raise _folder_error("", file_kind(status.st_mode), folder)
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


class PrivateFolder(Folder):
    """A folder that only its user can read and write.

    Args:
        path: the folder; created with mode 0700 if it does not exist.

    Raises:
        PackageError: the folder cannot be created or used, is a symbolic link, belongs to another user, or is writable
            by others.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, 0o700)
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                self.make()
                return
        raise self.failed(DeletedError(f"one deleted {_TRIES} times"))

    def make(self) -> None:
        """Create the folder if it does not exist.

        Raises:
            PackageError: the folder cannot be created or used.
            FileNotFoundError: another process deleted it again.
        """
        try:
            super().make()
        except FileNotFoundError:
            raise
        except OSError as error:
            if isinstance(error, FileExistsError) and not os.path.lexists(self.path):
                for parent in self.path.parents:
                    if parent.is_symlink() and not parent.exists():
                        raise _folder_error("", f"a dangling symbolic link, {parent}", self.path) from None
                raise FileNotFoundError(self.path) from None
            blocked = isinstance(error, FileExistsError | NotADirectoryError)
            got = "a file, or a path through one" if blocked else worded(error)
            raise _folder_error("", got, self.path) from None
        check_cache_folder(self.path)

    def failed(self, error: OSError, name: str = "") -> PackageError:
        """Return the error that ends a build whose cache cannot be written.

        Args:
            error: the error of the write.
            name: name of the object; empty for the folder.
        """
        if isinstance(error, DeletedError):
            what = "expected a cache folder that other processes leave alone"
            return PackageError(what, got=str(error), where=str(self.path)).advise("build again")
        what = "expected to write a cache entry"
        failed = PackageError(what, got=worded(error), where=str(self.path_of(name)))
        return failed.advise("free some space, or choose another folder with --cache-dir")
