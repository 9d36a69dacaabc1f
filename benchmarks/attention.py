"""Time attention forward beside cuDNN's and FlashAttention-2's, in one run: TFLOP/s and ratios.

    python benchmarks/attention.py BUNDLES [--rounds 12]

Random bf16 operands; each call after a flush of the L2, the contenders in turn, medians of device time by events. Exits 1
if a result differs from cuDNN's by more than rounding explains.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

FLUSH_BYTES = 1 << 28
APART = 0.02


@dataclass(frozen=True)
class Shape:
    """One call."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    dim: int
    causal: bool

    @property
    def flops(self) -> float:
        """Both products; half of them under a causal mask."""
        return 4 * self.batch * self.heads * self.length**2 * self.dim * (0.5 if self.causal else 1.0)


SHAPES = (
    Shape(4, 32, 32, 4096, 128, False),
    Shape(4, 32, 32, 4096, 128, True),
    Shape(2, 32, 32, 8192, 128, True),
    Shape(1, 32, 32, 16384, 128, True),
    Shape(1, 32, 8, 16384, 128, True),
    Shape(4, 32, 32, 4096, 64, False),
    Shape(4, 32, 32, 4096, 64, True),
    Shape(4, 32, 32, 1024, 128, True),
)


def contenders(shape: Shape, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Callable[[], Tensor]]:
    """List who takes part: nojit, with and without tensor maps, and torch's backends."""
    from nojit.kernels.flash_attention import op

    def torchs(backend: SDPBackend) -> Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=shape.causal, enable_gqa=shape.heads != shape.kv_heads
            )

    def pointers() -> Tensor:
        out = torch.empty_like(q)
        op.launch_over_pointers(q, k, v, out, None, shape.dim**-0.5, 0, shape.causal)
        return out

    return {
        "nojit": lambda: op.flash_attention(q, k, v, is_causal=shape.causal),
        "nojit, pointers": pointers,
        "cuDNN": lambda: torchs(SDPBackend.CUDNN_ATTENTION),
        "FA2": lambda: torchs(SDPBackend.FLASH_ATTENTION),
    }


def time_ms(calls: dict[str, Callable[[], Tensor]], rounds: int) -> dict[str, float]:
    """Return the median time of each, in milliseconds."""
    flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            flushed.zero_()
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            call()
            last.record()
            events[name].append((first, last))
    torch.cuda.synchronize()
    return {name: statistics.median(a.elapsed_time(b) for a, b in pairs) for name, pairs in events.items()}


def measure(shape: Shape, rounds: int) -> bool:
    """Print one line; say whether the results agree."""
    q = torch.randn(shape.batch, shape.heads, shape.length, shape.dim, device="cuda", dtype=torch.bfloat16)
    k, v = (
        torch.randn(shape.batch, shape.kv_heads, shape.length, shape.dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(2)
    )
    calls = contenders(shape, q, k, v)
    results = {name: call() for name, call in calls.items()}
    apart = max(float((result.float() - results["cuDNN"].float()).abs().max()) for result in results.values())
    rates = {name: shape.flops / ms / 1e9 for name, ms in time_ms(calls, rounds).items()}
    words = "  ".join(f"{name} {rate:4.0f}" for name, rate in rates.items())
    ratios = ", ".join(f"{rates['nojit'] / rates[name]:.2f} x {name}" for name in ("cuDNN", "FA2"))
    mask = "causal" if shape.causal else "full"
    print(
        f"B{shape.batch} H{shape.heads}/{shape.kv_heads} S{shape.length} D{shape.dim} {mask}: {words}  ({ratios})",
        flush=True,
    )
    return apart <= APART


def main() -> None:
    """Measure every shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    # not lazily: every shape is measured, also after one that differs
    agreed = [measure(shape, given.rounds) for shape in SHAPES]
    sys.exit(0 if all(agreed) else 1)


if __name__ == "__main__":
    main()
