"""Ship Triton kernels without the JIT: `nojit.aot` compiles, `nojit.runtime` loads and launches, `nojit.kernels` is a library.

Nothing is imported here. The file makes `nojit` a regular package: without it, a folder named nojit in Python's working
directory would take precedence over the installed one.
"""

from __future__ import annotations

# `typing` takes longer to import than all of the runtime
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nojit.runtime.recording.session import record
    from nojit.runtime.serve.session import serve, unserve
    from nojit.runtime.serve.single_functions import serve_function

__all__ = ["__version__", "record", "serve", "serve_function", "unserve"]

# functions of the whole loop, by the module that holds them
_PLACES = {
    "record": "nojit.runtime.recording.session",
    "serve": "nojit.runtime.serve.session",
    "serve_function": "nojit.runtime.serve.single_functions",
    "unserve": "nojit.runtime.serve.session",
}


def __getattr__(name: str) -> Any:
    """Return the version or a function of the package, looked up on first use."""
    if name == "__version__":
        from importlib.metadata import version  # slow to import

        return version("nojit")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)
