"""Device functions that the Triton flex attention kernels share: tiles to visit, masks, and modified scores.

A program owns a tile of queries and visits tiles of keys, or the other way round. Its *walk* is the sequence of tiles
to visit; the mask's mode (`nojit.kernels.block_mask.tables`) determines how it is found. Full tiles are not masked.
"""

import triton
import triton.language as tl
from nojit.kernels.attention.kernel_tiles import LOG2_E, in_band, load_tile, span_of

WORD = tl.constexpr(32)


@triton.jit
def _own_spans(spans_ptr, places, count, seen_count, MASK: tl.constexpr):
    """Load the interval that each position of the owned tile sees; positions past `count` see nothing.

    `spans_ptr` is int32 [count, 2] in the mode ``"interval"``; there are `seen_count` positions to see.

    Returns:
        The first position that each one sees, and the exclusive end.
    """
    first = places * 0
    end = places * 0
    if MASK == "interval":
        ptrs = spans_ptr + places.to(tl.int64) * 2
        first = tl.load(ptrs, mask=places < count, other=seen_count)
        end = tl.load(ptrs + 1, mask=places < count, other=0)
    return first, end


@triton.jit
def walk_of(
    spans_ptr,
    table,
    places,
    left,
    right,
    count,
    seen_count,
    block,
    OWN: tl.constexpr,
    STEP: tl.constexpr,
    MASK: tl.constexpr,
):
    """Return the walk of the `OWN` positions from ``places[0]`` on, in tiles of `STEP`.

    `spans_ptr` has the mask's tables one after another; this batch and head has table number `table`. There are `count`
    positions, and positions past them see nothing; there are `seen_count` positions to see. In a band, position p sees
    positions p + `left` to p + `right`. `OWN` and `STEP` divide `block`, the rows and columns of a block of bitmaps.

    Returns:
        In the mode ``"interval"``, the first position that each one sees, and the exclusive end; the walk; its number of
        tiles. A walk has the start of its first tile, and start and end of the fully visible tiles; for bitmaps, its
        first entry in the list of blocks and its number of full tiles.
    """
    spans_ptr += table * (tl.cdiv(count, block) * 3 if MASK == "bitmap" else count * 2)
    first, end = _own_spans(spans_ptr, places, count, seen_count, MASK)
    start = tl.min(places, 0)
    if MASK == "bitmap":
        span_ptr = spans_ptr + start // block * 3
        entry = tl.load(span_ptr)
        steps = block // STEP
        return first, end, (entry, 0, tl.load(span_ptr + 1) * steps), tl.load(span_ptr + 2) * steps
    elif MASK == "interval":  # noqa: RET505 - Triton compiles only the branch taken
        there = places < count
        begin = tl.min(first, 0) // STEP * STEP
        last = tl.max(end, 0)
        full_last = tl.maximum(begin, tl.min(tl.where(there, end, seen_count), 0) // STEP * STEP)
        full_first = tl.cdiv(tl.max(tl.where(there, first, 0), 0), STEP) * STEP
        full_first = tl.minimum(full_first, full_last)
        return first, end, (begin, full_first, full_last), tl.cdiv(tl.maximum(last - begin, 0), STEP)
    else:
        begin, full_first, full_last, last = span_of(start, left, right, seen_count, OWN, STEP, True, True)
        return first, end, (begin, full_first, full_last), tl.cdiv(tl.maximum(last - begin, 0), STEP)


@triton.jit
def tile_at(number, walk, blocks_ptr, block, STEP: tl.constexpr, MASK: tl.constexpr):
    """Return the start of tile `number` of a walk, whether it is partial, and the index of its bitmap if it has one."""
    begin, full_first, full_last = walk
    if MASK == "bitmap":
        steps = block // STEP
        pair_ptr = blocks_ptr + (begin + number // steps).to(tl.int64) * 2
        start = tl.load(pair_ptr) * block + number % steps * STEP
        return tl.multiple_of(start, STEP), number >= full_last, tl.load(pair_ptr + 1)
    else:  # noqa: RET505 - as above
        start = begin + number * STEP
        return tl.multiple_of(start, STEP), (start < full_first) | (start >= full_last), 0


@triton.jit
def bits_of(
    bits_ptr, bitmap, row_start, key_start, block, ROWS: tl.constexpr, KEYS: tl.constexpr, KEYS_FIRST: tl.constexpr
):
    """Load a part of a bitmap as bools [ROWS, KEYS], or [KEYS, ROWS] with `KEYS_FIRST`.

    Each 32-bit word is loaded once, and its bits are extracted in registers.
    """
    words = block // WORD
    rows = row_start % block + tl.arange(0, ROWS)
    places = key_start % block // WORD + tl.arange(0, KEYS // WORD)
    bitmap_ptr = bits_ptr + bitmap.to(tl.int64) * block * words
    shifts = tl.arange(0, WORD)
    if KEYS_FIRST:
        word = tl.load(bitmap_ptr + rows[None, :] * words + places[:, None])
        bits = (word[:, None, :] >> shifts[None, :, None]) & 1
        return tl.reshape(bits, [KEYS, ROWS]) != 0
    else:  # noqa: RET505 - as above
        word = tl.load(bitmap_ptr + rows[:, None] * words + places[None, :])
        bits = (word[:, :, None] >> shifts[None, None, :]) & 1
        return tl.reshape(bits, [ROWS, KEYS]) != 0


@triton.jit
def visible(
    rows,
    keys,
    row_start,
    key_start,
    first,
    end,
    left,
    right,
    bits_ptr,
    bitmap,
    block,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    KEYS_FIRST: tl.constexpr,
    MASK: tl.constexpr,
):
    """Return the elements of a tile that the mask leaves visible; the caller masks positions past the end.

    `rows` and `keys` are positions with shapes that broadcast. `first` and `end` are the interval of each row or, with
    `KEYS_FIRST`, of each key.
    """
    if MASK == "bitmap":
        return bits_of(bits_ptr, bitmap, row_start, key_start, block, ROWS, KEYS, KEYS_FIRST)
    elif MASK == "interval":  # noqa: RET505 - as above
        if KEYS_FIRST:
            return (rows >= first) & (rows < end)
        else:  # noqa: RET505 - as above
            return (keys >= first) & (keys < end)
    else:
        return in_band(rows, keys, left, right, "window")


@triton.jit
def modified(products, scale, batch, head, rows, keys, inside, mods, SCORE_MOD: tl.constexpr):
    """Scale products of queries and keys, and apply the modification; `mods` are the two slots and the bias.

    `inside`: elements of the tile that exist.

    Returns:
        Scores in base 2 (times log2(e)); the derivative of the modified by the scaled scores.
    """
    if SCORE_MOD is None:
        return products * (scale * LOG2_E), 1.0
    else:  # noqa: RET505 - as above
        first, second, bias = mods
        scores, slope = SCORE_MOD(products * scale, batch, head, rows, keys, inside, first, second, bias)
        return scores * LOG2_E, slope


@triton.jit
def score_tile(
    number, walk, q, rows, lanes, cols, k_head_ptr, stride_kn, q_len, kv_len, head_dim, blocks_ptr, block, scale, batch,
    head, mods, MASK: tl.constexpr, SCORE_MOD: tl.constexpr,
):  # fmt: skip
    """Load tile `number` of a walk over keys, and compute its scores with the queries `q` at positions `rows`.

    `walk`: as `walk_of` returns it; `mods`: as for `modified`.

    Returns:
        The tile's start, whether it is partial, and its bitmap, as `tile_at` returns them; the positions of its keys; the
        keys [BLOCK_N, BLOCK_D]; the elements of the tile that exist; scores and slope, as `modified` returns them.
    """
    start, is_cut, bitmap = tile_at(number, walk, blocks_ptr, block, lanes.shape[0], MASK)
    keys = start + lanes
    # recompute these offsets: hoisted pointers of unaligned calls, one for each element, would fill the registers
    k_ptrs = k_head_ptr + keys.to(tl.int64)[:, None] * stride_kn + cols[None, :]
    k = load_tile(k_ptrs, keys, kv_len, cols, head_dim, True, True)
    products = tl.dot(q, tl.trans(k), input_precision="ieee")
    inside = (rows < q_len)[:, None] & (keys < kv_len)[None, :]
    scores, slope = modified(products, scale, batch, head, rows[:, None], keys[None, :], inside, mods, SCORE_MOD)
    return start, is_cut, bitmap, keys, k, inside, scores, slope


@triton.jit
def seen_keys(
    rows, keys, row_start, start, first, end, left, right, bits_ptr, bitmap, block, kv_len, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Return the elements [BLOCK_M, BLOCK_N] of a tile of `score_tile` that exist and that the mask leaves visible.

    `first` and `end` are the interval of each row, `left` and `right` the bounds of a band.
    """
    seen = visible(
        rows[:, None], keys[None, :], row_start, start, first[:, None], end[:, None], left, right, bits_ptr, bitmap,
        block, BLOCK_M, BLOCK_N, False, MASK,
    )  # fmt: skip
    return seen & (keys < kv_len)[None, :]
