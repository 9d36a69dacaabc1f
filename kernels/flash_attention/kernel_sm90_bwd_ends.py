"""Triton kernels before and after `flash_attention_bwd_sm90_kernel`: statistics of queries, then the final gradients."""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LOG2_E, load_tile, store_tile


@triton.jit
def flash_attention_bwd_sm90_prepare_kernel(
    out_ptr,
    dout_ptr,
    lse_ptr,
    dlse_ptr,
    stat_ptr,
    turn_ptr,
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
    BLOCK_D: tl.constexpr,
):
    """Write two statistics of each query, and a zero for each tile of queries.

    The statistics are fp32 [2, batch, heads, q_len rounded up to `BLOCK_M`]. The first is lse in base 2; for fully
    masked queries and past the end it is +inf, so that weights become 0. The second is ``rowsum(out * dout) - dlse``.
    out and dout are [batch, heads, q_len, v_dim]: any strides, the last 1. lse and dlse are contiguous fp32 [batch,
    heads, q_len]; dlse may be None, and is ignored for fully masked rows. `turn_ptr`, which receives the zeros, is
    int32 [batch, heads, cdiv(q_len, BLOCK_M)] or None. Grid: cdiv(q_len, BLOCK_M) * batch * heads in x.
    """
    tiles = tl.cdiv(q_len, BLOCK_M)
    batch_head = tl.program_id(0) // tiles
    index_b = (batch_head // heads).to(tl.int64)
    index_h = (batch_head % heads).to(tl.int64)
    lanes = tl.arange(0, BLOCK_M)
    rows = tl.program_id(0) % tiles * BLOCK_M + lanes
    query_rows = rows.to(tl.int64)[:, None]
    cols = tl.arange(0, BLOCK_D)
    out_ptrs = out_ptr + index_b * stride_ob + index_h * stride_oh + query_rows * stride_om + cols[None, :]
    dout_ptrs = dout_ptr + index_b * stride_gb + index_h * stride_gh + query_rows * stride_gm + cols[None, :]
    out = load_tile(out_ptrs, rows, q_len, cols, v_dim, True, True).to(tl.float32)
    dout = load_tile(dout_ptrs, rows, q_len, cols, v_dim, True, True).to(tl.float32)
    delta = tl.sum(out * dout, 1)
    places = batch_head.to(tl.int64) * q_len + rows
    inside = rows < q_len
    lse = tl.load(lse_ptr + places, mask=inside, other=float("-inf"))
    no_keys = lse == float("-inf")
    if dlse_ptr is not None:
        delta -= tl.where(no_keys, 0.0, tl.load(dlse_ptr + places, mask=inside, other=0.0))
    stat_places = stat_ptr + tl.program_id(0).to(tl.int64) * BLOCK_M + lanes
    tl.store(stat_places, tl.where(no_keys, float("inf"), lse * LOG2_E))
    tl.store(stat_places + tl.num_programs(0).to(tl.int64) * BLOCK_M, delta)
    if turn_ptr is not None:
        tl.store(turn_ptr + tl.program_id(0), 0)


@triton.jit
def flash_attention_bwd_sm90_finish_kernel(
    sum_ptr,
    lse_ptr,
    dq_ptr,
    scale,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    q_len,
    head_dim,
    stride_qb,
    stride_qh,
    stride_qm,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Write dq, the gradient of queries: their sums times `scale`; 0 where lse is -inf, since those sums were never written.

    The sums are contiguous fp32 [batch, heads, q_len, head_dim], lse is contiguous fp32 [batch, heads, q_len], and dq
    may have any strides, the last 1. Grid: cdiv(q_len, BLOCK_M) * batch * heads in x.
    """
    tiles = tl.cdiv(q_len, BLOCK_M)
    batch_head = tl.program_id(0) // tiles
    index_b = (batch_head // heads).to(tl.int64)
    index_h = (batch_head % heads).to(tl.int64)
    rows = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_D)
    places = batch_head.to(tl.int64) * q_len + rows
    lse = tl.load(lse_ptr + places, mask=rows < q_len, other=float("-inf"))
    sums = load_tile(sum_ptr + places[:, None] * head_dim + cols[None, :], rows, q_len, cols, head_dim, True, True)
    gradient = tl.where((lse == float("-inf"))[:, None], 0.0, sums * scale)
    dq_ptrs = (
        dq_ptr + index_b * stride_qb + index_h * stride_qh + rows.to(tl.int64)[:, None] * stride_qm + cols[None, :]
    )
    store_tile(dq_ptrs, gradient, rows, q_len, cols, head_dim, True)


@triton.jit
def _merge(
    written_ptr, out_ptr, strides, parts, heads, length, width, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """Write the fp32 sum of the parts of one gradient: a tile of keys of one key head."""
    tiles = tl.cdiv(length, BLOCK_N)
    batch_head = tl.program_id(0) // tiles
    rows = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_D)
    places = batch_head.to(tl.int64) * parts * length + rows
    sums = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for _ in range(parts):
        sums += load_tile(written_ptr + places[:, None] * width + cols[None, :], rows, length, cols, width, True, True)
        places += length
    start = out_ptr + (batch_head // heads).to(tl.int64) * strides[0] + (batch_head % heads).to(tl.int64) * strides[1]
    out_ptrs = start + rows.to(tl.int64)[:, None] * strides[2] + cols[None, :]
    store_tile(out_ptrs, sums, rows, length, cols, width, True)


@triton.jit
def flash_attention_bwd_sm90_merge_kernel(
    dk_parts_ptr,
    dv_parts_ptr,
    dk_ptr,
    dv_ptr,
    parts,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    kv_len,
    head_dim,
    v_dim,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Write the gradients of keys and values: the fp32 sums of `parts` parts.

    The parts are contiguous [batch, heads, parts, kv_len, head_dim], and v_dim in place of head_dim; the gradients may
    have any strides, the last 1. `heads`: the number of key heads. Grid: cdiv(kv_len, BLOCK_N) * batch * heads in x; 2
    in y, keys first.
    """
    if tl.program_id(1) == 0:
        strides = (stride_kb, stride_kh, stride_kn)
        _merge(dk_parts_ptr, dk_ptr, strides, parts, heads, kv_len, head_dim, BLOCK_N, BLOCK_D)
    else:
        strides = (stride_vb, stride_vh, stride_vn)
        _merge(dv_parts_ptr, dv_ptr, strides, parts, heads, kv_len, v_dim, BLOCK_N, BLOCK_D)
