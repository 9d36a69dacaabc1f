"""DeepSpeed's sparsity patterns: the active blocks of the attention matrix for a sequence length.

Every layout is int64 [num_heads, blocks, blocks] of zeros and ones on the CPU, rows for blocks of queries, columns for
blocks of keys; ``blocks`` is the sequence length divided by the block size. Layouts equal DeepSpeed's for the same
arguments and the same state of Python's `random`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch
from nojit.kernels.calls.arguments import check_int
from nojit.kernels.compat.deepspeed import patterns
from torch import Tensor

__all__ = [
    "BSLongformerSparsityConfig",
    "BigBirdSparsityConfig",
    "DenseSparsityConfig",
    "FixedSparsityConfig",
    "LocalSlidingWindowSparsityConfig",
    "SparsityConfig",
    "VariableSparsityConfig",
]


@dataclass(eq=False)
class SparsityConfig:
    """Base class of all sparsity patterns. A pattern of your own defines `head_layout`, or all of `make_layout`."""

    num_heads: int
    block: int = 16
    """Rows and columns of a block: 16, 32, 64 or 128."""
    different_layout_per_head: bool = False
    """Make a separate layout for each head, instead of one that all heads share."""

    def __post_init__(self) -> None:
        """Validate the fields' types, and compute the number of layouts to make."""
        for one in fields(self):
            patterns.check_field(one.name, str(one.type), getattr(self, one.name))
        self.num_layout_heads = self.num_heads if self.different_layout_per_head else 1

    def make_layout(self, seq_len: int) -> Tensor:
        """Return the layout for sequences of `seq_len` positions: int64 [num_heads, blocks, blocks].

        Raises:
            ArgumentError: `seq_len` is not an int.
            ValueError: the block size does not divide `seq_len`, or the pattern needs a longer sequence.
        """
        layout = self.setup_layout(seq_len)
        for head in range(self.num_layout_heads):
            layout[head] = self.head_layout(head, layout.shape[1])
        return self.check_and_propagate_first_head_layout(layout)

    def head_layout(self, head: int, num_blocks: int) -> Tensor:
        """Return the active blocks of a head: bool [num_blocks, num_blocks]."""
        raise NotImplementedError(f"{type(self).__name__} has no pattern of its own: use one that has")

    def setup_layout(self, seq_len: int) -> Tensor:
        """Return a layout without active blocks for sequences of `seq_len` positions."""
        check_int("seq_len", seq_len)
        if seq_len % self.block != 0:
            raise ValueError(f"Sequence Length, {seq_len}, needs to be dividable by Block size {self.block}!")
        num_blocks = seq_len // self.block
        return torch.zeros((self.num_heads, num_blocks, num_blocks), dtype=torch.int64)

    def check_and_propagate_first_head_layout(self, layout: Tensor) -> Tensor:
        """Copy the first head's layout to all heads, in place, unless each head has its own layout."""
        if not self.different_layout_per_head:
            layout[1:] = layout[:1]
        return layout


@dataclass(eq=False)
class DenseSparsityConfig(SparsityConfig):
    """Pattern with all blocks active, for comparison."""

    def head_layout(self, head: int, num_blocks: int) -> Tensor:  # noqa: ARG002 - heads are alike
        """Return the active blocks of a head: bool [num_blocks, num_blocks]."""
        return torch.ones(num_blocks, num_blocks, dtype=torch.bool)


@dataclass(eq=False)
class FixedSparsityConfig(SparsityConfig):
    """Pattern of adjacent windows; all blocks see a few global blocks of each window (Child et al. 2019, section 4.3).

    Raises:
        ValueError: the counts are inconsistent.
        NotImplementedError: an unknown `attention`.
    """

    num_local_blocks: int = 4
    """Length of a window, in blocks."""
    num_global_blocks: int = 1
    """Number of global blocks in each window: its last blocks, unless `num_different_global_patterns` is above 1."""
    attention: str = "bidirectional"
    """``"bidirectional"``, or ``"unidirectional"`` for only the lower triangle."""
    horizontal_global_attention: bool = False
    """Whether global blocks also see all other blocks; bidirectional attention only."""
    num_different_global_patterns: int = 1
    """Number of different positions of the global blocks in a window, from its end backwards; heads take them in turn."""

    def __post_init__(self) -> None:
        """Validate the counts."""
        super().__post_init__()
        if self.num_local_blocks % self.num_global_blocks != 0:
            raise ValueError(
                f"Number of blocks in a local window, {self.num_local_blocks}, must be dividable by number of global"
                f" blocks, {self.num_global_blocks}!"
            )
        patterns.check_attention(self.attention, self.horizontal_global_attention)
        count, most = self.num_different_global_patterns, self.num_local_blocks // self.num_global_blocks
        if count > 1 and not self.different_layout_per_head:
            raise ValueError(
                "Number of different layouts cannot be more than one when you have set a single layout for all heads!"
                " Set different_layout_per_head to True."
            )
        if count > most:
            raise ValueError(
                f"Number of layout versions (num_different_global_patterns), {count}, cannot be larger than number of"
                " local window blocks divided by number of global blocks,"
                f" {self.num_local_blocks} / {self.num_global_blocks} = {most}!"
            )

    def head_layout(self, head: int, num_blocks: int) -> Tensor:
        """Return the active blocks of a head: bool [num_blocks, num_blocks]."""
        is_causal = self.attention == "unidirectional"
        active = patterns.local_windows(num_blocks, (self.num_local_blocks,), is_causal=is_causal)
        places = (slice(start, start + self.num_global_blocks) for start in self._global_starts(head, num_blocks))
        patterns.mark(active, places, rows=self.horizontal_global_attention, is_causal=is_causal)
        return active

    def _global_starts(self, head: int, num_blocks: int) -> list[int]:
        """Return the first global block of each window for a head.

        In a last window that is cut short, the global blocks move back into the window.

        `num_blocks`: number of blocks in a row.
        """
        turn = head % self.num_different_global_patterns
        first = self.num_local_blocks - (1 + turn) * self.num_global_blocks
        whole = num_blocks - num_blocks % self.num_local_blocks
        starts = list(range(first, whole, self.num_local_blocks))
        if whole < num_blocks:
            starts.append(min(whole + first, num_blocks - self.num_global_blocks))
        return starts


@dataclass(eq=False)
class VariableSparsityConfig(SparsityConfig):
    """Pattern of random blocks, adjacent windows of given lengths, and given global blocks that all others see.

    Raises:
        ValueError: the lists are inconsistent, or there is no window.
        NotImplementedError: an unknown `attention`.
    """

    num_random_blocks: int = 0
    """Number of random blocks per row, drawn from the whole row, also if attention is unidirectional."""
    local_window_blocks: Sequence[int] = (4,)
    """Length of each window, in blocks; the last length repeats."""
    global_block_indices: Sequence[int] = (0,)
    """Indices of global blocks; indices past the end are ignored."""
    global_block_end_indices: Sequence[int] | None = None
    """If given, global blocks are the ranges from each of `global_block_indices` up to, not including, these ends."""
    attention: str = "bidirectional"
    """``"bidirectional"``, or ``"unidirectional"`` for only the lower triangle (random blocks excepted)."""
    horizontal_global_attention: bool = False
    """Whether global blocks also see all other blocks; bidirectional attention only."""

    def __post_init__(self) -> None:
        """Validate the lists."""
        super().__post_init__()
        patterns.check_ranges(self.global_block_indices, self.global_block_end_indices)
        patterns.check_attention(self.attention, self.horizontal_global_attention)
        if not self.local_window_blocks or min(self.local_window_blocks) < 1:
            raise ValueError(f"local_window_blocks: expected positive sizes, got {list(self.local_window_blocks)}")

    def head_layout(self, head: int, num_blocks: int) -> Tensor:  # noqa: ARG002 - heads differ by their draws
        """Return the active blocks of a head: bool [num_blocks, num_blocks]."""
        patterns.check_count("random blocks", self.num_random_blocks, num_blocks)
        is_causal = self.attention == "unidirectional"
        active = patterns.random_columns(num_blocks, self.num_random_blocks, is_causal=False)
        active |= patterns.local_windows(num_blocks, self.local_window_blocks, is_causal=is_causal)
        places = patterns.global_places(self.global_block_indices, self.global_block_end_indices, num_blocks)
        patterns.mark(active, places, rows=self.horizontal_global_attention, is_causal=is_causal)
        return active


@dataclass(eq=False)
class BigBirdSparsityConfig(SparsityConfig):
    """Pattern of random blocks, a sliding window, and first blocks that are global (Zaheer et al. 2020, section 2).

    Global blocks see all blocks, and all blocks see them.

    Raises:
        NotImplementedError: an unknown `attention`.
    """

    num_random_blocks: int = 1
    """Number of random blocks per row."""
    num_sliding_window_blocks: int = 3
    """Length of the window, in blocks, centred on the diagonal."""
    num_global_blocks: int = 1
    """Number of global blocks, which are the first ones."""
    attention: str = "bidirectional"
    """``"bidirectional"``, or ``"unidirectional"`` for only the lower triangle."""

    def __post_init__(self) -> None:
        """Validate `attention`."""
        super().__post_init__()
        patterns.check_attention(self.attention)

    def head_layout(self, head: int, num_blocks: int) -> Tensor:  # noqa: ARG002 - heads differ by their draws
        """Return the active blocks of a head: bool [num_blocks, num_blocks]."""
        patterns.check_count("random blocks", self.num_random_blocks, num_blocks)
        patterns.check_count("sliding window blocks", self.num_sliding_window_blocks, num_blocks)
        patterns.check_count("global blocks", self.num_global_blocks, num_blocks)
        is_causal = self.attention == "unidirectional"
        active = patterns.random_columns(num_blocks, self.num_random_blocks, is_causal=is_causal)
        active |= patterns.sliding_window(num_blocks, self.num_sliding_window_blocks)
        patterns.mark(active, [slice(0, self.num_global_blocks)], rows=True)
        return active.tril() if is_causal else active


@dataclass(eq=False)
class BSLongformerSparsityConfig(SparsityConfig):
    """Pattern of a sliding window and given global blocks (Beltagy et al. 2020, section 3.1, in units of blocks).

    Global blocks see all blocks, and all blocks see them.

    Raises:
        ValueError: the lists are inconsistent.
        NotImplementedError: an unknown `attention`.
    """

    num_sliding_window_blocks: int = 3
    """Length of the window, in blocks, centred on the diagonal."""
    global_block_indices: Sequence[int] = (0,)
    """Indices of global blocks; indices past the end are ignored."""
    global_block_end_indices: Sequence[int] | None = None
    """If given, global blocks are the ranges from each of `global_block_indices` up to, not including, these ends."""
    attention: str = "bidirectional"
    """``"bidirectional"``, or ``"unidirectional"`` for only the lower triangle."""

    def __post_init__(self) -> None:
        """Validate the lists."""
        super().__post_init__()
        patterns.check_ranges(self.global_block_indices, self.global_block_end_indices)
        patterns.check_attention(self.attention)

    def head_layout(self, head: int, num_blocks: int) -> Tensor:  # noqa: ARG002 - heads are alike
        """Return the active blocks of a head: bool [num_blocks, num_blocks]."""
        patterns.check_count("sliding window blocks", self.num_sliding_window_blocks, num_blocks)
        active = patterns.sliding_window(num_blocks, self.num_sliding_window_blocks)
        places = patterns.global_places(self.global_block_indices, self.global_block_end_indices, num_blocks)
        patterns.mark(active, places, rows=True)
        return active.tril() if self.attention == "unidirectional" else active


@dataclass(eq=False)
class LocalSlidingWindowSparsityConfig(SparsityConfig):
    """Pattern of a sliding window only, the same for all heads.

    Raises:
        NotImplementedError: an unknown `attention`.
    """

    different_layout_per_head: bool = field(default=False, init=False)
    num_sliding_window_blocks: int = 3
    """Length of the window, in blocks, centred on the diagonal."""
    attention: str = "unidirectional"
    """``"unidirectional"`` for only the lower triangle, or ``"bidirectional"``."""

    def __post_init__(self) -> None:
        """Validate `attention`."""
        super().__post_init__()
        patterns.check_attention(self.attention)

    def head_layout(self, head: int, num_blocks: int) -> Tensor:  # noqa: ARG002 - heads are alike
        """Return the active blocks of a head: bool [num_blocks, num_blocks]."""
        patterns.check_count("sliding window blocks", self.num_sliding_window_blocks, num_blocks)
        active = patterns.sliding_window(num_blocks, self.num_sliding_window_blocks)
        return active.tril() if self.attention == "unidirectional" else active
