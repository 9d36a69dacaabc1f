"""What the forward passes of attention for sm_90 share: queries copied ahead, exponentials, how a tile begins and ends.

A consumer owns the rows of number `OWN` of each tile of queries. Where queries have two places, the next ones come while
the present tile is computed.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# (a kernel's parameters are typed by its manifest, and Triton's decorators carry no types)
# ruff: noqa: PLR0917 - helpers of a kernel take its facts by position

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
    """Copy the queries of one tile, as soon as those whose place they take are done with.

    Args:
        q_map: describes queries [batch, heads, q_len, head_dim] in boxes of [1, 1, rows, head_dim].
        batch: whose.
        head: likewise.
        row_start: the first of them.
        memory: places [stages * consumers, 1, 1, rows, head_dim]; a stage holds a box for each consumer.
        full: barriers [stages, 1] that a stage's copies complete.
        empty: barriers [stages, 1] at which its consumers arrive.
        turn: how many tiles were copied before.
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
    """Take exponentials of scores [rows, keys]; return them, what to scale the past with, the new maximum and sum."""
    new_max = gl.maximum(row_max, gl.max(scores, 1))
    # a row that has seen no key yet has maximum -inf: shift by 0 there, as -inf - -inf is NaN
    shift = gl.where(new_max == float("-inf"), 0.0, new_max) * qk_scale
    weights = gl.exp2(scores * qk_scale - shift[:, None])
    keep = gl.exp2(row_max * qk_scale - shift)
    return weights, keep, new_max, row_sum * keep + gl.sum(weights, 1)


@gluon.jit
def first_scores(queries, memory, barriers, turn, used):
    """Multiply a tile's queries by its first keys, once both are there, and let go of the keys.

    Args:
        queries: those of this consumer, as `queries_of` gives them.
        memory: queries, keys, values and results: places [stages, 1, 1, rows, width], of queries as `copy_queries` has them.
        barriers: full and empty ones of queries, then of keys, then of values.
        turn: how many tiles of queries came before.
        used: how many tiles of keys.

    Returns:
        The products [rows, keys].
    """
    q_full, k_full, k_empty, k_memory = barriers[0], barriers[2], barriers[3], memory[1]
    ROWS: gl.constexpr = memory[0].shape[3]
    BLOCK_N: gl.constexpr = k_memory.shape[3]
    qk_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    stage = used % k_memory.shape[0]
    mbarrier.wait(q_full.index(turn % q_full.shape[0]), turn // q_full.shape[0] & 1)
    mbarrier.wait(k_full.index(stage), used // k_memory.shape[0] & 1)
    k = k_memory.index(stage).reshape([BLOCK_N, k_memory.shape[4]])
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, qk_layout)
    token = warpgroup_mma(queries, k.permute((1, 0)), zeros, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=(token,))
    mbarrier.arrive(k_empty.index(stage))
    return scores


@gluon.jit
def last_values(weights, acc, memory, barriers, used):
    """Add up the weighted values of the tile of number `used` - 1, once they are there, and let go of them; return the sums."""
    v_full, v_empty, v_memory = barriers[4], barriers[5], memory[2]
    stage = (used - 1) % v_memory.shape[0]
    mbarrier.wait(v_full.index(stage), (used - 1) // v_memory.shape[0] & 1)
    values = v_memory.index(stage).reshape([v_memory.shape[3], v_memory.shape[4]])
    token = warpgroup_mma(weights, values, acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(token,))
    mbarrier.arrive(v_empty.index(stage))
    return acc


@gluon.jit
def write_rows(OWN: gl.constexpr, acc, row_sum, out_map, out_memory, batch, head, row_start):
    """Divide a consumer's sums of values [rows, v_dim] by those of weights, and copy them out, from `row_start` on."""
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, out_memory.shape[4], 16])
    inverse = 1.0 / gl.where(row_sum == 0.0, 1.0, row_sum)
    out = acc * gl.convert_layout(inverse, gl.SliceLayout(1, out_layout))[:, None]
    # what was stored of the tile before must have left
    tma.store_wait(0)
    out_memory.index(OWN).reshape([out_memory.shape[3], out_memory.shape[4]]).store(out.to(out_memory.dtype))
    fence_async_shared()
    copy_out(out_map, [batch, head, row_start, 0], out_memory.index(OWN))
