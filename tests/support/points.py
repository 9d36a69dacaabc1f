"""What variants are told apart by, but for the blocks of descriptors that their configs choose."""

from __future__ import annotations

from nojit.aot.variants.variant import Variant

__all__ = ["point_of"]


def point_of(variant: Variant) -> str:
    """Return a name of the axes, the types without blocks, and the derived constexprs of a variant."""
    types = [kind.partition("[")[0] for _, kind in variant.signature]
    return repr((variant.axes, types, variant.derived))
