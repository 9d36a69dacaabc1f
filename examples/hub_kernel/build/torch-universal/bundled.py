"""Launch this package's kernels from the bundles beside this file."""

import os
from pathlib import Path


def bundled(function):
    """Return what launches a ``@triton.jit`` function: its kernel in the bundles of this folder, or without one the function itself."""
    # a recording holds what Triton launches
    if os.environ.get("NOJIT_RECORD"):
        return function
    try:
        from nojit import runtime

        bundle = runtime.load(Path(__file__).parent)
    except (ImportError, FileNotFoundError):
        # nojit is not installed, or nothing is built yet: Triton compiles
        return function
    name = function.__name__
    if name not in bundle.kernels:
        return function
    # for NOJIT_MISS=warn and jit
    runtime.register_source(name, function)
    return bundle.kernel(name)
