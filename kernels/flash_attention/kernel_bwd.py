"""Triton kernels of flash attention, backward (Dao 2023, https://arxiv.org/abs/2307.08691, algorithm 2).

There are three kernels; `kernel_bwd_dq` has that for the gradient of queries. With the recomputed weights p = exp(q k^T
scale - lse), and delta = rowsum(out * dout) - dlse:

    dv = p^T dout        ds = p * (dout v^T - delta)        dk = ds^T q scale        dq = ds k scale

One program owns one sum: the gradients of a tile of keys and values, over all queries of all heads that read them, or
that of a tile of queries, over all keys. No program adds to memory that another one writes, so results do not depend on
the order of programs. Sums are fp32; p and ds are rounded to the dtype of the operands before products. Exponentials
use base 2.

One loop handles all tiles, with a branch for those that an edge of the mask cuts. With two loops, as in the forward
kernel, the compiler keeps addresses of both, and the sums spill registers at a head dimension of 128.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LOG2_E, in_band, load_tile, place_keys, span_of, store_tile


@triton.jit
def flash_attention_bwd_delta_kernel(
    out_ptr,
    dout_ptr,
    lse_ptr,
    dlse_ptr,
    delta_ptr,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    q_len,
    v_dim,
    stride_ob,
    stride_oh,
    stride_om,
    stride_gb,
    stride_gh,
    stride_gm,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write delta, ``rowsum(out * dout) - dlse``, where dlse may be None.

    out and dout are [batch, heads, q_len, v_dim]: any strides, the last 1. lse, dlse and delta are contiguous fp32
    [batch, heads, q_len]. dlse is ignored for fully masked rows, whose lse is -inf. Grid: cdiv(q_len, BLOCK_M) * batch
    * heads in x.
    """
    tiles = tl.cdiv(q_len, BLOCK_M)
    batch_head = tl.program_id(0) // tiles
    index_b = (batch_head // heads).to(tl.int64)
    index_h = (batch_head % heads).to(tl.int64)
    rows = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    query_rows = rows.to(tl.int64)[:, None]
    cols = tl.arange(0, BLOCK_DV)
    out_ptrs = out_ptr + index_b * stride_ob + index_h * stride_oh + query_rows * stride_om + cols[None, :]
    dout_ptrs = dout_ptr + index_b * stride_gb + index_h * stride_gh + query_rows * stride_gm + cols[None, :]
    out = load_tile(out_ptrs, rows, q_len, cols, v_dim, True, True).to(tl.float32)
    dout = load_tile(dout_ptrs, rows, q_len, cols, v_dim, True, True).to(tl.float32)
    delta = tl.sum(out * dout, 1)
    places = batch_head.to(tl.int64) * q_len + rows
    inside = rows < q_len
    if dlse_ptr is not None:
        lse = tl.load(lse_ptr + places, mask=inside, other=0.0)
        dlse = tl.load(dlse_ptr + places, mask=inside, other=0.0)
        delta -= tl.where(lse == float("-inf"), 0.0, dlse)
    tl.store(delta_ptr + places, delta, mask=inside)


@triton.jit
def _gather_for_keys(
    dk,
    dv,
    k,
    v,
    q_head_ptr,
    dout_head_ptr,
    lse_head_ptr,
    delta_head_ptr,
    stride_qm,
    stride_gm,
    keys,
    span,
    q_len,
    head_dim,
    v_dim,
    qk_scale,
    left,
    right,
    MASK: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Add the contribution of one head's queries to the gradients dk and dv of a tile of keys; return both.

    Scores have keys as rows. Queries past the end read as 0, with log-sum and delta 0, and contribute 0.

    `qk_scale`: the softmax scale times log2(e); `span`: first tile, first and end of the tiles that need no mask, end.
    """
    first, full_first, full_last, last = span
    lanes = tl.arange(0, BLOCK_M)
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    for start in range(first, last, BLOCK_M):
        start = tl.multiple_of(start, BLOCK_M)  # noqa: PLW2901 - a hint, not another value
        rows = start + lanes
        # recompute these offsets: hoisted pointers of unaligned calls would fill the registers
        query_rows = rows.to(tl.int64)[:, None]
        q_tile = q_head_ptr + query_rows * stride_qm + k_cols[None, :]
        q = load_tile(q_tile, rows, q_len, k_cols, head_dim, True, not EVEN_D)
        scores = tl.dot(k, tl.trans(q), input_precision="ieee")
        lse = tl.load(lse_head_ptr + rows, mask=rows < q_len, other=0.0)
        weights = tl.exp2(scores * qk_scale - (lse * LOG2_E)[None, :])
        if MASK != "none":  # noqa: SIM102 - Triton drops a branch only if its condition is just a constexpr
            if (start < full_first) | (start >= full_last):
                # a fully masked query has log-sum -inf: its weights are infinite until they are masked
                weights = tl.where(in_band(rows[None, :], keys[:, None], left, right, MASK), weights, 0.0)
        dout_tile = dout_head_ptr + query_rows * stride_gm + v_cols[None, :]
        dout = load_tile(dout_tile, rows, q_len, v_cols, v_dim, True, not EVEN_D)
        dv = tl.dot(weights.to(dout.dtype), dout, dv, input_precision="ieee")
        dweights = tl.dot(v, tl.trans(dout), input_precision="ieee")
        delta = tl.load(delta_head_ptr + rows, mask=rows < q_len, other=0.0)
        dscores = weights * (dweights - delta[None, :])
        dk = tl.dot(dscores.to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv


@triton.jit
def flash_attention_bwd_dkdv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    scale,
    left,
    right,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    kv_heads,
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
    stride_dkb,
    stride_dkh,
    stride_dkn,
    stride_dvb,
    stride_dvh,
    stride_dvn,
    MASK: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write dk and dv, the gradients of k and v.

    q is [batch, kv_heads * group, q_len, head_dim], dout [..., q_len, v_dim], k and dk [batch, kv_heads, kv_len,
    head_dim], v and dv [..., kv_len, v_dim]: any strides, the last 1. lse and delta are contiguous fp32 [batch,
    kv_heads * group, q_len]. `scale`, `MASK`, `left` and `right` are the arguments of the forward kernel. A key that no
    query sees has gradient 0. Grid: cdiv(kv_len, BLOCK_N) * batch * kv_heads in x.
    """
    key_start, batch_head, index_b, index_kv = place_keys(kv_heads, kv_len, BLOCK_N)
    keys = key_start + tl.arange(0, BLOCK_N)
    key_rows = keys.to(tl.int64)[:, None]
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    k_ptrs = k_ptr + index_b * stride_kb + index_kv * stride_kh + key_rows * stride_kn + k_cols[None, :]
    v_ptrs = v_ptr + index_b * stride_vb + index_kv * stride_vh + key_rows * stride_vn + v_cols[None, :]
    k = load_tile(k_ptrs, keys, kv_len, k_cols, head_dim, True, not EVEN_D)
    v = load_tile(v_ptrs, keys, kv_len, v_cols, v_dim, True, not EVEN_D)
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_DV], tl.float32)
    qk_scale = scale * LOG2_E

    # key n is visible to the queries from n - right to n - left
    span = span_of(key_start, -right, -left, q_len, BLOCK_N, BLOCK_M, MASK != "none", MASK == "window")
    for member in range(group):
        index_h = index_kv * group + member
        q_head_ptr = q_ptr + index_b * stride_qb + index_h * stride_qh
        dout_head_ptr = dout_ptr + index_b * stride_gb + index_h * stride_gh
        row = (batch_head.to(tl.int64) * group + member) * q_len
        dk, dv = _gather_for_keys(
            dk, dv, k, v, q_head_ptr, dout_head_ptr, lse_ptr + row, delta_ptr + row, stride_qm, stride_gm, keys, span,
            q_len, head_dim, v_dim, qk_scale, left, right, MASK, EVEN_D, BLOCK_M, BLOCK_D, BLOCK_DV,
        )  # fmt: skip

    dk_ptrs = dk_ptr + index_b * stride_dkb + index_kv * stride_dkh + key_rows * stride_dkn + k_cols[None, :]
    dv_ptrs = dv_ptr + index_b * stride_dvb + index_kv * stride_dvh + key_rows * stride_dvn + v_cols[None, :]
    store_tile(dk_ptrs, dk * scale, keys, kv_len, k_cols, head_dim, not EVEN_D)
    store_tile(dv_ptrs, dv, keys, kv_len, v_cols, v_dim, not EVEN_D)
