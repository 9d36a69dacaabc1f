"""Flash attention, forward (Dao 2023, https://arxiv.org/abs/2307.08691): one program owns `BLOCK_M` queries of a head.

A program walks the keys in tiles of `BLOCK_N` and keeps, per query, the running maximum and sum of the softmax and the
running output, all in fp32. Tiles that every query of the program may see in full come first and carry no mask; the
tiles that the causal diagonal or the end of the keys cuts come after, masked. Exponentials are taken in base two, with
log2(e) folded into the scale.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)
# ruff: noqa: PLR0917 - a launch passes its facts by position, many of them

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _load_tile(ptrs, rows, row_count, cols, col_count, MASK_ROWS: tl.constexpr, MASK_COLS: tl.constexpr):
    """Load a [rows, cols] tile; what lies outside the tensor reads as 0, so that NaNs in padding never enter."""
    if MASK_ROWS and MASK_COLS:
        return tl.load(ptrs, mask=(rows[:, None] < row_count) & (cols[None, :] < col_count), other=0.0)
    elif MASK_ROWS:  # noqa: RET505 - Triton needs both arms: it compiles the one that is taken
        return tl.load(ptrs, mask=rows[:, None] < row_count, other=0.0)
    elif MASK_COLS:
        return tl.load(ptrs, mask=cols[None, :] < col_count, other=0.0)
    else:
        return tl.load(ptrs)


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
    kv_len,
    head_dim,
    v_dim,
    qk_scale,
    causal_offset,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Fold the keys [first, last) of one head into the running state.

    Unless `MASKED`, every key of every tile must exist and be visible to every row.
    """
    lanes = tl.arange(0, BLOCK_N)
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    for start in range(first, last, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)  # noqa: PLW2901 - a fact about it, not another value
        keys = start + lanes
        # made here and not carried: hoisted, the pointers of unaligned calls (one per element) would fill the registers
        key_rows = keys.to(tl.int64)[:, None]
        k_tile = k_head_ptr + key_rows * stride_kn + k_cols[None, :]
        k = _load_tile(k_tile, keys, kv_len, k_cols, head_dim, MASKED, not EVEN_D)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
            visible = keys[None, :] < kv_len
            if CAUSAL:
                visible = visible & (keys[None, :] <= rows[:, None] + causal_offset)
            scores = tl.where(visible, scores * qk_scale, float("-inf"))
            new_max = tl.maximum(row_max, tl.max(scores, 1))
            # a row that has seen no key yet has maximum -inf: shift by 0 there, as -inf - -inf is NaN
            shift = tl.where(new_max == float("-inf"), 0.0, new_max)
            weights = tl.exp2(scores - shift[:, None])
        else:
            new_max = tl.maximum(row_max, tl.max(scores, 1) * qk_scale)
            shift = tl.where(new_max == float("-inf"), 0.0, new_max)
            weights = tl.exp2(scores * qk_scale - shift[:, None])
        keep = tl.exp2(row_max - shift)
        row_sum = row_sum * keep + tl.sum(weights, 1)
        v_tile = v_head_ptr + key_rows * stride_vn + v_cols[None, :]
        v = _load_tile(v_tile, keys, kv_len, v_cols, v_dim, MASKED, not EVEN_D)
        acc = tl.dot(weights.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
        row_max = new_max
    return acc, row_sum, row_max


@triton.jit
def flash_attention_fwd_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    scale,
    causal_offset,
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
    CAUSAL: tl.constexpr,
    EVEN_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write ``softmax(q @ k^T * scale) @ v`` and, if asked, the natural-log sum of exponentials of each row.

    q is [batch, heads, q_len, head_dim], k [batch, heads // group, kv_len, head_dim], v [..., kv_len, v_dim], out
    [batch, heads, q_len, v_dim]: any strides, the last 1. lse is None or contiguous fp32 [batch, heads, q_len].
    With `CAUSAL`, query m sees the keys up to m + `causal_offset`. A row that sees no key gives 0 and lse -inf.
    The grid is ``cdiv(q_len, BLOCK_M) * batch * heads`` in x alone, as y and z end at 65,535.
    """
    tiles = tl.cdiv(q_len, BLOCK_M)
    # under a causal mask the last tiles are the longest: they go first, so that short ones fill the end of the wave
    tile = tiles - 1 - tl.program_id(0) % tiles
    batch_head = tl.program_id(0) // tiles
    index_b = (batch_head // heads).to(tl.int64)
    index_h = (batch_head % heads).to(tl.int64)
    index_kv = index_h // group

    row_start = tile * BLOCK_M
    rows = row_start + tl.arange(0, BLOCK_M)
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    q_ptrs = (
        q_ptr + index_b * stride_qb + index_h * stride_qh + rows.to(tl.int64)[:, None] * stride_qm + k_cols[None, :]
    )
    k_head_ptr = k_ptr + index_b * stride_kb + index_kv * stride_kh
    v_head_ptr = v_ptr + index_b * stride_vb + index_kv * stride_vh

    q = _load_tile(q_ptrs, rows, q_len, k_cols, head_dim, True, not EVEN_D)
    # the running maximum is taken before scaling, which needs a scale of at least 0; turning the sign of q is exact
    q = (q.to(tl.float32) * tl.where(scale < 0, -1.0, 1.0)).to(q.dtype)
    qk_scale = tl.abs(scale) * LOG2_E

    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)

    last = kv_len
    seen_by_all = kv_len
    if CAUSAL:
        last = tl.maximum(0, tl.minimum(kv_len, row_start + BLOCK_M + causal_offset))
        seen_by_all = tl.maximum(0, tl.minimum(kv_len, row_start + 1 + causal_offset))
    full = seen_by_all // BLOCK_N * BLOCK_N
    acc, row_sum, row_max = _attend(
        acc, row_sum, row_max, q, k_head_ptr, v_head_ptr, stride_kn, stride_vn, rows, 0, full, kv_len, head_dim, v_dim,
        qk_scale, causal_offset, False, CAUSAL, EVEN_D, BLOCK_N, BLOCK_D, BLOCK_DV,
    )  # fmt: skip
    acc, row_sum, row_max = _attend(
        acc, row_sum, row_max, q, k_head_ptr, v_head_ptr, stride_kn, stride_vn, rows, full, last, kv_len, head_dim, v_dim,
        qk_scale, causal_offset, True, CAUSAL, EVEN_D, BLOCK_N, BLOCK_D, BLOCK_DV,
    )  # fmt: skip

    out = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    out_ptrs = (
        out_ptr + index_b * stride_ob + index_h * stride_oh + rows.to(tl.int64)[:, None] * stride_om + v_cols[None, :]
    )
    out_mask = rows[:, None] < q_len
    if not EVEN_D:
        out_mask = out_mask & (v_cols[None, :] < v_dim)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=out_mask)
    if lse_ptr is not None:
        # a row that saw nothing has sum 0 and maximum -inf: log2(0) is -inf already
        lse = (row_max + tl.log2(row_sum)) * LN_2
        tl.store(lse_ptr + batch_head.to(tl.int64) * q_len + rows, lse, mask=rows < q_len)
