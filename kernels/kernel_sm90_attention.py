"""Shared parts of attention's forward passes for sm_90: early copies of queries, exponentials, start and end of a tile.

Consumer `OWN` owns the rows with that number in each tile of queries. If queries have two buffers, the next ones are copied
while the current tile is computed. Where that is faster, consumers take turns to start their products.
"""

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


@gluon.jit
def copy_queries(q_map, batch, head, row_start, memory, full, empty, turn):
    """Copy the queries of one tile, as soon as their buffer is free.

    Args:
        q_map: describes queries [batch, heads, q_len, head_dim] in boxes of [1, 1, rows, head_dim].
        batch: the batch.
        head: the head.
        row_start: the first query.
        memory: buffers [stages * consumers, 1, 1, rows, head_dim]; a stage holds a box for each consumer.
        full: barriers [stages, 1] that a stage's copies complete.
        empty: barriers [stages, 1] at which its consumers arrive.
        turn: the number of tiles copied before.
    """
    STAGES: gl.constexpr = full.shape[0]
    CONSUMERS: gl.constexpr = memory.shape[0] // STAGES
    ROWS: gl.constexpr = memory.shape[3]
    own = turn % STAGES
    mbarrier.wait(empty.index(own), (turn // STAGES & 1) ^ 1)
    mbarrier.expect(full.index(own), q_map.block_type.nbytes * CONSUMERS)
    for part in gl.static_range(CONSUMERS):
        copy_in(q_map, [batch, head, row_start + part * ROWS, 0], full.index(own), memory.index(own * CONSUMERS + part))


@gluon.jit
def queries_of(OWN: gl.constexpr, memory, full, turn):
    """Return a consumer's queries [rows, head_dim] in shared memory."""
    STAGES: gl.constexpr = full.shape[0]
    return memory.index(turn % STAGES * (memory.shape[0] // STAGES) + OWN).reshape([memory.shape[3], memory.shape[4]])


@gluon.jit
def weigh(scores, row_max, row_sum, qk_scale):
    """Return the exponentials of scores [rows, keys], the factor for previous sums, the new maximum and the new sum."""
    new_max = gl.maximum(row_max, gl.max(scores, 1))
    # a row without visible keys so far has maximum -inf: shift by 0, since -inf - -inf is NaN
    shift = gl.where(new_max == float("-inf"), 0.0, new_max) * qk_scale
    weights = gl.exp2(scores * qk_scale - shift[:, None])
    keep = gl.exp2(row_max * qk_scale - shift)
    return weights, keep, new_max, row_sum * keep + gl.sum(weights, 1)


@gluon.jit
def take_turn(OWN: gl.constexpr, order, number):
    """Wait for this consumer's turn: until the previous consumer has started its products, or for the first, the last one.

    Consumers then never start together: while one computes exponentials, the tensor cores work for another.

    Args:
        OWN: the consumer.
        order: barriers [consumers, 1] with one arrival each; [1, 1] if consumers take no turns.
        number: the number of turns that it had before.
    """
    if order.shape[0] > 1:
        FIRST: gl.constexpr = 1 if OWN == 0 else 0
        mbarrier.wait(order.index(OWN), (number & 1) ^ FIRST)


@gluon.jit
def pass_turn(OWN: gl.constexpr, order):
    """Let the next consumer start its products."""
    if order.shape[0] > 1:
        mbarrier.arrive(order.index((OWN + 1) % order.shape[0]))


@gluon.jit
def first_scores(OWN: gl.constexpr, queries, memory, barriers, turn, used):
    """Multiply a tile's queries by its first keys, once both have arrived, and release the keys.

    Args:
        OWN: the consumer.
        queries: its own, from `queries_of`.
        memory: queries, keys, values and results: buffers [stages, 1, 1, rows, width], for queries as in `copy_queries`.
        barriers: full and empty barriers of queries, of keys and of values, then those of `take_turn`.
        turn: the number of query tiles before.
        used: the number of key tiles before.

    Returns:
        The products [rows, keys].
    """
    q_full, k_full, k_empty, order, k_memory = barriers[0], barriers[2], barriers[3], barriers[6], memory[1]
    stage = used % k_memory.shape[0]
    mbarrier.wait(q_full.index(turn % q_full.shape[0]), turn // q_full.shape[0] & 1)
    mbarrier.wait(k_full.index(stage), used // k_memory.shape[0] & 1)
    # a tile of queries has one turn more than it has tiles of keys
    take_turn(OWN, order, used + turn)
    token = _scores(queries, k_memory, stage)
    pass_turn(OWN, order)
    scores = warpgroup_mma_wait(0, deps=(token,))
    mbarrier.arrive(k_empty.index(stage))
    return scores


@gluon.jit
def both_products(OWN: gl.constexpr, queries, weights, acc, memory, barriers, turn, used):
    """Multiply queries by key tile `used`, and concurrently the weights by the values of the previous tile.

    Args:
        OWN: the consumer.
        queries: as for `first_scores`.
        weights: the weights of the values, [rows, keys].
        acc: the previous sums of values, [rows, v_dim].
        memory: as for `first_scores`.
        barriers: as for `first_scores`.
        turn: the number of query tiles before.
        used: the number of key tiles before.

    Returns:
        The products [rows, keys], whose keys are released, and the pending sums of values, for `summed`.
    """
    k_full, k_empty, order, k_memory = barriers[2], barriers[3], barriers[6], memory[1]
    stage = used % k_memory.shape[0]
    mbarrier.wait(k_full.index(stage), used // k_memory.shape[0] & 1)
    take_turn(OWN, order, used + turn)
    scores_token = _scores(queries, k_memory, stage)
    acc_token = _sums(weights, acc, memory, barriers, used)
    pass_turn(OWN, order)
    scores = warpgroup_mma_wait(1, deps=(scores_token,))
    mbarrier.arrive(k_empty.index(stage))
    return scores, acc_token


@gluon.jit
def summed(acc_token, memory, barriers, used):
    """Wait for pending sums of values, and release the values of tile `used` - 1; return the sums."""
    acc = warpgroup_mma_wait(0, deps=(acc_token,))
    mbarrier.arrive(barriers[5].index((used - 1) % memory[2].shape[0]))
    return acc


@gluon.jit
def last_values(OWN: gl.constexpr, weights, acc, memory, barriers, turn, used):
    """Add the weighted values of tile `used` - 1 once they have arrived, and release them; return the sums."""
    order = barriers[6]
    take_turn(OWN, order, used + turn)
    token = _sums(weights, acc, memory, barriers, used)
    pass_turn(OWN, order)
    return summed(token, memory, barriers, used)


@gluon.jit
def _scores(queries, k_memory, stage):
    """Start the products of queries with the keys in a buffer."""
    BLOCK_N: gl.constexpr = k_memory.shape[3]
    qk_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    k = k_memory.index(stage).reshape([BLOCK_N, k_memory.shape[4]])
    ROWS: gl.constexpr = queries.shape[0]
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, qk_layout)
    return warpgroup_mma(queries, k.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def _sums(weights, acc, memory, barriers, used):
    """Start to add the weighted values of tile `used` - 1, once they have arrived."""
    v_full, v_memory = barriers[4], memory[2]
    stage = (used - 1) % v_memory.shape[0]
    mbarrier.wait(v_full.index(stage), (used - 1) // v_memory.shape[0] & 1)
    values = v_memory.index(stage).reshape([v_memory.shape[3], v_memory.shape[4]])
    return warpgroup_mma(weights, values, acc, is_async=True)


@gluon.jit
def write_rows(OWN: gl.constexpr, acc, row_sum, out_map, out_memory, batch, head, row_start):
    """Divide a consumer's sums of values [rows, v_dim] by those of weights, and store them from `row_start` on."""
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, out_memory.shape[4], 16])
    inverse = 1.0 / gl.where(row_sum == 0.0, 1.0, row_sum)
    out = acc * gl.convert_layout(inverse, gl.SliceLayout(1, out_layout))[:, None]
    # the previous tile's store must have read its buffer
    tma.store_wait(0)
    out_memory.index(OWN).reshape([out_memory.shape[3], out_memory.shape[4]]).store(out.to(out_memory.dtype))
    fence_async_shared()
    copy_out(out_map, [batch, head, row_start, 0], out_memory.index(OWN))
