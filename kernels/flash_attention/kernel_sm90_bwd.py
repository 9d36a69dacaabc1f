"""Gluon kernel of flash attention, backward, for sm_90: all five products of a tile in one program.

After Shah et al. 2024, https://arxiv.org/abs/2407.08608.

A program owns `BLOCK_N` keys of a key head. It processes the tiles of `BLOCK_M` queries that see any of these keys,
last tile first, and each tile once for every query head, or a part of the query heads, that shares the keys. It keeps the gradients of its keys and
values in registers. Its contribution to the gradient of a tile of queries goes through shared memory to a workspace in
global memory, to which TMA adds it in fp32.

Scores are computed transposed, keys by queries, so that weights and their gradients are register operands of the
products that follow. Two warp groups, the multipliers, own 64 keys each. Two more warps move memory: the producer
copies operands to shared memory, the adder adds contributions to the workspace. Barriers synchronize them all. `used`
counts the tiles so far; the stage of a buffer with several stages is ``used % STAGES``, and round n through all stages
has phase ``n & 1``:

| barrier    | arrives                              | waits                          | then                            |
|------------|--------------------------------------|--------------------------------|---------------------------------|
| k_full     | TMA: keys copied, once               | multipliers, before their loop | scores; gradient of queries     |
| v_full     | TMA: values copied, once             | multipliers, before their loop | gradient of weights             |
| q_full     | TMA: queries and log-sums copied     | multipliers, at their tile     | scores; weights                 |
| q_empty    | multipliers: keys' product done      | producer, one round behind     | the next queries are copied     |
| dout_full  | TMA: dout and delta copied           | multipliers, at their tile     | gradients of weights and values |
| dout_empty | multipliers: values' product done    | producer, one round behind     | the next dout is copied         |
| ds_full    | multipliers: scores' gradient stored | multipliers, at their tile     | gradient of queries             |
| sum_full   | multipliers: contribution stored     | adder, at its tile             | the contribution is added       |
| sum_empty  | adder: contribution read             | multipliers, one round behind  | the next contribution is stored |
| done       | multipliers: loop ended              | multipliers, to reuse the keys | the gradient of keys is stored  |

A wait "one round behind" passes at once in the first round. Gradients of scores alternate between two buffers. Before a
multiplier stores one, it has waited for `ds_full` of the previous tile; no multiplier arrives there before it has read
the buffer of two tiles ago.

For deterministic sums, each tile of queries has a counter of the key tiles added so far. The adder of key tile n waits
until the counter is n, and so sees all earlier additions. Programs of a head start in the order of their keys, so a
program waits only for programs that started earlier. These process the same tiles in the same order and, under a causal
mask, some more tiles. All of them begin at the last query, so that a program that starts together with another one
follows closely behind it. If they began at the first visible query, it would lag by the tiles between their diagonals.
"""

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
def tile_of(number, tiles, heads, q_len, SPAN: gl.constexpr):
    """Return the tile of keys, and the batch and key head as one number, of program `number`.

    Heads are processed in sections with `SPAN` queries in total, which fit L2. In each section tiles come in order,
    which under a causal mask is longest first.
    """
    section = gl.minimum(gl.maximum(SPAN // q_len, 1), heads)
    first = number // (tiles * section) * section
    place = number % (tiles * section)
    width = gl.minimum(section, heads - first)
    return place // width, first + place % width


@gluon.jit
def _span_of(
    key_start, q_len, kv_len, causal_offset, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr
):
    """Return the tiles of queries that see a key from `key_start`: the first, the first that needs no mask, and the end.

    `causal_offset`: query m sees keys up to m + causal_offset.
    """
    last = gl.cdiv(q_len, BLOCK_M)
    first = 0
    whole = 0
    if CAUSAL:
        first = gl.minimum(gl.maximum(key_start - causal_offset, 0) // BLOCK_M, last)
        whole = gl.minimum(gl.cdiv(gl.maximum(key_start + BLOCK_N - 1 - causal_offset, 0), BLOCK_M), last)
    # in the last key tile, keys past the end must be masked for every query tile
    return first, gl.where(key_start + BLOCK_N > kv_len, last, whole), last


@gluon.jit
def _produce(maps, memory, barriers, sizes, where):
    """Copy the keys and values once, then queries, dout and statistics of every tile; run by the producer warp."""
    q_map, k_map, v_map, dout_map, stat_map = maps
    k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory = memory
    k_full, v_full, q_full, q_empty, dout_full, dout_empty = barriers
    _, group, parts = sizes
    index_b, index_kv, key_start, first, last = where
    of_keys = index_kv // parts
    STAGES: gl.constexpr = q_memory.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[3]
    mbarrier.expect(k_full, 2 * k_map.block_type.nbytes)
    for part in gl.static_range(2):
        copy_in(k_map, [index_b, of_keys, key_start + part * ROWS, 0], k_full, k_memory.index(part))
    used = 0
    for place in range(last - first):
        start = (last - 1 - place) * BLOCK_M
        for index_h in range(index_kv * group, index_kv * group + group):
            stage = used % STAGES
            phase = (used // STAGES & 1) ^ 1
            mbarrier.wait(q_empty.index(stage), phase)
            mbarrier.expect(q_full.index(stage), q_map.block_type.nbytes + stat_map.block_type.nbytes)
            copy_in(q_map, [index_b, index_h, start, 0], q_full.index(stage), q_memory.index(stage))
            copy_in(stat_map, [0, index_b, index_h, start], q_full.index(stage), lse_memory.index(stage))
            if used == 0:
                mbarrier.expect(v_full, 2 * v_map.block_type.nbytes)
                for part in gl.static_range(2):
                    copy_in(v_map, [index_b, of_keys, key_start + part * ROWS, 0], v_full, v_memory.index(part))
            mbarrier.wait(dout_empty.index(stage), phase)
            mbarrier.expect(dout_full.index(stage), dout_map.block_type.nbytes + stat_map.block_type.nbytes)
            copy_in(dout_map, [index_b, index_h, start, 0], dout_full.index(stage), dout_memory.index(stage))
            copy_in(stat_map, [1, index_b, index_h, start], dout_full.index(stage), delta_memory.index(stage))
            used += 1


@gluon.jit
def _add(sum_map, sum_memory, sum_full, sum_empty, turn_ptr, sizes, where, number, tiles, WIDE: gl.constexpr):
    """Add the contributions to the gradient of queries to the workspace; run by the adder warp.

    With `turn_ptr`, key tiles are added in order; without, in any order. `number` is the key tile, `WIDE` that BLOCK_D
    is 128.
    """
    heads, group, _ = sizes
    index_b, index_kv, _, first, last = where
    used = 0
    for place in range(last - first):
        tile = last - 1 - place
        for index_h in range(index_kv * group, index_kv * group + group):
            # the contribution has two parts: halves of its columns, or of its rows
            row = tile * ROWS if WIDE else tile * 2 * ROWS
            beside: gl.constexpr = [0, 0, 0, ROWS] if WIDE else [0, 0, ROWS, 0]
            if turn_ptr is None:
                mbarrier.wait(sum_full, used & 1)
                add_out(sum_map, [index_b, index_h, row, 0], sum_memory.index(0))
                add_out(sum_map, [index_b, index_h, row + beside[2], beside[3]], sum_memory.index(1))
                tma.store_wait(0)
                mbarrier.arrive(sum_empty)
            else:
                turn = turn_ptr + (index_b * heads + index_h).to(gl.int64) * tiles + tile
                wait_for_count(turn, number)
                mbarrier.wait(sum_full, used & 1)
                if number == 0:
                    copy_out(sum_map, [index_b, index_h, row, 0], sum_memory.index(0))
                    copy_out(sum_map, [index_b, index_h, row + beside[2], beside[3]], sum_memory.index(1))
                else:
                    add_out(sum_map, [index_b, index_h, row, 0], sum_memory.index(0))
                    add_out(sum_map, [index_b, index_h, row + beside[2], beside[3]], sum_memory.index(1))
                tma.store_wait(0)
                mbarrier.arrive(sum_empty)
                wait_until_written()
                gl.atomic_add(turn, 1, sem="release", scope="gpu")
            used += 1
    wait_until_written()


@gluon.jit
def _multiply_keys(OWN: gl.constexpr, ds_memory, slot, k_memory):
    """Start multiplier `OWN`'s part of the contribution to the gradient of queries: score gradients times keys.

    It sums over the keys of both multipliers, and returns the product in flight.
    """
    BLOCK_D: gl.constexpr = k_memory.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    acc = gl.zeros([ROWS, ROWS], gl.float32, layout)
    for part in gl.static_range(2):
        left = ds_memory.index(slot + part).permute((1, 0))
        right = k_memory.index(part).reshape([ROWS, BLOCK_D])
        if BLOCK_D == ROWS:
            left = left.slice(OWN * ROWS, ROWS, 0)
        else:
            right = right.slice(OWN * ROWS, ROWS, 1)
        acc = warpgroup_mma(left, right, acc, use_acc=part > 0, is_async=True)
    return acc


@gluon.jit
def propagate(OWN: gl.constexpr, dk, dv, operand, weights, dp, memory, barriers, used):
    """Add one tile of queries to dk and dv, and store its contribution to the gradient of queries; return dk and dv.

    Args:
        OWN: the multiplier.
        dk: gradient of keys before the scale, fp32.
        dv: gradient of values, fp32.
        operand: weights p [keys, queries] as a register operand.
        weights: the same weights; for scores that a function modified, times its derivative.
        dp: gradient of the weights, dout v^T, transposed.
        memory: buffers from `memory_for`.
        barriers: the barriers in the module's table.
        used: number of tiles before.
    """
    k_memory, _, q_memory, dout_memory, _, delta_memory, ds_memory, sum_memory = memory
    _, q_empty, _, dout_empty, ds_full, sum_full, sum_empty = barriers
    STAGES: gl.constexpr = q_memory.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[3]
    BLOCK_D: gl.constexpr = q_memory.shape[4]
    dtype: gl.constexpr = q_memory.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    dk_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    operand_layout: gl.constexpr = gl.DotOperandLayout(0, dk_layout, 2)
    stage = used % STAGES
    slot = (used & 1) * 2
    q = q_memory.index(stage).reshape([BLOCK_M, BLOCK_D])
    dout = dout_memory.index(stage).reshape([BLOCK_M, BLOCK_D])
    dv_token = warpgroup_mma(operand, dout, dv, is_async=True)
    delta = delta_memory.index(stage).reshape([1, BLOCK_M]).load(s_layout)
    ds = (weights * (dp - delta)).to(dtype)
    ds_memory.index(slot + OWN).store(ds)
    fence_async_shared()
    mbarrier.arrive(ds_full)
    mbarrier.wait(ds_full, used & 1)
    dq_token = _multiply_keys(OWN, ds_memory, slot, k_memory)
    dk_token = warpgroup_mma(gl.convert_layout(ds, operand_layout), q, dk, is_async=True)
    # the two products of `_multiply_keys` and that for dk were issued after it
    dv = warpgroup_mma_wait(3, deps=(dv_token,))
    mbarrier.arrive(dout_empty.index(stage))
    dq = warpgroup_mma_wait(1, deps=(dq_token,))
    mbarrier.wait(sum_empty, (used & 1) ^ 1)
    sum_memory.index(OWN).reshape([ROWS, ROWS]).store(dq)
    fence_async_shared()
    mbarrier.arrive(sum_full)
    dk = warpgroup_mma_wait(0, deps=(dk_token,))
    mbarrier.arrive(q_empty.index(stage))
    return dk, dv


@gluon.jit
def store_gradients(OWN: gl.constexpr, dk, dv, maps, memory, done, place, scale):
    """Store the gradients of multiplier `OWN`'s keys and values, through the shared memory of these keys and values."""
    dk_map, dv_map = maps
    k_memory, v_memory, q_memory = memory[0], memory[1], memory[2]
    BLOCK_D: gl.constexpr = q_memory.shape[4]
    index_b, index_kv, own_start = place
    # the other multiplier may still read these keys: wait before reusing their memory
    mbarrier.arrive(done)
    v_memory.index(OWN).reshape([ROWS, BLOCK_D]).store(dv.to(q_memory.dtype))
    fence_async_shared()
    copy_out(dv_map, [index_b, index_kv, own_start, 0], v_memory.index(OWN))
    mbarrier.wait(done, 0)
    k_memory.index(OWN).reshape([ROWS, BLOCK_D]).store((dk * scale).to(q_memory.dtype))
    fence_async_shared()
    copy_out(dk_map, [index_b, index_kv, own_start, 0], k_memory.index(OWN))
    tma.store_wait(0)


@gluon.jit
def memory_for(maps, STAGES: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_D: gl.constexpr):
    """Allocate shared memory for keys, values, queries, dout, statistics, score gradients, and contributions to queries."""
    q_map, k_map, v_map, dout_map, stat_map, sum_map = maps
    dtype: gl.constexpr = q_map.dtype
    ds_layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    k_memory = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, BLOCK_D], k_map.layout)
    v_memory = gl.allocate_shared_memory(dtype, [2, 1, 1, ROWS, BLOCK_D], v_map.layout)
    q_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, BLOCK_D], q_map.layout)
    dout_memory = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_M, BLOCK_D], dout_map.layout)
    lse_memory = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, BLOCK_M], stat_map.layout)
    delta_memory = gl.allocate_shared_memory(gl.float32, [STAGES, 1, 1, 1, BLOCK_M], stat_map.layout)
    ds_memory = gl.allocate_shared_memory(dtype, [4, ROWS, BLOCK_M], ds_layout)
    sum_memory = gl.allocate_shared_memory(gl.float32, [2, 1, 1, ROWS, ROWS], sum_map.layout)
    return k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory, ds_memory, sum_memory


@gluon.jit
def barriers_for(STAGES: gl.constexpr):
    """Return the barriers of the producer, the adder and two multipliers."""
    k_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    dout_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    dout_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ds_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    sum_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    sum_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(k_full, count=1)
    mbarrier.init(v_full, count=1)
    mbarrier.init(ds_full, count=2)
    mbarrier.init(sum_full, count=2)
    mbarrier.init(sum_empty, count=1)
    mbarrier.init(done, count=2)
    for stage in gl.static_range(STAGES):
        mbarrier.init(q_full.index(stage), count=1)
        mbarrier.init(q_empty.index(stage), count=2)
        mbarrier.init(dout_full.index(stage), count=1)
        mbarrier.init(dout_empty.index(stage), count=2)
    return k_full, v_full, q_full, q_empty, dout_full, dout_empty, ds_full, sum_full, sum_empty, done


@gluon.jit
def _multiply(
    OWN: gl.constexpr, dk, dv, memory, barriers, used, row_start, keys, causal_offset, kv_len, qk_scale,
    MASKED: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Process one tile of queries for the keys of multiplier `OWN`; return the updated dk and dv.

    `used`: number of tiles before this one; `causal_offset`: query m sees keys up to m + causal_offset; `qk_scale`: the
    softmax scale times log2(e).
    """
    k_memory, v_memory, q_memory, dout_memory, lse_memory = memory[0], memory[1], memory[2], memory[3], memory[4]
    q_full, dout_full = barriers[0], barriers[2]
    STAGES: gl.constexpr = q_memory.shape[0]
    BLOCK_M: gl.constexpr = q_memory.shape[3]
    BLOCK_D: gl.constexpr = q_memory.shape[4]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    operand_layout: gl.constexpr = gl.DotOperandLayout(0, dk.type.layout, 2)
    stage = used % STAGES
    phase = used // STAGES & 1
    k = k_memory.index(OWN).reshape([ROWS, BLOCK_D])
    v = v_memory.index(OWN).reshape([ROWS, BLOCK_D])
    q = q_memory.index(stage).reshape([BLOCK_M, BLOCK_D])
    dout = dout_memory.index(stage).reshape([BLOCK_M, BLOCK_D])
    zeros = gl.zeros([ROWS, BLOCK_M], gl.float32, s_layout)
    mbarrier.wait(q_full.index(stage), phase)
    scores_token = warpgroup_mma(k, q.permute((1, 0)), zeros, use_acc=False, is_async=True)
    mbarrier.wait(dout_full.index(stage), phase)
    dp_token = warpgroup_mma(v, dout.permute((1, 0)), zeros, use_acc=False, is_async=True)
    lse = lse_memory.index(stage).reshape([1, BLOCK_M]).load(s_layout)
    scores = warpgroup_mma_wait(1, deps=(scores_token,))
    weights = gl.exp2(scores * qk_scale - lse)
    if MASKED:
        visible = (keys < kv_len)[:, None]
        if CAUSAL:
            rows = row_start + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, s_layout))
            visible = visible & (keys[:, None] <= rows[None, :] + causal_offset)
        weights = gl.where(visible, weights, 0.0)
    # waiting for the weights as well keeps the compiler from moving their computation past the wait
    dp, weights = warpgroup_mma_wait(0, deps=(dp_token, weights))
    operand = gl.convert_layout(weights.to(q_memory.dtype), operand_layout)
    return propagate(OWN, dk, dv, operand, weights, dp, memory, barriers, used)


@gluon.jit
def _differentiate(
    OWN: gl.constexpr, maps, memory, barriers, sizes, where, whole, kv_len, causal_offset, scale, CAUSAL: gl.constexpr
):  # fmt: skip
    """Process all tiles of queries, and store the gradients of the keys and values of multiplier `OWN`.

    `causal_offset`: query m sees keys up to m + causal_offset.
    """
    q_memory = memory[2]
    k_full, v_full, done = barriers[0], barriers[1], barriers[9]
    walked = (barriers[2], barriers[3], barriers[4], barriers[5], barriers[6], barriers[7], barriers[8])
    group = sizes[1]
    index_b, index_kv, key_start, first, last = where
    BLOCK_M: gl.constexpr = q_memory.shape[3]
    BLOCK_D: gl.constexpr = q_memory.shape[4]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    dk_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    qk_scale = scale * LOG2_E
    own_start = key_start + OWN * ROWS
    keys = own_start + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
    dk = gl.zeros([ROWS, BLOCK_D], gl.float32, dk_layout)
    dv = gl.zeros([ROWS, BLOCK_D], gl.float32, dk_layout)
    mbarrier.wait(k_full, 0)
    mbarrier.wait(v_full, 0, pred=last > first)
    used = 0
    for place in range(last - whole):
        for _ in range(group):
            dk, dv = _multiply(
                OWN, dk, dv, memory, walked, used, (last - 1 - place) * BLOCK_M, keys, causal_offset, kv_len, qk_scale,
                False, CAUSAL,
            )  # fmt: skip
            used += 1
    for place in range(last - whole, last - first):
        for _ in range(group):
            dk, dv = _multiply(
                OWN, dk, dv, memory, walked, used, (last - 1 - place) * BLOCK_M, keys, causal_offset, kv_len, qk_scale,
                True, CAUSAL,
            )  # fmt: skip
            used += 1
    store_gradients(OWN, dk, dv, maps, memory, done, (index_b, index_kv, own_start), scale)


@gluon.jit
def flash_attention_bwd_sm90_kernel(
    q_map,
    k_map,
    v_map,
    dout_map,
    stat_map,
    sum_map,
    dk_map,
    dv_map,
    turn_ptr,
    scale,
    causal_offset,
    batch,
    heads,
    group,
    parts,
    q_len,
    kv_len,
    CAUSAL: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
    SPAN: gl.constexpr,
):
    """Write the gradients of keys and values, and add up the unscaled gradient of queries, in fp32.

    A program sums over `group` query heads, a part of those that share a key head; a key head has `parts` such parts.

    The TMA descriptors describe q and dout [batch, heads, q_len, dim]; k and v [batch, heads // group // parts, kv_len,
    dim]; `dk_map` and `dv_map` the gradients of each part [batch, heads // group, kv_len, dim]; `stat_map` the
    statistics that `flash_attention_bwd_sm90_prepare_kernel` wrote, fp32 [2, batch, heads, q_len rounded up to
    `BLOCK_M`]; and `sum_map` the sums for queries, fp32 [batch, heads, q_len, head_dim]. `BLOCK_D` is 64 or 128;
    smaller head dimensions are padded. `turn_ptr` is int32 [batch, heads, cdiv(q_len, BLOCK_M)], zeroed, to add in the
    order of keys; or None to add in any order, to sums zeroed beforehand. Sums of fully masked queries are not written.
    With `CAUSAL`, query m sees the keys up to m + `causal_offset`. Shared memory holds `STAGES` tiles of queries.
    `SPAN` is the number of queries of all heads that are processed at a time. Grid: cdiv(kv_len, 128) * batch * heads
    // group in x.
    """
    gl.static_assert(BLOCK_M + BLOCK_D == 192, "BLOCK_M is 64 at width 128, and 128 at width 64")
    BLOCK_N: gl.constexpr = 2 * ROWS
    kv_heads = heads // group
    number, batch_head = tile_of(gl.program_id(0), gl.cdiv(kv_len, BLOCK_N), batch * kv_heads, q_len, SPAN)
    key_start = number * BLOCK_N
    first, whole, last = _span_of(key_start, q_len, kv_len, causal_offset, BLOCK_M, BLOCK_N, CAUSAL)
    memory = memory_for((q_map, k_map, v_map, dout_map, stat_map, sum_map), STAGES, BLOCK_M, BLOCK_D)
    barriers = barriers_for(STAGES)
    k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory, _, sum_memory = memory
    k_full, v_full, q_full, q_empty, dout_full, dout_empty, _, sum_full, sum_empty, _ = barriers
    fence_async_shared()
    sizes = (heads, group, parts)
    where = (batch_head // kv_heads, batch_head % kv_heads, key_start, first, last)
    tiles = gl.cdiv(q_len, BLOCK_M)
    out_maps = (dk_map, dv_map)
    in_maps = (q_map, k_map, v_map, dout_map, stat_map)
    in_memory = (k_memory, v_memory, q_memory, dout_memory, lse_memory, delta_memory)
    in_barriers = (k_full, v_full, q_full, q_empty, dout_full, dout_empty)
    # registers per thread: the multipliers get those that the producer and the adder do not need
    gl.warp_specialize(
        [
            (_differentiate, (0, out_maps, memory, barriers, sizes, where, whole, kv_len, causal_offset, scale, CAUSAL)),
            (_differentiate, (1, out_maps, memory, barriers, sizes, where, whole, kv_len, causal_offset, scale, CAUSAL)),
            (_produce, (in_maps, in_memory, in_barriers, sizes, where)),
            (_add, (sum_map, sum_memory, sum_full, sum_empty, turn_ptr, sizes, where, number, tiles, BLOCK_D > ROWS)),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )  # fmt: skip
