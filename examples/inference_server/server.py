"""A server of a language model: streamed tokens, health and metrics.

    python examples/inference_server/server.py [--backend nojit|torch|jit] [--bundles FOLDER] [--port 8000]

POST /generate ``{"prompt": [1, 2, 3], "max_tokens": 16, "temperature": 0.0}``
    a line of JSON for each token, ``{"token": 7}``; last ``{"done": true}``, or ``{"error": "..."}``
GET /health
    200 if the device is usable, 503 once only a new process can serve
GET /metrics
    for Prometheus
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import preload
from shape import SMALL, Shape

REHEARSED = tuple(1 << power for power in range(4, 13))
"""Default lengths of prompts to rehearse before the first request."""


def read_words() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["nojit", "torch", "jit"], default="nojit")
    parser.add_argument("--bundles", help="file or folder of bundles; by default where nojit searches")
    parser.add_argument("--manifests", type=Path, help="manifests for the JIT; by default those of this checkout")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--small", action="store_true", help="serve a toy model, for the CPU")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--queue", type=int, default=32, help="maximum number of waiting requests")
    parser.add_argument(
        "--count-launches", action="store_true", help="count launches in the metrics, which costs a microsecond each"
    )
    parser.add_argument("--forbid-triton", action="store_true", help="make any import of Triton an error")
    parser.add_argument("--warm", type=int, default=0, help="answer a prompt of this length before the first request")
    parser.add_argument(
        "--rehearse",
        type=int,
        nargs="*",
        metavar="TOKENS",
        default=REHEARSED,
        help="rehearse prompts of these lengths before the first request; by default %(default)s",
    )
    given = parser.parse_args()
    if not re.fullmatch(r"cpu|cuda(:\d+)?", given.device):
        parser.error(f"--device: expected cpu, cuda or cuda:N, got {given.device!r}")
    if given.backend == "nojit" and given.device == "cpu":
        parser.error("--device: expected a GPU for the backend nojit, got 'cpu'")
    return given


def main() -> None:
    """Start loading kernels, import torch meanwhile, make a model and serve it."""
    given = read_words()
    if given.forbid_triton:
        sys.modules["triton"] = None  # type: ignore[assignment]
    if given.bundles:
        os.environ["NOJIT_BUNDLES"] = given.bundles
    shape = SMALL if given.small else Shape()
    ordinal = int(given.device.partition(":")[2] or 0)
    begun = preload.begin(ordinal, shape.dim) if given.backend == "nojit" else None
    # the driver starts and images load while this imports torch
    try:
        from serving import serve
    except ModuleNotFoundError as error:
        sys.exit(f"error: expected {error.name} to be installed: pip install 'nojit[serve]'")

    serve(given, shape, begun)


if __name__ == "__main__":
    main()
