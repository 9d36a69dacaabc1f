"""Triton kernel of flex decoding for one query of each sequence: the usual call of text generation.

Such a call takes a few microseconds, and its programs wait for memory only. So this kernel has no arguments of tables or
modifications of scores, and computes no places by division: its first loads of keys start at once.
`flex_decoding_merge_kernel` merges its parts.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LOG2_E, weigh
from nojit.kernels.flex_decoding.kernel_pages import load_rows, pages_of, rows_of
from nojit.kernels.flex_decoding.kernel_tiles import band_at, length_of, load_queries, part_of, store_results
from nojit.kernels.kernel_functions import let_next_start


@triton.jit
def flex_decoding_one_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    part_ptr,
    lens_ptr,
    table_ptr,
    scale,
    left,
    right,
    from_end,
    has_lens,
    has_lse,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    kv_heads,
    group,
    kv_len,
    splits,
    width,
    page_bits,
    head_dim,
    v_dim,
    stride_qb,
    stride_qh,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_tb,
    PAGED: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute attention of one query of each head to one split of the keys that it sees.

    q is [batch, kv_heads * group, head_dim]; `group` is at most `BLOCK_M`. The other arguments are those of
    `flex_decoding_kernel`, for a `q_len` of 1. It sums in the same order as that kernel. Grid: splits, kv_heads, batch.
    """
    # flex_decoding_merge_kernel may start early: it waits for the parts itself
    if splits > 1:
        let_next_start()
    split, index_kv, index_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    length = length_of(lens_ptr, has_lens, index_b, kv_len)
    place = tl.where(from_end != 0, length - 1, 0)
    begin, end = band_at(place, left, right, length)
    count = tl.maximum(end - begin, 0)
    first_step, last_step = part_of(split, splits, tl.cdiv(count, BLOCK_N))
    # the last step is moved back to end at the last key, and masks keys that an earlier step has seen; with fewer keys
    # than a step, the last key is loaded repeatedly
    latest = tl.maximum(end - BLOCK_N, begin)
    lanes = tl.minimum(tl.arange(0, BLOCK_N), tl.maximum(count - 1, 0))

    k_head_ptr = k_ptr + index_kv.to(tl.int64) * stride_kh
    v_head_ptr = v_ptr + index_kv.to(tl.int64) * stride_vh
    table_row_ptr = table_ptr + index_b * stride_tb
    any_keys = lanes < (last_step - first_step) * BLOCK_N  # all of them, or none
    start = tl.minimum(begin + first_step * BLOCK_N, latest)
    pages = pages_of(start + lanes, any_keys, table_row_ptr, page_bits, index_b, PAGED)
    rows = tl.arange(0, BLOCK_M)
    inside = rows < group
    own = index_kv * group + rows
    queries = tl.zeros([BLOCK_M], tl.int32)
    q_row_ptr = q_ptr + index_b * stride_qb
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    for step in range(first_step, last_step):
        fresh = begin + step * BLOCK_N
        start = tl.minimum(fresh, latest)
        here = pages
        ahead = tl.minimum(fresh + BLOCK_N, latest) + lanes
        pages = pages_of(ahead, any_keys, table_row_ptr, page_bits, index_b, PAGED)
        k_ptrs = rows_of(k_head_ptr, start, lanes, here, page_bits, stride_kb, stride_kn, PAGED)
        k = load_rows(k_ptrs, head_dim, BLOCK_D)
        # loaded with each tile of keys, from the cache: queries loaded before the loop would hold up its first loads. The
        # minimum is always `group`, and keeps the compiler from moving the load there
        there = rows < tl.minimum(group, BLOCK_M + step)
        q = load_queries(q_row_ptr, own, queries, there, stride_qh, 0, head_dim, BLOCK_D)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores *= scale * LOG2_E
        if (start < fresh) | (start + BLOCK_N > end):
            keys = start + tl.arange(0, BLOCK_N)
            seen = (keys >= fresh) & (keys < end)
            scores = tl.where(seen[None, :], scores, float("-inf"))
        weights, keep, row_max, row_sum = weigh(scores, row_max, row_sum)
        v_ptrs = rows_of(v_head_ptr, start, lanes, here, page_bits, stride_vb, stride_vn, PAGED)
        v = load_rows(v_ptrs, v_dim, BLOCK_DV)
        acc = tl.dot(weights.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
    store_results(
        acc, row_sum, row_max, out_ptr, lse_ptr, part_ptr, has_lse, index_b, kv_heads * group, own, queries, inside, split,
        splits, 1, v_dim, width, stride_ob, stride_oh, 0, BLOCK_DV,
    )  # fmt: skip
