"""Flex attention: ``flex_attention`` with any mask, as data, and score modifications that are built ahead of time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nojit.kernels.flex.masks import (
        BlockMask,
        Causal,
        Documents,
        Prefix,
        Window,
        and_masks,
        create_block_mask,
        or_masks,
    )
    from nojit.kernels.flex.mods import Alibi, Chain, CustomMod, DenseBias, RelativeBias, SoftCap, alibi_slopes
    from nojit.kernels.flex.op import flex_attention

__all__ = [
    "Alibi",
    "BlockMask",
    "Causal",
    "Chain",
    "CustomMod",
    "DenseBias",
    "Documents",
    "Prefix",
    "RelativeBias",
    "SoftCap",
    "Window",
    "alibi_slopes",
    "and_masks",
    "create_block_mask",
    "flex_attention",
    "or_masks",
]

_MASKS: Final = (
    "BlockMask", "Causal", "Documents", "Prefix", "Window", "and_masks", "create_block_mask", "or_masks",
)  # fmt: skip


def __getattr__(name: str) -> object:
    """Import what is asked for, and torch with it, when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = "op" if name == "flex_attention" else "masks" if name in _MASKS else "mods"
    return getattr(import_module(f"{__name__}.{where}"), name)
