"""The nojit that computes keys and compiles: its version, and a digest of its code."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from nojit.aot.compile.toolchain.digests import tree_digest

__all__ = ["nojit_version"]

# what shapes keys, images and messages; the whole of nojit would refuse workers for a change of a page or command
_PARTS: Final = ("backends", "cache", "compile", "plan", "remote", "variants")


@lru_cache(maxsize=1)
def nojit_version() -> str:
    """Return nojit's version, with twelve digits of a digest of the code that compiles: ``0.1.0 (1f0c2d3e4a5b)``.

    Raises:
        OSError: a file of nojit cannot be read.
    """
    folder = Path(__file__).resolve().parents[1]
    digest = tree_digest([str(folder / part) for part in _PARTS], {})
    return f"{version('nojit')} ({digest[:12]})"
