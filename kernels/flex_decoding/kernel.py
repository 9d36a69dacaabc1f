"""Triton kernels of flex decoding: attention of few queries to many keys, split among programs, and the merge of the parts.

After flash decoding (Dao et al. 2023, https://crfm.stanford.edu/2023/10/12/flashdecoding.html). `flex_decoding_kernel`
is for masks where each query sees one interval of keys, from a band or a table; `flex_decoding_blocks_kernel` is for
masks stored as lists of blocks with bitmaps. `nojit.kernels.block_mask.tables` describes the tables. Exponentials use base 2.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LN_2, LOG2_E, weigh
from nojit.kernels.flex_decoding.kernel_pages import load_rows, load_some_rows, pages_of, rows_of
from nojit.kernels.flex_decoding.kernel_tiles import (
    WORD,
    band_at,
    length_of,
    load_queries,
    modify,
    part_of,
    place_program,
    store_results,
)
from nojit.kernels.kernel_functions import let_next_start, wait_for_last


@triton.jit
def flex_decoding_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    part_ptr,
    lens_ptr,
    table_ptr,
    spans_ptr,
    first_ptr,
    second_ptr,
    bias_ptr,
    scale,
    left,
    right,
    from_end,
    has_spans,
    has_lens,
    has_lse,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    group,
    pack,
    q_len,
    kv_len,
    splits,
    width,
    page_bits,
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
    stride_tb,
    stride_sb,
    stride_sh,
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
    SCORE_MOD: tl.constexpr,
    PAGED: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute attention of all queries to one split of the keys that they see.

    q is [batch, heads, q_len, head_dim], k [batch, heads // group, kv_len, head_dim], v [..., kv_len, v_dim]: any
    strides, the last 1. If `PAGED`, k and v are [pages, heads // group, 1 << page_bits, ...], and an int32 table with
    row stride `stride_tb` has the pages of each batch. With `has_lens`, batch b has only ``lens[b]`` keys.

    Query m sees the keys from m + `left` to m + `right`; with `from_end`, both bounds are shifted by the number of keys
    minus that of queries. With `has_spans`, keys must also lie in the query's interval in spans, int32 [..., q_len, 2].
    `SCORE_MOD` modifies scores, as in `nojit.kernels.flex.kernel_mods`; `first_*`, `second_*` and `bias_*` are the
    values that it captures. For it, query m is at position m or, with `has_lens`, the last query at the last key.

    `store_results` writes the results. `pack`, the heads whose queries share a tile, is `group` or divides it. Grid:
    cdiv(q_len * pack, BLOCK_M) * splits * batch * heads // pack.
    """
    # flex_decoding_merge_kernel may start early: it waits for the parts itself
    if splits > 1:
        let_next_start()
    tiles = tl.cdiv(q_len * pack, BLOCK_M)
    tile, split, index_g, index_b = place_program(tiles, splits, heads // pack)
    index_b = index_b.to(tl.int64)
    index_kv = (index_g * pack // group).to(tl.int64)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = rows < q_len * pack
    queries = rows // pack
    own = index_g * pack + rows % pack

    length = length_of(lens_ptr, has_lens, index_b, kv_len)
    shift = tl.where(has_lens != 0, length - q_len, 0)
    band_shift = tl.where(from_end != 0, length - q_len, 0)
    given = rows < q_len * pack * has_spans
    span_ptrs = spans_ptr + index_b * stride_sb + own.to(tl.int64) * stride_sh + queries * 2
    first, last = band_at(queries, band_shift + left, band_shift + right, length)
    first = tl.maximum(first, tl.load(span_ptrs, mask=given, other=0))
    last = tl.minimum(last, tl.load(span_ptrs + 1, mask=given, other=kv_len))
    some = inside & (first < last)
    one_slot = (first_kind, first_ptr, first_stride_b, first_stride_h, first_value, first_reach)
    other_slot = (second_kind, second_ptr, second_stride_b, second_stride_h, second_value, second_reach)
    # the rows of a bias are query indices, not positions
    bias = (bias_ptr - shift * bias_stride_m, bias_stride_b, bias_stride_h, bias_stride_m, bias_stride_n)
    places = queries + shift
    # keys that any row sees, since no others may be read, not even in pages that no longer exist; and keys that all
    # rows see
    begin, all_last = band_at(tile * BLOCK_M // pack, band_shift + left, band_shift + right, length)
    latest_query = tl.minimum((tile + 1) * BLOCK_M, q_len * pack) - 1
    all_first, end = band_at(latest_query // pack, band_shift + left, band_shift + right, length)
    # in a band the first and the last row determine these bounds, unless one of them sees nothing
    if (has_spans != 0) | (begin >= all_last) | (all_first >= end):
        begin = tl.min(tl.where(some, first, kv_len), 0)
        end = tl.max(tl.where(some, last, 0), 0)
        all_first = tl.max(tl.where(inside, first, 0), 0)
        all_last = tl.min(tl.where(inside, last, kv_len), 0)
    # the last step is moved back to end at the last key, and masks keys that an earlier step has seen; with fewer keys
    # than a step, the last key is loaded repeatedly
    latest = tl.maximum(end - BLOCK_N, begin)
    lanes = tl.minimum(tl.arange(0, BLOCK_N), tl.maximum(end - begin - 1, 0))

    k_head_ptr = k_ptr + index_kv * stride_kh
    v_head_ptr = v_ptr + index_kv * stride_vh
    table_row_ptr = table_ptr + index_b * stride_tb
    q = load_queries(q_ptr + index_b * stride_qb, own, queries, inside, stride_qh, stride_qm, head_dim, BLOCK_D)
    first_step, last_step = part_of(split, splits, tl.cdiv(tl.maximum(end - begin, 0), BLOCK_N))
    start = tl.minimum(begin + first_step * BLOCK_N, latest)
    any_keys = lanes < (last_step - first_step) * BLOCK_N  # all of them, or none
    pages = pages_of(start + lanes, any_keys, table_row_ptr, page_bits, index_b, PAGED)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    for step in range(first_step, last_step):
        fresh = begin + step * BLOCK_N
        start = tl.minimum(fresh, latest)
        keys = start + tl.arange(0, BLOCK_N)
        here = pages
        ahead = tl.minimum(fresh + BLOCK_N, latest) + lanes
        pages = pages_of(ahead, any_keys, table_row_ptr, page_bits, index_b, PAGED)
        k_ptrs = rows_of(k_head_ptr, start, lanes, here, page_bits, stride_kb, stride_kn, PAGED)
        k = load_rows(k_ptrs, head_dim, BLOCK_D)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        seen = (keys[None, :] >= tl.maximum(first, fresh)[:, None]) & (keys[None, :] < last[:, None])
        if SCORE_MOD is None:
            scores *= scale * LOG2_E
            if (start < all_first) | (start < fresh) | (start + BLOCK_N > all_last):
                scores = tl.where(seen, scores, float("-inf"))
        else:
            scores = modify(scores * scale, index_b, own, places, keys, seen, one_slot, other_slot, bias, SCORE_MOD)
            scores = tl.where(seen, scores, float("-inf"))
        weights, keep, row_max, row_sum = weigh(scores, row_max, row_sum)
        v_ptrs = rows_of(v_head_ptr, start, lanes, here, page_bits, stride_vb, stride_vn, PAGED)
        v = load_rows(v_ptrs, v_dim, BLOCK_DV)
        acc = tl.dot(weights.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
    store_results(
        acc, row_sum, row_max, out_ptr, lse_ptr, part_ptr, has_lse, index_b, heads, own, queries, inside, split, splits,
        q_len, v_dim, width, stride_ob, stride_oh, stride_om, BLOCK_DV,
    )  # fmt: skip


@triton.jit
def _entry(blocks_ptr, number, count):
    """Return the block column and the bitmap index of entry `number`; past `count` entries, those of an absent block."""
    there = number < count
    column = tl.load(blocks_ptr + 2 * number.to(tl.int64), mask=there, other=0)
    return column, tl.load(blocks_ptr + 2 * number.to(tl.int64) + 1, mask=there, other=-1)


@triton.jit
def flex_decoding_blocks_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    part_ptr,
    lens_ptr,
    table_ptr,
    spans_ptr,
    blocks_ptr,
    bits_ptr,
    first_ptr,
    second_ptr,
    bias_ptr,
    scale,
    block,
    has_lens,
    has_lse,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    group,
    pack,
    q_len,
    kv_len,
    splits,
    width,
    page_bits,
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
    stride_tb,
    stride_sb,
    stride_sh,
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
    SCORE_MOD: tl.constexpr,
    PAGED: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute attention of all queries to one split of the blocks that they see.

    Arguments that are not mentioned here are those of `flex_decoding_kernel`. For each block row of `block` queries,
    spans, int32 [..., block rows, 3], has the start of its list in blocks, its number of full blocks, which come first,
    and its number of blocks. blocks, int32 [..., 2], has the block column and the index of the bitmap, -1 for a full
    block. Bitmaps are int32 [..., block, block / 32]. If heads have different lists, `pack` is 1. `BLOCK_N` divides
    `block`. Grid: cdiv(q_len, block) * cdiv(min(q_len, block) * pack, BLOCK_M) * splits * batch * heads // pack.
    """
    # flex_decoding_merge_kernel may start early: it waits for the parts itself
    if splits > 1:
        let_next_start()
    height = tl.minimum(q_len, block)
    row_tiles = tl.cdiv(height * pack, BLOCK_M)
    tile, split, index_g, index_b = place_program(tl.cdiv(q_len, block) * row_tiles, splits, heads // pack)
    index_b = index_b.to(tl.int64)
    index_kv = (index_g * pack // group).to(tl.int64)
    block_row = tile // row_tiles
    rows = tile % row_tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    in_block = rows // pack
    queries = block_row * block + in_block
    inside = (in_block < height) & (queries < q_len)
    own = index_g * pack + rows % pack

    length = length_of(lens_ptr, has_lens, index_b, kv_len)
    shift = tl.where(has_lens != 0, length - q_len, 0)
    one_slot = (first_kind, first_ptr, first_stride_b, first_stride_h, first_value, first_reach)
    other_slot = (second_kind, second_ptr, second_stride_b, second_stride_h, second_value, second_reach)
    # the rows of a bias are query indices, not positions
    bias = (bias_ptr - shift * bias_stride_m, bias_stride_b, bias_stride_h, bias_stride_m, bias_stride_n)
    places = queries + shift
    span_ptr = spans_ptr + index_b * stride_sb + index_g.to(tl.int64) * pack * stride_sh + block_row * 3
    listed_ptr = blocks_ptr + 2 * tl.load(span_ptr).to(tl.int64)
    count = tl.load(span_ptr + 2)

    q = load_queries(q_ptr + index_b * stride_qb, own, queries, inside, stride_qh, stride_qm, head_dim, BLOCK_D)
    k_head_ptr = k_ptr + index_kv * stride_kh
    v_head_ptr = v_ptr + index_kv * stride_vh
    table_row_ptr = table_ptr + index_b * stride_tb
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], tl.float32)
    lanes = tl.arange(0, BLOCK_N)
    steps = block // BLOCK_N
    words = block // WORD
    row_bits = bits_ptr + in_block * words
    first_step, last_step = part_of(split, splits, count * steps)
    column, number = _entry(listed_ptr, first_step // steps, count)
    keys = column * block + first_step % steps * BLOCK_N + lanes
    pages = pages_of(keys, keys < length, table_row_ptr, page_bits, index_b, PAGED)
    for step in range(first_step, last_step):
        inner = step % steps * BLOCK_N + lanes
        start = column * block + step % steps * BLOCK_N
        keys = start + lanes
        there = keys < length
        here, bitmap = pages, number
        column, number = _entry(listed_ptr, (step + 1) // steps, count)
        ahead = column * block + (step + 1) % steps * BLOCK_N + lanes
        pages = pages_of(ahead, ahead < length, table_row_ptr, page_bits, index_b, PAGED)
        k_ptrs = rows_of(k_head_ptr, start, lanes, here, page_bits, stride_kb, stride_kn, PAGED)
        k = load_some_rows(k_ptrs, there, head_dim, BLOCK_D)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        # a full block has no bitmap: read the first one and treat all its bits as set
        words_ptr = row_bits + tl.maximum(bitmap, 0).to(tl.int64) * block * words
        bits = tl.load(words_ptr[:, None] + (inner // WORD)[None, :], mask=inside[:, None], other=0)
        bits = bits | tl.where(bitmap < 0, -1, 0)
        seen = ((bits >> (inner % WORD)[None, :]) & 1 != 0) & there[None, :]
        if SCORE_MOD is None:
            scores *= scale * LOG2_E
        else:
            scores = modify(scores * scale, index_b, own, places, keys, seen, one_slot, other_slot, bias, SCORE_MOD)
        weights, keep, row_max, row_sum = weigh(tl.where(seen, scores, float("-inf")), row_max, row_sum)
        v_ptrs = rows_of(v_head_ptr, start, lanes, here, page_bits, stride_vb, stride_vn, PAGED)
        v = load_some_rows(v_ptrs, there, v_dim, BLOCK_DV)
        acc = tl.dot(weights.to(v.dtype), v, acc * keep[:, None], input_precision="ieee")
    store_results(
        acc, row_sum, row_max, out_ptr, lse_ptr, part_ptr, has_lse, index_b, heads, own, queries, inside, split, splits,
        q_len, v_dim, width, stride_ob, stride_oh, stride_om, BLOCK_DV,
    )  # fmt: skip


@triton.jit
def flex_decoding_merge_kernel(
    part_ptr,
    out_ptr,
    lse_ptr,
    has_lse,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    q_len,
    splits,
    width,
    v_dim,
    stride_ob,
    stride_oh,
    stride_om,
    BLOCK_DV: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Merge the parts of each row, in order; write its output and, if requested, its log-sum.

    `store_results` describes the parts. out is [batch, heads, q_len, v_dim], any strides, the last 1. Grid: batch *
    heads * q_len.

    `splits`: number of programs that share a sequence, or None to choose it.
    """
    wait_for_last()
    row = tl.program_id(0).to(tl.int64)
    rest = row // q_len
    row_ptr = part_ptr + row * splits * width
    lanes = tl.arange(0, BLOCK_S)
    cols = tl.arange(0, BLOCK_DV)
    highest = float("-inf")
    total = 0.0
    acc = tl.zeros([BLOCK_DV], tl.float32)
    for start in range(0, splits, BLOCK_S):
        parts = start + lanes
        sums = tl.load(row_ptr + parts * width + v_dim, mask=parts < splits, other=float("-inf"))
        new_highest = tl.maximum(highest, tl.max(sums, 0))
        shift = tl.where(new_highest == float("-inf"), 0.0, new_highest)
        weights = tl.exp2(sums - shift)
        there = (parts < splits)[:, None] & (cols < v_dim)[None, :]
        # the other numbers of a part where the row sees nothing are undefined; they are ignored only below, so that no
        # load waits for another
        values = tl.load(row_ptr + parts[:, None] * width + cols[None, :], mask=there, other=0.0)
        values = tl.where((sums > float("-inf"))[:, None], values, 0.0)
        keep = tl.exp2(highest - shift)
        acc = acc * keep + tl.sum(values * weights[:, None], 0)
        total = total * keep + tl.sum(weights, 0)
        highest = new_highest
    out = acc / tl.where(total == 0.0, 1.0, total)
    out_ptrs = out_ptr + rest // heads * stride_ob + rest % heads * stride_oh + row % q_len * stride_om + cols
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=cols < v_dim)
    if has_lse != 0:
        tl.store(lse_ptr + row, (highest + tl.log2(total)) * LN_2)
