"""Masks of flash attention that are bands, as the kernels take them."""

# ruff: noqa: PLR0917 - the operator's own order

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NO_MASK", "BandMask", "band_mask_of"]


class BandMask(NamedTuple):
    """A mask that is a band: query m sees the keys from m + `left` to m + `right`."""

    mode: str
    """The bounds that mask any key: ``"none"``, ``"causal"`` (only the right one) or ``"window"`` (the left one, or both)."""
    left: int
    right: int


NO_MASK: Final = BandMask("none", 0, 0)


def band_mask_of(
    q_len: int, kv_len: int, is_causal: bool, causal_alignment: str, left: int | None, right: int | None
) -> BandMask:
    """Return the band for a call's arguments, without bounds that mask no key.

    Args:
        q_len: the number of queries.
        kv_len: the number of keys.
        is_causal: whether a query sees no key to the right of its position.
        causal_alignment: ``"top_left"`` aligns query 0 with key 0; ``"bottom_right"`` aligns the last query with the
            last key.
        left: the number of visible keys to the left of a query's position; None means all.
        right: the number of visible keys to the right of a query's position; None means all.
    """
    if not is_causal and left is None and right is None:
        return NO_MASK
    shift = kv_len - q_len if causal_alignment == "bottom_right" else 0
    if is_causal:
        right = 0
    # clamp the bounds: that masks nothing, and sums with them stay within 32 bits
    low = -q_len if left is None else max(shift - left, -q_len)
    high = kv_len if right is None else min(shift + right, kv_len)
    if q_len - 1 + low > 0:
        return BandMask("window", low, high)
    return BandMask("causal", 0, high) if high < kv_len - 1 else NO_MASK
