"""Read files of keys, only if no other user could have written them.

A user who can write the file of trusted keys decides what a process trusts. So nojit checks mode and owner of the file and of the
folders above it, as sshd does (``StrictModes``). On a file system that is mounted read-only it checks neither.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import BundleTrustError
from nojit.runtime.trust.reasons import refuse

__all__ = ["read_key_file"]

_BYTES_MAX: Final = 1 << 20
_LINKS_MAX: Final = 40
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def read_key_file(path: str, what: str, *, pipes: bool = False) -> bytes:
    """Read a file of keys that only root, the process's user or the owner of nojit's own files can have written.

    The file is opened once, and checked through its descriptor.

    Args:
        path: the file.
        what: what the file should contain, for messages: ``a public key``.
        pipes: also read pipes, to their end, such as a shell's ``<(command)``.

    Raises:
        BundleTrustError: the file cannot be read, is not a regular file or is too long; or another user may write it, a folder above it
            or a link on the way to it.
    """
    try:
        # a pipe must not make the caller wait for its writer
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            opened = os.fstat(descriptor)
            if stat.S_ISREG(opened.st_mode):
                _check_way(path, opened)
            elif pipes and stat.S_ISFIFO(opened.st_mode):
                os.set_blocking(descriptor, True)
            else:
                refuse("policy", f"expected {what} in a regular file", got=file_kind(opened.st_mode), where=path)
            with open(descriptor, "rb", closefd=False) as file:
                raw = file.read(_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except BundleTrustError:
        # the error is a ValueError that says what it expected
        raise
    except (OSError, ValueError) as error:
        refuse("policy", f"expected {what}", got=worded(error), where=path)
    # never use the beginning of a long file: the rest may hold a restriction
    if len(raw) > _BYTES_MAX:
        refuse("policy", f"expected a file of at most {_BYTES_MAX} bytes", got="more", where=path)
    return raw


def _check_way(path: str, opened: os.stat_result) -> None:
    """Check each folder and link on the way to a file, and the file."""
    owners = {0, os.geteuid(), _own_owner()}
    last = opened
    for place, status in _way(path):
        is_folder, is_link = stat.S_ISDIR(status.st_mode), stat.S_ISLNK(status.st_mode)
        kind = "folder" if is_folder else "link" if is_link else "file"
        if _is_read_only(os.path.dirname(place) if is_link else place):  # noqa: PTH120 - pathlib is slow to import
            # Kubernetes and Docker mount a container's files this way, with modes and owners of another system
            last = status
            continue
        if status.st_uid not in owners:
            what = f"expected a {kind} of root, of user {os.geteuid()} or of the owner of nojit's files: chown {os.geteuid()} {place}"
            refuse("policy", what, got=f"one of user {status.st_uid}", where=place)
        # links have no mode, and in a sticky folder users can replace only their own files
        open_to_all = is_folder and status.st_mode & stat.S_ISVTX
        if status.st_mode & _OTHERS_WRITE and not is_link and not open_to_all:
            what = f"expected a {kind} that only its owner can write: chmod go-w {place}"
            refuse("policy", what, got=stat.filemode(status.st_mode), where=place)
        last = status
    if (last.st_dev, last.st_ino) != (opened.st_dev, opened.st_ino):
        refuse(
            "policy", "expected a file that does not change while nojit reads it: try again", got="another", where=path
        )


def _is_read_only(place: str) -> bool:
    """Return whether a place is on a file system that is mounted read-only, where no process here can write."""
    return bool(os.statvfs(place).f_flag & os.ST_RDONLY)


def _own_owner() -> int:
    """Return the owner of nojit's files: that user can change what a process does without any key."""
    try:
        return os.stat(__file__).st_uid  # noqa: PTH116 - pathlib is slow to import
    except OSError:
        return 0


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every folder and link on the way to a file, from the root, and the file; links are followed one by one."""
    parts = os.path.join(os.getcwd(), path).split("/")[::-1]  # noqa: PTH109,PTH118 - as above
    here, links = "/", 0
    yield here, os.lstat(here)
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - as above
            continue
        place = os.path.join(here, part)  # noqa: PTH118 - as above
        status = os.lstat(place)
        yield place, status
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links += 1
        if links > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(place)  # noqa: PTH115 - as above
        here = "/" if target.startswith("/") else here
        parts += target.split("/")[::-1]
