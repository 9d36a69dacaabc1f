"""The distinct images of a kernel: variants whose images are equal share one in the bundle."""

from __future__ import annotations

from nojit.aot.pack.tables import KernelContent
from nojit.aot.variants.variant import CompiledVariant, Variant

__all__ = ["distinct_images"]


def distinct_images(kernel: KernelContent) -> list[bytes]:
    """Return the distinct images of a kernel, sorted by config, then by inputs, so that similar ones are adjacent."""
    return list(dict.fromkeys(compiled.image for _, compiled in sorted(kernel.variants, key=_origin)))


def _origin(pair: tuple[Variant, CompiledVariant]) -> tuple[object, ...]:
    variant, _ = pair
    return (
        repr(variant.config.constexprs),
        repr(variant.options),
        repr([value for value in variant.constexprs if value not in variant.derived]),
        variant.signature,
        repr(variant.derived),
        variant.hints,
    )
