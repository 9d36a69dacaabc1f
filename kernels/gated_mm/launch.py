"""Choose the kernels of a validated ``gated_mm`` call, and make their launch arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from nojit.kernels import library
from nojit.kernels.bmm import launch as products
from nojit.kernels.bmm.few_rows import few_rows_of
from nojit.kernels.bmm.product import Product
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.tensor_maps import is_unaligned, processors, takes_maps
from nojit.kernels.gated_mm.cost import FIXED, tile_of
from nojit.kernels.pointwise.op import OPERATORS
from nojit.kernels.products.matrices import Layout, Mapped, described, layout_of, mapped, mapped_product
from torch import Tensor

__all__ = ["GATES", "Gated", "prepare"]

GATES: Final = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu"}
"""The pointwise operator that gates with each activation."""
FUSED: Final = "silu"
"""The activation of both kernels."""
KERNEL: Final = "gated_mm_sm90"
ROW_KERNEL: Final = "gated_mm_row"
"""The kernel of calls whose product is one for `bmm_row`."""
SHALLOW: Final = 128
"""The sm_90 kernel needs a greater K: the first steps of a tile hide the gate of the tile before it."""
PLAIN: Final = (0, 1.0, 0.0)
"""An epilogue that changes nothing."""


class Gated(Protocol):
    """A validated ``gated_mm`` call that is ready to launch."""

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        """Launch the kernels on `a` and `b`; return the result, a new tensor unless `out` is given.

        `caller`: allocates and launches, or also records both for replays.
        """


@dataclass(frozen=True, slots=True)
class _Fused(Gated):
    """One launch of the sm_90 kernel."""

    shape: tuple[int, int]
    """[M, N], the shape of the result."""
    maps: tuple[Mapped, Mapped, Mapped]
    """TMA descriptions of a, b and the result."""
    numbers: dict[str, int]
    """Sizes by the names of the kernel's params."""
    constexprs: dict[str, Any]

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        result = new_contiguous(caller, a, self.shape) if out is None else out
        tensors = described(self.maps, a_map=a, b_map=b, out_map=result)
        caller.launch(KERNEL, **tensors, **self.numbers, **self.constexprs)
        return result


@dataclass(frozen=True, slots=True)
class _Row(Gated):
    """One launch of the kernel for one row."""

    numbers: dict[str, int]
    """Sizes and strides by the names of the kernel's params."""

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        result = new_contiguous(caller, a, (1, self.numbers["n_len"])) if out is None else out
        caller.launch(ROW_KERNEL, a_ptr=a, b_ptr=b, out_ptr=result, **self.numbers)
        return result


@dataclass(frozen=True, slots=True)
class _Apart(Gated):
    """A product, and a pointwise operator on its halves."""

    product: Product
    activation: str

    def __call__(self, a: Tensor, b: Tensor, out: Tensor | None, caller: Caller = DIRECT) -> Tensor:
        cols = b.shape[1] // 2
        result = new_contiguous(caller, a, (a.shape[0], cols)) if out is None else out
        both = self.product(a, b, None, None, PLAIN, caller)
        halves = [caller.make(Tensor.narrow, both, 1, first, cols) for first in (0, cols)]
        OPERATORS[GATES[self.activation]].run_into(halves, "", (), result, caller)
        return result


def prepare(
    a: Tensor, b: Tensor, out: Tensor | None, activation: str, maps_run: Callable[[Tensor], bool] | None = None
) -> Gated:
    """Choose the kernels for a validated call and return their launch arguments.

    Args:
        a: the left operand, [M, K].
        b: the right operand, [K, 2 * N].
        out: where to write the result; None for a new tensor.
        activation: name of the gate's activation.
        maps_run: returns whether sm_90 kernels, which take TMA descriptors, may run on a tensor's device; by default, it
            asks the device.
    """
    chosen: Gated | None = None
    if activation == FUSED and not is_unaligned(a, b) and (maps_run or takes_maps)(a):
        chosen = _one_launch(a, b, out)
    return chosen or _Apart(products.prepare(a, b, None, None, False, maps_run), activation)


def _one_launch(a: Tensor, b: Tensor, out: Tensor | None) -> Gated | None:
    """Return one launch for aligned operands on a device that takes maps; None if two launches pay more."""
    left, right = layout_of(a, 1), layout_of(b, 1)
    few_rows = None if library.is_batch_invariant() else few_rows_of(left, right, processors(a))
    if few_rows is None:
        return _fused(left, right, out, a) if library.has(KERNEL) and not is_unaligned(out) else None
    if len(a) > 1 or not library.has(ROW_KERNEL):
        return None
    cols = b.shape[1] // 2
    stride = 1 if out is None else out.stride(1)
    return _Row({"n_len": cols, "k_len": len(b), "stride_bn": few_rows.strides[1], "stride_on": stride})


def _fused(left: Layout, right: Layout, out: Tensor | None, a: Tensor) -> _Fused | None:
    """Return the launch of the sm_90 kernel; None if it cannot take the operands, or would not pay."""
    (_, rows, depth), cols = left.shape, right.shape[2] // 2
    result = Layout((1, rows, cols), (0, cols, 1)) if out is None else layout_of(out, 1)
    size = a.element_size()
    maps = mapped_product(mapped(left, size, turn=False), mapped(right, size), result, size)
    if maps is None or depth <= SHALLOW:
        return None
    count = processors(a)
    tile = FIXED
    if not library.is_batch_invariant():
        chosen = tile_of(maps[:2], (rows, cols, depth), count)
        if chosen is None:
            return None
        tile = chosen
    block_m, block_n = tile
    numbers = {"m_len": rows, "n_len": cols, "k_len": depth, "programs": count}
    constexprs = {"TRANS_B": maps[1].is_transposed, "BLOCK_M": block_m, "BLOCK_N": block_n}
    return _Fused((rows, cols), maps, numbers, constexprs)
