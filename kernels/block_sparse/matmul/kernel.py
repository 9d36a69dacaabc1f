"""Triton kernels of block-sparse products, for any strides and architecture: sdd, dsd, and the sum of dsd's partial results.

sdd multiplies two dense matrices and keeps the active blocks; dsd multiplies a block-sparse matrix by a dense one. The
kernels read the tables that `packing.Packing` documents. A program works on a *strip*: `STRIP` consecutive rows, which
are several block rows if blocks are small. The block size is a run-time multiple of 16. Absent rows, columns and blocks
are masked. Offsets that grow with a tensor are 64-bit.
"""

import triton
import triton.language as tl

PANEL = tl.constexpr(64)
"""Columns of partial results that are contiguous in memory, so that a thread's addresses are compile-time offsets."""
PADDED = tl.constexpr(256)
"""The columns of partial results are padded to a multiple of this, which is a multiple of every `BLOCK_N`."""


@triton.jit
def _halves(acc):
    """Return the left and the right half of a wide tile; writing the halves one by one takes fewer registers."""
    return tl.split(tl.permute(tl.reshape(acc, (acc.shape[0], 2, acc.shape[1] // 2)), (0, 2, 1)))


@triton.jit
def _store_sums(
    out_ptr, partial_ptr, acc, row_start, first_col, m_len, n_len, slot, atomic, stride_om, stride_on,
    STRIP: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Write a tile [STRIP, SPAN] to the result, from `first_col` on, or to `slot` of the partial results if it is >= 0."""
    lanes = tl.arange(0, STRIP)
    cols = first_col + tl.arange(0, SPAN)
    in_cols = (cols < n_len)[None, :]
    if slot < 0:
        rows = row_start + lanes
        out_ptrs = out_ptr + rows.to(tl.int64)[:, None] * stride_om + cols.to(tl.int64)[None, :] * stride_on
        tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < m_len)[:, None] & in_cols)
    else:
        span = tl.arange(0, SPAN)
        places = lanes[:, None] * PANEL + (span // PANEL * (STRIP * PANEL) + span % PANEL)[None, :]
        partial_ptrs = partial_ptr + first_col // PANEL * (STRIP * PANEL) + places
        if atomic == 1:
            tl.atomic_add(partial_ptrs, acc, sem="relaxed")
        else:
            tl.store(partial_ptrs, acc)


@triton.jit
def _store_blocks(
    out_ptr, acc, blocks_ptr, first_col, width, block, stride_ob, stride_or, stride_oc, STRIP: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip
    """Write the parts of a tile [STRIP, SPAN], from `first_col` on, that lie in present blocks.

    A store writes 16 x 16 elements, which never span two blocks.
    """
    down = tl.arange(0, STRIP // 16) * 16
    across = first_col + tl.arange(0, SPAN // 16) * 16
    blocks = tl.load(blocks_ptr + (down // block)[:, None] * width + (across // block)[None, :])[:, None, :, None]
    rows = (down % block)[:, None, None, None] + tl.arange(0, 16)[None, :, None, None]
    cols = (across % block)[None, None, :, None] + tl.arange(0, 16)[None, None, None, :]
    places = blocks.to(tl.int64) * stride_ob + rows * stride_or + cols * stride_oc
    pieces = tl.reshape(acc.to(out_ptr.dtype.element_ty), (STRIP // 16, 16, SPAN // 16, 16))
    tl.store(out_ptr + places, pieces, mask=blocks >= 0)


@triton.jit
def block_sparse_sdd_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    tiles_ptr,
    columns_ptr,
    blocks_ptr,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    tiles,
    strips,
    m_len,
    k_len,
    block,
    stride_az,
    stride_ah,
    stride_am,
    stride_ak,
    stride_bz,
    stride_bh,
    stride_bk,
    stride_bn,
    stride_oz,
    stride_ob,
    stride_or,
    stride_oc,
    STRIP: tl.constexpr,
    SPAN: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write the active blocks of ``a @ b``: a [batch, heads, m_len, k_len], b [batch, heads, k_len, n], any strides.

    A program computes a tile: `STRIP` neighbouring rows of a times the `SPAN` columns of b that the tables list for it.
    `strips` is the number of strips per head, `tiles` the number of tiles of all heads. Grid: batch * tiles.
    """
    tile = tl.program_id(0) % tiles
    index_z = (tl.program_id(0) // tiles).to(tl.int64)
    width = SPAN // block
    strip = tl.load(tiles_ptr + tile * 3)
    head = (strip // strips).to(tl.int64)
    rows = strip % strips * STRIP + tl.arange(0, STRIP)
    lanes = tl.arange(0, SPAN)
    columns = tl.load(columns_ptr + tile * width + lanes // block)
    cols = columns * block + lanes % block
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + index_z * stride_az + head * stride_ah + rows.to(tl.int64)[:, None] * stride_am
    a_ptrs += depth.to(tl.int64)[None, :] * stride_ak
    b_ptrs = b_ptr + index_z * stride_bz + head * stride_bh + cols.to(tl.int64)[None, :] * stride_bn
    b_ptrs += depth.to(tl.int64)[:, None] * stride_bk
    in_rows = (rows < m_len)[:, None]
    in_cols = (columns >= 0)[None, :]
    acc = tl.zeros((STRIP, SPAN), tl.float32)
    for start in range(0, k_len, BLOCK_K):
        a = tl.load(a_ptrs, mask=in_rows & (depth < k_len - start)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=in_cols & (depth < k_len - start)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    out_ptr += index_z * stride_oz
    blocks_ptr += tile.to(tl.int64) * (STRIP // block * width)
    if SPAN == 256:
        left, right = _halves(acc)
        _store_blocks(out_ptr, left, blocks_ptr, 0, width, block, stride_ob, stride_or, stride_oc, STRIP, 128)
        _store_blocks(out_ptr, right, blocks_ptr, 128, width, block, stride_ob, stride_or, stride_oc, STRIP, 128)
    else:
        _store_blocks(out_ptr, acc, blocks_ptr, 0, width, block, stride_ob, stride_or, stride_oc, STRIP, SPAN)


@triton.jit
def block_sparse_dsd_kernel(
    s_ptr,
    d_ptr,
    out_ptr,
    partial_ptr,
    tasks_ptr,
    entries_ptr,
    blocks_ptr,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    tasks,
    strips,
    m_len,
    n_len,
    block,
    slots,
    atomic,
    stride_sz,
    stride_sb,
    stride_sr,
    stride_sc,
    stride_dz,
    stride_dh,
    stride_dk,
    stride_dn,
    stride_oz,
    stride_oh,
    stride_om,
    stride_on,
    STRIP: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write ``s @ d``: s [batch, nnz, block, block] of a layout, d [batch, heads, k, n_len]; any strides.

    A program computes `BLOCK_N` columns of one task: a whole strip of `STRIP` rows, or some consecutive entries (block
    columns) of a long strip. Sums of the latter go to slots of `partial_ptr`, fp32 [batch, slots, panels, STRIP, PANEL]
    with n_len padded to `PADDED`. Each such task has a slot; if `atomic` is 1, each strip has one slot, to which its
    tasks add. For a transposed s, pass the tables of the transposed layout and swap the strides of rows and columns.
    `block` is a multiple of `BLOCK_K`. Grid: batch * tasks * cdiv(n_len, BLOCK_N).
    """
    parts = tl.cdiv(n_len, BLOCK_N)
    cols = tl.program_id(0) % parts * BLOCK_N + tl.arange(0, BLOCK_N)
    task = tl.program_id(0) // parts % tasks
    index_z = (tl.program_id(0) // parts // tasks).to(tl.int64)
    strip = tl.load(tasks_ptr + task * 5)
    first = tl.load(tasks_ptr + task * 5 + 1)
    last = tl.load(tasks_ptr + task * 5 + 2)
    slot = tl.load(tasks_ptr + task * 5 + 3 + atomic)
    head = (strip // strips).to(tl.int64)
    lanes = tl.arange(0, STRIP)
    depth = tl.arange(0, BLOCK_K)
    in_cols = cols < n_len
    s_ptrs = s_ptr + index_z * stride_sz + (lanes % block).to(tl.int64)[:, None] * stride_sr
    s_ptrs += depth.to(tl.int64)[None, :] * stride_sc
    d_ptrs = d_ptr + index_z * stride_dz + head * stride_dh + cols.to(tl.int64)[None, :] * stride_dn
    d_ptrs += depth.to(tl.int64)[:, None] * stride_dk
    group = STRIP // block
    own_blocks_ptr = blocks_ptr + lanes // block
    acc = tl.zeros((STRIP, BLOCK_N), tl.float32)
    entry = first
    start = 0
    # the tables have an extra last entry, so that reading one entry ahead is always valid
    blocks = tl.load(own_blocks_ptr + entry.to(tl.int64) * group)
    column = tl.load(entries_ptr + entry * 2)
    for _ in range((last - first) * (block // BLOCK_K)):
        offsets = blocks.to(tl.int64)[:, None] * stride_sb + start * stride_sc
        s = tl.load(s_ptrs + offsets, mask=(blocks >= 0)[:, None], other=0.0)
        d = tl.load(d_ptrs + (column.to(tl.int64) * block + start) * stride_dk, mask=in_cols[None, :], other=0.0)
        # read table entries one step ahead, so that the loads of a step do not wait for a table
        start += BLOCK_K
        ends = start == block
        start = tl.where(ends, 0, start)
        entry += ends.to(tl.int32)
        blocks = tl.load(own_blocks_ptr + entry.to(tl.int64) * group)
        column = tl.load(entries_ptr + entry * 2)
        acc = tl.dot(s, d, acc, input_precision=PRECISION)
    out_ptr += index_z * stride_oz + head * stride_oh
    row_start = strip % strips * STRIP
    partial_ptr += (index_z * slots + slot) * (tl.cdiv(n_len, PADDED) * PADDED) * STRIP
    start = tl.program_id(0) % parts * BLOCK_N
    if BLOCK_N == 256:
        left, right = _halves(acc)
        _store_sums(
            out_ptr, partial_ptr, left, row_start, start, m_len, n_len, slot, atomic, stride_om, stride_on, STRIP, 128
        )
        _store_sums(
            out_ptr, partial_ptr, right, row_start, start + 128, m_len, n_len, slot, atomic, stride_om, stride_on,
            STRIP, 128,
        )  # fmt: skip
    else:
        _store_sums(
            out_ptr, partial_ptr, acc, row_start, start, m_len, n_len, slot, atomic, stride_om, stride_on, STRIP,
            BLOCK_N,
        )  # fmt: skip


@triton.jit
def block_sparse_merge_kernel(
    partial_ptr,
    out_ptr,
    merges_ptr,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    merges,
    strips,
    m_len,
    n_len,
    height,
    slots,
    atomic,
    stride_oz,
    stride_oh,
    stride_om,
    stride_on,
    ROWS: tl.constexpr,
):
    """Sum up the partial results of split strips in the order of their slots, and write the sums, rounded once.

    If `atomic` is 1, a strip has one slot, which already holds the sum. Grid: batch * merges * (height // ROWS) *
    cdiv(n_len, 64), where `merges` is the number of split strips and `height` the rows of a strip.
    """
    panels = tl.cdiv(n_len, PANEL)
    panel = tl.program_id(0) % panels
    piece = tl.program_id(0) // panels
    lanes = piece % (height // ROWS) * ROWS + tl.arange(0, ROWS)
    merge = piece // (height // ROWS) % merges
    index_z = (piece // (height // ROWS) // merges).to(tl.int64)
    strip = tl.load(merges_ptr + merge * 3)
    first = tl.load(merges_ptr + merge * 3 + 1)
    last = tl.load(merges_ptr + merge * 3 + 2)
    if atomic == 1:
        first = merge
        last = merge + 1
    span = tl.arange(0, PANEL)
    size = (tl.cdiv(n_len, PADDED) * PADDED).to(tl.int64) * height
    partial_ptr += (index_z * slots + first) * size + panel.to(tl.int64) * (height * PANEL)
    acc = tl.zeros((ROWS, PANEL), tl.float32)
    for _ in range(first, last):
        acc += tl.load(partial_ptr + lanes[:, None] * PANEL + span[None, :])
        partial_ptr += size
    rows = strip % strips * height + lanes
    cols = panel * PANEL + span
    head = (strip // strips).to(tl.int64)
    out_ptrs = out_ptr + index_z * stride_oz + head * stride_oh
    out_ptrs += rows.to(tl.int64)[:, None] * stride_om + cols.to(tl.int64)[None, :] * stride_on
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(rows < m_len)[:, None] & (cols < n_len)[None, :])
