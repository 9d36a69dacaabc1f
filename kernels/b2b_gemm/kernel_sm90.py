"""Two products with a function between them for sm_90: many rows through layers of up to 128, kept in registers.

Both right factors are copied to shared memory once, and stay there. Rows go from memory to registers, through both products,
and back: each group of four warps takes 64 of them at a time and waits for no other group. Tensor cores expect eight
neighbours in a row as pairs in four threads. But a product does not depend on the order of its depth, as long as both operands
use the same order, and the order of its columns is free as well. So a thread loads a run of eight neighbours and uses them as
pairs of four different runs. The rows of the right factor are stored in the same order. The columns of the last factor are
stored in an order that gives each thread eight neighbours of the result.
"""

from nojit.kernels.gemm.kernel_tiles import activate, bits
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

ROWS = gl.constexpr(64)
"""Rows per step of a program."""
LINE = gl.constexpr(8)
"""The length of a run: neighbours in a row that one thread loads, 16 bytes."""


@gluon.constexpr_function
def _layout_of_rows(cols):
    """Return the layout of rows for loads and stores: in each of two rows a thread has runs of eight columns, 32 apart."""
    registers = [*bits(LINE, 1, 1, 2), *bits(cols // 32, 32, 1, 2), [8, 0]]
    lanes = [*bits(4, LINE, 1, 2), *bits(8, 1, 0, 2)]
    return gl.DistributedLinearLayout(registers, lanes, bits(4, 16, 0, 2), [], [ROWS, cols])


@gluon.constexpr_function
def _layout_of_factor(cols):
    """Return the layout of a factor for loads: whole lines."""
    lanes = cols // LINE
    return gl.BlockedLayout([1, LINE], [32 // lanes, lanes], [4, 1], [1, 0])


@gluon.jit
def listed_rounded(x, activation):
    """Apply an activation of the library, by number, to fp32 values that are then rounded to 16 bits."""
    return activate(x, activation, True)


@gluon.jit
def _paired(tile):
    """Reorder each 32 columns from memory order, 4 runs of 4 pairs, to tensor-core order: first the first pair of each run."""
    HEIGHT: gl.constexpr = tile.shape[0]
    WIDTH: gl.constexpr = tile.shape[1]
    return tile.reshape(HEIGHT, WIDTH // 32, 4, 4, 2).permute(0, 1, 3, 2, 4).reshape(HEIGHT, WIDTH)


@gluon.jit
def _place_of(line):
    """Return the place in memory of a line of the depth, or of a column of the result.

    `line` is its number in tensor-core order, which `_paired` describes.
    """
    return line // 32 * 32 + line % 8 // 2 * 8 + line % 32 // 8 * 2 + line % 2


@gluon.jit
def _load_rows(ptr, offsets, pitch, row, rows, m_len, in_depth):
    """Load rows from `row` on; rows past the end read as 0."""
    base = ptr + row.to(gl.int64) * pitch * LINE
    return gl.load(base + offsets, mask=in_depth & (rows < m_len - row)[:, None], other=0.0)


@gluon.jit
def _store_rows(ptr, result, offsets, pitch, row, rows, m_len, in_cols):
    """Store rows from `row` on; rows past the end are skipped."""
    base = ptr + row.to(gl.int64) * pitch * LINE
    gl.store(base + offsets, result, mask=in_cols & (rows < m_len - row)[:, None])


@gluon.jit
def _load_factor(ptr, pitch, height, width, SHAPE: gl.constexpr, BY_LINES: gl.constexpr):
    """Load a factor [height, width], 0 outside; with `BY_LINES`, load its lines in tensor-core order."""
    layout: gl.constexpr = _layout_of_factor(SHAPE[1])
    lines = gl.arange(0, SHAPE[0], layout=gl.SliceLayout(1, layout))
    cols = gl.arange(0, SHAPE[1], layout=gl.SliceLayout(0, layout))
    if BY_LINES:
        lines = _place_of(lines)
    inside = gl.max_constancy((lines < height)[:, None] & (cols < width)[None, :], [1, LINE])
    return gl.load(ptr + lines[:, None] * pitch * LINE + cols[None, :], mask=inside, other=0.0)


@gluon.jit
def _keep(tile, BY_LINES: gl.constexpr):
    """Store a factor in shared memory, with its lines or columns in tensor-core order.

    With `BY_LINES`, `_load_factor` has already permuted the lines; otherwise this function permutes the columns.
    """
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile.shape[0], tile.shape[1]], tile.dtype)
    memory = gl.allocate_shared_memory(tile.dtype, [tile.shape[0], tile.shape[1]], layout)
    memory.store(tile if BY_LINES else _paired(tile))
    return memory


@gluon.jit
def _keep_factors(b_ptr, c_ptr, pitch_b, pitch_c, sizes, WIDTHS: gl.constexpr, TRANS: gl.constexpr):
    """Copy both right factors to shared memory as [depth, columns], for either memory order."""
    k_len, middle_len, n_len = sizes
    DEEP: gl.constexpr = WIDTHS[0]
    MIDDLE: gl.constexpr = WIDTHS[1]
    WIDE: gl.constexpr = WIDTHS[2]
    if TRANS:
        b = _load_factor(b_ptr, pitch_b, middle_len, k_len, (MIDDLE, DEEP), False)
        c = _load_factor(c_ptr, pitch_c, n_len, middle_len, (WIDE, MIDDLE), True)
    else:
        b = _load_factor(b_ptr, pitch_b, k_len, middle_len, (DEEP, MIDDLE), True)
        c = _load_factor(c_ptr, pitch_c, middle_len, n_len, (MIDDLE, WIDE), False)
    # start both loads before waiting for the first
    b_memory = _keep(b, not TRANS)
    c_memory = _keep(c, TRANS)
    if TRANS:
        b_memory = b_memory.permute((1, 0))
        c_memory = c_memory.permute((1, 0))
    fence_async_shared()
    return b_memory, c_memory


@gluon.jit
def b2b_gemm_sm90_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    m_len,
    n_len,
    k_len,
    middle_len,
    programs,  # noqa: ARG001 - the manifest's grid reads it
    activation,
    alpha,
    pitch_a,
    pitch_b,
    pitch_c,
    pitch_out,
    TRANS: gl.constexpr,
    FUNCTION: gl.constexpr,
    AHEAD: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    BLOCK_L: gl.constexpr,
    WHOLE: gl.constexpr,
):
    """Write ``f(alpha * a @ b) @ c``: a [m_len, k_len], b [k_len, middle_len], c [middle_len, n_len].

    m_len is any size; the other lengths are multiples of 8, at most `BLOCK_K`, `BLOCK_L` (equal to it with `WHOLE`) and
    `BLOCK_N`. All tensors are aligned to 16 bytes and row-major; with `TRANS` b and c are column-major. Pitches are the distances
    of rows (columns) in units of eight elements, at most 2^21. `AHEAD` loads a program's next rows before it multiplies the
    current ones. Any grid in x: programs on one multiprocessor hide one another's latency. Four warps.
    """
    dtype: gl.constexpr = a_ptr.dtype.element_ty
    of_a: gl.constexpr = _layout_of_rows(BLOCK_K)
    of_out: gl.constexpr = _layout_of_rows(BLOCK_N)
    inner: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_L, 16])
    outer: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    a_rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, of_a))
    a_cols = gl.arange(0, BLOCK_K, layout=gl.SliceLayout(0, of_a))
    a_offsets = a_rows[:, None] * pitch_a * LINE + a_cols[None, :]
    in_depth = gl.max_constancy((a_cols < k_len)[None, :], [1, LINE])
    out_rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, of_out))
    out_cols = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, of_out))
    out_offsets = out_rows[:, None] * pitch_out * LINE + out_cols[None, :]
    in_cols = gl.max_constancy((out_cols < n_len)[None, :], [1, LINE])

    first = gl.program_id(0) * ROWS
    step = gl.num_programs(0) * ROWS
    a = _load_rows(a_ptr, a_offsets, pitch_a, first, a_rows, m_len, in_depth)
    sizes = (k_len, middle_len, n_len)
    b_memory, c_memory = _keep_factors(b_ptr, c_ptr, pitch_b, pitch_c, sizes, (BLOCK_K, BLOCK_L, BLOCK_N), TRANS)
    for row in range(first, m_len, step):
        left = gl.convert_layout(_paired(a), gl.DotOperandLayout(0, inner, 2), assert_trivial=True)
        if AHEAD:
            a = _load_rows(a_ptr, a_offsets, pitch_a, row + step, a_rows, m_len, in_depth)
        acc = gl.zeros([ROWS, BLOCK_L], gl.float32, inner)
        token = warpgroup_mma(left, b_memory, acc, is_async=True)
        middle, left = warpgroup_mma_wait(0, deps=(token, left))
        middle = FUNCTION(middle * alpha, activation)
        if not WHOLE:
            # columns past the end must be 0, also if the function maps 0 to another value
            cols = gl.arange(0, BLOCK_L, layout=gl.SliceLayout(0, inner))
            middle = gl.where((cols < middle_len)[None, :], middle, 0.0)
        left = gl.convert_layout(middle.to(dtype), gl.DotOperandLayout(0, outer, 2), assert_trivial=True)
        acc = gl.zeros([ROWS, BLOCK_N], gl.float32, outer)
        token = warpgroup_mma(left, c_memory, acc, is_async=True)
        acc, left = warpgroup_mma_wait(0, deps=(token, left))
        result = gl.convert_layout(_paired(acc.to(dtype)), of_out, assert_trivial=True)
        _store_rows(out_ptr, result, out_offsets, pitch_out, row, out_rows, m_len, in_cols)
        if not AHEAD:
            a = _load_rows(a_ptr, a_offsets, pitch_a, row + step, a_rows, m_len, in_depth)
