"""Gluon kernels of flash attention, backward, for sm_90 and heads 129 to 256 wide.

The gradients of 64 keys and values of such a head fill the registers of two warp groups, and those of queries do not
fit beside them. So one kernel computes the gradients of keys and values, and writes the gradient of the scores to a
workspace in 16 bits; a second one multiplies it by the keys. Neither adds to memory that another program adds to: the
same bits every time.

In the first kernel a program owns 64 keys of a key head, and processes the tiles of 64 queries that see any of them,
last tile first, each once for every query head that shares the keys. Scores are computed transposed, keys by queries.
Warp group 0 multiplies queries, and owns the gradient of values; warp group 1 multiplies values, and owns the gradient of
keys. Group 0 sends the weights p through shared memory: group 1 needs them for the gradient of scores, and nothing
travels back. Each keeps two products in flight: the scores of a tile, and the sum of the previous tile.
"""

from nojit.kernels.attention.kernel_sm90 import (
    barriers_of,
    both_products,
    first_scores,
    last_values,
    multiplied,
    no_sums,
    started_scores,
    started_sums,
    store_rows,
    summed,
)
from nojit.kernels.flash_attention.kernel_sm90_bwd import tile_of
from nojit.kernels.kernel_functions import divide, opaque
from nojit.kernels.kernel_sm90_copies import copy_in, copy_out
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

LOG2_E = gl.constexpr(1.4426950408889634)
ROWS = gl.constexpr(64)


@gluon.jit
def _span_of(key_start, q_len, kv_len, causal_offset, CAUSAL: gl.constexpr):
    """Return the tiles of queries that see a key from `key_start`: the first, the first that needs no mask, and the end.

    There is at least one, so that every buffer is used. `causal_offset`: query m sees keys up to m + causal_offset.
    """
    last = gl.cdiv(q_len, ROWS)
    first = 0
    whole = 0
    if CAUSAL:
        first = gl.minimum(gl.maximum(key_start - causal_offset, 0) // ROWS, last - 1)
        whole = gl.minimum(gl.cdiv(gl.maximum(key_start + ROWS - 1 - causal_offset, 0), ROWS), last)
    # in the last key tile, keys past the end must be masked for every query tile
    return first, gl.where(key_start + ROWS > kv_len, last, whole), last


@gluon.jit
def _produce(maps, memory, barriers, group, where):
    """Copy the keys and values once, then queries, dout and statistics of every tile; run by the producer warp."""
    q_map, k_map, v_map, dout_map, stat_map = maps
    k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory = memory
    k_full, v_full, q_full, q_empty, dout_full, dout_empty = barriers
    index_b, index_kv, key_start, first, last = where
    STAGES: gl.constexpr = q_memory.shape[0]
    mbarrier.expect(k_full.index(0), k_map.block_type.nbytes)
    copy_in(k_map, [index_b, index_kv, key_start, 0], k_full.index(0), k_memory.index(0))
    used = 0
    for place in range(last - first):
        start = (last - 1 - place) * ROWS
        for index_h in range(index_kv * group, index_kv * group + group):
            stage = used % STAGES
            phase = (used // STAGES & 1) ^ 1
            mbarrier.wait(q_empty.index(stage), phase)
            mbarrier.expect(q_full.index(stage), q_map.block_type.nbytes + stat_map.block_type.nbytes)
            copy_in(q_map, [index_b, index_h, start, 0], q_full.index(stage), q_memory.index(stage))
            copy_in(stat_map, [0, index_b, index_h, start], q_full.index(stage), lse_memory.index(stage))
            if used == 0:
                mbarrier.expect(v_full.index(0), v_map.block_type.nbytes)
                copy_in(v_map, [index_b, index_kv, key_start, 0], v_full.index(0), v_memory.index(0))
            mbarrier.wait(dout_empty.index(stage), phase)
            mbarrier.expect(dout_full.index(stage), dout_map.block_type.nbytes + stat_map.block_type.nbytes)
            copy_in(dout_map, [index_b, index_h, start, 0], dout_full.index(stage), dout_memory.index(stage))
            copy_in(stat_map, [1, index_b, index_h, start], dout_full.index(stage), delta_memory.index(stage))
            used += 1


@gluon.jit
def _row_statistic(memory, full, used):
    """Return a statistic of the queries of tile `used` as a row [1, queries], once it has been copied."""
    STAGES: gl.constexpr = memory.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    mbarrier.wait(full.index(used % STAGES), used // STAGES & 1)
    return memory.index(used % STAGES).reshape([1, ROWS]).load(layout)


@gluon.jit
def _weights(scores, lse, row_start, keys, kv_len, causal_offset, qk_scale, MASKED: gl.constexpr, CAUSAL: gl.constexpr):
    """Return the weights p [keys, queries] of a tile of scores; `lse` are the log-sums in base 2."""
    weights = gl.exp2(scores * qk_scale - lse)
    if MASKED:
        visible = (keys < kv_len)[:, None]
        if CAUSAL:
            rows = row_start + gl.arange(0, ROWS, layout=gl.SliceLayout(0, scores.type.layout))
            visible = visible & (keys[:, None] <= rows[None, :] + causal_offset)
        weights = gl.where(visible, weights, 0.0)
    return weights


@gluon.jit
def _send(weights, memory, full, empty, used):
    """Store weights for the other warp group, in fp16, which is finer than bf16 below 1."""
    SLOTS: gl.constexpr = memory.shape[0]
    mbarrier.wait(empty.index(used % SLOTS), (used // SLOTS & 1) ^ 1)
    memory.index(used % SLOTS).store(weights.to(gl.float16))
    mbarrier.arrive(full.index(used % SLOTS))


@gluon.jit
def _receive(memory, full, empty, used):
    """Return the weights of tile `used`."""
    SLOTS: gl.constexpr = memory.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    mbarrier.wait(full.index(used % SLOTS), used // SLOTS & 1)
    weights = memory.index(used % SLOTS).load(layout).to(gl.float32)
    mbarrier.arrive(empty.index(used % SLOTS))
    return weights


@gluon.jit
def _carried(sums, sum_ptr, row, is_carried, WIDTH: gl.constexpr):
    """Return sums [64, columns] of earlier launches from row `row` of [rows, `WIDTH`] if `is_carried`; `sums` are zeros."""
    if len(sums) == 1:
        return (_loaded(sums[0], sum_ptr, row, is_carried, 0, WIDTH),)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        HALF: gl.constexpr = sums[0].shape[1]
        return (
            _loaded(sums[0], sum_ptr, row, is_carried, 0, WIDTH),
            _loaded(sums[1], sum_ptr, row, is_carried, HALF, WIDTH),
        )


@gluon.jit
def _carry(sums, sum_ptr, row, WIDTH: gl.constexpr):
    """Store sums [64, columns] for a later launch, where `_carried` reads them."""
    # else the compiler keeps the addresses of `_carried` all the while
    row = opaque((row,))[0]
    gl.store(_places(sums[0], sum_ptr, row, 0, WIDTH), sums[0])
    if len(sums) > 1:
        gl.store(_places(sums[1], sum_ptr, row, sums[0].shape[1], WIDTH), sums[1])


@gluon.jit
def _loaded(zeros, sum_ptr, row, is_carried, FIRST: gl.constexpr, WIDTH: gl.constexpr):
    places = _places(zeros, sum_ptr, row, FIRST, WIDTH)
    return gl.load(places, mask=(zeros == 0.0) & is_carried, other=0.0)


@gluon.jit
def _places(sums, sum_ptr, row, FIRST: gl.constexpr, WIDTH: gl.constexpr):
    """Return the addresses of sums [64, columns] from row `row` and column `FIRST` on of [rows, `WIDTH`]."""
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, sums.type.layout))
    cols = gl.arange(0, sums.shape[1], layout=gl.SliceLayout(0, sums.type.layout))
    return sum_ptr + row.to(gl.int64) * WIDTH + rows[:, None] * WIDTH + cols[None, :] + FIRST


@gluon.jit
def _sum_values(
    dv_map, carry, memory, barriers, sizes, CAUSAL: gl.constexpr, DEPTH: gl.constexpr, BLOCK_D: gl.constexpr,
    BLOCK_DV: gl.constexpr,
):  # fmt: skip
    """Compute weights and the gradient of values; run by warp group 0."""
    k_memory, v_memory, q_memory, dout_memory = memory[0], memory[1], memory[2], memory[3]
    lse_memory, p_memory = memory[4], memory[6]
    k_full, _, q_full, q_empty, dout_full, dout_empty, p_full, p_empty, done = barriers
    group, where, whole, kv_len, causal_offset, scale = sizes
    index_b, index_kv, key_start, first, last = where
    dtype: gl.constexpr = q_memory.dtype
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    moved = (k_memory, q_memory, dout_memory)
    walked = (k_full, k_full, q_full, q_empty, dout_full, dout_empty)
    keys = key_start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    qk_scale = scale * LOG2_E
    k = k_memory.index(0).reshape([ROWS, k_memory.shape[4]])
    count = (last - first) * group
    open_count = (last - whole) * group
    lse = _row_statistic(lse_memory, q_full, 0)
    scores = first_scores(0, k, moved, walked, 0, 0, DEPTH)
    weights = _weights(scores, lse, (last - 1) * ROWS, keys, kv_len, causal_offset, qk_scale, True, CAUSAL)
    _send(weights, p_memory, p_full, p_empty, 0)
    sum_ptr, sum_row, sum_rows, is_carried, is_last = carry
    # the gradients of values lie behind those of all keys
    dv_ptr = sum_ptr + sum_rows.to(gl.int64) * BLOCK_D
    dv = _carried(no_sums(BLOCK_DV, DEPTH), dv_ptr, sum_row, is_carried, BLOCK_DV)
    operand_layout: gl.constexpr = gl.DotOperandLayout(0, dv[0].type.layout, 2)
    operand = gl.convert_layout(weights.to(dtype), operand_layout)
    for used in range(1, gl.maximum(open_count, 1)):
        lse = _row_statistic(lse_memory, q_full, used)
        scores, tokens = both_products(0, k, operand, dv, moved, walked, 0, used, DEPTH)
        weights = _weights(scores, lse, 0, keys, kv_len, causal_offset, qk_scale, False, CAUSAL)
        _send(weights, p_memory, p_full, p_empty, used)
        dv = summed(tokens, moved, walked, used)
        operand = gl.convert_layout(weights.to(dtype), operand_layout)
    for used in range(gl.maximum(open_count, 1), count):
        down = divide(used, group)[0]
        lse = _row_statistic(lse_memory, q_full, used)
        scores, tokens = both_products(0, k, operand, dv, moved, walked, 0, used, DEPTH)
        weights = _weights(scores, lse, (last - 1 - down) * ROWS, keys, kv_len, causal_offset, qk_scale, True, CAUSAL)
        _send(weights, p_memory, p_full, p_empty, used)
        dv = summed(tokens, moved, walked, used)
        operand = gl.convert_layout(weights.to(dtype), operand_layout)
    dv = last_values(0, operand, dv, moved, walked, 0, count)
    # the other warp group may still read the values
    mbarrier.arrive(done)
    mbarrier.wait(done, 0)
    if is_last:
        store_rows(dv, v_memory.index(0))
        fence_async_shared()
        copy_out(dv_map, [index_b, index_kv, key_start, 0], v_memory.index(0))
        tma.store_wait(0)
    else:
        _carry(dv, dv_ptr, sum_row, BLOCK_DV)


@gluon.jit
def _score_gradients(weights, dp, delta, ds_map, memory, place, used):
    """Store the gradient of the scores of tile `used` [keys, queries] in shared memory and the workspace; return the former.

    The next product loads it from there: ptxas would serialize all products if it were kept in registers, which are
    defined while another product is in flight.
    """
    ds_memory = memory[7]
    SLOTS: gl.constexpr = ds_memory.shape[0]
    # the store of `SLOTS` tiles ago has read this buffer
    tma.store_wait(SLOTS - 1)
    buffer = ds_memory.index(used % SLOTS)
    own = buffer.reshape([ROWS, ROWS])
    own.store((weights * (dp - delta)).to(ds_memory.dtype))
    fence_async_shared()
    copy_out(ds_map, place, buffer)
    return own


@gluon.jit
def _sum_keys(
    dk_map, ds_map, carry, memory, barriers, group, where, scale, DEPTH: gl.constexpr, DEPTH_V: gl.constexpr,
    BLOCK_D: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of scores and of keys; run by warp group 1."""
    k_memory, v_memory, q_memory, dout_memory = memory[0], memory[1], memory[2], memory[3]
    delta_memory, p_memory = memory[5], memory[6]
    _, v_full, q_full, q_empty, dout_full, dout_empty, p_full, p_empty, done = barriers
    index_b, index_kv, key_start, first, last = where
    moved = (v_memory, dout_memory, q_memory)
    walked = (v_full, v_full, dout_full, dout_empty, q_full, q_empty)
    v = v_memory.index(0).reshape([ROWS, v_memory.shape[4]])
    count = (last - first) * group
    head = index_kv * group
    delta = _row_statistic(delta_memory, dout_full, 0)
    dp = first_scores(0, v, moved, walked, 0, 0, DEPTH_V)
    weights = _receive(p_memory, p_full, p_empty, 0)
    ds = _score_gradients(weights, dp, delta, ds_map, memory, [index_b, head, key_start, (last - 1) * ROWS], 0)
    sum_ptr, sum_row, _, is_carried, is_last = carry
    dk = _carried(no_sums(BLOCK_D, DEPTH), sum_ptr, sum_row, is_carried, BLOCK_D)
    operand_layout: gl.constexpr = gl.DotOperandLayout(0, dk[0].type.layout, 2)
    operand = ds.load(operand_layout)
    for used in range(1, count):
        down, member = divide(used, group)
        delta = _row_statistic(delta_memory, dout_full, used)
        # the sums first: their queries' buffer is the one that the next tile waits for
        tokens = started_sums(operand, dk, moved, walked, used)
        stage = used % dout_memory.shape[0]
        dp_token = started_scores(v, dout_memory, stage, DEPTH_V)
        dk = summed(tokens, moved, walked, used, 1 if v_memory.shape[4] == DEPTH_V else 2)
        dp = warpgroup_mma_wait(0, deps=(dp_token,))
        mbarrier.arrive(dout_empty.index(stage))
        weights = _receive(p_memory, p_full, p_empty, used)
        place = [index_b, head + member, key_start, (last - 1 - down) * ROWS]
        ds = _score_gradients(weights, dp, delta, ds_map, memory, place, used)
        operand = ds.load(operand_layout)
    dk = last_values(0, operand, dk, moved, walked, 0, count)
    # the other warp group may still read the keys
    mbarrier.arrive(done)
    mbarrier.wait(done, 0)
    if is_last:
        store_rows(multiplied(dk, scale), k_memory.index(0))
        fence_async_shared()
        copy_out(dk_map, [index_b, index_kv, key_start, 0], k_memory.index(0))
    else:
        _carry(dk, sum_ptr, sum_row, BLOCK_D)
    tma.store_wait(0)


@gluon.jit
def flash_attention_bwd_dkdv_sm90_kernel(
    q_map,
    k_map,
    v_map,
    dout_map,
    stat_map,
    dk_map,
    dv_map,
    ds_map,
    sum_ptr,
    scale,
    causal_offset,
    batch,
    heads,
    group,
    q_len,
    kv_len,
    sum_rows,
    carried,
    is_last,
    CAUSAL: gl.constexpr,
    BLOCK_D: gl.constexpr,
    BLOCK_DV: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
    SLOTS: gl.constexpr,
    SPAN: gl.constexpr,
):
    """Write the gradients of keys and values, and the gradient of the scores before the scale.

    The TMA descriptors describe q and dout [batch, heads, q_len, dim]; k, v and their gradients [batch, heads // group,
    kv_len, dim]; `stat_map` the statistics that `flash_attention_bwd_sm90_prepare_kernel` wrote, fp32 [2, batch, heads,
    q_len rounded up to 64]; and `ds_map` the gradient of the scores, transposed: [batch, heads, kv_len, q_len rounded up
    to 64]. The kernel writes only tiles of 64 x 64 scores that some query sees. Smaller head dimensions are padded; only
    `DEPTH` columns are multiplied: `BLOCK_D`, or 192 of 256. With `CAUSAL`, query m sees the keys up to m +
    `causal_offset`. Shared memory holds `STAGES` tiles of queries and `SLOTS` tiles of weights.

    The queries may be spread over several launches, which then carry the sums of keys and values: `sum_ptr` is fp32 [batch,
    kv_heads, sum_rows, BLOCK_D] followed by [batch, kv_heads, sum_rows, BLOCK_DV]. The first `carried` rows of each head
    hold the sums of earlier launches. The kernel writes the gradients if `is_last`, and the sums otherwise. `SPAN` is the
    number of queries of all heads that are processed at a time. Grid: cdiv(kv_len, 64) * batch * heads // group in x.
    """
    dtype: gl.constexpr = q_map.dtype
    DEPTH_V: gl.constexpr = DEPTH if BLOCK_DV == BLOCK_D else BLOCK_DV
    kv_heads = heads // group
    number, batch_head = tile_of(gl.program_id(0), gl.cdiv(kv_len, ROWS), batch * kv_heads, q_len, SPAN)
    key_start = number * ROWS
    first, whole, last = _span_of(key_start, q_len, kv_len, causal_offset, CAUSAL)
    index_b, index_kv = divide(batch_head, kv_heads)
    p_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, ROWS], gl.float16)
    k_memory = gl.allocate_shared_memory(dtype, [1, 1, 1, ROWS, BLOCK_D], k_map.layout)
    v_memory = gl.allocate_shared_memory(dtype, [1, 1, 1, ROWS, BLOCK_DV], v_map.layout)
    q_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, BLOCK_D], q_map.layout)
    dout_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, BLOCK_DV], dout_map.layout)
    lse_memory = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, ROWS], stat_map.layout)
    delta_memory = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, ROWS], stat_map.layout)
    p_memory = gl.allocate_shared_memory(gl.float16, [SLOTS, ROWS, ROWS], p_layout)
    ds_memory = gl.allocate_shared_memory(dtype, [SLOTS, 1, 1, ROWS, ROWS], ds_map.layout)
    memory = (k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory, p_memory, ds_memory)
    k_full, v_full = barriers_of(1, 1), barriers_of(1, 1)
    q_full, q_empty = barriers_of(STAGES, 1), barriers_of(STAGES, 2)
    dout_full, dout_empty = barriers_of(STAGES, 1), barriers_of(STAGES, 2)
    p_full, p_empty = barriers_of(SLOTS, 1), barriers_of(SLOTS, 1)
    done = barriers_of(1, 2)
    barriers = (k_full, v_full, q_full, q_empty, dout_full, dout_empty, p_full, p_empty, done.index(0))
    fence_async_shared()
    where = (index_b, index_kv, key_start, first, last)
    carry = (sum_ptr, batch_head * sum_rows + key_start, batch * kv_heads * sum_rows, key_start < carried, is_last)
    in_maps = (q_map, k_map, v_map, dout_map, stat_map)
    in_memory = (k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory)
    in_barriers = (k_full, v_full, q_full, q_empty, dout_full, dout_empty)
    sizes = (group, where, whole, kv_len, causal_offset, scale)
    gl.warp_specialize(
        [
            (_sum_values, (dv_map, carry, memory, barriers, sizes, CAUSAL, DEPTH, BLOCK_D, BLOCK_DV)),
            (_sum_keys, (dk_map, ds_map, carry, memory, barriers, group, where, scale, DEPTH, DEPTH_V, BLOCK_D)),
            (_produce, (in_maps, in_memory, in_barriers, group, where)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def _keys_seen(row_start, kv_len, causal_offset, CAUSAL: gl.constexpr):
    """Return how many key tiles the 64 queries from `row_start` see."""
    last = kv_len
    if CAUSAL:
        last = gl.maximum(gl.minimum(kv_len, row_start + ROWS + causal_offset), 0)
    return gl.cdiv(last, ROWS)


@gluon.jit
def _produce_keys(maps, memory, barriers, group, where, count):
    """Copy the score gradients of two tiles of queries, and the keys, of every tile of keys; run by the producer warp."""
    ds_map, k_map = maps
    ds_memory, k_memory = memory
    full, empty = barriers
    index_b, index_h, row_start = where
    index_kv = divide(index_h, group)[0]
    STAGES: gl.constexpr = k_memory.shape[0]
    for used in range(count):
        stage = used % STAGES
        mbarrier.wait(empty.index(stage), (used // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(stage), k_map.block_type.nbytes + 2 * ds_map.block_type.nbytes)
        for part in gl.static_range(2):
            copy_in(
                ds_map, [index_b, index_h, used * ROWS, row_start + part * ROWS], full.index(stage),
                ds_memory.index(stage * 2 + part),
            )  # fmt: skip
        copy_in(k_map, [index_b, index_kv, used * ROWS, 0], full.index(stage), k_memory.index(stage))


@gluon.jit
def _sum_queries(
    OWN: gl.constexpr, dq_map, memory, barriers, done, where, kv_len, causal_offset, scale, count, CAUSAL: gl.constexpr,
    DEPTH: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries."""
    ds_memory, k_memory = memory
    full, empty = barriers
    index_b, index_h, row_start = where
    STAGES: gl.constexpr = k_memory.shape[0]
    BLOCK_D: gl.constexpr = k_memory.shape[4]
    own_start = row_start + OWN * ROWS
    own_count = _keys_seen(own_start, kv_len, causal_offset, CAUSAL)
    dq = no_sums(BLOCK_D, DEPTH)
    for used in range(own_count):
        stage = used % STAGES
        mbarrier.wait(full.index(stage), used // STAGES & 1)
        left = ds_memory.index(stage * 2 + OWN).reshape([ROWS, ROWS]).permute((1, 0))
        right = k_memory.index(stage).reshape([ROWS, BLOCK_D])
        # keep the product of one tile in flight
        if len(dq) == 1:
            dq = (warpgroup_mma_wait(1, deps=(warpgroup_mma(left, right, dq[0], is_async=True),)),)
        else:
            HALF: gl.constexpr = dq[0].shape[1]
            REST: gl.constexpr = dq[1].shape[1]
            dq = warpgroup_mma_wait(
                2,
                deps=(
                    warpgroup_mma(left, right.slice(0, HALF, 1), dq[0], is_async=True),
                    warpgroup_mma(left, right.slice(HALF, REST, 1), dq[1], is_async=True),
                ),
            )
        mbarrier.arrive(empty.index((used + STAGES - 1) % STAGES), pred=used > 0)
    dq = (warpgroup_mma_wait(0, deps=dq),) if len(dq) == 1 else warpgroup_mma_wait(0, deps=dq)
    if own_count > 0:
        mbarrier.arrive(empty.index((own_count - 1) % STAGES))
    for used in range(own_count, count):
        # wait for the copies: two arrivals of one consumer in a phase would count for the other
        mbarrier.wait(full.index(used % STAGES), used // STAGES & 1)
        mbarrier.arrive(empty.index(used % STAGES))
    # the other warp group may still read the keys
    mbarrier.arrive(done)
    mbarrier.wait(done, 0)
    store_rows(multiplied(dq, scale), k_memory.index(OWN))
    fence_async_shared()
    copy_out(dq_map, [index_b, index_h, own_start, 0], k_memory.index(OWN))
    tma.store_wait(0)


@gluon.jit
def flash_attention_bwd_dq_sm90_kernel(
    ds_map,
    k_map,
    dq_map,
    scale,
    causal_offset,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    heads,
    group,
    q_len,
    kv_len,
    CAUSAL: gl.constexpr,
    BLOCK_D: gl.constexpr,
    DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write the gradient of queries: score gradients times keys times `scale`.

    `ds_map` describes what `flash_attention_bwd_dkdv_sm90_kernel` wrote; k [batch, heads // group, kv_len, head_dim] comes
    in boxes of 64 keys, and dq [batch, heads, q_len, head_dim] of 64 queries. `CAUSAL`, `causal_offset` and `DEPTH` are as
    there. Shared memory holds `STAGES` tiles of keys, at least 2. Grid: cdiv(q_len, 128) * batch * heads in x.
    """
    dtype: gl.constexpr = k_map.dtype
    tiles = gl.cdiv(q_len, 2 * ROWS)
    batch_head, place = divide(gl.program_id(0), tiles)
    # under a causal mask the last queries see most keys: start with them
    row_start = (tiles - 1 - place) * 2 * ROWS
    index_b, index_h = divide(batch_head, heads)
    count = _keys_seen(row_start + ROWS, kv_len, causal_offset, CAUSAL)
    ds_memory = gl.allocate_shared_memory(dtype, [STAGES * 2, 1, 1, ROWS, ROWS], ds_map.layout)
    k_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, ROWS, BLOCK_D], k_map.layout)
    full, empty = barriers_of(STAGES, 1), barriers_of(STAGES, 2)
    done = barriers_of(1, 2)
    fence_async_shared()
    where = (index_b, index_h, row_start)
    memory = (ds_memory, k_memory)
    barriers = (full, empty)
    gl.warp_specialize(
        [
            (
                _sum_queries,
                (0, dq_map, memory, barriers, done.index(0), where, kv_len, causal_offset, scale, count, CAUSAL, DEPTH),
            ),
            (
                _sum_queries,
                (1, dq_map, memory, barriers, done.index(0), where, kv_len, causal_offset, scale, count, CAUSAL, DEPTH),
            ),
            (_produce_keys, ((ds_map, k_map), memory, barriers, group, where, count)),
        ],
        [4, 1],
        [240, 24],
    )
