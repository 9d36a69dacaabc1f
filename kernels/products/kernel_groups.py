"""Device functions that find the group of a tile: a cursor over the groups that only moves forward.

A cursor has five numbers: the tile, its group, the number of tiles of all groups before that, the group's first row, and
its end. Tiles are numbered group by group; program p computes tiles p, p + programs, and so on. The end of each group is in `offs_ptr`, int32; ends out of order and past the last row are
clamped, so that no tile reaches past the result.
"""

import triton
import triton.language as tl
from nojit.kernels.products.kernel_tiles import place_tile


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
def seek(
    number, group, before, start, end, offs_ptr, groups, m_len, n_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Return the cursor (group, `before`, `start`, `end`) moved forward to the group of tile `number`.

    Past the last tile, the group is `groups`. A program's first cursor is (0, 0, 0, the end of group 0).
    """
    tiles = tiles_of(start, end, n_len, BLOCK_M, BLOCK_N)
    while (group < groups) & (number >= before + tiles):
        before += tiles
        group += 1
        start = end
        end = end_of(tl.minimum(group, groups - 1), offs_ptr, start, m_len)
        tiles = tiles_of(start, end, n_len, BLOCK_M, BLOCK_N)
    return group, before, start, end


@triton.jit
def first_cursor(offs_ptr, groups, m_len, n_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the cursor at this program's first tile; its group is `groups` if the program has no tile."""
    number = tl.program_id(0)
    group = number * 0
    end = end_of(group, offs_ptr, group, m_len)
    group, before, start, end = seek(number, group, group, group, end, offs_ptr, groups, m_len, n_len, BLOCK_M, BLOCK_N)
    return number, group, before, start, end


@triton.jit
def next_cursor(cursor, offs_ptr, groups, m_len, n_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the cursor at this program's next tile; its group is `groups` past the last tile."""
    number, group, before, start, end = cursor
    number += tl.num_programs(0)
    group, before, start, end = seek(
        number, group, before, start, end, offs_ptr, groups, m_len, n_len, BLOCK_M, BLOCK_N
    )
    return number, group, before, start, end


@triton.jit
def place_in(cursor, n_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return the first row and the first column of a cursor's tile, and how many rows the group has from that row on."""
    number, _, before, start, end = cursor
    row, col = place_tile(number - before, tl.maximum(end - start, 1), n_len, BLOCK_M, BLOCK_N, GROUP)
    return start + row, col, end - start - row
