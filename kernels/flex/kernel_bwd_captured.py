"""Triton kernel of flex attention, backward, for the tensors that a score modification captures.

Let g = p * (dout v^T - delta) be the gradient by modified scores, in the notation of `kernel_bwd`. Of two chained
modifications, the gradient by the second one's result is g, and that by the first one's result is g times the second's
derivative. Programs add to fp32 tables atomically, in any order.

The sum of a row of g is the gradient of the row's lse, except for the error of `delta`, which is computed from a
rounded output. The gradient of an alibi slope sums g times a distance, over rows with similar distances; there this
error would accumulate to hundreds of times the rounding error. `subtract_unbalanced` therefore subtracts the
contribution of each row's excess sum.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LN_2, LOG2_E, load_tile, place_queries
from nojit.kernels.flex.kernel_mods import add_gradient, subtract_unbalanced
from nojit.kernels.flex.kernel_tiles import score_tile, seen_keys, walk_of


@triton.jit
def flex_attention_bwd_captured_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    lse_ptr,
    delta_ptr,
    dlse_ptr,
    dfirst_ptr,
    dsecond_ptr,
    dbias_ptr,
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
    first_wanted,
    dfirst_stride_b,
    dfirst_stride_h,
    second_wanted,
    dsecond_stride_b,
    dsecond_stride_h,
    dbias_stride_b,
    dbias_stride_h,
    dbias_stride_m,
    dbias_stride_n,
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
    MASK: tl.constexpr,
    SCORE_MOD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Add the gradients of both slots' tables and of the dense bias to fp32 tensors.

    Operands, mask and modification are the arguments of `flex_attention_bwd_dq_kernel`; the modification is one of the
    library. `first_wanted` and `second_wanted` are the kinds of the slots whose gradients are requested, else 0. The
    gradients have strides of their own, 0 for shared dimensions. Grid: cdiv(q_len, BLOCK_M) * batch * heads in x.
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
    dfirst = (first_wanted, dfirst_ptr, dfirst_stride_b, dfirst_stride_h, first_reach)
    dsecond = (second_wanted, dsecond_ptr, dsecond_stride_b, dsecond_stride_h, second_reach)
    dbias = (dbias_ptr, dbias_stride_b, dbias_stride_h, dbias_stride_m, dbias_stride_n)

    table = index_b * mask_batch + index_h * mask_head
    first, end, walk, count = walk_of(
        spans_ptr, table, rows, left, right, q_len, kv_len, block, BLOCK_M, BLOCK_N, MASK
    )  # fmt: skip
    # the excess sum of a row's gradients, 0 up to rounding; the lse of a fully masked row has no gradient
    rest = -tl.load(dlse_ptr + row + rows, mask=lse < float("inf"), other=0.0)
    first_pull = tl.zeros([BLOCK_M], tl.float32)
    second_pull = tl.zeros([BLOCK_M], tl.float32)
    for number in range(count):
        start, is_cut, bitmap, keys, _, inside, scores, _ = score_tile(
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
        grad = weights * (dweights - delta[:, None])
        # rows past the end have weight 0, but 0 times an undefined value need not be 0
        grad = tl.where(inside, grad, 0.0)
        distances = (keys[None, :] - rows[:, None]).to(tl.float32)
        rest += tl.sum(grad, 1)
        # mask after the product: if it were fused into the sum, lanes with equal values would differ in the last bit
        second_pull += tl.sum(tl.where(inside, weights * distances, 0.0), 1)
        add_gradient(grad, index_b, index_h, rows[:, None], keys[None, :], inside, dsecond, dbias)
        if second_kind == 3:
            ratio = scores * (LN_2 / second_value)
            grad *= 1.0 - ratio * ratio
            weights *= 1.0 - ratio * ratio
        first_pull += tl.sum(tl.where(inside, weights * distances, 0.0), 1)
        add_gradient(grad, index_b, index_h, rows[:, None], keys[None, :], inside, dfirst, dbias)
    subtract_unbalanced(rest, second_pull, index_b, index_h, dsecond)
    subtract_unbalanced(rest, first_pull, index_b, index_h, dfirst)
