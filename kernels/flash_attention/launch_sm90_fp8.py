"""Forward pass of flash attention over e4m3 on sm_90, with TMA: a kernel that transposes values, and one that attends."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels import library
from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.attention.checks import FP8, LEAST_SCALE
from nojit.kernels.attention.widths import tile_width
from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.calls.tensor_maps import Described, all_described, has_maps
from nojit.kernels.flash_attention.launch_sm90 import Maps, launch_maps
from torch import Tensor

__all__ = ["Fp8Maps", "fp8_maps_of", "launch_fp8_over_maps"]

KERNEL: Final = "flash_attention_fwd_fp8_sm90"
VALUES: Final = "flash_attention_values"
WIDEST: Final = 128
"""The largest head dimension of the sm_90 kernel for e4m3."""
MIN_WIDTH: Final = 64
"""The smallest tile width (padded head dimension) for which it is built."""
MIN_QUERIES: Final = {64: 1024, 128: 256}
"""The fewest queries of a head, by the width, for which the two kernels are faster than the one that takes pointers."""
STEP: Final = 16
"""Keys of the transposed values are padded to a multiple of this, and v_dim must be one: TMA strides, vector loads."""


class Fp8Maps(NamedTuple):
    """TMA descriptions of queries, keys and the result, by the names of params, and of the values."""

    q_map: Described
    k_map: Described
    out_map: Described
    v: Described

    @property
    def width(self) -> int:
        """BLOCK_D and BLOCK_DV: the larger head dimension, rounded up to a power of two."""
        return tile_width(max(self.q_map.shape[3], self.v.shape[3]), MIN_WIDTH)


def fp8_maps_of(q: Tensor, k: Tensor, v: Tensor, out: Tensor, scale: float, mask: BandMask) -> Fp8Maps | None:
    """Return the TMA descriptions for the sm_90 kernel; None if it cannot run this call, or few queries make it slower.

    It can if operands are e4m3 and suit TMA descriptors, head dimensions are at most `WIDEST`, there is a key, the scale
    is at least `LEAST_SCALE`, and the mask has no left bound.
    """
    if q.dtype is not FP8 or mask.mode == "window" or scale < LEAST_SCALE or not k.shape[2] or not has_maps(q.device):
        return None
    if not all(library.has(name) for name in (VALUES, KERNEL)):
        return None
    maps = describe(q, k, v, out)
    return maps if maps is not None and q.shape[2] >= MIN_QUERIES[maps.width] else None


def describe(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Fp8Maps | None:
    """Return the TMA descriptions for any device; None if descriptors cannot hold the operands, or heads are too wide."""
    if max(q.shape[3], v.shape[3]) > WIDEST or v.shape[3] % STEP:
        return None
    maps = all_described(q, k, out, v)
    return None if maps is None else Fp8Maps(*maps)


def launch_fp8_over_maps(
    maps: Fp8Maps, lse: Tensor | None, scale: float, mask: BandMask, caller: Caller = DIRECT
) -> None:
    """Launch the kernel that transposes the values, and the one that attends.

    `caller`: allocates and launches, or also records both for replays.
    """
    columns = launch_values(maps.v, caller)
    widths = dict.fromkeys(("BLOCK_D", "BLOCK_DV", "DEPTH"), maps.width)
    mapped = Maps(maps.q_map, maps.k_map, Described(columns, columns.stride()), maps.out_map)
    launch_maps(KERNEL, mapped, lse, scale, mask, widths, caller)


def launch_values(v: Described, caller: Caller = DIRECT) -> Tensor:
    """Return the values as columns, [B, Hkv, Dv, N padded to 16 keys], which the kernel for attention takes.

    `caller`: allocates and launches, or also records both for replays.
    """
    batch, kv_heads, kv_len, v_dim = v.shape
    padded_len = -(-kv_len // STEP) * STEP
    columns = new_contiguous(caller, v.base, (batch, kv_heads, v_dim, padded_len))
    caller.launch(
        VALUES,
        v_ptr=v.base,
        out_ptr=columns,
        batch=batch,
        kv_heads=kv_heads,
        kv_len=kv_len,
        v_dim=v_dim,
        padded_len=padded_len,
        **named("stride_v", "bhn", v.strides[:3]),
    )
    return columns
