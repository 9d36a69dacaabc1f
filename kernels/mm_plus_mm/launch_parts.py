"""Launch arguments of a validated sum of two products on sm_90 in parts: each product writes fp32 sums, and one kernel adds them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from nojit.kernels.bmm.cost import ELEMENT_BYTES, Schedule
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.products.matrices import Mapped, stored
from nojit.kernels.products.splits import copied_rows, padded_width
from torch import Tensor

__all__ = ["TILES", "Parts", "prepare_parts"]

Operands = tuple[Tensor, Tensor, Tensor, Tensor]
"""The matrices a, b, c and d."""
TILES: Final = "bmm_tiles_sm90"
PLAIN: Final = {"activation": 0, "alpha": 1.0, "beta": 0.0}
"""An epilogue that changes nothing."""


class _Product(NamedTuple):
    """Launch arguments of one of the products."""

    maps: tuple[Mapped, Mapped, Mapped]
    """TMA descriptions of both factors and of the sums."""
    first: int
    """Its first part among those of both products."""
    parts: int
    numbers: Mapping[str, float]
    """Numbers by the names of the kernel's params; a product without an epilogue reads no input."""
    constexprs: dict[str, int | bool]


@dataclass(frozen=True, slots=True)
class Parts:
    """A validated ``mm_plus_mm`` call that is ready to launch in parts."""

    shape: tuple[int, int]
    """[M, N], the shape of the result."""
    order: tuple[int, int, int, int]
    """Indices of a, b, c and d in the kernels' order; for a column-major result they compute the transpose."""
    products: tuple[_Product, _Product]
    partial: tuple[int, int, int, int]
    """Shape of the fp32 sums of all parts."""
    merge_numbers: Mapping[str, float]
    """Numbers by the names of the merge kernel's params."""

    def __call__(self, operands: Operands, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch both products and the sum of their parts; return the result, a new tensor unless `out` is given.

        `operands`: the matrices a, b, c and d; `caller`: allocates and launches, or also records both for replays.
        """
        first, result = operands[0], out
        if result is None:
            result = new_contiguous(caller, first, self.shape)
        sums = new_contiguous(caller, first, self.partial, torch.float32)
        left, right, other_left, other_right = (operands[place] for place in self.order)
        for product, a, b in zip(self.products, (left, other_left), (right, other_right), strict=True):
            own = caller.make(Tensor.narrow, sums, 0, product.first, product.parts) if product.first else sums
            of_a, of_b, of_sums = product.maps
            maps = {"a_map": of_a.describe(a), "b_map": of_b.describe(b), "out_map": of_sums.describe(own)}
            caller.launch(TILES, **maps, input_ptr=result, **product.numbers, **product.constexprs)
        caller.launch("bmm_merge", partial_ptr=sums, out_ptr=result, input_ptr=result, **self.merge_numbers)
        return result


def prepare_parts(
    maps: tuple[Mapped, ...], schedules: tuple[Schedule, ...], order: tuple[int, int, int, int], processors: int
) -> Parts:
    """Return the launch arguments of a sum of two products in parts.

    Args:
        maps: TMA descriptions of the operands in the kernels' order, and of the result.
        schedules: tile and parts of K of each product.
        order: indices of a, b, c and d in the kernels' order.
        processors: number of SMs.
    """
    of_out = maps[4]
    _, _, rows, cols = of_out.shape
    first, second = schedules
    products = (
        _product((maps[0], maps[1], of_out), first, 0, processors),
        _product((maps[2], maps[3], of_out), second, first.parts, processors),
    )
    count, width = first.parts + second.parts, padded_width(cols)
    shape = (rows, cols) if order[0] == 0 else (cols, rows)
    strides = (0, of_out.strides[2], 1)
    numbers = {"batch": 1, "m_len": rows, "n_len": cols, "splits": count, "width": width, **PLAIN}
    numbers |= named("stride_c", "zmn", strides) | named("stride_o", "zmn", strides)
    return Parts(shape, order, products, (count, 1, rows, width), numbers)


def _product(maps: tuple[Mapped, Mapped, Mapped], schedule: Schedule, first: int, processors: int) -> _Product:
    of_a, of_b, of_out = maps
    _, _, rows, cols = of_out.shape
    # one part is stored as fp32 sums, too
    of_sums, panel = stored(of_out, ELEMENT_BYTES, 2)
    of_sums = of_sums._replace(shape=(schedule.parts, 1, rows, cols))
    numbers = {
        "batch": 1,
        "m_len": rows,
        "n_len": cols,
        "k_len": of_a.shape[2 if of_a.is_transposed else 3],
        "splits": schedule.parts,
        "a_step": of_a.step,
        "b_step": of_b.step,
        "programs": processors,
        **PLAIN,
        **named("stride_c", "zmn", (0, of_out.strides[2], 1)),
    }
    constexprs = {
        "TRANS_A": of_a.is_transposed,
        "TRANS_B": of_b.is_transposed,
        "PANEL": panel,
        "EPILOGUE": False,
        "ROWS": copied_rows(rows, whole=of_a.is_transposed),
        "BLOCK_M": schedule.rows,
        "BLOCK_N": schedule.cols,
    }
    return _Product((of_a, of_b, of_sums), first, schedule.parts, numbers, constexprs)
