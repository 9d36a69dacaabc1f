"""Device functions that the sm_90 kernels of matrix products share: tiles in shared memory, views of them, asynchronous products.

A tile of a 16-bit matrix lies in shared memory as panels of columns, one panel after another. A row of a panel is as
long as TMA's swizzle: 64 or 128 bytes.
"""

from nojit.kernels.products.agreed_sizes import CONSUMER_ROWS
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

DEPTH = gl.constexpr(64)
"""The most elements of the summed dimension per step: 128 bytes."""
OWNED = gl.constexpr(CONSUMER_ROWS)
"""Rows of the result that each consumer warp group computes."""
ROWS = gl.constexpr(128)
"""Rows of the sparse matrix or of the result that a program processes together: those of two consumers."""
PANEL = gl.constexpr(64)
"""Columns that a TMA store writes, and columns of partial results that are contiguous in memory."""
PADDED = gl.constexpr(256)
"""The columns of partial results are padded to a multiple of this."""

# Triton renamed it after 3.6
reinterpret = getattr(gl.shared_memory_descriptor, "reinterpret", None) or gl.shared_memory_descriptor._reinterpret  # noqa: SLF001


@gluon.constexpr_function
def widest(cols):
    """Return the greatest power of two that is at most `cols`."""
    return 1 << (cols.bit_length() - 1)


@gluon.jit
def allocate(of_map, COUNT: gl.constexpr, HEIGHT: gl.constexpr, WIDTH: gl.constexpr, PANEL: gl.constexpr):
    """Allocate shared memory for `COUNT` tiles [HEIGHT, WIDTH], in panels of `PANEL` columns, with the dtype of `of_map`."""
    layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=2 * PANEL, element_bitwidth=16, rank=2)
    return gl.allocate_shared_memory(of_map.dtype, [COUNT, HEIGHT, WIDTH], layout)


@gluon.jit
def barriers_of(COUNT: gl.constexpr):
    """Return `COUNT` barriers for full stages, with one arrival each, and `COUNT` for empty ones, with two arrivals."""
    full = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(COUNT):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    return full, empty


@gluon.jit
def box(of_map, tile, number):
    """Return a view of box `number` of a tile, as the source or target of a TMA copy with the descriptor `of_map`.

    A box is as wide as a panel; the boxes of a tile lie one after another.
    """
    HEIGHT: gl.constexpr = of_map.block_type.shape[2]
    WIDTH: gl.constexpr = of_map.block_type.shape[3]
    COUNT: gl.constexpr = tile.shape[0] * tile.shape[1] // (HEIGHT * WIDTH)
    return reinterpret(tile, of_map.dtype, [COUNT, 1, 1, HEIGHT, WIDTH], of_map.layout).index(number)


@gluon.jit
def narrowed(tile, HEIGHT: gl.constexpr, WIDTH: gl.constexpr):
    """Return a view [HEIGHT, WIDTH] of a tile: its first rows if it has one panel, or else its first panels."""
    # Triton 3.8 requires a view to cover all the memory
    COUNT: gl.constexpr = tile.shape[0] * tile.shape[1] // (HEIGHT * WIDTH)
    return reinterpret(tile, tile.dtype, [COUNT, HEIGHT, WIDTH], tile.layout).index(0)


@gluon.jit
def halves_of(acc):
    """Return the left and the right half of the columns of `acc`."""
    HALF: gl.constexpr = acc.shape[1] // 2
    return acc.reshape([acc.shape[0], 2, HALF]).permute((0, 2, 1)).split()


@gluon.jit
def await_step(OWN: gl.constexpr, memory, full, number, TILE: gl.constexpr, TRANS: gl.constexpr):
    """Wait for the operands of step `number`; return its stage, the rows of a of consumer `OWN`, and b."""
    stage = number % TILE[3]
    a = memory[0].index(stage * (TILE[0] // OWNED) + OWN)
    if TRANS[0]:
        a = a.permute((1, 0))
    b = memory[1].index(stage)
    if TRANS[1]:
        b = b.permute((1, 0))
    mbarrier.wait(full.index(stage), number // TILE[3] & 1)
    return stage, a, b


@gluon.jit
def accumulate(acc, a, b, empty, before):
    """Start ``acc += a @ b``, wait for the previous product, and free its stage; return the incomplete sums.

    `empty`: barriers of stages that may be overwritten; `before`: stage of the previous product, or negative for none.
    """
    token = warpgroup_mma(a, b, acc, is_async=True)
    acc = warpgroup_mma_wait(1, deps=(token,))
    mbarrier.arrive(empty.index(gl.maximum(before, 0)), pred=before >= 0)
    return acc


@gluon.jit
def finish(acc, empty, before):
    """Wait for the last product, and free its stage; return the sums.

    `empty`: barriers of stages that may be overwritten; `before`: stage of the last product, negative if there is none.
    """
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(empty.index(gl.maximum(before, 0)), pred=before >= 0)
    return acc


@gluon.jit
def discard(full, empty, used, COUNT: gl.constexpr):
    """Wait until step `used` has been copied and free its stage unread, since only another consumer needs it."""
    stage = used % COUNT
    mbarrier.wait(full.index(stage), used // COUNT & 1)
    mbarrier.arrive(empty.index(stage))
