"""Triton kernel that copies matrices to rows aligned to 128-byte cache lines."""

import triton
import triton.language as tl

VECTOR = tl.constexpr(8)
"""16-bit elements of a vector: rows start at multiples of it, and have a multiple of it."""


@triton.jit
def bmm_pad_kernel(
    in_ptr, out_ptr, count, rows, width, stride_z, stride_row, pitch, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Copy `count` rows of `width` elements to rows of `pitch`; each matrix has `rows` rows.

    The width, the pitch and the strides are multiples of 8. Grid: ``cdiv(count, ROWS) * cdiv(width, COLS)``.
    """
    across = tl.cdiv(width, COLS)
    lines = tl.program_id(0) // across * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(0) % across * COLS + tl.arange(0, COLS)
    inside = (lines < count)[:, None] & (cols < width // VECTOR * VECTOR)[None, :]
    index = lines // rows
    row = lines - index * rows
    starts = (index.to(tl.int64) * stride_z + row.to(tl.int64) * stride_row) // VECTOR * VECTOR
    targets = lines.to(tl.int64) * pitch // VECTOR * VECTOR
    values = tl.load(in_ptr + starts[:, None] + cols[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + targets[:, None] + cols[None, :], values, mask=inside)
