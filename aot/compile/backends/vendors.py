"""Choice of the vendor that an arch belongs to. Pure: the halves that import Triton are chosen by the compiler."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from nojit.aot.compile.backends.cuda import facts as cuda
from nojit.aot.compile.backends.interface import Facts
from nojit.aot.manifest.archs import target_of

__all__ = ["facts_of"]

# by the backend in a bundle's target
_FACTS: Final[Mapping[str, Facts]] = {"cuda": cuda}


@lru_cache(maxsize=64)
def facts_of(arch: str) -> Facts:
    """Return the facts of the GPUs that an arch belongs to."""
    return _FACTS[target_of(arch).backend]
