"""Triton kernel of flash attention, backward, for the gradient of queries; `kernel_bwd` describes the algorithm."""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LOG2_E, in_band, load_tile, place_queries, span_of, store_tile


@triton.jit
def _gather_for_queries(
    dq,
    q,
    dout,
    row_lse,
    row_delta,
    k_head_ptr,
    v_head_ptr,
    stride_kn,
    stride_vn,
    rows,
    span,
    kv_len,
    head_dim,
    v_dim,
    qk_scale,
    left,
    right,
    MASK: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Add the contribution of one head's keys to dq, the gradient of a tile of queries; return it.

    `qk_scale`: the softmax scale times log2(e); `span`: first tile, first and end of the tiles that need no mask, end.
    """
    first, full_first, full_last, last = span
    lanes = tl.arange(0, BLOCK_N)
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    for start in range(first, last, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)  # noqa: PLW2901 - a hint, not another value
        keys = start + lanes
        # recompute these offsets: hoisted pointers of unaligned calls would fill the registers
        key_rows = keys.to(tl.int64)[:, None]
        k_tile = k_head_ptr + key_rows * stride_kn + k_cols[None, :]
        k = load_tile(k_tile, keys, kv_len, k_cols, head_dim, True, not EVEN_D)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        weights = tl.exp2(scores * qk_scale - row_lse[:, None])
        if (start < full_first) | (start >= full_last):
            visible = keys[None, :] < kv_len
            if MASK != "none":
                visible = visible & in_band(rows[:, None], keys[None, :], left, right, MASK)
            weights = tl.where(visible, weights, 0.0)
        v_tile = v_head_ptr + key_rows * stride_vn + v_cols[None, :]
        v = load_tile(v_tile, keys, kv_len, v_cols, v_dim, True, not EVEN_D)
        dweights = tl.dot(dout, tl.trans(v), input_precision="ieee")
        dscores = weights * (dweights - row_delta[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit
def flash_attention_bwd_dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    lse_ptr,
    delta_ptr,
    dq_ptr,
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
    stride_gb,
    stride_gh,
    stride_gm,
    stride_dqb,
    stride_dqh,
    stride_dqm,
    MASK: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write dq, the gradient of q.

    q and dq are [batch, heads, q_len, head_dim], k [batch, heads // group, kv_len, head_dim], v [..., kv_len, v_dim],
    dout [batch, heads, q_len, v_dim]: any strides, the last 1. lse and delta are contiguous fp32 [batch, heads, q_len].
    `scale`, `MASK`, `left` and `right` are the arguments of the forward kernel. A query that sees no key has gradient
    0. Grid: cdiv(q_len, BLOCK_M) * batch * heads in x.
    """
    row_start, batch_head, index_b, index_h, index_kv = place_queries(heads, group, q_len, BLOCK_M)

    rows = row_start + tl.arange(0, BLOCK_M)
    query_rows = rows.to(tl.int64)[:, None]
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    q_ptrs = q_ptr + index_b * stride_qb + index_h * stride_qh + query_rows * stride_qm + k_cols[None, :]
    dout_ptrs = dout_ptr + index_b * stride_gb + index_h * stride_gh + query_rows * stride_gm + v_cols[None, :]
    q = load_tile(q_ptrs, rows, q_len, k_cols, head_dim, True, not EVEN_D)
    dout = load_tile(dout_ptrs, rows, q_len, v_cols, v_dim, True, not EVEN_D)
    row = batch_head.to(tl.int64) * q_len
    row_lse = tl.load(lse_ptr + row + rows, mask=rows < q_len, other=0.0) * LOG2_E
    row_delta = tl.load(delta_ptr + row + rows, mask=rows < q_len, other=0.0)
    k_head_ptr = k_ptr + index_b * stride_kb + index_kv * stride_kh
    v_head_ptr = v_ptr + index_b * stride_vb + index_kv * stride_vh
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    qk_scale = scale * LOG2_E

    span = span_of(row_start, left, right, kv_len, BLOCK_M, BLOCK_N, MASK == "window", MASK != "none")
    dq = _gather_for_queries(
        dq, q, dout, row_lse, row_delta, k_head_ptr, v_head_ptr, stride_kn, stride_vn, rows, span, kv_len, head_dim,
        v_dim, qk_scale, left, right, MASK, EVEN_D, BLOCK_N, BLOCK_D, BLOCK_DV,
    )  # fmt: skip

    dq_ptrs = dq_ptr + index_b * stride_dqb + index_h * stride_dqh + query_rows * stride_dqm + k_cols[None, :]
    store_tile(dq_ptrs, dq * scale, rows, q_len, k_cols, head_dim, not EVEN_D)
