"""Triton kernel of flex attention, backward, for keys and values; `kernel_bwd_dq` computes the gradient of queries.

With s = q k^T scale, the recomputed weights p = exp(mod(s) - lse), and delta = rowsum(out * dout) - dlse from flash
attention's kernel:

    dv = p^T dout        ds = p * (dout v^T - delta) * mod'(s)        dk = ds^T q scale        dq = ds k scale

One program owns one sum: the gradients of a tile of keys and values, over all queries of all heads and batches that
read them, or that of a tile of queries, over all keys. No program adds to memory that another one writes, so results do
not depend on the order of programs. Sums are fp32; p and ds are rounded to the dtype of the operands before products.
Exponentials use base 2.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LOG2_E, load_tile, place_keys, store_tile
from nojit.kernels.flex.kernel_tiles import modified, tile_at, visible, walk_of


@triton.jit
def flex_attention_bwd_dkdv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
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
    kv_batch,  # noqa: ARG001 - the manifest's grid reads it
    shared,
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
    SCORE_MOD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """Write dk and dv, the gradients of k and v.

    q is [kv_batch * shared, kv_heads * group, q_len, head_dim], dout [..., q_len, v_dim], k and dk [kv_batch, kv_heads,
    kv_len, head_dim], v and dv [..., kv_len, v_dim]: any strides, the last 1. lse and delta are contiguous fp32
    [kv_batch * shared, kv_heads * group, q_len]. The score modification is that of `flex_attention_fwd_kernel`. The
    mask's tables are the `by_key` ones of `nojit.kernels.block_mask.tables`. A key that no query sees has gradient 0. Grid:
    cdiv(kv_len, BLOCK_N) * kv_batch * kv_heads in x.
    """
    key_start, _, index_kb, index_kv = place_keys(kv_heads, kv_len, BLOCK_N)
    mods = (
        (first_kind, first_ptr, first_stride_b, first_stride_h, first_value, first_reach),
        (second_kind, second_ptr, second_stride_b, second_stride_h, second_value, second_reach),
        (bias_ptr, bias_stride_b, bias_stride_h, bias_stride_m, bias_stride_n),
    )

    keys = key_start + tl.arange(0, BLOCK_N)
    lanes = tl.arange(0, BLOCK_M)
    key_rows = keys.to(tl.int64)[:, None]
    k_cols = tl.arange(0, BLOCK_D)
    v_cols = tl.arange(0, BLOCK_DV)
    k_ptrs = k_ptr + index_kb * stride_kb + index_kv * stride_kh + key_rows * stride_kn + k_cols[None, :]
    v_ptrs = v_ptr + index_kb * stride_vb + index_kv * stride_vh + key_rows * stride_vn + v_cols[None, :]
    k = load_tile(k_ptrs, keys, kv_len, k_cols, head_dim, True, True)
    v = load_tile(v_ptrs, keys, kv_len, v_cols, v_dim, True, True)
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_DV], tl.float32)

    for member in range(group * shared):
        index_b = index_kb * shared + member // group
        index_h = index_kv * group + member % group
        q_head_ptr = q_ptr + index_b * stride_qb + index_h * stride_qh
        dout_head_ptr = dout_ptr + index_b * stride_gb + index_h * stride_gh
        row = (index_b * kv_heads * group + index_h) * q_len
        table = index_b * mask_batch + index_h * mask_head
        # key n is visible to the queries from n - right to n - left
        first, end, walk, count = walk_of(
            spans_ptr, table, keys, -right, -left, kv_len, q_len, block, BLOCK_N, BLOCK_M, MASK
        )  # fmt: skip
        for number in range(count):
            start, is_cut, bitmap = tile_at(number, walk, blocks_ptr, block, BLOCK_M, MASK)
            rows = start + lanes
            # recompute these offsets: hoisted pointers of unaligned calls would fill the registers
            query_rows = rows.to(tl.int64)[:, None]
            q_tile = q_head_ptr + query_rows * stride_qm + k_cols[None, :]
            q = load_tile(q_tile, rows, q_len, k_cols, head_dim, True, True)
            products = tl.dot(k, tl.trans(q), input_precision="ieee")
            inside = (keys < kv_len)[:, None] & (rows < q_len)[None, :]
            scores, slope = modified(
                products, scale, index_b, index_h, rows[None, :], keys[:, None], inside, mods, SCORE_MOD
            )  # fmt: skip
            # queries past the end and fully masked rows, whose log-sum is -inf, get weight 0
            lse = tl.load(lse_ptr + row + rows, mask=rows < q_len, other=float("inf")) * LOG2_E
            lse = tl.where(lse == float("-inf"), float("inf"), lse)
            weights = tl.exp2(scores - lse[None, :])
            if is_cut:
                seen = visible(
                    rows[None, :], keys[:, None], start, key_start, first[:, None], end[:, None], left, right, bits_ptr,
                    bitmap, block, BLOCK_M, BLOCK_N, True, MASK,
                )  # fmt: skip
                weights = tl.where(seen, weights, 0.0)
            dout_tile = dout_head_ptr + query_rows * stride_gm + v_cols[None, :]
            dout = load_tile(dout_tile, rows, q_len, v_cols, v_dim, True, True)
            dv = tl.dot(weights.to(dout.dtype), dout, dv, input_precision="ieee")
            dweights = tl.dot(v, tl.trans(dout), input_precision="ieee")
            delta = tl.load(delta_ptr + row + rows, mask=rows < q_len, other=0.0)
            dscores = weights * (dweights - delta[None, :]) * slope
            dk = tl.dot(dscores.to(q.dtype), q, dk, input_precision="ieee")

    dk_ptrs = dk_ptr + index_kb * stride_dkb + index_kv * stride_dkh + key_rows * stride_dkn + k_cols[None, :]
    dv_ptrs = dv_ptr + index_kb * stride_dvb + index_kv * stride_dvh + key_rows * stride_dvn + v_cols[None, :]
    store_tile(dk_ptrs, dk * scale, keys, kv_len, k_cols, head_dim, True)
    store_tile(dv_ptrs, dv, keys, kv_len, v_cols, v_dim, True)
