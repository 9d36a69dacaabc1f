"""Kernels for the parts of the model without an operator: embeddings, rotary positions with the cache, choice of a token.

Plain Triton, without nojit. Only the build imports this file, and the JIT in the comparison.
"""

# ruff: noqa: ANN001, ANN201, ANN202 - types are the manifest's to say
# ruff: noqa: N803, N806 - Triton's constexprs are written in capitals
# ruff: noqa: PLR0917 - a launch passes its facts by position, many of them
# ruff: noqa: ARG001 - some are the grid's alone
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def embed_rows_kernel(words_ptr, tokens_ptr, rows_ptr, rows, width, BLOCK: tl.constexpr):
    """Copy the row of each token, `width` elements. Grid: rows, cdiv(width, BLOCK)."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < width
    token = tl.load(tokens_ptr + row).to(tl.int64)
    tl.store(rows_ptr + row * width + lanes, tl.load(words_ptr + token * width + lanes, mask=mask), mask=mask)


@triton.jit
def place_heads_kernel(
    heads_ptr,
    cosines_ptr,
    sines_ptr,
    keys_ptr,
    values_ptr,
    lens_ptr,
    rows,
    q_heads,
    kv_heads,
    room,
    DIM: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Rotate queries in place by their positions, write rotated keys to the cache, and copy values to it.

    heads is [rows, q_heads + 2 * kv_heads, DIM]: queries, keys and values of a token. cosines and sines are [room, DIM], with equal
    values for both dimensions of a pair, DIM // 2 apart. keys and values are [slots, kv_heads, room, DIM]. With lens, row r belongs
    to slot r, at position ``lens[r] - 1``; without, to slot 0, at position r. Computed in fp32, rounded once.
    Grid: rows, cdiv(q_heads + 2 * kv_heads, HEADS).
    """
    row = tl.program_id(0).to(tl.int64)
    if lens_ptr is None:
        slot, position = row * 0, row
    else:
        slot, position = row, tl.load(lens_ptr + row).to(tl.int64) - 1
    HALF: tl.constexpr = DIM // 2
    lanes = tl.arange(0, HALF)[None, :]
    heads = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    keyed, valued = heads - q_heads, heads - q_heads - kv_heads
    cosines = tl.load(cosines_ptr + position * DIM + lanes).to(tl.float32)
    sines = tl.load(sines_ptr + position * DIM + lanes).to(tl.float32)
    ptrs = heads_ptr + (row * (q_heads + 2 * kv_heads) + heads) * DIM + lanes
    low = tl.load(ptrs, mask=valued < kv_heads, other=0.0)
    high = tl.load(ptrs + HALF, mask=valued < kv_heads, other=0.0)
    turned_low = (low.to(tl.float32) * cosines - high.to(tl.float32) * sines).to(low.dtype)
    turned_high = (high.to(tl.float32) * cosines + low.to(tl.float32) * sines).to(low.dtype)
    tl.store(ptrs, turned_low, mask=keyed < 0)
    tl.store(ptrs + HALF, turned_high, mask=keyed < 0)
    first = slot * kv_heads * room + position
    key_ptrs = keys_ptr + (first + keyed * room) * DIM + lanes
    tl.store(key_ptrs, turned_low, mask=(keyed >= 0) & (valued < 0))
    tl.store(key_ptrs + HALF, turned_high, mask=(keyed >= 0) & (valued < 0))
    value_ptrs = values_ptr + (first + valued * room) * DIM + lanes
    tl.store(value_ptrs, low, mask=(valued >= 0) & (valued < kv_heads))
    tl.store(value_ptrs + HALF, high, mask=(valued >= 0) & (valued < kv_heads))


@triton.jit
def _choose(scores_ptr, vocabulary, temperature, seed, position, BLOCK: tl.constexpr):
    """Return the most likely token of a row of scores, the first of equal ones; with a temperature above 0, a random one.

    The largest of scores with Gumbel noise is a sample of their softmax. The noise depends only on seed, position and token (Salmon et
    al. 2011, https://doi.org/10.1145/2063384.2063405). NaN scores are never chosen.
    """
    lanes = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    found = lanes
    for start in range(0, vocabulary, BLOCK):
        tokens = start + lanes
        scores = tl.load(scores_ptr + tokens, mask=tokens < vocabulary, other=float("-inf")).to(tl.float32)
        if temperature > 0:
            uniform = tl.maximum(tl.rand(seed, (position.to(tl.int64) << 32) + tokens), 1e-10)
            scores = scores / temperature - tl.log(-tl.log(uniform))
        better = scores > best
        best, found = tl.where(better, scores, best), tl.where(better, tokens, found)
    return tl.min(tl.where(best == tl.max(best, 0), found, vocabulary - 1), 0)


@triton.jit
def choose_first_kernel(
    scores_ptr,
    tokens_ptr,
    lens_ptr,
    temperatures_ptr,
    seeds_ptr,
    vocabulary,
    slot,
    length,
    temperature,
    seed,
    BLOCK: tl.constexpr,
):
    """Choose the token after a prompt of `length` tokens, and start its sequence in a slot. Grid: 1."""
    token = _choose(scores_ptr, vocabulary, temperature, seed, length, BLOCK)
    tl.store(tokens_ptr + slot, token)
    tl.store(lens_ptr + slot, length + 1)
    tl.store(temperatures_ptr + slot, temperature)
    tl.store(seeds_ptr + slot, seed)


@triton.jit
def choose_next_kernel(
    scores_ptr, tokens_ptr, lens_ptr, temperatures_ptr, seeds_ptr, slots, vocabulary, BLOCK: tl.constexpr
):
    """Choose the next token of each slot from its row of scores; increment the length of its sequence, if it has one. Grid: slots."""
    slot = tl.program_id(0)
    length = tl.load(lens_ptr + slot)
    temperature, seed = tl.load(temperatures_ptr + slot), tl.load(seeds_ptr + slot)
    token = _choose(scores_ptr + slot.to(tl.int64) * vocabulary, vocabulary, temperature, seed, length, BLOCK)
    tl.store(tokens_ptr + slot, token)
    # the length of an empty slot is 1
    tl.store(lens_ptr + slot, length + (length > 1).to(tl.int32))
