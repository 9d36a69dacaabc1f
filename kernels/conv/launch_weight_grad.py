"""Launch weight gradients with the fastest kernel, over the input as it is or an unfolded copy."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import torch
from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter, new_contiguous
from nojit.kernels.calls.tensor_maps import MAP_BYTES, processors
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_few_weight_grad import few_boxes, launch_few_weight_grad, runs_few_weight_grad
from nojit.kernels.conv.launch_merge import MERGE, merge_rows, merge_taps
from nojit.kernels.conv.launch_pointers import Sum, launch_weight_product
from nojit.kernels.conv.launch_sm90 import ROWS, result_boxes
from nojit.kernels.conv.launch_sm90_weight_grad import (
    HALO,
    launch_mapped_weight_grad,
    runs_mapped_weight_grad,
    weight_strips,
)
from nojit.kernels.conv.launch_unfold import VECTOR, Chunk, VectorInput, chunks_of, own_form, unfolded, unfolded_form
from nojit.kernels.conv.layouts import is_described, is_half, merged, strides_of
from nojit.kernels.conv.plan_costs import Plan, moving, plans, unfolding
from nojit.kernels.conv.weight_grad_costs import BOX, FEW, MAPPED, REORDERED, STRIPS
from nojit.kernels.products.splits import padded_width
from nojit.kernels.products.tile_costs import Tiling, Work, straddling
from torch import Tensor

__all__ = ["launch_fast_weight_grad"]

TILE: Final = 128
MOST_PARTS: Final = 16
"""The most parts of K of dense products."""
SHORT: Final = 1 << 14
"""Positions for which they suffice in any case."""


class _Way(NamedTuple):
    """A kernel for a weight gradient, and how it runs."""

    plan: Plan
    is_few: bool
    chunks: Sequence[Chunk]
    """The parts that are launched one after the other."""
    unfolds: bool
    has_strips: bool = False
    """Whether the halo kernel runs."""

    @property
    def ns(self) -> float:
        """Estimated time of all launches: the plan's is that of the largest chunk."""
        return self.plan.ns * len(self.chunks)


def launch_fast_weight_grad(writer: RecipeWriter, one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> bool:
    """Launch the gradient of `one` by its weight with the fastest kernel that copies vectors or boxes; return whether one can run it.

    `writer`: allocates and launches, and records both for replays.
    """
    if _is_product(one, grad) and launch_weight_product(writer, one, grad, x, out):
        return True
    ways = list(_ways(one, grad, x, out))
    if not ways:
        return False
    _launch_way(min(ways, key=lambda way: way.ns), writer, one, grad, x, out)
    return True


def _launch_way(way: _Way, writer: RecipeWriter, one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> None:
    """Launch the gradient of `one` by its weight in a way that `_ways` listed, then add up the parts."""
    chunks, tiling = way.chunks, Tiling(way.plan.rows, way.plan.cols, way.plan.parts)
    source = chunks[0].source
    rows, depth, parts = one.groups * one.n_len, source.over(one).depth, len(chunks) * tiling.parts
    in_order = _is_in_order(one, source, out)
    merges = parts > 1 or not in_order
    if merges:
        width = depth if way.is_few else padded_width(depth)
        target = new_contiguous(writer, grad, (parts, rows, width), torch.float32)
    else:
        target = writer.stands(out.as_strided((1, rows, depth), (0, depth, 1)), out)
    launches = unfolded(writer, chunks, x, grad) if way.unfolds else [(chunks[0], x, grad)]
    for number, (each, its_x, its_grad) in enumerate(launches):
        its = target
        if len(chunks) > 1:
            its = writer.make(torch.narrow, target, 0, number * tiling.parts, tiling.parts)
        _launch_chunk(way, writer, each, its_grad, its_x, its, tiling)
    if merges and in_order:
        merge_rows(writer, target, out, depth)
    elif merges:
        merge_taps(writer, target, out, source.together, source.channels)


def _launch_chunk(
    way: _Way, writer: RecipeWriter, each: Chunk, grad: Tensor, x: Tensor, target: Tensor, tiling: Tiling
) -> None:
    """Launch the kernel of `way` for one chunk, over its input and its part of `grad`."""
    if way.is_few:
        launch_few_weight_grad(writer, each.one, each.source, grad, x, target, tiling)
        return
    its = each.source.over(each.one)
    launch_mapped_weight_grad(writer, its, grad, x, target, tiling, weight_strips(its) if way.has_strips else None)


def _is_in_order(one: Sum, source: VectorInput, out: Tensor) -> bool:
    """Return whether the kernels write taps and channels, given the form of the input, in the order of the result."""
    return source.together == 1 and source.channels == one.c_len and _is_dense(one, out)


def _writes(one: Sum, source: VectorInput, out: Tensor) -> bool:
    """Return whether the result can be written: one in another order than the kernels' needs the kernel that merges taps."""
    return _is_in_order(one, source, out) or library.has(MERGE)


def _is_dense(one: Sum, out: Tensor) -> bool:
    """Return whether a row of the result has the taps in order, each with all its channels, and rows follow one another."""
    row, channel, *inner = strides_of(out)
    taps = one.sweep.taps
    in_order = channel == 1 and (math.prod(taps) == 1 or merged(taps, inner) == one.c_len)
    return in_order and row == one.depth and out.data_ptr() % MAP_BYTES == 0


def _is_product(one: Sum, grad: Tensor) -> bool:
    """Return whether a dense product is fast: its parts of K are few enough for many positions, or its tiles are many."""
    if one.n_len < ROWS and one.c_len < ROWS:
        return False
    tiles = -(-one.n_len // TILE) * -(-one.c_len // TILE)
    return one.positions <= SHORT or tiles * MOST_PARTS >= processors(grad)


def _ways(one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> Iterator[_Way]:
    """List the kernels that can run the gradient of `one` by its weight."""
    as_it_is, own = is_described(x) and one.c_len % VECTOR == 0, own_form(one, x)
    whole = Chunk(one, own)
    if as_it_is and _is_dense(one, out) and runs_mapped_weight_grad(one, own, grad):
        yield from _mapped(whole, [whole], grad, unfolds=False)
    if one.groups > 1 or not is_half(x) or not one.positions or not one.depth:
        return
    if as_it_is and runs_few_weight_grad(one, own, grad) and _writes(one, own, out):
        yield from _few(whole, [whole], grad, unfolds=False)
    for padded in (VECTOR, ROWS):
        if as_it_is and unfolded_form(one, padded).together == 1:
            continue
        chunks = chunks_of(one, padded)
        largest = max(chunks, key=lambda each: each.rows)
        if max(out.numel(), largest.rows) > sweeps.LIMIT:
            continue
        runs, ways = (runs_few_weight_grad, _few) if padded == VECTOR else (runs_mapped_weight_grad, _mapped)
        if runs(largest.one, largest.source, grad) and _writes(one, largest.source, out):
            yield from ways(largest, chunks, grad, unfolds=True)


def _moved(one: Sum, source: VectorInput, grad: Tensor, *, unfolds: bool) -> tuple[float, float]:
    """Return the time to move operands and result once, and the time to unfold and to put the result in order."""
    read = one.batch * one.groups * one.c_len * math.prod(one.sweep.source)
    written = one.groups * one.n_len * one.depth
    moved = moving(one.positions * one.groups * one.n_len + read + written, grad.element_size())
    if not unfolds:
        return moved, 0.0
    return moved, unfolding(moving(source.copied_bytes(one), 1)) + REORDERED * written


def _work(rows: int, cols: int, boxes: int, moved: float, processors: int) -> Work:
    """Return a product of `rows` by `cols` over `boxes` of positions, as the estimates see it."""
    return Work((1, rows, cols, BOX * boxes), processors, BOX, moved, (False, False))


def _few(largest: Chunk, chunks: Sequence[Chunk], grad: Tensor, *, unfolds: bool) -> Iterator[_Way]:
    """List the ways of the kernel for few channels."""
    one, source = largest.one, largest.source
    rows = one.sweep.taps[1] * source.taps * source.channels
    moved, more = _moved(one, source, grad, unfolds=unfolds)
    boxes = few_boxes(one).rows // ROWS
    for plan in plans(FEW, _work(rows, one.n_len, boxes, moved, processors(grad)), merges=unfolds, more=more):
        yield _Way(plan, is_few=True, chunks=chunks, unfolds=unfolds)


def _mapped(largest: Chunk, chunks: Sequence[Chunk], grad: Tensor, *, unfolds: bool) -> Iterator[_Way]:
    """List the ways of the sm_90 kernels."""
    one, source = largest.one, largest.source
    its = source.over(one)
    taps = math.prod(its.sweep.taps)
    moved, more = _moved(one, source, grad, unfolds=unfolds)

    def work(wide: int, boxes: int) -> Work:
        """Return the product over `boxes` whose input channels are padded to multiples of `wide`."""
        cols = taps * -(-its.c_len // wide) * wide
        return _work(one.groups * one.n_len, cols, boxes, moved, processors(grad))

    whole = work(ROWS, result_boxes(its).rows // ROWS)
    # narrow weights fill no wide tile, and the manifest builds none for them
    tiles = [tile for tile in MAPPED if tile.rows == ROWS or (one.n_len > ROWS and 2 * whole.sizes[2] > tile.cols)]
    for plan in plans(tiles, whole, merges=unfolds, more=more):
        yield _Way(plan, is_few=False, chunks=chunks, unfolds=unfolds)
    strips = weight_strips(its) if library.is_built(HALO) else None
    if strips is None:
        return
    shared, height = its.sweep.taps[1], its.sweep.out[1]
    # before the first row of a strip, the kernel copies the input of the upper taps alone
    boxes = strips.rows // ROWS // height * (height + shared // 2)
    straddles = straddling(one.n_len, its.c_len, grad.element_size())
    for tile in STRIPS:
        wide, rest = divmod(tile.cols, shared)
        if rest or (wide > ROWS and its.c_len <= ROWS) or (tile.rows > ROWS and one.n_len <= ROWS):
            continue
        for plan in plans([tile], work(wide, boxes)._replace(straddles=straddles), merges=unfolds, more=more):
            yield _Way(plan, is_few=False, chunks=chunks, unfolds=unfolds, has_strips=True)
