"""Device functions for flex attention, forward, on sm_90: the tiles of keys to visit, their masks, modified scores.

A *walk* describes the tiles of keys that a tile of queries visits, as five integers. Producer and consumers compute it
identically, so they need not exchange it. Partial tiles come first, then those that all queries of the tile see in
full.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LOG2_E = gl.constexpr(1.4426950408889634)
HULL = gl.constexpr(64)
"""Number of neighbouring queries that share a hull, the bounds of the keys that they see."""
WORD = gl.constexpr(32)
WORDS = gl.constexpr(4)
"""32-bit words per row of a bitmap."""


@gluon.jit
def walk_of(tables, row_start, table, q_len, kv_len, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, MASK: gl.constexpr):
    """Return the walk of the queries from `row_start` on: the tiles of keys to visit.

    Args:
        tables: spans, blocks and bits of the mask by query, left and right bound of a band.
        row_start: the first query, a multiple of `BLOCK_M`.
        table: number of the mask table of this batch and head.
        q_len: number of queries.
        kv_len: number of keys.
        BLOCK_M: queries per tile.
        BLOCK_N: keys per tile.
        MASK: the mode: ``"band"``, ``"interval"`` or ``"bitmap"``.

    Returns:
        The number of tiles, at least one; the number of partial ones; the first tile (bitmaps: the first entry in
        `blocks`); the end of the full tiles (bitmaps: their number); and the end of all tiles (bitmaps: their number).
    """
    if MASK == "bitmap":
        span_ptr = tables[0] + (table * gl.cdiv(q_len, BLOCK_M) + row_start // BLOCK_M) * 3
        begin = gl.load(span_ptr)
        full = gl.load(span_ptr + 1)
        end = gl.load(span_ptr + 2)
        return gl.maximum(end, 1), end - full, begin, full, end
    else:  # noqa: RET505 - Triton compiles only the branch taken
        if MASK == "interval":
            hull_ptr = tables[1] + (table * gl.cdiv(q_len, HULL) + row_start // HULL) * 4
            first = gl.load(hull_ptr)
            whole_first = gl.load(hull_ptr + 1)
            whole_last = gl.load(hull_ptr + 2)
            last = gl.load(hull_ptr + 3)
            for part in gl.static_range(1, BLOCK_M // HULL):
                # past the last query, read the last hull again
                more_ptr = hull_ptr + gl.minimum(part, gl.cdiv(q_len - row_start, HULL) - 1) * 4
                first = gl.minimum(first, gl.load(more_ptr))
                whole_first = gl.maximum(whole_first, gl.load(more_ptr + 1))
                whole_last = gl.minimum(whole_last, gl.load(more_ptr + 2))
                last = gl.maximum(last, gl.load(more_ptr + 3))
        else:
            first = gl.maximum(row_start + tables[3], 0)
            whole_first = gl.maximum(row_start + BLOCK_M - 1 + tables[3], 0)
            whole_last = gl.maximum(gl.minimum(row_start + 1 + tables[4], kv_len), 0)
            last = gl.maximum(gl.minimum(row_start + BLOCK_M + tables[4], kv_len), 0)
        begin = first // BLOCK_N
        end = gl.maximum(gl.cdiv(last, BLOCK_N), begin)
        full_last = gl.maximum(whole_last // BLOCK_N, begin)
        full_first = gl.minimum(gl.cdiv(whole_first, BLOCK_N), full_last)
        count = end - begin
        return gl.maximum(count, 1), count - (full_last - full_first), begin, full_last, end


@gluon.jit
def tile_at(place, walk, blocks_ptr, BLOCK_N: gl.constexpr, MASK: gl.constexpr):
    """Return the first key of the tile at step `place`, and its bitmap: -1 if the tile is full, -2 if there is no tile.

    `walk`: the tiles to visit, as `walk_of` returns them.
    """
    cut, begin, full_last, end = walk[1], walk[2], walk[3], walk[4]
    if MASK == "bitmap":
        if end == 0:
            start = end
            bitmap = end - 2
        else:
            # the list has full blocks first
            entry = gl.where(place < cut, full_last + place, place - cut)
            pair_ptr = blocks_ptr + (begin + entry).to(gl.int64) * 2
            start = gl.load(pair_ptr) * BLOCK_N
            bitmap = gl.load(pair_ptr + 1)
        return start, bitmap
    else:  # noqa: RET505 - as above
        right = end - full_last
        of_cut = gl.where(place < right, end - 1 - place, begin + place - right)
        tile = gl.where(place < cut, of_cut, full_last - 1 - (place - cut))
        # if no key is visible, the single tile of the walk may lie before the first
        return gl.maximum(tile, 0) * BLOCK_N, 0


@gluon.jit
def intervals_of(tables, table, rows, q_len, kv_len, MASK: gl.constexpr):
    """Load the first key that each query sees, and the exclusive end; queries past the last one see nothing.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    first = rows * 0
    end = rows * 0
    if MASK == "interval":
        ptrs = tables[0] + (table * q_len + rows) * 2
        first = gl.load(ptrs, mask=rows < q_len, other=kv_len)
        end = gl.load(ptrs + 1, mask=rows < q_len, other=0)
    return first, end


@gluon.jit
def words_of(bits_ptr, bitmap, rows, first, COUNT: gl.constexpr, BLOCK: gl.constexpr):
    """Load `COUNT` 32-bit words, from word `first` on, of some rows of a bitmap; a negative index reads bitmap 0."""
    ptrs = bits_ptr + (gl.maximum(bitmap, 0).to(gl.int64) * (BLOCK * WORDS) + rows * WORDS + first)
    words = (gl.load(ptrs),)
    for place in gl.static_range(1, COUNT):
        words = words + (gl.load(ptrs + place),)  # noqa: RUF005 - no Gluon
    return words


@gluon.jit
def are_set(words, lanes):
    """Return the bits at `lanes` [1, N] of 32-bit words, one tuple of words per row, as bools [rows, N]."""
    word = words[0][:, None]
    for place in gl.static_range(1, len(words)):
        word = gl.where(lanes >= place * WORD, words[place][:, None], word)
    return ((word >> (lanes % WORD)) & 1) != 0


@gluon.jit
def hide(scores, start, bitmap, lanes, rows, row_in_block, intervals, tables, kv_len, MASK: gl.constexpr):
    """Return the scores [64, BLOCK_N] with -inf for masked keys and keys past the end.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    if MASK == "bitmap":
        # one word per row for every 32 keys; a thread has two rows
        words = words_of(tables[2], bitmap, row_in_block, 0, WORDS, scores.shape[1])
        # this loop may also see a full block (-1) or none (-2)
        visible = are_set(words, lanes) & (bitmap >= 0) | (bitmap == -1)
    elif MASK == "interval":
        visible = (lanes >= (intervals[0] - start)[:, None]) & (lanes < (intervals[1] - start)[:, None])
    else:
        first = rows + (tables[3] - start)
        last = gl.minimum(rows + (tables[4] - start), kv_len - 1 - start)
        visible = (lanes >= first[:, None]) & (lanes <= last[:, None])
    return gl.where(visible, scores, float("-inf"))


@gluon.jit
def modified(products, scale, head, rows, keys, lengths, mods, SCORE_MOD: gl.constexpr):
    """Scale products and apply the modification; return scores in base 2.

    Without a modification it returns the products unchanged.

    `mods`: captured values of the score modifications' two slots, and the dense bias; `lengths`: numbers of queries and
    keys.
    """
    if SCORE_MOD is None:
        return products
    else:  # noqa: RET505 - as above
        queries = rows[:, None]
        inside = (queries < lengths[0]) & (keys < lengths[1])
        index_b, index_h = head
        scores, _ = SCORE_MOD(
            products * scale, index_b.to(gl.int64), index_h.to(gl.int64), queries, keys, inside, mods[0], mods[1], mods[2]
        )  # fmt: skip
        return scores * LOG2_E
