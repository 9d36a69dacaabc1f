"""Hash Triton's files once for all tests: a build with a new cache folder reads a gigabyte, which is more work than the rest of it."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from nojit.aot.cache.folder import as_default, default_cache_folder
from nojit.aot.compile.toolchain.digests import file_digest, tree_digest

__all__ = ["with_digests"]

# of a cache folder, where a build keeps them
_RECORD = "files"


def with_digests(folder: Path) -> Path:
    """Make a cache folder that has the digests of Triton's files and nothing else, unless it exists; return it.

    They hold as long as the files do: each stands beside what ``stat`` says of its file.
    """
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        (folder / _RECORD).write_bytes(_record())
        (folder / _RECORD).chmod(0o600)
    return folder


@cache
def _record() -> bytes:
    triton = find_spec("triton")
    assert triton is not None
    assert triton.submodule_search_locations is not None
    places = list(triton.submodule_search_locations)
    with tempfile.TemporaryDirectory() as folder:
        known = default_cache_folder() / _RECORD
        if known.is_file():
            shutil.copy(known, folder)
        with as_default(Path(folder)):
            for place in places:
                for tool in sorted(Path(place).glob("backends/nvidia/bin/ptxas*")):
                    file_digest(str(tool))
            tree_digest(places)
        return (Path(folder) / _RECORD).read_bytes()
