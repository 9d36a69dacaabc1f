"""A plugin for vLLM: the kernels that vLLM warms up and launches come from bundles, and Triton compiles the others.

vLLM calls `register` in each of its processes, before they do any work.
"""

import os

import nojit

BUNDLES = "vllm-kernels"
"""Name of an installed wheel of bundles, or a path."""

_serving: list[object] = []


def register() -> None:
    """Serve this process, unless it is served or recorded already. vLLM may call it several times."""
    if _serving or os.environ.get("NOJIT_SERVE") or os.environ.get("NOJIT_RECORD"):
        return
    # vLLM warms up more keys than a recording holds, and an error there would end its start
    _serving.append(nojit.serve(BUNDLES, miss=os.environ.get("NOJIT_MISS", "warn")))
