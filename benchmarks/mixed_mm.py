"""Time products with 4-bit weights against cuBLAS and torch's own kernel, in one run: ratios, bars, and a chart.

    python benchmarks/mixed_mm.py BUNDLES [--rounds 20] [--only decode,prefill] [--svg FILE] [--compile]

The shapes are those with promised speed: projections of models, for 1 to 64 tokens (`decode`) and for 1024 and 4096 (`prefill`).
Operands are random bf16; weights have no scales, or groups of 128. cuBLAS multiplies the same weights in bf16. Up to 64 tokens,
torch._weight_int4pack_mm takes part with its own packing and groups of 128. Each call runs in a CUDA graph after an L2 flush,
contenders take turns, and figures are medians of device time. `--compile` adds torch.compile(mode="max-autotune") of unpacking
and product; it needs Triton and takes minutes. Exits 1 if a result is wrong or a bar is missed: up to 16 tokens at 8192 x 8192,
3 times cuBLAS and 1.3 times torch's kernel; at any other shape of up to 64 tokens, 0.8 times either; from 1024 tokens on,
0.75 times cuBLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from contest import OURS, Promise, Row, arguments, report
from timing import check, compiled, race
from torch import Tensor

GROUP = 128
GROUPS = ("decode", "prefill")
PROMISES = {
    ("decode", "cuBLAS"): Promise(least=0.8),
    ("decode", "torch"): Promise(least=0.8),
    ("prefill", "cuBLAS"): Promise(mean=0.75, least=0.75),
}
FEW = 16
"""The most tokens for the bars at few tokens."""
BARRED = (8192, 8192)
"""Columns and depth for these bars."""
BARS = {"cuBLAS": 3.0, "torch": 1.3}
APART = 0.02
"""Largest error, as a share of the largest value."""
DECODED = 64
"""The most tokens in `decode`, and for torch's kernel."""


def packed_by_torch(cols: int, depth: int) -> Callable[[Tensor], Tensor] | None:
    """Return torch's kernel with random weights in its packing; None if this torch lacks it."""
    try:
        wide = torch.randint(0, 256, (cols, depth // 2), device="cuda", dtype=torch.uint8)
        weights = torch._convert_weight_to_int4pack(wide, 8)  # noqa: SLF001 - torch offers no other way
        scales = torch.rand(depth // GROUP, cols, 2, device="cuda", dtype=torch.bfloat16)
    except (AttributeError, RuntimeError) as error:
        print(f"torch's kernel is left out: {error}")
        return None
    return lambda a: torch._weight_int4pack_mm(a, weights, GROUP, scales)  # noqa: SLF001 - as above


def measure(shape: tuple[int, int, int], rounds: int, compile_too: bool) -> Row:
    """Check the results of a shape, and time it."""
    from nojit.kernels.mixed_mm import uint4x2_mixed_mm
    from nojit.kernels.mixed_mm.reference import uint4x2_mixed_mm as torchs
    from nojit.kernels.mixed_mm.reference import unpack

    tokens, cols, depth = shape
    group, label = group_of(shape), f"{tokens} tokens, {depth} to {cols}"
    a = torch.randn(tokens, depth, device="cuda", dtype=torch.bfloat16)
    b = torch.randint(0, 256, (depth // 2, cols), device="cuda", dtype=torch.uint8)
    scales = torch.rand(depth // GROUP, cols, device="cuda", dtype=torch.bfloat16)
    # column-major as the weights of linear layers, for which cuBLAS is fastest
    weights = unpack(b, torch.bfloat16).T.contiguous().T
    calls: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: uint4x2_mixed_mm(a, b),
        f"{OURS}, scaled": lambda: uint4x2_mixed_mm(a, b, scales=scales, group_size=GROUP),
        "cuBLAS": lambda: torch.mm(a, weights),
    }
    if group == "decode" and (packed := packed_by_torch(cols, depth)) is not None:
        calls["torch"] = lambda: packed(a)
    if compile_too:
        tuned = compiled(torchs)
        calls["compiled"] = lambda: tuned(a, b)
    where = f"{group}, {label}"
    check(where, calls[OURS](), calls["cuBLAS"](), APART)
    check(where, calls[f"{OURS}, scaled"](), torchs(a, b, scales=scales, group_size=GROUP), APART)
    ms = race(calls, rounds, where)
    moved = b.numel() + 2 * (a.numel() + tokens * cols)
    barred = tokens <= FEW and (cols, depth) == BARRED
    return Row(group, label, ms, 0, moved, BARS if barred else {})


def group_of(shape: tuple[int, int, int]) -> str:
    """Return the group of a shape."""
    return GROUPS[shape[0] > DECODED]


def list_rows(only: Sequence[str], rounds: int, compile_too: bool) -> Iterator[Row]:
    """Measure the requested groups, one shape after the other."""
    from nojit.kernels.mixed_mm.problems import BARS as SHAPES

    for shape in (*SHAPES["mixed_mm_few"], *SHAPES["mixed_mm_sm90"]):
        if group_of(shape) in only:
            yield measure(shape, rounds, compile_too)
            torch.cuda.empty_cache()


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    given = arguments(__doc__, GROUPS, rounds=20)
    torch.manual_seed(0)
    rows = list_rows(given.only, given.rounds, given.compile)
    report(rows, PROMISES, "Products with weights of 4 bits", f"us of bf16; {torch.cuda.get_device_name()}", given.svg)


if __name__ == "__main__":
    main()
