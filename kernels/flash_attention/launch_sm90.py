"""Forward pass of flash attention on sm_90, with TMA: 16-bit operands, and what their launch shares with that of e4m3."""

# ruff: noqa: PLR0917 - a launch has many facts

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.kernels.attention.band_masks import BandMask
from nojit.kernels.attention.checks import LEAST_SCALE
from nojit.kernels.attention.widths import tile_widths
from nojit.kernels.calls.memos import DIRECT, Caller
from nojit.kernels.calls.tensor_maps import Described, all_described, processors, takes_maps
from torch import Tensor

__all__ = ["MIN_WIDTH", "Maps", "launch_maps", "launch_over_maps", "mapped_widths", "maps_of"]

MIN_WIDTH: Final = 16
"""The smallest tile width (padded head dimension) for which forward kernels are built."""
MAX_MAPPED_DIM: Final = 256
"""The largest head dimension of the kernel."""


class Maps(NamedTuple):
    """TMA descriptions of queries, keys, values and the result, by the names of params."""

    q_map: Described
    k_map: Described
    v_map: Described
    out_map: Described


def mapped_widths(dim: int, v_dim: int) -> dict[str, int]:
    """Return BLOCK_D, BLOCK_DV and DEPTH of the sm_90 kernel for the head dimensions of keys and of values."""
    block_d, block_dv = tile_widths(dim, v_dim, MIN_WIDTH)
    # tiles have a power of two of columns, but the kernel need not multiply all of them
    widest = dim if block_dv == 128 else max(dim, v_dim)
    depth = 192 if block_d == 256 and widest <= 192 else block_d
    return {"BLOCK_D": block_d, "BLOCK_DV": block_dv, "DEPTH": depth}


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
    widths = mapped_widths(maps.q_map.shape[3], maps.v_map.shape[3])
    launch_maps("flash_attention_fwd_sm90", maps, lse, scale, mask, widths, caller)


def launch_maps(
    kernel: str, maps: Maps, lse: Tensor | None, scale: float, mask: BandMask, widths: dict[str, int], caller: Caller
) -> None:
    """Launch a forward kernel for sm_90.

    Args:
        kernel: its name in the manifest.
        maps: TMA descriptions of operands and result, the values as the kernel takes them.
        lse: the log-sums to write, or None.
        scale: factor of the scores.
        mask: the mask, without a left bound.
        widths: BLOCK_D, BLOCK_DV and DEPTH.
        caller: allocates and launches, or also records both for replays.
    """
    batch, heads, q_len, _ = maps.q_map.shape
    kv_heads, kv_len = maps.k_map.shape[1:3]
    caller.launch(
        kernel,
        **maps._asdict(),
        lse_ptr=lse,
        scale=scale,
        causal_offset=mask.right,
        batch=batch,
        heads=heads,
        group=heads // kv_heads,
        q_len=q_len,
        kv_len=kv_len,
        programs=processors(maps.q_map.base),
        CAUSAL=mask.mode == "causal",
        **widths,
    )
