"""Forward pass of flash attention: choice and launch of the kernel."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.attention.arguments import qkv_arguments
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.attention.checks import FP8, LEAST_SCALE
from nojit.kernels.attention.outputs import allocate_sums
from nojit.kernels.attention.widths import tile_width, tile_widths
from nojit.kernels.calls.arguments import refuse_type
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import Described, all_described, capability, processors, takes_maps
from nojit.kernels.flash_attention.launch_sm90_fp8 import fp8_maps_of, launch_fp8_over_maps
from torch import Tensor

__all__ = [
    "Maps",
    "launch_forward",
    "launch_over_maps",
    "launch_over_pointers",
    "mapped_widths",
    "maps_of",
]

MIN_WIDTH: Final = 16
"""The smallest tile width (padded head dimension) for which forward kernels are built."""

MIN_FP8_MAJOR: Final = 9
"""The lowest major compute capability with e4m3 products in tensor cores."""
MAX_MAPPED_DIM: Final = 256
"""The largest head dimension of the sm_90 kernel, which takes TMA descriptors."""
MIN_FP8_WIDTH: Final = 64
"""The smallest tile width (padded head dimension) for which e4m3 kernels are built."""


def mapped_widths(dim: int, v_dim: int) -> dict[str, int]:
    """Return BLOCK_D, BLOCK_DV and DEPTH of the sm_90 kernel for the head dimensions of keys and of values."""
    block_d, block_dv = tile_widths(dim, v_dim, MIN_WIDTH)
    # tiles have a power of two of columns, but the kernel need not multiply all of them
    widest = dim if block_dv == 128 else max(dim, v_dim)
    depth = 192 if block_d == 256 and widest <= 192 else block_d
    return {"BLOCK_D": block_d, "BLOCK_DV": block_dv, "DEPTH": depth}


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


class Maps(NamedTuple):
    """TMA descriptions of queries, keys, values and the result, by the names of params."""

    q_map: Described
    k_map: Described
    v_map: Described
    out_map: Described


def maps_of(q: Tensor, k: Tensor, v: Tensor, out: Tensor, scale: float) -> Maps | None:
    """Return the TMA descriptions for the sm_90 kernel; None if it cannot run this call.

    It can if operands have 16 bits and suit TMA descriptors, head dimensions are at most `MAX_MAPPED_DIM`, there is a
    key, and the scale is at least `LEAST_SCALE`.
    """
    if not takes_maps(q) or max(q.shape[3], v.shape[3]) > MAX_MAPPED_DIM or not k.shape[2] or scale < LEAST_SCALE:
        return None
    maps = all_described(q, k, v, out)
    return None if maps is None else Maps(*maps)


def launch_over_maps(maps: Maps, lse: Tensor | None, scale: float, mask: BandMask, caller: Caller = DIRECT) -> None:
    """Launch the sm_90 kernel, which takes TMA descriptors and supports no windows.

    `caller`: allocates and launches, or also records both for replays.
    """
    q, _, v, _ = maps
    batch, heads, q_len, head_dim = q.shape
    kv_heads, kv_len, v_dim = v.shape[1:]
    caller.launch(
        "flash_attention_fwd_sm90",
        **maps._asdict(),
        lse_ptr=lse,
        scale=scale,
        causal_offset=mask.right,
        batch=batch,
        heads=heads,
        group=heads // kv_heads,
        q_len=q_len,
        kv_len=kv_len,
        programs=processors(q.base),
        CAUSAL=mask.mode == "causal",
        **mapped_widths(head_dim, v_dim),
    )


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
