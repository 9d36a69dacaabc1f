"""Atomic writes of files, and checks of the folders that they go to."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from nojit.runtime.errors import PackageError, worded

__all__ = ["check_folder", "write_file"]


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically: write a temporary file in its folder, sync it, rename it.

    Raises:
        PackageError: the file cannot be written. An existing file is unchanged, and no temporary file is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            check_folder(path.parent)
        # the text of the error would name the temporary file
        got = worded(error)
        raise PackageError("expected to write a file", got=got, where=str(path)) from None


def check_folder(folder: Path) -> None:
    """Check that files can be written to a folder, or that the folder can be created. Leaves nothing behind.

    Raises:
        PackageError: the folder, or its nearest existing parent, is not a folder or is not writable.
    """
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    got = "a file" if there.is_file() else "something else" if not there.is_dir() else ""
    if not got and not (os.access(there, os.W_OK | os.X_OK) and _takes_entries(there)):
        got = "one that cannot be written to"
    if got:
        at = "" if there == folder else f" at {there}"
        raise PackageError("expected a folder to write to", got=f"{got}{at}", where=str(folder))


def _takes_entries(folder: Path) -> bool:
    """Return whether a file can be created in a folder, by creating one.

    Permission bits do not answer this for root or in /proc.
    """
    try:
        Path(tempfile.mkdtemp(prefix=".", dir=folder)).rmdir()
    except OSError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
