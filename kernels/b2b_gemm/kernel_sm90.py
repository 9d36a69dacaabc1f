"""Gluon kernel of ``f(alpha * a @ b) @ c`` for sm_90: many rows, and all other dimensions at most 128.

A program copies b and c to shared memory once. Then it loads 64 rows of a at a time into registers, multiplies them by
b and by c, and stores 64 rows of the result. The intermediate product stays in registers. Programs do not wait for each
other.

The order of columns in registers avoids shuffles between threads. wgmma expects eight neighbouring columns of a row as
pairs in four threads, but a global load of 16 bytes gives all eight to one thread. A product does not change if the
columns of its left operand and the rows of its right operand are permuted alike. So each thread loads eight
neighbouring columns of a and passes them to wgmma as pairs of four different groups of eight; `_keep` stores the rows
of b in the same order. `_keep` also permutes the columns of c, so that each thread ends with eight neighbouring columns
of the result.
"""

from nojit.kernels.products.kernel_tiles import activate, bits
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

ROWS = gl.constexpr(64)
"""Rows of a that a program multiplies per iteration."""
LINE = gl.constexpr(8)
"""Neighbouring columns that one thread loads at once: 16 bytes of 16-bit elements."""


@gluon.constexpr_function
def _layout_of_rows(cols):
    """Return the register layout of a tile [ROWS, cols] for global loads and stores.

    Each thread holds two rows, and of each row groups of eight neighbouring columns, 32 columns apart.
    """
    registers = [*bits(LINE, 1, 1, 2), *bits(cols // 32, 32, 1, 2), [8, 0]]
    lanes = [*bits(4, LINE, 1, 2), *bits(8, 1, 0, 2)]
    return gl.DistributedLinearLayout(registers, lanes, bits(4, 16, 0, 2), [], [ROWS, cols])


@gluon.constexpr_function
def _layout_of_factor(cols):
    """Return the register layout of a tile of b or c with `cols` columns, in which neighbouring threads load along a row."""
    lanes = cols // LINE
    return gl.BlockedLayout([1, LINE], [32 // lanes, lanes], [4, 1], [1, 0])


@gluon.jit
def listed_rounded(x, activation):
    """Apply the library activation with the number `activation` to fp32 values that are then rounded to 16 bits."""
    return activate(x, activation, True)


@gluon.jit
def _paired(tile):
    """Permute the columns of a tile from memory order to wgmma's order, within each 32 columns.

    In memory order, 32 columns are four groups of four pairs. In wgmma's order, the first pairs of the four groups are
    first, then the second pairs, and so on.
    """
    HEIGHT: gl.constexpr = tile.shape[0]
    WIDTH: gl.constexpr = tile.shape[1]
    return tile.reshape(HEIGHT, WIDTH // 32, 4, 4, 2).permute(0, 1, 3, 2, 4).reshape(HEIGHT, WIDTH)


@gluon.jit
def _place_of(line):
    """Return the place in memory order of the row or column at position `line` in wgmma's order; see `_paired`."""
    return line // 32 * 32 + line % 8 // 2 * 8 + line % 32 // 8 * 2 + line % 2


@gluon.jit
def _load_rows(ptr, offsets, pitch, row, rows, m_len, in_depth):
    """Load `ROWS` rows from row `row` on; rows from `m_len` on and columns outside `in_depth` read as 0.

    `pitch`: distance of rows, in units of `LINE` elements.
    """
    base = ptr + row.to(gl.int64) * pitch * LINE
    return gl.load(base + offsets, mask=in_depth & (rows < m_len - row)[:, None], other=0.0)


@gluon.jit
def _store_rows(ptr, result, offsets, pitch, row, rows, m_len, in_cols):
    """Store `ROWS` rows from row `row` on; rows from `m_len` on and columns outside `in_cols` are skipped.

    `pitch`: distance of rows, in units of `LINE` elements.
    """
    base = ptr + row.to(gl.int64) * pitch * LINE
    gl.store(base + offsets, result, mask=in_cols & (rows < m_len - row)[:, None])


@gluon.jit
def _load_factor(ptr, pitch, height, width, SHAPE: gl.constexpr, BY_LINES: gl.constexpr):
    """Load a matrix [height, width] as a tile `SHAPE`, 0 outside; with `BY_LINES`, permute its rows to wgmma's order.

    `pitch`: distance of rows, in units of `LINE` elements.
    """
    layout: gl.constexpr = _layout_of_factor(SHAPE[1])
    lines = gl.arange(0, SHAPE[0], layout=gl.SliceLayout(1, layout))
    cols = gl.arange(0, SHAPE[1], layout=gl.SliceLayout(0, layout))
    if BY_LINES:
        lines = _place_of(lines)
    inside = gl.max_constancy((lines < height)[:, None] & (cols < width)[None, :], [1, LINE])
    return gl.load(ptr + lines[:, None] * pitch * LINE + cols[None, :], mask=inside, other=0.0)


@gluon.jit
def _keep(tile, BY_LINES: gl.constexpr):
    """Store a tile of b or c in shared memory; permute its columns to wgmma's order, unless `BY_LINES`.

    With `BY_LINES`, `_load_factor` has already permuted the tile's rows.
    """
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile.shape[0], tile.shape[1]], tile.dtype)
    memory = gl.allocate_shared_memory(tile.dtype, [tile.shape[0], tile.shape[1]], layout)
    memory.store(tile if BY_LINES else _paired(tile))
    return memory


@gluon.jit
def _keep_factors(b_ptr, c_ptr, pitch_b, pitch_c, sizes, WIDTHS: gl.constexpr, TRANS: gl.constexpr):
    """Copy b and c to shared memory; return them as [depth, columns] in wgmma's order, also if `TRANS` (column-major)."""
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
    """Write ``f(alpha * a @ b) @ c``: a [m_len, k_len], b [k_len, middle_len], c [middle_len, n_len], 16-bit elements.

    m_len is any size. k_len, middle_len and n_len are multiples of 8, at most `BLOCK_K`, `BLOCK_L` and `BLOCK_N`;
    `WHOLE` states that middle_len equals `BLOCK_L`. All tensors are aligned to 16 bytes. a and the result are
    row-major, b and c too, or column-major with `TRANS`. Each pitch is the distance between rows (or columns) in units
    of eight elements, at most 2^21. With `AHEAD`, a program loads its next rows before it multiplies the current ones.
    Grid: any size in x; several programs on one SM hide each other's latency. Four warps.
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
            # columns past middle_len must be 0, also if the function maps 0 to another value
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
