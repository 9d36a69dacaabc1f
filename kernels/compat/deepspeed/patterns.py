"""Parts of DeepSpeed's sparsity patterns: bool matrices [blocks, blocks], rows for blocks of queries, columns for keys.

A block of queries sees a block of keys if the element is True.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import torch
from nojit.kernels.block_sparse import BlockLayout
from nojit.kernels.calls.arguments import check_flags, check_int, refuse_type, refuse_value
from torch import Tensor

__all__ = [
    "check_attention",
    "check_count",
    "check_field",
    "check_ranges",
    "global_places",
    "layout_of",
    "local_windows",
    "mark",
    "random_columns",
    "sliding_window",
]


def layout_of(layout: Tensor | BlockLayout, block: int) -> BlockLayout:
    """Return `layout` as a `BlockLayout`, made from a tensor of zeros and ones if necessary.

    Raises:
        ArgumentError: neither a `BlockLayout` nor a tensor, or `block` is not an int.
        ValueError: a `BlockLayout` of another block size.
    """
    check_int("block", block)
    made = layout if isinstance(layout, BlockLayout) else BlockLayout(layout, block)
    if made.block != block:
        refuse_value("block", f"{made.block} as the layout has", block)
    return made


def local_windows(num_blocks: int, sizes: Sequence[int], *, is_causal: bool) -> Tensor:
    """Return adjacent windows in which all blocks see each other; `sizes` are their lengths, and the last one repeats.

    If `is_causal`, a block sees only itself and earlier blocks.

    `num_blocks`: number of blocks in a row.
    """
    missing = max(0, num_blocks - sum(sizes))
    lengths = torch.tensor([*sizes, *[sizes[-1]] * -(-missing // sizes[-1])])
    window = torch.repeat_interleave(lengths)[:num_blocks]
    active = window[:, None] == window[None, :]
    return active.tril() if is_causal else active


def sliding_window(num_blocks: int, width: int) -> Tensor:
    """Return a pattern in which each block sees itself and ``width // 2`` neighbours on each side.

    `num_blocks`: number of blocks in a row.
    """
    block = torch.arange(num_blocks)
    return (block[:, None] - block[None, :]).abs() <= width // 2


def random_columns(num_blocks: int, count: int, *, is_causal: bool) -> Tensor:
    """Return a pattern in which each block sees `count` random ones, drawn row by row from Python's `random`.

    `num_blocks`: number of blocks in a row.

    Raises:
        ValueError: a row has too few blocks to draw from, as the first rows of a causal pattern may.
    """
    pools = (row + 1 if is_causal else num_blocks for row in range(num_blocks))
    columns = [random.sample(range(pool), count) for pool in pools]
    active = torch.zeros(num_blocks, num_blocks, dtype=torch.bool)
    return active.scatter_(1, torch.tensor(columns, dtype=torch.int64).view(num_blocks, count), True)


def global_places(starts: Sequence[int], ends: Sequence[int] | None, num_blocks: int) -> list[slice]:
    """Return the ranges [start, end) of global blocks that begin within `num_blocks`; single blocks if `ends` is None."""
    if ends is None:
        # -1 is the last block: its end must be None, since 0 would be the start
        return [slice(start, start + 1 or None) for start in starts if start < num_blocks]
    pairs = zip(starts, ends, strict=True)
    return [slice(start, min(end, num_blocks)) for start, end in pairs if start < num_blocks]


def mark(active: Tensor, places: Iterable[slice], *, rows: bool, is_causal: bool = False) -> None:
    """Make the blocks at `places` visible to all blocks, in place.

    Args:
        active: the pattern to modify, bool [blocks, blocks].
        places: ranges of blocks.
        rows: also let the blocks at `places` see all blocks.
        is_causal: make each range visible only to blocks from the start of this range on.
    """
    for place in places:
        active[slice(place.start, None) if is_causal else slice(None), place] = True
        if rows:
            active[place] = True


def check_attention(attention: str, horizontal: bool = False) -> None:
    """Require a known direction of attention; if `horizontal`, require ``"bidirectional"``."""
    if attention not in {"unidirectional", "bidirectional"}:
        raise NotImplementedError('only "uni/bi-directional" attentions are supported for now!')
    if attention != "bidirectional" and horizontal:
        raise ValueError('only "bi-directional" attentions can support horizontal global attention!')


def check_ranges(starts: Sequence[int], ends: Sequence[int] | None) -> None:
    """Require one end for each start, greater than the start."""
    if ends is None:
        return
    if len(starts) != len(ends):
        raise ValueError(
            f"Global block start indices length, {len(starts)}, must be same as global block end indices length,"
            f" {len(ends)}!"
        )
    for start, end in zip(starts, ends, strict=True):
        if start >= end:
            raise ValueError(f"Global block start index, {start}, must be smaller than global block end index, {end}!")


def check_count(what: str, count: int, num_blocks: int) -> None:
    """Require at least `count` blocks in a row of `num_blocks`; `what` names them in the error."""
    if num_blocks < count:
        raise ValueError(
            f"Number of {what}, {count}, must be smaller than overall number of blocks in a row, {num_blocks}!"
        )


def check_field(name: str, kind: str, value: object) -> None:
    """Require that a pattern's field `name` has its annotated type `kind`, if that is one of the types known here."""
    if kind == "int":
        check_int(name, value)
    elif kind == "bool":
        check_flags(**{name: value})
    elif kind == "str" and not isinstance(value, str):
        refuse_type(name, "a str", type(value).__name__)
    elif kind.startswith("Sequence[int]") and not (value is None and kind.endswith("None")):
        if not isinstance(value, Sequence) or isinstance(value, str):
            refuse_type(name, "a sequence of ints", type(value).__name__)
        for number in value:
            check_int(name, number)
