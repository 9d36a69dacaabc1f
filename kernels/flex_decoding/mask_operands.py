"""Masks as operands of the decoding kernels: words, and tables."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from nojit.kernels.attention.checks import Window, window_sides
from nojit.kernels.block_mask.masks import BlockMask, known_tables
from nojit.kernels.block_mask.tables import MaskTables
from torch import Tensor

__all__ = ["MaskOperands", "MaskWords", "band_of_words", "known_mask", "mask_of_tables"]


class MaskWords(NamedTuple):
    """A mask without its tables: mode, bounds of a band, alignment, and block size."""

    mode: str
    """``"band"``, ``"interval"`` or ``"bitmap"``; `nojit.kernels.block_mask.tables` describes the modes."""
    left: int | None
    """Bound of a band, as `right`: a query at position p sees the keys from p + left to p + right; None is no bound."""
    right: int | None
    from_end: bool
    """True if the last query is at the position of the last key; False if query m is at position m."""
    block: int
    """Rows and columns of a block of bitmaps."""


class MaskOperands(NamedTuple):
    """A mask: its `MaskWords`, and the tables that `nojit.kernels.block_mask.tables` describes; tables that its mode lacks are None."""

    words: MaskWords
    spans: Tensor | None = None
    blocks: Tensor | None = None
    bits: Tensor | None = None


_BLOCK = 128
_NOTHING_HIDDEN = MaskOperands(MaskWords("band", None, None, False, _BLOCK))


def band_of_words(is_causal: bool, left: int | None, right: int | None) -> MaskOperands:
    """Return the band for a causal flag and a window, with the last query at the last key; None is no bound."""
    if not is_causal and left is None and right is None:
        return _NOTHING_HIDDEN
    return MaskOperands(MaskWords("band", None if left is None else -left, 0 if is_causal else right, True, _BLOCK))


def known_mask(block_mask: BlockMask | None, is_causal: object, window: Window) -> MaskOperands | None:
    """Return the mask of a call whose replay may be cached; None if it may not.

    Raises:
        AttributeError: not a block mask.
        TypeError: not a window.
        ValueError: not a window.
    """
    if block_mask is None:
        left, right = window if isinstance(window, tuple) else (window, window)
        return _known_band(is_causal, left, right) if isinstance(is_causal, bool) else None
    tables = known_tables(block_mask) if is_causal is False and window is None else None
    return None if tables is None else mask_of_tables(tables)


@lru_cache(maxsize=1024, typed=True)
def _known_band(is_causal: bool, left: int | None, right: int | None) -> MaskOperands:
    return band_of_words(is_causal, *window_sides((left, right)))


def mask_of_tables(tables: MaskTables) -> MaskOperands:
    """Return the mask with the given tables.

    `tables`: the mask.
    """
    if tables.mode == "band":
        return MaskOperands(MaskWords("band", tables.left, tables.right, False, _BLOCK))
    words = MaskWords(tables.mode, None, None, False, tables.block)
    if tables.mode == "interval":
        return MaskOperands(words, tables.by_query.spans)
    return MaskOperands(words, *tables.by_query, tables.bits)
