"""Triton kernel that copies images and volumes from planes to channels-last and back.

Both directions transpose matrices: the positions of a channel are adjacent in planes (torch's default layout, NCHW), the
channels of a position in channels-last. A program transposes one tile through shared memory, so loads and stores are both
coalesced.
"""

import triton
import triton.language as tl


@triton.jit
def conv_planes_kernel(
    in_ptr,
    out_ptr,
    rows,
    cols,
    stride_in_z,
    stride_in_row,
    stride_out_z,
    stride_out_col,
    batch,  # noqa: ARG001 - the manifest's grid reads it
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Write ``out[z, col, row] = in[z, row, col]``; the columns of a row of `in` and the rows of a column of `out` are adjacent.

    Grid: batch * cdiv(rows, ROWS) * cdiv(cols, COLS).
    """
    across = tl.cdiv(cols, COLS)
    line = tl.program_id(0) // across
    down = tl.cdiv(rows, ROWS)
    z = (line // down).to(tl.int64)
    row = line % down * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.program_id(0) % across * COLS + tl.arange(0, COLS)[None, :]
    inside = (row < rows) & (col < cols)
    value = tl.load(in_ptr + z * stride_in_z + row.to(tl.int64) * stride_in_row + col, mask=inside)
    tl.store(out_ptr + z * stride_out_z + col.to(tl.int64) * stride_out_col + row, value, mask=inside)
