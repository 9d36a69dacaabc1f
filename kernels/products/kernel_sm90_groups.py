"""Device functions that the sm_90 kernels of grouped products share: the producer, and stores of tiles.

Every part of a program, the producer and each consumer, moves a cursor of its own over the groups. The last tile of a
group may reach past the group's end. The producer then copies only the boxes with rows of the group, and a consumer
without rows of the group skips the tile. TMA stores tiles whose rows all belong to the group; other tiles are stored
with masks.
"""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_groups import READ, first_cursor, next_cursor, place_in
from nojit.kernels.products.kernel_sm90 import copy_steps, lanes_of, prefetch, store_rows
from nojit.kernels.products.kernel_sm90_scales import prefetch_ends
from nojit.kernels.products.kernel_sm90_tiles import OWNED, halves_of
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

UNIT = gl.constexpr(8)
"""Elements that a thread stores at once. The columns of the result and the distance of its rows are multiples of it."""


@gluon.jit
def lanes_ahead():
    """Count the groups that a cursor reads at once, in each warp alike."""
    return gl.arange(0, READ, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))


@gluon.jit
def produce(
    maps, offs_ptr, memory, barriers, sizes, vectors, TILE: gl.constexpr, TRANS: gl.constexpr, ENDS: gl.constexpr,
    TOGETHER: gl.constexpr = 1, SPAN: gl.constexpr = 1,
):  # fmt: skip
    """Copy the rows of a and the columns of b that each tile needs; run by the producer warp.

    The number of steps of a tile is a multiple of `TOGETHER`; steps past the end of K read zeros.

    `sizes`: groups, rows, columns, K, and 0 if the groups share b's matrix, else 1; `vectors`: what the end of a tile
    reads, and the producer therefore prefetches. With `ENDS` "bias", the bias and its strides; with "scales", those of
    `of_group`, where `SPAN` columns share a scale; with "none", nothing.
    """
    HIGH: gl.constexpr = maps[0].block_type.shape[2]
    MOST: gl.constexpr = TILE[0] // HIGH
    groups, m_len, n_len, k_len, b_step = opaque(sizes)
    steps = gl.cdiv(k_len, maps[0].block_type.shape[3] * TOGETHER) * TOGETHER
    copied = 0
    lanes = lanes_ahead()
    cursor = first_cursor(offs_ptr, groups, m_len, n_len, lanes, TILE[0], TILE[1])
    while cursor[1] < groups:
        group = cursor[1]
        row, col, left = place_in(cursor, n_len, TILE[0], TILE[1], TILE[2])
        if ENDS == "bias":
            _prefetch_bias(vectors, group, col, n_len, TILE[1])
        elif ENDS == "scales":
            prefetch_ends(of_group(vectors, group), row, col, TILE[0], TILE[1], SPAN)
        boxes = gl.minimum(gl.cdiv(left, HIGH), MOST)
        sources = (0, group * b_step, row, col)
        copied = copy_steps(maps[0], maps[1], memory, barriers, sources, 0, steps, copied, TILE, TRANS, boxes)
        cursor = next_cursor(cursor, offs_ptr, groups, m_len, n_len, lanes, TILE[0], TILE[1])


@gluon.jit
def of_group(vectors, group):
    """Return both scales and the bias of one group, as the kernel of dense fp8 products takes them.

    `vectors`: the same for group 0 (pointer, sizes and strides of each), and the stride of b's scales from group to group.
    """
    scale_ptr, n_len, stride_k, stride_n = vectors[1]
    return vectors[0], (scale_ptr + group.to(gl.int64) * vectors[3], n_len, stride_k, stride_n), vectors[2]


@gluon.jit
def _prefetch_bias(vectors, group, col, n_len, WIDTH: gl.constexpr):
    """Prefetch a tile's bias; run by one warp. `vectors`: the bias and its strides."""
    bias_ptr, stride_cz, stride_cn = vectors
    lanes = gl.arange(0, 32, layout=gl.BlockedLayout([1], [32], [1], [0]))
    # past the end, prefetch the last element
    cols = gl.minimum(col + lanes * (WIDTH // 32), n_len - 1)
    prefetch(bias_ptr + group.to(gl.int64) * stride_cz + cols.to(gl.int64) * stride_cn)


@gluon.jit
def store_tile(
    OWN: gl.constexpr, out_map, out_memory, acc, tile, n_len, epilogue, STORED: gl.constexpr, PANEL: gl.constexpr,
    BIAS: gl.constexpr,
):  # fmt: skip
    """Store the rows of a consumer, `PANEL` columns at a time; `STORED` columns are done.

    `tile`: group, first row of the consumer, first column, and how many rows the group has from that row on, at least
    1; `epilogue`: result, its row stride in units of `UNIT`, and with `BIAS` the bias and its strides.
    """
    if acc.shape[1] > PANEL:
        one, other = halves_of(acc)
        HALF: gl.constexpr = acc.shape[1] // 2
        store_tile(OWN, out_map, out_memory, one, tile, n_len, epilogue, STORED, PANEL, BIAS)
        store_tile(OWN, out_map, out_memory, other, tile, n_len, epilogue, STORED + HALF, PANEL, BIAS)
    else:
        group, row, first_col, left = tile
        out_ptr, units_om, added = epilogue
        col = first_col + STORED
        if BIAS:
            bias_ptr, stride_cz, stride_cn = added
            columns = lanes_of(acc)[1]
            bias_ptrs = bias_ptr + group.to(gl.int64) * stride_cz + (col + columns).to(gl.int64) * stride_cn
            acc = acc + gl.load(bias_ptrs, mask=columns < n_len - col, other=0.0).to(gl.float32)
        if left >= OWNED:
            store_rows(OWN, out_map, out_memory, acc, (0, 0, row, first_col), 0, STORED, PANEL, False)
        else:
            # wait until earlier stores have read the buffers
            tma.store_wait(0)
            # through shared memory, so that threads store 16 bytes at a time
            layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [4, 8], [4, 1], [1, 0])
            piece = out_memory.index(OWN * 2 + STORED // PANEL % 2)
            piece.store(acc.to(out_memory.dtype))
            values = piece.load(layout)
            rows = gl.arange(0, OWNED, layout=gl.SliceLayout(1, layout))[:, None]
            cols = gl.arange(0, PANEL, layout=gl.SliceLayout(0, layout))[None, :]
            places = rows.to(gl.int64) * (units_om * UNIT) + cols
            inside = (rows < left) & (cols // UNIT < (n_len - col) // UNIT)
            gl.store(out_ptr + row.to(gl.int64) * (units_om * UNIT) + col + places, values, mask=inside)
