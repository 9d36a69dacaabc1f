"""Forward pass of flash attention: choice and launch of the kernel."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from typing import Final

from nojit.kernels.attention.arguments import qkv_arguments
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.attention.checks import FP8
from nojit.kernels.attention.outputs import allocate_sums
from nojit.kernels.attention.widths import tile_width, tile_widths
from nojit.kernels.calls.arguments import refuse_type
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import capability
from nojit.kernels.flash_attention.launch_sm90 import MIN_WIDTH, launch_over_maps, maps_of
from nojit.kernels.flash_attention.launch_sm90_fp8 import fp8_maps_of, launch_fp8_over_maps
from torch import Tensor

__all__ = ["launch_forward", "launch_over_pointers"]

MIN_FP8_MAJOR: Final = 9
"""The lowest major compute capability with e4m3 products in tensor cores."""
MIN_FP8_WIDTH: Final = 64
"""The smallest tile width (padded head dimension) for which e4m3 kernels are built."""


def launch_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor | None,
    scale: float,
    mask: BandMask,
    caller: Caller = DIRECT,
) -> None:
    """Launch the fastest forward kernel that can run the call.

    `caller`: allocates and launches, or also records both for replays.
    """
    maps = None if mask.mode == "window" else maps_of(q, k, v, out, scale)
    fp8_maps = fp8_maps_of(q, k, v, out, scale, mask)
    if maps is not None:
        launch_over_maps(maps, lse, scale, mask, caller)
    elif fp8_maps is not None:
        launch_fp8_over_maps(fp8_maps, lse, scale, mask, caller)
    else:
        launch_over_pointers(q, k, v, out, lse, scale, mask, caller)


def launch_over_pointers(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor | None,
    scale: float,
    mask: BandMask,
    caller: Caller = DIRECT,
) -> None:
    """Launch the kernel that takes pointers: any strides, alignment, head dimension and mask.

    `caller`: allocates and launches, or also records both for replays.
    """
    if lse is None and q.dtype is FP8:
        # that kernel always writes log-sums
        lse = allocate_sums(q, caller)
    batch, heads = q.shape[:2]
    kernel, block_d, block_dv = _kernel_over_pointers(q, v.shape[3])
    caller.launch(
        kernel,
        **qkv_arguments(q, k, v, batch),
        out_ptr=out,
        lse_ptr=lse,
        scale=scale,
        left=mask.left,
        right=mask.right,
        batch=batch,
        heads=heads,
        **named("stride_o", "bhm", out.stride()[:3]),
        MASK=mask.mode,
        BLOCK_D=block_d,
        BLOCK_DV=block_dv,
    )


def _kernel_over_pointers(q: Tensor, v_dim: int) -> tuple[str, int, int]:
    """Return the name of the pointer kernel for the dtype of `q`, with BLOCK_D and BLOCK_DV (padded head dimensions).

    Raises:
        ArgumentError: the device cannot multiply this dtype.
    """
    head_dim = q.shape[3]
    if q.dtype is not FP8:
        return "flash_attention_fwd", *tile_widths(head_dim, v_dim, MIN_WIDTH)
    major, minor = capability(q) if q.is_cuda else (MIN_FP8_MAJOR, 0)
    if major < MIN_FP8_MAJOR:
        refuse_type("q", f"a device of sm_90 or newer for {FP8}", f"sm_{major}{minor}")
    width = tile_width(max(head_dim, v_dim), MIN_FP8_WIDTH)
    return "flash_attention_fwd_fp8", width, width
