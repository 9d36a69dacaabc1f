"""The flash attention operator: arguments checked, sizes mapped to the kernel's meaning, one launch."""

# ruff: noqa: PLR0917 - torch passes an operator's arguments by position

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final, cast

import torch
from nojit.kernels import library
from nojit.kernels.arguments import (
    check_choice,
    check_dtype,
    check_like,
    check_rank,
    check_shape,
    check_tensor,
    refuse_value,
)
from nojit.kernels.dispatch import is_plain
from torch import Tensor

__all__ = ["flash_attention"]

ALIGNMENTS: Final = ("top_left", "bottom_right")
MAX_HEAD_DIM: Final = 256
MAX_HEAD_DIM_FP32: Final = 128
"""fp32 tiles of wider heads do not fit the registers."""
HOPPER: Final = 9
"""The major compute capability that has a kernel of its own."""
MAX_MAPPED_DIM: Final = 128
"""The widest heads of that kernel."""
MAP_BYTES: Final = 16
"""What tensor maps want addresses and strides to be multiples of."""
MAPPED_ITEM_BYTES: Final = 2
MAP_STEP: Final = MAP_BYTES // MAPPED_ITEM_BYTES
"""The same in elements."""
MAX_LEN: Final = 2**30
"""Positions of a query and a key are summed in 32 bits."""

_LIBRARY: Final = torch.library.Library("nojit", "FRAGMENT")


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute ``softmax(q @ k^T * scale) @ v`` without storing the scores. Forward only: it has no gradient.

    Args:
        q: queries [B, H, M, D], fp16, bf16 or fp32, D up to 256 (fp32: 128); any strides, the last 1.
        k: keys [B, Hkv, N, D]; H is a multiple of Hkv, and query head h reads head ``h // (H // Hkv)``.
        v: values [B, Hkv, N, Dv], Dv up to 256 (fp32: 128).
        scale: what scores are multiplied with; ``1 / sqrt(D)`` if None.
        is_causal: let query m see the keys up to m only.
        causal_alignment: whether the diagonal starts at the first query and key (``"top_left"``) or ends at the last
            ones (``"bottom_right"``: query m sees the keys up to ``m + N - M``).
        return_lse: return the log-sum-exp of each row of scores too.

    Returns:
        The output [B, H, M, Dv] in the dtype of `q`, and, if asked, the natural-log sums, fp32 [B, H, M]. A query that
        sees no key gives 0 and -inf. If Dv equals D, the output's dimensions lie in memory in the order of those of q.

    Raises:
        ArgumentError: a dtype or device that does not fit.
        ValueError: a shape, stride or word that does not fit.
    """
    launch = _flash_attention if is_plain(q, k, v) else _flash_attention_op
    out, lse = launch(q, k, v, scale, is_causal, causal_alignment, return_lse)
    return (out, lse) if return_lse else out


def _check(q: Tensor, k: Tensor, v: Tensor, causal_alignment: str) -> None:
    check_tensor("q", q)
    check_dtype("q", q)
    check_like("k", k, "q", q)
    check_like("v", v, "q", q)
    check_choice("causal_alignment", causal_alignment, ALIGNMENTS)
    check_rank("q", q, "B, H, M, D")
    check_rank("k", k, "B, Hkv, N, D")
    check_rank("v", v, "B, Hkv, N, Dv")
    batch, heads, _, dim = q.shape
    kv_heads = k.shape[1]
    check_shape("k", k, (batch, kv_heads, k.shape[2], dim), "B, Hkv, N, D")
    check_shape("v", v, (batch, kv_heads, k.shape[2], v.shape[3]), "B, Hkv, N, Dv")
    if heads and (not kv_heads or heads % kv_heads):
        refuse_value("k", f"a number of heads that divides the {heads} of q", kv_heads)
    for name, value in (("q", q), ("k", k), ("v", v)):
        _check_rows(name, value)


def _check_rows(argument: str, value: Tensor) -> None:
    """Require rows that a tile can hold and that lie in one piece."""
    length, dim = value.shape[2:]
    widest = MAX_HEAD_DIM_FP32 if value.dtype == torch.float32 else MAX_HEAD_DIM
    if not 1 <= dim <= widest:
        refuse_value(argument, f"1 to {widest} elements in a row of {value.dtype}", dim)
    if length > MAX_LEN:
        refuse_value(argument, f"at most {MAX_LEN} rows", length)
    if value.stride(3) != 1 and dim != 1:
        refuse_value(argument, "a last stride of 1 (try .contiguous())", value.stride(3))


def _tile_width(dim: int) -> int:
    """Round a head dimension up to what a tile can have."""
    return max(16, 1 << (dim - 1).bit_length())


def _tile_widths(dim: int, v_dim: int) -> tuple[int, int]:
    """Choose BLOCK_D and BLOCK_DV: what is built are equal widths, and 256 with 128."""
    widths = _tile_width(dim), _tile_width(v_dim)
    if widths == (256, 128):
        return widths
    return max(widths), max(widths)


def _allocate(q: Tensor, v: Tensor, return_lse: bool) -> tuple[Tensor, Tensor]:
    """Allocate the output, in q's order of dimensions where it has q's shape, and the log-sums or an empty tensor."""
    batch, heads, length, dim = q.shape
    out = torch.empty_like(q) if v.shape[3] == dim else q.new_empty(batch, heads, length, v.shape[3])
    if out.stride(3) != 1:
        out = q.new_empty(batch, heads, length, v.shape[3])
    return out, q.new_empty((batch, heads, length) if return_lse else (0,), dtype=torch.float32)


def _flash_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, is_causal: bool, causal_alignment: str, return_lse: bool
) -> tuple[Tensor, Tensor]:
    _check(q, k, v, causal_alignment)
    out, lse = _allocate(q, v, return_lse)
    if not out.numel():
        return out, lse
    factor = 1.0 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    offset = k.shape[2] - q.shape[2] if causal_alignment == "bottom_right" else 0
    lse_or_none = lse if return_lse else None
    maps = maps_of(q, k, v, out, factor)
    if maps is None:
        launch_over_pointers(q, k, v, out, lse_or_none, factor, offset, bool(is_causal))
    else:
        launch_over_maps(maps, lse_or_none, factor, offset, bool(is_causal))
    return out, lse


Maps = tuple["_Described", "_Described", "_Described", "_Described"]


def maps_of(q: Tensor, k: Tensor, v: Tensor, out: Tensor, scale: float) -> Maps | None:
    """Describe the operands to the kernel for sm_90; None where it does not run this call.

    It wants 16-bit operands that tensor maps can describe, heads that are not too wide, a key at least, and a scale that
    is not negative.
    """
    if not q.is_cuda or _facts(q.device.index).major != HOPPER or q.element_size() != MAPPED_ITEM_BYTES:
        return None
    if max(q.shape[3], v.shape[3]) > MAX_MAPPED_DIM or not k.shape[2] or scale < 0.0:
        return None
    maps = _described(q), _described(k), _described(v), _described(out)
    return None if None in maps else cast("Maps", maps)


@cache
def _facts(device: int) -> Any:
    """Return what torch knows of a device."""
    return torch.cuda.get_device_properties(device)


class _Described:
    """A tensor as a kernel over tensor maps takes it, its blocks left to the config."""

    __slots__ = ("base", "shape", "strides")

    block_shape = None

    def __init__(self, base: Tensor, strides: tuple[int, ...]) -> None:
        self.base = base
        self.shape = base.shape
        self.strides = strides


def _described(value: Tensor) -> _Described | None:
    """Describe a tensor; None if no map can: its address and strides must be multiples of 16 bytes."""
    batch, heads, rows, width = strides = value.stride()
    if value.data_ptr() % MAP_BYTES or width != 1:
        return None
    if not (batch | heads | rows) % MAP_STEP and min(strides) > 0:
        return _Described(value, strides)
    # of a dimension of one, any stride will do, and the tensor's own may be none that a map takes
    fitting = [MAP_STEP if size == 1 else stride for size, stride in zip(value.shape[:3], strides, strict=False)]
    if any(stride <= 0 or stride % MAP_STEP for stride in fitting):
        return None
    return _Described(value, (*fitting, 1))


def launch_over_maps(maps: Maps, lse: Tensor | None, scale: float, offset: int, is_causal: bool) -> None:
    """Launch the kernel for sm_90."""
    q, _, v, _ = maps
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len, v_dim = v.shape[1:]
    width = _tile_width(max(head_dim, v_dim))
    library.get("flash_attention_fwd_sm90")(
        *maps,
        lse,
        scale,
        offset,
        batch,
        heads,
        heads // kv_heads,
        q_len,
        kv_len,
        _facts(q.base.device.index).multi_processor_count,
        CAUSAL=is_causal,
        BLOCK_D=width,
        BLOCK_DV=width,
    )


def launch_over_pointers(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor | None, scale: float, offset: int, is_causal: bool
) -> None:
    """Launch the kernel that takes any strides, alignment and width."""
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len, v_dim = v.shape[1:]
    block_d, block_dv = _tile_widths(head_dim, v_dim)
    library.get("flash_attention_fwd")(
        q,
        k,
        v,
        out,
        lse,
        scale,
        offset,
        batch,
        heads,
        heads // kv_heads,
        q_len,
        kv_len,
        head_dim,
        v_dim,
        *q.stride()[:3],
        *k.stride()[:3],
        *v.stride()[:3],
        *out.stride()[:3],
        CAUSAL=is_causal,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def _fake(
    q: Tensor,
    k: Tensor,  # noqa: ARG001 - the operator's signature
    v: Tensor,
    scale: float | None,  # noqa: ARG001 - likewise
    is_causal: bool,  # noqa: ARG001 - likewise
    causal_alignment: str,  # noqa: ARG001 - likewise
    return_lse: bool,
) -> tuple[Tensor, Tensor]:
    return _allocate(q, v, return_lse)


def _backward(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("flash_attention has no backward kernel: detach its inputs, or use torch.no_grad()")


_LIBRARY.define(
    "flash_attention(Tensor q, Tensor k, Tensor v, float? scale, bool is_causal, str causal_alignment, bool return_lse)"
    " -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.impl("flash_attention", _flash_attention, "CompositeExplicitAutograd")
torch.library.register_fake("nojit::flash_attention", _fake, lib=_LIBRARY)
torch.library.register_autograd("nojit::flash_attention", _backward, lib=_LIBRARY)
_flash_attention_op = torch.ops.nojit.flash_attention.default
