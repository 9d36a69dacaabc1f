"""The kernel for sm_90 as Python: how its parts wait for one another, from one tile of queries to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.kernels.attention_stub import BoxOfFour, others
from tests.kernels.gluon_stub import Pointer, load

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
PATHS = (KERNELS / "kernel_sm90_attention.py", KERNELS / "flash_attention" / "kernel_sm90.py")
BATCH, HEADS, GROUP, DIM = 2, 4, 2, 64


@pytest.mark.parametrize("lengths", [(310, 310), (1, 150), (260, 100)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("config", [(128, 1, 2), (128, 2, 2), (128, 2, 3), (192, 2, 2), (192, 1, 3)], ids=str)
@pytest.mark.parametrize("turns", [False, True], ids=["together", "in turn"])
@pytest.mark.parametrize("programs", [1, 3, 40])
def test_it_attends(lengths, causal, config, programs, turns):
    rows, q_stages, stages = config
    q_len, kv_len = lengths
    q = torch.randn(BATCH, HEADS, q_len, DIM).bfloat16()
    k, v = (torch.randn(BATCH, HEADS // GROUP, kv_len, DIM).bfloat16() for _ in range(2))
    out, lse = torch.empty_like(q), torch.full((BATCH, HEADS, q_len), float("nan"))
    maps = [BoxOfFour(value, (height, DIM)) for value, height in ((q, 64), (k, 128), (v, 128), (out, 64))]
    offset = kv_len - q_len
    kernel = load("flash_attention_fwd_sm90_kernel", *PATHS, others=others)

    kernel(
        programs, *maps, Pointer(lse), DIM**-0.5, offset, BATCH, HEADS, GROUP, q_len, kv_len, programs,
        CAUSAL=causal, BLOCK_M=rows, BLOCK_N=128, BLOCK_D=DIM, BLOCK_DV=DIM, STAGES=stages, Q_STAGES=q_stages, SPAN=400, TURNS=turns,
    )  # fmt: skip

    repeated = (each.repeat_interleave(GROUP, 1).double() for each in (k, v))
    exact, exact_lse = _attention(q.double(), *repeated, offset if causal else None)
    torch.testing.assert_close(out.double(), exact, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse.double(), exact_lse, atol=1e-4, rtol=1e-4)


def _attention(q, k, v, offset):
    scores = q @ k.mT * DIM**-0.5
    if offset is not None:
        queries, keys = (torch.arange(size) for size in scores.shape[-2:])
        scores = scores.masked_fill(keys > queries[:, None] + offset, float("-inf"))
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1)
