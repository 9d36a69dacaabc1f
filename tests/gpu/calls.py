"""Calls of every operator that ships: made on a device, with the exact result (fp64) and torch's own beside them.

Together they reach every variant of the manifests: each dtype and case, operands that keep every hint and operands
that keep none, sizes that divide nothing, sizes past 2^31 elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from nojit.kernels.block_sparse import reference as block_sparse_reference
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.block_sparse.softmax.op import block_sparse_softmax
from nojit.kernels.pointwise import op as pointwise
from nojit.kernels.pointwise import reference as pointwise_reference
from torch import Tensor

from tests.gpu.attention_calls import attention_calls, attention_gradient_calls
from tests.gpu.call import DTYPES, Call, Outputs, view
from tests.gpu.norm_calls import norm_calls
from tests.gpu.pointwise_calls import generated_calls, huge_rectangle_calls

# -- pointwise -------------------------------------------------------------------------------------------------------

_UNARY: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor]]] = {
    "gelu none": (pointwise.gelu, pointwise_reference.gelu, torch.nn.functional.gelu),
    "gelu tanh": (
        lambda x: pointwise.gelu(x, "tanh"),
        lambda x: pointwise_reference.gelu(x, "tanh"),
        lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    ),
    "silu": (pointwise.silu, pointwise_reference.silu, torch.nn.functional.silu),
}
_BINARY: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor]]] = {
    "vector_add": (pointwise.vector_add, pointwise_reference.vector_add, torch.add),
    "swiglu": (pointwise.swiglu, pointwise_reference.swiglu, lambda gate, up: torch.nn.functional.silu(gate) * up),
}


def pointwise_calls() -> Iterator[Call]:
    for (name, functions), dtype in itertools.product((_UNARY | _BINARY).items(), DTYPES):
        count = 2 if name in _BINARY else 1
        for size, offset in (((1,), 0), ((1 << 20,), 0), ((1_000_003,), 0), ((1_000_003,), 1), ((3, 7, 41), 3)):
            yield _pointwise_call(name, functions, dtype, size, offset, count)


def huge_pointwise_calls() -> Iterator[Call]:
    """Past 2^31 elements, aligned and not: only an i64 size serves them. Compared where 32 bits would wrap."""
    for (name, (ours, exact, torchs)), dtype in itertools.product((_UNARY | _BINARY).items(), DTYPES):
        for extra, offset in ((16, 0), (3, 1)):
            size, count = (1 << 31) + extra, 2 if name in _BINARY else 1
            part = slice(size - 100_000, size)

            def inputs(dtype=dtype, size=size, offset=offset, count=count) -> list[Tensor]:
                return [view((size,), dtype, seed, offset=offset) for seed in range(count)]

            yield Call(
                f"{name} {str(dtype)[6:]} {size} offset {offset}",
                lambda ours=ours, inputs=inputs, part=part: (ours(*inputs())[part].clone(),),
                lambda exact=exact, inputs=inputs, part=part: (exact(*(x[part].double() for x in inputs())),),
                lambda torchs=torchs, inputs=inputs, part=part: (torchs(*(x[part].clone() for x in inputs())),),
                (2.0,),
            )

    yield from huge_rectangle_calls()


def _pointwise_call(name, functions, dtype, size, offset, count) -> Call:  # noqa: PLR0917 - a case has six facts
    ours, exact, torchs = functions

    def inputs() -> list[Tensor]:
        return [view(size, dtype, seed, offset=offset) for seed in range(count)]

    return Call(
        f"{name} {str(dtype)[6:]} {size} offset {offset}",
        lambda: (ours(*inputs()),),
        lambda: (exact(*(x.double() for x in inputs())),),
        lambda: (torchs(*inputs()),),
        (2.0,),
    )


# -- block-sparse softmax --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sparse:
    rows: int
    cols: int
    block: int
    density: float
    offset: int
    terms: tuple[bool, bool, bool]
    """Whether a dense bias, a key padding mask and an attention mask are given."""
    mode: str = "add"
    causal: bool = False
    masks: str = "normal"
    """What masks hold: random numbers, -inf or -10,000 at places and in a whole row, or bools."""
    expanded: bool = False
    """Whether the gradient that comes in repeats one number in each block."""
    wanted: str = "all"
    """Whose gradients are asked for: ``"x"``, ``"bias"``, or those of all that is given."""


def sparse_calls() -> Iterator[Call]:
    terms_given = itertools.product((False, True), repeat=3)
    for dtype, terms, offset, causal in itertools.product(DTYPES, terms_given, (0, 1), (False, True)):
        # rows of 256, 1,024, 4,096 and more elements: one config each
        for rows, cols, block in ((8, 8, 16), (5, 31, 32), (6, 30, 128), (3, 48, 128)):
            yield _sparse_call(dtype, _Sparse(rows, cols, block, 0.8, offset, terms, causal=causal))
    for dtype in DTYPES:
        yield _sparse_call(dtype, _Sparse(9, 9, 64, 0.4, 0, (True, True, True), mode="mul", causal=True))
        yield _sparse_call(dtype, _Sparse(2, 600, 64, 0.97, 0, (False, False, False)))
    yield from _unusual_sparse_calls()


def _unusual_sparse_calls() -> Iterator[Call]:
    """Mask as models do, and differentiate as programs do: by sums, and of one operand."""
    # rows that a tile holds, and rows that are read twice
    for dtype, sizes in itertools.product(DTYPES, ((5, 31, 32), (2, 600, 64))):
        for masks, mode in (("-inf", "add"), ("-1e4", "add"), ("bool", "mul")):
            bias = masks != "bool" and sizes[0] == 5
            yield _sparse_call(dtype, _Sparse(*sizes, 0.8, 0, (bias, True, True), mode, masks=masks))
            yield _sparse_call(dtype, _Sparse(*sizes, 0.8, 1, (False, True, False), mode, masks=masks))
            yield _sparse_call(dtype, _Sparse(*sizes, 0.8, 0, (False, False, True), mode, causal=True, masks=masks))
    for dtype, wanted in itertools.product(DTYPES, ("all", "x", "bias")):
        yield _sparse_call(dtype, _Sparse(5, 31, 32, 0.8, 0, (True, True, False), expanded=True, wanted=wanted))
        if wanted != "all":
            yield _sparse_call(dtype, _Sparse(8, 8, 16, 0.8, 0, (True, False, True), wanted=wanted))


def _sparse_call(dtype: torch.dtype, case: _Sparse) -> Call:
    batch, heads = 2, 3
    chance = torch.Generator().manual_seed(case.rows * 1009 + case.cols)
    active = torch.rand(heads, case.rows, case.cols, generator=chance) < case.density
    # an empty row, an empty column and an empty head
    active[0, 0], active[:, :, -1], active[-1] = False, False, False
    layout = BlockLayout(active, case.block)
    m, n = case.rows * case.block, case.cols * case.block

    def inputs() -> tuple[Tensor, Tensor, dict[str, object]]:
        shape = (batch, layout.nnz, case.block, case.block)
        x = view(shape, dtype, 1, offset=case.offset)
        dy = view((batch, layout.nnz, 1, 1) if case.expanded else shape, dtype, 2, offset=case.offset).expand(shape)
        masks = {
            "relative_position": view((batch, heads, m, n), dtype, 3, offset=case.offset),
            "key_padding_mask": _filled(view((batch, n), dtype, 4, offset=case.offset), case),
            "attention_mask": _filled(view((m, n), dtype, 5, offset=case.offset), case),
        }
        given: dict[str, object] = {
            name: mask for (name, mask), there in zip(masks.items(), case.terms, strict=True) if there
        }
        given |= {"key_padding_mask_mode": case.mode, "attention_mask_mode": case.mode, "is_causal": case.causal}
        return x, dy, given | {"scale": 0.125}

    def both(function: Callable[..., Tensor], wide: torch.dtype | None) -> Outputs:
        """Return the output and the gradients of x and, where it is given, of the bias."""
        x, dy, given = inputs()
        given = {k: v.to(wide) if wide and isinstance(v, Tensor) else v for k, v in given.items()}
        x, dy = (x.to(wide), dy.to(wide)) if wide else (x, dy)
        sources = [] if case.wanted == "bias" else [x.requires_grad_()]
        if isinstance(bias := given.get("relative_position"), Tensor) and case.wanted != "x":
            sources.append(bias.requires_grad_())
        y = function(x, layout, **given)
        return (y.detach(), *torch.autograd.grad(y, sources, dy))

    gradients = 2 if case.terms[0] and case.wanted == "all" else 1
    return Call(
        f"block_sparse_softmax {str(dtype)[6:]} {case}",
        lambda: both(block_sparse_softmax, None),
        lambda: both(block_sparse_reference.block_sparse_softmax, torch.float64),
        # torch has no such operator: its eager operators over dense matrices, in the same precision
        lambda: both(block_sparse_reference.block_sparse_softmax, None),
        (2.0,) + (3.0,) * gradients,
    )


def _filled(mask: Tensor, case: _Sparse) -> Tensor:
    """Make a mask of random numbers, in place, what the case says; the second of its rows hides all."""
    if case.masks in {"-inf", "-1e4"}:
        mask.masked_fill_(mask < -1, float(case.masks))
        mask[1] = float(case.masks)
        return mask
    if case.mode != "mul":
        return mask
    seen = mask > -1
    if case.masks == "bool":
        seen[1] = False
        return seen
    return mask.copy_(seen)


def all_calls() -> Iterator[Call]:
    yield from pointwise_calls()
    yield from generated_calls()
    yield from attention_calls()
    yield from attention_gradient_calls()
    yield from sparse_calls()
    yield from norm_calls()
