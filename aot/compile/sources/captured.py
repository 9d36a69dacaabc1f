"""Source closures of one kernel as data: what another machine needs to compile its variants."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Captured"]


class Captured(NamedTuple):
    """The source closures of a kernel and of the functions that its variants take as constexprs."""

    kernel: str
    """Digest of the kernel's own closure."""
    functions: tuple[tuple[str, str], ...]
    """Name of each function as `FunctionRef` spells it, with the digest of its closure; sorted."""
    closures: tuple[tuple[str, bytes], ...]
    """Digest and canonical JSON of each closure (`nojit.runtime.recording.closure`), sorted."""
    files: tuple[tuple[str, str], ...]
    """File names that a compiler error gives on the other machine, each with the source file on this one."""
