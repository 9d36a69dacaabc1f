"""Sums of the products of one or two rows, with multiply-adds: Triton functions for all kernels of few rows."""

import triton
import triton.language as tl

VECTOR = tl.constexpr(8)
"""16-bit elements of a vector."""


@triton.jit
def _add_row(acc, b, a_ptrs, inside, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Add the products of a row of a with columns of b, each thread for its own vectors of K."""
    a = tl.load(a_ptrs, mask=inside, other=0.0).to(tl.float32)
    return acc + tl.sum(tl.reshape(b * a[None, :], (BLOCK_N, BLOCK_K // VECTOR, VECTOR)), 2)


@triton.jit
def row_sums(
    a_ptr,
    b_ptr,
    cols,
    is_inside,
    k_len,
    stride_am,
    stride_bn,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return the products of `ROWS` rows of a, one or two, with the columns `cols` of b that are inside: fp32 [BLOCK_N, ROWS].

    With several `STAGES`, copies of b run ahead through shared memory; with one, values go to registers, and the programs
    of a multiprocessor hide one another's loads.
    """
    end = k_len // VECTOR * VECTOR
    lanes = tl.arange(0, BLOCK_K)
    pitch_a = stride_am // VECTOR * VECTOR
    pitch_b = stride_bn // VECTOR * VECTOR
    wide = cols.to(tl.int64)[:, None]
    first = tl.zeros((BLOCK_N, BLOCK_K // VECTOR), tl.float32)
    second = first
    for start in tl.range(0, end, BLOCK_K, num_stages=STAGES):
        k = start + lanes
        inside = k < end
        b_inside = inside[None, :] & is_inside[:, None]
        b = tl.load(b_ptr + (wide * pitch_b + k[None, :]), mask=b_inside, other=0.0, eviction_policy="evict_first")
        b = b.to(tl.float32)
        first = _add_row(first, b, a_ptr + k, inside, BLOCK_N, BLOCK_K)
        if ROWS == 2:
            second = _add_row(second, b, a_ptr + pitch_a + k, inside, BLOCK_N, BLOCK_K)
    sums = tl.sum(first, 1)[:, None]
    if ROWS == 2:
        sums = tl.join(tl.sum(first, 1), tl.sum(second, 1))
    return sums
