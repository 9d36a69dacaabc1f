"""Time the host overhead of operators over bare launches of their kernels, without gradients.

    python benchmarks/operators.py [BUNDLES] [--rounds 40]

BUNDLES is a file or folder with the kernels. Operator and launch take turns, 200 calls of each after a synchronization, on
operands so small that the device keeps up; figures are medians of the rounds. The bare launch gets the operator's own
arguments, prepared beforehand: the difference is validation, look-ups, and allocation of the result. Exits 1 if it exceeds
3 us. Without BUNDLES, operands are on the CPU and kernels do nothing: this needs no GPU, and finds calls that are not cached.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

BAR_US = 3.0
CALLS = 200


def calls(device: str) -> dict[str, Callable[[], Any]]:
    """Return a call of each operator."""
    from nojit.kernels.b2b_gemm import b2b_gemm
    from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul, block_sparse_softmax
    from nojit.kernels.bmm import baddbmm, bmm, mm
    from nojit.kernels.conv import conv2d
    from nojit.kernels.flash_attention import flash_attention
    from nojit.kernels.flex import SoftCap, create_block_mask, flex_attention
    from nojit.kernels.flex_decoding import flex_decoding
    from nojit.kernels.grouped_mm import grouped_mm
    from nojit.kernels.mixed_mm import uint4x2_mixed_mm
    from nojit.kernels.mm_plus_mm import mm_plus_mm
    from nojit.kernels.norm import add_rms_norm, rms_norm
    from nojit.kernels.pointwise import clamp, gelu, swiglu, vector_add
    from nojit.kernels.rotary import rotary_qk, rotary_to_cache
    from nojit.kernels.scaled_grouped_mm import scaled_grouped_mm
    from nojit.kernels.scaled_mm import scaled_mm

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16)

    x, y = random(1024), random(1024)
    q, k, v = (random(1, 2, 64, 64) for _ in range(3))
    m, batch = random(64, 64), random(2, 64, 64)
    others = [random(64, 64) for _ in range(3)]
    small, one = m.to(torch.float8_e4m3fn), torch.ones((), device=device)
    experts, scales = torch.stack([small, small]).mT, (torch.ones(64, device=device), torch.ones(2, 64, device=device))
    turned, ends = small.t(), torch.tensor([20, 64], device=device, dtype=torch.int32)
    packed = torch.zeros(32, 64, device=device, dtype=torch.uint8)
    layout = BlockLayout(torch.ones(2, 2, 2, dtype=torch.bool), 64)
    a, s = random(1, 2, 128, 64), random(1, layout.nnz, 64, 64)
    tokens, few = random(2, 4, 64), random(2, 2, 64)
    cos, sin, caches = random(8, 32), random(8, 32), [random(2, 2, 16, 64) for _ in range(2)]
    positions = torch.arange(2, device=device)
    row, cap = random(1, 2, 1, 64), SoftCap(20.0)
    mask = create_block_mask(lambda _b, _h, q_idx, k_idx: q_idx >= k_idx, None, None, 64, 64, device=device)
    image, taps, weight = (
        random(2, 64, 16, 16),
        torch.nn.Parameter(random(64, 64, 3, 3)),
        torch.nn.Parameter(random(64)),
    )
    return {
        "vector_add": lambda: vector_add(x, y),
        "vector_add, out=": lambda: vector_add(x, x, out=y),
        "gelu": lambda: gelu(x),
        "swiglu": lambda: swiglu(x, y),
        "clamp": lambda: clamp(x, 0, 6),
        "rms_norm": lambda: rms_norm(m, weight),
        "add_rms_norm": lambda: add_rms_norm(m, m, weight),
        "rotary_qk": lambda: rotary_qk(tokens, few, cos, sin, positions),
        "rotary_to_cache": lambda: rotary_to_cache(tokens, few, few, cos, sin, positions, positions, *caches),
        "flash_attention": lambda: flash_attention(q, k, v),
        "flash_attention, causal": lambda: flash_attention(q, k, v, is_causal=True),
        "flex_attention": lambda: flex_attention(q, k, v),
        "flex_attention, causal": lambda: flex_attention(q, k, v, block_mask=mask),
        "flex_attention, cap": lambda: flex_attention(q, k, v, cap),
        "flex_decoding": lambda: flex_decoding(row, k, v),
        "flex_decoding, window, cap": lambda: flex_decoding(row, k, v, cap, is_causal=True, window=(32, 0)),
        "mm": lambda: mm(m, m),
        "bmm": lambda: bmm(batch, batch),
        "baddbmm, gelu": lambda: baddbmm(m, batch, batch, activation="gelu"),
        "baddbmm, numbers": lambda: baddbmm(batch, batch, batch, beta=1, alpha=2),
        "mm_plus_mm": lambda: mm_plus_mm(m, *others),
        "uint4x2_mixed_mm": lambda: uint4x2_mixed_mm(m, packed),
        "b2b_gemm, gelu": lambda: b2b_gemm(m, *others[:2], activation="gelu"),
        "grouped_mm": lambda: grouped_mm(m, batch, ends),
        "scaled_grouped_mm": lambda: scaled_grouped_mm(small, experts, *scales, ends),
        "scaled_mm": lambda: scaled_mm(small, turned, one, one),
        "conv2d": lambda: conv2d(image, taps, weight, padding=(1, 1)),
        "block_sparse_softmax": lambda: block_sparse_softmax(s, layout, scale=0.125),
        "block_sparse_matmul, sdd": lambda: block_sparse_matmul(a, a, layout, "sdd", trans_b=True),
        "block_sparse_matmul, dsd": lambda: block_sparse_matmul(s, a, layout, "dsd"),
    }


def microseconds(call: Callable[[], Any]) -> float:
    """Return the time of a call in us, one of many without synchronization."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS / 1e3


def measure(call: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Return the medians of an operator and of the bare launch."""
    from nojit.kernels import library
    from nojit.kernels.problem import requested

    call()
    launch, result = requested(call)
    kernel = library.get(launch.kernel)
    args, named = launch.args, dict(launch.named)

    def bare() -> None:
        kernel(*args, **named)

    times: dict[Callable[[], Any], list[float]] = {call: [], bare: []}
    for _ in range(rounds):
        for contender, found in times.items():
            found.append(microseconds(contender))
    del result
    return statistics.median(times[call]), statistics.median(times[bare])


def report(device: str, rounds: int) -> list[str]:
    """Measure and print; return the names of operators that exceed the bar."""
    slow = []
    print(f"{'operator':<28} {'operator us':>12} {'launch us':>10} {'above us':>9}")
    with torch.no_grad():
        for name, call in calls(device).items():
            operator, bare = measure(call, rounds)
            print(f"{name:<28} {operator:>12.2f} {bare:>10.2f} {operator - bare:>9.2f}", flush=True)
            if operator - bare > BAR_US:
                slow.append(name)
    return slow


def nothing(*args: Any, **named: Any) -> None:
    """Do nothing, in place of a kernel."""


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="?")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    if given.bundles is None:
        from nojit.kernels import library

        print(f"CPU, torch {torch.__version__}")
        with library.override(lambda _: nothing):
            slow = report("cpu", given.rounds)
    else:
        os.environ["NOJIT_BUNDLES"] = given.bundles
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
        slow = report("cuda", given.rounds)
    print(f"more than {BAR_US:g} us above the launch: {', '.join(slow) or 'none'}")
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
