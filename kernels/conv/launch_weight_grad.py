"""Launch weight gradients with the fastest kernel, over the input as it is or an unfolded copy."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from nojit.kernels import library
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.tensor_maps import processors
from nojit.kernels.conv import sweeps
from nojit.kernels.conv.launch_few_weight_grad import few_boxes, launch_few_weight_grad, runs_few_weight_grad
from nojit.kernels.conv.launch_merge import MERGE
from nojit.kernels.conv.launch_pointers import Sum, launch_weight_product
from nojit.kernels.conv.launch_sm90 import ROWS, Boxes, result_boxes
from nojit.kernels.conv.launch_sm90_weight_grad import (
    HALO,
    launch_mapped_weight_grad,
    runs_mapped_weight_grad,
    weight_strips,
)
from nojit.kernels.conv.launch_unfold import COPY_BYTES, VECTOR, VectorInput, own_form, unfold, unfolded_form
from nojit.kernels.conv.layouts import is_described, is_half
from nojit.kernels.conv.plan_costs import Plan, moving, plans, unfolding
from nojit.kernels.conv.weight_grad_costs import BOX, FEW, MAPPED, REORDERED, STRIPS
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
    source: VectorInput | None
    """The form of the input; None for groups."""
    unfolds: bool
    strips: Boxes | None = None
    """Boxes one position high, for the halo kernel; None for another."""


def launch_fast_weight_grad(writer: RecipeWriter, one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> bool:
    """Launch the gradient of `one` by its weight with the fastest kernel that copies vectors or boxes; return whether one can run it.

    `writer`: allocates and launches, and records both for replays.
    """
    if _is_product(one, grad) and launch_weight_product(writer, one, grad, x, out):
        return True
    ways = list(_ways(one, grad, x, out))
    if not ways:
        return False
    _launch_way(min(ways, key=lambda way: way.plan.ns), writer, one, grad, x, out)
    return True


def _launch_way(way: _Way, writer: RecipeWriter, one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> None:
    """Launch the gradient of `one` by its weight in a way that `_ways` listed."""
    source, tiling = way.source, Tiling(way.plan.rows, way.plan.cols, way.plan.parts)
    together = 1
    if source is not None and way.unfolds:
        x = unfold(writer, one, source, x)
    if source is not None and way.is_few:
        launch_few_weight_grad(writer, one, source, grad, x, out, tiling)
        return
    if source is not None and way.unfolds:
        one, x, together = source.over(one), writer.make(torch.movedim, x, -1, 1), source.together
    launch_mapped_weight_grad(writer, one, together, grad, x, out, tiling, way.strips)


def _is_product(one: Sum, grad: Tensor) -> bool:
    """Return whether a dense product is fast: its parts of K are few enough for many positions, or its tiles are many."""
    if one.n_len < ROWS and one.c_len < ROWS:
        return False
    tiles = -(-one.n_len // TILE) * -(-one.c_len // TILE)
    return one.positions <= SHORT or tiles * MOST_PARTS >= processors(grad)


def _ways(one: Sum, grad: Tensor, x: Tensor, out: Tensor) -> Iterator[_Way]:
    """List the kernels that can run the gradient of `one` by its weight."""
    as_it_is = is_described(x) and one.c_len % VECTOR == 0
    if as_it_is and runs_mapped_weight_grad(one, grad, x, out):
        yield from _mapped(one, one, None, grad, unfolds=False)
    if one.groups > 1 or not is_half(x) or not one.positions or not one.depth:
        return
    if as_it_is:
        yield from _few(one, own_form(one, x), grad, out, unfolds=False)
    for padded in (VECTOR, ROWS):
        source = unfolded_form(one, padded)
        if (source.together == 1 and as_it_is) or source.copied_bytes(one) > (COPY_BYTES if as_it_is else math.inf):
            continue
        if max(one.batch * math.prod(one.sweep.source[:2]) * source.width, out.numel()) > sweeps.LIMIT:
            continue
        if padded == VECTOR:
            yield from _few(one, source, grad, out, unfolds=True)
        # parts of an unfolded input have the weight's taps in another order, so they need a kernel that merges them
        elif runs_mapped_weight_grad(source.over(one), grad, None, out) and library.has(MERGE):
            yield from _mapped(one, source.over(one), source, grad, unfolds=True)


def _moved(one: Sum, grad: Tensor, source: VectorInput | None, *, unfolds: bool) -> tuple[float, float]:
    """Return the time to move operands and result once, and the time to unfold and to put the result in order."""
    read = one.batch * one.groups * one.c_len * math.prod(one.sweep.source)
    written = one.groups * one.n_len * one.depth
    moved = moving(grad.numel() + read + written, grad.element_size())
    if source is None or not unfolds:
        return moved, 0.0
    return moved, unfolding(moving(source.copied_bytes(one), 1)) + REORDERED * written


def _work(rows: int, cols: int, boxes: int, moved: float, processors: int) -> Work:
    """Return a product of `rows` by `cols` over `boxes` of positions, as the estimates see it."""
    return Work((1, rows, cols, BOX * boxes), processors, BOX, moved, (False, False))


def _few(one: Sum, source: VectorInput, grad: Tensor, out: Tensor, *, unfolds: bool) -> Iterator[_Way]:
    if not runs_few_weight_grad(one, source, grad, out):
        return
    rows = one.sweep.taps[1] * source.taps * source.channels
    moved, more = _moved(one, grad, source, unfolds=unfolds)
    boxes = few_boxes(one).rows // ROWS
    for plan in plans(FEW, _work(rows, one.n_len, boxes, moved, processors(grad)), merges=unfolds, more=more):
        yield _Way(plan, is_few=True, source=source, unfolds=unfolds)


def _mapped(one: Sum, its: Sum, source: VectorInput | None, grad: Tensor, *, unfolds: bool) -> Iterator[_Way]:
    """List the ways of the sm_90 kernels; `its`: the sum over the input in the form `source`."""
    taps = math.prod(its.sweep.taps)
    moved, more = _moved(one, grad, source, unfolds=unfolds)

    def work(wide: int, boxes: int) -> Work:
        """Return the product over `boxes` whose input channels are padded to multiples of `wide`."""
        cols = taps * -(-its.c_len // wide) * wide
        return _work(one.groups * one.n_len, cols, boxes, moved, processors(grad))

    whole = work(ROWS, result_boxes(its).rows // ROWS)
    # narrow weights fill no wide tile, and the manifest builds none for them
    tiles = [tile for tile in MAPPED if tile.rows == ROWS or (one.n_len > ROWS and 2 * whole.sizes[2] > tile.cols)]
    for plan in plans(tiles, whole, merges=unfolds, more=more):
        yield _Way(plan, is_few=False, source=source, unfolds=unfolds)
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
            yield _Way(plan, is_few=False, source=source, unfolds=unfolds, strips=strips)
