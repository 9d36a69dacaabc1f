"""Ship Triton kernels without the JIT: `nojit.aot` compiles, `nojit.runtime` loads and launches, `nojit.kernels` is a library.

Nothing is imported here. The file makes `nojit` a regular package: without it, a folder named nojit in Python's working
directory would take precedence over the installed one.
"""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """Return the version, looked up on first use."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - slow to import

    return version("nojit")
