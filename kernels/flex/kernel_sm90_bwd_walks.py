"""Device functions for flex attention, backward, on sm_90: the tiles of queries to visit, their masks, the order of sums.

A program owns tile `number` of the keys, and *visits* the tiles of queries that see any of these keys, last first. For
bands and intervals those tiles are consecutive, and so are the tiles of keys that visit one tile of queries
(`nojit.kernels.block_mask.hulls`). So the first key that the queries see determines how many tiles of keys come before this
one. For bitmaps a table lists the visits in the order of queries, each with this number. If full blocks came first in
that list, two programs could visit the same tiles in different orders, and the second would wait for the first at each
of them.
"""

from nojit.kernels.flex.kernel_sm90_walks import words_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LOG2_E = gl.constexpr(1.4426950408889634)
HULL = gl.constexpr(64)
"""Number of neighbouring queries that share a hull, the bounds of the keys that they see."""
VISIT = gl.constexpr(3)
"""Int32 numbers per entry in the list of visits."""
WORD = gl.constexpr(32)


@gluon.jit
def head_of(member, index_kb, index_kv, sizes):
    """Return the batch and the head of query head `member` of those that read key head `index_kv` of batch `index_kb`.

    `member` counts the heads of a group in each of the `shared` batches.
    """
    group, shared = sizes[1], sizes[2]
    return index_kb * shared + member // group, index_kv * group + member % group


@gluon.jit
def table_of(index_kb, index_kv, sizes):
    """Return the number of the mask table for all query heads that read key head `index_kv` of batch `index_kb`."""
    group, shared, mask_batch, mask_head = sizes[1], sizes[2], sizes[5], sizes[6]
    return (index_kb * shared).to(gl.int64) * mask_batch + index_kv * group * mask_head


@gluon.jit
def tile_at(place, tables, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, MASK: gl.constexpr):
    """Return the tile of queries at step `place`, and the index of its bitmap: -1 if the tile is full.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    if MASK == "bitmap":
        parts: gl.constexpr = BLOCK_N // BLOCK_M
        visit_ptr = tables[1] + (place // parts).to(gl.int64) * VISIT
        return gl.load(visit_ptr) * parts + place % parts, gl.load(visit_ptr + 1)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        return place, 0


@gluon.jit
def walk_of(tables, number, table, sizes, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, MASK: gl.constexpr):
    """Return the tiles of queries that see a tile of keys.

    Args:
        tables: spans by key, hulls by key, hulls by query, left and right bound of a band. For bitmaps: spans by key,
            visits, bits.
        number: the tile of keys.
        table: number of the mask table of this batch and head.
        sizes: heads, group, shared, queries, keys, and the tables' strides by batch and head.
        BLOCK_M: queries per tile.
        BLOCK_N: keys per tile.
        MASK: the mode: ``"band"``, ``"interval"`` or ``"bitmap"``.

    Returns:
        The first tile that sees any of the keys, start and end of the tiles that see all of them, and the end of the
        tiles that see any. For bitmaps they are steps in the list of visits, where a visit is one tile or two, and all
        tiles count as partial.
    """
    q_len, kv_len = sizes[3], sizes[4]
    key_start = number * BLOCK_N
    if MASK == "bitmap":
        span_ptr = tables[0] + (table * gl.cdiv(kv_len, BLOCK_N) + number) * 3
        begin = gl.load(span_ptr) * (BLOCK_N // BLOCK_M)
        end = begin + gl.load(span_ptr + 2) * (BLOCK_N // BLOCK_M)
        # the last block may have only its first half; without visits this reads another entry
        tile, _ = tile_at(gl.maximum(end - 1, 0), tables, BLOCK_M, BLOCK_N, MASK)
        end = gl.where(tile < gl.cdiv(q_len, BLOCK_M), end, gl.maximum(end - 1, begin))
        return begin, begin, begin, end
    else:  # noqa: RET505 - as above
        if MASK == "interval":
            hull_ptr = tables[1] + (table * gl.cdiv(kv_len, BLOCK_N) + number) * 4
            first = gl.load(hull_ptr)
            whole_first = gl.load(hull_ptr + 1)
            whole_last = gl.load(hull_ptr + 2)
            last = gl.load(hull_ptr + 3)
        else:
            first = gl.maximum(key_start - tables[4], 0)
            whole_first = gl.maximum(key_start + BLOCK_N - 1 - tables[4], 0)
            whole_last = gl.minimum(key_start + 1 - tables[3], q_len)
            last = gl.minimum(gl.minimum(key_start + BLOCK_N, kv_len) - tables[3], q_len)
        # keys past the end must be masked in every tile
        whole_last = gl.where(key_start + BLOCK_N > kv_len, 0, whole_last)
        begin = first // BLOCK_M
        end = gl.maximum(gl.cdiv(gl.maximum(last, 0), BLOCK_M), begin)
        # queries past the end have weight 0
        full_last = gl.where(whole_last == q_len, end, gl.maximum(whole_last, 0) // BLOCK_M)
        full_last = gl.maximum(full_last, begin)
        full_first = gl.minimum(gl.cdiv(whole_first, BLOCK_M), full_last)
        return begin, full_first, full_last, end


@gluon.jit
def come_before(
    tables, number, place, table, sizes, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, MASK: gl.constexpr
):  # fmt: skip
    """Return the number of earlier tiles of keys that visit the tile of queries at step `place`.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    if MASK == "bitmap":
        return gl.load(tables[1] + (place // (BLOCK_N // BLOCK_M)).to(gl.int64) * VISIT + 2)
    else:  # noqa: RET505 - as above
        if MASK == "interval":
            hulls = gl.cdiv(sizes[3], HULL)
            own = place * (BLOCK_M // HULL)
            hull_ptr = tables[2] + (table * hulls + own) * 4
            first = gl.load(hull_ptr)
            for part in gl.static_range(1, BLOCK_M // HULL):
                # past the last query, read the last hull again
                first = gl.minimum(first, gl.load(hull_ptr + gl.minimum(part, hulls - 1 - own) * 4))
        else:
            first = gl.maximum(place * BLOCK_M + tables[3], 0)
        return number - first // BLOCK_N


@gluon.jit
def query_bounds(tables, table, keys, sizes, MASK: gl.constexpr):
    """Return the first query that sees each key, and the exclusive end; no query sees keys past the end.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    q_len, kv_len = sizes[3], sizes[4]
    if MASK == "interval":
        ptrs = tables[0] + (table * kv_len + keys) * 2
        first = gl.load(ptrs, mask=keys < kv_len, other=q_len)
        end = gl.load(ptrs + 1, mask=keys < kv_len, other=0)
    else:
        first = keys - tables[4]
        end = gl.where(keys < kv_len, keys - tables[3] + 1, 0)
    return first, end


@gluon.jit
def query_bits(tables, tile, bitmap, keys, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Load the bits of a bitmap for each key and the queries of a tile: a 32-bit word for every 32 queries.

    `tables`: pointers to the mask's tables, and the bounds of a band.
    """
    first = tile % (BLOCK_N // BLOCK_M) * (BLOCK_M // WORD)
    words = words_of(tables[2], bitmap, keys % BLOCK_N, first, BLOCK_M // WORD, BLOCK_N)
    seen = ()
    for place in gl.static_range(BLOCK_M // WORD):
        seen = seen + (words[place] | (bitmap >> (WORD - 1)),)  # noqa: RUF005 - no Gluon
    return seen


@gluon.jit
def modified(products, scale, head, rows, keys, sizes, mods, SCORE_MOD: gl.constexpr):
    """Scale and modify products [keys, queries].

    `mods`: captured values of the score modifications' two slots, and the dense bias.

    Returns:
        Scores in base 2 (times log2(e)); the derivative of the modified by the scaled scores.
    """
    # hide the keys from the compiler, which would otherwise keep tile-independent parts of the distance in registers
    keys = gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [keys], gl.int32, is_pure=False, pack=1)
    queries, places = rows[None, :], keys[:, None]
    inside = (queries < sizes[3]) & (places < sizes[4])
    scores, slope = SCORE_MOD(
        products * scale, head[0].to(gl.int64), head[1].to(gl.int64), queries, places, inside, mods[0], mods[1], mods[2]
    )  # fmt: skip
    return scores * LOG2_E, slope
