"""The file of a stamp: a command's key, and the content that is stored under it in the folder `stamps` of the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nojit.aot.base.files import read_sealed, write_sealed
from nojit.aot.cache.folder import check_cache_folder
from nojit.runtime.errors import PackageError

__all__ = ["MAGIC", "UNCOUNTED", "asked_of", "read_stamp", "write_stamp"]

UNCOUNTED: Final = frozenset(
    {
        "COLORTERM",
        "COLUMNS",
        "FORCE_COLOR",
        "LINES",
        "LS_COLORS",
        "NO_COLOR",
        "OLDPWD",
        "PWD",
        "SHLVL",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "STY",
        "TERM",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "TERM_SESSION_ID",
        "TMUX",
        "TMUX_PANE",
        "WINDOWID",
        "_",
    }
)
"""Environment variables that a stamp ignores, because they describe the shell and the terminal. All others count."""

_FOLDER: Final = "stamps"
# raise it when what a stamp holds means something else
MAGIC: Final = b"nojit-stamp-1\n"
_BYTES_MAX: Final = 64 << 20
# of commands that nobody gives any more, most of them
_STAMPS_MAX: Final = 100


def asked_of(request: Mapping[str, Any]) -> str:
    """Return the key under which a command's stamp is stored: a JSON text.

    It covers the command's request, the working folder, the environment, Python, and the machine.

    Args:
        request: the options and arguments of the command, as JSON values.
    """
    environment = sorted(pair for pair in os.environ.items() if pair[0] not in UNCOUNTED)
    facts = {
        "request": request,
        "folder": os.getcwd(),  # noqa: PTH109 - as it is called
        # it may hold secrets
        "environment": hashlib.sha256(repr(environment).encode(errors="surrogateescape")).hexdigest(),
        "python": [
            sys.version,
            sys.executable,
            sys.prefix,
            sys.base_prefix,
            list(sys.flags),
            sys.path,
            sys.warnoptions,
        ],
        "options": sorted(f"{name}={value}" for name, value in sys._xoptions.items()),  # noqa: SLF001 - of Python's own
        "machine": [*os.uname(), os.getuid(), os.getgid(), sorted(os.sched_getaffinity(0))],
    }
    return json.dumps(facts, sort_keys=True)


def read_stamp(cache: Path, asked: str) -> dict[str, Any] | None:
    """Return the content of the stamp of a command; None if it is missing, or in a folder that others can write.

    Raises:
        ValueError, LookupError, TypeError: the content is damaged.
    """
    try:
        check_cache_folder(cache)
        check_cache_folder(cache / _FOLDER)
        data = read_sealed(_path(cache, asked), MAGIC, _BYTES_MAX)
    except (PackageError, OSError):
        # the build reports what is wrong with the folder
        return None
    if data is None:
        return None
    kept: dict[str, Any] = json.loads(data)
    return kept if kept["asked"] == asked else None


def _path(cache: Path, asked: str) -> Path:
    return cache / _FOLDER / hashlib.sha256(asked.encode(errors="surrogateescape")).hexdigest()


def write_stamp(cache: Path, asked: str, kept: dict[str, Any]) -> None:
    """Write the stamp of a command, and delete the oldest stamps of others beyond the maximum number.

    Raises:
        PackageError: other users can write to the folder.
        OSError: a system call failed.
    """
    folder = cache / _FOLDER
    check_cache_folder(cache)
    folder.mkdir(mode=0o700, exist_ok=True)
    check_cache_folder(folder)
    data = json.dumps(kept, separators=(",", ":")).encode()
    if len(data) < _BYTES_MAX:
        write_sealed(_path(cache, asked), MAGIC, data)
    _prune(folder)


def _prune(folder: Path) -> None:
    """Delete the oldest stamps of a folder beyond the maximum number."""
    stamps = sorted(folder.iterdir(), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
    for path in stamps[_STAMPS_MAX:]:
        with contextlib.suppress(OSError):
            path.unlink()
