"""The kernel for sm_90 as Python: how its parts wait for one another, from one tile of queries to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from nojit.kernels.flash_attention import launch_sm90 as flash_launch

from tests.kernels.attention_stub import BoxOfFour, in_fours, others
from tests.kernels.gluon_stub import Pointer, load

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
PATHS = (KERNELS / "attention" / "kernel_sm90.py", KERNELS / "flash_attention" / "kernel_sm90.py")
BATCH, HEADS, GROUP, DIM = 2, 4, 2, 64
FP8 = torch.float8_e4m3fn


@pytest.mark.parametrize("lengths", [(310, 310), (1, 150), (260, 100), (100, 400)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dims", [(256, 256), (200, 136), (192, 192), (130, 256), (192, 128), (200, 72)], ids=str)
@pytest.mark.parametrize("turns", [False, True], ids=["together", "in turn"])
def test_it_attends_to_heads_wider_than_128(lengths, causal, dims, turns):
    chosen = {"BLOCK_M": 128, "BLOCK_N": 64, "STAGES": 2, "Q_STAGES": 1, "SPAN": 400, "TURNS": turns}
    check(lengths, causal, 3, dims, chosen)


@pytest.mark.parametrize("lengths", [(310, 310), (260, 100), (100, 400)], ids=str)
@pytest.mark.parametrize("config", [(128, 64, 1), (128, 64, 3), (192, 64, 2), (192, 128, 2)], ids=str)
@pytest.mark.parametrize("programs", [1, 3])
def test_consumers_without_turns_pass_over_tiles_that_none_of_their_queries_see(lengths, config, programs):
    rows, keys, stages = config
    chosen = {"BLOCK_M": rows, "BLOCK_N": keys, "STAGES": stages, "Q_STAGES": 1, "SPAN": 400, "TURNS": False}
    check(lengths, True, programs, (DIM, DIM), chosen)


@pytest.mark.parametrize("lengths", [(310, 310), (1, 150), (260, 100), (100, 400)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (96, 80), (32, 128)], ids=str)
@pytest.mark.parametrize("config", [(128, 128, 3, 2, True), (192, 128, 2, 1, False), (128, 64, 2, 1, True)], ids=str)
def test_it_attends_over_e4m3_values_in_columns(lengths, causal, dims, config):
    chosen = dict(zip(("BLOCK_M", "BLOCK_N", "STAGES", "Q_STAGES", "TURNS"), config, strict=True))
    check(lengths, causal, 3, dims, chosen | {"SPAN": 400}, dtype=FP8)


def as_columns(v):
    """Return e4m3 values as `flash_attention_values` writes them."""
    padded = torch.nn.functional.pad(v.float().mT, (0, -v.shape[2] % 16))
    return in_fours(padded).to(FP8)


def check(lengths, causal, programs, dims, config, *, dtype=torch.bfloat16):
    """Run the kernel, and compare its output and log-sums with the exact ones; `dims` are those of keys and values."""
    (q_len, kv_len), (dim, v_dim), widths = lengths, dims, flash_launch.mapped_widths(*dims)
    block_d, block_dv = widths["BLOCK_D"], widths["BLOCK_DV"]
    q = torch.randn(BATCH, HEADS, q_len, dim).to(dtype)
    k, v = (torch.randn(BATCH, HEADS // GROUP, kv_len, width).to(dtype) for width in dims)
    out, lse = (
        torch.full((BATCH, HEADS, q_len, v_dim), float("nan")).bfloat16(),
        torch.full((BATCH, HEADS, q_len), float("nan")),
    )
    values = (as_columns(v), block_dv, config["BLOCK_N"]) if dtype is FP8 else (v, config["BLOCK_N"], block_dv)
    boxes = ((q, 64, block_d), (k, config["BLOCK_N"], block_d), values, (out, 64, block_dv))
    maps = [BoxOfFour(value, (height, width)) for value, height, width in boxes]
    offset = kv_len - q_len
    kernel = load("flash_attention_fwd_sm90_kernel", *PATHS, others=others)

    kernel(
        programs, *maps, Pointer(lse), dim**-0.5, offset, BATCH, HEADS, GROUP, q_len, kv_len, programs,
        CAUSAL=causal, **widths, **config,
    )  # fmt: skip

    repeated = (each.repeat_interleave(GROUP, 1).double() for each in (k, v))
    exact, exact_lse = _attention(q.double(), *repeated, offset if causal else None)
    # e4m3 rounds weights to four bits
    near = 0.1 if dtype is FP8 else 2e-2
    torch.testing.assert_close(out.double(), exact, atol=near, rtol=near)
    torch.testing.assert_close(lse.double(), exact_lse, atol=1e-4, rtol=1e-4)


def _attention(q, k, v, offset):
    scores = q @ k.mT * q.shape[3] ** -0.5
    if offset is not None:
        queries, keys = (torch.arange(size) for size in scores.shape[-2:])
        scores = scores.masked_fill(keys > queries[:, None] + offset, float("-inf"))
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1)
