"""Triton kernel of flash attention, forward (Dao 2023, https://arxiv.org/abs/2307.08691).

One program owns `BLOCK_M` queries of a head. It processes the keys in tiles of `BLOCK_N` and keeps for each query the
maximum and the sum of the softmax so far, and the output so far, all in fp32. Tiles that all its queries see in full
come first; they need no mask. Tiles that an edge of the mask or the end of the keys cuts come afterwards, masked.
Exponentials use base 2, with log2(e) folded into the scale.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import (
    LN_2,
    LOG2_E,
    hidden_tile,
    in_band,
    load_tile,
    log_sums,
    outputs_of,
    place_queries,
    span_of,
    store_tile,
    weigh,
)


@triton.jit
def _attend(
    acc,
    row_sum,
    row_max,
    q,
    k_head_ptr,
    v_head_ptr,
    stride_kn,
    stride_vn,
    rows,
    first,
    last,
    full_first,
    full_last,
    kv_len,
    head_dim,
    v_dim,
    qk_scale,
    left,
    right,
    MASKED: tl.constexpr,
    MASK: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Process the keys [first, last) of one head; return the updated output, sum and maximum of each query.

    Unless `MASKED`, every key of every tile must exist and every row must see it. With `MASKED`, the tiles from
    `full_first` to `full_last`, which all rows see in full, are skipped.

    `qk_scale`: the softmax scale times log2(e).
    """
    lanes = tl.arange(0, BLOCK_N)
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    for start in range(first, last, BLOCK_N):
        if MASKED:
            start = hidden_tile(start, full_first, full_last, MASK == "window")  # noqa: PLW2901 - its actual position
        start = tl.multiple_of(start, BLOCK_N)  # noqa: PLW2901 - a hint, not another value
        keys = start + lanes
        # recompute these offsets: hoisted pointers of unaligned calls, one for each element, would fill the registers
        key_rows = keys.to(tl.int64)[:, None]
        k_tile = k_head_ptr + key_rows * stride_kn + k_cols[None, :]
        k = load_tile(k_tile, keys, kv_len, k_cols, head_dim, MASKED, not EVEN_D)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
            visible = keys[None, :] < kv_len
            if MASK != "none":
                visible = visible & in_band(rows[:, None], keys[None, :], left, right, MASK)
            scores = tl.where(visible, scores * qk_scale, float("-inf"))
            weights, keep, row_max, row_sum = weigh(scores, row_max, row_sum)
        else:
            # scale within the exponent: that fuses with the subtraction
            new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
            shift = tl.where(new_max == float("-inf"), 0.0, new_max)
            weights = tl.exp2(scores * qk_scale - shift[:, None])
            keep = tl.exp2(row_max - shift)
            row_sum = row_sum * keep + tl.sum(weights, 1)
            row_max = new_max
        v_tile = v_head_ptr + key_rows * stride_vn + v_cols[None, :]
        v = load_tile(v_tile, keys, kv_len, v_cols, v_dim, MASKED, not EVEN_D)
        if v.dtype == tl.float8e4nv:
            # fp16 represents all e4m3 values, and weights rounded to it are precise enough
            v = v.to(tl.float16)
        acc = tl.dot(weights.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
    return acc, row_sum, row_max


@triton.jit
def flash_attention_fwd_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    scale,
    left,
    right,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    group,
    q_len,
    kv_len,
    head_dim,
    v_dim,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_om,
    MASK: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write ``softmax(q @ k^T * scale) @ v`` and, if requested, the log-sum-exp (natural logarithm) of each row of scores.

    q is [batch, heads, q_len, head_dim], k [batch, heads // group, kv_len, head_dim], v [..., kv_len, v_dim], out
    [batch, heads, q_len, v_dim]: any strides, the last 1. lse is None or contiguous fp32 [batch, heads, q_len]. Query m
    sees all keys if `MASK` is ``"none"``, the keys up to m + `right` if ``"causal"``, and those from m + `left` to m +
    `right` if ``"window"``. A fully masked row gives 0 and lse -inf. `EVEN_D` states that the head dimensions equal
    BLOCK_D and BLOCK_DV. Grid: cdiv(q_len, BLOCK_M) * batch * heads in x, since y and z are limited to 65,535.
    """
    row_start, batch_head, index_b, index_h, index_kv = place_queries(heads, group, q_len, BLOCK_M)

    rows = row_start + tl.arange(0, BLOCK_M)
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    q_ptrs = (
        q_ptr + index_b * stride_qb + index_h * stride_qh + rows.to(tl.int64)[:, None] * stride_qm + k_cols[None, :]
    )
    k_head_ptr = k_ptr + index_b * stride_kb + index_kv * stride_kh
    v_head_ptr = v_ptr + index_b * stride_vb + index_kv * stride_vh

    q = load_tile(q_ptrs, rows, q_len, k_cols, head_dim, True, not EVEN_D)
    # the maximum is taken before the scale, which is right only for scales >= 0; negating q is exact
    q = (q.to(tl.float32) * tl.where(scale < 0, -1.0, 1.0)).to(q.dtype)
    qk_scale = tl.abs(scale) * LOG2_E

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)

    first, full_first, full_last, last = span_of(
        row_start, left, right, kv_len, BLOCK_M, BLOCK_N, MASK == "window", MASK != "none"
    )
    acc, row_sum, row_max = _attend(
        acc, row_sum, row_max, q, k_head_ptr, v_head_ptr, stride_kn, stride_vn, rows, full_first, full_last, 0, 0, kv_len,
        head_dim, v_dim, qk_scale, left, right, False, MASK, EVEN_D, BLOCK_N, BLOCK_D, BLOCK_DV,
    )  # fmt: skip
    acc, row_sum, row_max = _attend(
        acc, row_sum, row_max, q, k_head_ptr, v_head_ptr, stride_kn, stride_vn, rows, first,
        last - (full_last - full_first), full_first, full_last, kv_len, head_dim, v_dim, qk_scale, left, right, True,
        MASK, EVEN_D, BLOCK_N, BLOCK_D, BLOCK_DV,
    )  # fmt: skip

    out = outputs_of(acc, row_sum)
    out_ptrs = (
        out_ptr + index_b * stride_ob + index_h * stride_oh + rows.to(tl.int64)[:, None] * stride_om + v_cols[None, :]
    )
    store_tile(out_ptrs, out, rows, q_len, v_cols, v_dim, not EVEN_D)
    if lse_ptr is not None:
        lse = log_sums(row_max, row_sum) * LN_2
        tl.store(lse_ptr + batch_head.to(tl.int64) * q_len + rows, lse, mask=rows < q_len)
