"""Triton kernel of flex attention, forward: one program owns `BLOCK_M` queries of a head.

A program visits the tiles of keys that any of its queries sees under the mask. It keeps for each query the maximum and
the sum of the softmax so far, and the output so far, all in fp32. Exponentials use base 2.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LN_2, load_tile, log_sums, outputs_of, place_queries, store_tile, weigh
from nojit.kernels.flex.kernel_tiles import score_tile, seen_keys, walk_of


@triton.jit
def flex_attention_fwd_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    spans_ptr,
    blocks_ptr,
    bits_ptr,
    first_ptr,
    second_ptr,
    bias_ptr,
    scale,
    left,
    right,
    block,
    mask_batch,
    mask_head,
    first_kind,
    first_stride_b,
    first_stride_h,
    first_value,
    first_reach,
    second_kind,
    second_stride_b,
    second_stride_h,
    second_value,
    second_reach,
    bias_stride_b,
    bias_stride_h,
    bias_stride_m,
    bias_stride_n,
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
    SCORE_MOD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write ``softmax(mod(q @ k^T * scale)) @ v`` over visible keys, and the log-sum-exp (natural logarithm) of each row.

    q is [batch, heads, q_len, head_dim], k [batch, heads // group, kv_len, head_dim], v [..., kv_len, v_dim], out
    [batch, heads, q_len, v_dim]: any strides, the last 1. lse is contiguous fp32 [batch, heads, q_len]. A fully masked
    row gives 0 and lse -inf. `SCORE_MOD` is mod, a function as in `kernel_mods`; `first_*`, `second_*` and `bias_*` are
    the values that it captures. `spans_ptr`, `blocks_ptr` and `bits_ptr` are the mask's `by_query` tables of
    `nojit.kernels.block_mask.tables`, for the mode `MASK`; `mask_batch` and `mask_head` are their strides by batch and head,
    in units of one head's table. For the mode ``"bitmap"``, `block` is a multiple of BLOCK_M and BLOCK_N. Grid:
    cdiv(q_len, BLOCK_M) * batch * heads in x.
    """
    row_start, batch_head, index_b, index_h, index_kv = place_queries(heads, group, q_len, BLOCK_M)
    mods = (
        (first_kind, first_ptr, first_stride_b, first_stride_h, first_value, first_reach),
        (second_kind, second_ptr, second_stride_b, second_stride_h, second_value, second_reach),
        (bias_ptr, bias_stride_b, bias_stride_h, bias_stride_m, bias_stride_n),
    )

    rows = row_start + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    query_rows = rows.to(tl.int64)[:, None]
    q_ptrs = q_ptr + index_b * stride_qb + index_h * stride_qh + query_rows * stride_qm + k_cols[None, :]
    k_head_ptr = k_ptr + index_b * stride_kb + index_kv * stride_kh
    v_head_ptr = v_ptr + index_b * stride_vb + index_kv * stride_vh
    q = load_tile(q_ptrs, rows, q_len, k_cols, head_dim, True, True)

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)

    table = index_b * mask_batch + index_h * mask_head
    first, end, walk, count = walk_of(
        spans_ptr, table, rows, left, right, q_len, kv_len, block, BLOCK_M, BLOCK_N, MASK
    )  # fmt: skip
    for number in range(count):
        start, is_cut, bitmap, keys, _, _, scores, _ = score_tile(
            number, walk, q, rows, lanes, k_cols, k_head_ptr, stride_kn, q_len, kv_len, head_dim, blocks_ptr, block, scale,
            index_b, index_h, mods, MASK, SCORE_MOD,
        )  # fmt: skip
        if is_cut:
            seen = seen_keys(
                rows, keys, row_start, start, first, end, left, right, bits_ptr, bitmap, block, kv_len, BLOCK_M, BLOCK_N,
                MASK,
            )  # fmt: skip
            scores = tl.where(seen, scores, float("-inf"))
        weights, keep, row_max, row_sum = weigh(scores, row_max, row_sum)
        v_ptrs = v_head_ptr + keys.to(tl.int64)[:, None] * stride_vn + v_cols[None, :]
        v = load_tile(v_ptrs, keys, kv_len, v_cols, v_dim, True, True)
        acc = tl.dot(weights.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")

    out = outputs_of(acc, row_sum)
    out_ptrs = out_ptr + index_b * stride_ob + index_h * stride_oh + query_rows * stride_om + v_cols[None, :]
    store_tile(out_ptrs, out, rows, q_len, v_cols, v_dim, True)
    lse = log_sums(row_max, row_sum) * LN_2
    tl.store(lse_ptr + batch_head.to(tl.int64) * q_len + rows, lse, mask=rows < q_len)
