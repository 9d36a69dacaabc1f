"""Backward pass of flash attention on sm_90 for heads wider than 128: a kernel for keys and values, then one for queries.

The first writes the gradient of the scores to a workspace, which the second reads. The workspace is bounded: heads, and
queries if there are many keys, are processed in parts, one after the other.
"""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from nojit.kernels import library
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.calls.tensor_maps import Described, described, processors
from nojit.kernels.flash_attention.launch_sm90 import mapped_widths
from nojit.kernels.flash_attention.launch_sm90_bwd import GradientMaps, launch_prepare
from torch import Tensor

__all__ = ["Part", "WideWorkspace", "allocate_wide", "launch_dkdv", "launch_dq", "launch_wide_over_maps", "parts_of"]

TILE: Final = 64
"""The queries, and the keys, in a tile."""
SCORE_BYTES: Final = 1 << 28
"""The most bytes of score gradients in the workspace, if that is at least one tile of queries."""
WAVES: Final = 2
"""The least number of programs for each processor; where fewer heads would do, queries are split before heads are."""


class Part(NamedTuple):
    """Ranges of the batch, of key heads and of queries that one launch of each kernel processes."""

    batch: slice
    kv_heads: slice
    queries: slice


class WideWorkspace(NamedTuple):
    """Tensors that one launch writes and a later one reads."""

    statistics: Tensor
    """Fp32 [2, B, H, M padded to tiles]: each query's log-sum in base 2, and its rowsum(out * dout) - dlse."""
    scores: Tensor
    """[heads of a part, N, queries of a part]: the gradient of the scores, in the operands' dtype."""
    sums: Tensor
    """Fp32: the gradients of keys and values so far, if queries are processed in parts; otherwise `statistics`."""


def parts_of(batch: int, kv_heads: int, group: int, q_len: int, kv_len: int, programs: int) -> list[Part]:
    """Split a call so that the gradients of a part's scores fit `SCORE_BYTES`.

    Args:
        batch: the batch size.
        kv_heads: the number of key heads.
        group: the number of query heads for each key head.
        q_len: the number of queries.
        kv_len: the number of keys.
        programs: the number of programs below which a device is not busy.
    """
    rows = -(-q_len // TILE) * TILE
    column = 2 * group * kv_len
    heads = min(max(SCORE_BYTES // (column * rows), 1), batch * kv_heads)
    tiles = -(-kv_len // TILE)
    if heads * tiles < programs:
        heads = min(-(-programs // tiles), batch * kv_heads)
    rows = min(max(SCORE_BYTES // (heads * column) // TILE, 1) * TILE, rows)
    return [
        Part(of_batch, of_heads, slice(start, min(start + rows, q_len)))
        for of_batch, of_heads in _rectangles(batch, kv_heads, heads)
        for start in range(0, q_len, rows)
    ]


def _rectangles(batch: int, kv_heads: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Yield ranges of the batch and of heads with at most `most` heads each, as evenly as possible."""
    tall = _even(batch, max(most // kv_heads, 1))
    wide = _even(kv_heads, min(most, kv_heads))
    for first in range(0, batch, tall):
        for head in range(0, kv_heads, wide):
            yield slice(first, min(first + tall, batch)), slice(head, min(head + wide, kv_heads))


def _even(count: int, most: int) -> int:
    """Return the length of parts, at most `most`, that split `count` evenly."""
    return -(-count // -(-count // most))


def launch_wide_over_maps(
    maps: GradientMaps, out: Tensor, lse: Tensor, dlse: Tensor | None, dq: Tensor, scale: float, mask: BandMask
) -> None:
    """Write the gradients of keys and values, and that of queries unless `dq` is empty; `mask` must have no left bound.

    `maps`: TMA descriptions of operands and gradients; `dlse`: gradient by the log-sums, or None for zero.
    """
    batch, heads, q_len, _ = maps.q.shape
    kv_heads, kv_len = maps.k.shape[1:3]
    parts = parts_of(batch, kv_heads, heads // kv_heads, q_len, kv_len, WAVES * processors(maps.q.base))
    room = allocate_wide(maps, parts)
    launch_prepare(maps, out, lse, dlse, room.statistics, None)
    carried = 0
    for part in parts:
        carried = 0 if part.queries.start == 0 else carried
        seen = _seen(part.queries, q_len, kv_len, mask)
        launch_dkdv(maps, room, part, seen, carried, scale, mask)
        if dq.numel():
            launch_dq(maps, room, part, seen, dq, scale, mask)
        carried = -(-seen // TILE) * TILE


def _seen(queries: slice, q_len: int, kv_len: int, mask: BandMask) -> int:
    """Return how many keys a part's queries may see: at least one, and all in the last part, which writes all gradients."""
    if mask.mode != "causal" or queries.stop == q_len:
        return kv_len
    end: int = queries.stop + mask.right
    return min(max(end, 1), kv_len)


def allocate_wide(maps: GradientMaps, parts: list[Part]) -> WideWorkspace:
    """Allocate the workspace of a call that is processed in `parts`.

    `maps`: TMA descriptions of operands and gradients.
    """
    q = maps.q.base
    batch, heads, q_len, head_dim = q.shape
    _, kv_heads, kv_len, v_dim = maps.v.shape
    of_batch, of_heads, queries = parts[0]
    count = (of_batch.stop - of_batch.start) * (of_heads.stop - of_heads.start)
    statistics = q.new_empty((2, batch, heads, -(-q_len // TILE) * TILE), dtype=torch.float32)
    scores = q.new_empty((count * heads // kv_heads, kv_len, -(-queries.stop // TILE) * TILE))
    if queries.stop == q_len:
        return WideWorkspace(statistics, scores, statistics)
    widths = mapped_widths(head_dim, v_dim)
    sums = count * -(-kv_len // TILE) * TILE * (widths["BLOCK_D"] + widths["BLOCK_DV"])
    return WideWorkspace(statistics, scores, q.new_empty(sums, dtype=torch.float32))


def launch_dkdv(
    maps: GradientMaps, room: WideWorkspace, part: Part, seen: int, carried: int, scale: float, mask: BandMask
) -> None:
    """Launch the kernel for the gradients of keys and values on a part; it writes the gradient of the scores, too.

    Args:
        maps: TMA descriptions of operands and gradients.
        room: the workspace.
        part: what to process.
        seen: the number of keys to process, the first of each head.
        carried: the number of keys of each head for which `room.sums` holds the sums of earlier parts.
        scale: factor of the scores.
        mask: the mask, without a left bound.
    """
    q_len, kv_len = maps.q.shape[2], maps.k.shape[2]
    own, rows = _query_place(maps, part), slice(part.queries.start, -(-part.queries.stop // TILE) * TILE)
    keys = (part.batch, part.kv_heads, slice(0, seen))
    statistics = room.statistics[:, own[0], own[1], rows]
    last = part.queries.stop == q_len
    library.get("flash_attention_bwd_dkdv_sm90")(
        q_map=_box(maps.q, own),
        k_map=_box(maps.k, keys),
        v_map=_box(maps.v, keys),
        dout_map=_box(maps.dout, own),
        stat_map=Described(statistics, statistics.stride()),
        dk_map=_box(maps.dk, keys),
        dv_map=_box(maps.dv, keys),
        ds_map=_scores(maps, room, part, seen),
        sum_ptr=room.sums,
        scale=scale,
        causal_offset=mask.right + part.queries.start,
        **_sizes(maps, part),
        kv_len=seen,
        sum_rows=0 if last and not part.queries.start else -(-kv_len // TILE) * TILE,
        carried=carried,
        is_last=int(last),
        CAUSAL=mask.mode == "causal",
        **mapped_widths(maps.q.shape[3], maps.v.shape[3]),
    )


def launch_dq(
    maps: GradientMaps, room: WideWorkspace, part: Part, seen: int, dq: Tensor, scale: float, mask: BandMask
) -> None:
    """Launch the kernel for the gradient of a part's queries, after `launch_dkdv` with the same arguments.

    `dq`: the gradient of all queries, to write.
    """
    widths = mapped_widths(maps.q.shape[3], maps.v.shape[3])
    own = _query_place(maps, part)
    library.get("flash_attention_bwd_dq_sm90")(
        ds_map=_scores(maps, room, part, seen),
        k_map=_box(maps.k, (part.batch, part.kv_heads, slice(0, seen))),
        dq_map=described(dq[own]),
        scale=scale,
        causal_offset=mask.right + part.queries.start,
        **_sizes(maps, part),
        kv_len=seen,
        CAUSAL=mask.mode == "causal",
        BLOCK_D=widths["BLOCK_D"],
        DEPTH=widths["DEPTH"],
    )


def _query_place(maps: GradientMaps, part: Part) -> tuple[slice, slice, slice]:
    """Return the ranges of a part in tensors of queries: of the batch, of query heads and of queries."""
    group = maps.q.shape[1] // maps.k.shape[1]
    return part.batch, slice(part.kv_heads.start * group, part.kv_heads.stop * group), part.queries


def _sizes(maps: GradientMaps, part: Part) -> dict[str, int]:
    """Return a part's batch size, query heads, query heads for each key head, and queries, by the names of params."""
    batch, heads, queries = _query_place(maps, part)
    return {
        "batch": batch.stop - batch.start,
        "heads": heads.stop - heads.start,
        "group": maps.q.shape[1] // maps.k.shape[1],
        "q_len": queries.stop - queries.start,
    }


def _box(one: Described, place: tuple[slice, ...]) -> Described:
    """Return the TMA description of a part of a described tensor."""
    return Described(one.base[place], one.strides)


def _scores(maps: GradientMaps, room: WideWorkspace, part: Part, seen: int) -> Described:
    """Return the TMA description of the gradient of a part's scores [batch, heads, keys, queries] in the workspace."""
    batch, heads, _, q_len = _sizes(maps, part).values()
    rows = -(-q_len // TILE) * TILE
    value = room.scores[: batch * heads, :seen, :rows].unflatten(0, (batch, heads))
    return Described(value, value.stride())
