"""Device functions that find the group of a tile: a cursor over the groups that only moves forward.

A cursor has five numbers: the tile, its group, the number of tiles of all groups before that, the group's first row, and
its end. Tiles are numbered group by group; program p computes tiles p, p + programs, and so on. The end of each group is
in `offs_ptr`, int32; ends out of order and past the last row are clamped, so that no tile reaches past the result.
"""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_tiles import place_tile

READ = tl.constexpr(32)
"""Groups that a cursor reads at once. One after the other takes 65 ns for each, most of the time if nearly all are empty."""
MANY_ROWS = tl.constexpr(64)
"""Cursors of taller tiles go from group to group: such groups are rarely empty, and these kernels have no registers left."""


@triton.jit
def end_of(group, offs_ptr, start, m_len):
    """Return the end of `group`, which starts at row `start`: at least `start`, at most `m_len`."""
    return tl.minimum(tl.maximum(tl.load(offs_ptr + group), start), m_len)


@triton.jit
def range_of(group, offs_ptr, k_len):
    """Return the range [start, end) of K that `group` has, within `k_len`."""
    start = end_of(tl.maximum(group - 1, 0), offs_ptr, 0, k_len)
    start = tl.where(group > 0, start, 0)
    return start, end_of(group, offs_ptr, start, k_len)


@triton.jit
def tiles_of(start, end, n_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the number of tiles of the rows [start, end)."""
    return (end - start + BLOCK_M - 1) // BLOCK_M * ((n_len + BLOCK_N - 1) // BLOCK_N)


@triton.jit
def _later(end, start, other_end, other_start):
    """Return the larger of both ends, and of both starts."""
    return tl.maximum(end, other_end), tl.maximum(start, other_start)


@triton.jit
def _add(one, other):
    return one + other


@triton.jit
def seek(
    number,
    group,
    before,
    start,
    end,
    offs_ptr,
    groups,
    m_len,
    n_len,
    lanes,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return the cursor (group, `before`, `start`, `end`) moved forward to the group of tile `number`.

    Past the last tile, the group is `groups`. A program's first cursor is (-1, 0, 0, 0). `lanes` counts the groups that
    are read at once.
    """
    tiles = tiles_of(start, end, n_len, BLOCK_M, BLOCK_N)
    while (group < groups) & (number >= before + tiles):
        before += tiles
        if BLOCK_M > MANY_ROWS:
            group, start, end = _step(group, end, offs_ptr, groups, m_len)
        else:
            group, before, start, end = _leap(
                number, group, before, end, offs_ptr, groups, m_len, n_len, lanes, BLOCK_M, BLOCK_N
            )
        tiles = tiles_of(start, end, n_len, BLOCK_M, BLOCK_N)
    return group, before, start, end


@triton.jit
def _step(group, start, offs_ptr, groups, m_len):
    """Return the next group, its start and its end."""
    group += 1
    return group, start, end_of(tl.minimum(group, groups - 1), offs_ptr, start, m_len)


@triton.jit
def _leap(
    number, group, before, start, offs_ptr, groups, m_len, n_len, lanes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Return the cursor moved to the group of tile `number`, or as far as the groups go that `lanes` counts.

    `before` is the number of tiles up to the end of `group`, which is row `start`.
    """
    places = group + 1 + lanes
    # past the last group, empty ones
    ends = tl.load(offs_ptr + tl.minimum(places, groups - 1))
    starts = tl.load(offs_ptr + tl.minimum(tl.maximum(places - 1, 0), groups - 1))
    starts = tl.where(places > 0, starts, 0)
    ends, starts = tl.associative_scan((ends, starts), 0, _later)
    ends = tl.minimum(tl.maximum(ends, start), m_len)
    starts = tl.minimum(tl.maximum(starts, start), m_len)
    tiles = tiles_of(starts, ends, n_len, BLOCK_M, BLOCK_N)
    # the last of these groups is not passed, so that the cursor stands at one of them
    passed = (before + tl.associative_scan(tiles, 0, _add) <= number) & (lanes < lanes.shape[0] - 1)
    before += tl.sum(tl.where(passed, tiles, 0), 0)
    group = tl.minimum(group + 1 + tl.sum(passed.to(tl.int32), 0), groups)
    start = tl.max(tl.where(passed, ends, start), 0)
    return group, before, start, tl.min(tl.where(passed, m_len, ends), 0)


@triton.jit
def first_cursor(offs_ptr, groups, m_len, n_len, lanes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the cursor at this program's first tile; its group is `groups` if the program has no tile."""
    number = tl.program_id(0)
    none = number * 0
    group, before, start, end = seek(
        number, none - 1, none, none, none, offs_ptr, groups, m_len, n_len, lanes, BLOCK_M, BLOCK_N
    )
    return number, group, before, start, end


@triton.jit
def next_cursor(cursor, offs_ptr, groups, m_len, n_len, lanes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the cursor at this program's next tile; its group is `groups` past the last tile."""
    number, group, before, start, end = cursor
    number += tl.num_programs(0)
    group, before, start, end = seek(
        number, group, before, start, end, offs_ptr, groups, m_len, n_len, lanes, BLOCK_M, BLOCK_N
    )
    return number, group, before, start, end


@triton.jit
def place_in(cursor, n_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return the first row and the first column of a cursor's tile, and how many rows the group has from that row on."""
    number, _, before, start, end = cursor
    row, col = place_tile(number - before, tl.maximum(end - start, 1), n_len, BLOCK_M, BLOCK_N, GROUP)
    return start + row, col, end - start - row
