"""What a toolchain is by content: digests of Triton's files and of ptxas, which a version does not tell apart.

A digest covers what shapes machine code and nothing of where it lies: a wheel that is unpacked twice has one digest. Each
file is read once for a machine. The cache folder holds a record of their digests, each with what ``stat`` said of the file,
and a file is read again once ``stat`` says something else. Triton is not imported.
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

from nojit.aot.cache import check_folder, default_cache_folder, read_regular, replace_file
from nojit.aot.facts import SETTLED_NS
from nojit.runtime.errors import PackageError

__all__ = ["LEFT_OUT", "file_digest", "file_digests", "files_in", "record_paths", "toolchain_words", "tree_digest"]

LEFT_OUT: Final[dict[str, str]] = {
    "FileCheck": "a tool of Triton's own tests",
    "_C/libproton.so": "the profiler",
    "backends/amd/codegen": "compiles for AMD's GPUs",
    "backends/amd/include": "headers of launchers for AMD's GPUs",
    "backends/amd/lib": "compiles for AMD's GPUs",
    "backends/nvidia/bin": "ptxas has a digest of its own; cuobjdump and nvdisasm only look",
    "backends/nvidia/include": "headers of the launchers that Triton compiles when it launches",
    "backends/nvidia/lib/cupti": "the profiler",
    "backends/nvidia/lib/cupti-blackwell": "the profiler",
    "include": "headers of plugins",
    "instrumentation": "loaded only if LLVM_PASS_PLUGIN_PATH names it, and hashed then",
    "plugins": "loaded only if TRITON_PLUGIN_PATHS names them, and hashed then",
}
"""What of Triton's folder shapes no machine code for NVIDIA's GPUs, and why. Neither does `__pycache__`: Python makes it of
files that are hashed."""

_RECORD: Final = "files"
_MAGIC: Final = b"nojit-files-1\n"
_RECORD_BYTES_MAX: Final = 16 << 20
_RECORD_FILES_MAX: Final = 20_000
# how often a file may change while it is read
_TRIES: Final = 10

_Stat: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size in bytes, and when content and inode changed, in ns."""


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file, in hex.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    return file_digests([path])[path]


def file_digests(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files, in hex, by path.

    Raises:
        OSError: one cannot be read, or is no regular file.
    """
    digests = _digests(default_cache_folder())
    found = {path: digests.of(path) for path in paths}
    digests.save()
    return found


def tree_digest(folders: Iterable[str], left_out: Mapping[str, str] = LEFT_OUT) -> str:
    """Return a digest of all files in folders, in hex: of their paths in there and of what is in them.

    Args:
        folders: where a package lies; most have one.
        left_out: files and folders of no consequence, from the package's root.

    Raises:
        OSError: a file cannot be read.
    """
    digests = _digests(default_cache_folder())
    rows = sorted((name, digests.of(path)) for folder in folders for name, path in files_in(folder, left_out))
    digests.save()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def files_in(folder: str, left_out: Mapping[str, str] = LEFT_OUT) -> Iterator[tuple[str, str]]:
    """List the files of a package that count: the path from its root, and the path to open. Symbolic links are followed.

    Raises:
        OSError: a folder cannot be read.
    """
    yield from _files_in(folder, "", left_out, (os.path.realpath(folder),))


def _files_in(
    folder: str, inside: str, left_out: Mapping[str, str], above: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}{entry.name}"
            if entry.name == "__pycache__" or name in left_out:
                continue
            if not entry.is_dir():
                # a link that leads nowhere is nothing that can be imported
                if entry.is_file():
                    yield name, entry.path
                continue
            real = os.path.realpath(entry.path)
            if real not in above:
                yield from _files_in(entry.path, f"{name}/", left_out, (*above, real))


def toolchain_words(tools: Sequence[tuple[str, str]]) -> str:
    """Put a toolchain into words: ``ptxas 13.4 (1f0c2d3e4a5b), triton 3.9.0 (0a1b2c3d4e5f), zstandard 0.25.0``."""
    known = dict(tools)
    words = []
    for tool, version in sorted(known.items()):
        if tool == "settings":
            words.append(f"with {version}")
        elif not tool.endswith(".digest"):
            digest = known.get(f"{tool}.digest")
            words.append(f"{tool} {version} ({digest[:12]})" if digest else f"{tool} {version}")
    # settings are of no tool, so they stand behind all
    return ", ".join(sorted(words, key=lambda word: word.startswith("with ")))


# -- the record --------------------------------------------------------------------------------------------------------


def record_paths() -> tuple[str, ...]:
    """Return the paths that reading the record touches: what lies there changes how long a build takes and nothing else."""
    folder = default_cache_folder().absolute()
    return str(folder), str(folder / _RECORD)


class _Digests:
    """SHA-256 of files, each with what ``stat`` said of it.

    Args:
        folder: where the record lies. Where it cannot be used, files are read again: that is no error.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorded = _read_record(folder)
        self._known = dict(self._recorded)
        self._changed = False

    def of(self, path: str) -> str:
        """Return the digest of a file.

        Raises:
            OSError: it cannot be read, or is no regular file.
        """
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            # a FIFO would have us wait
            raise OSError(errno.EINVAL, "expected a regular file", path)
        known = self._known.get(path)
        if known is None or known[0] != _facts(status):
            known = self._known[path] = _read(path)
            if time.time_ns() - max(known[0][3:]) > SETTLED_NS:
                self._recorded[path] = known
                self._changed = True
        return known[1]

    def save(self) -> None:
        """Write what is new into the record; of several processes the last one wins."""
        if not self._changed:
            return
        self._changed = False
        if len(self._recorded) > _RECORD_FILES_MAX:
            # of Tritons that are gone, most of them
            self._recorded = {path: known for path, known in self._recorded.items() if Path(path).exists()}
        rows = {path: [*facts, digest] for path, (facts, digest) in self._recorded.items()}
        data = json.dumps(rows, separators=(",", ":")).encode()
        try:
            check_folder(self._folder)
            replace_file(self._folder / _RECORD, _MAGIC + hashlib.sha256(data).digest() + data)
        except (PackageError, OSError):
            # the next build reads the files again
            return


@lru_cache(maxsize=8)
def _digests(folder: Path) -> _Digests:
    return _Digests(folder)


def _facts(found: os.stat_result) -> _Stat:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: str) -> tuple[_Stat, str]:
    """Hash a file, again if it was written meanwhile."""
    for _ in range(_TRIES):
        with Path(path).open("rb") as file:
            before = _facts(os.fstat(file.fileno()))
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if _facts(os.fstat(file.fileno())) == before:
                return before, digest
    raise OSError(errno.EBUSY, "expected a file that stays the same while it is read", path)


def _read_record(folder: Path) -> dict[str, tuple[_Stat, str]]:
    """Read the record of a folder that only its user can write; nothing of it if it is damaged."""
    try:
        check_folder(folder)
        raw = read_regular(folder / _RECORD, _RECORD_BYTES_MAX)
    except (PackageError, OSError):
        return {}
    start = len(_MAGIC) + 32
    data = raw[start:]
    if not raw.startswith(_MAGIC) or raw[len(_MAGIC) : start] != hashlib.sha256(data).digest():
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
