"""Device functions that attention's forward kernels for sm_90 share: copies of queries, exponentials, steps of a tile.

A tile of queries belongs to several consumers, groups of four warps; consumer `OWN` computes the `OWN`-th part of the
rows. If queries have two buffers, the next tile's are copied while the current one is computed. Consumers may take
turns to start their products, where that is faster.
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

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
FP8_LARGEST = gl.constexpr(8)
"""Logarithm in base 2 of the largest e4m3 weight, 256: weights down to 2^-17 of the largest are not rounded to 0."""


@gluon.constexpr_function
def is_fp8(dtype):
    """Return whether operands are e4m3."""
    return dtype == gl.float8e4nv


@gluon.constexpr_function
def largest_of(dtype):
    """Return the logarithm in base 2 of the largest weight for values of `dtype`."""
    return int(FP8_LARGEST) if dtype == gl.float8e4nv else 0


@gluon.constexpr_function
def scores_layout(keys, dtype):
    """Return the layout of 64 queries' scores for `keys` keys."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, keys, 32 if dtype == gl.float8e4nv else 16])


@gluon.constexpr_function
def weights_layout(columns, dtype):
    """Return the layout of weights for 64 queries, as the factor of values of `columns` columns."""
    fp8 = dtype == gl.float8e4nv
    out_layout = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 32 if fp8 else 16])
    return gl.DotOperandLayout(0, out_layout, 4 if fp8 else 2)


@gluon.jit
def barriers_for(STAGES: gl.constexpr, Q_STAGES: gl.constexpr, CONSUMERS: gl.constexpr, TURNS: gl.constexpr):
    """Return full and empty barriers of queries, of keys and of values, and with `TURNS` those of `take_turn`."""
    q_full, q_empty = barriers_of(Q_STAGES, 1), barriers_of(Q_STAGES, CONSUMERS)
    k_full, k_empty = barriers_of(STAGES, 1), barriers_of(STAGES, CONSUMERS)
    v_full, v_empty = barriers_of(STAGES, 1), barriers_of(STAGES, CONSUMERS)
    if TURNS:
        order = barriers_of(CONSUMERS, 1)
        fence_async_shared()
        return q_full, q_empty, k_full, k_empty, v_full, v_empty, order
    else:  # noqa: RET505 - Triton compiles only the branch taken
        # a barrier that nobody waits for shares its memory with other values
        fence_async_shared()
        return q_full, q_empty, k_full, k_empty, v_full, v_empty


@gluon.jit
def barriers_of(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Return initialized barriers [COUNT, 1], whose phases end after `ARRIVALS` arrivals each."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for own in gl.static_range(COUNT):
        mbarrier.init(barriers.index(own), count=ARRIVALS)
    return barriers


@gluon.jit
def copy_tile(tile_map, place, full, empty, memory, copied):
    """Copy a tile of keys or of values to its stage, as soon as that is free; `copied` tiles were copied before.

    `full` and `empty`: barriers of the stages of `memory`.
    """
    STAGES: gl.constexpr = memory.shape[0]
    stage = copied % STAGES
    phase = (copied // STAGES & 1) ^ 1
    mbarrier.wait(empty.index(stage), phase)
    mbarrier.expect(full.index(stage), tile_map.block_type.nbytes)
    copy_in(tile_map, place, full.index(stage), memory.index(stage))


@gluon.jit
def copy_queries(q_map, batch, head, row_start, memory, full, empty, turn):
    """Copy the queries of one tile to shared memory, as soon as their buffer is free.

    Args:
        q_map: TMA descriptor of the queries [batch, heads, q_len, head_dim] with boxes [1, 1, rows, head_dim].
        batch: batch index.
        head: head index.
        row_start: the tile's first query.
        memory: buffers [stages * consumers, 1, 1, rows, head_dim]; a stage holds a box for each consumer.
        full: barriers [stages, 1], completed by a stage's copies.
        empty: barriers [stages, 1], at which the stage's consumers arrive.
        turn: number of tiles copied before.
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
    """Return the queries [rows, head_dim] of consumer `OWN` in shared memory; `turn` tiles came before."""
    STAGES: gl.constexpr = full.shape[0]
    return memory.index(turn % STAGES * (memory.shape[0] // STAGES) + OWN).reshape([memory.shape[3], memory.shape[4]])


@gluon.jit
def weigh(scores, row_max, row_sum, qk_scale, LARGEST: gl.constexpr = 0):
    """Return exponentials of scores [rows, keys], the factor for previous sums, new maximum and new sum of each row.

    `qk_scale`: factor from scores to exponents of 2: the softmax scale times log2(e), or 1 for modified scores.
    `LARGEST`: logarithm in base 2 of the largest exponential of a row.
    """
    new_max = gl.maximum(row_max, gl.max(scores, 1))
    # a row without visible keys so far has maximum -inf: shift by 0, since -inf - -inf is NaN
    shift = gl.where(new_max == float("-inf"), 0.0, new_max) * qk_scale
    if LARGEST == 0:
        weights = gl.exp2(scores * qk_scale - shift[:, None])
    else:
        weights = gl.exp2(scores * qk_scale - (shift - LARGEST)[:, None])
    keep = gl.exp2(row_max * qk_scale - shift)
    return weights, keep, new_max, row_sum * keep + gl.sum(weights, 1)


@gluon.jit
def rounded(exponentials, dtype: gl.constexpr, layout: gl.constexpr):
    """Return exponentials [rows, keys] as `started_sums` takes weights for values of `dtype`: e4m3 as `packed`.

    `layout`: that of `weights_layout`.
    """
    if is_fp8(dtype):
        return packed(exponentials)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        return gl.convert_layout(exponentials.to(dtype), layout)


@gluon.jit
def packed(exponentials):
    """Return exponentials [rows, keys] as e4m3, four in an int32: [rows, keys / 16, 4].

    Number t of 16 keys has those of the keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, and one thread has computed them all.
    """
    ROWS: gl.constexpr = exponentials.shape[0]
    GROUPS: gl.constexpr = exponentials.shape[1] // 16
    first, second = exponentials.reshape([ROWS, GROUPS, 2, 4, 2]).permute((0, 1, 3, 2, 4)).split()
    a, c = first.split()
    b, d = second.split()
    # loops would carry each byte in a register of its own
    return gl.inline_asm_elementwise(
        "{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, $2, $1; "
        "cvt.rn.satfinite.e4m3x2.f32 high, $4, $3; mov.b32 $0, {low, high}; }",
        "=r,f,f,f,f", [a, b, c, d], gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def unpacked(numbers, layout: gl.constexpr):
    """Return the e4m3 weights [rows, keys] of `packed`, in their order there and in a layout of `weights_layout`."""
    pairs = gl.join(numbers, numbers)
    copies = gl.join(pairs, pairs).reshape([numbers.shape[0], numbers.shape[1] * 16])
    copies = gl.convert_layout(copies, layout, assert_trivial=True)
    # four weights are the bytes of the four copies of a number
    return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r,r,r", [copies], gl.float8e4nv, is_pure=True, pack=4)


@gluon.jit
def take_turn(OWN: gl.constexpr, barriers, number):
    """Wait for this consumer's turn: until the previous consumer (for the first one, the last) has started its products.

    Consumers then never start together: while one computes exponentials, the tensor cores work for another.

    Args:
        OWN: the consumer.
        barriers: those of `barriers_for`; the seventh, if there is one, are [consumers, 1] with one arrival each.
        number: number of turns that this consumer had before.
    """
    if len(barriers) == 7:
        FIRST: gl.constexpr = 1 if OWN == 0 else 0
        mbarrier.wait(barriers[6].index(OWN), (number & 1) ^ FIRST)


@gluon.jit
def pass_turn(OWN: gl.constexpr, barriers):
    """Let the consumer after `OWN` start its products."""
    if len(barriers) == 7:
        mbarrier.arrive(barriers[6].index((OWN + 1) % barriers[6].shape[0]))


@gluon.jit
def first_scores(OWN: gl.constexpr, queries, memory, barriers, turn, used, DEPTH: gl.constexpr):
    """Multiply a tile's queries by its first tile of keys once both have been copied, and free the keys' buffer.

    Args:
        OWN: the consumer.
        queries: this consumer's queries, from `queries_of`.
        memory: queries, keys, values and results: buffers [stages, 1, 1, rows, width], for queries as in
            `copy_queries`.
        barriers: full and empty barriers of queries, of keys and of values, and those of `take_turn` if there are any.
        turn: number of query tiles before.
        used: number of key tiles before.
        DEPTH: number of columns of queries and keys to multiply; the others are padding.

    Returns:
        The products [rows, keys].
    """
    q_full, k_full, k_empty, k_memory = barriers[0], barriers[2], barriers[3], memory[1]
    stage = used % k_memory.shape[0]
    mbarrier.wait(q_full.index(turn % q_full.shape[0]), turn // q_full.shape[0] & 1)
    mbarrier.wait(k_full.index(stage), used // k_memory.shape[0] & 1)
    # each tile of queries has one turn more than it has tiles of keys
    take_turn(OWN, barriers, used + turn)
    token = started_scores(queries, k_memory, stage, DEPTH)
    pass_turn(OWN, barriers)
    scores = warpgroup_mma_wait(0, deps=(token,))
    mbarrier.arrive(k_empty.index(stage))
    return scores


@gluon.jit
def both_products(
    OWN: gl.constexpr, queries, weights, acc, memory, barriers, turn, used, DEPTH: gl.constexpr, ADDS: gl.constexpr = True
):  # fmt: skip
    """Multiply queries by key tile `used` and, at the same time, weights by the values of the previous tile.

    Args:
        OWN: the consumer.
        queries: this consumer's queries, from `queries_of`.
        weights: the softmax weights of the previous tile, [rows, keys].
        acc: sums of weighted values so far, [rows, columns]: one tensor, or one for each of two parts of the columns.
        memory: buffers, as in `first_scores`.
        barriers: barriers, as in `first_scores`.
        turn: number of query tiles before.
        used: number of key tiles before.
        DEPTH: number of columns of queries and keys to multiply; the others are padding.
        ADDS: whether to add to `acc`; else only its shape matters.

    Returns:
        The products [rows, keys], whose keys are freed, and the sums of values in flight, for `summed`.
    """
    k_full, k_empty, k_memory = barriers[2], barriers[3], memory[1]
    stage = used % k_memory.shape[0]
    mbarrier.wait(k_full.index(stage), used // k_memory.shape[0] & 1)
    take_turn(OWN, barriers, used + turn)
    scores_token = started_scores(queries, k_memory, stage, DEPTH)
    acc_tokens = started_sums(weights, acc, memory, barriers, used, ADDS)
    pass_turn(OWN, barriers)
    scores = warpgroup_mma_wait(len(acc), deps=(scores_token,))
    mbarrier.arrive(k_empty.index(stage))
    return scores, acc_tokens


@gluon.jit
def summed(acc_tokens, memory, barriers, used, LATER: gl.constexpr = 0):
    """Wait for sums of values in flight, free the buffer of tile `used` - 1's values, and return the sums.

    `LATER`: number of products that were started after them and stay in flight.
    """
    if is_fp8(memory[2].dtype):
        # the assembler moves the next wait ahead of exponentials, but not past a branch: wait for the values again
        stage = (used - 1) % memory[2].shape[0]
        mbarrier.wait(barriers[4].index(stage), (used - 1) // memory[2].shape[0] & 1)
    acc = warpgroup_mma_wait(LATER, deps=acc_tokens)
    mbarrier.arrive(barriers[5].index((used - 1) % memory[2].shape[0]))
    if len(acc_tokens) == 1:
        return (acc,)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        return acc


@gluon.jit
def scaled(acc, factors):
    """Multiply each row of sums, in one tensor or two, by its factor."""
    if len(acc) == 1:
        return (_scaled(acc[0], factors),)
    else:  # noqa: RET505 - as above
        return _scaled(acc[0], factors), _scaled(acc[1], factors)


@gluon.jit
def first_factors(like, dtype: gl.constexpr):
    """Return the factors to start with if each tile of keys has sums of its own, which are added in fp32; else nothing.

    wgmma accumulates fp8 products less precisely than fp32: 16,384 values of one sign came out 24 % too small.
    `like`: a number for each row; `dtype`: that of the values.
    """
    if is_fp8(dtype):
        return (gl.full(like.shape, 1.0, gl.float32, like.type.layout),)
    else:  # noqa: RET505 - as above
        return ()


@gluon.jit
def started_from(acc, factors):
    """Return what a tile's weighted values are added to by wgmma: `acc`, or zeros if there are `factors`."""
    if len(factors) == 0:
        return acc
    else:  # noqa: RET505 - as above
        return (gl.zeros_like(acc[0]),)


@gluon.jit
def added(acc, factors, sums):
    """Multiply each row of `acc` by its factor, and add sums."""
    return (_scaled(acc[0], factors) + sums[0],)


@gluon.jit
def _scaled(acc, factors):
    return acc * gl.convert_layout(factors, gl.SliceLayout(1, acc.type.layout))[:, None]


@gluon.jit
def last_values(OWN: gl.constexpr, weights, acc, memory, barriers, turn, used, ADDS: gl.constexpr = True):
    """Add the weighted values of tile `used` - 1 once they have been copied, free their buffer, and return the sums.

    `ADDS`: as in `both_products`.
    """
    take_turn(OWN, barriers, used + turn)
    tokens = started_sums(weights, acc, memory, barriers, used, ADDS)
    pass_turn(OWN, barriers)
    return summed(tokens, memory, barriers, used)


@gluon.jit
def pass_over(memory, barriers, used, count):
    """Free the buffers of the `count` tiles of keys and values after the first `used`, which this consumer does not need."""
    for place in range(used, used + count):
        stage = place % memory[1].shape[0]
        phase = place // memory[1].shape[0] & 1
        # wait for the copies: two arrivals of one consumer in a phase would count for another
        mbarrier.wait(barriers[2].index(stage), phase)
        mbarrier.arrive(barriers[3].index(stage))
        mbarrier.wait(barriers[4].index(stage), phase)
        mbarrier.arrive(barriers[5].index(stage))


@gluon.jit
def started_scores(queries, k_memory, stage, DEPTH: gl.constexpr):
    """Start the product of `DEPTH` columns of the queries and of the keys in a stage; return it in flight."""
    BLOCK_N: gl.constexpr = k_memory.shape[3]
    qk_layout: gl.constexpr = scores_layout(BLOCK_N, k_memory.dtype)
    k = k_memory.index(stage).reshape([BLOCK_N, k_memory.shape[4]])
    ROWS: gl.constexpr = queries.shape[0]
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, qk_layout)
    WIDTH: gl.constexpr = queries.shape[1]
    if DEPTH == WIDTH:
        return warpgroup_mma(queries, k.permute((1, 0)), zeros, use_acc=False, is_async=True)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        # views have a power of two of columns: multiply the first half, then the rest
        HALF: gl.constexpr = WIDTH // 2
        REST: gl.constexpr = DEPTH - HALF
        first, first_keys = queries.slice(0, HALF, 1), k.slice(0, HALF, 1)
        scores = warpgroup_mma(first, first_keys.permute((1, 0)), zeros, use_acc=False, is_async=True)
        rest, rest_of_keys = queries.slice(HALF, REST, 1), k.slice(HALF, REST, 1)
        return warpgroup_mma(rest, rest_of_keys.permute((1, 0)), scores, is_async=True)


@gluon.jit
def started_sums(weights, acc, memory, barriers, used, ADDS: gl.constexpr = True):
    """Start to add the weighted values of tile `used` - 1 once they have been copied; return the sums in flight.

    `ADDS`: as in `both_products`.
    """
    v_full, v_memory = barriers[4], memory[2]
    stage = (used - 1) % v_memory.shape[0]
    mbarrier.wait(v_full.index(stage), (used - 1) // v_memory.shape[0] & 1)
    values = v_memory.index(stage).reshape([v_memory.shape[3], v_memory.shape[4]])
    if is_fp8(v_memory.dtype):
        # tensor cores take bytes of consecutive keys only: they are stored as columns
        values = values.permute((1, 0))
        weights = unpacked(weights, weights_layout(acc[0].shape[1], v_memory.dtype))
    if len(acc) == 1:
        return (warpgroup_mma(weights, values, acc[0], use_acc=ADDS, is_async=True),)
    else:  # noqa: RET505 - as above
        HALF: gl.constexpr = acc[0].shape[1]
        REST: gl.constexpr = acc[1].shape[1]
        first = warpgroup_mma(weights, values.slice(0, HALF, 1), acc[0], is_async=True)
        # the same registers: the layout of an operand names that of the result
        weights = gl.convert_layout(weights, gl.DotOperandLayout(0, acc[1].type.layout, 2))
        return first, warpgroup_mma(weights, values.slice(HALF, REST, 1), acc[1], is_async=True)


@gluon.jit
def write_rows(OWN: gl.constexpr, acc, row_sum, out_map, out_memory, batch, head, row_start):
    """Divide a consumer's sums of values [rows, v_dim] by its sums of weights, and store them from row `row_start` on."""
    out = scaled(acc, 1.0 / gl.where(row_sum == 0.0, 1.0, row_sum))
    # wait until the store of the previous tile has read the buffer
    tma.store_wait(0)
    store_rows(out, out_memory.index(OWN))
    fence_async_shared()
    copy_out(out_map, [batch, head, row_start, 0], out_memory.index(OWN))


@gluon.jit
def multiplied(sums, factor):
    """Multiply sums, in one tensor or two, by one factor."""
    if len(sums) == 1:
        return (sums[0] * factor,)
    else:  # noqa: RET505 - as above
        return sums[0] * factor, sums[1] * factor


@gluon.jit
def store_rows(sums, memory):
    """Store sums [rows, columns], in one tensor or two, to a box of shared memory, rounded."""
    own = memory.reshape([memory.shape[2], memory.shape[3]])
    if len(sums) == 1:
        own.store(sums[0].to(memory.dtype))
    else:
        HALF: gl.constexpr = sums[0].shape[1]
        REST: gl.constexpr = sums[1].shape[1]
        own.slice(0, HALF, 1).store(sums[0].to(memory.dtype))
        own.slice(HALF, REST, 1).store(sums[1].to(memory.dtype))


@gluon.jit
def no_sums(WIDTH: gl.constexpr, DEPTH: gl.constexpr, dtype: gl.constexpr = gl.bfloat16):
    """Return zeros for sums of 64 rows: one tensor of `WIDTH` columns, or two of `DEPTH` columns if that is less.

    `dtype`: that of the values.
    """
    if DEPTH >= WIDTH:
        return (_zeros(WIDTH, dtype),)
    else:  # noqa: RET505 - as above
        return _zeros(WIDTH // 2, dtype), _zeros(DEPTH - WIDTH // 2, dtype)


@gluon.jit
def _zeros(WIDTH: gl.constexpr, dtype: gl.constexpr):
    layout: gl.constexpr = scores_layout(WIDTH, dtype)
    return gl.zeros([64, WIDTH], gl.float32, layout)
