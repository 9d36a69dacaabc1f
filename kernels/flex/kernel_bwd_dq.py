"""Triton kernel of flex attention, backward, for the gradient of queries; `kernel_bwd` describes the algorithm."""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LOG2_E, load_tile, place_queries, store_tile
from nojit.kernels.flex.kernel_tiles import score_tile, seen_keys, walk_of


@triton.jit
def flex_attention_bwd_dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    lse_ptr,
    delta_ptr,
    dq_ptr,
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
    stride_gb,
    stride_gh,
    stride_gm,
    stride_dqb,
    stride_dqh,
    stride_dqm,
    MASK: tl.constexpr,
    SCORE_MOD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write dq, the gradient of q.

    q and dq are [batch, heads, q_len, head_dim], k [batch, heads // group, kv_len, head_dim], v [..., kv_len, v_dim],
    dout [batch, heads, q_len, v_dim]: any strides, the last 1. lse and delta are contiguous fp32 [batch, heads, q_len].
    The mask's tables and the score modification are those of `flex_attention_fwd_kernel`. A query that sees no key has
    gradient 0. Grid: cdiv(q_len, BLOCK_M) * batch * heads in x.
    """
    row_start, batch_head, index_b, index_h, index_kv = place_queries(heads, group, q_len, BLOCK_M)
    mods = (
        (first_kind, first_ptr, first_stride_b, first_stride_h, first_value, first_reach),
        (second_kind, second_ptr, second_stride_b, second_stride_h, second_value, second_reach),
        (bias_ptr, bias_stride_b, bias_stride_h, bias_stride_m, bias_stride_n),
    )

    rows = row_start + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_N)
    query_rows = rows.to(tl.int64)[:, None]
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    q_ptrs = q_ptr + index_b * stride_qb + index_h * stride_qh + query_rows * stride_qm + k_cols[None, :]
    dout_ptrs = dout_ptr + index_b * stride_gb + index_h * stride_gh + query_rows * stride_gm + v_cols[None, :]
    q = load_tile(q_ptrs, rows, q_len, k_cols, head_dim, True, True)
    dout = load_tile(dout_ptrs, rows, q_len, v_cols, v_dim, True, True)
    row = batch_head.to(tl.int64) * q_len
    lse = tl.load(lse_ptr + row + rows, mask=rows < q_len, other=float("inf")) * LOG2_E
    # a fully masked row gets weight 0
    lse = tl.where(lse == float("-inf"), float("inf"), lse)
    delta = tl.load(delta_ptr + row + rows, mask=rows < q_len, other=0.0)
    k_head_ptr = k_ptr + index_b * stride_kb + index_kv * stride_kh
    v_head_ptr = v_ptr + index_b * stride_vb + index_kv * stride_vh
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)

    table = index_b * mask_batch + index_h * mask_head
    first, end, walk, count = walk_of(
        spans_ptr, table, rows, left, right, q_len, kv_len, block, BLOCK_M, BLOCK_N, MASK
    )  # fmt: skip
    for number in range(count):
        start, is_cut, bitmap, keys, k, _, scores, slope = score_tile(
            number, walk, q, rows, lanes, k_cols, k_head_ptr, stride_kn, q_len, kv_len, head_dim, blocks_ptr, block, scale,
            index_b, index_h, mods, MASK, SCORE_MOD,
        )  # fmt: skip
        weights = tl.exp2(scores - lse[:, None])
        if is_cut:
            seen = seen_keys(
                rows, keys, row_start, start, first, end, left, right, bits_ptr, bitmap, block, kv_len, BLOCK_M, BLOCK_N,
                MASK,
            )  # fmt: skip
            weights = tl.where(seen, weights, 0.0)
        v_ptrs = v_head_ptr + keys.to(tl.int64)[:, None] * stride_vn + v_cols[None, :]
        v = load_tile(v_ptrs, keys, kv_len, v_cols, v_dim, True, True)
        dweights = tl.dot(dout, tl.trans(v), input_precision="ieee")
        dscores = weights * (dweights - delta[:, None]) * slope
        dq = tl.dot(dscores.to(k.dtype), k, dq, input_precision="ieee")

    dq_ptrs = dq_ptr + index_b * stride_dqb + index_h * stride_dqh + query_rows * stride_dqm + k_cols[None, :]
    store_tile(dq_ptrs, dq * scale, rows, q_len, k_cols, head_dim, True)
