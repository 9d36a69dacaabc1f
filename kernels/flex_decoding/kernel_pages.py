"""Device functions that read rows of keys and values, in pages or not.

Key n is row ``n % size`` of page ``table[n // size]``, where the page size is a power of two. Table entries are loaded
one step ahead, so that copies of keys do not wait for the table.
"""

import triton
import triton.language as tl


@triton.jit
def pages_of(keys, there, table_ptr, page_bits, index_b, PAGED: tl.constexpr):
    """Return the page that holds each key marked by `there`; without pages, return the batch, which indexes keys instead."""
    if PAGED:
        return tl.load(table_ptr + (keys >> page_bits), mask=there, other=0)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        return index_b


@triton.jit
def rows_of(base_ptr, first, lanes, pages, page_bits, stride_page, stride_row, PAGED: tl.constexpr):
    """Return pointers to rows of keys or values: rows `first` + `lanes`.

    Without pages only the base changes from step to step, so that little is recomputed.
    """
    if PAGED:
        inner = (first + lanes) & ((1 << page_bits) - 1)
        return base_ptr + (pages.to(tl.int64) * stride_page + inner.to(tl.int64) * stride_row)
    else:  # noqa: RET505 - Triton compiles only the branch taken
        return base_ptr + (pages * stride_page + first.to(tl.int64) * stride_row) + lanes.to(tl.int64) * stride_row


@triton.jit
def load_rows(row_ptrs, width, BLOCK: tl.constexpr):
    """Load rows that all exist; columns past `width` read as 0, so that NaN in padding has no effect."""
    cols = tl.arange(0, BLOCK)
    return tl.load(row_ptrs[:, None] + cols[None, :], mask=(cols < width)[None, :], other=0.0)


@triton.jit
def load_some_rows(row_ptrs, there, width, BLOCK: tl.constexpr):
    """Load the rows marked by `there`; other rows, and columns past `width`, read as 0."""
    cols = tl.arange(0, BLOCK)
    return tl.load(row_ptrs[:, None] + cols[None, :], mask=there[:, None] & (cols < width)[None, :], other=0.0)
