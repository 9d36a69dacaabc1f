"""Digests of a toolchain: of Triton's files and of ptxas. Versions do not reveal an edited file.

A digest covers the files that shape machine code, not their folders: a wheel that is unpacked twice has one digest. Each
file is read once per machine. The cache folder holds a record of the digests, each with the results of ``stat``; a file is
read again when these change. This module does not import Triton.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from nojit.aot.backends.registry import vendors
from nojit.aot.base.files import read_sealed, write_sealed
from nojit.aot.cache.folder import check_cache_folder, default_cache_folder
from nojit.aot.compile.sources.file_facts import SETTLED_NS
from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.errors import PackageError

__all__ = [
    "LEFT_OUT",
    "all_left_out",
    "file_digest",
    "file_digests",
    "files_in",
    "record_paths",
    "settings_of",
    "split_tools",
    "toolchain_words",
    "tree_digest",
]

LEFT_OUT: Final[dict[str, str]] = {
    "FileCheck": "a tool of Triton's own tests",
    "_C/libproton.so": "the profiler",
    "include": "headers of plugins",
    "instrumentation": "loaded only if LLVM_PASS_PLUGIN_PATH names it, and hashed then",
    "plugins": "loaded only if TRITON_PLUGIN_PATHS names them, and hashed then",
}
"""Parts of Triton's folder that do not affect machine code, each with the reason; vendors list others. `__pycache__` is
skipped as well: Python writes it from files that are hashed."""

_RECORD: Final = "files"
_MAGIC: Final = b"nojit-files-1\n"
_RECORD_BYTES_MAX: Final = 16 << 20
_RECORD_FILES_MAX: Final = 20_000
# attempts to read a file that changes while it is read
_TRIES: Final = 10

_Stat: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size in bytes, and times of the last change of content and inode, in ns."""


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file, in hex.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    return file_digests([path])[path]


def file_digests(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files, in hex, by path.

    Raises:
        OSError: a file cannot be read, or is not a regular file.
    """
    digests = _digests(default_cache_folder())
    found = {path: digests.of(path) for path in paths}
    digests.save()
    return found


def tree_digest(folders: Iterable[str], left_out: Mapping[str, str] | None = None) -> str:
    """Return a digest of all files in folders, in hex: of their relative paths and their content.

    Args:
        folders: the folders of a package; most packages have one.
        left_out: files and folders to skip, relative to the package's root; None for `all_left_out`.

    Raises:
        OSError: a file cannot be read.
    """
    digests = _digests(default_cache_folder())
    rows = sorted((name, digests.of(path)) for folder in folders for name, path in files_in(folder, left_out))
    digests.save()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def all_left_out() -> dict[str, str]:
    """Return the parts of Triton's folder that no vendor's machine code depends on, each with the reason."""
    folders = tuple(f"backends/{vendor.TRITON}/" for vendor in vendors())
    found = {path: why for path, why in LEFT_OUT.items() if not path.startswith(folders)}
    return found | {path: why for vendor in vendors() for path, why in vendor.LEFT_OUT.items()}


def files_in(folder: str, left_out: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the files of a package to hash: relative path, and path to open. Symbolic links are followed.

    Raises:
        OSError: a folder cannot be read.
    """
    yield from _files_in(folder, "", all_left_out() if left_out is None else left_out, (os.path.realpath(folder),))


def _files_in(
    folder: str, inside: str, left_out: Mapping[str, str], above: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            if entry.name == "__pycache__" or name in left_out:
                continue
            if not entry.is_dir():
                # skip dangling links: Python cannot import them
                if entry.is_file():
                    yield name, entry.path
                continue
            real = os.path.realpath(entry.path)
            if real not in above:
                yield from _files_in(entry.path, f"{name}/", left_out, (*above, real))


def toolchain_words(tools: Sequence[tuple[str, str]]) -> str:
    """Return the tools of a bundle in one line.

    ``ptxas 13.4 (1f0c2d3e4a5b), triton 3.9.0 (0a1b2c3d4e5f), zstandard 0.25.0``. The tools of each of several toolchains
    follow its name: ``3.6: ptxas 12.8 (...), triton 3.6.0 (...); 3.9: ...; zstandard 0.25.0``.
    """
    known = split_tools(tools)
    parts = [f"{name}: {_tool_words(known[name])}" if name else _tool_words(known[name]) for name in known]
    return "; ".join(parts)


def split_tools(tools: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return the tools of a bundle by toolchain. Tools of no or the only toolchain come last, under an empty name.

    `tools`: name and version of each; names of several toolchains' tools start with that of the toolchain: ``3.6/ptxas``.
    """
    known: dict[str, dict[str, str]] = {}
    for tool, version in sorted(tools, key=lambda each: ("/" not in each[0], each)):
        toolchain, _, own = tool.rpartition("/")
        known.setdefault(toolchain, {})[own] = version
    return known


def settings_of(tools: Iterable[tuple[str, str]]) -> str:
    """Return the settings of Triton that were set for a bundle, in words; empty if none was."""
    split = split_tools(tools)
    return ", ".join(
        f"{name}: {known['settings']}" if name else known["settings"]
        for name, known in split.items()
        if "settings" in known
    )


def _tool_words(known: Mapping[str, str]) -> str:
    words = []
    for tool, version in sorted(known.items()):
        if tool == "settings":
            words.append(f"with {version}")
        elif not tool.endswith(".digest"):
            digest = known.get(f"{tool}.digest")
            words.append(f"{tool} {version} ({digest[:12]})" if digest else f"{tool} {version}")
    # settings belong to no tool, so they come last
    return ", ".join(sorted(words, key=lambda word: word.startswith("with ")))


# -- the record --------------------------------------------------------------------------------------------------------


def record_paths() -> tuple[str, ...]:
    """Return the paths that reading the record touches. Their content affects only the duration of a build."""
    folder = default_cache_folder().absolute()
    return str(folder), str(folder / _RECORD)


class _Digests:
    """SHA-256 of files, each with the results of ``stat``.

    Args:
        folder: folder of the record. If it cannot be used, files are read again without an error.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorded = _read_record(folder)
        self._known = dict(self._recorded)
        self._changed = False

    def of(self, path: str) -> str:
        """Return the digest of a file.

        Raises:
            OSError: the file cannot be read, or is not a regular file.
        """
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            # opening a FIFO would block
            raise OSError(errno.EINVAL, f"{file_kind(status.st_mode)}, not a regular file", path)
        known = self._known.get(path)
        if known is None or known[0] != _facts(status):
            known = self._known[path] = _read(path)
            if time.time_ns() - max(known[0][3:]) > SETTLED_NS:
                self._recorded[path] = known
                self._changed = True
        return known[1]

    def save(self) -> None:
        """Write new digests to the record. The last of several processes wins."""
        if not self._changed:
            return
        self._changed = False
        if len(self._recorded) > _RECORD_FILES_MAX:
            # drop files that no longer exist, most of them of removed versions of Triton
            self._recorded = {path: known for path, known in self._recorded.items() if Path(path).exists()}
        rows = {path: [*facts, digest] for path, (facts, digest) in self._recorded.items()}
        data = json.dumps(rows, separators=(",", ":")).encode()
        try:
            check_cache_folder(self._folder)
            write_sealed(self._folder / _RECORD, _MAGIC, data)
        except (PackageError, OSError):
            # the next build reads the files again
            return


@lru_cache(maxsize=8)
def _digests(folder: Path) -> _Digests:
    return _Digests(folder)


def _facts(found: os.stat_result) -> _Stat:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: str) -> tuple[_Stat, str]:
    """Return stat results and digest of a file; read it again if it changes meanwhile."""
    for _ in range(_TRIES):
        with Path(path).open("rb") as file:
            before = _facts(os.fstat(file.fileno()))
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if _facts(os.fstat(file.fileno())) == before:
                return before, digest
    raise OSError(errno.EBUSY, "expected a file that stays the same while it is read", path)


def _read_record(folder: Path) -> dict[str, tuple[_Stat, str]]:
    """Return the record of a folder that only its user can write; empty if it is damaged or cannot be used."""
    try:
        check_cache_folder(folder)
        data = read_sealed(folder / _RECORD, _MAGIC, _RECORD_BYTES_MAX)
    except (PackageError, OSError):
        return {}
    if data is None:
        return {}
    try:
        return {path: _known(row) for path, row in json.loads(data).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _known(row: Any) -> tuple[_Stat, str]:
    device, inode, size, content, node, digest = row
    facts = (device, inode, size, content, node)
    if not all(type(fact) is int for fact in facts) or type(digest) is not str:
        raise TypeError("expected five integers and a digest")
    return facts, digest
