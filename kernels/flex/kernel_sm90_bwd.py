"""Gluon kernel of flex attention, backward, for sm_90: flash attention's kernel of all five products, with other masks.

`nojit.kernels.flash_attention.kernel_sm90_bwd` describes the parts of a program and the barriers, which are the same
here. Only the sequence of tiles differs (`kernel_sm90_bwd_walks`): a program owns a tile of keys and visits the tiles
of queries that see any of them, last first. One loop handles partial tiles, the next one full tiles, the last one
partial tiles again; masks stored as bitmaps use a single loop.

A program adds to a tile of queries after all programs with earlier keys that visit this tile. Those programs started
earlier. If the visible queries shift with the keys, they are ahead by that shift; otherwise they visit the same tiles
in the same order.
"""

from nojit.kernels.flash_attention.kernel_sm90_bwd import (
    barriers_for,
    memory_for,
    propagate,
    store_gradients,
    tile_of,
)
from nojit.kernels.flex.kernel_sm90_bwd_walks import (
    come_before,
    head_of,
    modified,
    query_bits,
    query_bounds,
    table_of,
    tile_at,
    walk_of,
)
from nojit.kernels.flex.kernel_sm90_walks import are_set
from nojit.kernels.kernel_sm90_copies import (
    add_out,
    copy_in,
    copy_out,
    wait_for_count,
    wait_until_written,
)
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
def _produce(maps, memory, barriers, tables, sizes, where, MASK: gl.constexpr):
    """Copy the keys and values once, then queries, dout and statistics of every tile; run by the producer warp.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    q_map, k_map, v_map, dout_map, stat_map = maps
    k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory = memory
    k_full, v_full, q_full, q_empty, dout_full, dout_empty = barriers
    index_kb, index_kv, number = where
    STAGES: gl.constexpr = q_memory.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[3]
    BLOCK_N: gl.constexpr = 2 * ROWS
    key_start = number * BLOCK_N
    mbarrier.expect(k_full, 2 * k_map.block_type.nbytes)
    for part in gl.static_range(2):
        copy_in(k_map, [index_kb, index_kv, key_start + part * ROWS, 0], k_full, k_memory.index(part))
    mbarrier.expect(v_full, 2 * v_map.block_type.nbytes)
    for part in gl.static_range(2):
        copy_in(v_map, [index_kb, index_kv, key_start + part * ROWS, 0], v_full, v_memory.index(part))
    used = 0
    table = table_of(index_kb, index_kv, sizes)
    first, _, _, last = walk_of(tables, number, table, sizes, BLOCK_M, BLOCK_N, MASK)
    for place in range(last - first):
        tile, _ = tile_at(last - 1 - place, tables, BLOCK_M, BLOCK_N, MASK)
        start = tile * BLOCK_M
        for member in range(sizes[1] * sizes[2]):
            index_b, index_h = head_of(member, index_kb, index_kv, sizes)
            stage = used % STAGES
            phase = (used // STAGES & 1) ^ 1
            mbarrier.wait(q_empty.index(stage), phase)
            mbarrier.expect(q_full.index(stage), q_map.block_type.nbytes + stat_map.block_type.nbytes)
            copy_in(q_map, [index_b, index_h, start, 0], q_full.index(stage), q_memory.index(stage))
            copy_in(stat_map, [0, index_b, index_h, start], q_full.index(stage), lse_memory.index(stage))
            mbarrier.wait(dout_empty.index(stage), phase)
            mbarrier.expect(dout_full.index(stage), dout_map.block_type.nbytes + stat_map.block_type.nbytes)
            copy_in(dout_map, [index_b, index_h, start, 0], dout_full.index(stage), dout_memory.index(stage))
            copy_in(stat_map, [1, index_b, index_h, start], dout_full.index(stage), delta_memory.index(stage))
            used += 1


@gluon.jit
def _add(
    sum_map, sum_memory, sum_full, sum_empty, turn_ptr, tables, sizes, where, BLOCK_M: gl.constexpr, MASK: gl.constexpr
):  # fmt: skip
    """Add the contributions to the gradient of queries to the workspace, in the order of key tiles; run by the adder warp.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    heads, q_len = sizes[0], sizes[3]
    index_kb, index_kv, number = where
    BLOCK_N: gl.constexpr = 2 * ROWS
    # the contribution has two parts: halves of its columns, or of its rows
    below: gl.constexpr = BLOCK_M - ROWS
    beside: gl.constexpr = 2 * ROWS - BLOCK_M
    tiles = gl.cdiv(q_len, BLOCK_M)
    used = 0
    table = table_of(index_kb, index_kv, sizes)
    first, _, _, last = walk_of(tables, number, table, sizes, BLOCK_M, BLOCK_N, MASK)
    for place in range(last - first):
        tile, _ = tile_at(last - 1 - place, tables, BLOCK_M, BLOCK_N, MASK)
        row = tile * BLOCK_M
        before = come_before(tables, number, last - 1 - place, table, sizes, BLOCK_M, BLOCK_N, MASK)
        for member in range(sizes[1] * sizes[2]):
            index_b, index_h = head_of(member, index_kb, index_kv, sizes)
            turn = turn_ptr + (index_b * heads + index_h).to(gl.int64) * tiles + tile
            wait_for_count(turn, before)
            mbarrier.wait(sum_full, used & 1)
            if before == 0:
                copy_out(sum_map, [index_b, index_h, row, 0], sum_memory.index(0))
                copy_out(sum_map, [index_b, index_h, row + below, beside], sum_memory.index(1))
            else:
                add_out(sum_map, [index_b, index_h, row, 0], sum_memory.index(0))
                add_out(sum_map, [index_b, index_h, row + below, beside], sum_memory.index(1))
            tma.store_wait(0)
            mbarrier.arrive(sum_empty)
            wait_until_written()
            gl.atomic_add(turn, 1, sem="release", scope="gpu")
            used += 1
    wait_until_written()


@gluon.jit
def _multiply(
    OWN: gl.constexpr, dk, dv, memory, barriers, used, row_start, keys, seen_by, head, sizes, mods, scale,
    MASKED: gl.constexpr, MASK: gl.constexpr, SCORE_MOD: gl.constexpr, EAGER: gl.constexpr,
):  # fmt: skip
    """Process one tile of queries for the keys of multiplier `OWN`; return the updated dk and dv.

    `used`: number of tiles before this one; `mods`: captured values of the score modifications' two slots, and the
    dense bias.
    """
    k_memory, v_memory, q_memory, dout_memory, lse_memory = memory[0], memory[1], memory[2], memory[3], memory[4]
    q_full, dout_full = barriers[0], barriers[2]
    STAGES: gl.constexpr = q_memory.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[3]
    BLOCK_D: gl.constexpr = q_memory.shape[4]
    dtype: gl.constexpr = q_memory.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    dk_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    operand_layout: gl.constexpr = gl.DotOperandLayout(0, dk_layout, 2)
    stage = used % STAGES
    phase = used // STAGES & 1
    k = k_memory.index(OWN).reshape([ROWS, BLOCK_D])
    v = v_memory.index(OWN).reshape([ROWS, BLOCK_D])
    q = q_memory.index(stage).reshape([BLOCK_M, BLOCK_D])
    dout = dout_memory.index(stage).reshape([BLOCK_M, BLOCK_D])
    zeros = gl.zeros([ROWS, BLOCK_M], gl.float32, s_layout)
    mbarrier.wait(q_full.index(stage), phase)
    scores_token = warpgroup_mma(k, q.permute((1, 0)), zeros, use_acc=False, is_async=True)
    if EAGER:
        mbarrier.wait(dout_full.index(stage), phase)
        dp_token = warpgroup_mma(v, dout.permute((1, 0)), zeros, use_acc=False, is_async=True)
    lanes = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, s_layout))
    rows = row_start + lanes
    lse = lse_memory.index(stage).reshape([1, BLOCK_M])
    if SCORE_MOD is None:
        own_lse = lse.load(s_layout)
        scores = warpgroup_mma_wait(1, deps=(scores_token,))
        weights = gl.exp2(scores * (scale * LOG2_E) - own_lse)
    else:
        scores = warpgroup_mma_wait(1 if EAGER else 0, deps=(scores_token,))
        scores, slope = modified(scores, scale, head, rows, keys, sizes, mods, SCORE_MOD)
        weights = gl.exp2(scores - lse.load(s_layout))
    if MASKED:
        if MASK == "bitmap":
            visible = are_set(seen_by, lanes[None, :])
        else:
            visible = (rows[None, :] >= seen_by[0][:, None]) & (rows[None, :] < seen_by[1][:, None])
        weights = gl.where(visible, weights, 0.0)
    if SCORE_MOD is None:
        # waiting for the weights as well keeps the compiler from moving their computation past the wait
        dp, weights = warpgroup_mma_wait(0, deps=(dp_token, weights))
        operand = gl.convert_layout(weights.to(dtype), operand_layout)
    else:
        # keep only the parts of weights and derivatives that are needed later
        operand = gl.convert_layout(weights.to(dtype), operand_layout)
        weights = weights * slope
        if not EAGER:
            mbarrier.wait(dout_full.index(stage), phase)
            dp_token = warpgroup_mma(v, dout.permute((1, 0)), zeros, use_acc=False, is_async=True)
        dp, operand, weights = warpgroup_mma_wait(0, deps=(dp_token, operand, weights))
    return propagate(OWN, dk, dv, operand, weights, dp, memory, barriers, used)


@gluon.jit
def _walk(
    OWN: gl.constexpr, dk, dv, used, begin, end, common, MASKED: gl.constexpr, MASK: gl.constexpr,
    SCORE_MOD: gl.constexpr, EAGER: gl.constexpr,
):  # fmt: skip
    """Process the tiles of queries `begin` to `end`, counted from the last; return dk, dv and the number of tiles so far.

    `used`: number of tiles before this one.
    """
    memory, walked, keys, seen_by, where, sizes, mods, scale, last, members = common
    index_kb, index_kv, _ = where
    BLOCK_M: gl.constexpr = memory[2].shape[3]
    for place in range(begin, end):
        for member in range(members):
            dk, dv = _multiply(
                OWN, dk, dv, memory, walked, used, (last - 1 - place) * BLOCK_M, keys, seen_by,
                head_of(member, index_kb, index_kv, sizes), sizes, mods, scale, MASKED, MASK, SCORE_MOD, EAGER,
            )  # fmt: skip
            used += 1
    return dk, dv, used


@gluon.jit
def _differentiate(
    OWN: gl.constexpr, maps, memory, barriers, tables, sizes, where, mods, scale, MASK: gl.constexpr,
    SCORE_MOD: gl.constexpr, EAGER: gl.constexpr,
):  # fmt: skip
    """Process all tiles of queries, and store the gradients of the keys and values of multiplier `OWN`.

    `tables`: pointers to the mask's tables, and the bounds of a band; `mods`: captured values of the score
    modifications' two slots, and the dense bias.
    """
    q_memory = memory[2]
    k_full, v_full, done = barriers[0], barriers[1], barriers[9]
    walked = (barriers[2], barriers[3], barriers[4], barriers[5], barriers[6], barriers[7], barriers[8])
    index_kb, index_kv, number = where
    BLOCK_M: gl.constexpr = q_memory.shape[3]
    BLOCK_N: gl.constexpr = 2 * ROWS
    BLOCK_D: gl.constexpr = q_memory.shape[4]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    dk_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    own_start = number * BLOCK_N + OWN * ROWS
    keys = own_start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
    dk = gl.zeros([ROWS, BLOCK_D], gl.float32, dk_layout)
    dv = gl.zeros([ROWS, BLOCK_D], gl.float32, dk_layout)
    mbarrier.wait(k_full, 0)
    mbarrier.wait(v_full, 0)
    used = 0
    members = sizes[1] * sizes[2]
    table = table_of(index_kb, index_kv, sizes)
    first, full_first, full_last, last = walk_of(tables, number, table, sizes, BLOCK_M, BLOCK_N, MASK)
    if MASK == "bitmap":
        # look up the next tile while this one is computed; the entry can be read even if no tile remains
        tile, bitmap = tile_at(gl.maximum(last - 1, 0), tables, BLOCK_M, BLOCK_N, MASK)
        for place in range(last - first):
            seen_by = query_bits(tables, tile, bitmap, keys, BLOCK_M, BLOCK_N)
            row_start = tile * BLOCK_M
            tile, bitmap = tile_at(gl.maximum(last - 2 - place, 0), tables, BLOCK_M, BLOCK_N, MASK)
            for member in range(members):
                dk, dv = _multiply(
                    OWN, dk, dv, memory, walked, used, row_start, keys, seen_by,
                    head_of(member, index_kb, index_kv, sizes), sizes, mods, scale, True, MASK, SCORE_MOD, EAGER,
                )  # fmt: skip
                used += 1
    else:
        seen_by = query_bounds(tables, table, keys, sizes, MASK)
        common = memory, walked, keys, seen_by, where, sizes, mods, scale, last, members
        # the last and the first tiles are partial
        dk, dv, used = _walk(OWN, dk, dv, used, 0, last - full_last, common, True, MASK, SCORE_MOD, EAGER)
        dk, dv, used = _walk(
            OWN, dk, dv, used, last - full_last, last - full_first, common, False, MASK, SCORE_MOD, EAGER
        )
        dk, dv, used = _walk(OWN, dk, dv, used, last - full_first, last - first, common, True, MASK, SCORE_MOD, EAGER)
    store_gradients(OWN, dk, dv, maps, memory, done, (index_kb, index_kv, own_start), scale)


@gluon.jit
def flex_attention_bwd_sm90_kernel(
    q_map,
    k_map,
    v_map,
    dout_map,
    stat_map,
    sum_map,
    dk_map,
    dv_map,
    turn_ptr,
    spans_ptr,
    key_hulls_ptr,
    query_hulls_ptr,
    first_ptr,
    second_ptr,
    bias_ptr,
    scale,
    left,
    right,
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
    kv_batch,
    shared,
    kv_heads,
    group,
    q_len,
    kv_len,
    MASK: gl.constexpr,
    SCORE_MOD: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    SPAN: gl.constexpr,
    EAGER: gl.constexpr,
):
    """Write the gradients of keys and values, and add up the unscaled gradient of queries, in fp32.

    The TMA descriptors describe q and dout [kv_batch * shared, kv_heads * group, q_len, dim], k, v and their gradients
    [kv_batch, kv_heads, kv_len, dim], and the statistics and sums of flash attention's kernels before and after this
    one. `turn_ptr` is a counter for each tile of queries, zeroed. `spans_ptr` and `key_hulls_ptr` are the mask's tables
    by key, `query_hulls_ptr` the hulls by query; for bitmaps they are the spans by key, the visits and the bits
    (`nojit.kernels.block_mask.tables`). Sums of fully masked queries may not be written. With `EAGER`, the second product of
    a tile starts before scores are modified, which takes registers. Grid: cdiv(kv_len, 128) * kv_batch * kv_heads in x.
    """
    gl.static_assert(BLOCK_M + BLOCK_D == 192, "BLOCK_M is 64 at width 128, and 128 at width 64")
    gl.static_assert(EAGER or SCORE_MOD is not None, "without a modification nothing has to wait")
    BLOCK_N: gl.constexpr = 2 * ROWS
    number, batch_head = tile_of(gl.program_id(0), gl.cdiv(kv_len, BLOCK_N), kv_batch * kv_heads, q_len, SPAN)
    memory = memory_for((q_map, k_map, v_map, dout_map, stat_map, sum_map), STAGES, BLOCK_M, BLOCK_D)
    barriers = barriers_for(STAGES)
    k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory, _, sum_memory = memory
    k_full, v_full, q_full, q_empty, dout_full, dout_empty, _, sum_full, sum_empty, _ = barriers
    fence_async_shared()
    sizes = (kv_heads * group, group, shared, q_len, kv_len, mask_batch, mask_head)
    tables = (spans_ptr, key_hulls_ptr, query_hulls_ptr, left, right)
    mods = (
        (first_kind, first_ptr, first_stride_b, first_stride_h, first_value, first_reach),
        (second_kind, second_ptr, second_stride_b, second_stride_h, second_value, second_reach),
        (bias_ptr, bias_stride_b, bias_stride_h, bias_stride_m, bias_stride_n),
    )
    where = (batch_head // kv_heads, batch_head % kv_heads, number)
    out_maps = (dk_map, dv_map)
    in_maps = (q_map, k_map, v_map, dout_map, stat_map)
    in_memory = (k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory)
    in_barriers = (k_full, v_full, q_full, q_empty, dout_full, dout_empty)
    # registers per thread: the multipliers get those that the producer and the adder do not need
    gl.warp_specialize(
        [
            (_differentiate, (0, out_maps, memory, barriers, tables, sizes, where, mods, scale, MASK, SCORE_MOD, EAGER)),
            (_differentiate, (1, out_maps, memory, barriers, tables, sizes, where, mods, scale, MASK, SCORE_MOD, EAGER)),
            (_produce, (in_maps, in_memory, in_barriers, tables, sizes, where, MASK)),
            (_add, (sum_map, sum_memory, sum_full, sum_empty, turn_ptr, tables, sizes, where, BLOCK_M, MASK)),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )  # fmt: skip
