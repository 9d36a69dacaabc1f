"""The files that this process has open."""

from __future__ import annotations

import contextlib
from pathlib import Path


def open_files(folder: Path) -> list[str]:
    """List what is open below a folder: other threads, and what other tests left, open and close files as well."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return sorted(path for path in found if path.startswith(f"{folder}/"))
