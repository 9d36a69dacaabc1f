"""Gluon kernel of flash attention, forward, for sm_90, with TMA and warp specialization (FlashAttention-3).

After Shah et al. 2024, https://arxiv.org/abs/2407.08608.

Programs are persistent: program p takes tiles p, p + programs, and so on, of `BLOCK_M` queries. One warp, the producer,
copies queries, keys and values into shared memory. Each consumer warp group owns 64 of the queries. A consumer keeps
two products in flight, of queries by one tile of keys and of weights by the previous tile of values, so that tensor
cores work while it computes exponentials. Keys are processed from the last tile to the first: tiles that the causal
diagonal or the end of the keys cuts come first, masked, then all others.

TMA reads zeros outside the tensor and does not write there.
"""

# ruff: noqa: SIM113 - Gluon has no enumerate()

from nojit.kernels.attention.kernel_sm90 import (
    LN_2,
    LOG2_E,
    added,
    barriers_for,
    both_products,
    copy_queries,
    copy_tile,
    first_factors,
    first_scores,
    is_fp8,
    largest_of,
    last_values,
    no_sums,
    pass_over,
    queries_of,
    rounded,
    scaled,
    scores_layout,
    started_from,
    summed,
    weigh,
    weights_layout,
    write_rows,
)
from nojit.kernels.kernel_functions import divide, divide_by, opaque, reciprocal, wait_for_last
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

ROWS = gl.constexpr(64)


@gluon.jit
def _section_of(heads, kv_len, SPAN: gl.constexpr, CAUSAL: gl.constexpr):
    """Return the number of heads, of all `heads` of all batches, that are processed at a time.

    Under a causal mask tiles differ in duration. Heads are processed in sections with `SPAN` keys in total, which fit
    L2, and in each section the longest tiles start first. Sections are wider if heads have few tiles: otherwise the
    same programs would get the longest tile of every head.
    """
    if CAUSAL:
        return gl.minimum(gl.maximum(SPAN // kv_len, 1), heads)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        return 1


@gluon.jit
def _tile_of(number, tiles, section, inverse, heads, CAUSAL: gl.constexpr):
    """Return the tile of queries, and the batch and head as one number, of piece of work `number`.

    `inverse` is the reciprocal of the number of tiles in a section.
    """
    first, place = divide_by(number, tiles * section, inverse)
    if CAUSAL:
        first = first * section
        down, across = divide(place, gl.minimum(section, heads - first))
        return tiles - 1 - down, first + across
    else:  # noqa: RET505 - as above
        return place, first


@gluon.jit
def _span_of(row_start, kv_len, causal_offset, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """Return how many key tiles the queries from `row_start` see (at least 1), and how many of these they see in full.

    `causal_offset`: query m sees keys up to m + causal_offset.
    """
    last = kv_len
    seen_by_all = kv_len
    if CAUSAL:
        last = gl.minimum(kv_len, row_start + BLOCK_M + causal_offset)
        seen_by_all = gl.minimum(kv_len, row_start + 1 + causal_offset)
    return gl.maximum(gl.cdiv(last, BLOCK_N), 1), gl.maximum(seen_by_all, 0) // BLOCK_N


@gluon.jit
def _copy_values(v_map, batch, head, start, full, empty, memory, copied):
    """Copy the values of the keys from `start` on; those in e4m3 are columns, which the previous kernel has written.

    `full`, `empty`, `memory` and `copied`: as in `copy_tile`.
    """
    if is_fp8(memory.dtype):
        if copied == 0:
            wait_for_last()
        copy_tile(v_map, [batch, head, 0, start], full, empty, memory, copied)
    else:
        copy_tile(v_map, [batch, head, start, 0], full, empty, memory, copied)


@gluon.jit
def _produce(maps, memory, barriers, sizes, causal_offset, SPAN: gl.constexpr, CAUSAL: gl.constexpr):
    """Copy the queries, keys and values of every tile into shared memory; run by the producer warp.

    `causal_offset`: query m sees keys up to m + causal_offset.
    """
    q_map, k_map, v_map = maps[0], maps[1], maps[2]
    q_memory, k_memory, v_memory = memory[0], memory[1], memory[2]
    q_full, q_empty, k_full, k_empty = barriers[0], barriers[1], barriers[2], barriers[3]
    v_full, v_empty = barriers[4], barriers[5]
    batch, heads, group, q_len, kv_len = opaque(sizes)
    Q_STAGES: gl.constexpr = q_full.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[0] // Q_STAGES * ROWS
    BLOCK_N: gl.constexpr = k_memory.shape[3]
    tiles = gl.cdiv(q_len, BLOCK_M)
    works = tiles * batch * heads
    section = _section_of(batch * heads, kv_len, SPAN, CAUSAL)
    inverse = reciprocal(tiles * section)
    # if all query tiles have equally many key tiles, copy queries during the previous tile; otherwise right after its
    # last keys
    EARLY: gl.constexpr = Q_STAGES > 1 and not CAUSAL
    turn = 0
    copied = 0
    if EARLY:  # noqa: SIM102 - Triton evaluates one of the two at compile time
        if gl.program_id(0) < works:
            tile, batch_head = _tile_of(gl.program_id(0), tiles, section, inverse, batch * heads, CAUSAL)
            index_b, index_h = divide(batch_head, heads)
            copy_queries(q_map, index_b, index_h, tile * BLOCK_M, q_memory, q_full, q_empty, turn)
    for number in range(gl.program_id(0), works, gl.num_programs(0)):
        tile, batch_head = _tile_of(number, tiles, section, inverse, batch * heads, CAUSAL)
        index_b, index_h = divide(batch_head, heads)
        index_kv, _ = divide(index_h, group)
        span = _span_of(tile * BLOCK_M, kv_len, causal_offset, BLOCK_M, BLOCK_N, CAUSAL)
        count = span[0]
        if Q_STAGES > 1 and not EARLY:
            copy_queries(q_map, index_b, index_h, tile * BLOCK_M, q_memory, q_full, q_empty, turn)
        for place in range(count):
            start = (count - 1 - place) * BLOCK_N
            copy_tile(k_map, [index_b, index_kv, start, 0], k_full, k_empty, k_memory, copied)
            if Q_STAGES == 1:  # noqa: SIM102 - Triton evaluates one of the two at compile time
                # the consumers need the previous tile's queries longer than its keys: copy keys first
                if place == 0:
                    copy_queries(q_map, index_b, index_h, tile * BLOCK_M, q_memory, q_full, q_empty, turn)
            _copy_values(v_map, index_b, index_kv, start, v_full, v_empty, v_memory, copied)
            copied += 1
            if EARLY:  # noqa: SIM102 - as above
                if (place == gl.minimum(count - 1, 2)) & (number + gl.num_programs(0) < works):
                    following = number + gl.num_programs(0)
                    tile, batch_head = _tile_of(following, tiles, section, inverse, batch * heads, CAUSAL)
                    next_b, next_h = divide(batch_head, heads)
                    copy_queries(q_map, next_b, next_h, tile * BLOCK_M, q_memory, q_full, q_empty, turn + 1)
        turn += 1


@gluon.jit
def _hide(scores, start, rows, kv_len, causal_offset, CAUSAL: gl.constexpr):
    """Return the scores [ROWS, BLOCK_N] with -inf for keys past the end or, with `CAUSAL`, keys that a query does not see.

    `causal_offset`: query m sees keys up to m + causal_offset.
    """
    lanes = gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, scores.type.layout))
    # the number of visible keys from `start` on, so that a single comparison masks a score
    seen = rows * 0 + (kv_len - start)
    if CAUSAL:
        seen = gl.minimum(seen, rows + (causal_offset + 1 - start))
    return gl.where(lanes[None, :] < seen[:, None], scores, float("-inf"))


@gluon.jit
def _attend(
    OWN: gl.constexpr, acc, factors, weights, row_max, row_sum, q, memory, barriers, turn, used, start, rows, kv_len,
    causal_offset, qk_scale, MASKED: gl.constexpr, CAUSAL: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """Compute the scores of one tile of keys while the values of the previous tile are added up.

    Returns the updated output, factors, weights, maximum and sum of each query.

    `factors`: empty, or the factor of each row of `acc` before the previous tile's weighted values are added to it;
    `used`: number of tiles before this one; `causal_offset`: query m sees keys up to m + causal_offset; `qk_scale`: the
    softmax scale times log2(e); `DEPTH`: the columns of queries and keys to multiply.
    """
    scores, tokens = both_products(
        OWN, q, weights, started_from(acc, factors), memory, barriers, turn, used, DEPTH, len(factors) == 0
    )
    if MASKED:
        scores = _hide(scores, start, rows, kv_len, causal_offset, CAUSAL)
    exponentials, keep, row_max, row_sum = weigh(scores, row_max, row_sum, qk_scale, largest_of(memory[2].dtype))
    sums = summed(tokens, memory, barriers, used)
    if len(factors) == 0:
        acc = scaled(sums, keep)
    else:
        acc = added(acc, factors[0], sums)
        factors = (keep,)
    layout: gl.constexpr = weights.type.layout
    return acc, factors, rounded(exponentials, memory[2].dtype, layout), row_max, row_sum


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, lse_ptr, memory, barriers, sizes, causal_offset, scale, SPAN: gl.constexpr,
    CAUSAL: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """Compute attention for the `ROWS` queries of consumer `OWN` in every tile; write their output and log-sums.

    `causal_offset`: query m sees keys up to m + causal_offset.
    """
    q_memory, k_memory, v_memory = memory[0], memory[1], memory[2]
    q_full, q_empty = barriers[0], barriers[1]
    batch, heads, _, q_len, kv_len = opaque(sizes)
    Q_STAGES: gl.constexpr = q_full.shape[0]
    IN_PLACE: gl.constexpr = len(memory) == 3
    BLOCK_M: gl.constexpr = q_memory.shape[0] // Q_STAGES * ROWS
    BLOCK_N: gl.constexpr = k_memory.shape[3]
    BLOCK_DV: gl.constexpr = v_memory.shape[3] if is_fp8(v_memory.dtype) else v_memory.shape[4]
    # a consumer that took turns could not leave one out
    PASSES: gl.constexpr = CAUSAL and BLOCK_N < BLOCK_M and len(barriers) == 6
    dtype: gl.constexpr = v_memory.dtype
    qk_layout: gl.constexpr = scores_layout(BLOCK_N, dtype)
    OUT_WIDTH: gl.constexpr = BLOCK_DV if DEPTH >= BLOCK_DV else BLOCK_DV // 2
    factor_layout: gl.constexpr = weights_layout(OUT_WIDTH, dtype)
    tiles = gl.cdiv(q_len, BLOCK_M)
    section = _section_of(batch * heads, kv_len, SPAN, CAUSAL)
    inverse = reciprocal(tiles * section)
    qk_scale = scale * LOG2_E
    turn = 0
    used = 0
    for number in range(gl.program_id(0), tiles * batch * heads, gl.num_programs(0)):
        tile, batch_head = _tile_of(number, tiles, section, inverse, batch * heads, CAUSAL)
        row_start = tile * BLOCK_M
        count, full = _span_of(row_start, kv_len, causal_offset, BLOCK_M, BLOCK_N, CAUSAL)
        if PASSES:
            # the first tiles may hold keys that only a later consumer's queries see
            own_count, full = _span_of(row_start + OWN * ROWS, kv_len, causal_offset, ROWS, BLOCK_N, CAUSAL)
            pass_over(memory, barriers, used, count - own_count)
            used += count - own_count
            count = own_count
        rows = row_start + OWN * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, qk_layout))
        q = queries_of(OWN, q_memory, q_full, turn)
        scores = first_scores(OWN, q, memory, barriers, turn, used, DEPTH)
        scores = _hide(scores, (count - 1) * BLOCK_N, rows, kv_len, causal_offset, CAUSAL)
        row_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, qk_layout))
        row_sum = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, qk_layout))
        first = weigh(scores, row_max, row_sum, qk_scale, largest_of(dtype))
        row_max, row_sum = first[2], first[3]
        weights = rounded(first[0], dtype, factor_layout)
        acc = no_sums(BLOCK_DV, DEPTH, dtype)
        factors = first_factors(first[1], dtype)
        cut = gl.maximum(count - full, 1)
        for place in range(1, cut):
            acc, factors, weights, row_max, row_sum = _attend(
                OWN, acc, factors, weights, row_max, row_sum, q, memory, barriers, turn, used + place,
                (count - 1 - place) * BLOCK_N, rows, kv_len, causal_offset, qk_scale, True, CAUSAL, DEPTH,
            )  # fmt: skip
        for place in range(cut, count):
            acc, factors, weights, row_max, row_sum = _attend(
                OWN, acc, factors, weights, row_max, row_sum, q, memory, barriers, turn, used + place,
                (count - 1 - place) * BLOCK_N, rows, kv_len, causal_offset, qk_scale, False, CAUSAL, DEPTH,
            )  # fmt: skip
        if not IN_PLACE:
            mbarrier.arrive(q_empty.index(turn % Q_STAGES))
        used += count
        sums = last_values(OWN, weights, started_from(acc, factors), memory, barriers, turn, used, len(factors) == 0)
        acc = sums if len(factors) == 0 else added(acc, factors[0], sums)
        index_b, index_h = divide(batch_head, heads)
        write_rows(
            OWN, acc, row_sum, maps[3], q_memory if IN_PLACE else memory[3], index_b, index_h, row_start + OWN * ROWS
        )
        if IN_PLACE:
            # the next queries overwrite the results: wait until those have been read
            tma.store_wait(0)
            mbarrier.arrive(q_empty.index(0))
        if lse_ptr is not None:
            # a fully masked row has sum 0 and maximum -inf
            exponents = gl.log2(row_sum) - largest_of(dtype) if is_fp8(dtype) else gl.log2(row_sum)
            lse = gl.where(row_sum == 0.0, float("-inf"), row_max * scale + exponents * LN_2)
            gl.store(lse_ptr + batch_head.to(gl.int64) * q_len + rows, lse, mask=rows < q_len)
        turn += 1
    tma.store_wait(0)


@gluon.jit
def flash_attention_fwd_sm90_kernel(
    q_map,
    k_map,
    v_map,
    out_map,
    lse_ptr,
    scale,
    causal_offset,
    batch,
    heads,
    group,
    q_len,
    kv_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    CAUSAL: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    BLOCK_DV: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    Q_STAGES: gl.constexpr,
    SPAN: gl.constexpr,
    TURNS: gl.constexpr,
):
    """Write ``softmax(q @ k^T * scale) @ v`` and, if requested, the log-sum-exp (natural logarithm) of each row of scores.

    The TMA descriptors describe q [batch, heads, q_len, head_dim] in boxes [1, 1, 64, BLOCK_D], k [batch, heads //
    group, kv_len, head_dim] in boxes [1, 1, BLOCK_N, BLOCK_D], v [..., kv_len, v_dim] in boxes [1, 1, BLOCK_N,
    BLOCK_DV], and out [batch, heads, q_len, v_dim] in boxes [1, 1, 64, BLOCK_DV]; smaller head dimensions are padded.
    If q, k and v are e4m3, v is [..., v_dim, kv_len] in boxes [1, 1, BLOCK_DV, BLOCK_N], as `flash_attention_values_kernel`
    writes it just before, and weights are rounded to e4m3. Widths are then at most 128.
    Only the first `DEPTH` columns of queries and keys are multiplied: BLOCK_D, or 192 of 256. lse is None or contiguous
    fp32 [batch, heads, q_len]. `scale` is positive, and there is at least one key. With `CAUSAL`, query m sees the
    keys up to m + `causal_offset`; a fully masked row gives 0 and lse -inf.

    `BLOCK_M` is 128 or 192. Shared memory holds `STAGES` tiles of keys and of values, and `Q_STAGES` tiles of queries
    (2 to copy the next tile early). If `BLOCK_DV` is 256, `Q_STAGES` is 1, and results take the place of queries. `SPAN`
    is the number of keys of all heads that are processed at a time. With `TURNS`, consumers take turns to start their
    products. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    CONSUMERS: gl.constexpr = BLOCK_M // ROWS
    dtype: gl.constexpr = q_map.dtype
    q_memory = gl.allocate_shared_memory(dtype, [Q_STAGES * CONSUMERS, 1, 1, ROWS, BLOCK_D], q_map.layout)
    k_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_map.layout)
    # fp8 values come as columns
    V_ROWS: gl.constexpr = BLOCK_DV if is_fp8(dtype) else BLOCK_N
    V_COLUMNS: gl.constexpr = BLOCK_N if is_fp8(dtype) else BLOCK_DV
    v_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, V_ROWS, V_COLUMNS], v_map.layout)
    barriers = barriers_for(STAGES, Q_STAGES, CONSUMERS, TURNS)
    maps = (q_map, k_map, v_map, out_map)
    if BLOCK_DV == 256 and not is_fp8(dtype):
        gl.static_assert(Q_STAGES == 1, "results take the place of the only tile of queries")
        memory = (q_memory, k_memory, v_memory)
    else:
        out_memory = gl.allocate_shared_memory(out_map.dtype, [CONSUMERS, 1, 1, ROWS, BLOCK_DV], out_map.layout)
        memory = (q_memory, k_memory, v_memory, out_memory)
    sizes = (batch, heads, group, q_len, kv_len)
    # registers per thread: the consumers get those that the producer does not need
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consume, (0, maps, lse_ptr, memory, barriers, sizes, causal_offset, scale, SPAN, CAUSAL, DEPTH)),
                (_consume, (1, maps, lse_ptr, memory, barriers, sizes, causal_offset, scale, SPAN, CAUSAL, DEPTH)),
                (_produce, (maps, memory, barriers, sizes, causal_offset, SPAN, CAUSAL)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.static_assert(CONSUMERS == 3, "BLOCK_M is 128 or 192")
        gl.warp_specialize(
            [
                (_consume, (0, maps, lse_ptr, memory, barriers, sizes, causal_offset, scale, SPAN, CAUSAL, DEPTH)),
                (_consume, (1, maps, lse_ptr, memory, barriers, sizes, causal_offset, scale, SPAN, CAUSAL, DEPTH)),
                (_consume, (2, maps, lse_ptr, memory, barriers, sizes, causal_offset, scale, SPAN, CAUSAL, DEPTH)),
                (_produce, (maps, memory, barriers, sizes, causal_offset, SPAN, CAUSAL)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )
