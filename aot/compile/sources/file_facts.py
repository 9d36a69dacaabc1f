"""Records (*facts*) of the files and folders that a build reads; a later build checks whether they still hold.

A build takes a fact before it uses the file. A fact is a list of integers and strings, so that JSON can hold it: file
size, times and the like. A file that was written within the last two seconds can change again without a change of its
times, so its fact also holds its SHA-256.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterable
from functools import cache
from importlib.machinery import all_suffixes
from typing import Final, TypeAlias

from nojit.runtime.base.file_kinds import file_kind

__all__ = [
    "DISTRIBUTIONS",
    "ENTRIES",
    "MODULES",
    "NAMES",
    "SETTLED_NS",
    "Fact",
    "content_of",
    "fact_of",
    "files_in",
    "link_of",
    "listed",
    "listing_of",
    "still",
    "with_digest",
]

Fact: TypeAlias = list[int | str]

SETTLED_NS: Final = 2_000_000_000
"""Time in nanoseconds since a file's last write after which every later write changes the file's times."""

NAMES, ENTRIES, MODULES, DISTRIBUTIONS = "names", "entries", "modules", "*-info"
"""Names for the part of a folder that matters to a build.

In this order: the names of its entries; these names and the facts of its files; the modules that an import would find
in it; and the metadata folders of installed distributions.
"""

# Python writes it from source files, which count themselves
_BYTECODE = "__pycache__"
_PATHS = ".pth"
_A_FILE = "[file]"
# how a fact goes on: a digest that counts always, or one for when the inode alone has changed
_CONTENT, _SETTLED = "content", "settled"
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})


def fact_of(path: str) -> Fact:
    """Return the fact of a file or folder as it is now. Symbolic links are followed.

    Raises:
        OSError: the path is a file that was just written and cannot be read, or it is neither a regular file nor `/dev/null`.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands of them
    except (OSError, ValueError) as error:
        return _failed(error)
    return _fact(path, found)


def with_digest(fact: Fact, sha256: str) -> Fact:
    """Return a file's fact with the SHA-256 of its content added, so that it holds even if new hard links are made."""
    return [*fact, _SETTLED, sha256] if fact[0] == "file" and len(fact) == 6 else fact


def still(path: str, fact: Fact) -> Fact | None:
    """Return the fact to store from now on if `fact`, an earlier fact of the path, still holds; else None."""
    try:
        new = fact_of(path)
        if fact[0] != "file" or new[:5] != fact[:5]:
            return fact if new == fact else None
        if new[5] == fact[5] and fact[6:7] != [_CONTENT]:
            return fact
        # a new link to a file changes when its inode changed, and so does an edit that sets the old time of its content
        digest = new[7:] or content_of(path)[1:]
        return with_digest(new, str(digest[0])) if digest and digest == fact[7:] else None
    except OSError:
        return None


def link_of(path: str) -> Fact | None:
    """Return a fact with the target of a symbolic link; None if the path is not a link."""
    try:
        return ["link", os.readlink(path)]  # noqa: PTH115 - as `fact_of`
    except (OSError, ValueError):
        return None


def content_of(path: str) -> Fact:
    """Return a fact with only the SHA-256 of a file, not its times; the fact ``absent`` for a missing file.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as `fact_of`
            return [_CONTENT, hashlib.file_digest(file, "sha256").hexdigest()]
    except FileNotFoundError:
        return ["absent"]


def listing_of(folder: str, kind: str, names: Collection[str] | None = None) -> list[str]:
    """List the entries of a folder as sorted texts, so that equal lists mean that a build sees the same folder.

    Args:
        folder: the folder. If it is missing or is a file, the list has one text that says so.
        kind: the part of the folder that matters: one of `NAMES`, `ENTRIES` and `MODULES`, or a pattern such as ``*.toml``, which
            selects entries whose names end so, in upper or lower case.
        names: with `MODULES`, list only entries that matter for an import of these modules.

    Returns:
        Names of entries. The times and contents of files are not part of the texts; see `files_in`.
    """
    found = []
    end = kind.removeprefix("*") if kind.startswith("*") else ""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if kind == MODULES and names is not None and not _counts(entry.name, names):
                    continue
                if entry.name != _BYTECODE and entry.name.lower().endswith(end):
                    found.append(entry.name if end or kind == NAMES else _entry(entry, kind))
    except (OSError, ValueError) as error:
        return [_A_FILE if isinstance(error, NotADirectoryError) else repr(_failed(error))]
    return sorted(found)


def files_in(folder: str, kind: str, listing: Iterable[str]) -> list[str]:
    """List the files of a listing whose facts a build must record as well: all files, or those that Python runs at its start."""
    if kind == ENTRIES:
        return [f"{folder}/{name}" for name in listing if not name.endswith("/") and not name.startswith("[")]
    if kind == MODULES:
        # an archive is one itself
        inside = [f"{folder}/{name}" for name in listing if name.endswith(_PATHS)]
        return [folder] if [*listing] == [_A_FILE] else inside
    return []


def listed(listing: Iterable[str], kind: str, names: Collection[str] = ()) -> str:
    """Return a digest, in hex, of the part of a listing that matters.

    Args:
        listing: the result of `listing_of`.
        kind: the part of the folder that matters, as for `listing_of`.
        names: with `MODULES`, the imported modules. Files that Python runs at its start always matter.
    """
    kept = [each for each in listing if kind != MODULES or _counts(each, names)]
    return hashlib.sha256("\0".join(kept).encode(errors="surrogateescape")).hexdigest()


def _counts(entry: str, names: Collection[str]) -> bool:
    return entry.partition("/")[0].partition(".")[0] in names or entry.startswith("[") or entry.endswith(_PATHS)


def _entry(entry: os.DirEntry[str], kind: str) -> str:
    """Return the text that stands for a folder's entry in a listing; that of a subfolder ends with a slash."""
    if not entry.is_dir():
        return entry.name
    return f"{entry.name}/{_package_file(entry.path) if kind == MODULES else ''}"


def _package_file(folder: str) -> str:
    """Return the name of the file, such as ``__init__.py``, that makes a folder a package; empty if there is none."""
    for suffix in all_suffixes():
        if os.path.isfile(f"{folder}/__init__{suffix}"):  # noqa: PTH113 - as `fact_of`
            return f"__init__{suffix}"
    return ""


def _failed(error: Exception) -> Fact:
    number = getattr(error, "errno", None) or 0
    return ["absent"] if number in _GONE else ["error", number]


def _fact(path: str, found: os.stat_result) -> Fact:
    if stat.S_ISDIR(found.st_mode):
        return ["folder", stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid]
    if not stat.S_ISREG(found.st_mode):
        if path == os.devnull:
            return ["device", found.st_rdev]
        raise OSError(errno.EINVAL, f"{file_kind(found.st_mode)}, not a regular file", path)
    if found.st_dev in _made_up():
        return content_of(path)
    fact: Fact = ["file", found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    age_ns = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns)
    if age_ns <= SETTLED_NS:
        fact += content_of(path)
    return fact


@cache
def _made_up() -> frozenset[int]:
    """Return the device numbers of ``/proc`` and ``/sys``: the kernel generates their files when they are read."""
    found = set()
    for place in ("/proc", "/sys"):
        try:
            found.add(os.stat(place).st_dev)  # noqa: PTH116 - as `fact_of`
        except OSError:
            continue
    return frozenset(found)
