"""Which keys a query sees, as the kernels take it."""

# ruff: noqa: PLR0917 - the operator's own order

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NO_MASK", "Mask", "mask_of"]


class Mask(NamedTuple):
    """A band: query m sees the keys from m + `left` to m + `right`."""

    mode: str
    """Which bounds hide anything: ``"none"``, ``"causal"`` (the right one alone) or ``"window"`` (the left one too)."""
    left: int
    right: int


NO_MASK: Final = Mask("none", 0, 0)


def mask_of(
    q_len: int, kv_len: int, is_causal: bool, causal_alignment: str, left: int | None, right: int | None
) -> Mask:
    """Find the band of a call; a bound that hides no key from any query is dropped.

    Args:
        q_len: the number of queries.
        kv_len: the number of keys.
        is_causal: whether a query sees nothing to its right.
        causal_alignment: where positions start: query 0 is at that of key 0 (``"top_left"``), or the last query at that
            of the last key (``"bottom_right"``).
        left: how many keys to the left of its position a query sees; None is all.
        right: likewise to the right.
    """
    if not is_causal and left is None and right is None:
        return NO_MASK
    shift = kv_len - q_len if causal_alignment == "bottom_right" else 0
    if is_causal:
        right = 0
    # bounds beyond all queries and keys are as good as none, and sums with them stay within 32 bits
    low = -q_len if left is None else max(shift - left, -q_len)
    high = kv_len if right is None else min(shift + right, kv_len)
    if q_len - 1 + low > 0:
        return Mask("window", low, high)
    return Mask("causal", 0, high) if high < kv_len - 1 else NO_MASK
