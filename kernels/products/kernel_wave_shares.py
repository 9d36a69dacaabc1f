"""Device functions that divide a product's last wave along K (stream-K), so that all programs share it.

Persistent programs compute whole tiles as long as every program gets one. The tiles that remain, the *rest*, have ``rest *
steps`` steps of K, which *workers*, the first programs, share evenly: each takes a contiguous range, of one tile or of two
neighbours, and stores fp32 sums into slots of a workspace. The range of worker w in tile t of the rest goes to slot w + t, so
that the slots of a tile are contiguous, in the order of K. `nojit.kernels.products.shared_wave` has the host's part.

A slot has panels of 64 columns, each [rows / 8, 4, 8, 4, 2, 2]: row / 8, column / 16, row % 8, column / 2 % 4, column / 8 % 2,
column % 2. So the values that a thread has of a wgmma result lie four by four, and those of a warp in 512 bytes.
"""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import divide
from nojit.kernels.products.agreed_sizes import LEAST_SHARED_STEPS, MERGED_STEP
from nojit.kernels.products.kernel_tiles import part_of

STEP = tl.constexpr(MERGED_STEP)
WIDTH = tl.constexpr(64)
"""Columns of a panel of sums."""
LEAST_STEPS = tl.constexpr(LEAST_SHARED_STEPS)


@triton.jit
def waves_of(tiles, programs):
    """Return the number of whole waves of tiles, and the number of tiles that remain."""
    return divide(tiles, programs)


@triton.jit
def workers_of(rest, steps, programs):
    """Return how many programs share the `rest` (at least 1 tile); each tile has `steps` steps of K."""
    parts, idle = divide(programs, rest)
    most = tl.maximum(steps // LEAST_STEPS, 1)
    workers = programs + rest * 0
    # with few idle programs, ranges that end with their tile save the second range of a worker
    if (parts >= most) | (idle * 8 <= programs):
        workers = rest * tl.minimum(parts, most)
    return workers


@triton.jit
def range_of(worker, rest, steps, workers, is_second):
    """Return what `worker` computes of the rest: tile, first step, end of steps.

    `is_second`: 1 for the range in the second of two tiles, else 0. A range that a worker does not have is empty.
    """
    first, last = part_of(worker, workers, rest * steps)
    tile, start = divide(first, steps)
    end = tl.where(worker < workers, start + last - first, start)
    stop = tl.minimum(end, steps)
    if is_second > 0:
        tile += 1
        start = start * 0
        stop = tl.maximum(end - steps, 0)
    return tile, start, stop


@triton.jit
def worker_at(step, total, workers):
    """Return the worker whose range has `step`, one of the `total` steps of the rest."""
    share, longer = divide(total, workers)
    border = longer * (share + 1)
    worker = step // (share + 1)
    if step >= border:
        worker = longer + (step - border) // tl.maximum(share, 1)
    return worker


@triton.jit
def slots_of(tile, rest, steps, workers):
    """Return the range [first, end) of slots with the sums of a tile of the rest."""
    total = rest * steps
    first = worker_at(tile * steps, total, workers)
    last = worker_at(tile * steps + steps - 1, total, workers)
    return first + tile, last + tile + 1
