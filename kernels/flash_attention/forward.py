"""The forward pass: results allocated, sizes mapped to the kernels' meaning, one launch."""

# ruff: noqa: PLR0917 - a launch takes its facts by position, many of them

from __future__ import annotations

from functools import cache
from typing import Any, Final, cast

import torch
from nojit.kernels import library
from nojit.kernels.arguments import refuse_type
from nojit.kernels.flash_attention.checks import FP8
from nojit.kernels.flash_attention.masks import Mask
from torch import Tensor

__all__ = ["allocate_output", "launch_forward", "launch_over_maps", "launch_over_pointers", "maps_of", "tile_widths"]

HOPPER: Final = 9
"""The major compute capability that has a kernel of its own, and the first that multiplies e4m3."""
MAX_MAPPED_DIM: Final = 128
"""The widest heads of that kernel."""
MAP_BYTES: Final = 16
"""What tensor maps want addresses and strides to be multiples of."""
MAPPED_ITEM_BYTES: Final = 2
MAP_STEP: Final = MAP_BYTES // MAPPED_ITEM_BYTES
"""The same in elements."""

MIN_FP8_WIDTH: Final = 64
"""Narrower tiles are not built for e4m3."""


def _tile_width(dim: int) -> int:
    """Round a head dimension up to what a tile can have."""
    return max(16, 1 << (dim - 1).bit_length())


def tile_widths(dim: int, v_dim: int) -> tuple[int, int]:
    """Choose BLOCK_D and BLOCK_DV: what is built are equal widths, and 256 with 128."""
    widths = _tile_width(dim), _tile_width(v_dim)
    if widths == (256, 128):
        return widths
    return max(widths), max(widths)


def allocate_output(q: Tensor, v: Tensor, return_lse: bool) -> tuple[Tensor, Tensor | None]:
    """Allocate the output, in q's order of dimensions where it has q's shape, and the log-sums if they are asked for."""
    batch, heads, length, dim = q.shape
    shape = (batch, heads, length, v.shape[3])
    dtype = torch.bfloat16 if q.dtype is FP8 else q.dtype
    out = torch.empty_like(q, dtype=dtype) if shape[3] == dim else q.new_empty(shape, dtype=dtype)
    if out.stride(3) != 1:
        out = q.new_empty(shape, dtype=dtype)
    return out, q.new_empty(shape[:3], dtype=torch.float32) if return_lse else None


def launch_forward(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor | None, scale: float, mask: Mask) -> None:
    """Launch the fastest kernel that runs the call."""
    maps = None if mask.mode == "window" else maps_of(q, k, v, out, scale)
    if maps is None:
        launch_over_pointers(q, k, v, out, lse, scale, mask)
    else:
        launch_over_maps(maps, lse, scale, mask)


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


def launch_over_maps(maps: Maps, lse: Tensor | None, scale: float, mask: Mask) -> None:
    """Launch the kernel for sm_90, which knows no windows."""
    q, _, v, _ = maps
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len, v_dim = v.shape[1:]
    width = _tile_width(max(head_dim, v_dim))
    library.get("flash_attention_fwd_sm90")(
        *maps,
        lse,
        scale,
        mask.right,
        batch,
        heads,
        heads // kv_heads,
        q_len,
        kv_len,
        _facts(q.base.device.index).multi_processor_count,
        CAUSAL=mask.mode == "causal",
        BLOCK_D=width,
        BLOCK_DV=width,
    )


def launch_over_pointers(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor | None, scale: float, mask: Mask
) -> None:
    """Launch the kernel that takes any strides, alignment, width and mask."""
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len, v_dim = v.shape[1:]
    kernel, block_d, block_dv = _kernel_over_pointers(q, v_dim)
    library.get(kernel)(
        q,
        k,
        v,
        out,
        lse,
        scale,
        mask.left,
        mask.right,
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
        MASK=mask.mode,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def _kernel_over_pointers(q: Tensor, v_dim: int) -> tuple[str, int, int]:
    """Name the kernel for a dtype, and choose BLOCK_D and BLOCK_DV.

    Raises:
        ArgumentError: the device cannot multiply this dtype.
    """
    head_dim = q.shape[3]
    if q.dtype is not FP8:
        return "flash_attention_fwd", *tile_widths(head_dim, v_dim)
    facts = _facts(q.device.index) if q.is_cuda else None
    if facts is not None and facts.major < HOPPER:
        refuse_type("q", f"a device of sm_90 or newer for {FP8}", f"sm_{facts.major}{facts.minor}")
    width = max(MIN_FP8_WIDTH, _tile_width(max(head_dim, v_dim)))
    return "flash_attention_fwd_fp8", width, width
