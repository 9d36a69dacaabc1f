"""Launches of validated block-sparse products: `sdd` and `dsd`, and the sum of the parts of split strips."""

# ruff: noqa: PLR0917 - kernels take their arguments by position

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nojit.kernels import library
from nojit.kernels.block_sparse.matmul import launch_sm90
from nojit.kernels.block_sparse.packing import BLOCK_N, PROGRAMS, SHARE, Cuts, Sizes
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.torch_state import precision
from torch import Tensor

__all__ = [
    "launch_dsd",
    "launch_merge",
    "launch_sdd",
    "run_dsd",
    "run_sdd",
    "strips_of",
]

_PADDED: Final = 256
"""The columns of partial results are padded to a multiple of this."""


def run_sdd(a: Tensor, b: Tensor, tables: Sequence[Tensor], sizes: Sequence[int], out: Tensor, caller: Caller) -> None:
    """Launch a product of dense matrices into blocks (sdd), with the sm_90 kernel if it can run, or the general one.

    `tables`: `Packing.tables`; `sizes`: the fields of the layout's `Sizes`; `caller`: allocates and launches, or
    also records both for replays.
    """
    if not out.numel():
        return
    of_layout = Sizes(*sizes)
    maps = launch_sm90.maps_of_sdd(a, b, out, of_layout)
    if maps is None:
        launch_sdd(a, b, out, tables[10:], of_layout, caller)
    else:
        launch_sm90.launch_sdd(maps, a.shape, tables[10:], of_layout, caller)


def launch_sdd(
    a: Tensor, b: Tensor, out: Tensor, tables: Sequence[Tensor], sizes: Sizes, caller: Caller = DIRECT
) -> None:
    """Launch the general kernel of a product of dense matrices into blocks (sdd), for any strides.

    `tables`: the three tables of tiles in `Packing.tables`; `sizes`: those of the layout.

    `caller`: allocates and launches, or also records both for replays.
    """
    tiles, columns, blocks = tables
    batch, _, rows, depth = a.shape
    caller.launch(
        "block_sparse_sdd",
        a_ptr=a,
        b_ptr=b,
        out_ptr=out,
        tiles_ptr=tiles,
        columns_ptr=columns,
        blocks_ptr=blocks,
        batch=batch,
        tiles=len(tiles),
        strips=-(-rows // sizes.tile),
        m_len=rows,
        k_len=depth,
        block=sizes.block,
        **named("stride_a", "zhmk", a.stride()),
        **named("stride_b", "zhkn", b.stride()),
        **named("stride_o", "zbrc", out.stride()),
        STRIP=sizes.tile,
        SPAN=sizes.width,
        PRECISION=precision(a.dtype),
    )


def run_dsd(
    s: Tensor,
    d: Tensor,
    tables: Sequence[Tensor],
    sizes: Sequence[int],
    is_transposed: bool,
    deterministic: bool,
    out: Tensor,
    caller: Caller,
) -> None:
    """Launch a product of blocks by a dense matrix (dsd), and the sum over the rows that were split among programs.

    The sm_90 kernel runs it where it can, or else the general kernel.

    `tables`: `Packing.tables`; `sizes`: the fields of the layout's `Sizes`; `is_transposed`: True to multiply by the
    transposed blocks; `caller`: allocates and launches, or also records both for replays.
    """
    if not out.numel():
        return
    of_layout = Sizes(*sizes)
    strips, cuts = strips_of(tables, of_layout, is_transposed, out.shape, deterministic)
    partial = cuts.allocate(d, caller)
    maps = launch_sm90.maps_of_dsd(s, d, out, of_layout.block, cuts.height, is_transposed)
    if maps is None:
        launch_dsd(s, d, out, partial, strips, cuts, of_layout.block, is_transposed, caller)
    else:
        launch_sm90.launch_dsd(maps, out.shape, partial, strips, cuts, of_layout.block, caller)
    if cuts.slots:
        launch_merge(partial, out, strips[3], cuts, caller)


def strips_of(
    tables: Sequence[Tensor], sizes: Sizes, is_transposed: bool, shape: Sequence[int], deterministic: bool
) -> tuple[tuple[Tensor, ...], Cuts]:
    """Return the tables of strips (groups of block rows) for a product of blocks by a dense matrix, and how to split them.

    Args:
        tables: `Packing.tables`.
        sizes: sizes of the layout.
        is_transposed: use the tables of the transpose.
        shape: shape of the result, [Z, H, M, N].
        deterministic: give each part of a strip a slot for its sums, so that sums have a fixed order.

    Under batch invariance the choice must not depend on the batch: every strip that may be split is split.
    """
    tasks, entries, blocks, merges, whole = tables[5:10] if is_transposed else tables[:5]
    strips = sizes.strips_of(is_transposed)
    batch, _, _, width = shape
    pieces = 0 if library.is_batch_invariant() else batch * -(-width // BLOCK_N)
    slots, long = strips.slots, 0
    if strips.longest * PROGRAMS <= strips.entries * pieces * SHARE:
        tasks, slots, long = whole, 0, strips.long
    elif not deterministic:
        # one slot per task, or one per strip for atomic adds
        slots = len(merges)
    shape = batch, slots, strips.height, -(-width // _PADDED) * _PADDED
    cut = Cuts(strips.height, slots, shape, not deterministic, long, strips.ahead)
    return (tasks, entries, blocks, merges), cut


def launch_dsd(
    s: Tensor,
    d: Tensor,
    out: Tensor,
    partial: Tensor,
    strips: Sequence[Tensor],
    cuts: Cuts,
    block: int,
    is_transposed: bool,
    caller: Caller = DIRECT,
) -> None:
    """Launch the general kernel of a product of blocks by a dense matrix (dsd), for any strides.

    `partial` receives the partial sums of rows that are split among programs.

    `strips`: the layout's tables of strips (groups of block rows); `cuts`: how long strips (groups of block rows) are
    split; `is_transposed`: True to multiply by the transposed blocks; `caller`: allocates and launches, or also records
    both for replays.
    """
    tasks, entries, blocks, _ = strips
    batch, _, rows, width = out.shape
    caller.launch(
        "block_sparse_dsd",
        s_ptr=s,
        d_ptr=d,
        out_ptr=out,
        partial_ptr=partial,
        tasks_ptr=tasks,
        entries_ptr=entries,
        blocks_ptr=blocks,
        batch=batch,
        tasks=len(tasks),
        strips=-(-rows // cuts.height),
        m_len=rows,
        n_len=width,
        block=block,
        slots=cuts.slots,
        atomic=int(cuts.atomic),
        **named("stride_s", "zbrc", (s.mT if is_transposed else s).stride()),
        **named("stride_d", "zhkn", d.stride()),
        **named("stride_o", "zhmn", out.stride()),
        STRIP=cuts.height,
        PRECISION=precision(d.dtype),
    )


def launch_merge(partial: Tensor, out: Tensor, merges: Tensor, cuts: Cuts, caller: Caller = DIRECT) -> None:
    """Launch the kernel that sums up the partial results of rows that were split among programs into `out`.

    `merges`: strip, first slot and end of slots of each split strip; `cuts`: how long strips (groups of block rows) are
    split; `caller`: allocates and launches, or also records both for replays.
    """
    batch, _, rows, width = out.shape
    caller.launch(
        "block_sparse_merge",
        partial_ptr=partial,
        out_ptr=out,
        merges_ptr=merges,
        batch=batch,
        merges=len(merges),
        strips=-(-rows // cuts.height),
        m_len=rows,
        n_len=width,
        height=cuts.height,
        slots=cuts.slots,
        atomic=int(cuts.atomic),
        **named("stride_o", "zhmn", out.stride()),
    )
