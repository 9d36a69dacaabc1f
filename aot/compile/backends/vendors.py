"""Choice of the GPU vendor for an arch. Pure.

It gives only facts that need no Triton; the compiler chooses the modules that import Triton.
"""

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
    """Return the module with the facts of the vendor whose GPUs have the given arch."""
    return _FACTS[target_of(arch).backend]
