"""Atomic and synced writes of files, reads that never block, and checks of the folders that files go to."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from nojit.runtime.base.file_kinds import check_regular, file_kind
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import PackageError

__all__ = [
    "check_folder",
    "create_file",
    "read_regular",
    "read_sealed",
    "replace_file",
    "sync",
    "write_file",
    "write_files",
    "write_sealed",
]


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically: write a temporary file in its folder, sync it, rename it.

    Raises:
        PackageError: the file cannot be written. An existing file is unchanged, and no temporary file is left.
    """
    write_files({path: data})


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files atomically, one right after the other: all their temporary files are synced before the first is renamed.

    Args:
        files: content of each file. The files are renamed in this order: one that needs others to be there comes last.

    Raises:
        PackageError: a file cannot be written. It and those that follow are unchanged, and no temporary file is left.
    """
    staged = {path: path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(6)}") for path in files}
    try:
        for path, data in files.items():
            with _write_errors(path):
                check_regular(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                create_file(staged[path], data, 0o666)
        for path, temporary in staged.items():
            with _write_errors(path):
                temporary.replace(path)
    except BaseException:
        for temporary in staged.values():
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise
    for path in {path.parent: path for path in files}.values():
        with _write_errors(path):
            sync(path.parent)


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system while a file is written into `PackageError`."""
    try:
        yield
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
    got = "" if there.is_dir() else "a file" if there.is_file() else file_kind(there.lstat().st_mode)
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


def sync(path: Path) -> None:
    """Wait until the content of a file, or the entries of a folder, are on the disk.

    Raises:
        OSError: the disk fails.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_file(path: Path, data: bytes, mode: int) -> None:
    """Create a file and sync it.

    Args:
        path: the file.
        data: its content.
        mode: its mode, before the umask.

    Raises:
        OSError: the file exists, or cannot be written; no part of it is left.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


def read_regular(path: Path | str, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes, without ever blocking.

    Raises:
        OSError: the file does not exist, cannot be read, is not a regular file, or is longer.
    """
    # checked before opening: opening a device can have side effects
    _check_regular(os.lstat(path), most)
    # an opener rather than `os.fdopen`, which leaks the descriptor of a folder
    with open(path, "rb", opener=_open_no_link) as file:
        size = _check_regular(os.fstat(file.fileno()), most)
        data: bytes = file.read(size + 1)
    if len(data) != size:
        raise OSError("a file that changes while it is read")
    return data


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file atomically (temporary file, then rename), by default readable by its user alone.

    Args:
        path: the file.
        data: its new content.
        mode: its mode, before the umask.

    Raises:
        OSError: writing or renaming fails; no temporary file is left.
    """
    temporary = path.with_name(f".{path.name[:8]}-{os.getpid()}-{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_sealed(path: Path, magic: bytes, most: int) -> bytes | None:
    """Return the data of a file that `write_sealed` wrote; None if the file is damaged.

    Raises:
        OSError: the file cannot be read, or is longer than `most` bytes.
    """
    stored = read_regular(path, most)
    start = len(magic) + hashlib.sha256().digest_size
    data = stored[start:]
    return data if stored[:start] == magic + hashlib.sha256(data).digest() else None


def write_sealed(path: Path, magic: bytes, data: bytes) -> None:
    """Write a file atomically: `magic`, the SHA-256 of the data, and the data.

    Raises:
        OSError: the file cannot be written.
    """
    replace_file(path, magic + hashlib.sha256(data).digest() + data)


def _check_regular(status: os.stat_result, most: int) -> int:
    """Return the length of a regular file in bytes; raise OSError for any other file, or one over `most` bytes."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{file_kind(status.st_mode)}, not a regular file")
    if status.st_size > most:
        raise OSError(f"{status.st_size} bytes, more than {most}")
    return status.st_size


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
