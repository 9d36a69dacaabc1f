"""Launch convolutions and input gradients with the kernel, tile and split-K parts of the least estimated time.

A *sum* is a convolution, or one class of an input gradient. On other GPUs than sm_90, and under batch invariance, rules choose the kernel, and the bundle its tile.
"""

# ruff: noqa: PLR0917 - a sum has many facts

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from nojit.kernels import library
from nojit.kernels.bmm.cost import fastest as fastest_product
from nojit.kernels.calls.memos import RecipeWriter
from nojit.kernels.calls.tensor_maps import processors, takes_maps
from nojit.kernels.conv.launch_few import (
    few_depth,
    few_form,
    few_unit,
    is_dense_by_channels,
    is_few,
    is_narrow,
    is_uneven,
    is_unfolded,
    is_unfolded_first,
    launch_few,
)
from nojit.kernels.conv.launch_few_grad import grad_unit, is_few_grad, launch_few_grad, runs_few_grad
from nojit.kernels.conv.launch_pointers import Sum, launch, launch_product
from nojit.kernels.conv.launch_sm90 import (
    launch_boxes,
    launch_mapped,
    launch_strips,
    least_share,
    pixel_of,
    result_boxes,
    runs_mapped,
    strip_boxes,
    strip_rows,
)
from nojit.kernels.conv.launch_unfold import VECTOR, VectorInput
from nojit.kernels.conv.layouts import (
    has_adjacent_channels,
    is_described,
    is_half,
    merged,
    part_of,
    positions_of,
    strides_of,
)
from nojit.kernels.conv.plan_costs import Limit, Plan, moving, plans, unfolding
from nojit.kernels.conv.sum_costs import (
    COPY,
    FEW,
    FEW_DEEP,
    FEW_DEPTHS,
    FEW_GRAD,
    FEW_GRAD_DEEP,
    FEW_ONES,
    MAPPED,
    PARTED,
    PRODUCT,
    PRODUCT_SHARE,
    STEP,
    STRIPS,
    STRIPS_KEPT,
    ZEROS,
)
from nojit.kernels.conv.sweeps import PADDED_DIM, Class, Sweep
from nojit.kernels.products.tile_costs import Tile, Tiling, Work, straddling
from torch import Tensor

__all__ = ["Grad", "Way", "grad_ways", "launch_input_grad", "launch_sum", "launch_way", "ways_of"]

UNEVEN: Final = 16
"""The columns of the tiles of `conv_few_grad` for results whose channels do not fill vectors."""
MANY_STRIPS: Final = 8
"""The manifest gives the halo kernel its wide tile if it has so many tiles for each SM."""
MANY_ROWS: Final = 192
"""The manifest gives `conv_few_grad` its tile of 128 x 16 for so many programs."""
MANY_TILES: Final = 96
"""And that of 128 x 64 for so many."""
KEPT_STEPS: Final = 3
"""The most steps of the halo kernel whose weights stay in shared memory."""
LEAST: Final = min(tile.start + tile.wave + tile.step for tile in (*MAPPED, *PARTED, *STRIPS, STRIPS_KEPT))
"""The least time of a launch for one of several classes; other kernels need a copy first."""
WIDE: Final = 64
ELEMENT_BYTES: Final = 2


class Way(NamedTuple):
    """A kernel for a sum, its tile and split-K parts."""

    ns: float
    """Estimated time."""
    kernel: str
    """The kernel's name, or ``bmm`` for those of dense products."""
    tiling: Tiling


def launch_sum(writer: RecipeWriter, one: Sum, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Launch a sum with the fastest kernel that can run it.

    `writer`: allocates and launches, and records both for replays.
    """
    _launch_sum(_fastest(partial(ways_of, one, x, w, out)), writer, one, x, w, bias, out)


def _fastest(ways: Callable[[Limit], Iterator[Way]], within: float = math.inf) -> Way | None:
    """Return the fastest of the listed ways; None if there is none.

    `within`: ns; if no way is that fast, the result may be another than the fastest, or None.
    """
    best, limit = None, Limit(within)
    for way in ways(limit):
        if best is None or way < best:
            best, limit.ns = way, min(limit.ns, way.ns)
    return best


def _launch_sum(
    way: Way | None, writer: RecipeWriter, one: Sum, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor
) -> None:
    """Launch a sum in its fastest way; None if rules choose."""
    operands = (writer, one, x, w, bias, out)
    if way is not None and launch_way(way, *operands):
        return
    # rows of a matrix that are no multiples of 16 bytes apart are slower than a copy that is padded
    if not is_uneven(x) and not is_narrow(one, x) and launch_product(*operands):
        return
    if is_few(one) and launch_few(*operands):
        return
    if launch_mapped(*operands) or launch_few(*operands) or launch_product(*operands):
        return
    launch(writer, one, x, w, bias, out)


def launch_way(
    way: Way, writer: RecipeWriter, one: Sum, x: Tensor, w: Tensor, bias: Tensor | None, out: Tensor
) -> bool:
    """Launch a sum in a way that `ways_of` listed; return False if it turns out that the way cannot run it."""
    tile = way.tiling[:2]
    match way.kernel:
        case "bmm":
            return launch_product(writer, one, x, w, bias, out)
        case "conv_few":
            return launch_few(writer, one, x, w, bias, out, way.tiling)
        case "conv_halo_sm90":
            boxes = strip_boxes(one)
            if boxes is None:
                return False
            launch_strips(writer, one, boxes, x, w, bias, out)
        case _:
            launch_boxes(writer, one, x, w, bias, out, way.tiling.parts, tile)
    return True


def ways_of(one: Sum, x: Tensor, w: Tensor, out: Tensor, limit: Limit | None = None) -> Iterator[Way]:
    """List the ways to run a sum, with their times; none on GPUs or for layouts for which nobody estimated them.

    Args:
        one: the sum.
        x: the input.
        w: the weight.
        out: the result.
        limit: the least time so far; leaves out slower ways. None lists all.
    """
    if not _is_estimated(x) or not (has_adjacent_channels(x) or _is_unfolded_planes(one, x)):
        return
    moved, divided = moved_by(one), pixel_of(one, out) is not None
    if one.sweep.is_pointwise and one.groups == 1 and not one.is_part and is_described(x) and is_described(out):
        yield _product(one, x, moved)
    source = few_form(one, x, out)
    if runs_mapped(one, x, w, out, takes_maps, least_share(one) if source is None else 0.0):
        yield from _mapped(one, x, w, moved, limit, divided=divided)
    if source is not None:
        yield from _few(one, source, x, w, few_unit(one, out), moved, limit, divided=divided)


def _is_estimated(x: Tensor) -> bool:
    """Return whether sums over x have estimated times: 16 bits on sm_90, where results may depend on the batch, for the bundle's tiles."""
    return (
        is_half(x) and takes_maps(x) and not library.is_batch_invariant() and library.is_built("conv_sm90", "conv_few")
    )


def _is_unfolded_planes(one: Sum, x: Tensor) -> bool:
    """Return whether x is by planes and unfolded; dense products read planes as they are."""
    is_product = one.sweep.is_pointwise and one.groups == 1 and not is_uneven(x)
    return is_unfolded(x) and not is_product


def moved_by(one: Sum) -> float:
    """Return the time to move operands and result of a sum once."""
    own = one.sweep
    # a strided sum of single positions does not read those between them
    read = math.prod(min(size, out * taps) for size, out, taps in zip(own.source, own.out, own.taps, strict=True))
    count = one.batch * read * one.groups * one.c_len + one.positions * one.groups * one.n_len
    return moving(count + one.groups * one.n_len * one.depth, ELEMENT_BYTES)


def _straddles(one: Sum) -> tuple[bool, bool]:
    """Return whether the positions of input and result straddle sectors of memory."""
    return straddling(one.groups * one.c_len, one.groups * one.n_len, ELEMENT_BYTES)


def _product(one: Sum, x: Tensor, moved: float) -> Way:
    left, right = straddling(one.c_len, one.n_len if one.is_transposed else one.c_len, ELEMENT_BYTES)
    work = Work((1, one.positions, one.n_len, one.c_len), processors(x), STEP, moved, (left, right))
    return Way(PRODUCT + PRODUCT_SHARE * fastest_product(work)[0], "bmm", Tiling(0, 0, 1))


def _mapped(one: Sum, x: Tensor, w: Tensor, moved: float, limit: Limit | None, *, divided: bool) -> Iterator[Way]:
    """List the ways of the sm_90 kernels, which pad the channels of a tap."""
    more = 0.0 if is_described(w) else COPY
    depth = math.prod(one.sweep.taps) * STEP * -(-one.c_len // STEP)

    count, straddles = processors(x), _straddles(one)

    def work(rows: int) -> Work:
        return Work((one.groups, rows, one.n_len, depth), count, STEP, moved, straddles)

    found = plans(MAPPED, work(result_boxes(one).rows), divided=False, more=more, limit=limit)
    yield from (_way("conv_sm90", plan) for plan in found)
    if divided:
        found = plans(PARTED, work(result_boxes(one, 2).rows), more=more, limit=limit)
        yield from (_way("conv_sm90", plan) for plan in found if plan.parts > 1)
    boxes = strip_boxes(one)
    if boxes is not None:
        rows, steps = strip_rows(boxes, one.sweep.out[1]), depth // (STEP * one.sweep.taps[1])
        tile = _strip_tile(one.n_len, rows, steps, count)
        its = work(rows)._replace(sizes=(1, rows, one.n_len, STEP * steps))
        yield Way(its.time(tile) + more, "conv_halo_sm90", Tiling(tile.rows, tile.cols, 1))


def _strip_tile(cols: int, rows: int, steps: int, count: int) -> Tile:
    """Return the tile of the halo kernel, as the manifest chooses it."""
    if cols <= WIDE and steps <= KEPT_STEPS:
        return STRIPS_KEPT
    narrow, wide = STRIPS
    return wide if cols > WIDE and rows >= wide.rows * MANY_STRIPS * count else narrow


def _few(
    one: Sum, source: VectorInput, x: Tensor, w: Tensor, unit: int, moved: float, limit: Limit | None, *, divided: bool
) -> Iterator[Way]:
    """List the ways of the kernel for few channels, which reads an input in the form `source`."""
    more = 0.0
    if is_unfolded_first(one, x):
        more = unfolding(moving(source.copied_bytes(one), 1))
    elif one.is_part or not is_dense_by_channels(w.transpose(0, 1) if one.is_transposed else w):
        more = COPY
    sizes, count, straddles = (1, one.positions, one.n_len, few_depth(one, source)), processors(x), _straddles(one)
    by_depth: dict[int, list[Tile]] = {}
    filling = FEW_DEEP if x.dim() > PADDED_DIM + 2 else FEW
    for tile in filling if unit == VECTOR else FEW_ONES:
        by_depth.setdefault(FEW_DEPTHS.get(tile[:2], STEP), []).append(tile)
    for deep, tiles in by_depth.items():
        work = Work(sizes, count, deep, moved, straddles)
        found = plans(tiles, work, divided=divided, more=more, limit=limit)
        yield from (_way("conv_few", plan) for plan in found)


def _way(kernel: str, plan: Plan) -> Way:
    return Way(plan.ns, kernel, Tiling(plan.rows, plan.cols, plan.parts))


class Grad(NamedTuple):
    """An input gradient: the sums of its classes, and the operands of a launch for all of them."""

    forward: Sweep
    """The sweep of the convolution."""
    classes: Sequence[Class]
    """The classes that have taps."""
    sums: Sequence[Sum]
    """Their sums."""
    zeroed: bool
    """Whether other classes have no taps: their gradient is 0."""


def launch_input_grad(writer: RecipeWriter, all_of: Grad, grad: Tensor, w: Tensor, out: Tensor) -> None:
    """Launch an input gradient in the fastest way: all classes at once, or one after the other.

    Args:
        writer: allocates and launches, and records both for replays.
        all_of: the gradient.
        grad: gradient by the output, [N, O, ...].
        w: weight, [O, C / groups, ...].
        out: gradient by the input, [N, C, ...].
    """
    tiling, ways = None, None
    if _is_estimated(grad):
        ways = _ClassWays(grad, w, out)
        tiling = _faster_together(all_of, ways)
        together = tiling is not None
    else:
        together = is_few_grad(all_of.sums)
    if together and launch_few_grad(writer, all_of.forward, grad, w, out, tiling):
        return
    if all_of.zeroed:
        # an input position that no tap reads has gradient 0
        writer.make(Tensor.zero_, out)
    for each, one in zip(all_of.classes, all_of.sums, strict=True):
        way = None if ways is None else ways.fastest(each, one)
        cut = partial(writer.make, part_of)
        its_w = cut(w, *_spans(w, each.first_tap, each.sweep.taps, each.taps_apart)) if one.is_part else w
        _launch_sum(way, writer, one, grad, its_w, None, _part_of_out(each, one, out, cut))


class _ClassWays:
    """The fastest ways of the classes of an input gradient, each found once for all classes of equal sizes."""

    def __init__(self, grad: Tensor, w: Tensor, out: Tensor) -> None:
        self.grad, self.w, self.out = grad, w, out
        self._known: dict[tuple[object, object], Way | None] = {}

    def fastest(self, each: Class, one: Sum, within: float = math.inf) -> Way | None:
        """Return the fastest way of a class; None if rules choose. `within`: as in `_fastest`."""
        sizes = one.sweep.out, one.sweep.taps
        if sizes not in self._known:
            # a part of the weight is stored as all of it
            its_out = _part_of_out(each, one, self.out, part_of)
            self._known[sizes] = _fastest(partial(ways_of, one, self.grad, self.w, its_out), within)
        return self._known[sizes]


def _faster_together(all_of: Grad, ways: _ClassWays) -> Tiling | None:
    """Return tile and parts for a launch of all classes; None if a launch for each class is faster."""
    if not all_of.sums:
        return None
    classes = list(zip(all_of.classes, all_of.sums, strict=True))
    zeros, apart = float(ZEROS * all_of.zeroed), math.inf
    if len(classes) == 1:
        way = ways.fastest(*classes[0])
        apart = math.inf if way is None else zeros + way.ns
    together = _fastest(partial(grad_ways, all_of, ways.grad, ways.w, ways.out), apart)
    if together is None or len(classes) == 1:
        return None if together is None or together.ns >= apart else together.tiling
    left = together.ns - zeros - LEAST * len(classes)
    for each, one in classes:
        if left <= 0:
            break
        way = ways.fastest(each, one, left + LEAST)
        left -= math.inf if way is None else way.ns - LEAST
    return together.tiling if left <= 0 else None


def _part_of_out(each: Class, one: Sum, out: Tensor, cut: Callable[..., Tensor]) -> Tensor:
    """Return a class's part of the result; `cut`: function that takes a part, as `part_of` does."""
    return cut(out, *_spans(out, each.first, each.sweep.out, each.apart)) if one.is_part else out


def grad_ways(all_of: Grad, grad: Tensor, w: Tensor, out: Tensor, limit: Limit | None = None) -> Iterator[Way]:
    """List the ways to run all classes of an input gradient in one launch, with their times.

    The arguments are those of `launch_input_grad` and `ways_of`.
    """
    forward, channels, unit = all_of.forward, out.shape[1], grad_unit(out)
    if not runs_few_grad(forward, grad, w, out):
        return
    classes = math.prod(forward.mul)
    rows = out.shape[0] * math.prod(-(-size // mul) for size, mul in zip(forward.source, forward.mul, strict=True))
    moved = moving(grad.numel() + out.numel() + w.numel(), ELEMENT_BYTES)
    straddles = straddling(grad.shape[1], channels, ELEMENT_BYTES)
    # classes have different numbers of taps: all have the mean, but take at least the time of the one with the most
    depth = STEP * -(-grad.shape[1] * math.prod(forward.taps) // (STEP * classes))
    most = grad.shape[1] * math.prod(-(-taps // mul) for taps, mul in zip(forward.taps, forward.mul, strict=True))
    work = Work((classes, rows, channels, depth), processors(grad), STEP, moved, straddles)
    longest = work._replace(sizes=(1, rows, channels, most))
    more = 0.0 if unit == VECTOR and is_dense_by_channels(w) else COPY
    divided = merged(positions_of(out), strides_of(out)[2:]) is not None
    tiles = FEW_GRAD_DEEP if out.dim() > PADDED_DIM + 2 else FEW_GRAD
    for tile in tiles:
        if unit == VECTOR or tile.cols == UNEVEN:
            for plan in plans((tile,), work, divided=divided, more=more, limit=limit):
                if unit == 1 or _has_grad_tile(plan, work):
                    alone = longest.time_in_parts(tile, plan.parts) if plan.parts > 1 else longest.time(tile)
                    yield _way("conv_few_grad", plan._replace(ns=max(plan.ns, more + alone)))


def _has_grad_tile(plan: Plan, work: Work) -> bool:
    """Return whether the manifest lets `conv_few_grad` take a tile."""
    batch, rows, cols, _ = work.sizes
    programs = plan.parts * batch * -(-rows // plan.rows) * -(-cols // plan.cols)
    match plan.rows, plan.cols:
        case 128, 16:
            return cols <= plan.cols and programs >= MANY_ROWS
        case 128, 64:
            return programs >= MANY_TILES
        case 64, 32:
            return cols <= plan.cols
    return True


def _spans(value: Tensor, *facts: tuple[int, int, int]) -> tuple[tuple[int, ...], ...]:
    """Return first index, size and step of all dimensions of `value`, given the three tuples for spatial dimensions."""
    first, sizes, apart = (fact[1:] if value.dim() == PADDED_DIM + 2 else fact for fact in facts)
    return (0, 0, *first), (*value.shape[:2], *sizes), (1, 1, *apart)
