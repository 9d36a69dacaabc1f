"""Ship Triton kernels without the JIT: `nojit.aot` compiles, `nojit.runtime` loads and launches, `nojit.kernels` is a library.

Nothing is imported here. That the file exists makes `nojit` a package of its own: without it, a folder of that name where
Python is started would come before what is installed.
"""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """Look the version up: few ask for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - slow to import

    return version("nojit")
