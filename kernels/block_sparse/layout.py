"""``BlockLayout``: the active blocks of a block-sparse matrix, and the look-up tables that kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from nojit.kernels.block_sparse.packing import Packing, is_long, pack
from nojit.kernels.calls.arguments import check_int, check_strided, refuse_type, refuse_value
from nojit.kernels.calls.memos import Memo, new_memo
from nojit.kernels.calls.torch_state import for_caching
from torch import Tensor

__all__ = ["BLOCK_SIZES", "BlockLayout", "RowSizes", "Tables"]

BLOCK_SIZES: Final = (16, 32, 64, 128)
MOST_REMEMBERED: Final = 256
"""The most products, and the most softmaxes, that a layout caches for replays."""


class RowSizes(NamedTuple):
    """Sizes that accompany `Tables`, for the softmax kernels; a tuple, so that torch operators can take it."""

    block: int
    rows: int
    """Number of block rows per head."""
    cols: int
    """Number of block columns."""
    longest: int
    """Number of blocks in the longest block row."""
    long_rows: int
    """Number of long block rows: those with more than twice the mean number of blocks in non-empty rows."""
    long_blocks: int
    """Number of blocks in all long block rows."""
    next_longest: int
    """Number of blocks in the longest block row that is not among the long ones."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The look-up tables of a layout on one device, for the softmax kernels."""

    spans: Tensor
    """Int32 [H * rows, 3]: each block row's number (head * rows + row), first block and block count; long ones first."""
    columns: Tensor
    """Int32 [nnz]: the block column of each block."""
    sizes: RowSizes


class BlockLayout:
    """The active blocks of a matrix, for each head; immutable and hashable, equal if block size and active blocks are.

    A sparse tensor of this layout is [Z, nnz, block, block], its blocks in row-major order of (head, block row, block
    column). The first use on a device copies look-up tables there, so call `tables` and `packing` before you capture a
    CUDA graph or trace a whole graph.

    Attributes:
        block: rows and columns of a block: 16, 32, 64 or 128.
        heads: the number of heads, or None if all heads share the layout.
        rows: number of block rows, M / block.
        cols: number of block columns, N / block.
        products: replays of `block_sparse_matmul` that are cached for this layout.
        softmaxes: replays of `block_sparse_softmax` that are cached for this layout.
    """

    __slots__ = (
        "_active", "_by_heads", "_hash", "_packings", "_tables", "block", "cols", "heads", "longest_row", "nnz", "products",
        "rows", "softmaxes",
    )  # fmt: skip

    def __init__(self, layout: Tensor, block: int) -> None:
        """Make a layout from a mask of active blocks.

        Args:
            layout: nonzero for active blocks, [H, M / block, N / block], or [M / block, N / block] if all heads share
                it; any integer dtype or bool.
            block: rows and columns of a block: 16, 32, 64 or 128.

        Raises:
            ArgumentError: `layout` is not a tensor of integers or bools, or `block` is not an int.
            ValueError: a wrong rank or block size.
        """
        check_strided("layout", layout)
        if layout.is_meta:
            refuse_type("layout", "a tensor with values", f"one on {layout.device}")
        if layout.is_floating_point() or layout.is_complex():
            refuse_type("layout", "an integer or bool dtype", layout.dtype)
        if layout.dim() not in {2, 3}:
            refuse_value("layout", "[H, M / block, N / block] or [M / block, N / block]", tuple(layout.shape))
        check_int("block", block)
        if block not in BLOCK_SIZES:
            refuse_value("block", " or ".join(map(str, BLOCK_SIZES)), block)
        self._read((layout.detach() != 0).cpu(), int(block))

    def _read(self, active: Tensor, block: int) -> None:
        self._active: Tensor = active.clone()
        self.block: int = block
        self.heads: int | None = active.shape[0] if active.dim() == 3 else None
        self.rows: int = active.shape[-2]
        self.cols: int = active.shape[-1]
        self.nnz: int = int(active.sum())
        self.longest_row: int = int(active.sum(-1).max()) if active.numel() else 0
        self._hash: int = hash((block, tuple(active.shape), tuple(active.flatten().nonzero()[:, 0].tolist())))
        self._tables: dict[torch.device, Tables] = {}
        self._packings: dict[tuple[torch.device, bool], Packing] = {}
        self._by_heads: dict[int, BlockLayout] = {}
        self.products: Memo = new_memo(operands=2, limit=MOST_REMEMBERED)
        self.softmaxes: Memo = new_memo(operands=4, limit=MOST_REMEMBERED)

    def __reduce__(self) -> tuple[type[BlockLayout], tuple[Tensor, int]]:
        # the caches of replays are not pickled
        return type(self), (self._active, self.block)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N), the number of rows and columns of the dense matrix."""
        return self.rows * self.block, self.cols * self.block

    @property
    def active(self) -> Tensor:
        """The active blocks: a new bool tensor [H, rows, cols], or [rows, cols] if all heads share it, on the CPU."""
        return self._active.clone()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockLayout):
            return NotImplemented
        return self is other or (
            self._hash == other._hash and self.block == other.block and torch.equal(self._active, other._active)
        )

    def __repr__(self) -> str:
        heads = "any" if self.heads is None else self.heads
        return f"BlockLayout(heads={heads}, rows={self.rows}, cols={self.cols}, block={self.block}, nnz={self.nnz})"

    def for_heads(self, heads: int) -> BlockLayout:
        """Return this layout for `heads` heads; a layout that all heads share is repeated, and the result cached.

        Raises:
            ValueError: the layout has another number of heads.
        """
        if self.heads is None:
            if heads not in self._by_heads:
                with for_caching():
                    repeated = self._active.expand(heads, self.rows, self.cols)
                    self._by_heads.setdefault(heads, BlockLayout(repeated, self.block))
            return self._by_heads[heads]
        if heads != self.heads:
            refuse_value("layout", f"{heads} heads", self.heads)
        return self

    def heads_of(self, blocks: int) -> int:
        """Return the number of heads of a sparse tensor that has `blocks` blocks.

        Raises:
            ValueError: no number of heads of this layout has that many blocks.
        """
        if self.heads is not None:
            fits, heads = blocks == self.nnz, self.heads
        else:
            fits = blocks % self.nnz == 0 if self.nnz else blocks == 0
            heads = blocks // self.nnz if self.nnz else 1
        if not fits:
            times = "" if self.heads is not None else "a multiple of "
            refuse_value("x", f"{times}{self.nnz} blocks as the layout has", blocks)
        return heads

    def tables(self, device: torch.device | str) -> Tables:
        """Return the look-up tables for softmax kernels on `device`; the first call copies them there.

        Raises:
            ValueError: all heads share the layout, so the number of heads is unknown: call `for_heads` first.
        """
        device = _numbered(device)
        found = self._tables.get(device)
        if found is None:
            self._check_heads()
            # inference tensors could not be saved for a later backward pass
            with for_caching():
                found = self._tables.setdefault(device, self._make_tables(device))
        return found

    def packing(self, device: torch.device | str, dtype: torch.dtype) -> Packing:
        """Return the tables for matrix products of operands of `dtype` on `device`; the first call copies them there.

        Raises:
            ValueError: all heads share the layout, so the number of heads is unknown: call `for_heads` first.
        """
        key = _numbered(device), dtype.itemsize <= 2
        found = self._packings.get(key)
        if found is None:
            self._check_heads()
            with for_caching():
                found = self._packings.setdefault(key, pack(self._active, self.block, key[1], key[0]))
        return found

    def _check_heads(self) -> None:
        if self.heads is None:
            refuse_value("layout", "one with a number of heads (call for_heads)", "a layout that all heads share")

    def _make_tables(self, device: torch.device) -> Tables:
        counts = self._active.sum(-1).flatten()
        long_ones = is_long(counts)
        order = (~long_ones).to(torch.int8).argsort(stable=True)
        spans = torch.stack([torch.arange(len(counts), device=counts.device), counts.cumsum(0) - counts, counts], 1)[
            order
        ]
        columns = self._active.nonzero()[:, 2]
        others = counts * ~long_ones
        next_longest = int(others.max()) if len(counts) else 0
        long = int(long_ones.sum()), self.nnz - int(others.sum()), next_longest
        sizes = RowSizes(self.block, self.rows, self.cols, self.longest_row, *long)
        return Tables(spans.to(device, torch.int32), columns.to(device, torch.int32), sizes)


def _numbered(device: torch.device | str) -> torch.device:
    """Return `device` with an index, as tensors have it; for ``cuda`` without an index, that of the current device."""
    device = torch.device(device)
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())
