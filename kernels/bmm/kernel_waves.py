"""Triton kernel that adds up the sums of `bmm_waves_sm90_kernel`."""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import wait_for_last
from nojit.kernels.products.kernel_tiles import place_piece, spread
from nojit.kernels.products.kernel_wave_shares import STEP, WIDTH, slots_of, waves_of, workers_of

TOGETHER = tl.constexpr(4)
"""Number of slots that a program loads at once."""


@triton.jit
def bmm_waves_merge_kernel(
    sums_ptr,
    out_ptr,
    batch,
    m_len,
    n_len,
    k_len,
    programs,
    stride_oz,
    stride_om,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Add up the sums of `bmm_waves_sm90_kernel` in the order of K, and write the tiles that remained.

    `programs`, `BLOCK_M`, `BLOCK_N` and `GROUP` are those of that kernel. Rows and matrices of the result start at multiples
    of 16 bytes. Grid: for each tile that remains, ``BLOCK_M * BLOCK_N // (64 * ROWS)`` programs, each for `ROWS` rows of a
    panel.
    """
    tiles = batch * tl.cdiv(m_len, BLOCK_M) * tl.cdiv(n_len, BLOCK_N)
    waves, rest = waves_of(tiles, programs)
    steps = tl.cdiv(k_len, STEP)
    PIECES: tl.constexpr = BLOCK_M * BLOCK_N // (WIDTH * ROWS)
    tile = tl.program_id(0) // PIECES
    piece = tl.program_id(0) % PIECES
    first, last = slots_of(tile, rest, steps, workers_of(rest, steps, programs))
    index, _, row, col, _, _ = place_piece(waves * programs + tile, m_len, n_len, steps, 1, BLOCK_M, BLOCK_N, GROUP)
    down = piece * ROWS % BLOCK_M
    across = piece * ROWS // BLOCK_M * WIDTH
    lanes = tl.arange(0, ROWS * WIDTH)
    sums_ptrs = sums_ptr + (first.to(tl.int64) * (BLOCK_M * BLOCK_N) + piece * (ROWS * WIDTH)) + lanes
    acc = tl.zeros((ROWS * WIDTH,), tl.float32)
    wait_for_last()
    for slot in range(first, last, TOGETHER):
        for more in tl.static_range(TOGETHER):
            # all lanes of a slot, or none after the last slot
            held = lanes < (last - slot - more) * (ROWS * WIDTH)
            acc += tl.load(sums_ptrs + more * (BLOCK_M * BLOCK_N), mask=held, other=0.0)
        sums_ptrs += TOGETHER * (BLOCK_M * BLOCK_N)
    rows = row + down + tl.arange(0, ROWS)
    cols = col + across + tl.arange(0, WIDTH)
    index_z = index.to(tl.int64)
    in_rows = rows[:, None] < m_len
    # rows start at multiples of 16 bytes, so that whole vectors of 8 are stored
    out_ptrs = spread(out_ptr + index_z * stride_oz // 8 * 8, rows, cols, stride_om // 8 * 8, 1)
    pieces = acc.to(out_ptr.dtype.element_ty).reshape(ROWS // 8, WIDTH // 16, 8, 4, 2, 2)
    result = pieces.permute(0, 2, 1, 4, 3, 5).reshape(ROWS, WIDTH)
    if n_len % 8 == 0:
        tl.store(out_ptrs, result, mask=in_rows & (cols < n_len // 8 * 8)[None, :])
    else:
        tl.store(out_ptrs, result, mask=in_rows & (cols < n_len)[None, :])
