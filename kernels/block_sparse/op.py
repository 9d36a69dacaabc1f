"""``block_sparse_softmax`` and its gradient: validation, conversion of masks, and launches.

The torch operators of the namespace ``nojit`` take a layout as look-up tables and sizes, so that torch can trace them;
the functions of this module take the `BlockLayout` itself.
"""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from nojit.kernels import library
from nojit.kernels.arguments import check_flags, check_like, check_number, check_shape
from nojit.kernels.block_sparse.checks import check_bias, check_mask, check_sparse, check_writable
from nojit.kernels.block_sparse.layout import BlockLayout
from nojit.kernels.dispatch import autocasts, is_plain, shown
from nojit.kernels.memos import DIRECT, Caller, Recording
from torch import Tensor

__all__ = ["block_sparse_softmax", "softmax_backward", "softmax_bwd", "softmax_forward"]

APART_BYTES: Final = 1 << 24
"""Sparse tensors of at least this many bytes get a separate launch for their long rows."""
_LIBRARY: Final = torch.library.Library("nojit", "FRAGMENT")
_TAGS: Final = (torch.Tag.pt2_compliant_tag,)


def block_sparse_softmax(
    x: Tensor,
    layout: BlockLayout,
    *,
    scale: float = 1.0,
    relative_position: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    key_padding_mask_mode: str = "add",
    attention_mask_mode: str = "add",
    is_causal: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Apply softmax to ``x * scale + relative_position + masks`` over the active columns of each row.

    Args:
        x: scores [Z, nnz, block, block] in the layout's order of blocks; fp16, bf16 or fp32, any strides.
        layout: the active blocks.
        scale: factor of x.
        relative_position: a dense bias that broadcasts to [Z, H, M, N], in x's dtype. Autocast casts it and the masks.
        key_padding_mask: [Z, N], in x's dtype or bool.
        attention_mask: [M, N], in x's dtype or bool.
        key_padding_mask_mode: ``"add"`` adds the mask to the scores. ``"mul"`` masks the positions where it is 0 and
            leaves the others unchanged (it never multiplies). A bool mask, True for visible positions, needs ``"mul"``.
        attention_mask_mode: ``"add"`` or ``"mul"`` in the same way, for `attention_mask`.
        is_causal: mask column n of row m if n > m.
        inplace: overwrite x with the result, and return x.

    Returns:
        The probabilities, with x's shape and dtype, contiguous; or x itself if `inplace`. A fully masked row gives 0.
        Differentiable in x and in `relative_position`.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or mode.
    """
    words = (scale, key_padding_mask_mode, attention_mask_mode, is_causal)
    if inplace is False and type(layout) is BlockLayout and not torch.compiler.is_dynamo_compiling():
        terms = (relative_position, key_padding_mask, attention_mask)
        known: Tensor | None = layout.softmaxes(x, *terms, library.CURRENT.source, *words)
        if known is not None:
            return known
    if not bool is type(is_causal) is type(inplace):
        check_flags(is_causal=is_causal, inplace=inplace)  # type: ignore[unreachable]  # untyped callers
    factor = check_number("scale", scale)
    heads = check_sparse(x, layout, bias=relative_position)
    size = (x.shape[0], heads, *layout.shape)
    rpe = check_bias(relative_position, x, size)
    kpm = check_mask("key_padding_mask", key_padding_mask, key_padding_mask_mode, x, (size[0], size[3]), "Z, N")
    am = check_mask("attention_mask", attention_mask, attention_mask_mode, x, size[2:], "M, N")
    tables = layout.for_heads(heads).tables(x.device)
    spans, columns = shown((tables.spans, tables.columns), x)
    multiplies = key_padding_mask_mode == "mul", attention_mask_mode == "mul"
    arguments = (spans, columns, tables.sizes, factor, rpe, kpm, am, *multiplies, is_causal)
    if inplace:
        check_writable(x)
        in_place: Tensor = _InPlace.apply(x, *arguments)
        return in_place
    if not is_plain(x, rpe, kpm, am):
        result: Tensor = _softmax_op(x, *arguments)
        return result
    if autocasts() or kpm is not key_padding_mask or am is not attention_mask:
        return softmax_forward(x, *arguments)
    recording = Recording(x, relative_position, kpm, am)
    out = _record(recording, rpe, arguments)
    layout.softmaxes.remember(recording.recipe(out), x, relative_position, kpm, am, recording.source, *words)
    return out


def softmax_bwd(y: Tensor, dy: Tensor, scale: float, layout: BlockLayout) -> Tensor:
    """Compute the gradient by x of `block_sparse_softmax`: ``y * (dy - sum(y * dy)) * scale``.

    Args:
        y: the probabilities [Z, nnz, block, block] that `block_sparse_softmax` returned; any strides.
        dy: the gradient by `y`, of the same shape, dtype and device; any strides, 0 included. It is not overwritten.
        scale: the scale that `block_sparse_softmax` had.
        layout: the active blocks.

    Returns:
        The gradient [Z, nnz, block, block], contiguous.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape.
    """
    factor = check_number("scale", scale)
    heads = check_sparse(y, layout, "y")
    check_like("dy", dy, "y", y)
    tables = layout.for_heads(heads).tables(y.device)
    spans, columns = shown((tables.spans, tables.columns), y)
    run = softmax_backward if is_plain(y, dy) else _softmax_backward_op
    dx, _ = run(y, dy, spans, columns, tables.sizes, factor, False)
    result: Tensor = dx
    return result


def _strides(value: Tensor | None, count: int) -> tuple[int, ...]:
    """Return the strides of an optional tensor with `count` dimensions.

    For None they are 0, and 1 for the last: values that satisfy every hint of a variant.
    """
    return (*(0,) * (count - 1), 1) if value is None else tuple(value.stride())


def _record(recording: Recording, rpe: Tensor | None, arguments: tuple[Any, ...]) -> Tensor:
    """Compute the softmax of a new call and record its launches for replays; `rpe` is the bias [Z, H, M, N]."""
    x, bias, kpm, am = recording.operands
    spans, columns, *_ = arguments
    recording.constant(spans, columns)
    if bias is not None and rpe is not None:
        rpe = recording.stands(bias.expand(rpe.shape), bias)
    return softmax_forward(x, *arguments[:4], rpe, kpm, am, *arguments[7:], caller=recording)


def _listed(x: Tensor, spans: Tensor, sizes: Sequence[int]) -> Iterator[tuple[Tensor, int, tuple[int, ...]]]:
    """Yield the launches for a sparse tensor: one, or two if its long block rows get a launch of their own.

    They get one if the tensor has at least `APART_BYTES` bytes and the best tile for them differs from that for other
    rows.

    Yields:
        Block rows to process (rows of `spans`), the number of long ones among them, and the kernel's size arguments.
    """
    block, rows, _, longest, long, blocks, next_longest = sizes
    is_large = library.is_batch_invariant() or x.numel() * x.element_size() >= APART_BYTES
    if long and is_large and (longest - 1).bit_length() > (next_longest - 1).bit_length():
        yield spans[:long], 0, (long, rows, block, blocks, longest)
        yield spans[long:], 0, (len(spans) - long, rows, block, x.shape[1] - blocks, next_longest)
    else:
        yield spans, long, (len(spans), rows, block, x.shape[1], longest)


def _launch_forward(
    x: Tensor,
    out: Tensor,
    spans: Tensor,
    columns: Tensor,
    sizes: Sequence[int],
    scale: float,
    rpe: Tensor | None,
    kpm: Tensor | None,
    am: Tensor | None,
    kpm_multiplies: bool,
    am_multiplies: bool,
    is_causal: bool,
    *,
    caller: Caller = DIRECT,
) -> None:
    if not x.numel():
        return
    for listed, long_rows, numbers in _listed(x, spans, sizes):
        caller.constant(listed)
        caller.launch(
            "block_sparse_softmax_fwd",
            x, out, listed, columns, long_rows, rpe, kpm, am, scale, int(kpm_multiplies), int(am_multiplies),
            x.shape[0], *numbers,
            *x.stride(), *out.stride(), *_strides(rpe, 4), *_strides(kpm, 2), *_strides(am, 2),
            CAUSAL=bool(is_causal),
        )  # fmt: skip


def softmax_forward(
    x: Tensor,
    spans: Tensor,
    columns: Tensor,
    sizes: Sequence[int],
    scale: float,
    *terms: Any,
    caller: Caller = DIRECT,
) -> Tensor:
    """Compute the softmax of validated arguments into a new tensor.

    Args:
        x: scores [Z, nnz, block, block].
        spans: table `Tables.spans`.
        columns: table `Tables.columns`.
        sizes: the fields of `RowSizes`.
        scale: factor of x.
        terms: bias, masks, their modes, and whether the call is causal.
        caller: launches the kernels.
    """
    out = caller.make(Tensor.new_empty, x, *x.shape)
    _launch_forward(x, out, spans, columns, sizes, scale, *terms, caller=caller)
    return out


def _softmax_(x: Tensor, spans: Tensor, columns: Tensor, sizes: Sequence[int], scale: float, *terms: Any) -> None:
    _launch_forward(x, x, spans, columns, sizes, scale, *terms)


def softmax_backward(
    y: Tensor,
    dy: Tensor,
    spans: Tensor,
    columns: Tensor,
    sizes: Sequence[int],
    scale: float,
    wants_bias: bool,
) -> tuple[Tensor, Tensor]:
    """Compute the gradient by the scores, and that by the bias if `wants_bias`; `sizes` are the fields of `RowSizes`."""
    check_like("dy", dy, "y", y)
    check_shape("dy", dy, y.shape, "Z, nnz, block, block")
    dx, drpe = _allocate_gradients(y, spans, sizes, wants_bias)
    bias = drpe if wants_bias else None
    if y.numel():
        for listed, long_rows, numbers in _listed(y, spans, sizes):
            library.get("block_sparse_softmax_bwd")(
                y, dy, dx, bias, listed, columns, long_rows, scale, y.shape[0], *numbers,
                *y.stride(), *dy.stride(), *dx.stride(), *_strides(bias, 4),
            )  # fmt: skip
    return dx, drpe


def _allocate_gradients(y: Tensor, spans: Tensor, sizes: Sequence[int], wants_bias: bool) -> tuple[Tensor, Tensor]:
    """Allocate dx and, if `wants_bias`, a zeroed gradient of the dense bias [Z, H, M, N], or else an empty tensor."""
    block, rows, cols, *_ = sizes
    heads = spans.shape[0] // rows if rows else 0
    dense = (y.shape[0], heads, rows * block, cols * block)
    return torch.empty_like(y, memory_format=torch.contiguous_format), y.new_zeros(dense if wants_bias else (0,))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    spans, columns, sizes, scale, bias = inputs[1:6]
    ctx.bias_shape = None if bias is None else bias.shape
    ctx.save_for_backward(output, spans, columns)
    ctx.numbers = (sizes, scale)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    y, spans, columns = ctx.saved_tensors
    wants_bias = ctx.needs_input_grad[5]
    dx, drpe = _softmax_backward_op(y, grad, spans, columns, *ctx.numbers, wants_bias)
    # the tables of a layout without rows do not contain the number of heads
    dbias = drpe.view(ctx.bias_shape) if wants_bias else None
    return (dx, *(None,) * 4, dbias, *(None,) * 5)


def _refuse_double_backward(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("block_sparse_softmax has no second derivative: do not pass create_graph=True")


class _InPlace(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    """Autograd function of the in-place softmax: torch's operators that mutate an input cannot have a gradient formula."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *arguments: Any) -> Tensor:
        _softmax_in_place_op(x, *arguments)
        ctx.mark_dirty(x)
        _save(ctx, (x, *arguments), x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(ctx, grad)


_LAYOUT: Final = "Tensor spans, Tensor columns, SymInt[] sizes, float scale"
_TERMS: Final = (
    "Tensor? relative_position, Tensor? key_padding_mask, Tensor? attention_mask, bool key_padding_mask_multiplies,"
    " bool attention_mask_multiplies, bool is_causal"
)
_LIBRARY.define(f"block_sparse_softmax(Tensor x, {_LAYOUT}, {_TERMS}) -> Tensor", tags=_TAGS)
_LIBRARY.define(f"block_sparse_softmax_(Tensor(a!) x, {_LAYOUT}, {_TERMS}) -> ()", tags=_TAGS)
_LIBRARY.define(
    f"block_sparse_softmax_backward(Tensor y, Tensor dy, {_LAYOUT}, bool wants_bias) -> (Tensor, Tensor)", tags=_TAGS
)
_LIBRARY.impl("block_sparse_softmax", softmax_forward, "CompositeExplicitAutograd")
_LIBRARY.impl("block_sparse_softmax_", _softmax_, "CompositeExplicitAutograd")
_LIBRARY.impl("block_sparse_softmax_backward", softmax_backward, "CompositeExplicitAutograd")


def _fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake_in_place(x: Tensor, *_: Any) -> None:
    del x


def _fake_backward(
    y: Tensor, dy: Tensor, spans: Tensor, columns: Tensor, sizes: Sequence[int], scale: float, wants_bias: bool
) -> tuple[Tensor, Tensor]:
    del dy, columns, scale
    return _allocate_gradients(y, spans, sizes, wants_bias)


torch.library.register_fake("nojit::block_sparse_softmax", _fake, lib=_LIBRARY)
torch.library.register_fake("nojit::block_sparse_softmax_", _fake_in_place, lib=_LIBRARY)
torch.library.register_fake("nojit::block_sparse_softmax_backward", _fake_backward, lib=_LIBRARY)
torch.library.register_autograd("nojit::block_sparse_softmax", _backward, setup_context=_save, lib=_LIBRARY)
torch.library.register_autograd("nojit::block_sparse_softmax_backward", _refuse_double_backward, lib=_LIBRARY)
_softmax_op = torch.ops.nojit.block_sparse_softmax.default
_softmax_in_place_op = torch.ops.nojit.block_sparse_softmax_.default
_softmax_backward_op = torch.ops.nojit.block_sparse_softmax_backward.default
