"""Layers of the example in a CUDA graph: captured once, replayed with new inputs.

With ``--cold`` the capture is the first launch of each kernel but `add`, whose launch before the capture loads the variants of all.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/record_serve"))

from layers import add, gelu, linear, rms_norm, silu
from outputs import random, say


def main() -> None:
    """Capture the layers and replay them."""
    x, norm = random(64, 256), random(256)
    up, gate, down = random(512, 256, scale=0.06), random(512, 256, scale=0.05), random(256, 512, scale=0.04)

    def block() -> Tensor:
        hidden = rms_norm(x, norm)
        hidden = linear(hidden, up, silu) * linear(hidden, gate, gelu)
        return add(x, linear(hidden, down))

    if "--cold" in sys.argv:
        # a served process preloads at its first launch on the device, which may not be in the capture
        add(x, x)
    else:
        block()
    # torch may not load its own kernels during a capture
    x * x
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = block()
    for number in range(3):
        x.mul_(0.5 + number)
        graph.replay()
        say(f"replay {number}", out)


if __name__ == "__main__":
    main()
