"""Launch this package's kernels from the bundles beside this file."""

import os
from pathlib import Path


def bundled(function):
    """Return what launches a ``@triton.jit`` function from the bundles of this folder; without them, the function itself."""
    folder = Path(__file__).parent
    # a recording holds what Triton launches
    if os.environ.get("NOJIT_RECORD") or not any(folder.glob("*.nojit")):
        return function
    try:
        import nojit
    except ImportError:
        return function
    return nojit.serve_function(function, folder, miss=os.environ.get("NOJIT_MISS") or "jit")
