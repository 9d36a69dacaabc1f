"""A content-addressed store of compiled variants, shared by any number of builders.

One file per key, written beside its place and renamed into it, so that a reader sees a whole entry or none. An entry
that fails its checksum is a miss. Nothing is ever pruned, least of all a folder that another builder may be using.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from pathlib import Path

from nojit.runtime.errors import PackageError, worded

__all__ = ["Cache", "default_cache_folder"]

_MAGIC = b"nojit-cache-1\n"
_KEY = re.compile(r"[0-9a-f]{64}\Z")


def default_cache_folder() -> Path:
    """Return ``NOJIT_CACHE_DIR``, else ``nojit`` in the user's cache folder."""
    if chosen := os.environ.get("NOJIT_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nojit"


class Cache:
    """The store in one folder.

    Args:
        folder: made with mode 0700 if it is not there.

    Raises:
        PackageError: the folder cannot be made or used, is a symbolic link, belongs to another user, or
            can be written by others.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
            usable = os.access(folder, os.R_OK | os.W_OK | os.X_OK)
        except OSError as error:
            raise PackageError("expected a cache folder", got=worded(error), where=str(folder)) from None
        if folder.is_symlink():
            raise PackageError("expected a cache folder", got="a symbolic link", where=str(folder))
        if status.st_uid != os.geteuid():
            raise PackageError(
                f"expected a cache folder of user {os.geteuid()}", got=f"one of user {status.st_uid}", where=str(folder)
            )
        if status.st_mode & 0o022:
            got = f"mode {stat.S_IMODE(status.st_mode):o}"
            raise PackageError("expected a cache folder that only its user can write", got=got, where=str(folder))
        if not usable:
            raise PackageError("expected a cache folder to read and write", got="no permission", where=str(folder))

    def get(self, key: str) -> bytes | None:
        """Return the data stored under `key`, or None if there is none or it is damaged.

        Raises:
            PackageError: an entry is there but cannot be read.
        """
        path = self._path(key)
        try:
            # an opener, since `os.fdopen` leaks the descriptor of a folder
            with open(path, "rb", opener=_open_no_link) as file:
                stored = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise PackageError("expected a readable cache entry", got=worded(error), where=str(path)) from None
        start = len(_MAGIC) + 32
        data = stored[start:]
        if not stored.startswith(_MAGIC) or stored[len(_MAGIC) : start] != hashlib.sha256(data).digest():
            return None
        return data

    def put(self, key: str, data: bytes) -> None:
        """Store `data` under `key`; of several writers the last one wins, and readers see one of them whole.

        Raises:
            PackageError: the entry cannot be written, because the disk is full, say.
        """
        path = self._path(key)
        temporary = path.with_name(f".{key[:8]}-{os.getpid()}-{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                descriptor = os.open(
                    temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
                )
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(data).digest() + data)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise PackageError("expected to write a cache entry", got=worded(error), where=str(path)) from None

    def _path(self, key: str) -> Path:
        if not _KEY.match(key):
            raise ValueError(f"expected a SHA-256 in hex as key, got {key!r}")
        return self.folder / key[:2] / key[2:]


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
