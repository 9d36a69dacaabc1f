"""The backward kernels for sm_90 and wide heads as Python: how their parts wait for one another, and what they compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.flash_attention import launch_sm90 as launch
from nojit.kernels.flash_attention import launch_sm90_bwd_wide as wide

from tests.kernels.attention_stub import BoxOfFour, others
from tests.kernels.gluon_stub import Pointer, load
from tests.kernels.test_flash_attention_sm90_bwd import differentiate, launches, operands

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
OWN = KERNELS / "flash_attention"
PATHS = (KERNELS / "attention" / "kernel_sm90.py", OWN / "kernel_sm90_bwd.py", OWN / "kernel_sm90_bwd_wide.py")
BATCH, HEADS, GROUP, SCALE = 2, 4, 2, 0.07
__all__ = ["launches"]  # a fixture
LOG2_E = 1.4426950408889634


@pytest.mark.parametrize("lengths", [(200, 200), (1, 150), (260, 100), (100, 200)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dims", [(256, 256), (192, 192), (200, 72)], ids=str)
def test_it_differentiates_heads_wider_than_128(lengths, causal, dims):
    check(lengths, causal, dims, [(0, lengths[0])])


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dims", [(136, 200), (192, 128)], ids=str)
def test_sums_are_carried_from_one_launch_to_the_next(causal, dims):
    check((210, 190), causal, dims, [(0, 64), (64, 128), (128, 210)])


def check(lengths, causal, dims, parts):
    """Run the kernels on parts of the queries, one after the other, and compare the gradients with the exact ones."""
    (q_len, kv_len), (dim, v_dim), widths = lengths, dims, launch.mapped_widths(*dims)
    offset = kv_len - q_len
    q = torch.randn(BATCH, HEADS, q_len, dim).bfloat16()
    k, v = (torch.randn(BATCH, HEADS // GROUP, kv_len, width).bfloat16() for width in dims)
    dout = torch.randn(BATCH, HEADS, q_len, v_dim).bfloat16()
    dlse = torch.randn(BATCH, HEADS, q_len)
    exact, statistics = _gradients((q, k, v), dout, dlse, offset if causal else None)
    dq, dk, dv = (torch.full_like(value, float("nan")) for value in (q, k, v))
    box, v_box = (64, widths["BLOCK_D"]), (64, widths["BLOCK_DV"])
    tiles = -(-kv_len // 64)
    sums = torch.full((BATCH * HEADS // GROUP * tiles * 64 * (box[1] + v_box[1]),), float("nan"))
    first_kernel = load("flash_attention_bwd_dkdv_sm90_kernel", *PATHS, others=others)
    last_kernel = load("flash_attention_bwd_dq_sm90_kernel", *PATHS, others=others)
    carried = 0
    for first, last in parts:
        own = slice(first, last)
        end = kv_len if last == q_len or not causal else min(kv_len, max(last + offset, 1))
        rows = -(-(last - first) // 64) * 64
        ds = torch.full((BATCH, HEADS, end, rows), float("nan")).bfloat16()
        maps = [BoxOfFour(q[:, :, own], box), BoxOfFour(k[:, :, :end], box)]
        maps += [BoxOfFour(v[:, :, :end], v_box), BoxOfFour(dout[:, :, own], v_box)]
        maps += [BoxOfFour(statistics[..., first : first + rows], (1, 64)), BoxOfFour(dk, box), BoxOfFour(dv, v_box)]
        maps += [BoxOfFour(ds, (64, 64))]
        numbers = (SCALE, offset + first, BATCH, HEADS, GROUP, last - first, end)
        carry = (tiles * 64, carried, int(last == q_len))
        first_kernel(
            -(-end // 64) * BATCH * HEADS // GROUP, *maps, Pointer(sums), *numbers, *carry, CAUSAL=causal, STAGES=2,
            SLOTS=2, SPAN=400, **widths,
        )  # fmt: skip
        maps = [BoxOfFour(ds, (64, 64)), BoxOfFour(k[:, :, :end], box), BoxOfFour(dq[:, :, own], box)]
        chosen = {"CAUSAL": causal, "STAGES": 3, "BLOCK_D": widths["BLOCK_D"], "DEPTH": widths["DEPTH"]}
        last_kernel(-(-(last - first) // 128) * BATCH * HEADS, *maps, *numbers, **chosen)
        carried = -(-end // 64) * 64

    for value, right in zip((dq, dk, dv), exact, strict=True):
        torch.testing.assert_close(value.double(), right, atol=0.02 * float(right.abs().max()), rtol=2e-2)


def _gradients(operands, dout, dlse, offset):
    """Return the exact gradients, and the statistics of queries as the kernel before computes them."""
    q = operands[0]
    given = [value.double().requires_grad_() for value in operands]
    wide, *repeated = (given[0], *(each.repeat_interleave(GROUP, 1) for each in given[1:]))
    scores = wide @ repeated[0].mT * SCALE
    if offset is not None:
        queries, keys = (torch.arange(size) for size in scores.shape[-2:])
        scores = scores.masked_fill(keys > queries[:, None] + offset, float("-inf"))
    blind = scores.isneginf().all(-1)
    out = scores.softmax(-1).masked_fill(blind[..., None], 0.0) @ repeated[1]
    lse = scores.masked_fill(blind[..., None], 0.0).logsumexp(-1)
    delta = (out * dout.double()).sum(-1) - dlse.masked_fill(blind, 0.0)
    exact = torch.autograd.grad((out, lse), given, (dout.double(), dlse.double().masked_fill(blind, 0.0)))
    rows = -(-q.shape[2] // 64) * 64
    statistics = torch.zeros(2, BATCH, HEADS, rows)
    statistics[0] = float("inf")
    statistics[0, ..., : q.shape[2]] = (lse * LOG2_E).masked_fill(blind, float("inf")).detach()
    statistics[1, ..., : q.shape[2]] = delta.detach()
    return exact, statistics


# -- the operator's side -----------------------------------------------------------------------------------------------

NAMES = ["flash_attention_bwd_dkdv_sm90", "flash_attention_bwd_dq_sm90"]
counts = st.integers(1, 40)


@given(counts, counts, st.integers(1, 8), st.integers(1, 70_000), st.integers(1, 70_000))
def test_parts_cover_each_query_of_each_head_once_and_fit_the_workspace(batch, kv_heads, group, q_len, kv_len):
    parts = wide.parts_of(batch, kv_heads, group, q_len, kv_len, 264)
    area = 0
    for of_batch, of_heads, queries in parts:
        heads = (of_batch.stop - of_batch.start) * (of_heads.stop - of_heads.start)
        rows = queries.stop - queries.start
        area += heads * rows
        assert queries.start % 64 == 0
        padded = -(-rows // 64) * 64
        assert heads * group * padded * kv_len * 2 <= wide.SCORE_BYTES or padded == 64
        # those of the first part are the most that any has: it sizes the workspace
        assert rows <= parts[0].queries.stop
    assert area == batch * kv_heads * q_len
    seen = {(part.batch.start, part.kv_heads.start, part.queries.start) for part in parts}
    assert len(seen) == len(parts)


def test_long_queries_of_few_heads_are_split_so_that_all_processors_are_busy():
    # one head has 256 tiles of keys
    parts = wide.parts_of(1, 8, 1, 16_384, 16_384, 264)
    assert all(part.kv_heads.stop - part.kv_heads.start == 2 for part in parts)
    assert len(parts) == 4 * 4
    parts = wide.parts_of(1, 2, 8, 32_768, 32_768, 264)
    assert all(part.kv_heads.stop - part.kv_heads.start == 1 for part in parts)
    assert len(parts) == 2 * 64
    # many heads are not split
    parts = wide.parts_of(4, 16, 1, 4096, 4096, 264)
    assert all(part.queries == slice(0, 4096) for part in parts)
    assert len(parts) == 8


@pytest.mark.parametrize(
    ("dims", "block_dv", "depth"), [((136, 72), 128, 192), ((256, 256), 256, 256), ((192, 192), 256, 192)], ids=str
)
def test_what_the_kernels_are_asked_for(launches, dims, block_dv, depth):
    given_ = operands(133, 70, *dims)
    lse, (dq, dk, dv) = differentiate(given_, BandMask("causal", 0, 37))
    q, k, v, dout, out = given_
    prepare, gradients, queries = launches
    assert [launch[0] for launch in launches] == ["flash_attention_bwd_sm90_prepare", *NAMES]
    assert all(one is other for one, other in zip(prepare[1][:3], (out, dout, lse), strict=True))
    statistics = prepare[1][4]
    assert prepare[1][5] is None
    assert prepare[2] == {"BLOCK_D": 256, "BLOCK_M": 64}
    assert statistics.shape == (2, 2, 8, 192)
    described = gradients[1][:8]
    scores = described[7].base
    assert scores.shape == (2, 8, 70, 192)
    for each, value in zip(described, (q, k, v, dout, statistics, dk, dv, scores), strict=True):
        assert (each.base.data_ptr(), each.base.shape) == (value.data_ptr(), value.shape)
        assert each.strides == value.stride()
    assert gradients[1][9:] == (0.5, 37, 2, 8, 4, 133, 70, 0, 0, 1)
    assert gradients[2] == {"CAUSAL": True, "BLOCK_D": 256, "BLOCK_DV": block_dv, "DEPTH": depth}
    assert [each.base.data_ptr() for each in queries[1][:3]] == [each.data_ptr() for each in (scores, k, dq)]
    assert queries[1][3:] == (0.5, 37, 2, 8, 4, 133, 70)
    assert queries[2] == {"CAUSAL": True, "BLOCK_D": 256, "DEPTH": depth}


def test_parts_carry_the_sums_of_the_keys_seen_so_far(launches, monkeypatch):
    monkeypatch.setattr(wide, "SCORE_BYTES", 1)
    differentiate(operands(133, 70, 256, 256), BandMask("causal", 0, -30))
    numbers = [launch[1][9:] for launch in launches if launch[0] == NAMES[0]]
    # one tile of queries at a time; keys that none of them sees are left out, but for the last
    assert numbers == [
        (0.5, -30, 2, 8, 4, 64, 34, 128, 0, 0),
        (0.5, 34, 2, 8, 4, 64, 70, 128, 64, 0),
        (0.5, 98, 2, 8, 4, 5, 70, 128, 128, 1),
    ]


def test_only_the_needed_kernels_run(launches):
    differentiate(operands(33, 70, 256, 256), wanted="kv")
    assert [launch[0] for launch in launches] == ["flash_attention_bwd_sm90_prepare", NAMES[0]]
    launches.clear()
    differentiate(operands(33, 70, 256, 256), wanted="q")
    assert [launch[0] for launch in launches] == ["flash_attention_bwd_delta", "flash_attention_bwd_dq"]
