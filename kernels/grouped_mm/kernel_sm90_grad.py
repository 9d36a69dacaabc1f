"""Gluon kernel of grouped products whose K is cut, for sm_90, with TMA: gradients of the groups' matrices.

`nojit.kernels.products.kernel_sm90` describes the pipeline. The last step of a group may reach past the group's end in K:
consumers overwrite the rest of it by zeros in shared memory, since a product of other groups' values could be NaN.
"""

from nojit.kernels.kernel_functions import opaque
from nojit.kernels.products.kernel_groups import range_of
from nojit.kernels.products.kernel_sm90 import (
    allocate,
    barriers_for,
    copy_steps,
    multiply_steps,
    operands_of,
    piece_at,
    pieces_of,
    store_rows,
)
from nojit.kernels.products.kernel_sm90_tiles import DEPTH, OWNED, accumulate, finish, reinterpret
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def _produce(maps, offs_ptr, memory, barriers, sizes, TILE: gl.constexpr):
    """Copy the parts of K of both factors that each tile needs; run by the producer warp."""
    sizes = opaque(sizes)
    copied = 0
    for number in range(gl.program_id(0), pieces_of(sizes, TILE), gl.num_programs(0)):
        place, _, _ = piece_at(number, sizes, DEPTH, TILE)
        _, group, row, col = place
        start, end = range_of(group, offs_ptr, sizes[3])
        steps = gl.cdiv(end - start, DEPTH)
        sources = (0, 0, row, col)
        copied = copy_steps(
            maps[0], maps[1], memory, barriers, sources, 0, steps, copied, TILE, (True, False), base=start
        )


@gluon.jit
def _clear(tile, first, FROM: gl.constexpr, STEP: gl.constexpr):
    """Overwrite the rows of a tile in shared memory from row `first` on by zeros: every `STEP`th 64 columns from number `FROM`."""
    HEIGHT: gl.constexpr = tile.shape[0]
    COUNT: gl.constexpr = tile.shape[1] // OWNED
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    panels = reinterpret(tile, tile.dtype, [COUNT, HEIGHT, OWNED], tile.layout)
    rows = gl.arange(0, HEIGHT, layout=gl.SliceLayout(1, layout))[:, None]
    for part in gl.static_range(FROM, COUNT, STEP):
        panel = panels.index(part)
        values = panel.load(layout)
        panel.store(gl.where(rows < first, values, gl.zeros_like(values)))


@gluon.jit
def _consume(
    OWN: gl.constexpr, maps, offs_ptr, memory, barriers, cleared, sizes, TILE: gl.constexpr, PANEL: gl.constexpr
):  # fmt: skip
    """Compute and store the 64 rows of consumer `OWN` of every tile of this program.

    `cleared`: barrier at which the consumers wait until the last step of a group is cleared.
    """
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE[1], 16])
    full, empty = barriers
    sizes = opaque(sizes)
    used = 0
    clearings = 0
    for number in range(gl.program_id(0), pieces_of(sizes, TILE), gl.num_programs(0)):
        place, _, _ = piece_at(number, sizes, DEPTH, TILE)
        _, group, row, col = place
        start, end = range_of(group, offs_ptr, sizes[3])
        whole = (end - start) // DEPTH
        rest = (end - start) % DEPTH
        acc = gl.zeros([OWNED, TILE[1]], gl.float32, layout)
        last = gl.to_tensor(-1)
        acc, last = multiply_steps(OWN, acc, last, memory, barriers, used, whole, TILE, (True, False))
        acc = finish(acc, empty, last)
        used += whole
        if rest > 0:
            stage = used % TILE[3]
            a = memory[0].index(stage * (TILE[0] // OWNED) + OWN)
            b = memory[1].index(stage)
            mbarrier.wait(full.index(stage), used // TILE[3] & 1)
            _clear(a, rest, 0, 1)
            # each consumer clears half of b
            _clear(b, rest, OWN, 2)
            fence_async_shared()
            mbarrier.arrive(cleared)
            mbarrier.wait(cleared, clearings & 1)
            clearings += 1
            acc = accumulate(acc, a.permute((1, 0)), b, empty, gl.to_tensor(-1))
            acc = finish(acc, empty, stage)
            used += 1
        store_rows(OWN, maps[2], memory[2], acc, (0, group, row + OWN * OWNED, col), 0, 0, PANEL, False)
    tma.store_wait(0)


@gluon.jit
def grouped_mm_depth_sm90_kernel(
    a_map,
    b_map,
    out_map,
    offs_ptr,
    groups,
    m_len,
    n_len,
    k_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Write ``a[:, g] @ b[g]`` for each group g, a range of K: a [m_len, k_len] by columns, b [k_len, n_len] by rows.

    The TMA descriptors `a_map` and `b_map` describe the transpose of a and b in boxes [1, 1, 64, 64], and `out_map` the
    result [1, groups, m_len, n_len], too. `offs_ptr` has the end of each group in K; K past the last end is not used.
    The result of an empty group is 0. A step is 64 of K; shared memory holds `STAGES` of them. Grid: any size in x.

    `programs`: number of programs, which the manifest's grid reads.
    """
    tile: gl.constexpr = (BLOCK_M, BLOCK_N, GROUP, STAGES)
    panel: gl.constexpr = out_map.block_type.shape[3]
    a_memory, b_memory = operands_of(a_map, b_map, tile, (True, False))
    out_memory = allocate(out_map, 2 * (BLOCK_M // OWNED), OWNED, panel, panel)
    barriers = barriers_for(STAGES, BLOCK_M // OWNED)
    cleared = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout()).index(0)
    mbarrier.init(cleared, count=BLOCK_M // OWNED)
    fence_async_shared()
    maps = (a_map, b_map, out_map)
    memory = (a_memory, b_memory, out_memory)
    sizes = (groups, m_len, n_len, k_len, 1)
    gl.warp_specialize(
        [
            (_consume, (0, maps, offs_ptr, memory, barriers, cleared, sizes, tile, panel)),
            (_consume, (1, maps, offs_ptr, memory, barriers, cleared, sizes, tile, panel)),
            (_produce, (maps, offs_ptr, memory, barriers, sizes, tile)),
        ],
        [4, 1],
        [232, 40],
    )
