"""Launches of the sm_90 kernels of block-sparse products: which calls they can run, TMA descriptors, arguments.

sdd is a product of dense matrices, computed in the active blocks only; dsd is a sparse matrix times a dense one.
"""

# ruff: noqa: PLR0917 - a launch takes its facts by position

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from nojit.kernels.block_sparse.packing import Cuts, Sizes
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.tensor_maps import Described, described, processors, takes_maps
from torch import Tensor

__all__ = [
    "DsdMaps",
    "SddMaps",
    "describe_dsd",
    "describe_sdd",
    "launch_dsd",
    "launch_sdd",
    "maps_of_dsd",
    "maps_of_sdd",
]

ROWS: Final = 128
"""Rows of the strips (groups of block rows) and tiles that the sm_90 kernels take."""
LEAST_BLOCK: Final = 32
BOX: Final = 64
"""The most rows and columns per TMA copy; for smaller blocks, the block size."""


class SddMaps(NamedTuple):
    """TMA descriptors of the operands and the result of an sdd product: dense by dense, sparse result."""

    a: Described
    b: Described
    out: Described
    trans_a: bool
    """True if the descriptor of a describes its transpose; `trans_b` in the same way for b."""
    trans_b: bool


class DsdMaps(NamedTuple):
    """TMA descriptors of the operands and the result of a dsd product: sparse by dense, dense result."""

    s: Described
    d: Described
    out: Described
    is_transposed: bool
    """True if the kernel multiplies by the transposed blocks."""
    columns: bool
    """True if the descriptors of d and of the result describe their transposes."""


def maps_of_sdd(a: Tensor, b: Tensor, out: Tensor, sizes: Sizes) -> SddMaps | None:
    """Return the TMA descriptors of a product of dense matrices into blocks (sdd); None if the sm_90 kernel cannot run it.

    It can if the device has TMA, operands are 16-bit, row-major or column-major, and aligned as descriptors need,
    blocks have at least 32 rows, and `sizes` has tiles of 128 rows.
    """
    return describe_sdd(a, b, out) if sizes.block >= LEAST_BLOCK and sizes.tile == ROWS and takes_maps(a) else None


def describe_sdd(a: Tensor, b: Tensor, out: Tensor) -> SddMaps | None:
    """Return the TMA descriptors of a product of dense matrices into blocks (sdd), for any device.

    None if descriptors cannot hold the operands.
    """
    left, right, result = _oriented(a), _oriented(b), described(out)
    if left is None or right is None or result is None:
        return None
    return SddMaps(left[0], right[0], result, left[1], right[1])


def maps_of_dsd(s: Tensor, d: Tensor, out: Tensor, block: int, height: int, is_transposed: bool) -> DsdMaps | None:
    """Return the TMA descriptors of a product of sparse by dense (dsd); None if the sm_90 kernel cannot run it.

    d and the result must both be row-major or both column-major; `height` is the rows of a strip (group of block rows),
    `is_transposed` transposes s.
    """
    return describe_dsd(s, d, out, is_transposed) if block >= LEAST_BLOCK and height == ROWS and takes_maps(d) else None


def describe_dsd(s: Tensor, d: Tensor, out: Tensor, is_transposed: bool) -> DsdMaps | None:
    """Return the TMA descriptors of a product of sparse by dense (dsd), for any device; None if operands do not fit.

    `is_transposed`: True to multiply by the transposed blocks.
    """
    blocks, free, result = _oriented(s), _oriented(d), _oriented(out)
    if blocks is None or free is None or result is None or free[1] != result[1]:
        return None
    return DsdMaps(blocks[0], free[0], result[0], is_transposed != blocks[1], free[1])


def _oriented(value: Tensor) -> tuple[Described, bool] | None:
    """Return a TMA description of a tensor or of its transpose, and True for the transpose; None if neither fits."""
    straight = described(value)
    if straight is not None:
        return straight, False
    is_transposed = described(value.mT)
    return None if is_transposed is None else (Described(value, is_transposed.strides, is_transposed.shape), True)


def launch_sdd(
    maps: SddMaps, shape: Sequence[int], tables: Sequence[Tensor], sizes: Sizes, caller: Caller = DIRECT
) -> None:
    """Launch the sm_90 kernel of a product of dense matrices into blocks (sdd); `shape` is that of a, [Z, H, M, K].

    `maps`: TMA descriptions of operands and result; `tables`: the three tables of tiles in `Packing.tables`; `sizes`:
    those of the layout; `caller`: allocates and launches, or also records both for replays.
    """
    tiles, columns, blocks = tables
    batch, _, rows, depth = shape
    box = min(sizes.block, BOX)
    caller.launch(
        "block_sparse_sdd_sm90",
        a_map=maps.a,
        b_map=maps.b,
        out_map=maps.out,
        tiles_ptr=tiles,
        columns_ptr=columns,
        blocks_ptr=blocks,
        batch=batch,
        tiles=len(tiles),
        strips=-(-rows // ROWS),
        k_len=depth,
        block=sizes.block,
        programs=processors(tiles),
        SPAN=sizes.width,
        BOX=box,
        B_HEIGHT=box if maps.trans_b else BOX,
        B_WIDTH=BOX if maps.trans_b else box,
        TRANS_A=maps.trans_a,
        TRANS_B=maps.trans_b,
    )


def launch_dsd(
    maps: DsdMaps,
    shape: Sequence[int],
    partial: Tensor,
    strips: Sequence[Tensor],
    cuts: Cuts,
    block: int,
    caller: Caller = DIRECT,
) -> None:
    """Launch the sm_90 kernel of a product of sparse by dense (dsd).

    `shape` is that of the result, [Z, H, M, N]; `cuts` says how long strips (groups of block rows) are split.

    `maps`: TMA descriptions of operands and result; `partial`: fp32 sums of the parts of split strips; `strips`: the
    layout's tables of strips (groups of block rows); `caller`: allocates and launches, or also records both for
    replays.
    """
    tasks, entries, blocks, _ = strips
    batch, _, rows, width = shape
    box = min(block, BOX)
    caller.launch(
        "block_sparse_dsd_sm90",
        s_map=maps.s,
        d_map=maps.d,
        out_map=maps.out,
        partial_ptr=partial,
        tasks_ptr=tasks,
        entries_ptr=entries,
        blocks_ptr=blocks,
        batch=batch,
        tasks=len(tasks),
        strips=-(-rows // ROWS),
        n_len=width,
        block=block,
        slots=cuts.slots,
        atomic=int(cuts.atomic),
        long=cuts.long,
        ahead=cuts.ahead,
        programs=processors(tasks),
        BOX=box,
        D_HEIGHT=BOX if maps.columns else box,
        D_WIDTH=box if maps.columns else BOX,
        TRANSPOSED=maps.is_transposed,
        COLUMNS=maps.columns,
    )
