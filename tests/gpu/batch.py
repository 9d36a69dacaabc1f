"""Runs operators on parts of a batch, as a process of its own, and says for which parts the results are those of the whole.

The environment says whether they have to be (``NOJIT_BATCH_INVARIANT``). Prints one JSON object: by case, whether each part is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from nojit.kernels.b2b_gemm import b2b_gemm
from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul, block_sparse_softmax
from nojit.kernels.bmm import bmm, mm
from nojit.kernels.conv import conv2d
from nojit.kernels.flash_attention import flash_attention
from nojit.kernels.flex import create_block_mask, flex_attention
from nojit.kernels.flex_decoding import flex_decoding
from nojit.kernels.gated_mm import gated_mm
from nojit.kernels.grouped_mm import grouped_mm
from nojit.kernels.mixed_mm import uint4x2_mixed_mm
from nojit.kernels.mm_plus_mm import mm_plus_mm
from nojit.kernels.norm import rms_norm
from nojit.kernels.rotary import rotary_qk
from nojit.kernels.scaled_mm import scaled_mm

PARTS = (1, 2, 7, 16, 17, 48, 64, 65, 200, 600, 1111)
MOST = 2048
Case = tuple[int, Callable[[int], torch.Tensor]]
"""How large the batch is, and what makes the results of so many of its first."""


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Draw an operand."""
    return torch.randn(*shape, device="cuda").to(dtype)


def products() -> Mapping[str, Case]:
    """Rows times weights."""
    a, found = normal(MOST, 4096), {}
    for cols in (512, 4096, 11008):
        b, turned = normal(4096, cols), normal(cols, 4096).t()
        found[f"mm {cols}"] = (MOST, lambda rows, b=b: mm(a[:rows], b))
        found[f"mm {cols}, transposed"] = (MOST, lambda rows, b=turned: mm(a[:rows], b))
    odd, c = normal(MOST, 4097)[:, 1:], normal(4096, 1000)
    found["mm over pointers"] = (MOST, lambda rows: mm(odd[:rows], c))
    whole, same = normal(MOST, 1000, dtype=torch.float32), normal(1000, 300, dtype=torch.float32)
    found["mm fp32"] = (MOST, lambda rows: mm(whole[:rows], same))
    left, right = normal(64, 128, 2048), normal(64, 2048, 128)
    found["bmm"] = (64, lambda count: bmm(left[:count], right[:count]))
    more, others = normal(MOST, 1024), (normal(4096, 512), normal(1024, 512))
    found["mm_plus_mm"] = (MOST, lambda rows: mm_plus_mm(a[:rows], others[0], more[:rows], others[1]))
    found["gated_mm"] = (MOST, lambda rows, b=turned: gated_mm(a[:rows], b))
    few = normal(MOST, 64), normal(64, 512), normal(512, 64)
    for assoc in ("left", "right", "auto"):
        found[f"b2b_gemm {assoc}"] = (MOST, lambda rows, assoc=assoc: b2b_gemm(few[0][:rows], *few[1:], assoc=assoc))
    experts, ends = normal(8, 512, 4096).mT, torch.arange(1, 9, device="cuda", dtype=torch.int32) * (MOST // 8)
    found["grouped_mm"] = (MOST, lambda rows: grouped_mm(a[:rows], experts, ends.clamp(max=rows)))
    return found


def quantized() -> Mapping[str, Case]:
    """Rows times weights of few bits."""
    a, b = normal(MOST, 4096), torch.randint(0, 256, (2048, 4096), device="cuda", dtype=torch.uint8)
    scales = normal(32, 4096)
    small = a.to(torch.float8_e4m3fn)
    found: dict[str, Case] = {
        "int4": (MOST, lambda rows: uint4x2_mixed_mm(a[:rows], b)),
        "int4 in groups": (MOST, lambda rows: uint4x2_mixed_mm(a[:rows], b, scales=scales, group_size=128)),
    }
    for cols in (512, 4096):
        weights, one = normal(cols, 4096).to(torch.float8_e4m3fn).t(), torch.ones((), device="cuda")
        found[f"fp8 {cols}"] = (MOST, lambda rows, w=weights, one=one: scaled_mm(small[:rows], w, one, one))
    return found


def attention() -> Mapping[str, Case]:
    """Sequences beside one another."""
    q, k, v = normal(64, 32, 1, 128), normal(64, 8, 4096, 128), normal(64, 8, 4096, 128)
    lens = torch.randint(1, 4096, (64,), device="cuda", dtype=torch.int32)
    prompt = [normal(16, 8, 1000, 128) for _ in range(3)]
    layout = torch.rand(4, 16, 16).lt(0.3).long()
    layout[:, :, 0] = 1
    sparse = BlockLayout(layout, 32)
    weights, values = normal(16, int(layout.sum()), 32, 32), normal(16, 4, 512, 64)
    column = torch.rand(1, 32, 32).lt(0.1).long()
    column[:, :, 0] = column[:, 0, :] = 1
    one_head = BlockLayout(column, 64)
    tokens, few = normal(1, 1, MOST, 2048), normal(1, int(column.sum()), 64, 64)
    mask = create_block_mask(lambda b, h, q, kv: (q - kv) % 3 == 0, None, None, 1000, 1000, "cuda")
    return {
        "decoding": (64, lambda count: flex_decoding(q[:count], k[:count], v[:count], enable_gqa=True)),
        "decoding with lengths": (
            64,
            lambda count: flex_decoding(q[:count], k[:count], v[:count], enable_gqa=True, kv_lens=lens[:count]),
        ),
        "attention": (16, lambda count: flash_attention(*(each[:count] for each in prompt), is_causal=True)),
        "block-sparse softmax": (16, lambda count: block_sparse_softmax(weights[:count], sparse)),
        "block-sparse dsd": (
            16,
            lambda count: block_sparse_matmul(weights[:count], values[:count], sparse, "dsd"),
        ),
        "block-sparse dds": (
            MOST,
            lambda rows: block_sparse_matmul(tokens[:, :, :rows], few, one_head, "dds")[0, 0],
        ),
        "flex attention, a bitmap": (16, lambda count: flex_attention(*(e[:count] for e in prompt), block_mask=mask)),
        "flex attention, gradients of q": (16, lambda count: gradient(prompt, count, count)),
        "flex attention, gradients of q, keys shared": (16, lambda count: gradient(prompt, count, 1)),
    }


def gradient(prompt: list[torch.Tensor], count: int, keys: int) -> torch.Tensor:
    """Return the gradients of so many sequences' queries."""
    q = prompt[0][:count].clone().requires_grad_()
    flex_attention(q, prompt[1][:keys], prompt[2][:keys]).backward(prompt[1][:count])
    assert q.grad is not None
    return q.grad


def others() -> Mapping[str, Case]:
    """Images, and rows on their own."""
    images, filters = normal(32, 64, 28, 28).to(memory_format=torch.channels_last), normal(128, 64, 3, 3)
    heads, tables, weight = normal(MOST, 8, 128), normal(2, MOST, 64), normal(128)
    words = {"query_weight": weight, "key_weight": weight}
    planar, rows = normal(32, 64, 28, 28), normal(MOST, 4096)
    return {
        "conv2d": (32, lambda count: conv2d(images[:count], filters, padding=1)),
        "conv2d, planar": (32, lambda count: conv2d(planar[:count], filters, padding=1)),
        "rotary_qk with norms": (
            MOST,
            lambda count: rotary_qk(heads[:count], heads[:count, :2], tables[0], tables[1], **words)[0],
        ),
        "rms_norm": (MOST, lambda count: rms_norm(rows[:count])),
    }


def main() -> None:
    """Compare every case's parts with the whole."""
    torch.manual_seed(0)
    said: dict[str, dict[int, Any]] = {}
    for make in (products, quantized, attention, others):
        for name, (most, run) in make().items():
            whole = run(most)
            said[name] = {part: bool(torch.equal(run(part), whole[:part])) for part in PARTS if part < most}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
