"""Kinds of files: their names in messages, those that nojit neither reads nor replaces, and those in a folder by suffix."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_regular", "file_kind", "files_in"]


def file_kind(mode: int) -> str:
    """Return the kind of a file from its mode as text, such as ``a folder``."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFREG: "a file",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def check_regular(path: Path | str) -> None:
    """Check that a path is free, or leads to a regular file.

    A FIFO would make its reader wait for a writer. As root, a rename would put a file in the place of /dev/null.

    Raises:
        OSError: it leads to a folder, a device, a FIFO or a socket.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib is slow to import
    except OSError:
        # a free path, or one that the caller's read or write refuses
        return
    if not stat.S_ISREG(mode):
        raise OSError(file_kind(mode))


def files_in(folder: Path, suffix: str) -> list[Path]:
    """Return the paths in a folder whose names end in `suffix`, sorted by name.

    Raises:
        OSError: the folder cannot be read. `Path.glob` finds nothing in such a folder.
    """
    return sorted(path for path in folder.iterdir() if path.name.endswith(suffix))
