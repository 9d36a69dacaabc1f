"""Time attention, forward and backward, against cuDNN and FlashAttention-2, in one run: TFLOP/s and ratios.

    python benchmarks/attention.py BUNDLES [--rounds 12] [--passes forward,fp8,backward] [--svg FILE]

Operands are random bf16. Each call follows an L2 flush, contenders take turns, and figures are medians of device time from
events. A backward pass counts as 2.5 forward passes, as is usual. Torch's flex attention takes part in some causal shapes only,
because each must be compiled, which takes seconds. The pass fp8 is a forward pass whose operands all contenders hold exactly: nojit
in e4m3, the others in bf16. Exits 1 if a result differs from cuDNN's by more than rounding.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from nojit.aot.bench.plot import Bar, Chart, Group, svg
from timing import time_ms
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

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
    compiled: tuple[str, ...] = ()
    """The passes in which torch's compiled flex attention takes part."""

    @property
    def name(self) -> str:
        """The call in words."""
        mask = "causal" if self.causal else "full"
        return f"B{self.batch} H{self.heads}/{self.kv_heads} S{self.length} D{self.dim} {mask}"

    @property
    def flops(self) -> float:
        """Floating-point operations of both forward products; half of them under a causal mask."""
        return 4 * self.batch * self.heads * self.length**2 * self.dim * (0.5 if self.causal else 1.0)


SHAPES = (
    Shape(4, 32, 32, 4096, 128, False),
    Shape(4, 32, 32, 4096, 128, True, ("forward", "backward")),
    Shape(2, 32, 32, 8192, 128, True),
    Shape(1, 32, 32, 16384, 128, True, ("forward", "backward")),
    Shape(1, 32, 8, 16384, 128, True, ("forward",)),
    Shape(4, 32, 32, 4096, 64, False),
    Shape(4, 32, 32, 4096, 64, True, ("forward",)),
    Shape(4, 32, 32, 1024, 128, True),
    Shape(4, 16, 16, 4096, 256, False),
    Shape(4, 16, 16, 4096, 256, True),
)


Call = Callable[[], tuple[Tensor, ...]]


def attentions(shape: Shape) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Return the contenders: nojit, with and without TMA descriptors, and torch's backends."""
    from nojit.kernels.attention.band_masks import band_mask_of
    from nojit.kernels.attention.outputs import allocate_output
    from nojit.kernels.flash_attention import flash_attention
    from nojit.kernels.flash_attention import launch as flash_launch

    def torchs(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(
                q, k, v, is_causal=shape.causal, enable_gqa=shape.heads != shape.kv_heads
            )

    def pointers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = allocate_output(q, v)
        mask = band_mask_of(shape.length, shape.length, shape.causal, "top_left", None, None)
        flash_launch.launch_over_pointers(q, k, v, out, None, shape.dim**-0.5, mask)
        return out

    return {
        "nojit": lambda q, k, v: flash_attention(q, k, v, is_causal=shape.causal),
        "nojit, pointers": pointers,
        "cuDNN": partial(torchs, SDPBackend.CUDNN_ATTENTION),
        "FA2": partial(torchs, SDPBackend.FLASH_ATTENTION),
    }


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
    """Return whether a query sees a key: at or before its own position."""
    return q >= k


def contenders(shape: Shape, which: str) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Return the contenders of a pass, with torch's flex attention compiled for the shape."""
    found = attentions(shape)
    if which not in shape.compiled:
        return found
    mask = flex_attention.create_block_mask(causal, None, None, shape.length, shape.length, "cuda")
    torch.compiler.reset()
    compiled = torch.compile(flex_attention.flex_attention, fullgraph=True, dynamic=False)
    gqa = shape.heads != shape.kv_heads
    return found | {"flex": lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=gqa)}


def operands(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries, keys and values."""
    heads = (shape.heads, shape.kv_heads, shape.kv_heads)
    q, k, v = (
        torch.randn(shape.batch, count, shape.length, shape.dim, device="cuda", dtype=torch.bfloat16) for count in heads
    )
    return q, k, v


def forwards(shape: Shape) -> dict[str, Call]:
    """Return the forward passes over one set of operands."""
    given = operands(shape)
    return {name: lambda attend=attend: (attend(*given),) for name, attend in contenders(shape, "forward").items()}


def fp8_forwards(shape: Shape) -> dict[str, Call]:
    """Return forward passes over operands in e4m3, and over the same in bf16."""
    small = [value.to(torch.float8_e4m3fn) for value in operands(shape)]
    wide = [value.to(torch.bfloat16) for value in small]
    ours, torchs = ("nojit", "nojit, pointers"), ("cuDNN", "FA2")
    found = attentions(shape)
    return {
        **{name: lambda attend=found[name]: (attend(*small),) for name in ours},
        "nojit, bf16": lambda: (found["nojit"](*wide),),
        **{name: lambda attend=found[name]: (attend(*wide),) for name in torchs},
    }


def backwards(shape: Shape) -> dict[str, Call]:
    """Return the backward passes of contenders that have one, each after its own forward pass."""
    given = operands(shape)
    grad = torch.randn_like(given[0])
    calls: dict[str, Call] = {}
    for name, attend in contenders(shape, "backward").items():
        if name != "nojit, pointers":
            own = tuple(value.detach().requires_grad_() for value in given)
            calls[name] = partial(torch.autograd.grad, attend(*own), own, grad, retain_graph=True)
    return calls


PASSES = {"forward": (forwards, 1.0), "fp8": (fp8_forwards, 1.0), "backward": (backwards, 2.5)}


def measure(shape: Shape, which: str, rounds: int) -> tuple[Group, bool]:
    """Measure a shape and print one line; return its rates for the chart, and whether the results agree."""
    make, weight = PASSES[which]
    calls = make(shape)
    expected = calls["cuDNN"]()
    agree = all(
        float((value.float() - right.float()).abs().max()) <= APART * max(1.0, float(right.abs().max()))
        for call in calls.values()
        for value, right in zip(call(), expected, strict=True)
    )
    rates = {name: weight * shape.flops / ms / 1e9 for name, ms in time_ms(calls, rounds).items()}
    words = "  ".join(f"{name} {rate:4.0f}" for name, rate in rates.items())
    ratios = ", ".join(
        f"{rates['nojit'] / rate:.2f} x {name}" for name, rate in rates.items() if not name.startswith("nojit")
    )
    print(f"{which} {shape.name}: {words}  ({ratios}){'' if agree else '  DIFFERS'}", flush=True)
    bars = tuple(Bar(name, ((name, rate),), f"{rate:.0f} TFLOP/s") for name, rate in rates.items())
    return Group(f"{which}, {shape.name}", bars), agree


def chart(groups: list[Group]) -> Chart:
    """Return a chart of every rate, grouped by shape."""
    return Chart("Attention", f"TFLOP/s of bf16; {torch.cuda.get_device_name()}", tuple(groups))


def main() -> None:
    """Measure every shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    os.environ["NOJIT_BUNDLES"] = given.bundles
    torch.manual_seed(0)
    # a list, so that every shape is measured even after one differs
    measured = [measure(shape, which, given.rounds) for which in given.passes.split(",") for shape in SHAPES]
    if given.svg:
        given.svg.write_text(svg(chart([group for group, _ in measured])), encoding="utf-8")
    sys.exit(0 if all(agree for _, agree in measured) else 1)


if __name__ == "__main__":
    main()
