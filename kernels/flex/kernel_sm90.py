"""Gluon kernel of flex attention, forward, for sm_90: the pipeline of flash attention's, with masks from tables.

One warp, the producer, copies tiles with TMA into shared memory, `STAGES` tiles of keys and of values ahead at most.
Two consumers of four warps own 64 queries each; a consumer computes the exponentials of one tile while tensor cores add
up the values of the previous tile. Programs are persistent. `kernel_sm90_walks` determines the tiles of keys to visit.
"""

from nojit.kernels.attention.kernel_sm90 import (
    LN_2,
    LOG2_E,
    barriers_for,
    both_products,
    copy_queries,
    copy_tile,
    first_scores,
    last_values,
    queries_of,
    summed,
    weigh,
    write_rows,
)
from nojit.kernels.flex.kernel_sm90_walks import hide, intervals_of, modified, tile_at, walk_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

ROWS = gl.constexpr(64)


@gluon.jit
def _work_of(number, tiles, heads, kv_len, SPAN: gl.constexpr):
    """Return the tile of queries, and the batch and head as one number, of piece of work `number`.

    Heads are processed in sections with `SPAN` keys in total, which fit L2. In each section the last tiles start first:
    under a causal mask they take longest.
    """
    section = gl.minimum(gl.maximum(SPAN // kv_len, 1), heads)
    first = number // (tiles * section) * section
    place = number % (tiles * section)
    width = gl.minimum(section, heads - first)
    return tiles - 1 - place // width, first + place % width


@gluon.jit
def _produce(maps, memory, barriers, tables, sizes, SPAN: gl.constexpr, MASK: gl.constexpr):
    """Copy the queries, keys and values of every tile into shared memory; run by the producer warp.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    q_map, k_map, v_map = maps[0], maps[1], maps[2]
    q_memory, k_memory, v_memory = memory[0], memory[1], memory[2]
    q_full, q_empty, k_full, k_empty = barriers[0], barriers[1], barriers[2], barriers[3]
    v_full, v_empty = barriers[4], barriers[5]
    batch, heads, group, shared, q_len, kv_len, mask_batch, mask_head = sizes
    Q_STAGES: gl.constexpr = q_full.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[0] // Q_STAGES * ROWS
    BLOCK_N: gl.constexpr = k_memory.shape[3]
    tiles = gl.cdiv(q_len, BLOCK_M)
    turn = 0
    copied = 0
    for number in range(gl.program_id(0), tiles * batch * heads, gl.num_programs(0)):
        tile, batch_head = _work_of(number, tiles, batch * heads, kv_len, SPAN)
        index_b = batch_head // heads
        index_h = batch_head % heads
        index_kb = index_b // shared
        index_kv = index_h // group
        table = index_b.to(gl.int64) * mask_batch + index_h * mask_head
        if Q_STAGES > 1:
            copy_queries(q_map, index_b, index_h, tile * BLOCK_M, q_memory, q_full, q_empty, turn)
        walk = walk_of(tables, tile * BLOCK_M, table, q_len, kv_len, BLOCK_M, BLOCK_N, MASK)
        for place in range(walk[0]):
            start, _ = tile_at(place, walk, tables[1], BLOCK_N, MASK)
            copy_tile(k_map, [index_kb, index_kv, start, 0], k_full, k_empty, k_memory, copied)
            if Q_STAGES == 1:  # noqa: SIM102 - Triton evaluates one of the two at compile time
                # the consumers need the previous tile's queries longer than its keys: copy keys first
                if place == 0:
                    copy_queries(q_map, index_b, index_h, tile * BLOCK_M, q_memory, q_full, q_empty, turn)
            copy_tile(v_map, [index_kb, index_kv, start, 0], v_full, v_empty, v_memory, copied)
            copied += 1
        turn += 1  # noqa: SIM113 - Triton has no enumerate


@gluon.jit
def _attend(
    OWN: gl.constexpr, acc, weights, row_max, row_sum, q, memory, barriers, turn, used, place, walk, own, tables, lengths,
    mods, scale, qk_scale, MASKED: gl.constexpr, MASK: gl.constexpr, SCORE_MOD: gl.constexpr,
):  # fmt: skip
    """Compute the scores of one tile of keys while the values of the previous tile are added up.

    Returns the updated output, weights, maximum and sum of each query.

    `used`: number of tiles before this one; `tables`: pointers to the mask's tables, and the bounds of a band; `mods`:
    captured values of the score modifications' two slots, and the dense bias; `qk_scale`: factor from scores to
    exponents of 2: the softmax scale times log2(e), or 1 for modified scores; `lengths`: numbers of queries and keys.
    """
    rows, row_in_block, lanes, intervals, head = own
    start, bitmap = tile_at(place, walk, tables[1], memory[1].shape[3], MASK)
    scores, tokens = both_products(
        OWN, q, weights, (acc,), memory, barriers, turn, used + place, memory[0].shape[4]
    )  # fmt: skip
    scores = modified(scores, scale, head, rows, start + lanes, lengths, mods, SCORE_MOD)
    if MASKED:
        scores = hide(scores, start, bitmap, lanes, rows, row_in_block, intervals, tables, lengths[1], MASK)
    exponentials, keep, row_max, row_sum = weigh(scores, row_max, row_sum, qk_scale)
    (acc,) = summed(tokens, memory, barriers, used + place)
    acc = acc * gl.convert_layout(keep, gl.SliceLayout(1, acc.type.layout))[:, None]
    return acc, gl.convert_layout(exponentials.to(weights.dtype), weights.type.layout), row_max, row_sum


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, lse_ptr, memory, barriers, tables, mods, sizes, scale, SPAN: gl.constexpr, MASK: gl.constexpr,
    SCORE_MOD: gl.constexpr,
):  # fmt: skip
    """Compute attention for the `ROWS` queries of consumer `OWN` in every tile; write their output and log-sums.

    `tables`: pointers to the mask's tables, and the bounds of a band; `mods`: captured values of the score
    modifications' two slots, and the dense bias.
    """
    q_memory, k_memory, v_memory = memory[0], memory[1], memory[2]
    q_full, q_empty = barriers[0], barriers[1]
    batch, heads, _, _, q_len, kv_len, mask_batch, mask_head = sizes
    Q_STAGES: gl.constexpr = q_full.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[0] // Q_STAGES * ROWS
    BLOCK_N: gl.constexpr = k_memory.shape[3]
    BLOCK_DV: gl.constexpr = v_memory.shape[4]
    qk_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_DV, 16])
    weights_layout: gl.constexpr = gl.DotOperandLayout(0, out_layout, 2)
    tiles = gl.cdiv(q_len, BLOCK_M)
    lengths = (q_len, kv_len)
    qk_scale = scale * LOG2_E
    if SCORE_MOD is not None:
        # modified scores are already scaled
        qk_scale = scale * 0.0 + 1.0
    row_in_block = OWN * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, qk_layout))
    lanes = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, qk_layout))[None, :]
    turn = 0
    used = 0
    for number in range(gl.program_id(0), tiles * batch * heads, gl.num_programs(0)):
        tile, batch_head = _work_of(number, tiles, batch * heads, kv_len, SPAN)
        index_b = batch_head // heads
        index_h = batch_head % heads
        table = index_b.to(gl.int64) * mask_batch + index_h * mask_head
        walk = walk_of(tables, tile * BLOCK_M, table, q_len, kv_len, BLOCK_M, BLOCK_N, MASK)
        count, cut = walk[0], walk[1]
        rows = tile * BLOCK_M + row_in_block
        intervals = intervals_of(tables, table, rows, q_len, kv_len, MASK)
        own = (rows, row_in_block, lanes, intervals, (index_b, index_h))
        start, bitmap = tile_at(0, walk, tables[1], BLOCK_N, MASK)
        q = queries_of(OWN, q_memory, q_full, turn)
        scores = first_scores(OWN, q, memory, barriers, turn, used, q_memory.shape[4])
        scores = modified(scores, scale, (index_b, index_h), rows, start + lanes, lengths, mods, SCORE_MOD)
        # a list without partial blocks begins with a full one, which needs no mask, unless the list is empty
        if MASK != "bitmap" or cut > 0 or walk[4] == 0:
            scores = hide(scores, start, bitmap, lanes, rows, row_in_block, intervals, tables, kv_len, MASK)
        row_max = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, qk_layout))
        row_sum = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, qk_layout))
        first = weigh(scores, row_max, row_sum, qk_scale)
        row_max, row_sum = first[2], first[3]
        weights = gl.convert_layout(first[0].to(q.dtype), weights_layout)
        acc = gl.zeros([ROWS, BLOCK_DV], gl.float32, out_layout)
        cut = gl.maximum(cut, 1)
        for place in range(1, cut):
            acc, weights, row_max, row_sum = _attend(
                OWN, acc, weights, row_max, row_sum, q, memory, barriers, turn, used, place, walk, own, tables, lengths,
                mods, scale, qk_scale, True, MASK, SCORE_MOD,
            )  # fmt: skip
        for place in range(cut, count):
            acc, weights, row_max, row_sum = _attend(
                OWN, acc, weights, row_max, row_sum, q, memory, barriers, turn, used, place, walk, own, tables, lengths,
                mods, scale, qk_scale, False, MASK, SCORE_MOD,
            )  # fmt: skip
        mbarrier.arrive(q_empty.index(turn % Q_STAGES))
        used += count
        acc = last_values(OWN, weights, (acc,), memory, barriers, turn, used)
        write_rows(OWN, acc, row_sum, maps[3], memory[3], index_b, index_h, tile * BLOCK_M + OWN * ROWS)
        # a fully masked row has sum 0 and maximum -inf
        lse = gl.where(row_sum == 0.0, float("-inf"), row_max * (qk_scale * LN_2) + gl.log2(row_sum) * LN_2)
        gl.store(lse_ptr + batch_head.to(gl.int64) * q_len + rows, lse, mask=rows < q_len)
        turn += 1  # noqa: SIM113 - Triton has no enumerate
    tma.store_wait(0)


@gluon.jit
def flex_attention_fwd_sm90_kernel(
    q_map,
    k_map,
    v_map,
    out_map,
    lse_ptr,
    spans_ptr,
    blocks_ptr,
    bits_ptr,
    first_ptr,
    second_ptr,
    bias_ptr,
    scale,
    left,
    right,
    block,  # noqa: ARG001 - the manifest's rules read it
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
    batch,
    heads,
    group,
    shared,
    q_len,
    kv_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    MASK: gl.constexpr,
    SCORE_MOD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_D: gl.constexpr,
    BLOCK_DV: gl.constexpr,
    STAGES: gl.constexpr,
    SPAN: gl.constexpr,
    TURNS: gl.constexpr,
):
    """Write ``softmax(mod(q @ k^T * scale)) @ v`` over visible keys, and the log-sum-exp (natural logarithm) of each row.

    The TMA descriptors describe q [batch, heads, q_len, head_dim] and out [batch, heads, q_len, v_dim] in boxes of 64
    rows, k and v [batch // shared, heads // group, kv_len, ...] in boxes of `BLOCK_N` rows; boxes are BLOCK_D or
    BLOCK_DV columns wide, and smaller head dimensions are padded. lse is contiguous fp32 [batch, heads, q_len]. Without
    a modification `scale` is positive; there is at least one key. The mask's tables are those of
    `flex_attention_fwd_kernel`, with blocks of 128. A fully masked row gives 0 and lse -inf. `BLOCK_M` and `BLOCK_N`
    are 128. With `TURNS`, consumers take turns to start their products. Grid: any size in x.
    """
    CONSUMERS: gl.constexpr = BLOCK_M // ROWS
    gl.static_assert(BLOCK_M == 128, "two consumers")
    dtype: gl.constexpr = q_map.dtype
    # copy the next tile's queries early, unless a modification needs the registers
    Q_STAGES: gl.constexpr = 2 if SCORE_MOD is None else 1
    q_memory = gl.allocate_shared_memory(dtype, [Q_STAGES * CONSUMERS, 1, 1, ROWS, BLOCK_D], q_map.layout)
    out_memory = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, ROWS, BLOCK_DV], out_map.layout)
    k_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_map.layout)
    v_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_DV], v_map.layout)
    barriers = barriers_for(STAGES, Q_STAGES, CONSUMERS, TURNS)
    maps = (q_map, k_map, v_map, out_map)
    memory = (q_memory, k_memory, v_memory, out_memory)
    tables = (spans_ptr, blocks_ptr, bits_ptr, left, right)
    sizes = (batch, heads, group, shared, q_len, kv_len, mask_batch, mask_head)
    mods = (
        (first_kind, first_ptr, first_stride_b, first_stride_h, first_value, first_reach),
        (second_kind, second_ptr, second_stride_b, second_stride_h, second_value, second_reach),
        (bias_ptr, bias_stride_b, bias_stride_h, bias_stride_m, bias_stride_n),
    )
    # registers per thread: the consumers get those that the producer does not need
    gl.warp_specialize(
        [
            (_consume, (0, maps, lse_ptr, memory, barriers, tables, mods, sizes, scale, SPAN, MASK, SCORE_MOD)),
            (_consume, (1, maps, lse_ptr, memory, barriers, tables, mods, sizes, scale, SPAN, MASK, SCORE_MOD)),
            (_produce, (maps, memory, barriers, tables, sizes, SPAN, MASK)),
        ],
        [4, 1],
        [240, 24],
    )
