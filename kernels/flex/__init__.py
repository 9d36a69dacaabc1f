"""``flex_attention`` with any mask, which is stored as data, and score modifications that are built ahead of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.block_mask.masks import (
        BlockMask,
        Causal,
        Documents,
        Prefix,
        Window,
        and_masks,
        create_block_mask,
        create_mask,
        noop_mask,
        or_masks,
    )
    from nojit.kernels.flex.op import flex_attention
    from nojit.kernels.flex.return_aux import AuxOutput, AuxRequest
    from nojit.kernels.score_mod.mods import (
        NO_SLOT,
        Alibi,
        Chain,
        CustomMod,
        DenseBias,
        RelativeBias,
        Slot,
        SoftCap,
        alibi_slopes,
    )

__all__ = [
    "NO_SLOT",
    "Alibi",
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "Causal",
    "Chain",
    "CustomMod",
    "DenseBias",
    "Documents",
    "Prefix",
    "RelativeBias",
    "Slot",
    "SoftCap",
    "Window",
    "alibi_slopes",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_MASKS: Final = (
    "BlockMask", "Causal", "Documents", "Prefix", "Window", "and_masks", "create_block_mask", "create_mask",
    "noop_mask", "or_masks",
)  # fmt: skip

_HOMES: Final = {
    **dict.fromkeys(_MASKS, "nojit.kernels.block_mask.masks"),
    "flex_attention": "op",
    "AuxOutput": "return_aux",
    "AuxRequest": "return_aux",
}

__getattr__ = lazily(__name__, __all__, _HOMES, home="nojit.kernels.score_mod.mods")
